/* arguments.c: the command line of zerod: what is asked, what is said about it, the exit code */
#include "engine/base/log.h"
#include "engine/serve/daemon.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DOES_NOT_FIT = 3, EXIT_NO_RIGHT = 77, EXIT_CONFIG = 78 };

struct arguments {
    const char *config;
    const char **sets; /* from the heap */
    uint32_t set_count;
    bool check, print_config;
};

static const char usage[] = "usage: zerod --config FILE [--set KEY=VALUE]... [--check | --print-config]\n"
                            "       zerod --version | --help | --reference\n";

static void print_help(const struct zr_verb *verbs)
{
    printf("%s\n"
           "  -c, --config FILE      YAML, or a DeepSpeed JSON file as it is; - is standard input\n"
           "  -s, --set KEY=VALUE    over the file, any number of times: --set zerod.device.memory=22GiB\n"
           "      --check            say what the file means and whether it fits, then end\n"
           "      --print-config     every key with its value and where it came from, then end\n"
           "      --reference        all keys, as Markdown\n"
           "      --version, --help\n"
           "\n"
           "exit codes: 0 done or stopped on request, 1 failed, 2 wrong usage, 3 does not fit (--check),\n"
           "            77 no permission, 78 wrong configuration\n",
           usage);
    if (verbs->name) printf("\nverbs:\n");
    for (; verbs->name; verbs++)
        printf("  zerod %-12s %s\n", verbs->name, verbs->help);
}

static int exit_code_of(enum zr_code code)
{
    return code == ZR_OK        ? EXIT_DONE
           : code == ZR_ECONFIG ? EXIT_CONFIG
           : code == ZR_EACCESS ? EXIT_NO_RIGHT
                                : EXIT_FAILED;
}

static int complain(enum zr_code code, const struct zr_error *err)
{
    fprintf(stderr, "zerod: %s\n", err->text);
    return exit_code_of(code);
}

/* -- the configuration --------------------------------------------------------------------------------------------- */

/* The text is kept: each job is configured from it anew. "-" is standard input; no file at all is an empty mapping. */
static enum zr_code read_text(const char *path, char **ret_text, size_t *ret_bytes, struct zr_error *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (!file)
        return zr_fail(err, ZR_ECONFIG, "%s: %s\n  hint: --config names the configuration file", path, strerror(errno));
    char *text = NULL, piece[4096];
    size_t bytes = 0, got;
    while ((got = fread(piece, 1, sizeof piece, file)) > 0) {
        char *longer = realloc(text, bytes + got);
        if (!longer) break;
        text = longer;
        memcpy(text + bytes, piece, got);
        bytes += got;
    }
    bool failed = ferror(file) || got > 0;
    if (file != stdin) fclose(file);
    if (failed) {
        free(text);
        return zr_fail(err, ZR_ECONFIG, "%s: cannot be read: %s", path, strerror(errno));
    }
    *ret_text = text;
    *ret_bytes = bytes;
    return ZR_OK;
}

/* All remarks at once, so that a person mends the file in one go. */
static void print_remarks(const struct zr_config_report *report)
{
    for (uint32_t i = 0; report && i < zr_config_remark_count(report); i++) {
        static const char *const kinds[] = {
            [ZR_REMARK_NOTE] = "note: ", [ZR_REMARK_WARNING] = "warning: ", [ZR_REMARK_ERROR] = ""
        };
        struct zr_text text = { 0 };
        zr_config_remark_text(report, i, &text);
        fprintf(stderr, "zerod: %s%s%s", kinds[zr_config_remark(report, i)->kind], zr_text_c(&text),
                text.length && text.at[text.length - 1] == '\n' ? "" : "\n");
        zr_text_fini(&text);
    }
}

static void print_text(struct zr_text *text)
{
    fputs(zr_text_c(text), stdout);
    zr_text_fini(text);
}

/* -- --check ------------------------------------------------------------------------------------------------------- */

static int check(const struct zr_config *config, const struct zr_config_report *report)
{
    struct zr_text text = { 0 };
    zr_config_summary(config, report, &text);
    print_text(&text);

    if (config->model_path[0] == '\0' && config->model_config_json[0] == '\0') {
        fprintf(stderr, "zerod: note: no model is named (model.path), so whether it fits was not looked at\n");
        return EXIT_DONE;
    }
    struct zr_error err = { 0 };
    struct zr_dims dims;
    enum zr_code code = zr_jobs_dims(config, &dims, &err);
    if (code != ZR_OK) return complain(code, &err);
    struct zr_model *model = NULL;
    struct zr_plan *plan = NULL;
    code = zr_job_plan_only(config, &dims, &model, &plan, &err);
    if (code == ZR_OK) {
        zr_plan_words(plan, &text);
        print_text(&text);
    }
    zr_plan_free(plan);
    zr_model_free(model);
    if (code == ZR_EFULL) {
        fprintf(stderr, "zerod: %s\n", err.text);
        return EXIT_DOES_NOT_FIT;
    }
    return code == ZR_OK ? EXIT_DONE : complain(code, &err);
}

/* -- running ------------------------------------------------------------------------------------------------------- */

static struct zr_daemon *running; /* for the signal handler: set before signals are caught, for the process's life */

/* The first one finishes the running step; the second one ends at once. */
static void on_signal(int number)
{
    static volatile sig_atomic_t seen;
    if (seen) _exit(128 + number);
    seen = 1;
    zr_daemon_stop(running);
}

