/* chrome.c: events as Chrome trace JSON: one complete ("X") event a record, times in microseconds */
#include "engine/base/trace.h"
#include <inttypes.h>

/* Names are our own, but a track may carry a job's name: quoted as JSON wants it. */
static void add_string(struct zr_text *out, const char *text)
{
    zr_text_add(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            zr_text_add(out, "\\%c", *c);
        else if (*c < 0x20)
            zr_text_add(out, "\\u%04x", *c);
        else
            zr_text_add_bytes(out, c, 1);
    }
    zr_text_add(out, "\"");
}

static void add_microseconds(struct zr_text *out, const char *key, uint64_t ns)
{
    zr_text_add(out, ",\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

void zr_chrome_write(const struct zr_trace *trace, const struct zr_event_record *records, uint32_t count,
                     uint64_t origin_ns, struct zr_text *out)
{
    uint64_t seen[4] = { 0 }; /* a bit a track, 256 at most */
    zr_text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                     "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"zerod\"}}");
    for (uint32_t i = 0; i < count; i++) {
        const struct zr_event_record *record = &records[i];
        uint32_t track = record->track & 255;
        if (!(seen[track / 64] >> track % 64 & 1)) {
            seen[track / 64] |= (uint64_t)1 << track % 64;
            zr_text_add(
                out, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":", track + 1);
            add_string(out, zr_trace_track_text(trace, record->track));
            zr_text_add(out, "}}");
        }
        uint64_t begin = record->begin_ns > origin_ns ? record->begin_ns - origin_ns : 0;
        uint64_t end = record->end_ns > origin_ns ? record->end_ns - origin_ns : 0;
        zr_text_add(out, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"name\":", track + 1);
        add_string(out, zr_trace_name_text(trace, record->name));
        add_microseconds(out, "ts", begin);
        add_microseconds(out, "dur", end > begin ? end - begin : 0);
        zr_text_add(out, ",\"args\":{\"step\":%u", record->step);
        if (record->unit != UINT32_MAX) zr_text_add(out, ",\"unit\":%u", record->unit);
        if (record->micro != UINT32_MAX) zr_text_add(out, ",\"micro\":%u", record->micro);
        if (record->bytes) zr_text_add(out, ",\"bytes\":%" PRIu64, record->bytes);
        zr_text_add(out, "}}");
    }
    zr_text_add(out, "\n]}\n");
}
