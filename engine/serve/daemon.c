/* daemon.c: start, event loop, stop */
#include "engine/serve/daemon.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "ipc/wait.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* What an event is about: kind in the low byte, place in the session table above it. */
#define DEAF_NS 1000000000u

enum event_kind { ON_DOOR, ON_STOP, ON_WORKER, ON_SESSION, ON_PROCESS };

static bool watch(const struct zr_daemon *daemon, int fd, uint32_t events, enum event_kind kind, uint32_t place)
{
    struct epoll_event event = { .events = events, .data.u64 = kind | (uint64_t)place << 8 };
    return epoll_ctl(daemon->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* -- sessions ------------------------------------------------------------------------------------------------------ */

/* Without this the loop would be told about the waiting client again and again, and could do nothing. */
static void set_door_deaf(struct zr_daemon *daemon, bool deaf)
{
    struct epoll_event event = { .events = deaf ? 0 : EPOLLIN, .data.u64 = ON_DOOR };
    if (daemon->door_open && epoll_ctl(daemon->epoll, EPOLL_CTL_MOD, daemon->door.socket, &event) == 0)
        daemon->door_deaf = deaf;
}

static void forget_session(struct zr_daemon *daemon, uint32_t place)
{
    struct zr_session *session = daemon->sessions[place];
    daemon->sessions[place] = NULL;
    epoll_ctl(daemon->epoll, EPOLL_CTL_DEL, session->socket, NULL);
    if (session->pidfd >= 0) epoll_ctl(daemon->epoll, EPOLL_CTL_DEL, session->pidfd, NULL);
    zr_turns_nudge(&daemon->turns);
    zr_session_release(session);
    if (daemon->door_deaf) set_door_deaf(daemon, false);
}

static void close_session(struct zr_daemon *daemon, uint32_t place, const char *why)
{
    struct zr_session *session = daemon->sessions[place];
    char quoted[256];
    bool detached = session->state == ZR_SESSION_DETACHED;
    zr_log(ZR_LOG_INFO, "session_closed", "session=%" PRIu64 " pid=%d submissions=%" PRIu64 " why=%s", session->id,
           (int)session->pid, atomic_load(&session->submissions), zr_log_quote(quoted, sizeof quoted, why));
    if (!detached) {
        atomic_store(&session->closed, true);
        shutdown(session->socket, SHUT_RDWR);
    }
    forget_session(daemon, place);
}

static void accept_one(struct zr_daemon *daemon, int socket)
{
    uint32_t place = 0;
    while (place < ZR_SESSIONS_MAX && daemon->sessions[place])
        place++;
    struct zr_session *session = zr_session_make(socket, ++daemon->session_number);
    if (!session) return;
    if (place == ZR_SESSIONS_MAX) {
        daemon->sessions_refused++;
        zr_session_last_word(session, ZRP_ERROR, ZRP_EFULL, "64 clients are attached, which is all that fits");
        zr_session_release(session);
        return;
    }
    daemon->sessions[place] = session;
    if (!watch(daemon, socket, EPOLLIN | EPOLLRDHUP, ON_SESSION, place) ||
        (session->pidfd >= 0 && !watch(daemon, session->pidfd, EPOLLIN, ON_PROCESS, place)))
        close_session(daemon, place, "no memory");
}

static void accept_all(struct zr_daemon *daemon)
{
    for (;;) {
        int socket = accept4(daemon->door.socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0)
            accept_one(daemon, socket);
        else if (errno != EINTR && errno != ECONNABORTED) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                zr_log(ZR_LOG_ERROR, "no_descriptors", "errno=%d", errno);
                set_door_deaf(daemon, true);
            }
            return;
        }
    }
}

