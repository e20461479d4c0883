/* schedule.c: writes one step down as a list, in an order in which it could run serially
 *
 *     forward:   [update unit] load unit, all micro-batches through it, inputs saved; then the next unit
 *     head:      loss and the first gradients, forward and backward together
 *     backward:  load unit, all micro-batches back through it, its gradient out; then the unit before
 *
 * Nothing here thinks about overlap: queues run ahead of each other as far as buffers allow (slots, stages, hidden
 * states), and the waits that keep them apart are derived afterwards. Whatever lives in a pool of buffers is handed out in
 * turn, oldest free one first, so that a queue meets the longest-idle buffer next. */
#include "engine/plan/schedule.h"
#include "engine/base/span.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What a buffer holds, as one number: kind, and two indices. */
enum content_kind {
    WEIGHT_BEFORE = 1, /* the weights that the pending update starts from */
    WEIGHT_PARTLY,     /* chunks up to b are updated */
    WEIGHT,
    STATES_READ,
    STATES_UPDATED,
    BATCH,
    SUMS,
    INPUT,       /* hidden states that block a reads, micro-batch b; a = layers: what the head reads */
    GRADIENT,    /* of hidden states, micro-batch a */
    ACCUMULATED, /* gradient of unit a on the device */
    NARROWED,
    GRAD_HOME, /* gradient of unit a where it stays */
    KEPT,
    WIDE,
};

static uint64_t content(enum content_kind kind, uint32_t a, uint32_t b)
{
    return (uint64_t)kind << 56 | (uint64_t)a << 28 | b;
}

struct pool {
    uint32_t *buffers, count;
    uint32_t *free_list, head, free_count; /* a ring of free buffers, oldest first */
};

struct slot {
    uint32_t unit;      /* ZR_NONE: nothing of this step */
    uint64_t last_used; /* op index */
};

struct builder {
    struct zr_schedule *schedule;
    const struct zr_plan *plan;
    const struct zr_model *model;
    struct zr_schedule_request request;
    uint32_t room;
    bool failed;

    struct slot *slots[2], *host_slots;
    struct pool hidden;
    uint32_t *input_at;    /* hidden or checkpoint buffer of each micro-batch at the current layer */
    uint32_t *gradient_at; /* hidden buffer with the gradient of each micro-batch */
    uint32_t next_stage, next_grad_slot;
    uint32_t wide_unit; /* whose fp32 copy is in plan->wide */
    bool wide_norm_done;
    bool *updated, *saved_before;
};

/* -- the list ------------------------------------------------------------------------------------------------------ */

static struct zr_op_entry *add(struct builder *builder, enum zr_op_kind kind, enum zr_queue queue, uint32_t unit,
                               uint32_t micro)
{
    struct zr_schedule *schedule = builder->schedule;
    if (schedule->op_count == builder->room) {
        uint32_t room = builder->room ? 2 * builder->room : 1024;
        struct zr_op_entry *ops = realloc(schedule->ops, room * sizeof *ops);
        if (!ops) {
            builder->failed = true; /* the list is thrown away: any entry serves until then */
            schedule->op_count = 0;
        } else {
            schedule->ops = ops;
            builder->room = room;
        }
    }
    struct zr_op_entry *op = &schedule->ops[schedule->op_count++];
    *op = (struct zr_op_entry){ .kind = kind,
                                .queue = queue,
                                .unit = unit,
                                .micro = micro,
                                .chunk = ZR_NONE,
                                .sequence = ++schedule->queue_length[queue],
                                .first_micro = micro == 0,
                                .last_micro = micro + 1 == builder->request.micro_count };
    return op;
}

static void access(struct zr_op_entry *op, uint32_t buffer, bool write, uint64_t what)
{
    assert(op->access_count < ZR_ACCESS_MAX && buffer != ZR_NO_BUFFER);
    op->access[op->access_count++] = (struct zr_access){ .buffer = buffer, .write = write, .content = what };
}

static void reads(struct zr_op_entry *op, uint32_t buffer, uint64_t what)
{
    access(op, buffer, false, what);
}

static void writes(struct zr_op_entry *op, uint32_t buffer, uint64_t what)
{
    access(op, buffer, true, what);
}

