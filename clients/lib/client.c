/* client.c: attach, detach, requests */
#include "clients/lib/internal.h"
#include "ipc/check.h"
#include "ipc/hello.h"
#include "ipc/wait.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { TIMEOUT_MS = 10000, SPIN_US = 50, RING_ENTRIES = 64 };
#define SLAB_BYTES ((uint64_t)16 << 20)
#define SYSTEM_SOCKET "/run/zerod/zerod.sock"

uint64_t zc_timeout_ns(const struct zc_client *client)
{
    return (uint64_t)client->timeout_ms * 1000000u;
}

/* Counted instead of asking for the process's number at each call, which would be the hot path's only call into the system. */
static _Atomic uint32_t fork_count;

static void count_fork(void)
{
    atomic_fetch_add(&fork_count, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

uint32_t zc_forks(void)
{
    return atomic_load_explicit(&fork_count, memory_order_relaxed);
}

int zc_check_process(const struct zc_client *client)
{
    if (!client) return zc_fail(ZC_EINPUT, "no connection was given (NULL)");
    if (client->forks != zc_forks())
        return zc_fail(ZC_EINPUT, "this connection belongs to the parent process: after fork() connect anew");
    return ZC_OK;
}

int zc_check_owner(const struct zc_client *client)
{
    int code = zc_check_process(client);
    if (code == ZC_OK && client->gone) code = zc_fail(ZC_EGONE, "%s", client->gone_text);
    return code;
}

static void note_gone(struct zc_client *client, const char *text)
{
    if (client->gone) return;
    client->gone = true;
    snprintf(client->gone_text, sizeof client->gone_text, "%.255s", text);
}

/* -- connecting ---------------------------------------------------------------------------------------------------- */

static int try_socket(struct zc_client *client, const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path)
        return zc_fail(ZC_EINPUT, "the socket's path is longer than %zu bytes: %s", sizeof address.sun_path - 1, path);
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return zc_fail(ZC_EFULL, "cannot make a socket: %s", strerror(errno));
    struct timeval limit = { .tv_sec = client->timeout_ms / 1000, .tv_usec = client->timeout_ms % 1000 * 1000 };
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* a full backlog makes connect() wait */
    int result;
    do
        result = connect(fd, (struct sockaddr *)&address, sizeof address);
    while (result < 0 && errno == EINTR);
    if (result < 0) {
        int error = errno;
        close(fd);
        if (error == EACCES || error == EPERM)
            return zc_fail(ZC_EACCESS, "not allowed to connect to %s: its owner or group decides", path);
        return zc_fail(ZC_EGONE, "no daemon at %s (%s): start one with zerod --config FILE", path, strerror(error));
    }
    client->socket = fd;
    free(client->socket_path);
    client->socket_path = strdup(path);
    return client->socket_path ? ZC_OK : zc_fail(ZC_EFULL, "no memory");
}

/* The default places: the system's daemon where it answers, else the user's own. */
static int try_default_sockets(struct zc_client *client)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char path[sizeof((struct sockaddr_un *)0)->sun_path + 32];
    int code = try_socket(client, SYSTEM_SOCKET);
    if (code == ZC_OK) return code;
    if (runtime && *runtime)
        snprintf(path, sizeof path, "%.100s/zerod/zerod.sock", runtime);
    else
        snprintf(path, sizeof path, "/tmp/zerod-%u/zerod.sock", (unsigned)geteuid());
    int second = try_socket(client, path);
    if (second == ZC_EGONE && code == ZC_EGONE)
        return zc_fail(ZC_EGONE, "no daemon at %s or %s: start one with zerod --config FILE", SYSTEM_SOCKET, path);
    return second;
}

static int connect_socket(struct zc_client *client, const char *path)
{
    if (!path || !*path) path = getenv("ZEROD_HOST");
    if (!path || !*path) return try_default_sockets(client);
    if (strncmp(path, "unix://", 7) == 0)
        path += 7;
    else if (strstr(path, "://"))
        return zc_fail(ZC_EINPUT, "%s: only unix:///path or a path is known", path);
    return try_socket(client, path);
}