static enum zrp_status greet(struct zr_daemon *daemon, struct zr_session *session, struct zrp_message *message,
                             struct zrp_why *why)
{
    if (session->state == ZR_SESSION_GREETING) {
        if (message->header.type == ZRP_HELLO) return zr_session_greet(session, message, why);
        enum zrp_status status = zrp_fail(why, ZRP_EPROTOCOL, "a connection begins with HELLO");
        zr_session_last_word(session, ZRP_ERROR, status, why->text);
        return status;
    }
    if (message->header.type != ZRP_READY) return zrp_fail(why, ZRP_EPROTOCOL, "READY comes after WELCOME");
    if (!zr_turns_add(&daemon->turns, session)) {
        zr_session_last_word(session, ZRP_ERROR, ZRP_EFULL, "too many clients left with unfinished work: try later");
        return zrp_fail(why, ZRP_EFULL, "too many sessions drain");
    }
    session->state = ZR_SESSION_ACTIVE;
    daemon->sessions_opened++;
    char quoted[2 * ZRP_NAME_BYTES];
    zr_log(ZR_LOG_INFO, "session_opened", "session=%" PRIu64 " pid=%d uid=%u name=%s", session->id, (int)session->pid,
           (unsigned)session->uid, zr_log_quote(quoted, sizeof quoted, session->name));
    return ZRP_OK;
}

/* Everything that lies in the session's socket; a hang-up is seen after the messages before it. */
static void serve_session(struct zr_daemon *daemon, uint32_t place, struct zrp_message *message)
{
    struct zr_session *session = daemon->sessions[place];
    for (;;) {
        struct zrp_why why = { 0 };
        enum zrp_status status = zrp_receive(session->socket, message, false, &why);
        if (status == ZRP_ETIME) return;
        if (status == ZRP_OK) {
            status = session->state < ZR_SESSION_ACTIVE ? greet(daemon, session, message, &why)
                                                        : zr_request(daemon, session, message, &why);
            zrp_message_close_fds(message);
        } else if (status == ZRP_EPROTOCOL) {
            atomic_fetch_add(&daemon->turns.violations, 1);
            zr_session_last_word(session, ZRP_ERROR, status, why.text);
        }
        if (status != ZRP_OK) {
            close_session(daemon, place, session->state == ZR_SESSION_DETACHED ? "detached" : why.text);
            return;
        }
    }
}

/* The only times that this loop ever waits for: the handshakes' limit, and a retry while the door is deaf. -1: none. */
static int milliseconds_to_deadline(const struct zr_daemon *daemon)
{
    uint64_t now_ns = zr_now_ns(), first_ns = UINT64_MAX;
    for (uint32_t i = 0; i < ZR_SESSIONS_MAX; i++) {
        const struct zr_session *session = daemon->sessions[i];
        if (session && session->state < ZR_SESSION_ACTIVE && session->deadline_ns < first_ns)
            first_ns = session->deadline_ns;
    }
    if (daemon->door_deaf && now_ns + DEAF_NS < first_ns) first_ns = now_ns + DEAF_NS;
    if (first_ns == UINT64_MAX) return -1;
    return first_ns <= now_ns ? 0 : (int)((first_ns - now_ns) / 1000000u) + 1;
}

static void close_late(struct zr_daemon *daemon)
{
    uint64_t now_ns = zr_now_ns();
    for (uint32_t i = 0; i < ZR_SESSIONS_MAX; i++) {
        struct zr_session *session = daemon->sessions[i];
        if (session && session->state < ZR_SESSION_ACTIVE && session->deadline_ns <= now_ns) {
            zr_session_last_word(session, ZRP_ERROR, ZRP_ETIME, "the handshake took longer than 2 s");
            close_session(daemon, i, "slow handshake");
        }
    }
}

/* -- the loop ------------------------------------------------------------------------------------------------------ */

static void begin_to_stop(struct zr_daemon *daemon)
{
    if (!daemon->door_open) return;
    zr_notify("STOPPING=1");
    zr_log(ZR_LOG_INFO, "stopping", "socket=%s", daemon->door.path);
    epoll_ctl(daemon->epoll, EPOLL_CTL_DEL, daemon->door.socket, NULL);
    epoll_ctl(daemon->epoll, EPOLL_CTL_DEL, daemon->stop_nudge, NULL);
    zr_listen_close(&daemon->door);
    daemon->door_open = false;
    zr_turns_stop(&daemon->turns);
}

static bool has_ended(int pidfd)
{
    struct pollfd process = { .fd = pidfd, .events = POLLIN };
    return poll(&process, 1, 0) == 1;
}

