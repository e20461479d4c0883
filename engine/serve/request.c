/* request.c: messages of an active session: what only looks is answered here, the rest is put aside for the worker */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/serve/daemon.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_RECORDS = 1 << 16 };

static enum zrp_status reply_sentence(struct zr_session *session, const struct zrp_message *message,
                                      enum zrp_status status, const char *text, struct zrp_why *why)
{
    if (zr_session_reply(session, message->header.type, message->header.seq, status, text, strlen(text))) return ZRP_OK;
    return zrp_fail(why, ZRP_EGONE, "the client does not read its replies");
}

static enum zrp_status reply_text(struct zr_session *session, const struct zrp_message *message, struct zr_text *text,
                                  struct zrp_why *why)
{
    bool sent =
        zr_session_reply_text(session, message->header.type, message->header.seq, zr_text_c(text), text->length);
    zr_text_fini(text);
    return sent ? ZRP_OK : zrp_fail(why, ZRP_EGONE, "the client does not read its replies");
}

/* The worker does it between two steps. */
static enum zrp_status put_aside(struct zr_daemon *daemon, struct zr_session *session, struct zrp_message *message,
                                 struct zrp_why *why)
{
    if (atomic_load(&daemon->stopping))
        return reply_sentence(session, message, ZRP_EGONE, "the daemon is stopping", why);
    if (atomic_load(&session->task))
        return reply_sentence(session, message, ZRP_EFULL, "a request of this client is waiting already", why);
    uint32_t bytes = message->header.size;
    struct zr_task *task = malloc(sizeof *task + bytes + 1);
    if (!task) return reply_sentence(session, message, ZRP_EFULL, "no memory", why);
    *task = (struct zr_task){ .type = message->header.type,
                              .seq = message->header.seq,
                              .barrier = atomic_load_explicit(&session->up->sq_tail, memory_order_acquire),
                              .fd = message->fds[0],
                              .bytes = bytes };
    memcpy(task->body, message->body, bytes);
    task->body[bytes] = 0;
    message->fds[0] = -1;
    atomic_store_explicit(&session->task, task, memory_order_release);
    zr_turns_nudge(&daemon->turns);
    return ZRP_OK;
}

static enum zrp_status about_job(struct zr_daemon *daemon, struct zr_session *session, struct zrp_message *message,
                                 struct zrp_why *why)
{
    struct zrp_job_request request;
    struct zrp_why reason = { 0 };
    struct zr_open_job *open = NULL;
    struct zrp_facts facts;
    struct zr_text text = { 0 };
    enum zrp_status status =
        zrp_check_struct(message->body, message->header.size, &request, sizeof request, sizeof request, &reason);
    pthread_mutex_lock(&daemon->jobs.lock);
    if (status == ZRP_OK) open = zr_jobs_find(&daemon->jobs, request.job, session->uid, &status, &reason);
    if (open && message->header.type == ZRP_JOB_FACTS)
        zr_jobs_wire_facts(open, &facts);
    else if (open)
        zr_status_job(open, &text);
    pthread_mutex_unlock(&daemon->jobs.lock);
    if (!open) return reply_sentence(session, message, status, reason.text, why);
    if (message->header.type == ZRP_JOB_STATUS) return reply_text(session, message, &text, why);
    if (zr_session_reply(session, message->header.type, message->header.seq, ZRP_OK, &facts, sizeof facts))
        return ZRP_OK;
    return zrp_fail(why, ZRP_EGONE, "the client does not read its replies");
}

static enum zrp_status send_trace(struct zr_daemon *daemon, struct zr_session *session, struct zrp_message *message,
                                  struct zrp_why *why)
{
    struct zr_trace *trace = zr_engine_trace(daemon->engine);
    struct zr_event_record *records = malloc(TRACE_RECORDS * sizeof *records);
    if (!records || !trace) {
        free(records);
        return reply_sentence(session, message, ZRP_EFULL, "there is no trace", why);
    }
    struct zr_text text = { 0 };
    uint32_t count = zr_trace_read(trace, records, TRACE_RECORDS);
    zr_chrome_write(trace, records, count, count ? records[0].begin_ns : 0, &text);
    free(records);
    return reply_text(session, message, &text, why);
}

static enum zrp_status stop(struct zr_daemon *daemon, struct zr_session *session, struct zrp_message *message,
                            struct zrp_why *why)
{
    if (!zr_trusted(session->uid))
        return reply_sentence(session, message, ZRP_EACCESS, "only the daemon's own user or root may stop it", why);
    zr_log(ZR_LOG_INFO, "stop_asked", "session=%" PRIu64 " pid=%d uid=%u", session->id, (int)session->pid,
           (unsigned)session->uid);
    enum zrp_status status = reply_sentence(session, message, ZRP_OK, "", why);
    zr_daemon_stop(daemon);
    return status;
}

static enum zrp_status send_status(struct zr_daemon *daemon, struct zr_session *session, struct zrp_message *message,
                                   struct zrp_why *why)
{
    struct zr_text text = { 0 };
    zr_status_daemon(daemon, &text);
    return reply_text(session, message, &text, why);
}

enum zrp_status zr_request(struct zr_daemon *daemon, struct zr_session *session, struct zrp_message *message,
                           struct zrp_why *why)
{
    if (session->state == ZR_SESSION_DETACHED) return zrp_fail(why, ZRP_EPROTOCOL, "a message after DETACH");
    if (message->header.flags || message->header.status)
        return reply_sentence(session, message, ZRP_EINPUT, "a request with flags or a status", why);
    switch ((enum zrp_type)message->header.type) {
    case ZRP_STATUS:
        return send_status(daemon, session, message, why);
    case ZRP_JOB_FACTS:
    case ZRP_JOB_STATUS:
        return about_job(daemon, session, message, why);
    case ZRP_TRACE:
        return send_trace(daemon, session, message, why);
    case ZRP_STOP:
        return stop(daemon, session, message, why);
    case ZRP_JOB_OPEN:
    case ZRP_JOB_CLOSE:
    case ZRP_JOB_SAVE:
    case ZRP_SET_MAX_STEPS:
        return put_aside(daemon, session, message, why);
    case ZRP_DETACH:
        session->state = ZR_SESSION_DETACHED; /* the hang-up follows; the worker drains and lets go */
        atomic_store(&session->detached, true);
        zr_turns_nudge(&daemon->turns);
        return ZRP_OK;
    default: {
        char text[64];
        snprintf(text, sizeof text, "message type %u is not known to this daemon", message->header.type);
        return reply_sentence(session, message, ZRP_EINPUT, text, why);
    }
    }
}
