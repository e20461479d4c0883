/* cost.h: bytes and FLOPs of a unit for so many tokens, and where a block's activations lie in its work area
 *
 * The plan sizes the work area and the block room carves it by the same table, so that they cannot disagree. */
#ifndef ZR_MODEL_COST_H
#define ZR_MODEL_COST_H

#include "engine/model/model.h"

/* Byte offsets inside the work area of one micro-batch. fp32 activations: element size 4, bf16: 2. Every offset is a
 * multiple of 256. What backward needs again comes first; `kept_bytes` is that part. */
struct zr_block_work {
    uint64_t normed1, rstd1, mean1, qkv, q_pre, k_pre, q_rstd, k_rstd, attention, lse, residual, normed2, rstd2, mean2,
        gate_up, activated;
    uint64_t kept_bytes;
    uint64_t d_hidden, d_qkv, d_attention, d_gate_up, d_activated, scratch; /* backward only */
    uint64_t scratch_bytes;
    uint64_t bytes; /* the whole area */
};

/* `longest` bounds the tokens of one document. */
void zr_block_work(const struct zr_dims *dims, uint64_t tokens, uint64_t longest, uint32_t element_bytes,
                   struct zr_block_work *ret_work);

/* The head's work area: `chunk` rows of logits at a time. */
struct zr_head_work {
    uint64_t normed, rstd, mean, d_normed, logits, loss, scratch, bytes;
    uint64_t scratch_bytes;
};
void zr_head_work(const struct zr_dims *dims, uint64_t tokens, uint64_t chunk, uint32_t element_bytes,
                  struct zr_head_work *ret_work);

/* Rows of logits that exist at a time when the config leaves it open: about as many bytes as the hidden states of the
 * micro-batch, at least 64 rows, at most `tokens`. */
uint64_t zr_head_chunk(const struct zr_dims *dims, uint64_t tokens);

/* FLOPs (a multiply-add counts 2) of a forward pass of one unit over `tokens` tokens in documents of `document` tokens.
 * Backward is twice that. */
double zr_unit_flops(const struct zr_model *model, uint32_t unit, uint64_t tokens, uint64_t document);

/* DeepSpeed's estimate of model states (its estimate_zero*_model_states_mem_needs functions), bytes on host and on each
 * GPU; for `zeroctl plan --deepspeed`, so that users can compare.  */
struct zr_deepspeed_estimate {
    uint64_t host_bytes, gpu_bytes;
};
struct zr_deepspeed_question {
    uint64_t parameters, largest_layer;
    uint32_t gpus_per_node, nodes, stage; /* stage 2 or 3 */
    bool offload_optimizer, offload_param, zero_init;
    double buffer_factor; /* 1.5 */
};
void zr_deepspeed_estimate(const struct zr_deepspeed_question *question, struct zr_deepspeed_estimate *ret_estimate);

/* Mixed-precision model states per rank, itemised: 16-bit weights and gradients, fp32 master and moments, by ZeRO stage
 * 0 to 3 over `ranks` (Rajbhandari et al. 2020). Lines add up to `total`. */
struct zr_states_bytes {
    uint64_t weights, gradients, master, moments, total;
};
void zr_states_by_stage(uint64_t parameters, uint32_t stage, uint32_t ranks, struct zr_states_bytes *ret_bytes);

#endif
