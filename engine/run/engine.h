/* engine.h: the only door that serve, tools and tests need: an engine owns the process's device; jobs live on it
 *
 *   E1  All functions are called by one thread at a time (the turn keeper of engine/serve); zr_job_facts() and
 *       zr_job_progress() by any thread.
 *   E2  zr_job_step() blocks until the step is done. It allocates nothing once a batch shape has been seen.
 *   E3  A failed step (ZR_EIO, ZR_EFULL, ZR_EGONE) leaves the job failed: only closing is allowed, and the text says at
 *       which whole step it stopped. ZR_EINPUT changes nothing. */
#ifndef ZR_RUN_ENGINE_H
#define ZR_RUN_ENGINE_H

#include "config/config.h"
#include "engine/base/text.h"
#include "engine/base/trace.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"

struct zr_engine;
struct zr_job;

/* Looks at the backend that the config asks for and keeps the trace. No job memory is taken yet. */
ZR_MUST_CHECK enum zr_code zr_engine_open(const struct zr_config *config, struct zr_engine **ret_engine,
                                          struct zr_error *err);
void zr_engine_close(struct zr_engine *engine); /* jobs are closed first; NULL is fine */
const char *zr_engine_describe(const struct zr_engine *engine);
struct zr_trace *zr_engine_trace(struct zr_engine *engine);

/* Writes what zr_hf_load would read: implemented by engine/store, handed in so that run need not know files. */
struct zr_weights {
    /* Streams every tensor into the job: calls sink(sink_context, unit, offset, values, count). NULL: random weights. */
    enum zr_code (*load)(void *context, const struct zr_model *model,
                         enum zr_code (*sink)(void *, uint32_t, uint64_t, const float *, uint64_t, struct zr_error *),
                         void *sink_context, struct zr_error *err);
    void *context;
};

/* Opens a job: plans it, takes its memory, fills in the weights. `config` is copied.
 * ZR_EFULL   does not fit: the tier, the bytes that are missing, and what would make it fit
 * ZR_ECONFIG what the config asks for cannot be done (fp16, a stage without its offload ...) */
ZR_MUST_CHECK enum zr_code zr_job_open(struct zr_engine *engine, const char *name, const struct zr_config *config,
                                       const struct zr_dims *dims, const struct zr_weights *weights,
                                       struct zr_job **ret_job, struct zr_error *err);
void zr_job_close(struct zr_job *job); /* NULL is fine */

/* Plan alone, as zr_job_open() would make it: for `plan` and --check. The caller's: zr_plan_free(), zr_model_free(). */
ZR_MUST_CHECK enum zr_code zr_job_plan_only(const struct zr_config *config, const struct zr_dims *dims,
                                            struct zr_model **ret_model, struct zr_plan **ret_plan,
                                            struct zr_error *err);

struct zr_batch {
    uint32_t rows, row_tokens;
    const int32_t *tokens;           /* rows*row_tokens, each in [0, vocabulary) */
    const int32_t *labels;           /* or NULL: the tokens themselves, shifted */
    bool shifted;                    /* labels[t] is already what follows token t */
    const uint32_t *document_starts; /* or NULL: every row is a document */
    uint32_t document_count;
};

enum zr_step_kind { ZR_STEP_TRAIN, ZR_STEP_ACCUMULATE, ZR_STEP_EVAL, ZR_STEP_LOGITS };

struct zr_step_result {
    uint64_t step; /* optimizer updates applied so far */
    double loss, grad_norm, learning_rate;
    uint64_t tokens, trained_tokens;
    uint32_t micro_batches;
    bool applied;
    uint64_t run_ns;
};

/* Checks the batch (every bad value is named with its row and the limit: ZR_EINPUT), runs it. For LOGITS: `positions`
 * (`position_count` indices into the flat batch) and `logits` (position_count, vocabulary); else NULL. */
ZR_MUST_CHECK enum zr_code zr_job_step(struct zr_job *job, enum zr_step_kind kind, const struct zr_batch *batch,
                                       const uint32_t *positions, uint32_t position_count, float *logits,
                                       struct zr_step_result *ret_result, struct zr_error *err);

/* Applies what is pending, so that weights and states are those of the last step. */
ZR_MUST_CHECK enum zr_code zr_job_flush(struct zr_job *job, struct zr_error *err);

/* Planes of the flat layout as fp32 values, after a flush. GRADIENT: the sum over tokens of the last backward pass.
 * MASTER: the fp32 master weight; WEIGHT: what compute uses. */
enum zr_plane_view { ZR_VIEW_WEIGHT, ZR_VIEW_MASTER, ZR_VIEW_M, ZR_VIEW_V, ZR_VIEW_GRADIENT };
ZR_MUST_CHECK enum zr_code zr_job_read(struct zr_job *job, enum zr_plane_view view, uint32_t unit, uint64_t offset,
                                       float *ret_values, uint64_t count, struct zr_error *err);

enum zr_code zr_job_set_max_steps(struct zr_job *job, uint64_t max_steps, struct zr_error *err);

const char *zr_job_name(const struct zr_job *job);
const struct zr_model *zr_job_model(const struct zr_job *job);
const struct zr_plan *zr_job_plan(const struct zr_job *job);
const struct zr_config *zr_job_config(const struct zr_job *job);

/* Numbers that status, metrics and the progress bar show. Any thread. */
struct zr_job_facts {
    uint64_t step, tokens_seen, trained_tokens_seen, skipped_steps, max_steps;
    double last_loss, last_grad_norm, last_learning_rate;
    uint64_t last_run_ns;
    uint64_t tier_used[3], tier_budget[3]; /* device, host, nvme: planned (= allocated) and budget bytes */
    uint64_t nvme_read_bytes, nvme_written_bytes, up_bytes, down_bytes; /* moved since open */
    uint64_t queue_busy_ns[ZR_QUEUE_COUNT];                             /* of the last step */
    char bound_by[16];  /* the queue that was busiest in the last step */
    char io_engine[16]; /* "io_uring", "threads" or "" */
    char warning[512];  /* of the NVMe tier, or "" */
    bool failed;
};
void zr_job_facts(struct zr_job *job, struct zr_job_facts *ret_facts);

#endif
