/* bench_nvme.c: the NVMe tier's queues against plain threads with pread and pwrite on the same file system
 *
 * Both move the same bytes between the same huge-page buffers and files that were written once, in turns, so that a disk
 * that changes its mind changes it for both. The peer is the best of several thread counts, found in the same run. The rate
 * of a round is bytes over time from the first put to the last signal; medians are compared.
 *
 *     bench_nvme [directory [rounds [minimal ratio [auto|io_uring|threads]]]]
 *
 * Writes at most 2 GiB (five rounds) and leaves nothing behind. Exit code 1: a ratio of medians is below the minimum. */
#include "engine/base/clock.h"
#include "engine/tier/nvme.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define SPACE (96 * MIB)
#define BLOCK MIB
#define CHUNK (8 * MIB) /* one transfer of the store: a plane of a chunk of states */

enum { ROUNDS_MAX = 31, THREADS_MAX = 16 };
enum work { READ, WRITE, MIXED, WORK_COUNT };
static const char *const work_names[WORK_COUNT] = { "read", "write", "mixed" };
enum { READ_PASSES = 4 }; /* reading wears nothing: longer rounds, calmer numbers */

static void die(const char *what, const struct zr_error *err)
{
    fprintf(stderr, "bench_nvme: %s%s%s\n", what, err ? ": " : "", err ? err->text : "");
    exit(2);
}

/* Bytes that a round moves. Mixed reads the first half while it writes the second. */
static uint64_t round_bytes(enum work work)
{
    return work == READ ? READ_PASSES * SPACE : SPACE;
}

/* -- the peer -------------------------------------------------------------------------------------------------------- */

struct share { /* one direction of a round, taken block by block */
    int fd;
    bool write;
    char *memory;
    uint64_t offset, bytes, passes;
    _Atomic uint64_t next;
};

struct raw {
    struct share shares[2];
    uint32_t share_count, threads; /* threads for each share */
    pthread_barrier_t start;
};

struct raw_thread {
    struct raw *raw;
    struct share *share;
};

static void *raw_work(void *argument)
{
    struct raw_thread *self = argument;
    struct share *share = self->share;
    pthread_barrier_wait(&self->raw->start);
    for (;;) {
        uint64_t at = atomic_fetch_add(&share->next, BLOCK);
        if (at >= share->bytes * share->passes) return NULL;
        at = share->offset + at % share->bytes;
        ssize_t moved = share->write ? pwrite(share->fd, share->memory + at, BLOCK, (off_t)at)
                                     : pread(share->fd, share->memory + at, BLOCK, (off_t)at);
        if (moved != (ssize_t)BLOCK) die("the plain file failed", NULL);
    }
}

/* GB/s */
static double raw_round(int fd, char *memory, enum work work, uint32_t threads)
{
    struct raw raw = { .threads = threads, .share_count = work == MIXED ? 2 : 1 };
    struct raw_thread arguments[2 * THREADS_MAX];
    pthread_t ids[2 * THREADS_MAX];
    for (uint32_t i = 0; i < raw.share_count; i++) {
        struct share *share = &raw.shares[i];
        share->fd = fd;
        share->memory = memory;
        share->write = work == WRITE || i == 1;
        share->bytes = work == MIXED ? SPACE / 2 : SPACE;
        share->offset = i * (SPACE / 2);
        share->passes = work == READ ? READ_PASSES : 1;
    }
    const uint32_t count = threads * raw.share_count;
    pthread_barrier_init(&raw.start, NULL, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        arguments[i] = (struct raw_thread){ .raw = &raw, .share = &raw.shares[i % raw.share_count] };
        if (pthread_create(&ids[i], NULL, raw_work, &arguments[i])) die("cannot start a thread", NULL);
    }
    const uint64_t begin_ns =
        zr_now_ns(); /* before the start, so never in the peer's disfavour by more than a wake-up */
    pthread_barrier_wait(&raw.start);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(ids[i], NULL);
    const uint64_t took_ns = zr_now_ns() - begin_ns;
    pthread_barrier_destroy(&raw.start);
    return (double)round_bytes(work) / (double)took_ns;
}

/* -- the store ------------------------------------------------------------------------------------------------------- */

struct store {
    struct zr_device *device;
    struct zr_nvme *nvme;
    struct zr_nvme_queue *queue[2];
    struct zr_timeline *timeline[2];
    uint64_t value[2];
};

static void store_open(struct store *store, const char *directory, char *memory, enum zr_io_engine engine)
{
    struct zr_error err = { 0 };
    struct zr_device_config host = { .kind = ZR_DEVICE_CPU, .threads = 1 };
    if (zr_device_open(&host, &store->device, &err)) die("device", &err);
    struct zr_nvme_config config = { .paths = { directory },
                                     .path_count = 1,
                                     .bytes = SPACE,
                                     .engine = engine,
                                     .buffers = memory,
                                     .buffer_bytes = SPACE,
                                     .host_device = store->device };
    if (zr_nvme_open(&config, &store->nvme, &err)) die("store", &err);
    for (int way = 0; way < 2; way++)
        if (zr_timeline_make(&store->timeline[way], &err) ||
            zr_nvme_queue_open(store->nvme, way ? ZR_NVME_WRITE : ZR_NVME_READ, way ? "write" : "read", 1024,
                               &store->queue[way], &err))
            die("queue", &err);
}

