/* test_nvme_queue.c: queues of transfers: order, timelines, many in flight, failure, both engines */
#include "nvme_help.h"

#include "engine/base/clock.h"
#include "engine/tier/nvme_store.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* -- allocations are counted ---------------------------------------------------------------------------------------- */

static _Atomic bool counting;
static _Atomic uint64_t allocations;

#if !SANITIZED
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
    if (counting) allocations++;
    return __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes)
{
    if (counting) allocations++;
    return __libc_calloc(count, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *at, size_t bytes)
{
    if (counting) allocations++;
    return __libc_realloc(at, bytes);
}
#endif

/* -- a store with both queues ---------------------------------------------------------------------------------------- */

static const enum zr_io_engine engines[] = { ZR_IO_AUTO, ZR_IO_THREADS }; /* AUTO is io_uring where it is allowed */

struct bench {
    struct zr_device *device;
    struct zr_nvme *nvme;
    struct zr_nvme_queue *queue[2];
    struct zr_timeline *timeline[2];
    char *buffers;
};

static void open_bench(struct bench *bench, struct zr_nvme_config *config, uint32_t entries)
{
    struct zr_error err = { 0 };
    bench->device = open_host_device();
    config->host_device = bench->device;
    bench->buffers = config->buffers;
    bench->nvme = open_store(config);
    for (int way = 0; way < 2; way++) {
        assert_int_equal(zr_timeline_make(&bench->timeline[way], &err), ZR_OK);
        assert_int_equal(zr_nvme_queue_open(bench->nvme, way ? ZR_NVME_WRITE : ZR_NVME_READ, way ? "write" : "read",
                                            entries, &bench->queue[way], &err),
                         ZR_OK);
    }
}

static void close_bench(struct bench *bench)
{
    for (int way = 0; way < 2; way++) {
        zr_nvme_queue_close(bench->queue[way]);
        zr_timeline_free(bench->timeline[way]);
    }
    zr_nvme_close(bench->nvme);
    zr_device_close(bench->device);
}

static void expect_no_failure(struct zr_device *device)
{
    struct zr_error err = { 0 };
    if (zr_device_failure(device, &err)) fail_msg("%s", err.text);
}

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* -- random programs against a model --------------------------------------------------------------------------------- */

enum { HOST_SLOTS = 6, SLOT_GRANULES = 40, SPACE_GRANULES = 300 };

struct past { /* what an earlier transfer touched */
    int way, slot;
    uint64_t first, count, value; /* value: of its queue's timeline when it is complete */
};

static bool clash(const struct past *a, const struct past *b)
{
    bool space = a->first < b->first + b->count && b->first < a->first + a->count;
    if (a->slot == b->slot && (a->way == ZR_NVME_READ || b->way == ZR_NVME_READ))
        return true; /* a read fills its slot */
    return space && (a->way == ZR_NVME_WRITE || b->way == ZR_NVME_WRITE);
}

/* Issues `op_count` random transfers with exactly the waits that they need, then compares disk and slots with a model on
 * which they ran one after the other. */
static void run_program(struct zr_nvme_config *config, uint32_t entries, unsigned op_count, uint64_t seed)
{
    const uint64_t slot_bytes = SLOT_GRANULES * 4096;
    char *slots = aligned_bytes(HOST_SLOTS * slot_bytes), *model_slots = malloc(HOST_SLOTS * slot_bytes);
    char *space = aligned_bytes(config->bytes), *model_space = malloc(config->bytes);
    struct past *past = calloc(op_count, sizeof *past);
    struct bench bench;
    struct zr_error err = { 0 };
    config->buffers = slots;
    config->buffer_bytes = HOST_SLOTS * slot_bytes;
    open_bench(&bench, config, entries);
    fill_pattern(space, config->bytes, seed);
    fill_pattern(slots, HOST_SLOTS * slot_bytes, seed + 1);
    memcpy(model_space, space, config->bytes);
    memcpy(model_slots, slots, HOST_SLOTS * slot_bytes);
    assert_int_equal(zr_nvme_write(bench.nvme, 0, space, config->bytes, &err), ZR_OK);

    uint64_t issued[2] = { 0, 0 };
    for (unsigned i = 0; i < op_count; i++) {
        struct past *op = &past[i];
        op->way = (int)(next_random(&seed) % 2);
        op->slot = (int)(next_random(&seed) % HOST_SLOTS);
        op->count = 1 + next_random(&seed) % SLOT_GRANULES;
        op->first = next_random(&seed) % (SPACE_GRANULES - op->count);
        op->value = ++issued[op->way];
        uint64_t need[2] = { 0, 0 };
        for (unsigned j = 0; j < i; j++)
            if (clash(op, &past[j]) && past[j].value > need[past[j].way]) need[past[j].way] = past[j].value;
        for (int way = 0; way < 2; way++)
            if (need[way]) zr_nvme_queue_wait(bench.queue[op->way], bench.timeline[way], need[way]);
        char *slot = slots + (uint64_t)op->slot * slot_bytes,
             *model_slot = model_slots + (uint64_t)op->slot * slot_bytes;
        zr_nvme_queue_put(bench.queue[op->way], op->first * 4096, slot, op->count * 4096, NULL);
        zr_nvme_queue_signal(bench.queue[op->way], bench.timeline[op->way], op->value);
        if (op->way == ZR_NVME_READ)
            memcpy(model_slot, model_space + op->first * 4096, op->count * 4096);
        else
            memcpy(model_space + op->first * 4096, model_slot, op->count * 4096);
    }
    for (int way = 0; way < 2; way++)
        assert_true(zr_timeline_wait_for(bench.timeline[way], issued[way], UINT64_C(60000000000)));
    expect_no_failure(bench.device);
    assert_memory_equal(slots, model_slots, HOST_SLOTS * slot_bytes);
    assert_int_equal(zr_nvme_read(bench.nvme, 0, space, config->bytes, &err), ZR_OK);
    assert_memory_equal(space, model_space, config->bytes);
    close_bench(&bench);
    free(slots);
    free(model_slots);
    free(space);
    free(model_space);
    free(past);
}

static void random_programs_agree_with_memory(void **state)
{
    (void)state;
    static const struct {
        uint32_t paths, depth, block_bytes, entries;
        uint64_t stripe_bytes;
        bool verify;
    } shapes[] = {
        { 1, 1, 4096, 2, 0, false },      { 1, 2, 16384, 64, 0, true },     { 1, 32, 8192, 512, 0, false },
        { 2, 4, 12288, 16, 8192, true },  { 3, 8, 4096, 128, 4096, false }, { 3, 32, 65536, 512, 20480, true },
        { 1, 16, 1 << 20, 32, 0, false },
    };
    for (size_t engine = 0; engine < ZR_COUNT(engines); engine++)
        for (size_t i = 0; i < ZR_COUNT(shapes); i++) {
            struct zr_nvme_config config = small_config(SPACE_GRANULES * 4096, shapes[i].paths, NULL);
            config.engine = engines[engine];
            config.depth = shapes[i].depth;
            config.block_bytes = shapes[i].block_bytes;
            config.stripe_bytes = shapes[i].stripe_bytes;
            config.verify = shapes[i].verify;
            run_program(&config, shapes[i].entries, SANITIZED ? 120 : 400, 1000 * engine + i);
        }
}

/* -- order ------------------------------------------------------------------------------------------------------------ */

static void a_transfer_waits_for_its_timeline(void **state)
{
    (void)state;
    for (size_t engine = 0; engine < ZR_COUNT(engines); engine++) {
        struct bench bench;
        struct zr_error err = { 0 };
        struct zr_nvme_config config = small_config(MIB, 1, NULL);
        config.engine = engines[engine];
        open_bench(&bench, &config, 16);
        struct zr_timeline *gate;
        assert_int_equal(zr_timeline_make(&gate, &err), ZR_OK);
        unsigned char *bytes = aligned_bytes(2 * 4096);
        zr_nvme_queue_put(bench.queue[0], 0, bytes, 4096, NULL); /* the one before the wait goes on */
        zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 1);
        zr_nvme_queue_wait(bench.queue[0], gate, 5);
        zr_nvme_queue_put(bench.queue[0], 4096, bytes + 4096, 4096, NULL);
        zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 2);
        zr_timeline_wait(bench.timeline[0], 1);
        assert_int_equal(bytes[0], 0);
        zr_timeline_signal(gate, 4);
        nap_ms(20);
        assert_int_equal(zr_timeline_value(bench.timeline[0]), 1);
        assert_int_equal(bytes[4096], 0xEE);
        zr_timeline_signal(gate, 5);
        zr_timeline_wait(bench.timeline[0], 2);
        assert_int_equal(bytes[4096], 0);
        zr_timeline_free(gate);
        free(bytes);
        close_bench(&bench);
    }
}

