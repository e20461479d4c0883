/* layout.c: one walk over everything that a plan holds; run once to count and once to build
 *
 * The walk is the single place that knows which buffers exist. While it counts, `plan->buffers` is NULL and only offsets
 * move; while it builds, the lists are there and get filled. */
#include "engine/plan/layout.h"
#include "engine/base/span.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    struct zr_plan *plan;
    const struct zr_choices *choices;
    bool build;
    uint64_t used[ZR_TIER_COUNT];
    uint32_t buffer_count, chunk_count;
};

static ZR_PRINTF(6, 7) uint32_t take(struct walk *walk, enum zr_tier tier, enum zr_purpose purpose, bool persistent,
                                     uint64_t bytes, const char *name, ...)
{
    uint32_t index = walk->buffer_count++;
    if (walk->build) {
        struct zr_buffer *buffer = &walk->plan->buffers[index];
        *buffer = (struct zr_buffer){
            .tier = tier, .purpose = purpose, .persistent = persistent, .offset = walk->used[tier], .bytes = bytes
        };
        va_list args;
        va_start(args, name);
        vsnprintf(buffer->name, sizeof buffer->name, name, args);
        va_end(args);
    }
    walk->used[tier] += zr_round_up(bytes, ZR_PLAN_ALIGN);
    return index;
}

static bool on_nvme(const struct zr_wishes *wishes, enum zr_plane plane)
{
    return wishes->states == ZR_NVME && (wishes->nvme_planes >> plane & 1);
}

static bool is_end(const struct zr_model *model, uint32_t unit)
{
    return unit == 0 || unit + 1 == model->unit_count;
}

/* A tied model's last unit is its final norm alone: too small to stream. */
static bool is_resident(const struct walk *walk, uint32_t unit)
{
    const struct zr_model *model = walk->plan->model;
    const struct zr_wishes *wishes = &walk->plan->wishes;
    if (!wishes->stream_weights || wishes->states == ZR_DEVICE) return true;
    if (is_end(model, unit)) return walk->choices->resident_ends || (unit > 0 && model->dims.tied);
    return unit > model->dims.layers - walk->choices->resident_blocks;
}

uint32_t zr_plane_bytes(const struct zr_plan *plan, uint32_t unit, enum zr_plane plane)
{
    const struct zr_wishes *wishes = &plan->wishes;
    bool twice = plan->model->dims.tied && unit == 0;
    switch (plane) {
    case ZR_WEIGHT:
        return wishes->split ? 2 : 4;
    case ZR_LOW:
        return wishes->split ? 2 : 0;
    case ZR_GRAD:
        return wishes->grad_bf16 && wishes->split && !wishes->accumulate && !twice ? 2 : 4;
    default:
        return 4;
    }
}

