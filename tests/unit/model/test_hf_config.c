/* test_hf_config.c: config.json as published into dimensions and back; what is missing, wrong or not computed is refused
 * by its key */
#include "engine/model/model.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LLAMA_2                                                                                                        \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"bos_token_id\": 1, \"eos_token_id\": 2, \"hidden_act\": \"silu\", " \
    "\"hidden_size\": 4096, \"initializer_range\": 0.02, \"intermediate_size\": 11008, "                               \
    "\"max_position_embeddings\": 4096, \"model_type\": \"llama\", \"num_attention_heads\": 32, "                      \
    "\"num_hidden_layers\": 32, \"num_key_value_heads\": 32, \"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, "         \
    "\"rope_scaling\": null, \"tie_word_embeddings\": false, \"torch_dtype\": \"float16\", \"vocab_size\": 32000}"
#define LLAMA_31                                                                                                       \
    "{\"model_type\": \"llama\", \"attention_bias\": false, \"bos_token_id\": 128000, "                                \
    "\"eos_token_id\": [128001, 128008, 128009], \"hidden_act\": \"silu\", \"hidden_size\": 4096, "                    \
    "\"initializer_range\": 0.02, \"intermediate_size\": 14336, \"max_position_embeddings\": 131072, "                 \
    "\"mlp_bias\": false, \"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8, "        \
    "\"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, "                         \
    "\"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, "               \
    "\"rope_theta\": 500000.0, \"tie_word_embeddings\": false, \"vocab_size\": 128256}"
#define MISTRAL                                                                                                        \
    "{\"model_type\": \"mistral\", \"bos_token_id\": 1, \"eos_token_id\": 2, \"hidden_act\": \"silu\", "               \
    "\"hidden_size\": 4096, \"initializer_range\": 0.02, \"intermediate_size\": 14336, "                               \
    "\"max_position_embeddings\": 32768, \"num_attention_heads\": 32, \"num_hidden_layers\": 32, "                     \
    "\"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, \"sliding_window\": 4096, "         \
    "\"tie_word_embeddings\": false, \"vocab_size\": 32000}"
#define QWEN_25                                                                                                        \
    "{\"model_type\": \"qwen2\", \"bos_token_id\": 151643, \"eos_token_id\": 151643, \"hidden_act\": \"silu\", "       \
    "\"hidden_size\": 896, \"initializer_range\": 0.02, \"intermediate_size\": 4864, "                                 \
    "\"max_position_embeddings\": 32768, \"max_window_layers\": 24, \"num_attention_heads\": 14, "                     \
    "\"num_hidden_layers\": 24, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, "      \
    "\"sliding_window\": 32768, \"tie_word_embeddings\": true, \"use_sliding_window\": false, \"vocab_size\": 151936}"
#define QWEN_3                                                                                                         \
    "{\"model_type\": \"qwen3\", \"attention_bias\": false, \"bos_token_id\": 151643, \"eos_token_id\": 151645, "      \
    "\"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": 1024, \"initializer_range\": 0.02, "                \
    "\"intermediate_size\": 3072, \"max_position_embeddings\": 40960, \"max_window_layers\": 28, "                     \
    "\"num_attention_heads\": 16, \"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "    \
    "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, \"tie_word_embeddings\": true, "       \
    "\"use_sliding_window\": false, \"vocab_size\": 151936}"
#define GPT_2                                                                                                          \
    "{\"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.1, \"bos_token_id\": 50256, \"eos_token_id\": 50256, "  \
    "\"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", \"n_ctx\": 1024, "          \
    "\"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024, \"vocab_size\": 50257}"

static enum zr_code read_text(const char *json, struct zr_dims *dims, struct zr_error *err)
{
    *err = (struct zr_error){ 0 };
    return zr_dims_read("a/config.json", json, strlen(json), dims, err);
}

static struct zr_dims must_read(const char *json)
{
    struct zr_dims dims;
    struct zr_error err;
    if (read_text(json, &dims, &err)) fail_msg("%s", err.text);
    return dims;
}

/* `json` with the members of `changes` set ({"key": null} takes the key away). From the heap. */
static char *changed(const char *json, const char *changes)
{
    json_t *root = json_loads(json, 0, NULL), *more = json_loads(changes, 0, NULL), *value;
    const char *key;
    assert_non_null(root);
    if (!more) fail_msg("%s", changes);
    json_object_foreach(more, key, value)
    {
        if (json_is_null(value))
            json_object_del(root, key);
        else
            json_object_set(root, key, value);
    }
    char *text = json_dumps(root, 0);
    json_decref(root);
    json_decref(more);
    return text;
}