/* An engine that holds everything back until eight requests are in flight, then answers the last one first. */
static struct {
    struct zr_io_request requests[8];
    uint32_t count;
    int fd;
} holder;

static enum zr_code hold_open(struct zr_io *io, const struct zr_io_setup *setup, char *refusal, struct zr_error *err)
{
    (void)io, (void)refusal, (void)err;
    holder.count = 0;
    holder.fd = setup->fds[0];
    return ZR_OK;
}

static void hold_submit(struct zr_io *io, const struct zr_io_request *request)
{
    (void)io;
    holder.requests[holder.count++] = *request;
}

static void hold_flush(struct zr_io *io)
{
    (void)io;
}

static uint32_t hold_reap(struct zr_io *io, struct zr_io_done *done, uint32_t room, uint64_t timeout_ns)
{
    (void)io;
    if (holder.count < 8 || room < 8) {
        nanosleep(&(struct timespec){ .tv_nsec = (long)timeout_ns % 1000000 }, NULL);
        return 0;
    }
    for (uint32_t i = 0; i < 8; i++) {
        const struct zr_io_request *request = &holder.requests[7 - i];
        ssize_t result = pread(holder.fd, request->memory, request->bytes, (off_t)request->offset);
        done[i] = (struct zr_io_done){ .slot = request->slot, .result = (int32_t)result };
    }
    holder.count = 0;
    return 8;
}

