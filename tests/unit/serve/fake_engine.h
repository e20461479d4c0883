/* fake_engine.h: an engine that computes nothing, so that sessions can be tested alone
 *
 * A step's loss is the mean of the tokens that count, steps are counted, ids are checked as the engine does. Definitions
 * are weak: where a room's archive is linked for another reason, its own functions win. */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include "engine/run/engine.h"
#include "engine/store/hf_dir.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FAKE __attribute__((weak))

enum { FAKE_VOCABULARY = 257, FAKE_ROWS = 8, FAKE_ROW_TOKENS = 128, FAKE_WEIGHTS = 16 };

static struct {
    _Atomic uint32_t step_ms;   /* how long a step takes */
    _Atomic uint32_t open_ms;   /* how long opening takes */
    _Atomic bool fail_next;     /* the next step ends in ZR_EIO */
    _Atomic uint32_t jobs_open; /* to find what was not closed */
    _Atomic uint32_t running;   /* E1: never more than 1 */
} fake;

struct zr_engine {
    struct zr_trace *trace;
};

struct zr_job {
    char name[64];
    struct zr_config config;
    struct zr_model model;
    struct zr_plan plan;
    _Atomic uint64_t step, tokens, max_steps, run_ns;
    _Atomic bool failed;
    bool pending;
};

static void fake_sleep(uint32_t ms)
{
    struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };
    nanosleep(&time, NULL);
}

FAKE enum zr_code zr_engine_open(const struct zr_config *config, struct zr_engine **ret_engine, struct zr_error *err)
{
    (void)config;
    struct zr_engine *engine = calloc(1, sizeof *engine);
    enum zr_code code = zr_trace_make(64, &engine->trace, err);
    *ret_engine = engine;
    return code;
}

FAKE void zr_engine_close(struct zr_engine *engine)
{
    if (!engine) return;
    zr_trace_free(engine->trace);
    free(engine);
}

FAKE const char *zr_engine_describe(const struct zr_engine *engine)
{
    (void)engine;
    return "nothing";
}

FAKE struct zr_trace *zr_engine_trace(struct zr_engine *engine)
{
    return engine->trace;
}

FAKE enum zr_code zr_job_open(struct zr_engine *engine, const char *name, const struct zr_config *config,
                              const struct zr_dims *dims, const struct zr_weights *weights, struct zr_job **ret_job,
                              struct zr_error *err)
{
    (void)engine;
    (void)weights;
    for (uint32_t waited = 0; waited < fake.open_ms; waited++)
        fake_sleep(1);
    if (config->device_bytes == 1 << 20) return zr_fail(err, ZR_EFULL, "device: 1 MiB is there, 3 MiB are missing");
    struct zr_job *job = calloc(1, sizeof *job);
    snprintf(job->name, sizeof job->name, "%s", name);
    job->config = *config;
    job->model.dims = *dims;
    job->model.parameters = 1234;
    job->plan.model = &job->model;
    job->plan.wishes.rows_per_step = FAKE_ROWS;
    job->plan.wishes.row_tokens = FAKE_ROW_TOKENS;
    fake.jobs_open++;
    *ret_job = job;
    return ZR_OK;
}

FAKE void zr_job_close(struct zr_job *job)
{
    if (job) fake.jobs_open--;
    free(job);
}

FAKE enum zr_code zr_job_plan_only(const struct zr_config *config, const struct zr_dims *dims,
                                   struct zr_model **ret_model, struct zr_plan **ret_plan, struct zr_error *err)
{
    (void)config;
    (void)dims;
    (void)ret_model;
    (void)ret_plan;
    return zr_fail(err, ZR_EFULL, "no plan here");
}

FAKE enum zr_code zr_job_step(struct zr_job *job, enum zr_step_kind kind, const struct zr_batch *batch,
                              const uint32_t *positions, uint32_t position_count, float *logits,
                              struct zr_step_result *ret_result, struct zr_error *err)
{
    if (atomic_fetch_add(&fake.running, 1) != 0) abort();
    uint64_t count = (uint64_t)batch->rows * batch->row_tokens, counted = 0;
    double sum = 0;
    enum zr_code code = ZR_OK;
    for (uint64_t i = 0; i < count && code == ZR_OK; i++) {
        int32_t token = batch->tokens[i], label = batch->labels ? batch->labels[i] : token;
        if (token < 0 || token >= FAKE_VOCABULARY || label >= FAKE_VOCABULARY || (label < 0 && label != -100))
            code = zr_fail(err, ZR_EINPUT, "row %llu: id %d is not in [0, %d)",
                           (unsigned long long)(i / batch->row_tokens), token, FAKE_VOCABULARY);
        counted += label != -100;
        sum += label != -100 ? token : 0;
    }
    if (code == ZR_OK && atomic_exchange(&fake.fail_next, false)) {
        job->failed = true;
        code = zr_fail(err, ZR_EIO, "the drive is gone; stopped at step %llu", (unsigned long long)job->step);
    }
    if (code == ZR_OK) {
        fake_sleep(fake.step_ms);
        if (kind == ZR_STEP_TRAIN) job->step++;
        job->tokens += count;
        for (uint32_t i = 0; i < position_count; i++)
            for (uint32_t v = 0; v < FAKE_VOCABULARY; v++)
                logits[i * FAKE_VOCABULARY + v] = (float)positions[i] * 1000 + (float)v;
        *ret_result = (struct zr_step_result){ .step = job->step,
                                               .loss = counted ? sum / (double)counted : 0,
                                               .grad_norm = 1,
                                               .learning_rate = 0.5,
                                               .tokens = count,
                                               .trained_tokens = counted,
                                               .micro_batches = 1,
                                               .applied = kind == ZR_STEP_TRAIN,
                                               .run_ns = 1000000u };
    }
    fake.running--;
    return code;
}

