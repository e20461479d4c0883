/* session.h: one client: its areas, rings, rights; its death
 *
 *              accept             HELLO / WELCOME            READY
 *   (socket) ──────────▶ GREETING ───────────────▶ GREETED ─────────▶ ACTIVE ──┬─ hang-up, pidfd, violation ─▶ CLOSED
 *                            │ 2 s                    │ 2 s                    └─ DETACH ─▶ DETACHED ─ drained ─▶ CLOSED
 *
 *   S1  The loop thread owns socket events, state and messages; the worker owns rings, attachments and the slab's bytes.
 *       What both touch is atomic, or handed over whole (a task).
 *   S2  Two references: the loop's and, from READY on, the worker's. Who lets go last frees, so a descriptor number is never
 *       reused while the other thread may still write to it.
 *   S3  Submissions that the worker has not taken when a client dies are dropped; the one that runs is finished. After
 *       DETACH all of them are finished.
 *   S4  Whatever a client writes into shared memory ends at most its own session. */
#ifndef ZR_SERVE_SESSION_H
#define ZR_SERVE_SESSION_H

#include "engine/base/error.h"
#include "ipc/area.h"
#include "ipc/channel.h"
#include "ipc/ring.h"
#include <stdbool.h>
#include <sys/types.h>

#define ZR_SESSIONS_MAX 64
#define ZR_JOBS_MAX 16
#define ZR_GREETING_NS 2000000000u

enum zr_session_state { ZR_SESSION_GREETING, ZR_SESSION_GREETED, ZR_SESSION_ACTIVE, ZR_SESSION_DETACHED };

/* A request that must run between steps: made by the loop, done by the worker. */
struct zr_task {
    enum zrp_type type;
    uint32_t seq;
    uint32_t barrier; /* submissions before this ring index are executed first */
    int fd;           /* -1: none came along */
    uint32_t bytes;
    unsigned char body[]; /* with a NUL behind it */
};

struct zr_attachment {
    uint32_t job; /* 0: free */
    bool observer;
};

struct zr_session {
    /* fixed when it becomes known to the other thread */
    uint64_t id;
    int socket, pidfd, bell;
    pid_t pid;
    uid_t uid;
    char name[ZRP_NAME_BYTES];
    struct zrp_layout layout;
    struct zrp_area down_area, up_area;
    struct zrp_down *down;
    struct zrp_up *up;
    const unsigned char *slab;

    /* the loop's */
    enum zr_session_state state;
    uint64_t deadline_ns; /* of the handshake */

    /* the worker's */
    struct zrp_ring sq, cq;
    uint32_t rings; /* of the bell that were not taken yet */
    struct zr_attachment attached[ZR_JOBS_MAX];

    /* both */
    _Atomic uint32_t references;
    _Atomic bool closed;   /* the loop: drop what is queued */
    _Atomic bool detached; /* the loop: finish what is queued, then let go */
    _Atomic bool ended;    /* the worker: broke the protocol; the loop closes it */
    _Atomic uint64_t submissions;
    struct zr_task *_Atomic task;
};

/* Takes `socket` over. Who is there is asked of the kernel. NULL: no memory (the socket is closed). */
struct zr_session *zr_session_make(int socket, uint64_t id);

/* Lets go of one reference. */
void zr_session_release(struct zr_session *session);

/* Answers HELLO: makes the areas and sends them. Not ZRP_OK: an ERROR was sent, close it. */
enum zrp_status zr_session_greet(struct zr_session *session, const struct zrp_message *hello, struct zrp_why *why);

/* A reply; false: the client does not read its replies or is gone. */
bool zr_session_reply(struct zr_session *session, enum zrp_type type, uint32_t seq, enum zrp_status status,
                      const void *body, size_t bytes);
bool zr_session_reply_text(struct zr_session *session, enum zrp_type type, uint32_t seq, const char *text,
                           size_t bytes);

/* ERROR or GOODBYE with a sentence, then no more traffic either way. */
void zr_session_last_word(struct zr_session *session, enum zrp_type type, enum zrp_status status, const char *text);

enum zrp_status zr_status_of(enum zr_code code);

#endif
