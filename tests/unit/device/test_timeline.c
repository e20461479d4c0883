/* test_timeline.c: counters that threads sleep on */
#include "engine/base/clock.h"
#include "engine/device/timeline.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#define MS 1000000u

static struct zr_timeline *make(void)
{
    struct zr_timeline *timeline = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_timeline_make(&timeline, &err), ZR_OK);
    return timeline;
}

static void sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) }, NULL);
}

static uint64_t thread_cpu_ns(pthread_t thread)
{
    clockid_t clock;
    struct timespec used;
    assert_int_equal(pthread_getcpuclockid(thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &used), 0);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static void starts_at_zero_and_takes_each_value(void **state)
{
    (void)state;
    struct zr_timeline *timeline = make();
    assert_int_equal(zr_timeline_value(timeline), 0);
    zr_timeline_wait(timeline, 0);
    zr_timeline_signal(timeline, 7);
    assert_int_equal(zr_timeline_value(timeline), 7);
    zr_timeline_wait(timeline, 3);
    zr_timeline_wait(timeline, 7);
    zr_timeline_free(timeline);
}

static void a_wait_with_a_limit_times_out_and_not_before(void **state)
{
    (void)state;
    struct zr_timeline *timeline = make();
    zr_timeline_signal(timeline, 1);
    uint64_t begin_ns = zr_now_ns();
    assert_false(zr_timeline_wait_for(timeline, 2, 20 * MS));
    assert_true(zr_now_ns() - begin_ns >= 20 * MS);
    assert_false(zr_timeline_wait_for(timeline, 2, 0));
    assert_true(zr_timeline_wait_for(timeline, 1, 0));
    assert_true(zr_timeline_wait_for(timeline, 1, UINT64_MAX - 1));
    zr_timeline_free(timeline);
}

struct waiter {
    pthread_t thread;
    struct zr_timeline *timeline;
    uint64_t value;
    _Atomic bool woken;
};

static void *wait_main(void *argument)
{
    struct waiter *waiter = argument;
    zr_timeline_wait(waiter->timeline, waiter->value);
    atomic_store(&waiter->woken, true);
    return NULL;
}

static void start(struct waiter *waiter, struct zr_timeline *timeline, uint64_t value)
{
    waiter->timeline = timeline;
    waiter->value = value;
    atomic_init(&waiter->woken, false);
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_main, waiter), 0);
}

static void sleepers_wake_at_their_own_value_and_not_below(void **state)
{
    (void)state;
    struct zr_timeline *timeline = make();
    struct waiter waiters[8];
    for (uint64_t i = 0; i < 8; i++)
        start(&waiters[i], timeline, 10 * (8 - i)); /* the highest first */
    sleep_ns(20 * MS);
    for (uint64_t value = 5; value <= 80; value += 5) {
        zr_timeline_signal(timeline, value);
        for (int i = 7; i >= 0; i--) {
            if (waiters[i].value == value) assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
            if (waiters[i].value > value) assert_false(atomic_load(&waiters[i].woken));
        }
    }
    zr_timeline_free(timeline);
}

static void a_sleeper_uses_no_processor(void **state)
{
    (void)state;
    struct zr_timeline *timeline = make();
    struct waiter waiter;
    start(&waiter, timeline, 1);
    sleep_ns(100 * MS);
    assert_true(thread_cpu_ns(waiter.thread) < 50 * MS);
    zr_timeline_signal(timeline, 1);
    assert_int_equal(pthread_join(waiter.thread, NULL), 0);
    zr_timeline_free(timeline);
}

/* The low half of the counter stays the same: a sleep on 32 bits of the value would miss it. */
static void a_jump_of_2_to_the_32_wakes(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct zr_timeline *timeline = make();
        struct waiter waiter;
        start(&waiter, timeline, (uint64_t)1 << 32);
        if (round % 2) sleep_ns(MS);
        zr_timeline_signal(timeline, (uint64_t)1 << 32);
        assert_int_equal(pthread_join(waiter.thread, NULL), 0);
        zr_timeline_free(timeline);
    }
}

struct table {
    struct zr_timeline there, back;
    uint64_t ball; /* no atomic: the timelines give its order */
};

#define ROUNDS 20000u

static void *player_main(void *argument)
{
    struct table *table = argument;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        zr_timeline_wait(&table->there, round);
        table->ball = table->ball * 3 + 1;
        zr_timeline_signal(&table->back, round);
        for (volatile uint64_t delay = round % 61; delay > 0; delay--) { /* so that the two meet at every place */
        }
    }
    return NULL;
}

/* A side that does not spin goes to sleep at once, and one that spins signals just then: the window for a lost wake-up. */
static void no_wake_up_is_lost_and_data_follows_the_counter(void **state)
{
    (void)state;
    for (int spins = 0; spins < 4; spins++) {
        struct table table = { .ball = 1 };
        uint64_t expected = 1;
        pthread_t thread;
        zr_timeline_init(&table.there, spins & 1 ? zr_timeline_spin_ns() : 0);
        zr_timeline_init(&table.back, spins & 2 ? zr_timeline_spin_ns() : 0);
        assert_int_equal(pthread_create(&thread, NULL, player_main, &table), 0);
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            table.ball += round;
            expected = (expected + round) * 3 + 1;
            if (round % 1000 == 0) sleep_ns(100000); /* now the other one surely sleeps */
            zr_timeline_signal(&table.there, round);
            assert_true(zr_timeline_wait_for(&table.back, round, 60000 * (uint64_t)MS));
            assert_true(table.ball == expected);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

struct runner {
    struct zr_timeline *timeline;
    uint64_t stride;
    bool limited;
};

static void *run_along(void *argument)
{
    const struct runner *runner = argument;
    for (uint64_t value = runner->stride; value <= ROUNDS; value += runner->stride) {
        if (runner->limited)
            while (!zr_timeline_wait_for(runner->timeline, value, 30000)) {
            }
        else
            zr_timeline_wait(runner->timeline, value);
    }
    return NULL;
}

static void waiters_of_all_paces_reach_the_end_of_one_timeline(void **state)
{
    (void)state;
    struct zr_timeline *timeline = make();
    struct runner runners[6];
    pthread_t threads[6];
    for (uint64_t i = 0; i < 6; i++) {
        runners[i] = (struct runner){ timeline, 1 + i * i, i % 2 == 1 };
        assert_int_equal(pthread_create(&threads[i], NULL, run_along, &runners[i]), 0);
    }
    for (uint64_t value = 1; value <= ROUNDS; value++)
        zr_timeline_signal(timeline, value);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    zr_timeline_free(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_at_zero_and_takes_each_value),
        cmocka_unit_test(a_wait_with_a_limit_times_out_and_not_before),
        cmocka_unit_test(sleepers_wake_at_their_own_value_and_not_below),
        cmocka_unit_test(a_sleeper_uses_no_processor),
        cmocka_unit_test(a_jump_of_2_to_the_32_wakes),
        cmocka_unit_test(no_wake_up_is_lost_and_data_follows_the_counter),
        cmocka_unit_test(waiters_of_all_paces_reach_the_end_of_one_timeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
