/* test_nvme_fault.c: one failing call at a time: nothing is lost in silence, nobody hangs, nothing leaks */
#include "nvme_help.h"

#include "engine/base/fault.h"
#include "engine/tier/nvme_store.h"
#include <stdbool.h>

#ifdef ZR_FAULT_POINTS

#define BYTES (1024u * 1024u)
#define BLOCK (64u * 1024u) /* 16 requests each way */

static struct zr_device *device;

static int set_up(void **state)
{
    device = open_host_device();
    return make_places(state);
}

static int tear_down(void **state)
{
    zr_fault_disarm();
    zr_device_close(device);
    return remove_places(state);
}

struct round {
    struct zr_nvme *nvme;
    struct zr_nvme_queue *queue[2];
    struct zr_timeline *timeline;
    unsigned char *sent, *back;
    uint64_t value;
};

static enum zr_code open_round(struct round *round, const struct zr_nvme_config *config, struct zr_error *err)
{
    *round = (struct round){ .sent = aligned_bytes(BYTES), .back = aligned_bytes(BYTES) };
    fill_pattern(round->sent, BYTES, 99);
    enum zr_code code = zr_nvme_open(config, &round->nvme, err);
    for (int way = 0; way < 2 && !code; way++)
        code = zr_nvme_queue_open(round->nvme, way ? ZR_NVME_WRITE : ZR_NVME_READ, way ? "write" : "read", 32,
                                  &round->queue[way], err);
    if (!code) code = zr_timeline_make(&round->timeline, err);
    return code;
}

static void close_round(struct round *round)
{
    for (int way = 0; way < 2; way++)
        zr_nvme_queue_close(round->queue[way]);
    zr_nvme_close(round->nvme);
    if (round->timeline) zr_timeline_free(round->timeline);
    free(round->sent);
    free(round->back);
}

/* Writes all, reads all, through the queues; what the device says afterwards. Never hangs. */
static enum zr_code go_round(struct round *round, struct zr_error *err)
{
    const uint64_t half = BYTES / 2;
    memset(round->back, 0xEE, BYTES);
    for (int i = 0; i < 2; i++) {
        zr_nvme_queue_put(round->queue[1], i * half, round->sent + i * half, half, NULL);
        zr_nvme_queue_signal(round->queue[1], round->timeline, ++round->value);
    }
    zr_nvme_queue_wait(round->queue[0], round->timeline, round->value);
    zr_nvme_queue_put(round->queue[0], 0, round->back, BYTES, NULL);
    zr_nvme_queue_signal(round->queue[0], round->timeline, ++round->value);
    assert_true(zr_timeline_wait_for(round->timeline, round->value, UINT64_C(20000000000)));
    return zr_device_failure(device, err);
}

static struct zr_nvme_config round_config(enum zr_io_engine engine)
{
    struct zr_nvme_config config = small_config(BYTES, 2, device);
    config.engine = engine;
    config.block_bytes = BLOCK;
    config.depth = 4;
    return config;
}

static void every_transfer_that_fails_is_noticed_and_none_that_can_go_on_stops(void **state)
{
    (void)state;
    static const struct {
        const char *point;
        enum zr_code code;
        const char *part; /* of the text */
    } cases[] = {
        { "nvme.read.short", ZR_OK, "" },
        { "nvme.write.short", ZR_OK, "" },
        { "nvme.read.eagain", ZR_OK, "" },
        { "nvme.write.eagain", ZR_OK, "" },
        { "nvme.read.eintr", ZR_OK, "" },
        { "nvme.write.eintr", ZR_OK, "" },
        { "nvme.read.eio", ZR_EIO, "read of 65536 bytes" },
        { "nvme.write.eio", ZR_EIO, "write of 65536 bytes" },
        { "nvme.read.zero", ZR_EIO, "moved 0: the rest does not come" },
        { "nvme.write.zero", ZR_EIO, "moved 0: the rest does not come" },
        { "nvme.write.enospc", ZR_EFULL, "No space left on device" },
        { "nvme.read.flip", ZR_EIO, "does not hold the bytes of its last write" },
    };
    static const enum zr_io_engine engines[] = { ZR_IO_AUTO, ZR_IO_THREADS };
    for (size_t engine = 0; engine < ZR_COUNT(engines); engine++) {
        struct round round;
        struct zr_error err = { 0 };
        struct zr_nvme_config config = round_config(engines[engine]);
        config.verify = true;
        assert_int_equal(open_round(&round, &config, &err), ZR_OK);
        for (size_t i = 0; i < ZR_COUNT(cases); i++)
            for (uint32_t nth = 1; nth <= 17; nth++) {
                zr_fault_arm(cases[i].point, nth);
                err.text[0] = '\0';
                enum zr_code code = go_round(&round, &err);
                bool fired = zr_fault_fired();
                zr_fault_disarm();
                assert_int_equal(fired, nth <= 16);
                if (code != (fired ? cases[i].code : ZR_OK) || (fired && !strstr(err.text, cases[i].part)))
                    fail_msg("%s at request %u: %s: %s", cases[i].point, nth, zr_code_name(code), err.text);
                if (code)
                    zr_device_clear_failure(device); /* and the next round is well */
                else
                    assert_memory_equal(round.sent, round.back, BYTES);
            }
        close_round(&round);
    }
}

