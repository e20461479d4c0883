/* test_reduce.c: sums are right, add to what is there, and have the same bits for any level and thread count */
#include "lanes.h"
#include <float.h>
#include <math.h>

static const uint64_t counts[] = { 1,    2,    15,   16,    17,    31,        255,       4095,
                                   4096, 4097, 8192, 12289, 65536, 65536 + 3, 300000 + 7 };

static double sum(struct lane *lane, const float *x, uint64_t count, double before)
{
    double out = before;
    lane_run(lane, ZR_OP_sum, &(struct zr_op_sum){ .out = &out, .x = x, .count = count });
    return out;
}

/* Scratch of exactly the size that is asked for, and fenced. */
static double norm_squared(struct lane *lane, const void *x, enum zr_dtype dtype, uint64_t count, double before)
{
    struct room room;
    double out = before;
    double *scratch = room_make(&room, zr_op_norm_squared_scratch(count) * sizeof(double), 0);
    lane_run(lane, ZR_OP_norm_squared,
             &(struct zr_op_norm_squared){ .out = &out, .x = x, .count = count, .scratch = scratch, .dtype = dtype });
    room_free(&room);
    return out;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

static void integers_sum_exactly(void **state)
{
    /* 1 - 2 + 3 - ..., whose sum is known; every partial sum is an integer below 2^53, so any order is exact. */
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++) {
        struct lane lane = lane_make(level, 2);
        for (size_t row = 0; row < ZR_COUNT(counts); row++) {
            uint64_t count = counts[row];
            struct room room;
            float *x = room_make(&room, count * 4, 4);
            for (uint64_t i = 0; i < count; i++)
                x[i] = i % 2 ? -(float)(i + 1) : (float)(i + 1);
            double expected = count % 2 ? (double)(count + 1) / 2 : -(double)count / 2;
            assert_true(sum(&lane, x, count, 0) == expected);
            assert_true(sum(&lane, x, count, 1000) == 1000 + expected);
            /* 1 + 4 + 9 + ... = n (n+1) (2n+1) / 6, below 2^53 up to 300,078 */
            double squares = (double)(count * (count + 1) * (2 * count + 1) / 6);
            assert_true(norm_squared(&lane, x, ZR_F32, count, 0) == squares);
            assert_true(norm_squared(&lane, x, ZR_F32, count, 7) == 7 + squares);
            room_free(&room);
        }
        lane_free(&lane);
    }
}

static void random_numbers_within_double_rounding(void **state)
{
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++) {
        struct lane lane = lane_make(level, 3);
        for (size_t row = 0; row < ZR_COUNT(counts); row++) {
            uint64_t count = counts[row], random = 17;
            float *x = malloc(count * 4);
            uint16_t *narrow = malloc(count * 2);
            long double total = 0, magnitude = 0, squares = 0, narrow_squares = 0;
            for (uint64_t i = 0; i < count; i++) {
                x[i] = draw_f32(&random);
                narrow[i] = zr_f32_to_bf16(x[i]);
                total += x[i];
                magnitude += fabsf(x[i]);
                squares += (long double)x[i] * x[i];
                narrow_squares += (long double)zr_bf16_to_f32(narrow[i]) * zr_bf16_to_f32(narrow[i]);
            }
            double bound = (double)count * DBL_EPSILON;
            assert_true(fabsl(sum(&lane, x, count, 0) - total) <= bound * magnitude);
            assert_true(fabsl(norm_squared(&lane, x, ZR_F32, count, 0) - squares) <= bound * squares);
            assert_true(fabsl(norm_squared(&lane, narrow, ZR_BF16, count, 0) - narrow_squares) <=
                        bound * narrow_squares);
            free(x);
            free(narrow);
        }
        lane_free(&lane);
    }
}

static void levels_and_threads_change_no_bit(void **state)
{
    (void)state;
    for (size_t row = 0; row < ZR_COUNT(counts); row++) {
        uint64_t count = counts[row], first[3];
        bool any = false;
        for (enum zr_simd_level level = 0; level < levels_here(); level++)
            for (size_t i = 0; i < ZR_COUNT(thread_counts); i++) {
                struct lane lane = lane_make(level, thread_counts[i]);
                struct room room, narrow_room;
                float *x = room_make(&room, count * 4, i * 4); /* the same numbers at another alignment */
                uint16_t *narrow = room_make(&narrow_room, count * 2, i * 2);
                uint64_t random = 23;
                for (uint64_t j = 0; j < count; j++) {
                    x[j] = ldexpf(draw_f32(&random), (int)(draw(&random) % 60) - 30); /* an order that matters */
                    narrow[j] = zr_f32_to_bf16(x[j]);
                }
                uint64_t now[3] = { bits_of(sum(&lane, x, count, 0.1)),
                                    bits_of(norm_squared(&lane, x, ZR_F32, count, 0.1)),
                                    bits_of(norm_squared(&lane, narrow, ZR_BF16, count, 0.1)) };
                if (any) assert_memory_equal(now, first, sizeof now);
                memcpy(first, now, sizeof now);
                any = true;
                room_free(&room);
                room_free(&narrow_room);
                lane_free(&lane);
            }
    }
}

static void squares_beyond_fp32_stay_finite(void **state)
{
    /* A gradient of 1e30 has a norm; clipping by it is right, an infinite one would skip the step. */
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++) {
        struct lane lane = lane_make(level, 1);
        const float large[3] = { 0x1p100f, 0x1p-100f, 0 }, tiny[2] = { 0x1p-140f, 0x1p-149f };
        assert_true(norm_squared(&lane, large, ZR_F32, 3, 0) == 0x1p200);
        assert_true(norm_squared(&lane, tiny, ZR_F32, 2, 0) == 0x1p-280 + 0x1p-298);
        lane_free(&lane);
    }
}

static void what_is_not_finite_shows(void **state)
{
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++) {
        struct lane lane = lane_make(level, 2);
        float *x = calloc(20000, 4);
        for (uint64_t at = 0; at < 20000; at += 3331) {
            x[at] = INFINITY;
            assert_true(isinf(norm_squared(&lane, x, ZR_F32, 20000, 0)));
            assert_true(isinf(sum(&lane, x, 20000, 0)));
            x[at] = NAN;
            assert_true(isnan(norm_squared(&lane, x, ZR_F32, 20000, 0)));
            assert_true(isnan(sum(&lane, x, 20000, 0)));
            x[at] = 0;
        }
        free(x);
        lane_free(&lane);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_sum_exactly),
        cmocka_unit_test(random_numbers_within_double_rounding),
        cmocka_unit_test(levels_and_threads_change_no_bit),
        cmocka_unit_test(squares_beyond_fp32_stay_finite),
        cmocka_unit_test(what_is_not_finite_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