static void adds_to(struct zr_op_entry *op, uint32_t buffer, uint64_t what)
{
    access(op, buffer, false, what);
    access(op, buffer, true, what);
}

static uint64_t bytes_of(const struct builder *builder, uint32_t buffer)
{
    return builder->plan->buffers[buffer].bytes;
}

/* -- pools --------------------------------------------------------------------------------------------------------- */

static uint32_t take_hidden(struct builder *builder)
{
    struct pool *pool = &builder->hidden;
    assert(pool->free_count > 0); /* micro_max + 3 buffers are enough at every point of the walk */
    uint32_t buffer = pool->free_list[pool->head];
    pool->head = (pool->head + 1) % pool->count;
    pool->free_count--;
    return buffer;
}

static bool is_hidden(const struct builder *builder, uint32_t buffer)
{
    for (uint32_t i = 0; i < builder->hidden.count; i++)
        if (builder->hidden.buffers[i] == buffer) return true;
    return false;
}

/* Checkpoints on the device are not in the pool and are left alone. */
static void give_hidden_back(struct builder *builder, uint32_t buffer)
{
    struct pool *pool = &builder->hidden;
    if (!is_hidden(builder, buffer)) return;
    pool->free_list[(pool->head + pool->free_count) % pool->count] = buffer;
    pool->free_count++;
}

/* The slot that holds the unit, else the one that was used longest ago. */
static uint32_t find_slot(struct builder *builder, struct slot *slots, uint32_t count, uint32_t unit, bool *ret_hit)
{
    uint32_t oldest = 0;
    for (uint32_t slot = 0; slot < count; slot++) {
        if (slots[slot].unit == unit) {
            slots[slot].last_used = builder->schedule->op_count;
            *ret_hit = true;
            return slot;
        }
        if (slots[slot].last_used < slots[oldest].last_used) oldest = slot;
    }
    slots[oldest] = (struct slot){ .unit = unit, .last_used = builder->schedule->op_count };
    *ret_hit = false;
    return oldest;
}

/* -- weights and updates ------------------------------------------------------------------------------------------- */

static bool update_pending(const struct builder *builder, uint32_t unit)
{
    return builder->request.update && !builder->updated[unit];
}

/* Host buffer with the weights of a unit whose home is nvme; read there if they are not in a slot. */
static uint32_t host_weight(struct builder *builder, uint32_t unit, bool before)
{
    const struct zr_plan *plan = builder->plan;
    bool hit;
    uint32_t slot = find_slot(builder, builder->host_slots, plan->host_slot_count, unit, &hit);
    uint32_t buffer = plan->host_slots[slot];
    if (!hit) {
        uint32_t home = plan->units[unit].nvme_weight;
        struct zr_op_entry *op = add(builder, ZR_READ_WEIGHT, ZR_QUEUE_READ, unit, ZR_NONE);
        uint64_t what = content(before ? WEIGHT_BEFORE : WEIGHT, unit, 0);
        reads(op, home, what);
        writes(op, buffer, what);
        op->bytes = bytes_of(builder, home);
    }
    return buffer;
}

