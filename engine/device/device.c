/* device.c: the gate in front of the backends
 *
 * It picks the backend, checks what every backend may rely on, keeps the first failure, and is the only caller of the
 * backend's table. What it asserts are our own promises; an operation whose arguments are broken fails the device instead,
 * since shapes come from a model file in the end. */
#include "engine/base/fault.h"
#include "engine/base/span.h"
#include "engine/device/backend.h"
#include "engine/device/launch.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* -- devices ---------------------------------------------------------------------------------------------------- */

enum zr_code zr_device_open(const struct zr_device_config *config, struct zr_device **ret_device, struct zr_error *err)
{
    if (config->kind != ZR_DEVICE_CPU) return zr_fail(err, ZR_EGONE, "this build has no CUDA backend");
    const struct zr_backend *backend = &zr_cpu_backend;

    struct zr_device *device = calloc(1, backend->device_bytes);
    if (!device) return zr_fail(err, ZR_EFULL, "no memory for a device");
    device->backend = backend;
    device->trace = config->trace;
    device->memory_bytes = config->memory_bytes;
    pthread_mutex_init(&device->failure_lock, NULL);

    enum zr_code code = backend->device_open(device, config, err);
    if (code) {
        zr_device_close(device);
        return code;
    }
    assert(device->description[0] && (device->memory != NULL) == (device->memory_bytes > 0));
    *ret_device = device;
    return ZR_OK;
}

void zr_device_close(struct zr_device *device)
{
    if (!device) return;
    assert(device->streams_opened == 0); /* streams are closed first */
    device->backend->device_close(device);
    pthread_mutex_destroy(&device->failure_lock);
    free(device);
}

enum zr_device_kind zr_device_kind(const struct zr_device *device)
{
    return device->backend->kind;
}

void *zr_device_memory(const struct zr_device *device)
{
    return device->memory;
}

uint64_t zr_device_memory_bytes(const struct zr_device *device)
{
    return device->memory_bytes;
}

const char *zr_device_describe(const struct zr_device *device)
{
    return device->description;
}

enum zr_code zr_device_register(struct zr_device *device, void *at, uint64_t bytes, struct zr_error *err)
{
    assert(at && bytes > 0);
    if (zr_fault("device_register")) return zr_fail(err, ZR_EIO, "cannot register host memory with the device");
    return device->backend->host_register ? device->backend->host_register(device, at, bytes, err) : ZR_OK;
}

void zr_device_unregister(struct zr_device *device, void *at)
{
    if (device->backend->host_unregister) device->backend->host_unregister(device, at);
}

enum zr_code zr_device_failure(struct zr_device *device, struct zr_error *err)
{
    if (!zr_device_failed(device)) return ZR_OK;
    pthread_mutex_lock(&device->failure_lock);
    enum zr_code code = (enum zr_code)atomic_load(&device->failure);
    if (code && err) *err = device->failure_text;
    pthread_mutex_unlock(&device->failure_lock);
    return code;
}

void zr_device_fail(struct zr_device *device, enum zr_code code, const struct zr_error *err)
{
    assert(code != ZR_OK);
    pthread_mutex_lock(&device->failure_lock);
    if (!zr_device_failed(device)) {
        if (err)
            device->failure_text = *err;
        else
            zr_fail(&device->failure_text, code, "the device failed");
        atomic_store(&device->failure, code);
    }
    pthread_mutex_unlock(&device->failure_lock);
}

void zr_device_clear_failure(struct zr_device *device)
{
    pthread_mutex_lock(&device->failure_lock);
    atomic_store(&device->failure, ZR_OK);
    device->failure_text = (struct zr_error){ 0 };
    pthread_mutex_unlock(&device->failure_lock);
}

/* -- streams ---------------------------------------------------------------------------------------------------- */

