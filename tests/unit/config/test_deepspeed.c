/* Rules between DeepSpeed's keys: offload and stage, old names, "auto", precision, optimizers, schedules. */
#include "reading.h"

#define BATCH "{\"train_batch_size\": 8,\n"

static void offload_of_weights_below_stage_3_is_ignored_with_a_warning(void **state)
{
    (void)state;
    read_json(BATCH "\"zero_optimization\": {\"stage\": 2,\n\"offload_optimizer\": {\"device\": \"cpu\"},\n"
                    "\"offload_param\": {\"device\": \"cpu\"}}}");
    assert_ok();
    assert_said("warning: t.json:4: zero_optimization.offload_param.device: cpu is ignored: it needs "
                "zero_optimization.stage 3, and the stage is 2");
    assert_int_equal(now->config.zero_stage, 2);
    assert_int_equal(now->config.param_device, ZR_PLACE_NONE);
    assert_int_equal(now->config.optimizer_device, ZR_PLACE_CPU);
    read_json(BATCH "\"zero_optimization\": {\"stage\": 0, \"offload_optimizer\": {\"device\": \"cpu\"}}}");
    assert_ok();
    assert_said("it needs zero_optimization.stage 1 or more");
    assert_int_equal(now->config.optimizer_device, ZR_PLACE_NONE);
}

static void old_names_are_read_with_the_new_text_to_paste(void **state)
{
    (void)state;
    read_json(BATCH "\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}");
    assert_ok();
    assert_int_equal(now->config.optimizer_device, ZR_PLACE_CPU);
    assert_said("hint: write \"offload_optimizer\": {\"device\": \"cpu\"}");
    assert_said("pin_memory: not given: true (DeepSpeed's default since 0.19.5; false before)");
    read_json(BATCH "\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": false}}");
    assert_ok();
    assert_int_equal(now->config.optimizer_device, ZR_PLACE_NONE);
    read_json(BATCH "\"zero_optimization\": {\"stage\": 2,\n\"cpu_offload\": true,\n\"offload_optimizer\": "
                    "{\n\"device\": \"none\"}}}");
    assert_refused(
        "t.json:3: zero_optimization.cpu_offload: true on line 3, and its successor offload_optimizer.device none "
        "on line 5: both cannot hold");
    read_json(BATCH "\"zero_optimization\": {\"stage\": 3, \"cpu_offload_param\": true}}");
    assert_ok();
    assert_int_equal(now->config.param_device, ZR_PLACE_CPU);
    read_json(BATCH "\"zero_optimization\": {\"stage\": 3, \"cpu_offload\": \"cpu\"}}");
    assert_refused("an old key that is true or false");

    read_json(BATCH "\"zero_optimization\": {\"stage\": 3, \"stage3_gather_fp16_weights_on_model_save\": true}}");
    assert_ok();
    assert_said("an old name\n  hint: write \"stage3_gather_16bit_weights_on_model_save\": true");
    read_json(BATCH "\"aio\": {\"thread_count\": 1}}");
    assert_ok();
    assert_said("hint: write \"intra_op_parallelism\": 1");
    read_json(BATCH "\"zero_optimization\": true}");
    assert_ok();
    assert_int_equal(now->config.zero_stage, 1);
    assert_said("an old form: write zero_optimization: {stage: 1}");
    read_json(BATCH "\"bfloat16\": {\"enabled\": true}}");
    assert_ok();
    assert_int_equal(now->config.precision, ZR_PRECISION_BF16);
    read_json(BATCH "\"bfloat16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}");
    assert_refused("t.json:3: bf16: given twice: 'bfloat16' on line 2 is the same key");
}