static void update_on_host(struct builder *builder, uint32_t unit)
{
    const struct zr_plan *plan = builder->plan;
    const struct zr_unit_plan *place = &plan->units[unit];
    uint32_t weight = place->weight_home == ZR_NVME ? host_weight(builder, unit, true) : place->home[ZR_WEIGHT];

    for (uint32_t index = 0; index < place->chunk_count; index++) {
        uint32_t number = place->first_chunk + index;
        const struct zr_chunk *chunk = &plan->chunks[number];
        uint32_t stage = ZR_NO_BUFFER;
        for (int plane = ZR_LOW; plane <= ZR_V; plane++)
            if (chunk->nvme[plane] != ZR_NO_BUFFER && stage == ZR_NO_BUFFER)
                stage = plan->stages[builder->next_stage++ % plan->stage_count];

        if (stage != ZR_NO_BUFFER) {
            struct zr_op_entry *op = add(builder, ZR_READ_STATES, ZR_QUEUE_READ, unit, ZR_NONE);
            op->chunk = number;
            for (int plane = ZR_LOW; plane <= ZR_V; plane++)
                if (chunk->nvme[plane] != ZR_NO_BUFFER) {
                    reads(op, chunk->nvme[plane], 0);
                    op->bytes += bytes_of(builder, chunk->nvme[plane]);
                }
            writes(op, stage, content(STATES_READ, number, 0));
        }

        struct zr_op_entry *op = add(builder, ZR_UPDATE, ZR_QUEUE_CPU, unit, ZR_NONE);
        op->chunk = number;
        reads(op, weight, index == 0 ? content(WEIGHT_BEFORE, unit, 0) : content(WEIGHT_PARTLY, unit, index - 1));
        writes(op, weight,
               index + 1 == place->chunk_count ? content(WEIGHT, unit, 0) : content(WEIGHT_PARTLY, unit, index));
        op->bytes = 2 * chunk->count * zr_plane_bytes(plan, unit, ZR_WEIGHT);
        for (int plane = ZR_LOW; plane <= ZR_V; plane++) {
            uint64_t bytes = chunk->count * zr_plane_bytes(plan, unit, plane);
            op->bytes += 2 * bytes;
            if (bytes && chunk->nvme[plane] == ZR_NO_BUFFER) adds_to(op, place->home[plane], 0);
        }
        reads(op, place->home[ZR_GRAD], content(GRAD_HOME, unit, 0));
        op->bytes += chunk->count * zr_plane_bytes(plan, unit, ZR_GRAD);
        if (stage == ZR_NO_BUFFER) continue;
        reads(op, stage, content(STATES_READ, number, 0));
        writes(op, stage, content(STATES_UPDATED, number, 0));

        op = add(builder, ZR_WRITE_STATES, ZR_QUEUE_WRITE, unit, ZR_NONE);
        op->chunk = number;
        reads(op, stage, content(STATES_UPDATED, number, 0));
        for (int plane = ZR_LOW; plane <= ZR_V; plane++)
            if (chunk->nvme[plane] != ZR_NO_BUFFER) {
                writes(op, chunk->nvme[plane], 0);
                op->bytes += bytes_of(builder, chunk->nvme[plane]);
            }
    }

    if (place->weight_home == ZR_NVME) {
        struct zr_op_entry *op = add(builder, ZR_WRITE_WEIGHT, ZR_QUEUE_WRITE, unit, ZR_NONE);
        reads(op, weight, content(WEIGHT, unit, 0));
        writes(op, place->nvme_weight, content(WEIGHT, unit, 0));
        op->bytes = bytes_of(builder, place->nvme_weight);
    }
}

static void update_on_device(struct builder *builder, uint32_t unit)
{
    const struct zr_unit_plan *place = &builder->plan->units[unit];
    struct zr_op_entry *op = add(builder, ZR_UPDATE, ZR_QUEUE_COMPUTE, unit, ZR_NONE);
    reads(op, place->device_weight, content(WEIGHT_BEFORE, unit, 0));
    writes(op, place->device_weight, content(WEIGHT, unit, 0));
    for (int plane = ZR_LOW; plane <= ZR_V; plane++)
        if (place->home[plane] != ZR_NO_BUFFER) adds_to(op, place->home[plane], 0);
    reads(op, place->home[ZR_GRAD], content(GRAD_HOME, unit, 0));
    for (int plane = 0; plane < ZR_PLANE_COUNT; plane++)
        op->bytes += builder->model->units[unit].elements * zr_plane_bytes(builder->plan, unit, plane);
}

/* Applies what is pending for the unit, and refreshes its resident copy. */
static void update(struct builder *builder, uint32_t unit)
{
    const struct zr_unit_plan *place = &builder->plan->units[unit];
    if (!update_pending(builder, unit)) return;
    builder->updated[unit] = true;
    if (place->update_on_device) {
        update_on_device(builder, unit);
        return;
    }
    update_on_host(builder, unit);
    if (place->resident) {
        struct zr_op_entry *op = add(builder, ZR_LOAD_WEIGHT, ZR_QUEUE_H2D, unit, ZR_NONE);
        uint32_t from = place->weight_home == ZR_NVME ? host_weight(builder, unit, false) : place->home[ZR_WEIGHT];
        reads(op, from, content(WEIGHT, unit, 0));
        writes(op, place->device_weight, content(WEIGHT, unit, 0));
        op->bytes = bytes_of(builder, place->device_weight);
    }
}

