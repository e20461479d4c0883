/* train.c: feeds a job, shows how it goes, keeps what the options ask for
 *
 * The job's own step decides which rows come next, so a second zeroctl that attaches to a job whose client died goes on with
 * the rows that were left. SIGINT and SIGTERM end the run after the steps under way; a second one ends at once. */
#include "clients/zeroctl/chart.h"
#include "clients/zeroctl/feed.h"
#include "clients/zeroctl/report.h"
#include "clients/zeroctl/screen.h"
#include "clients/zeroctl/words.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALIBRATION_STEPS = 50, STATUS_SECONDS = 1 };

static volatile sig_atomic_t stopped_by;

static void on_signal(int number)
{
    if (stopped_by) _exit(128 + number);
    stopped_by = number;
}

static void catch_signals(void)
{
    const struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

struct training {
    struct call *call;
    struct session session;
    struct data *data, *eval_data;
    struct feed feed;
    struct screen screen;
    struct progress progress;
    struct curve loss, eval_loss;
    FILE *log;
    uint64_t first_step, target, next_step;   /* next_step: to be submitted */
    double begin, eval_seconds, asked_status; /* seconds_now() */
    uint64_t tokens, trained_tokens, skipped; /* of this run */
    double first_loss, last_loss;
    bool calibrated;
};

/* -- beginning ----------------------------------------------------------------------------------------------------- */

static int open_data(struct training *training)
{
    struct call *call = training->call;
    const struct options *options = &call->options;
    const struct zc_job_facts *facts = &training->session.facts;
    if (options->holdout_percent >= 100 || (options->holdout_percent > 0 && options->eval_data))
        return call_fail(call, EXIT_USAGE, "--holdout is less than 100 %%, and not together with --eval-data");
    const double kept = 1 - options->holdout_percent / 100;
    struct data_setup setup = { .path = options->data,
                                .token_type = options->token_type,
                                .row_tokens = facts->sequence_length,
                                .vocabulary = facts->vocabulary,
                                .seed = options->seed,
                                .end = kept };
    int code = data_open(call, &setup, &training->data);
    setup.in_order = true;
    setup.begin = options->eval_data ? 0 : kept;
    setup.end = 1;
    if (options->eval_data) setup.path = options->eval_data;
    if (code == EXIT_DONE && (options->eval_data || options->holdout_percent > 0))
        code = data_open(call, &setup, &training->eval_data);
    if (code == EXIT_DONE && options->eval_every && !training->eval_data)
        code = call_fail(call, EXIT_USAGE, "--eval-every needs --holdout or --eval-data");
    if (code == EXIT_DONE && data_cut_examples(training->data))
        call_note(call, "%s: %" PRIu64 " examples are longer than sequence_length %" PRIu32 ": their ends are left out",
                  options->data, data_cut_examples(training->data), facts->sequence_length);
    return code;
}

static int choose_target(struct training *training)
{
    struct call *call = training->call;
    const struct zc_job_facts *facts = &training->session.facts;
    training->first_step = training->next_step = facts->step;
    training->target = call->options.steps ? call->options.steps : facts->max_steps;
    if (training->target == 0)
        return call_fail(call, EXIT_USAGE, "how many steps? give --steps N, or set zerod.max_steps");
    if (training->target < facts->step)
        return call_fail(call, EXIT_USAGE, "--steps %" PRIu64 ": the job has done %" PRIu64 " already",
                         training->target, facts->step);
    if (training->target == facts->max_steps) return EXIT_DONE;
    int zc = zc_job_set_max_steps(training->session.job, training->target);
    return zc ? call_fail_zc(call, zc, "--steps") : EXIT_DONE;
}

/* Says so now, not after hours: what --save, --log and --chart name must be writable. */
static int open_outputs(struct training *training)
{
    struct call *call = training->call;
    const char *const paths[] = { call->options.log, call->options.chart, call->options.trace };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        FILE *file = paths[i] ? fopen(paths[i], "ae") : NULL;
        if (paths[i] && !file) return call_fail(call, EXIT_FAILED, "%s: %s", paths[i], strerror(errno));
        if (i == 0)
            training->log = file;
        else if (file)
            fclose(file);
    }
    return EXIT_DONE;
}

