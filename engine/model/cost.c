/* cost.c: bytes and FLOPs, and the one table of where activations lie */
#include "engine/model/cost.h"
#include "engine/base/span.h"
#include <math.h>

#define AREA_ALIGN 256

/* Takes `bytes` at the end of an area. */
static uint64_t take(uint64_t *end, uint64_t bytes)
{
    uint64_t at = *end;
    *end = zr_round_up(at + bytes, AREA_ALIGN);
    return at;
}

/* Partial sums of norm gradients (a line of `width` for every 64 rows, twice for LayerNorm) and attention's delta: what
 * zr_op_norm_scratch() and zr_op_attention_scratch() ask for; the block room's test holds the two together. */
static uint64_t norm_scratch(uint64_t tokens, uint64_t width)
{
    return 2 * zr_divide_up(tokens, 64) * width * sizeof(float);
}

void zr_block_work(const struct zr_dims *dims, uint64_t tokens, uint64_t longest, uint32_t element_bytes,
                   struct zr_block_work *ret_work)
{
    const uint64_t e = element_bytes, h = dims->hidden, q = (uint64_t)dims->heads * dims->head_dim;
    const uint64_t kv = (uint64_t)dims->kv_heads * dims->head_dim, qkv = q + 2 * kv;
    const uint64_t inner = dims->intermediate, up = dims->gated ? 2 * inner : inner;
    uint64_t end = 0;
    struct zr_block_work w = { .mean1 = ZR_ABSENT,
                               .mean2 = ZR_ABSENT,
                               .q_pre = ZR_ABSENT,
                               .k_pre = ZR_ABSENT,
                               .q_rstd = ZR_ABSENT,
                               .k_rstd = ZR_ABSENT };
    (void)longest;
    w.normed1 = take(&end, tokens * h * e);
    w.rstd1 = take(&end, tokens * 4);
    if (dims->layernorm) w.mean1 = take(&end, tokens * 4);
    w.qkv = take(&end, tokens * qkv * e);
    if (dims->qk_norm) {
        w.q_pre = take(&end, tokens * q * e);
        w.k_pre = take(&end, tokens * kv * e);
        w.q_rstd = take(&end, tokens * dims->heads * 4);
        w.k_rstd = take(&end, tokens * dims->kv_heads * 4);
    }
    w.attention = take(&end, tokens * q * e);
    w.lse = take(&end, tokens * dims->heads * 4);
    w.residual = take(&end, tokens * h * e);
    w.normed2 = take(&end, tokens * h * e);
    w.rstd2 = take(&end, tokens * 4);
    if (dims->layernorm) w.mean2 = take(&end, tokens * 4);
    w.gate_up = take(&end, tokens * up * e);
    w.activated = take(&end, tokens * inner * e);
    w.kept_bytes = end;

    /* Backward writes over what it has read for the last time: the gradient of the activation over the activation, that
     * of gate and up over gate and up, and, once the MLP is done, attention's gradients over the MLP's areas. */
    w.d_activated = w.activated;
    w.d_gate_up = w.gate_up;
    uint64_t reuse = w.gate_up;
    w.d_qkv = take(&reuse, tokens * qkv * e);
    w.d_attention = take(&reuse, tokens * q * e);
    if (reuse > w.kept_bytes) { /* a narrow MLP: not enough room */
        w.d_qkv = take(&end, tokens * qkv * e);
        w.d_attention = take(&end, tokens * q * e);
    }
    w.d_hidden = take(&end, tokens * h * e);
    w.scratch_bytes = zr_max_u64(norm_scratch(tokens, zr_max_u64(h, dims->head_dim)), tokens * dims->heads * 4);
    w.scratch = take(&end, w.scratch_bytes);
    w.bytes = end;
    *ret_work = w;
}

uint64_t zr_head_chunk(const struct zr_dims *dims, uint64_t tokens)
{
    uint64_t rows = tokens * dims->hidden / dims->vocabulary;
    rows = zr_round_up(zr_max_u64(rows, 64), 64);
    return zr_min_u64(rows, tokens);
}

