/* deepspeed.c: rules between DeepSpeed's keys: "auto", precision, which stage an offload needs
 *
 * What is without effect is said, what contradicts itself is refused, and a default that changed between DeepSpeed's
 * versions is named with its value. */
#include "config/apply.h"
#include "config/quantity.h"
#include <stdio.h>
#include <string.h>

#define OPTIMIZER "zero_optimization.offload_optimizer"
#define PARAM "zero_optimization.offload_param"

static const struct zr_where nowhere = { 0 };

static struct zr_where where_of(const struct zr_config_report *report, const char *path)
{
    return zr_report_origin_const(report, path)->where;
}

void zr_config_auto_buckets(uint64_t hidden, uint64_t *ret_reduce, uint64_t *ret_prefetch, uint64_t *ret_persistence)
{
    uint64_t square = hidden <= UINT32_MAX ? hidden * hidden : UINT64_MAX;
    *ret_reduce = square;
    *ret_prefetch = square - square / 10 - (square % 10 != 0); /* floor of 0.9 x square, in whole numbers */
    *ret_persistence = hidden <= UINT64_MAX / 10 ? 10 * hidden : UINT64_MAX;
}

/* Keys without a rule of their own: nobody is there to fill them in, so the default acts, and that is said. */
void zr_rules_auto(struct zr_config_report *report)
{
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        const struct zr_key *key = &zr_keys[i];
        if (key->status != ZR_KEY_USED || !report->origins[i].automatic || key->automatic) continue;
        struct zr_text value = { 0 };
        zr_value_print(key, &report->settings, &value);
        zr_report_add(report, ZR_REMARK_NOTE, report->origins[i].where, key->path,
                      "auto: no trainer supplies it; the default acts: %s", value.length ? value.at : "none");
        zr_text_fini(&value);
    }
}

static void fp16_scale(struct zr_config_report *report, bool certain)
{
    const struct zr_config *config = &report->settings.config;
    if (certain && config->loss_scale == 0 && !zr_report_given(report, "fp16.initial_scale_power"))
        zr_report_add(report, ZR_REMARK_NOTE, where_of(report, "fp16.enabled"), "fp16.initial_scale_power",
                      "not given: the loss scale starts at 2^%u (DeepSpeed's default; it was 2^32 in 2020)",
                      config->initial_scale_power);
    if (config->loss_scale == 0 && config->initial_scale_power >= 32)
        zr_report_add(
            report, ZR_REMARK_WARNING, where_of(report, "fp16.initial_scale_power"), "fp16.initial_scale_power",
            "2^%u cannot be held in fp16%s: expect many skipped steps at the start\n  hint: 16 is the default",
            config->initial_scale_power, certain ? "" : ", if fp16 is chosen");
    if (zr_report_given(report, "fp16.min_loss_scale") && config->min_loss_scale < 1)
        zr_report_add(report, ZR_REMARK_NOTE, where_of(report, "fp16.min_loss_scale"), "fp16.min_loss_scale",
                      "a floor below 1 is taken as it is (DeepSpeed wants a whole number since 2026)");
}

void zr_rules_precision(const struct zr_node *root, struct zr_config_report *report)
{
    struct zr_settings *settings = &report->settings;
    struct zr_config *config = &settings->config;
    struct zr_value_origin *bf16 = zr_report_origin(report, "bf16.enabled");
    struct zr_value_origin *fp16 = zr_report_origin(report, "fp16.enabled");

    if (bf16->automatic) {
        settings->bf16 = !settings->fp16;
        bf16->origin = ZR_FROM_DERIVED;
        bf16->from = "auto";
        zr_report_add(report, ZR_REMARK_NOTE, bf16->where, "bf16.enabled", "auto: %s",
                      settings->bf16 ? "true, since fp16 is not asked for" : "false, since fp16 is on");
    }
    if (fp16->automatic) {
        fp16->origin = ZR_FROM_DERIVED;
        fp16->from = "auto";
        zr_report_add(report, ZR_REMARK_NOTE, fp16->where, "fp16.enabled", "auto: false: precision is %s%s",
                      settings->bf16 ? "bf16" : "fp32",
                      settings->bf16 ? "" : "\n  hint: bf16.enabled true is the 16-bit form");
    }
    if (settings->bf16 && settings->fp16) {
        struct zr_where first = bf16->where.line < fp16->where.line ? bf16->where : fp16->where;
        zr_report_add(report, ZR_REMARK_ERROR, first, "bf16.enabled",
                      "both bf16.enabled (line %u) and fp16.enabled (line %u) are true: one precision at a time",
                      bf16->where.line, fp16->where.line);
    }
    config->precision = settings->bf16 ? ZR_PRECISION_BF16 : settings->fp16 ? ZR_PRECISION_FP16 : ZR_PRECISION_FP32;
    config->grad_accum_bf16 = settings->grad_accum == 1;
    if (settings->fp16 || fp16->automatic) fp16_scale(report, settings->fp16);
    if (!settings->bf16 && !settings->fp16 && !zr_tree_at(root, "bf16") && !zr_tree_at(root, "bfloat16") &&
        !zr_tree_at(root, "fp16"))
        zr_report_add(report, ZR_REMARK_NOTE, nowhere, "bf16", "no precision is given: neither bf16 nor fp16, so fp32");
    if (config->grad_accum_bf16)
        zr_report_add(
            report, ZR_REMARK_WARNING, where_of(report, "data_types.grad_accum_dtype"), "data_types.grad_accum_dtype",
            "gradients are summed in bf16: small ones are lost beside large ones, the more the more micro-batches");
}

