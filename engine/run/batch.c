/* batch.c: a client's batch, checked value by value and laid out for the device
 *
 * The host buffer is one block of int32 arrays (zr_batch_layout): what the device needs crosses in one copy. Targets are
 * made here: the label of the next token of the same document, or what the client shifted itself. A row that ends a
 * micro-batch early (the last micro-batch of an odd batch) is filled up with rows of token 0 that count for nothing. */
#include "engine/run/job.h"
#include <assert.h>
#include <string.h>

#define IGNORED (-1)

struct taker {
    struct zr_job *job;
    const struct zr_batch *batch;
    const struct zr_dims *dims;
    int32_t *tokens, *targets, *positions;
    char *starts;
    struct zr_batch_layout layout;
    uint64_t trained;
};

static enum zr_code check_shape(const struct zr_job *job, const struct zr_batch *batch, struct zr_error *err)
{
    const struct zr_plan *plan = job->plan;
    if (batch->rows == 0 || batch->row_tokens == 0)
        return zr_fail(err, ZR_EINPUT, "an empty batch: %u rows of %u tokens", batch->rows, batch->row_tokens);
    if (job->model->dims.rope.kind == ZR_ROPE_NONE && batch->row_tokens > job->model->dims.max_positions)
        return zr_fail(err, ZR_EINPUT, "rows of %u tokens: the model's position table has %u entries",
                       batch->row_tokens, job->model->dims.max_positions);
    if (batch->row_tokens != plan->row_tokens)
        return zr_fail(err, ZR_EINPUT,
                       "rows of %u tokens: this job was opened with sequence_length %u (pad rows and "
                       "give padding the label -100)",
                       batch->row_tokens, plan->row_tokens);
    if (batch->rows > plan->wishes.rows_per_step)
        return zr_fail(err, ZR_EINPUT, "%u rows in a batch: this job takes at most train_batch_size %u", batch->rows,
                       plan->wishes.rows_per_step);
    return ZR_OK;
}

static enum zr_code check_ids(const struct zr_job *job, const struct zr_batch *batch, struct zr_error *err)
{
    const int64_t vocabulary = job->model->dims.vocabulary;
    const uint64_t count = (uint64_t)batch->rows * batch->row_tokens;
    for (uint64_t i = 0; i < count; i++)
        if (batch->tokens[i] < 0 || batch->tokens[i] >= vocabulary)
            return zr_fail(err, ZR_EINPUT, "token id %d in row %llu, column %llu: ids are 0 to %lld", batch->tokens[i],
                           (unsigned long long)(i / batch->row_tokens), (unsigned long long)(i % batch->row_tokens),
                           (long long)vocabulary - 1);
    for (uint64_t i = 0; batch->labels && i < count; i++)
        if (batch->labels[i] >= vocabulary || (batch->labels[i] < 0 && batch->labels[i] != -100))
            return zr_fail(err, ZR_EINPUT, "label %d in row %llu, column %llu: labels are 0 to %lld, or -100 (ignored)",
                           batch->labels[i], (unsigned long long)(i / batch->row_tokens),
                           (unsigned long long)(i % batch->row_tokens), (long long)vocabulary - 1);
    return ZR_OK;
}

static enum zr_code check_documents(const struct zr_batch *batch, struct zr_error *err)
{
    if (!batch->document_starts) return ZR_OK;
    const uint64_t count = (uint64_t)batch->rows * batch->row_tokens;
    if (batch->document_count == 0 || batch->document_starts[0] != 0)
        return zr_fail(err, ZR_EINPUT, "the first document must start at token 0");
    for (uint32_t i = 1; i < batch->document_count; i++)
        if (batch->document_starts[i] <= batch->document_starts[i - 1] || batch->document_starts[i] >= count)
            return zr_fail(err, ZR_EINPUT,
                           "document %u starts at token %u: starts grow and lie inside the batch of "
                           "%llu tokens",
                           i, batch->document_starts[i], (unsigned long long)count);
    return ZR_OK;
}

/* Targets and positions of the document [first, end) of the batch, written at `at`. */
static void lay_document(struct taker *taker, uint64_t first, uint64_t end, uint64_t at)
{
    const struct zr_batch *batch = taker->batch;
    for (uint64_t i = first; i < end; i++) {
        int32_t target = IGNORED;
        if (batch->labels && batch->shifted)
            target = batch->labels[i];
        else if (i + 1 < end)
            target = batch->labels ? batch->labels[i + 1] : batch->tokens[i + 1];
        if (target < 0) target = IGNORED;
        taker->trained += target >= 0;
        taker->tokens[at + i - first] = batch->tokens[i];
        taker->targets[at + i - first] = target;
        taker->positions[at + i - first] = (int32_t)(i - first);
    }
}

