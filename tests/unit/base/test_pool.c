/* test_pool.c: parallel loops: every item once, whatever the threads, whoever sleeps */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "engine/base/pool.h"
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { ITEMS = 97, LOOPS = 3000 };

struct loop {
    uint32_t runs[ITEMS], worker[ITEMS], threads; /* plain numbers: two threads on one item would race */
    uint64_t number, seen[ITEMS];
    uint32_t slow; /* this item takes long */
};

static struct zr_pool *pool_of(uint32_t threads)
{
    struct zr_pool *pool = NULL;
    struct zr_error err = { 0 };
    if (zr_pool_make(threads, &pool, &err)) fail_msg("%s", err.text);
    assert_int_equal(zr_pool_threads(pool), threads);
    return pool;
}

static void body(void *context, uint32_t item, uint32_t worker)
{
    struct loop *loop = context;
    if (item == loop->slow) usleep(300);
    loop->runs[item]++;
    loop->worker[item] = worker;
    loop->seen[item] = loop->number;
}

static void every_item_of_every_loop_runs_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        struct zr_pool *pool = pool_of(threads);
        static struct loop loop;
        memset(&loop, 0, sizeof loop);
        loop.slow = UINT32_MAX;
        uint32_t expected[ITEMS] = { 0 };
        for (uint64_t number = 1; number <= LOOPS; number++) {
            uint32_t count = (uint32_t)(number * 31 % (ITEMS + 1));
            loop.number = number;
            zr_pool_run(pool, count, body, &loop);
            for (uint32_t i = 0; i < count; i++) {
                expected[i]++;
                assert_int_equal(loop.seen[i], number);
                assert_true(loop.worker[i] < threads);
            }
            if (number % 500 == 0) usleep(200); /* workers go to sleep */
        }
        assert_memory_equal(loop.runs, expected, sizeof expected);
        zr_pool_free(pool);
    }
}

/* The others are through long before, and take what the slow one leaves of its share. */
static void a_slow_item_is_waited_for(void **state)
{
    (void)state;
    struct zr_pool *pool = pool_of(4);
    static struct loop loop;
    for (uint32_t slow = 0; slow < ITEMS; slow += 12) {
        memset(&loop, 0, sizeof loop);
        loop.slow = slow;
        loop.number = slow + 1;
        zr_pool_run(pool, ITEMS, body, &loop);
        for (uint32_t i = 0; i < ITEMS; i++) {
            assert_int_equal(loop.runs[i], 1);
            assert_int_equal(loop.seen[i], slow + 1);
        }
    }
    zr_pool_free(pool);
}

static void a_pool_that_never_worked_ends(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 8; threads++)
        zr_pool_free(pool_of(threads));
    struct zr_pool *pool = pool_of(3);
    usleep(2000); /* all asleep */
    zr_pool_free(pool);
    zr_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_of_every_loop_runs_once),
        cmocka_unit_test(a_slow_item_is_waited_for),
        cmocka_unit_test(a_pool_that_never_worked_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
