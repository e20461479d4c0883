/* fit.c: spends what is left, or says what is missing, in bytes */
#include "engine/plan/fit.h"
#include "engine/base/span.h"
#include <stdio.h>

static bool fits(const struct zr_plan *plan, const struct zr_choices *choices)
{
    uint64_t used[ZR_TIER_COUNT];
    zr_layout_measure(plan, choices, used);
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        if (used[tier] > plan->machine.bytes[tier]) return false;
    return true;
}

/* Takes the new choices when they fit. */
static bool try(const struct zr_plan *plan, struct zr_choices *choices, struct zr_choices wanted)
{
    if (!fits(plan, &wanted)) return false;
    *choices = wanted;
    return true;
}

static struct zr_choices least(const struct zr_plan *plan, uint32_t micro_rows)
{
    return (struct zr_choices){
        .micro_rows = micro_rows,
        .slots = plan->model->dims.layers < 2 ? 1 : 2,
        .grad_slots = plan->model->dims.tied ? 2 : 1,
        .stages = 2,
    };
}

static bool is_short(const struct zr_plan *plan, const struct zr_choices *choices, enum zr_tier tier)
{
    uint64_t used[ZR_TIER_COUNT];
    zr_layout_measure(plan, choices, used);
    return used[tier] > plan->machine.bytes[tier];
}

/* The least that a micro-batch of so many rows needs. The inputs of blocks lie on the host; where that is short, the last
 * blocks' go to the device, as far as there is room. */
static struct zr_choices start(const struct zr_plan *plan, uint32_t micro_rows)
{
    struct zr_choices choices = least(plan, micro_rows), next = choices;
    while (choices.checkpoints_on_device < plan->model->dims.layers && is_short(plan, &choices, ZR_HOST)) {
        next.checkpoints_on_device++;
        if (is_short(plan, &next, ZR_DEVICE)) break;
        choices = next;
    }
    return choices;
}

/* The text names the tier that is short, by how much, and the smallest change that helps. */
static enum zr_code refuse(const struct zr_plan *plan, const struct zr_choices *choices, struct zr_error *err)
{
    static const char *const keys[ZR_TIER_COUNT] = { "zerod.device.memory", "zerod.host.memory", "zerod.nvme.size" };
    const struct zr_wishes *wishes = &plan->wishes;
    uint64_t used[ZR_TIER_COUNT];
    zr_layout_measure(plan, choices, used);
    enum zr_tier tier = ZR_DEVICE;
    while (tier < ZR_NVME && used[tier] <= plan->machine.bytes[tier])
        tier++;

    const char *advice = "";
    if (tier == ZR_DEVICE && !wishes->stream_weights)
        advice = ", or zero_optimization.stage 3 with offload_param.device cpu streams the weights";
    else if (tier == ZR_DEVICE && wishes->states == ZR_DEVICE)
        advice = ", or zero_optimization.offload_optimizer.device cpu moves the optimizer's states to the host";
    else if (tier == ZR_DEVICE && wishes->micro_rows > 1)
        advice = ", or a smaller train_micro_batch_size_per_gpu needs less";
    else if (tier == ZR_HOST && wishes->states == ZR_HOST)
        advice = ", or zero_optimization.offload_optimizer.device nvme moves the optimizer's states to a drive";
    else if (tier == ZR_HOST && wishes->weight_home == ZR_HOST)
        advice = ", or zero_optimization.offload_param.device nvme moves the weights to a drive";
    char need[24], have[24], missing[24];
    return zr_fail(err, ZR_EFULL,
                   "does not fit: %s needs at least %s (%llu bytes), its budget is %s, %s (%llu bytes) are missing; "
                   "hint: set %s to %llu or more%s",
                   zr_tier_name(tier), zr_text_bytes(need, used[tier]), (unsigned long long)used[tier],
                   zr_text_bytes(have, plan->machine.bytes[tier]),
                   zr_text_bytes(missing, used[tier] - plan->machine.bytes[tier]),
                   (unsigned long long)(used[tier] - plan->machine.bytes[tier]), keys[tier],
                   (unsigned long long)used[tier], advice);
}

/* Is the matrix work of a step longer than its copies? A decision, not a prediction: half a minute of arithmetic. */
static bool compute_bound(const struct zr_plan *plan)
{
    const struct zr_model *model = plan->model;
    uint64_t tokens = (uint64_t)plan->wishes.rows_per_step * plan->wishes.row_tokens;
    double flops = 0, weights = 0;
    for (uint32_t unit = 0; unit < model->unit_count; unit++) {
        flops += 4 * zr_unit_flops(model, unit, tokens, plan->wishes.row_tokens);
        weights += (double)model->units[unit].elements * zr_plane_bytes(plan, unit, ZR_WEIGHT);
    }
    double inputs = (double)tokens * model->dims.hidden * model->dims.layers * plan->machine.element_bytes;
    return flops / plan->machine.flops > (2 * weights + inputs) / plan->machine.up;
}

static void spend_on_copies(const struct zr_plan *plan, struct zr_choices *choices)
{
    const uint32_t layers = plan->model->dims.layers;
    struct zr_choices next = *choices;
    while (choices->checkpoints_on_device < layers) {
        next.checkpoints_on_device = choices->checkpoints_on_device + 1;
        if (!try(plan, choices, next)) break;
    }
    if (!plan->wishes.stream_weights || plan->wishes.states == ZR_DEVICE) return;
    next = *choices;
    next.resident_ends = true;
    try(plan, choices, next);
    next = *choices;
    next.resident_blocks = layers; /* all of them: no slots at all */
    if (try(plan, choices, next)) return;
    next = *choices;
    while (choices->resident_blocks < layers) {
        next.resident_blocks = choices->resident_blocks + 1;
        if (!try(plan, choices, next)) break;
    }
}

static void spend_on_compute(const struct zr_plan *plan, struct zr_choices *choices)
{
    struct zr_choices next = *choices;
    while (choices->kept_blocks < plan->model->dims.layers) {
        next.kept_blocks = choices->kept_blocks + 1;
        if (!try(plan, choices, next)) break;
    }
}

enum zr_code zr_fit(const struct zr_plan *plan, struct zr_choices *ret_choices, struct zr_error *err)
{
    const struct zr_wishes *wishes = &plan->wishes;
    struct zr_choices choices = start(plan, wishes->micro_rows ? wishes->micro_rows : 1);
    if (!fits(plan, &choices)) return refuse(plan, &choices, err);
    if (wishes->micro_rows == 0)
        for (uint32_t rows = wishes->rows_per_step; rows > 1; rows--)
            if (wishes->rows_per_step % rows == 0 && (uint64_t)rows * wishes->row_tokens <= ZR_FIT_MICRO_TOKENS &&
                try(plan, &choices, start(plan, rows)))
                break;

    struct zr_choices next = choices;
    next.grad_slots = 2;
    try(plan, &choices, next);
    for (next = choices; next.stages < 8 && (next.stages++, try(plan, &choices, next));)
        continue;
    for (next = choices; next.slots < wishes->prefetch + 1 && next.slots < plan->model->dims.layers;) {
        next.slots++;
        if (!try(plan, &choices, next)) break;
    }
    if (compute_bound(plan)) {
        spend_on_compute(plan, &choices);
        spend_on_copies(plan, &choices);
    } else {
        spend_on_copies(plan, &choices);
        spend_on_compute(plan, &choices);
    }
    *ret_choices = choices;
    return ZR_OK;
}
