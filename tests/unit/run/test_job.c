/* test_job.c: a job from open to close: what a step allocates (nothing), how submissions add up, what it refuses */
#include "engine/base/span.h"
#include "engine/run/engine.h"
#include "tests/lib/temp.h"
#include "tests/unit/run/allocations.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 4, ROW_TOKENS = 8, VOCABULARY = 29 };

static const struct zr_dims dims = {
    .family = ZR_LLAMA,
    .hidden = 32,
    .layers = 4,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 8,
    .intermediate = 48,
    .vocabulary = VOCABULARY,
    .max_positions = 64,
    .norm_eps = 1e-5,
    .initializer_range = 0.1,
    .rope = { .kind = ZR_ROPE_DEFAULT, .theta = 10000 },
    .gated = true,
    .bos = -1,
    .eos = -1,
    .attention_scale = 0.35355339059327373, /* 1 / sqrt(8) */
};

static struct fixture {
    struct zr_config config;
    struct zr_engine *engine;
    struct zr_job *job;
    struct zr_error err;
    int32_t tokens[ROWS * ROW_TOKENS], labels[ROWS * ROW_TOKENS];
    char folder[TEMP_PATH_BYTES];
} * now;

static void check(enum zr_code code)
{
    if (code) fail_msg("%s", now->err.text);
}

/* Fp32, everything on the device, micro-batches of one row; tests change what they look at. */
static int set_up(void **state)
{
    (void)state;
    static const char text[] = "sequence_length: 8\ntrain_micro_batch_size_per_gpu: 1\ngradient_accumulation_steps: 4\n"
                               "optimizer: {type: AdamW, params: {lr: 1.0e-2, weight_decay: 0.1}}\n"
                               "zerod: {device: {backend: cpu, memory: 64MiB}, host: {memory: 64MiB}, "
                               "compute: {threads: 2}, optimizer: {threads: 2}, nvme: {allow_buffered: true}}\n";
    struct zr_config_report *report = NULL;
    now = calloc(1, sizeof *now);
    assert_non_null(now);
    check(zr_config_read_text("job.yaml", text, sizeof text - 1, NULL, 0, &now->config, &report, &now->err));
    zr_config_report_free(report);
    temp_make(now->folder);
    for (int i = 0; i < ROWS * ROW_TOKENS; i++)
        now->tokens[i] = now->labels[i] = (i * 7 + i / 5) % VOCABULARY;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    zr_job_close(now->job);
    zr_engine_close(now->engine);
    temp_remove(now->folder);
    free(now);
    return 0;
}

static void open_job(void)
{
    check(zr_engine_open(&now->config, &now->engine, &now->err));
    check(zr_job_open(now->engine, "job", &now->config, &dims, NULL, &now->job, &now->err));
}

static void reopen_job(void)
{
    zr_job_close(now->job);
    now->job = NULL;
    check(zr_job_open(now->engine, "job", &now->config, &dims, NULL, &now->job, &now->err));
}

static struct zr_batch rows(uint32_t first, uint32_t count)
{
    return (struct zr_batch){ .rows = count,
                              .row_tokens = ROW_TOKENS,
                              .tokens = now->tokens + first * ROW_TOKENS,
                              .labels = now->labels + first * ROW_TOKENS };
}

static struct zr_step_result step(enum zr_step_kind kind, uint32_t first, uint32_t count)
{
    struct zr_step_result result;
    struct zr_batch batch = rows(first, count);
    check(zr_job_step(now->job, kind, &batch, NULL, 0, NULL, &result, &now->err));
    return result;
}

