/* test_allocation.c: a step allocates nothing (D5): every allocator of libc is counted by a definition of ours in front
 *
 * Sanitizers bring allocators of their own, so there the test is empty. */
#include "engine/device/launch.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    return 0;
}
#else

static _Atomic uint64_t allocations;

/* dlsym() may ask for zeroed memory before we know the real calloc(). */
static _Alignas(16) char first_bytes[4096];
static size_t first_used;

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

void *malloc(size_t bytes)
{
    static void *(*_Atomic next)(size_t);
    if (!next) *(void *_Atomic *)&next = real("malloc");
    atomic_fetch_add(&allocations, 1);
    return next(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    static void *(*_Atomic next)(size_t, size_t);
    static _Thread_local bool looking;
    if (looking) {
        char *at = first_bytes + first_used;
        first_used += (count * bytes + 15) & ~(size_t)15;
        if (first_used > sizeof first_bytes) abort();
        return at;
    }
    if (!next) {
        looking = true;
        *(void *_Atomic *)&next = real("calloc");
        looking = false;
    }
    atomic_fetch_add(&allocations, 1);
    return next(count, bytes);
}

void *realloc(void *at, size_t bytes)
{
    static void *(*_Atomic next)(void *, size_t);
    if (!next) *(void *_Atomic *)&next = real("realloc");
    atomic_fetch_add(&allocations, 1);
    return next(at, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    static void *(*_Atomic next)(size_t, size_t);
    if (!next) *(void *_Atomic *)&next = real("aligned_alloc");
    atomic_fetch_add(&allocations, 1);
    return next(align, bytes);
}

int posix_memalign(void **ret_at, size_t align, size_t bytes)
{
    static int (*_Atomic next)(void **, size_t, size_t);
    if (!next) *(void *_Atomic *)&next = real("posix_memalign");
    atomic_fetch_add(&allocations, 1);
    return next(ret_at, align, bytes);
}

static void nothing(void *context)
{
    (void)context;
}

static void the_counter_counts(void **state)
{
    (void)state;
    uint64_t before = atomic_load(&allocations);
    void *at[5] = { malloc(10), calloc(2, 5), aligned_alloc(64, 64), NULL, NULL };
    at[0] = realloc(at[0], 1000);
    assert_int_equal(posix_memalign(&at[3], 64, 64), 0);
    assert_int_equal(atomic_load(&allocations) - before, 5);
    for (int i = 0; i < 5; i++)
        free(at[i]);
}

static void a_step_of_queued_work_allocates_nothing(void **state)
{
    (void)state;
    struct zr_error err = { 0 };
    struct zr_trace *trace = NULL;
    struct zr_device *device = NULL;
    struct zr_stream *compute = NULL, *copies = NULL;
    struct zr_timeline *timeline = NULL;
    assert_int_equal(zr_trace_make(256, &trace, &err), ZR_OK);
    struct zr_device_config config = { .memory_bytes = 1 << 20, .threads = 2, .trace = trace };
    assert_int_equal(zr_device_open(&config, &device, &err), ZR_OK);
    assert_int_equal(zr_stream_open(device, "compute", 64, true, &compute, &err), ZR_OK);
    assert_int_equal(zr_stream_open(device, "h2d", 64, false, &copies, &err), ZR_OK);
    assert_int_equal(zr_timeline_make(&timeline, &err), ZR_OK);
    uint32_t name = zr_trace_name(trace, "work");
    static char host[65536];
    char *memory = zr_device_memory(device);

    uint64_t before = atomic_load(&allocations), value = 0;
    for (int turn = 0; turn < 500; turn++) {
        zr_stream_mark(copies, &(struct zr_event_record){ .name = name });
        zr_stream_copy(copies, memory, host, sizeof host);
        zr_stream_signal(copies, timeline, ++value);
        zr_stream_wait(compute, timeline, value);
        zr_stream_mark(compute, &(struct zr_event_record){ .name = name });
        zr_fill(compute, &(struct zr_op_fill){ .out = memory, .bytes = sizeof host });
        zr_stream_call(compute, nothing, NULL);
        zr_stream_signal(compute, timeline, ++value);
        zr_stream_wait(copies, timeline, value);
        if (turn % 50 == 49) zr_timeline_wait(timeline, value);
    }
    zr_device_fail(device, ZR_EIO, NULL);
    zr_device_clear_failure(device);
    assert_int_equal(atomic_load(&allocations) - before, 0);

    zr_stream_close(compute);
    zr_stream_close(copies);
    zr_timeline_free(timeline);
    zr_device_close(device);
    zr_trace_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_counts),
        cmocka_unit_test(a_step_of_queued_work_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
