/* turns.c: the worker: executes submissions one by one, from each client in turn */
#include "engine/serve/turns.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "ipc/wait.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { SPIN_US = 50, HOT_GAPS = 4 }; /* as in clients/lib/step.c */

/* -- the worker's sessions ----------------------------------------------------------------------------------------- */

static void adopt(struct zr_turns *turns, struct zr_session *session)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = session };
    if (epoll_ctl(turns->epoll, EPOLL_CTL_ADD, session->bell, &event) != 0)
        zr_log(ZR_LOG_ERROR, "no_bell", "session=%" PRIu64 " errno=%d", session->id, errno);
    turns->sessions[turns->session_count++] = session;
}

static void adopt_incoming(struct zr_turns *turns)
{
    if (atomic_load_explicit(&turns->incoming_count, memory_order_relaxed) == 0) return;
    pthread_mutex_lock(&turns->lock);
    for (uint32_t i = 0; i < turns->incoming_count; i++)
        adopt(turns, turns->incoming[i]);
    turns->incoming_count = 0;
    pthread_mutex_unlock(&turns->lock);
}

static void drop(struct zr_turns *turns, uint32_t index)
{
    struct zr_session *session = turns->sessions[index];
    epoll_ctl(turns->epoll, EPOLL_CTL_DEL, session->bell, NULL); /* the client may hold the bell open */
    turns->sessions[index] = turns->sessions[--turns->session_count];
    atomic_fetch_sub(&turns->known, 1);
    zr_session_release(session);
}

/* The peer broke the protocol: its session ends, nothing else does. */
static void end_session(struct zr_turns *turns, struct zr_session *session, const char *text)
{
    char quoted[256];
    atomic_fetch_add(&turns->violations, 1);
    zr_log(ZR_LOG_WARN, "violation", "session=%" PRIu64 " pid=%d uid=%u text=%s", session->id, (int)session->pid,
           (unsigned)session->uid, zr_log_quote(quoted, sizeof quoted, text));
    atomic_store(&session->ended, true);
    zr_session_last_word(session, ZRP_ERROR, ZRP_EPROTOCOL, text); /* the loop thread sees the hang-up */
}

/* -- work ---------------------------------------------------------------------------------------------------------- */

static void complete(struct zr_session *session, const struct zrp_cqe *cqe, const char *sentence)
{
    if (cqe->status) {
        char *to = (char *)session->down_area.at + session->layout.sentence_offset +
                   (size_t)zrp_ring_index(&session->cq) * ZRP_SENTENCE;
        strncpy(to, sentence, ZRP_SENTENCE - 1);
        to[ZRP_SENTENCE - 1] = 0;
    }
    zrp_ring_put(&session->cq, cqe);
    if (zrp_sleeps_take(&session->up->client_sleeping))
        (void)zrp_send(session->socket, ZRP_WAKE, 0, 0, ZRP_OK, NULL, 0, NULL, 0); /* no room: it can read already */
}

/* A submission of the session, if there is one and room for its completion. */
static bool take_submission(struct zr_turns *turns, struct zr_session *session)
{
    int64_t ready = zrp_ring_ready(&session->sq);
    if (ready == 0) return false;
    bool detached = atomic_load(&session->detached); /* nobody reads its completions */
    int64_t room = detached ? 1 : zrp_ring_room(&session->cq);
    if (ready < 0 || room < 0) {
        end_session(turns, session, "a ring index in shared memory is nonsense");
        return true;
    }
    if (room == 0) return false; /* it must take results first; nobody who counts its own submissions gets here */
    struct zrp_sqe sqe;
    struct zrp_cqe cqe;
    char sentence[ZRP_SENTENCE];
    zrp_ring_take(&session->sq, &sqe);
    uint64_t now_ns = zrp_now_ns();
    turns->hot = now_ns - turns->completed_ns < HOT_GAPS * turns->spinner.spin_ns;
    atomic_fetch_add_explicit(&turns->submissions, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&session->submissions, 1, memory_order_relaxed);
    if (zr_jobs_step(turns->jobs, session, &sqe, now_ns, &cqe, sentence) == ZRP_EPROTOCOL)
        end_session(turns, session, sentence);
    else if (!detached)
        complete(session, &cqe, sentence);
    turns->completed_ns = zrp_now_ns();
    return true;
}

