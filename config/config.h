/* config.h: what a configuration file says, as one plain struct
 *
 *     file (YAML or DeepSpeed JSON) ──► tree ──► apply over defaults ──► rules between keys ──► struct zr_config
 *                                                     ▲ --set key.path=value
 *
 * Every value is typed and in the unit that its name says. DeepSpeed's keys keep their names and meanings at the top
 * level of the file; what only zerod has stands under `zerod:` (keys.c is the table; docs/configuration.md is printed
 * from it). Nothing here touches hardware or opens a model: the same file gives the same struct anywhere, but for the
 * launcher's variables (ranks), the places of socket and state where none are given, and the check that directories on
 * the drive that are in use are there and writable. */
#ifndef ZR_CONFIG_H
#define ZR_CONFIG_H

#include "engine/base/error.h"
#include "engine/base/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum zr_place_tier { ZR_PLACE_NONE, ZR_PLACE_CPU, ZR_PLACE_NVME }; /* DeepSpeed's offload devices */
enum zr_backend { ZR_BACKEND_AUTO, ZR_BACKEND_CPU, ZR_BACKEND_CUDA };
enum zr_precision { ZR_PRECISION_FP32, ZR_PRECISION_BF16, ZR_PRECISION_FP16 };
enum zr_optimizer_kind { ZR_OPTIMIZER_ADAMW, ZR_OPTIMIZER_ADAM_L2 };
enum zr_io_engine { ZR_IO_AUTO, ZR_IO_URING, ZR_IO_THREADS };
enum zr_simd { ZR_SIMD_AUTO, ZR_SIMD_SCALAR, ZR_SIMD_AVX2, ZR_SIMD_AVX512 };
enum zr_decay_rule { ZR_DECAY_MATRICES, ZR_DECAY_ALL };
enum zr_log_level_name { ZR_LEVEL_ERROR, ZR_LEVEL_WARN, ZR_LEVEL_INFO, ZR_LEVEL_DEBUG };

enum zr_schedule_kind {
    ZR_RATE_CONSTANT,      /* no scheduler section: optimizer.params.lr throughout */
    ZR_RATE_WARMUP,        /* WarmupLR */
    ZR_RATE_WARMUP_DECAY,  /* WarmupDecayLR */
    ZR_RATE_WARMUP_COSINE, /* WarmupCosineLR */
    ZR_RATE_ONE_CYCLE,     /* OneCycle */
};

enum { ZR_WARMUP_LINEAR, ZR_WARMUP_LOG };

/* Planes that may live on NVMe, as bits of zr_config.nvme_planes; the names in the file are weight, low, m, v. */
enum { ZR_NVME_WEIGHT = 1, ZR_NVME_LOW = 2, ZR_NVME_M = 4, ZR_NVME_V = 8 };

#define ZR_PATH_MAX 4096
#define ZR_NVME_PATHS_MAX 8

struct zr_config {
    /* model: */
    char model_path[ZR_PATH_MAX]; /* model.path: a Hugging Face directory, or "" when model.config is given inline */
    char model_config_json[8192]; /* model.config: an inline config.json (a mapping in the file), as JSON text, or "" */
    uint64_t model_seed;          /* model.seed: random weights by initializer_range where no weights are given */

    /* batches, resolved: train = micro * accumulation * ranks. In sequences of sequence_length tokens. */
    uint32_t sequence_length;
    uint32_t train_batch_size, micro_batch_size, gradient_accumulation_steps;
    bool micro_batch_auto; /* the daemon chooses the micro-batch: neither micro nor accumulation stood in the file */
    uint32_t ranks;        /* data-parallel processes; ranks_origin says where the number is from */
    char ranks_origin[64];
    uint32_t max_steps; /* zerod.max_steps; 0: none given */
    uint64_t seed;      /* seed: data order and random numbers of training */

    enum zr_precision precision;
    bool grad_accum_bf16; /* data_types.grad_accum_dtype: bf16; false: fp32 */
    /* fp16 section (a job with it is refused until the backend has fp16) */
    double loss_scale, min_loss_scale;
    uint32_t initial_scale_power, loss_scale_window, hysteresis;

    double gradient_clipping; /* 0: off */

    enum zr_optimizer_kind optimizer;
    char optimizer_name[64]; /* as the file spells it */
    double lr, beta1, beta2, eps, weight_decay;
    bool bias_correction;
    enum zr_decay_rule decay_rule; /* zerod.optimizer.decay: matrices (Hugging Face's habit) or all (DeepSpeed's) */

    enum zr_schedule_kind schedule;
    struct {
        double warmup_min_lr, warmup_max_lr; /* WarmupLR, WarmupDecayLR */
        uint32_t warmup_num_steps, total_num_steps;
        int warmup_type;                                  /* ZR_WARMUP_LINEAR or ZR_WARMUP_LOG (DeepSpeed's default) */
        double warmup_min_ratio, cos_min_ratio;           /* WarmupCosineLR */
        double cycle_min_lr, cycle_max_lr, decay_lr_rate; /* OneCycle */
        uint32_t cycle_first_step_size, cycle_second_step_size, decay_step_size;
        uint32_t cycle_first_stair_count, cycle_second_stair_count;
        double cycle_min_mom, cycle_max_mom, decay_mom_rate;
        bool cycle_momentum;
    } rate;

    uint32_t zero_stage;
    enum zr_place_tier optimizer_device; /* zero_optimization.offload_optimizer.device */
    enum zr_place_tier param_device;     /* zero_optimization.offload_param.device: cpu or nvme: weights are streamed */
    bool optimizer_pin_memory, param_pin_memory;
    uint32_t steps_per_print;

