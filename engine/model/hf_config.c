/* hf_config.c: Hugging Face's config.json into dimensions, and back
 *
 * transformers 4 writes rope_theta, rope_scaling and torch_dtype; transformers 5 one rope_parameters object and dtype.
 * Missing keys take the class defaults of the family. A key that changes what the model computes and that we do not
 * compute is refused by name. */
#include "engine/model/model.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_POSITIONS (1u << 28)
#define WIDEST_HEAD 256 /* of the attention kernels */

struct reader {
    const char *name;
    json_t *root;
    struct zr_error *err;
    enum zr_code code; /* the first failure */
};

static void fail(struct reader *reader, const char *key, const char *what)
{
    if (!reader->code) reader->code = zr_fail(reader->err, ZR_EINPUT, "%s: %s: %s", reader->name, key, what);
}

/* NULL for a missing key and for null. */
static json_t *find(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static uint32_t whole(struct reader *reader, const char *key, uint64_t fallback, uint64_t low, uint64_t high)
{
    json_t *value = find(reader->root, key);
    double number = (double)fallback;
    if (value && !json_is_number(value))
        fail(reader, key, "a whole number is needed");
    else if (value)
        number = json_number_value(value);
    if (!(number >= (double)low && number <= (double)high) || number != floor(number)) {
        char text[96];
        snprintf(text, sizeof text, "%.17g is not a whole number from %" PRIu64 " to %" PRIu64, number, low, high);
        if (!value && fallback == 0) snprintf(text, sizeof text, "the key is missing");
        fail(reader, key, text);
        return (uint32_t)low;
    }
    return (uint32_t)number;
}

static double real_in(struct reader *reader, const json_t *object, const char *key, double fallback)
{
    json_t *value = find(object, key);
    if (!value) return fallback;
    if (!json_is_number(value)) {
        fail(reader, key, "a number is needed");
        return fallback;
    }
    return json_number_value(value);
}

static bool truth_in(struct reader *reader, const json_t *object, const char *key, bool fallback)
{
    json_t *value = find(object, key);
    if (!value) return fallback;
    if (!json_is_boolean(value)) fail(reader, key, "true or false is needed");
    return json_is_true(value);
}

static bool truth(struct reader *reader, const char *key, bool fallback)
{
    return truth_in(reader, reader->root, key, fallback);
}

static const char *word(struct reader *reader, const json_t *object, const char *key, const char *fallback)
{
    json_t *value = find(object, key);
    if (value && !json_is_string(value)) fail(reader, key, "a word is needed");
    return json_is_string(value) ? json_string_value(value) : fallback;
}

/* -1 where there is none; the first where there is a list (Llama 3 has several ends). */
static int32_t token_id(struct reader *reader, const char *key)
{
    json_t *value = find(reader->root, key);
    if (json_is_array(value)) value = json_array_get(value, 0);
    return json_is_integer(value) ? (int32_t)json_integer_value(value) : -1;
}

static const char *const family_names[ZR_FAMILY_COUNT] = { "llama", "mistral", "qwen2", "qwen3", "gpt2" };

const char *zr_family_name(enum zr_family family)
{
    return family_names[family];
}

static const char *const rope_names[] = { "", "default", "linear", "dynamic", "llama3", "yarn" };

static void read_rope(struct reader *reader, struct zr_dims *dims)
{
    const json_t *nested = find(reader->root, "rope_parameters");
    const char *section = nested ? "rope_parameters" : "rope_scaling";
    if (!nested) nested = find(reader->root, "rope_scaling");
    if (nested && !json_is_object(nested)) {
        fail(reader, section, "an object is needed");
        return;
    }
    struct zr_rope_shape *rope = &dims->rope;

    *rope = (struct zr_rope_shape){ .kind = ZR_ROPE_DEFAULT, .truncate = true };
    rope->theta = real_in(reader, nested, "rope_theta", real_in(reader, reader->root, "rope_theta", 10000));
    if (!(rope->theta > 1)) fail(reader, "rope_theta", "a number above 1 is needed");
    double partial =
        real_in(reader, nested, "partial_rotary_factor", real_in(reader, reader->root, "partial_rotary_factor", 1));
    if (partial != 1) fail(reader, "partial_rotary_factor", "only 1 is supported");
    if (!nested) return;

    const char *type = word(reader, nested, "rope_type", word(reader, nested, "type", "default"));
    for (int kind = ZR_ROPE_DEFAULT; kind <= ZR_ROPE_YARN; kind++)
        if (strcmp(type, rope_names[kind]) == 0) rope->kind = kind;
    if (rope->kind == ZR_ROPE_DEFAULT && strcmp(type, "default") != 0) {
        char text[160];
        snprintf(text, sizeof text, "rope_type '%.60s' is not known; known: default, linear, dynamic, llama3, yarn",
                 type);
        fail(reader, section, text);
    }
    rope->factor = real_in(reader, nested, "factor", 1);
    if (rope->kind != ZR_ROPE_DEFAULT && (!find(nested, "factor") || !(rope->factor >= 1)))
        fail(reader, "factor", "a number of at least 1 is needed");
    static const char *const llama3_needs[] = { "low_freq_factor", "high_freq_factor" };
    for (size_t i = 0; rope->kind == ZR_ROPE_LLAMA3 && i < sizeof llama3_needs / sizeof llama3_needs[0]; i++)
        if (!find(nested, llama3_needs[i])) fail(reader, llama3_needs[i], "rope_type llama3 needs it");
    rope->low_freq_factor = real_in(reader, nested, "low_freq_factor", 1);
    rope->high_freq_factor = real_in(reader, nested, "high_freq_factor", 4);
    if (rope->kind == ZR_ROPE_LLAMA3 && !(rope->high_freq_factor > rope->low_freq_factor))
        fail(reader, "high_freq_factor", "must be above low_freq_factor");
    rope->beta_fast = real_in(reader, nested, "beta_fast", 32);
    rope->beta_slow = real_in(reader, nested, "beta_slow", 1);
    rope->attention_factor = real_in(reader, nested, "attention_factor", 0);
    rope->mscale = real_in(reader, nested, "mscale", 0);
    rope->mscale_all_dim = real_in(reader, nested, "mscale_all_dim", 0);
    rope->truncate = truth_in(reader, nested, "truncate", true);
    double original = real_in(reader, nested, "original_max_position_embeddings",
                              real_in(reader, reader->root, "original_max_position_embeddings", 0));
    if (!(original >= 0 && original <= MOST_POSITIONS))
        fail(reader, "original_max_position_embeddings", "a number of positions is needed");
    else
        rope->original_positions = (uint64_t)original;
    if (rope->kind == ZR_ROPE_LLAMA3 && rope->original_positions == 0)
        fail(reader, "original_max_position_embeddings", "rope_type llama3 needs it");
}

/* Which blocks use the sliding window: none, all, or all from an index on. */
static void read_window(struct reader *reader, struct zr_dims *dims)
{
    bool qwen = dims->family == ZR_QWEN2 || dims->family == ZR_QWEN3;
    uint64_t fallback = json_object_get(reader->root, "sliding_window") ? 0 : 4096; /* null is no window */
    dims->window = 0;
    if (dims->family == ZR_LLAMA) return;
    if (qwen && !truth(reader, "use_sliding_window", false)) return;
    if (find(reader->root, "sliding_window") || fallback)
        dims->window = whole(reader, "sliding_window", fallback, 1, UINT32_MAX);
    if (qwen) dims->window_layers = whole(reader, "max_window_layers", 28, 0, 1u << 20);
    json_t *types = find(reader->root, "layer_types");
    if (!types || !dims->window) return;
    if (json_array_size(types) != dims->layers) {
        fail(reader, "layer_types", "a list with one word for each of num_hidden_layers is needed");
        return;
    }
    uint32_t first = dims->layers;
    for (uint32_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        bool sliding = type && strcmp(type, "sliding_attention") == 0;
        if (sliding && first == dims->layers) first = i;
        if ((!sliding && first < i) || (!sliding && (!type || strcmp(type, "full_attention") != 0)))
            fail(reader, "layer_types",
                 "only full_attention blocks followed by sliding_attention blocks are supported");
    }
    dims->window_layers = first;
}

static void refuse(struct reader *reader, const char *key)
{
    if (json_is_true(find(reader->root, key))) fail(reader, key, "true is not supported");
}

static void read_llama(struct reader *reader, struct zr_dims *dims)
{
    static const uint32_t default_kv[] = { 0, 8, 32, 32 }, default_positions[] = { 2048, 131072, 32768, 32768 };
    dims->hidden = whole(reader, "hidden_size", 0, 1, 1u << 20);
    dims->layers = whole(reader, "num_hidden_layers", 0, 1, 4096);
    dims->heads = whole(reader, "num_attention_heads", 0, 1, 4096);
    uint64_t kv = dims->family == ZR_LLAMA ? dims->heads : default_kv[dims->family];
    dims->kv_heads = whole(reader, "num_key_value_heads", kv, 1, 4096);
    dims->intermediate = whole(reader, "intermediate_size", 0, 1, 1u << 22);
    dims->vocabulary = whole(reader, "vocab_size", 0, 1, 1u << 26);
    uint64_t head_dim = dims->family == ZR_QWEN3 ? 128 : dims->heads ? dims->hidden / dims->heads : 1;
    bool given = find(reader->root, "head_dim") != NULL;
    if (!given && dims->family != ZR_QWEN3 && dims->hidden % dims->heads)
        fail(reader, "hidden_size", "must be a multiple of num_attention_heads where head_dim is not given");
    dims->head_dim = whole(reader, "head_dim", head_dim ? head_dim : 1, 1, WIDEST_HEAD);
    if (dims->head_dim % 2) fail(reader, "head_dim", "an even number is needed");
    if (dims->heads % dims->kv_heads) fail(reader, "num_key_value_heads", "must divide num_attention_heads");
    dims->max_positions = whole(reader, "max_position_embeddings", default_positions[dims->family], 1, MOST_POSITIONS);
    dims->norm_eps = real_in(reader, reader->root, "rms_norm_eps", 1e-6);
    dims->initializer_range = real_in(reader, reader->root, "initializer_range", 0.02);
    dims->tied = truth(reader, "tie_word_embeddings", false);
    bool bias = truth(reader, "attention_bias", false);
    dims->qkv_bias = dims->family == ZR_QWEN2 || bias;
    dims->o_bias = dims->family != ZR_QWEN2 && bias;
    dims->mlp_bias = truth(reader, "mlp_bias", false);
    dims->qk_norm = dims->family == ZR_QWEN3;
    if (dims->qk_norm && bias) fail(reader, "attention_bias", "true is not supported together with q and k norms");
    dims->gated = true;
    const char *activation = word(reader, reader->root, "hidden_act", "silu");
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        fail(reader, "hidden_act", "only silu is supported in this family");
    dims->attention_scale = 1 / sqrt(dims->head_dim);
    read_rope(reader, dims);
    read_window(reader, dims);
}

static void read_gpt2(struct reader *reader, struct zr_dims *dims)
{
    dims->hidden = whole(reader, "n_embd", 768, 1, 1u << 20);
    dims->layers = whole(reader, "n_layer", 12, 1, 4096);
    dims->heads = dims->kv_heads = whole(reader, "n_head", 12, 1, 4096);
    dims->intermediate = whole(reader, "n_inner", 4 * (uint64_t)dims->hidden, 1, 1u << 22);
    dims->vocabulary = whole(reader, "vocab_size", 50257, 1, 1u << 26);
    dims->max_positions =
        whole(reader, "n_positions", whole(reader, "n_ctx", 1024, 1, MOST_POSITIONS), 1, MOST_POSITIONS);
    if (dims->hidden % dims->heads) fail(reader, "n_embd", "must be a multiple of n_head");
    dims->head_dim = dims->hidden / dims->heads;
    if (dims->head_dim > WIDEST_HEAD) fail(reader, "n_head", "heads wider than 256 are not supported");
    dims->norm_eps = real_in(reader, reader->root, "layer_norm_epsilon", 1e-5);
    dims->initializer_range = real_in(reader, reader->root, "initializer_range", 0.02);
    dims->tied = truth(reader, "tie_word_embeddings", true);
    dims->qkv_bias = dims->o_bias = dims->mlp_bias = dims->layernorm = true;
    dims->rope.kind = ZR_ROPE_NONE;
    const char *activation = word(reader, reader->root, "activation_function", "gelu_new");
    dims->gelu_erf = strcmp(activation, "gelu") == 0;
    if (!dims->gelu_erf && strcmp(activation, "gelu_new") != 0 && strcmp(activation, "gelu_pytorch_tanh") != 0)
        fail(reader, "activation_function", "only gelu_new, gelu_pytorch_tanh and gelu are supported");
    dims->attention_scale = truth(reader, "scale_attn_weights", true) ? 1 / sqrt(dims->head_dim) : 1;
    refuse(reader, "scale_attn_by_inverse_layer_idx");
    refuse(reader, "add_cross_attention");
}

enum zr_code zr_dims_read(const char *name, const char *json, uint64_t bytes, struct zr_dims *ret_dims,
                          struct zr_error *err)
{
    json_error_t at;
    struct reader reader = { .name = name, .err = err };
    reader.root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &at);
    if (!json_is_object(reader.root)) {
        json_decref(reader.root);
        return reader.root ? zr_fail(err, ZR_EINPUT, "%s: an object is needed", name)
                           : zr_fail(err, ZR_EINPUT, "%s:%d: %s", name, at.line, at.text);
    }
    struct zr_dims dims = { .family = ZR_FAMILY_COUNT };
    const char *type = word(&reader, reader.root, "model_type", "");
    for (int family = 0; family < ZR_FAMILY_COUNT; family++)
        if (strcmp(type, family_names[family]) == 0) dims.family = family;
    if (dims.family == ZR_FAMILY_COUNT) {
        char text[160];
        snprintf(text, sizeof text, "'%.60s' is not supported; supported: llama, mistral, qwen2, qwen3, gpt2", type);
        fail(&reader, "model_type", text);
    } else if (dims.family == ZR_GPT2) {
        read_gpt2(&reader, &dims);
    } else {
        read_llama(&reader, &dims);
    }
    if (find(reader.root, "quantization_config"))
        fail(&reader, "quantization_config", "quantised weights are not supported");
    dims.bos = token_id(&reader, "bos_token_id");
    dims.eos = token_id(&reader, "eos_token_id");
    if (!reader.code && !(dims.norm_eps > 0 && dims.norm_eps < 1))
        fail(&reader, dims.layernorm ? "layer_norm_epsilon" : "rms_norm_eps", "must lie between 0 and 1");
    json_decref(reader.root);
    if (!reader.code) *ret_dims = dims;
    return reader.code;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

static void set_whole(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void set_real(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_real(value));
}

static void set_id(json_t *object, const char *key, int32_t value)
{
    json_object_set_new(object, key, value < 0 ? json_null() : json_integer(value));
}

static void write_rope(json_t *root, const struct zr_dims *dims)
{
    const struct zr_rope_shape *rope = &dims->rope;
    json_t *scaling = json_object();
    set_real(root, "rope_theta", rope->theta);
    json_object_set_new(scaling, "rope_type", json_string(rope_names[rope->kind]));
    if (rope->kind != ZR_ROPE_DEFAULT) set_real(scaling, "factor", rope->factor);
    if (rope->kind == ZR_ROPE_LLAMA3) {
        set_real(scaling, "low_freq_factor", rope->low_freq_factor);
        set_real(scaling, "high_freq_factor", rope->high_freq_factor);
    }
    if (rope->kind == ZR_ROPE_YARN) {
        set_real(scaling, "beta_fast", rope->beta_fast);
        set_real(scaling, "beta_slow", rope->beta_slow);
        if (rope->attention_factor > 0) set_real(scaling, "attention_factor", rope->attention_factor);
        if (rope->mscale > 0) set_real(scaling, "mscale", rope->mscale);
        if (rope->mscale_all_dim > 0) set_real(scaling, "mscale_all_dim", rope->mscale_all_dim);
        if (!rope->truncate) json_object_set_new(scaling, "truncate", json_false());
    }
    if (rope->original_positions) set_whole(scaling, "original_max_position_embeddings", rope->original_positions);
    /* Both spellings: transformers 4 reads the first, transformers 5 the second. */
    json_object_set_new(root, "rope_scaling", rope->kind == ZR_ROPE_DEFAULT ? json_null() : json_deep_copy(scaling));
    set_real(scaling, "rope_theta", rope->theta);
    json_object_set_new(root, "rope_parameters", scaling);
}

static void write_llama(json_t *root, const struct zr_dims *dims)
{
    set_whole(root, "hidden_size", dims->hidden);
    set_whole(root, "intermediate_size", dims->intermediate);
    set_whole(root, "num_hidden_layers", dims->layers);
    set_whole(root, "num_attention_heads", dims->heads);
    set_whole(root, "num_key_value_heads", dims->kv_heads);
    set_whole(root, "head_dim", dims->head_dim);
    set_whole(root, "max_position_embeddings", dims->max_positions);
    set_real(root, "rms_norm_eps", dims->norm_eps);
    json_object_set_new(root, "hidden_act", json_string("silu"));
    bool bias = dims->family != ZR_QWEN2 && dims->qkv_bias;
    json_object_set_new(root, "attention_bias", json_boolean(bias));
    json_object_set_new(root, "mlp_bias", json_boolean(dims->mlp_bias));
    write_rope(root, dims);
    if (dims->family == ZR_MISTRAL)
        json_object_set_new(root, "sliding_window", dims->window ? json_integer(dims->window) : json_null());
    if (dims->family == ZR_QWEN2 || dims->family == ZR_QWEN3) {
        json_object_set_new(root, "use_sliding_window", json_boolean(dims->window > 0));
        if (dims->window) set_whole(root, "sliding_window", dims->window);
        set_whole(root, "max_window_layers", dims->window ? dims->window_layers : dims->layers);
    }
}

static void write_gpt2(json_t *root, const struct zr_dims *dims)
{
    set_whole(root, "n_embd", dims->hidden);
    set_whole(root, "n_layer", dims->layers);
    set_whole(root, "n_head", dims->heads);
    set_whole(root, "n_inner", dims->intermediate);
    set_whole(root, "n_positions", dims->max_positions);
    set_whole(root, "n_ctx", dims->max_positions);
    set_real(root, "layer_norm_epsilon", dims->norm_eps);
    json_object_set_new(root, "activation_function", json_string(dims->gelu_erf ? "gelu" : "gelu_new"));
    json_object_set_new(root, "scale_attn_weights", json_boolean(dims->attention_scale != 1));
    static const char *const dropouts[] = { "attn_pdrop", "embd_pdrop", "resid_pdrop" };
    for (int i = 0; i < 3; i++)
        set_real(root, dropouts[i], 0);
}

char *zr_dims_write(const struct zr_dims *dims, const char *torch_dtype)
{
    static const char *const classes[ZR_FAMILY_COUNT] = { "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM",
                                                          "Qwen3ForCausalLM", "GPT2LMHeadModel" };
    json_t *root = json_object(), *architectures = json_array();
    json_array_append_new(architectures, json_string(classes[dims->family]));
    json_object_set_new(root, "architectures", architectures);
    json_object_set_new(root, "model_type", json_string(family_names[dims->family]));
    json_object_set_new(root, "torch_dtype", json_string(torch_dtype));
    set_whole(root, "vocab_size", dims->vocabulary);
    set_real(root, "initializer_range", dims->initializer_range);
    json_object_set_new(root, "tie_word_embeddings", json_boolean(dims->tied));
    set_id(root, "bos_token_id", dims->bos);
    set_id(root, "eos_token_id", dims->eos);
    if (dims->family == ZR_GPT2)
        write_gpt2(root, dims);
    else
        write_llama(root, dims);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    if (!text) abort();
    return text;
}
