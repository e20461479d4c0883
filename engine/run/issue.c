/* issue.c: what one op does on its queue */
#include "engine/block/block.h"
#include "engine/device/launch.h"
#include "engine/run/job.h"
#include <assert.h>
#include <string.h>

static uint32_t buffer_of_write(const struct zr_op_entry *op)
{
    for (uint32_t i = 0; i < op->access_count; i++)
        if (op->access[i].write) return op->access[i].buffer;
    assert(!"the op writes nothing");
    return ZR_NO_BUFFER;
}

static uint32_t buffer_of_read(const struct zr_op_entry *op)
{
    assert(op->access_count > 0 && !op->access[0].write);
    return op->access[0].buffer;
}

/* The nth access of an op, in the order in which schedule.c lists them. */
static void *at(const struct zr_job *job, const struct zr_op_entry *op, uint32_t access)
{
    assert(access < op->access_count);
    return zr_job_at(job, op->access[access].buffer);
}

static void copy(struct zr_job *job, const struct zr_op_entry *op)
{
    if (op->bytes == 0) return; /* the data is there already, under another name */
    zr_stream_copy(job->streams[op->queue], zr_job_at(job, buffer_of_write(op)), zr_job_at(job, buffer_of_read(op)),
                   op->bytes);
}

static struct zr_micro micro_of(const struct zr_job *job, uint32_t micro)
{
    struct zr_batch_layout layout;
    zr_batch_layout(job->plan, &layout);
    const char *batch = zr_job_at(job, job->plan->batch_device);
    uint64_t first = (uint64_t)micro * job->plan->micro_tokens * sizeof(int32_t);
    const char *starts = batch + layout.starts + micro * layout.starts_stride;
    return (struct zr_micro){
        .tokens = job->plan->micro_tokens,
        .documents = job->micro_documents[micro],
        .ids = (const int32_t *)(const void *)(batch + layout.tokens + first),
        .targets = (const int32_t *)(const void *)(batch + layout.targets + first),
        .positions = (const int32_t *)(const void *)(batch + layout.positions + first),
        .starts = (const int32_t *)(const void *)starts,
    };
}

/* Type of weights at work and of activations. */
static enum zr_dtype work_dtype(const struct zr_job *job)
{
    return job->plan->machine.element_bytes == 4 ? ZR_F32 : ZR_BF16;
}

static const float *rope_of(const struct zr_job *job)
{
    return job->plan->rope == ZR_NO_BUFFER ? NULL : zr_job_at(job, job->plan->rope);
}

/* An access that names the op's micro-batch work area, gradient and so on follows the fixed ones: their places are those
 * of schedule.c's forward_pass(), backward_pass() and head_pass(). */
static void forward(struct zr_job *job, const struct zr_op_entry *op)
{
    uint32_t next = 3 + (job->plan->rope != ZR_NO_BUFFER);
    struct zr_block_args args = { .model = job->model,
                                  .layout = &job->plan->block_work,
                                  .micro = micro_of(job, op->micro),
                                  .dtype = work_dtype(job),
                                  .layer = op->unit - 1,
                                  .input = at(job, op, 0),
                                  .weights = at(job, op, 1),
                                  .rope = rope_of(job),
                                  .output = at(job, op, next),
                                  .work = at(job, op, next + 1) };
    zr_block_forward(job->streams[ZR_QUEUE_COMPUTE], &args);
}

static void backward(struct zr_job *job, const struct zr_op_entry *op)
{
    uint32_t next = 3 + (job->plan->rope != ZR_NO_BUFFER);
    bool kept = op->unit - 1 + job->plan->kept_blocks >= job->model->dims.layers;
    struct zr_block_args args = { .model = job->model,
                                  .layout = &job->plan->block_work,
                                  .micro = micro_of(job, op->micro),
                                  .dtype = work_dtype(job),
                                  .layer = op->unit - 1,
                                  .input = at(job, op, 0),
                                  .weights = at(job, op, 1),
                                  .rope = rope_of(job),
                                  .dx = at(job, op, next),
                                  .gradients = at(job, op, next + 2),
                                  .work = at(job, op, next + 4) };
    zr_block_backward(job->streams[ZR_QUEUE_COMPUTE], &args, !kept);
}

