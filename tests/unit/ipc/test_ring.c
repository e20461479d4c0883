/* test_ring.c: nothing is lost, invented or taken twice, and no wake-up is missed */
#include "ipc/ring.h"
#include "ipc/wait.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

struct pair {
    _Alignas(128) _Atomic uint32_t head;
    _Alignas(128) _Atomic uint32_t tail;
    _Alignas(128) _Atomic uint32_t sleeping;
    _Alignas(128) uint64_t entries[8 * 8];
    int nudge;
    uint32_t count;
    uint64_t total;
};

static void *produce(void *context)
{
    struct pair *pair = context;
    struct zrp_ring ring;
    zrp_ring_init(&ring, pair->entries, 64, pair->count, &pair->head, &pair->tail);
    for (uint64_t i = 0; i < pair->total;) {
        int64_t room = zrp_ring_room(&ring);
        if (room == 0) {
            sched_yield();
            continue;
        }
        uint64_t entry[8];
        for (uint32_t word = 0; word < 8; word++)
            entry[word] = i * 8 + word;
        zrp_ring_put(&ring, entry);
        if (zrp_sleeps_take(&pair->sleeping)) zrp_nudge(pair->nudge);
        i++;
        if (i % 7 == 0)
            for (volatile uint32_t pause = 0; pause < i % 501; pause++)
                ;
    }
    return NULL;
}

/* The consumer sleeps whenever the ring is empty: a lost wake-up would hang it, and the time limit would tell. */
static void every_entry_arrives_whole_and_in_order_through_sleeping_and_full_rings(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 8; count *= 2) {
        struct pair *pair = aligned_alloc(128, sizeof *pair);
        *pair = (struct pair){ .nudge = zrp_nudge_make(), .count = count, .total = 60000 };
        pthread_t producer;
        assert_int_equal(pthread_create(&producer, NULL, produce, pair), 0);
        struct zrp_ring ring;
        zrp_ring_init(&ring, pair->entries, 64, count, &pair->head, &pair->tail);
        for (uint64_t i = 0; i < pair->total;) {
            int64_t ready = zrp_ring_ready(&ring);
            assert_true(ready >= 0);
            if (ready == 0) {
                zrp_sleep_announce(&pair->sleeping);
                if (zrp_ring_ready_before_sleep(&ring) == 0) {
                    assert_int_equal(zrp_wait_readable(pair->nudge, 20000000000u), 1);
                    uint64_t rung;
                    assert_int_equal(read(pair->nudge, &rung, sizeof rung), sizeof rung);
                }
                zrp_sleep_end(&pair->sleeping);
                continue;
            }
            uint64_t entry[8];
            zrp_ring_take(&ring, entry);
            for (uint32_t word = 0; word < 8; word++)
                assert_int_equal(entry[word], i * 8 + word);
            i++;
        }
        pthread_join(producer, NULL);
        assert_int_equal(zrp_ring_ready(&ring), 0);
        close(pair->nudge);
        free(pair);
    }
}

static void indices_go_on_beyond_32_bits(void **state)
{
    (void)state;
    struct pair pair = { .head = UINT32_MAX - 2, .tail = UINT32_MAX - 2 };
    struct zrp_ring in, out;
    zrp_ring_init(&in, pair.entries, 64, 4, &pair.head, &pair.tail);
    zrp_ring_init(&out, pair.entries, 64, 4, &pair.head, &pair.tail);
    in.mine = out.mine = UINT32_MAX - 2;
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t entry[8] = { i }, taken[8];
        assert_int_equal(zrp_ring_room(&in), 4);
        zrp_ring_put(&in, entry);
        assert_int_equal(zrp_ring_room(&in), 3);
        assert_int_equal(zrp_ring_ready(&out), 1);
        zrp_ring_take(&out, taken);
        assert_int_equal(taken[0], i);
    }
}