/* Where the planes of one unit live, and its update's chunks. */
static void place_unit(struct walk *walk, uint32_t index)
{
    struct zr_plan *plan = walk->plan;
    const struct zr_wishes *wishes = &plan->wishes;
    const struct zr_unit *unit = &plan->model->units[index];
    const bool device_states = wishes->states == ZR_DEVICE;
    struct zr_unit_plan made = {
        .weight_home = device_states ? ZR_DEVICE : wishes->weight_home,
        .resident = is_resident(walk, index),
        .update_on_device = device_states,
        .visited_twice = plan->model->dims.tied && index == 0,
        .grad_f32 = zr_plane_bytes(plan, index, ZR_GRAD) == 4,
        .device_weight = ZR_NO_BUFFER,
        .nvme_weight = ZR_NO_BUFFER,
        .first_chunk = walk->chunk_count,
        .slot_class = is_end(plan->model, index),
    };
    uint64_t weight_bytes = unit->elements * zr_plane_bytes(plan, index, ZR_WEIGHT);
    for (int plane = 0; plane < ZR_PLANE_COUNT; plane++)
        made.home[plane] = ZR_NO_BUFFER;

    if (made.weight_home == ZR_NVME)
        made.nvme_weight = take(walk, ZR_NVME, ZR_FOR_WEIGHTS, true, weight_bytes, "weight of unit %u on nvme", index);
    else
        made.home[ZR_WEIGHT] =
            take(walk, made.weight_home, ZR_FOR_WEIGHTS, true, weight_bytes, "weight of unit %u", index);
    if (made.weight_home == ZR_DEVICE)
        made.device_weight = made.home[ZR_WEIGHT];
    else if (made.resident)
        made.device_weight =
            take(walk, ZR_DEVICE, ZR_FOR_WEIGHTS, true, weight_bytes, "resident weight of unit %u", index);

    for (int plane = ZR_LOW; plane < ZR_PLANE_COUNT; plane++) {
        uint32_t bytes = zr_plane_bytes(plan, index, plane);
        made.state[plane] = device_states ? ZR_DEVICE : plane != ZR_GRAD && on_nvme(wishes, plane) ? ZR_NVME : ZR_HOST;
        if (bytes == 0 || made.state[plane] == ZR_NVME) continue;
        made.home[plane] = take(walk, made.state[plane], plane == ZR_GRAD ? ZR_FOR_GRADIENTS : ZR_FOR_STATES, true,
                                unit->elements * bytes, "%s of unit %u", zr_plane_name(plane), index);
    }

    if (!device_states) {
        uint64_t step = zr_min_u64(wishes->update_chunk, unit->elements);
        for (uint64_t first = 0; first < unit->elements; first += step) {
            struct zr_chunk chunk = { .unit = index,
                                      .first = first,
                                      .count = zr_min_u64(step, unit->elements - first) };
            for (int plane = 0; plane < ZR_PLANE_COUNT; plane++) {
                chunk.nvme[plane] = ZR_NO_BUFFER;
                uint32_t bytes = zr_plane_bytes(plan, index, plane);
                if (plane >= ZR_LOW && plane <= ZR_V && bytes && made.state[plane] == ZR_NVME)
                    chunk.nvme[plane] =
                        take(walk, ZR_NVME, ZR_FOR_STATES, true, chunk.count * bytes, "%s of unit %u from %llu",
                             zr_plane_name(plane), index, (unsigned long long)first);
            }
            if (walk->build) plan->chunks[walk->chunk_count] = chunk;
            walk->chunk_count++;
            made.chunk_count++;
        }
    }
    if (walk->build) plan->units[index] = made;
}

static uint64_t largest_unit(const struct zr_model *model, bool blocks, bool ends)
{
    uint64_t elements = 0;
    for (uint32_t index = 0; index < model->unit_count; index++)
        if (is_end(model, index) ? ends : blocks) elements = zr_max_u64(elements, model->units[index].elements);
    return elements;
}

