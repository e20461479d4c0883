/* trace.h: a ring of timed events, always on, no allocation while it runs
 *
 * Writers (stream threads, the executor) put one 48-byte record per finished piece of work; the ring keeps the newest
 * `capacity`. Names and tracks are interned at set-up. Thread-safe and never waiting: a slot is claimed by one
 * atomic add, a record that is being written while the ring is read is skipped, and one whose writer was overtaken by the
 * whole ring is lost. */
#ifndef ZR_BASE_TRACE_H
#define ZR_BASE_TRACE_H

#include "engine/base/error.h"
#include "engine/base/text.h"
#include <stdint.h>

struct zr_trace;

struct zr_event_record {
    uint64_t begin_ns, end_ns;  /* CLOCK_MONOTONIC */
    uint32_t track;             /* a queue; index of zr_trace_track() */
    uint32_t name;              /* index of zr_trace_name() */
    uint32_t step, unit, micro; /* what it worked for; UINT32_MAX where it means nothing */
    uint64_t bytes;             /* moved, or 0 */
};

ZR_MUST_CHECK enum zr_code zr_trace_make(uint32_t capacity, struct zr_trace **ret_trace, struct zr_error *err);
void zr_trace_free(struct zr_trace *trace);

/* Set-up only (takes a lock): the index of a track or name, the same one for the same text. 255 of each;
 * what comes after them shares one index, "others". */
uint32_t zr_trace_track(struct zr_trace *trace, const char *track);
uint32_t zr_trace_name(struct zr_trace *trace, const char *name);

void zr_trace_put(struct zr_trace *trace, const struct zr_event_record *record);

/* Copies the newest records, oldest first, at most `room`; returns how many. */
uint32_t zr_trace_read(struct zr_trace *trace, struct zr_event_record *records, uint32_t room);
const char *zr_trace_track_text(const struct zr_trace *trace, uint32_t track);
const char *zr_trace_name_text(const struct zr_trace *trace, uint32_t name);

/* Appends {"displayTimeUnit":"ms","traceEvents":[...]} with one Chrome "thread" per track, in the order in which the
 * tracks were named; opens in Perfetto. Valid JSON whatever the names hold. Records of one track must not overlap in time (each queue runs its work in order). `origin_ns` becomes time 0. */
void zr_chrome_write(const struct zr_trace *trace, const struct zr_event_record *records, uint32_t count,
                     uint64_t origin_ns, struct zr_text *out);

#endif