/* What DeepSpeed would pin for its swap buffers: people plan host memory on these keys, which count elements. */
static void note_buffers(const struct zr_node *root, const char *section, const char *fallback_count,
                         struct zr_config_report *report)
{
    char path[96];
    uint64_t count, elements, total, bytes;
    snprintf(path, sizeof path, "%s.buffer_size", section);
    const struct zr_node *size_node = zr_tree_at(root, path);
    snprintf(path, sizeof path, "%s.buffer_count", section);
    const struct zr_node *count_node = zr_tree_at(root, path);
    if (!size_node || size_node->kind != ZR_NODE_SCALAR || !zr_quantity_count(size_node->text, &elements)) return;
    if (!zr_quantity_count(count_node && count_node->kind == ZR_NODE_SCALAR ? count_node->text : fallback_count,
                           &count))
        return;
    if (__builtin_mul_overflow(count, elements, &total) || __builtin_mul_overflow(total, (uint64_t)2, &bytes)) return;
    char count_text[32], elements_text[32], bytes_text[32];
    snprintf(path, sizeof path, "%s.buffer_size", section);
    zr_report_add(
        report, ZR_REMARK_NOTE, size_node->key_where, path,
        "buffer_count x buffer_size is %s x %s elements: DeepSpeed would pin %s bytes in 16 bit; zerod does not",
        zr_text_count(count_text, count), zr_text_count(elements_text, elements), zr_text_count(bytes_text, bytes));
}

struct offload {
    const char *section, *device_key, *pin_key, *what, *fallback_count;
    uint32_t stage_needed;
};

static enum zr_place_tier effective(const struct zr_node *root, struct zr_config_report *report,
                                    const struct offload *offload, int device)
{
    const struct zr_config *config = &report->settings.config;
    static const char *const names[] = { "none", "cpu", "nvme" };
    struct zr_where where = where_of(report, offload->device_key);
    struct zr_where pin_where = where_of(report, offload->pin_key);
    bool pin_given = zr_report_given(report, offload->pin_key);

    if (device == ZR_PLACE_NONE) {
        if (pin_given)
            zr_report_add(report, ZR_REMARK_NOTE, pin_where, offload->pin_key, "without effect: the device is none");
        return ZR_PLACE_NONE;
    }
    note_buffers(root, offload->section, offload->fallback_count, report);
    if (config->zero_stage < offload->stage_needed) {
        zr_report_add(report, ZR_REMARK_WARNING, where, offload->device_key,
                      "%s is ignored: it needs zero_optimization.stage %u%s, and the stage is %u: %s stay on the GPU",
                      names[device], offload->stage_needed, offload->stage_needed < 3 ? " or more" : "",
                      config->zero_stage, offload->what);
        return ZR_PLACE_NONE;
    }
    if (!pin_given)
        zr_report_add(report, ZR_REMARK_NOTE, where, offload->pin_key,
                      "not given: true (DeepSpeed's default since 0.19.5; false before)");
    if (device == ZR_PLACE_NVME && config->zero_stage < 3)
        zr_report_add(report, ZR_REMARK_NOTE, where, offload->device_key,
                      "nvme at stage %u: DeepSpeed needs stage 3 for it, zerod does not", config->zero_stage);
    return (enum zr_place_tier)device;
}

void zr_rules_offload(const struct zr_node *root, struct zr_config_report *report)
{
    static const struct offload optimizer = {
        OPTIMIZER, OPTIMIZER ".device", OPTIMIZER ".pin_memory", "optimizer states", "4", 1
    };
    static const struct offload param = { PARAM, PARAM ".device", PARAM ".pin_memory", "weights", "5", 3 };
    struct zr_settings *settings = &report->settings;
    settings->config.optimizer_device = effective(root, report, &optimizer, settings->optimizer_device);
    settings->config.param_device = effective(root, report, &param, settings->param_device);
    settings->optimizer_device = (int)settings->config.optimizer_device; /* printed as it acts */
    settings->param_device = (int)settings->config.param_device;
}
