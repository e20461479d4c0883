/* decoder.c: the pre-norm decoder block of LLaMA, Mistral, Qwen and GPT-2
 *
 *     n1 = norm(x)        q,k,v = n1 Wqkv        a = attention(rope(q), rope(k), v)        r = x + a Wo
 *     n2 = norm(r)        h = act(n2 Wgu)        y = r + h Wd
 *
 * Backward needs everything but y, so recomputing skips the last product. Its own buffers reuse what is dead by then:
 * see zr_block_work(). */
#include "engine/block/block.h"
#include "engine/device/launch.h"
#include <assert.h>

struct block {
    struct zr_stream *stream;
    const struct zr_block_args *args;
    const struct zr_dims *dims;
    uint64_t tokens, hidden, inner, q_width, kv_width, qkv_width, up_width;
    uint32_t element;
};

static struct block begin(struct zr_stream *stream, const struct zr_block_args *args)
{
    const struct zr_dims *dims = &args->model->dims;
    uint64_t q_width = (uint64_t)dims->heads * dims->head_dim, kv_width = (uint64_t)dims->kv_heads * dims->head_dim;
    return (struct block){ .stream = stream,
                           .args = args,
                           .dims = dims,
                           .tokens = args->micro.tokens,
                           .hidden = dims->hidden,
                           .inner = dims->intermediate,
                           .q_width = q_width,
                           .kv_width = kv_width,
                           .qkv_width = q_width + 2 * kv_width,
                           .up_width = dims->gated ? 2 * (uint64_t)dims->intermediate : dims->intermediate,
                           .element = zr_dtype_bytes(args->dtype) };
}

static void *work(const struct block *b, uint64_t offset)
{
    assert(offset != ZR_ABSENT);
    return (char *)b->args->work + offset;
}

static const void *weight(const struct block *b, uint64_t offset)
{
    return offset == ZR_ABSENT ? NULL : (const char *)b->args->weights + offset * b->element;
}

static float *gradient(const struct block *b, uint64_t offset)
{
    return b->args->gradients + offset;
}

static void *shifted(const struct block *b, void *base, uint64_t elements)
{
    return (char *)base + elements * b->element;
}

/* y (T,out) = x (T,in) W + bias; W as the family stores it: Linear (out,in), or GPT-2's (in,out). */
static void linear(const struct block *b, void *y, uint64_t stride_y, const void *x, uint64_t in, uint64_t out,
                   uint64_t at, uint64_t bias_at)
{
    bool conv1d = b->dims->family == ZR_GPT2;
    zr_gemm(b->stream, &(struct zr_op_gemm){ .out = y,
                                             .a = x,
                                             .b = weight(b, at),
                                             .bias = weight(b, bias_at),
                                             .m = b->tokens,
                                             .n = out,
                                             .k = in,
                                             .stride_a = in,
                                             .stride_b = conv1d ? out : in,
                                             .stride_out = stride_y,
                                             .transpose_b = !conv1d,
                                             .dtype = b->args->dtype });
}

