/* job.h: a job's inside; internal to the run room
 *
 *     job.c       open and close: plan, memory, planes
 *     planes.c    reading and writing planes wherever they live, between steps
 *     batch.c     a batch checked and laid out in the host buffer
 *     executor.c  a schedule issued to the queues
 *     issue.c     what one op does on its queue
 *     step.c      one submission: schedules, loss, norm, the optimizer's numbers */
#ifndef ZR_RUN_JOB_H
#define ZR_RUN_JOB_H

#include "engine/device/device.h"
#include "engine/plan/schedule.h"
#include "engine/run/engine.h"
#include "engine/tier/host.h"
#include "engine/tier/nvme.h"
#include <pthread.h>
#include <stdatomic.h>

struct zr_engine {
    struct zr_config config;
    struct zr_trace *trace;
    char description[256];
    enum zr_device_kind kind;
    struct zr_machine machine;            /* rates; budgets come from each job's config */
    uint32_t step_name[ZR_OP_KIND_COUNT]; /* trace names of op kinds */
};

/* Parameters of one update chunk that share a decay: the tensors' ranges, merged. */
struct zr_run {
    uint64_t first, count; /* elements, from the start of the unit */
    bool decays;
};

/* The optimizer's numbers for the update that is pending. */
struct zr_update {
    bool pending;
    uint64_t number; /* of the update, 1 for the first */
    double lr, beta1, beta2, grad_scale;
};

#define ZR_SCHEDULES_MAX 16

/* A schedule with what the executor needs to know about it. */
struct zr_tape {
    struct zr_schedule *schedule;
    bool *signals;                        /* per op: somebody waits for it, or it is the last of its queue */
    uint64_t queue_bytes[ZR_QUEUE_COUNT]; /* moved by one run */
};

struct zr_job {
    struct zr_engine *engine;
    char name[64];
    struct zr_config config;
    struct zr_model *model;
    struct zr_plan *plan;

    struct zr_device *device;
    struct zr_device *host_device; /* the host's queues: the optimizer's threads; failures of I/O */
    struct zr_host *host;
    struct zr_nvme *nvme;
    struct zr_stream *streams[ZR_QUEUE_COUNT]; /* compute, h2d, d2h on the device; cpu on the host device */
    struct zr_nvme_queue *io[2];               /* read, write */
    struct zr_timeline *timelines[ZR_QUEUE_COUNT];
    uint64_t base[ZR_QUEUE_COUNT]; /* timeline value at the start of the step */
    void *bounce;                  /* for planes on nvme, between steps */

    struct zr_run *runs;
    uint32_t *first_run; /* per chunk, then per unit for updates on the device; one more than their number */

    struct zr_tape tapes[ZR_SCHEDULES_MAX];
    uint32_t tape_count;

    struct zr_update update;
    uint64_t accumulated_trained, accumulated_tokens; /* of ZR_STEP_ACCUMULATE submissions since the last update */
    double accumulated_loss;
    bool accumulating;

    /* of the submission at work */
    uint32_t micro_count, *micro_documents, *micro_picked;
    float *logits;
    uint64_t *logits_offset; /* per micro-batch, in rows */

    pthread_mutex_t facts_lock; /* guards facts */
    struct zr_job_facts facts;
    struct zr_event_record *records; /* scratch of zr_job_facts() */
    bool failed;
};

/* Address of a buffer of the device or host tier. */
void *zr_job_at(const struct zr_job *job, uint32_t buffer);

/* batch.c: checks everything, then fills the host batch buffer and micro_*. *ret_trained: labels that count. */
ZR_MUST_CHECK enum zr_code zr_job_take_batch(struct zr_job *job, enum zr_step_kind kind, const struct zr_batch *batch,
                                             const uint32_t *positions, uint32_t position_count, uint64_t *ret_trained,
                                             struct zr_error *err);

/* executor.c: builds (once per request) and runs a schedule; returns when all queues are idle. */
ZR_MUST_CHECK enum zr_code zr_job_run(struct zr_job *job, const struct zr_schedule_request *request,
                                      struct zr_error *err);
void zr_tapes_free(struct zr_job *job);

/* issue.c: queues what the op does on its queue. */
void zr_job_issue(struct zr_job *job, const struct zr_schedule *schedule, const struct zr_op_entry *op);

/* planes.c: elements [first, first + count) of a plane, as stored (zr_plane_bytes each), between steps. */
ZR_MUST_CHECK enum zr_code zr_plane_put(struct zr_job *job, uint32_t unit, enum zr_plane plane, uint64_t first,
                                        uint64_t count, const void *from, struct zr_error *err);
ZR_MUST_CHECK enum zr_code zr_plane_get(struct zr_job *job, uint32_t unit, enum zr_plane plane, uint64_t first,
                                        uint64_t count, void *to, struct zr_error *err);

/* Copies the homes of resident units to the device: after weights were put. */
ZR_MUST_CHECK enum zr_code zr_planes_refresh(struct zr_job *job, struct zr_error *err);

/* planes.c: the sink of loading: fp32 values into the weight planes. `context` is the job. */
enum zr_code zr_job_take_weights(void *context, uint32_t unit, uint64_t offset, const float *values, uint64_t count,
                                 struct zr_error *err);

#define ZR_JOB_RECORDS 4096
#define ZR_BOUNCE_BYTES (1u << 20)

#endif
