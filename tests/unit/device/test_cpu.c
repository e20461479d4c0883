/* test_cpu.c: streams that are threads: order, waits, full rings */
#include "engine/base/clock.h"
#include "engine/base/random.h"
#include "engine/device/launch.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MS 1000000u

static struct zr_device *open_device(uint64_t memory_bytes)
{
    struct zr_device_config config = { .kind = ZR_DEVICE_CPU, .memory_bytes = memory_bytes, .threads = 2 };
    struct zr_device *device = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_device_open(&config, &device, &err), ZR_OK);
    return device;
}

static struct zr_stream *open_stream(struct zr_device *device, uint32_t entries, bool compute)
{
    struct zr_stream *stream = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_stream_open(device, "stream", entries, compute, &stream, &err), ZR_OK);
    return stream;
}

static struct zr_timeline *make_timeline(void)
{
    struct zr_timeline *timeline = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_timeline_make(&timeline, &err), ZR_OK);
    return timeline;
}

static void sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) }, NULL);
}

/* -- one stream --------------------------------------------------------------------------------------------------- */

struct tick {
    uint32_t *next, number;
    bool *in_order;
};

static void tick(void *context)
{
    struct tick *self = context;
    if (*self->next != self->number) *self->in_order = false;
    *self->next += 1;
}

static void a_stream_runs_in_the_order_of_queueing_round_its_ring(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    struct zr_device *device = open_device(0);
    struct tick *ticks = calloc(COUNT, sizeof *ticks);
    assert_non_null(ticks);
    const uint32_t entries[] = { 2, 16, 4096 };
    for (size_t size = 0; size < ZR_COUNT(entries); size++) {
        struct zr_stream *stream = open_stream(device, entries[size], false);
        assert_ptr_equal(zr_stream_device(stream), device);
        uint32_t next = 0;
        bool in_order = true;
        for (uint32_t i = 0; i < COUNT; i++) {
            ticks[i] = (struct tick){ &next, i, &in_order };
            zr_stream_call(stream, tick, &ticks[i]);
        }
        zr_stream_close(stream); /* waits for all of them */
        assert_int_equal(next, COUNT);
        assert_true(in_order);
    }
    free(ticks);
    zr_device_close(device);
}

struct feeder {
    struct zr_stream *stream;
    struct zr_timeline *held;
    _Atomic uint32_t queued, ran;
};

static void count_ran(void *context)
{
    struct feeder *feeder = context;
    atomic_fetch_add(&feeder->ran, 1);
}

static void *feed(void *argument)
{
    struct feeder *feeder = argument;
    zr_stream_wait(feeder->stream, feeder->held, 1);
    for (int i = 0; i < 100; i++) {
        zr_stream_call(feeder->stream, count_ran, feeder);
        atomic_fetch_add(&feeder->queued, 1);
    }
    return NULL;
}

