/* generate.c: a byte-level model writes, one token after another */
#include "clients/zeroctl/session.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256, TOKENS_DEFAULT = 200 };

struct choice {
    float logit;
    uint32_t token;
};

struct writer {
    struct session session;
    struct zc_batch batch; /* one row */
    float *logits;
    struct choice *choices;
    uint64_t random;
    unsigned char *text; /* prompt and what follows */
    size_t length, begin;
};

static double draw(struct writer *writer)
{
    writer->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
    uint64_t z = writer->random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int larger_first(const void *a, const void *b)
{
    const struct choice *one = a, *other = b;
    if (one->logit != other->logit) return one->logit < other->logit ? 1 : -1;
    return one->token > other->token ? 1 : -1;
}

/* Of the likeliest tokens whose probabilities add up to top_p, one by chance; temperature 0: the likeliest. */
static uint32_t choose(struct writer *writer, const struct options *options, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        writer->choices[i] = (struct choice){ .logit = writer->logits[i], .token = i };
    qsort(writer->choices, count, sizeof *writer->choices, larger_first);
    if (options->temperature <= 0) return writer->choices[0].token;
    double sum = 0, kept = 0;
    const double top = (double)writer->choices[0].logit;
    for (uint32_t i = 0; i < count; i++)
        sum += exp(((double)writer->choices[i].logit - top) / options->temperature);
    uint32_t last = 0;
    for (; last < count; last++) {
        kept += exp(((double)writer->choices[last].logit - top) / options->temperature);
        if (kept >= options->top_p * sum) break;
    }
    double point = draw(writer) * kept;
    for (uint32_t i = 0; i < last && i < count; i++) {
        point -= exp(((double)writer->choices[i].logit - top) / options->temperature);
        if (point < 0) return writer->choices[i].token;
    }
    return writer->choices[last < count ? last : count - 1].token;
}

static int open_writer(struct writer *writer, struct call *call, const char *prompt, uint64_t tokens)
{
    const struct zc_job_facts *facts = &writer->session.facts;
    if (facts->vocabulary < BYTES || facts->vocabulary > 2 * BYTES)
        return call_fail(call, EXIT_FAILED, "generate writes bytes, and this model's vocabulary has %u tokens",
                         facts->vocabulary);
    writer->length = writer->begin = strlen(prompt);
    writer->text = malloc(writer->length + tokens + 1);
    writer->logits = calloc(facts->vocabulary, sizeof *writer->logits);
    writer->choices = calloc(facts->vocabulary, sizeof *writer->choices);
    if (!writer->text || !writer->logits || !writer->choices) return call_fail(call, EXIT_FAILED, "no memory");
    memcpy(writer->text, prompt, writer->length);
    struct zc_batch batch = { .size = sizeof batch, .rows = 1, .row_tokens = facts->sequence_length };
    int zc = zc_batch_take(writer->session.client, &batch);
    if (zc) return call_fail_zc(call, zc, "");
    writer->batch = batch;
    return EXIT_DONE;
}

/* The last tokens, at the front of a whole row: what stands behind a token does not count for it. Returns its last one. */
static uint32_t set_row(struct writer *writer)
{
    const uint32_t width = writer->batch.row_tokens;
    const uint32_t count = writer->length < width ? (uint32_t)writer->length : width;
    for (uint32_t i = 0; i < width; i++)
        writer->batch.tokens[i] = i < count ? writer->text[writer->length - count + i] : 0;
    return count - 1;
}

static int write_text(struct writer *writer, struct call *call, uint64_t tokens)
{
    for (uint64_t i = 0; i < tokens; i++) {
        const uint32_t position = set_row(writer);
        int zc = zc_logits(writer->session.job, &writer->batch, &position, 1, writer->logits);
        if (zc) return call_fail_zc(call, zc, "");
        uint32_t token = choose(writer, &call->options, writer->session.facts.vocabulary);
        if (token >= BYTES) break; /* the end of a text */
        writer->text[writer->length++] = (unsigned char)token;
        if (!call->options.json) putchar((int)token);
    }
    return EXIT_DONE;
}

/* Bytes that are no UTF-8 become U+FFFD. */
static json_t *text_of(const unsigned char *text, size_t length)
{
    char *clean = malloc(3 * length + 1);
    size_t at = 0;
    if (!clean) return NULL;
    for (size_t i = 0; i < length;) {
        size_t width = text[i] < 0x80   ? 1
                       : text[i] < 0xc2 ? 0
                       : text[i] < 0xe0 ? 2
                       : text[i] < 0xf0 ? 3
                       : text[i] < 0xf5 ? 4
                                        : 0;
        json_t *piece = width && i + width <= length ? json_stringn((const char *)text + i, width) : NULL;
        if (piece) {
            memcpy(clean + at, text + i, width);
            at += width;
            i += width;
        } else {
            memcpy(clean + at, "\xef\xbf\xbd", 3);
            at += 3;
            i++;
        }
        json_decref(piece);
    }
    json_t *value = json_stringn(clean, at);
    free(clean);
    return value;
}

int verb_generate(struct call *call)
{
    struct writer writer = { .random = call->options.seed };
    const struct options *options = &call->options;
    const char *prompt = options->prompt ? options->prompt : "\n";
    const uint64_t tokens = options->tokens ? options->tokens : TOKENS_DEFAULT;
    if (!*prompt) return call_fail(call, EXIT_USAGE, "--prompt: one character at least");
    if (options->top_p <= 0 || options->top_p > 1)
        return call_fail(call, EXIT_USAGE, "--top-p is more than 0 and at most 1");
    int code = session_open(&writer.session, call);
    if (code == EXIT_DONE)
        code = session_job(&writer.session, call, options->config || options->model ? 0 : ZC_JOB_ATTACH_ONLY);
    if (code == EXIT_DONE) code = open_writer(&writer, call, prompt, tokens);
    if (code == EXIT_DONE) code = write_text(&writer, call, tokens);
    if (code == EXIT_DONE && options->json)
        code = call_print(call, json_pack("{s:o,s:o,s:I}", "prompt", text_of(writer.text, writer.begin), "text",
                                          text_of(writer.text + writer.begin, writer.length - writer.begin), "tokens",
                                          (json_int_t)(writer.length - writer.begin)));
    else if (code == EXIT_DONE)
        putchar('\n');
    if (writer.batch.tokens) zc_batch_give_back(writer.session.client, &writer.batch);
    session_close(&writer.session);
    free(writer.text);
    free(writer.logits);
    free(writer.choices);
    return code;
}
