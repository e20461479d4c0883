/* main.c: finds the verb, prints what went wrong, ends with an exit code */
#include "clients/zeroctl/options.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct verb all_verbs[] = {
    { "train", NULL, "train on a text or on tokens, with a progress bar", verb_train, false },
    { "eval", NULL, "the loss on a text or on tokens", verb_eval, false },
    { "generate", NULL, "let a byte-level model write", verb_generate, false },
    { "status", NULL, "jobs, clients and how full each tier is (also: ps)", verb_status, false },
    { "export", "DIR", "write a job's model as a Hugging Face directory", verb_export, false },
    { "profile", "FILE", "write the last steps as a Chrome trace (ui.perfetto.dev)", verb_profile, false },
    { "stop", "[JOB]", "end a job and free its memory; without a name: stop the daemon", verb_stop, false },
    { "plan", NULL, "what fits, where it lies, how fast it will be", verb_engine, true },
    { "completion", NULL, "a bash script that completes verbs and options", verb_completion, false },
    { 0 },
};
const struct verb *const verbs = all_verbs;

int call_fail(struct call *call, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->failure, sizeof call->failure, format, arguments);
    va_end(arguments);
    return code;
}

int call_fail_zc(struct call *call, int zc, const char *doing)
{
    static const struct {
        int zc, code;
    } codes[] = {
        { ZC_EGONE, EXIT_NOBODY }, { ZC_EFULL, EXIT_LATER }, { ZC_EACCESS, EXIT_RIGHTS }, { ZC_ECONFIG, EXIT_CONFIG }
    };
    int code = EXIT_FAILED;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].zc == zc) code = codes[i].code;
    return call_fail(call, code, "%s%s%s", doing, doing[0] ? ": " : "", zc_error_text());
}

int call_print(struct call *call, json_t *document)
{
    int failed = json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    failed |= putchar('\n') == EOF || fflush(stdout) != 0;
    json_decref(document);
    return failed ? call_fail(call, EXIT_FAILED, "standard output cannot be written") : EXIT_DONE;
}

void call_note(const struct call *call, const char *format, ...)
{
    if (call->options.quiet) return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "zeroctl: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
}

int verb_completion(struct call *call)
{
    (void)call;
    options_completion();
    return EXIT_DONE;
}

static void print_failure(const struct call *call, int code)
{
    if (call->options.json) {
        json_t *error = json_pack("{s:{s:i,s:s}}", "error", "code", code, "message", call->failure);
        if (error) json_dumpf(error, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(error);
    }
    fprintf(stderr, "zeroctl: %s\n", call->failure);
}

static const struct verb *find(const char *name)
{
    if (strcmp(name, "ps") == 0) name = "status";
    for (const struct verb *verb = verbs; verb->name; verb++)
        if (strcmp(verb->name, name) == 0) return verb;
    return NULL;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        options_help(NULL);
        return argc < 2 ? EXIT_USAGE : EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("zeroctl, %s\n", zc_version());
        return EXIT_DONE;
    }
    const struct verb *verb = find(argv[1]);
    if (!verb) {
        fprintf(stderr, "zeroctl: %s: no such verb; zeroctl --help lists them\n", argv[1]);
        return EXIT_USAGE;
    }
    struct call call = { .argv = argv + 1 };
    int code = verb->hands_over ? EXIT_DONE : options_read(&call, verb, argc - 1, argv + 1);
    if (code == EXIT_DONE && call.options.help)
        options_help(verb);
    else if (code == EXIT_DONE)
        code = verb->run(&call);
    if (code != EXIT_DONE && call.failure[0]) print_failure(&call, code);
    options_free(&call.options);
    return code;
}
