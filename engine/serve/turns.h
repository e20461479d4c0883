/* turns.h: the worker: executes submissions one by one, from each client in turn
 *
 *   T1  Only the worker calls the engine (E1 of engine/run/engine.h).
 *   T2  A round takes at most one submission or request of each session; sessions take turns, whole submissions.
 *   T3  A session's requests run after the submissions that it made before them.
 *   T4  Clients wake the worker themselves, by their bells in its epoll: a submission never passes through the loop thread.
 *       Bells are edge-triggered, and rings are taken only now and then: a call less while a client waits for its result.
 *   T5  Where submissions follow results at once, the worker spins for a moment after work; else it sleeps right away.
 *       It never sleeps with a time limit. */
#ifndef ZR_SERVE_TURNS_H
#define ZR_SERVE_TURNS_H

#include "engine/serve/jobs.h"
#include "ipc/wait.h"
#include <sys/epoll.h>

struct zr_turns {
    struct zr_jobs *jobs;
    struct zrp_spinner spinner;
    int epoll, nudge; /* nudge: rung by the loop thread */
    int done;         /* rung by the worker when it has ended */
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* guards incoming */
    struct zr_session *incoming[2 * ZR_SESSIONS_MAX];
    _Atomic uint32_t incoming_count;
    _Atomic uint32_t known; /* incoming and adopted */

    _Atomic bool stop, stopped;
    _Atomic uint64_t submissions, violations;

    /* the worker's */
    struct zr_session *sessions[2 * ZR_SESSIONS_MAX]; /* those that drain count too */
    uint32_t session_count, next;
    uint32_t sleep_number;
    uint64_t completed_ns; /* when the last submission was done */
    bool hot;              /* it had followed the one before at once */
};

ZR_MUST_CHECK enum zr_code zr_turns_start(struct zr_turns *turns, struct zr_jobs *jobs, struct zr_error *err);

/* The loop's: a session is active from now on; its second reference goes along. False: too many still drain. */
bool zr_turns_add(struct zr_turns *turns, struct zr_session *session);

/* The loop's: look at the sessions again (a request was put aside, one was closed). */
void zr_turns_nudge(struct zr_turns *turns);

/* The loop's: the running step is the last one. `stopped` and `done` tell when it has ended. */
void zr_turns_stop(struct zr_turns *turns);

/* Joins the worker and lets all sessions go. Safe on one that never started but was zeroed with descriptors -1. */
void zr_turns_finish(struct zr_turns *turns);

#endif