/* Device buffer with the unit's weights in the type that compute reads, loading what is not there. */
static uint32_t weights(struct builder *builder, uint32_t unit)
{
    const struct zr_plan *plan = builder->plan;
    const struct zr_unit_plan *place = &plan->units[unit];
    update(builder, unit);

    uint32_t buffer = place->device_weight;
    if (!place->resident) {
        bool hit;
        uint32_t class = place->slot_class;
        uint32_t slot = find_slot(builder, builder->slots[class], plan->slot_count[class], unit, &hit);
        buffer = plan->slots[class][slot];
        if (!hit) {
            uint32_t from = place->weight_home == ZR_NVME ? host_weight(builder, unit, false) : place->home[ZR_WEIGHT];
            struct zr_op_entry *op = add(builder, ZR_LOAD_WEIGHT, ZR_QUEUE_H2D, unit, ZR_NONE);
            reads(op, from, content(WEIGHT, unit, 0));
            writes(op, buffer, content(WEIGHT, unit, 0));
            op->bytes = builder->model->units[unit].elements * zr_plane_bytes(plan, unit, ZR_WEIGHT);
        }
    }
    if (plan->wide == ZR_NO_BUFFER) return buffer;

    bool norm_only = plan->model->dims.tied && unit + 1 == plan->model->unit_count;
    uint32_t wide = norm_only ? plan->wide_norm : plan->wide;
    if (norm_only ? !builder->wide_norm_done : builder->wide_unit != unit) {
        struct zr_op_entry *op = add(builder, ZR_WIDEN, ZR_QUEUE_COMPUTE, unit, ZR_NONE);
        reads(op, buffer, content(WEIGHT, unit, 0));
        writes(op, wide, content(WIDE, unit, 0));
        op->bytes = builder->model->units[unit].elements * 6;
        if (norm_only)
            builder->wide_norm_done = true;
        else
            builder->wide_unit = unit;
    }
    return wide;
}

static uint64_t weights_content(const struct builder *builder, uint32_t unit)
{
    return content(builder->plan->wide == ZR_NO_BUFFER ? WEIGHT : WIDE, unit, 0);
}

/* -- gradients of parameters --------------------------------------------------------------------------------------- */

static bool accumulates_at_home(const struct zr_unit_plan *place)
{
    return place->update_on_device && place->grad_f32;
}

/* The fp32 buffer that the unit's gradient is summed in, cleared or filled with what was summed before. */
static uint32_t begin_gradient(struct builder *builder, uint32_t unit)
{
    const struct zr_plan *plan = builder->plan;
    const struct zr_unit_plan *place = &plan->units[unit];
    uint32_t buffer = place->home[ZR_GRAD];
    bool again = builder->request.accumulate || builder->saved_before[unit];
    if (!accumulates_at_home(place)) {
        uint64_t need = builder->model->units[unit].elements * 4;
        do
            buffer = plan->grad_slots[builder->next_grad_slot++ % plan->grad_slot_count];
        while (bytes_of(builder, buffer) < need);
    }
    if (!again) {
        struct zr_op_entry *op = add(builder, ZR_CLEAR_GRAD, ZR_QUEUE_COMPUTE, unit, ZR_NONE);
        writes(op, buffer, content(ACCUMULATED, unit, 0));
        op->bytes = builder->model->units[unit].elements * 4;
    } else if (!accumulates_at_home(place)) {
        assert(place->grad_f32);
        struct zr_op_entry *op =
            add(builder, ZR_LOAD_GRAD, place->update_on_device ? ZR_QUEUE_COMPUTE : ZR_QUEUE_H2D, unit, ZR_NONE);
        reads(op, place->home[ZR_GRAD], content(GRAD_HOME, unit, 0));
        writes(op, buffer, content(ACCUMULATED, unit, 0));
        op->bytes = builder->model->units[unit].elements * 4;
    } else {
        /* It is there already, under the name that it had at the end of the step or visit before. */
        struct zr_op_entry *op = add(builder, ZR_LOAD_GRAD, ZR_QUEUE_COMPUTE, unit, ZR_NONE);
        reads(op, buffer, content(GRAD_HOME, unit, 0));
        writes(op, buffer, content(ACCUMULATED, unit, 0));
    }
    return buffer;
}