static void who_queues_on_a_full_ring_sleeps_until_there_is_room(void **state)
{
    (void)state;
    struct zr_device *device = open_device(0);
    struct feeder feeder = { .stream = open_stream(device, 8, false), .held = make_timeline() };
    pthread_t thread;
    clockid_t clock;
    struct timespec used;
    assert_int_equal(pthread_create(&thread, NULL, feed, &feeder), 0);
    for (int i = 0; i < 5000 && atomic_load(&feeder.queued) < 7; i++)
        sleep_ns(MS);
    sleep_ns(100 * MS);
    assert_int_equal(atomic_load(&feeder.queued), 7); /* and the wait: the ring has 8 */
    assert_int_equal(atomic_load(&feeder.ran), 0);
    assert_int_equal(pthread_getcpuclockid(thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &used), 0);
    assert_true(used.tv_sec == 0 && used.tv_nsec < 50 * (long)MS);

    zr_timeline_signal(feeder.held, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    zr_stream_close(feeder.stream);
    assert_int_equal(atomic_load(&feeder.ran), 100);
    zr_timeline_free(feeder.held);
    zr_device_close(device);
}

/* A ring that made room in lots would wait here for an entry that waits for us. */
static void one_free_entry_is_room_enough(void **state)
{
    (void)state;
    struct zr_device *device = open_device(0);
    struct zr_stream *stream = open_stream(device, 4, false);
    struct zr_timeline *gate = make_timeline(), *passed = make_timeline();
    uint64_t queued = 0;
    for (; queued < 2; queued++) { /* each gate is two entries */
        zr_stream_wait(stream, gate, queued + 1);
        zr_stream_signal(stream, passed, queued + 1);
    }
    for (uint64_t turn = 1; turn <= 200; turn++) {
        zr_timeline_signal(gate, turn);
        zr_stream_wait(stream, gate, turn + 2);
        zr_stream_signal(stream, passed, turn + 2);
        assert_true(zr_timeline_wait_for(passed, turn, 60000 * (uint64_t)MS));
    }
    zr_timeline_signal(gate, 1000);
    zr_stream_close(stream);
    assert_int_equal(zr_timeline_value(passed), 202);
    zr_timeline_free(gate);
    zr_timeline_free(passed);
    zr_device_close(device);
}

/* -- several streams ---------------------------------------------------------------------------------------------- */

#define STREAMS 5

static void append_own(void *context)
{
    uint64_t *chain = context;
    *chain = *chain * 6364136223846793005u + 1442695040888963407u;
}

static void a_deep_chain_across_streams_keeps_its_order(void **state)
{
    (void)state;
    enum { LINKS = 5000 };
    struct zr_device *device = open_device(0);
    struct zr_stream *streams[STREAMS];
    struct zr_timeline *timeline = make_timeline();
    uint64_t chain = 1, expected = 1; /* the chain is no atomic: the timeline gives its order */
    for (int i = 0; i < STREAMS; i++)
        streams[i] = open_stream(device, 64, false);
    for (uint64_t link = 0; link < LINKS; link++) {
        struct zr_stream *stream = streams[link % STREAMS];
        zr_stream_wait(stream, timeline, link);
        zr_stream_call(stream, append_own, &chain);
        zr_stream_signal(stream, timeline, link + 1);
        append_own(&expected);
    }
    zr_timeline_wait(timeline, LINKS);
    assert_true(chain == expected);
    for (int i = 0; i < STREAMS; i++)
        zr_stream_close(streams[i]);
    zr_timeline_free(timeline);
    zr_device_close(device);
}

/* A random program over cells of memory: each entry reads two cells and writes one. Its waits come from who wrote and read
 * those cells last, as a schedule's do; the same program run in its order says what must come out. */
enum { CELLS = 24, CELL_WORDS = 64, ENTRIES = 6000 };

struct mix {
    uint64_t *out;
    const uint64_t *a, *b;
};

static void mix(void *context)
{
    const struct mix *self = context;
    for (uint32_t i = 0; i < CELL_WORDS; i++)
        self->out[i] = self->out[i] * 31 + self->a[i] * 7 + (self->b[(i + 1) % CELL_WORDS] ^ 0x9e3779b97f4a7c15u);
}

struct last_use {
    uint64_t wrote, read; /* sequence on a stream; 0: never */
};

static void random_programs_give_what_their_order_gives(void **state)
{
    (void)state;
    uint64_t bytes = CELLS * CELL_WORDS * sizeof(uint64_t);
    struct mix *mixes = calloc(ENTRIES, sizeof *mixes);
    uint64_t *expected = malloc(bytes), *result = malloc(bytes);
    assert_true(mixes && expected && result);
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct zr_device *device = open_device(bytes);
        struct zr_stream *streams[STREAMS];
        struct zr_timeline *timelines[STREAMS];
        struct last_use uses[CELLS][STREAMS] = { 0 };
        uint64_t sequence[STREAMS] = { 0 }, waited[STREAMS][STREAMS] = { 0 };
        uint64_t *memory = zr_device_memory(device);
        for (int i = 0; i < STREAMS; i++) {
            streams[i] = open_stream(device, seed % 2 ? 16 : 4096, i == 0);
            timelines[i] = make_timeline();
        }
        for (uint64_t i = 0; i < CELLS * CELL_WORDS; i++)
            expected[i] = memory[i] = i;

        for (uint32_t entry = 0; entry < ENTRIES; entry++) {
            struct zr_random_block draw = zr_random(seed, 1, entry);
            uint32_t on = draw.word[0] % STREAMS, out = draw.word[1] % CELLS;
            uint32_t a = draw.word[2] % CELLS, b = draw.word[3] % CELLS;
            bool copy = draw.word[0] >> 16 & 1;
            if (a == out) a = (a + 1) % CELLS;
            if (copy || b == out) b = a;

            for (uint32_t from = 0; from < STREAMS; from++) {
                uint64_t need = 0;
                const uint64_t before[] = { uses[out][from].wrote, uses[out][from].read, uses[a][from].wrote,
                                            uses[b][from].wrote };
                for (size_t i = 0; i < ZR_COUNT(before); i++)
                    if (before[i] > need) need = before[i];
                if (from == on || need <= waited[on][from]) continue;
                zr_stream_wait(streams[on], timelines[from], need);
                waited[on][from] = need;
            }
            uint64_t *cell[] = { memory + out * CELL_WORDS, memory + a * CELL_WORDS, memory + b * CELL_WORDS };
            if (copy) {
                zr_stream_copy(streams[on], cell[0], cell[1], CELL_WORDS * sizeof(uint64_t));
                memcpy(expected + out * CELL_WORDS, expected + a * CELL_WORDS, CELL_WORDS * sizeof(uint64_t));
            } else {
                mixes[entry] = (struct mix){ cell[0], cell[1], cell[2] };
                zr_stream_call(streams[on], mix, &mixes[entry]);
                mix(&(struct mix){ expected + out * CELL_WORDS, expected + a * CELL_WORDS, expected + b * CELL_WORDS });
            }
            sequence[on]++;
            zr_stream_signal(streams[on], timelines[on], sequence[on]);
            uses[out][on].wrote = uses[a][on].read = uses[b][on].read = sequence[on];
        }
        for (int i = 0; i < STREAMS; i++)
            zr_timeline_wait(timelines[i], sequence[i]);
        memcpy(result, memory, bytes);
        assert_memory_equal(result, expected, bytes);
        for (int i = 0; i < STREAMS; i++) {
            zr_stream_close(streams[i]);
            zr_timeline_free(timelines[i]);
        }
        zr_device_close(device);
    }
    free(mixes);
    free(expected);
    free(result);
}

