/* test_execute.c: numbers do not depend on where bytes live, how many threads there are, or how far ahead is loaded
 *
 * Each case draws a tiny model and a script of submissions (training, accumulation, evaluation, odd batches, packed
 * documents) and runs it in the plainest placement: everything on the device, one unit ahead, one thread. Then it runs the
 * same script in other placements, with other budgets, threads, instruction sets and I/O engines. Losses, norms, logits,
 * weights, masters, moments and gradients must be equal, bit for bit. */
#include "engine/run/engine.h"
#include "tests/lib/temp.h"
#include "tests/property/draw.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SEED 4711u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CASES = 8, PLACEMENTS = 3 };
#else
enum { CASES = 40, PLACEMENTS = 4 };
#endif

enum { SUBMISSIONS = 6, PICKED = 3 };

struct submission {
    enum zr_step_kind kind;
    struct zr_batch batch;
};

struct script {
    struct draw draw;
    struct zr_dims dims;
    struct submission submissions[SUBMISSIONS];
    uint32_t picked[PICKED], picked_count;
};

/* What a run leaves behind. */
struct outcome {
    struct zr_step_result results[SUBMISSIONS];
    float *logits, *values;
    uint64_t logits_count, value_count;
};

static void broken(const struct script *script, const char *what, const char *text)
{
    fail_msg("seed %llu, case %llu, after %llu draws: %s: %s", (unsigned long long)script->draw.seed,
             (unsigned long long)script->draw.number, (unsigned long long)script->draw.drawn, what, text);
}

/* -- drawing ------------------------------------------------------------------------------------------------------- */

static void draw_batch(struct draw *draw, const struct zr_dims *dims, uint32_t rows, uint32_t row_tokens,
                       struct zr_batch *batch)
{
    const uint32_t tokens = rows * row_tokens;
    int32_t *ids = calloc(tokens, sizeof *ids), *labels = calloc(tokens, sizeof *labels);
    uint32_t *starts = calloc(tokens, sizeof *starts);
    *batch = (struct zr_batch){ .rows = rows, .row_tokens = row_tokens, .tokens = ids };
    const bool masked = draw_chance(draw, 40), packed = draw_chance(draw, 40);
    for (uint32_t i = 0; i < tokens; i++) {
        ids[i] = (int32_t)draw_between(draw, 0, dims->vocabulary - 1);
        labels[i] = draw_chance(draw, 30) ? -100 : ids[i];
        if (i == 0 || draw_chance(draw, 15)) starts[batch->document_count++] = i;
    }
    if (masked) batch->labels = labels;
    if (packed) batch->document_starts = starts;
    if (!packed) batch->document_count = 0;
    if (!masked) free(labels);
    if (!packed) free(starts);
}

/* The model, the precision and everything else that numbers may depend on. */
static void draw_script(struct script *script, uint64_t number, struct zr_config *config)
{
    *script = (struct script){ .draw = { .seed = SEED, .number = number } };
    struct draw *draw = &script->draw;
    script->dims = draw_dims(draw, draw_u32(draw, 1, 5), true);
    config->train_batch_size = draw_u32(draw, 1, 5);
    config->micro_batch_size = draw_u32(draw, 1, config->train_batch_size);
    config->sequence_length = draw_u32(draw, 2, 12);
    config->precision = draw_chance(draw, 60) ? ZR_PRECISION_BF16 : ZR_PRECISION_FP32;
    config->grad_accum_bf16 = draw_chance(draw, 35);
    config->loss_chunk_rows = draw_chance(draw, 30) ? draw_u32(draw, 1, 9) : 0;
    config->gradient_clipping = draw_chance(draw, 70) ? 0.5 : 0;
    config->decay_rule = draw_chance(draw, 50) ? ZR_DECAY_ALL : ZR_DECAY_MATRICES;
    config->optimizer = draw_chance(draw, 20) ? ZR_OPTIMIZER_ADAM_L2 : ZR_OPTIMIZER_ADAMW;
    config->model_seed = draw_between(draw, 0, 1000);

    const bool rounded = config->grad_accum_bf16 && config->precision == ZR_PRECISION_BF16;
    for (int i = 0; i < SUBMISSIONS; i++) {
        struct submission *submission = &script->submissions[i];
        submission->kind = draw_chance(draw, 15)               ? ZR_STEP_EVAL
                           : draw_chance(draw, 30) && !rounded ? ZR_STEP_ACCUMULATE
                                                               : ZR_STEP_TRAIN;
        uint32_t rows = draw_chance(draw, 60) ? config->train_batch_size : draw_u32(draw, 1, config->train_batch_size);
        draw_batch(draw, &script->dims, rows, config->sequence_length, &submission->batch);
    }
    uint32_t tokens = script->submissions[0].batch.rows * config->sequence_length;
    for (uint32_t at = draw_u32(draw, 0, 3); at < tokens && script->picked_count < PICKED; at += draw_u32(draw, 1, 9))
        script->picked[script->picked_count++] = at;
}