static void transfers_of_the_calling_thread_fail_alike(void **state)
{
    (void)state;
    struct round round;
    struct zr_error err = { 0 };
    struct zr_nvme_config config = round_config(ZR_IO_AUTO);
    config.verify = true;
    assert_int_equal(open_round(&round, &config, &err), ZR_OK);
    static const struct {
        const char *point;
        enum zr_code written, read;
    } cases[] = {
        { "nvme.read.short", ZR_OK, ZR_OK },       { "nvme.write.short", ZR_OK, ZR_OK },
        { "nvme.write.eagain", ZR_OK, ZR_OK },     { "nvme.read.eintr", ZR_OK, ZR_OK },
        { "nvme.read.eio", ZR_OK, ZR_EIO },        { "nvme.read.zero", ZR_OK, ZR_EIO },
        { "nvme.write.enospc", ZR_EFULL, ZR_EIO }, /* the block that failed is not what it should be */
        { "nvme.read.flip", ZR_OK, ZR_EIO },
    };
    for (size_t i = 0; i < ZR_COUNT(cases); i++) {
        zr_fault_arm(cases[i].point, 3);
        memset(round.back, 0xEE, BYTES);
        assert_int_equal(zr_nvme_write(round.nvme, 0, round.sent, BYTES, &err), cases[i].written);
        assert_int_equal(zr_nvme_read(round.nvme, 0, round.back, BYTES, &err), cases[i].read);
        assert_true(zr_fault_fired());
        if (cases[i].read == ZR_OK) assert_memory_equal(round.sent, round.back, BYTES);
        zr_fault_disarm();
    }
    close_round(&round);
}

/* The n-th call that can fail does, until a run has no n-th. */
static void any_one_failure_ends_in_a_text_or_in_right_bytes(void **state)
{
    (void)state;
    static const enum zr_io_engine engines[] = { ZR_IO_AUTO, ZR_IO_URING, ZR_IO_THREADS };
    for (size_t engine = 0; engine < ZR_COUNT(engines); engine++) {
        unsigned failures = 0, survived = 0;
        for (uint32_t nth = 1;; nth++) {
            struct round round;
            struct zr_error err = { 0 };
            struct zr_nvme_config config = round_config(engines[engine]);
            config.verify = true;
            config.block_bytes = 4 * BLOCK;
            unsigned descriptors = open_descriptors(), threads = entries_of("/proc/self/task");
            zr_fault_arm(NULL, nth);
            enum zr_code code = open_round(&round, &config, &err);
            if (!code) code = go_round(&round, &err);
            if (!code) assert_memory_equal(round.sent, round.back, BYTES);
            bool fired = zr_fault_fired();
            zr_fault_disarm();
            close_round(&round);
            zr_device_clear_failure(device);
            if (code) assert_true(fired && err.text[0]);
            assert_int_equal(open_descriptors(), descriptors);
            if (!SANITIZED) assert_int_equal(entries_of("/proc/self/task"), threads);
            for (int i = 0; i < 2; i++)
                assert_int_equal(entries_of(test_paths[i]), 2);
            if (!fired) break;
            if (code)
                failures++;
            else
                survived++;
        }
        assert_true(failures > 20 && survived > 20);
    }
}

