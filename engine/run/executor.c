/* executor.c: issues a schedule: each op to its queue, each wait to its timeline
 *
 *   X1  One thread issues the whole list in its order and never waits for work, only for room in a queue. An op waits for
 *       earlier ops alone (S3), so a full queue always drains.
 *   X2  Position p of a queue is value base + p of the queue's timeline. Only ops that somebody waits for signal, and the
 *       last one of each queue.
 *   X3  After a failure queued work is skipped but signals fire (D4), so the end of the step is always reached. */
#include "engine/run/job.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool same_request(const struct zr_schedule_request *a, const struct zr_schedule_request *b)
{
    return a->pass == b->pass && a->micro_count == b->micro_count && a->update == b->update &&
           a->accumulate == b->accumulate;
}

static void mark_signals(struct zr_tape *tape)
{
    const struct zr_schedule *schedule = tape->schedule;
    uint32_t *index[ZR_QUEUE_COUNT];
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
        index[queue] = calloc(schedule->queue_length[queue] + 1u, sizeof(uint32_t));
        assert(index[queue]);
    }
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct zr_op_entry *op = &schedule->ops[i];
        index[op->queue][op->sequence] = i;
        tape->queue_bytes[op->queue] += op->bytes;
        tape->signals[i] = op->sequence == schedule->queue_length[op->queue];
        for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
            if (op->wait[queue]) tape->signals[index[queue][op->wait[queue]]] = true;
    }
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
        free(index[queue]);
}

/* The tape of a request; built when it is asked for the first time. */
static enum zr_code find_tape(struct zr_job *job, const struct zr_schedule_request *request,
                              const struct zr_tape **ret_tape, struct zr_error *err)
{
    for (uint32_t i = 0; i < job->tape_count; i++)
        if (same_request(&job->tapes[i].schedule->request, request)) {
            *ret_tape = &job->tapes[i];
            return ZR_OK;
        }
    if (job->tape_count == ZR_SCHEDULES_MAX) { /* odd batch sizes come and go: forget the newest odd one */
        job->tape_count--;
        zr_schedule_free(job->tapes[job->tape_count].schedule);
        free(job->tapes[job->tape_count].signals);
    }
    struct zr_tape tape = { 0 };
    enum zr_code code = zr_schedule_make(job->plan, request, &tape.schedule, err);
    if (!code) code = zr_schedule_verify(tape.schedule, err);
    if (!code) {
        tape.signals = calloc(tape.schedule->op_count + 1u, sizeof *tape.signals);
        if (!tape.signals) code = zr_fail(err, ZR_EFULL, "no memory for a schedule");
    }
    if (code) {
        zr_schedule_free(tape.schedule);
        return code;
    }
    mark_signals(&tape);
    job->tapes[job->tape_count] = tape;
    *ret_tape = &job->tapes[job->tape_count++];
    return ZR_OK;
}

void zr_tapes_free(struct zr_job *job)
{
    while (job->tape_count > 0) {
        job->tape_count--;
        zr_schedule_free(job->tapes[job->tape_count].schedule);
        free(job->tapes[job->tape_count].signals);
    }
}

static bool is_io(enum zr_queue queue)
{
    return queue == ZR_QUEUE_READ || queue == ZR_QUEUE_WRITE;
}

static void issue(struct zr_job *job, const struct zr_tape *tape, uint32_t index)
{
    const struct zr_op_entry *op = &tape->schedule->ops[index];
    struct zr_stream *stream = job->streams[op->queue];
    struct zr_nvme_queue *io = is_io(op->queue) ? job->io[op->queue - ZR_QUEUE_READ] : NULL;

    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
        if (op->wait[queue] == 0) continue;
        uint64_t value = job->base[queue] + op->wait[queue];
        if (io)
            zr_nvme_queue_wait(io, job->timelines[queue], value);
        else
            zr_stream_wait(stream, job->timelines[queue], value);
    }
    if (!io)
        zr_stream_mark(stream, &(struct zr_event_record){ .name = job->engine->step_name[op->kind],
                                                          .step = (uint32_t)job->facts.step,
                                                          .unit = op->unit,
                                                          .micro = op->micro,
                                                          .bytes = op->bytes });
    zr_job_issue(job, tape->schedule, op);
    if (!io) zr_stream_mark(stream, &(struct zr_event_record){ .name = UINT32_MAX });
    if (!tape->signals[index]) return;
    uint64_t value = job->base[op->queue] + op->sequence;
    if (io)
        zr_nvme_queue_signal(io, job->timelines[op->queue], value);
    else
        zr_stream_signal(stream, job->timelines[op->queue], value);
}

enum zr_code zr_job_run(struct zr_job *job, const struct zr_schedule_request *request, struct zr_error *err)
{
    const struct zr_tape *tape;
    enum zr_code code = find_tape(job, request, &tape, err);
    if (code) return code;

    for (uint32_t i = 0; i < tape->schedule->op_count; i++)
        issue(job, tape, i);
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
        job->base[queue] += tape->schedule->queue_length[queue];
        if (tape->schedule->queue_length[queue]) zr_timeline_wait(job->timelines[queue], job->base[queue]);
    }
    pthread_mutex_lock(&job->facts_lock);
    job->facts.up_bytes += tape->queue_bytes[ZR_QUEUE_H2D];
    job->facts.down_bytes += tape->queue_bytes[ZR_QUEUE_D2H];
    pthread_mutex_unlock(&job->facts_lock);

    if ((code = zr_device_failure(job->device, err)) || (code = zr_device_failure(job->host_device, err))) {
        job->failed = true;
        return zr_fail_in(err, code, "job '%s' stopped at step %llu", job->name, (unsigned long long)job->facts.step);
    }
    return ZR_OK;
}