static void script_fini(struct script *script)
{
    for (int i = 0; i < SUBMISSIONS; i++) {
        free((void *)script->submissions[i].batch.tokens);
        free((void *)script->submissions[i].batch.labels);
        free((void *)script->submissions[i].batch.document_starts);
    }
}

/* The least budgets that the plan takes, then some more at random. */
static void draw_budgets(struct script *script, struct zr_config *config)
{
    struct zr_error err = { 0 };
    struct zr_model *model = NULL;
    struct zr_plan *plan = NULL;
    uint64_t *const budgets[ZR_TIER_COUNT] = { &config->device_bytes, &config->host_bytes, &config->nvme_bytes };
    config->device_bytes = config->host_bytes = config->nvme_bytes = (uint64_t)1 << 30;
    if (zr_job_plan_only(config, &script->dims, &model, &plan, &err)) broken(script, "a plan with room", err.text);
    const uint64_t plenty = plan->used[ZR_DEVICE];
    zr_plan_free(plan);
    zr_model_free(model);

    config->device_bytes = config->host_bytes = config->nvme_bytes = 1;
    while (zr_job_plan_only(config, &script->dims, &model, &plan, &err)) {
        enum zr_tier tier = ZR_TIER_COUNT;
        uint64_t missing = 0;
        if (!draw_read_refusal(err.text, &tier, &missing)) broken(script, "a plan", err.text);
        *budgets[tier] += missing;
        err = (struct zr_error){ 0 };
    }
    zr_plan_free(plan);
    zr_model_free(model);
    if (draw_chance(&script->draw, 75))
        config->device_bytes = draw_between(&script->draw, config->device_bytes, plenty);
}

static void draw_placement(struct script *script, struct zr_config *config, const char *folders[2])
{
    struct draw *draw = &script->draw;
    config->zero_stage = 3;
    config->optimizer_device = draw_chance(draw, 10)   ? ZR_PLACE_NONE
                               : draw_chance(draw, 50) ? ZR_PLACE_CPU
                                                       : ZR_PLACE_NVME;
    config->param_device = (enum zr_place_tier)draw_between(draw, ZR_PLACE_NONE, ZR_PLACE_NVME);
    if (config->optimizer_device == ZR_PLACE_NONE) config->param_device = ZR_PLACE_NONE;
    config->nvme_planes = ZR_NVME_WEIGHT | (draw_u32(draw, 1, 7) << 1);
    config->prefetch = draw_u32(draw, 1, 4);
    config->update_chunk = 256 * draw_between(draw, 1, 12);
    config->compute_threads = draw_u32(draw, 1, 3);
    config->optimizer_threads = draw_u32(draw, 1, 3);
    config->simd = (enum zr_simd)draw_between(draw, ZR_SIMD_AUTO, ZR_SIMD_AVX512);
    config->io_engine = draw_chance(draw, 50) ? ZR_IO_AUTO : ZR_IO_THREADS;
    config->io_block_bytes = (uint32_t)(4096 * draw_power(draw, 0, 4));
    config->io_depth = draw_u32(draw, 1, 8);
    config->nvme_verify = draw_chance(draw, 70);
    config->nvme_path_count = draw_u32(draw, 1, 2);
    for (uint32_t i = 0; i < config->nvme_path_count; i++)
        snprintf(config->nvme_path[i], sizeof config->nvme_path[i], "%s", folders[i]);
    draw_budgets(script, config);
}

/* -- running ------------------------------------------------------------------------------------------------------- */

static void read_values(const struct script *script, struct zr_job *job, struct outcome *outcome)
{
    static const enum zr_plane_view views[] = { ZR_VIEW_WEIGHT, ZR_VIEW_MASTER, ZR_VIEW_M, ZR_VIEW_V,
                                                ZR_VIEW_GRADIENT };
    struct zr_error err = { 0 };
    const struct zr_model *model = zr_job_model(job);
    for (uint32_t unit = 0; unit < model->unit_count; unit++)
        outcome->value_count += model->units[unit].elements * ZR_COUNT(views);
    float *at = outcome->values = calloc(outcome->value_count, sizeof *outcome->values);
    for (size_t view = 0; view < ZR_COUNT(views); view++)
        for (uint32_t unit = 0; unit < model->unit_count; at += model->units[unit].elements, unit++)
            if (zr_job_read(job, views[view], unit, 0, at, model->units[unit].elements, &err))
                broken(script, "reading", err.text);
}

