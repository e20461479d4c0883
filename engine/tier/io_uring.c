/* io_uring.c: the engine that hands blocks to the kernel through a ring
 *
 * The ring belongs to one thread (SINGLE_ISSUER) and its completions are delivered when that thread waits for them
 * (DEFER_TASKRUN), so no other thread is ever interrupted for them. Older kernels refuse these flags; the next set is
 * tried. Files are registered; so is the host area, in pieces that the kernel accepts. Registered memory counts against
 * RLIMIT_MEMLOCK: where that is too small the ring works without, at the price of some processor time. */
#include "engine/base/fault.h"
#include "engine/base/span.h"
#include "engine/base/text.h"
#include "engine/tier/io.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct uring {
    struct io_uring ring;
    bool ring_open, files;
    char *buffers; /* NULL: not registered */
    uint64_t buffer_bytes, piece_bytes;
};

/* What the administrator set: 0 allowed, 1 for a group only, 2 for nobody; -1: no such setting. */
static int disabled_setting(void)
{
    FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
    int value = -1;
    if (!file) return -1;
    if (fscanf(file, "%d", &value) != 1) value = -1;
    fclose(file);
    return value;
}

static enum zr_code refused(int error, struct zr_error *err)
{
    int setting = disabled_setting();
    if (error == EPERM && setting > 0)
        return zr_fail(
            err, ZR_EGONE,
            "io_uring is not allowed here: kernel.io_uring_disabled is %d (sysctl kernel.io_uring_disabled=0 "
            "allows it)",
            setting);
    if (error == EPERM || error == EACCES)
        return zr_fail(err, ZR_EGONE,
                       "io_uring is not allowed here (%s): most likely the seccomp profile of a container or service, "
                       "which has to allow io_uring_setup, io_uring_enter and io_uring_register",
                       strerrordesc_np(error));
    if (error == ENOSYS)
        return zr_fail(
            err, ZR_EGONE,
            "io_uring_setup is not there (%s): a kernel without io_uring, or a seccomp profile that hides it",
            strerrordesc_np(error));
    if (error == ENOMEM)
        return zr_fail(err, ZR_EGONE,
                       "no memory for an io_uring ring: RLIMIT_MEMLOCK may be too small (LimitMEMLOCK= in the service "
                       "unit)");
    return zr_fail(err, ZR_EGONE, "io_uring_setup: %s", strerrordesc_np(error));
}

static enum zr_code open_ring(struct uring *uring, uint32_t depth, struct zr_error *err)
{
    static const unsigned flags[] = {
        IORING_SETUP_CLAMP | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* Linux 6.1 */
        IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN,                               /* Linux 5.19 */
        IORING_SETUP_CLAMP,
    };
    int error = EINVAL;
    for (size_t i = 0; i < ZR_COUNT(flags) && error == EINVAL; i++)
        error = zr_fault("nvme.ring.setup") ? EPERM : -io_uring_queue_init(depth, &uring->ring, flags[i]);
    if (error) return refused(error, err);
    uring->ring_open = true;
    if (!(uring->ring.features & IORING_FEAT_EXT_ARG))
        return zr_fail(err, ZR_EGONE, "this kernel's io_uring cannot wait with a time limit (Linux 5.11 can)");
    io_uring_register_ring_fd(&uring->ring); /* saves a look-up per call where it is to be had */
    return ZR_OK;
}

static void register_buffers(struct uring *uring, const struct zr_io_setup *setup, char *refusal)
{
    if (!setup->buffers || setup->buffer_bytes == 0) return;
    const uint64_t piece = setup->piece_bytes ? setup->piece_bytes : ZR_IO_PIECE_BYTES;
    const uint32_t count = (uint32_t)zr_divide_up(setup->buffer_bytes, piece);
    struct iovec *pieces = calloc(count, sizeof *pieces);
    int error = ENOMEM;
    if (pieces) {
        for (uint32_t i = 0; i < count; i++)
            pieces[i] = (struct iovec){ .iov_base = (char *)setup->buffers + i * piece,
                                        .iov_len = zr_min_u64(piece, setup->buffer_bytes - i * piece) };
        error = zr_fault("nvme.ring.register") ? ENOMEM : -io_uring_register_buffers(&uring->ring, pieces, count);
        free(pieces);
    }
    if (error == 0) {
        uring->buffers = setup->buffers;
        uring->buffer_bytes = setup->buffer_bytes;
        uring->piece_bytes = piece;
        return;
    }
    struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
    getrlimit(RLIMIT_MEMLOCK, &limit);
    char need_text[24], limit_text[24];
    if (error == ENOMEM)
        snprintf(refusal, ZR_IO_REFUSAL_BYTES,
                 "I/O buffers are not registered: each of two rings needs %s of locked memory (RLIMIT_MEMLOCK is %s); "
                 "set LimitMEMLOCK=infinity, or at least LimitMEMLOCK=%" PRIu64,
                 zr_text_bytes(need_text, setup->buffer_bytes),
                 limit.rlim_cur == RLIM_INFINITY ? "unlimited" : zr_text_bytes(limit_text, limit.rlim_cur),
                 2 * setup->buffer_bytes + (UINT64_C(8) << 20));
    else
        snprintf(refusal, ZR_IO_REFUSAL_BYTES, "I/O buffers are not registered: %s", strerrordesc_np(error));
}

