/* test_nvme_io.c: the two engines behind io.h: results as the system gives them, registered pieces, time limits */
#include "nvme_help.h"

#include "engine/base/clock.h"
#include "engine/tier/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

static const struct zr_io_backend *const backends[] = { &zr_io_backend_uring, &zr_io_backend_threads };

/* false: the machine does not allow it. */
static bool open_io(struct zr_io *io, const struct zr_io_backend *backend, const struct zr_io_setup *setup)
{
    char refusal[ZR_IO_REFUSAL_BYTES];
    struct zr_error err = { 0 };
    enum zr_code code = zr_io_open(io, backend, setup, refusal, &err);
    if (code == ZR_EGONE) return false;
    if (code) fail_msg("%s", err.text);
    return true;
}

static int open_file(uint64_t bytes)
{
    int fd = open(test_paths[0], O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

/* One request, its result. */
static int32_t one(struct zr_io *io, enum zr_io_way way, uint64_t offset, void *memory, uint32_t bytes)
{
    struct zr_io_done done;
    zr_io_submit(io, &(struct zr_io_request){ .way = way, .offset = offset, .memory = memory, .bytes = bytes });
    while (zr_io_reap(io, &done, 1, 1000000000) == 0)
        continue;
    assert_int_equal(done.slot, 0);
    return done.result;
}

static void results_are_those_of_the_system(void **state)
{
    (void)state;
    char *bytes = aligned_bytes(64 * KIB);
    for (size_t i = 0; i < ZR_COUNT(backends); i++) {
        int fd = open_file(10000);
        struct zr_io_setup setup = { .fds = { fd }, .fd_count = 1, .depth = 4 };
        struct zr_io io;
        if (!open_io(&io, backends[i], &setup)) {
            close(fd);
            continue;
        }
        assert_int_equal(one(&io, ZR_IO_READ, 0, bytes, 16384), 10000);
        assert_int_equal(one(&io, ZR_IO_READ, 8192, bytes, 4096), 10000 - 8192);
        assert_int_equal(one(&io, ZR_IO_READ, 16384, bytes, 4096), 0);
        assert_int_equal(one(&io, ZR_IO_WRITE, 16384, bytes, 8192), 8192);
        assert_int_equal(one(&io, ZR_IO_READ, 16384, bytes, 16384), 8192);
        zr_io_close(&io);

        int fd_read = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        setup.fds[0] = fd_read;
        assert_true(open_io(&io, backends[i], &setup));
        assert_int_equal(one(&io, ZR_IO_WRITE, 0, bytes, 4096), -EBADF);
        zr_io_close(&io);
        close(fd);
        close(fd_read);
    }
    free(bytes);
}

static void memory_in_across_and_outside_of_registered_pieces_works(void **state)
{
    (void)state;
    const uint64_t piece = 16 * KIB, total = 5 * 16 * KIB + 4096;
    for (size_t i = 0; i < ZR_COUNT(backends); i++) {
        char *buffers = aligned_bytes(total), *outside = aligned_bytes(total);
        fill_pattern(buffers, total, 1);
        memcpy(outside, buffers, total);
        int fd = open_file(total);
        struct zr_io_setup setup = {
            .fds = { fd }, .fd_count = 1, .depth = 2, .buffers = buffers, .buffer_bytes = total, .piece_bytes = piece
        };
        struct zr_io io;
        if (open_io(&io, backends[i], &setup)) {
            assert_int_equal(io.registered, backends[i] == &zr_io_backend_uring);
            /* every extent of one to six granules, so that each border is met and crossed */
            for (uint64_t first = 0; first < total / 4096; first++)
                for (uint64_t count = 1; count <= 6 && first + count <= total / 4096; count++) {
                    uint64_t at = first * 4096, bytes = count * 4096;
                    memset(buffers + at, (int)(first * 7 + count), bytes);
                    memset(outside, 0, bytes);
                    assert_int_equal(one(&io, ZR_IO_WRITE, at, buffers + at, (uint32_t)bytes), bytes);
                    assert_int_equal(one(&io, ZR_IO_READ, at, outside, (uint32_t)bytes), bytes);
                    assert_memory_equal(outside, buffers + at, bytes);
                    memset(buffers + at, 0, bytes);
                    assert_int_equal(one(&io, ZR_IO_READ, at, buffers + at, (uint32_t)bytes), bytes);
                    assert_memory_equal(outside, buffers + at, bytes);
                }
            zr_io_close(&io);
        }
        close(fd);
        free(buffers);
        free(outside);
    }
}

static void as_many_as_the_depth_fly_and_each_comes_back_once(void **state)
{
    (void)state;
    enum { DEPTH = 33, FILES = 2 };
    char *bytes = aligned_bytes(DEPTH * 4096);
    for (size_t i = 0; i < ZR_COUNT(backends); i++) {
        int fds[FILES] = { open_file(DEPTH * 4096), open_file(DEPTH * 4096) };
        struct zr_io_setup setup = { .fds = { fds[0], fds[1] }, .fd_count = FILES, .depth = DEPTH };
        struct zr_io io;
        if (open_io(&io, backends[i], &setup)) {
            for (int turn = 0; turn < 20; turn++) {
                for (uint32_t slot = 0; slot < DEPTH; slot++)
                    zr_io_submit(&io, &(struct zr_io_request){ .way = turn % 2 ? ZR_IO_READ : ZR_IO_WRITE,
                                                               .slot = slot,
                                                               .file = slot % FILES,
                                                               .offset = slot * 4096,
                                                               .memory = bytes + slot * 4096,
                                                               .bytes = 4096 });
                unsigned seen[DEPTH] = { 0 };
                struct zr_io_done done[5]; /* fewer than what may be there */
                for (unsigned count = 0; count < DEPTH;) {
                    uint32_t got = zr_io_reap(&io, done, ZR_COUNT(done), 1000000000);
                    for (uint32_t j = 0; j < got; j++) {
                        assert_int_equal(done[j].result, 4096);
                        assert_int_equal(seen[done[j].slot]++, 0);
                    }
                    count += got;
                }
            }
            zr_io_close(&io);
        }
        close(fds[0]);
        close(fds[1]);
    }
    free(bytes);
}

static void reaping_when_nothing_flies_returns_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZR_COUNT(backends); i++) {
        int fd = open_file(4096);
        struct zr_io_setup setup = { .fds = { fd }, .fd_count = 1, .depth = 1 };
        struct zr_io io;
        struct zr_io_done done;
        if (open_io(&io, backends[i], &setup)) {
            assert_int_equal(zr_io_reap(&io, &done, 1, UINT64_C(100000000000)), 0);
            zr_io_close(&io);
        }
        close(fd);
    }
}