/* `last`: nothing more is added in this step, so the norm is taken, over the values that the optimizer will see. */
static void end_gradient(struct builder *builder, uint32_t unit, uint32_t buffer, bool last)
{
    const struct zr_plan *plan = builder->plan;
    const struct zr_unit_plan *place = &plan->units[unit];
    const bool at_home = accumulates_at_home(place);
    uint32_t from = buffer;
    builder->saved_before[unit] = true;

    if (last) {
        struct zr_op_entry *op = add(builder, ZR_FINISH_GRAD, ZR_QUEUE_COMPUTE, unit, ZR_NONE);
        reads(op, buffer, content(ACCUMULATED, unit, 0));
        adds_to(op, plan->sums, content(SUMS, 0, 0));
        op->bytes = builder->model->units[unit].elements * 4;
        if (!place->grad_f32) {
            from = place->home[ZR_GRAD];
            if (!place->update_on_device)
                from = buffer == plan->grad_slots[0] ? plan->narrow_slots[0] : plan->narrow_slots[1];
            writes(op, from, content(place->update_on_device ? GRAD_HOME : NARROWED, unit, 0));
        } else if (at_home) {
            writes(op, buffer, content(GRAD_HOME, unit, 0));
        }
    }
    if (at_home || (last && place->update_on_device && !place->grad_f32)) {
        if (last) return;
        struct zr_op_entry *op =
            add(builder, ZR_LOAD_GRAD, ZR_QUEUE_COMPUTE, unit, ZR_NONE); /* moves nothing: S1's names */
        reads(op, buffer, content(ACCUMULATED, unit, 0));
        writes(op, buffer, content(GRAD_HOME, unit, 0));
        return;
    }
    struct zr_op_entry *op =
        add(builder, ZR_SAVE_GRAD, place->update_on_device ? ZR_QUEUE_COMPUTE : ZR_QUEUE_D2H, unit, ZR_NONE);
    reads(op, from, content(from == buffer ? ACCUMULATED : NARROWED, unit, 0));
    writes(op, place->home[ZR_GRAD], content(GRAD_HOME, unit, 0));
    op->bytes = builder->model->units[unit].elements * zr_plane_bytes(plan, unit, ZR_GRAD);
}

/* -- passes -------------------------------------------------------------------------------------------------------- */

static uint32_t checkpoint_of(const struct builder *builder, uint32_t layer, uint32_t micro)
{
    return builder->plan->checkpoint[layer * builder->plan->micro_max + micro];
}

static bool is_kept(const struct builder *builder, uint32_t layer)
{
    return builder->request.pass == ZR_PASS_TRAIN && layer + builder->plan->kept_blocks >= builder->model->dims.layers;
}

static uint32_t work_of(const struct builder *builder, uint32_t layer, uint32_t micro)
{
    const struct zr_plan *plan = builder->plan;
    if (!is_kept(builder, layer)) return plan->work;
    return plan->kept[(layer + plan->kept_blocks - builder->model->dims.layers) * plan->micro_max + micro];
}

static double block_flops(const struct builder *builder, uint32_t unit)
{
    return zr_unit_flops(builder->model, unit, builder->plan->micro_tokens, builder->plan->row_tokens);
}

/* Where the hidden states that `layer` will read are written: its checkpoint when that is on the device. */
static uint32_t take_input(struct builder *builder, uint32_t layer, uint32_t micro)
{
    if (builder->request.pass == ZR_PASS_TRAIN && layer < builder->model->dims.layers) {
        uint32_t checkpoint = checkpoint_of(builder, layer, micro);
        if (builder->plan->buffers[checkpoint].tier == ZR_DEVICE) return checkpoint;
    }
    return take_hidden(builder);
}

