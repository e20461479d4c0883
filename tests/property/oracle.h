/* oracle.h: the hazards of a schedule by brute force, for holding the verifier against
 *
 * Nothing here is clever: which op is done before which other one starts is a matrix of bits, filled from queue order and
 * waits alone; which two ops must not meet is a list of all pairs that touch one buffer, one of them writing. A schedule
 * has a hazard where a pair of the list is not in the matrix. */
#ifndef ZR_TESTS_ORACLE_H
#define ZR_TESTS_ORACLE_H

#include "engine/plan/schedule.h"
#include <stdlib.h>
#include <string.h>

struct oracle_pair {
    uint32_t first, second; /* op indices */
};

struct oracle {
    uint32_t op_count, words;
    uint64_t *done_before; /* op_count rows of op_count bits */
    struct oracle_pair *pairs;
    uint32_t pair_count, room;
};

static inline bool oracle_conflict(const struct zr_op_entry *a, const struct zr_op_entry *b)
{
    for (uint32_t i = 0; i < a->access_count; i++)
        for (uint32_t j = 0; j < b->access_count; j++)
            if (a->access[i].buffer == b->access[j].buffer && (a->access[i].write || b->access[j].write)) return true;
    return false;
}

/* Lists the pairs; they depend on what the ops touch, and not on the waits. */
static inline void oracle_init(struct oracle *oracle, const struct zr_schedule *schedule)
{
    *oracle = (struct oracle){ .op_count = schedule->op_count, .words = schedule->op_count / 64 + 1 };
    oracle->done_before = calloc((size_t)oracle->op_count * oracle->words, sizeof(uint64_t));
    if (!oracle->done_before) abort();
    for (uint32_t second = 0; second < oracle->op_count; second++)
        for (uint32_t first = 0; first < second; first++) {
            if (!oracle_conflict(&schedule->ops[first], &schedule->ops[second])) continue;
            if (oracle->pair_count == oracle->room) {
                oracle->room = oracle->room ? 2 * oracle->room : 1024;
                oracle->pairs = realloc(oracle->pairs, oracle->room * sizeof *oracle->pairs);
                if (!oracle->pairs) abort();
            }
            oracle->pairs[oracle->pair_count++] = (struct oracle_pair){ first, second };
        }
}

static inline void oracle_fini(struct oracle *oracle)
{
    free(oracle->done_before);
    free(oracle->pairs);
}

static inline void oracle_follow(struct oracle *oracle, uint32_t op, uint32_t before)
{
    uint64_t *row = oracle->done_before + (size_t)op * oracle->words;
    const uint64_t *with = oracle->done_before + (size_t)before * oracle->words;
    for (uint32_t word = 0; word < oracle->words; word++)
        row[word] |= with[word];
    row[before / 64] |= (uint64_t)1 << before % 64;
}

/* True: with the waits that are in the schedule now, every two ops that must not meet do not. */
static inline bool oracle_is_safe(struct oracle *oracle, const struct zr_schedule *schedule)
{
    memset(oracle->done_before, 0, (size_t)oracle->op_count * oracle->words * sizeof(uint64_t));
    for (uint32_t op = 0; op < oracle->op_count; op++)
        for (uint32_t before = 0; before < op; before++) {
            const struct zr_op_entry *a = &schedule->ops[before], *b = &schedule->ops[op];
            bool in_turn = a->queue == b->queue && a->sequence + 1 == b->sequence;
            if (in_turn || (b->wait[a->queue] && b->wait[a->queue] == a->sequence)) oracle_follow(oracle, op, before);
        }
    for (uint32_t i = 0; i < oracle->pair_count; i++) {
        const struct oracle_pair *pair = &oracle->pairs[i];
        uint64_t word = oracle->done_before[(size_t)pair->second * oracle->words + pair->first / 64];
        if (!(word >> pair->first % 64 & 1)) return false;
    }
    return true;
}

#endif
