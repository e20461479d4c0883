/* bench_adam.c: the optimizer step on the CPU beside this machine's copy bandwidth, in the same run
 *
 *     bench_adam [--json] [--rounds N] [--parameters N] [--threads N]
 *
 * An update reads and writes every byte of its states once and computes little, so memory is its ceiling, and the ceiling
 * is measured: a copy of arrays far beyond the caches, cut into one piece a thread, by memcpy or by streaming stores,
 * whichever is faster (memcpy streams on its own only above a size that many threads' pieces miss). Bytes are those that
 * the operation has to move (no allocation of lines for writing: an update has read what it writes):
 *
 *     fp32, gradient fp32       reads w m v g  16    writes w m v         12    28 bytes a parameter
 *     split, gradient bf16      reads w l m v g 14   writes w l m v       12    26 bytes a parameter
 *     copy                      reads and writes each byte once
 *
 * Other work on the machine disturbs for seconds at a time, so every round runs all cases one after another, the ratio is
 * taken within a round, and medians over the rounds are printed. Planes begin at different offsets modulo 4 KiB, since
 * stores that share the low 12 bits of their address with later loads hold those up. */
#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/base/text.h"
#include "kernels/cpu/lane.h"
#include "kernels/split.h"
#include <emmintrin.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS_MAX = 101, THREADS_ROWS = 12, CASES_MAX = 2 * ZR_LEVEL_COUNT * THREADS_ROWS };

#define HUGE_BYTES (2u << 20)
#define STAGGER_BYTES 832u /* about 4096 / 5: five planes, spread over a page, on whole lines */
#define SCALAR_SHARE 8u    /* without fma instructions an update takes ten times as long: measure a part */

static const char *const level_names[ZR_LEVEL_COUNT] = { "scalar", "AVX2", "AVX-512" };

struct settings {
    bool json;
    uint32_t rounds, threads;
    uint64_t parameters;
};

struct area {
    char *at;
    uint64_t bytes, used;
    uint32_t planes;
};

struct copy_case {
    uint32_t threads;
    struct zr_pool *pool;
    double gb_s[ROUNDS_MAX * CASES_MAX];
    uint32_t samples;
};

struct adam_case {
    const char *layout, *grad;
    struct zr_op_adamw op;
    uint32_t bytes_per_parameter;
    enum zr_simd_level level;
    struct copy_case *copy; /* of as many threads */
    double ns[ROUNDS_MAX], ratio[ROUNDS_MAX];
};

static struct copy_case copies[THREADS_ROWS];
static struct adam_case cases[CASES_MAX];
static uint32_t copy_count, case_count;
static char *copy_from, *copy_to;
static uint64_t copy_bytes;

static void die(const char *what)
{
    fprintf(stderr, "bench_adam: %s\n", what);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, uint32_t count)
{
    static double sorted[ROUNDS_MAX * CASES_MAX];
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, by_size);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* -- memory --------------------------------------------------------------------------------------------------------- */

static struct area area_make(uint64_t bytes)
{
    struct area area = { .bytes = zr_round_up(bytes, HUGE_BYTES) + HUGE_BYTES };
    char *at = mmap(NULL, area.bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("not enough memory: give fewer --parameters");
    area.at = (char *)zr_round_up((uintptr_t)at, HUGE_BYTES);
    madvise(area.at, area.bytes, MADV_HUGEPAGE); /* where it is refused, small pages do */
    return area;
}

static void *plane(struct area *area, uint64_t bytes)
{
    uint64_t at = zr_round_up(area->used, 4096) + area->planes++ * STAGGER_BYTES;
    area->used = at + bytes;
    if (area->used > area->bytes) die("planes were counted wrong");
    return area->at + at;
}

static uint64_t huge_page_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    uint64_t kib = 0;
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "AnonHugePages: %" SCNu64, &kib);
    if (file) fclose(file);
    return kib;
}

#define FILL_ITEM (1u << 20)

/* Plausible states, far from denormals; touched first by the threads that will work on them, where that matters. */
static void fill_item(void *context, uint32_t item, uint32_t worker)
{
    const struct zr_op_adamw *op = context;
    uint64_t first = (uint64_t)item * FILL_ITEM, end = zr_min_u64(first + FILL_ITEM, op->count);
    (void)worker;
    for (uint64_t i = first; i < end; i++) {
        float x = (float)(int32_t)((uint32_t)i * 2654435761u) * 0x1p-31f; /* in [-1, 1) */
        if (op->layout == ZR_LAYOUT_SPLIT)
            zr_split_encode(x, &((uint16_t *)op->weight)[i], &op->low[i]);
        else
            ((float *)op->weight)[i] = x;
        op->m[i] = 1e-3f * x;
        op->v[i] = 1e-5f;
        if (op->grad_dtype == ZR_BF16)
            ((uint16_t *)op->grad)[i] = zr_f32_to_bf16(0.01f + 0.1f * x);
        else
            ((float *)op->grad)[i] = 0.01f + 0.1f * x;
    }
}

