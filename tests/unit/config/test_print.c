/* --print-config reads back to the same struct; origins are told; --set goes before the file, openly. */
#include "config/keys.h"
#include "reading.h"

static void reads_back(const char *text, bool json)
{
    struct zr_text printed = { 0 };
    if (json)
        read_json(text);
    else
        read_yaml(text);
    assert_ok();
    struct zr_config *first = malloc(sizeof *first);
    assert_non_null(first);
    *first = now->config;
    zr_config_print(&now->config, now->report, &printed);
    read_yaml(printed.at);
    if (now->code != ZR_OK) fail_msg("%s\nin\n%s", now->err.text, printed.at);
    assert_memory_equal(first, &now->config, sizeof *first);
    free(first);
    zr_text_fini(&printed);
}

static void what_is_printed_reads_back_to_the_same_struct(void **state)
{
    (void)state;
    reads_back("train_batch_size: 8\n", false);
    reads_back("train_micro_batch_size_per_gpu: 3\nbf16: {enabled: yes}\nmodel: {path: \"/a b#c: \\\"d\\\" \\xe9\"}\n",
               false);
    reads_back(
        "train_batch_size: 8\nmodel: {config: {hidden_size: 128, eps: 1e-5, list: [1, \"a: b\"], no: null, t: true}}\n"
        "zerod: {device: {backend: cpu, memory: 5.5MiB}, nvme: {path: [/a, \"/b, c\"]}, optimizer: {decay: all}}\n"
        "optimizer: {type: Adam, params: {lr: 0.1, betas: [0.3333333333333333, 0.95], adam_w_mode: false}}\n",
        false);
    reads_back(
        "{\"train_batch_size\": 8, \"fp16\": {\"enabled\": true, \"min_loss_scale\": 0.5}, \"zero_optimization\": {"
        "\"stage\": 3, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/var/tmp\"}, \"offload_param\": {"
        "\"device\": \"cpu\", \"pin_memory\": false}}, \"aio\": {\"block_size\": 262144, \"queue_depth\": 32}}",
        true);
    reads_back(
        "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", "
        "\"params\": {\"lr\": \"auto\"}}, \"bf16\": {\"enabled\": \"auto\"}, \"scheduler\": {\"type\": \"WarmupLR\", "
        "\"params\": {\"warmup_max_lr\": \"auto\"}}}",
        true);
    static const char *const schedules[] = {
        "WarmupLR, params: {warmup_num_steps: 7, warmup_type: linear}",
        "WarmupDecayLR, params: {total_num_steps: 70, warmup_min_lr: 1e-6}",
        "WarmupCosineLR, params: {total_num_steps: 70, cos_min_ratio: 0.1}",
        "OneCycle, params: {cycle_min_lr: 1e-5, cycle_max_lr: 1e-3, decay_step_size: 4}",
    };
    for (size_t i = 0; i < ZR_COUNT(schedules); i++) {
        char text[300];
        snprintf(text, sizeof text, "train_batch_size: 8\nscheduler: {type: %s}\n", schedules[i]);
        reads_back(text, false);
    }
}

static void every_value_says_where_it_came_from(void **state)
{
    (void)state;
    setenv("RUNTIME_DIRECTORY", "/run/test", 1);
    static const char *const sets[] = { "zerod.prefetch=7", "zero_optimization.stage=2" };
    static const char text[] = "{\"train_micro_batch_size_per_gpu\": 2,\n\"gradient_clipping\": 0.5}";
    read_with("ds.json", text, sizeof text - 1, sets, 2);
    unsetenv("RUNTIME_DIRECTORY");
    assert_ok();
    struct zr_text printed = { 0 };
    zr_config_print(&now->config, now->report, &printed);
    assert_non_null(strstr(printed.at, "train_batch_size: 2  # derived: micro x accumulation x ranks\n"));
    assert_non_null(strstr(printed.at, "gradient_clipping: 0.5  # ds.json:2\n"));
    assert_non_null(strstr(printed.at, "  prefetch: 7  # --set\n"));
    assert_non_null(strstr(printed.at, "  stage: 2  # --set\n"));
    assert_non_null(strstr(printed.at, "  log_level: info  # default\n"));
    assert_non_null(strstr(printed.at, "  socket: /run/test/zerod.sock  # environment: RUNTIME_DIRECTORY\n"));
    zr_text_fini(&printed);
}

