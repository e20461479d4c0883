/* rmsnorm.c: forward beside backward */
#include "kernels/cpu/kernel.h"
#include <assert.h>
#include <string.h>

#define ROWS 64 /* of one partial sum of dweight; zr_op_norm_scratch() counts on it */

static void forward(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_rmsnorm_forward *a = args;
    const float *weight = a->weight;
    for (uint64_t t = first; t < first + count; t++)
        for (uint64_t g = 0; g < a->groups; g++) {
            const float *x = (const float *)a->x + t * a->stride_x + g * a->width;
            float *out = (float *)a->out + t * a->stride_out + g * a->width;
            float rstd = (float)(1 / sqrt(zr_dot(x, x, a->width) / (double)a->width + a->eps));
            a->rstd[t * a->groups + g] = rstd;
            for (uint64_t i = 0; i < a->width; i++)
                out[i] = x[i] * rstd * weight[i];
        }
}

void ZR_KERNEL(rmsnorm_forward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_rmsnorm_forward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = forward },
     zr_rows_per_item(a->rows, a->groups * a->width));
}

/* dx[r,i] = rstd (g[i] - x[i] rstd^2 mean(g x)),  g = dy weight */
static void backward_row(const struct zr_op_rmsnorm_backward *a, uint64_t t, uint64_t g, float *restrict dweight)
{
    const float *x = (const float *)a->x + t * a->stride_x + g * a->width;
    const float *dy = (const float *)a->dy + t * a->stride_dy + g * a->width;
    float *dx = (float *)a->dx + t * a->stride_dx + g * a->width;
    const float *weight = a->weight;
    const float rstd = a->rstd[t * a->groups + g];
    double part[ZR_PARTS] = { 0 };
    uint64_t i = 0;
    for (; i + ZR_PARTS <= a->width; i += ZR_PARTS)
        for (int j = 0; j < ZR_PARTS; j++)
            part[j] += (double)(dy[i + j] * weight[i + j]) * x[i + j];
    for (int j = 0; i < a->width; i++, j++)
        part[j] += (double)(dy[i] * weight[i]) * x[i];
    const float pull = (float)(zr_sum_parts(part) / (double)a->width) * rstd * rstd;
    for (i = 0; i < a->width; i++)
        dweight[i] += dy[i] * (x[i] * rstd);
    if (a->add)
        for (i = 0; i < a->width; i++)
            dx[i] += rstd * (dy[i] * weight[i] - x[i] * pull);
    else
        for (i = 0; i < a->width; i++)
            dx[i] = rstd * (dy[i] * weight[i] - x[i] * pull);
}

static void backward(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_rmsnorm_backward *a = args;
    float *dweight = a->scratch + first / ROWS * a->width;
    memset(dweight, 0, a->width * sizeof *dweight);
    for (uint64_t t = first; t < first + count; t++)
        for (uint64_t g = 0; g < a->groups; g++)
            backward_row(a, t, g, dweight);
}

void ZR_KERNEL(rmsnorm_backward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_rmsnorm_backward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)(lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = backward }, ROWS);
    for (uint64_t part = 0; part < zr_divide_up(a->rows, ROWS); part++)
        for (uint64_t i = 0; i < a->width; i++)
            a->dweight[i] += a->scratch[part * a->width + i];
}
