/* verb.h: what a verb of zeroctl is, and what every verb is given
 *
 * A verb prints its result on standard output and all else on standard error, and returns an exit code of the table below.
 * On failure it returns call_fail(...): main prints the sentence, or with --json the one object {"error": {...}}. */
#ifndef ZEROCTL_VERB_H
#define ZEROCTL_VERB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <zeroclient.h>

enum exit_code {
    EXIT_DONE = 0,    /* also: stopped on request, and saved where --save asked for it */
    EXIT_FAILED = 1,  /* while running */
    EXIT_USAGE = 2,   /* the command line is wrong */
    EXIT_NO_FIT = 3,  /* plan: does not fit */
    EXIT_NOBODY = 69, /* no daemon answers */
    EXIT_LATER = 75,  /* refused for now, or stopped by SIGTERM before the end */
    EXIT_RIGHTS = 77, /* not allowed */
    EXIT_CONFIG = 78, /* the configuration is wrong */
};

/* What the command line said. 0 and NULL: not given. The texts are argv's. */
struct options {
    const char *host, *config, *model, *job, *data, *eval_data, *token_type;
    const char *save, *log, *chart, *trace, *prompt, *completion;
    const char **sets; /* from the heap */
    uint32_t set_count;
    uint64_t steps, eval_every, tokens, seed, timeout_s;
    double minutes, holdout_percent, temperature, top_p;
    bool json, quiet, verbose, no_color, help;
    char *const *operands; /* what is left of argv */
    int operand_count;
};

struct call {
    struct options options;
    char *const *argv; /* as given, for verbs that hand over */
    char failure[1024];
};

struct verb {
    const char *name, *operands, *help;
    int (*run)(struct call *call);
    bool hands_over; /* its options are those of the program that it starts */
};

extern const struct verb *const verbs; /* ends with a row whose name is NULL */

/* Keeps the sentence and returns `code`. */
int call_fail(struct call *call, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for a function of libzeroclient that returned `zc`: its sentence and the exit code that belongs to it. */
int call_fail_zc(struct call *call, int zc, const char *doing);

/* Prints one JSON document on standard output and frees it. */
int call_print(struct call *call, json_t *document);

/* Something worth knowing, on standard error; not with --quiet. */
void call_note(const struct call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

int verb_train(struct call *call);
int verb_eval(struct call *call);
int verb_generate(struct call *call);
int verb_status(struct call *call);
int verb_export(struct call *call);
int verb_profile(struct call *call);
int verb_stop(struct call *call);
int verb_engine(struct call *call);
int verb_completion(struct call *call);

#endif
