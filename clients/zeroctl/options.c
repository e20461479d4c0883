/* options.c: one row for each option: who takes it, where its value goes, what it means */
#include "clients/zeroctl/options.h"
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum type { FLAG, TEXT, LIST, COUNT, NUMBER };

struct row {
    const char *name;
    char letter;
    const char *value; /* what stands for the value in the help */
    enum type type;
    size_t offset;
    const char *takers; /* verbs, between blanks; NULL: all */
    const char *help;
};

#define AT(field) offsetof(struct options, field)
#define JOB_VERBS " train eval generate export "

static const struct row rows[] = {
    { "data", 'd', "FILE", TEXT, AT(data), " train eval ",
      "text as bytes; .bin of tokens (nanoGPT's or llm.c's); .jsonl with input_ids and, if wanted, labels" },
    { "config", 'c', "FILE", TEXT, AT(config), JOB_VERBS, "start a zerod of its own with that file, for this run" },
    { "set", 's', "KEY=VALUE", LIST, AT(sets), JOB_VERBS, "over the configuration, any number of times" },
    { "model", 'm', "DIR", TEXT, AT(model), JOB_VERBS, "a Hugging Face directory to start from" },
    { "job", 'j', "NAME", TEXT, AT(job), JOB_VERBS, "the job's name on the daemon; default: \"default\"" },
    { "steps", 'n', "N", COUNT, AT(steps), " train ", "optimizer steps in all; default: the configuration's" },
    { "minutes", 0, "M", NUMBER, AT(minutes), " train ",
      "fewer steps where the machine is too slow for them; said after 50 steps" },
    { "save", 'o', "DIR", TEXT, AT(save), " train ", "write the model there at the end, as a Hugging Face directory" },
    { "holdout", 0, "PERCENT", NUMBER, AT(holdout_percent), " train eval ",
      "the last part of the data: train leaves it out and evaluates on it, eval takes only it" },
    { "eval-data", 0, "FILE", TEXT, AT(eval_data), " train ", "evaluate on that file instead" },
    { "eval-every", 0, "N", COUNT, AT(eval_every), " train ", "evaluate each N steps; default: at the end" },
    { "token-type", 0, "u16|u32", TEXT, AT(token_type), " train eval ",
      "tokens of a .bin without a header; default: u16" },
    { "log", 'l', "FILE", TEXT, AT(log), " train ", "append one JSON object a step" },
    { "chart", 0, "FILE", TEXT, AT(chart), " train ", "the loss curve as SVG" },
    { "trace", 0, "FILE", TEXT, AT(trace), " train ", "the last steps as a Chrome trace (ui.perfetto.dev)" },
    { "prompt", 'p', "TEXT", TEXT, AT(prompt), " generate ", "what it goes on from; default: a new line" },
    { "tokens", 't', "N", COUNT, AT(tokens), " generate ", "how much it writes; default: 200" },
    { "temperature", 0, "T", NUMBER, AT(temperature), " generate ", "0: always the likeliest; default: 0.8" },
    { "top-p", 0, "P", NUMBER, AT(top_p), " generate ", "of the likeliest tokens that make up P; default: 0.9" },
    { "seed", 0, "N", COUNT, AT(seed), " train generate ", "order of the data, or choice of tokens; default: 1" },
    { "host", 'H', "SOCKET", TEXT, AT(host), NULL,
      "the daemon's socket; default: $ZEROD_HOST, then the system's and the user's own" },
    { "timeout", 0, "SECONDS", COUNT, AT(timeout_s), NULL, "for each answer of the daemon; default: 10" },
    { "json", 0, NULL, FLAG, AT(json), NULL, "the result as one JSON document on standard output" },
    { "quiet", 'q', NULL, FLAG, AT(quiet), NULL, "no progress, no notes" },
    { "verbose", 'v', NULL, FLAG, AT(verbose), NULL, "also what the daemon of its own says" },
    { "no-color", 0, NULL, FLAG, AT(no_color), NULL, "as $NO_COLOR does" },
    { "help", 'h', NULL, FLAG, AT(help), NULL, "this text" },
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static bool takes(const struct verb *verb, const struct row *row)
{
    char padded[32];
    snprintf(padded, sizeof padded, " %s ", verb->name);
    return !row->takers || strstr(row->takers, padded);
}

/* 1.5M and the like are not counts: a count is digits, with commas or underscores where a person put them. */
static bool read_count(const char *text, uint64_t *ret_value)
{
    char digits[24];
    size_t length = 0;
    for (const char *at = text; *at; at++) {
        if (*at == ',' || *at == '_') continue;
        if (*at < '0' || *at > '9' || length == sizeof digits - 1) return false;
        digits[length++] = *at;
    }
    digits[length] = 0;
    errno = 0;
    *ret_value = strtoull(digits, NULL, 10);
    return length > 0 && errno == 0;
}

static bool read_number(const char *text, double *ret_value)
{
    char *end;
    *ret_value = strtod(text, &end);
    if (*end == '%') end++; /* --holdout 5% */
    return end != text && *end == 0 && isfinite(*ret_value) && *ret_value >= 0;
}

static int store(struct call *call, const struct row *row, const char *text)
{
    char *field = (char *)&call->options + row->offset;
    bool fine = true;
    switch (row->type) {
    case FLAG:
        *(bool *)field = true;
        break;
    case TEXT:
        *(const char **)field = text;
        break;
    case LIST:
        call->options.sets[call->options.set_count++] = text;
        break;
    case COUNT:
        fine = read_count(text, (uint64_t *)field);
        break;
    case NUMBER:
        fine = read_number(text, (double *)field);
        break;
    }
    if (fine) return EXIT_DONE;
    return call_fail(call, EXIT_USAGE, "--%s %s: %s is wanted", row->name, text,
                     row->type == COUNT ? "a whole number" : "a number that is not negative");
}

int options_read(struct call *call, const struct verb *verb, int argc, char **argv)
{
    struct option longs[ROWS + 1] = { 0 };
    char letters[2 * ROWS + 2] = ":";
    size_t at = 1;
    for (int i = 0; i < ROWS; i++) {
        longs[i] = (struct option){ .name = rows[i].name, .has_arg = rows[i].value != NULL, .val = 256 + i };
        if (!rows[i].letter) continue;
        letters[at++] = rows[i].letter;
        if (rows[i].value) letters[at++] = ':';
    }
    call->options = (struct options){ .temperature = 0.8, .top_p = 0.9, .seed = 1 };
    call->options.sets = calloc((size_t)argc + 1, sizeof *call->options.sets);
    if (!call->options.sets) return call_fail(call, EXIT_FAILED, "no memory");

    opterr = 0;
    optind = 1;
    for (int found; (found = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        const char *word = argv[optind - 1];
        if (found == '?') return call_fail(call, EXIT_USAGE, "%s: no such option, or it takes no value", word);
        if (found == ':') return call_fail(call, EXIT_USAGE, "%s needs a value", word);
        const struct row *row = rows;
        if (found >= 256)
            row += found - 256;
        else
            while (row->letter != found)
                row++;
        if (!takes(verb, row)) return call_fail(call, EXIT_USAGE, "%s has no option --%s", verb->name, row->name);
        int code = store(call, row, optarg);
        if (code) return code;
    }
    call->options.operands = argv + optind;
    call->options.operand_count = argc - optind;
    if (call->options.operand_count > (verb->operands != NULL))
        return call_fail(call, EXIT_USAGE, "%s: one word too many: %s", verb->name,
                         argv[optind + (verb->operands != NULL)]);
    return EXIT_DONE;
}

void options_free(struct options *options)
{
    free(options->sets);
}

/* -- what the table says of itself --------------------------------------------------------------------------------- */

static void print_row(const struct row *row)
{
    char left[40];
    snprintf(left, sizeof left, "--%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : "");
    if (row->letter)
        printf("  -%c, %-22s %s\n", row->letter, left, row->help);
    else
        printf("      %-22s %s\n", left, row->help);
}

void options_help(const struct verb *verb)
{
    if (verb) {
        printf("usage: zeroctl %s [OPTION]...%s%s\n\n%s\n\n", verb->name, verb->operands ? " " : "",
               verb->operands ? verb->operands : "", verb->help);
        for (int i = 0; i < ROWS; i++)
            if (takes(verb, rows + i)) print_row(rows + i);
        return;
    }
    printf("usage: zeroctl VERB [OPTION]...\n\n");
    for (verb = verbs; verb->name; verb++)
        printf("  %-12s %s\n", verb->name, verb->help);
    printf(
        "\nzeroctl VERB --help lists a verb's options.\n\n"
        "exit codes: 0 done, 1 failed, 2 wrong usage, 3 does not fit, 69 no daemon, 75 later, or stopped by SIGTERM,\n"
        "            77 not allowed, 78 wrong configuration\n"
        "environment: ZEROD_HOST (the daemon's socket), NO_COLOR\n");
}

void options_completion(void)
{
    printf("# bash completion for zeroctl: zeroctl completion > /etc/bash_completion.d/zeroctl\n"
           "_zeroctl()\n{\n    local word=${COMP_WORDS[COMP_CWORD]} options=\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        mapfile -t COMPREPLY < <(compgen -W '");
    for (const struct verb *verb = verbs; verb->name; verb++)
        printf("%s%s", verb == verbs ? "" : " ", verb->name);
    printf("' -- \"$word\")\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (const struct verb *verb = verbs; verb->name; verb++) {
        if (verb->hands_over) continue;
        printf("    %s) options='", verb->name);
        for (int i = 0; i < ROWS; i++)
            if (takes(verb, rows + i)) printf("--%s ", rows[i].name);
        printf("' ;;\n");
    }
    printf("    esac\n    case $word in\n    -*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\") ;;\n"
           "    *) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n    esac\n}\n"
           "complete -o filenames -F _zeroctl zeroctl\n");
}
