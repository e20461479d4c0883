/* cpu.c: the CPU backend: streams are threads, device memory is a heap that nobody else touches
 *
 *     who queues                        the stream's thread
 *     entry[queued % entries] = ...     while done < queued: run entry[done % entries]
 *     queued += 1                       done += 1
 *
 * `queued` and `done` are timelines, so the two ends sleep and wake each other by the rules of timeline.c: no system call
 * while the other end is awake.
 *
 *   C1  An entry belongs to the thread that queues until `queued` has counted it, then to the stream's thread until
 *       `done` has. So arguments are copied once, and nothing is locked.
 *   C2  Who queues on a full ring sleeps until one entry is done; for one alone, since the rest may wait for what this very
 *       thread queues next.
 *   C3  Copies, operations and calls are skipped once the device has failed; waits, signals and marks never are.
 *   C4  A compute stream has a lane, and so a pool, of its own: a pool belongs to one thread.
 *   C5  The arena has its budgeted size to the byte, begins on a huge page if it has the size of one, and lies between
 *       pages that nobody may touch. Its pages are there when the device is open. */
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/place.h"
#include "engine/base/span.h"
#include "engine/device/backend.h"
#include "engine/device/launch.h"
#include "engine/device/timeline.h"
#include "kernels/cpu/lane.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096u
#define HUGE_BYTES (2u << 20)

struct cpu_device {
    struct zr_device device;
    void *area; /* of the arena with its guards; NULL without memory */
    uint64_t area_bytes;
    uint32_t threads;
    enum zr_simd_level simd;
};

enum entry_kind { WAIT, SIGNAL, COPY, LAUNCH, CALL, MARK, STOP };

/* What most entries need is in the first cache line; only operations with many arguments reach the others. */
struct entry {
    _Alignas(64) enum entry_kind kind;
    enum zr_op op;
    union {
        struct {
            struct zr_timeline *timeline;
            uint64_t value;
        } point;
        struct {
            void *to;
            const void *from;
            uint64_t bytes;
        } copy;
        struct {
            zr_stream_function *function;
            void *context;
        } call;
        struct zr_event_record label;
        _Alignas(16) unsigned char args[ZR_LAUNCH_BYTES];
    };
};

struct cpu_stream {
    struct zr_stream stream;
    struct entry *ring;
    pthread_t thread;
    bool started;
    struct zr_cpu_lane lane;     /* compute streams; the stream's thread alone */
    struct zr_event_record open; /* the event since the last mark; the stream's thread alone */
    struct zr_timeline queued, done;
    _Alignas(64) uint64_t next; /* entries queued; who queues, alone */
    uint64_t room_until;        /* `next` below this has room for certain; who queues, alone */
};

/* -- running ---------------------------------------------------------------------------------------------------- */

static void end_event(struct cpu_stream *stream)
{
    if (stream->open.name == UINT32_MAX) return;
    stream->open.end_ns = zr_now_ns();
    zr_trace_put(stream->stream.device->trace, &stream->open);
    stream->open.name = UINT32_MAX;
}

static void begin_event(struct cpu_stream *stream, const struct zr_event_record *label)
{
    end_event(stream);
    if (label->name == UINT32_MAX) return;
    stream->open = *label;
    stream->open.begin_ns = zr_now_ns();
}

static void run(struct cpu_stream *stream, const struct entry *entry)
{
    switch (entry->kind) {
    case WAIT:
        zr_timeline_wait(entry->point.timeline, entry->point.value);
        return;
    case SIGNAL:
        zr_timeline_signal(entry->point.timeline, entry->point.value);
        return;
    case MARK:
        begin_event(stream, &entry->label);
        return;
    default:
        break;
    }
    if (zr_device_failed(stream->stream.device)) return; /* C3 */
    if (entry->kind == COPY)
        memcpy(entry->copy.to, entry->copy.from, entry->copy.bytes);
    else if (entry->kind == LAUNCH)
        stream->lane.table[entry->op](&stream->lane, entry->args);
    else
        entry->call.function(entry->call.context);
}