static struct zr_dims must_read_changed(const char *json, const char *changes)
{
    char *text = changed(json, changes);
    struct zr_dims dims = must_read(text);
    free(text);
    return dims;
}

static void must_refuse(const char *json, const char *changes, const char *key)
{
    struct zr_dims dims;
    struct zr_error err;
    char *text = changed(json, changes);
    memset(&dims, 0x5a, sizeof dims);
    if (read_text(text, &dims, &err) != ZR_EINPUT) fail_msg("%s is taken", changes);
    if (!strstr(err.text, "a/config.json") || !strstr(err.text, key)) fail_msg("%s: %s", changes, err.text);
    for (size_t i = 0; i < sizeof dims; i++)
        assert_int_equal(((unsigned char *)&dims)[i], 0x5a);
    free(text);
}

static void every_family_as_published(void **state)
{
    (void)state;
    struct zr_dims d = must_read(LLAMA_2);
    assert_true(d.family == ZR_LLAMA && d.hidden == 4096 && d.layers == 32 && d.heads == 32 && d.kv_heads == 32);
    assert_true(d.head_dim == 128 && d.intermediate == 11008 && d.vocabulary == 32000 && d.max_positions == 4096);
    assert_true(d.norm_eps == 1e-5 && d.initializer_range == 0.02 && d.bos == 1 && d.eos == 2 && d.window == 0);
    assert_true(!d.tied && !d.qkv_bias && !d.o_bias && !d.mlp_bias && !d.qk_norm && !d.layernorm && d.gated);
    assert_true(d.rope.kind == ZR_ROPE_DEFAULT && d.rope.theta == 10000 && d.attention_scale == 1 / sqrt(128));

    d = must_read(LLAMA_31);
    assert_true(d.kv_heads == 8 && d.vocabulary == 128256 && d.bos == 128000 && d.eos == 128001);
    assert_true(d.rope.kind == ZR_ROPE_LLAMA3 && d.rope.theta == 500000 && d.rope.factor == 8);
    assert_true(d.rope.low_freq_factor == 1 && d.rope.high_freq_factor == 4 && d.rope.original_positions == 8192);

    d = must_read(MISTRAL);
    assert_true(d.family == ZR_MISTRAL && d.kv_heads == 8 && d.window == 4096 && d.window_layers == 0 && !d.qkv_bias);

    d = must_read(QWEN_25);
    assert_true(d.family == ZR_QWEN2 && d.head_dim == 64 && d.qkv_bias && !d.o_bias && d.tied && d.window == 0);

    d = must_read(QWEN_3);
    assert_true(d.family == ZR_QWEN3 && d.head_dim == 128 && d.qk_norm && !d.qkv_bias && d.window == 0);
    assert_true(d.attention_scale == 1 / sqrt(128));

    d = must_read(GPT_2);
    assert_true(d.family == ZR_GPT2 && d.hidden == 768 && d.layers == 12 && d.heads == 12 && d.kv_heads == 12);
    assert_true(d.head_dim == 64 && d.intermediate == 3072 && d.vocabulary == 50257 && d.max_positions == 1024);
    assert_true(d.tied && d.qkv_bias && d.o_bias && d.mlp_bias && d.layernorm && !d.gated && !d.gelu_erf);
    assert_true(d.rope.kind == ZR_ROPE_NONE && d.attention_scale == 1.0 / 8 && d.norm_eps == 1e-5);
}

