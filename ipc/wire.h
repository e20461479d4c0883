/* wire.h: protocol zrp/1 between daemon and clients: messages and ring entries, field by field
 *
 *     client                                   daemon
 *       │ HELLO versions, sizes, name             │   AF_UNIX, SOCK_SEQPACKET: one datagram, one message
 *       ├────────────────────────────────────────►│
 *       │      WELCOME layout + down, up, bell    │   down: completions, written by the daemon alone (sealed)
 *       │◄────────────────────────────────────────┤   up:   submissions and the slab, written by the client
 *       │ READY                                   │   bell: a socket, rung by the client when the daemon sleeps
 *       ├────────────────────────────────────────►│
 *       ╎ rings; requests and replies; WAKE       ╎
 *
 *   W1  Little-endian, natural alignment, no pointers, no file names: files travel as descriptors.
 *   W2  Another major version is refused, the smaller minor is spoken. Structs that begin with `size` grow at their end
 *       only: a longer one is accepted where the part that is not known is zero.
 *   W3  Unknown types are answered with an error and the connection is kept. Unknown bits and reserved fields that are
 *       not zero are errors.
 *   W4  The client chooses `seq` of a request; the reply repeats type and seq, with ZRP_REPLY set. */
#ifndef ZRP_WIRE_H
#define ZRP_WIRE_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian and nothing swaps bytes");

#define ZRP_MAGIC 0x3150525au /* "ZRP1" */
#define ZRP_MAJOR 1
#define ZRP_MINOR 0

#define ZRP_BODY_MAX 65536u /* bytes of a message's body; longer texts travel in a sealed memfd */
#define ZRP_FDS_MAX 4u
#define ZRP_NAME_BYTES 64u /* with the NUL */
#define ZRP_RING_MAX 4096u
#define ZRP_LINE 64u      /* slab offsets on the wire count lines of that many bytes */
#define ZRP_SENTENCE 512u /* bytes of a completion's sentence, with the NUL */
#define ZRP_CONTROL 4096u /* bytes of an area's control block */
#define ZRP_SLAB_ALIGN 4096u

enum zrp_type {
    ZRP_HELLO = 1,
    ZRP_WELCOME = 2,
    ZRP_READY = 3,
    ZRP_ERROR = 4,     /* status and sentence; the daemon closes after it */
    ZRP_JOB_OPEN = 16, /* struct zrp_job_open, texts; fds: model directory. Reply: struct zrp_facts */
    ZRP_JOB_CLOSE = 17,
    ZRP_JOB_FACTS = 18,     /* reply: struct zrp_facts */
    ZRP_JOB_STATUS = 19,    /* reply: JSON */
    ZRP_JOB_SAVE = 20,      /* fds: output directory */
    ZRP_SET_MAX_STEPS = 21, /* value: the number */
    ZRP_STATUS = 22,        /* reply: JSON */
    ZRP_STOP = 23,
    ZRP_TRACE = 24,   /* reply: JSON */
    ZRP_DETACH = 32,  /* no reply: what was submitted is finished, then the session ends */
    ZRP_GOODBYE = 33, /* daemon: it stops; a sentence */
    ZRP_WAKE = 34,    /* daemon: a completion may be there, and the client had said that it sleeps */
};

enum { ZRP_REPLY = 1, ZRP_BODY_IN_FD = 2 }; /* header flags */

struct zrp_header {
    uint32_t magic;
    uint16_t type, flags;
    uint32_t size; /* of the body that follows */
    uint32_t seq;
    uint32_t status; /* enum zrp_status; not 0: the body is a sentence */
    uint16_t fd_count, zero;
    uint64_t zero2;
};
static_assert(sizeof(struct zrp_header) == 32, "a header is 32 bytes on every machine");

struct zrp_hello {
    uint32_t size;
    uint16_t major, minor;
    uint64_t features;
    uint32_t ring_entries, zero;
    uint64_t slab_bytes;
    char name[ZRP_NAME_BYTES]; /* NUL inside */
    char library[32];
};
static_assert(sizeof(struct zrp_hello) == 128, "grows at its end only");