static struct zr_op_adamw states_make(enum zr_state_layout layout, enum zr_dtype grad_dtype, uint64_t count,
                                      struct zr_pool *pool)
{
    uint64_t weight_bytes = layout == ZR_LAYOUT_SPLIT ? 2 : 4, low_bytes = layout == ZR_LAYOUT_SPLIT ? 2 : 0;
    struct area area = area_make(count * (weight_bytes + low_bytes + 8 + zr_dtype_bytes(grad_dtype)));
    struct zr_op_adamw op = {
        .layout = layout,
        .grad_dtype = grad_dtype,
        .count = count,
        .grad_scale = 0.5f,
        .weight = plane(&area, count * weight_bytes),
        .low = low_bytes ? plane(&area, count * low_bytes) : NULL,
        .m = plane(&area, count * 4),
        .v = plane(&area, count * 4),
        .grad = plane(&area, count * zr_dtype_bytes(grad_dtype)),
    };
    zr_adamw_scalars(&op, 1e-5, 0.9, 0.999, 1e-8, 0.1, 10, true);
    zr_pool_run(pool, (uint32_t)zr_divide_up(count, FILL_ITEM), fill_item, &op);
    return op;
}

/* -- what is measured ----------------------------------------------------------------------------------------------- */

struct copy_work {
    uint64_t step, bytes;
    bool streaming;
};

static void stream_copy(char *to, const char *from, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 64)
        for (uint64_t j = i; j < i + 64; j += 16)
            _mm_stream_si128((__m128i *)(to + j), _mm_load_si128((const __m128i *)(from + j)));
    _mm_sfence();
}

static void copy_item(void *context, uint32_t item, uint32_t worker)
{
    const struct copy_work *work = context;
    uint64_t first = item * work->step;
    (void)worker;
    if (first >= work->bytes) return;
    uint64_t bytes = zr_min_u64(work->step, work->bytes - first);
    if (work->streaming)
        stream_copy(copy_to + first, copy_from + first, bytes);
    else
        memcpy(copy_to + first, copy_from + first, bytes);
}

/* Enough repetitions that a small count is timed as long as a large one. */
static uint32_t repetitions(uint64_t count)
{
    return (uint32_t)zr_max_u64(1, (16u << 20) / count);
}

static double copy_gb_s(const struct copy_case *copy, uint64_t parameters)
{
    uint32_t times = repetitions(parameters);
    double best = 0;
    for (int streaming = 0; streaming < 2; streaming++) {
        struct copy_work work = { zr_round_up(zr_divide_up(copy_bytes, copy->threads), 4096), copy_bytes, streaming };
        uint64_t begin = zr_now_ns();
        for (uint32_t i = 0; i < times; i++)
            zr_pool_run(copy->pool, copy->threads, copy_item, &work);
        double gb_s = 2.0 * (double)copy_bytes * times / (double)(zr_now_ns() - begin);
        if (gb_s > best) best = gb_s;
    }
    return best;
}

static double adam_ns(const struct adam_case *test)
{
    struct zr_cpu_lane lane = { .pool = test->copy->pool, .table = zr_cpu_table(test->level) };
    uint32_t times = repetitions(test->op.count);
    uint64_t begin = zr_now_ns();
    for (uint32_t i = 0; i < times; i++)
        lane.table[ZR_OP_adamw](&lane, &test->op);
    return (double)(zr_now_ns() - begin) / ((double)test->op.count * times);
}

static void prepare(const struct settings *settings)
{
    struct zr_error err = { 0 };
    for (uint32_t threads = 1; copy_count < THREADS_ROWS; threads *= 2) {
        struct copy_case *copy = &copies[copy_count++];
        copy->threads = threads < settings->threads ? threads : settings->threads;
        if (zr_pool_make(copy->threads, &copy->pool, &err)) die(err.text);
        if (threads >= settings->threads) break;
    }
    struct zr_pool *widest = copies[copy_count - 1].pool;
    const struct zr_op_adamw states[2] = { states_make(ZR_LAYOUT_FP32, ZR_F32, settings->parameters, widest),
                                           states_make(ZR_LAYOUT_SPLIT, ZR_BF16, settings->parameters, widest) };
    copy_bytes = zr_round_up(settings->parameters * 7, 64);
    struct area area = area_make(2 * copy_bytes);
    copy_from = plane(&area, copy_bytes);
    copy_to = plane(&area, copy_bytes);
    memset(copy_from, 1, copy_bytes);
    memset(copy_to, 1, copy_bytes); /* its pages are there before the first copy is timed */

    for (uint32_t layout = 0; layout < 2; layout++)
        for (enum zr_simd_level level = 0; level <= zr_cpu_simd(ZR_LEVEL_AVX512); level++)
            for (uint32_t i = 0; i < copy_count; i++) {
                struct adam_case *test = &cases[case_count++];
                *test = (struct adam_case){ .layout = layout ? "split" : "fp32",
                                            .grad = layout ? "bf16" : "fp32",
                                            .op = states[layout],
                                            .bytes_per_parameter = layout ? 26 : 28,
                                            .level = level,
                                            .copy = &copies[i] };
                if (level == ZR_LEVEL_SCALAR) test->op.count = zr_divide_up(test->op.count, SCALAR_SHARE);
            }
}

