/* test_device.c: the gate: what is checked, what sticks, what is traced */
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/device/launch.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000u
#define ARENA ((uint64_t)3 << 20)

static struct zr_device *open_device(uint64_t memory_bytes, struct zr_trace *trace)
{
    struct zr_device_config config = {
        .kind = ZR_DEVICE_CPU, .memory_bytes = memory_bytes, .threads = 2, .trace = trace
    };
    struct zr_device *device = NULL;
    struct zr_error err = { 0 };
    enum zr_code code = zr_device_open(&config, &device, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(code, ZR_OK);
    return device;
}

static struct zr_stream *open_stream(struct zr_device *device, const char *name, bool compute)
{
    struct zr_stream *stream = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_stream_open(device, name, 64, compute, &stream, &err), ZR_OK);
    return stream;
}

static struct zr_timeline *make_timeline(void)
{
    struct zr_timeline *timeline = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_timeline_make(&timeline, &err), ZR_OK);
    return timeline;
}

static void a_missing_backend_is_named(void **state)
{
    (void)state;
    struct zr_device *device = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_device_open(&(struct zr_device_config){ .kind = ZR_DEVICE_CUDA }, &device, &err), ZR_EGONE);
    assert_string_equal(err.text, "this build has no CUDA backend");
    assert_null(device);
    zr_device_close(device);
}

static void memory_that_is_not_there_is_refused(void **state)
{
    (void)state;
    struct zr_device *device = NULL;
    struct zr_error err = { 0 };
    struct zr_device_config config = { .memory_bytes = (uint64_t)1 << 50, .threads = 1 };
    assert_int_equal(zr_device_open(&config, &device, &err), ZR_EFULL);
    assert_non_null(strstr(err.text, "asked for"));
    assert_null(device);
}

static void a_device_says_what_it_is(void **state)
{
    (void)state;
    struct zr_device *device = open_device(ARENA, NULL);
    assert_int_equal(zr_device_kind(device), ZR_DEVICE_CPU);
    assert_int_equal(zr_device_memory_bytes(device), ARENA);
    assert_true((uintptr_t)zr_device_memory(device) % 4096 == 0);
    assert_memory_equal(zr_device_describe(device), "cpu, scalar, 2 threads, ", 24); /* simd_limit 0 */
    zr_device_close(device);

    device = open_device(0, NULL);
    assert_null(zr_device_memory(device));
    zr_device_close(device);
}

