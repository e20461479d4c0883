/* io.c: the gate in front of the I/O engines: checks what is asked, and lets tests break what comes back */
#include "engine/tier/io.h"
#include "engine/base/fault.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a completion can be turned into. `short` is not here: it is done for real, by asking the system for less. */
static const struct {
    const char *point[2]; /* by way */
    int32_t result;
} disturbances[] = {
    { { "nvme.read.eio", "nvme.write.eio" }, -EIO },
    { { "nvme.read.zero", "nvme.write.zero" }, 0 },
    { { "nvme.read.eagain", "nvme.write.eagain" }, -EAGAIN },
    { { "nvme.read.eintr", "nvme.write.eintr" }, -EINTR },
    { { NULL, "nvme.write.enospc" }, -ENOSPC },
};

static uint32_t shortened(const struct zr_io_request *request)
{
    static const char *const point[2] = { "nvme.read.short", "nvme.write.short" };
    if (request->bytes < 2 * ZR_IO_ALIGN || !zr_fault(point[request->way])) return request->bytes;
    return request->bytes / 2 & ~(ZR_IO_ALIGN - 1);
}

static int32_t disturbed(const struct zr_io_request *request, int32_t result)
{
    for (size_t i = 0; i < ZR_COUNT(disturbances); i++) {
        const char *point = disturbances[i].point[request->way];
        if (point && zr_fault(point)) return disturbances[i].result;
    }
    if (request->way == ZR_IO_READ && result > 0 && zr_fault("nvme.read.flip"))
        ((unsigned char *)request->memory)[result / 2] ^= 0x10;
    return result;
}

static void check(const struct zr_io_request *request)
{
    assert(request->bytes > 0 && request->bytes % ZR_IO_ALIGN == 0);
    assert(request->offset % ZR_IO_ALIGN == 0 && (uintptr_t)request->memory % ZR_IO_ALIGN == 0);
}

enum zr_code zr_io_open(struct zr_io *io, const struct zr_io_backend *engine, const struct zr_io_setup *setup,
                        char refusal[ZR_IO_REFUSAL_BYTES], struct zr_error *err)
{
    assert(setup->depth >= 1 && setup->depth <= 4096 && setup->fd_count >= 1 && setup->fd_count <= ZR_IO_FILES_MAX);
    *io = (struct zr_io){ .engine = engine, .depth = setup->depth };
    refusal[0] = '\0';
    io->requests = calloc(setup->depth, sizeof *io->requests);
    io->flying = calloc(setup->depth, sizeof *io->flying);
    enum zr_code code = ZR_OK;
    if (!io->requests || !io->flying || zr_fault("nvme.io.memory"))
        code = zr_fail(err, ZR_EIO, "no memory for %u requests", setup->depth);
    else
        code = engine->open(io, setup, refusal, err);
    if (code) zr_io_close(io);
    return code;
}

void zr_io_close(struct zr_io *io)
{
    assert(io->in_flight == 0);
    if (io->engine) io->engine->close(io);
    free(io->requests);
    free(io->flying);
    *io = (struct zr_io){ .engine = NULL };
}

void zr_io_submit(struct zr_io *io, const struct zr_io_request *request)
{
    check(request);
    assert(request->slot < io->depth && !io->flying[request->slot]); /* I3 */
    struct zr_io_request *kept = &io->requests[request->slot];
    *kept = *request;
    kept->bytes = shortened(request);
    io->flying[request->slot] = true;
    io->in_flight++;
    io->engine->submit(io, kept);
}

void zr_io_flush(struct zr_io *io)
{
    io->engine->flush(io);
}

uint32_t zr_io_reap(struct zr_io *io, struct zr_io_done *done, uint32_t room, uint64_t timeout_ns)
{
    if (io->in_flight == 0) return 0;
    uint32_t count = io->engine->reap(io, done, room, timeout_ns);
    for (uint32_t i = 0; i < count; i++) {
        assert(done[i].slot < io->depth && io->flying[done[i].slot]);
        io->flying[done[i].slot] = false;
        done[i].result = disturbed(&io->requests[done[i].slot], done[i].result);
    }
    assert(count <= io->in_flight);
    io->in_flight -= count;
    return count;
}

int32_t zr_io_now(int fd, const struct zr_io_request *request)
{
    check(request);
    const size_t bytes = shortened(request);
    ssize_t result = request->way == ZR_IO_READ ? pread(fd, request->memory, bytes, (off_t)request->offset)
                                                : pwrite(fd, request->memory, bytes, (off_t)request->offset);
    return disturbed(request, result < 0 ? -errno : (int32_t)result);
}

enum zr_code zr_io_thread(pthread_t *ret_thread, void *(*body)(void *), void *argument, const char *name,
                          struct zr_error *err)
{
    /* Signals are for the threads that expect them; a new thread inherits the mask. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = zr_fault("nvme.thread") ? EAGAIN : pthread_create(ret_thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return zr_fail(err, ZR_EIO, "cannot start thread '%s': %s", name, strerrordesc_np(error));
    char cut[16];
    snprintf(cut, sizeof cut, "%s", name);
    pthread_setname_np(*ret_thread, cut);
    return ZR_OK;
}
