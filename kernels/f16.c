/* f16.c: IEEE binary16, one element at a time; round to nearest even, subnormals kept */
#include "kernels/dtype.h"

uint16_t zr_f32_to_f16(float value)
{
    uint32_t bits = zr_f32_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 or more: infinity */
    if (magnitude < 0x38800000u) {                                   /* below 2^-14: a multiple of 2^-24 */
        /* Adding 0.5 makes the fp32 adder round at exactly 2^-24. */
        float shifted = zr_f32_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (zr_f32_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

float zr_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0) {
        float value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    if (exponent == 31) return zr_f32_of_bits(sign | 0x7f800000u | fraction << 13);
    return zr_f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}
