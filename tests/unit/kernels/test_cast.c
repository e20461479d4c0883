/* test_cast.c: number formats against their definitions, and the cast operation against the one-element conversions */
#include "lanes.h"
#include <math.h>

static uint64_t sweep_stride = 1021; /* of all 2^32 fp32 patterns; 1 with the argument `exhaustive` */

/* -- the formats by definition -------------------------------------------------------------------------------------- */

/* A 16-bit format with `fraction_bits` and a bias, its value by arithmetic in double (exact). */
struct format {
    int fraction_bits, bias;
};
static const struct format f16 = { 10, 15 }, bf16 = { 7, 127 };

static double value_of(const struct format *format, uint16_t half)
{
    int exponent_ones = (1 << (15 - format->fraction_bits)) - 1;
    int exponent = half >> format->fraction_bits & exponent_ones, fraction = half & ((1 << format->fraction_bits) - 1);
    double sign = half >> 15 ? -1.0 : 1.0;
    if (exponent == exponent_ones) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - format->bias - format->fraction_bits);
    return sign * ldexp((1 << format->fraction_bits) + fraction, exponent - format->bias - format->fraction_bits);
}

/* The nearest value of the format, ties to even, by rounding the quotient with the spacing around x. */
static double nearest(const struct format *format, double x)
{
    int exponent;
    if (x == 0 || !isfinite(x)) return x;
    frexp(x, &exponent);
    exponent -= 1;
    int lowest = 1 - format->bias;
    double spacing = ldexp(1, (exponent < lowest ? lowest : exponent) - format->fraction_bits);
    double rounded = nearbyint(x / spacing) * spacing;
    double limit = ldexp(1, format->bias + 1);
    return rounded >= limit ? INFINITY : rounded <= -limit ? -INFINITY : rounded;
}

static bool same_double(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void check_f32(uint32_t bits)
{
    float x = zr_f32_of_bits(bits);
    uint16_t half = zr_f32_to_f16(x), brain = zr_f32_to_bf16(x);
    if (!same_double(value_of(&f16, half), nearest(&f16, x))) fail_msg("%08x in fp16 is not %04x", bits, half);
    if (!same_double(value_of(&bf16, brain), nearest(&bf16, x))) fail_msg("%08x in bf16 is not %04x", bits, brain);
    if (isnan(x) && (half >> 15 != bits >> 31 || brain >> 15 != bits >> 31)) fail_msg("NaN %08x lost its sign", bits);
}

static void every_half_has_its_value(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000u; half++) {
        if (!same_double(zr_f16_to_f32((uint16_t)half), value_of(&f16, (uint16_t)half))) fail_msg("fp16 %04x", half);
        if (!same_double(zr_bf16_to_f32((uint16_t)half), value_of(&bf16, (uint16_t)half))) fail_msg("bf16 %04x", half);
    }
}

static void every_half_survives_a_round_trip(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000u; half++) {
        uint16_t back = zr_f32_to_f16(zr_f16_to_f32((uint16_t)half));
        if (back != half && !isnan(value_of(&f16, (uint16_t)half))) fail_msg("fp16 %04x came back as %04x", half, back);
        back = zr_f32_to_bf16(zr_bf16_to_f32((uint16_t)half));
        if (back != half && !isnan(value_of(&bf16, (uint16_t)half)))
            fail_msg("bf16 %04x came back as %04x", half, back);
    }
}

static void numbers_at_and_beside_every_midpoint(void **state)
{
    /* The midpoints between neighbours, where rounding turns, with the fp32 numbers on both sides of them. */
    (void)state;
    for (uint32_t half = 0; half < 0x10000u; half++) {
        double below = value_of(&f16, (uint16_t)half), above = value_of(&f16, (uint16_t)(half + 1));
        if (isfinite(below) && !isnan(above)) {
            if (isinf(above)) above = copysign(65536, below);
            uint32_t middle = zr_f32_bits((float)((below + above) / 2));
            for (uint32_t bits = middle - 2; bits != middle + 3; bits++)
                check_f32(bits);
        }
        for (uint32_t low = 0x7ffe; low <= 0x8002; low++)
            check_f32(half << 16 | low);
        for (uint32_t low = 0; low <= 2; low++)
            check_f32(half << 16 | low), check_f32(half << 16 | (0xffffu - low));
    }
}

static void a_sweep_of_fp32_patterns(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < 0x100000000u; bits += sweep_stride)
        check_f32((uint32_t)bits);
}

