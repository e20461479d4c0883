/* channel.c: a message with descriptors over a Unix socket */
#include "ipc/channel.h"
#include "ipc/check.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum zrp_status zrp_send(int socket, enum zrp_type type, uint16_t flags, uint32_t seq, enum zrp_status status,
                         const void *body, size_t bytes, const int *fds, uint16_t fd_count)
{
    assert(bytes <= ZRP_BODY_MAX && fd_count <= ZRP_FDS_MAX);
    struct zrp_header header = { .magic = ZRP_MAGIC,
                                 .type = (uint16_t)type,
                                 .flags = flags,
                                 .size = (uint32_t)bytes,
                                 .seq = seq,
                                 .status = (uint32_t)status,
                                 .fd_count = fd_count };
    struct iovec parts[2] = { { .iov_base = &header, .iov_len = sizeof header },
                              { .iov_base = (void *)(uintptr_t)body, .iov_len = bytes } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = bytes ? 2 : 1 };
    union {
        char space[CMSG_SPACE(sizeof(int) * ZRP_FDS_MAX)];
        struct cmsghdr align;
    } control = { .space = { 0 } };
    if (fd_count) {
        message.msg_control = control.space;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(rights), fds, sizeof(int) * fd_count);
    }
    for (;;) {
        if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return ZRP_OK;
        if (errno == EINTR) continue;
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS ? ZRP_EFULL
                                                                                                    : ZRP_EGONE;
    }
}

/* Takes the descriptors out of the control data; those beyond the room are closed. Returns how many came. */
static uint32_t take_fds(struct msghdr *message, int fds[ZRP_FDS_MAX])
{
    uint32_t count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t here = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
            if (count < ZRP_FDS_MAX)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

enum zrp_status zrp_receive(int socket, struct zrp_message *ret_message, bool wait, struct zrp_why *why)
{
    struct zrp_message *message = ret_message; /* filled in piece by piece: valid on ZRP_OK only */
    struct iovec parts[2] = { { .iov_base = &message->header, .iov_len = sizeof message->header },
                              { .iov_base = message->body, .iov_len = ZRP_BODY_MAX } };
    union {
        char space[CMSG_SPACE(sizeof(int) * ZRP_FDS_MAX)];
        struct cmsghdr align;
    } control;
    struct msghdr packet = {
        .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.space, .msg_controllen = sizeof control.space
    };
    for (uint32_t i = 0; i < ZRP_FDS_MAX; i++)
        message->fds[i] = -1;
    message->header = (struct zrp_header){ 0 };

    ssize_t got;
    int resets = 0; /* a peer that closes with our messages unread: told once, before its own last message */
    do
        got = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    while (got < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? ZRP_ETIME : zrp_fail(why, ZRP_EGONE, "%s", strerror(errno));

    uint32_t fd_count = take_fds(&packet, message->fds);
    if (got == 0 && fd_count == 0) return zrp_fail(why, ZRP_EGONE, "the connection was closed");
    enum zrp_status status = ZRP_OK;
    if (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        status = zrp_fail(why, ZRP_EPROTOCOL, "a message is longer than the protocol allows");
    else
        status = zrp_check_header(&message->header, (size_t)got, fd_count, why);
    if (status != ZRP_OK) {
        message->header.fd_count = (uint16_t)fd_count;
        zrp_message_close_fds(message);
        return status;
    }
    message->body[message->header.size] = 0;
    return ZRP_OK;
}

void zrp_message_close_fds(struct zrp_message *message)
{
    for (uint32_t i = 0; i < ZRP_FDS_MAX; i++) {
        if (message->fds[i] >= 0) close(message->fds[i]);
        message->fds[i] = -1;
    }
}