/* dW += dy' x (or x' dy), db += sum dy, and dx (T,in) = dy W' when `dx` is wanted. dy rows are stride_dy apart. */
static void linear_backward(const struct block *b, void *dx, const void *dy, uint64_t stride_dy, const void *x,
                            uint64_t in, uint64_t out, uint64_t at, uint64_t bias_at)
{
    bool conv1d = b->dims->family == ZR_GPT2;
    struct zr_op_gemm dw = { .out = gradient(b, at),
                             .a = dy,
                             .b = x,
                             .m = out,
                             .n = in,
                             .k = b->tokens,
                             .stride_a = stride_dy,
                             .stride_b = in,
                             .stride_out = in,
                             .transpose_a = true,
                             .accumulate = true,
                             .dtype = b->args->dtype };
    if (conv1d) {
        dw.a = x, dw.b = dy;
        dw.m = in, dw.n = out;
        dw.stride_a = in, dw.stride_b = stride_dy, dw.stride_out = out;
    }
    zr_gemm(b->stream, &dw);
    if (bias_at != ZR_ABSENT)
        zr_bias_gradient(b->stream, &(struct zr_op_bias_gradient){ .out = gradient(b, bias_at),
                                                                   .dy = dy,
                                                                   .rows = b->tokens,
                                                                   .width = out,
                                                                   .stride = stride_dy,
                                                                   .dtype = b->args->dtype });
    if (dx)
        zr_gemm(b->stream, &(struct zr_op_gemm){ .out = dx,
                                                 .a = dy,
                                                 .b = weight(b, at),
                                                 .m = b->tokens,
                                                 .n = in,
                                                 .k = out,
                                                 .stride_a = stride_dy,
                                                 .stride_b = conv1d ? out : in,
                                                 .stride_out = in,
                                                 .transpose_b = conv1d,
                                                 .dtype = b->args->dtype });
}

static void norm(const struct block *b, void *out, const void *x, uint64_t at, uint64_t bias_at, uint64_t rstd,
                 uint64_t mean)
{
    if (b->dims->layernorm)
        zr_layernorm_forward(b->stream, &(struct zr_op_layernorm_forward){ .out = out,
                                                                           .x = x,
                                                                           .weight = weight(b, at),
                                                                           .bias = weight(b, bias_at),
                                                                           .mean = work(b, mean),
                                                                           .rstd = work(b, rstd),
                                                                           .rows = b->tokens,
                                                                           .width = b->hidden,
                                                                           .eps = (float)b->dims->norm_eps,
                                                                           .dtype = b->args->dtype });
    else
        zr_rmsnorm_forward(b->stream, &(struct zr_op_rmsnorm_forward){ .out = out,
                                                                       .x = x,
                                                                       .weight = weight(b, at),
                                                                       .rstd = work(b, rstd),
                                                                       .rows = b->tokens,
                                                                       .groups = 1,
                                                                       .width = b->hidden,
                                                                       .stride_x = b->hidden,
                                                                       .stride_out = b->hidden,
                                                                       .eps = (float)b->dims->norm_eps,
                                                                       .dtype = b->args->dtype });
}

/* dx += the norm's input gradient: the residual stream passes the other part through. */
static void norm_backward(const struct block *b, void *dx, const void *dy, const void *x, uint64_t at, uint64_t bias_at,
                          uint64_t rstd, uint64_t mean)
{
    void *scratch = work(b, b->args->layout->scratch);
    if (b->dims->layernorm)
        zr_layernorm_backward(b->stream, &(struct zr_op_layernorm_backward){ .dx = dx,
                                                                             .dweight = gradient(b, at),
                                                                             .dbias = gradient(b, bias_at),
                                                                             .dy = dy,
                                                                             .x = x,
                                                                             .weight = weight(b, at),
                                                                             .mean = work(b, mean),
                                                                             .rstd = work(b, rstd),
                                                                             .scratch = scratch,
                                                                             .rows = b->tokens,
                                                                             .width = b->hidden,
                                                                             .add = true,
                                                                             .dtype = b->args->dtype });
    else
        zr_rmsnorm_backward(b->stream, &(struct zr_op_rmsnorm_backward){ .dx = dx,
                                                                         .dweight = gradient(b, at),
                                                                         .dy = dy,
                                                                         .x = x,
                                                                         .weight = weight(b, at),
                                                                         .rstd = work(b, rstd),
                                                                         .scratch = scratch,
                                                                         .rows = b->tokens,
                                                                         .groups = 1,
                                                                         .width = b->hidden,
                                                                         .stride_dx = b->hidden,
                                                                         .stride_dy = b->hidden,
                                                                         .stride_x = b->hidden,
                                                                         .add = true,
                                                                         .dtype = b->args->dtype });
}