/* A plane of all units, one after another; free(). */
static float *plane(enum zr_plane_view view, uint64_t *ret_count)
{
    const struct zr_model *model = zr_job_model(now->job);
    uint64_t count = 0;
    check(zr_job_flush(now->job, &now->err));
    for (uint32_t unit = 0; unit < model->unit_count; unit++)
        count += model->units[unit].elements;
    float *values = calloc(count, sizeof *values), *at = values;
    for (uint32_t unit = 0; unit < model->unit_count; at += model->units[unit].elements, unit++)
        check(zr_job_read(now->job, view, unit, 0, at, model->units[unit].elements, &now->err));
    *ret_count = count;
    return values;
}

/* -- E2: a step allocates nothing ---------------------------------------------------------------------------------- */

static void the_counter_counts(void **state)
{
    (void)state;
    uint64_t before = atomic_load(&allocations);
    void *volatile at[4] = { malloc(10), calloc(2, 5), aligned_alloc(64, 64), NULL };
    at[0] = realloc(at[0], 1000);
    assert_int_equal(posix_memalign((void **)&at[3], 64, 64), 0);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    assert_int_equal(atomic_load(&allocations) - before, ALLOCATIONS_COUNTED ? 6 : 0);
    munmap(page, 4096);
    for (int i = 0; i < 4; i++)
        free(at[i]);
}

/* The first two steps build the schedules without and with a pending update, and the GEMM library its kernels. */
static void steps_allocate_nothing(void)
{
    open_job();
    for (int i = 0; i < 2; i++)
        step(ZR_STEP_TRAIN, 0, ROWS);
    uint64_t before = atomic_load(&allocations);
    double first = 0, last = 0;
    for (int i = 0; i < 20; i++) {
        last = step(ZR_STEP_TRAIN, 0, ROWS).loss;
        if (i == 0) first = last;
    }
    assert_int_equal(atomic_load(&allocations) - before, 0);
    assert_true(last < first); /* it learns its four rows: the steps did something */
}

static void steps_on_the_device_allocate_nothing(void **state)
{
    (void)state;
    steps_allocate_nothing();
}

static void steps_that_stream_from_the_host_allocate_nothing(void **state)
{
    (void)state;
    now->config.precision = ZR_PRECISION_BF16;
    now->config.zero_stage = 3;
    now->config.optimizer_device = now->config.param_device = ZR_PLACE_CPU;
    now->config.device_bytes = 512 << 10; /* too little for all the weights */
    steps_allocate_nothing();
    assert_true(zr_job_plan(now->job)->slot_count[0] > 0);
}

static void steps_that_stream_from_nvme_allocate_nothing(enum zr_io_engine engine)
{
    now->config.precision = ZR_PRECISION_BF16;
    now->config.zero_stage = 3;
    now->config.optimizer_device = now->config.param_device = ZR_PLACE_NVME;
    now->config.nvme_planes = ZR_NVME_WEIGHT | ZR_NVME_LOW | ZR_NVME_M | ZR_NVME_V;
    now->config.update_chunk = 1024;
    now->config.io_block_bytes = 4096;
    now->config.io_depth = 4;
    now->config.io_engine = engine;
    now->config.nvme_bytes = 64 << 20;
    now->config.nvme_path_count = 1;
    snprintf(now->config.nvme_path[0], sizeof now->config.nvme_path[0], "%s", now->folder);
    steps_allocate_nothing();
    struct zr_job_facts facts;
    zr_job_facts(now->job, &facts);
    assert_true(facts.nvme_read_bytes > 0 && facts.nvme_written_bytes > 0);
}

static void steps_that_stream_from_nvme_by_whatever_is_there_allocate_nothing(void **state)
{
    (void)state;
    steps_that_stream_from_nvme_allocate_nothing(ZR_IO_AUTO);
}

static void steps_that_stream_from_nvme_by_threads_allocate_nothing(void **state)
{
    (void)state;
    steps_that_stream_from_nvme_allocate_nothing(ZR_IO_THREADS);
}

/* -- how submissions add up ---------------------------------------------------------------------------------------- */

