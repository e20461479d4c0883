/* log.h: one line an event, key=value, to standard error
 *
 * Only engine/serve and the tools log; everything below returns its errors. When standard error is the journal
 * (JOURNAL_STREAM names its device and inode) a line starts with "<N>", the syslog priority; else with the time in ISO
 * 8601. A line is written with one write(2), so lines of different threads never mix.
 * Thread-safe. The level and the debug rooms are set once, before threads start. */
#ifndef ZR_BASE_LOG_H
#define ZR_BASE_LOG_H

#include "engine/base/error.h"

enum zr_level { ZR_LOG_ERROR = 3, ZR_LOG_WARN = 4, ZR_LOG_INFO = 6, ZR_LOG_DEBUG = 7 };

void zr_log_open(enum zr_level level);

/* zr_log(ZR_LOG_WARN, "short_read", "path=%s offset=%" PRIu64, path, offset): event name, then key=value pairs.
 * Values with blanks, quotes or control characters must go through zr_log_quote(). */
void zr_log(enum zr_level level, const char *event, const char *format, ...) ZR_PRINTF(3, 4);

/* `value` in double quotes with quotes, backslashes and control bytes escaped, cut to fit; returns out. */
const char *zr_log_quote(char *out, unsigned room, const char *value);

#endif
