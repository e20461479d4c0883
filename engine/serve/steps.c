/* steps.c: one submission: look up its job, check the copy, copy the batch, run it */
#include "engine/base/log.h"
#include "engine/serve/jobs.h"
#include "ipc/wait.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct zr_attachment *attachment_of(const struct zr_session *session, uint32_t job)
{
    for (uint32_t i = 0; job && i < ZR_JOBS_MAX; i++)
        if (session->attached[i].job == job) return session->attached + i;
    return NULL;
}

/* J3: from here on the client's memory is not looked at again. */
static struct zr_batch copy_batch(struct zr_open_job *open, const struct zr_session *session, const struct zrp_sqe *sqe)
{
    size_t tokens = (size_t)sqe->rows * sqe->row_tokens;
    struct zr_batch batch = { .rows = sqe->rows, .row_tokens = sqe->row_tokens, .tokens = open->tokens };
    memcpy(open->tokens, session->slab + (size_t)sqe->tokens_line * ZRP_LINE, tokens * 4);
    if (sqe->flags & (ZRP_SQE_LABELS | ZRP_SQE_TARGETS)) {
        memcpy(open->labels, session->slab + (size_t)sqe->labels_line * ZRP_LINE, tokens * 4);
        batch.labels = open->labels;
        batch.shifted = sqe->flags & ZRP_SQE_TARGETS;
    }
    if (sqe->flags & ZRP_SQE_DOCUMENTS) {
        memcpy(open->documents, session->slab + (size_t)sqe->documents_line * ZRP_LINE,
               (size_t)sqe->document_count * 4);
        batch.document_starts = open->documents;
        batch.document_count = sqe->document_count;
    }
    if (sqe->op == ZRP_LOGITS)
        memcpy(open->positions, session->slab + (size_t)sqe->extra_line * ZRP_LINE, (size_t)sqe->position_count * 4);
    return batch;
}

static enum zr_code make_logits_room(struct zr_open_job *open, const struct zrp_sqe *sqe, struct zr_error *err)
{
    uint64_t count = (uint64_t)sqe->position_count * open->bounds.vocabulary; /* fits in the slab: checked */
    if (count <= open->logits_room) return ZR_OK;
    float *logits = realloc(open->logits, count * sizeof *logits);
    if (!logits) return zr_fail(err, ZR_EFULL, "no memory for logits of %u positions", sqe->position_count);
    open->logits = logits;
    open->logits_room = count;
    return ZR_OK;
}

/* DeepSpeed's steps_per_print, in updates, never in micro-batches. */
static void log_step(struct zr_open_job *open, const struct zr_step_result *result)
{
    uint32_t every = zr_job_config(open->job)->steps_per_print;
    if (every == 0 || !result->applied || result->step % every) return;
    struct zr_job_facts facts;
    zr_job_facts(open->job, &facts);
    zr_log(ZR_LOG_INFO, "step",
           "job=%s step=%" PRIu64 " micro_batches=%u loss=%.6g learning_rate=%.6g grad_norm=%.6g skipped=%" PRIu64
           " tokens=%" PRIu64,
           open->name, result->step, result->micro_batches, result->loss, result->learning_rate, result->grad_norm,
           facts.skipped_steps, result->tokens);
}

static enum zr_code run(struct zr_open_job *open, const struct zr_session *session, const struct zrp_sqe *sqe,
                        struct zrp_cqe *cqe, struct zr_error *err)
{
    static const enum zr_step_kind kinds[ZRP_OP_COUNT] = { [ZRP_TRAIN] = ZR_STEP_TRAIN,
                                                           [ZRP_ACCUMULATE] = ZR_STEP_ACCUMULATE,
                                                           [ZRP_EVAL] = ZR_STEP_EVAL,
                                                           [ZRP_LOGITS] = ZR_STEP_LOGITS };
    bool logits = sqe->op == ZRP_LOGITS;
    struct zr_step_result result = { 0 };
    enum zr_code code = logits ? make_logits_room(open, sqe, err) : ZR_OK;
    if (code != ZR_OK) return code;
    struct zr_batch batch = copy_batch(open, session, sqe);
    code = zr_job_step(open->job, kinds[sqe->op], &batch, logits ? open->positions : NULL,
                       logits ? sqe->position_count : 0, logits ? open->logits : NULL, &result, err);
    if (code != ZR_OK) return code;
    if (logits)
        memcpy((unsigned char *)session->up_area.at + session->layout.slab_offset + zrp_logits_offset(sqe),
               open->logits, (size_t)sqe->position_count * open->bounds.vocabulary * sizeof *open->logits);
    cqe->applied = result.applied;
    cqe->step = result.step;
    cqe->loss = result.loss;
    cqe->grad_norm = result.grad_norm;
    cqe->learning_rate = result.learning_rate;
    cqe->tokens = result.tokens;
    cqe->trained_tokens = result.trained_tokens;
    cqe->micro_batches = result.micro_batches;
    cqe->run_ns = result.run_ns;
    atomic_store_explicit(&open->last_tokens, result.tokens, memory_order_relaxed);
    if (sqe->op == ZRP_TRAIN) log_step(open, &result);
    return ZR_OK;
}

static enum zrp_status refuse(struct zrp_cqe *cqe, char sentence[ZRP_SENTENCE], enum zrp_status status,
                              const char *text)
{
    cqe->status = status;
    snprintf(sentence, ZRP_SENTENCE, "%.*s", (int)ZRP_SENTENCE - 1, text);
    return status;
}

enum zrp_status zr_jobs_step(struct zr_jobs *jobs, struct zr_session *session, const struct zrp_sqe *sqe,
                             uint64_t now_ns, struct zrp_cqe *cqe, char sentence[ZRP_SENTENCE])
{
    *cqe = (struct zrp_cqe){ .ticket = sqe->ticket };
    if (sqe->submit_ns && sqe->submit_ns < now_ns) cqe->queue_ns = now_ns - sqe->submit_ns;

    struct zrp_why why = { 0 };
    enum zrp_status status;
    struct zr_open_job *open = NULL;
    struct zrp_bounds bounds = { 0 };
    if (sqe->op != ZRP_NOP && sqe->op < ZRP_OP_COUNT) {
        const struct zr_attachment *attachment = attachment_of(session, sqe->job);
        if (!attachment)
            return refuse(cqe, sentence, ZRP_EINPUT, "this client is not attached to that job: open it first");
        if (attachment->observer)
            return refuse(cqe, sentence, ZRP_EACCESS, "the job was opened to observe: it takes no submissions");
        open = zr_jobs_find(jobs, sqe->job, session->uid, &status, &why);
        if (!open) return refuse(cqe, sentence, status, why.text);
        bounds = open->bounds;
        bounds.slab_bytes = session->layout.slab_bytes;
    }
    status = zrp_check_sqe(sqe, &bounds, &why);
    if (status != ZRP_OK || sqe->op == ZRP_NOP)
        return status == ZRP_OK ? ZRP_OK : refuse(cqe, sentence, status, why.text);

    struct zr_error err = { 0 };
    enum zr_code code = run(open, session, sqe, cqe, &err);
    if (code == ZR_OK) return ZRP_OK;
    if (code != ZR_EINPUT) {
        char quoted[512];
        zr_log(ZR_LOG_ERROR, "step_failed", "job=%s code=%s text=%s", open->name, zr_code_name(code),
               zr_log_quote(quoted, sizeof quoted, err.text));
    }
    return refuse(cqe, sentence, zr_status_of(code), err.text);
}