static void save_input(struct builder *builder, uint32_t layer, uint32_t micro, uint32_t buffer)
{
    if (builder->request.pass != ZR_PASS_TRAIN || layer == builder->model->dims.layers) return;
    uint32_t checkpoint = checkpoint_of(builder, layer, micro);
    if (checkpoint == buffer) return;
    struct zr_op_entry *op = add(builder, ZR_SAVE_INPUT, ZR_QUEUE_D2H, layer + 1, micro);
    reads(op, buffer, content(INPUT, layer, micro));
    writes(op, checkpoint, content(INPUT, layer, micro));
    op->bytes = bytes_of(builder, checkpoint);
}

static void forward_pass(struct builder *builder)
{
    const struct zr_plan *plan = builder->plan;
    const uint32_t layers = builder->model->dims.layers;
    uint32_t weight = weights(builder, 0);
    for (uint32_t micro = 0; micro < builder->request.micro_count; micro++) {
        uint32_t out = take_input(builder, 0, micro);
        struct zr_op_entry *op = add(builder, ZR_EMBED, ZR_QUEUE_COMPUTE, 0, micro);
        reads(op, weight, weights_content(builder, 0));
        reads(op, plan->batch_device, content(BATCH, 0, 0));
        writes(op, out, content(INPUT, 0, micro));
        op->bytes = bytes_of(builder, out);
        builder->input_at[micro] = out;
        save_input(builder, 0, micro, out);
    }
    for (uint32_t layer = 0; layer < layers; layer++) {
        weight = weights(builder, layer + 1);
        for (uint32_t micro = 0; micro < builder->request.micro_count; micro++) {
            uint32_t in = builder->input_at[micro], out = take_input(builder, layer + 1, micro);
            struct zr_op_entry *op = add(builder, ZR_FORWARD, ZR_QUEUE_COMPUTE, layer + 1, micro);
            reads(op, in, content(INPUT, layer, micro));
            reads(op, weight, weights_content(builder, layer + 1));
            reads(op, plan->batch_device, content(BATCH, 0, 0));
            if (plan->rope != ZR_NO_BUFFER) reads(op, plan->rope, 0);
            writes(op, out, content(INPUT, layer + 1, micro));
            writes(op, work_of(builder, layer, micro), is_kept(builder, layer) ? content(KEPT, layer, micro) : 0);
            op->flops = block_flops(builder, layer + 1);
            give_hidden_back(builder, in);
            builder->input_at[micro] = out;
            save_input(builder, layer + 1, micro, out);
        }
    }
}

/* Loss of every micro-batch and, in training, its gradients; or logits. */
static void head_pass(struct builder *builder)
{
    const struct zr_plan *plan = builder->plan;
    const uint32_t layers = builder->model->dims.layers, head = layers + 1;
    const bool tied = builder->model->dims.tied, train = builder->request.pass == ZR_PASS_TRAIN;
    uint32_t matrix = tied ? weights(builder, 0) : ZR_NO_BUFFER;
    uint32_t weight = weights(builder, head);
    uint32_t table_gradient = train && tied ? begin_gradient(builder, 0) : ZR_NO_BUFFER;
    uint32_t gradient = train ? begin_gradient(builder, head) : ZR_NO_BUFFER;

    for (uint32_t micro = 0; micro < builder->request.micro_count; micro++) {
        uint32_t in = builder->input_at[micro];
        uint32_t out = train ? take_hidden(builder) : ZR_NO_BUFFER;
        struct zr_op_entry *op =
            add(builder, builder->request.pass == ZR_PASS_LOGITS ? ZR_LOGITS : ZR_HEAD, ZR_QUEUE_COMPUTE, head, micro);
        reads(op, in, content(INPUT, layers, micro));
        reads(op, weight, weights_content(builder, head));
        if (tied) reads(op, matrix, weights_content(builder, 0));
        reads(op, plan->batch_device, content(BATCH, 0, 0));
        writes(op, plan->work, 0);
        if (op->kind == ZR_HEAD) adds_to(op, plan->sums, content(SUMS, 0, 0));
        op->flops = block_flops(builder, head) * (train ? 3 : 1);
        if (train) {
            adds_to(op, gradient, content(ACCUMULATED, head, 0));
            if (tied) adds_to(op, table_gradient, content(ACCUMULATED, 0, 0));
            writes(op, out, content(GRADIENT, micro, layers));
            builder->gradient_at[micro] = out;
        }
        give_hidden_back(builder, in);
    }
    if (!train) return;
    end_gradient(builder, head, gradient, true);
    if (tied) end_gradient(builder, 0, table_gradient, false);
}

