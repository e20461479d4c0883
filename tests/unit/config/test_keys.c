/* The key table: each row is whole, each type checks what it says, each default is DeepSpeed 0.19's. */
#include "config/keys.h"
#include "reading.h"

static void every_row_is_complete_and_named_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        const struct zr_key *key = &zr_keys[i];
        uint32_t index;
        assert_true(zr_key_find(key->path, &index));
        if (index != i) fail_msg("%s stands twice", key->path);
        if (key->status == ZR_KEY_ALIAS || key->status == ZR_KEY_OLD) {
            assert_true(zr_key_find(key->why, &index));
            assert_true(zr_keys[index].status == ZR_KEY_USED || zr_keys[index].status == ZR_KEY_NOTED);
            continue;
        }
        if (!key->help) fail_msg("%s has no help", key->path);
        if (key->status == ZR_KEY_REFUSED) assert_non_null(key->neutral);
        if (key->status == ZR_KEY_USED && key->type != ZR_KEY_SECTION) assert_true(key->size > 0);
        const char *dot = strrchr(key->path, '.');
        if (!dot) continue;
        char parent[160];
        snprintf(parent, sizeof parent, "%.*s", (int)(dot - key->path), key->path);
        if (!zr_key_find(parent, &index)) fail_msg("%s has no section", key->path);
        assert_int_equal(zr_keys[index].type, ZR_KEY_SECTION);
    }
}

static void defaults_are_those_of_deepspeed_0_19(void **state)
{
    (void)state;
    read_yaml("train_batch_size: 1\nzero_optimization: {stage: 3, offload_optimizer: {device: cpu}, offload_param: "
              "{device: cpu}}\n"
              "fp16: {enabled: true}\noptimizer: {type: AdamW}\n");
    assert_ok();
    const struct zr_config *c = &now->config;
    assert_true(c->gradient_clipping == 1.0);                    /* since 0.19.3 */
    assert_true(c->optimizer_pin_memory && c->param_pin_memory); /* since 0.19.5 */
    assert_int_equal(c->initial_scale_power, 16);
    assert_int_equal(c->loss_scale_window, 1000);
    assert_int_equal(c->hysteresis, 2);
    assert_true(c->min_loss_scale == 1 && c->loss_scale == 0);
    assert_true(c->lr == 1e-3 && c->beta1 == 0.9 && c->beta2 == 0.999 && c->eps == 1e-8 && c->weight_decay == 0);
    assert_true(c->bias_correction);
    assert_false(c->grad_accum_bf16);
    assert_int_equal(c->schedule, ZR_RATE_CONSTANT);

    read_yaml("train_batch_size: 1\n");
    assert_ok();
    assert_int_equal(now->config.zero_stage, 0);
    assert_int_equal(now->config.optimizer_device, ZR_PLACE_NONE);
    assert_int_equal(now->config.precision, ZR_PRECISION_FP32);
    assert_int_equal(now->config.backend, ZR_BACKEND_AUTO);
    assert_int_equal(now->config.device_bytes, 0);
    assert_int_equal(now->config.prefetch, 2);
    assert_int_equal(now->config.decay_rule, ZR_DECAY_MATRICES);
    assert_int_equal(now->config.log_level, ZR_LEVEL_INFO);
}

