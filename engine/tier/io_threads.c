/* io_threads.c: the engine for machines without io_uring: a few threads with pread and pwrite
 *
 * On whole blocks four threads a file reach the ring's rate; what they cost is a switch or two a block. Requests and
 * results travel through two rings of `depth` entries under one lock: neither can overflow, since no more than `depth`
 * are in flight. */
#include "engine/base/fault.h"
#include "engine/tier/io.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 32

struct threads {
    pthread_mutex_t lock; /* guards all below but fds */
    pthread_cond_t asked, answered;
    struct zr_io_request *asks;  /* ring of depth */
    struct zr_io_done *answers;  /* ring of depth */
    uint64_t ask_head, ask_tail; /* taken, put */
    uint64_t done_head, done_tail;
    uint32_t depth;
    bool stop, ready;
    int fds[ZR_IO_FILES_MAX];
    pthread_t thread[THREADS_MAX];
    uint32_t thread_count;
};

static int32_t transfer(int fd, const struct zr_io_request *request)
{
    ssize_t result = request->way == ZR_IO_READ ? pread(fd, request->memory, request->bytes, (off_t)request->offset)
                                                : pwrite(fd, request->memory, request->bytes, (off_t)request->offset);
    return result < 0 ? -errno : (int32_t)result;
}

static void *work(void *argument)
{
    struct threads *threads = argument;
    pthread_mutex_lock(&threads->lock);
    for (;;) {
        while (threads->ask_head == threads->ask_tail && !threads->stop)
            pthread_cond_wait(&threads->asked, &threads->lock);
        if (threads->ask_head == threads->ask_tail) break;
        struct zr_io_request request = threads->asks[threads->ask_head++ % threads->depth];
        pthread_mutex_unlock(&threads->lock);
        int32_t result = transfer(threads->fds[request.file], &request);
        pthread_mutex_lock(&threads->lock);
        threads->answers[threads->done_tail++ % threads->depth] =
            (struct zr_io_done){ .slot = request.slot, .result = result };
        pthread_cond_signal(&threads->answered);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

static enum zr_code threads_open(struct zr_io *io, const struct zr_io_setup *setup, char *refusal, struct zr_error *err)
{
    (void)refusal; /* nothing is registered, and nobody expects it */
    struct threads *threads = calloc(1, sizeof *threads);
    io->inside = threads;
    if (!threads) return zr_fail(err, ZR_EIO, "no memory for I/O threads");
    threads->depth = setup->depth;
    memcpy(threads->fds, setup->fds, sizeof threads->fds);
    threads->asks = calloc(setup->depth, sizeof *threads->asks);
    threads->answers = calloc(setup->depth, sizeof *threads->answers);
    if (!threads->asks || !threads->answers) return zr_fail(err, ZR_EIO, "no memory for I/O threads");

    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->asked, NULL);
    pthread_cond_init(&threads->answered, &clock);
    pthread_condattr_destroy(&clock);
    threads->ready = true;

    uint32_t count = setup->threads ? setup->threads : 4 * setup->fd_count;
    if (count > THREADS_MAX) count = THREADS_MAX;
    if (count > setup->depth) count = setup->depth;
    enum zr_code code = ZR_OK;
    while (threads->thread_count < count && !code) {
        code = zr_io_thread(&threads->thread[threads->thread_count], work, threads, "zr-io", err);
        if (!code) threads->thread_count++;
    }
    return code;
}

static void threads_submit(struct zr_io *io, const struct zr_io_request *request)
{
    struct threads *threads = io->inside;
    pthread_mutex_lock(&threads->lock);
    assert(threads->ask_tail - threads->ask_head < threads->depth);
    threads->asks[threads->ask_tail++ % threads->depth] = *request;
    pthread_cond_signal(&threads->asked);
    pthread_mutex_unlock(&threads->lock);
}

static void threads_flush(struct zr_io *io)
{
    (void)io; /* a thread was woken when it was submitted */
}

static uint32_t threads_reap(struct zr_io *io, struct zr_io_done *done, uint32_t room, uint64_t timeout_ns)
{
    struct threads *threads = io->inside;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ns / 1000000000);
    until.tv_nsec += (long)(timeout_ns % 1000000000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    uint32_t count = 0;
    pthread_mutex_lock(&threads->lock);
    while (threads->done_head == threads->done_tail)
        if (pthread_cond_timedwait(&threads->answered, &threads->lock, &until) == ETIMEDOUT) break;
    while (count < room && threads->done_head != threads->done_tail)
        done[count++] = threads->answers[threads->done_head++ % threads->depth];
    pthread_mutex_unlock(&threads->lock);
    return count;
}

static void threads_close(struct zr_io *io)
{
    struct threads *threads = io->inside;
    io->inside = NULL;
    if (!threads) return;
    if (threads->ready) {
        pthread_mutex_lock(&threads->lock);
        threads->stop = true;
        pthread_cond_broadcast(&threads->asked);
        pthread_mutex_unlock(&threads->lock);
        for (uint32_t i = 0; i < threads->thread_count; i++)
            pthread_join(threads->thread[i], NULL);
        pthread_cond_destroy(&threads->asked);
        pthread_cond_destroy(&threads->answered);
        pthread_mutex_destroy(&threads->lock);
    }
    free(threads->asks);
    free(threads->answers);
    free(threads);
}

const struct zr_io_backend zr_io_backend_threads = { .name = "threads",
                                                     .open = threads_open,
                                                     .submit = threads_submit,
                                                     .flush = threads_flush,
                                                     .reap = threads_reap,
                                                     .close = threads_close };