/* -- the operation -------------------------------------------------------------------------------------------------- */

static uint32_t element(const void *array, enum zr_dtype dtype, uint64_t i)
{
    return dtype == ZR_F32 ? ((const uint32_t *)array)[i] : ((const uint16_t *)array)[i];
}

static float widened(const void *array, enum zr_dtype dtype, uint64_t i)
{
    if (dtype == ZR_F32) return ((const float *)array)[i];
    uint16_t half = ((const uint16_t *)array)[i];
    return dtype == ZR_BF16 ? zr_bf16_to_f32(half) : zr_f16_to_f32(half);
}

static uint32_t narrowed(float value, enum zr_dtype dtype)
{
    return dtype == ZR_F32 ? zr_f32_bits(value) : dtype == ZR_BF16 ? zr_f32_to_bf16(value) : zr_f32_to_f16(value);
}

static bool nan_in(uint32_t bits, enum zr_dtype dtype)
{
    return dtype == ZR_F32 ? is_nan(bits) : isnan(value_of(dtype == ZR_BF16 ? &bf16 : &f16, (uint16_t)bits));
}

static void check_cast(struct lane *lane, enum zr_dtype from, enum zr_dtype to, uint64_t count, uint64_t shift,
                       bool in_place)
{
    uint64_t from_bytes = zr_dtype_bytes(from), to_bytes = zr_dtype_bytes(to);
    struct room x_room, out_room, kept_room;
    void *x = room_make(&x_room, count * from_bytes, shift * from_bytes), *out = x;
    void *kept = room_make(&kept_room, count * from_bytes, 0);
    if (!in_place) out = room_make(&out_room, count * to_bytes, (shift + 1) * to_bytes);
    uint64_t random = count + shift;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bits = draw(&random);
        if (from == ZR_F32)
            ((uint32_t *)x)[i] = i % 2 ? zr_f32_bits(70000 * draw_f32(&random)) : bits;
        else
            ((uint16_t *)x)[i] = (uint16_t)bits;
    }
    memcpy(kept, x, count * from_bytes);
    lane_run(lane, ZR_OP_cast, &(struct zr_op_cast){ .out = out, .x = x, .count = count, .from = from, .to = to });
    for (uint64_t i = 0; i < count; i++) {
        uint32_t got = element(out, to, i);
        uint32_t expected = from == to ? element(kept, from, i) : narrowed(widened(kept, from, i), to);
        if (got != expected && !(nan_in(got, to) && nan_in(expected, to)))
            fail_msg("%s, %d to %d: element %llu of %llu is %x, expected %x", lane->level, from, to,
                     (unsigned long long)i, (unsigned long long)count, got, expected);
    }
    if (!in_place) {
        assert_memory_equal(x, kept, count * from_bytes);
        room_free(&out_room);
    }
    room_free(&x_room);
    room_free(&kept_room);
}

static void arrays_in_any_direction(void **state)
{
    static const uint64_t counts[] = { 1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 16384, 3 * 16384 + 5 };
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++)
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            struct lane lane = lane_make(level, threads);
            for (enum zr_dtype from = 0; from < ZR_DTYPE_COUNT; from++)
                for (enum zr_dtype to = 0; to < ZR_DTYPE_COUNT; to++)
                    for (size_t row = 0; row < ZR_COUNT(counts); row++)
                        for (uint64_t shift = 0; shift < 3; shift++)
                            check_cast(&lane, from, to, counts[row], shift, false);
            lane_free(&lane);
        }
}

static void in_place_where_the_sizes_agree(void **state)
{
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++) {
        struct lane lane = lane_make(level, 2);
        for (enum zr_dtype from = 0; from < ZR_DTYPE_COUNT; from++)
            for (enum zr_dtype to = 0; to < ZR_DTYPE_COUNT; to++)
                if (zr_dtype_bytes(from) == zr_dtype_bytes(to)) check_cast(&lane, from, to, 2 * 16384 + 77, 1, true);
        lane_free(&lane);
    }
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "exhaustive") == 0) sweep_stride = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_has_its_value),
        cmocka_unit_test(every_half_survives_a_round_trip),
        cmocka_unit_test(numbers_at_and_beside_every_midpoint),
        cmocka_unit_test(a_sweep_of_fp32_patterns),
        cmocka_unit_test(arrays_in_any_direction),
        cmocka_unit_test(in_place_where_the_sizes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
