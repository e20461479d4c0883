/* training.c: rules of the optimizer and of the schedule
 *
 * Names and meanings are DeepSpeed's: "Adam" decays as AdamW does unless adam_w_mode is false, a schedule's rate goes before
 * the optimizer's, and the warm-up is logarithmic unless said otherwise. */
#include "config/apply.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct zr_where nowhere = { 0 };

static struct zr_where where_of(const struct zr_config_report *report, const char *path)
{
    return zr_report_origin_const(report, path)->where;
}

static bool one_of(const char *word, const char *const *names)
{
    for (; *names; names++)
        if (strcasecmp(word, *names) == 0) return true;
    return false;
}

static void optimizer_type(struct zr_config_report *report)
{
    static const char *const unsupported[] = { "Adagrad",     "Lamb",       "Lion",      "Muon",      "OneBitAdam",
                                               "ZeroOneAdam", "OneBitLamb", "MuAdam",    "MuAdamW",   "MuSGD",
                                               "SGD",         "Adam8bit",   "AdamW8bit", "Adafactor", "RMSprop",
                                               "FusedAdam",   "CPUAdam",    NULL };
    static const char *const supported[] = { "AdamW", "Adam", "DeepSpeedCPUAdam", NULL };
    struct zr_settings *settings = &report->settings;
    const char *name = settings->config.optimizer_name;
    struct zr_where where = where_of(report, "optimizer.type");
    char clipped[80];

    if (!one_of(name, supported)) {
        const char *near = one_of(name, unsupported) ? NULL : zr_hint_name(name, supported);
        zr_report_add(report, ZR_REMARK_ERROR, where, "optimizer.type",
                      "%s is not supported: zerod has AdamW and Adam%s%s%s", zr_report_clip(clipped, name),
                      near ? "\n  hint: did you mean " : "", near ? near : "", near ? "?" : "");
        return;
    }
    bool is_adamw = strcasecmp(name, "AdamW") == 0;
    settings->config.optimizer = settings->adam_w_mode || is_adamw ? ZR_OPTIMIZER_ADAMW : ZR_OPTIMIZER_ADAM_L2;
    if (is_adamw && !settings->adam_w_mode)
        zr_report_add(report, ZR_REMARK_WARNING, where_of(report, "optimizer.params.adam_w_mode"),
                      "optimizer.params.adam_w_mode",
                      "false is ignored: type AdamW always decays the weights themselves\n  hint: type Adam obeys it");
    if (strcasecmp(name, "DeepSpeedCPUAdam") == 0)
        zr_report_add(report, ZR_REMARK_NOTE, where, "optimizer.type",
                      "taken as %s; where the update runs is the offload's",
                      settings->config.optimizer == ZR_OPTIMIZER_ADAMW ? "AdamW" : "Adam");
}

void zr_rules_optimizer(const struct zr_node *root, struct zr_config_report *report)
{
    struct zr_settings *settings = &report->settings;
    struct zr_config *config = &settings->config;
    const struct zr_node *section = zr_tree_at(root, "optimizer");
    config->beta1 = settings->betas[0];
    config->beta2 = settings->betas[1];
    config->optimizer = ZR_OPTIMIZER_ADAMW;

    if (!section || zr_node_is_null(section)) {
        zr_report_add(
            report, ZR_REMARK_WARNING, nowhere, "optimizer",
            "no such section: in DeepSpeed the client brings its own; training needs one, and until it is there "
            "AdamW acts with lr 0.001 and no weight decay");
        return;
    }
    if (zr_report_given(report, "optimizer.type"))
        optimizer_type(report);
    else if (section->kind == ZR_NODE_MAP && !zr_node_find(section, "type"))
        zr_report_add(report, ZR_REMARK_ERROR, section->key_where, "optimizer.type", "missing\n  hint: AdamW or Adam");

    if (zr_report_origin_const(report, "optimizer.params.lr")->automatic)
        zr_report_add(
            report, ZR_REMARK_WARNING, where_of(report, "optimizer.params.lr"), "optimizer.params.lr",
            "auto: no trainer supplies it; DeepSpeed's default acts: 0.001\n  hint: give the rate, here or by --set");
    if (settings->torch_adam)
        zr_report_add(report, ZR_REMARK_WARNING, where_of(report, "optimizer.params.torch_adam"),
                      "optimizer.params.torch_adam", "true is ignored%s: zerod's own %s is used",
                      config->optimizer_device == ZR_PLACE_NONE ? "" : " (and contradicts offload_optimizer)",
                      config->optimizer == ZR_OPTIMIZER_ADAMW ? "AdamW" : "Adam");
    if (settings->config.eps == 0)
        zr_report_add(report, ZR_REMARK_WARNING, where_of(report, "optimizer.params.eps"), "optimizer.params.eps",
                      "0: a weight whose gradient is zero becomes NaN");
}

struct schedule {
    const char *name;
    const char *params[16];
};

