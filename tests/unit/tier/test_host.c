/* test_host.c: the host tier's one area */
#include "engine/base/fault.h"
#include "engine/base/place.h"
#include "engine/tier/host.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

struct fixture {
    struct zr_device *device;
    struct zr_pool *pool;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    struct zr_error err = { 0 };
    struct zr_device_config config = { .kind = ZR_DEVICE_CPU, .threads = 1 };
    if (zr_device_open(&config, &fixture.device, &err) || zr_pool_make(2, &fixture.pool, &err)) return -1;
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    zr_pool_free(fixture->pool);
    zr_device_close(fixture->device);
    return 0;
}

static struct zr_host *open_host(const struct fixture *fixture, uint64_t bytes)
{
    struct zr_host *host = NULL;
    struct zr_error err = { 0 };
    enum zr_code code = zr_host_open(fixture->device, bytes, fixture->pool, &host, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(code, ZR_OK);
    return host;
}

/* The kernel touches the byte for us, and says so instead of a signal. */
static bool reachable(const char *at)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    bool reached = write(ends[1], at, 1) == 1;
    assert_true(reached || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return reached;
}

static void the_area_is_zeroed_resident_and_as_large_as_asked(void **state)
{
    const uint64_t sizes[] = { 1, 4096, 3 * 4096, 2 * MIB, 65 * MIB, 131 * MIB + 4096 };
    for (size_t i = 0; i < ZR_COUNT(sizes); i++) {
        struct zr_host *host = open_host(*state, sizes[i]);
        const struct zr_host_facts *facts = zr_host_facts(host);
        char *memory = zr_host_memory(host);
        uint64_t whole = (sizes[i] + 4095) / 4096 * 4096;
        assert_int_equal(facts->bytes, whole);
        assert_true(facts->huge_bytes <= whole);
        assert_true((uintptr_t)memory % (sizes[i] >= 2 * MIB ? 2 * MIB : 4096) == 0);

        unsigned char *resident = calloc(whole / 4096, 1);
        assert_non_null(resident);
        assert_int_equal(mincore(memory, whole, resident), 0);
        for (uint64_t page = 0; page < whole / 4096; page++) {
            assert_true(resident[page] & 1);
            for (uint64_t byte = 0; byte < 4096; byte += 512)
                assert_int_equal(memory[page * 4096 + byte], 0);
        }
        free(resident);
        assert_true(reachable(memory + whole - 1));
        assert_false(reachable(memory + whole));
        assert_false(reachable(memory - 1));
        memset(memory, 1, sizes[i]);
        zr_host_close(host);
    }
}

static void huge_pages_are_counted_as_the_kernel_counts_them(void **state)
{
    char line[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file && !fgets(line, sizeof line, file)) line[0] = '\0';
    if (file) fclose(file);
    struct zr_host *one = open_host(*state, 32 * MIB), *two = open_host(*state, 16 * MIB + 4096);
    uint64_t huge_one = zr_host_facts(one)->huge_bytes, huge_two = zr_host_facts(two)->huge_bytes;
    assert_true(huge_one <= 32 * MIB && huge_two <= 16 * MIB); /* the last 4 KiB cannot be huge; nor a neighbour's */
    assert_true(huge_one % (2 * MIB) == 0 && huge_two % (2 * MIB) == 0);
    if (!line[0] || strstr(line, "[never]")) {
        assert_int_equal(huge_one, 0);
    } else {
        print_message("huge pages: %llu of 32 MiB\n", (unsigned long long)(huge_one / MIB));
    }
    zr_host_close(one);
    zr_host_close(two);
}

static void a_child_of_a_fork_does_not_get_it(void **state)
{
    struct zr_host *host = open_host(*state, 4096);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        unsigned char resident;
        _exit(mincore(zr_host_memory(host), 4096, &resident) != 0 && errno == ENOMEM ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    zr_host_close(host);
}

static void more_than_there_is_is_refused_before_the_first_touch(void **state)
{
    const struct fixture *fixture = *state;
    struct zr_place place;
    zr_place_look(&place);
    const uint64_t sizes[] = { place.memory_bytes, place.memory_bytes * 2, (uint64_t)1 << 50, UINT64_MAX - 4096 };
    for (size_t i = 0; i < ZR_COUNT(sizes); i++) {
        struct zr_host *host = NULL;
        struct zr_error err = { 0 };
        assert_int_equal(zr_host_open(fixture->device, sizes[i], fixture->pool, &host, &err), ZR_EFULL);
        assert_null(host);
        assert_non_null(strstr(err.text, "asked for"));
        assert_non_null(strstr(err.text, "free"));
        assert_true(strstr(err.text, "this machine") || strstr(err.text, "control group"));
    }
}

static void nothing_asked_for_is_an_area_without_memory(void **state)
{
    struct zr_host *host = open_host(*state, 0);
    assert_null(zr_host_memory(host));
    assert_int_equal(zr_host_facts(host)->bytes, 0);
    zr_host_close(host);
    zr_host_close(NULL);
}

#ifdef ZR_FAULT_POINTS
static void each_call_that_can_fail_does_and_says_why(void **state)
{
    const struct fixture *fixture = *state;
    uint32_t nth = 1;
    for (;; nth++) {
        struct zr_host *host = NULL;
        struct zr_error err = { 0 };
        zr_fault_arm(NULL, nth);
        enum zr_code code = zr_host_open(fixture->device, 3 * MIB, fixture->pool, &host, &err);
        bool fired = zr_fault_fired();
        zr_fault_disarm();
        if (!fired) {
            assert_int_equal(code, ZR_OK);
            zr_host_close(host);
            break;
        }
        assert_int_not_equal(code, ZR_OK);
        assert_null(host);
        assert_string_not_equal(err.text, "");
    }
    assert_true(nth > 4);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_area_is_zeroed_resident_and_as_large_as_asked),
        cmocka_unit_test(huge_pages_are_counted_as_the_kernel_counts_them),
        cmocka_unit_test(a_child_of_a_fork_does_not_get_it),
        cmocka_unit_test(more_than_there_is_is_refused_before_the_first_touch),
        cmocka_unit_test(nothing_asked_for_is_an_area_without_memory),
#ifdef ZR_FAULT_POINTS
        cmocka_unit_test(each_call_that_can_fail_does_and_says_why),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
