/* halves.h: arrays of 16-bit floats of a file to and from fp32; internal to the store room */
#ifndef ZR_STORE_HALVES_H
#define ZR_STORE_HALVES_H

#include "kernels/dtype.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* `raw` may be the upper half of `values`. */
static inline void zr_widen_halves(float *values, const void *raw, uint64_t count, bool bf16)
{
    for (uint64_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, (const char *)raw + 2 * i, 2);
        values[i] = bf16 ? zr_bf16_to_f32(half) : zr_f16_to_f32(half);
    }
}

static inline void zr_narrow_halves(uint16_t *halves, const float *values, uint64_t count, bool bf16)
{
    for (uint64_t i = 0; i < count; i++)
        halves[i] = bf16 ? zr_f32_to_bf16(values[i]) : zr_f32_to_f16(values[i]);
}

#endif