static void *stream_main(void *argument)
{
    struct cpu_stream *stream = argument;
    uint32_t mask = stream->stream.entries - 1;
    for (uint64_t turn = 0;; turn++) {
        zr_timeline_wait(&stream->queued, turn + 1);
        const struct entry *entry = &stream->ring[turn & mask];
        if (entry->kind == STOP) break;
        run(stream, entry);
        zr_timeline_signal(&stream->done, turn + 1);
    }
    end_event(stream);
    return NULL;
}

/* -- queueing --------------------------------------------------------------------------------------------------- */

/* The entry to fill in; put() hands it over. */
static struct entry *take_entry(struct cpu_stream *stream, enum entry_kind kind)
{
    uint32_t entries = stream->stream.entries;
    if (stream->next == stream->room_until) {
        zr_timeline_wait(&stream->done, stream->next - entries + 1); /* C2 */
        stream->room_until = zr_timeline_value(&stream->done) + entries;
    }
    struct entry *entry = &stream->ring[stream->next & (entries - 1)];
    entry->kind = kind;
    return entry;
}

static void put(struct cpu_stream *stream)
{
    zr_timeline_signal(&stream->queued, ++stream->next);
}

static void cpu_wait(struct zr_stream *base, struct zr_timeline *timeline, uint64_t value)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    struct entry *entry = take_entry(stream, WAIT);
    entry->point.timeline = timeline;
    entry->point.value = value;
    put(stream);
}

static void cpu_signal(struct zr_stream *base, struct zr_timeline *timeline, uint64_t value)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    struct entry *entry = take_entry(stream, SIGNAL);
    entry->point.timeline = timeline;
    entry->point.value = value;
    put(stream);
}

static void cpu_copy(struct zr_stream *base, void *to, const void *from, uint64_t bytes)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    struct entry *entry = take_entry(stream, COPY);
    entry->copy.to = to;
    entry->copy.from = from;
    entry->copy.bytes = bytes;
    put(stream);
}

static void cpu_launch(struct zr_stream *base, enum zr_op op, const void *args)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    struct entry *entry = take_entry(stream, LAUNCH);
    entry->op = op;
    memcpy(entry->args, args, zr_op_args_bytes(op));
    put(stream);
}

static void cpu_call(struct zr_stream *base, zr_stream_function *call, void *context)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    struct entry *entry = take_entry(stream, CALL);
    entry->call.function = call;
    entry->call.context = context;
    put(stream);
}

static void cpu_mark(struct zr_stream *base, const struct zr_event_record *label)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    take_entry(stream, MARK)->label = *label;
    put(stream);
}

/* -- opening and closing ---------------------------------------------------------------------------------------- */

static void stream_close(struct zr_stream *base)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    if (stream->started) {
        take_entry(stream, STOP);
        put(stream);
        pthread_join(stream->thread, NULL);
    }
    zr_pool_free(stream->lane.pool);
    free(stream->ring);
}

static enum zr_code start_thread(struct cpu_stream *stream, struct zr_error *err)
{
    /* Signals are for the daemon's own thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = zr_fault("device_thread") ? EAGAIN : pthread_create(&stream->thread, NULL, stream_main, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return zr_fail(err, ZR_EFULL, "cannot start the thread of stream '%s': %s", stream->stream.name,
                       strerror(failed));
    stream->started = true;
    char name[16]; /* as long as the kernel keeps */
    snprintf(name, sizeof name, "zr:%.12s", stream->stream.name);
    pthread_setname_np(stream->thread, name);
    return ZR_OK;
}

static enum zr_code stream_open(struct zr_stream *base, struct zr_error *err)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    const struct cpu_device *device = (const struct cpu_device *)base->device;
    uint64_t spin_ns = zr_timeline_spin_ns(), ring_bytes = (uint64_t)base->entries * sizeof *stream->ring;
    zr_timeline_init(&stream->queued, spin_ns);
    zr_timeline_init(&stream->done, spin_ns);
    stream->room_until = base->entries;
    stream->open.name = UINT32_MAX;
    stream->ring = zr_fault("device_ring") ? NULL : aligned_alloc(64, ring_bytes);
    if (!stream->ring)
        return zr_fail(err, ZR_EFULL, "no memory for %u entries of stream '%s'", base->entries, base->name);
    memset(stream->ring, 0, ring_bytes); /* so that the first step finds its pages there */
    if (base->compute) {
        enum zr_code code = zr_pool_make(device->threads, &stream->lane.pool, err);
        if (code) return code;
        stream->lane.table = zr_cpu_table(device->simd);
    }
    return start_thread(stream, err);
}

