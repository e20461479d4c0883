/* log.c: one line an event to standard error */
#include "engine/base/log.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Set once by zr_log_open(), before threads start. */
static enum zr_level lowest = ZR_LOG_INFO;
static bool to_journal;

/* The journal puts "device:inode" of the stream that it reads into the environment. */
static bool journal_reads_stderr(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat status;
    unsigned long long device, inode;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &status) == 0 &&
           status.st_dev == device && status.st_ino == inode;
}

void zr_log_open(enum zr_level level)
{
    lowest = level;
    to_journal = journal_reads_stderr();
}

static const char *level_name(enum zr_level level)
{
    return level == ZR_LOG_ERROR ? "error" : level == ZR_LOG_WARN ? "warn" : level == ZR_LOG_INFO ? "info" : "debug";
}

void zr_log(enum zr_level level, const char *event, const char *format, ...)
{
    if (level > lowest) return;
    char line[4096];
    int length;
    if (to_journal) {
        length = snprintf(line, sizeof line, "<%d>", level);
    } else {
        struct timespec now;
        struct tm utc;
        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &utc);
        length = (int)strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
        length += snprintf(line + length, sizeof line - (size_t)length, ".%03ldZ ", now.tv_nsec / 1000000);
    }
    length += snprintf(line + length, sizeof line - (size_t)length, "level=%s event=%s ", level_name(level), event);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + length, sizeof line - (size_t)length, format, args);
    va_end(args);
    if (more > 0) length += more;
    if ((size_t)length > sizeof line - 2) length = sizeof line - 2; /* cut, never split */
    while (length > 0 && line[length - 1] == ' ')
        length--;
    line[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written; /* a closed standard error is nobody's failure */
}

const char *zr_log_quote(char *out, unsigned room, const char *value)
{
    unsigned at = 0;
    if (room < 3) return "";
    out[at++] = '"';
    for (const unsigned char *c = (const unsigned char *)value; *c && at + 6 < room; c++) {
        if (*c == '"' || *c == '\\') {
            out[at++] = '\\';
            out[at++] = (char)*c;
        } else if (*c < 0x20 || *c == 0x7f) {
            at += (unsigned)snprintf(out + at, 5, "\\x%02x", *c);
        } else {
            out[at++] = (char)*c;
        }
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}