static void ends(struct zr_job *job, const struct zr_op_entry *op)
{
    const bool tied = job->model->dims.tied;
    struct zr_stream *stream = job->streams[ZR_QUEUE_COMPUTE];
    struct zr_ends_args args = { .model = job->model,
                                 .layout = &job->plan->head_work,
                                 .micro = micro_of(job, op->micro),
                                 .dtype = work_dtype(job),
                                 .loss_chunk = job->plan->loss_chunk,
                                 .work = zr_job_at(job, job->plan->work),
                                 .loss_sum = zr_job_at(job, job->plan->sums) };
    if (op->kind == ZR_EMBED) {
        args.embedding = at(job, op, 0);
        args.output = at(job, op, 2);
        zr_embedding_pass(stream, &args);
        return;
    }
    if (op->kind == ZR_EMBED_BACKWARD) {
        args.dx = at(job, op, 0);
        args.embedding_gradients = at(job, op, 2);
        zr_embedding_pass_backward(stream, &args);
        return;
    }
    args.input = at(job, op, 0);
    args.head = at(job, op, 1);
    if (tied) args.embedding = at(job, op, 2);
    if (op->kind == ZR_LOGITS) {
        const struct zr_micro micro = args.micro;
        zr_head_logits(stream, &args, micro.targets, job->micro_picked[op->micro],
                       job->logits + job->logits_offset[op->micro] * job->model->dims.vocabulary);
        return;
    }
    uint32_t next = 3 + tied + 1 + 2; /* input, weights, batch; work; sums twice */
    bool train = next < op->access_count;
    if (train) {
        args.head_gradients = at(job, op, next);
        if (tied) args.embedding_gradients = at(job, op, next + 2);
        args.dx = at(job, op, op->access_count - 1);
    }
    zr_head_pass(stream, &args, train);
}

static void finish_gradient(struct zr_job *job, const struct zr_op_entry *op)
{
    struct zr_stream *stream = job->streams[ZR_QUEUE_COMPUTE];
    const struct zr_unit_plan *place = &job->plan->units[op->unit];
    uint64_t count = job->model->units[op->unit].elements;
    const void *seen = at(job, op, 0);
    if (!place->grad_f32) {
        void *narrow = at(job, op, 3);
        zr_cast(stream,
                &(struct zr_op_cast){ .out = narrow, .x = seen, .count = count, .from = ZR_F32, .to = ZR_BF16 });
        seen = narrow;
    }
    zr_norm_squared(stream,
                    &(struct zr_op_norm_squared){ .out = (double *)zr_job_at(job, job->plan->sums) + 1 + op->unit,
                                                  .x = seen,
                                                  .count = count,
                                                  .scratch = zr_job_at(job, job->plan->norm_scratch),
                                                  .dtype = place->grad_f32 ? ZR_F32 : ZR_BF16 });
}

/* One run of parameters with one decay. Pointers are to the first element of the chunk (or unit). */
static void update_run(struct zr_job *job, const struct zr_op_entry *op, const struct zr_run *run, uint64_t chunk_first,
                       char *const planes[ZR_PLANE_COUNT], const char *unit_weight, const char *unit_grad)
{
    const struct zr_config *config = &job->config;
    const struct zr_unit_plan *place = &job->plan->units[op->unit];
    const bool split = job->plan->wishes.split;
    uint64_t from_chunk = run->first - chunk_first;
    uint32_t weight_bytes = zr_plane_bytes(job->plan, op->unit, ZR_WEIGHT);
    uint32_t grad_bytes = zr_plane_bytes(job->plan, op->unit, ZR_GRAD);
    struct zr_op_adamw args = {
        .weight = (void *)(unit_weight + run->first * weight_bytes),
        .low = split ? (uint16_t *)(void *)planes[ZR_LOW] + from_chunk : NULL,
        .m = (float *)(void *)planes[ZR_M] + from_chunk,
        .v = (float *)(void *)planes[ZR_V] + from_chunk,
        .grad = unit_grad + run->first * grad_bytes,
        .count = run->count,
        .layout = split ? ZR_LAYOUT_SPLIT : ZR_LAYOUT_FP32,
        .grad_dtype = place->grad_f32 ? ZR_F32 : ZR_BF16,
        .l2 = config->optimizer == ZR_OPTIMIZER_ADAM_L2,
        .grad_scale = (float)job->update.grad_scale,
    };
    zr_adamw_scalars(&args, job->update.lr, job->update.beta1, job->update.beta2, config->eps,
                     run->decays ? config->weight_decay : 0, job->update.number, config->bias_correction);
    zr_adamw(job->streams[op->queue], &args);
}