/* RMSNorm of each head of q or k: from its own rows into the fused rows, where rope and attention find it. */
static void head_norm(const struct block *b, uint64_t column, uint64_t pre, uint64_t rstd, uint64_t at, uint64_t heads)
{
    zr_rmsnorm_forward(b->stream,
                       &(struct zr_op_rmsnorm_forward){ .out = shifted(b, work(b, b->args->layout->qkv), column),
                                                        .x = work(b, pre),
                                                        .weight = weight(b, at),
                                                        .rstd = work(b, rstd),
                                                        .rows = b->tokens,
                                                        .groups = heads,
                                                        .width = b->dims->head_dim,
                                                        .stride_x = heads * b->dims->head_dim,
                                                        .stride_out = b->qkv_width,
                                                        .eps = (float)b->dims->norm_eps,
                                                        .dtype = b->args->dtype });
}

static void head_norm_backward(const struct block *b, uint64_t column, uint64_t pre, uint64_t rstd, uint64_t at,
                               uint64_t heads)
{
    void *dy = shifted(b, work(b, b->args->layout->d_qkv), column);
    zr_rmsnorm_backward(b->stream, &(struct zr_op_rmsnorm_backward){ .dx = dy,
                                                                     .dweight = gradient(b, at),
                                                                     .dy = dy,
                                                                     .x = work(b, pre),
                                                                     .weight = weight(b, at),
                                                                     .rstd = work(b, rstd),
                                                                     .scratch = work(b, b->args->layout->scratch),
                                                                     .rows = b->tokens,
                                                                     .groups = heads,
                                                                     .width = b->dims->head_dim,
                                                                     .stride_dx = b->qkv_width,
                                                                     .stride_dy = b->qkv_width,
                                                                     .stride_x = heads * b->dims->head_dim,
                                                                     .dtype = b->args->dtype });
}

static void rope(const struct block *b, void *rows, bool inverse)
{
    if (!b->args->rope) return;
    /* q's heads and k's lie next to each other in a row, so one operation turns both. */
    zr_rope(b->stream, &(struct zr_op_rope){ .x = rows,
                                             .cos_sin = b->args->rope,
                                             .positions = b->args->micro.positions,
                                             .rows = b->tokens,
                                             .heads = b->dims->heads + b->dims->kv_heads,
                                             .head_dim = b->dims->head_dim,
                                             .stride = b->qkv_width,
                                             .inverse = inverse,
                                             .dtype = b->args->dtype });
}

static uint64_t window(const struct block *b)
{
    return b->args->layer >= b->dims->window_layers ? b->dims->window : 0;
}

static void project_qkv(const struct block *b, const void *normed)
{
    const struct zr_block_offsets *at = &b->args->model->block;
    const struct zr_block_work *layout = b->args->layout;
    void *qkv = work(b, layout->qkv);
    if (!b->dims->qk_norm) {
        linear(b, qkv, b->qkv_width, normed, b->hidden, b->qkv_width, at->qkv, at->qkv_bias);
        return;
    }
    assert(at->qkv_bias == ZR_ABSENT);
    uint64_t k_at = at->qkv + b->q_width * b->hidden, v_at = k_at + b->kv_width * b->hidden;
    linear(b, work(b, layout->q_pre), b->q_width, normed, b->hidden, b->q_width, at->qkv, ZR_ABSENT);
    linear(b, work(b, layout->k_pre), b->kv_width, normed, b->hidden, b->kv_width, k_at, ZR_ABSENT);
    linear(b, shifted(b, qkv, b->q_width + b->kv_width), b->qkv_width, normed, b->hidden, b->kv_width, v_at, ZR_ABSENT);
    head_norm(b, 0, layout->q_pre, layout->q_rstd, at->q_norm, b->dims->heads);
    head_norm(b, b->q_width, layout->k_pre, layout->k_rstd, at->k_norm, b->dims->kv_heads);
}

