/* keys.c: the table
 *
 * Order is the order of --print-config and of the reference page. Defaults are those of DeepSpeed 0.19. */
#include "config/keys.h"
#include <assert.h>
#include <string.h>

#define AT(field) .offset = offsetof(struct zr_settings, field), .size = sizeof(((struct zr_settings *)0)->field)

#define SECTION(name, text)                                                                                            \
    {                                                                                                                  \
        .path = name, .type = ZR_KEY_SECTION, .help = text                                                             \
    }
#define USED(name, kind, field, text, ...)                                                                             \
    {                                                                                                                  \
        .path = name, .type = ZR_KEY_##kind, AT(field), .help = text, __VA_ARGS__                                      \
    }
#define NOTED(name, kind, text)                                                                                        \
    {                                                                                                                  \
        .path = name, .type = ZR_KEY_##kind, .status = ZR_KEY_NOTED, .help = text                                      \
    }
#define REPORTED(name, kind, text)                                                                                     \
    {                                                                                                                  \
        .path = name, .type = ZR_KEY_##kind, .status = ZR_KEY_NOTED, .help = text, .as_it_is = true                    \
    }
#define BY_HIDDEN(name, rule, text)                                                                                    \
    {                                                                                                                  \
        .path = name, .type = ZR_KEY_COUNT, .status = ZR_KEY_NOTED, .help = text, .automatic = rule                    \
    }
#define REFUSED(name, kind, asks_nothing, text)                                                                        \
    {                                                                                                                  \
        .path = name, .type = ZR_KEY_##kind, .status = ZR_KEY_REFUSED, .neutral = asks_nothing, .help = text           \
    }
#define ALIAS(name, target)                                                                                            \
    {                                                                                                                  \
        .path = name, .status = ZR_KEY_ALIAS, .why = target                                                            \
    }
#define OLD(name, target)                                                                                              \
    {                                                                                                                  \
        .path = name, .status = ZR_KEY_OLD, .why = target                                                              \
    }
#define RANGE(low, high) .min = low, .max = high
#define ABOVE_ZERO 1e-300
#define STEPS_MAX 4294967295.0

static const char *const device_names[] = { "none", "cpu", "nvme", NULL };
static const char *const backend_names[] = { "auto", "cpu", "cuda", NULL };
static const char *const engine_names[] = { "auto", "io_uring", "threads", NULL };
static const char *const simd_names[] = { "auto", "scalar", "avx2", "avx512", NULL };
static const char *const decay_names[] = { "matrices", "all", NULL };
static const char *const level_names[] = { "error", "warn", "info", "debug", NULL };
static const char *const warmup_names[] = { "linear", "log", NULL };
static const char *const accum_names[] = { "fp32", "bf16", NULL };
static const char *const plane_names[] = { "weight", "low", "m", "v", NULL };
static const char *const states_names[] = { "fp32", NULL };
static const char *const master_names[] = { "split", NULL };

static const char comm[] = "zerod sends over the bus what its schedule says";
static const char bucket[] = "zerod has no buckets, it moves one unit at a time (the key counts elements)";
static const char swap[] = "zerod sizes its own buffers (the key counts elements)";
static const char monitor[] = "zerod writes no such log; zeroctl train --log FILE.jsonl has the figures";