static void lay_padding_row(struct taker *taker, uint64_t at)
{
    for (uint32_t i = 0; i < taker->batch->row_tokens; i++) {
        taker->tokens[at + i] = 0;
        taker->targets[at + i] = IGNORED;
        taker->positions[at + i] = (int32_t)i;
    }
}

static void lay_micro(struct taker *taker, uint32_t micro, uint32_t *next_document)
{
    struct zr_job *job = taker->job;
    const struct zr_batch *batch = taker->batch;
    const uint64_t row_tokens = batch->row_tokens, base = (uint64_t)micro * job->plan->micro_tokens;
    int32_t *starts = (int32_t *)(void *)(taker->starts + micro * taker->layout.starts_stride);
    uint32_t documents = 0;
    for (uint32_t row = 0; row < job->plan->micro_rows; row++) {
        uint64_t batch_row = (uint64_t)micro * job->plan->micro_rows + row, at = base + row * row_tokens;
        if (batch_row >= batch->rows) {
            starts[documents++] = (int32_t)(at - base);
            lay_padding_row(taker, at);
            continue;
        }
        uint64_t begin = batch_row * row_tokens, row_end = begin + row_tokens;
        while (begin < row_end) { /* a row's end always ends a document */
            while (batch->document_starts && *next_document < batch->document_count &&
                   batch->document_starts[*next_document] <= begin)
                (*next_document)++;
            uint64_t end = row_end;
            if (batch->document_starts && *next_document < batch->document_count &&
                batch->document_starts[*next_document] < end)
                end = batch->document_starts[*next_document];
            starts[documents++] = (int32_t)(begin - batch_row * row_tokens + at - base);
            lay_document(taker, begin, end, begin - batch_row * row_tokens + at);
            begin = end;
        }
    }
    starts[documents] = (int32_t)job->plan->micro_tokens;
    job->micro_documents[micro] = documents;
}

/* For logits the targets array carries which rows of each micro-batch are wanted; results come back in the caller's
 * order, so positions must grow. */
static enum zr_code lay_picked(struct taker *taker, const uint32_t *positions, uint32_t count, struct zr_error *err)
{
    struct zr_job *job = taker->job;
    const uint64_t tokens = (uint64_t)taker->batch->rows * taker->batch->row_tokens;
    for (uint32_t micro = 0; micro < job->micro_count; micro++)
        job->micro_picked[micro] = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (positions[i] >= tokens || (i > 0 && positions[i] <= positions[i - 1]))
            return zr_fail(err, ZR_EINPUT, "position %u of %u: positions grow and lie inside the batch of %llu tokens",
                           positions[i], i, (unsigned long long)tokens);
        uint32_t micro = positions[i] / job->plan->micro_tokens;
        if (job->micro_picked[micro] == 0) job->logits_offset[micro] = i;
        taker->targets[(uint64_t)micro * job->plan->micro_tokens + job->micro_picked[micro]++] =
            (int32_t)(positions[i] % job->plan->micro_tokens);
    }
    return ZR_OK;
}

enum zr_code zr_job_take_batch(struct zr_job *job, enum zr_step_kind kind, const struct zr_batch *batch,
                               const uint32_t *positions, uint32_t position_count, uint64_t *ret_trained,
                               struct zr_error *err)
{
    enum zr_code code;
    if ((code = check_shape(job, batch, err)) || (code = check_ids(job, batch, err)) ||
        (code = check_documents(batch, err)))
        return code;

    struct taker taker = { .job = job, .batch = batch, .dims = &job->model->dims };
    zr_batch_layout(job->plan, &taker.layout);
    char *base = zr_job_at(job, job->plan->batch_host);
    taker.tokens = (int32_t *)(void *)(base + taker.layout.tokens);
    taker.targets = (int32_t *)(void *)(base + taker.layout.targets);
    taker.positions = (int32_t *)(void *)(base + taker.layout.positions);
    taker.starts = base + taker.layout.starts;
    job->micro_count = (batch->rows + job->plan->micro_rows - 1) / job->plan->micro_rows;
    uint32_t next_document = 0;
    for (uint32_t micro = 0; micro < job->micro_count; micro++)
        lay_micro(&taker, micro, &next_document);
    *ret_trained = taker.trained;
    if (kind == ZR_STEP_LOGITS) return lay_picked(&taker, positions, position_count, err);
    return ZR_OK;
}
