/* plan.h: where every byte lives: pure, no device, no I/O
 *
 *     model, wishes, machine ──► zr_plan_make ──► buffers (tier, offset, bytes), micro-batch, slots ──► schedule
 *
 * A plan is a list of buffers that never overlap, and tables that say which buffer holds which plane of which unit. The
 * executor allocates exactly these bytes; the schedule's ops name exactly these buffers.
 *
 *   L1  On every tier the buffers lie one after another inside [0, used[tier]), aligned to ZR_PLAN_ALIGN, and
 *       used[tier] <= machine.bytes[tier].
 *   L2  A unit's weights have one home. Home device: they never move. Home host: the host's copy is the truth; a resident
 *       unit has a device copy that is refreshed after each update, a streamed unit borrows a weight slot. Home nvme: the
 *       weights pass through a host slot, then a device slot.
 *   L3  The update of a unit runs where its states are: on the device (states there, weights at home there) or on the
 *       host's threads, chunk by chunk, with states on the host or staged from NVMe.
 *   L4  Numbers do not depend on any of this. Only the micro-batch (which the plan chooses where the config leaves it
 *       open) may change the last bits. */
#ifndef ZR_PLAN_H
#define ZR_PLAN_H

#include "engine/base/text.h"
#include "engine/model/cost.h"
#include "engine/model/model.h"
#include "engine/plan/machine.h"

#define ZR_PLAN_ALIGN 4096
#define ZR_NO_BUFFER UINT32_MAX

enum zr_plane { ZR_WEIGHT, ZR_LOW, ZR_M, ZR_V, ZR_GRAD, ZR_PLANE_COUNT };

const char *zr_plane_name(enum zr_plane plane);

/* What a buffer is for; its lines in tables and its colour in pictures. */
enum zr_purpose {
    ZR_FOR_WEIGHTS,
    ZR_FOR_STATES,
    ZR_FOR_GRADIENTS,
    ZR_FOR_ACTIVATIONS,
    ZR_FOR_STAGING,
    ZR_FOR_BATCH, /* tokens, labels, rotary table, sums */
    ZR_PURPOSE_COUNT
};

const char *zr_purpose_name(enum zr_purpose purpose); /* "optimizer states" */

struct zr_buffer {
    enum zr_tier tier;
    enum zr_purpose purpose;
    bool persistent;        /* its content outlives a step: weights, states, gradients; all others are scratch */
    uint64_t offset, bytes; /* bytes is what is used; the next buffer starts at the next multiple of ZR_PLAN_ALIGN */
    char name[40];          /* "weight slot 1", "m of unit 3", ... */
};

/* What the config asks for. */
struct zr_wishes {
    bool split;          /* bf16 weights with low halves; false: fp32 */
    bool grad_bf16;      /* gradients leave the device rounded to bf16 (split only; a unit visited twice stays fp32) */
    bool stream_weights; /* false: weights must be resident on the device */
    enum zr_tier
        weight_home;      /* of units whose weights are streamed or whose states are not on the device: host or nvme */
    enum zr_tier states;  /* device, host or nvme */
    uint32_t nvme_planes; /* which of low, m, v go to nvme when states is nvme: bits 1 << enum zr_plane */
    uint32_t rows_per_step, row_tokens;
    uint32_t micro_rows; /* 0: the plan chooses the largest divisor of rows_per_step that fits */
    uint32_t
        prefetch; /* units loaded ahead: weight slots = prefetch + 1, fewer where the budget is short, at least 2 */
    uint64_t update_chunk; /* parameters per piece of a host update; a multiple of 256 */
    uint64_t loss_chunk;   /* rows of logits at a time; 0: chosen from the shape alone */
    bool accumulate;       /* several submissions per update: gradients are added on, in fp32 */
};

struct zr_unit_plan {
    enum zr_tier weight_home;
    bool resident;                      /* has its own device copy (or home) */
    enum zr_tier state[ZR_PLANE_COUNT]; /* of low, m, v, grad */
    bool update_on_device;
    bool grad_f32;                     /* how the gradient is kept: fp32, else bf16 */
    bool visited_twice;                /* tied: its gradient is added to by the head and by the embedding */
    uint32_t device_weight;            /* resident copy, or ZR_NO_BUFFER */
    uint32_t home[ZR_PLANE_COUNT];     /* host or device buffer of each plane; ZR_NO_BUFFER when on nvme or absent */
    uint32_t nvme_weight;              /* nvme buffer of the weights, or ZR_NO_BUFFER */
    uint32_t first_chunk, chunk_count; /* host updates: into zr_plan.chunks */
    uint32_t slot_class;               /* 0: blocks, 1: embedding and head */
};