static void greet(struct training *training)
{
    const struct zc_job_facts *facts = &training->session.facts;
    const struct options *options = &training->call->options;
    const uint64_t tokens = (uint64_t)facts->rows_per_step * facts->sequence_length;
    json_t *job = report_job(&training->session, training->call);
    call_note(training->call, "job \"%s\": %s parameters, steps %s to %s", options->job ? options->job : "default",
              words_count(facts->parameters).text, words_count(training->first_step + 1).text,
              words_count(training->target).text);
    call_note(training->call,
              "effective batch %" PRIu64 " = %" PRIu64 " x %" PRIu64 " x %" PRIu64 " sequences of %" PRIu32
              ": %s tokens a step",
              report_count(job, "batch/train_batch_size"), report_count(job, "batch/micro_batch_size"),
              report_count(job, "batch/gradient_accumulation_steps"), report_count(job, "batch/ranks"),
              facts->sequence_length, words_count(tokens).text);
    call_note(training->call, "data: %s, %s, %s rows an epoch", options->data, data_kind(training->data),
              words_count(data_rows(training->data)).text);
    json_decref(job);
}

/* -- the log ------------------------------------------------------------------------------------------------------- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void log_object(struct training *training, json_t *object)
{
    if (!training->log || !object) return;
    json_dumpf(object, training->log, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', training->log);
    fflush(training->log);
}

static void log_step(struct training *training, const struct zc_result *result)
{
    if (!training->log) return;
    const struct progress *progress = &training->progress;
    const uint64_t rows = result->step * training->session.facts.rows_per_step;
    json_t *object = json_object();
    json_object_set_new(object, "step", json_integer((json_int_t)result->step));
    json_object_set_new(object, "max_steps", json_integer((json_int_t)training->target));
    json_object_set_new(object, "epoch", number((double)rows / (double)data_rows(training->data)));
    json_object_set_new(object, "loss", number(result->loss));
    json_object_set_new(object, "grad_norm", number(result->grad_norm));
    json_object_set_new(object, "learning_rate", number(result->learning_rate));
    json_object_set_new(object, "applied", json_boolean(result->applied));
    json_object_set_new(object, "tokens", json_integer((json_int_t)result->tokens));
    json_object_set_new(object, "trained_tokens", json_integer((json_int_t)result->trained_tokens));
    json_object_set_new(object, "tokens_per_second", number(progress->tokens_per_second));
    json_object_set_new(object, "step_seconds", number(progress->step_seconds));
    json_object_set_new(object, "bound_by", json_string(progress->bound_by));
    json_object_set_new(object, "device_bytes", json_integer((json_int_t)progress->tier_used[0]));
    json_object_set_new(object, "host_bytes", json_integer((json_int_t)progress->tier_used[1]));
    json_object_set_new(object, "nvme_bytes", json_integer((json_int_t)progress->tier_used[2]));
    json_object_set_new(object, "elapsed_seconds", number(seconds_now() - training->begin));
    json_object_set_new(object, "remaining_seconds", number(progress->seconds_left));
    json_object_set_new(object, "time", json_integer((json_int_t)time(NULL)));
    log_object(training, object);
    json_decref(object);
}

/* -- steps --------------------------------------------------------------------------------------------------------- */

static double training_seconds(const struct training *training)
{
    return seconds_now() - training->begin - training->eval_seconds;
}

static int evaluate_now(struct training *training, uint64_t step)
{
    struct evaluation evaluation;
    int code = evaluate(&training->session, training->call, training->eval_data, &evaluation);
    training->eval_seconds += evaluation.seconds;
    if (code != EXIT_DONE) return code;
    json_t *object = json_pack("{s:I,s:f,s:I,s:I}", "step", (json_int_t)step, "eval_loss", evaluation.loss,
                               "eval_tokens", (json_int_t)evaluation.tokens, "time", (json_int_t)time(NULL));
    log_object(training, object);
    json_decref(object);
    return curve_add(&training->eval_loss, step, evaluation.loss) ? EXIT_DONE
                                                                  : call_fail(training->call, EXIT_FAILED, "no memory");
}

static void ask_status(struct training *training)
{
    if (seconds_now() - training->asked_status < STATUS_SECONDS) return;
    training->asked_status = seconds_now();
    json_t *job = report_job(&training->session, training->call);
    report_tiers(job, &training->progress);
    json_decref(job);
}