static void hold_close(struct zr_io *io)
{
    (void)io;
}

static void a_signal_between_transfers_does_not_hold_the_second_back(void **state)
{
    (void)state;
    static const struct zr_io_backend holding = { .name = "holding",
                                                  .open = hold_open,
                                                  .submit = hold_submit,
                                                  .flush = hold_flush,
                                                  .reap = hold_reap,
                                                  .close = hold_close };
    struct zr_device *device = open_host_device();
    struct zr_nvme_config config = small_config(MIB, 1, device);
    config.depth = 8;
    struct zr_nvme *nvme = open_store(&config);
    struct zr_timeline *timeline;
    struct zr_nvme_queue *queue;
    struct zr_error err = { 0 };
    nvme->engine = &holding;
    assert_int_equal(zr_timeline_make(&timeline, &err), ZR_OK);
    assert_int_equal(zr_nvme_queue_open(nvme, ZR_NVME_READ, "read", 64, &queue, &err), ZR_OK);
    char *bytes = aligned_bytes(8 * 4096);
    for (unsigned turn = 0; turn < 3; turn++)
        for (unsigned i = 0; i < 8; i++) {
            zr_nvme_queue_put(queue, i * 4096, bytes + i * 4096, 4096, NULL);
            zr_nvme_queue_signal(queue, timeline, turn * 8 + i + 1);
        }
    assert_true(zr_timeline_wait_for(timeline, 24, UINT64_C(10000000000)));
    for (unsigned at = 0; at < 8 * 4096; at++)
        assert_int_equal(bytes[at], 0);
    zr_nvme_queue_close(queue);
    zr_nvme_close(nvme);
    zr_timeline_free(timeline);
    zr_device_close(device);
    free(bytes);
}

static void a_full_queue_blocks_the_caller_and_loses_nothing(void **state)
{
    (void)state;
    struct bench bench;
    struct zr_nvme_config config = small_config(4 * MIB, 1, NULL);
    config.block_bytes = 4096;
    open_bench(&bench, &config, 3);
    char *bytes = aligned_bytes(4 * MIB), *back = aligned_bytes(4 * MIB);
    fill_pattern(bytes, 4 * MIB, 3);
    for (unsigned i = 0; i < 1024; i++) {
        zr_nvme_queue_put(bench.queue[1], i * 4096, bytes + i * 4096, 4096, NULL);
        if (i % 5 == 0) zr_nvme_queue_signal(bench.queue[1], bench.timeline[1], i + 1);
    }
    zr_nvme_queue_signal(bench.queue[1], bench.timeline[1], 2000);
    zr_nvme_queue_wait(bench.queue[0], bench.timeline[1], 2000);
    zr_nvme_queue_put(bench.queue[0], 0, back, 4 * MIB, NULL);
    zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 1);
    zr_timeline_wait(bench.timeline[0], 1);
    assert_memory_equal(bytes, back, 4 * MIB);
    free(bytes);
    free(back);
    close_bench(&bench);
}

static void closing_a_queue_waits_for_what_was_put(void **state)
{
    (void)state;
    struct bench bench;
    struct zr_error err = { 0 };
    struct zr_nvme_config config = small_config(8 * MIB, 2, NULL);
    open_bench(&bench, &config, 64);
    char *bytes = aligned_bytes(8 * MIB), *back = aligned_bytes(8 * MIB);
    fill_pattern(bytes, 8 * MIB, 4);
    zr_nvme_queue_put(bench.queue[1], 0, bytes, 8 * MIB, NULL);
    zr_nvme_queue_close(bench.queue[1]);
    bench.queue[1] = NULL;
    assert_int_equal(zr_nvme_read(bench.nvme, 0, back, 8 * MIB, &err), ZR_OK);
    assert_memory_equal(bytes, back, 8 * MIB);
    free(bytes);
    free(back);
    close_bench(&bench);
}

