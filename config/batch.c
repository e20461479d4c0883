/* batch.c: how many ranks, and the triangle train = micro x accumulation x ranks
 *
 * DeepSpeed fills the missing corner by integer division and checks afterwards. So do we, but where it does not come out
 * the message has every number, where each is from, and what would mend it. */
#include "config/apply.h"
#include "config/quantity.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define ACCUMULATION "gradient_accumulation_steps"

static const struct zr_where nowhere = { 0 };

/* A launcher's word on the number of ranks. */
struct launcher {
    const char *size_name, *rank_name;
    uint64_t size;
};

static bool read_count_of(const char *name, uint64_t *ret_count, struct zr_config_report *report)
{
    const char *text = getenv(name);
    char clipped[80];
    if (!text || !text[0]) return false;
    if (zr_quantity_count(text, ret_count) && *ret_count <= 65536) return true;
    zr_report_add(report, ZR_REMARK_ERROR, nowhere, name, "'%s' in the environment is not a number of ranks",
                  zr_report_clip(clipped, text));
    return false;
}

/* Slurm sets its variables for a batch script too, which is one process however many tasks there are: only a step counts. */
static bool slurm_step(void)
{
    return getenv("SLURM_PROCID") && (getenv("SLURM_STEP_ID") || !getenv("SLURM_JOB_ID"));
}

