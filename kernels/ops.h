/* ops.h: the operations that run on data: for each its arguments, shapes, types and formula
 *
 * An operation is a function on an argument struct and a lane (what a backend runs with: CPU threads, or a CUDA stream
 * with its handles). It knows no model, no tier and no schedule. engine/device/launch.h queues one on a stream, copying
 * the struct, so arguments are plain values and pointers into device memory that stay valid until the operation ran.
 *
 * Shapes are row-major, rows are tokens: (T,H) has H contiguous. A `stride` counts elements between rows. Letters:
 * T tokens of this micro-batch, H hidden, I intermediate, V vocabulary, D head dimension.
 *
 *   K1  An operation gives the same bits for any number of threads and any batch of other work beside it.
 *   K2  Sums over tokens or columns run in one fixed order; no floating-point atomics.
 *   K3  "+=" outputs add to what is there; all others overwrite. Inputs and outputs overlap only where said.
 *   K4  An operation never fails on numbers: non-finite values flow through. Shapes are checked once, by zr_op_check().
 *   K5  An operation allocates nothing; scratch comes in its arguments.
 *
 * Types: `dtype` fields name the type of the arrays marked (d). Statistics, losses and norms are fp32 or double as
 * written. The CPU backend computes with (d) = fp32 only; bf16 weights are widened by `cast` first. */
#ifndef ZR_KERNELS_OPS_H
#define ZR_KERNELS_OPS_H

#include "engine/base/error.h"
#include "kernels/dtype.h"
#include <stdbool.h>
#include <stdint.h>

/* One line an operation: OP(name) has struct zr_op_<name>, and enum ZR_OP_<name>. */
#define ZR_OPS(OP)                                                                                                     \
    OP(gemm)                                                                                                           \
    OP(bias_gradient)                                                                                                  \
    OP(rmsnorm_forward)                                                                                                \
    OP(rmsnorm_backward)                                                                                               \
    OP(layernorm_forward)                                                                                              \
    OP(layernorm_backward)                                                                                             \
    OP(rope)                                                                                                           \
    OP(attention_forward)                                                                                              \
    OP(attention_backward)                                                                                             \
    OP(swiglu_forward)                                                                                                 \
    OP(swiglu_backward)                                                                                                \
    OP(gelu_forward)                                                                                                   \
    OP(gelu_backward)                                                                                                  \
    OP(embedding_forward)                                                                                              \
    OP(embedding_backward)                                                                                             \
    OP(cross_entropy)                                                                                                  \
    OP(add)                                                                                                            \
    OP(fill)                                                                                                           \
    OP(cast)                                                                                                           \
    OP(sum)                                                                                                            \
    OP(norm_squared)                                                                                                   \
    OP(gather_rows)                                                                                                    \
    OP(adamw)

enum zr_op {
#define ZR_OP_ENUM(name) ZR_OP_##name,
    ZR_OPS(ZR_OP_ENUM)
#undef ZR_OP_ENUM
        ZR_OP_COUNT
};

/* out (m,n) (+)= op(a) (m,k) op(b) (k,n) + bias (n)       op(x) = x or its transpose
 * a is stored (m,k), or (k,m) when transpose_a; b is stored (k,n), or (n,k) when transpose_b. Sums over k in fp32.
 * A linear layer y = x W' with W stored (out,in), as Hugging Face does, is transpose_b; its input gradient
 * dx = dy W is plain; its weight gradient dW += dy' x is transpose_a with accumulate. */
struct zr_op_gemm {
    void *out;         /* (d) stride_out >= n */
    const void *a, *b; /* (d) */
    const void *bias;  /* (d), NULL: none; only without accumulate */
    uint64_t m, n, k;  /* at least 1 each */
    uint64_t stride_a, stride_b, stride_out;
    bool transpose_a, transpose_b, accumulate;
    enum zr_dtype dtype;
};