static void both_spellings_of_a_stage_3_key_are_one_key(void **state)
{
    (void)state;
    read_json(BATCH "\"zero_optimization\": {\"stage\": 3, \"max_live_parameters\": 1e8}}");
    assert_ok();
    read_json(BATCH "\"zero_optimization\": {\"max_live_parameters\": 1e8,\n\"stage3_max_live_parameters\": 1e9}}");
    assert_refused(
        "t.json:3: zero_optimization.stage3_max_live_parameters: given twice: 'max_live_parameters' on line 2");
}

static void what_zerod_does_not_need_is_noted_and_what_changes_results_is_refused(void **state)
{
    (void)state;
    read_json(BATCH
              "\"wall_clock_breakdown\": false, \"zero_optimization\": {\"overlap_comm\": true,\n"
              "\"allgather_bucket_size\": 5e8, \"stage3_prefetch_bucket_size\": 419430.4}, \"fp32_allreduce\": true,\n"
              "\"tensorboard\": {\"enabled\": true, \"job_name\": \"x\"}}");
    assert_ok();
    assert_said("note: t.json:2: wall_clock_breakdown: not needed: ");
    assert_said("note: t.json:2: zero_optimization.overlap_comm: not needed: ");
    assert_said(
        "warning: t.json:3: zero_optimization.stage3_prefetch_bucket_size: 419430.4 is not a whole number (DeepSpeed "
        "refuses it): taken as 419,430");
    assert_said("fp32_allreduce: obeyed as it stands");

    static const struct {
        const char *json, *said;
    } refused[] = {
        { "\"tensor_parallel\": {\"autotp_size\": 2}", "t.json:2: tensor_parallel.autotp_size: 2 is refused" },
        { "\"sparse_attention\": {\"mode\": \"fixed\"}", "sparse_attention: refused" },
        { "\"compression_training\": {\"weight_quantization\": {}}", "compression_training: refused" },
        { "\"amp\": {\"enabled\": true}", "amp.enabled: true is refused" },
        { "\"elasticity\": {\"enabled\": true}", "elasticity.enabled: true is refused" },
        { "\"gradient_allreduce_op\": \"sum\"", "gradient_allreduce_op: sum is refused" },
        { "\"zero_optimization\": {\"zero_quantized_weights\": true}", "zero_quantized_weights: true is refused" },
        { "\"zero_optimization\": {\"zenflow\": {\"topk_ratio\": 0.1}}", "zero_optimization.zenflow: refused" },
        { "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}", "zerod keeps fp32 masters" },
        { "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"amsgrad\": true}}", "amsgrad: true is refused" },
        { "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 1.0}}", "write gradient_clipping" },
        { "\"sequence_parallel_size\": 2", "sequence_parallel_size: 2 is refused" },
    };
    for (size_t i = 0; i < ZR_COUNT(refused); i++) {
        char text[300];
        snprintf(text, sizeof text, BATCH "%s}", refused[i].json);
        read_json(text);
        assert_refused(refused[i].said);
    }
    read_json(
        BATCH
        "\"tensor_parallel\": {\"autotp_size\": 1}, \"amp\": {\"enabled\": false}, \"sparse_attention\": {},\n"
        "\"elasticity\": {\"enabled\": false}, \"gradient_allreduce_op\": \"mean\", \"sequence_parallel_size\": 1,\n"
        "\"compression_training\": {\"enabled\": false}, \"zero_optimization\": {\"mics_shard_size\": -1,\n"
        "\"zero_hpz_partition_size\": 1, \"zero_quantized_gradients\": false, \"zenflow\": null},\n"
        "\"bf16\": {\"enabled\": true, \"check_grad_overflow\": true}}");
    assert_ok();
}