static void a_full_ring_has_no_room_until_one_is_taken(void **state)
{
    (void)state;
    struct pair pair = { .count = 4 };
    struct zrp_ring in, out;
    zrp_ring_init(&in, pair.entries, 64, 4, &pair.head, &pair.tail);
    zrp_ring_init(&out, pair.entries, 64, 4, &pair.head, &pair.tail);
    uint64_t entry[8] = { 0 };
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(zrp_ring_room(&in), 4 - i);
        zrp_ring_put(&in, entry);
    }
    assert_int_equal(zrp_ring_room(&in), 0);
    assert_int_equal(zrp_ring_ready(&out), 4);
    zrp_ring_take(&out, entry);
    assert_int_equal(zrp_ring_room(&in), 1);
}

static void an_index_of_the_peer_that_is_too_far_away_is_noticed(void **state)
{
    (void)state;
    struct pair pair = { .count = 4 };
    struct zrp_ring in, out;
    zrp_ring_init(&in, pair.entries, 64, 4, &pair.head, &pair.tail);
    zrp_ring_init(&out, pair.entries, 64, 4, &pair.head, &pair.tail);
    const uint32_t nonsense[] = { 5, 1000, 0x80000000u, UINT32_MAX };
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        pair.tail = nonsense[i];
        assert_int_equal(zrp_ring_ready(&out), -1);
        assert_int_equal(zrp_ring_ready_before_sleep(&out), -1);
    }
    pair.head = 1; /* a consumer that has taken what was never put */
    assert_int_equal(zrp_ring_room(&in), -1);
    pair.head = UINT32_MAX - 4;
    assert_int_equal(zrp_ring_room(&in), -1);
}

/* -- every interleaving of going to sleep and publishing, with store buffers as on x86 ----------------------------- */

/* Two threads, two shared variables. A store goes into its thread's buffer and reaches memory at any later moment; a
 * sequentially consistent store reaches it at once.
 *     producer: tail = 1; if (sleeping) ring        consumer: sleeping = 1; if (!tail) sleep */
struct machine {
    int tail, sleeping;                /* memory */
    int buffered_tail, buffered_sleep; /* 1: in the store buffer still */
    int producer, consumer;            /* next instruction */
    int rang, slept;
};

static int lost_wakeups(struct machine at, int ordered)
{
    int lost = 0, moved = 0;
    struct machine next;
    if (at.buffered_tail) {
        next = at;
        next.tail = 1;
        next.buffered_tail = 0;
        lost += lost_wakeups(next, ordered);
        moved = 1;
    }
    if (at.buffered_sleep) {
        next = at;
        next.sleeping = 1;
        next.buffered_sleep = 0;
        lost += lost_wakeups(next, ordered);
        moved = 1;
    }
    if (at.producer < 2) {
        next = at;
        next.producer++;
        if (at.producer == 0 && ordered)
            next.tail = 1;
        else if (at.producer == 0)
            next.buffered_tail = 1;
        else
            next.rang = at.sleeping;
        lost += lost_wakeups(next, ordered);
        moved = 1;
    }
    if (at.consumer < 2) {
        next = at;
        next.consumer++;
        if (at.consumer == 0 && ordered)
            next.sleeping = 1;
        else if (at.consumer == 0)
            next.buffered_sleep = 1;
        else
            next.slept = !at.tail;
        lost += lost_wakeups(next, ordered);
        moved = 1;
    }
    return moved ? lost : at.slept && !at.rang;
}

static void no_interleaving_loses_a_wake_up_and_the_search_would_find_one(void **state)
{
    (void)state;
    assert_int_equal(lost_wakeups((struct machine){ 0 }, 1), 0);
    assert_true(lost_wakeups((struct machine){ 0 }, 0) > 0); /* the planted bug: plain stores */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_arrives_whole_and_in_order_through_sleeping_and_full_rings),
        cmocka_unit_test(indices_go_on_beyond_32_bits),
        cmocka_unit_test(a_full_ring_has_no_room_until_one_is_taken),
        cmocka_unit_test(an_index_of_the_peer_that_is_too_far_away_is_noticed),
        cmocka_unit_test(no_interleaving_loses_a_wake_up_and_the_search_would_find_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