/* bias_gradient[n] += sum_t dy[t,n], t in order. */
struct zr_op_bias_gradient {
    float *out;     /* (N) fp32 */
    const void *dy; /* (d) (T,N) */
    uint64_t rows, width, stride;
    enum zr_dtype dtype;
};

/* out[r,:] = x[r,:] * rstd[r] * weight          rstd = 1 / sqrt(mean(x^2) + eps)     (Zhang, Sennrich 2019)
 * Rows come in `groups` per token so that the same operation serves q and k norms over heads inside (T,Q) rows: element
 * (t,g,i) lies at base + t*stride + g*width + i. groups = 1 for a whole row. rstd is (T,groups). out may be x. */
struct zr_op_rmsnorm_forward {
    void *out;          /* (d) */
    const void *x;      /* (d) */
    const void *weight; /* (d) (width) */
    float *rstd;        /* fp32, kept for backward */
    uint64_t rows, groups, width, stride_x, stride_out;
    float eps;
    enum zr_dtype dtype;
};

/* g = dy*weight;  dx (+)= rstd * (g - x * rstd^2 * mean(g*x));   dweight += sum over rows and groups of dy * x * rstd
 * Without `add`, dx overwrites and may be dy. With `add` it adds (the residual stream's gradient). x is the forward input. */
struct zr_op_rmsnorm_backward {
    void *dx;           /* (d) */
    float *dweight;     /* (width) fp32, += */
    const void *dy;     /* (d) */
    const void *x;      /* (d) */
    const void *weight; /* (d) */
    const float *rstd;
    float *scratch; /* zr_op_norm_scratch(rows*groups, width) floats */
    uint64_t rows, groups, width, stride_dx, stride_dy, stride_x;
    bool add;
    enum zr_dtype dtype;
};

/* xh = (x - mean) * rstd;  out = xh * weight + bias     rstd = 1 / sqrt(var + eps), var over H without correction */
struct zr_op_layernorm_forward {
    void *out; /* (d) (T,H) */
    const void *x, *weight, *bias;
    float *mean, *rstd; /* (T) fp32 */
    uint64_t rows, width;
    float eps;
    enum zr_dtype dtype;
};

/* g = dy*weight;  dx (+)= rstd * (g - mean(g) - xh * mean(g*xh));  dweight += sum dy*xh;  dbias += sum dy. */
struct zr_op_layernorm_backward {
    void *dx;
    float *dweight, *dbias;
    const void *dy, *x, *weight;
    const float *mean, *rstd;
    float *scratch; /* 2 * zr_op_norm_scratch(rows, width) floats */
    uint64_t rows, width;
    bool add;
    enum zr_dtype dtype;
};

/* Rotates pairs (i, i + D/2) of each head by the token's position, in place (Su et al. 2021, Hugging Face's halves):
 * a' = a cos - b sin, b' = b cos + a sin; `inverse` rotates back (the backward pass).
 * table (positions, D/2) of cos, then the same of sin: cos_sin[p*D + i] = cos, cos_sin[p*D + D/2 + i] = sin. */
struct zr_op_rope {
    void *x; /* (d) element (t,head,i) at t*stride + head*D + i */
    const float *cos_sin;
    const int32_t *positions; /* (T) within the document */
    uint64_t rows, heads, head_dim, stride;
    bool inverse;
    enum zr_dtype dtype;
};

/* Softmax attention within documents: for query t, keys s of the same document with s <= t (causal) and t - s < window.
 *   p[t,s] = softmax_s(scale * q[t].k[s]);  out[t] = sum_s p[t,s] v[s];  lse[t] = log sum_s exp(scale * q[t].k[s])
 * Query head h reads key/value head h / (heads / kv_heads). `starts` (documents + 1) are the documents' first tokens,
 * starts[0] = 0, starts[documents] = T; no document is empty. */