static int take_result(struct training *training, const struct zc_result *result)
{
    struct progress *progress = &training->progress;
    if (training->loss.count == 0) training->first_loss = result->loss;
    training->last_loss = result->loss;
    training->tokens += result->tokens;
    training->trained_tokens += result->trained_tokens;
    training->skipped += !result->applied;
    if (!curve_add(&training->loss, result->step, result->loss))
        return call_fail(training->call, EXIT_FAILED, "no memory");

    const double seconds = training_seconds(training);
    const uint64_t done = result->step - training->first_step;
    progress->step = result->step;
    progress->max_steps = training->target;
    progress->loss = result->loss;
    progress->grad_norm = result->grad_norm;
    progress->learning_rate = result->learning_rate;
    progress->step_seconds = 1e-9 * (double)result->run_ns;
    progress->tokens_per_second = seconds > 0 ? (double)training->tokens / seconds : 0;
    progress->seconds_left = done ? (double)(training->target - result->step) * seconds / (double)done : 0;
    ask_status(training);
    log_step(training, result);
    screen_show(&training->screen, progress, false);
    if (training->eval_data && training->call->options.eval_every &&
        result->step % training->call->options.eval_every == 0 && result->step < training->target)
        return evaluate_now(training, result->step);
    return EXIT_DONE;
}

/* --minutes: the rate of the first steps decides once, and the schedule of the learning rate is shortened with it. */
static int calibrate(struct training *training, uint64_t step)
{
    struct call *call = training->call;
    const uint64_t done = step - training->first_step;
    if (call->options.minutes <= 0 || training->calibrated || done < CALIBRATION_STEPS) return EXIT_DONE;
    training->calibrated = true;
    const double rate = (double)done / training_seconds(training),
                 left = 60 * call->options.minutes - training_seconds(training);
    uint64_t fits = step + (left > 0 ? (uint64_t)(rate * left) : 0);
    if (fits >= training->target) return EXIT_DONE;
    if (fits < training->next_step) fits = training->next_step;
    screen_close(&training->screen);
    call_note(
        call,
        "%.1f steps a second: %s steps fit in %.3g minutes, instead of %s; the learning rate's schedule is shortened",
        rate, words_count(fits).text, call->options.minutes, words_count(training->target).text);
    training->target = fits;
    int zc = zc_job_set_max_steps(training->session.job, fits);
    return zc ? call_fail_zc(call, zc, "--minutes") : EXIT_DONE;
}