static void store_close(struct store *store)
{
    for (int way = 0; way < 2; way++) {
        zr_nvme_queue_close(store->queue[way]);
        zr_timeline_free(store->timeline[way]);
    }
    zr_nvme_close(store->nvme);
    zr_device_close(store->device);
}

static void store_put(struct store *store, int way, char *memory, uint64_t offset, uint64_t bytes)
{
    for (uint64_t at = offset; at < offset + bytes; at += CHUNK) {
        zr_nvme_queue_put(store->queue[way], at, memory + at, CHUNK, NULL);
        zr_nvme_queue_signal(store->queue[way], store->timeline[way], ++store->value[way]);
    }
}

static double store_round(struct store *store, char *memory, enum work work)
{
    struct zr_error err = { 0 };
    const uint64_t begin_ns = zr_now_ns();
    if (work == READ)
        for (int pass = 0; pass < READ_PASSES; pass++)
            store_put(store, ZR_NVME_READ, memory, 0, SPACE);
    if (work == WRITE) store_put(store, ZR_NVME_WRITE, memory, 0, SPACE);
    if (work == MIXED) {
        store_put(store, ZR_NVME_READ, memory, 0, SPACE / 2);
        store_put(store, ZR_NVME_WRITE, memory, SPACE / 2, SPACE / 2);
    }
    for (int way = 0; way < 2; way++)
        zr_timeline_wait(store->timeline[way], store->value[way]);
    const uint64_t took_ns = zr_now_ns() - begin_ns;
    if (zr_device_failure(store->device, &err)) die("transfer", &err);
    return (double)round_bytes(work) / (double)took_ns;
}

/* ------------------------------------------------------------------------------------------------------------------- */

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts; the median. */
static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static char *huge_memory(void)
{
    char *at = mmap(NULL, SPACE + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("no memory", NULL);
    at += (2 * MIB - (uintptr_t)at % (2 * MIB)) % (2 * MIB);
    madvise(at, SPACE, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < SPACE; i++)
        at[i] = (char)(i * 31 + i / 4096);
    return at;
}

static void verify(struct store *store, const char *memory)
{
    struct zr_error err = { 0 };
    char *back = aligned_alloc(4096, SPACE);
    if (!back) die("no memory", NULL);
    if (zr_nvme_read(store->nvme, 0, back, SPACE, &err)) die("verification", &err);
    if (memcmp(back, memory, SPACE) != 0) die("the store holds other bytes than were written", NULL);
    free(back);
}

int main(int count, char **arguments)
{
    static const uint32_t thread_counts[] = { 2, 4, 8 };
    const char *directory = count > 1 ? arguments[1] : ".";
    const uint32_t rounds = count > 2 ? (uint32_t)atoi(arguments[2]) : 5;
    const double minimum = count > 3 ? atof(arguments[3]) : 0;
    const char *wish = count > 4 ? arguments[4] : "auto";
    if (rounds < 1 || rounds > ROUNDS_MAX) die("1 to 31 rounds", NULL);
    enum zr_io_engine engine = strcmp(wish, "threads") == 0    ? ZR_IO_THREADS
                               : strcmp(wish, "io_uring") == 0 ? ZR_IO_URING
                                                               : ZR_IO_AUTO;
    char *memory = huge_memory();
    struct store store = { 0 };
    store_open(&store, directory, memory, engine);
    int fd = open(directory, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0 || fallocate(fd, 0, 0, (off_t)SPACE)) die("cannot make the plain file", NULL);
    raw_round(fd, memory, WRITE, 1); /* written once, like the store */

    uint32_t best[WORK_COUNT] = { 4, 4, 4 };
    for (int work = READ; work <= WRITE; work++) {
        double rate = 0;
        for (size_t i = 0; i < ZR_COUNT(thread_counts); i++) {
            double now = raw_round(fd, memory, (enum work)work, thread_counts[i]);
            if (now > rate) best[work] = thread_counts[i];
            if (now > rate) rate = now;
        }
    }
    best[MIXED] = best[READ];
    struct zr_nvme_facts facts;
    zr_nvme_facts(store.nvme, &facts);
    printf("engine %s, %s, buffers %s%s%s\n", facts.engine, facts.direct ? "direct" : "buffered",
           facts.registered ? "registered" : "not registered", facts.warning[0] ? ": " : "", facts.warning);
    printf("%-6s %28s %28s  %s\n", "", "store GB/s (min..max)", "threads GB/s (min..max)", "ratio");

    int result = 0;
    store_round(&store, memory, WRITE); /* from here on both hold the same bytes, and reading brings them back */
    for (int work = 0; work < WORK_COUNT; work++) {
        double own[ROUNDS_MAX], raw[ROUNDS_MAX];
        for (uint32_t i = 0; i < rounds; i++) {
            own[i] = store_round(&store, memory, (enum work)work);
            raw[i] = raw_round(fd, memory, (enum work)work, best[work]);
        }
        double own_median = median(own, rounds), raw_median = median(raw, rounds);
        printf("%-6s %8.2f (%6.2f..%6.2f)     %8.2f (%6.2f..%6.2f) x%u  %.3f\n", work_names[work], own_median, own[0],
               own[rounds - 1], raw_median, raw[0], raw[rounds - 1], best[work], own_median / raw_median);
        if (own_median < minimum * raw_median) result = 1;
    }
    verify(&store, memory);
    store_close(&store);
    close(fd);
    return result;
}
