/* backend.h: the table that a backend fills in; only device.c calls it
 *
 * A backend embeds struct zr_device and struct zr_stream as first members of its own. The gate allocates
 * `device_bytes` and `stream_bytes` of zeros, fills in the part that it knows, and calls the opening entry; should that
 * fail, it calls the closing one, so closing must be safe on what is half open. By the time an entry is called, its
 * arguments have been checked. Entries marked optional may be NULL.
 *
 * Who runs work asks zr_device_failed() at each turn and skips copies, operations and calls then, never waits and signals
 * (D4). Trouble that appears while work runs goes to zr_device_fail(). */
#ifndef ZR_DEVICE_BACKEND_H
#define ZR_DEVICE_BACKEND_H

#include "engine/device/device.h"
#include <pthread.h>
#include <stdatomic.h>

struct zr_device {
    const struct zr_backend *backend;
    struct zr_trace *trace;  /* may be NULL */
    char *memory;            /* filled in by device_open; NULL when memory_bytes is 0 */
    uint64_t memory_bytes;   /* as asked for */
    char description[160];   /* filled in by device_open */
    uint32_t streams_opened; /* set-up's thread alone */
    pthread_mutex_t failure_lock;
    _Atomic int failure; /* enum zr_code; written under failure_lock, read anywhere */
    struct zr_error failure_text;
};

struct zr_stream {
    struct zr_device *device;
    bool compute;
    uint32_t entries, track; /* track: of device->trace */
    char name[32];
};

struct zr_backend {
    enum zr_device_kind kind;
    size_t device_bytes, stream_bytes;

    enum zr_code (*device_open)(struct zr_device *device, const struct zr_device_config *config, struct zr_error *err);
    void (*device_close)(struct zr_device *device);

    /* Optional, both or none. */
    enum zr_code (*host_register)(struct zr_device *device, void *at, uint64_t bytes, struct zr_error *err);
    void (*host_unregister)(struct zr_device *device, void *at);

    enum zr_code (*stream_open)(struct zr_stream *stream, struct zr_error *err);
    void (*stream_close)(struct zr_stream *stream); /* after the last entry has run */

    void (*wait)(struct zr_stream *stream, struct zr_timeline *timeline, uint64_t value);
    void (*signal)(struct zr_stream *stream, struct zr_timeline *timeline, uint64_t value);
    void (*copy)(struct zr_stream *stream, void *to, const void *from, uint64_t bytes);
    void (*launch)(struct zr_stream *stream, enum zr_op op, const void *args);
    void (*call)(struct zr_stream *stream, zr_stream_function *call, void *context); /* optional */
    void (*mark)(struct zr_stream *stream,
                 const struct zr_event_record *label); /* label->track is filled in; only with a trace */
};

extern const struct zr_backend zr_cpu_backend;

static inline bool zr_device_failed(const struct zr_device *device)
{
    return atomic_load(&device->failure) != ZR_OK;
}

#endif