static void place_device_scratch(struct walk *walk)
{
    struct zr_plan *plan = walk->plan;
    const struct zr_model *model = plan->model;
    const struct zr_wishes *wishes = &plan->wishes;
    const struct zr_choices *choices = walk->choices;
    const uint64_t weight_bytes = wishes->split ? 2 : 4;
    const uint64_t largest_block = largest_unit(model, true, false), largest_end = largest_unit(model, false, true);
    const uint64_t largest = zr_max_u64(largest_block, largest_end);
    const bool stream = wishes->stream_weights && wishes->states != ZR_DEVICE;

    uint32_t counts[2] = { stream && choices->resident_blocks < model->dims.layers ? choices->slots : 0,
                           stream && !choices->resident_ends };
    for (int class = 0; class < 2; class ++)
        for (uint32_t slot = 0; slot < counts[class]; slot++) {
            uint32_t buffer =
                take(walk, ZR_DEVICE, ZR_FOR_WEIGHTS, false, (class ? largest_end : largest_block) * weight_bytes,
                     "%sweight slot %u", class ? "ends " : "", slot);
            if (walk->build) plan->slots[class][slot] = buffer;
        }
    plan->slot_count[0] = counts[0];
    plan->slot_count[1] = counts[1];

    plan->wide = plan->wide_norm = ZR_NO_BUFFER;
    if (wishes->split && plan->machine.widen_weights) {
        plan->wide = take(walk, ZR_DEVICE, ZR_FOR_WEIGHTS, false, largest * 4, "fp32 copy of the weights at work");
        if (model->dims.tied)
            plan->wide_norm = take(walk, ZR_DEVICE, ZR_FOR_WEIGHTS, false,
                                   model->units[model->unit_count - 1].elements * 4, "fp32 copy of the final norm");
    }

    /* Units that are updated on the device with fp32 gradients accumulate where the gradient stays. */
    bool slots_needed = false, narrow = false;
    for (uint32_t index = 0; index < model->unit_count; index++) {
        bool f32 = zr_plane_bytes(plan, index, ZR_GRAD) == 4;
        slots_needed |= wishes->states != ZR_DEVICE || !f32;
        narrow |= wishes->states != ZR_DEVICE && !f32;
    }
    plan->grad_slot_count = slots_needed ? choices->grad_slots : 0;
    for (uint32_t slot = 0; slot < 2; slot++) {
        plan->grad_slots[slot] = plan->narrow_slots[slot] = ZR_NO_BUFFER;
        if (slot >= plan->grad_slot_count) continue;
        uint64_t elements = slot == 0 ? largest : zr_max_u64(largest_block, model->dims.tied ? 256 : 0);
        if (slot == 1 && model->dims.tied)
            elements = zr_max_u64(elements, model->units[model->unit_count - 1].elements);
        plan->grad_slots[slot] = take(walk, ZR_DEVICE, ZR_FOR_GRADIENTS, false, elements * 4, "gradient slot %u", slot);
        if (narrow)
            plan->narrow_slots[slot] =
                take(walk, ZR_DEVICE, ZR_FOR_GRADIENTS, false, elements * 2, "bf16 gradient slot %u", slot);
    }

    plan->norm_scratch =
        take(walk, ZR_DEVICE, ZR_FOR_BATCH, false, (largest / 1024 + 8) * sizeof(double), "partial sums of norms");
    uint64_t hidden_bytes = (uint64_t)plan->micro_tokens * model->dims.hidden * plan->machine.element_bytes;
    plan->work = take(walk, ZR_DEVICE, ZR_FOR_ACTIVATIONS, false,
                      zr_max_u64(plan->block_work.bytes, plan->head_work.bytes), "activations at work");
    plan->hidden_count = plan->micro_max + 3;
    for (uint32_t slot = 0; slot < plan->hidden_count; slot++) {
        uint32_t buffer = take(walk, ZR_DEVICE, ZR_FOR_ACTIVATIONS, false, hidden_bytes, "hidden states %u", slot);
        if (walk->build) plan->hidden[slot] = buffer;
    }
    plan->checkpoints_on_device = choices->checkpoints_on_device;
    plan->kept_blocks = choices->kept_blocks;
    for (uint32_t layer = 0; layer < model->dims.layers; layer++)
        for (uint32_t micro = 0; micro < plan->micro_max; micro++) {
            bool device = layer + choices->checkpoints_on_device >= model->dims.layers;
            uint32_t buffer = take(walk, device ? ZR_DEVICE : ZR_HOST, ZR_FOR_ACTIVATIONS, false, hidden_bytes,
                                   "input of unit %u, micro-batch %u", layer + 1, micro);
            if (walk->build) plan->checkpoint[layer * plan->micro_max + micro] = buffer;
        }
    for (uint32_t kept = 0; kept < choices->kept_blocks * plan->micro_max; kept++) {
        uint32_t buffer =
            take(walk, ZR_DEVICE, ZR_FOR_ACTIVATIONS, false, plan->block_work.bytes, "kept activations %u", kept);
        if (walk->build) plan->kept[kept] = buffer;
    }
}

static void place_batch_and_staging(struct walk *walk)
{
    struct zr_plan *plan = walk->plan;
    const struct zr_model *model = plan->model;
    const struct zr_wishes *wishes = &plan->wishes;
    struct zr_batch_layout batch;
    zr_batch_layout(plan, &batch);
    plan->batch_device = take(walk, ZR_DEVICE, ZR_FOR_BATCH, false, batch.bytes, "batch");
    plan->batch_host = take(walk, ZR_HOST, ZR_FOR_BATCH, true, batch.bytes, "batch on the host");
    plan->sums = take(walk, ZR_DEVICE, ZR_FOR_BATCH, false, zr_sums_bytes(model), "sums");
    plan->sums_host = take(walk, ZR_HOST, ZR_FOR_BATCH, false, zr_sums_bytes(model), "sums on the host");
    plan->rope = model->dims.rope.kind == ZR_ROPE_NONE
                     ? ZR_NO_BUFFER
                     : take(walk, ZR_DEVICE, ZR_FOR_BATCH, true, (uint64_t)plan->row_tokens * model->dims.head_dim * 4,
                            "rotary table");

    uint64_t chunk_elements = 0, stage_bytes = 0;
    for (uint32_t index = 0; index < model->unit_count; index++)
        chunk_elements = zr_max_u64(chunk_elements, zr_min_u64(wishes->update_chunk, model->units[index].elements));
    for (int plane = ZR_LOW; plane <= ZR_V; plane++) {
        plan->stage_offset[plane] = stage_bytes;
        if (on_nvme(wishes, plane))
            stage_bytes += zr_round_up(chunk_elements * zr_plane_bytes(plan, 0, plane), ZR_PLAN_ALIGN);
    }
    plan->stage_count = stage_bytes ? walk->choices->stages : 0;
    for (uint32_t stage = 0; stage < plan->stage_count; stage++) {
        uint32_t buffer = take(walk, ZR_HOST, ZR_FOR_STAGING, false, stage_bytes, "stage %u", stage);
        if (walk->build) plan->stages[stage] = buffer;
    }

    bool nvme_weights = wishes->states != ZR_DEVICE && wishes->weight_home == ZR_NVME;
    plan->host_slot_count = nvme_weights ? walk->choices->slots + 1 : 0;
    for (uint32_t slot = 0; slot < plan->host_slot_count; slot++) {
        uint32_t buffer = take(walk, ZR_HOST, ZR_FOR_STAGING, false,
                               largest_unit(model, true, true) * (wishes->split ? 2 : 4), "host weight slot %u", slot);
        if (walk->build) plan->host_slots[slot] = buffer;
    }
}

