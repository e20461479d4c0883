/* daemon.h: start, event loop, stop
 *
 *     main thread (the loop): handshakes, requests that only look, signals        one epoll, no timers
 *     worker thread (turns.h): submissions and requests that need the engine      its own epoll */
#ifndef ZR_SERVE_DAEMON_H
#define ZR_SERVE_DAEMON_H

#include "engine/serve/listen.h"
#include "engine/serve/turns.h"

struct zr_daemon {
    const struct zr_base_config *base;
    struct zr_engine *engine;
    struct zr_jobs jobs;
    struct zr_turns turns;
    struct zr_listen door;
    int epoll, stop_nudge;
    _Atomic bool stopping;
    bool door_open, turns_started;
    bool door_deaf; /* no descriptors were left: nobody is let in until a session ends */

    struct zr_session *sessions[ZR_SESSIONS_MAX];
    uint64_t session_number, sessions_opened, sessions_refused;
    uint64_t started_ns;
};

/* Opens engine and socket. On failure nothing is left open. */
ZR_MUST_CHECK enum zr_code zr_daemon_open(struct zr_daemon *daemon, const struct zr_base_config *base,
                                          struct zr_error *err);

/* Serves until it is told to stop, then says goodbye. */
void zr_daemon_loop(struct zr_daemon *daemon);

/* Any thread, and signal handlers: the running step is finished, then the loop ends. */
void zr_daemon_stop(struct zr_daemon *daemon);

void zr_daemon_close(struct zr_daemon *daemon);

/* request.c: one message of an active session. Not ZRP_OK: close it. */
enum zrp_status zr_request(struct zr_daemon *daemon, struct zr_session *session, struct zrp_message *message,
                           struct zrp_why *why);

/* status.c: JSON objects, appended. The caller holds jobs.lock where a job is given. */
void zr_status_daemon(struct zr_daemon *daemon, struct zr_text *out);
void zr_status_job(struct zr_open_job *open, struct zr_text *out);

/* arguments.c: everything that zerod does when it is run; its exit code. `verbs` ends with a row without name. */
struct zr_verb {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the verb */
    const char *help;
};
int zr_serve_main(int argc, char **argv, const struct zr_verb *verbs);

#endif
