/* embedding.c: rows of a table out, and gradients of rows back
 *
 * Backward is cut by columns, so that every item walks the tokens in their order and no two items touch one number. */
#include "kernels/cpu/kernel.h"
#include <assert.h>
#include <string.h>

#define COLUMNS 128

static void forward(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_embedding_forward *a = args;
    for (uint64_t t = first; t < first + count; t++) {
        const float *row = (const float *)a->table + (uint64_t)a->tokens[t] * a->width;
        float *out = (float *)a->out + t * a->width;
        if (!a->position_table) {
            memcpy(out, row, a->width * sizeof *out);
            continue;
        }
        const float *position = (const float *)a->position_table + (uint64_t)a->positions[t] * a->width;
        for (uint64_t i = 0; i < a->width; i++)
            out[i] = row[i] + position[i];
    }
}

void ZR_KERNEL(embedding_forward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_embedding_forward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = forward }, zr_rows_per_item(a->rows, a->width));
}

static void backward(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_embedding_backward *a = args;
    for (uint64_t t = 0; t < a->rows; t++) {
        const float *dy = (const float *)a->dy + t * a->width + first;
        float *row = a->dtable + (uint64_t)a->tokens[t] * a->width + first;
        for (uint64_t i = 0; i < count; i++)
            row[i] += dy[i];
        if (!a->dposition_table) continue;
        float *position = a->dposition_table + (uint64_t)a->positions[t] * a->width + first;
        for (uint64_t i = 0; i < count; i++)
            position[i] += dy[i];
    }
}

void ZR_KERNEL(embedding_backward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_embedding_backward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)(lane, &(struct zr_cpu_range){ .args = a, .count = a->width, .body = backward }, COLUMNS);
}

static void bias(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_bias_gradient *a = args;
    for (uint64_t t = 0; t < a->rows; t++) {
        const float *dy = (const float *)a->dy + t * a->stride + first;
        for (uint64_t i = 0; i < count; i++)
            a->out[first + i] += dy[i];
    }
}

void ZR_KERNEL(bias_gradient)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_bias_gradient *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)(lane, &(struct zr_cpu_range){ .args = a, .count = a->width, .body = bias }, COLUMNS);
}

static void gather(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_gather_rows *a = args;
    for (uint64_t r = first; r < first + count; r++)
        memcpy((float *)a->out + r * a->width, (const float *)a->x + (uint64_t)a->index[r] * a->width,
               a->width * sizeof(float));
}

void ZR_KERNEL(gather_rows)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_gather_rows *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = gather }, zr_rows_per_item(a->rows, a->width));
}