/* -- operations --------------------------------------------------------------------------------------------------- */

static void operations_run_in_order_with_copied_arguments(void **state)
{
    (void)state;
    enum { COUNT = 1000, TURNS = 300 };
    struct zr_device *device = open_device(4 * COUNT * sizeof(float));
    struct zr_stream *one = open_stream(device, 16, true), *two = open_stream(device, 16, true);
    struct zr_timeline *timeline = make_timeline();
    float *x = zr_device_memory(device), *y = x + COUNT, *z = y + COUNT, ones[COUNT], back[COUNT];
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    zr_fill(one, &(struct zr_op_fill){ .out = x, .bytes = COUNT * sizeof(float) });
    zr_stream_copy(one, y, ones, sizeof ones);
    struct zr_op_add add = { .out = x, .a = x, .b = y, .count = COUNT, .dtype = ZR_F32 };
    for (int turn = 0; turn < TURNS; turn++) {
        zr_add(one, &add);
        memset(&add, 0xff, sizeof add); /* the arguments were copied */
        add = (struct zr_op_add){ .out = x, .a = x, .b = y, .count = COUNT, .dtype = ZR_F32 };
    }
    zr_stream_signal(one, timeline, 1);
    zr_stream_wait(two, timeline, 1);
    zr_add(two, &(struct zr_op_add){ .out = z, .a = x, .b = x, .count = COUNT, .dtype = ZR_F32 });
    zr_stream_copy(two, back, z, sizeof back);
    zr_stream_signal(two, timeline, 2);
    zr_timeline_wait(timeline, 2);
    assert_int_equal(zr_device_failure(device, NULL), ZR_OK);
    for (int i = 0; i < COUNT; i++)
        assert_true(back[i] == 2 * TURNS);
    zr_stream_close(one);
    zr_stream_close(two);
    zr_timeline_free(timeline);
    zr_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_runs_in_the_order_of_queueing_round_its_ring),
        cmocka_unit_test(who_queues_on_a_full_ring_sleeps_until_there_is_room),
        cmocka_unit_test(one_free_entry_is_room_enough),
        cmocka_unit_test(a_deep_chain_across_streams_keeps_its_order),
        cmocka_unit_test(random_programs_give_what_their_order_gives),
        cmocka_unit_test(operations_run_in_order_with_copied_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