static const struct schedule schedules[] = {
    [ZR_RATE_CONSTANT] = { "", { NULL } },
    [ZR_RATE_WARMUP] = { "WarmupLR", { "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", NULL } },
    [ZR_RATE_WARMUP_DECAY] = { "WarmupDecayLR",
                               { "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps",
                                 NULL } },
    [ZR_RATE_WARMUP_COSINE] = { "WarmupCosineLR",
                                { "total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio",
                                  "warmup_type", NULL } },
    [ZR_RATE_ONE_CYCLE] = { "OneCycle",
                            { "cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size",
                              "cycle_second_step_size", "cycle_first_stair_count", "cycle_second_stair_count",
                              "decay_step_size", "cycle_momentum", "cycle_min_mom", "cycle_max_mom", "decay_mom_rate",
                              NULL } },
};

bool zr_schedule_takes(enum zr_schedule_kind kind, const char *param)
{
    for (const char *const *name = schedules[kind].params; *name; name++)
        if (strcmp(*name, param) == 0) return true;
    return false;
}

const char *zr_schedule_name(enum zr_schedule_kind kind)
{
    return schedules[kind].name;
}

static void refuse_type(struct zr_config_report *report, const char *name)
{
    const char *names[ZR_COUNT(schedules)];
    char clipped[80];
    for (uint32_t i = 1; i < ZR_COUNT(schedules); i++)
        names[i - 1] = schedules[i].name;
    names[ZR_COUNT(schedules) - 1] = NULL;
    const char *near = strcmp(name, "LRRangeTest") == 0 ? NULL : zr_hint_name(name, names);
    zr_report_add(report, ZR_REMARK_ERROR, where_of(report, "scheduler.type"), "scheduler.type",
                  "%s is not supported: zerod has WarmupLR, WarmupDecayLR, WarmupCosineLR and OneCycle%s%s%s",
                  zr_report_clip(clipped, name), near ? "\n  hint: did you mean " : "", near ? near : "",
                  near ? "?" : "");
}

/* Parameters of another type: DeepSpeed fails on them too, with a TypeError. */
static void check_params(struct zr_config_report *report, enum zr_schedule_kind kind)
{
    static const char prefix[] = "scheduler.params.";
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        const struct zr_key *key = &zr_keys[i];
        const struct zr_value_origin *origin = &report->origins[i];
        bool there = origin->origin == ZR_FROM_FILE || origin->origin == ZR_FROM_COMMAND_LINE || origin->automatic;
        if (key->status != ZR_KEY_USED || !there || strncmp(key->path, prefix, sizeof prefix - 1) != 0) continue;
        const char *param = key->path + sizeof prefix - 1;
        if (zr_schedule_takes(kind, param)) continue;
        struct zr_text owners = { 0 };
        for (uint32_t other = 1; other < ZR_COUNT(schedules); other++)
            if (zr_schedule_takes((enum zr_schedule_kind)other, param))
                zr_text_add(&owners, "%s%s", owners.length ? ", " : "", schedules[other].name);
        zr_report_add(report, ZR_REMARK_ERROR, origin->where, key->path,
                      "%s has no such parameter\n  hint: it is one of %s", schedules[kind].name, zr_text_c(&owners));
        zr_text_fini(&owners);
    }
}

static void peak_rate(struct zr_config_report *report, enum zr_schedule_kind kind)
{
    struct zr_config *config = &report->settings.config;
    struct zr_value_origin *peak = zr_report_origin(report, "scheduler.params.warmup_max_lr");
    bool given = zr_report_given(report, "scheduler.params.warmup_max_lr");
    if (!given && (peak->automatic || kind == ZR_RATE_WARMUP)) {
        config->rate.warmup_max_lr = config->lr;
        peak->origin = ZR_FROM_DERIVED;
        peak->from = "optimizer.params.lr";
        if (peak->automatic) {
            struct zr_text rate = { 0 };
            zr_number_print(config->lr, &rate);
            zr_report_add(report, ZR_REMARK_NOTE, peak->where, "scheduler.params.warmup_max_lr",
                          "auto: optimizer.params.lr, %s", rate.at);
            zr_text_fini(&rate);
        }
    }
    struct zr_where where = peak->where.line || peak->where.from_set ? peak->where : where_of(report, "scheduler.type");
    if (zr_report_given(report, "optimizer.params.lr") && config->lr != config->rate.warmup_max_lr) {
        struct zr_text text = { 0 };
        zr_text_add(&text, "two peak rates: ");
        zr_number_print(config->rate.warmup_max_lr, &text);
        zr_text_add(&text, given ? " here, " : " by default, ");
        zr_number_print(config->lr, &text);
        zr_text_add(&text, " in optimizer.params.lr (line %u): the schedule wins",
                    where_of(report, "optimizer.params.lr").line);
        zr_report_add(report, ZR_REMARK_WARNING, where, "scheduler.params.warmup_max_lr", "%s", zr_text_c(&text));
        zr_text_fini(&text);
    }
    if (config->rate.warmup_min_lr > config->rate.warmup_max_lr)
        zr_report_add(report, ZR_REMARK_WARNING, where_of(report, "scheduler.params.warmup_min_lr"),
                      "scheduler.params.warmup_min_lr", "above warmup_max_lr: the rate falls during the warm-up");
}