enum zr_code zr_stream_open(struct zr_device *device, const char *name, uint32_t entries, bool compute,
                            struct zr_stream **ret_stream, struct zr_error *err)
{
    assert(entries >= 2 && (entries & (entries - 1)) == 0);
    const struct zr_backend *backend = device->backend;
    size_t bytes = zr_round_up(backend->stream_bytes, 64); /* counters of a stream have cache lines of their own */
    struct zr_stream *stream = aligned_alloc(64, bytes);
    if (!stream) return zr_fail(err, ZR_EFULL, "no memory for stream '%s'", name);
    memset(stream, 0, bytes);
    stream->device = device;
    stream->compute = compute;
    stream->entries = entries;
    zr_text_print(stream->name, sizeof stream->name, "%s", name);
    if (device->trace) stream->track = zr_trace_track(device->trace, name);

    enum zr_code code = backend->stream_open(stream, err);
    device->streams_opened++;
    if (code) {
        zr_stream_close(stream);
        return code;
    }
    *ret_stream = stream;
    return ZR_OK;
}

void zr_stream_close(struct zr_stream *stream)
{
    if (!stream) return;
    stream->device->backend->stream_close(stream);
    stream->device->streams_opened--;
    free(stream);
}

struct zr_device *zr_stream_device(const struct zr_stream *stream)
{
    return stream->device;
}

void zr_stream_wait(struct zr_stream *stream, struct zr_timeline *timeline, uint64_t value)
{
    stream->device->backend->wait(stream, timeline, value);
}

void zr_stream_signal(struct zr_stream *stream, struct zr_timeline *timeline, uint64_t value)
{
    stream->device->backend->signal(stream, timeline, value);
}

/* Wholly inside the arena, or wholly outside. A device without memory is the host: everything is inside. */
enum side { INSIDE, OUTSIDE, ACROSS };

static enum side side_of(const struct zr_device *device, const void *at, uint64_t bytes)
{
    if (device->memory_bytes == 0) return INSIDE;
    uintptr_t first = (uintptr_t)at, memory = (uintptr_t)device->memory, end = memory + device->memory_bytes;
    if (first >= memory && zr_inside(first - memory, bytes, device->memory_bytes)) return INSIDE;
    return first >= end || (first < memory && bytes <= memory - first) ? OUTSIDE : ACROSS;
}

void zr_stream_copy(struct zr_stream *stream, void *to, const void *from, uint64_t bytes)
{
    struct zr_device *device = stream->device;
    if (bytes == 0) return;
    enum side to_side = side_of(device, to, bytes), from_side = side_of(device, from, bytes);
    assert(to && from && to_side != ACROSS && from_side != ACROSS);
    assert(to_side == INSIDE || from_side == INSIDE);
    assert((uintptr_t)to + bytes <= (uintptr_t)from || (uintptr_t)from + bytes <= (uintptr_t)to);
    (void)to_side, (void)from_side;
    if (zr_fault("device_copy")) {
        struct zr_error err;
        zr_device_fail(device,
                       zr_fail(&err, ZR_EIO, "a copy of %llu bytes on stream '%s' failed", (unsigned long long)bytes,
                               stream->name),
                       &err);
    }
    device->backend->copy(stream, to, from, bytes);
}

void zr_stream_launch(struct zr_stream *stream, enum zr_op op, const void *args)
{
    struct zr_device *device = stream->device;
    assert(stream->compute && (unsigned)op < ZR_OP_COUNT && zr_op_args_bytes(op) <= ZR_LAUNCH_BYTES);
    struct zr_error err = { 0 };
    enum zr_code code = zr_op_check(op, args, &err);
    if (!code && zr_fault("device_launch"))
        code = zr_fail(&err, ZR_EIO, "%s on stream '%s' failed", zr_op_name(op), stream->name);
    if (code) {
        zr_device_fail(device, code, &err);
        return;
    }
    device->backend->launch(stream, op, args);
}

void zr_stream_call(struct zr_stream *stream, zr_stream_function *call, void *context)
{
    assert(stream->device->backend->call && call);
    stream->device->backend->call(stream, call, context);
}

void zr_stream_mark(struct zr_stream *stream, const struct zr_event_record *label)
{
    if (!stream->device->trace) return;
    struct zr_event_record record = *label;
    record.track = stream->track;
    stream->device->backend->mark(stream, &record);
}
