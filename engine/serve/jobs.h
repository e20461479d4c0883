/* jobs.h: the jobs that are open, and what the worker does to them
 *
 *   J1  The table changes only in the worker, under `lock`; the loop reads it under `lock`. Steps run without it.
 *   J2  A job belongs to the user who opened it; the daemon's own user and root may do everything.
 *   J3  A batch is copied into buffers of the job's own before anything in it is looked at: the client may go on writing. */
#ifndef ZR_SERVE_JOBS_H
#define ZR_SERVE_JOBS_H

#include "engine/run/engine.h"
#include "engine/serve/session.h"
#include "ipc/check.h"
#include <pthread.h>

/* What the daemon was started with: jobs are configured from the same text, with their settings over it. */
struct zr_base_config {
    const char *name; /* the file, for messages */
    const char *text;
    size_t bytes;
    const char *const *sets;
    uint32_t set_count;
    const struct zr_config *config;
};

struct zr_open_job {
    uint32_t id; /* 0: free. Differs from each earlier one of the same place */
    uid_t uid;
    char name[64];
    struct zr_job *job;
    struct zrp_bounds bounds; /* slab_bytes is the session's, filled in per submission */
    uint64_t opened_ns;
    _Atomic uint64_t last_tokens;

    /* J3; the worker's */
    int32_t *tokens, *labels;
    uint32_t *documents, *positions;
    float *logits;
    uint64_t logits_room;
};

struct zr_jobs {
    pthread_mutex_t lock;
    struct zr_open_job places[ZR_JOBS_MAX];
    uint32_t generation;
    struct zr_engine *engine;
    const struct zr_base_config *base;
    const _Atomic bool *stopping; /* ends a long load */
};

void zr_jobs_init(struct zr_jobs *jobs, struct zr_engine *engine, const struct zr_base_config *base,
                  const _Atomic bool *stopping);
void zr_jobs_fini(struct zr_jobs *jobs); /* closes what is open; the worker is gone */

/* The worker's: a request that was put aside; sends its reply. */
void zr_jobs_do(struct zr_jobs *jobs, struct zr_session *session, const struct zr_task *task);

/* The worker's: one submission. Fills the completion and, on failure, the sentence. ZRP_EPROTOCOL: end the session. */
enum zrp_status zr_jobs_step(struct zr_jobs *jobs, struct zr_session *session, const struct zrp_sqe *sqe,
                             uint64_t now_ns, struct zrp_cqe *cqe, char sentence[ZRP_SENTENCE]);

/* Under the lock: the job of that id which `uid` may see. NULL: *ret_status and `why` say it. */
struct zr_open_job *zr_jobs_find(struct zr_jobs *jobs, uint32_t id, uid_t uid, enum zrp_status *ret_status,
                                 struct zrp_why *why);

void zr_jobs_wire_facts(const struct zr_open_job *open, struct zrp_facts *ret_facts);

/* Dimensions of the model that the config names: inline, or by path. ZR_ECONFIG: it names none. */
ZR_MUST_CHECK enum zr_code zr_jobs_dims(const struct zr_config *config, struct zr_dims *ret_dims, struct zr_error *err);

bool zr_trusted(uid_t uid); /* the daemon's own user or root */

#endif
