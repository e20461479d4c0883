/* reduce.c: sums and squared norms in double, in one fixed order whatever the threads */
#include "kernels/cpu/kernel.h"
#include <assert.h>

#define BLOCK 4096 /* zr_op_norm_squared_scratch() counts on it */

void ZR_KERNEL(sum)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_sum *a = args;
    (void)lane; /* a micro-batch's losses: less than a hand-over costs */
    *a->out += zr_total(a->x, a->count);
}

static double squares_bf16(const uint16_t *x, uint64_t count)
{
    double part[ZR_PARTS] = { 0 };
    uint64_t i = 0;
    for (; i + ZR_PARTS <= count; i += ZR_PARTS)
        for (int j = 0; j < ZR_PARTS; j++) {
            double value = zr_bf16_to_f32(x[i + j]);
            part[j] += value * value;
        }
    for (int j = 0; i < count; i++, j++) {
        double value = zr_bf16_to_f32(x[i]);
        part[j] += value * value;
    }
    return zr_sum_parts(part);
}

static void blocks(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_norm_squared *a = args;
    for (uint64_t block = first; block < first + count; block++) {
        uint64_t at = block * BLOCK, elements = zr_min_u64(BLOCK, a->count - at);
        if (a->dtype == ZR_F32) {
            const float *x = (const float *)a->x + at;
            a->scratch[block] = zr_dot(x, x, elements);
        } else {
            a->scratch[block] = squares_bf16((const uint16_t *)a->x + at, elements);
        }
    }
}

void ZR_KERNEL(norm_squared)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_norm_squared *a = args;
    assert(a->dtype == ZR_F32 || a->dtype == ZR_BF16);
    uint64_t count = zr_divide_up(a->count, BLOCK);
    ZR_KERNEL(rows)(lane, &(struct zr_cpu_range){ .args = a, .count = count, .body = blocks }, 16);
    double sum = 0;
    for (uint64_t block = 0; block < count; block++)
        sum += a->scratch[block];
    *a->out += sum;
}
