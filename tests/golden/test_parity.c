/* test_parity.c: every family against PyTorch and transformers in fp32 (tests/golden/make.py)
 *
 * Logits within 1e-6 and each parameter's gradient within 1e-5 (relative L2), the loss within 1e-6, and the losses of
 * twenty AdamW steps within 1e-5: with weights streamed through two slots, in micro-batches of one row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/golden/golden.h"

struct fixture {
    struct golden golden;
    struct zr_config config;
    struct zr_engine *engine;
    struct zr_job *job;
};

static void check(enum zr_code code, const struct zr_error *err)
{
    if (code) fail_msg("%s", err->text);
}

static void fixture_open(struct fixture *fixture, const char *name)
{
    struct zr_error err = { 0 };
    char text[1024], lr[64];
    golden_open(&fixture->golden, name);
    snprintf(lr, sizeof lr, "%.17g", golden_number(&fixture->golden, "lr"));
    snprintf(text, sizeof text,
             "sequence_length: %u\ntrain_micro_batch_size_per_gpu: 1\ngradient_accumulation_steps: %u\n"
             "gradient_clipping: %.17g\noptimizer: {type: AdamW, params: {lr: %s, betas: [%.17g, %.17g], eps: %.17g, "
             "weight_decay: %.17g}}\nzero_optimization: {stage: 3, offload_param: {device: cpu}, offload_optimizer: "
             "{device: cpu}}\nzerod: {device: {backend: cpu, memory: 64MiB}, host: {memory: 64MiB}}\n",
             fixture->golden.row_tokens, fixture->golden.rows, golden_number(&fixture->golden, "clip"), lr,
             golden_number(&fixture->golden, "beta1"), golden_number(&fixture->golden, "beta2"),
             golden_number(&fixture->golden, "eps"), golden_number(&fixture->golden, "weight_decay"));
    struct zr_config_report *report = NULL;
    check(zr_config_read_text("golden.yaml", text, strlen(text), NULL, 0, &fixture->config, &report, &err), &err);
    zr_config_report_free(report);
    check(zr_engine_open(&fixture->config, &fixture->engine, &err), &err);
    struct zr_weights weights = { .load = golden_load, .context = &fixture->golden };
    check(zr_job_open(fixture->engine, name, &fixture->config, &fixture->golden.dims, &weights, &fixture->job, &err),
          &err);
}

static void fixture_close(struct fixture *fixture)
{
    zr_job_close(fixture->job);
    zr_engine_close(fixture->engine);
    golden_close(&fixture->golden);
}

static double distance(const float *ours, const float *theirs, uint64_t count)
{
    double difference = 0, size = 0;
    for (uint64_t i = 0; i < count; i++) {
        difference += ((double)ours[i] - theirs[i]) * ((double)ours[i] - theirs[i]);
        size += (double)theirs[i] * theirs[i];
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

static void check_logits(struct fixture *fixture)
{
    struct zr_error err = { 0 };
    struct zr_step_result result;
    uint64_t count = 0, tokens = (uint64_t)fixture->golden.rows * fixture->golden.row_tokens;
    float *theirs = golden_tensor(&fixture->golden, "logits", &count), *ours = calloc(count, sizeof *ours);
    uint32_t *positions = calloc(tokens, sizeof *positions);
    for (uint32_t i = 0; i < tokens; i++) positions[i] = i;
    check(zr_job_step(fixture->job, ZR_STEP_LOGITS, &fixture->golden.batch, positions, (uint32_t)tokens, ours, &result,
                      &err),
          &err);
    double error = distance(ours, theirs, count);
    print_message("  logits %.2e\n", error);
    if (!(error <= 1e-6)) fail_msg("logits: relative L2 %.3e", error);
    free(theirs);
    free(ours);
    free(positions);
}

/* Ours are sums over tokens: PyTorch's are divided by the number of labels that count. */
static void check_gradients(struct fixture *fixture, uint64_t trained)
{
    struct zr_error err = { 0 };
    const struct zr_model *model = zr_job_model(fixture->job);
    double worst = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct zr_tensor *tensor = &model->tensors[i];
        char name[160];
        uint64_t count = 0;
        snprintf(name, sizeof name, "grad.%s", tensor->name);
        float *theirs = golden_tensor(&fixture->golden, name, &count), *ours = calloc(tensor->count, sizeof *ours);
        if (!theirs || count != tensor->count) fail_msg("'%s' is not in expected.safetensors", name);
        check(zr_job_read(fixture->job, ZR_VIEW_GRADIENT, tensor->unit, tensor->offset, ours, tensor->count, &err), &err);
        for (uint64_t j = 0; j < count; j++) ours[j] /= (float)trained;
        double error = distance(ours, theirs, count);
        if (error > worst) worst = error;
        if (!(error <= 1e-5)) fail_msg("%s: relative L2 %.3e", name, error);
        free(theirs);
        free(ours);
    }
    print_message("  worst gradient %.2e\n", worst);
}