struct zrp_welcome {
    uint32_t size;
    uint16_t major, minor;
    uint64_t features;
    uint64_t session;
    uint32_t ring_entries, daemon_pid;
    uint64_t down_bytes, up_bytes;
    uint64_t cqe_offset, sentence_offset; /* in down */
    uint64_t sqe_offset, slab_offset;     /* in up */
    uint64_t slab_bytes;
    char daemon[32];
};
static_assert(sizeof(struct zrp_welcome) == 120, "grows at its end only");

/* Body of all requests about a job but JOB_OPEN. */
struct zrp_job_request {
    uint32_t size, job;
    uint64_t value;
};
static_assert(sizeof(struct zrp_job_request) == 16, "grows at its end only");

enum { ZRP_OPEN_ATTACH_ONLY = 1, ZRP_OPEN_CREATE_ONLY = 2, ZRP_OPEN_OBSERVE = 4 };

/* Followed by text_bytes: the name and each "key=value", all ending with NUL. */
struct zrp_job_open {
    uint32_t size, flags;
    uint32_t setting_count, text_bytes;
};
static_assert(sizeof(struct zrp_job_open) == 16, "grows at its end only");

struct zrp_facts {
    uint32_t size, job;
    uint32_t vocabulary, row_tokens_max, rows_max, sequence_length, rows_per_step, zero;
    uint64_t parameters, step, tokens_seen, max_steps;
};
static_assert(sizeof(struct zrp_facts) == 64, "grows at its end only");

/* Body of a reply with ZRP_BODY_IN_FD: the text is in the sealed memfd that came along. */
struct zrp_long_body {
    uint64_t bytes;
};

/* -- rings --------------------------------------------------------------------------------------------------------- */

enum zrp_op { ZRP_NOP = 0, ZRP_TRAIN = 1, ZRP_ACCUMULATE = 2, ZRP_EVAL = 3, ZRP_LOGITS = 4, ZRP_OP_COUNT };

enum { ZRP_SQE_LABELS = 1, ZRP_SQE_TARGETS = 2, ZRP_SQE_DOCUMENTS = 4 }; /* submission flags */

struct zrp_sqe {
    uint8_t op, flags;
    uint16_t zero;
    uint32_t job;
    uint64_t ticket;
    uint32_t tokens_line, labels_line, documents_line; /* where in the slab, in lines */
    uint32_t extra_line; /* LOGITS: the positions, then from the next line on room for the logits */
    uint32_t rows, row_tokens, document_count, position_count;
    uint64_t submit_ns; /* the client's CLOCK_MONOTONIC, for queue_ns; not trusted for anything else */
    uint64_t zero2;
};
static_assert(sizeof(struct zrp_sqe) == 64, "a submission is one cache line on every machine");

struct zrp_cqe {
    uint64_t ticket;
    uint32_t status; /* enum zrp_status; not 0: the sentence with the entry's index has the text */
    uint32_t applied;
    uint64_t step;
    double loss, grad_norm, learning_rate;
    uint64_t tokens, trained_tokens;
    uint32_t micro_batches, zero;
    uint64_t queue_ns, run_ns;
    uint64_t zero2[5];
};
static_assert(sizeof(struct zrp_cqe) == 128, "a completion is two cache lines on every machine");

/* Control blocks: a field that one side writes lies 128 bytes from what the other writes (adjacent lines are fetched
 * together). down is written by the daemon alone, up by the client, except that the daemon takes client_sleeping back. */
struct zrp_down {
    _Alignas(128) _Atomic uint32_t sq_head;
    _Alignas(128) _Atomic uint32_t cq_tail;
    _Alignas(128) _Atomic uint32_t
        daemon_sleeping; /* 0: awake; else the number of its sleep: one ring for each is enough */
};

struct zrp_up {
    _Alignas(128) _Atomic uint32_t sq_tail;
    _Alignas(128) _Atomic uint32_t cq_head;
    _Alignas(128) _Atomic uint32_t client_sleeping;
};
static_assert(offsetof(struct zrp_down, daemon_sleeping) == 256 && sizeof(struct zrp_down) <= ZRP_CONTROL, "layout");
static_assert(offsetof(struct zrp_up, client_sleeping) == 256 && sizeof(struct zrp_up) <= ZRP_CONTROL, "layout");

#endif
