/* channel.h: a message with descriptors over a Unix socket
 *
 * A message is one datagram of a SOCK_SEQPACKET socket, so it comes whole or not at all, with its descriptors. Whatever
 * comes is checked before it is handed on; descriptors of a message that is refused are closed here. */
#ifndef ZRP_CHANNEL_H
#define ZRP_CHANNEL_H

#include "ipc/status.h"
#include "ipc/wire.h"
#include <stdbool.h>

struct zrp_message {
    struct zrp_header header;
    int fds[ZRP_FDS_MAX]; /* header.fd_count of them; the receiver's to close */
    union {
        unsigned char body[ZRP_BODY_MAX + 8]; /* header.size bytes, and a NUL after them */
        uint64_t align;
    };
};

/* Sends without waiting for room. ZRP_EFULL: the peer does not read. ZRP_EGONE: it is gone. */
enum zrp_status zrp_send(int socket, enum zrp_type type, uint16_t flags, uint32_t seq, enum zrp_status status,
                         const void *body, size_t bytes, const int *fds, uint16_t fd_count);

/* Takes one message if there is one, or waits for one (`wait`). ZRP_ETIME: none now. ZRP_EGONE: the peer closed. ZRP_EPROTOCOL: what came is no
 * message. */
enum zrp_status zrp_receive(int socket, struct zrp_message *ret_message, bool wait, struct zrp_why *why);

/* Closes the descriptors that nobody took out (set fds[i] to -1 to keep one). */
void zrp_message_close_fds(struct zrp_message *message);

#endif