struct zr_op_attention_forward {
    void *out;             /* (d) (T, heads*D), stride_out */
    float *lse;            /* (heads, T) fp32 */
    const void *q, *k, *v; /* (d) head h at h*D inside a row of stride_qkv */
    const int32_t *starts;
    uint64_t rows, documents, heads, kv_heads, head_dim, stride_qkv, stride_out;
    uint64_t window; /* 0: no window */
    bool causal;
    float scale;
    float *scratch; /* zr_op_attention_scratch() floats */
    enum zr_dtype dtype;
};

/* delta[t] = sum_i dout[t,i] out[t,i];  ds = p * (dout.v' - delta);  dq = scale ds k;  dk = scale ds' q;  dv = p' dout
 * dk and dv sum over the query heads of their group in order. All three overwrite. */
struct zr_op_attention_backward {
    void *dq, *dk, *dv; /* (d) laid out as q, k, v with stride_qkv */
    const void *dout, *out;
    const float *lse;
    const void *q, *k, *v;
    const int32_t *starts;
    uint64_t rows, documents, heads, kv_heads, head_dim, stride_qkv, stride_out;
    uint64_t window;
    bool causal;
    float scale;
    float *scratch; /* zr_op_attention_scratch() floats */
    enum zr_dtype dtype;
};

/* gate_up (T,2I) holds gate then up. out = silu(gate) * up, silu(g) = g / (1 + exp(-g))   (Shazeer 2020) */
struct zr_op_swiglu_forward {
    void *out;            /* (d) (T,I) */
    const void *gate_up;  /* (d) (T,2I) */
    uint64_t rows, width; /* width = I */
    enum zr_dtype dtype;
};

/* s = sigmoid(g): dgate = dout*up*s*(1 + g*(1 - s)), dup = dout*g*s. dgate_up may be gate_up. */
struct zr_op_swiglu_backward {
    void *dgate_up;
    const void *dout, *gate_up;
    uint64_t rows, width;
    enum zr_dtype dtype;
};

/* tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));  erf form: 0.5 x (1 + erf(x / sqrt 2)) */
struct zr_op_gelu_forward {
    void *out;
    const void *x;
    uint64_t count;
    bool erf;
    enum zr_dtype dtype;
};

/* dx = dout * gelu'(x). dx may be dout. */
struct zr_op_gelu_backward {
    void *dx;
    const void *dout, *x;
    uint64_t count;
    bool erf;
    enum zr_dtype dtype;
};

/* out[t] = table[tokens[t]] (+ position_table[positions[t]]). Ids were checked when the batch came in. */
struct zr_op_embedding_forward {
    void *out;                          /* (d) (T,H) */
    const void *table, *position_table; /* (d) (V,H); (positions,H) or NULL */
    const int32_t *tokens, *positions;  /* (T) */
    uint64_t rows, width;
    enum zr_dtype dtype;
};

/* dtable[tokens[t]] += dy[t]; dposition_table[positions[t]] += dy[t], t in order. */
struct zr_op_embedding_backward {
    float *dtable, *dposition_table; /* fp32 */
    const void *dy;
    const int32_t *tokens, *positions;
    uint64_t rows, width;
    enum zr_dtype dtype;
};

/* For each row with target >= 0: loss = lse - z[target], and with `gradient` z becomes (softmax(z) - onehot) * scale.
 * A row with target < 0 has loss 0 and gradient 0. Online in one pass of maximum and sum; nothing but z is read. */
struct zr_op_cross_entropy {
    void *logits;           /* (d) (T,V), stride >= V; columns past V are not touched */
    const int32_t *targets; /* (T) */
    float *loss;            /* (T) fp32 */
    uint64_t rows, vocabulary, stride;
    float scale;
    bool gradient;
    enum zr_dtype dtype;
};

/* out = a + b; out may be a or b. */
struct zr_op_add {
    void *out;
    const void *a, *b;
    uint64_t count;
    enum zr_dtype dtype;
};

/* Sets bytes to zero. */
struct zr_op_fill {
    void *out;
    uint64_t bytes;
};