static void backward_pass(struct builder *builder)
{
    const struct zr_plan *plan = builder->plan;
    for (uint32_t layer = builder->model->dims.layers; layer-- > 0;) {
        uint32_t weight = weights(builder, layer + 1);
        uint32_t gradient = begin_gradient(builder, layer + 1);
        for (uint32_t micro = 0; micro < builder->request.micro_count; micro++) {
            uint32_t input = checkpoint_of(builder, layer, micro), hidden = builder->gradient_at[micro];
            if (plan->buffers[input].tier == ZR_HOST) {
                uint32_t slot = take_hidden(builder);
                struct zr_op_entry *load = add(builder, ZR_LOAD_INPUT, ZR_QUEUE_H2D, layer + 1, micro);
                reads(load, input, content(INPUT, layer, micro));
                writes(load, slot, content(INPUT, layer, micro));
                load->bytes = bytes_of(builder, input);
                input = slot;
            }
            struct zr_op_entry *op = add(builder, ZR_BACKWARD, ZR_QUEUE_COMPUTE, layer + 1, micro);
            reads(op, input, content(INPUT, layer, micro));
            reads(op, weight, weights_content(builder, layer + 1));
            reads(op, plan->batch_device, content(BATCH, 0, 0));
            if (plan->rope != ZR_NO_BUFFER) reads(op, plan->rope, 0);
            reads(op, hidden, content(GRADIENT, micro, layer + 1));
            writes(op, hidden, content(GRADIENT, micro, layer));
            adds_to(op, gradient, content(ACCUMULATED, layer + 1, 0));
            uint32_t work = work_of(builder, layer, micro);
            if (is_kept(builder, layer)) reads(op, work, content(KEPT, layer, micro));
            writes(op, work, 0);
            op->flops = block_flops(builder, layer + 1) * (is_kept(builder, layer) ? 2 : 3);
            give_hidden_back(builder, input);
        }
        end_gradient(builder, layer + 1, gradient, true);
    }
    uint32_t gradient = begin_gradient(builder, 0);
    for (uint32_t micro = 0; micro < builder->request.micro_count; micro++) {
        uint32_t hidden = builder->gradient_at[micro];
        struct zr_op_entry *op = add(builder, ZR_EMBED_BACKWARD, ZR_QUEUE_COMPUTE, 0, micro);
        reads(op, hidden, content(GRADIENT, micro, 0));
        reads(op, plan->batch_device, content(BATCH, 0, 0));
        adds_to(op, gradient, content(ACCUMULATED, 0, 0));
        op->bytes = bytes_of(builder, hidden);
        give_hidden_back(builder, hidden);
    }
    end_gradient(builder, 0, gradient, true);
}

static void build(struct builder *builder)
{
    const struct zr_plan *plan = builder->plan;
    if (builder->request.pass == ZR_PASS_FLUSH) {
        for (uint32_t unit = 0; unit < builder->model->unit_count; unit++)
            update(builder, unit);
        return;
    }
    struct zr_op_entry *op = add(builder, ZR_SEND_BATCH, ZR_QUEUE_H2D, ZR_NONE, ZR_NONE);
    reads(op, plan->batch_host, 0);
    writes(op, plan->batch_device, content(BATCH, 0, 0));
    op->bytes = bytes_of(builder, plan->batch_host);
    op = add(builder, ZR_CLEAR_SUMS, ZR_QUEUE_COMPUTE, ZR_NONE, ZR_NONE);
    writes(op, plan->sums, content(SUMS, 0, 0));

    forward_pass(builder);
    head_pass(builder);
    if (builder->request.pass == ZR_PASS_TRAIN) backward_pass(builder);

    op = add(builder, ZR_RETURN_SUMS, ZR_QUEUE_D2H, ZR_NONE, ZR_NONE);
    reads(op, plan->sums, content(SUMS, 0, 0));
    writes(op, plan->sums_host, content(SUMS, 0, 0));
    op->bytes = bytes_of(builder, plan->sums);
}