/* Waits for the next message. A goodbye and a hang-up are noted; wake-ups are passed over. */
static int next_message(struct zc_client *client, uint64_t end_ns)
{
    for (;;) {
        struct zrp_why why = { 0 };
        enum zrp_status status = zrp_receive(client->socket, client->message, false, &why);
        if (status == ZRP_ETIME) {
            uint64_t now_ns = zrp_now_ns();
            if (end_ns != UINT64_MAX && now_ns >= end_ns)
                return zc_fail(ZC_ETIME, "the daemon at %s did not answer within %u ms", client->socket_path,
                               client->timeout_ms);
            zrp_wait_readable(client->socket, end_ns == UINT64_MAX ? UINT64_MAX : end_ns - now_ns);
            continue;
        }
        if (status == ZRP_EGONE)
            note_gone(client, "the daemon went away: connect again, then open the job by its name");
        else if (status != ZRP_OK)
            note_gone(client, why.text);
        else if (client->message->header.type == ZRP_GOODBYE)
            note_gone(client, (const char *)client->message->body);
        else if (client->message->header.type != ZRP_WAKE)
            return ZC_OK;
        if (client->gone) return zc_fail(ZC_EGONE, "%s", client->gone_text);
    }
}

void zc_look_at_socket(struct zc_client *client, bool wait)
{
    struct zrp_why why = { 0 };
    while (!client->gone) {
        enum zrp_status status = zrp_receive(client->socket, client->message, wait, &why);
        if (status == ZRP_ETIME) return;
        if (status == ZRP_EGONE)
            note_gone(client, "the daemon went away: connect again, then open the job by its name");
        else if (status != ZRP_OK)
            note_gone(client, why.text);
        else {
            uint16_t type = client->message->header.type;
            if (type == ZRP_GOODBYE || type == ZRP_ERROR) note_gone(client, (const char *)client->message->body);
            zrp_message_close_fds(client->message); /* else: the late reply of a request that timed out */
        }
        if (wait) return; /* what else there is can wait as well */
    }
}

static int map_areas(struct zc_client *client)
{
    struct zrp_why why = { 0 };
    int *fds = client->message->fds;
    const struct zrp_layout *layout = &client->layout;
    if (client->message->header.fd_count != 3)
        return zc_fail(ZC_EBUG, "the daemon sent %u descriptors instead of 3", client->message->header.fd_count);
    enum zrp_status status = zrp_area_map(&client->down_area, fds[0], layout->down_bytes, false, &why);
    if (status == ZRP_OK) {
        fds[0] = -1;
        status = zrp_area_map(&client->up_area, fds[1], layout->up_bytes, true, &why);
    }
    if (status != ZRP_OK) return zc_fail_status(status, why.text);
    fds[1] = -1;
    client->bell = fds[2];
    fds[2] = -1;

    client->down = client->down_area.at;
    client->up = client->up_area.at;
    client->slab = (unsigned char *)client->up_area.at + layout->slab_offset;
    zrp_ring_init(&client->sq, (char *)client->up_area.at + layout->sqe_offset, sizeof(struct zrp_sqe),
                  layout->ring_entries, &client->down->sq_head, &client->up->sq_tail);
    zrp_ring_init(&client->cq, (char *)client->down_area.at + layout->cqe_offset, sizeof(struct zrp_cqe),
                  layout->ring_entries, &client->up->cq_head, &client->down->cq_tail);
    client->stash = calloc(layout->ring_entries, sizeof *client->stash);
    return client->stash ? ZC_OK : zc_fail(ZC_EFULL, "no memory");
}

static int shake_hands(struct zc_client *client, const char *name, uint32_t ring_entries, uint64_t slab_bytes)
{
    struct zrp_hello hello = zrp_hello_make(name, zc_version(), ring_entries, slab_bytes);
    struct zrp_welcome welcome;
    struct zrp_why why = { 0 };
    enum zrp_status status;
    (void)zrp_send(client->socket, ZRP_HELLO, 0, ++client->seq, ZRP_OK, &hello, sizeof hello, NULL, 0);
    int code = next_message(client, zrp_now_ns() + zc_timeout_ns(client)); /* a daemon that is full says so unasked */
    if (code) return code;
    const struct zrp_header *header = &client->message->header;
    if (header->status || header->type != ZRP_WELCOME)
        code = zc_fail_status(header->status ? header->status : ZRP_EPROTOCOL,
                              header->status ? (const char *)client->message->body : "the daemon did not say welcome");
    else if ((status = zrp_welcome_check(client->message->body, header->size, &hello, &welcome, &client->layout, &why)))
        code = zc_fail_status(status, why.text);
    else
        code = map_areas(client);
    zrp_message_close_fds(client->message);
    if (code == ZC_OK && zrp_send(client->socket, ZRP_READY, 0, ++client->seq, ZRP_OK, NULL, 0, NULL, 0) != ZRP_OK)
        code = zc_fail(ZC_EGONE, "the daemon at %s hung up during the handshake", client->socket_path);
    return code;
}