/* Runs `act` in a child and tells whether it was the end of it. */
static bool kills(void (*act)(void *), void *context)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        signal(SIGABRT, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        act(context);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

struct bad_copy {
    struct zr_stream *stream;
    char *to;
    const char *from;
    uint64_t bytes;
};

static void copy_badly(void *context)
{
    const struct bad_copy *copy = context;
    zr_stream_copy(copy->stream, copy->to, copy->from, copy->bytes);
}

static void copies_that_leave_the_arena_are_caught(void **state)
{
    (void)state;
    struct zr_device *device = open_device(ARENA, NULL);
    struct zr_stream *stream = open_stream(device, "h2d", false);
    char *memory = zr_device_memory(device), host[256];
    struct bad_copy bad[] = {
        { stream, memory + ARENA - 255, host, 256 },          /* over the end */
        { stream, host, memory - 1, 2 },                      /* over the start */
        { stream, host, host + 128, 64 },                     /* nothing of the device in it */
        { stream, memory, memory + 63, 64 },                  /* overlap */
        { stream, memory + ARENA, host, 1 },                  /* behind the end is host */
        { stream, memory, host, ARENA + 1 },                  /* larger than the arena */
        { stream, memory + ARENA / 2, host, UINT64_MAX / 2 }, /* sums that would wrap */
    };
    for (size_t i = 0; i < ZR_COUNT(bad); i++)
        assert_true(kills(copy_badly, &bad[i]));
    struct bad_copy good = { stream, memory + ARENA - 256, host, 256 };
    assert_false(kills(copy_badly, &good));
    zr_stream_close(stream);
    zr_device_close(device);
}

/* The kernel touches the byte for us, and says so instead of a signal. */
static bool reachable(const char *at)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    bool reached = write(ends[1], at, 1) == 1;
    assert_true(reached || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return reached;
}

static void the_arena_ends_where_its_budget_ends(void **state)
{
    (void)state;
    const uint64_t sizes[] = { 4096, ARENA, ARENA + 4096 };
    for (size_t i = 0; i < ZR_COUNT(sizes); i++) {
        struct zr_device *device = open_device(sizes[i], NULL);
        char *memory = zr_device_memory(device);
        assert_true(reachable(memory) && reachable(memory + sizes[i] - 1));
        assert_false(reachable(memory + sizes[i]));
        assert_false(reachable(memory - 1));
        memory[0] = memory[sizes[i] - 1] = 1;
        zr_device_close(device);
    }
}

static void copies_arrive_whole_at_any_size_and_offset(void **state)
{
    (void)state;
    struct zr_device *device = open_device(ARENA, NULL);
    struct zr_stream *up = open_stream(device, "h2d", false), *down = open_stream(device, "d2h", false);
    struct zr_timeline *timeline = make_timeline();
    char *memory = zr_device_memory(device), *from = malloc(ARENA), *to = malloc(ARENA);
    assert_true(from && to);
    for (uint64_t i = 0; i < ARENA; i++)
        from[i] = (char)(i * 2654435761u >> 24);
    const uint64_t sizes[] = { 0, 1, 63, 4097, (1 << 20) + 3, ARENA };
    for (uint64_t i = 0; i < ZR_COUNT(sizes); i++) {
        uint64_t at = sizes[i] == ARENA ? 0 : 5 * i;
        memset(to, 0x55, ARENA);
        zr_stream_copy(up, memory + at, from, sizes[i]);
        zr_stream_signal(up, timeline, 2 * i + 1);
        zr_stream_wait(down, timeline, 2 * i + 1);
        zr_stream_copy(down, to, memory + at, sizes[i]);
        zr_stream_signal(down, timeline, 2 * i + 2);
        zr_timeline_wait(timeline, 2 * i + 2);
        assert_memory_equal(to, from, sizes[i]);
        assert_true(sizes[i] == ARENA || to[sizes[i]] == 0x55);
    }
    assert_int_equal(zr_device_failure(device, NULL), ZR_OK);
    free(from);
    free(to);
    zr_stream_close(up);
    zr_stream_close(down);
    zr_timeline_free(timeline);
    zr_device_close(device);
}

/* -- failure ------------------------------------------------------------------------------------------------------ */

struct failing {
    struct zr_device *device;
    const char *text;
    uint32_t calls;
};

static void count_call(void *context)
{
    struct failing *failing = context;
    failing->calls++;
}

static void fail_device(void *context)
{
    struct failing *failing = context;
    struct zr_error err = { 0 };
    failing->calls++;
    zr_device_fail(failing->device, zr_fail(&err, ZR_EIO, "%s", failing->text), &err);
}

static void after_a_failure_work_is_skipped_and_signals_fire(void **state)
{
    (void)state;
    struct zr_device *device = open_device(4096, NULL);
    struct zr_stream *one = open_stream(device, "one", false), *two = open_stream(device, "two", true);
    struct zr_timeline *timeline = make_timeline(), *held = make_timeline();
    struct failing first = { device, "first", 0 }, second = { device, "second", 0 };
    char *memory = zr_device_memory(device), host[64] = "written after the failure", before[64] = "written before";
    zr_stream_copy(one, memory, before, sizeof before);
    zr_stream_call(one, fail_device, &first);
    zr_stream_call(one, fail_device, &second);
    zr_stream_copy(one, memory, host, sizeof host);
    zr_stream_signal(one, timeline, 1);
    zr_stream_wait(two, timeline, 1);
    zr_stream_wait(two, held, 1); /* still honoured */
    zr_stream_launch(two, ZR_OP_fill, &(struct zr_op_fill){ .out = memory, .bytes = 64 });
    zr_stream_signal(two, timeline, 2);
    assert_false(zr_timeline_wait_for(timeline, 2, 20 * MS));
    zr_timeline_signal(held, 1);
    zr_timeline_wait(timeline, 2);

    struct zr_error err = { 0 };
    assert_int_equal(zr_device_failure(device, &err), ZR_EIO);
    assert_string_equal(err.text, "first");
    assert_int_equal(first.calls, 1);
    assert_int_equal(second.calls, 0);
    assert_string_equal(memory, "written before");
    zr_device_fail(device, ZR_EBUG, NULL);
    assert_int_equal(zr_device_failure(device, NULL), ZR_EIO); /* the first one stays */

    zr_device_clear_failure(device);
    assert_int_equal(zr_device_failure(device, &err), ZR_OK);
    zr_stream_call(one, count_call, &second);
    zr_stream_copy(one, memory, host, sizeof host);
    zr_stream_signal(one, timeline, 3);
    zr_timeline_wait(timeline, 3);
    assert_int_equal(second.calls, 1);
    assert_string_equal(memory, "written after the failure");
    zr_stream_close(one);
    zr_stream_close(two);
    zr_timeline_free(timeline);
    zr_timeline_free(held);
    zr_device_close(device);
}

static void an_operation_with_broken_arguments_fails_the_device(void **state)
{
    (void)state;
    struct zr_device *device = open_device(4096, NULL);
    struct zr_stream *stream = open_stream(device, "compute", true);
    zr_fill(stream, &(struct zr_op_fill){ .out = NULL, .bytes = 64 });
    struct zr_error err = { 0 };
    assert_int_equal(zr_device_failure(device, &err), ZR_EBUG);
    assert_non_null(strstr(err.text, "fill"));
    zr_stream_close(stream);
    zr_device_close(device);
}

static void a_failure_without_a_sentence_gets_one(void **state)
{
    (void)state;
    struct zr_device *device = open_device(0, NULL);
    struct zr_error err = { 0 };
    zr_device_fail(device, ZR_EGONE, NULL);
    assert_int_equal(zr_device_failure(device, &err), ZR_EGONE);
    assert_string_not_equal(err.text, "");
    zr_device_close(device);
}

#ifdef ZR_FAULT_POINTS
static enum zr_code open_and_run(struct zr_error *err)
{
    struct zr_device_config config = { .memory_bytes = 8192, .threads = 2 };
    struct zr_device *device = NULL;
    struct zr_stream *stream = NULL;
    struct zr_timeline *timeline = make_timeline();
    enum zr_code code = zr_device_open(&config, &device, err);
    if (!code) code = zr_stream_open(device, "compute", 8, true, &stream, err);
    if (!code) {
        char *memory = zr_device_memory(device), host[64] = { 0 };
        code = zr_device_register(device, host, sizeof host, err);
        zr_stream_copy(stream, memory, host, 64);
        zr_fill(stream, &(struct zr_op_fill){ .out = memory, .bytes = 64 });
        zr_stream_signal(stream, timeline, 1);
        zr_timeline_wait(timeline, 1);
        if (!code) code = zr_device_failure(device, err);
    }
    zr_stream_close(stream);
    zr_device_close(device);
    zr_timeline_free(timeline);
    return code;
}

static void each_call_that_can_fail_does_and_says_why(void **state)
{
    (void)state;
    uint32_t nth = 1;
    for (;; nth++) {
        struct zr_error err = { 0 };
        zr_fault_arm(NULL, nth);
        enum zr_code code = open_and_run(&err);
        bool fired = zr_fault_fired();
        zr_fault_disarm();
        if (!fired) {
            assert_int_equal(code, ZR_OK);
            break;
        }
        assert_int_not_equal(code, ZR_OK);
        assert_string_not_equal(err.text, "");
    }
    assert_true(nth > 5);
}
#endif

/* -- trace -------------------------------------------------------------------------------------------------------- */

static void rest(void *context)
{
    (void)context;
    nanosleep(&(struct timespec){ .tv_nsec = 3 * MS }, NULL);
}

static void marks_become_events_even_empty_ones(void **state)
{
    (void)state;
    struct zr_trace *trace = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_trace_make(64, &trace, &err), ZR_OK);
    struct zr_device *device = open_device(0, trace);
    zr_trace_track(trace, "somebody else");
    struct zr_stream *stream = open_stream(device, "cpu", false);
    uint32_t slow = zr_trace_name(trace, "slow"), empty = zr_trace_name(trace, "empty");
    const struct zr_event_record end = { .name = UINT32_MAX };
    uint64_t begin_ns = zr_now_ns();
    zr_stream_mark(stream, &(struct zr_event_record){ .name = slow, .step = 4, .unit = 5, .micro = 6, .bytes = 7 });
    zr_stream_call(stream, rest, NULL);
    zr_stream_mark(stream, &(struct zr_event_record){ .name = empty, .step = 8 });
    zr_stream_mark(stream, &end);
    zr_stream_call(stream, rest, NULL); /* between an end and a mark: in no event */
    zr_stream_mark(stream, &end);
    zr_stream_mark(stream, &(struct zr_event_record){ .name = slow, .step = 9 });
    zr_stream_close(stream); /* ends the last one */

    struct zr_event_record records[8];
    assert_int_equal(zr_trace_read(trace, records, 8), 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(zr_trace_track_text(trace, records[i].track), "cpu");
        assert_true(records[i].begin_ns >= begin_ns && records[i].end_ns >= records[i].begin_ns);
    }
    assert_int_equal(records[0].name, slow);
    assert_int_equal(records[0].step, 4);
    assert_int_equal(records[0].unit, 5);
    assert_int_equal(records[0].micro, 6);
    assert_int_equal(records[0].bytes, 7);
    assert_true(records[0].end_ns - records[0].begin_ns >= 3 * MS);
    assert_int_equal(records[1].name, empty);
    assert_true(records[1].begin_ns >= records[0].end_ns);
    assert_int_equal(records[2].step, 9);
    assert_true(records[2].begin_ns - records[1].end_ns >= 3 * MS);
    zr_device_close(device);
    zr_trace_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_backend_is_named),
        cmocka_unit_test(memory_that_is_not_there_is_refused),
        cmocka_unit_test(a_device_says_what_it_is),
        cmocka_unit_test(copies_that_leave_the_arena_are_caught),
        cmocka_unit_test(the_arena_ends_where_its_budget_ends),
        cmocka_unit_test(copies_arrive_whole_at_any_size_and_offset),
        cmocka_unit_test(after_a_failure_work_is_skipped_and_signals_fire),
        cmocka_unit_test(an_operation_with_broken_arguments_fails_the_device),
        cmocka_unit_test(a_failure_without_a_sentence_gets_one),
#ifdef ZR_FAULT_POINTS
        cmocka_unit_test(each_call_that_can_fail_does_and_says_why),
#endif
        cmocka_unit_test(marks_become_events_even_empty_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
