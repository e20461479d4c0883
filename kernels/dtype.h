/* dtype.h: number formats and their conversions, one element at a time (loops over arrays are operations) */
#ifndef ZR_KERNELS_DTYPE_H
#define ZR_KERNELS_DTYPE_H

#include <stdint.h>
#include <string.h>

enum zr_dtype { ZR_F32, ZR_BF16, ZR_F16, ZR_DTYPE_COUNT };

static inline uint32_t zr_dtype_bytes(enum zr_dtype dtype)
{
    return dtype == ZR_F32 ? 4 : 2;
}

static inline uint32_t zr_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float zr_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline float zr_bf16_to_f32(uint16_t half)
{
    return zr_f32_of_bits((uint32_t)half << 16);
}

/* Round to nearest, ties to even; NaN stays a quiet NaN. */
static inline uint16_t zr_f32_to_bf16(float value)
{
    uint32_t bits = zr_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* IEEE binary16, round to nearest even, subnormals kept; a NaN stays a NaN of its sign. No branches, so that loops over
 * arrays vectorise: the one floating-point operation of each runs for every value, with 0 where it is not needed, and
 * the magnitude is signed, since AVX2 compares nothing else. */
static inline uint16_t zr_f32_to_f16(float value)
{
    uint32_t bits = zr_f32_bits(value), sign = bits >> 16 & 0x8000u;
    int32_t magnitude = (int32_t)(bits & 0x7fffffffu);
    /* Below 2^-14 a multiple of 2^-24: adding 0.5 makes the fp32 adder round at exactly that bit. */
    uint32_t small = 0u - (uint32_t)(magnitude < 0x38800000), half = 0x3f000000u & small;
    uint32_t sum = zr_f32_bits(zr_f32_of_bits((uint32_t)magnitude) + zr_f32_of_bits(half));
    uint32_t normal = (sum + 0xfffu + (sum >> 13 & 1u) - 0x38000000u) >> 13;
    int32_t out = (int32_t)(((sum - half) & small) | (normal & ~small));
    out = out < 0x7c00 ? out : 0x7c00; /* 65520 and more: infinity */
    uint32_t quiet = 0x0200u & (0u - (uint32_t)(magnitude > 0x7f800000));
    return (uint16_t)(sign | (uint32_t)out | quiet);
}

static inline float zr_f16_to_f32(uint16_t half)
{
    uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    /* A subnormal is read as 2^-14 * (1 + fraction), from which 2^-14 is taken away, exactly. */
    uint32_t excess = magnitude < 0x0400u ? 0x38800000u : 0;
    uint32_t bits = (magnitude << 13) + (magnitude < 0x0400u ? 0x38800000u : 0x38000000u);
    bits += magnitude >= 0x7c00u ? 0x38000000u : 0; /* infinity and NaN: the highest exponent of fp32 */
    return zr_f32_of_bits(sign | zr_f32_bits(zr_f32_of_bits(bits) - zr_f32_of_bits(excess)));
}

#endif