static void shape(struct zr_plan *plan, const struct zr_choices *choices)
{
    const struct zr_dims *dims = &plan->model->dims;
    plan->row_tokens = plan->wishes.row_tokens;
    plan->micro_rows = choices->micro_rows;
    plan->micro_tokens = choices->micro_rows * plan->row_tokens;
    plan->micro_max = (uint32_t)zr_divide_up(plan->wishes.rows_per_step, choices->micro_rows);
    plan->loss_chunk = plan->wishes.loss_chunk ? zr_min_u64(plan->wishes.loss_chunk, plan->micro_tokens)
                                               : zr_head_chunk(dims, plan->micro_tokens);
    zr_block_work(dims, plan->micro_tokens, plan->row_tokens, plan->machine.element_bytes, &plan->block_work);
    zr_head_work(dims, plan->micro_tokens, plan->loss_chunk, plan->machine.element_bytes, &plan->head_work);
}

static void walk_all(struct walk *walk)
{
    shape(walk->plan, walk->choices);
    for (uint32_t index = 0; index < walk->plan->model->unit_count; index++)
        place_unit(walk, index);
    place_device_scratch(walk);
    place_batch_and_staging(walk);
}

void zr_layout_measure(const struct zr_plan *plan, const struct zr_choices *choices, uint64_t used[ZR_TIER_COUNT])
{
    struct zr_plan scratch = *plan;
    struct walk walk = { .plan = &scratch, .choices = choices };
    walk_all(&walk);
    memcpy(used, walk.used, sizeof walk.used);
}

enum zr_code zr_layout_build(struct zr_plan *plan, const struct zr_choices *choices, struct zr_error *err)
{
    struct walk count = { .plan = plan, .choices = choices };
    walk_all(&count);

    plan->units = calloc(plan->model->unit_count, sizeof *plan->units);
    plan->chunks = calloc(count.chunk_count + 1, sizeof *plan->chunks);
    plan->buffers = calloc(count.buffer_count, sizeof *plan->buffers);
    plan->slots[0] = calloc(plan->slot_count[0] + 1, sizeof **plan->slots);
    plan->slots[1] = calloc(plan->slot_count[1] + 1, sizeof **plan->slots);
    plan->hidden = calloc(plan->hidden_count, sizeof *plan->hidden);
    plan->checkpoint = calloc((size_t)plan->model->dims.layers * plan->micro_max, sizeof *plan->checkpoint);
    plan->kept = calloc((size_t)plan->kept_blocks * plan->micro_max + 1, sizeof *plan->kept);
    plan->stages = calloc(plan->stage_count + 1, sizeof *plan->stages);
    plan->host_slots = calloc(plan->host_slot_count + 1, sizeof *plan->host_slots);
    if (!plan->units || !plan->chunks || !plan->buffers || !plan->slots[0] || !plan->slots[1] || !plan->hidden ||
        !plan->checkpoint || !plan->kept || !plan->stages || !plan->host_slots)
        return zr_fail(err, ZR_EFULL, "no memory for a plan of %u buffers", count.buffer_count);

    struct walk build = { .plan = plan, .choices = choices, .build = true };
    walk_all(&build);
    assert(build.buffer_count == count.buffer_count && build.chunk_count == count.chunk_count);
    plan->buffer_count = build.buffer_count;
    plan->chunk_count = build.chunk_count;
    memcpy(plan->used, build.used, sizeof plan->used);
    return ZR_OK;
}