static void check_losses(struct fixture *fixture, struct zr_step_result first)
{
    struct zr_error err = { 0 };
    const json_t *losses = json_object_get(fixture->golden.json, "losses");
    double worst = 0;
    for (size_t step = 0; step < json_array_size(losses); step++) {
        struct zr_step_result result = first;
        if (step > 0)
            check(zr_job_step(fixture->job, ZR_STEP_TRAIN, &fixture->golden.batch, NULL, 0, NULL, &result, &err), &err);
        double theirs = json_number_value(json_array_get(losses, step)), error = fabs(result.loss - theirs) / theirs;
        if (error > worst) worst = error;
        if (!(error <= 1e-5)) fail_msg("step %zu: loss %.9f, PyTorch's is %.9f", step, result.loss, theirs);
    }
    print_message("  worst loss of 20 steps %.2e\n", worst);
}

static void check_case(const char *name)
{
    struct fixture fixture = { 0 };
    struct zr_error err = { 0 };
    struct zr_step_result result;
    print_message("%s\n", name);
    fixture_open(&fixture, name);
    check_logits(&fixture);
    check(zr_job_step(fixture.job, ZR_STEP_TRAIN, &fixture.golden.batch, NULL, 0, NULL, &result, &err), &err);
    assert_true(fabs(result.loss - golden_number(&fixture.golden, "loss")) <= 1e-6);
    double norm = golden_number(&fixture.golden, "grad_norm");
    assert_true(fabs(result.grad_norm - norm) <= 1e-5 * norm);
    check_gradients(&fixture, result.trained_tokens);
    check_losses(&fixture, result);
    fixture_close(&fixture);
}

#define CASE(function, name)                                                                                           \
    static void function(void **state)                                                                                 \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_case(name);                                                                                              \
    }
CASE(llama_packed, "llama")
CASE(llama_other_widths, "llama-long-hidden")
CASE(llama3_rope_tied_packed, "llama3-tied")
CASE(llama_linear_rope_with_biases, "llama-linear-bias")
CASE(llama_yarn_packed, "llama-yarn")
CASE(mistral_with_a_window, "mistral-window")
CASE(qwen2_tied_packed, "qwen2-tied")
CASE(qwen3_with_q_and_k_norms, "qwen3")
CASE(gpt2_packed, "gpt2")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_packed),           cmocka_unit_test(llama_other_widths),
        cmocka_unit_test(llama3_rope_tied_packed), cmocka_unit_test(llama_linear_rope_with_biases),
        cmocka_unit_test(llama_yarn_packed),      cmocka_unit_test(mistral_with_a_window),
        cmocka_unit_test(qwen2_tied_packed),      cmocka_unit_test(qwen3_with_q_and_k_norms),
        cmocka_unit_test(gpt2_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
