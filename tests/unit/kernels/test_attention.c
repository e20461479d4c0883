/* test_attention.c: attention and its gradients against softmax written out in float64: documents, groups of heads,
 * windows, and tiles of 64 that are not full */
#include "everywhere.h"

struct shape {
    uint64_t heads, kv_heads, head_dim, window;
    bool causal;
    int32_t starts[6]; /* ends with the first number that does not rise */
};

static const struct shape shapes[] = {
    { 1, 1, 1, 0, true, { 0, 1 } },
    { 1, 1, 5, 0, true, { 0, 7 } },
    { 2, 2, 8, 0, true, { 0, 64 } },
    { 4, 2, 16, 0, true, { 0, 65 } },
    { 2, 1, 16, 0, true, { 0, 130 } },
    { 8, 1, 6, 0, true, { 0, 70 } },
    { 6, 2, 8, 0, true, { 0, 1, 2, 66, 130, 133 } },
    { 3, 3, 12, 0, true, { 0, 63, 127, 192 } },
    { 2, 2, 16, 1, true, { 0, 67 } },
    { 2, 1, 16, 3, true, { 0, 150 } },
    { 2, 1, 8, 64, true, { 0, 150 } },
    { 2, 1, 8, 70, true, { 0, 20, 200 } },
    { 2, 2, 8, 500, true, { 0, 90, 140 } },
    { 2, 1, 8, 0, false, { 0, 70, 75 } },
    { 1, 1, 8, 20, false, { 0, 100 } },
    { 1, 1, 256, 0, true, { 0, 66 } },
    { 2, 1, 128, 0, true, { 0, 80 } },
};

#define GAP 3 /* elements between rows that belong to nobody */

struct problem {
    const struct shape *shape;
    uint64_t rows, documents, stride_qkv, stride_out;
    float scale;
    float *qkv, *out, *lse, *dout, *dqkv;
    double *p; /* (heads, rows, rows) probabilities of the reference */
};

static void problem_make(struct problem *it, const struct shape *shape, float size)
{
    *it = (struct problem){ .shape = shape, .scale = (float)(1 / sqrt((double)shape->head_dim)) };
    while (it->documents < 5 && shape->starts[it->documents + 1] > shape->starts[it->documents])
        it->documents++;
    it->rows = (uint64_t)shape->starts[it->documents];
    it->stride_qkv = (shape->heads + 2 * shape->kv_heads) * shape->head_dim + GAP;
    it->stride_out = shape->heads * shape->head_dim + GAP;
    it->qkv = numbers(it->rows * it->stride_qkv, 3, size);
    it->dqkv = numbers(it->rows * it->stride_qkv, 4, 1);
    it->out = numbers(it->rows * it->stride_out, 5, 1);
    it->dout = numbers(it->rows * it->stride_out, 6, 1);
    it->lse = numbers(shape->heads * it->rows, 7, 1);
    it->p = calloc(shape->heads * it->rows * it->rows, sizeof *it->p);
}

static void problem_free(struct problem *it)
{
    free(it->qkv);
    free(it->dqkv);
    free(it->out);
    free(it->dout);
    free(it->lse);
    free(it->p);
}

static uint64_t key_column(const struct problem *it, uint64_t head)
{
    const struct shape *s = it->shape;
    return (s->heads + head / (s->heads / s->kv_heads)) * s->head_dim;
}

static uint64_t value_column(const struct problem *it, uint64_t head)
{
    return key_column(it, head) + it->shape->kv_heads * it->shape->head_dim;
}

static bool sees(const struct problem *it, uint64_t t, uint64_t s)
{
    uint64_t document = 0;
    while ((uint64_t)it->shape->starts[document + 1] <= t)
        document++;
    if (s < (uint64_t)it->shape->starts[document] || s >= (uint64_t)it->shape->starts[document + 1]) return false;
    if (it->shape->causal && s > t) return false;
    return it->shape->window == 0 || s > t || t - s < it->shape->window;
}