static void an_idle_queue_takes_no_processor_time(void **state)
{
    (void)state;
    struct bench bench;
    struct zr_nvme_config config = small_config(MIB, 1, NULL);
    open_bench(&bench, &config, 8);
    nap_ms(5);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nap_ms(200);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    long used_us = (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    assert_true(used_us < (SANITIZED ? 100000 : 20000));
    close_bench(&bench);
}

/* -- failure ---------------------------------------------------------------------------------------------------------- */

static void after_a_failure_nothing_moves_but_signals_fire(void **state)
{
    (void)state;
    struct bench bench;
    struct zr_error err = { 0 };
    struct zr_nvme_config config = small_config(MIB, 1, NULL);
    open_bench(&bench, &config, 16);
    char *bytes = aligned_bytes(MIB);
    zr_fail(&err, ZR_EIO, "something else broke");
    zr_device_fail(bench.device, ZR_EIO, &err);
    zr_nvme_queue_put(bench.queue[0], 0, bytes, MIB, NULL);
    zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 1);
    zr_timeline_wait(bench.timeline[0], 1);
    assert_int_equal((unsigned char)bytes[0], 0xEE);
    zr_device_clear_failure(bench.device);
    zr_nvme_queue_put(bench.queue[0], 0, bytes, MIB, NULL);
    zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 2);
    zr_timeline_wait(bench.timeline[0], 2);
    assert_int_equal(bytes[0], 0);
    expect_no_failure(bench.device);
    free(bytes);
    close_bench(&bench);
}

/* A file that ends too early is a disk that reads nothing. */
static void a_read_that_ends_early_fails_the_device(void **state)
{
    (void)state;
    for (size_t engine = 0; engine < ZR_COUNT(engines); engine++) {
        struct bench bench;
        struct zr_error err = { 0 };
        struct zr_nvme_config config = small_config(4 * MIB, 1, NULL);
        config.engine = engines[engine];
        open_bench(&bench, &config, 16);
        char *bytes = aligned_bytes(4 * MIB);
        assert_int_equal(ftruncate(bench.nvme->files[0].fd, MIB + 4096 + 2048), 0);
        zr_nvme_queue_put(bench.queue[0], 0, bytes, 4 * MIB, NULL);
        zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 1);
        zr_timeline_wait(bench.timeline[0], 1);
        assert_int_equal(zr_device_failure(bench.device, &err), ZR_EIO);
        assert_non_null(strstr(err.text, "the rest does not come"));
        assert_non_null(strstr(err.text, test_paths[0]));
        assert_int_equal(zr_nvme_read(bench.nvme, MIB, bytes, MIB, &err), ZR_EIO);
        assert_int_equal(zr_nvme_read(bench.nvme, 0, bytes, MIB, &err), ZR_OK);
        free(bytes);
        close_bench(&bench);
    }
}

static void a_damaged_block_fails_the_device(void **state)
{
    (void)state;
    for (size_t engine = 0; engine < ZR_COUNT(engines); engine++) {
        struct bench bench;
        struct zr_error err = { 0 };
        struct zr_nvme_config config = small_config(2 * MIB, 1, NULL);
        config.engine = engines[engine];
        config.verify = true;
        open_bench(&bench, &config, 16);
        char *bytes = aligned_bytes(2 * MIB);
        zr_nvme_queue_put(bench.queue[1], 0, bytes, 2 * MIB, NULL);
        zr_nvme_queue_signal(bench.queue[1], bench.timeline[1], 1);
        zr_nvme_queue_wait(bench.queue[0], bench.timeline[1], 1);
        zr_nvme_queue_put(bench.queue[0], 0, bytes, 2 * MIB, NULL);
        zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 1);
        zr_timeline_wait(bench.timeline[0], 1);
        expect_no_failure(bench.device);

        bytes[3] ^= 1;
        assert_int_equal(pwrite(bench.nvme->files[0].fd, bytes, 4096, MIB), 4096);
        zr_nvme_queue_put(bench.queue[0], 0, bytes, 2 * MIB, NULL);
        zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 2);
        zr_timeline_wait(bench.timeline[0], 2);
        assert_int_equal(zr_device_failure(bench.device, &err), ZR_EIO);
        assert_non_null(strstr(err.text, "block at 1048576 of"));
        free(bytes);
        close_bench(&bench);
    }
}