static const struct zr_key table[] = {
    SECTION("model", "which model"),
    USED("model.path", TEXT, config.model_path, "Hugging Face directory: config.json and safetensors", .fallback = ""),
    USED("model.config", JSON, config.model_config_json,
         "config.json written inline, as a mapping; weights are then random", .fallback = ""),
    USED("model.seed", COUNT, config.model_seed, "seed of random weights, where none are given", .fallback = "0"),
    USED("sequence_length", COUNT, config.sequence_length, "length of a sequence; 0: said when a job opens",
         .unit = "tokens", RANGE(0, 16777216), .fallback = "0"),
    USED("seed", COUNT, config.seed, "seed of data order and of random numbers in training", .fallback = "0"),

    USED("train_batch_size", COUNT, config.train_batch_size,
         "sequences per optimizer step: micro-batch x accumulation x ranks", .unit = "sequences", RANGE(1, STEPS_MAX),
         .automatic = "not given"),
    USED("train_micro_batch_size_per_gpu", COUNT, config.micro_batch_size, "sequences that one rank computes at a time",
         .unit = "sequences", RANGE(1, STEPS_MAX), .automatic = "not given"),
    USED("gradient_accumulation_steps", COUNT, config.gradient_accumulation_steps, "micro-batches per optimizer step",
         RANGE(1, STEPS_MAX), .automatic = "not given"),
    USED("gradient_clipping", NUMBER, config.gradient_clipping, "largest global L2 norm of the gradients; 0: off",
         RANGE(0, 1e300), .fallback = "1.0"),
    USED("steps_per_print", COUNT, config.steps_per_print, "optimizer steps between two lines of progress",
         RANGE(1, STEPS_MAX), .fallback = "10"),

    SECTION("bf16", "compute in bfloat16"),
    ALIAS("bfloat16", "bf16"),
    USED("bf16.enabled", BOOL, bf16, "weights and activations in bfloat16", .fallback = "false",
         .automatic = "true unless fp16 is on"),
    NOTED("bf16.immediate_grad_update", BOOL, "zerod's schedule decides when a gradient is added"),
    REFUSED("bf16.check_grad_overflow", BOOL, "true",
            "a step with a non-finite gradient never changes weights in zerod"),
    REFUSED("bf16.bf16_master_weights_and_grads", BOOL, "false", "zerod keeps fp32 masters"),
    REFUSED("bf16.bf16_optimizer_states", BOOL, "false", "zerod keeps fp32 optimizer states"),
    SECTION("fp16", "compute in half precision, with a loss scale"),
    USED("fp16.enabled", BOOL, fp16, "weights and activations in fp16", .fallback = "false", .automatic = "false"),
    NOTED("fp16.auto_cast", BOOL, "tokens need no cast"),
    USED("fp16.loss_scale", NUMBER, config.loss_scale, "static loss scale; 0: dynamic", RANGE(0, 1e300),
         .fallback = "0"),
    USED("fp16.initial_scale_power", COUNT, config.initial_scale_power,
         "a dynamic loss scale starts at 2 to this power", RANGE(0, 126), .fallback = "16"),
    USED("fp16.loss_scale_window", COUNT, config.loss_scale_window, "steps without overflow before the scale doubles",
         RANGE(1, STEPS_MAX), .fallback = "1000"),
    USED("fp16.hysteresis", COUNT, config.hysteresis, "overflows before the scale is halved", RANGE(1, STEPS_MAX),
         .fallback = "2"),
    REFUSED("fp16.consecutive_hysteresis", BOOL, "false", "the counter of overflows is refilled when the scale grows"),
    USED("fp16.min_loss_scale", NUMBER, config.min_loss_scale, "floor of the dynamic scale", RANGE(ABOVE_ZERO, 1e300),
         .fallback = "1"),
    REFUSED("fp16.fp16_master_weights_and_grads", BOOL, "false", "zerod keeps fp32 masters"),
    SECTION("amp", "NVIDIA Apex mixed precision"),
    REFUSED("amp.enabled", BOOL, "false", "Apex is not there; use bf16"),
    NOTED("amp.opt_level", ANY, "a setting of Apex"),
    SECTION("torch_autocast", "PyTorch's autocast"),
    REFUSED("torch_autocast.enabled", BOOL, "false", "there is no PyTorch here; use bf16"),
    NOTED("torch_autocast.dtype", ANY, "a setting of PyTorch's autocast"),
    NOTED("torch_autocast.lower_precision_safe_modules", ANY, "a setting of PyTorch's autocast"),
    SECTION("data_types", "number formats"),
    USED("data_types.grad_accum_dtype", NAME, grad_accum, "gradients are summed in this format", .names = accum_names,
         .fallback = "fp32"),
    REFUSED("data_types.param_dtype", TEXT, "", "the format of the weights follows from bf16 and fp16"),
    REFUSED("data_types.buffer_dtype", TEXT, "", "models here have no buffers of their own"),

    SECTION("optimizer", "the update rule"),
    USED("optimizer.type", TEXT, config.optimizer_name,
         "AdamW or Adam; Adam decays as AdamW does unless adam_w_mode is false", .fallback = "AdamW"),
    NOTED("optimizer.legacy_fusion", BOOL, "a detail of DeepSpeed's 1-bit optimizers"),
    SECTION("optimizer.params", "its numbers"),
    USED("optimizer.params.lr", NUMBER, config.lr, "learning rate", RANGE(0, 1e6), .fallback = "0.001",
         .automatic = "0.001, with a warning"),
    USED("optimizer.params.betas", PAIR, betas, "decay of the two moments", RANGE(0, 1), .open_end = true,
         .fallback = "[0.9, 0.999]"),
    USED("optimizer.params.eps", NUMBER, config.eps, "added to the root of the second moment", RANGE(0, 1e6),
         .fallback = "1e-08"),
    USED("optimizer.params.weight_decay", NUMBER, config.weight_decay, "weight decay", RANGE(0, 1e6), .fallback = "0"),
    USED("optimizer.params.bias_correction", BOOL, config.bias_correction,
         "correct the moments for their start at zero", .fallback = "true"),
    USED("optimizer.params.adam_w_mode", BOOL, adam_w_mode, "type Adam only; false: decay is added to the gradient",
         .fallback = "true"),
    ALIAS("optimizer.params.adamw_mode", "optimizer.params.adam_w_mode"),
    USED("optimizer.params.torch_adam", BOOL, torch_adam,
         "PyTorch's Adam instead of DeepSpeed's: zerod has one of its own", .fallback = "false"),
    REFUSED("optimizer.params.amsgrad", BOOL, "false", "AMSGrad is not there (DeepSpeed's CPU Adam has none either)"),
    REFUSED("optimizer.params.fp32_optimizer_states", BOOL, "true", "optimizer states are fp32"),
    REFUSED("optimizer.params.max_grad_norm", NUMBER, "",
            "clipping is not the optimizer's: write gradient_clipping at the top level"),
    NOTED("optimizer.params.fused", ANY, "a choice of PyTorch's kernels"),
    NOTED("optimizer.params.foreach", ANY, "a choice of PyTorch's kernels"),
    NOTED("optimizer.params.freeze_step", ANY, "for 1-bit optimizers"),
    NOTED("optimizer.params.cuda_aware", ANY, "for 1-bit optimizers"),
    NOTED("optimizer.params.comm_backend_name", ANY, "for 1-bit optimizers"),
    NOTED("optimizer.params.max_coeff", NUMBER, "for Lamb"),
    NOTED("optimizer.params.min_coeff", NUMBER, "for Lamb"),
    NOTED("optimizer.params.momentum", NUMBER, "for SGD and Muon"),

    SECTION("scheduler", "the learning rate over the steps; without it the rate is optimizer.params.lr throughout"),
    USED("scheduler.type", TEXT, scheduler_type, "WarmupLR, WarmupDecayLR, WarmupCosineLR or OneCycle", .fallback = ""),
    SECTION("scheduler.params", "its numbers"),
    USED("scheduler.params.warmup_min_lr", NUMBER, config.rate.warmup_min_lr, "rate at the first step", RANGE(0, 1e6),
         .fallback = "0"),
    USED("scheduler.params.warmup_max_lr", NUMBER, config.rate.warmup_max_lr,
         "rate after the warm-up; WarmupLR: optimizer.params.lr unless given", RANGE(0, 1e6), .fallback = "0.001",
         .automatic = "optimizer.params.lr"),
    USED("scheduler.params.warmup_num_steps", COUNT, config.rate.warmup_num_steps, "length of the warm-up",
         .unit = "steps", RANGE(0, STEPS_MAX), .fallback = "1000", .automatic = "refused: nothing here knows it"),
    USED("scheduler.params.total_num_steps", COUNT, config.rate.total_num_steps, "length of the run", .unit = "steps",
         RANGE(1, STEPS_MAX), .fallback = "0", .automatic = "zerod.max_steps"),
    USED("scheduler.params.warmup_type", NAME, config.rate.warmup_type, "shape of the warm-up", .names = warmup_names,
         .fallback = "log"),
    USED("scheduler.params.warmup_min_ratio", NUMBER, config.rate.warmup_min_ratio,
         "WarmupCosineLR: first rate by optimizer.params.lr", RANGE(0, 1), .fallback = "0"),
    USED("scheduler.params.cos_min_ratio", NUMBER, config.rate.cos_min_ratio,
         "WarmupCosineLR: last rate by optimizer.params.lr", RANGE(0, 1), .fallback = "0.0001"),
    USED("scheduler.params.cycle_min_lr", NUMBER, config.rate.cycle_min_lr, "OneCycle: lowest rate", RANGE(0, 1e6),
         .fallback = "0"),
    USED("scheduler.params.cycle_max_lr", NUMBER, config.rate.cycle_max_lr, "OneCycle: highest rate", RANGE(0, 1e6),
         .fallback = "0"),
    USED("scheduler.params.decay_lr_rate", NUMBER, config.rate.decay_lr_rate, "OneCycle: decay after the cycle",
         RANGE(0, 1e6), .fallback = "0"),
    USED("scheduler.params.cycle_first_step_size", COUNT, config.rate.cycle_first_step_size,
         "OneCycle: length of the rise", .unit = "steps", RANGE(1, STEPS_MAX), .fallback = "2000"),
    USED("scheduler.params.cycle_second_step_size", COUNT, config.rate.cycle_second_step_size,
         "OneCycle: length of the fall; as the rise unless given", .unit = "steps", RANGE(0, STEPS_MAX),
         .fallback = "0"),
    USED("scheduler.params.cycle_first_stair_count", COUNT, config.rate.cycle_first_stair_count,
         "OneCycle: stairs in the rise", RANGE(0, STEPS_MAX), .fallback = "0"),
    USED("scheduler.params.cycle_second_stair_count", COUNT, config.rate.cycle_second_stair_count,
         "OneCycle: stairs in the fall; as in the rise unless given", RANGE(0, STEPS_MAX), .fallback = "0"),
    USED("scheduler.params.decay_step_size", COUNT, config.rate.decay_step_size,
         "OneCycle: steps of the decay after the cycle", .unit = "steps", RANGE(0, STEPS_MAX), .fallback = "0"),
    USED("scheduler.params.cycle_momentum", BOOL, config.rate.cycle_momentum, "OneCycle: cycle the first beta too",
         .fallback = "true"),
    USED("scheduler.params.cycle_min_mom", NUMBER, config.rate.cycle_min_mom, "OneCycle: lowest first beta",
         RANGE(0, 1), .open_end = true, .fallback = "0.8"),
    USED("scheduler.params.cycle_max_mom", NUMBER, config.rate.cycle_max_mom, "OneCycle: highest first beta",
         RANGE(0, 1), .open_end = true, .fallback = "0.9"),
    USED("scheduler.params.decay_mom_rate", NUMBER, config.rate.decay_mom_rate,
         "OneCycle: decay of the first beta after the cycle", RANGE(0, 1e6), .fallback = "0"),
    REFUSED("scheduler.params.last_batch_iteration", ANY, "-1", "a job's own step count goes on after a restart"),
    NOTED("scheduler.params.lr_range_test_min_lr", ANY, "for LRRangeTest"),
    NOTED("scheduler.params.lr_range_test_step_size", ANY, "for LRRangeTest"),
    NOTED("scheduler.params.lr_range_test_step_rate", ANY, "for LRRangeTest"),
    NOTED("scheduler.params.lr_range_test_staircase", ANY, "for LRRangeTest"),

    SECTION("zero_optimization", "ZeRO: what is sharded and where it lives"),
    USED("zero_optimization.stage", COUNT, config.zero_stage,
         "0 none, 1 optimizer states, 2 and gradients, 3 and weights", RANGE(0, 3), .fallback = "0"),
    SECTION("zero_optimization.offload_optimizer", "where master weights and moments live"),
    USED("zero_optimization.offload_optimizer.device", NAME, optimizer_device,
         "tier of the optimizer states; cpu and nvme need stage 1", .names = device_names, .fallback = "none"),
    USED("zero_optimization.offload_optimizer.nvme_path", TEXT, optimizer_nvme_path,
         "directory on the drive, for device nvme", .fallback = ""),
    USED("zero_optimization.offload_optimizer.pin_memory", BOOL, config.optimizer_pin_memory,
         "page-locked host memory (DeepSpeed's default before 0.19.5: false)", .fallback = "true"),
    NOTED("zero_optimization.offload_optimizer.buffer_count", COUNT, "zerod sizes its own buffers"),
    NOTED("zero_optimization.offload_optimizer.buffer_size", COUNT, swap),
    NOTED("zero_optimization.offload_optimizer.pipeline_read", BOOL, "zerod always reads ahead"),
    NOTED("zero_optimization.offload_optimizer.pipeline_write", BOOL, "zerod always writes behind"),
    NOTED("zero_optimization.offload_optimizer.pipeline", BOOL, "zerod always reads ahead and writes behind"),
    NOTED("zero_optimization.offload_optimizer.fast_init", BOOL, "zerod's start is the fast one"),
    NOTED("zero_optimization.offload_optimizer.ratio", NUMBER, "the plan decides what stays on the GPU"),
    NOTED("zero_optimization.offload_optimizer.super_offload", BOOL, "updates run under the next forward anyway"),
    NOTED("zero_optimization.offload_optimizer.cpuadam_cores_perc", NUMBER, "see zerod.optimizer.threads"),
    SECTION("zero_optimization.offload_param", "where weights live between uses; acts at stage 3"),
    USED("zero_optimization.offload_param.device", NAME, param_device, "tier of the weights; cpu and nvme need stage 3",
         .names = device_names, .fallback = "none"),
    USED("zero_optimization.offload_param.nvme_path", TEXT, param_nvme_path, "directory on the drive, for device nvme",
         .fallback = ""),
    USED("zero_optimization.offload_param.pin_memory", BOOL, config.param_pin_memory,
         "page-locked host memory (DeepSpeed's default before 0.19.5: false)", .fallback = "true"),
    NOTED("zero_optimization.offload_param.buffer_count", COUNT, "zerod sizes its own buffers"),
    NOTED("zero_optimization.offload_param.buffer_size", COUNT, swap),
    NOTED("zero_optimization.offload_param.max_in_cpu", COUNT,
          "zerod.host.memory is the limit, in bytes (the key counts elements)"),
    OLD("zero_optimization.cpu_offload", "zero_optimization.offload_optimizer.device"),
    OLD("zero_optimization.cpu_offload_params", "zero_optimization.offload_param.device"),
    OLD("zero_optimization.cpu_offload_param", "zero_optimization.offload_param.device"),
    NOTED("zero_optimization.cpu_offload_use_pin_memory", BOOL,
          "an old key that sets nothing in DeepSpeed either; write offload_optimizer.pin_memory"),
    NOTED("zero_optimization.contiguous_gradients", BOOL, "gradients of a unit always lie in one piece"),
    NOTED("zero_optimization.overlap_comm", BOOL, "copies and compute always overlap"),
    NOTED("zero_optimization.reduce_scatter", BOOL, comm),
    BY_HIDDEN("zero_optimization.reduce_bucket_size", "hidden x hidden", bucket),
    NOTED("zero_optimization.allgather_bucket_size", COUNT, bucket),
    NOTED("zero_optimization.allgather_partitions", BOOL, comm),
    NOTED("zero_optimization.use_multi_rank_bucket_allreduce", BOOL, comm),
    NOTED("zero_optimization.round_robin_gradients", BOOL, comm),
    NOTED("zero_optimization.load_from_fp32_weights", BOOL, "a checkpoint here holds exact masters"),
    NOTED("zero_optimization.elastic_checkpoint", BOOL, "a checkpoint here loads on any number of ranks"),
    NOTED("zero_optimization.sub_group_size", COUNT,
          "zerod updates by unit, in pieces of zerod.optimizer.chunk (the key counts elements)"),
    BY_HIDDEN("zero_optimization.stage3_prefetch_bucket_size", "0.9 x hidden x hidden",
              "see zerod.prefetch (the key counts elements)"),
    ALIAS("zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"),
    BY_HIDDEN("zero_optimization.stage3_param_persistence_threshold", "10 x hidden",
              "what stays on the GPU is what there is room for (the key counts elements)"),
    ALIAS("zero_optimization.param_persistence_threshold", "zero_optimization.stage3_param_persistence_threshold"),
    NOTED("zero_optimization.stage3_model_persistence_threshold", COUNT,
          "what stays on the GPU is what there is room for (the key counts elements)"),
    ALIAS("zero_optimization.model_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold"),
    NOTED("zero_optimization.stage3_max_live_parameters", COUNT,
          "zerod.device.memory is the limit, in bytes (the key counts elements)"),
    ALIAS("zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"),
    NOTED("zero_optimization.stage3_max_reuse_distance", COUNT,
          "the schedule knows when a unit is used again (the key counts elements)"),
    ALIAS("zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"),
    NOTED("zero_optimization.stage3_gather_16bit_weights_on_model_save", BOOL,
          "a saved model always has its whole weights, and adapters are saved whole"),
    ALIAS("zero_optimization.gather_16bit_weights_on_model_save",
          "zero_optimization.stage3_gather_16bit_weights_on_model_save"),
    OLD("zero_optimization.stage3_gather_fp16_weights_on_model_save",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save"),
    OLD("zero_optimization.gather_fp16_weights_on_model_save",
        "zero_optimization.stage3_gather_16bit_weights_on_model_save"),
    NOTED("zero_optimization.stage3_module_granularity_threshold", COUNT, "zerod's unit is a whole block"),
    ALIAS("zero_optimization.module_granularity_threshold", "zero_optimization.stage3_module_granularity_threshold"),
    NOTED("zero_optimization.stage3_use_all_reduce_for_fetch_params", BOOL, comm),
    ALIAS("zero_optimization.use_all_reduce_for_fetch_params",
          "zero_optimization.stage3_use_all_reduce_for_fetch_params"),
    NOTED("zero_optimization.stage3_allgather_sequential", BOOL, comm),
    ALIAS("zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential"),
    NOTED("zero_optimization.ignore_unused_parameters", BOOL, "every parameter of the models here has a gradient"),
    NOTED("zero_optimization.memory_efficient_linear", BOOL, "a patch of PyTorch's Linear"),
    NOTED("zero_optimization.override_module_apply", BOOL, "a patch of PyTorch's modules"),
    NOTED("zero_optimization.pipeline_loading_checkpoint", BOOL, "weights are always loaded tensor by tensor"),
    NOTED("zero_optimization.log_trace_cache_warnings", BOOL, "there is no trace cache"),
    NOTED("zero_optimization.enable_sanity_checks", BOOL, "every schedule is checked before it runs"),
    NOTED("zero_optimization.save_muon_momentum_buffer_in_memory", BOOL, "for Muon"),
    NOTED("zero_optimization.leaf_module", ANY, "zerod's unit is a whole block"),
    REFUSED("zero_optimization.legacy_stage1", BOOL, "false", "DeepSpeed's first stage 1 is gone there too"),
    REFUSED("zero_optimization.zenflow", ANY, "", "ZenFlow updates some weights late, which changes results"),
    REFUSED("zero_optimization.zero_hpz_partition_size", COUNT, "1", "ZeRO++ is not there"),
    REFUSED("zero_optimization.zero_quantized_weights", BOOL, "false", "ZeRO++ is not there"),
    REFUSED("zero_optimization.zero_quantized_nontrainable_weights", BOOL, "false", "ZeRO++ is not there"),
    REFUSED("zero_optimization.zero_quantized_gradients", BOOL, "false", "ZeRO++ is not there"),
    REFUSED("zero_optimization.zeropp_loco_param", ANY, "", "ZeRO++ is not there"),
    REFUSED("zero_optimization.mics_shard_size", ANY, "-1|0", "MiCS is not there"),
    REFUSED("zero_optimization.mics_hierarchical_params_gather", BOOL, "false", "MiCS is not there"),

    SECTION("aio", "reads and writes on the drive"),
    USED("aio.block_size", BYTES, aio_block_bytes,
         "bytes per read or write, a multiple of 4096; zerod.nvme.block goes before it", RANGE(4096, 67108864)),
    USED("aio.queue_depth", COUNT, aio_depth, "reads and writes under way per drive; zerod.nvme.depth goes before it",
         RANGE(1, 4096)),
    NOTED("aio.intra_op_parallelism", COUNT, "one io_uring per drive does what threads did"),
    OLD("aio.thread_count", "aio.intra_op_parallelism"),
    NOTED("aio.single_submit", BOOL, "requests are submitted together"),
    NOTED("aio.overlap_events", BOOL, "submitting and reaping always overlap"),
    NOTED("aio.use_gds", BOOL, "GPUDirect Storage is not used"),

    SECTION("activation_checkpointing", "what is recomputed in backward"),
    REPORTED("activation_checkpointing.partition_activations", BOOL, "without effect on one rank"),
    REPORTED("activation_checkpointing.partitioned_activations", BOOL, "without effect on one rank"),
    REPORTED("activation_checkpointing.cpu_checkpointing", BOOL,
             "applied by need: checkpoints that do not fit on the device go to host memory"),
    REPORTED("activation_checkpointing.contiguous_memory_optimization", BOOL, "applied: checkpoints lie in one arena"),
    REPORTED("activation_checkpointing.number_checkpoints", COUNT, "unsupported: zerod keeps one checkpoint per block"),
    REPORTED("activation_checkpointing.synchronize_checkpoint_boundary", BOOL, "without effect: nothing waits there"),
    REPORTED("activation_checkpointing.profile", BOOL, "without effect: every operation is in the trace"),

    NOTED("wall_clock_breakdown", BOOL, "times of every operation are in the trace"),
    NOTED("memory_breakdown", BOOL, "zeroctl status shows bytes by tier"),
    NOTED("dump_state", BOOL, "zerod --print-config shows every value"),
    NOTED("prescale_gradients", BOOL, "gradients are divided once, by the tokens of the whole step"),
    NOTED("gradient_predivide_factor", NUMBER, "gradients are divided once, by the tokens of the whole step"),
    REFUSED("gradient_allreduce_op", TEXT, "mean", "gradients are averaged over the ranks"),
    REFUSED("managed_gradient_accumulation", BOOL, "true", "the daemon counts micro-batches"),
    NOTED("communication_data_type", TEXT, "gradients are summed in data_types.grad_accum_dtype"),
    NOTED("seq_parallel_communication_data_type", TEXT, "there is no sequence parallelism"),
    REPORTED("fp32_allreduce", BOOL, "obeyed as it stands: gradients are summed in fp32 unless data_types says bf16"),
    NOTED("sparse_gradients", BOOL, "gradients of embeddings are dense here, with the same values"),
    NOTED("disable_allgather", BOOL, comm),
    NOTED("zero_allow_untested_optimizer", BOOL, "the optimizer is zerod's own"),
    NOTED("zero_force_ds_cpu_optimizer", BOOL, "the optimizer is zerod's own"),
    NOTED("dataloader_drop_last", BOOL, "clients bring their own batches"),
    NOTED("vocabulary_size", COUNT, "the model's config.json says it"),
    NOTED("graph_harvesting", BOOL, "there are no CUDA graphs to keep"),
    NOTED("use_data_before_expert_parallelism", BOOL, "there are no experts"),
    NOTED("log_level", ANY, "see zerod.log_level"),
    NOTED("checkpoint", ANY, "checkpoints here are directories that load on any number of ranks"),
    NOTED("flops_profiler", ANY, "zeroctl profile shows where a step goes"),
    NOTED("comms_logger", ANY, "every copy is in the trace"),
    NOTED("tensorboard", ANY, monitor),
    NOTED("wandb", ANY, monitor),
    NOTED("csv_monitor", ANY, monitor),
    NOTED("comet", ANY, monitor),
    NOTED("timers", ANY, "times of every operation are in the trace"),
    NOTED("nebula", ANY, "checkpoints are zerod's own"),
    NOTED("datastates_ckpt", ANY, "checkpoints are zerod's own"),
    NOTED("compile", ANY, "there is nothing to compile"),
    NOTED("weight_quantization", ANY, "a setting of DeepSpeed's inference"),
    SECTION("autotuning", "DeepSpeed's search for batch sizes"),
    REFUSED("autotuning.enabled", BOOL, "false", "zeroctl plan says what fits, without trial runs"),
    SECTION("elasticity", "batches for a changing number of ranks"),
    REFUSED("elasticity.enabled", BOOL, "false", "the batch size would change with the ranks"),
    SECTION("hybrid_engine", "training and inference in turns"),
    REFUSED("hybrid_engine.enabled", BOOL, "false", "not supported"),
    REFUSED("pipeline", ANY, "", "pipeline parallelism is not supported"),
    SECTION("tensor_parallel", "tensor parallelism"),
    REFUSED("tensor_parallel.autotp_size", COUNT, "0|1", "tensor parallelism is not supported"),
    REFUSED("tensor_parallel.tp_size", COUNT, "0|1", "tensor parallelism is not supported"),
    NOTED("tensor_parallel.preset_model", ANY, "a setting of tensor parallelism"),
    NOTED("tensor_parallel.tp_grain_size", ANY, "a setting of tensor parallelism"),
    REFUSED("tensor_parallel.tp", ANY, "", "tensor parallelism is not supported"),
    REFUSED("expert_parallel", ANY, "", "expert parallelism is not supported"),
    REFUSED("sequence_parallel_size", COUNT, "0|1", "sequence parallelism is not supported"),
    REFUSED("sparse_attention", ANY, "", "attention here is dense"),
    REFUSED("compression_training", ANY, "", "compression is not supported"),
    SECTION("quantize_training", "quantisation during training"),
    REFUSED("quantize_training.enabled", BOOL, "false", "quantisation during training is not supported"),
    SECTION("eigenvalue", "curvature of the loss, for quantisation"),
    REFUSED("eigenvalue.enabled", BOOL, "false", "not supported"),
    SECTION("progressive_layer_drop", "leaves out blocks at random"),
    REFUSED("progressive_layer_drop.enabled", BOOL, "false", "not supported"),
    SECTION("curriculum_learning", "sequences that grow"),
    REFUSED("curriculum_learning.enabled", BOOL, "false", "not supported: clients bring their own batches"),
    SECTION("data_efficiency", "data sampling and routing"),
    REFUSED("data_efficiency.enabled", BOOL, "false", "not supported: clients bring their own batches"),

    SECTION("zerod", "what only zerod has"),
    USED("zerod.socket", TEXT, config.socket,
         "Unix socket of the daemon; $RUNTIME_DIRECTORY, /run/zerod or $XDG_RUNTIME_DIR/zerod"),
    USED("zerod.state_dir", TEXT, config.state_dir,
         "checkpoints and logs of accepted steps; $STATE_DIRECTORY, /var/lib/zerod or $XDG_STATE_HOME/zerod"),
    SECTION("zerod.device", "the GPU, or what stands for it"),
    USED("zerod.device.backend", NAME, config.backend,
         "auto: CUDA where a GPU works, else an error that says why; cpu must be asked for", .names = backend_names,
         .fallback = "auto"),
    USED("zerod.device.memory", BYTES, config.device_bytes, "budget of the device tier; auto: all that is there (CUDA)",
         .unit = "bytes", .fallback = "auto"),
    SECTION("zerod.host", "host memory"),
    USED("zerod.host.memory", BYTES, config.host_bytes, "budget of the host tier; auto: what is free", .unit = "bytes",
         .fallback = "auto"),
    SECTION("zerod.nvme", "the drive"),
    USED("zerod.nvme.path", PATHS, nvme_paths,
         "directory, or a list of them to stripe over; goes before the nvme_path of the offload sections"),
    USED("zerod.nvme.size", BYTES, config.nvme_bytes, "budget of the nvme tier; auto: what is free there",
         .unit = "bytes", .fallback = "auto"),
    USED("zerod.nvme.planes", SET, config.nvme_planes,
         "which bytes live there; by default low, m and v where offload_optimizer.device is nvme, weight where "
         "offload_param.device is",
         .names = plane_names),
    USED("zerod.nvme.verify", BOOL, config.nvme_verify, "compare the checksum of every block on every read",
         .fallback = "true"),
    USED("zerod.nvme.allow_buffered", BOOL, config.nvme_allow_buffered,
         "go on, with a warning, where direct I/O does not work", .fallback = "false"),
    USED("zerod.nvme.engine", NAME, config.io_engine, "auto: io_uring where it works, else threads",
         .names = engine_names, .fallback = "auto"),
    USED("zerod.nvme.block", BYTES, zerod_block_bytes, "bytes per read or write, a multiple of 4096", .unit = "bytes",
         RANGE(4096, 67108864)),
    USED("zerod.nvme.depth", COUNT, zerod_depth, "reads and writes under way per drive", RANGE(1, 4096)),
    SECTION("zerod.compute", "the CPU backend"),
    USED("zerod.compute.threads", COUNT, config.compute_threads, "threads of the CPU backend; 0: all cores",
         RANGE(0, 1024), .fallback = "0"),
    SECTION("zerod.optimizer", "the update"),
    USED("zerod.optimizer.threads", COUNT, config.optimizer_threads, "threads of the CPU update; 0: all cores",
         RANGE(0, 1024), .fallback = "0"),
    USED("zerod.optimizer.simd", NAME, config.simd, "instruction set of the update; all give the same bits",
         .names = simd_names, .fallback = "auto"),
    USED("zerod.optimizer.chunk", COUNT, config.update_chunk, "parameters per piece of an update, a multiple of 256",
         .unit = "parameters", RANGE(256, 1099511627776.0), .fallback = "1048576"),
    USED("zerod.optimizer.decay", NAME, config.decay_rule,
         "what weight decay acts on: matrices (as Hugging Face's Trainer) or all (as DeepSpeed)", .names = decay_names,
         .fallback = "matrices"),
    USED("zerod.optimizer.states", NAME, states_type, "format of the two moments", .names = states_names,
         .fallback = "fp32"),
    USED("zerod.optimizer.master", NAME, master_type, "split: the bf16 weight and its 16 low bits",
         .names = master_names, .fallback = "split"),
    USED("zerod.prefetch", COUNT, config.prefetch, "units loaded ahead of the one that computes", .unit = "units",
         RANGE(1, 64), .fallback = "2"),
    USED("zerod.loss_chunk", COUNT, config.loss_chunk_rows, "tokens whose logits exist at a time; 0: chosen",
         .unit = "tokens", RANGE(0, STEPS_MAX), .fallback = "0"),
    USED("zerod.max_steps", COUNT, config.max_steps, "optimizer steps of the run; 0: as many as the client asks for",
         .unit = "steps", RANGE(0, STEPS_MAX), .fallback = "0"),
    SECTION("zerod.metrics", "figures for Prometheus"),
    REPORTED("zerod.metrics.listen", TEXT, "not served yet: zeroctl status has the figures"),
    USED("zerod.log_level", NAME, config.log_level, "least important lines that are logged", .names = level_names,
         .fallback = "info"),
};

const struct zr_key *const zr_keys = table;
static_assert(ZR_COUNT(table) <= ZR_KEYS_MAX, "origins are kept in an array");

uint32_t zr_key_count(void)
{
    return ZR_COUNT(table);
}

static bool find_exact(const char *path, uint32_t *ret_index)
{
    for (uint32_t i = 0; i < ZR_COUNT(table); i++)
        if (strcmp(table[i].path, path) == 0) {
            *ret_index = i;
            return true;
        }
    return false;
}

bool zr_key_find(const char *path, uint32_t *ret_index)
{
    if (find_exact(path, ret_index)) return true;
    const char *dot = strchr(path, '.');
    if (!dot || (size_t)(dot - path) != strlen("bfloat16") || strncmp(path, "bfloat16", strlen("bfloat16")))
        return false;
    char renamed[160];
    if (strlen(dot) + sizeof "bf16" > sizeof renamed) return false;
    strcpy(renamed, "bf16");
    strcat(renamed, dot);
    return find_exact(renamed, ret_index);
}

void zr_key_list_names(const struct zr_key *key, struct zr_text *out)
{
    for (uint32_t i = 0; key->names[i]; i++)
        zr_text_add(out, "%s%s", i == 0 ? "" : key->names[i + 1] ? ", " : " or ", key->names[i]);
}
