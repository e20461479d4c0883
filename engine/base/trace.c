/* trace.c: a ring of timed events
 *
 * A writer claims the next slot with one atomic add and marks it: odd while it writes, even when the record is whole (a
 * sequence lock per slot).
 *   T1  One writer at a time per slot: the mark goes from even to odd by compare and exchange. A writer that the whole
 *       ring overtook finds another at work, or a newer record, and drops its own, which is old by then.
 *   T2  A reader that finds an odd or changed mark skips the slot. Words are stored with release after the odd mark and
 *       loaded with acquire before the second look at it: who sees a new word sees the odd mark.
 * Nothing here waits, so a writer that the kernel stops in the middle holds nobody up. */
#include "engine/base/trace.h"
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (sizeof(struct zr_event_record) / sizeof(uint64_t))
#define NAMES 256

static_assert(sizeof(struct zr_event_record) % sizeof(uint64_t) == 0, "records are copied word by word");

struct slot {
    _Atomic uint64_t mark; /* 2 * claim + 1 while written, 2 * claim + 2 when whole, 0: never used */
    _Atomic uint64_t words[WORDS];
};

struct zr_trace {
    uint32_t capacity;
    _Atomic uint64_t claimed;
    struct slot *slots;
    pthread_mutex_t lock; /* guards the tables of names */
    char *tracks[NAMES], *names[NAMES];
    _Atomic uint32_t track_count, name_count;
};

enum zr_code zr_trace_make(uint32_t capacity, struct zr_trace **ret_trace, struct zr_error *err)
{
    assert(capacity > 0);
    struct zr_trace *trace = calloc(1, sizeof *trace);
    if (trace) trace->slots = calloc(capacity, sizeof *trace->slots);
    if (!trace || !trace->slots) {
        free(trace);
        return zr_fail(err, ZR_EFULL, "no memory for a trace of %u events", capacity);
    }
    trace->capacity = capacity;
    pthread_mutex_init(&trace->lock, NULL);
    *ret_trace = trace;
    return ZR_OK;
}

void zr_trace_free(struct zr_trace *trace)
{
    if (!trace) return;
    for (uint32_t i = 0; i < NAMES; i++) {
        free(trace->tracks[i]);
        free(trace->names[i]);
    }
    pthread_mutex_destroy(&trace->lock);
    free(trace->slots);
    free(trace);
}

static uint32_t intern(struct zr_trace *trace, char **table, _Atomic uint32_t *count, const char *text)
{
    pthread_mutex_lock(&trace->lock);
    uint32_t used = atomic_load_explicit(count, memory_order_relaxed), index = 0;
    while (index < used && strcmp(table[index], text) != 0)
        index++;
    if (index == used && used == NAMES) {
        index = NAMES - 1; /* "others" */
    } else if (index == used) {
        table[index] = strdup(used < NAMES - 1 ? text : "others");
        if (!table[index]) abort();
        atomic_store_explicit(count, used + 1, memory_order_release);
    }
    pthread_mutex_unlock(&trace->lock);
    return index;
}

uint32_t zr_trace_track(struct zr_trace *trace, const char *track)
{
    return intern(trace, trace->tracks, &trace->track_count, track);
}

uint32_t zr_trace_name(struct zr_trace *trace, const char *name)
{
    return intern(trace, trace->names, &trace->name_count, name);
}

const char *zr_trace_track_text(const struct zr_trace *trace, uint32_t track)
{
    return track < atomic_load_explicit(&trace->track_count, memory_order_acquire) ? trace->tracks[track] : "?";
}

const char *zr_trace_name_text(const struct zr_trace *trace, uint32_t name)
{
    return name < atomic_load_explicit(&trace->name_count, memory_order_acquire) ? trace->names[name] : "?";
}

void zr_trace_put(struct zr_trace *trace, const struct zr_event_record *record)
{
    uint64_t words[WORDS];
    memcpy(words, record, sizeof words);
    uint64_t claim = atomic_fetch_add_explicit(&trace->claimed, 1, memory_order_relaxed);
    struct slot *slot = &trace->slots[claim % trace->capacity];
    uint64_t mark = atomic_load_explicit(&slot->mark, memory_order_relaxed);
    if ((mark & 1) || mark > 2 * claim) return; /* T1 */
    if (!atomic_compare_exchange_strong_explicit(&slot->mark, &mark, 2 * claim + 1, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    for (unsigned i = 0; i < WORDS; i++) /* T2 */
        atomic_store_explicit(&slot->words[i], words[i], memory_order_release);
    atomic_store_explicit(&slot->mark, 2 * claim + 2, memory_order_release);
}

uint32_t zr_trace_read(struct zr_trace *trace, struct zr_event_record *records, uint32_t room)
{
    uint64_t end = atomic_load_explicit(&trace->claimed, memory_order_acquire);
    uint64_t most = room < trace->capacity ? room : trace->capacity;
    uint32_t count = 0;
    for (uint64_t claim = end > most ? end - most : 0; claim < end; claim++) {
        struct slot *slot = &trace->slots[claim % trace->capacity];
        if (atomic_load_explicit(&slot->mark, memory_order_acquire) != 2 * claim + 2) continue;
        uint64_t words[WORDS];
        for (unsigned i = 0; i < WORDS; i++)
            words[i] = atomic_load_explicit(&slot->words[i], memory_order_acquire);
        if (atomic_load_explicit(&slot->mark, memory_order_relaxed) != 2 * claim + 2) continue; /* T2 */
        memcpy(&records[count++], words, sizeof words);
    }
    return count;
}