/* A request that was put aside, once the submissions before it are done (T3). */
static bool take_task(struct zr_turns *turns, struct zr_session *session)
{
    struct zr_task *task = atomic_load_explicit(&session->task, memory_order_acquire);
    if (!task || (int32_t)(session->sq.mine - task->barrier) < 0) return false;
    atomic_store(&session->task, NULL); /* before the reply: the client's next request may follow it at once */
    zr_jobs_do(turns->jobs, session, task);
    if (task->fd >= 0) close(task->fd);
    free(task);
    return true;
}

static bool take_turn(struct zr_turns *turns, struct zr_session *session)
{
    if (atomic_load(&session->ended)) return false;
    return take_task(turns, session) || take_submission(turns, session);
}

/* One piece of work of each session, beginning with another one each time. */
static bool round_of_turns(struct zr_turns *turns)
{
    bool worked = false;
    for (uint32_t i = 0; i < turns->session_count; i++) {
        if (atomic_load_explicit(&turns->stop, memory_order_relaxed)) return worked;
        struct zr_session *session = turns->sessions[(turns->next + i) % turns->session_count];
        if (!atomic_load_explicit(&session->closed, memory_order_relaxed)) worked |= take_turn(turns, session);
    }
    turns->next = turns->session_count ? (turns->next + 1) % turns->session_count : 0;
    return worked;
}

static void drop_finished(struct zr_turns *turns)
{
    for (uint32_t i = turns->session_count; i-- > 0;) {
        struct zr_session *session = turns->sessions[i];
        bool drained =
            atomic_load(&session->detached) && (zrp_ring_ready(&session->sq) <= 0 || atomic_load(&session->ended));
        if (drained || atomic_load(&session->closed)) drop(turns, i);
    }
}

/* -- sleeping ------------------------------------------------------------------------------------------------------ */

static bool something_is_ready(struct zr_turns *turns)
{
    for (uint32_t i = 0; i < turns->session_count; i++) {
        struct zr_session *session = turns->sessions[i];
        if (atomic_load(&session->ended)) continue;
        int64_t ready = zrp_ring_ready_before_sleep(&session->sq);
        if (ready < 0 || (ready > 0 && zrp_ring_room(&session->cq) != 0)) return true;
    }
    return false;
}

/* Takes the rings of bells, after the work that they rang for: a moment less until the client has its result. None is lost
 * by that, since the rings in memory are looked at once more before sleeping (R5 of ipc/ring.h). */
static void hush(struct zr_turns *turns)
{
    for (int i = 0; i < turns->rung_count; i++) {
        struct zr_session *session = turns->rung[i].data.ptr;
        if (session && !zrp_bell_hush(session->bell)) epoll_ctl(turns->epoll, EPOLL_CTL_DEL, session->bell, NULL);
    }
    turns->rung_count = 0;
}

static void sleep_until_rung(struct zr_turns *turns)
{
    for (uint32_t i = 0; i < turns->session_count; i++)
        zrp_sleep_announce(&turns->sessions[i]->down->daemon_sleeping);
    if (!something_is_ready(turns)) {
        int count = epoll_wait(turns->epoll, turns->rung, ZR_COUNT(turns->rung), -1);
        turns->rung_count = count > 0 ? count : 0;
    }
    for (int i = 0; i < turns->rung_count; i++) {
        uint64_t nudges; /* taken before anybody looks at what they were about */
        if (!turns->rung[i].data.ptr && read(turns->nudge, &nudges, sizeof nudges) < 0 && errno != EAGAIN)
            zr_log(ZR_LOG_ERROR, "nudge", "errno=%d", errno);
    }
    for (uint32_t i = 0; i < turns->session_count; i++)
        zrp_sleep_end(&turns->sessions[i]->down->daemon_sleeping);
}