static void auto_buckets_follow_the_hidden_size_in_whole_numbers(void **state)
{
    (void)state;
    static const uint64_t cases[][4] = { { 4096, 16777216, 15099494, 40960 },
                                         { 2048, 4194304, 3774873, 20480 },
                                         { 128, 16384, 14745, 1280 },
                                         { 0, 0, 0, 0 } };
    for (size_t i = 0; i < ZR_COUNT(cases); i++) {
        uint64_t reduce, prefetch, persistence;
        zr_config_auto_buckets(cases[i][0], &reduce, &prefetch, &persistence);
        assert_int_equal(reduce, cases[i][1]);
        assert_int_equal(prefetch, cases[i][2]);
        assert_int_equal(persistence, cases[i][3]);
    }
    read_json(
        BATCH
        "\"model\": {\"config\": {\"hidden_size\": 4096}}, \"zero_optimization\": {\"stage\": 2,\n"
        "\"reduce_bucket_size\": \"auto\", \"stage3_prefetch_bucket_size\": \"auto\", \"sub_group_size\": \"auto\",\n"
        "\"stage3_gather_16bit_weights_on_model_save\": \"auto\"}}");
    assert_ok();
    assert_said("t.json:3: zero_optimization.reduce_bucket_size: auto: hidden x hidden");
    assert_said(
        "t.json:3: zero_optimization.sub_group_size: auto: no trainer supplies it, DeepSpeed takes its default");
    assert_said("stage3_gather_16bit_weights_on_model_save: auto: no trainer supplies it");
    struct zr_text summary = { 0 };
    zr_config_summary(&now->config, now->report, &summary);
    assert_non_null(strstr(summary.at, "reduce_bucket_size auto: 16,777,216 elements"));
    assert_non_null(strstr(summary.at, "stage3_prefetch_bucket_size auto: 15,099,494 elements"));
    assert_null(strstr(summary.at, "persistence"));
    zr_text_fini(&summary);
}

static void auto_takes_the_default_and_says_so_or_is_refused_by_name(void **state)
{
    (void)state;
    read_json(
        BATCH
        "\"gradient_clipping\": \"auto\",\n\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"},\n"
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": "
        "\"auto\"}}}");
    assert_ok();
    assert_said("t.json:2: gradient_clipping: auto: no trainer supplies it; the default acts: 1");
    assert_said("bf16.enabled: auto: true, since fp16 is not asked for");
    assert_said("optimizer.params.betas: auto: no trainer supplies it; the default acts: [0.9, 0.999]");
    assert_said(
        "warning: t.json:4: optimizer.params.lr: auto: no trainer supplies it; DeepSpeed's default acts: 0.001");
    assert_int_equal(now->config.precision, ZR_PRECISION_BF16);

    static const char schedule[] =
        BATCH "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4}},\n"
              "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_max_lr\": \"auto\",\n"
              "\"warmup_num_steps\": 10, \"total_num_steps\": \"auto\"}}}";
    read_json(schedule);
    assert_refused("t.json:4: scheduler.params.total_num_steps: auto: no trainer supplies it");
    read_json_set(schedule, "zerod.max_steps=500");
    assert_ok();
    assert_int_equal(now->config.rate.total_num_steps, 500);
    assert_true(now->config.rate.warmup_max_lr == 3e-4);
    read_json(BATCH "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": \"auto\"}}}");
    assert_refused("scheduler.params.warmup_num_steps: auto: no trainer supplies it");
}

