/* schedule.h: one step as a list of operations: data that is checked, executed, simulated, drawn and tested
 *
 * An op runs on one queue and names the buffers that it reads and writes. Each access also names the content that it
 * expects or leaves ("weights of unit 3 after the pending update"), so that the checker can tell a slot that was
 * overwritten too early from one that was not. Dependencies are derived from the accesses, never written by hand.
 *
 *   S1  The list's order is a correct serial order: run one op after another, it computes the step.
 *   S2  Two ops that touch the same buffer, one of them writing, are ordered: by their queue or by a chain of waits.
 *   S3  An op waits only for ops before it in the list.
 *   S4  A step begins and ends with all queues idle. */
#ifndef ZR_SCHEDULE_H
#define ZR_SCHEDULE_H

#include "engine/plan/plan.h"

enum zr_op_kind {
    ZR_SEND_BATCH,   /* h2d: tokens, targets, positions, documents of the whole step                 */
    ZR_CLEAR_SUMS,   /* compute: losses and norms to zero                                            */
    ZR_READ_WEIGHT,  /* read: nvme -> host slot                                                      */
    ZR_WRITE_WEIGHT, /* write: host slot -> nvme                                                     */
    ZR_READ_STATES,  /* read: one chunk's states, nvme -> stage                                      */
    ZR_WRITE_STATES, /* write: stage -> nvme                                                         */
    ZR_UPDATE,       /* cpu: one chunk of the optimizer; compute: a whole unit whose states are there */
    ZR_LOAD_WEIGHT,  /* h2d: host -> weight slot or resident copy                                    */
    ZR_WIDEN,        /* compute: bf16 weights -> fp32 copy                                           */
    ZR_EMBED,        /* compute: tokens -> hidden states of one micro-batch                          */
    ZR_FORWARD,      /* compute: one block, one micro-batch                                          */
    ZR_SAVE_INPUT,   /* d2h: a block's input -> host checkpoint                                      */
    ZR_LOAD_INPUT,   /* h2d: host checkpoint -> ring                                                 */
    ZR_CLEAR_GRAD,   /* compute: gradient slot to zero                                               */
    ZR_LOAD_GRAD,    /* h2d: what was accumulated so far -> gradient slot                            */
    ZR_HEAD,         /* compute: loss of one micro-batch and, in training, its gradients             */
    ZR_LOGITS,       /* compute: final norm and logits of picked rows                                */
    ZR_BACKWARD,     /* compute: one block, one micro-batch                                          */
    ZR_EMBED_BACKWARD,
    ZR_FINISH_GRAD, /* compute: squared norm of what the optimizer will see; rounding to bf16       */
    ZR_SAVE_GRAD,   /* d2h: gradient -> host                                                        */
    ZR_RETURN_SUMS, /* d2h: losses and norms -> host                                                */
    ZR_OP_KIND_COUNT
};

const char *zr_op_kind_name(enum zr_op_kind kind); /* "load weight", ... */

#define ZR_ACCESS_MAX 12
#define ZR_NONE UINT32_MAX

struct zr_access {
    uint32_t buffer;
    bool write;       /* false: read. An op that reads and writes lists the buffer twice */
    uint64_t content; /* what a read expects to find and what a write leaves; 0: anything goes */
};

/* Dependencies: for each queue the position on it (1-based) that must be complete; 0: none. */
struct zr_op_entry {
    enum zr_op_kind kind;
    enum zr_queue queue;
    uint32_t unit, micro, chunk; /* ZR_NONE where they mean nothing */
    uint32_t sequence;           /* 1-based position on its queue */
    uint32_t access_count;
    struct zr_access access[ZR_ACCESS_MAX];
    uint32_t wait[ZR_QUEUE_COUNT];
    uint64_t bytes; /* moved by a copy, transfer or update */
    double flops;
    bool last_micro, first_micro;
};

enum zr_pass {
    ZR_PASS_TRAIN,  /* forward, backward */
    ZR_PASS_EVAL,   /* forward, loss */
    ZR_PASS_LOGITS, /* forward, logits of picked rows of the last... of each micro-batch */
    ZR_PASS_FLUSH,  /* pending updates alone */
};

struct zr_schedule_request {
    enum zr_pass pass;
    uint32_t micro_count; /* 1 to plan->micro_max */
    bool update;          /* gradients of the step before are pending: update each unit before its first use */
    bool accumulate;      /* gradients add to those that are on the host (or device) already */
};

struct zr_schedule {
    const struct zr_plan *plan; /* outlives it */
    struct zr_schedule_request request;
    struct zr_op_entry *ops;
    uint32_t op_count;
    uint32_t queue_length[ZR_QUEUE_COUNT];
};

/* Builds the list with its dependencies. Fails only for lack of memory (ZR_EFULL). */
ZR_MUST_CHECK enum zr_code zr_schedule_make(const struct zr_plan *plan, const struct zr_schedule_request *request,
                                            struct zr_schedule **ret_schedule, struct zr_error *err);
void zr_schedule_free(struct zr_schedule *schedule);

/* depend.c: fills in `wait` of every op from the accesses. A wait that another wait implies is left out. */
void zr_schedule_depend(struct zr_schedule *schedule);

/* verify.c: S1 (contents), S2 (every pair of conflicting ops is ordered, by vector clocks over queues and waits,
 * independent of depend.c), S3, and that every buffer is inside its tier. ZR_EBUG with both ops and the buffer named:
 * "h2d 12 (load weight, unit 2) overwrites weight slot 0 while compute 9 (forward, unit 0, micro 1) may still read it". */
ZR_MUST_CHECK enum zr_code zr_schedule_verify(const struct zr_schedule *schedule, struct zr_error *err);

/* simulate.c: the same list against a machine. */
struct zr_simulation {
    double seconds;
    double busy[ZR_QUEUE_COUNT]; /* seconds */
    enum zr_queue bound_by;      /* the busiest */
    double floor;        /* the longest of compute, up, down, host, nvme: the time model of docs/internals/plan.md */
    double *begin, *end; /* per op; the caller's arrays of op_count, or NULL */
};
void zr_schedule_simulate(const struct zr_schedule *schedule, const struct zr_machine *machine,
                          struct zr_simulation *simulation);

#endif