static void lengths(struct zr_config_report *report, enum zr_schedule_kind kind)
{
    struct zr_config *config = &report->settings.config;
    struct zr_value_origin *warmup = zr_report_origin(report, "scheduler.params.warmup_num_steps");
    struct zr_value_origin *total = zr_report_origin(report, "scheduler.params.total_num_steps");
    if (warmup->automatic)
        zr_report_add(report, ZR_REMARK_ERROR, warmup->where, "scheduler.params.warmup_num_steps",
                      "auto: no trainer supplies it\n  hint: give the number of steps, here or by --set");
    if (kind == ZR_RATE_WARMUP) return;

    if (!zr_report_given(report, "scheduler.params.total_num_steps") && (total->automatic || !total->where.line)) {
        struct zr_where where = total->where.line ? total->where : where_of(report, "scheduler.type");
        if (config->max_steps == 0) {
            zr_report_add(report, ZR_REMARK_ERROR, where, "scheduler.params.total_num_steps",
                          "%s\n  hint: give the number of steps, here or as zerod.max_steps",
                          total->automatic ? "auto: no trainer supplies it" : "missing: the schedule ends there");
            return;
        }
        config->rate.total_num_steps = config->max_steps;
        total->origin = ZR_FROM_DERIVED;
        total->from = "zerod.max_steps";
        zr_report_add(report, ZR_REMARK_NOTE, where, "scheduler.params.total_num_steps", "zerod.max_steps: %u",
                      config->max_steps);
    }
    if (config->rate.total_num_steps && config->rate.total_num_steps < config->rate.warmup_num_steps)
        zr_report_add(report, ZR_REMARK_WARNING, where_of(report, "scheduler.params.total_num_steps"),
                      "scheduler.params.total_num_steps", "%u steps end before the warm-up of %u",
                      config->rate.total_num_steps, config->rate.warmup_num_steps);
}

static void one_cycle(struct zr_config_report *report)
{
    struct zr_config *config = &report->settings.config;
    static const char *const required[] = { "scheduler.params.cycle_min_lr", "scheduler.params.cycle_max_lr" };
    for (uint32_t i = 0; i < ZR_COUNT(required); i++) {
        const struct zr_value_origin *origin = zr_report_origin_const(report, required[i]);
        if (!zr_report_given(report, required[i]) && (origin->automatic || !origin->where.line))
            zr_report_add(report, ZR_REMARK_ERROR,
                          origin->automatic ? origin->where : where_of(report, "scheduler.type"), required[i],
                          "missing: OneCycle needs it");
    }
    if (!zr_report_given(report, "scheduler.params.cycle_second_step_size")) {
        struct zr_value_origin *second = zr_report_origin(report, "scheduler.params.cycle_second_step_size");
        config->rate.cycle_second_step_size = config->rate.cycle_first_step_size;
        second->origin = ZR_FROM_DERIVED;
        second->from = "cycle_first_step_size";
    }
    if (!zr_report_given(report, "scheduler.params.cycle_second_stair_count")) {
        struct zr_value_origin *second = zr_report_origin(report, "scheduler.params.cycle_second_stair_count");
        config->rate.cycle_second_stair_count = config->rate.cycle_first_stair_count;
        second->origin = ZR_FROM_DERIVED;
        second->from = "cycle_first_stair_count";
    }
}

void zr_rules_scheduler(const struct zr_node *root, struct zr_config_report *report)
{
    struct zr_settings *settings = &report->settings;
    const struct zr_node *section = zr_tree_at(root, "scheduler");
    settings->config.schedule = ZR_RATE_CONSTANT;
    if (!section || zr_node_is_null(section)) return;
    if (!zr_report_given(report, "scheduler.type")) {
        if (section->kind == ZR_NODE_MAP && section->first)
            zr_report_add(report, ZR_REMARK_ERROR, section->key_where, "scheduler.type",
                          "missing\n  hint: WarmupLR, WarmupDecayLR, WarmupCosineLR or OneCycle");
        return;
    }
    uint32_t kind = 1;
    while (kind < ZR_COUNT(schedules) && strcmp(settings->scheduler_type, schedules[kind].name) != 0)
        kind++;
    if (kind == ZR_COUNT(schedules)) {
        refuse_type(report, settings->scheduler_type);
        return;
    }
    settings->config.schedule = (enum zr_schedule_kind)kind;
    check_params(report, settings->config.schedule);
    if (kind == ZR_RATE_ONE_CYCLE) {
        one_cycle(report);
        return;
    }
    lengths(report, settings->config.schedule);
    if (kind != ZR_RATE_WARMUP_COSINE) peak_rate(report, settings->config.schedule);
}