/* One piece of a unit's update. */
struct zr_chunk {
    uint32_t unit;
    uint64_t first, count;         /* elements */
    uint32_t nvme[ZR_PLANE_COUNT]; /* nvme buffers of low, m, v; ZR_NO_BUFFER when not there */
};

struct zr_plan {
    struct zr_machine machine;
    struct zr_wishes wishes;
    const struct zr_model *model; /* outlives the plan */

    uint32_t micro_rows, micro_tokens, micro_max; /* rows and tokens of a micro-batch; micro-batches of a full step */
    uint32_t row_tokens;
    uint64_t loss_chunk;
    struct zr_block_work block_work;
    struct zr_head_work head_work;

    struct zr_unit_plan *units;
    struct zr_chunk *chunks;
    uint32_t chunk_count;
    struct zr_buffer *buffers;
    uint32_t buffer_count;
    uint64_t used[ZR_TIER_COUNT];

    /* device */
    uint32_t slot_count[2], *slots[2]; /* weight slots of both classes */
    uint32_t wide, wide_norm;          /* fp32 copies of the unit at work (split on a backend that widens) and of a tied
                                          model's final norm; or ZR_NO_BUFFER */
    uint32_t grad_slot_count;          /* fp32 accumulators: the first holds any unit, the second any block */
    uint32_t grad_slots[2], narrow_slots[2]; /* narrow: bf16 gradients on their way out, or ZR_NO_BUFFER */
    uint32_t work;                           /* activations of the micro-batch at work */
    uint32_t hidden_count, *hidden;    /* hidden states on their way: in forward the inputs of blocks, in backward their
                                          gradients and the checkpoints that were loaded; micro_max + 3 */
    uint32_t *checkpoint;              /* layers x micro_max: device or host buffer of the input of each block */
    uint32_t checkpoints_on_device;    /* how many blocks' (the last ones) */
    uint32_t kept_blocks;              /* the last blocks whose activations stay: no recomputation */
    uint32_t *kept;                    /* kept_blocks x micro_max work areas, first the block with the lowest index */
    uint32_t batch_device, rope, sums; /* tokens etc. of the whole step; cos/sin table; losses and norms (double) */
    uint32_t norm_scratch;             /* partial sums of a gradient's norm: a double for every 1,024 elements */
    /* host */
    uint32_t batch_host, sums_host;
    uint32_t stage_count, *stages; /* chunk-sized staging for nvme states: low, m, v of one chunk side by side */
    uint64_t stage_offset[ZR_PLANE_COUNT]; /* where each plane lies in a stage */
    uint32_t host_slot_count, *host_slots; /* weights on their way between nvme and device */
};

/* Layout of the batch buffers (device and host alike), int32 arrays for the whole step, micro-batch after micro-batch:
 * tokens, targets, positions (T each); per micro-batch the documents' starts (micro_tokens + 1 each). */
struct zr_batch_layout {
    uint64_t tokens, targets, positions, starts, starts_stride, bytes;
};
void zr_batch_layout(const struct zr_plan *plan, struct zr_batch_layout *ret_layout);

/* Sums buffer: doubles: [0] the loss, [1 + unit] the squared norm of the unit's gradient. */
static inline uint64_t zr_sums_bytes(const struct zr_model *model)
{
    return (1 + (uint64_t)model->unit_count) * sizeof(double);
}

/* ZR_EFULL  does not fit: names the tier, what is missing in bytes, and the smallest change that makes it fit
 * ZR_ECONFIG wishes that contradict each other: names the keys */
ZR_MUST_CHECK enum zr_code zr_plan_make(const struct zr_model *model, const struct zr_wishes *wishes,
                                        const struct zr_machine *machine, struct zr_plan **ret_plan,
                                        struct zr_error *err);
void zr_plan_free(struct zr_plan *plan);

/* L1: asserts nothing, returns ZR_EBUG with a sentence when a buffer overlaps or a budget is exceeded. */
ZR_MUST_CHECK enum zr_code zr_plan_verify(const struct zr_plan *plan, struct zr_error *err);

/* Element size of a plane of a unit, in bytes. */
uint32_t zr_plane_bytes(const struct zr_plan *plan, uint32_t unit, enum zr_plane plane);

/* Bytes by tier and purpose. */
void zr_plan_bytes(const struct zr_plan *plan, uint64_t ret_bytes[ZR_TIER_COUNT][ZR_PURPOSE_COUNT]);

/* Model states in bytes: weights, low halves, moments and gradients of all units. */
uint64_t zr_plan_state_bytes(const struct zr_plan *plan);

/* The plan in sentences and tables, for `zeroctl plan` and the log. */
void zr_plan_words(const struct zr_plan *plan, struct zr_text *out);

#endif
