/* ring.h: single producer, single consumer; all memory ordering of the project's shared memory
 *
 *   R1  Indices run freely and are masked on use; the count is a power of two.
 *   R2  Each side keeps its own index privately and only publishes it: what the peer writes over it changes nothing.
 *   R3  The peer's index is believed only when it lies within `count` of ours; else the peer breaks the protocol.
 *   R4  Entries are copied word by word with atomic loads: what is checked afterwards is what is used.
 *   R5  No wake-up is lost. The producer publishes the tail and then looks at the consumer's sleeping flag; the consumer
 *       raises its flag and then looks at the tail. All four are sequentially consistent, so in their one total order
 *       somebody sees the other (plain release and acquire would let both look first). */
#ifndef ZRP_RING_H
#define ZRP_RING_H

#include "ipc/wire.h"
#include <stdbool.h>
#include <string.h>

struct zrp_ring {
    _Atomic uint64_t *words; /* count * entry_words, in shared memory */
    _Atomic uint32_t *head, *tail;
    uint32_t count, entry_words;
    uint32_t mine; /* the producer's tail or the consumer's head */
};

static inline void zrp_ring_init(struct zrp_ring *ring, void *entries, uint32_t entry_bytes, uint32_t count,
                                 _Atomic uint32_t *head, _Atomic uint32_t *tail)
{
    assert(count && (count & (count - 1)) == 0 && entry_bytes % 8 == 0);
    *ring = (struct zrp_ring){
        .words = entries, .head = head, .tail = tail, .count = count, .entry_words = entry_bytes / 8
    };
}

/* Producer: entries that may be put; -1: the consumer's index is nonsense. */
static inline int64_t zrp_ring_room(const struct zrp_ring *ring)
{
    uint32_t used = ring->mine - atomic_load_explicit(ring->head, memory_order_acquire);
    return used <= ring->count ? (int64_t)(ring->count - used) : -1;
}

/* The place of the producer's next entry or of the consumer's oldest one. */
static inline uint32_t zrp_ring_index(const struct zrp_ring *ring)
{
    return ring->mine & (ring->count - 1);
}

/* Producer: copies the entry in and publishes it. There is room. */
static inline void zrp_ring_put(struct zrp_ring *ring, const void *entry)
{
    _Atomic uint64_t *to = ring->words + (size_t)zrp_ring_index(ring) * ring->entry_words;
    for (uint32_t i = 0; i < ring->entry_words; i++) {
        uint64_t word;
        memcpy(&word, (const char *)entry + 8 * i, 8);
        atomic_store_explicit(to + i, word, memory_order_relaxed);
    }
    ring->mine++;
    atomic_store_explicit(ring->tail, ring->mine, memory_order_seq_cst); /* R5; also releases the entry */
}

/* Consumer: entries that may be taken; -1: the producer's index is nonsense. */
static inline int64_t zrp_ring_ready(const struct zrp_ring *ring)
{
    uint32_t ready = atomic_load_explicit(ring->tail, memory_order_acquire) - ring->mine;
    return ready <= ring->count ? (int64_t)ready : -1;
}

/* Consumer, between raising its flag and falling asleep (R5). */
static inline int64_t zrp_ring_ready_before_sleep(const struct zrp_ring *ring)
{
    uint32_t ready = atomic_load_explicit(ring->tail, memory_order_seq_cst) - ring->mine;
    return ready <= ring->count ? (int64_t)ready : -1;
}

/* Consumer: copies the oldest entry out; its place stays taken. One is ready. */
static inline void zrp_ring_peek(const struct zrp_ring *ring, void *entry)
{
    const _Atomic uint64_t *from = ring->words + (size_t)zrp_ring_index(ring) * ring->entry_words;
    for (uint32_t i = 0; i < ring->entry_words; i++) {
        uint64_t word = atomic_load_explicit(from + i, memory_order_relaxed);
        memcpy((char *)entry + 8 * i, &word, 8);
    }
}

/* Consumer: gives the oldest entry's place back. */
static inline void zrp_ring_drop(struct zrp_ring *ring)
{
    ring->mine++;
    atomic_store_explicit(ring->head, ring->mine, memory_order_release);
}

/* Consumer: both. */
static inline void zrp_ring_take(struct zrp_ring *ring, void *entry)
{
    zrp_ring_peek(ring, entry);
    zrp_ring_drop(ring);
}

/* Consumer: raises or lowers its flag; look at the ring once more after raising it. */
static inline void zrp_sleep_announce(_Atomic uint32_t *sleeping)
{
    atomic_store_explicit(sleeping, 1, memory_order_seq_cst);
}

static inline void zrp_sleep_end(_Atomic uint32_t *sleeping)
{
    atomic_store_explicit(sleeping, 0, memory_order_relaxed);
}

/* The same with a number that is another one each time and never 0, so that the producer can tell the sleeps apart. */
static inline void zrp_sleep_announce_number(_Atomic uint32_t *sleeping, uint32_t number)
{
    atomic_store_explicit(sleeping, number, memory_order_seq_cst);
}

/* Producer, after a put: must the consumer be woken? Once for each of its sleeps: *rung is the last one that was. */
static inline bool zrp_sleeps_anew(_Atomic uint32_t *sleeping, uint32_t *rung)
{
    uint32_t number = atomic_load_explicit(sleeping, memory_order_seq_cst);
    if (number == 0 || number == *rung) return false;
    *rung = number;
    return true;
}

/* The same, and lowers the flag: one wake-up for each time that the consumer went to sleep. */
static inline bool zrp_sleeps_take(_Atomic uint32_t *sleeping)
{
    return atomic_load_explicit(sleeping, memory_order_seq_cst) != 0 && atomic_exchange(sleeping, 0) != 0;
}

#endif