static bool builder_init(struct builder *builder)
{
    const struct zr_plan *plan = builder->plan;
    for (int class = 0; class < 2; class ++) {
        builder->slots[class] = calloc(plan->slot_count[class] + 1, sizeof(struct slot));
        for (uint32_t slot = 0; builder->slots[class] && slot < plan->slot_count[class]; slot++)
            builder->slots[class][slot].unit = ZR_NONE;
    }
    builder->host_slots = calloc(plan->host_slot_count + 1, sizeof(struct slot));
    for (uint32_t slot = 0; builder->host_slots && slot < plan->host_slot_count; slot++)
        builder->host_slots[slot].unit = ZR_NONE;
    builder->hidden = (struct pool){ .buffers = plan->hidden, .count = plan->hidden_count };
    builder->hidden.free_list = calloc(plan->hidden_count, sizeof(uint32_t));
    builder->input_at = calloc(plan->micro_max, sizeof(uint32_t));
    builder->gradient_at = calloc(plan->micro_max, sizeof(uint32_t));
    builder->updated = calloc(builder->model->unit_count, sizeof(bool));
    builder->saved_before = calloc(builder->model->unit_count, sizeof(bool));
    builder->wide_unit = ZR_NONE;
    if (!builder->slots[0] || !builder->slots[1] || !builder->host_slots || !builder->hidden.free_list ||
        !builder->input_at || !builder->gradient_at || !builder->updated || !builder->saved_before)
        return false;
    memcpy(builder->hidden.free_list, plan->hidden, plan->hidden_count * sizeof(uint32_t));
    builder->hidden.free_count = plan->hidden_count;
    builder->schedule->ops = calloc(1024, sizeof(struct zr_op_entry));
    builder->room = builder->schedule->ops ? 1024 : 0;
    return builder->schedule->ops != NULL;
}

static void builder_fini(struct builder *builder)
{
    free(builder->slots[0]);
    free(builder->slots[1]);
    free(builder->host_slots);
    free(builder->hidden.free_list);
    free(builder->input_at);
    free(builder->gradient_at);
    free(builder->updated);
    free(builder->saved_before);
}

enum zr_code zr_schedule_make(const struct zr_plan *plan, const struct zr_schedule_request *request,
                              struct zr_schedule **ret_schedule, struct zr_error *err)
{
    assert(request->pass == ZR_PASS_FLUSH || (request->micro_count >= 1 && request->micro_count <= plan->micro_max));
    assert(!(request->update && request->accumulate)); /* a pending gradient is never added to */
    struct zr_schedule *schedule = calloc(1, sizeof *schedule);
    if (!schedule) return zr_fail(err, ZR_EFULL, "no memory for a schedule");
    *schedule = (struct zr_schedule){ .plan = plan, .request = *request };

    struct builder builder = { .schedule = schedule, .plan = plan, .model = plan->model, .request = *request };
    bool made = builder_init(&builder);
    if (made) build(&builder);
    builder_fini(&builder);
    if (!made || builder.failed) {
        zr_schedule_free(schedule);
        return zr_fail(err, ZR_EFULL, "no memory for a schedule");
    }
    zr_schedule_depend(schedule);
    *ret_schedule = schedule;
    return ZR_OK;
}

void zr_schedule_free(struct zr_schedule *schedule)
{
    if (!schedule) return;
    free(schedule->ops);
    free(schedule);
}

const char *zr_op_kind_name(enum zr_op_kind kind)
{
    static const char *const names[ZR_OP_KIND_COUNT] = {
        "send batch",     "clear sums",      "read weight",   "write weight", "read states", "write states",
        "update",         "load weight",     "widen",         "embed",        "forward",     "save input",
        "load input",     "clear gradient",  "load gradient", "head",         "logits",      "backward",
        "embed backward", "finish gradient", "save gradient", "return sums",
    };
    return names[kind];
}
