/* lanes.h: a kernel test runs each operation at every level of this machine and with several thread counts
 *
 * Rooms of arrays are fenced by a pattern on both sides, so that a write past either end is seen without a sanitizer. */
#ifndef ZR_TESTS_KERNELS_LANES_H
#define ZR_TESTS_KERNELS_LANES_H

#include "kernels/cpu/lane.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t thread_counts[] = { 1, 2, 3, 4 };

struct lane {
    struct zr_cpu_lane cpu;
    const char *level;
};

static struct lane lane_make(enum zr_simd_level level, uint32_t threads)
{
    static const char *const names[ZR_LEVEL_COUNT] = { "scalar", "AVX2", "AVX-512" };
    struct lane lane = { .level = names[level], .cpu.table = zr_cpu_table(level) };
    struct zr_error err = { 0 };
    assert_int_equal(zr_pool_make(threads, &lane.cpu.pool, &err), ZR_OK);
    return lane;
}

static void lane_free(struct lane *lane)
{
    zr_pool_free(lane->cpu.pool);
}

static void lane_run(struct lane *lane, enum zr_op op, const void *args)
{
    struct zr_error err = { 0 };
    assert_int_equal(zr_op_check(op, args, &err), ZR_OK);
    lane->cpu.table[op](&lane->cpu, args);
}

/* for (enum zr_simd_level level = 0; level < levels_here(); level++) */
static inline enum zr_simd_level levels_here(void)
{
    return (enum zr_simd_level)(zr_cpu_simd(ZR_LEVEL_AVX512) + 1);
}

/* -- fenced arrays ------------------------------------------------------------------------------------------------- */

#define FENCE_BYTES 192u
#define FENCE_PATTERN 0xa5

struct room {
    unsigned char *area;
    uint64_t bytes, shift;
};

/* `bytes` that begin `shift` bytes after a cache line. */
static inline void *room_make(struct room *room, uint64_t bytes, uint64_t shift)
{
    *room = (struct room){ .bytes = bytes, .shift = shift };
    uint64_t whole = (2 * FENCE_BYTES + shift + bytes + 63) / 64 * 64;
    room->area = aligned_alloc(64, whole);
    assert_non_null(room->area);
    memset(room->area, FENCE_PATTERN, whole);
    return room->area + FENCE_BYTES + shift;
}

static inline void room_free(struct room *room)
{
    for (uint64_t i = 0; i < FENCE_BYTES + room->shift; i++)
        if (room->area[i] != FENCE_PATTERN)
            fail_msg("byte %llu before the array was written", (unsigned long long)(FENCE_BYTES + room->shift - i));
    for (uint64_t i = 0; i < FENCE_BYTES; i++)
        if (room->area[FENCE_BYTES + room->shift + room->bytes + i] != FENCE_PATTERN)
            fail_msg("byte %llu after the array was written", (unsigned long long)i);
    free(room->area);
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */

/* xorshift64*; the tests need many bits, not good ones. */
static inline uint32_t draw(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)((*state * 0x2545f4914f6cdd1dull) >> 32);
}

/* In [-1, 1). */
static inline float draw_f32(uint64_t *state)
{
    return (float)(int32_t)draw(state) * 0x1p-31f;
}

static inline bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

#endif
