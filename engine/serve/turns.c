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
enum { RINGS_MOST = 64 };

/* -- the worker's sessions ----------------------------------------------------------------------------------------- */

static void adopt(struct zr_turns *turns, struct zr_session *session)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = session };
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
        memcpy(to, sentence, strnlen(sentence, ZRP_SENTENCE - 1));
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

static bool task_is_due(const struct zr_session *session)
{
    const struct zr_task *task = atomic_load_explicit(&session->task, memory_order_acquire);
    return task && (int32_t)(session->sq.mine - task->barrier) >= 0;
}

/* A request that was put aside, once the submissions before it are done (T3). */
static bool take_task(struct zr_turns *turns, struct zr_session *session)
{
    if (!task_is_due(session)) return false;
    struct zr_task *task = atomic_load_explicit(&session->task, memory_order_acquire);
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

/* Is there work, in the order of R5 of ipc/ring.h? Also asked while awake. */
static bool something_is_ready(struct zr_turns *turns)
{
    for (uint32_t i = 0; i < turns->session_count; i++) {
        struct zr_session *session = turns->sessions[i];
        if (atomic_load(&session->ended) || atomic_load(&session->closed)) continue;
        int64_t ready = zrp_ring_ready_before_sleep(&session->sq);
        if (ready < 0 || (ready > 0 && (atomic_load(&session->detached) || zrp_ring_room(&session->cq) != 0)))
            return true;
        if (task_is_due(session)) return true;
    }
    return false;
}

/* Who rings once for each sleep never has more than RINGS_MOST rings in the bell, which holds some 200. Who rings more
 * often fills it and is not heard until the next taking: nobody else's loss. */
static void heed(struct zr_turns *turns, const struct epoll_event *event)
{
    struct zr_session *session = event->data.ptr;
    uint64_t nudges;
    if (!session && read(turns->nudge, &nudges, sizeof nudges) < 0 && errno != EAGAIN)
        zr_log(ZR_LOG_ERROR, "nudge", "errno=%d", errno);
    if (session && ++session->rings >= RINGS_MOST) {
        zrp_bell_hush(session->bell);
        session->rings = 0;
    }
}

static void sleep_until_rung(struct zr_turns *turns)
{
    struct epoll_event events[16];
    int count = 0;
    if (++turns->sleep_number == 0) turns->sleep_number = 1;
    for (uint32_t i = 0; i < turns->session_count; i++)
        zrp_sleep_announce_number(&turns->sessions[i]->down->daemon_sleeping, turns->sleep_number);
    if (!something_is_ready(turns)) count = epoll_wait(turns->epoll, events, ZR_COUNT(events), -1);
    for (int i = 0; i < count; i++)
        heed(turns, events + i); /* before anybody looks at what the loop thread's nudge was about */
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
    while (!atomic_load(&turns->stop)) {
        adopt_incoming(turns);
        bool worked = round_of_turns(turns);
        drop_finished(turns);
        if (!worked || !(something_is_ready(turns) || spin(turns))) sleep_until_rung(turns);
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
