/* test_split.c: the split master weight loses nothing, and its high half is the bf16 that a cast gives
 *
 * By itself it tries every high half with the low halves around each boundary, which has all ties and all exponents,
 * and a strided sweep of the rest. `test_split exhaustive` tries all 2^32 patterns. */
#include "kernels/split.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t sweep_stride = 509; /* odd: meets every low half */

/* IEEE 754's round to nearest, ties to even, said with the remainder instead of an added half. */
static uint32_t nearest_bf16(uint32_t bits)
{
    uint32_t kept = bits >> 16, remainder = bits & 0xffffu;
    bool up = remainder > 0x8000u || (remainder == 0x8000u && (kept & 1u));
    return kept + up;
}

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* Returns whether the pattern was moved by one ulp. */
static bool check_pattern(uint32_t bits)
{
    uint16_t high, low;
    zr_split_encode(zr_f32_of_bits(bits), &high, &low);
    uint32_t back = zr_f32_bits(zr_split_decode(high, low));
    if (is_nan(bits)) {
        if (!is_nan((uint32_t)high << 16)) fail_msg("NaN %08x has the weight %04x, a number", bits, high);
        if (!is_nan(back)) fail_msg("NaN %08x came back as %08x", bits, back);
        if ((back ^ bits) >> 31) fail_msg("NaN %08x came back with the other sign", bits);
        return false;
    }
    if (high != nearest_bf16(bits)) fail_msg("%08x: high is %04x, the cast gives %04x", bits, high, nearest_bf16(bits));
    bool ambiguous = (bits & 0xffffu) == 0x8000u && !(bits & 0x10000u);
    if (back != bits - ambiguous) fail_msg("%08x came back as %08x", bits, back);
    return ambiguous;
}

static void every_high_half_around_the_boundaries_of_the_low_half(void **state)
{
    static const uint32_t lows[] = { 0, 1, 2, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0x8002, 0xfffe, 0xffff };
    (void)state;
    uint64_t moved_finite = 0;
    for (uint32_t high = 0; high < 0x10000u; high++)
        for (size_t i = 0; i < sizeof lows / sizeof *lows; i++) {
            uint32_t bits = high << 16 | lows[i];
            bool moved = check_pattern(bits);
            moved_finite += moved && (bits & 0x7f800000u) != 0x7f800000u;
        }
    /* Half of 2 signs * 255 exponents * 128 upper significands are even. */
    assert_int_equal(moved_finite, 2 * 255 * 128 / 2);
}

static void a_sweep_of_all_patterns(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < 0x100000000u; bits += sweep_stride)
        check_pattern((uint32_t)bits);
}

static void encoding_what_was_decoded_changes_nothing(void **state)
{
    /* States on disk are encoded once more after each update; a second nudge of the same value would be a drift. */
    (void)state;
    for (uint64_t bits = 0; bits < 0x100000000u; bits += sweep_stride) {
        if (is_nan((uint32_t)bits)) continue;
        uint16_t high, low, high_again, low_again;
        zr_split_encode(zr_f32_of_bits((uint32_t)bits), &high, &low);
        zr_split_encode(zr_split_decode(high, low), &high_again, &low_again);
        if (high != high_again || low != low_again) fail_msg("%08x is split anew after a round trip", (uint32_t)bits);
    }
}

static void paper_values(void **state)
{
    static const struct {
        float master;
        uint16_t high, low;
    } rows[] = {
        { 0.0f, 0x0000, 0x0000 },           { -0.0f, 0x8000, 0x0000 }, { 1.0f, 0x3f80, 0x0000 },
        { 0x1.000002p0f, 0x3f80, 0x0001 },  /* one ulp above 1                            */
        { 0x1.01p0f, 0x3f80, 0x7fff },      /* halfway, even below: moved towards zero    */
        { 0x1.010002p0f, 0x3f81, 0x8001 },  /* just above halfway                         */
        { 0x1.03p0f, 0x3f82, 0x8000 },      /* halfway, odd below: rounds up by itself    */
        { -0x1.01p0f, 0xbf80, 0x7fff },     /* the same below zero: still towards zero    */
        { 0x1.fffffep127f, 0x7f80, 0xffff } /* the largest: the weight is infinite, the master not */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint16_t high, low;
        zr_split_encode(rows[i].master, &high, &low);
        assert_int_equal(high, rows[i].high);
        assert_int_equal(low, rows[i].low);
    }
    assert_true(zr_split_decode(0x7f80, 0xffff) == 0x1.fffffep127f);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "exhaustive") == 0) sweep_stride = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_high_half_around_the_boundaries_of_the_low_half),
        cmocka_unit_test(a_sweep_of_all_patterns),
        cmocka_unit_test(encoding_what_was_decoded_changes_nothing),
        cmocka_unit_test(paper_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
