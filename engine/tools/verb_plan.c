/* verb_plan.c: what fits, and where every byte would live, without a device and without loading anything */
#include "config/quantity.h"
#include "engine/plan/schedule.h"
#include "engine/run/engine.h"
#include "engine/tools/tools.h"
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_DOES_NOT_FIT = 3, EXIT_CONFIG = 78 };

struct asked {
    const char *config;
    const char **sets; /* from the heap, room for all arguments */
    char *made_sets[3];
    uint32_t set_count;
    bool json, deepspeed;
    uint64_t parameters, largest_layer, gpus, nodes;
};

static const char usage[] =
    "usage: zerod plan --config FILE [--set KEY=VALUE]... [--device SIZE] [--ram SIZE] [--nvme SIZE] [--json]\n"
    "       zerod plan --deepspeed --parameters N --largest-layer N [--gpus N] [--nodes N] [--json]\n";

/* -- DeepSpeed's estimate ------------------------------------------------------------------------------------------ */

static int estimate(const struct asked *asked)
{
    static const struct {
        uint32_t stage;
        bool optimizer, param, zero_init;
        const char *words;
    } rows[] = {
        { 2, true, false, false, "stage 2, offload_optimizer cpu" },
        { 2, false, false, false, "stage 2, no offload" },
        { 3, true, true, true, "stage 3, both cpu, zero_init" },
        { 3, true, true, false, "stage 3, both cpu, every rank loads the whole model" },
        { 3, true, false, true, "stage 3, offload_optimizer cpu, zero_init" },
        { 3, false, false, true, "stage 3, no offload, zero_init" },
    };
    json_t *list = json_array();
    if (!asked->json)
        printf("%-54s%14s%14s\n", "DeepSpeed's estimate of model states, buffers x 1.5", "host/node", "per GPU");
    for (unsigned i = 0; i < ZR_COUNT(rows); i++) {
        struct zr_deepspeed_question question = { .parameters = asked->parameters,
                                                  .largest_layer = asked->largest_layer,
                                                  .gpus_per_node = (uint32_t)asked->gpus,
                                                  .nodes = (uint32_t)asked->nodes,
                                                  .stage = rows[i].stage,
                                                  .offload_optimizer = rows[i].optimizer,
                                                  .offload_param = rows[i].param,
                                                  .zero_init = rows[i].zero_init,
                                                  .buffer_factor = 1.5 };
        struct zr_deepspeed_estimate answer;
        zr_deepspeed_estimate(&question, &answer);
        if (!asked->json)
            printf("%-54s%10.2f GiB%10.2f GiB\n", rows[i].words, (double)answer.host_bytes / (1u << 30),
                   (double)answer.gpu_bytes / (1u << 30));
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I}", "case", rows[i].words, "host_bytes",
                                        (json_int_t)answer.host_bytes, "gpu_bytes", (json_int_t)answer.gpu_bytes));
    }
    if (asked->json) {
        json_dumpf(list, stdout, JSON_COMPACT);
        putchar('\n');
    }
    json_decref(list);
    return EXIT_DONE;
}

/* -- the plan ------------------------------------------------------------------------------------------------------ */

static json_t *bytes_json(const struct zr_plan *plan)
{
    static const char *const purposes[ZR_PURPOSE_COUNT] = { "weights",     "states",  "gradients",
                                                            "activations", "staging", "batch" };
    uint64_t bytes[ZR_TIER_COUNT][ZR_PURPOSE_COUNT];
    zr_plan_bytes(plan, bytes);
    json_t *tiers = json_object();
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++) {
        json_t *row = json_object();
        for (int purpose = 0; purpose < ZR_PURPOSE_COUNT; purpose++)
            json_object_set_new(row, purposes[purpose], json_integer((json_int_t)bytes[tier][purpose]));
        json_object_set_new(row, "planned", json_integer((json_int_t)plan->used[tier]));
        json_object_set_new(row, "budget", json_integer((json_int_t)plan->machine.bytes[tier]));
        json_object_set_new(tiers, zr_tier_name(tier), row);
    }
    return tiers;
}

static void print_json(const struct zr_plan *plan)
{
    struct zr_schedule *schedule = NULL;
    struct zr_simulation simulation = { 0 };
    struct zr_error err = { 0 };
    struct zr_schedule_request request = { .pass = ZR_PASS_TRAIN, .micro_count = plan->micro_max, .update = true };
    if (!zr_schedule_make(plan, &request, &schedule, &err)) zr_schedule_simulate(schedule, &plan->machine, &simulation);
    json_t *root = json_pack(
        "{s:b, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:f, s:f, s:s, s:o}", "fits", 1, "family",
        zr_family_name(plan->model->dims.family), "parameters", (json_int_t)plan->model->parameters,
        "model_state_bytes", (json_int_t)zr_plan_state_bytes(plan), "micro_batch_rows", (int)plan->micro_rows,
        "micro_batches", (int)plan->micro_max, "checkpoints_on_device", (int)plan->checkpoints_on_device, "kept_blocks",
        (int)plan->kept_blocks, "simulated_step_seconds", simulation.seconds, "floor_step_seconds", simulation.floor,
        "bound_by", zr_queue_name(simulation.bound_by), "tiers", bytes_json(plan));
    json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(root);
    zr_schedule_free(schedule);
}

