/* status.c: the daemon's jobs, one line each */
#include "clients/zeroctl/report.h"
#include "clients/zeroctl/words.h"
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_in(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}

static void print_places(const struct progress *progress)
{
    char shares[40];
    uint64_t sum = 0;
    for (int i = 0; i < WORDS_TIERS; i++)
        sum += progress->tier_used[i];
    double part[WORDS_TIERS];
    for (int i = 0; i < WORDS_TIERS; i++)
        part[i] = sum ? 100.0 * (double)progress->tier_used[i] / (double)sum : 0;
    snprintf(shares, sizeof shares, "%.0f/%.0f/%.0f %%", part[0], part[1], part[2]);
    printf("  %-12s %-10s", shares, words_bytes(progress->tier_used[0]).text);
}

static void print_job(const json_t *job)
{
    char steps[80], loss[16] = "-";
    struct progress progress = { 0 };
    const json_t *last = json_object_get(job, "loss");
    const uint64_t step = report_count(job, "step"), most = report_count(job, "max_steps");
    const double rate = json_number_value(json_object_get(job, "tokens_per_second"));
    const double seconds = json_number_value(json_object_get(job, "step_seconds"));
    const struct passwd *user = getpwuid((uid_t)report_count(job, "uid"));
    report_tiers(job, &progress);
    snprintf(steps, sizeof steps, "%s/%s", words_count(step).text, most ? words_count(most).text : "-");
    if (step && json_is_number(last)) snprintf(loss, sizeof loss, "%.3f", json_number_value(last));
    printf("%-14s %-10s %-8s %-16s %-8s %-8s", text_in(job, "name"), user ? user->pw_name : "?",
           json_is_true(json_object_get(job, "failed")) ? "failed" : "open", steps, loss,
           rate > 0 ? words_rate(rate).text : "-");
    print_places(&progress);
    printf("  %-8s %s\n", most > step && seconds > 0 ? words_duration((double)(most - step) * seconds).text : "-",
           text_in(job, "bound_by"));
}

static void print_daemon(const json_t *whole)
{
    const json_t *daemon = json_object_get(whole, "daemon");
    size_t index;
    json_t *job;
    printf("zerod %s, pid %" PRIu64 ", up %s, %s, %zu client%s\n", text_in(daemon, "version"),
           report_count(daemon, "pid"),
           words_duration(json_number_value(json_object_get(daemon, "uptime_seconds"))).text, text_in(daemon, "device"),
           json_array_size(json_object_get(whole, "sessions")),
           json_array_size(json_object_get(whole, "sessions")) == 1 ? "" : "s");
    if (json_array_size(json_object_get(whole, "jobs")) == 0) {
        printf("no job is open\n");
        return;
    }
    printf("%-14s %-10s %-8s %-16s %-8s %-8s  %-12s %-10s  %-8s %s\n", "JOB", "USER", "STATE", "STEP", "LOSS", "TOK/S",
           "DEV/HOST/NVME", "DEVICE", "ETA", "BOUND BY");
    json_array_foreach(json_object_get(whole, "jobs"), index, job) print_job(job);
}

int verb_status(struct call *call)
{
    struct session session = { 0 };
    char *text = NULL;
    int code = session_open(&session, call);
    int zc = code == EXIT_DONE ? zc_daemon_status(session.client, &text) : ZC_OK;
    if (zc) code = call_fail_zc(call, zc, "");
    json_t *whole = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    session_close(&session);
    if (code != EXIT_DONE) return code;
    if (!whole) return call_fail(call, EXIT_FAILED, "the daemon's status is not JSON");
    if (call->options.json) return call_print(call, whole);
    print_daemon(whole);
    json_decref(whole);
    return EXIT_DONE;
}