void zr_head_work(const struct zr_dims *dims, uint64_t tokens, uint64_t chunk, uint32_t element_bytes,
                  struct zr_head_work *ret_work)
{
    const uint64_t e = element_bytes, h = dims->hidden;
    uint64_t end = 0;
    struct zr_head_work w = { 0 };
    w.normed = take(&end, tokens * h * e);
    w.rstd = take(&end, tokens * 4);
    w.mean = take(&end, tokens * 4);
    w.d_normed = take(&end, chunk * h * e);
    w.logits = take(&end, chunk * zr_round_up(dims->vocabulary, 16) * 4);
    w.loss = take(&end, tokens * 4);
    w.scratch_bytes = norm_scratch(tokens, h);
    w.scratch = take(&end, w.scratch_bytes);
    w.bytes = end;
    *ret_work = w;
}

double zr_unit_flops(const struct zr_model *model, uint32_t unit, uint64_t tokens, uint64_t document)
{
    const struct zr_dims *dims = &model->dims;
    const double t = (double)tokens, h = dims->hidden;
    if (unit == 0) return 0;
    if (unit + 1 == model->unit_count) return 2 * t * h * dims->vocabulary;
    const double q = (double)dims->heads * dims->head_dim, kv = (double)dims->kv_heads * dims->head_dim;
    const double products = h * (q + 2 * kv) + q * h + (dims->gated ? 3 : 2) * h * dims->intermediate;
    return 2 * t * products + 2 * t * q * (double)document; /* causal: half of 4 T S q */
}

/* -- DeepSpeed's estimates ----------------------------------------------------------------------------------------- */

void zr_deepspeed_estimate(const struct zr_deepspeed_question *question, struct zr_deepspeed_estimate *ret_estimate)
{
    const double n = (double)question->parameters, largest = (double)question->largest_layer;
    const double per_node = question->gpus_per_node, total = per_node * question->nodes;
    const double gpus_factor = 1 / (double)question->nodes, factor = question->buffer_factor;
    double gpu, host;
    if (question->stage == 2) {
        if (question->offload_optimizer) {
            gpu = 2 * n; /* the 16-bit weights; gradients leave as they come */
            host = n * fmax(4 * total, 16) * factor;
        } else {
            gpu = 2 * n + 18 * n / total;
            host = n * 4 * per_node * factor;
        }
    } else {
        const double layer = 2 * 2 * largest; /* weights and gradients of the largest layer in 16 bit */
        if (question->offload_optimizer && question->offload_param) {
            gpu = layer;
            host = n * (question->zero_init ? 18 * gpus_factor : fmax(4 * per_node, 18 * gpus_factor)) * factor;
        } else if (question->offload_optimizer) {
            gpu = layer + 2 * n / total;
            host = n * (question->zero_init ? 16 * gpus_factor : fmax(4 * per_node, 16 * gpus_factor)) * factor;
        } else {
            gpu = layer + 18 * n / total;
            host = question->zero_init ? largest * 4 * per_node * factor : n * 4 * per_node * factor;
        }
    }
    *ret_estimate = (struct zr_deepspeed_estimate){ .host_bytes = (uint64_t)host, .gpu_bytes = (uint64_t)gpu };
}

void zr_states_by_stage(uint64_t parameters, uint32_t stage, uint32_t ranks, struct zr_states_bytes *ret_bytes)
{
    struct zr_states_bytes bytes = {
        .weights = 2 * parameters, .gradients = 2 * parameters, .master = 4 * parameters, .moments = 8 * parameters
    };
    if (stage >= 1) {
        bytes.master = zr_divide_up(bytes.master, ranks);
        bytes.moments = zr_divide_up(bytes.moments, ranks);
    }
    if (stage >= 2) bytes.gradients = zr_divide_up(bytes.gradients, ranks);
    if (stage >= 3) bytes.weights = zr_divide_up(bytes.weights, ranks);
    bytes.total = bytes.weights + bytes.gradients + bytes.master + bytes.moments;
    *ret_bytes = bytes;
}