static void without_direct_io_the_choice_is_the_users(void **state)
{
    (void)state;
    struct round round;
    struct zr_error err = { 0 };
    struct zr_nvme_facts facts;
    struct zr_nvme_config config = round_config(ZR_IO_AUTO);
    zr_fault_arm("nvme.open.direct", 1);
    assert_int_equal(open_round(&round, &config, &err), ZR_EINPUT);
    assert_non_null(strstr(err.text, "zerod.nvme.allow_buffered"));
    assert_non_null(strstr(err.text, test_paths[0]));
    close_round(&round);

    config.allow_buffered = true;
    zr_fault_arm("nvme.open.direct", 1);
    assert_int_equal(open_round(&round, &config, &err), ZR_OK);
    zr_nvme_facts(round.nvme, &facts);
    assert_false(facts.direct);
    assert_non_null(strstr(facts.warning, "page cache"));
    assert_int_equal(go_round(&round, &err), ZR_OK);
    assert_memory_equal(round.sent, round.back, BYTES);
    close_round(&round);
}

static void without_nameless_files_a_name_is_there_for_a_moment_only(void **state)
{
    (void)state;
    struct round round;
    struct zr_error err = { 0 };
    struct zr_nvme_config config = round_config(ZR_IO_AUTO);
    zr_fault_arm("nvme.open.tmpfile", 1);
    assert_int_equal(open_round(&round, &config, &err), ZR_OK);
    assert_true(zr_fault_fired());
    assert_int_equal(entries_of(test_paths[0]), 2);
    assert_int_equal(go_round(&round, &err), ZR_OK);
    assert_memory_equal(round.sent, round.back, BYTES);
    close_round(&round);
}

static void a_reservation_that_fails_is_a_full_disk(void **state)
{
    (void)state;
    struct round round;
    struct zr_error err = { 0 };
    struct zr_nvme_config config = round_config(ZR_IO_AUTO);
    zr_fault_arm("nvme.open.fallocate", 2);
    assert_int_equal(open_round(&round, &config, &err), ZR_EFULL);
    assert_non_null(strstr(err.text, test_paths[1]));
    close_round(&round);
}

static void a_refused_registration_is_one_warning(void **state)
{
    (void)state;
    struct round round;
    struct zr_error err = { 0 };
    struct zr_nvme_facts facts;
    struct zr_nvme_config config = round_config(ZR_IO_URING);
    config.buffers = aligned_bytes(4 * BYTES);
    config.buffer_bytes = 4 * BYTES;
    zr_fault_arm("nvme.ring.register", 1);
    enum zr_code code = open_round(&round, &config, &err);
    zr_fault_disarm();
    if (code == ZR_EGONE) skip();
    assert_int_equal(code, ZR_OK);
    zr_nvme_facts(round.nvme, &facts);
    assert_false(facts.registered);
    const char *setting = strstr(facts.warning, "LimitMEMLOCK=");
    assert_non_null(setting);
    assert_non_null(strstr(facts.warning, "4 MiB"));
    assert_null(strstr(facts.warning, "; I/O buffers")); /* not once for each ring */
    assert_int_equal(go_round(&round, &err), ZR_OK);
    assert_memory_equal(round.sent, round.back, BYTES);
    close_round(&round);
    free(config.buffers);
}

static void a_ring_that_is_refused_is_replaced_or_reported(void **state)
{
    (void)state;
    struct round round;
    struct zr_error err = { 0 };
    struct zr_nvme_facts facts;
    struct zr_nvme_config config = round_config(ZR_IO_URING);
    zr_fault_arm("nvme.ring.setup", 1);
    assert_int_equal(open_round(&round, &config, &err), ZR_EGONE);
    assert_non_null(strstr(err.text, "io_uring"));
    close_round(&round);

    config.engine = ZR_IO_AUTO;
    zr_fault_arm("nvme.ring.setup", 1);
    assert_int_equal(open_round(&round, &config, &err), ZR_OK);
    zr_nvme_facts(round.nvme, &facts);
    assert_string_equal(facts.engine, "threads");
    assert_non_null(strstr(facts.warning, "I/O by threads: io_uring is not allowed here"));
    close_round(&round);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transfer_that_fails_is_noticed_and_none_that_can_go_on_stops),
        cmocka_unit_test(transfers_of_the_calling_thread_fail_alike),
        cmocka_unit_test(any_one_failure_ends_in_a_text_or_in_right_bytes),
        cmocka_unit_test(without_direct_io_the_choice_is_the_users),
        cmocka_unit_test(without_nameless_files_a_name_is_there_for_a_moment_only),
        cmocka_unit_test(a_reservation_that_fails_is_a_full_disk),
        cmocka_unit_test(a_refused_registration_is_one_warning),
        cmocka_unit_test(a_ring_that_is_refused_is_replaced_or_reported),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

#else

static void failure_points_are_not_compiled_in(void **state)
{
    (void)state;
    skip(); /* configure with -DZR_FAULT_POINTS=ON */
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(failure_points_are_not_compiled_in) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
