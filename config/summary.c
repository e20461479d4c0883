/* summary.c: what a configuration comes to, one fact a line */
#include "config/apply.h"
#include <jansson.h>
#include <string.h>

/* Six digits: the exact value is --print-config's. */
static void add_number(struct zr_text *out, const char *before, double number, const char *after)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", number);
    for (char *at = text; *at; at++)
        if (*at == ',') *at = '.'; /* a locale's point */
    zr_text_add(out, "%s%s%s", before, text, after);
}

static void batch(const struct zr_config *config, struct zr_text *out)
{
    if (config->train_batch_size == 0 || config->micro_batch_size == 0 || config->gradient_accumulation_steps == 0)
        zr_text_add(out, "effective batch: not known, %u rank%s (%s)\n", config->ranks, config->ranks == 1 ? "" : "s",
                    config->ranks_origin);
    else if ((uint64_t)config->micro_batch_size * config->gradient_accumulation_steps * config->ranks !=
             config->train_batch_size)
        zr_text_add(out, "effective batch: the keys do not fit together\n");
    else
        zr_text_add(out, "effective batch %u = %u x %u x %u (micro-batch x accumulation x ranks; %s)%s\n",
                    config->train_batch_size, config->micro_batch_size, config->gradient_accumulation_steps,
                    config->ranks, config->ranks_origin,
                    config->micro_batch_auto ? "; the daemon may cut the micro-batch" : "");
    if (config->sequence_length)
        zr_text_add(out, "sequence length %u tokens\n", config->sequence_length);
    else
        zr_text_add(out, "sequence length: to be said when a job opens\n");
}

static void placement(const struct zr_config *config, struct zr_text *out)
{
    static const char *const stages[] = { "nothing is sharded", "optimizer states are sharded over the ranks",
                                          "optimizer states and gradients are sharded over the ranks",
                                          "optimizer states, gradients and weights are sharded over the ranks" };
    static const char *const tiers[] = { "none (they stay on the GPU)", "cpu", "nvme" };
    static const char *const planes[] = { "weight", "low", "m", "v" };
    zr_text_add(out, "stage %u: %s\n", config->zero_stage, stages[config->zero_stage]);
    zr_text_add(out, "optimizer device %s%s\n", tiers[config->optimizer_device],
                config->optimizer_device == ZR_PLACE_NONE ? ""
                : config->optimizer_pin_memory            ? ", pinned host memory"
                                                          : ", host memory not pinned");
    zr_text_add(out, "parameter device %s%s\n", tiers[config->param_device],
                config->param_device == ZR_PLACE_NONE ? ""
                : config->param_pin_memory            ? ", pinned host memory"
                                                      : ", host memory not pinned");
    if (!config->nvme_planes) return;
    zr_text_add(out, "on the drive:");
    for (uint32_t i = 0; i < 4; i++)
        if (config->nvme_planes >> i & 1) zr_text_add(out, " %s", planes[i]);
    for (uint32_t i = 0; i < config->nvme_path_count; i++)
        zr_text_add(out, "%s%s", i ? ", " : ", in ", config->nvme_path[i]);
    char block[24];
    zr_text_add(out, "; %s x %u\n", zr_text_bytes(block, config->io_block_bytes), config->io_depth);
}

static void numbers(const struct zr_config *config, struct zr_text *out)
{
    static const char *const names[] = { "fp32", "bf16", "fp16" };
    zr_text_add(out, "precision %s, gradients summed in %s\n", names[config->precision],
                config->grad_accum_bf16 ? "bf16 (loses precision)" : "fp32");
    if (config->precision == ZR_PRECISION_FP16 && config->loss_scale == 0) {
        zr_text_add(out, "loss scale dynamic from 2^%u, window %u, hysteresis %u", config->initial_scale_power,
                    config->loss_scale_window, config->hysteresis);
        add_number(out, ", floor ", config->min_loss_scale, "\n");
    } else if (config->precision == ZR_PRECISION_FP16) {
        add_number(out, "loss scale ", config->loss_scale, ", static\n");
    }
    if (config->gradient_clipping > 0)
        add_number(out, "gradients are clipped to a global norm of ", config->gradient_clipping, "\n");
    else
        zr_text_add(out, "gradients are not clipped\n");
}