static void every_key_of_zerod_lands_in_its_field(void **state)
{
    (void)state;
    read_yaml("train_batch_size: 4\nsequence_length: 256\nseed: 18446744073709551\n"
              "model: {path: /m, seed: 9}\n"
              "zerod:\n"
              "  socket: /tmp/s\n  state_dir: /tmp/d\n"
              "  device: {backend: cuda, memory: 5.5MiB}\n  host: {memory: 96GiB}\n"
              "  nvme: {path: [/a, /b], size: 1GiB, verify: false, allow_buffered: true, engine: threads,\n"
              "         block: 256KiB, depth: 32}\n"
              "  compute: {threads: 3}\n"
              "  optimizer: {threads: 2, simd: avx2, chunk: 512, decay: all, states: fp32, master: split}\n"
              "  prefetch: 4\n  loss_chunk: 64\n  max_steps: 10\n  log_level: debug\n");
    assert_ok();
    const struct zr_config *c = &now->config;
    assert_int_equal(c->sequence_length, 256);
    assert_int_equal(c->seed, 18446744073709551u);
    assert_string_equal(c->model_path, "/m");
    assert_int_equal(c->model_seed, 9);
    assert_string_equal(c->socket, "/tmp/s");
    assert_string_equal(c->state_dir, "/tmp/d");
    assert_int_equal(c->backend, ZR_BACKEND_CUDA);
    assert_int_equal(c->device_bytes, 5767168);
    assert_int_equal(c->host_bytes, 96ull << 30);
    assert_int_equal(c->nvme_path_count, 2);
    assert_string_equal(c->nvme_path[1], "/b");
    assert_int_equal(c->nvme_bytes, 1 << 30);
    assert_false(c->nvme_verify);
    assert_true(c->nvme_allow_buffered);
    assert_int_equal(c->io_engine, ZR_IO_THREADS);
    assert_int_equal(c->io_block_bytes, 262144);
    assert_int_equal(c->io_depth, 32);
    assert_int_equal(c->compute_threads, 3);
    assert_int_equal(c->optimizer_threads, 2);
    assert_int_equal(c->simd, ZR_SIMD_AVX2);
    assert_int_equal(c->update_chunk, 512);
    assert_int_equal(c->decay_rule, ZR_DECAY_ALL);
    assert_int_equal(c->prefetch, 4);
    assert_int_equal(c->loss_chunk_rows, 64);
    assert_int_equal(c->max_steps, 10);
    assert_int_equal(c->log_level, ZR_LEVEL_DEBUG);
}

static void a_wrong_type_range_or_unit_names_line_and_key(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *said;
    } cases[] = {
        { "sequence_length: long", "t.yaml:2: sequence_length: 'long' is not a whole number" },
        { "sequence_length: 2.5", "'2.5' is not a whole number" },
        { "sequence_length: 2k", "it takes no unit of bytes" },
        { "sequence_length: [1]", "a list stands where one value belongs" },
        { "sequence_length: {a: 1}", "a mapping stands where one value belongs" },
        { "bf16: {enabled: 1}", "t.yaml:2: bf16.enabled: '1' is not true or false" },
        { "bf16: {enabled: maybe}", "'maybe' is not true or false" },
        { "bf16: true", "t.yaml:2: bf16: a mapping of keys belongs here" },
        { "zero_optimization: {stage: 4}", "zero_optimization.stage: 4 is out of range: 0 to 3" },
        { "zero_optimization: {stage: -1}", "-1 is out of range" },
        { "zerod: {prefetch: 0}", "zerod.prefetch: 0 is out of range: 1 to 64 units" },
        { "zerod: {prefetch: 65}", "65 is out of range: 1 to 64" },
        { "zerod: {device: {memory: 22GX}}", "zerod.device.memory: '22GX' is not a size" },
        { "zerod: {device: {memory: 0}}", "a budget of 0 bytes" },
        { "zerod: {device: {memory: -1GiB}}", "'-1GiB' is not a size" },
        { "zerod: {device: {backend: gpu}}", "'gpu' is not one of auto, cpu or cuda" },
        { "zerod: {device: {backend: cudaa}}", "did you mean cuda?" },
        { "zerod: {nvme: {planes: [v, w]}}", "'w' is none of weight, low, m or v" },
        { "zerod: {nvme: {block: 5000}}", "5000 is not a multiple of 4096" },
        { "zerod: {nvme: {path: []}}", "an empty list" },
        { "zerod: {optimizer: {chunk: 300}}", "300 is not a multiple of 256" },
        { "zerod: {optimizer: {states: bf16}}", "zerod.optimizer.states: 'bf16' is not fp32" },
        { "zerod: {optimizer: {master: fp32}}", "'fp32' is not split" },
        { "zerod: {prefetch: auto}", "auto has no meaning here" },
        { "gradient_clipping: -1", "gradient_clipping: -1 is out of range: 0 or more" },
        { "gradient_clipping: inf", "'inf' is not a number" },
        { "optimizer: {type: AdamW, params: {betas: [0.9]}}", "two numbers belong here" },
        { "optimizer: {type: AdamW, params: {betas: [0.9, 1.0]}}", "1.0 is out of range: 0 to 1, without it" },
        { "optimizer: {type: AdamW, params: {betas: 0.9}}", "two numbers belong here" },
        { "fp16: {min_loss_scale: 0}", "0 is out of range: above 0" },
        { "fp16: {loss_scale: true}", "'true' is not a number" },
        { "zero_optimization: {overlap_comm: 3}", "zero_optimization.overlap_comm: '3' is not true or false" },
        { "zero_optimization: {reduce_bucket_size: big}", "'big' is not a whole number" },
        { "model: {config: text}", "a mapping belongs here" },
        { "model: {path: /a, config: {hidden_size: 8}}", "model.path is given too" },
    };
    for (size_t i = 0; i < ZR_COUNT(cases); i++) {
        char text[400];
        snprintf(text, sizeof text, "train_batch_size: 8\n%s\n", cases[i].yaml);
        read_yaml(text);
        assert_refused(cases[i].said);
    }
}

