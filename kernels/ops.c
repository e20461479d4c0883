/* ops.c: names, sizes, and what every backend may rely on */
#include "kernels/ops.h"
#include <math.h>
#include <stddef.h>

/* Rows whose partial sums of a norm's weight gradient share one line of scratch. */
#define NORM_ROWS 64

const char *zr_op_name(enum zr_op op)
{
    static const char *const names[ZR_OP_COUNT] = {
#define NAME(name) [ZR_OP_##name] = #name,
        ZR_OPS(NAME)
#undef NAME
    };
    return names[op];
}

uint32_t zr_op_args_bytes(enum zr_op op)
{
    static const uint32_t bytes[ZR_OP_COUNT] = {
#define BYTES(name) [ZR_OP_##name] = sizeof(struct zr_op_##name),
        ZR_OPS(BYTES)
#undef BYTES
    };
    return bytes[op];
}

uint64_t zr_op_norm_scratch(uint64_t rows, uint64_t width)
{
    return (rows + NORM_ROWS - 1) / NORM_ROWS * width;
}

uint64_t zr_op_norm_squared_scratch(uint64_t count)
{
    return (count + 4095) / 4096;
}

uint64_t zr_op_attention_scratch(uint64_t rows, uint64_t heads, uint64_t head_dim, uint64_t longest_document)
{
    (void)head_dim;
    (void)longest_document;
    return rows * heads; /* delta; tiles of scores live on the stack */
}

void zr_adamw_scalars(struct zr_op_adamw *op, double lr, double beta1, double beta2, double eps, double decay,
                      uint64_t step, bool bias_correction)
{
    double correction1 = bias_correction ? 1 - pow(beta1, (double)step) : 1;
    double correction2 = bias_correction ? 1 - pow(beta2, (double)step) : 1;
    op->lr = (float)lr;
    op->beta1 = (float)beta1;
    op->beta2 = (float)beta2;
    op->one_minus_beta1 = (float)(1 - beta1);
    op->one_minus_beta2 = (float)(1 - beta2);
    op->eps = (float)eps;
    op->decay = (float)decay;
    op->lr_decay = (float)(lr * decay);
    op->step_size = (float)(lr / correction1);
    op->inverse_sqrt_correction2 = (float)(1 / sqrt(correction2));
}

static bool gemm_ok(const struct zr_op_gemm *a)
{
    return a->out && a->a && a->b && a->m && a->n && a->k && a->stride_out >= a->n &&
           a->stride_a >= (a->transpose_a ? a->m : a->k) && a->stride_b >= (a->transpose_b ? a->k : a->n) &&
           !(a->bias && a->accumulate);
}

static bool attention_ok(uint64_t rows, uint64_t documents, uint64_t heads, uint64_t kv_heads, uint64_t head_dim,
                         uint64_t stride_out)
{
    return rows && documents && documents <= rows && kv_heads && heads % kv_heads == 0 && head_dim && head_dim <= 256 &&
           stride_out >= heads * head_dim;
}

