/* eval.c: the loss of a job's model on a file */
#include "clients/zeroctl/feed.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static int print(struct call *call, const struct evaluation *evaluation, bool text)
{
    const double loss = evaluation->loss, rate = (double)evaluation->tokens / evaluation->seconds;
    if (call->options.json)
        return call_print(call,
                          json_pack("{s:f,s:f,s:f,s:I,s:f,s:s}", "loss", loss, "bits", loss / log(2), "perplexity",
                                    exp(loss), "tokens", (json_int_t)evaluation->tokens, "tokens_per_second", rate,
                                    "unit", text ? "nats per byte" : "nats per token"));
    printf("loss %.4f nats per %s (%.3f bits, perplexity %.3f) over %" PRIu64 " tokens, %.0f tokens/s\n", loss,
           text ? "byte" : "token", loss / log(2), exp(loss), evaluation->tokens, rate);
    return EXIT_DONE;
}

int verb_eval(struct call *call)
{
    struct session session = { 0 };
    struct data *data = NULL;
    struct evaluation evaluation;
    const struct options *options = &call->options;
    if (!options->data) return call_fail(call, EXIT_USAGE, "eval needs --data FILE");
    if (options->holdout_percent > 100) return call_fail(call, EXIT_USAGE, "--holdout is at most 100 %%");
    int code = session_open(&session, call);
    if (code == EXIT_DONE)
        code = session_job(&session, call, options->config || options->model ? 0 : ZC_JOB_ATTACH_ONLY);
    struct data_setup setup = { .path = options->data,
                                .token_type = options->token_type,
                                .row_tokens = session.facts.sequence_length,
                                .vocabulary = session.facts.vocabulary,
                                .begin = options->holdout_percent > 0 ? 1 - options->holdout_percent / 100 : 0,
                                .end = 1,
                                .in_order = true };
    if (code == EXIT_DONE) code = data_open(call, &setup, &data);
    if (code == EXIT_DONE) code = evaluate(&session, call, data, &evaluation);
    if (code == EXIT_DONE) code = print(call, &evaluation, data_is_text(data));
    data_close(data);
    session_close(&session);
    return code;
}
