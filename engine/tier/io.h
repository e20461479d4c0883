/* io.h: blocks between memory and files, several in flight: one gate in front of two engines
 *
 *     nvme_queue ──► zr_io_submit ──► io_uring | threads ──► zr_io_reap ──► result as the system gave it
 *
 *   I1  An instance belongs to the thread that opened it, and only that thread calls it.
 *   I2  A result is what read or write returned: bytes (maybe fewer than asked for, maybe 0) or -errno. Nobody here judges it.
 *   I3  A slot is in flight at most once; its memory belongs to the engine until it is reaped.
 *   I4  Failure points are asked here and nowhere else, so both engines and the direct calls fail alike.
 *   I5  Nothing is allocated after open. */
#ifndef ZR_TIER_IO_H
#define ZR_TIER_IO_H

#include "engine/base/error.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define ZR_IO_FILES_MAX 8
#define ZR_IO_PIECE_BYTES (UINT64_C(1) << 30) /* what Linux takes as one registered buffer */
#define ZR_IO_ALIGN 4096u

enum zr_io_way { ZR_IO_READ, ZR_IO_WRITE };

struct zr_io_request {
    enum zr_io_way way;
    uint32_t slot; /* below `depth`: names the request when it comes back */
    uint32_t file; /* index of `fds` */
    uint32_t bytes;
    uint64_t offset;
    void *memory;
};

struct zr_io_done {
    uint32_t slot;
    int32_t result; /* I2 */
};

struct zr_io_setup {
    int fds[ZR_IO_FILES_MAX];
    uint32_t fd_count, depth; /* at most `depth` in flight, 1 to 4096 */
    uint32_t threads;         /* threads engine; 0: four for each file */
    void *buffers;            /* registered with io_uring where it can be; NULL: nothing */
    uint64_t buffer_bytes;
    uint64_t piece_bytes; /* 0: ZR_IO_PIECE_BYTES. A request that crosses a piece goes unregistered */
};

struct zr_io;

struct zr_io_backend {
    const char *name;
    /* Fails with ZR_EGONE where the engine is not to be had, the text says why. `refusal` (ZR_IO_REFUSAL_BYTES, starts "")
     * says why buffers were not registered. */
    enum zr_code (*open)(struct zr_io *io, const struct zr_io_setup *setup, char *refusal, struct zr_error *err);
    void (*submit)(struct zr_io *io, const struct zr_io_request *request); /* may be kept back until the next reap */
    void (*flush)(struct zr_io *io);                                       /* hands over what was kept back */
    uint32_t (*reap)(struct zr_io *io, struct zr_io_done *done, uint32_t room, uint64_t timeout_ns);
    void (*close)(struct zr_io *io); /* nothing is in flight; half-opened is fine */
};

extern const struct zr_io_backend zr_io_backend_uring, zr_io_backend_threads;

#define ZR_IO_REFUSAL_BYTES 256

struct zr_io {
    const struct zr_io_backend *engine;
    void *inside;                   /* the engine's */
    struct zr_io_request *requests; /* by slot */
    bool *flying;                   /* by slot */
    uint32_t depth, in_flight;
    bool registered;
};

/* ZR_EGONE: see open above; ZR_EIO: memory, threads or descriptors are short. On failure *io is closed. */
ZR_MUST_CHECK enum zr_code zr_io_open(struct zr_io *io, const struct zr_io_backend *engine,
                                      const struct zr_io_setup *setup, char refusal[ZR_IO_REFUSAL_BYTES],
                                      struct zr_error *err);
void zr_io_close(struct zr_io *io); /* nothing in flight; a zeroed one is fine */
void zr_io_submit(struct zr_io *io, const struct zr_io_request *request);

/* Hands what was submitted to the system: for callers who have something else to do before they reap. */
void zr_io_flush(struct zr_io *io);

/* Hands what was submitted to the system, then waits for at least one result, at most `timeout_ns`; 0 when none came. */
uint32_t zr_io_reap(struct zr_io *io, struct zr_io_done *done, uint32_t room, uint64_t timeout_ns);

/* One transfer on the calling thread; its result. */
int32_t zr_io_now(int fd, const struct zr_io_request *request);

/* A thread with all signals blocked; `name` is cut to 15 letters. */
ZR_MUST_CHECK enum zr_code zr_io_thread(pthread_t *ret_thread, void *(*body)(void *), void *argument, const char *name,
                                        struct zr_error *err);

#endif
