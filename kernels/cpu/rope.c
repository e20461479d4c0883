/* rope.c: rotary positions, forward and back */
#include "kernels/cpu/kernel.h"
#include <assert.h>

static void turn(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_rope *a = args;
    const uint64_t half = a->head_dim / 2;
    for (uint64_t t = first; t < first + count; t++) {
        const float *restrict cosine = a->cos_sin + (uint64_t)a->positions[t] * a->head_dim;
        const float *restrict sine = cosine + half;
        for (uint64_t head = 0; head < a->heads; head++) {
            float *restrict low = (float *)a->x + t * a->stride + head * a->head_dim, *restrict high = low + half;
            for (uint64_t i = 0; i < half; i++) {
                float s = a->inverse ? -sine[i] : sine[i], x = low[i], y = high[i];
                low[i] = x * cosine[i] - y * s;
                high[i] = y * cosine[i] + x * s;
            }
        }
    }
}

void ZR_KERNEL(rope)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_rope *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = turn },
     zr_rows_per_item(a->rows, a->heads * a->head_dim));
}