static void adam_means_adamw_unless_told_otherwise(void **state)
{
    (void)state;
    static const struct {
        const char *optimizer;
        enum zr_optimizer_kind kind;
    } cases[] = {
        { "\"type\": \"Adam\"", ZR_OPTIMIZER_ADAMW },
        { "\"type\": \"adam\", \"params\": {\"adam_w_mode\": true}", ZR_OPTIMIZER_ADAMW },
        { "\"type\": \"AdamW\"", ZR_OPTIMIZER_ADAMW },
        { "\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}", ZR_OPTIMIZER_ADAM_L2 },
        { "\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false}", ZR_OPTIMIZER_ADAMW },
        { "\"type\": \"DeepSpeedCPUAdam\"", ZR_OPTIMIZER_ADAMW },
    };
    for (size_t i = 0; i < ZR_COUNT(cases); i++) {
        char text[300];
        snprintf(text, sizeof text, BATCH "\"optimizer\": {%s}}", cases[i].optimizer);
        read_json(text);
        assert_ok();
        assert_int_equal(now->config.optimizer, cases[i].kind);
    }
    assert_said("optimizer.type: taken as AdamW");

    read_json(BATCH "\"optimizer\": {\"type\": \"Lamb\", \"params\": {\"lr\": 1e-3, \"bias_correction\": false, "
                    "\"max_coeff\": 0.3}}}");
    assert_refused("t.json:2: optimizer.type: Lamb is not supported");
    assert_false(now->config.bias_correction);
    read_json(BATCH "\"optimizer\": {\"type\": \"AdmaW\"}}");
    assert_refused("did you mean AdamW?");
    read_json(BATCH "\"optimizer\": {\"params\": {\"lr\": 1}}}");
    assert_refused("optimizer.type: missing");
    read_json(BATCH "\"seed\": 1}");
    assert_said("warning: t.json: optimizer: no such section");
    read_json(BATCH "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}},\n"
                    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}}");
    assert_ok();
    assert_said("torch_adam: true is ignored (and contradicts offload_optimizer): zerod's own AdamW is used");
}

static void a_schedule_has_the_parameters_of_its_type(void **state)
{
    (void)state;
    read_json(BATCH "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.00015}},\n"
                    "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 3e-5}}}");
    assert_ok();
    assert_said("warning: t.json:3: scheduler.params.warmup_max_lr: two peak rates: 3e-05 here, 0.00015 in "
                "optimizer.params.lr (line 2): the schedule wins");
    assert_int_equal(now->config.schedule, ZR_RATE_WARMUP);
    assert_int_equal(now->config.rate.warmup_num_steps, 1000);
    assert_int_equal(now->config.rate.warmup_type, ZR_WARMUP_LOG);

    read_json(
        BATCH
        "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.002}}, \"scheduler\": {\"type\": \"WarmupLR\"}}");
    assert_ok();
    assert_true(now->config.rate.warmup_max_lr == 0.002);

    read_json(BATCH "\"scheduler\": {\"type\": \"WarmupLR\",\n\"params\": {\"total_num_steps\": 5}}}");
    assert_refused("t.json:3: scheduler.params.total_num_steps: WarmupLR has no such parameter\n  hint: it is one of "
                   "WarmupDecayLR, WarmupCosineLR");
    read_json(BATCH "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": 5}}}");
    assert_refused("total_num_steps: missing");
    read_json(BATCH "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 5, "
                    "\"warmup_num_steps\": 50}}}");
    assert_ok();
    assert_said("5 steps end before the warm-up of 50");
    read_json(BATCH
              "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-5, \"cycle_max_lr\": 1e-3,"
              "\"cycle_first_step_size\": 100, \"cycle_first_stair_count\": 5}}}");
    assert_ok();
    assert_int_equal(now->config.rate.cycle_second_step_size, 100);
    assert_int_equal(now->config.rate.cycle_second_stair_count, 5);
    assert_true(now->config.rate.cycle_momentum);
    read_json(BATCH "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-5}}}");
    assert_refused("scheduler.params.cycle_max_lr: missing");
    read_json(BATCH "\"scheduler\": {\"type\": \"LRRangeTest\", \"params\": {\"lr_range_test_min_lr\": 1e-3}}}");
    assert_refused("scheduler.type: LRRangeTest is not supported");
    read_json(BATCH "\"scheduler\": {\"type\": \"WarmupCosinLR\"}}");
    assert_refused("did you mean WarmupCosineLR?");
    read_json(BATCH "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_type\": \"exp\"}}}");
    assert_refused("'exp' is not one of linear or log");
}

