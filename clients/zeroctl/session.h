/* session.h: a connection for the time of one verb, to the running daemon or to one of our own
 *
 *   --config FILE   a zerod with that file is started for this run and stopped at its end; it dies with us in any case
 *   otherwise       --host, $ZEROD_HOST or the default sockets
 *
 * The daemon of our own runs in its own process group, so Ctrl-C reaches zeroctl alone. */
#ifndef ZEROCTL_SESSION_H
#define ZEROCTL_SESSION_H

#include "clients/zeroctl/verb.h"
#include <sys/types.h>

struct session {
    struct zc_client *client;
    struct zc_job *job;
    struct zc_job_facts facts;
    pid_t daemon;       /* of our own; 0: none */
    char directory[64]; /* its socket and its log */
};

/* Connects, starting a daemon where --config asks for it. EXIT_NOBODY: none answers. */
int session_open(struct session *session, struct call *call);

/* Opens the job that the options name and asks for its facts. `flags`: ZC_JOB_*. */
int session_job(struct session *session, struct call *call, uint32_t flags);

/* Detaches; a daemon of our own is stopped and waited for. A zeroed or half-opened session is fine. */
void session_close(struct session *session);

/* Path of a program beside zeroctl, else its bare name for $PATH. */
void session_program(const char *name, char *ret_path, size_t room);

#endif