static int run_steps(struct training *training)
{
    struct feed *feed = &training->feed;
    const uint64_t rows = training->session.facts.rows_per_step;
    int code = feed_open(feed, training->call, &training->session, training->data, ZC_TRAIN);
    training->begin = seconds_now();
    while (code == EXIT_DONE) {
        if (!stopped_by && training->next_step < training->target && feed_has_room(feed)) {
            code = feed_submit(feed, training->call, training->next_step * rows);
            training->next_step++;
            continue;
        }
        if (feed_is_empty(feed)) break;
        struct zc_result result;
        code = feed_receive(feed, training->call, &result);
        if (code == EXIT_DONE && !result.applied) training->next_step = result.step + feed->submitted - feed->received;
        if (code == EXIT_DONE) code = take_result(training, &result);
        if (code == EXIT_DONE) code = calibrate(training, result.step);
    }
    if (training->loss.count) screen_show(&training->screen, &training->progress, true);
    screen_close(&training->screen);
    feed_close(feed);
    return code;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static json_t *summary(const struct training *training, const json_t *job, double seconds)
{
    const struct options *options = &training->call->options;
    const json_t *tiers = json_object_get(job, "tiers");
    json_t *object = json_object();
    json_object_set_new(object, "job", json_string(options->job ? options->job : "default"));
    json_object_set_new(object, "steps", json_integer((json_int_t)training->progress.step));
    json_object_set_new(object, "max_steps", json_integer((json_int_t)training->target));
    json_object_set_new(object, "skipped_steps", json_integer((json_int_t)training->skipped));
    json_object_set_new(object, "first_loss", number(training->first_loss));
    json_object_set_new(object, "final_loss", number(training->last_loss));
    if (training->eval_loss.count)
        json_object_set_new(object, "eval_loss",
                            number((double)training->eval_loss.values[training->eval_loss.count - 1]));
    json_object_set_new(object, "tokens", json_integer((json_int_t)training->tokens));
    json_object_set_new(object, "trained_tokens", json_integer((json_int_t)training->trained_tokens));
    json_object_set_new(object, "seconds", number(seconds));
    json_object_set_new(object, "tokens_per_second", number(seconds > 0 ? (double)training->tokens / seconds : 0));
    json_object_set_new(object, "parameters", json_integer((json_int_t)training->session.facts.parameters));
    json_object_set_new(object, "model_state_bytes", json_integer((json_int_t)report_count(job, "model_state_bytes")));
    for (size_t i = 0; i < WORDS_TIERS; i++) {
        char key[48];
        snprintf(key, sizeof key, "%s_budget_bytes", words_tiers[i]);
        json_object_set_new(object, key,
                            json_integer((json_int_t)report_count(json_array_get(tiers, i), "budget_bytes")));
        snprintf(key, sizeof key, "%s_peak_bytes", words_tiers[i]);
        json_object_set_new(object, key,
                            json_integer((json_int_t)report_count(json_array_get(tiers, i), "used_bytes")));
    }
    json_object_set_new(object, "nvme_bytes_read",
                        json_integer((json_int_t)report_count(job, "moved/nvme_read_bytes")));
    json_object_set_new(object, "nvme_bytes_written",
                        json_integer((json_int_t)report_count(job, "moved/nvme_written_bytes")));
    if (options->save) json_object_set_new(object, "saved", json_string(options->save));
    return object;
}

static int keep(struct training *training)
{
    struct call *call = training->call;
    const struct options *options = &call->options;
    int zc = options->trace ? zc_daemon_trace(training->session.client, options->trace) : ZC_OK;
    if (zc) return call_fail_zc(call, zc, "--trace");
    if (options->chart) {
        char title[160];
        snprintf(title, sizeof title, "%s: %s parameters", options->job ? options->job : "zerod",
                 words_count(training->session.facts.parameters).text);
        int code = chart_write_svg(call, options->chart, title, &training->loss, &training->eval_loss);
        if (code != EXIT_DONE) return code;
    }
    zc = options->save ? zc_job_save(training->session.job, options->save, 0) : ZC_OK;
    return zc ? call_fail_zc(call, zc, "--save") : EXIT_DONE;
}

static int finish(struct training *training)
{
    struct call *call = training->call;
    const double seconds = training_seconds(training);
    int code = EXIT_DONE;
    if (training->eval_data && !stopped_by) code = evaluate_now(training, training->progress.step);
    if (code == EXIT_DONE) code = keep(training);
    json_t *job = code == EXIT_DONE ? report_job(&training->session, call) : NULL;
    if (!job) return code == EXIT_DONE ? EXIT_FAILED : code;
    if (!call->options.quiet) {
        chart_print(&training->loss, training->screen.utf8, stderr);
        if (training->eval_loss.count) {
            const double loss = (double)training->eval_loss.values[training->eval_loss.count - 1];
            fprintf(stderr, "  held-out %.4f nats per token (%.3f bits)\n", loss, loss / log(2));
        }
        report_places(job, stderr);
        if (training->skipped)
            call_note(call, "%" PRIu64 " steps changed nothing: their gradients were not finite", training->skipped);
    }
    if (call->options.json)
        code = call_print(call, summary(training, job, seconds));
    else
        printf("step %" PRIu64 "  loss %.4f  %.0f tokens/s%s%s\n", training->progress.step, training->last_loss,
               (double)training->tokens / seconds, call->options.save ? "  saved in " : "",
               call->options.save ? call->options.save : "");
    json_decref(job);
    return code;
}

static int train(struct training *training)
{
    struct call *call = training->call;
    int code = open_outputs(training);
    if (code == EXIT_DONE) code = session_open(&training->session, call);
    if (code == EXIT_DONE) code = session_job(&training->session, call, 0);
    if (code == EXIT_DONE) code = open_data(training);
    if (code == EXIT_DONE) code = choose_target(training);
    if (code != EXIT_DONE) return code;
    training->progress.step = training->first_step;
    screen_open(&training->screen, call);
    greet(training);
    catch_signals();
    code = run_steps(training);
    if (code == EXIT_DONE) code = finish(training);
    if (code == EXIT_DONE && stopped_by && training->progress.step < training->target) {
        call_note(call, "stopped at step %" PRIu64 " of %" PRIu64 "%s", training->progress.step, training->target,
                  training->session.daemon ? "" : "; the job is still open: the same command goes on with it");
        if (stopped_by != SIGINT) code = EXIT_LATER;
    }
    return code;
}

int verb_train(struct call *call)
{
    struct training training = { .call = call };
    if (!call->options.data) return call_fail(call, EXIT_USAGE, "train needs --data FILE");
    int code = train(&training);
    session_close(&training.session);
    data_close(training.data);
    data_close(training.eval_data);
    curve_free(&training.loss);
    curve_free(&training.eval_loss);
    if (training.log) fclose(training.log);
    return code;
}
