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

/* IEEE binary16, round to nearest even, subnormals kept. */
uint16_t zr_f32_to_f16(float value);
float zr_f16_to_f32(uint16_t half);

#endif
