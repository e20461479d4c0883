/* chrome.c: events as Chrome trace JSON: one complete ("X") event a record, times in microseconds
 *
 * Viewers refuse a whole file for one bad byte, and a track may bear a job's name, which a client chose: every string goes
 * through add_string(), which lets only well-formed UTF-8 pass. */
#include "engine/base/trace.h"
#include <inttypes.h>
#include <stdbool.h>

#define UNKNOWN 256 /* the one track of all records whose track is none of ours */

/* Bytes of the UTF-8 sequence at `c` (RFC 3629: shortest form, no surrogates, at most U+10FFFF); 0 when it is none. */
static unsigned sequence_bytes(const unsigned char *c)
{
    if (c[0] < 0x80) return 1;
    unsigned bytes = c[0] >= 0xc2 && c[0] < 0xe0   ? 2
                     : c[0] >= 0xe0 && c[0] < 0xf0 ? 3
                     : c[0] >= 0xf0 && c[0] < 0xf5 ? 4
                                                   : 0;
    for (unsigned i = 1; i < bytes; i++)
        if ((c[i] & 0xc0) != 0x80) return 0; /* the NUL at the end ends here too */
    bool wrong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf0 && c[1] < 0x90) ||
                 (c[0] == 0xf4 && c[1] > 0x8f);
    return wrong ? 0 : bytes;
}

static void add_string(struct zr_text *out, const char *text)
{
    zr_text_add_bytes(out, "\"", 1);
    for (const unsigned char *c = (const unsigned char *)text; *c;) {
        unsigned bytes = sequence_bytes(c);
        if (bytes == 0)
            zr_text_add_bytes(out, "\\ufffd", 6);
        else if (*c < 0x20)
            zr_text_add(out, "\\u%04x", *c);
        else if (*c == '"' || *c == '\\')
            zr_text_add(out, "\\%c", *c);
        else
            zr_text_add_bytes(out, c, bytes);
        c += bytes ? bytes : 1;
    }
    zr_text_add_bytes(out, "\"", 1);
}

static void add_microseconds(struct zr_text *out, const char *key, uint64_t ns)
{
    zr_text_add(out, ",\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

static uint32_t row_of(uint32_t track)
{
    return track < UNKNOWN ? track : UNKNOWN;
}

/* Names the tracks that have records, in order of their index. */
static void add_tracks(const struct zr_trace *trace, const struct zr_event_record *records, uint32_t count,
                       struct zr_text *out)
{
    bool used[UNKNOWN + 1] = { false };
    for (uint32_t i = 0; i < count; i++)
        used[row_of(records[i].track)] = true;
    for (uint32_t row = 0; row <= UNKNOWN; row++) {
        if (!used[row]) continue;
        zr_text_add(out, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":", row + 1);
        add_string(out, zr_trace_track_text(trace, row));
        zr_text_add(
            out, "}},\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%u}}",
            row + 1, row);
    }
}

static void add_record(const struct zr_trace *trace, const struct zr_event_record *record, uint64_t origin_ns,
                       struct zr_text *out)
{
    uint64_t begin_ns = record->begin_ns > origin_ns ? record->begin_ns - origin_ns : 0;
    uint64_t end_ns = record->end_ns > origin_ns ? record->end_ns - origin_ns : 0;
    zr_text_add(out, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"name\":", row_of(record->track) + 1);
    add_string(out, zr_trace_name_text(trace, record->name));
    add_microseconds(out, "ts", begin_ns);
    add_microseconds(out, "dur", end_ns > begin_ns ? end_ns - begin_ns : 0);
    zr_text_add(out, ",\"args\":{");
    const struct {
        const char *key;
        uint64_t value;
        bool told;
    } args[] = {
        { "step", record->step, record->step != UINT32_MAX },
        { "unit", record->unit, record->unit != UINT32_MAX },
        { "micro", record->micro, record->micro != UINT32_MAX },
        { "bytes", record->bytes, record->bytes != 0 },
    };
    const char *comma = "";
    for (unsigned i = 0; i < ZR_COUNT(args); i++) {
        if (!args[i].told) continue;
        zr_text_add(out, "%s\"%s\":%" PRIu64, comma, args[i].key, args[i].value);
        comma = ",";
    }
    zr_text_add(out, "}}");
}

void zr_chrome_write(const struct zr_trace *trace, const struct zr_event_record *records, uint32_t count,
                     uint64_t origin_ns, struct zr_text *out)
{
    zr_text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                     "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"zerod\"}}");
    add_tracks(trace, records, count, out);
    for (uint32_t i = 0; i < count; i++)
        add_record(trace, &records[i], origin_ns, out);
    zr_text_add(out, "\n]}\n");
}