static void optimizer(const struct zr_config *config, struct zr_text *out)
{
    bool adamw = config->optimizer == ZR_OPTIMIZER_ADAMW;
    zr_text_add(out, "optimizer %s", adamw ? "AdamW" : "Adam");
    if (strcmp(config->optimizer_name, adamw ? "AdamW" : "Adam") != 0)
        zr_text_add(out, " (type %s)", config->optimizer_name);
    add_number(out, adamw ? ": decoupled weight decay " : ": weight decay inside the gradient, ", config->weight_decay,
               config->decay_rule == ZR_DECAY_MATRICES ? " on matrices" : " on all parameters");
    add_number(out, ", lr ", config->lr, "");
    add_number(out, ", betas ", config->beta1, "");
    add_number(out, " and ", config->beta2, "");
    add_number(out, ", eps ", config->eps, "");
    zr_text_add(out, ", bias correction %s\n", config->bias_correction ? "on" : "off");
}

static void schedule(const struct zr_config *config, struct zr_text *out)
{
    const char *shape = config->rate.warmup_type == ZR_WARMUP_LOG ? "logarithmic" : "linear";
    if (config->schedule == ZR_RATE_CONSTANT) {
        add_number(out, "schedule: none, the rate is ", config->lr, " throughout\n");
        return;
    }
    zr_text_add(out, "schedule %s: ", zr_schedule_name(config->schedule));
    switch (config->schedule) {
    case ZR_RATE_CONSTANT:
        break;
    case ZR_RATE_WARMUP:
    case ZR_RATE_WARMUP_DECAY:
        add_number(out, "from ", config->rate.warmup_min_lr, "");
        add_number(out, " to ", config->rate.warmup_max_lr, "");
        zr_text_add(out, " in %u steps (%s)", config->rate.warmup_num_steps, shape);
        if (config->schedule == ZR_RATE_WARMUP)
            zr_text_add(out, ", then constant\n");
        else if (config->rate.total_num_steps == 0)
            zr_text_add(out, ", then to 0 at a step that is not known\n");
        else
            zr_text_add(out, ", then to 0 at step %u\n", config->rate.total_num_steps);
        break;
    case ZR_RATE_WARMUP_COSINE:
        add_number(out, "from ", config->lr * config->rate.warmup_min_ratio, "");
        add_number(out, " to ", config->lr, "");
        zr_text_add(out, " in %u steps (%s)", config->rate.warmup_num_steps, shape);
        add_number(out, ", then by a cosine to ", config->lr * config->rate.cos_min_ratio, "");
        zr_text_add(out, " at step %u\n", config->rate.total_num_steps);
        break;
    case ZR_RATE_ONE_CYCLE:
        add_number(out, "from ", config->rate.cycle_min_lr, "");
        add_number(out, " to ", config->rate.cycle_max_lr, "");
        zr_text_add(out, " in %u steps, back in %u\n", config->rate.cycle_first_step_size,
                    config->rate.cycle_second_step_size);
        break;
    }
}

void zr_config_auto_summary(const struct zr_config_report *report, uint64_t hidden, struct zr_text *out)
{
    static const char *const keys[] = { "zero_optimization.reduce_bucket_size",
                                        "zero_optimization.stage3_prefetch_bucket_size",
                                        "zero_optimization.stage3_param_persistence_threshold" };
    uint64_t values[3];
    zr_config_auto_buckets(hidden, &values[0], &values[1], &values[2]);
    for (uint32_t i = 0; i < ZR_COUNT(keys); i++) {
        uint32_t index;
        char count[32];
        if (!zr_key_find(keys[i], &index) || !report->origins[index].automatic) continue;
        zr_text_add(out, "%s auto: %s elements (%s, hidden size %llu)\n", keys[i], zr_text_count(count, values[i]),
                    zr_keys[index].automatic, (unsigned long long)hidden);
    }
}

/* The hidden size that stands in model.config; 0: none does. */
static uint64_t inline_hidden(const struct zr_config *config)
{
    if (!config->model_config_json[0]) return 0;
    json_t *json = json_loads(config->model_config_json, 0, NULL);
    json_t *hidden = json_object_get(json, "hidden_size");
    if (!hidden) hidden = json_object_get(json, "n_embd");
    json_int_t value = json_integer_value(hidden); /* 0 where it is no integer */
    json_decref(json);
    return value > 0 ? (uint64_t)value : 0;
}

void zr_config_summary(const struct zr_config *config, const struct zr_config_report *report, struct zr_text *out)
{
    if (!report->applied) {
        zr_text_add(out, "nothing was read as a configuration\n");
        return;
    }
    batch(config, out);
    placement(config, out);
    numbers(config, out);
    optimizer(config, out);
    schedule(config, out);
    uint64_t hidden = inline_hidden(config);
    if (hidden) zr_config_auto_summary(report, hidden, out);
}
