/* zeroclient.h: train on a zerod daemon from C
 *
 *     #include <zeroclient.h>
 *
 *     struct zc_client *client;
 *     struct zc_job *job;
 *     struct zc_batch batch = { .size = sizeof batch, .rows = 8, .row_tokens = 128 };
 *     struct zc_result result = { .size = sizeof result };
 *
 *     if (zc_connect(NULL, &client) || zc_job_open(client, NULL, &job) || zc_batch_take(client, &batch))
 *         return fprintf(stderr, "%s\n", zc_error_text()), 1;
 *     for (int step = 0; step < 100; step++) {
 *         fill(batch.tokens, batch.labels);                     // (8,128) ids, written where the daemon reads them
 *         if (zc_step(job, ZC_TRAIN, &batch, &result)) break;   // forward, backward, update
 *         printf("%llu %.4f\n", (unsigned long long)result.step, result.loss);
 *     }
 *     zc_job_save(job, "out", 0);                               // a Hugging Face directory
 *     zc_close(client);                                         // the job stays; attach again by its name
 *
 * Link: cc train.c $(pkg-config --cflags --libs zeroclient)
 *
 * Functions return 0 or a negative enum zc_error; zc_error_text() then has a sentence for a person (per thread, until the
 * thread's next call). A handle is used by one thread at a time; two handles never share state. After fork() only
 * zc_close() may be called in the child. Structs that begin with `size` must have it set to sizeof of the struct: newer
 * libraries understand older callers. Signals are never touched; SIGPIPE is not raised. */
#ifndef ZEROCLIENT_H
#define ZEROCLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZC_VERSION_MAJOR 0
#define ZC_VERSION_MINOR 1

enum zc_error {
    ZC_OK = 0,
    ZC_EINPUT = -1,  /* an argument, batch or setting is wrong: nothing was changed                       */
    ZC_EFULL = -2,   /* a budget, quota or queue is full: what is missing is in the text; try later        */
    ZC_EIO = -3,     /* the daemon's device or files failed: the job stopped at its last whole step        */
    ZC_EGONE = -4,   /* the daemon is not there or went away: connect again, then zc_job_open() by name    */
    ZC_EACCESS = -5, /* not allowed for this user                                                           */
    ZC_EBUG = -6,    /* the daemon or the library broke a promise: report it                                */
    ZC_ETIME = -7,   /* the time limit passed; the work goes on                                             */
    ZC_ECONFIG = -8, /* the job's configuration is wrong: file, line and key are in the text                */
};

struct zc_client;
struct zc_job;

/* "zeroclient 0.1.0" of the library that is loaded. */
const char *zc_version(void);

/* The sentence of this thread's last failure; "" when its last call succeeded. */
const char *zc_error_text(void);

/* -- connections ----------------------------------------------------------------------------------------------- */

struct zc_connect {
    uint32_t size;
    uint32_t timeout_ms;   /* for the connection and each request; 0: 10 s                                  */
    const char *socket;    /* NULL: $ZEROD_HOST ("unix:///path" or a path), else the default sockets        */
    const char *name;      /* shown in the daemon's status; NULL: the program's name                        */
    uint64_t slab_bytes;   /* shared memory for batches; 0: 16 MiB                                          */
    uint32_t ring_entries; /* submissions that may be in flight; 0: 64; rounded up to a power of two       */
    uint32_t spin_us;      /* zc_wait() spins so long before it sleeps; 0: the library's choice             */
};

/* Attaches to a running daemon. `options` may be NULL. ZC_EGONE: no daemon answers there. ZC_EACCESS. */
int zc_connect(const struct zc_connect *options, struct zc_client **ret_client);

/* Detaches: what was submitted is finished by the daemon; jobs stay. Frees the client and its jobs' handles. NULL is fine. */
void zc_close(struct zc_client *client);

/* A descriptor that becomes readable when a result may be waiting: for poll() and event loops. Owned by the client. */
int zc_fd(struct zc_client *client);

/* The daemon's state as one JSON object (docs/operating.md lists its members). From malloc(): free() it. */
int zc_daemon_status(struct zc_client *client, char **ret_json);

/* Asks the daemon to stop: running steps finish. */
int zc_daemon_stop(struct zc_client *client);

/* The newest events of the daemon's trace as Chrome JSON, written to `path` by this process. */
int zc_daemon_trace(struct zc_client *client, const char *path);

/* Round trip of an empty submission through ring and engine; nothing is computed. For measurements and liveness. */
int zc_ping(struct zc_client *client);

/* -- jobs ------------------------------------------------------------------------------------------------------- */

#define ZC_JOB_ATTACH_ONLY 1u /* fail with ZC_EINPUT when no job of that name is open */
#define ZC_JOB_CREATE_ONLY 2u /* fail with ZC_EINPUT when one is                      */
#define ZC_JOB_OBSERVE 4u     /* read only: never submits                             */

struct zc_job_options {
    uint32_t size;
    uint32_t flags;
    const char *name;            /* NULL: "default" */
    const char *const *settings; /* "key.path=value" over the daemon's configuration, for this job */
    uint32_t setting_count;
    const char *model_directory; /* opened by this process and passed on; NULL: as configured */
};

