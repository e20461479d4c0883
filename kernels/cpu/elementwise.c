/* elementwise.c: add, fill, cast */
#include "kernels/cpu/kernel.h"
#include <assert.h>
#include <string.h>

static void add(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_add *a = args;
    const float *x = a->a, *y = a->b;
    float *out = a->out;
#pragma GCC ivdep
    for (uint64_t i = first; i < first + count; i++)
        out[i] = x[i] + y[i];
}

void ZR_KERNEL(add)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_add *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(range)(lane, &(struct zr_cpu_range){ .args = a, .count = a->count, .body = add });
}

static void fill(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_fill *a = args;
    memset((char *)a->out + first, 0, count);
}

void ZR_KERNEL(fill)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_fill *a = args;
    ZR_KERNEL(rows)(lane, &(struct zr_cpu_range){ .args = a, .count = a->bytes, .body = fill }, 1u << 18);
}

/* -- cast: through fp32, element by element; out and x may be the same array where the sizes agree ------------------ */

static void cast(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_cast *a = args;
    const float *from32 = a->x;
    const uint16_t *from16 = a->x;
    float *to32 = a->out;
    uint16_t *to16 = a->out;
    const uint64_t end = first + count;
    if (a->from == a->to) {
        uint64_t size = zr_dtype_bytes(a->from);
        memmove((char *)a->out + first * size, (const char *)a->x + first * size, count * size);
    } else if (a->from == ZR_BF16 && a->to == ZR_F32) {
#pragma GCC ivdep
        for (uint64_t i = first; i < end; i++)
            to32[i] = zr_bf16_to_f32(from16[i]);
    } else if (a->from == ZR_F32 && a->to == ZR_BF16) {
#pragma GCC ivdep
        for (uint64_t i = first; i < end; i++)
            to16[i] = zr_f32_to_bf16(from32[i]);
    } else if (a->from == ZR_F16 && a->to == ZR_F32) {
#pragma GCC ivdep
        for (uint64_t i = first; i < end; i++)
            to32[i] = zr_f16_to_f32(from16[i]);
    } else if (a->from == ZR_F32 && a->to == ZR_F16) {
#pragma GCC ivdep
        for (uint64_t i = first; i < end; i++)
            to16[i] = zr_f32_to_f16(from32[i]);
    } else if (a->from == ZR_BF16) {
#pragma GCC ivdep
        for (uint64_t i = first; i < end; i++)
            to16[i] = zr_f32_to_f16(zr_bf16_to_f32(from16[i]));
    } else {
#pragma GCC ivdep
        for (uint64_t i = first; i < end; i++)
            to16[i] = zr_f32_to_bf16(zr_f16_to_f32(from16[i]));
    }
}

void ZR_KERNEL(cast)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_cast *a = args;
    ZR_KERNEL(range)(lane, &(struct zr_cpu_range){ .args = a, .count = a->count, .body = cast });
}