/* A pipe gives nothing until somebody writes: the only way to have a request that does not end. */
static void a_time_limit_ends_the_wait_and_keeps_the_request(void **state)
{
    (void)state;
    int ends[2];
    char *bytes = aligned_bytes(4096);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    struct zr_io_setup setup = { .fds = { ends[0] }, .fd_count = 1, .depth = 1 };
    struct zr_io io;
    struct zr_io_done done;
    if (open_io(&io, &zr_io_backend_uring, &setup)) { /* pread does not take pipes */
        uint64_t begin_ns = zr_now_ns();
        zr_io_submit(&io, &(struct zr_io_request){ .way = ZR_IO_READ, .memory = bytes, .bytes = 4096 });
        assert_int_equal(zr_io_reap(&io, &done, 1, 20000000), 0);
        uint64_t took_ns = zr_now_ns() - begin_ns;
        assert_true(took_ns >= 19000000 && took_ns < UINT64_C(5000000000));
        assert_int_equal(write(ends[1], "hello", 5), 5);
        assert_int_equal(zr_io_reap(&io, &done, 1, UINT64_C(5000000000)), 1);
        assert_int_equal(done.result, 5);
        zr_io_close(&io);
    }
    close(ends[0]);
    close(ends[1]);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_system),
        cmocka_unit_test(memory_in_across_and_outside_of_registered_pieces_works),
        cmocka_unit_test(as_many_as_the_depth_fly_and_each_comes_back_once),
        cmocka_unit_test(reaping_when_nothing_flies_returns_at_once),
        cmocka_unit_test(a_time_limit_ends_the_wait_and_keeps_the_request),
    };
    return cmocka_run_group_tests(tests, make_places, remove_places);
}