static void catch_signals(struct zr_daemon *daemon)
{
    running = daemon;
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int serve(const struct zr_base_config *base)
{
    static const enum zr_level levels[] = { [ZR_LEVEL_ERROR] = ZR_LOG_ERROR,
                                            [ZR_LEVEL_WARN] = ZR_LOG_WARN,
                                            [ZR_LEVEL_INFO] = ZR_LOG_INFO,
                                            [ZR_LEVEL_DEBUG] = ZR_LOG_DEBUG };
    struct zr_error err = { 0 };
    zr_log_open(levels[base->config->log_level]);
    struct zr_daemon *daemon = calloc(1, sizeof *daemon);
    if (!daemon) return EXIT_FAILED;
    sigset_t stops, before; /* one that comes while the device is opened waits until there is something to stop */
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &stops, &before);
    int code = EXIT_DONE;
    enum zr_code opened = zr_daemon_open(daemon, base, &err);
    if (opened != ZR_OK)
        code = complain(opened, &err);
    else {
        char quoted[512];
        catch_signals(daemon);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        zr_log(ZR_LOG_INFO, "ready", "version=%s pid=%d socket=%s device=%s", ZR_VERSION, (int)getpid(),
               daemon->door.path, zr_log_quote(quoted, sizeof quoted, zr_engine_describe(daemon->engine)));
        zr_daemon_loop(daemon);
        zr_daemon_close(daemon);
        zr_log(ZR_LOG_INFO, "stopped", "pid=%d", (int)getpid());
    }
    signal(SIGTERM, SIG_DFL); /* `running` ends here */
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    free(daemon);
    return code;
}

static int run(const struct arguments *asked)
{
    struct zr_error err = { 0 };
    char *text = NULL;
    size_t bytes = 0;
    enum zr_code code = read_text(asked->config, &text, &bytes, &err);
    if (code != ZR_OK) return complain(code, &err);

    struct zr_config *config = calloc(1, sizeof *config);
    struct zr_config_report *report = NULL;
    int result = EXIT_FAILED;
    if (config) {
        code = zr_config_read_text(asked->config, text ? text : "", bytes, asked->sets, asked->set_count, config,
                                   &report, &err);
        print_remarks(report);
        if (code != ZR_OK) {
            result = report ? exit_code_of(code) : complain(code, &err);
            if (report && asked->check) { /* what could be made out all the same */
                struct zr_text summary = { 0 };
                zr_config_summary(config, report, &summary);
                print_text(&summary);
            }
        } else if (asked->print_config) {
            struct zr_text printed = { 0 };
            zr_config_print(config, report, &printed);
            print_text(&printed);
            result = EXIT_DONE;
        } else if (asked->check)
            result = check(config, report);
        else {
            struct zr_base_config base = { .name = asked->config,
                                           .text = text ? text : "",
                                           .bytes = bytes,
                                           .sets = asked->sets,
                                           .set_count = asked->set_count,
                                           .config = config };
            result = serve(&base);
        }
    }
    zr_config_report_free(report);
    free(config);
    free(text);
    return result;
}

/* -1: go on; else the exit code. */
static int parse(int argc, char **argv, const struct zr_verb *verbs, struct arguments *asked)
{
    enum { CHECK = 256, PRINT_CONFIG, REFERENCE, VERSION };
    static const struct option options[] = {
        { "config", required_argument, NULL, 'c' },
        { "set", required_argument, NULL, 's' },
        { "check", no_argument, NULL, CHECK },
        { "print-config", no_argument, NULL, PRINT_CONFIG },
        { "reference", no_argument, NULL, REFERENCE },
        { "version", no_argument, NULL, VERSION },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    int option;
    while ((option = getopt_long(argc, argv, "c:s:h", options, NULL)) != -1) {
        struct zr_text text = { 0 };
        switch (option) {
        case 'c':
            asked->config = optarg;
            break;
        case 's':
            asked->sets[asked->set_count++] = optarg;
            break;
        case CHECK:
            asked->check = true;
            break;
        case PRINT_CONFIG:
            asked->print_config = true;
            break;
        case REFERENCE:
            zr_config_reference(&text);
            print_text(&text);
            return EXIT_DONE;
        case VERSION:
            printf("zerod %s\n", ZR_VERSION);
            return EXIT_DONE;
        case 'h':
            print_help(verbs);
            return EXIT_DONE;
        default: /* getopt said what is wrong */
            fputs(usage, stderr);
            return EXIT_USAGE;
        }
    }
    if (optind < argc || !asked->config) {
        if (optind < argc)
            fprintf(stderr, "zerod: '%s' is not understood\n", argv[optind]);
        else
            fprintf(stderr, "zerod: --config FILE is missing\n");
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    return -1;
}

int zr_serve_main(int argc, char **argv, const struct zr_verb *verbs)
{
    for (const struct zr_verb *verb = verbs; argc > 1 && verb->name; verb++)
        if (strcmp(argv[1], verb->name) == 0) return verb->run(argc - 1, argv + 1);
    struct arguments asked = { .sets = calloc((size_t)argc + 1, sizeof *asked.sets) };
    if (!asked.sets) return EXIT_FAILED;
    int code = parse(argc, argv, verbs, &asked);
    if (code < 0) code = run(&asked);
    free(asked.sets);
    return code;
}