/* One case an operation: pointers that are always needed, counts of at least 1, strides that hold a row. */
static bool shape_ok(enum zr_op op, const void *args)
{
    switch (op) {
    case ZR_OP_gemm:
        return gemm_ok(args);
    case ZR_OP_bias_gradient: {
        const struct zr_op_bias_gradient *a = args;
        return a->out && a->dy && a->rows && a->width && a->stride >= a->width;
    }
    case ZR_OP_rmsnorm_forward: {
        const struct zr_op_rmsnorm_forward *a = args;
        return a->out && a->x && a->weight && a->rstd && a->rows && a->groups && a->width &&
               a->stride_x >= a->groups * a->width && a->stride_out >= a->groups * a->width;
    }
    case ZR_OP_rmsnorm_backward: {
        const struct zr_op_rmsnorm_backward *a = args;
        return a->dx && a->dweight && a->dy && a->x && a->weight && a->rstd && a->scratch && a->rows && a->groups &&
               a->width && a->stride_x >= a->groups * a->width && a->stride_dx >= a->groups * a->width &&
               a->stride_dy >= a->groups * a->width;
    }
    case ZR_OP_layernorm_forward: {
        const struct zr_op_layernorm_forward *a = args;
        return a->out && a->x && a->weight && a->bias && a->mean && a->rstd && a->rows && a->width;
    }
    case ZR_OP_layernorm_backward: {
        const struct zr_op_layernorm_backward *a = args;
        return a->dx && a->dweight && a->dbias && a->dy && a->x && a->weight && a->mean && a->rstd && a->scratch &&
               a->rows && a->width;
    }
    case ZR_OP_rope: {
        const struct zr_op_rope *a = args;
        return a->x && a->cos_sin && a->positions && a->rows && a->heads && a->head_dim && a->head_dim % 2 == 0 &&
               a->stride >= a->heads * a->head_dim;
    }
    case ZR_OP_attention_forward: {
        const struct zr_op_attention_forward *a = args;
        return a->out && a->lse && a->q && a->k && a->v && a->starts &&
               attention_ok(a->rows, a->documents, a->heads, a->kv_heads, a->head_dim, a->stride_out);
    }
    case ZR_OP_attention_backward: {
        const struct zr_op_attention_backward *a = args;
        return a->dq && a->dk && a->dv && a->dout && a->out && a->lse && a->q && a->k && a->v && a->starts &&
               a->scratch && attention_ok(a->rows, a->documents, a->heads, a->kv_heads, a->head_dim, a->stride_out);
    }
    case ZR_OP_swiglu_forward: {
        const struct zr_op_swiglu_forward *a = args;
        return a->out && a->gate_up && a->rows && a->width;
    }
    case ZR_OP_swiglu_backward: {
        const struct zr_op_swiglu_backward *a = args;
        return a->dgate_up && a->dout && a->gate_up && a->rows && a->width;
    }
    case ZR_OP_gelu_forward: {
        const struct zr_op_gelu_forward *a = args;
        return a->out && a->x && a->count;
    }
    case ZR_OP_gelu_backward: {
        const struct zr_op_gelu_backward *a = args;
        return a->dx && a->dout && a->x && a->count;
    }
    case ZR_OP_embedding_forward: {
        const struct zr_op_embedding_forward *a = args;
        return a->out && a->table && a->tokens && a->rows && a->width && (!a->position_table || a->positions);
    }
    case ZR_OP_embedding_backward: {
        const struct zr_op_embedding_backward *a = args;
        return a->dtable && a->dy && a->tokens && a->rows && a->width && (!a->dposition_table || a->positions);
    }
    case ZR_OP_cross_entropy: {
        const struct zr_op_cross_entropy *a = args;
        return a->logits && a->targets && a->loss && a->rows && a->vocabulary && a->stride >= a->vocabulary;
    }
    case ZR_OP_add: {
        const struct zr_op_add *a = args;
        return a->out && a->a && a->b && a->count;
    }
    case ZR_OP_fill: {
        const struct zr_op_fill *a = args;
        return a->out && a->bytes;
    }
    case ZR_OP_cast: {
        const struct zr_op_cast *a = args;
        return a->out && a->x && a->count && a->from < ZR_DTYPE_COUNT && a->to < ZR_DTYPE_COUNT;
    }
    case ZR_OP_sum: {
        const struct zr_op_sum *a = args;
        return a->out && a->x && a->count;
    }
    case ZR_OP_norm_squared: {
        const struct zr_op_norm_squared *a = args;
        return a->out && a->x && a->scratch && a->count && a->dtype != ZR_F16;
    }
    case ZR_OP_gather_rows: {
        const struct zr_op_gather_rows *a = args;
        return a->out && a->x && a->index && a->rows && a->width;
    }
    case ZR_OP_adamw: {
        const struct zr_op_adamw *a = args;
        return a->weight && a->m && a->v && a->grad && a->count && a->grad_dtype != ZR_F16 &&
               (a->layout == ZR_LAYOUT_FP32 || (a->layout == ZR_LAYOUT_SPLIT && a->low));
    }
    case ZR_OP_COUNT:
        break;
    }
    return false;
}

enum zr_code zr_op_check(enum zr_op op, const void *args, struct zr_error *err)
{
    if (shape_ok(op, args)) return ZR_OK;
    return zr_fail(err, ZR_EBUG, "operation %s was queued with a shape or pointer that it cannot have", zr_op_name(op));
}