static double dot(const float *a, const float *b, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Fills it->p, and out and lse where they are wanted. */
static void reference_forward(struct problem *it, double *out, double *lse)
{
    const uint64_t d = it->shape->head_dim, n = it->rows;
    for (uint64_t h = 0; h < it->shape->heads; h++)
        for (uint64_t t = 0; t < n; t++) {
            double *p = it->p + (h * n + t) * n, most = -INFINITY, sum = 0;
            for (uint64_t s = 0; s < n; s++) {
                const float *q = it->qkv + t * it->stride_qkv + h * d;
                p[s] = sees(it, t, s) ? (double)it->scale * dot(q, it->qkv + s * it->stride_qkv + key_column(it, h), d)
                                      : -INFINITY;
                most = fmax(most, p[s]);
            }
            for (uint64_t s = 0; s < n; s++)
                sum += p[s] = exp(p[s] - most);
            lse[h * n + t] = most + log(sum);
            double *row = out + t * it->stride_out + h * d;
            memset(row, 0, d * sizeof *row);
            for (uint64_t s = 0; s < n; s++) {
                p[s] /= sum;
                for (uint64_t i = 0; i < d; i++)
                    row[i] += p[s] * (double)it->qkv[s * it->stride_qkv + value_column(it, h) + i];
            }
        }
}

/* From it->p: dq, dk and dv in the places of q, k and v. */
static void reference_backward(const struct problem *it, double *dqkv)
{
    const uint64_t d = it->shape->head_dim, n = it->rows, used = it->stride_qkv - GAP;
    for (uint64_t t = 0; t < n; t++)
        memset(dqkv + t * it->stride_qkv, 0, used * sizeof *dqkv);
    for (uint64_t h = 0; h < it->shape->heads; h++)
        for (uint64_t t = 0; t < n; t++) {
            const double *p = it->p + (h * n + t) * n;
            const float *dout = it->dout + t * it->stride_out + h * d, *q = it->qkv + t * it->stride_qkv + h * d;
            double delta = 0; /* sum_s p[s] (dout . v[s]) */
            for (uint64_t s = 0; s < n; s++)
                if (p[s] > 0) delta += p[s] * dot(dout, it->qkv + s * it->stride_qkv + value_column(it, h), d);
            for (uint64_t s = 0; s < n; s++) {
                if (!(p[s] > 0)) continue;
                const float *k = it->qkv + s * it->stride_qkv + key_column(it, h);
                double dp = dot(dout, it->qkv + s * it->stride_qkv + value_column(it, h), d);
                double ds = p[s] * (dp - delta) * (double)it->scale;
                double *dq = dqkv + t * it->stride_qkv + h * d;
                double *dk = dqkv + s * it->stride_qkv + key_column(it, h);
                double *dv = dqkv + s * it->stride_qkv + value_column(it, h);
                for (uint64_t i = 0; i < d; i++) {
                    dq[i] += ds * (double)k[i];
                    dk[i] += ds * (double)q[i];
                    dv[i] += p[s] * (double)dout[i];
                }
            }
        }
}

static struct zr_op_attention_forward forward_of(const struct problem *it, float *scratch)
{
    const struct shape *s = it->shape;
    return (struct zr_op_attention_forward){ .out = it->out,
                                             .lse = it->lse,
                                             .q = it->qkv,
                                             .k = it->qkv + s->heads * s->head_dim,
                                             .v = it->qkv + (s->heads + s->kv_heads) * s->head_dim,
                                             .starts = s->starts,
                                             .rows = it->rows,
                                             .documents = it->documents,
                                             .heads = s->heads,
                                             .kv_heads = s->kv_heads,
                                             .head_dim = s->head_dim,
                                             .stride_qkv = it->stride_qkv,
                                             .stride_out = it->stride_out,
                                             .window = s->window,
                                             .causal = s->causal,
                                             .scale = it->scale,
                                             .scratch = scratch,
                                             .dtype = ZR_F32 };
}

static struct zr_op_attention_backward backward_of(const struct problem *it, float *scratch)
{
    const struct shape *s = it->shape;
    return (struct zr_op_attention_backward){ .dq = it->dqkv,
                                              .dk = it->dqkv + s->heads * s->head_dim,
                                              .dv = it->dqkv + (s->heads + s->kv_heads) * s->head_dim,
                                              .dout = it->dout,
                                              .out = it->out,
                                              .lse = it->lse,
                                              .q = it->qkv,
                                              .k = it->qkv + s->heads * s->head_dim,
                                              .v = it->qkv + (s->heads + s->kv_heads) * s->head_dim,
                                              .starts = s->starts,
                                              .rows = it->rows,
                                              .documents = it->documents,
                                              .heads = s->heads,
                                              .kv_heads = s->kv_heads,
                                              .head_dim = s->head_dim,
                                              .stride_qkv = it->stride_qkv,
                                              .stride_out = it->stride_out,
                                              .window = s->window,
                                              .causal = s->causal,
                                              .scale = it->scale,
                                              .scratch = scratch,
                                              .dtype = ZR_F32 };
}

static void check(const struct shape *shape, float size, double bound)
{
    struct problem it;
    struct room room;
    problem_make(&it, shape, size);
    const uint64_t out_count = it.rows * it.stride_out, qkv_count = it.rows * it.stride_qkv;
    const uint64_t lse_count = shape->heads * it.rows;
    double *out = doubles(it.out, out_count), *lse = doubles(it.lse, lse_count), *dqkv = doubles(it.dqkv, qkv_count);
    uint64_t scratch_count = zr_op_attention_scratch(it.rows, shape->heads, shape->head_dim, it.rows);
    float *scratch = room_make(&room, scratch_count * sizeof(float), 4);
    reference_forward(&it, out, lse);
    reference_backward(&it, dqkv);

    struct zr_op_attention_forward forward = forward_of(&it, scratch);
    struct zr_op_attention_backward backward = backward_of(&it, scratch);
    run_everywhere(ZR_OP_attention_forward, &forward,
                   (struct written[]){ { it.out, out_count * 4 }, { it.lse, lse_count * 4 } }, 2);
    run_everywhere(ZR_OP_attention_backward, &backward, (struct written[]){ { it.dqkv, qkv_count * 4 } }, 1);
    room_free(&room);

    must_be_near("out", it.out, out, out_count, bound);
    must_be_near("lse", it.lse, lse, lse_count, bound);
    must_be_near("dqkv", it.dqkv, dqkv, qkv_count, 2 * bound);
    problem_free(&it);
}

static void every_shape_is_softmax_written_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZR_COUNT(shapes); i++)
        check(&shapes[i], 1, 1e-6);
}