static void the_command_line_goes_before_the_file_and_both_are_named(void **state)
{
    (void)state;
    static const char text[] =
        "{\"train_batch_size\": 8,\n\"zero_optimization\": {\n\"stage\": 2, \"max_live_parameters\": 5}}";
    read_json_set(text, "zero_optimization.stage=3");
    assert_ok();
    assert_int_equal(now->config.zero_stage, 3);
    assert_said(
        "note: t.json:3: zero_optimization.stage: 2 on line 3 of the file, 3 by --set on the command line: 3 is used");
    read_json_set(text, "zero_optimization.stage=2");
    assert_ok();
    assert_not_said("--set");
    read_json_set(text, "zero_optimization.stage3_max_live_parameters=6"); /* another spelling of a key in the file */
    assert_ok();
    assert_said("5 on line 3 of the file, 6 by --set");
}

static void settings_are_checked_as_the_file_is(void **state)
{
    (void)state;
    static const char text[] = "{\"train_batch_size\": 8}";
    static const struct {
        const char *set, *said;
    } cases[] = {
        { "zero_optimization.stage=5", "command line: zero_optimization.stage: 5 is out of range: 0 to 3" },
        { "zerod.prefech=2", "command line: zerod.prefech: unknown key in zerod" },
        { "stage=2", "its place is zero_optimization.stage" },
        { "zerod.prefetch", "a setting is written key.path=value" },
        { "=2", "a setting is written key.path=value" },
        { "zerod.=2", "a setting is written key.path=value" },
        { "zerod.nvme.planes=[m", "the value is not valid YAML" },
        { "train_batch_size.x=2", "'train_batch_size' is not a section of the file" },
        { "zerod=2", "a mapping of keys belongs here" },
    };
    for (size_t i = 0; i < ZR_COUNT(cases); i++) {
        read_json_set(text, cases[i].set);
        assert_refused(cases[i].said);
    }
    static const char *const good[] = { "zerod.device.memory=64MiB",
                                        "optimizer.type=AdamW",
                                        "optimizer.params.betas=[0.8, 0.9]",
                                        "model.path=/x y",
                                        "bfloat16.enabled=true",
                                        "zerod.prefetch=3",
                                        "zerod.prefetch=5",
                                        "model.seed=" };
    read_with("t.json", text, sizeof text - 1, good, ZR_COUNT(good));
    assert_ok();
    assert_int_equal(now->config.device_bytes, 64 << 20);
    assert_true(now->config.beta1 == 0.8 && now->config.beta2 == 0.9);
    assert_string_equal(now->config.model_path, "/x y");
    assert_int_equal(now->config.precision, ZR_PRECISION_BF16);
    assert_int_equal(now->config.prefetch, 5); /* the last one */
}

static void the_summary_says_what_acts(void **state)
{
    (void)state;
    struct zr_text summary = { 0 };
    read_json(
        "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4, \"bf16\": {\"enabled\": true},\n"
        "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-4, \"weight_decay\": 0.1, \"adam_w_mode\": "
        "false}},\n"
        "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}}");
    assert_ok();
    zr_config_summary(&now->config, now->report, &summary);
    static const char *const lines[] = { "effective batch 8 = 2 x 4 x 1",
                                         "stage 2",
                                         "optimizer device cpu, pinned",
                                         "parameter device none",
                                         "precision bf16, gradients summed in fp32",
                                         "optimizer Adam: weight decay inside the gradient, 0.1 on matrices, lr 0.0001",
                                         "gradients are clipped to a global norm of 1",
                                         "schedule: none, the rate is 0.0001 throughout" };
    for (size_t i = 0; i < ZR_COUNT(lines); i++)
        if (!strstr(summary.at, lines[i])) fail_msg("'%s' is not in\n%s", lines[i], summary.at);
    zr_text_fini(&summary);
    read_json("[");
    zr_config_summary(&now->config, now->report, &summary);
    assert_string_equal(summary.at, "nothing was read as a configuration\n");
    zr_text_fini(&summary);
}

static void the_reference_page_has_every_key(void **state)
{
    (void)state;
    struct zr_text page = { 0 };
    zr_config_reference(&page);
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        char cell[200];
        snprintf(cell, sizeof cell, "`%s`", zr_keys[i].path);
        if (!strstr(page.at, cell) && !(zr_keys[i].type == ZR_KEY_SECTION)) fail_msg("%s is missing", cell);
    }
    zr_text_fini(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_printed_reads_back_to_the_same_struct),
        TEST(every_value_says_where_it_came_from),
        TEST(the_command_line_goes_before_the_file_and_both_are_named),
        TEST(settings_are_checked_as_the_file_is),
        TEST(the_summary_says_what_acts),
        TEST(the_reference_page_has_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
