/* plan.c: checks the wishes, lets the fit choose, builds and verifies */
#include "engine/plan/plan.h"
#include "engine/base/span.h"
#include "engine/plan/fit.h"
#include "engine/plan/layout.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

const char *zr_purpose_name(enum zr_purpose purpose)
{
    static const char *const names[ZR_PURPOSE_COUNT] = {
        "weights", "optimizer states", "gradients", "activations, checkpoints", "staging", "batch, tables, sums",
    };
    return names[purpose];
}

const char *zr_plane_name(enum zr_plane plane)
{
    static const char *const names[ZR_PLANE_COUNT] = { "weight", "low", "m", "v", "gradient" };
    return names[plane];
}

void zr_batch_layout(const struct zr_plan *plan, struct zr_batch_layout *ret_layout)
{
    uint64_t tokens = (uint64_t)plan->micro_tokens * plan->micro_max;
    uint64_t array = zr_round_up(tokens * sizeof(int32_t), 64);
    uint64_t stride = zr_round_up(((uint64_t)plan->micro_tokens + 1) * sizeof(int32_t), 64);
    *ret_layout = (struct zr_batch_layout){
        .tokens = 0,
        .targets = array,
        .positions = 2 * array,
        .starts = 3 * array,
        .starts_stride = stride,
        .bytes = 3 * array + stride * plan->micro_max,
    };
}

static enum zr_code check_wishes(const struct zr_model *model, const struct zr_wishes *wishes, struct zr_error *err)
{
    if (wishes->rows_per_step == 0 || wishes->row_tokens == 0)
        return zr_fail(err, ZR_ECONFIG,
                       "sequence_length and train_batch_size must be set: a step needs at least one row of one token");
    if (model->dims.rope.kind == ZR_ROPE_NONE && wishes->row_tokens > model->dims.max_positions)
        return zr_fail(err, ZR_ECONFIG, "sequence_length %u is longer than the model's position table of %u",
                       wishes->row_tokens, model->dims.max_positions);
    if (wishes->micro_rows > wishes->rows_per_step)
        return zr_fail(err, ZR_ECONFIG, "a micro-batch of %u sequences is larger than the step's %u",
                       wishes->micro_rows, wishes->rows_per_step);
    if (wishes->weight_home == ZR_NVME && wishes->states == ZR_DEVICE)
        return zr_fail(err, ZR_ECONFIG,
                       "zero_optimization.offload_param.device nvme needs offload_optimizer.device cpu or nvme");
    assert(wishes->prefetch >= 1 && wishes->update_chunk >= 256 && wishes->update_chunk % 256 == 0);
    return ZR_OK;
}

enum zr_code zr_plan_make(const struct zr_model *model, const struct zr_wishes *wishes,
                          const struct zr_machine *machine, struct zr_plan **ret_plan, struct zr_error *err)
{
    enum zr_code code = check_wishes(model, wishes, err);
    if (code) return code;
    struct zr_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return zr_fail(err, ZR_EFULL, "no memory for a plan");
    plan->model = model;
    plan->wishes = *wishes;
    plan->machine = *machine;

    struct zr_choices choices;
    if ((code = zr_fit(plan, &choices, err)) || (code = zr_layout_build(plan, &choices, err)) ||
        (code = zr_plan_verify(plan, err))) {
        zr_plan_free(plan);
        return code;
    }
    *ret_plan = plan;
    return ZR_OK;
}

void zr_plan_free(struct zr_plan *plan)
{
    if (!plan) return;
    free(plan->units);
    free(plan->chunks);
    free(plan->buffers);
    free(plan->slots[0]);
    free(plan->slots[1]);
    free(plan->hidden);
    free(plan->checkpoint);
    free(plan->kept);
    free(plan->stages);
    free(plan->host_slots);
    free(plan);
}

enum zr_code zr_plan_verify(const struct zr_plan *plan, struct zr_error *err)
{
    uint64_t end[ZR_TIER_COUNT] = { 0 };
    const struct zr_buffer *last[ZR_TIER_COUNT] = { NULL };
    for (const struct zr_buffer *buffer = plan->buffers; buffer < plan->buffers + plan->buffer_count; buffer++) {
        if (buffer->offset < end[buffer->tier])
            return zr_fail(err, ZR_EBUG, "%s '%s' overlaps '%s'", zr_tier_name(buffer->tier), buffer->name,
                           last[buffer->tier]->name);
        if (buffer->offset % ZR_PLAN_ALIGN)
            return zr_fail(err, ZR_EBUG, "%s '%s' is not aligned", zr_tier_name(buffer->tier), buffer->name);
        end[buffer->tier] = buffer->offset + buffer->bytes;
        last[buffer->tier] = buffer;
    }
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        if (end[tier] > plan->used[tier] || plan->used[tier] > plan->machine.bytes[tier])
            return zr_fail(err, ZR_EBUG, "%s: %llu bytes planned, %llu used, %llu allowed", zr_tier_name(tier),
                           (unsigned long long)end[tier], (unsigned long long)plan->used[tier],
                           (unsigned long long)plan->machine.bytes[tier]);
    return ZR_OK;
}

void zr_plan_bytes(const struct zr_plan *plan, uint64_t ret_bytes[ZR_TIER_COUNT][ZR_PURPOSE_COUNT])
{
    memset(ret_bytes, 0, sizeof(uint64_t) * ZR_TIER_COUNT * ZR_PURPOSE_COUNT);
    for (const struct zr_buffer *buffer = plan->buffers; buffer < plan->buffers + plan->buffer_count; buffer++)
        ret_bytes[buffer->tier][buffer->purpose] += zr_round_up(buffer->bytes, ZR_PLAN_ALIGN);
}

uint64_t zr_plan_state_bytes(const struct zr_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t unit = 0; unit < plan->model->unit_count; unit++)
        for (int plane = 0; plane < ZR_PLANE_COUNT; plane++)
            bytes += plan->model->units[unit].parameters * zr_plane_bytes(plan, unit, plane);
    return bytes;
}