static void handle(struct zr_daemon *daemon, const struct epoll_event *event, struct zrp_message *message)
{
    uint32_t place = (uint32_t)(event->data.u64 >> 8);
    switch ((enum event_kind)(event->data.u64 & 0xff)) {
    case ON_DOOR:
        if (daemon->door_open) accept_all(daemon);
        break;
    case ON_STOP:
        begin_to_stop(daemon);
        break;
    case ON_WORKER: /* stopped: the loop's condition */
        break;
    case ON_SESSION:
        if (daemon->sessions[place]) serve_session(daemon, place, message);
        break;
    case ON_PROCESS: /* asked again: the place may have a new tenant since the event was made */
        if (daemon->sessions[place] && daemon->sessions[place]->pidfd >= 0 &&
            has_ended(daemon->sessions[place]->pidfd)) {
            serve_session(daemon, place, message); /* it may have said DETACH before */
            if (daemon->sessions[place]) close_session(daemon, place, "the client's process ended");
        }
        break;
    }
}

void zr_daemon_loop(struct zr_daemon *daemon)
{
    struct zrp_message *message = malloc(sizeof *message);
    zr_notify("READY=1");
    while (message && !atomic_load(&daemon->turns.stopped)) {
        struct epoll_event events[32];
        int count = epoll_wait(daemon->epoll, events, ZR_COUNT(events), milliseconds_to_deadline(daemon));
        for (int i = 0; i < count; i++)
            handle(daemon, events + i, message);
        close_late(daemon);
        if (count == 0 && daemon->door_deaf) set_door_deaf(daemon, false);
    }
    free(message);
    begin_to_stop(daemon);
    zr_turns_stop(&daemon->turns);
    for (uint32_t i = 0; i < ZR_SESSIONS_MAX; i++) {
        if (!daemon->sessions[i]) continue;
        zr_session_last_word(daemon->sessions[i], ZRP_GOODBYE, ZRP_EGONE,
                             "the daemon is stopping: connect again when it is back, then open the job by its name");
        close_session(daemon, i, "stopping");
    }
}

void zr_daemon_stop(struct zr_daemon *daemon)
{
    atomic_store(&daemon->stopping, true);
    zrp_nudge(daemon->stop_nudge);
}

static enum zr_code open_all(struct zr_daemon *daemon, struct zr_error *err)
{
    enum zr_code code;
    daemon->epoll = epoll_create1(EPOLL_CLOEXEC);
    daemon->stop_nudge = zrp_nudge_make();
    if (daemon->epoll < 0 || daemon->stop_nudge < 0)
        return zr_fail(err, ZR_EFULL, "no descriptors: %s", strerror(errno));
    if ((code = zr_listen_open(daemon->base->config->socket, &daemon->door, err))) return code;
    daemon->door_open = true;
    if ((code = zr_engine_open(daemon->base->config, &daemon->engine, err))) return code;
    zr_jobs_init(&daemon->jobs, daemon->engine, daemon->base, &daemon->stopping);
    daemon->turns_started = true;
    if ((code = zr_turns_start(&daemon->turns, &daemon->jobs, err))) return code;
    if (!watch(daemon, daemon->door.socket, EPOLLIN, ON_DOOR, 0) ||
        !watch(daemon, daemon->stop_nudge, EPOLLIN, ON_STOP, 0) ||
        !watch(daemon, daemon->turns.done, EPOLLIN, ON_WORKER, 0))
        return zr_fail(err, ZR_EFULL, "no memory");
    return ZR_OK;
}

enum zr_code zr_daemon_open(struct zr_daemon *daemon, const struct zr_base_config *base, struct zr_error *err)
{
    *daemon = (struct zr_daemon){
        .base = base, .epoll = -1, .stop_nudge = -1, .door = { .socket = -1, .lock = -1 }, .started_ns = zr_now_ns()
    };
    enum zr_code code = open_all(daemon, err);
    if (code != ZR_OK) zr_daemon_close(daemon);
    return code;
}

void zr_daemon_close(struct zr_daemon *daemon)
{
    if (daemon->turns_started) {
        zr_turns_finish(&daemon->turns);
        zr_jobs_fini(&daemon->jobs);
    }
    zr_engine_close(daemon->engine);
    zr_listen_close(&daemon->door);
    int *fds[] = { &daemon->epoll, &daemon->stop_nudge };
    for (size_t i = 0; i < ZR_COUNT(fds); i++) {
        if (*fds[i] >= 0) close(*fds[i]);
        *fds[i] = -1;
    }
    daemon->engine = NULL;
    daemon->turns_started = false;
}