/* One matrix library a process; its first use builds code. Mutable globals: set-up alone touches them, under the lock. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *gemm_name;

static enum zr_code start_kernels(const char **ret_name, struct zr_error *err)
{
    enum zr_code code = ZR_OK;
    pthread_mutex_lock(&start_lock);
    if (!gemm_name) code = zr_cpu_start(&gemm_name, err);
    *ret_name = gemm_name;
    pthread_mutex_unlock(&start_lock);
    return code;
}

static enum zr_code take_arena(struct cpu_device *cpu, struct zr_error *err)
{
    struct zr_device *device = &cpu->device;
    uint64_t bytes = device->memory_bytes;
    char wanted[24], available[24];
    struct zr_place place;
    zr_place_look(&place);
    if (bytes > place.memory_bytes || zr_fault("device_memory"))
        return zr_fail(err, ZR_EFULL, "device memory on the cpu backend: %s asked for, %s free",
                       zr_text_bytes(wanted, bytes), zr_text_bytes(available, place.memory_bytes));

    uint64_t align = bytes >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES, paged = zr_round_up(bytes, PAGE_BYTES);
    uint64_t area_bytes = paged + align + 2 * PAGE_BYTES;
    char *area = mmap(NULL, area_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return zr_fail(err, ZR_EFULL, "no room for %s of device memory: %s", zr_text_bytes(wanted, bytes),
                       strerror(errno));
    cpu->area = area;
    cpu->area_bytes = area_bytes;
    char *memory = (char *)zr_round_up((uintptr_t)area + PAGE_BYTES, align);
    if (mprotect(memory, paged, PROT_READ | PROT_WRITE) != 0)
        return zr_fail(err, ZR_EFULL, "no %s of device memory: %s", zr_text_bytes(wanted, bytes), strerror(errno));
    madvise(memory, paged, MADV_HUGEPAGE); /* best effort, as the next two */
    madvise(memory, paged, MADV_DONTFORK);
    madvise(memory, paged, MADV_DONTDUMP);
    if (madvise(memory, paged, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) /* EINVAL: kernels before 5.14 */
        return zr_fail(err, ZR_EFULL, "no %s of device memory: %s", zr_text_bytes(wanted, bytes), strerror(errno));
    device->memory = memory;
    return ZR_OK;
}

static enum zr_code device_open(struct zr_device *base, const struct zr_device_config *config, struct zr_error *err)
{
    static const char *const simd_names[] = { "scalar", "AVX2", "AVX-512" };
    struct cpu_device *cpu = (struct cpu_device *)base;
    const char *gemm;
    enum zr_code code = start_kernels(&gemm, err);
    if (code) return code;
    cpu->threads = config->threads ? config->threads : zr_pool_default_threads();
    cpu->simd = zr_cpu_simd((enum zr_simd_level)config->simd_limit);
    if (base->memory_bytes > 0 && (code = take_arena(cpu, err))) return code;
    snprintf(base->description, sizeof base->description, "cpu, %s, %u thread%s, %s", simd_names[cpu->simd],
             cpu->threads, cpu->threads == 1 ? "" : "s", gemm);
    return ZR_OK;
}

static void device_close(struct zr_device *base)
{
    struct cpu_device *cpu = (struct cpu_device *)base;
    if (cpu->area) munmap(cpu->area, cpu->area_bytes);
}

const struct zr_backend zr_cpu_backend = {
    .kind = ZR_DEVICE_CPU,
    .device_bytes = sizeof(struct cpu_device),
    .stream_bytes = sizeof(struct cpu_stream),
    .device_open = device_open,
    .device_close = device_close,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .wait = cpu_wait,
    .signal = cpu_signal,
    .copy = cpu_copy,
    .launch = cpu_launch,
    .call = cpu_call,
    .mark = cpu_mark,
};
