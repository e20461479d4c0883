/* device.h: memory, streams, timelines and copies, the same for every backend
 *
 *     executor ──► stream (in-order queue) ──► backend thread or CUDA stream
 *                     │ signals                       │
 *                     └─────── timeline (a counter that only grows) ◄── waits of other streams and of the host
 *
 *   D1  Work on one stream runs in the order in which it was queued. Work on two streams has no order but what
 *       timelines give. Everything before a signal has happened for everyone who has waited for its value.
 *   D2  Queueing never waits for work: calls return at once unless the stream's queue is full.
 *   D3  Device memory is one budgeted arena, taken when the device is opened; its bytes are only reachable through
 *       streams (the CPU backend hands out addresses of a heap that nobody else touches).
 *   D4  A failure sticks to the device: from then on queued work is skipped, but signals still fire, so that everybody
 *       who waits wakes up, and zr_device_failure() has the first failure.
 *   D5  Nothing here allocates after set-up. */
#ifndef ZR_DEVICE_H
#define ZR_DEVICE_H

#include "engine/base/error.h"
#include "engine/base/trace.h"
#include "kernels/ops.h"
#include <stdbool.h>
#include <stdint.h>

struct zr_device;
struct zr_stream;
struct zr_timeline;

enum zr_device_kind { ZR_DEVICE_CPU, ZR_DEVICE_CUDA };

struct zr_device_config {
    enum zr_device_kind kind;
    uint64_t
        memory_bytes; /* the budget: the arena has exactly this size; 0: none (a host-only device for host queues) */
    uint32_t threads; /* CPU backend: threads that one operation may use; 0: all cores */
    int simd_limit;   /* enum zr_simd_level of kernels/cpu/lane.h */
    struct zr_trace *trace; /* may be NULL; outlives the device */
};

/* ZR_EFULL  the memory cannot be had;  ZR_EGONE  no such device, or it does not work: the text says what is missing */
ZR_MUST_CHECK enum zr_code zr_device_open(const struct zr_device_config *config, struct zr_device **ret_device,
                                          struct zr_error *err);
void zr_device_close(struct zr_device *device); /* streams and timelines are closed first; NULL is fine */

enum zr_device_kind zr_device_kind(const struct zr_device *device);
void *zr_device_memory(const struct zr_device *device); /* start of the arena, aligned to 4096; NULL without memory */
uint64_t zr_device_memory_bytes(const struct zr_device *device);
const char *zr_device_describe(const struct zr_device *device); /* "cpu, AVX-512, 2 threads, oneDNN 2.6.3" */

/* Makes host memory fast to copy from and to (CUDA: page-locks it). Set-up only. The CPU backend does nothing. */
ZR_MUST_CHECK enum zr_code zr_device_register(struct zr_device *device, void *at, uint64_t bytes, struct zr_error *err);
void zr_device_unregister(struct zr_device *device, void *at);

/* The first failure since open or the last clear; ZR_OK: none. Any thread. */
enum zr_code zr_device_failure(struct zr_device *device, struct zr_error *err);
void zr_device_fail(struct zr_device *device, enum zr_code code, const struct zr_error *err); /* for host queues; D4 */
void zr_device_clear_failure(struct zr_device *device); /* only while all streams are idle */

/* -- timelines ------------------------------------------------------------------------------------------------- */

/* A counter that starts at 0. Values signalled on one timeline grow. Any stream or thread may wait. */
ZR_MUST_CHECK enum zr_code zr_timeline_make(struct zr_timeline **ret_timeline, struct zr_error *err);
void zr_timeline_free(struct zr_timeline *timeline); /* once nobody signals or waits any more; NULL is fine */
uint64_t zr_timeline_value(const struct zr_timeline *timeline);
void zr_timeline_signal(struct zr_timeline *timeline, uint64_t value); /* by a host thread */
void zr_timeline_wait(struct zr_timeline *timeline, uint64_t value); /* blocks the calling thread: spins, then sleeps */
bool zr_timeline_wait_for(struct zr_timeline *timeline, uint64_t value, uint64_t timeout_ns); /* false: timed out */

/* -- streams ---------------------------------------------------------------------------------------------------- */

/* `name` is the track in traces. `entries` bounds what is queued (a power of two, e.g. 4096). `compute` streams may run
 * operations; others copy. One thread at a time queues on a stream. */
ZR_MUST_CHECK enum zr_code zr_stream_open(struct zr_device *device, const char *name, uint32_t entries, bool compute,
                                          struct zr_stream **ret_stream, struct zr_error *err);
void zr_stream_close(struct zr_stream *stream); /* waits until the stream is idle; NULL is fine */
struct zr_device *zr_stream_device(const struct zr_stream *stream);

void zr_stream_wait(struct zr_stream *stream, struct zr_timeline *timeline, uint64_t value);
void zr_stream_signal(struct zr_stream *stream, struct zr_timeline *timeline, uint64_t value);

/* Copies between device and host, or within the device (one without memory: within the host). `from` and `to` do not
 * overlap and stay valid until done. */
void zr_stream_copy(struct zr_stream *stream, void *to, const void *from, uint64_t bytes);

/* Queues an operation of kernels/ops.h; use the typed launchers of engine/device/launch.h. The arguments are checked
 * (zr_op_check) and copied. A broken check fails the device (D4). */
void zr_stream_launch(struct zr_stream *stream, enum zr_op op, const void *args);

/* Runs call(context) in the stream's order on a host thread. CPU backend streams only: the queues of the host (optimizer,
 * I/O) are streams of a host-only CPU device. The call reports failure by zr_device_fail(). */
typedef void zr_stream_function(void *context);
void zr_stream_call(struct zr_stream *stream, zr_stream_function *call, void *context);

/* Marks what follows in the trace: the time from this mark's turn to the next mark or end is one event. `name` is an
 * index of zr_trace_name(), `track` is filled in. end: name UINT32_MAX. Closing the stream ends the last one. */
void zr_stream_mark(struct zr_stream *stream, const struct zr_event_record *label);

#endif