static bool spin(struct zr_turns *turns)
{
    struct zrp_spin clock = zrp_spinner_begin(&turns->spinner, turns->hot);
    bool found = false;
    while (!found && zrp_spin_on(&clock))
        for (uint32_t i = 0; i < turns->session_count && !found; i++)
            found = zrp_ring_ready(&turns->sessions[i]->sq) != 0 && !atomic_load(&turns->sessions[i]->ended);
    zrp_spinner_end(&turns->spinner, &clock, found);
    return found;
}

static void *work(void *context)
{
    struct zr_turns *turns = context;
    bool worked = false;
    while (!atomic_load(&turns->stop)) {
        adopt_incoming(turns);
        bool before = worked;
        worked = round_of_turns(turns);
        hush(turns);
        drop_finished(turns);
        if (worked || (before && spin(turns))) continue;
        sleep_until_rung(turns);
    }
    atomic_store(&turns->stopped, true);
    zrp_nudge(turns->done);
    return NULL;
}

/* -- from the loop thread ------------------------------------------------------------------------------------------ */

enum zr_code zr_turns_start(struct zr_turns *turns, struct zr_jobs *jobs, struct zr_error *err)
{
    *turns = (struct zr_turns){ .jobs = jobs, .epoll = -1, .nudge = -1, .done = -1 };
    if (zrp_spinning_helps()) turns->spinner.spin_ns = SPIN_US * 1000u;
    pthread_mutex_init(&turns->lock, NULL);
    turns->epoll = epoll_create1(EPOLL_CLOEXEC);
    turns->nudge = zrp_nudge_make();
    turns->done = zrp_nudge_make();
    struct epoll_event event = { .events = EPOLLIN }; /* data.ptr NULL: the nudge */
    if (turns->epoll < 0 || turns->nudge < 0 || turns->done < 0 ||
        epoll_ctl(turns->epoll, EPOLL_CTL_ADD, turns->nudge, &event) != 0)
        return zr_fail(err, ZR_EFULL, "no descriptors for the worker: %s", strerror(errno));

    sigset_t all, before; /* signals are the main thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&turns->thread, NULL, work, turns);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return zr_fail(err, ZR_EFULL, "cannot start the worker thread: %s", strerror(error));
    turns->running = true;
    return ZR_OK;
}

bool zr_turns_add(struct zr_turns *turns, struct zr_session *session)
{
    if (atomic_fetch_add(&turns->known, 1) >= 2 * ZR_SESSIONS_MAX) {
        atomic_fetch_sub(&turns->known, 1);
        return false;
    }
    atomic_fetch_add(&session->references, 1);
    pthread_mutex_lock(&turns->lock);
    turns->incoming[turns->incoming_count++] = session;
    pthread_mutex_unlock(&turns->lock);
    zr_turns_nudge(turns);
    return true;
}

void zr_turns_nudge(struct zr_turns *turns)
{
    zrp_nudge(turns->nudge);
}

void zr_turns_stop(struct zr_turns *turns)
{
    atomic_store(&turns->stop, true);
    zr_turns_nudge(turns);
}

void zr_turns_finish(struct zr_turns *turns)
{
    if (turns->running) {
        zr_turns_stop(turns);
        pthread_join(turns->thread, NULL);
        turns->running = false;
        adopt_incoming(turns);
        while (turns->session_count)
            drop(turns, turns->session_count - 1);
    }
    int *fds[] = { &turns->epoll, &turns->nudge, &turns->done };
    for (size_t i = 0; i < ZR_COUNT(fds); i++) {
        if (*fds[i] >= 0) close(*fds[i]);
        *fds[i] = -1;
    }
    pthread_mutex_destroy(&turns->lock);
}