/* -- cost ------------------------------------------------------------------------------------------------------------- */

static void transfers_allocate_nothing(void **state)
{
    (void)state;
    if (SANITIZED) skip(); /* their malloc is not ours to count */
    for (size_t engine = 0; engine < ZR_COUNT(engines); engine++) {
        struct bench bench;
        struct zr_error err = { 0 };
        char *bytes = aligned_bytes(8 * MIB);
        struct zr_nvme_config config = small_config(8 * MIB, 2, NULL);
        config.engine = engines[engine];
        config.verify = true;
        config.block_bytes = 64 * KIB;
        config.buffers = bytes;
        config.buffer_bytes = 8 * MIB;
        open_bench(&bench, &config, 16);
        unsigned descriptors = open_descriptors();
        for (unsigned turn = 1; turn <= 4; turn++) {
            counting = true;
            for (unsigned i = 0; i < 8; i++) {
                zr_nvme_queue_put(bench.queue[1], i * MIB, bytes + i * MIB, MIB, NULL);
                zr_nvme_queue_signal(bench.queue[1], bench.timeline[1], turn * 10 + i);
                zr_nvme_queue_wait(bench.queue[0], bench.timeline[1], turn * 10 + i);
                zr_nvme_queue_put(bench.queue[0], i * MIB, bytes + i * MIB, MIB, NULL);
            }
            zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], turn);
            zr_timeline_wait(bench.timeline[0], turn);
            assert_int_equal(zr_nvme_write(bench.nvme, 0, bytes, 8 * MIB, &err), ZR_OK);
            counting = false;
        }
        assert_int_equal(allocations, 0);
        assert_int_equal(open_descriptors(), descriptors);
        expect_no_failure(bench.device);
        counting = true; /* the counter counts */
        void *volatile counted = malloc(2);
        counting = false;
        free(counted);
        assert_int_equal(allocations, 1);
        allocations = 0;
        close_bench(&bench);
        free(bytes);
    }
}

static void the_trace_has_one_event_for_each_labelled_transfer(void **state)
{
    (void)state;
    struct zr_trace *trace;
    struct zr_error err = { 0 };
    struct zr_event_record records[64];
    assert_int_equal(zr_trace_make(64, &trace, &err), ZR_OK);
    struct bench bench;
    struct zr_nvme_config config = small_config(8 * MIB, 1, NULL);
    config.trace = trace;
    open_bench(&bench, &config, 64);
    char *bytes = aligned_bytes(8 * MIB);
    uint32_t name = zr_trace_name(trace, "read weights");
    for (unsigned i = 0; i < 8; i++) {
        struct zr_event_record label = { .name = name, .unit = i, .step = 12, .micro = UINT32_MAX };
        zr_nvme_queue_put(bench.queue[0], i * MIB, bytes + i * MIB, MIB, i == 5 ? NULL : &label);
    }
    zr_nvme_queue_signal(bench.queue[0], bench.timeline[0], 1);
    zr_timeline_wait(bench.timeline[0], 1);
    uint32_t count = zr_trace_read(trace, records, 64);
    assert_int_equal(count, 7);
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(zr_trace_track_text(trace, records[i].track), "read");
        assert_int_equal(records[i].name, name);
        assert_int_equal(records[i].unit, i < 5 ? i : i + 1);
        assert_int_equal(records[i].bytes, MIB);
        assert_true(records[i].begin_ns <= records[i].end_ns);
        if (i > 0) assert_true(records[i].begin_ns >= records[i - 1].end_ns); /* a track has no overlaps */
    }
    free(bytes);
    close_bench(&bench);
    zr_trace_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_agree_with_memory),
        cmocka_unit_test(a_transfer_waits_for_its_timeline),
        cmocka_unit_test(a_signal_between_transfers_does_not_hold_the_second_back),
        cmocka_unit_test(a_full_queue_blocks_the_caller_and_loses_nothing),
        cmocka_unit_test(closing_a_queue_waits_for_what_was_put),
        cmocka_unit_test(an_idle_queue_takes_no_processor_time),
        cmocka_unit_test(after_a_failure_nothing_moves_but_signals_fire),
        cmocka_unit_test(a_read_that_ends_early_fails_the_device),
        cmocka_unit_test(a_damaged_block_fails_the_device),
        cmocka_unit_test(transfers_allocate_nothing),
        cmocka_unit_test(the_trace_has_one_event_for_each_labelled_transfer),
    };
    return cmocka_run_group_tests(tests, make_places, remove_places);
}