ZC_EXPORT int zc_connect(const struct zc_connect *options, struct zc_client **ret_client)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct zc_connect asked;
    pthread_once(&once, watch_forks);
    zc_clear();
    int code = zc_copy_in(&asked, sizeof asked, options, "zc_connect");
    if (code) return code;
    struct zc_client *client = calloc(1, sizeof *client);
    if (!client) return zc_fail(ZC_EFULL, "no memory");
    *client = (struct zc_client){ .socket = -1,
                                  .bell = -1,
                                  .poll_fd = -1,
                                  .nudge = -1,
                                  .forks = zc_forks(),
                                  .down_area = { .fd = -1 },
                                  .up_area = { .fd = -1 },
                                  .timeout_ms = asked.timeout_ms ? asked.timeout_ms : TIMEOUT_MS };
    if (zrp_spinning_helps()) client->spinner.spin_ns = (asked.spin_us ? asked.spin_us : SPIN_US) * (uint64_t)1000;
    client->message = malloc(sizeof *client->message);
    if (!client->message) code = zc_fail(ZC_EFULL, "no memory");
    if (code == ZC_OK) code = connect_socket(client, asked.socket);
    if (code == ZC_OK)
        code = shake_hands(client, asked.name ? asked.name : program_invocation_short_name,
                           asked.ring_entries ? asked.ring_entries : RING_ENTRIES,
                           asked.slab_bytes ? asked.slab_bytes : SLAB_BYTES);
    if (code) {
        client->gone = true; /* nothing to detach from */
        zc_close(client);
        return code;
    }
    *ret_client = client;
    return ZC_OK;
}

ZC_EXPORT void zc_close(struct zc_client *client)
{
    if (!client) return;
    if (!client->gone && client->forks == zc_forks())
        (void)zrp_send(client->socket, ZRP_DETACH, 0, ++client->seq, ZRP_OK, NULL, 0, NULL, 0);
    int *fds[] = { &client->socket, &client->bell, &client->poll_fd, &client->nudge };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (*fds[i] >= 0) close(*fds[i]);
    zrp_area_close(&client->down_area);
    zrp_area_close(&client->up_area);
    while (client->jobs) {
        struct zc_job *job = client->jobs;
        client->jobs = job->next;
        free(job);
    }
    free(client->extents);
    free(client->stash);
    free(client->message);
    free(client->socket_path);
    free(client);
}