FAKE enum zr_code zr_job_flush(struct zr_job *job, struct zr_error *err)
{
    (void)job;
    (void)err;
    return ZR_OK;
}

FAKE enum zr_code zr_job_read(struct zr_job *job, enum zr_plane_view view, uint32_t unit, uint64_t offset,
                              float *ret_values, uint64_t count, struct zr_error *err)
{
    (void)view;
    (void)unit;
    (void)offset;
    (void)err;
    for (uint64_t i = 0; i < count; i++)
        ret_values[i] = (float)job->step;
    return ZR_OK;
}

FAKE enum zr_code zr_job_set_max_steps(struct zr_job *job, uint64_t max_steps, struct zr_error *err)
{
    if (max_steps > 1000000) return zr_fail(err, ZR_EINPUT, "too many steps");
    job->max_steps = max_steps;
    return ZR_OK;
}

FAKE const char *zr_job_name(const struct zr_job *job)
{
    return job->name;
}

FAKE const struct zr_model *zr_job_model(const struct zr_job *job)
{
    return &job->model;
}

FAKE const struct zr_plan *zr_job_plan(const struct zr_job *job)
{
    return &job->plan;
}

FAKE const struct zr_config *zr_job_config(const struct zr_job *job)
{
    return &job->config;
}

FAKE void zr_job_facts(struct zr_job *job, struct zr_job_facts *ret_facts)
{
    *ret_facts = (struct zr_job_facts){ .step = job->step,
                                        .tokens_seen = job->tokens,
                                        .max_steps = job->max_steps,
                                        .last_run_ns = 1000000u,
                                        .tier_used = { 1, 2, 3 },
                                        .tier_budget = { 10, 20, 30 },
                                        .bound_by = "compute",
                                        .failed = job->failed };
}

FAKE void zr_plan_words(const struct zr_plan *plan, struct zr_text *out)
{
    zr_text_add(out, "rows %u\n", plan->wishes.rows_per_step);
}

FAKE void zr_plan_free(struct zr_plan *plan)
{
    (void)plan;
}

FAKE void zr_model_free(struct zr_model *model)
{
    (void)model;
}

FAKE const char *zr_tier_name(enum zr_tier tier)
{
    return tier == ZR_DEVICE ? "device" : tier == ZR_HOST ? "host" : "nvme";
}

FAKE const char *zr_queue_name(enum zr_queue queue)
{
    static const char *const names[] = { "compute", "h2d", "d2h", "cpu", "nvme read", "nvme write" };
    return names[queue];
}

FAKE enum zr_code zr_dims_read(const char *name, const char *json, uint64_t bytes, struct zr_dims *ret_dims,
                               struct zr_error *err)
{
    (void)name;
    (void)json;
    (void)bytes;
    (void)err;
    *ret_dims = (struct zr_dims){ .vocabulary = FAKE_VOCABULARY };
    return ZR_OK;
}

/* A directory is a model when it holds a file "config.json". */
FAKE enum zr_code zr_hf_read_dims(int directory_fd, const char *name, struct zr_dims *ret_dims, struct zr_error *err)
{
    if (faccessat(directory_fd, "config.json", R_OK, 0) != 0)
        return zr_fail(err, ZR_EINPUT, "%s: no config.json", name);
    return zr_dims_read(name, "", 0, ret_dims, err);
}

FAKE bool zr_hf_has_weights(int directory_fd)
{
    (void)directory_fd;
    return false;
}

FAKE enum zr_code zr_hf_load(int directory_fd, const char *name, const struct zr_model *model, zr_weights_sink *sink,
                             void *context, struct zr_text *warnings, struct zr_error *err)
{
    (void)directory_fd;
    (void)name;
    (void)model;
    (void)sink;
    (void)context;
    (void)warnings;
    return zr_fail(err, ZR_EBUG, "nothing has weights here");
}

/* Writes the first weights as raw floats into "weights". */
FAKE enum zr_code zr_hf_save(int directory_fd, const char *name, const struct zr_hf_save *save, struct zr_error *err)
{
    float values[FAKE_WEIGHTS];
    enum zr_code code = save->source(save->context, 0, 0, values, FAKE_WEIGHTS, err);
    int fd = openat(directory_fd, "weights", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (code == ZR_OK && (fd < 0 || write(fd, values, sizeof values) != sizeof values))
        code = zr_fail(err, ZR_EIO, "%s: cannot write", name);
    if (fd >= 0) close(fd);
    return code;
}

#endif
