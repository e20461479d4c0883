/* model.h: a model is a table of tensors with offsets: shapes only, pure, no device
 *
 * Parameters are cut into units that move and update together:
 *
 *     unit 0            embedding (token table, and position table for GPT-2); with a tied head also the head's matrix
 *     units 1 .. L      transformer blocks
 *     unit L+1          final norm, and the head's matrix where it is not tied
 *
 *   M1  A unit's tensors lie in one flat layout, the same in every plane; a plane's byte offset is the element offset
 *       times the plane's element size.
 *   M2  Tensors start at multiples of 64 elements, except those that are fused with the one before (k and v after q, up
 *       after gate), which follow without a gap so that one product serves all. Gaps hold zeros in every plane.
 *   M3  A unit's element count is a multiple of 256.
 *   M4  Tensors are stored as Hugging Face stores them: Linear (out,in), GPT-2's Conv1D (in,out).  */
#ifndef ZR_MODEL_H
#define ZR_MODEL_H

#include "engine/base/error.h"
#include <stdbool.h>
#include <stdint.h>

enum zr_family { ZR_LLAMA, ZR_MISTRAL, ZR_QWEN2, ZR_QWEN3, ZR_GPT2, ZR_FAMILY_COUNT };
enum zr_rope_kind { ZR_ROPE_NONE, ZR_ROPE_DEFAULT, ZR_ROPE_LINEAR, ZR_ROPE_DYNAMIC, ZR_ROPE_LLAMA3, ZR_ROPE_YARN };

struct zr_rope_shape {
    enum zr_rope_kind kind;
    double theta, factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow, attention_factor, mscale,
        mscale_all_dim;          /* attention_factor 0: by formula */
    uint64_t original_positions; /* 0: max_positions */
    bool truncate;
};

/* What config.json says, family defaults filled in. */
struct zr_dims {
    enum zr_family family;
    uint32_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary, max_positions;
    double norm_eps, initializer_range;
    struct zr_rope_shape rope;
    uint32_t window;        /* sliding window in tokens; 0: none */
    uint32_t window_layers; /* Qwen2's max_window_layers: blocks from this index on use the window */
    bool tied, qkv_bias, o_bias, mlp_bias, qk_norm;
    bool layernorm, gelu_erf, gated; /* GPT-2: layernorm true, gated false */
    int32_t bos, eos;                /* -1: none */
    double attention_scale;          /* 1/sqrt(head_dim), or 1 with GPT-2's scale_attn_weights false */
};

enum zr_init { ZR_INIT_NORMAL, ZR_INIT_NORMAL_RESIDUAL, ZR_INIT_ONE, ZR_INIT_ZERO };

#define ZR_TENSOR_NAME_BYTES 96

struct zr_tensor {
    char name[ZR_TENSOR_NAME_BYTES]; /* Hugging Face's */
    uint32_t unit;
    uint64_t offset;   /* elements from the start of the unit */
    uint64_t shape[2]; /* shape[1] is 0 for vectors */
    uint64_t count;    /* elements */
    enum zr_init init; /* RESIDUAL: GPT-2's 1/sqrt(2L) on c_proj */
    bool matrix;       /* decays under the `matrices` rule: two dimensions */
};

enum zr_unit_kind { ZR_UNIT_EMBEDDING, ZR_UNIT_BLOCK, ZR_UNIT_HEAD };

struct zr_unit {
    enum zr_unit_kind kind;
    uint32_t first_tensor, tensor_count;
    uint64_t elements;   /* with gaps, a multiple of 256 */
    uint64_t parameters; /* without gaps */
};

#define ZR_ABSENT UINT64_MAX

/* Element offsets inside a block's unit, the same for every block; ZR_ABSENT where a family has no such tensor. */
struct zr_block_offsets {
    uint64_t attention_norm, attention_norm_bias, qkv, qkv_bias, q_norm, k_norm, o, o_bias;
    uint64_t mlp_norm, mlp_norm_bias, gate_up, gate_up_bias, down, down_bias; /* gate_up is c_fc for GPT-2 */
};

struct zr_ends_offsets {
    uint64_t table, position_table;             /* in unit 0 */
    uint64_t final_norm, final_norm_bias, head; /* in unit L+1; head ZR_ABSENT when tied */
};

struct zr_model {
    struct zr_dims dims;
    struct zr_tensor *tensors;
    uint32_t tensor_count;
    struct zr_unit *units; /* dims.layers + 2 */
    uint32_t unit_count;
    uint64_t parameters; /* tied weights counted once */
    struct zr_block_offsets block;
    struct zr_ends_offsets ends;
};

/* Reads a Hugging Face config.json (transformers v4 and v5 spellings). `name` stands for the file in messages.
 * ZR_EINPUT  not JSON, an unknown model_type or rope type, a missing or impossible number: the key is named */
ZR_MUST_CHECK enum zr_code zr_dims_read(const char *name, const char *json, uint64_t bytes, struct zr_dims *ret_dims,
                                        struct zr_error *err);

/* config.json of an export: read back by zr_dims_read() to the same dims, and by transformers. From the heap: free(). */
char *zr_dims_write(const struct zr_dims *dims, const char *torch_dtype);

ZR_MUST_CHECK enum zr_code zr_model_make(const struct zr_dims *dims, struct zr_model **ret_model, struct zr_error *err);
void zr_model_free(struct zr_model *model);

/* Index of the tensor of that name, also by its other spellings (GPT-2 with and without "transformer."); -1: none. */
int64_t zr_model_find(const struct zr_model *model, const char *name);

/* Rotary frequencies: inv_freq[head_dim/2], and the factor that multiplies cos and sin (yarn). `length` is the longest
 * position + 1 that will be used (dynamic NTK depends on it). Formulas: transformers' modeling_rope_utils, in double,
 * rounded to fp32 where transformers computes in fp32. */
void zr_rope_frequencies(const struct zr_dims *dims, uint64_t length, float *ret_inv_freq, double *ret_factor);

/* table (positions, head_dim): cos then sin halves, as kernels/ops.h zr_op_rope wants it. fp32, transformers' way:
 * angle = fp32(position * inv_freq), cosf, sinf. */
void zr_rope_table(const struct zr_dims *dims, uint64_t positions, float *ret_table);

/* Elements [first, first + count) of one tensor of random weights (fp32): normal(0, initializer_range), or ones, or zeros.
 * Depends on seed, the tensor's index and the element alone. */
void zr_model_init_tensor(const struct zr_model *model, uint32_t tensor_index, uint64_t seed, uint64_t first,
                          uint64_t count, float *ret_values);

const char *zr_family_name(enum zr_family family);

#endif
