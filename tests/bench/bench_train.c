/* bench_train.c: a training job in this process, on random tokens: how long a step takes, and what it is made of
 *
 *     bench_train [--config FILE] [--steps N] [--warmup N] [--set KEY=VALUE]... [--json]
 *
 * Prints the median step and tokens/s, then from the trace: the share of the time each queue was busy, and the time of each
 * kind of op. Without --config it is the model of config/examples/quickstart.yaml. */
#include "config/config.h"
#include "engine/base/clock.h"
#include "engine/run/engine.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS_MAX = 64, EVENTS_MAX = 65536, NAMES_MAX = 256 };

struct settings {
    const char *config, *sets[SETS_MAX];
    uint32_t set_count, steps, warmup;
    bool json;
};

struct cost { /* of one kind of op on one queue */
    uint64_t ns, count;
};

struct bench {
    struct zr_config config;
    struct zr_engine *engine;
    struct zr_job *job;
    struct zr_batch batch;
    int32_t *tokens;
    uint64_t *step_ns;
    uint64_t begin_ns, end_ns; /* of the steps that count */
    struct cost costs[NAMES_MAX][NAMES_MAX];
    uint64_t queue_ns[NAMES_MAX], seen_from_ns; /* the trace may have forgotten the first steps */
};

static void die(const char *text)
{
    fprintf(stderr, "bench_train: %s\n", text);
    exit(1);
}

static void check(enum zr_code code, const struct zr_error *err)
{
    if (code) die(err->text);
}

static uint32_t number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || value < 1 || value > 1000000) die("numbers are 1 to 1000000");
    return (uint32_t)value;
}

static struct settings read_arguments(int argc, char **argv)
{
    struct settings settings = { .config = ZR_SOURCE_DIR "/config/examples/quickstart.yaml",
                                 .steps = 40,
                                 .warmup = 10 };
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(option, "--json") == 0) {
            settings.json = true;
            continue;
        }
        if (!value) die("usage: bench_train [--config FILE] [--steps N] [--warmup N] [--set KEY=VALUE]... [--json]");
        i++;
        if (strcmp(option, "--config") == 0) {
            settings.config = value;
        } else if (strcmp(option, "--steps") == 0) {
            settings.steps = number(value);
        } else if (strcmp(option, "--warmup") == 0) {
            settings.warmup = number(value);
        } else if (strcmp(option, "--set") == 0) {
            if (settings.set_count == SETS_MAX) die("too many --set");
            settings.sets[settings.set_count++] = value;
        } else {
            die("unknown option");
        }
    }
    return settings;
}

static void open_job(struct bench *bench, const struct settings *settings)
{
    struct zr_error err = { 0 };
    struct zr_config_report *report = NULL;
    struct zr_dims dims;
    check(zr_config_read(settings->config, settings->sets, settings->set_count, &bench->config, &report, &err), &err);
    zr_config_report_free(report);
    const char *json = bench->config.model_config_json;
    if (!json[0]) die("the model has to stand in the file, under model.config");
    check(zr_dims_read("model.config", json, strlen(json), &dims, &err), &err);
    check(zr_engine_open(&bench->config, &bench->engine, &err), &err);
    check(zr_job_open(bench->engine, "bench", &bench->config, &dims, NULL, &bench->job, &err), &err);

    bench->batch.rows = (uint32_t)bench->config.train_batch_size;
    bench->batch.row_tokens = (uint32_t)bench->config.sequence_length;
    uint64_t count = (uint64_t)bench->batch.rows * bench->batch.row_tokens;
    bench->tokens = calloc(count, sizeof *bench->tokens);
    bench->step_ns = calloc(settings->steps, sizeof *bench->step_ns);
    if (!bench->tokens || !bench->step_ns) die("no memory");
    bench->batch.tokens = bench->tokens;
}

static void step(struct bench *bench)
{
    static uint64_t state = 1;
    struct zr_error err = { 0 };
    struct zr_step_result result;
    const uint64_t count = (uint64_t)bench->batch.rows * bench->batch.row_tokens;
    const uint64_t vocabulary = zr_job_model(bench->job)->dims.vocabulary;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bench->tokens[i] = (int32_t)((state >> 33) % vocabulary);
    }
    check(zr_job_step(bench->job, ZR_STEP_TRAIN, &bench->batch, NULL, 0, NULL, &result, &err), &err);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_ms(uint64_t *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_size);
    uint64_t twice = count % 2 ? 2 * values[count / 2] : values[count / 2 - 1] + values[count / 2];
    return (double)twice / 2e6;
}

