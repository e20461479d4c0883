/* cross_entropy.c: loss of each row, and the gradient over its logits in place */
#include "kernels/cpu/kernel.h"
#include <assert.h>
#include <string.h>

static float largest(const float *z, uint64_t count)
{
    float part[ZR_PARTS];
    for (int j = 0; j < ZR_PARTS; j++)
        part[j] = -INFINITY;
    uint64_t i = 0;
    for (; i + ZR_PARTS <= count; i += ZR_PARTS)
        for (int j = 0; j < ZR_PARTS; j++)
            part[j] = z[i + j] > part[j] ? z[i + j] : part[j];
    for (int j = 0; i < count; i++, j++)
        part[j] = z[i] > part[j] ? z[i] : part[j];
    float most = part[0];
    for (int j = 1; j < ZR_PARTS; j++)
        most = part[j] > most ? part[j] : most;
    return most;
}

/* sum exp(z - most); with `keep` the exponentials replace z. */
static double exponentials(float *z, uint64_t count, float most, bool keep)
{
    double part[ZR_PARTS] = { 0 };
    uint64_t i = 0;
    for (; i + ZR_PARTS <= count; i += ZR_PARTS) {
        float e[ZR_PARTS];
        for (int j = 0; j < ZR_PARTS; j++)
            e[j] = zr_exp(z[i + j] - most);
        for (int j = 0; j < ZR_PARTS; j++)
            part[j] += (double)e[j];
        if (keep) memcpy(z + i, e, sizeof e);
    }
    for (int j = 0; i < count; i++, j++) {
        float e = zr_exp(z[i] - most);
        part[j] += (double)e;
        if (keep) z[i] = e;
    }
    return zr_sum_parts(part);
}

static void rows(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_cross_entropy *a = args;
    for (uint64_t t = first; t < first + count; t++) {
        float *z = (float *)a->logits + t * a->stride;
        int32_t target = a->targets[t];
        if (target < 0) {
            a->loss[t] = 0;
            if (a->gradient) memset(z, 0, a->vocabulary * sizeof *z);
            continue;
        }
        float most = largest(z, a->vocabulary), wanted = z[target];
        double sum = exponentials(z, a->vocabulary, most, a->gradient);
        a->loss[t] = (float)(log(sum) + (double)most - (double)wanted);
        if (!a->gradient) continue;
        float scale = (float)(a->scale / sum);
        for (uint64_t i = 0; i < a->vocabulary; i++)
            z[i] *= scale;
        z[target] -= a->scale;
    }
}

void ZR_KERNEL(cross_entropy)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_cross_entropy *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = rows },
     zr_rows_per_item(a->rows, 4 * a->vocabulary));
}