static void large_scores_do_not_overflow(void **state)
{
    /* Scores up to some thousands, where exp() alone is infinite. fp32 keeps them to 2^-13, and so the probabilities. */
    (void)state;
    check(&(struct shape){ 2, 1, 16, 0, true, { 0, 40, 110 } }, 60, 2e-4);
}

static void a_document_knows_nothing_of_its_neighbours(void **state)
{
    (void)state;
    const struct shape packed = { 4, 2, 8, 0, true, { 0, 70, 100, 171 } }, alone = { 4, 2, 8, 0, true, { 0, 30 } };
    struct problem all, one;
    problem_make(&all, &packed, 1);
    problem_make(&one, &alone, 1);
    for (uint64_t t = 0; t < one.rows; t++) {
        memcpy(one.qkv + t * one.stride_qkv, all.qkv + (70 + t) * all.stride_qkv, one.stride_qkv * 4);
        memcpy(one.dout + t * one.stride_out, all.dout + (70 + t) * all.stride_out, one.stride_out * 4);
    }
    float *scratch = malloc(packed.heads * all.rows * 4);
    struct lane lane = lane_make(levels_here() - 1, 2);
    for (int i = 0; i < 2; i++) {
        struct zr_op_attention_forward forward = forward_of(i ? &one : &all, scratch);
        struct zr_op_attention_backward backward = backward_of(i ? &one : &all, scratch);
        lane_run(&lane, ZR_OP_attention_forward, &forward);
        lane_run(&lane, ZR_OP_attention_backward, &backward);
    }
    lane_free(&lane);
    for (uint64_t t = 0; t < one.rows; t++) {
        assert_memory_equal(one.out + t * one.stride_out, all.out + (70 + t) * all.stride_out,
                            (one.stride_out - GAP) * 4);
        assert_memory_equal(one.dqkv + t * one.stride_qkv, all.dqkv + (70 + t) * all.stride_qkv,
                            (one.stride_qkv - GAP) * 4);
    }
    free(scratch);
    problem_free(&all);
    problem_free(&one);
}

int main(void)
{
    const char *name;
    struct zr_error err = { 0 };
    if (zr_cpu_start(&name, &err) != ZR_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_softmax_written_out),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(a_document_knows_nothing_of_its_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
