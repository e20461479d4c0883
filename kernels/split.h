/* split.h: the fp32 master weight as a bf16 weight and 16 low bits
 *
 * encode: b = bits of the master. A tie ((b & 0x1ffff) == 0x8000: halfway, and the bf16 below is even) is moved one ulp
 * towards zero first, since there round-to-nearest-even goes down while decoding would assume up. Then
 *     high = RNE(b) as bf16,   low = b mod 2^16,   decode: b = (high << 16) + sign_extend(low).
 * So high is exactly what PyTorch's cast of the master gives, and decode(encode(b)) == b for every b that is not such a
 * tie and not a NaN, even for those whose high is infinite. A NaN becomes quiet and loses its low 16 bits first, since
 * the rounding could carry it over to infinity or to zero, and a broken master would look like a sound weight. */
#ifndef ZR_KERNELS_SPLIT_H
#define ZR_KERNELS_SPLIT_H

#include "kernels/dtype.h"
#include <stdint.h>

static inline float zr_split_decode(uint16_t high, uint16_t low)
{
    return zr_f32_of_bits(((uint32_t)high << 16) + (uint32_t)(int32_t)(int16_t)low);
}

static inline void zr_split_encode(float master, uint16_t *ret_high, uint16_t *ret_low)
{
    uint32_t bits = zr_f32_bits(master);
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits = (bits | 0x400000u) & 0xffff0000u;
    if ((bits & 0x1ffffu) == 0x8000u) bits -= 1;
    *ret_high = (uint16_t)((bits + 0x8000u) >> 16); /* RNE: with the ties that go down moved, all others go up */
    *ret_low = (uint16_t)bits;
}

#endif