static enum zr_code uring_open(struct zr_io *io, const struct zr_io_setup *setup, char *refusal, struct zr_error *err)
{
    struct uring *uring = calloc(1, sizeof *uring);
    io->inside = uring;
    if (!uring) return zr_fail(err, ZR_EIO, "no memory for a ring");
    enum zr_code code = open_ring(uring, setup->depth, err);
    if (code) return code;
    int error =
        zr_fault("nvme.ring.files") ? EMFILE : -io_uring_register_files(&uring->ring, setup->fds, setup->fd_count);
    if (error) return zr_fail(err, ZR_EGONE, "io_uring does not take the files: %s", strerrordesc_np(error));
    uring->files = true;
    register_buffers(uring, setup, refusal);
    io->registered = uring->buffers != NULL;
    return ZR_OK;
}

/* The number of the piece that has all of the request's memory, or -1. */
static int piece_of(const struct uring *uring, const struct zr_io_request *request)
{
    if (!uring->buffers) return -1;
    uintptr_t base = (uintptr_t)uring->buffers, at = (uintptr_t)request->memory;
    if (at < base || !zr_inside(at - base, request->bytes, uring->buffer_bytes)) return -1;
    uint64_t first = (at - base) / uring->piece_bytes, last = (at - base + request->bytes - 1) / uring->piece_bytes;
    return first == last ? (int)first : -1;
}

static void uring_submit(struct zr_io *io, const struct zr_io_request *request)
{
    struct uring *uring = io->inside;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (!sqe) { /* CLAMP gave fewer entries than asked for: hand over what is there */
        while (io_uring_submit(&uring->ring) < 0)
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL); /* the kernel is short of memory */
        sqe = io_uring_get_sqe(&uring->ring);
        assert(sqe);
    }
    int piece = piece_of(uring, request);
    int file = (int)request->file;
    if (request->way == ZR_IO_READ && piece >= 0)
        io_uring_prep_read_fixed(sqe, file, request->memory, request->bytes, request->offset, piece);
    else if (request->way == ZR_IO_READ)
        io_uring_prep_read(sqe, file, request->memory, request->bytes, request->offset);
    else if (piece >= 0)
        io_uring_prep_write_fixed(sqe, file, request->memory, request->bytes, request->offset, piece);
    else
        io_uring_prep_write(sqe, file, request->memory, request->bytes, request->offset);
    io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, request->slot);
}

static void uring_flush(struct zr_io *io)
{
    struct uring *uring = io->inside;
    io_uring_submit(&uring->ring); /* what it cannot take now goes with the next reap */
}

static uint32_t uring_reap(struct zr_io *io, struct zr_io_done *done, uint32_t room, uint64_t timeout_ns)
{
    struct uring *uring = io->inside;
    struct io_uring_cqe *cqe = NULL;
    struct __kernel_timespec timeout = { .tv_sec = (int64_t)(timeout_ns / 1000000000),
                                         .tv_nsec = (long long)(timeout_ns % 1000000000) };
    int result = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &timeout, NULL);
    if (result == -EAGAIN || result == -EBUSY) /* the kernel is short of memory: what is queued stays queued */
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    else
        assert(result >= 0 || result == -ETIME || result == -EINTR);

    unsigned head, count = 0;
    io_uring_for_each_cqe(&uring->ring, head, cqe)
    {
        if (count == room) break;
        done[count++] = (struct zr_io_done){ .slot = (uint32_t)io_uring_cqe_get_data64(cqe), .result = cqe->res };
    }
    io_uring_cq_advance(&uring->ring, count);
    return count;
}

static void uring_close(struct zr_io *io)
{
    struct uring *uring = io->inside;
    if (uring && uring->ring_open) {
        /* The kernel takes a closed ring apart some time later. What is taken back before is free at once: the space of
         * the files, and what was charged for locked memory. */
        if (uring->buffers) io_uring_unregister_buffers(&uring->ring);
        if (uring->files) io_uring_unregister_files(&uring->ring);
        io_uring_queue_exit(&uring->ring);
    }
    free(uring);
    io->inside = NULL;
}

const struct zr_io_backend zr_io_backend_uring = { .name = "io_uring",
                                                   .open = uring_open,
                                                   .submit = uring_submit,
                                                   .flush = uring_flush,
                                                   .reap = uring_reap,
                                                   .close = uring_close };
