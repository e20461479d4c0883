/* step.c: one submission
 *
 *     batch ──► schedule (with the update that the step before left pending) ──► loss, norm ──► the next pending update
 *
 * The loss is the sum of token losses over the labels that count, divided by their number over the whole update, however
 * it was cut (gradients are sums until the optimizer divides them). The update is lazy: it runs on the CPU while the next
 * step's forward pass already computes, unit by unit, just ahead of it. It is never started before the norm is known, with
 * clipping or without, since a step whose gradients are not finite must change nothing. */
#include "engine/base/clock.h"
#include "engine/run/job.h"
#include "engine/run/rates.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>

static enum zr_code check_kind(const struct zr_job *job, enum zr_step_kind kind, struct zr_error *err)
{
    if (job->failed)
        return zr_fail(err, ZR_EIO, "job '%s' failed at step %llu and can only be closed", job->name,
                       (unsigned long long)job->facts.step);
    bool sums_rounded = job->plan->wishes.grad_bf16 && job->plan->wishes.split && !job->plan->wishes.accumulate;
    if (kind == ZR_STEP_ACCUMULATE && sums_rounded)
        return zr_fail(err, ZR_EINPUT,
                       "gradients cannot be accumulated over submissions while they are kept in bf16: "
                       "set data_types.grad_accum_dtype to fp32");
    return ZR_OK;
}

enum zr_code zr_job_flush(struct zr_job *job, struct zr_error *err)
{
    if (job->failed) return zr_fail(err, ZR_EIO, "job '%s' failed and can only be closed", job->name);
    if (!job->update.pending) return ZR_OK;
    enum zr_code code = zr_job_run(job, &(struct zr_schedule_request){ .pass = ZR_PASS_FLUSH, .update = true }, err);
    job->update.pending = false;
    return code;
}

/* The optimizer's numbers from the sums that came back; *ret_norm is the norm before clipping. */
static void decide_update(struct zr_job *job, uint64_t trained, double *ret_norm, bool *ret_applied)
{
    const double *sums = zr_job_at(job, job->plan->sums_host);
    double squares = 0;
    for (uint32_t unit = 0; unit < job->model->unit_count; unit++)
        squares += sums[1 + unit];
    double norm = trained ? sqrt(squares) / (double)trained : 0;
    *ret_norm = norm;
    *ret_applied = trained > 0 && isfinite(norm);
    if (!*ret_applied) return;

    double clip = 1;
    if (job->config.gradient_clipping > 0) clip = fmin(1, job->config.gradient_clipping / (norm + 1e-6));
    uint64_t number = job->facts.step + 1;
    job->update = (struct zr_update){ .pending = true,
                                      .number = number,
                                      .lr = zr_rate(&job->config, number, job->facts.max_steps),
                                      .beta1 = zr_rate_beta1(&job->config, number),
                                      .beta2 = zr_rate_beta2(&job->config),
                                      .grad_scale = clip / (double)trained };
}

static void note(struct zr_job *job, enum zr_step_kind kind, const struct zr_step_result *result)
{
    pthread_mutex_lock(&job->facts_lock);
    if (kind == ZR_STEP_TRAIN) {
        if (result->applied)
            job->facts.step++;
        else
            job->facts.skipped_steps++;
        job->facts.last_loss = result->loss;
        job->facts.last_grad_norm = result->grad_norm;
        job->facts.last_learning_rate = result->learning_rate;
        job->facts.last_run_ns = result->run_ns;
        job->facts.tokens_seen += result->tokens;
        job->facts.trained_tokens_seen += result->trained_tokens;
    }
    pthread_mutex_unlock(&job->facts_lock);
}

enum zr_code zr_job_step(struct zr_job *job, enum zr_step_kind kind, const struct zr_batch *batch,
                         const uint32_t *positions, uint32_t position_count, float *logits,
                         struct zr_step_result *ret_result, struct zr_error *err)
{
    const uint64_t began = zr_now_ns();
    const bool train = kind == ZR_STEP_TRAIN || kind == ZR_STEP_ACCUMULATE;
    uint64_t trained;
    enum zr_code code;
    if ((code = check_kind(job, kind, err)) ||
        (code = zr_job_take_batch(job, kind, batch, positions, position_count, &trained, err)))
        return code;
    if (!train && (code = zr_job_flush(job, err))) return code;

    job->logits = logits;
    struct zr_schedule_request request = { .pass = train                  ? ZR_PASS_TRAIN
                                                   : kind == ZR_STEP_EVAL ? ZR_PASS_EVAL
                                                                          : ZR_PASS_LOGITS,
                                           .micro_count = job->micro_count,
                                           .update = train && job->update.pending,
                                           .accumulate = train && job->accumulating };
    if ((code = zr_job_run(job, &request, err))) return code;
    if (train) job->update.pending = false;

    const double *sums = zr_job_at(job, job->plan->sums_host);
    struct zr_step_result result = { .tokens = (uint64_t)batch->rows * batch->row_tokens,
                                     .trained_tokens = trained,
                                     .micro_batches = job->micro_count,
                                     .grad_norm = NAN };
    if (train) {
        job->accumulated_trained += trained;
        job->accumulated_tokens += result.tokens;
        job->accumulated_loss += sums[0];
        job->accumulating = kind == ZR_STEP_ACCUMULATE;
    }
    result.loss = trained ? sums[0] / (double)trained : 0;
    if (kind == ZR_STEP_TRAIN) {
        result.tokens = job->accumulated_tokens;
        result.trained_tokens = job->accumulated_trained;
        result.loss = result.trained_tokens ? job->accumulated_loss / (double)result.trained_tokens : 0;
        decide_update(job, job->accumulated_trained, &result.grad_norm, &result.applied);
        if (result.applied) result.learning_rate = job->update.lr;
        job->accumulated_trained = job->accumulated_tokens = 0;
        job->accumulated_loss = 0;
    }
    result.run_ns = zr_now_ns() - began;
    note(job, kind, &result);
    result.step = job->facts.step;
    *ret_result = result;
    return ZR_OK;
}

enum zr_code zr_job_set_max_steps(struct zr_job *job, uint64_t max_steps, struct zr_error *err)
{
    if (max_steps != 0 && max_steps < job->facts.step)
        return zr_fail(err, ZR_EINPUT, "%" PRIu64 " steps: %" PRIu64 " are done already", max_steps, job->facts.step);
    pthread_mutex_lock(&job->facts_lock);
    job->facts.max_steps = max_steps;
    pthread_mutex_unlock(&job->facts_lock);
    return ZR_OK;
}
