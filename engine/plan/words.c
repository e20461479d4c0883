/* words.c: a plan in sentences and tables */
#include "engine/base/span.h"
#include "engine/plan/schedule.h"
#include <stdio.h>

static void add_cell(struct zr_text *out, uint64_t bytes)
{
    char text[24];
    zr_text_add(out, "%13s", bytes ? zr_text_bytes(text, bytes) : "-");
}

static void add_table(const struct zr_plan *plan, struct zr_text *out)
{
    uint64_t bytes[ZR_TIER_COUNT][ZR_PURPOSE_COUNT];
    zr_plan_bytes(plan, bytes);
    zr_text_add(out, "  %-26s%13s%13s%13s\n", "where bytes live", "device", "host", "nvme");
    for (int purpose = 0; purpose < ZR_PURPOSE_COUNT; purpose++) {
        zr_text_add(out, "  %-26s", zr_purpose_name(purpose));
        for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
            add_cell(out, bytes[tier][purpose]);
        zr_text_add(out, "\n");
    }
    zr_text_add(out, "  %-26s", "planned");
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        add_cell(out, plan->used[tier]);
    zr_text_add(out, "\n  %-26s", "budget");
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        add_cell(out, plan->machine.bytes[tier]);
    zr_text_add(out, "\n");
}

static void add_weights(const struct zr_plan *plan, struct zr_text *out)
{
    uint32_t resident = 0;
    const uint32_t units = plan->model->unit_count;
    for (uint32_t unit = 0; unit < units; unit++)
        resident += plan->units[unit].resident;
    if (resident == units)
        zr_text_add(out, "  weights: all %u units stay on the device\n", units);
    else
        zr_text_add(out, "  weights: %u of %u units stay on the device, the others stream from %s through %u slot%s\n",
                    resident, units, zr_tier_name(plan->wishes.weight_home), plan->slot_count[0] + plan->slot_count[1],
                    plan->slot_count[0] + plan->slot_count[1] == 1 ? "" : "s");
}

static void add_states(const struct zr_plan *plan, struct zr_text *out)
{
    zr_text_add(out, "  optimizer states: ");
    const char *separator = "";
    for (int plane = ZR_LOW; plane <= ZR_V; plane++) {
        if (zr_plane_bytes(plan, 0, plane) == 0) continue;
        zr_text_add(out, "%s%s on %s", separator, zr_plane_name(plane), zr_tier_name(plan->units[0].state[plane]));
        separator = ", ";
    }
    zr_text_add(out, "; updates run on the %s\n", plan->units[0].update_on_device ? "device" : "host's threads");
}

static void add_step(const struct zr_plan *plan, struct zr_text *out)
{
    struct zr_schedule *schedule = NULL;
    struct zr_schedule_request request = { .pass = ZR_PASS_TRAIN, .micro_count = plan->micro_max, .update = true };
    struct zr_error err = { 0 };
    if (zr_schedule_make(plan, &request, &schedule, &err)) return;
    struct zr_simulation simulation = { 0 };
    zr_schedule_simulate(schedule, &plan->machine, &simulation);
    double bytes[ZR_QUEUE_COUNT] = { 0 };
    for (uint32_t i = 0; i < schedule->op_count; i++)
        bytes[schedule->ops[i].queue] += (double)schedule->ops[i].bytes;
    zr_text_add(out, "\n  one step, simulated on stated rates: %.3g s, bound by %s; floor %.3g s\n", simulation.seconds,
                zr_queue_name(simulation.bound_by), simulation.floor);
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
        if (schedule->queue_length[queue] == 0) continue;
        zr_text_add(out, "    %-11s%6u ops%10.3g s busy", zr_queue_name(queue), schedule->queue_length[queue],
                    simulation.busy[queue]);
        char text[24];
        if (queue != ZR_QUEUE_COMPUTE) zr_text_add(out, "   %s", zr_text_bytes(text, (uint64_t)bytes[queue]));
        zr_text_add(out, "\n");
    }
    double written = bytes[ZR_QUEUE_WRITE];
    if (written > 0)
        zr_text_add(out, "  drive wear: %.4g GB written per step, %.4g TB per day at that speed\n", written / 1e9,
                    written / 1e12 * 86400 / simulation.seconds);
    zr_schedule_free(schedule);
}

void zr_plan_words(const struct zr_plan *plan, struct zr_text *out)
{
    const struct zr_model *model = plan->model;
    char parameters[32], tokens[32], states[24];
    uint64_t step_tokens = (uint64_t)plan->wishes.rows_per_step * plan->row_tokens;
    zr_text_add(out, "%s, %s parameters, %s of model states, %s, %u sequences of %u = %s tokens per step\n\n",
                zr_family_name(model->dims.family), zr_text_count(parameters, model->parameters),
                zr_text_bytes(states, zr_plan_state_bytes(plan)),
                plan->wishes.split ? "bf16 with the low halves of the fp32 master" : "fp32", plan->wishes.rows_per_step,
                plan->row_tokens, zr_text_count(tokens, step_tokens));
    add_table(plan, out);
    zr_text_add(out, "\n");
    add_weights(plan, out);
    add_states(plan, out);
    zr_text_add(out,
                "  micro-batches: %u of %u sequence%s (%u tokens); inputs of the last %u of %u blocks stay on the "
                "device, activations of the last %u are kept, the others computed again\n",
                plan->micro_max, plan->micro_rows, plan->micro_rows == 1 ? "" : "s", plan->micro_tokens,
                plan->checkpoints_on_device, model->dims.layers, plan->kept_blocks);
    add_step(plan, out);
}