void zr_rules_ranks(struct zr_config_report *report)
{
    struct launcher launchers[] = { { "WORLD_SIZE", "RANK", 0 },
                                    { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", 0 },
                                    { "PMI_SIZE", "PMI_RANK", 0 },
                                    { "SLURM_NTASKS", "SLURM_PROCID", 0 } };
    struct zr_config *config = &report->settings.config;
    const struct launcher *first = NULL;
    config->ranks = 1;
    snprintf(config->ranks_origin, sizeof config->ranks_origin, "one process: WORLD_SIZE is not set");

    for (uint32_t i = 0; i < ZR_COUNT(launchers); i++) {
        struct launcher *launcher = &launchers[i];
        bool slurm = i + 1 == ZR_COUNT(launchers);
        if (slurm && (!slurm_step() || launchers[1].size || launchers[2].size)) continue; /* mpirun inside Slurm */
        if (!read_count_of(launcher->size_name, &launcher->size, report)) continue;
        if (launcher->size == 0) {
            zr_report_add(report, ZR_REMARK_ERROR, nowhere, launcher->size_name, "0 ranks in the environment");
            continue;
        }
        uint64_t rank;
        if (read_count_of(launcher->rank_name, &rank, report) && rank >= launcher->size)
            zr_report_add(report, ZR_REMARK_ERROR, nowhere, launcher->rank_name,
                          "rank %llu of %llu (%s) in the environment: ranks count from 0", (unsigned long long)rank,
                          (unsigned long long)launcher->size, launcher->size_name);
        if (!first) {
            first = launcher;
            config->ranks = (uint32_t)launcher->size;
            snprintf(config->ranks_origin, sizeof config->ranks_origin, "%s in the environment", launcher->size_name);
        } else if (first->size != launcher->size) {
            zr_report_add(report, ZR_REMARK_ERROR, nowhere, launcher->size_name,
                          "%llu ranks, but %s says %llu: two launchers disagree\n  hint: unset one of them",
                          (unsigned long long)launcher->size, first->size_name, (unsigned long long)first->size);
        }
    }
}

/* "train_batch_size 8 (line 2)" */
static void add_corner(struct zr_text *text, const struct zr_config_report *report, const char *key, uint32_t value)
{
    const struct zr_value_origin *origin = zr_report_origin_const(report, key);
    zr_text_add(text, "%s %u (", key, value);
    if (origin->where.from_set)
        zr_text_add(text, "--set)");
    else
        zr_text_add(text, "line %u)", origin->where.line);
}

static void derive(struct zr_config_report *report, const char *key, uint32_t *corner, uint64_t value, const char *from)
{
    struct zr_value_origin *origin = zr_report_origin(report, key);
    *corner = (uint32_t)value;
    origin->origin = ZR_FROM_DERIVED;
    origin->from = from;
}

static void no_corner(struct zr_config_report *report, bool have_accumulation)
{
    static const char *const keys[] = { TRAIN, MICRO, ACCUMULATION };
    struct zr_where where = nowhere;
    bool automatic = false;
    for (int i = 0; i < 3; i++) {
        const struct zr_value_origin *origin = zr_report_origin_const(report, keys[i]);
        if (origin->automatic) automatic = true;
        if ((where.line == 0 || (origin->where.line && origin->where.line < where.line)) && origin->where.line)
            where = origin->where;
    }
    zr_report_add(
        report, ZR_REMARK_ERROR, where, TRAIN,
        "no batch size: %s, %s and %s are %s\n  hint: give %s, or %s (accumulation is then 1), in the file or by "
        "--set",
        TRAIN, MICRO, ACCUMULATION,
        have_accumulation ? "not enough: accumulation alone says nothing"
        : automatic       ? "absent or \"auto\", and no trainer supplies them"
                          : "all absent",
        TRAIN, MICRO);
}

/* Two or three corners that do not multiply out. */
static void refuse(struct zr_config_report *report, uint32_t train, uint32_t micro, uint32_t accumulation)
{
    const struct zr_config *config = &report->settings.config;
    uint32_t ranks = config->ranks;
    struct zr_text text = { 0 };
    add_corner(&text, report, TRAIN, train);
    if (micro) {
        zr_text_add(&text, ", ");
        add_corner(&text, report, MICRO, micro);
    }
    if (accumulation) {
        zr_text_add(&text, ", ");
        add_corner(&text, report, ACCUMULATION, accumulation);
    }
    zr_text_add(&text, " and %u rank%s (%s) do not fit together: ", ranks, ranks == 1 ? "" : "s", config->ranks_origin);
    uint64_t product = (uint64_t)(micro ? micro : 1) * (accumulation ? accumulation : 1);
    bool fits = product <= UINT64_MAX / ranks;
    if (micro && accumulation && fits)
        zr_text_add(&text, "%u is not %u x %u x %u = %llu", train, micro, accumulation, ranks,
                    (unsigned long long)(product * ranks));
    else if (micro || accumulation)
        zr_text_add(&text, "%u is not a multiple of %u x %u", train, micro ? micro : accumulation, ranks);
    else
        zr_text_add(&text, "%u is not a multiple of %u", train, ranks);

    uint64_t others = (uint64_t)(micro ? micro : 1) * ranks;
    if (micro && train % others == 0)
        zr_text_add(&text, "\n  hint: set %s to %llu", ACCUMULATION, (unsigned long long)(train / others));
    if (micro && accumulation && train % product == 0 && product)
        zr_text_add(&text, "\n  hint: or start %llu ranks", (unsigned long long)(train / product));
    if (micro && accumulation && fits && product * ranks <= UINT32_MAX)
        zr_text_add(&text, "\n  hint: or set %s to %llu", TRAIN, (unsigned long long)(product * ranks));
    else if (!micro || !accumulation)
        zr_text_add(&text, "\n  hint: set %s to a multiple", TRAIN);

    const struct zr_value_origin *origin = zr_report_origin_const(report, TRAIN);
    zr_report_add(report, ZR_REMARK_ERROR, origin->where, TRAIN, "%s", zr_text_c(&text));
    zr_text_fini(&text);
}

static void too_large(struct zr_config_report *report, const char *key)
{
    zr_report_add(report, ZR_REMARK_ERROR, zr_report_origin_const(report, key)->where, key,
                  "the batch that these keys give is above 4,294,967,295 sequences");
}

void zr_rules_batch(struct zr_config_report *report)
{
    struct zr_config *config = &report->settings.config;
    bool has_train = zr_report_given(report, TRAIN), has_micro = zr_report_given(report, MICRO);
    bool has_accumulation = zr_report_given(report, ACCUMULATION);
    uint64_t ranks = config->ranks, train = config->train_batch_size, micro = config->micro_batch_size;
    uint64_t accumulation = config->gradient_accumulation_steps;
    if (!has_train && !has_micro) {
        /* A key that stands there with a wrong value has its error already. */
        const struct zr_value_origin *a = zr_report_origin_const(report, TRAIN),
                                     *b = zr_report_origin_const(report, MICRO);
        bool wrong = ((a->where.line || a->where.from_set) && !a->automatic) ||
                     ((b->where.line || b->where.from_set) && !b->automatic);
        if (!wrong) no_corner(report, has_accumulation);
        return;
    }

    if (!has_train) {
        if (!has_accumulation)
            derive(report, ACCUMULATION, &config->gradient_accumulation_steps, accumulation = 1, "not given");
        uint64_t product = micro * accumulation;
        if (product > UINT32_MAX || product * ranks > UINT32_MAX)
            too_large(report, MICRO);
        else
            derive(report, TRAIN, &config->train_batch_size, product * ranks, "micro x accumulation x ranks");
        return;
    }
    if (has_micro && has_accumulation) {
        if (micro * accumulation > UINT32_MAX || train != micro * accumulation * ranks)
            refuse(report, (uint32_t)train, (uint32_t)micro, (uint32_t)accumulation);
        return;
    }
    uint64_t divisor = ranks * (has_micro ? micro : has_accumulation ? accumulation : 1);
    if (train % divisor) {
        refuse(report, (uint32_t)train, has_micro ? (uint32_t)micro : 0, has_accumulation ? (uint32_t)accumulation : 0);
        return;
    }
    if (has_micro) {
        derive(report, ACCUMULATION, &config->gradient_accumulation_steps, train / divisor, "train / (micro x ranks)");
        return;
    }
    derive(report, MICRO, &config->micro_batch_size, train / divisor, "train / (accumulation x ranks)");
    if (!has_accumulation) {
        derive(report, ACCUMULATION, &config->gradient_accumulation_steps, 1, "not given");
        config->micro_batch_auto = true;
    }
}