static int complain(enum zr_code code, const struct zr_error *err, bool json)
{
    int exit_code = code == ZR_EFULL ? EXIT_DOES_NOT_FIT : code == ZR_ECONFIG ? EXIT_CONFIG : EXIT_FAILED;
    if (json) {
        json_t *root = json_pack("{s:b, s:{s:i, s:s}}", "fits", 0, "error", "code", exit_code, "message", err->text);
        json_dumpf(root, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(root);
    }
    fprintf(stderr, "zerod plan: %s\n", err->text);
    return exit_code;
}

static int plan(const struct asked *asked, zr_dims_finder *find_dims)
{
    struct zr_error err = { 0 };
    struct zr_config *config = calloc(1, sizeof *config);
    struct zr_config_report *report = NULL;
    struct zr_dims dims;
    struct zr_model *model = NULL;
    struct zr_plan *made = NULL;
    enum zr_code code = config ? ZR_OK : zr_fail(&err, ZR_EFULL, "no memory");
    if (!code) code = zr_config_read(asked->config, asked->sets, asked->set_count, config, &report, &err);
    if (!code) code = find_dims(config, &dims, &err);
    if (!code) code = zr_job_plan_only(config, &dims, &model, &made, &err);
    int result = code ? complain(code, &err, asked->json) : EXIT_DONE;
    if (!code && asked->json) {
        print_json(made);
    } else if (!code) {
        struct zr_text text = { 0 };
        zr_plan_words(made, &text);
        fputs(zr_text_c(&text), stdout);
        zr_text_fini(&text);
    }
    zr_plan_free(made);
    zr_model_free(model);
    zr_config_report_free(report);
    free(config);
    return result;
}

/* -- arguments ----------------------------------------------------------------------------------------------------- */

static bool take_count(const char *text, uint64_t *number)
{
    return zr_quantity_count(text, number) && *number > 0;
}

/* --ram SIZE and its like are short for a --set. */
static bool take_size(struct asked *asked, int which, const char *key, const char *size)
{
    uint64_t bytes;
    char *setting = NULL;
    if (!zr_quantity_bytes(size, &bytes) || asprintf(&setting, "%s=%" PRIu64, key, bytes) < 0) return false;
    free(asked->made_sets[which]);
    asked->made_sets[which] = setting;
    asked->sets[asked->set_count++] = setting;
    return true;
}

static int parse(int argc, char **argv, struct asked *asked)
{
    enum { DEVICE = 256, RAM, NVME, JSON, DEEPSPEED, PARAMETERS, LARGEST, GPUS, NODES };
    static const struct option options[] = {
        { "config", required_argument, NULL, 'c' },
        { "set", required_argument, NULL, 's' },
        { "device", required_argument, NULL, DEVICE },
        { "ram", required_argument, NULL, RAM },
        { "nvme", required_argument, NULL, NVME },
        { "json", no_argument, NULL, JSON },
        { "deepspeed", no_argument, NULL, DEEPSPEED },
        { "parameters", required_argument, NULL, PARAMETERS },
        { "largest-layer", required_argument, NULL, LARGEST },
        { "gpus", required_argument, NULL, GPUS },
        { "nodes", required_argument, NULL, NODES },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    bool good = true;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "c:s:h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            asked->config = optarg;
            break;
        case 's':
            asked->sets[asked->set_count++] = optarg;
            break;
        case DEVICE:
            good &= take_size(asked, 0, "zerod.device.memory", optarg);
            break;
        case RAM:
            good &= take_size(asked, 1, "zerod.host.memory", optarg);
            break;
        case NVME:
            good &= take_size(asked, 2, "zerod.nvme.size", optarg);
            break;
        case JSON:
            asked->json = true;
            break;
        case DEEPSPEED:
            asked->deepspeed = true;
            break;
        case PARAMETERS:
            good &= take_count(optarg, &asked->parameters);
            break;
        case LARGEST:
            good &= take_count(optarg, &asked->largest_layer);
            break;
        case GPUS:
            good &= take_count(optarg, &asked->gpus);
            break;
        case NODES:
            good &= take_count(optarg, &asked->nodes);
            break;
        case 'h':
            fputs(usage, stdout);
            return EXIT_DONE;
        default:
            good = false;
        }
    }
    if (asked->deepspeed)
        good &= asked->parameters > 0 && asked->largest_layer > 0;
    else
        good &= asked->config != NULL;
    if (good && optind == argc) return -1;
    fputs(usage, stderr);
    return EXIT_USAGE;
}

int zr_verb_plan(int argc, char **argv, zr_dims_finder *find_dims)
{
    struct asked asked = { .gpus = 1, .nodes = 1 };
    asked.sets = calloc((size_t)argc + 1, sizeof *asked.sets);
    if (!asked.sets) return EXIT_FAILED;
    int code = parse(argc, argv, &asked);
    if (code < 0) code = asked.deepspeed ? estimate(&asked) : plan(&asked, find_dims);
    for (unsigned i = 0; i < ZR_COUNT(asked.made_sets); i++)
        free(asked.made_sets[i]);
    free(asked.sets);
    return code;
}
