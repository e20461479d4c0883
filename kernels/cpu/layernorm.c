/* layernorm.c: forward beside backward */
#include "kernels/cpu/kernel.h"
#include <assert.h>
#include <string.h>

#define ROWS 64 /* of one partial sum of dweight and dbias; zr_op_norm_scratch() counts on it */

static void forward(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_layernorm_forward *a = args;
    const float *weight = a->weight, *bias = a->bias;
    for (uint64_t t = first; t < first + count; t++) {
        const float *x = (const float *)a->x + t * a->width;
        float *out = (float *)a->out + t * a->width;
        double mean = zr_total(x, a->width) / (double)a->width, part[ZR_PARTS] = { 0 };
        for (uint64_t i = 0; i < a->width; i++)
            part[i % ZR_PARTS] += (x[i] - mean) * (x[i] - mean);
        float rstd = (float)(1 / sqrt(zr_sum_parts(part) / (double)a->width + a->eps)), m = (float)mean;
        a->mean[t] = m;
        a->rstd[t] = rstd;
        for (uint64_t i = 0; i < a->width; i++)
            out[i] = (x[i] - m) * rstd * weight[i] + bias[i];
    }
}

void ZR_KERNEL(layernorm_forward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_layernorm_forward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = forward }, zr_rows_per_item(a->rows, a->width));
}

static void backward_row(const struct zr_op_layernorm_backward *a, uint64_t t, float *restrict dweight,
                         float *restrict dbias)
{
    const float *x = (const float *)a->x + t * a->width, *dy = (const float *)a->dy + t * a->width;
    float *dx = (float *)a->dx + t * a->width;
    const float *weight = a->weight;
    const float mean = a->mean[t], rstd = a->rstd[t];
    double plain[ZR_PARTS] = { 0 }, along[ZR_PARTS] = { 0 };
    for (uint64_t i = 0; i < a->width; i++) {
        float g = dy[i] * weight[i], xh = (x[i] - mean) * rstd;
        plain[i % ZR_PARTS] += g;
        along[i % ZR_PARTS] += (double)g * xh;
    }
    const float mean_g = (float)(zr_sum_parts(plain) / (double)a->width);
    const float mean_gx = (float)(zr_sum_parts(along) / (double)a->width);
    for (uint64_t i = 0; i < a->width; i++) {
        float xh = (x[i] - mean) * rstd;
        dweight[i] += dy[i] * xh;
        dbias[i] += dy[i];
        float d = rstd * (dy[i] * weight[i] - mean_g - xh * mean_gx);
        dx[i] = a->add ? dx[i] + d : d;
    }
}

static void backward(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_layernorm_backward *a = args;
    float *dweight = a->scratch + first / ROWS * 2 * a->width, *dbias = dweight + a->width;
    memset(dweight, 0, 2 * a->width * sizeof *dweight);
    for (uint64_t t = first; t < first + count; t++)
        backward_row(a, t, dweight, dbias);
}

void ZR_KERNEL(layernorm_backward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_layernorm_backward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)(lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = backward }, ROWS);
    for (uint64_t part = 0; part < zr_divide_up(a->rows, ROWS); part++)
        for (uint64_t i = 0; i < a->width; i++) {
            a->dweight[i] += a->scratch[part * 2 * a->width + i];
            a->dbias[i] += a->scratch[part * 2 * a->width + a->width + i];
        }
}