static double gb_s(const struct adam_case *test, double ns)
{
    return test->bytes_per_parameter / ns;
}

/* Each update has a copy right before it: on a busy machine the ratio of neighbours says most. */
static void run_round(const struct settings *settings, uint32_t round)
{
    for (uint32_t i = 0; i < case_count; i++) {
        struct adam_case *test = &cases[i];
        double copy = copy_gb_s(test->copy, settings->parameters);
        test->copy->gb_s[test->copy->samples++] = copy;
        test->ns[round] = adam_ns(test);
        test->ratio[round] = gb_s(test, test->ns[round]) / copy;
    }
}

/* -- words ---------------------------------------------------------------------------------------------------------- */

static double worst_ratio(const struct settings *settings)
{
    double worst = 1e9;
    for (uint32_t i = 0; i < case_count; i++) {
        double ratio = median(cases[i].ratio, settings->rounds);
        if (cases[i].level == zr_cpu_simd(ZR_LEVEL_AVX512) && cases[i].copy->threads == settings->threads &&
            ratio < worst)
            worst = ratio;
    }
    return worst;
}

static void print_table(const struct settings *settings)
{
    char count[32], bytes[24];
    printf("%s parameters, %u rounds, %s in huge pages\n\n", zr_text_count(count, settings->parameters),
           settings->rounds, zr_text_bytes(bytes, huge_page_kib() << 10));
    printf("%-6s %-8s %-8s %7s %13s %8s %8s\n", "what", "gradient", "level", "threads", "ns/parameter", "GB/s",
           "of copy");
    for (uint32_t i = 0; i < copy_count; i++)
        printf("%-6s %-8s %-8s %7u %13s %8.1f %8s\n", "copy", "", "", copies[i].threads, "",
               median(copies[i].gb_s, copies[i].samples), "");
    for (uint32_t i = 0; i < case_count; i++) {
        const struct adam_case *test = &cases[i];
        double ns = median(test->ns, settings->rounds);
        printf("%-6s %-8s %-8s %7u %13.3f %8.1f %8.2f\n", test->layout, test->grad, level_names[test->level],
               test->copy->threads, ns, gb_s(test, ns), median(test->ratio, settings->rounds));
    }
    printf("\nall threads, best level: at least %.2f of copy\n", worst_ratio(settings));
}

static void print_json(const struct settings *settings)
{
    printf("{\"bench\":\"adam\",\"parameters\":%" PRIu64 ",\"rounds\":%u,\"huge_page_bytes\":%" PRIu64 ",\"copy\":[",
           settings->parameters, settings->rounds, huge_page_kib() << 10);
    for (uint32_t i = 0; i < copy_count; i++)
        printf("%s{\"threads\":%u,\"gb_per_s\":%.2f}", i ? "," : "", copies[i].threads,
               median(copies[i].gb_s, copies[i].samples));
    printf("],\"update\":[");
    for (uint32_t i = 0; i < case_count; i++) {
        const struct adam_case *test = &cases[i];
        double ns = median(test->ns, settings->rounds);
        printf("%s{\"layout\":\"%s\",\"gradient\":\"%s\",\"level\":\"%s\",\"threads\":%u,\"ns_per_parameter\":%.4f,"
               "\"gb_per_s\":%.2f,\"ratio_to_copy\":%.3f}",
               i ? "," : "", test->layout, test->grad, level_names[test->level], test->copy->threads, ns,
               gb_s(test, ns), median(test->ratio, settings->rounds));
    }
    printf("],\"ratio_to_copy\":%.3f}\n", worst_ratio(settings));
}

static struct settings parse(int argc, char **argv)
{
    struct settings settings = { .rounds = 7, .threads = zr_pool_default_threads(), .parameters = 64u << 20 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            settings.json = true;
            continue;
        }
        char *end = NULL;
        uint64_t value = i + 1 < argc ? strtoull(argv[i + 1], &end, 10) : 0;
        if (!end || *end != '\0' || value == 0)
            die("usage: bench_adam [--json] [--rounds N] [--parameters N] [--threads N]");
        if (strcmp(argv[i], "--rounds") == 0 && value <= ROUNDS_MAX)
            settings.rounds = (uint32_t)value;
        else if (strcmp(argv[i], "--threads") == 0 && value <= 1024)
            settings.threads = (uint32_t)value;
        else if (strcmp(argv[i], "--parameters") == 0 && value <= UINT64_C(1) << 36)
            settings.parameters = value;
        else
            die("an option is unknown or its value too large");
        i++;
    }
    return settings;
}

int main(int argc, char **argv)
{
    struct settings settings = parse(argc, argv);
    prepare(&settings);
    for (uint32_t i = 0; i < case_count; i++)
        adam_ns(&cases[i]);
    for (uint32_t round = 0; round < settings.rounds; round++)
        run_round(&settings, round);
    if (settings.json)
        print_json(&settings);
    else
        print_table(&settings);
    return 0;
}