static void update(struct zr_job *job, const struct zr_op_entry *op)
{
    const struct zr_plan *plan = job->plan;
    const struct zr_unit_plan *place = &plan->units[op->unit];
    char *planes[ZR_PLANE_COUNT] = { NULL };
    uint64_t first = 0;
    uint32_t list = plan->chunk_count + op->unit;
    char *stage = NULL;
    if (op->chunk != ZR_NONE) {
        const struct zr_chunk *chunk = &plan->chunks[op->chunk];
        first = chunk->first;
        list = op->chunk;
        uint32_t last = op->access[op->access_count - 1].buffer; /* the stage, where there is one */
        for (int plane = ZR_LOW; plane <= ZR_V; plane++)
            if (chunk->nvme[plane] != ZR_NO_BUFFER) stage = zr_job_at(job, last);
        for (int plane = ZR_LOW; plane <= ZR_V; plane++)
            if (chunk->nvme[plane] != ZR_NO_BUFFER) planes[plane] = stage + plan->stage_offset[plane];
    }
    for (int plane = ZR_LOW; plane <= ZR_V; plane++)
        if (!planes[plane] && place->home[plane] != ZR_NO_BUFFER)
            planes[plane] = (char *)zr_job_at(job, place->home[plane]) + first * zr_plane_bytes(plan, op->unit, plane);
    const char *weight = zr_job_at(job, buffer_of_read(op));
    const char *grad = zr_job_at(job, place->home[ZR_GRAD]);
    for (uint32_t run = job->first_run[list]; run < job->first_run[list + 1]; run++)
        update_run(job, op, &job->runs[run], first, planes, weight, grad);
}

static void transfer(struct zr_job *job, const struct zr_op_entry *op, uint32_t nvme, void *host)
{
    const struct zr_buffer *buffer = &job->plan->buffers[nvme];
    uint64_t bytes = (buffer->bytes + ZR_NVME_ALIGN - 1) & ~(uint64_t)(ZR_NVME_ALIGN - 1);
    zr_nvme_queue_put(job->io[op->queue - ZR_QUEUE_READ], buffer->offset, host, bytes,
                      &(struct zr_event_record){ .name = job->engine->step_name[op->kind],
                                                 .step = (uint32_t)job->facts.step,
                                                 .unit = op->unit,
                                                 .micro = op->micro,
                                                 .bytes = bytes });
}

static void transfer_states(struct zr_job *job, const struct zr_op_entry *op)
{
    const struct zr_chunk *chunk = &job->plan->chunks[op->chunk];
    char *stage = zr_job_at(job, op->kind == ZR_READ_STATES ? buffer_of_write(op) : buffer_of_read(op));
    for (int plane = ZR_LOW; plane <= ZR_V; plane++)
        if (chunk->nvme[plane] != ZR_NO_BUFFER)
            transfer(job, op, chunk->nvme[plane], stage + job->plan->stage_offset[plane]);
}

void zr_job_issue(struct zr_job *job, const struct zr_schedule *schedule, const struct zr_op_entry *op)
{
    (void)schedule;
    struct zr_stream *stream = job->streams[op->queue];
    switch (op->kind) {
    case ZR_SEND_BATCH:
    case ZR_LOAD_WEIGHT:
    case ZR_SAVE_INPUT:
    case ZR_LOAD_INPUT:
    case ZR_LOAD_GRAD:
    case ZR_SAVE_GRAD:
    case ZR_RETURN_SUMS:
        copy(job, op);
        break;
    case ZR_CLEAR_SUMS:
        zr_fill(stream, &(struct zr_op_fill){ .out = at(job, op, 0), .bytes = zr_sums_bytes(job->model) });
        break;
    case ZR_CLEAR_GRAD:
        zr_fill(stream, &(struct zr_op_fill){ .out = at(job, op, 0), .bytes = op->bytes });
        break;
    case ZR_READ_WEIGHT:
        transfer(job, op, buffer_of_read(op), zr_job_at(job, buffer_of_write(op)));
        break;
    case ZR_WRITE_WEIGHT:
        transfer(job, op, buffer_of_write(op), zr_job_at(job, buffer_of_read(op)));
        break;
    case ZR_READ_STATES:
    case ZR_WRITE_STATES:
        transfer_states(job, op);
        break;
    case ZR_UPDATE:
        update(job, op);
        break;
    case ZR_WIDEN:
        zr_cast(stream, &(struct zr_op_cast){ .out = at(job, op, 1),
                                              .x = at(job, op, 0),
                                              .count = job->model->units[op->unit].elements,
                                              .from = ZR_BF16,
                                              .to = ZR_F32 });
        break;
    case ZR_FORWARD:
        forward(job, op);
        break;
    case ZR_BACKWARD:
        backward(job, op);
        break;
    case ZR_FINISH_GRAD:
        finish_gradient(job, op);
        break;
    case ZR_EMBED:
    case ZR_EMBED_BACKWARD:
    case ZR_HEAD:
    case ZR_LOGITS:
        ends(job, op);
        break;
    case ZR_OP_KIND_COUNT:
        assert(!"not an op");
    }
}