ZC_EXPORT int zc_fd(struct zc_client *client)
{
    zc_clear();
    int code = zc_check_owner(client);
    if (code) return code;
    if (client->poll_fd >= 0) return client->poll_fd;
    struct epoll_event event = { .events = EPOLLIN };
    client->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (client->nudge < 0 || client->poll_fd < 0 ||
        epoll_ctl(client->poll_fd, EPOLL_CTL_ADD, client->nudge, &event) != 0 ||
        epoll_ctl(client->poll_fd, EPOLL_CTL_ADD, client->socket, &event) != 0) {
        int error = errno;
        if (client->poll_fd >= 0) close(client->poll_fd);
        if (client->nudge >= 0) close(client->nudge);
        client->poll_fd = client->nudge = -1;
        return zc_fail(ZC_EFULL, "cannot make a descriptor: %s", strerror(error));
    }
    zc_arm(client);
    return client->poll_fd;
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

int zc_request(struct zc_client *client, enum zrp_type type, const void *body, size_t bytes, int fd,
               uint64_t timeout_ns)
{
    zc_look_at_socket(client, false); /* makes room, and tells a goodbye from a broken pipe */
    int code = zc_check_owner(client);
    if (code) return code;
    if (bytes > ZRP_BODY_MAX) return zc_fail(ZC_EINPUT, "a request of %zu bytes: %u are possible", bytes, ZRP_BODY_MAX);
    uint32_t seq = ++client->seq;
    enum zrp_status status = zrp_send(client->socket, type, 0, seq, ZRP_OK, body, bytes, &fd, fd >= 0);
    if (status != ZRP_OK) {
        zc_look_at_socket(client, false); /* why, perhaps */
        note_gone(client, "the daemon went away: connect again, then open the job by its name");
        return zc_fail(ZC_EGONE, "%s", client->gone_text);
    }
    uint64_t end_ns = timeout_ns == UINT64_MAX ? UINT64_MAX : zrp_now_ns() + timeout_ns;
    for (;;) {
        if ((code = next_message(client, end_ns))) return code;
        const struct zrp_header *header = &client->message->header;
        if (header->type == ZRP_ERROR) {
            note_gone(client, (const char *)client->message->body);
            return zc_fail_status(header->status, client->gone_text);
        }
        if ((header->flags & ZRP_REPLY) && header->type == type && header->seq == seq) break;
        zrp_message_close_fds(client->message); /* of an earlier request that timed out */
    }
    /* Reading may have swallowed a wake-up that an event loop waits for. */
    if (client->poll_fd >= 0) zc_arm(client);
    if (client->message->header.status) {
        zrp_message_close_fds(client->message);
        return zc_fail_status(client->message->header.status, (const char *)client->message->body);
    }
    return ZC_OK;
}

int zc_reply_text(struct zc_client *client, char **ret_text)
{
    struct zrp_message *message = client->message;
    const char *from = (const char *)message->body;
    uint64_t bytes = message->header.size;
    struct zrp_area area = { .fd = -1 };
    int code = ZC_OK;
    if (message->header.flags & ZRP_BODY_IN_FD) {
        struct zrp_long_body body = { 0 };
        struct zrp_why why = { 0 };
        if (bytes < sizeof body || message->header.fd_count != 1)
            code = zc_fail(ZC_EBUG, "the daemon announced a long answer and sent none");
        else {
            memcpy(&body, message->body, sizeof body);
            enum zrp_status status = zrp_area_map(&area, message->fds[0], body.bytes, false, &why);
            if (status == ZRP_OK)
                message->fds[0] = -1;
            else
                code = zc_fail_status(status, why.text);
            from = area.at;
            bytes = body.bytes;
        }
    }
    if (code == ZC_OK) {
        char *text = malloc(bytes + 1);
        if (text) {
            memcpy(text, from, bytes);
            text[bytes] = 0;
            *ret_text = text;
        } else
            code = zc_fail(ZC_EFULL, "no memory");
    }
    zrp_area_close(&area);
    zrp_message_close_fds(message);
    return code;
}

static int request_text(struct zc_client *client, enum zrp_type type, char **ret_text)
{
    int code = zc_request(client, type, NULL, 0, -1, zc_timeout_ns(client));
    return code ? code : zc_reply_text(client, ret_text);
}

ZC_EXPORT int zc_daemon_status(struct zc_client *client, char **ret_json)
{
    zc_clear();
    int code = zc_check_owner(client);
    return code ? code : request_text(client, ZRP_STATUS, ret_json);
}

ZC_EXPORT int zc_daemon_stop(struct zc_client *client)
{
    zc_clear();
    int code = zc_check_owner(client);
    return code ? code : zc_request(client, ZRP_STOP, NULL, 0, -1, zc_timeout_ns(client));
}

ZC_EXPORT int zc_daemon_trace(struct zc_client *client, const char *path)
{
    zc_clear();
    char *json = NULL;
    int code = zc_check_owner(client);
    if (code || (code = request_text(client, ZRP_TRACE, &json))) return code;
    FILE *file = fopen(path, "we");
    if (!file)
        code = zc_fail(ZC_EINPUT, "%s: %s", path, strerror(errno));
    else {
        bool whole = fputs(json, file) >= 0 && fputc('\n', file) != EOF;
        if (fclose(file) != 0 || !whole) code = zc_fail(ZC_EIO, "%s: %s", path, strerror(errno));
    }
    free(json);
    return code;
}