static void a_loss_is_weighted_by_the_labels_that_count(void **state)
{
    (void)state;
    for (int i = 0; i < ROW_TOKENS; i++) { /* three labels in row 0, one in row 1 */
        if (i < 5) now->labels[i] = -100;
        if (i != 3) now->labels[ROW_TOKENS + i] = -100;
    }
    open_job();
    struct zr_step_result first = step(ZR_STEP_EVAL, 0, 1), second = step(ZR_STEP_EVAL, 1, 1);
    struct zr_step_result both = step(ZR_STEP_EVAL, 0, 2);
    assert_int_equal(first.trained_tokens, 3);
    assert_int_equal(second.trained_tokens, 1);
    double mean = (3 * first.loss + second.loss) / 4;
    assert_true(fabs(both.loss - mean) <= 1e-12 * mean && fabs(first.loss - second.loss) > 1e-3);
}

/* Two submissions before one update are one batch of both: the micro-batches are the same in the same order. */
static void accumulated(enum zr_place_tier states, enum zr_precision precision)
{
    uint64_t count;
    now->config.optimizer_device = states;
    now->config.precision = precision;
    open_job();
    struct zr_step_result whole = step(ZR_STEP_TRAIN, 0, ROWS);
    step(ZR_STEP_TRAIN, 0, ROWS);
    float *want = plane(ZR_VIEW_MASTER, &count), *want_gradient = plane(ZR_VIEW_GRADIENT, &count);

    reopen_job();
    struct zr_step_result part = step(ZR_STEP_ACCUMULATE, 0, 1);
    assert_true(!part.applied && part.step == 0);
    step(ZR_STEP_ACCUMULATE, 1, 2);
    struct zr_step_result last = step(ZR_STEP_TRAIN, 3, 1);
    assert_true(last.applied && last.step == 1);
    assert_int_equal(last.trained_tokens, whole.trained_tokens);
    assert_true(fabs(last.loss - whole.loss) <= 1e-12 * whole.loss);
    assert_true(fabs(last.grad_norm - whole.grad_norm) <= 1e-12 * whole.grad_norm);
    step(ZR_STEP_ACCUMULATE, 0, 2);
    step(ZR_STEP_TRAIN, 2, 2);
    float *got = plane(ZR_VIEW_MASTER, &count), *got_gradient = plane(ZR_VIEW_GRADIENT, &count);
    assert_memory_equal(got_gradient, want_gradient, count * sizeof *got);
    assert_memory_equal(got, want, count * sizeof *got);
    free(want);
    free(got);
    free(want_gradient);
    free(got_gradient);
}

static void accumulated_submissions_are_one_batch_on_the_device(void **state)
{
    (void)state;
    accumulated(ZR_PLACE_NONE, ZR_PRECISION_FP32);
}

static void accumulated_submissions_are_one_batch_on_the_host(void **state)
{
    (void)state;
    accumulated(ZR_PLACE_CPU, ZR_PRECISION_BF16);
}

static void evaluation_between_steps_changes_nothing(void **state)
{
    (void)state;
    uint64_t count;
    now->config.optimizer_device = ZR_PLACE_CPU;
    open_job();
    for (int i = 0; i < 3; i++)
        step(ZR_STEP_TRAIN, 0, ROWS);
    float *want = plane(ZR_VIEW_MASTER, &count);
    reopen_job();
    for (int i = 0; i < 3; i++) {
        step(ZR_STEP_TRAIN, 0, ROWS);
        step(ZR_STEP_EVAL, 1, 2);
    }
    float *got = plane(ZR_VIEW_MASTER, &count);
    assert_memory_equal(got, want, count * sizeof *got);
    free(want);
    free(got);
}

/* -- what changes nothing ------------------------------------------------------------------------------------------ */

