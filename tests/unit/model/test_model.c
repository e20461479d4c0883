/* Sizes and tables of real models: numbers from their own papers and from formulas written down here in float64. */
#include "engine/model/model.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LLAMA_7B                                                                                                       \
    "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 11008, \"num_hidden_layers\": 32, "     \
    "\"num_attention_heads\": 32, \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, "                         \
    "\"tie_word_embeddings\": false, \"vocab_size\": %d}"
#define GPT2                                                                                                           \
    "{\"model_type\": \"gpt2\", \"n_embd\": %d, \"n_layer\": %d, \"n_head\": %d, \"n_positions\": 1024, "              \
    "\"vocab_size\": 50257}"
#define LLAMA_31                                                                                                       \
    "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 1, "      \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"max_position_embeddings\": 131072, "                   \
    "\"vocab_size\": 128256, \"rope_theta\": 500000.0, \"rope_scaling\": %s}"

static struct zr_dims read_dims(const char *json)
{
    struct zr_dims dims;
    struct zr_error err = { 0 };
    if (zr_dims_read("config.json", json, strlen(json), &dims, &err)) fail_msg("%s", err.text);
    return dims;
}

static uint64_t parameters_of(const char *json)
{
    const struct zr_dims dims = read_dims(json);
    struct zr_model *model = NULL;
    struct zr_error err = { 0 };
    if (zr_model_make(&dims, &model, &err)) fail_msg("%s", err.text);
    const uint64_t parameters = model->parameters;
    zr_model_free(model);
    return parameters;
}

static void models_have_as_many_parameters_as_published(void **state)
{
    (void)state;
    char json[1024];
    snprintf(json, sizeof json, LLAMA_7B, 32000);
    assert_int_equal(parameters_of(json), 6738415616u);
    snprintf(json, sizeof json, LLAMA_7B, 32001); /* one pad token more: a row of embedding and one of head */
    assert_int_equal(parameters_of(json), 6738423808u);
    snprintf(json, sizeof json, GPT2, 768, 12, 12);
    assert_int_equal(parameters_of(json), 124439808); /* tied: 163,037,184 would count the head twice */
    snprintf(json, sizeof json, GPT2, 1600, 48, 25);
    assert_int_equal(parameters_of(json), 1557611200);
}

/* transformers' modeling_rope_utils, _compute_llama3_parameters, on paper for head width 128. */
static void frequencies_of_llama_31_are_kept_blended_and_divided(void **state)
{
    (void)state;
    char json[1024];
    float frequencies[64];
    double factor;
    snprintf(json, sizeof json, LLAMA_31,
             "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
             "\"original_max_position_embeddings\": 8192}");
    const struct zr_dims dims = read_dims(json);
    zr_rope_frequencies(&dims, 1, frequencies, &factor);
    assert_true(factor == 1);
    for (int i = 0; i < 64; i++) {
        const double plain = pow(500000.0, -2.0 * i / 128), length = 2 * acos(-1.0) / plain;
        double right = plain;
        if (length > 8192.0 / 1) {
            right = plain / 8;
        } else if (length > 8192.0 / 4) {
            const double smooth = (8192.0 / length - 1) / (4 - 1);
            right = (1 - smooth) * plain / 8 + smooth * plain;
        }
        assert_true((i <= 28) == (right == plain));
        assert_true((i >= 35) == (right == plain / 8));
        if (fabs((double)frequencies[i] - right) > 1e-6 * right)
            fail_msg("frequency %d is %g, not %g", i, (double)frequencies[i], right);
    }
    assert_true(fabs((double)frequencies[29] - 0.00216657) < 1e-8);
    assert_true(fabs((double)frequencies[63] - 3.068926e-07) < 1e-13);
}

static void the_old_spelling_counts_and_an_unknown_one_is_refused(void **state)
{
    (void)state;
    char json[1024];
    float frequencies[64];
    double factor;
    snprintf(json, sizeof json, LLAMA_31, "{\"type\": \"linear\", \"factor\": 2.0}");
    const struct zr_dims dims = read_dims(json);
    zr_rope_frequencies(&dims, 1, frequencies, &factor);
    for (int i = 0; i < 64; i++)
        assert_true(fabs((double)frequencies[i] / (pow(500000.0, -2.0 * i / 128) / 2) - 1) < 1e-6);

    struct zr_dims none;
    struct zr_error err = { 0 };
    snprintf(json, sizeof json, LLAMA_31, "{\"rope_type\": \"spiral\", \"factor\": 2.0}");
    assert_int_equal(zr_dims_read("config.json", json, strlen(json), &none, &err), ZR_EINPUT);
    assert_non_null(strstr(err.text, "rope"));
    assert_non_null(strstr(err.text, "spiral"));
    err = (struct zr_error){ 0 };
    snprintf(json, sizeof json, LLAMA_31, "{\"rope_type\": \"llama3\", \"factor\": 8.0}");
    assert_int_equal(zr_dims_read("config.json", json, strlen(json), &none, &err), ZR_EINPUT);
    if (!strstr(err.text, "low_freq_factor")) fail_msg("%s", err.text);
}

static void configs_that_cannot_be_are_refused_by_key(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "{", "config.json" },
        { "[]", "config.json" },
        { "{\"model_type\": \"bart\"}", "model_type" },
        { "{\"model_type\": \"llama\"}", "hidden_size" },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 10, \"n_layer\": 1, \"n_head\": 3, \"vocab_size\": 5}", "n_head" },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 0, \"n_layer\": 1, \"n_head\": 1, \"vocab_size\": 5}", "n_embd" },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1e40, \"n_head\": 1, \"vocab_size\": 5}", "n_layer" },
        { "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 1}", "config.json" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct zr_dims dims;
        struct zr_error err = { 0 };
        assert_int_equal(zr_dims_read("config.json", bad[i][0], strlen(bad[i][0]), &dims, &err), ZR_EINPUT);
        if (!strstr(err.text, bad[i][1])) fail_msg("%s: %s", bad[i][0], err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_as_many_parameters_as_published),
        cmocka_unit_test(frequencies_of_llama_31_are_kept_blended_and_divided),
        cmocka_unit_test(the_old_spelling_counts_and_an_unknown_one_is_refused),
        cmocka_unit_test(configs_that_cannot_be_are_refused_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
