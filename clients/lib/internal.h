/* internal.h: what the library's files share
 *
 * One connection: a socket for requests, two mapped areas, one ring each way. Results come in the order of the
 * submissions; those that nobody has asked for yet wait in `stash`.
 *
 *   C1  in_flight counts submissions whose result was not delivered to the caller; never more than the ring's entries, so
 *       the completion ring and the stash cannot overflow.
 *   C2  Tickets grow by one. Those in (completed, submitted] are still with the daemon. */
#ifndef ZC_INTERNAL_H
#define ZC_INTERNAL_H

#include "clients/lib/zeroclient.h"
#include "ipc/area.h"
#include "ipc/channel.h"
#include "ipc/ring.h"
#include "ipc/wait.h"
#include <stdbool.h>
#include <sys/types.h>

#define ZC_EXPORT __attribute__((visibility("default")))

/* A result with its sentence, not yet delivered. */
struct zc_stashed {
    struct zrp_cqe cqe;
    char sentence[ZRP_SENTENCE];
};

/* A piece of the slab that is lent, in bytes. */
struct zc_extent {
    uint64_t offset, bytes;
};

struct zc_client {
    int socket, bell;
    uint32_t rung;  /* the last of the daemon's sleeps that the bell was rung for */
    uint32_t forks; /* zc_forks() when it was made: a child after fork() may only close */
    uint32_t timeout_ms;
    struct zrp_spinner spinner;
    char *socket_path; /* for sentences */

    struct zrp_layout layout;
    struct zrp_area down_area, up_area;
    struct zrp_down *down;
    struct zrp_up *up;
    unsigned char *slab;
    struct zrp_ring sq, cq;

    bool hot;              /* the last submission followed a result at once: the next one may, so spinning pays */
    uint64_t delivered_ns; /* when the last result was delivered */

    uint64_t submitted, completed; /* C2 */
    uint32_t in_flight;            /* C1 */
    struct zc_stashed *stash;      /* layout.ring_entries of room */
    uint32_t stash_count;

    int poll_fd, nudge; /* zc_fd(): an epoll of the socket and an eventfd of our own; -1: never asked for */
    bool gone;          /* the daemon said goodbye or hung up */
    char gone_text[256];

    uint32_t seq;
    struct zrp_message *message; /* the last one received: 64 KiB, too much for a stack */

    struct zc_extent *extents; /* by offset */
    uint32_t extent_count, extent_room;

    struct zc_job *jobs;
};

struct zc_job {
    struct zc_client *client;
    struct zc_job *next;
    uint32_t id;
    bool observer;
    struct zrp_facts facts; /* when it was opened */
};

/* client.c: forks between the process that loaded the library and this one */
uint32_t zc_forks(void);

/* error.c */
void zc_clear(void);
int zc_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
int zc_fail_status(uint32_t status, const char *sentence); /* from the wire */
int zc_copy_in(void *to, size_t to_bytes, const void *from, const char *what);
void zc_copy_out(void *to, const void *from, size_t from_bytes);

/* client.c: one request and its reply, which is then in client->message. `timeout_ns` UINT64_MAX: for ever. */
int zc_request(struct zc_client *client, enum zrp_type type, const void *body, size_t bytes, int fd,
               uint64_t timeout_ns);
uint64_t zc_timeout_ns(const struct zc_client *client);
/* The reply's text, also when it came in a memfd; from malloc(). */
int zc_reply_text(struct zc_client *client, char **ret_text);
/* Looks at what lies in the socket: wake-ups are swallowed, a goodbye is noted. `wait`: for one message, for ever. */
void zc_look_at_socket(struct zc_client *client, bool wait);
int zc_check_process(const struct zc_client *client); /* there, and not the parent's */
int zc_check_owner(const struct zc_client *client);   /* and the daemon is still at the other end */

/* batch.c */
bool zc_slab_take(struct zc_client *client, uint64_t bytes, uint64_t *ret_offset);
void zc_slab_give_back(struct zc_client *client, uint64_t offset);
uint64_t zc_slab_largest(const struct zc_client *client);

/* step.c */
void zc_arm(struct zc_client *client);

#endif
