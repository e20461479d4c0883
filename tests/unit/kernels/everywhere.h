/* everywhere.h: one operation at every level of this machine and for several thread counts, held to the same bits */
#ifndef ZR_TESTS_KERNELS_EVERYWHERE_H
#define ZR_TESTS_KERNELS_EVERYWHERE_H

#include "lanes.h"
#include "near.h"

/* An array that the operation writes, or adds to: every run finds in it what the caller had put there. */
struct written {
    void *at;
    uint64_t bytes;
};

#define WRITTEN_MOST 4

/* Leaves in the arrays what the runs, all alike, have made of them. */
static inline void run_everywhere(enum zr_op op, const void *args, const struct written *arrays, size_t count)
{
    void *before[WRITTEN_MOST], *first[WRITTEN_MOST];
    bool any = false;
    assert_true(count <= WRITTEN_MOST);
    for (size_t i = 0; i < count; i++) {
        before[i] = malloc(arrays[i].bytes);
        first[i] = malloc(arrays[i].bytes);
        memcpy(before[i], arrays[i].at, arrays[i].bytes);
    }
    for (enum zr_simd_level level = 0; level < levels_here(); level++)
        for (size_t t = 0; t < ZR_COUNT(thread_counts); t++) {
            struct lane lane = lane_make(level, thread_counts[t]);
            for (size_t i = 0; i < count; i++)
                memcpy(arrays[i].at, before[i], arrays[i].bytes);
            lane_run(&lane, op, args);
            for (size_t i = 0; i < count; i++) {
                if (!any) memcpy(first[i], arrays[i].at, arrays[i].bytes);
                if (memcmp(first[i], arrays[i].at, arrays[i].bytes) != 0)
                    fail_msg("%s: %s with %u threads gives other bits in array %zu", zr_op_name(op), lane.level,
                             thread_counts[t], i);
            }
            any = true;
            lane_free(&lane);
        }
    for (size_t i = 0; i < count; i++) {
        free(before[i]);
        free(first[i]);
    }
}

/* `count` numbers in [-scale, scale), from the heap. */
static inline float *numbers(uint64_t count, uint64_t seed, float scale)
{
    float *x = calloc(count, sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; i < count; i++)
        x[i] = draw_f32(&seed) * scale;
    return x;
}

/* What is in an array before an operation, to be overwritten by the reference: what it leaves alone must stay. */
static inline double *doubles(const float *x, uint64_t count)
{
    double *wide = malloc(count * sizeof *wide);
    assert_non_null(wide);
    for (uint64_t i = 0; i < count; i++)
        wide[i] = x[i];
    return wide;
}

/* `want` is freed. */
static inline void must_be_near(const char *what, const float *got, double *want, uint64_t count, double bound)
{
    double distance = near_relative(got, want, count);
    free(want);
    if (!(distance <= bound)) fail_msg("%s is %.3g away from its reference, %.3g is allowed", what, distance, bound);
}

#endif
