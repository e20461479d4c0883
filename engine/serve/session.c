/* session.c: one client: its areas, rings, rights; its death */
#include "engine/serve/session.h"
#include "engine/base/clock.h"
#include "ipc/hello.h"
#include "ipc/wait.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static const struct zrp_limits limits = { .ring_entries_max = ZRP_RING_MAX, .slab_bytes_max = (uint64_t)1 << 32 };

/* Notices the death of a client whose socket lives on in a forked child. Before Linux 6.5 by its number, which is right as
 * long as the peer is there: it was when it connected a moment ago. */
static int open_pidfd(int socket, pid_t pid)
{
    int pidfd = -1;
    socklen_t length = sizeof pidfd;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) return pidfd;
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

struct zr_session *zr_session_make(int socket, uint64_t id)
{
    struct zr_session *session = calloc(1, sizeof *session);
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (!session || getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        free(session);
        close(socket);
        return NULL;
    }
    session->id = id;
    session->socket = socket;
    session->bell = -1;
    session->down_area.fd = session->up_area.fd = -1;
    session->pid = peer.pid;
    session->uid = peer.uid;
    session->pidfd = open_pidfd(socket, peer.pid);
    session->state = ZR_SESSION_GREETING;
    session->deadline_ns = zr_now_ns() + ZR_GREETING_NS;
    session->references = 1;
    return session;
}

void zr_session_release(struct zr_session *session)
{
    if (atomic_fetch_sub(&session->references, 1) > 1) return;
    struct zr_task *task = atomic_exchange(&session->task, NULL);
    if (task && task->fd >= 0) close(task->fd);
    free(task);
    zrp_area_close(&session->down_area);
    zrp_area_close(&session->up_area);
    close(session->socket);
    if (session->pidfd >= 0) close(session->pidfd);
    if (session->bell >= 0) close(session->bell);
    free(session);
}

/* *ret_ringer: the client's end of the bell. */
static enum zrp_status make_areas(struct zr_session *session, int *ret_ringer, struct zrp_why *why)
{
    const struct zrp_layout *layout = &session->layout;
    enum zrp_status status;
    if ((status = zrp_area_make(&session->down_area, ZRP_AREA_DOWN, layout->down_bytes, why)) ||
        (status = zrp_area_make(&session->up_area, ZRP_AREA_UP, layout->up_bytes, why)))
        return status;
    int ends[2];
    if (zrp_bell_make(ends) < 0) return zrp_fail(why, ZRP_EFULL, "no descriptors for a bell: %s", strerror(errno));
    session->bell = ends[0];
    *ret_ringer = ends[1];
    session->down = session->down_area.at;
    session->up = session->up_area.at;
    session->slab = (unsigned char *)session->up_area.at + layout->slab_offset;
    zrp_ring_init(&session->sq, (char *)session->up_area.at + layout->sqe_offset, sizeof(struct zrp_sqe),
                  layout->ring_entries, &session->down->sq_head, &session->up->sq_tail);
    zrp_ring_init(&session->cq, (char *)session->down_area.at + layout->cqe_offset, sizeof(struct zrp_cqe),
                  layout->ring_entries, &session->up->cq_head, &session->down->cq_tail);
    return ZRP_OK;
}

enum zrp_status zr_session_greet(struct zr_session *session, const struct zrp_message *message, struct zrp_why *why)
{
    struct zrp_hello hello;
    struct zrp_welcome welcome;
    int ringer = -1;
    enum zrp_status status =
        zrp_hello_answer(message->body, message->header.size, &limits, &hello, &welcome, &session->layout, why);
    if (status == ZRP_OK) status = make_areas(session, &ringer, why);
    if (status == ZRP_OK) {
        memcpy(session->name, hello.name, sizeof session->name);
        welcome.session = session->id;
        welcome.daemon_pid = (uint32_t)getpid();
        snprintf(welcome.daemon, sizeof welcome.daemon, "zerod %s", ZR_VERSION);
        int fds[] = { session->down_area.fd, session->up_area.fd, ringer };
        status = zrp_send(session->socket, ZRP_WELCOME, ZRP_REPLY, message->header.seq, ZRP_OK, &welcome,
                          sizeof welcome, fds, 3);
        if (status != ZRP_OK) zrp_fail(why, status, "the client went away during the handshake");
    }
    if (status != ZRP_OK) zr_session_last_word(session, ZRP_ERROR, status, why->text);
    /* the mappings stay, their descriptors are the client's now */
    if (session->down_area.fd >= 0) close(session->down_area.fd);
    if (session->up_area.fd >= 0) close(session->up_area.fd);
    if (ringer >= 0) close(ringer);
    session->down_area.fd = session->up_area.fd = -1;
    session->state = ZR_SESSION_GREETED;
    return status;
}

bool zr_session_reply(struct zr_session *session, enum zrp_type type, uint32_t seq, enum zrp_status status,
                      const void *body, size_t bytes)
{
    return zrp_send(session->socket, type, ZRP_REPLY, seq, status, body, bytes, NULL, 0) == ZRP_OK;
}

bool zr_session_reply_text(struct zr_session *session, enum zrp_type type, uint32_t seq, const char *text, size_t bytes)
{
    if (bytes <= ZRP_BODY_MAX) return zr_session_reply(session, type, seq, ZRP_OK, text, bytes);
    struct zrp_area area;
    struct zrp_why why = { 0 };
    struct zrp_long_body body = { .bytes = bytes };
    enum zrp_status status = zrp_area_make_text(&area, text, bytes, &why);
    if (status != ZRP_OK) return zr_session_reply(session, type, seq, status, why.text, strlen(why.text));
    status = zrp_send(session->socket, type, ZRP_REPLY | ZRP_BODY_IN_FD, seq, ZRP_OK, &body, sizeof body, &area.fd, 1);
    zrp_area_close(&area);
    return status == ZRP_OK;
}

void zr_session_last_word(struct zr_session *session, enum zrp_type type, enum zrp_status status, const char *text)
{
    (void)zrp_send(session->socket, type, 0, 0, status, text, strlen(text), NULL, 0);
    shutdown(session->socket, SHUT_RDWR); /* what was sent can still be read */
}

enum zrp_status zr_status_of(enum zr_code code)
{
    static const enum zrp_status table[] = {
        [ZR_OK] = ZRP_OK,   [ZR_EINPUT] = ZRP_EINPUT, [ZR_ECONFIG] = ZRP_ECONFIG, [ZR_EFULL] = ZRP_EFULL,
        [ZR_EIO] = ZRP_EIO, [ZR_EGONE] = ZRP_EGONE,   [ZR_EACCESS] = ZRP_EACCESS, [ZR_EBUG] = ZRP_EBUG,
    };
    return table[code];
}