static void missing_keys_take_the_class_defaults(void **state)
{
    /* LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config and GPT2Config of transformers 4 and 5. */
    (void)state;
    static const struct {
        const char *json;
        uint32_t positions, kv_heads, head_dim;
    } cases[] = {
        { LLAMA_2, 2048, 32, 128 }, { MISTRAL, 131072, 8, 128 }, { QWEN_25, 32768, 32, 28 }, { QWEN_3, 32768, 32, 128 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct zr_dims d = must_read_changed(
            cases[i].json, "{\"max_position_embeddings\": null, \"num_key_value_heads\": null, \"head_dim\": null, "
                           "\"num_attention_heads\": 32, \"rms_norm_eps\": null, \"initializer_range\": null, "
                           "\"rope_theta\": null, \"tie_word_embeddings\": null, \"hidden_act\": null, "
                           "\"bos_token_id\": null, \"eos_token_id\": null}");
        assert_int_equal(d.max_positions, cases[i].positions);
        assert_int_equal(d.kv_heads, cases[i].kv_heads);
        assert_int_equal(d.head_dim, cases[i].head_dim);
        assert_true(d.norm_eps == 1e-6 && d.initializer_range == 0.02 && d.rope.theta == 10000 && !d.tied);
        assert_true(d.bos == -1 && d.eos == -1);
    }
    struct zr_dims d = must_read("{\"model_type\": \"gpt2\"}");
    assert_true(d.hidden == 768 && d.layers == 12 && d.heads == 12 && d.intermediate == 3072);
    assert_true(d.vocabulary == 50257 && d.max_positions == 1024 && d.tied && d.norm_eps == 1e-5);
}

static void windows(void **state)
{
    (void)state;
    assert_int_equal(must_read_changed(MISTRAL, "{\"sliding_window\": null}").window, 4096); /* the class default */
    static const char without[] = "{\"model_type\": \"mistral\", \"hidden_size\": 64, \"intermediate_size\": 64, "
                                  "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 9, "
                                  "\"sliding_window\": null}"; /* version 0.2 and later */
    assert_int_equal(must_read(without).window, 0);
    assert_int_equal(must_read_changed(LLAMA_2, "{\"sliding_window\": 7}").window, 0); /* the class knows none */

    struct zr_dims d = must_read_changed(QWEN_25, "{\"use_sliding_window\": true, \"max_window_layers\": 20}");
    assert_true(d.window == 32768 && d.window_layers == 20);
    d = must_read_changed(QWEN_25, "{\"use_sliding_window\": true, \"sliding_window\": null, "
                                   "\"max_window_layers\": null}");
    assert_true(d.window == 4096 && d.window_layers == 28);
    d = must_read_changed(QWEN_25, "{\"use_sliding_window\": true, \"num_hidden_layers\": 3, \"layer_types\": "
                                   "[\"full_attention\", \"sliding_attention\", \"sliding_attention\"]}");
    assert_true(d.window == 32768 && d.window_layers == 1);
    must_refuse(QWEN_25,
                "{\"use_sliding_window\": true, \"num_hidden_layers\": 3, \"layer_types\": "
                "[\"sliding_attention\", \"full_attention\", \"sliding_attention\"]}",
                "layer_types");
    must_refuse(QWEN_25, "{\"use_sliding_window\": true, \"layer_types\": [\"sliding_attention\"]}", "layer_types");
    must_refuse(QWEN_25, "{\"use_sliding_window\": true, \"layer_types\": \"sliding_attention\"}", "layer_types");
    must_refuse(MISTRAL, "{\"sliding_window\": 0}", "sliding_window");
    must_refuse(MISTRAL, "{\"sliding_window\": \"4096\"}", "sliding_window");
    must_refuse(QWEN_25, "{\"use_sliding_window\": 1}", "use_sliding_window");
}

static void rope_scaling_in_every_spelling(void **state)
{
    (void)state;
    struct zr_dims d = must_read_changed(LLAMA_2, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}");
    assert_true(d.rope.kind == ZR_ROPE_LINEAR && d.rope.factor == 4);
    d = must_read_changed(LLAMA_2, "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.5}}");
    assert_true(d.rope.kind == ZR_ROPE_DYNAMIC && d.rope.factor == 2.5);
    d = must_read_changed(QWEN_25, "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                                   "\"original_max_position_embeddings\": 32768}}");
    assert_true(d.rope.kind == ZR_ROPE_YARN && d.rope.original_positions == 32768 && d.rope.theta == 1000000);
    assert_true(d.rope.beta_fast == 32 && d.rope.beta_slow == 1 && d.rope.truncate && d.rope.attention_factor == 0);
    d = must_read_changed(LLAMA_2, "{\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 77, \"factor\": 2, "
                                   "\"beta_fast\": 24, \"beta_slow\": 2, \"attention_factor\": 1.5, \"mscale\": 0.7, "
                                   "\"mscale_all_dim\": 0.8, \"truncate\": false}}");
    assert_true(d.rope.theta == 77 && d.rope.beta_fast == 24 && d.rope.beta_slow == 2 && !d.rope.truncate);
    assert_true(d.rope.attention_factor == 1.5 && d.rope.mscale == 0.7 && d.rope.mscale_all_dim == 0.8);
    d = must_read_changed(LLAMA_2, "{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5000}}");
    assert_true(d.rope.kind == ZR_ROPE_DEFAULT && d.rope.theta == 5000);

    static const char *const bad[][2] = {
        { "{\"rope_scaling\": 4}", "rope_scaling" },
        { "{\"rope_parameters\": [\"linear\"]}", "rope_parameters" },
        { "{\"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2}}", "longrope" },
        { "{\"rope_scaling\": {\"rope_type\": 3, \"factor\": 2}}", "rope_type" },
        { "{\"rope_scaling\": {\"type\": \"linear\"}}", "factor" },
        { "{\"rope_scaling\": {\"type\": \"dynamic\"}}", "factor" },
        { "{\"rope_scaling\": {\"type\": \"yarn\"}}", "factor" },
        { "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}}", "factor" },
        { "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}}", "factor" },
        { "{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 4, "
          "\"original_max_position_embeddings\": 8192}}",
          "low_freq_factor" },
        { "{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
          "\"original_max_position_embeddings\": 8192}}",
          "high_freq_factor" },
        { "{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 4, "
          "\"original_max_position_embeddings\": 8192}}",
          "high_freq_factor" },
        { "{\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4}}",
          "original_max_position_embeddings" },
        { "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 1e300}}",
          "original_max_position_embeddings" },
        { "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": -1}}",
          "original_max_position_embeddings" },
        { "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"truncate\": \"no\"}}", "truncate" },
        { "{\"rope_theta\": 0}", "rope_theta" },
        { "{\"rope_theta\": \"10000\"}", "rope_theta" },
        { "{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        must_refuse(LLAMA_2, bad[i][0], bad[i][1]);
}

static void what_cannot_be_or_is_not_computed_is_refused_by_key(void **state)
{
    (void)state;
    static const char *const llama[][2] = {
        { "{\"hidden_size\": null}", "hidden_size: the key is missing" },
        { "{\"num_hidden_layers\": null}", "num_hidden_layers" },
        { "{\"num_attention_heads\": null}", "num_attention_heads" },
        { "{\"intermediate_size\": null}", "intermediate_size" },
        { "{\"vocab_size\": null}", "vocab_size" },
        { "{\"vocab_size\": 0}", "vocab_size" },
        { "{\"vocab_size\": -1}", "vocab_size" },
        { "{\"vocab_size\": 3.5}", "vocab_size" },
        { "{\"vocab_size\": \"32000\"}", "vocab_size" },
        { "{\"vocab_size\": true}", "vocab_size" },
        { "{\"hidden_size\": 4100, \"num_attention_heads\": 24}", "hidden_size" },
        { "{\"num_attention_heads\": 30, \"head_dim\": 128}", "num_key_value_heads" },
        { "{\"num_key_value_heads\": 64}", "num_key_value_heads" },
        { "{\"num_key_value_heads\": 0}", "num_key_value_heads" },
        { "{\"head_dim\": 5}", "head_dim" },
        { "{\"head_dim\": 512}", "head_dim" },
        { "{\"rms_norm_eps\": 0}", "rms_norm_eps" },
        { "{\"rms_norm_eps\": \"1e-5\"}", "rms_norm_eps" },
        { "{\"hidden_act\": \"gelu\"}", "hidden_act" },
        { "{\"hidden_act\": 4}", "hidden_act" },
        { "{\"tie_word_embeddings\": \"false\"}", "tie_word_embeddings" },
        { "{\"attention_bias\": 0}", "attention_bias" },
        { "{\"quantization_config\": {\"bits\": 4}}", "quantization_config" },
        { "{\"model_type\": \"mixtral\"}", "model_type" },
        { "{\"model_type\": null}", "model_type" },
        { "{\"model_type\": 7}", "model_type" },
    };
    static const char *const gpt2[][2] = {
        { "{\"n_head\": 7}", "n_head" },
        { "{\"n_head\": 2}", "n_head" }, /* heads of 384 */
        { "{\"n_embd\": 0}", "n_embd" },
        { "{\"layer_norm_epsilon\": 1}", "layer_norm_epsilon" },
        { "{\"activation_function\": \"relu\"}", "activation_function" },
        { "{\"activation_function\": []}", "activation_function" },
        { "{\"scale_attn_by_inverse_layer_idx\": true}", "scale_attn_by_inverse_layer_idx" },
        { "{\"add_cross_attention\": true}", "add_cross_attention" },
    };
    for (size_t i = 0; i < sizeof llama / sizeof llama[0]; i++)
        must_refuse(LLAMA_2, llama[i][0], llama[i][1]);
    for (size_t i = 0; i < sizeof gpt2 / sizeof gpt2[0]; i++)
        must_refuse(GPT_2, gpt2[i][0], gpt2[i][1]);
    must_refuse(QWEN_3, "{\"attention_bias\": true}", "attention_bias");
}

/* What a reader of ours or transformers' would look up in the original is in what we write, with the same value. */
static void same_keys(const char *original, const char *written)
{
    json_t *want = json_loads(original, 0, NULL), *got = json_loads(written, 0, NULL), *value;
    const char *key;
    static const char *const ours[] = { "pretraining_tp", "torch_dtype", "attn_pdrop", "sliding_window" };
    assert_non_null(got);
    json_object_foreach(want, key, value)
    {
        bool skip = false;
        for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
            skip |= strcmp(key, ours[i]) == 0;
        if (skip) continue;
        if (json_is_array(value)) value = json_array_get(value, 0);
        json_t *other = json_object_get(got, key);
        if (json_is_array(other)) other = json_array_get(other, 0);
        bool same = json_is_number(value)
                        ? json_is_number(other) && json_number_value(value) == json_number_value(other)
                        : json_equal(value, other) || (json_is_null(value) && !other);
        if (json_is_object(value)) { /* rope_scaling */
            const char *inner;
            json_t *inside;
            same = true;
            json_object_foreach(value, inner, inside)
            {
                json_t *there = json_object_get(other, inner);
                same &= json_is_number(inside) ? json_number_value(inside) == json_number_value(there)
                                               : json_equal(inside, there);
            }
        }
        if (!same) fail_msg("'%s' is not what it was: %s", key, written);
    }
    json_decref(want);
    json_decref(got);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    static const char *const changes[][2] = {
        { LLAMA_2, "{}" },
        { LLAMA_31, "{}" },
        { MISTRAL, "{}" },
        { QWEN_25, "{}" },
        { QWEN_3, "{}" },
        { GPT_2, "{}" },
        { LLAMA_2, "{\"attention_bias\": true, \"mlp_bias\": true, \"tie_word_embeddings\": true, \"head_dim\": 64}" },
        { LLAMA_2, "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4}, \"rope_theta\": 123456.5}" },
        { LLAMA_2, "{\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 3}}" },
        { QWEN_25, "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 20, \"beta_slow\": 3, "
                   "\"attention_factor\": 1.25, \"truncate\": false, \"original_max_position_embeddings\": 8192}}" },
        { QWEN_25, "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"mscale\": 0.7, "
                   "\"mscale_all_dim\": 0.9}}" },
        { QWEN_25, "{\"use_sliding_window\": true, \"max_window_layers\": 7}" },
        { GPT_2, "{\"activation_function\": \"gelu\", \"scale_attn_weights\": false, \"n_inner\": 100}" },
        { GPT_2, "{\"tie_word_embeddings\": false}" },
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char *original = changed(changes[i][0], changes[i][1]);
        struct zr_dims dims = must_read(original);
        char *written = zr_dims_write(&dims, "bfloat16");
        same_keys(original, written);
        struct zr_dims again = must_read(written);
        assert_true(again.window == dims.window && again.attention_scale == dims.attention_scale);
        assert_true(again.qkv_bias == dims.qkv_bias && again.o_bias == dims.o_bias && again.tied == dims.tied);
        assert_true(again.rope.kind == dims.rope.kind && again.rope.truncate == dims.rope.truncate);
        char *written_again = zr_dims_write(&again, "bfloat16");
        assert_string_equal(written, written_again);
        free(original);
        free(written);
        free(written_again);
    }
}

static void broken_text_never_crashes(void **state)
{
    (void)state;
    static const char *const texts[] = { LLAMA_31, QWEN_25, GPT_2 };
    uint64_t random = 1;
    int taken = 0;
    for (int round = 0; round < 6000; round++) {
        char text[1024];
        const char *good = texts[round % 3];
        size_t length = strlen(good);
        memcpy(text, good, length);
        for (int change = 0; change < 1 + round % 3; change++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            text[(random >> 40) % length] = "0123456789{}[],:\"-.e"[(random >> 33) % 20];
        }
        if (round % 5 == 0) length = (random >> 20) % length;
        char *exact = malloc(length + 1); /* so that a read past the end is seen */
        memcpy(exact, text, length);
        struct zr_dims dims;
        struct zr_error err = { 0 };
        enum zr_code code = zr_dims_read("a/config.json", exact, length, &dims, &err);
        assert_true(code == ZR_OK || (code == ZR_EINPUT && strstr(err.text, "a/config.json")));
        taken += code == ZR_OK;
        free(exact);
    }
    assert_true(taken > 100 && taken < 5900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_as_published),
        cmocka_unit_test(missing_keys_take_the_class_defaults),
        cmocka_unit_test(windows),
        cmocka_unit_test(rope_scaling_in_every_spelling),
        cmocka_unit_test(what_cannot_be_or_is_not_computed_is_refused_by_key),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(broken_text_never_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