static void measure(struct bench *bench, const struct settings *settings)
{
    for (uint32_t i = 0; i < settings->warmup; i++)
        step(bench);
    bench->begin_ns = zr_now_ns();
    for (uint32_t i = 0; i < settings->steps; i++) {
        uint64_t began = zr_now_ns();
        step(bench);
        bench->step_ns[i] = zr_now_ns() - began;
    }
    bench->end_ns = zr_now_ns();
}

static void add_up(struct bench *bench)
{
    struct zr_trace *trace = zr_engine_trace(bench->engine);
    struct zr_event_record *records = calloc(EVENTS_MAX, sizeof *records);
    if (!records) die("no memory");
    uint32_t count = zr_trace_read(trace, records, EVENTS_MAX);
    bench->seen_from_ns = bench->begin_ns;
    if (count == EVENTS_MAX && records[0].begin_ns > bench->begin_ns) bench->seen_from_ns = records[0].begin_ns;
    for (uint32_t i = 0; i < count; i++) {
        const struct zr_event_record *record = &records[i];
        if (record->begin_ns < bench->seen_from_ns || record->end_ns > bench->end_ns) continue;
        struct cost *cost = &bench->costs[record->track % NAMES_MAX][record->name % NAMES_MAX];
        cost->ns += record->end_ns - record->begin_ns;
        cost->count++;
        bench->queue_ns[record->track % NAMES_MAX] += record->end_ns - record->begin_ns;
    }
    free(records);
}

static void print(const struct bench *bench, const struct settings *settings, double ms)
{
    const struct zr_trace *trace = zr_engine_trace(bench->engine);
    const double seen_ms = (double)(bench->end_ns - bench->seen_from_ns) / 1e6;
    const double steps = seen_ms * 1e6 / (double)(bench->end_ns - bench->begin_ns) * settings->steps;
    const double tokens_s = (double)bench->batch.rows * bench->batch.row_tokens / (ms / 1e3);
    if (settings->json) {
        printf("{\"step_ms\": %.3f, \"tokens_s\": %.0f, \"busy\": {", ms, tokens_s);
        const char *comma = "";
        for (uint32_t track = 0; track < NAMES_MAX; track++) {
            if (bench->queue_ns[track] == 0) continue;
            printf("%s\"%s\": %.3f", comma, zr_trace_track_text(trace, track),
                   (double)bench->queue_ns[track] / 1e6 / seen_ms);
            comma = ", ";
        }
        printf("}}\n");
        return;
    }
    printf("%s\nstep %.2f ms (median of %u), %.0f tokens/s\n", zr_engine_describe(bench->engine), ms, settings->steps,
           tokens_s);
    printf("%-8s %-16s %10s %12s %10s\n", "queue", "op", "a step", "us each", "ms a step");
    for (uint32_t track = 0; track < NAMES_MAX; track++) {
        if (bench->queue_ns[track] == 0) continue;
        printf("%-8s %-16s %35.2f  busy %.0f %%\n", zr_trace_track_text(trace, track), "",
               (double)bench->queue_ns[track] / 1e6 / steps, 100 * (double)bench->queue_ns[track] / 1e6 / seen_ms);
        for (uint32_t name = 0; name < NAMES_MAX; name++) {
            const struct cost *cost = &bench->costs[track][name];
            if (cost->count == 0) continue;
            printf("%-8s %-16s %10.1f %12.1f %10.3f\n", "", zr_trace_name_text(trace, name),
                   (double)cost->count / steps, (double)cost->ns / 1e3 / (double)cost->count,
                   (double)cost->ns / 1e6 / steps);
        }
    }
}

int main(int argc, char **argv)
{
    static struct bench bench;
    const struct settings settings = read_arguments(argc, argv);
    open_job(&bench, &settings);
    measure(&bench, &settings);
    add_up(&bench);
    print(&bench, &settings, median_ms(bench.step_ns, settings.steps));
    zr_job_close(bench.job);
    zr_engine_close(bench.engine);
    free(bench.tokens);
    free(bench.step_ns);
    return 0;
}