static void run_script(const struct script *script, const struct zr_config *config, struct outcome *outcome)
{
    struct zr_error err = { 0 };
    struct zr_engine *engine = NULL;
    struct zr_job *job = NULL;
    struct zr_step_result result;
    *outcome = (struct outcome){ 0 };
    if (zr_engine_open(config, &engine, &err) || zr_job_open(engine, "case", config, &script->dims, NULL, &job, &err))
        broken(script, "opening", err.text);
    for (int i = 0; i < SUBMISSIONS; i++)
        if (zr_job_step(job, script->submissions[i].kind, &script->submissions[i].batch, NULL, 0, NULL,
                        &outcome->results[i], &err))
            broken(script, "a step", err.text);
    outcome->logits_count = (uint64_t)script->picked_count * script->dims.vocabulary;
    outcome->logits = calloc(outcome->logits_count + 1, sizeof *outcome->logits);
    if (zr_job_step(job, ZR_STEP_LOGITS, &script->submissions[0].batch, script->picked, script->picked_count,
                    outcome->logits, &result, &err) ||
        zr_job_flush(job, &err))
        broken(script, "logits", err.text);
    read_values(script, job, outcome);

    struct zr_job_facts facts;
    zr_job_facts(job, &facts);
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        if (facts.tier_used[tier] > facts.tier_budget[tier]) broken(script, "over budget", zr_tier_name(tier));
    zr_job_close(job);
    zr_engine_close(engine);
}

static void outcome_fini(struct outcome *outcome)
{
    free(outcome->logits);
    free(outcome->values);
}

static uint64_t bits(double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

static void describe(const struct zr_config *config, char text[256])
{
    static const char *const places[] = { "none", "cpu", "nvme" };
    snprintf(text, 256,
             "optimizer %s, param %s, planes %u, prefetch %u, chunk %llu, device %llu, threads %u and %u, simd %d, "
             "io %d, %u bytes, depth %u, %u paths",
             places[config->optimizer_device], places[config->param_device], config->nvme_planes, config->prefetch,
             (unsigned long long)config->update_chunk, (unsigned long long)config->device_bytes,
             config->compute_threads, config->optimizer_threads, config->simd, config->io_engine,
             config->io_block_bytes, config->io_depth, config->nvme_path_count);
}

static void compare(const struct script *script, const struct zr_config *config, const struct outcome *plain,
                    const struct outcome *other)
{
    char what[256];
    describe(config, what);
    for (int i = 0; i < SUBMISSIONS; i++) {
        const struct zr_step_result *a = &plain->results[i], *b = &other->results[i];
        if (bits(a->loss) != bits(b->loss)) broken(script, "the loss differs", what);
        if (!isnan(a->grad_norm) && bits(a->grad_norm) != bits(b->grad_norm)) broken(script, "the norm differs", what);
        if (a->applied != b->applied || a->step != b->step || a->trained_tokens != b->trained_tokens)
            broken(script, "the counts differ", what);
    }
    if (memcmp(plain->logits, other->logits, plain->logits_count * sizeof(float)) != 0)
        broken(script, "logits differ", what);
    if (plain->value_count != other->value_count ||
        memcmp(plain->values, other->values, plain->value_count * sizeof(float)) != 0)
        broken(script, "weights, states or gradients differ", what);
}

/* Steps must change weights and nothing may be inf or nan: else equal outcomes would say little. */
static void check_alive(const struct script *script, const struct outcome *plain, uint32_t *applied)
{
    for (uint64_t i = 0; i < plain->value_count; i++)
        if (!isfinite(plain->values[i])) broken(script, "not a number", "in the plainest placement");
    for (int i = 0; i < SUBMISSIONS; i++)
        *applied += plain->results[i].applied;
}

static const char base_text[] =
    "sequence_length: 8\ntrain_micro_batch_size_per_gpu: 1\ngradient_accumulation_steps: 1\n"
    "optimizer: {type: AdamW, params: {lr: 1.0e-2, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1}}\n"
    "zerod: {device: {backend: cpu, memory: 1GiB}, host: {memory: 1GiB}, compute: {threads: 1}, "
    "optimizer: {threads: 1}, prefetch: 1, nvme: {allow_buffered: true}}\n";

static void placement_threads_and_prefetch_change_no_bit(void **state)
{
    (void)state;
    static struct zr_config base, plain_config, config;
    struct zr_config_report *report = NULL;
    struct zr_error err = { 0 };
    char folder[2][TEMP_PATH_BYTES];
    const char *folders[2] = { folder[0], folder[1] };
    temp_make(folder[0]);
    temp_make(folder[1]);
    if (zr_config_read_text("base.yaml", base_text, sizeof base_text - 1, NULL, 0, &base, &report, &err))
        fail_msg("%s", err.text);
    zr_config_report_free(report);

    uint32_t applied = 0;
    for (uint64_t number = 0; number < CASES; number++) {
        struct script script;
        struct outcome plain, other;
        plain_config = base;
        draw_script(&script, number, &plain_config);
        run_script(&script, &plain_config, &plain);
        check_alive(&script, &plain, &applied);
        for (int placement = 0; placement < PLACEMENTS; placement++) {
            config = plain_config;
            draw_placement(&script, &config, folders);
            run_script(&script, &config, &other);
            compare(&script, &config, &plain, &other);
            outcome_fini(&other);
        }
        outcome_fini(&plain);
        script_fini(&script);
    }
    temp_remove(folder[0]);
    temp_remove(folder[1]);
    print_message("  seed %u: %d cases in %d placements each, %u updates\n", SEED, CASES, PLACEMENTS, applied);
    assert_true(applied >= 2 * CASES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placement_threads_and_prefetch_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