static enum zr_code huge_weights(void *context, const struct zr_model *model,
                                 enum zr_code (*sink)(void *, uint32_t, uint64_t, const float *, uint64_t,
                                                      struct zr_error *),
                                 void *sink_context, struct zr_error *err)
{
    (void)context;
    enum zr_code code = ZR_OK;
    for (uint32_t i = 0; i < model->tensor_count && !code; i++) {
        const struct zr_tensor *tensor = &model->tensors[i];
        float *values = malloc(tensor->count * sizeof *values);
        for (uint64_t j = 0; j < tensor->count; j++)
            values[j] = tensor->matrix ? (j % 3 ? 1e30f : -2e30f) : 1;
        code = sink(sink_context, tensor->unit, tensor->offset, values, tensor->count, err);
        free(values);
    }
    return code;
}

static void a_step_without_a_finite_gradient_changes_no_bit(void **state)
{
    (void)state;
    uint64_t count;
    now->config.optimizer_device = ZR_PLACE_CPU;
    struct zr_weights weights = { .load = huge_weights };
    check(zr_engine_open(&now->config, &now->engine, &now->err));
    check(zr_job_open(now->engine, "job", &now->config, &dims, &weights, &now->job, &now->err));
    float *before = plane(ZR_VIEW_MASTER, &count), *m = plane(ZR_VIEW_M, &count);
    struct zr_step_result result = step(ZR_STEP_TRAIN, 0, ROWS);
    assert_true(!result.applied && result.step == 0 && !isfinite(result.grad_norm));
    step(ZR_STEP_TRAIN, 0, ROWS);
    float *after = plane(ZR_VIEW_MASTER, &count), *m_after = plane(ZR_VIEW_M, &count);
    assert_memory_equal(before, after, count * sizeof *before);
    assert_memory_equal(m, m_after, count * sizeof *m);
    struct zr_job_facts facts;
    zr_job_facts(now->job, &facts);
    assert_int_equal(facts.skipped_steps, 2);
    assert_int_equal(facts.step, 0);
    free(before);
    free(after);
    free(m);
    free(m_after);
}

static void a_batch_without_labels_that_count_is_skipped(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS * ROW_TOKENS; i++)
        now->labels[i] = -100;
    open_job();
    struct zr_step_result result = step(ZR_STEP_TRAIN, 0, ROWS);
    assert_true(!result.applied && result.loss == 0 && result.trained_tokens == 0 && result.step == 0);
}

static void refused(struct zr_batch batch, const char *text)
{
    struct zr_step_result result;
    now->err = (struct zr_error){ 0 };
    assert_int_equal(zr_job_step(now->job, ZR_STEP_TRAIN, &batch, NULL, 0, NULL, &result, &now->err), ZR_EINPUT);
    if (!strstr(now->err.text, text)) fail_msg("'%s' does not say '%s'", now->err.text, text);
}

static void a_bad_batch_is_refused_by_place_and_changes_nothing(void **state)
{
    (void)state;
    uint64_t count;
    open_job();
    step(ZR_STEP_TRAIN, 0, ROWS);
    float *before = plane(ZR_VIEW_MASTER, &count);

    int32_t right = now->tokens[2 * ROW_TOKENS + 3];
    now->tokens[2 * ROW_TOKENS + 3] = VOCABULARY;
    refused(rows(0, ROWS), "token id 29 in row 2, column 3: ids are 0 to 28");
    now->tokens[2 * ROW_TOKENS + 3] = right;
    now->labels[ROW_TOKENS + 7] = -1;
    refused(rows(0, ROWS), "label -1 in row 1, column 7");
    now->labels[ROW_TOKENS + 7] = VOCABULARY;
    refused(rows(0, ROWS), "label 29 in row 1, column 7");
    now->labels[ROW_TOKENS + 7] = 0;
    refused(rows(0, ROWS + 1), "5 rows in a batch: this job takes at most train_batch_size 4");
    refused(rows(0, 0), "an empty batch");
    struct zr_batch batch = rows(0, 1);
    batch.row_tokens = 4;
    refused(batch, "rows of 4 tokens");
    static const uint32_t late[] = { 1 }, twice[] = { 0, 5, 5 }, outside[] = { 0, 8 };
    batch = rows(0, 1);
    batch.document_starts = late;
    batch.document_count = 1;
    refused(batch, "the first document must start at token 0");
    batch.document_starts = twice;
    batch.document_count = 3;
    refused(batch, "document 2 starts at token 5");
    batch.document_starts = outside;
    batch.document_count = 2;
    refused(batch, "document 1 starts at token 8");

    float *after = plane(ZR_VIEW_MASTER, &count);
    assert_memory_equal(before, after, count * sizeof *before);
    assert_int_equal(step(ZR_STEP_TRAIN, 0, ROWS).step, 2);
    free(before);
    free(after);
}