/* Opens the job of that name, or attaches to it where it is open already (then `settings` must be empty). `options` may be
 * NULL. Can take long (weights are loaded): the connection's time limit does not apply.
 * ZC_EFULL: does not fit; the text names tier and missing bytes. */
int zc_job_open(struct zc_client *client, const struct zc_job_options *options, struct zc_job **ret_job);

/* Ends the job on the daemon and frees its memory there; the handle is freed too. To leave the job be, zc_close(). */
int zc_job_close(struct zc_job *job);

struct zc_job_facts {
    uint32_t size;
    uint32_t vocabulary, row_tokens_max, rows_max; /* what one batch may hold */
    uint32_t sequence_length, rows_per_step;       /* from the configuration */
    uint64_t parameters, step, tokens_seen;
    uint64_t max_steps; /* 0: open end */
};
int zc_job_facts(struct zc_job *job, struct zc_job_facts *facts);

/* Placement, budgets, peaks, last step, plan in words: one JSON object. From malloc(). */
int zc_job_status(struct zc_job *job, char **ret_json);

/* Changes the number of steps that the learning-rate schedule is stretched to. */
int zc_job_set_max_steps(struct zc_job *job, uint64_t max_steps);

/* Writes the weights as a Hugging Face directory. The directory is made and opened by this process with its rights, and
 * passed to the daemon. `flags` is 0. Waits; pending updates are applied first. */
int zc_job_save(struct zc_job *job, const char *directory, uint32_t flags);

/* -- batches and steps ------------------------------------------------------------------------------------------ */

#define ZC_LABEL_IGNORED (-100)

/* A batch in shared memory: rows x row_tokens token ids, row-major. The library fills in the pointers. */
struct zc_batch {
    uint32_t size;
    uint32_t rows, row_tokens;
    uint32_t flags;            /* ZC_BATCH_* */
    uint32_t document_count;   /* with ZC_BATCH_DOCUMENTS: entries of `document_starts` that count */
    uint32_t document_max;     /* room for that many, set before zc_batch_take(); 0: none */
    int32_t *tokens;           /* rows*row_tokens */
    int32_t *labels;           /* rows*row_tokens; ZC_LABEL_IGNORED does not count */
    uint32_t *document_starts; /* first token of each packed document, growing, [0] = 0; row starts may be left out */
    uint64_t private_offset;
};

#define ZC_BATCH_LABELS                                                                                                \
    1u                        /* `labels` counts: labels[t] is the id of token t, as in Hugging Face; the daemon shifts
                                 them inside each document. Without it labels are the tokens themselves.            */
#define ZC_BATCH_TARGETS 2u   /* `labels` counts and is already shifted: labels[t] is what follows token t           */
#define ZC_BATCH_DOCUMENTS 4u /* `document_starts` counts; attention and labels stay inside a document               */

/* Takes room in the client's slab for the rows, row_tokens and document_max of *batch and sets its pointers. ZC_EFULL:
 * the slab is full: give batches back, or connect with more. */
int zc_batch_take(struct zc_client *client, struct zc_batch *batch);
void zc_batch_give_back(struct zc_client *client, struct zc_batch *batch);

enum zc_kind {
    ZC_TRAIN = 1,      /* forward, backward and one optimizer update */
    ZC_ACCUMULATE = 2, /* forward and backward; the next ZC_TRAIN updates with the sum over all of them */
    ZC_EVAL = 3,       /* forward only: the loss */
    ZC_LOGITS = 4,     /* forward only: zc_logits() */
};

struct zc_result {
    uint32_t size;
    int32_t status;                  /* 0 or enum zc_error; the sentence is in zc_error_text() of the waiting thread */
    uint64_t ticket, step;           /* step: optimizer updates applied so far */
    double loss;                     /* nats per label that counts, over the whole step */
    double grad_norm;                /* before clipping, over what the optimizer sees; NaN when there is none */
    double learning_rate;            /* used by this step's update */
    uint64_t tokens, trained_tokens; /* all; those whose label counts */
    uint32_t applied;                /* 0: skipped (a gradient was not finite) */
    uint32_t micro_batches;
    uint64_t queue_ns, run_ns; /* waiting behind others; computing */
};

/* Submits a batch; *ret_ticket names it. The batch belongs to the daemon until its result has come. ZC_EFULL: too many in
 * flight. The order of one client's submissions to one job is kept. */
int zc_submit(struct zc_job *job, enum zc_kind kind, const struct zc_batch *batch, uint64_t *ret_ticket);

/* Waits for one result (ticket 0: the next one, whichever it is). Returns 0 when a result was delivered, whatever its
 * status says... which is also returned, so that `if (zc_wait(...))` catches both. timeout_ms -1: for ever, 0: a look.
 * ZC_ETIME: not yet. */
int zc_wait(struct zc_client *client, uint64_t ticket, int timeout_ms, struct zc_result *result);

/* zc_submit() and zc_wait() in one. */
int zc_step(struct zc_job *job, enum zc_kind kind, const struct zc_batch *batch, struct zc_result *result);

/* Logits (count, vocabulary) fp32 that predict what follows the tokens at `positions` (indices into the flat batch),
 * written into the caller's `logits`. The batch's labels do not matter. */
int zc_logits(struct zc_job *job, const struct zc_batch *batch, const uint32_t *positions, uint32_t count,
              float *logits);

#ifdef __cplusplus
}
#endif

#endif