    /* zerod: */
    char socket[108];                               /* zerod.socket */
    char state_dir[ZR_PATH_MAX];                    /* zerod.state_dir */
    enum zr_backend backend;                        /* zerod.device.backend */
    uint64_t device_bytes;                          /* zerod.device.memory; 0: all that is there (CUDA) */
    uint64_t host_bytes;                            /* zerod.host.memory; 0: what is free */
    char nvme_path[ZR_NVME_PATHS_MAX][ZR_PATH_MAX]; /* zerod.nvme.path, or offload_*.nvme_path: striped over all */
    uint32_t nvme_path_count;
    uint64_t nvme_bytes;         /* zerod.nvme.size; 0: what is free there */
    uint32_t nvme_planes;        /* zerod.nvme.planes: which planes go there; bits; default from the offload devices */
    bool nvme_verify;            /* zerod.nvme.verify: checksum of each block on every read */
    bool nvme_allow_buffered;    /* zerod.nvme.allow_buffered: go on, with a warning, where O_DIRECT does not work */
    enum zr_io_engine io_engine; /* zerod.nvme.engine */
    uint32_t io_block_bytes, io_depth; /* zerod.nvme.block, zerod.nvme.depth, or aio.block_size, aio.queue_depth */
    uint32_t compute_threads;          /* zerod.compute.threads: CPU backend; 0: all cores */
    uint32_t optimizer_threads;        /* zerod.optimizer.threads; 0: all cores */
    enum zr_simd simd;                 /* zerod.optimizer.simd: for tests of equality */
    uint32_t prefetch;                 /* zerod.prefetch: units loaded ahead of the one that computes; 1 to 64 */
    uint64_t update_chunk;             /* zerod.optimizer.chunk: parameters per piece of an update; multiple of 256 */
    uint32_t loss_chunk_rows;          /* zerod.loss_chunk: tokens whose logits exist at a time; 0: chosen */
    enum zr_log_level_name log_level;
};

/* Where a value came from, for --print-config. */
enum zr_origin { ZR_FROM_DEFAULT, ZR_FROM_FILE, ZR_FROM_COMMAND_LINE, ZR_FROM_DERIVED, ZR_FROM_ENVIRONMENT };

/* Notes, warnings and errors of reading, in the order of their lines. Text without the place. */
enum zr_remark_kind { ZR_REMARK_NOTE, ZR_REMARK_WARNING, ZR_REMARK_ERROR };

struct zr_remark {
    enum zr_remark_kind kind;
    uint32_t line, column; /* 1-based; 0: not from the file */
    char key[160];         /* dotted path, "" when about the whole file */
    char *text;
};

struct zr_config_report; /* remarks and origins of one reading; opaque */

/* Reads `path` ("-": standard input), applies `sets` ("key.path=value", in order) over it, then the rules between keys.
 * The format is told by content and name: *.json is DeepSpeed's JSON (with //, block and # comments and trailing commas),
 * else YAML. RANK, WORLD_SIZE and the launchers' variables are looked at for the number of ranks.
 *
 * On ZR_OK *config is complete and *ret_report (may hold notes and warnings) is the caller's: zr_config_report_free().
 * On failure *config has what could be resolved (zr_config_summary() copes with the gaps), *ret_report still lists every
 * remark, so that a person sees all errors at once, and err has the first one with its place ("file:line: key: text").
 * *ret_report is NULL only when the file could not be read at all.
 * ZR_ECONFIG  anything wrong in the file or the settings
 * ZR_EINPUT   the file cannot be opened */
ZR_MUST_CHECK enum zr_code zr_config_read(const char *path, const char *const *sets, uint32_t set_count,
                                          struct zr_config *config, struct zr_config_report **ret_report,
                                          struct zr_error *err);

/* The same from memory; `name` stands for the file in messages and tells the format. */
ZR_MUST_CHECK enum zr_code zr_config_read_text(const char *name, const char *text, size_t bytes,
                                               const char *const *sets, uint32_t set_count, struct zr_config *config,
                                               struct zr_config_report **ret_report, struct zr_error *err);
void zr_config_report_free(struct zr_config_report *report);

uint32_t zr_config_remark_count(const struct zr_config_report *report);
const struct zr_remark *zr_config_remark(const struct zr_config_report *report, uint32_t index);

/* "file:line: key: text" plus "  hint: ..." lines as written; into out. */
void zr_config_remark_text(const struct zr_config_report *report, uint32_t index, struct zr_text *out);

/* --print-config: every key with its value and where it came from; YAML that reads back to the same struct. */
void zr_config_print(const struct zr_config *config, const struct zr_config_report *report, struct zr_text *out);

/* The summary that `zerod --check` prints after the remarks: batch arithmetic, stage, where states and weights live,
 * precision with its scale, optimizer rule, schedule. One fact a line. */
void zr_config_summary(const struct zr_config *config, const struct zr_config_report *report, struct zr_text *out);

/* docs/configuration.md, from the key table. */
void zr_config_reference(struct zr_text *out);

/* Values that DeepSpeed's "auto" rules derive from the hidden size: reduce bucket h*h, prefetch bucket 0.9*h*h,
 * persistence threshold 10*h, as integers. */
void zr_config_auto_buckets(uint64_t hidden, uint64_t *ret_reduce, uint64_t *ret_prefetch, uint64_t *ret_persistence);

/* One line for each of those keys that the file leaves to "auto", once the model's hidden size is known: bytes of the model
 * are not this room's. zr_config_summary() has them already where model.config says the size. */
void zr_config_auto_summary(const struct zr_config_report *report, uint64_t hidden, struct zr_text *out);

#endif
