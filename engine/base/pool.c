/* pool.c: worker threads for parallel loops
 *
 * A loop is published by its number: `round` grows by one and workers that see it take items from `next` until none is
 * left. The caller takes items too, then waits until every worker has left the loop, so that the next loop may reuse the
 * same words. Workers spin a little before they sleep, since loops follow each other within microseconds; never when
 * the machine has fewer processors than threads that would spin. */
#include "engine/base/pool.h"
#include "engine/base/clock.h"
#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS 20000

struct zr_pool {
    _Alignas(64) _Atomic uint32_t round; /* number of the newest loop; bit 31: stop */
    _Alignas(64) _Atomic uint32_t next;  /* items handed out */
    _Alignas(64) _Atomic uint32_t busy;  /* workers that have not left the loop */
    _Alignas(64) _Atomic uint32_t sleepers;
    zr_pool_body *body;
    void *context;
    uint32_t count;
    uint32_t threads;
    uint64_t spin_ns;
    pthread_t *workers;
    struct worker {
        struct zr_pool *pool;
        uint32_t number;
    } * numbers;
    uint32_t started;
};

#define STOP 0x80000000u

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void breathe(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void work(struct zr_pool *pool, uint32_t worker)
{
    for (;;) {
        uint32_t item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (item >= pool->count) return;
        pool->body(pool->context, item, worker);
    }
}

/* Waits until `word` differs from `seen`; returns the new value. */
static uint32_t wait_change(struct zr_pool *pool, _Atomic uint32_t *word, uint32_t seen)
{
    uint64_t until = 0;
    for (uint32_t turn = 1;; turn++) {
        uint32_t value = atomic_load_explicit(word, memory_order_acquire);
        if (value != seen) return value;
        if (pool->spin_ns == 0) break;
        if (turn % 64 == 0) {
            uint64_t now = zr_now_ns();
            if (until == 0) until = now + pool->spin_ns;
            if (now >= until) break;
        }
        breathe();
    }
    atomic_fetch_add(&pool->sleepers, 1); /* seq_cst: pairs with the waker's store and load */
    uint32_t value;
    while ((value = atomic_load(word)) == seen)
        futex_wait(word, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
    return value;
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct zr_pool *pool = self->pool;
    uint32_t seen = 0;
    for (;;) {
        seen = wait_change(pool, &pool->round, seen);
        if (seen & STOP) return NULL;
        work(pool, self->number);
        if (atomic_fetch_sub(&pool->busy, 1) == 1 && atomic_load(&pool->sleepers)) /* seq_cst, as in wait_change() */
            futex_wake(&pool->busy);
    }
}

static uint64_t cgroup_cpus(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    unsigned long long quota = 0, period = 0;
    if (!file) return UINT64_MAX;
    int read = fscanf(file, "%llu %llu", &quota, &period); /* "max 100000" reads nothing: no limit */
    fclose(file);
    return read == 2 && period > 0 ? (quota + period - 1) / period : UINT64_MAX;
}

uint32_t zr_pool_default_threads(void)
{
    cpu_set_t set;
    uint64_t count = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0) count = (uint64_t)CPU_COUNT(&set);
    uint64_t quota = cgroup_cpus();
    if (quota < count) count = quota;
    return count < 1 ? 1 : count > 1024 ? 1024 : (uint32_t)count;
}

enum zr_code zr_pool_make(uint32_t threads, struct zr_pool **ret_pool, struct zr_error *err)
{
    assert(threads >= 1 && threads <= 1024);
    struct zr_pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    if (!pool) return zr_fail(err, ZR_EFULL, "no memory for a pool of %u threads", threads);
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->spin_ns = threads <= zr_pool_default_threads() ? SPIN_NS : 0;
    pool->workers = calloc(threads, sizeof *pool->workers);
    pool->numbers = calloc(threads, sizeof *pool->numbers);
    if (!pool->workers || !pool->numbers) {
        zr_pool_free(pool);
        return zr_fail(err, ZR_EFULL, "no memory for a pool of %u threads", threads);
    }
    for (uint32_t i = 1; i < threads; i++) {
        pool->numbers[i] = (struct worker){ .pool = pool, .number = i };
        int failed = pthread_create(&pool->workers[i], NULL, worker_main, &pool->numbers[i]);
        if (failed) {
            zr_pool_free(pool);
            return zr_fail(err, ZR_EFULL, "cannot start thread %u of %u: %s", i, threads, strerror(failed));
        }
        pool->started = i;
    }
    *ret_pool = pool;
    return ZR_OK;
}

void zr_pool_free(struct zr_pool *pool)
{
    if (!pool) return;
    atomic_fetch_or(&pool->round, STOP);
    futex_wake(&pool->round);
    for (uint32_t i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i], NULL);
    free(pool->workers);
    free(pool->numbers);
    free(pool);
}

uint32_t zr_pool_threads(const struct zr_pool *pool)
{
    return pool->threads;
}

void zr_pool_run(struct zr_pool *pool, uint32_t count, zr_pool_body *body, void *context)
{
    if (pool->threads == 1 || count <= 1) {
        for (uint32_t item = 0; item < count; item++)
            body(context, item, 0);
        return;
    }
    pool->body = body;
    pool->context = context;
    pool->count = count;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->busy, pool->threads - 1, memory_order_relaxed);
    uint32_t round = (atomic_load_explicit(&pool->round, memory_order_relaxed) + 1) & ~STOP;
    atomic_store(&pool->round, round); /* seq_cst: workers that see it see the loop; sleepers are looked at after it */
    if (atomic_load(&pool->sleepers)) futex_wake(&pool->round);

    work(pool, 0);
    uint32_t busy;
    while ((busy = atomic_load_explicit(&pool->busy, memory_order_acquire)) != 0)
        wait_change(pool, &pool->busy, busy);
}