/* -- what does not open -------------------------------------------------------------------------------------------- */

static enum zr_code not_to_be_asked(void *context, const struct zr_model *model,
                                    enum zr_code (*sink)(void *, uint32_t, uint64_t, const float *, uint64_t,
                                                         struct zr_error *),
                                    void *sink_context, struct zr_error *err)
{
    (void)context, (void)model, (void)sink, (void)sink_context, (void)err;
    fail_msg("weights are read for a job that does not fit");
    return ZR_EBUG;
}

/* GPT-2 small: 124,439,808 parameters, 12 bytes each for fp32 master and moments on the host. */
static void a_job_that_does_not_fit_is_refused_before_its_weights_are_read(void **state)
{
    (void)state;
    struct zr_dims gpt2 = { .family = ZR_GPT2,
                            .hidden = 768,
                            .layers = 12,
                            .heads = 12,
                            .kv_heads = 12,
                            .head_dim = 64,
                            .intermediate = 3072,
                            .vocabulary = 50257,
                            .max_positions = 1024,
                            .norm_eps = 1e-5,
                            .tied = true,
                            .layernorm = true,
                            .qkv_bias = true,
                            .o_bias = true,
                            .mlp_bias = true,
                            .attention_scale = 0.125 };
    struct zr_weights weights = { .load = not_to_be_asked };
    now->config.optimizer_device = ZR_PLACE_CPU;
    now->config.device_bytes = (uint64_t)8 << 30;
    now->config.host_bytes = (uint64_t)1 << 30;
    check(zr_engine_open(&now->config, &now->engine, &now->err));
    enum zr_code code = zr_job_open(now->engine, "gpt2", &now->config, &gpt2, &weights, &now->job, &now->err);
    assert_int_equal(code, ZR_EFULL);
    assert_null(now->job);
    assert_non_null(strstr(now->err.text, "host needs at least"));
    assert_non_null(strstr(now->err.text, "zerod.host.memory"));
    assert_non_null(strstr(now->err.text, "offload_optimizer.device nvme"));
    unsigned long long need = 0;
    sscanf(strchr(now->err.text, '('), "(%llu", &need);
    assert_true(need >= 124439808ull * 16 && need < 124439808ull * 17); /* and the gradient, 4 bytes */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_counts),
        TEST(steps_on_the_device_allocate_nothing),
        TEST(steps_that_stream_from_the_host_allocate_nothing),
        TEST(steps_that_stream_from_nvme_by_whatever_is_there_allocate_nothing),
        TEST(steps_that_stream_from_nvme_by_threads_allocate_nothing),
        TEST(a_loss_is_weighted_by_the_labels_that_count),
        TEST(accumulated_submissions_are_one_batch_on_the_device),
        TEST(accumulated_submissions_are_one_batch_on_the_host),
        TEST(evaluation_between_steps_changes_nothing),
        TEST(a_step_without_a_finite_gradient_changes_no_bit),
        TEST(a_batch_without_labels_that_count_is_skipped),
        TEST(a_bad_batch_is_refused_by_place_and_changes_nothing),
        TEST(a_job_that_does_not_fit_is_refused_before_its_weights_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