static void an_inline_model_becomes_json(void **state)
{
    (void)state;
    read_yaml(
        "train_batch_size: 1\nmodel:\n  config:\n    model_type: llama\n    hidden_size: 128\n    tie: false\n"
        "    eps: 1.0e-5\n    theta: 10000.0\n    none: null\n    text: '12'\n    list: [A, 1]\n    deep: {a: -3}\n");
    assert_ok();
    assert_string_equal(now->config.model_config_json,
                        "{\"model_type\":\"llama\",\"hidden_size\":128,\"tie\":false,\"eps\":1.0000000000000001e-5,"
                        "\"theta\":10000.0,\"none\":null,\"text\":\"12\",\"list\":[\"A\",1],\"deep\":{\"a\":-3}}");
    struct zr_text big = { 0 };
    zr_text_add(&big, "train_batch_size: 1\nmodel: {config: {a: \"");
    for (int i = 0; i < 9000; i++)
        zr_text_add(&big, "x");
    zr_text_add(&big, "\"}}\n");
    read_yaml(big.at);
    assert_refused("use model.path");
    zr_text_fini(&big);
}

static void all_errors_are_told_at_once_in_the_order_of_lines(void **state)
{
    (void)state;
    read_yaml("zerod: {prefetch: 0}\ntrain_batch_size: x\nseed: y\n");
    assert_int_equal(now->code, ZR_ECONFIG);
    uint32_t last = 0, errors = 0;
    for (uint32_t i = 0; i < zr_config_remark_count(now->report); i++) {
        const struct zr_remark *remark = zr_config_remark(now->report, i);
        errors += remark->kind == ZR_REMARK_ERROR;
        assert_true(remark->line == 0 || remark->line >= last);
        if (remark->line) last = remark->line;
    }
    assert_int_equal(errors, 3);
    assert_int_equal(strncmp(now->err.text, "t.yaml:1: zerod.prefetch: ", 26), 0);
}

static void a_text_that_is_too_long_is_refused_not_cut(void **state)
{
    (void)state;
    char text[400];
    memset(text, 0, sizeof text);
    strcpy(text, "train_batch_size: 8\nzerod: {socket: ");
    memset(text + strlen(text), 'a', 200);
    strcat(text, "}\n");
    read_yaml(text);
    assert_refused("zerod.socket: 200 bytes long, at most 107 fit");
}

static void null_means_not_given(void **state)
{
    (void)state;
    read_json("{\"train_batch_size\": 8, \"gradient_clipping\": null, \"zero_optimization\": {\"stage\": null}, "
              "\"tensor_parallel\": null, \"optimizer\": null, \"scheduler\": null, \"sparse_attention\": null}");
    assert_ok();
    assert_true(now->config.gradient_clipping == 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_row_is_complete_and_named_once),
        TEST(defaults_are_those_of_deepspeed_0_19),
        TEST(every_key_of_zerod_lands_in_its_field),
        TEST(a_wrong_type_range_or_unit_names_line_and_key),
        TEST(an_inline_model_becomes_json),
        TEST(all_errors_are_told_at_once_in_the_order_of_lines),
        TEST(a_text_that_is_too_long_is_refused_not_cut),
        TEST(null_means_not_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