static void precision_is_one_and_its_scale_is_stated(void **state)
{
    (void)state;
    read_json(BATCH "\"fp16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}");
    assert_refused("both bf16.enabled (line 3) and fp16.enabled (line 2) are true");
    read_json(BATCH "\"fp16\": {\"enabled\": true, \"loss_scale\": 0}}");
    assert_ok();
    assert_said("the loss scale starts at 2^16");
    read_json(BATCH "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 32}}");
    assert_ok();
    assert_said("warning: t.json:2: fp16.initial_scale_power: 2^32 cannot be held in fp16: expect many skipped steps");
    read_json(BATCH
              "\"fp16\": {\"enabled\": \"auto\", \"initial_scale_power\": 32}, \"bf16\": {\"enabled\": \"auto\"}}");
    assert_said("if fp16 is chosen");
    read_json(BATCH "\"fp16\": {\"enabled\": true, \"min_loss_scale\": 0.5}}");
    assert_ok();
    assert_true(now->config.min_loss_scale == 0.5);
    read_json(BATCH "\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}}");
    assert_ok();
    assert_true(now->config.grad_accum_bf16);
    assert_said("warning: t.json:2: data_types.grad_accum_dtype: gradients are summed in bf16");
    read_json(BATCH "\"data_types\": {\"grad_accum_dtype\": \"fp16\"}}");
    assert_refused("'fp16' is not one of fp32 or bf16");
}

static void swap_buffers_are_said_in_bytes(void **state)
{
    (void)state;
    read_json(
        BATCH
        "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/var/tmp\",\n"
        "\"buffer_count\": 4, \"buffer_size\": 1e9, \"pin_memory\": true}}}");
    assert_ok();
    assert_said("buffer_count x buffer_size is 4 x 1,000,000,000 elements: DeepSpeed would pin 8,000,000,000 bytes");
}

static void activation_checkpointing_is_answered_key_by_key(void **state)
{
    (void)state;
    read_json(BATCH "\"activation_checkpointing\": {\"partition_activations\": true, \"cpu_checkpointing\": true,\n"
                    "\"contiguous_memory_optimization\": true, \"number_checkpoints\": 100}}");
    assert_ok();
    assert_said("activation_checkpointing.partition_activations: without effect on one rank");
    assert_said("activation_checkpointing.cpu_checkpointing: applied");
    assert_said("activation_checkpointing.number_checkpoints: unsupported");
}

static void accelerates_own_layout_is_recognised(void **state)
{
    (void)state;
    read_yaml(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: fp16\nnum_processes: 5\n"
        "downcast_bf16: no\ntpu_env: []\ndeepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 3\n"
        "  gradient_clipping: 0.25\n  offload_optimizer_device: none\n");
    assert_refused("t.yaml:7: deepspeed_config: this is a file of Hugging Face Accelerate");
    assert_said("stage 2, optimizer states on none, precision fp16, processes 5, accumulation 3, clipping 0.25");
    assert_said("fp16: {enabled: true}, zero_optimization: {stage: 2");
    assert_int_equal(zr_config_remark_count(now->report), 1);
    read_yaml("compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n"
              "  deepspeed_config_file: /x/ds.json\n");
    assert_refused("give zerod the DeepSpeed file that it names: /x/ds.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(offload_of_weights_below_stage_3_is_ignored_with_a_warning),
        TEST(old_names_are_read_with_the_new_text_to_paste),
        TEST(both_spellings_of_a_stage_3_key_are_one_key),
        TEST(what_zerod_does_not_need_is_noted_and_what_changes_results_is_refused),
        TEST(auto_buckets_follow_the_hidden_size_in_whole_numbers),
        TEST(auto_takes_the_default_and_says_so_or_is_refused_by_name),
        TEST(adam_means_adamw_unless_told_otherwise),
        TEST(a_schedule_has_the_parameters_of_its_type),
        TEST(precision_is_one_and_its_scale_is_stated),
        TEST(swap_buffers_are_said_in_bytes),
        TEST(activation_checkpointing_is_answered_key_by_key),
        TEST(accelerates_own_layout_is_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