static void activate(const struct block *b)
{
    const struct zr_block_work *layout = b->args->layout;
    if (b->dims->gated)
        zr_swiglu_forward(b->stream, &(struct zr_op_swiglu_forward){ .out = work(b, layout->activated),
                                                                     .gate_up = work(b, layout->gate_up),
                                                                     .rows = b->tokens,
                                                                     .width = b->inner,
                                                                     .dtype = b->args->dtype });
    else
        zr_gelu_forward(b->stream, &(struct zr_op_gelu_forward){ .out = work(b, layout->activated),
                                                                 .x = work(b, layout->gate_up),
                                                                 .count = b->tokens * b->inner,
                                                                 .erf = b->dims->gelu_erf,
                                                                 .dtype = b->args->dtype });
}

/* Everything that backward needs: all but the last product. */
static void forward_kept(const struct block *b)
{
    const struct zr_block_offsets *at = &b->args->model->block;
    const struct zr_block_work *layout = b->args->layout;
    void *qkv = work(b, layout->qkv), *residual = work(b, layout->residual);

    norm(b, work(b, layout->normed1), b->args->input, at->attention_norm, at->attention_norm_bias, layout->rstd1,
         layout->mean1);
    project_qkv(b, work(b, layout->normed1));
    rope(b, qkv, false);
    zr_attention_forward(b->stream, &(struct zr_op_attention_forward){ .out = work(b, layout->attention),
                                                                       .lse = work(b, layout->lse),
                                                                       .q = qkv,
                                                                       .k = shifted(b, qkv, b->q_width),
                                                                       .v = shifted(b, qkv, b->q_width + b->kv_width),
                                                                       .starts = b->args->micro.starts,
                                                                       .rows = b->tokens,
                                                                       .documents = b->args->micro.documents,
                                                                       .heads = b->dims->heads,
                                                                       .kv_heads = b->dims->kv_heads,
                                                                       .head_dim = b->dims->head_dim,
                                                                       .stride_qkv = b->qkv_width,
                                                                       .stride_out = b->q_width,
                                                                       .window = window(b),
                                                                       .causal = true,
                                                                       .scale = (float)b->dims->attention_scale,
                                                                       .scratch = work(b, layout->scratch),
                                                                       .dtype = b->args->dtype });
    linear(b, residual, b->hidden, work(b, layout->attention), b->q_width, b->hidden, at->o, at->o_bias);
    zr_add(b->stream, &(struct zr_op_add){ .out = residual,
                                           .a = residual,
                                           .b = b->args->input,
                                           .count = b->tokens * b->hidden,
                                           .dtype = b->args->dtype });
    norm(b, work(b, layout->normed2), residual, at->mlp_norm, at->mlp_norm_bias, layout->rstd2, layout->mean2);
    linear(b, work(b, layout->gate_up), b->up_width, work(b, layout->normed2), b->hidden, b->up_width, at->gate_up,
           at->gate_up_bias);
    activate(b);
}

void zr_block_forward(struct zr_stream *stream, const struct zr_block_args *args)
{
    struct block b = begin(stream, args);
    const struct zr_block_offsets *at = &args->model->block;
    forward_kept(&b);
    linear(&b, args->output, b.hidden, work(&b, args->layout->activated), b.inner, b.hidden, at->down, at->down_bias);
    zr_add(stream, &(struct zr_op_add){ .out = args->output,
                                        .a = args->output,
                                        .b = work(&b, args->layout->residual),
                                        .count = b.tokens * b.hidden,
                                        .dtype = args->dtype });
}