/* out[i] = x[i] in another format, round to nearest even. out may be x when the sizes agree. */
struct zr_op_cast {
    void *out;
    const void *x;
    uint64_t count;
    enum zr_dtype from, to;
};

/* *out += sum x[i], in double, in one fixed order. */
struct zr_op_sum {
    double *out;
    const float *x;
    uint64_t count;
};

/* *out += sum x[i]^2, in double, in one fixed order (blocks of 4096 elements, then block by block). */
struct zr_op_norm_squared {
    double *out;
    const void *x; /* fp32 or bf16 by dtype */
    uint64_t count;
    double *scratch; /* zr_op_norm_squared_scratch(count) doubles */
    enum zr_dtype dtype;
};

/* out[j] = x[rows_index[j]]: picks rows of (T,H). */
struct zr_op_gather_rows {
    void *out;
    const void *x;
    const int32_t *index;
    uint64_t rows, width; /* rows of out */
    enum zr_dtype dtype;
};

/* How a parameter and its states are kept. */
enum zr_state_layout {
    ZR_LAYOUT_FP32,  /* weight fp32 (the master), m fp32, v fp32                              */
    ZR_LAYOUT_SPLIT, /* weight bf16 (the high half, used for compute), low 16 bits, m fp32, v fp32 */
};

/* One AdamW step over `count` consecutive parameters (Loshchilov, Hutter 2019; Kingma, Ba 2015 with `l2`).
 *   g = grad * grad_scale                      (with l2: g = fma(decay, w, g), and no decoupled decay below)
 *   m = fma(beta1, m, (1 - beta1) * g);   v = fma(beta2, v, ((1 - beta2) * g) * g)
 *   w = fma(-(lr * decay), w, w)               (decoupled decay, PyTorch's order: before the step)
 *   w = fma(-step_size, m / fma(sqrt(v), inverse_sqrt_correction2, eps), w)
 * with step_size = lr / correction1, correction1 = 1 - beta1^t, inverse_sqrt_correction2 = 1 / sqrt(1 - beta2^t), all
 * computed in double by the caller and rounded once to fp32 (zr_adamw_scalars()). Every operation above is one IEEE fp32
 * operation as written, so that scalar, AVX2, AVX-512 and the GPU give the same bits.
 * Split layout: w is decoded from (weight, low), updated as above, and encoded again (kernels/split.h). */
struct zr_op_adamw {
    void *weight;  /* fp32, or bf16 in the split layout */
    uint16_t *low; /* split layout only */
    float *m, *v;
    const void *grad; /* fp32 or bf16 by grad_dtype; sums over tokens: grad_scale divides by their number and clips */
    uint64_t count;
    enum zr_state_layout layout;
    enum zr_dtype grad_dtype;
    bool l2;
    float grad_scale; /* the caller's; the rest by zr_adamw_scalars() */
    float lr, beta1, beta2, one_minus_beta1, one_minus_beta2, eps, decay, lr_decay, step_size, inverse_sqrt_correction2;
};

/* Fills lr .. inverse_sqrt_correction2 from doubles for update number `step` (1 for the first); without
 * `bias_correction` both corrections are 1. */
void zr_adamw_scalars(struct zr_op_adamw *op, double lr, double beta1, double beta2, double eps, double decay,
                      uint64_t step, bool bias_correction);

/* Scratch sizes, in elements of the scratch's type. */
uint64_t zr_op_norm_scratch(uint64_t rows, uint64_t width);
uint64_t zr_op_norm_squared_scratch(uint64_t count);
uint64_t zr_op_attention_scratch(uint64_t rows, uint64_t heads, uint64_t head_dim, uint64_t longest_document);

const char *zr_op_name(enum zr_op op);
uint32_t zr_op_args_bytes(enum zr_op op);

/* Asserts in one place what holds for every backend (shapes at least 1, strides long enough, pointers there). `args` is
 * the struct of `op`. ZR_EBUG with the operation's name when broken. */
enum zr_code zr_op_check(enum zr_op op, const void *args, struct zr_error *err);

#endif