static void mlp_backward(const struct block *b)
{
    const struct zr_block_offsets *at = &b->args->model->block;
    const struct zr_block_work *layout = b->args->layout;
    void *d_activated = work(b, layout->d_activated), *d_hidden = work(b, layout->d_hidden), *d_up;

    linear_backward(b, d_activated, b->args->dx, b->hidden, work(b, layout->activated), b->inner, b->hidden, at->down,
                    at->down_bias);
    if (b->dims->gated) {
        d_up = work(b, layout->d_gate_up);
        zr_swiglu_backward(b->stream, &(struct zr_op_swiglu_backward){ .dgate_up = d_up,
                                                                       .dout = d_activated,
                                                                       .gate_up = work(b, layout->gate_up),
                                                                       .rows = b->tokens,
                                                                       .width = b->inner,
                                                                       .dtype = b->args->dtype });
    } else {
        d_up = d_activated;
        zr_gelu_backward(b->stream, &(struct zr_op_gelu_backward){ .dx = d_up,
                                                                   .dout = d_activated,
                                                                   .x = work(b, layout->gate_up),
                                                                   .count = b->tokens * b->inner,
                                                                   .erf = b->dims->gelu_erf,
                                                                   .dtype = b->args->dtype });
    }
    linear_backward(b, d_hidden, d_up, b->up_width, work(b, layout->normed2), b->hidden, b->up_width, at->gate_up,
                    at->gate_up_bias);
    norm_backward(b, b->args->dx, d_hidden, work(b, layout->residual), at->mlp_norm, at->mlp_norm_bias, layout->rstd2,
                  layout->mean2);
}

static void attention_backward(const struct block *b)
{
    const struct zr_block_offsets *at = &b->args->model->block;
    const struct zr_block_work *layout = b->args->layout;
    void *qkv = work(b, layout->qkv), *d_qkv = work(b, layout->d_qkv), *d_hidden = work(b, layout->d_hidden);

    linear_backward(b, work(b, layout->d_attention), b->args->dx, b->hidden, work(b, layout->attention), b->q_width,
                    b->hidden, at->o, at->o_bias);
    zr_attention_backward(b->stream,
                          &(struct zr_op_attention_backward){ .dq = d_qkv,
                                                              .dk = shifted(b, d_qkv, b->q_width),
                                                              .dv = shifted(b, d_qkv, b->q_width + b->kv_width),
                                                              .dout = work(b, layout->d_attention),
                                                              .out = work(b, layout->attention),
                                                              .lse = work(b, layout->lse),
                                                              .q = qkv,
                                                              .k = shifted(b, qkv, b->q_width),
                                                              .v = shifted(b, qkv, b->q_width + b->kv_width),
                                                              .starts = b->args->micro.starts,
                                                              .rows = b->tokens,
                                                              .documents = b->args->micro.documents,
                                                              .heads = b->dims->heads,
                                                              .kv_heads = b->dims->kv_heads,
                                                              .head_dim = b->dims->head_dim,
                                                              .stride_qkv = b->qkv_width,
                                                              .stride_out = b->q_width,
                                                              .window = window(b),
                                                              .causal = true,
                                                              .scale = (float)b->dims->attention_scale,
                                                              .scratch = work(b, layout->scratch),
                                                              .dtype = b->args->dtype });
    rope(b, d_qkv, true);
    if (b->dims->qk_norm) {
        head_norm_backward(b, 0, layout->q_pre, layout->q_rstd, at->q_norm, b->dims->heads);
        head_norm_backward(b, b->q_width, layout->k_pre, layout->k_rstd, at->k_norm, b->dims->kv_heads);
    }
    linear_backward(b, d_hidden, d_qkv, b->qkv_width, work(b, layout->normed1), b->hidden, b->qkv_width, at->qkv,
                    at->qkv_bias);
    norm_backward(b, b->args->dx, d_hidden, b->args->input, at->attention_norm, at->attention_norm_bias, layout->rstd1,
                  layout->mean1);
}

void zr_block_backward(struct zr_stream *stream, const struct zr_block_args *args, bool recompute)
{
    struct block b = begin(stream, args);
    if (recompute) forward_kept(&b);
    mlp_backward(&b);
    attention_backward(&b);
}
