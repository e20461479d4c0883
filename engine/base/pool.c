/* pool.c: worker threads for parallel loops
 *
 * The items of a loop are dealt out in equal runs, one to each thread in the order of their numbers: thread 0 has the first
 * ones. So a thread finds in its cache what it wrote in the loop before, if both are cut alike. A share is one 64-bit
 * word, the ticket: the loop's number in the high half, the share's items that nobody has taken yet in the low half.
 * Whoever lowers the ticket by one has taken an item; who finds his own at zero helps with the other shares, and leaves
 * when all are at zero.
 *
 *   Q1  What stands beside a ticket belongs to the loop whose number it bears. It changes only while every item of the
 *       last loop is done, so who took an item may read it, and nobody else does.
 *   Q2  The caller waits for items, not for workers: a worker that sleeps through a short loop, or that the kernel took
 *       off its processor, holds nobody up. A late one finds another number in the ticket and takes nothing of the old.
 *   Q3  Workers spin a little before they sleep, since loops follow each other within microseconds; never when the
 *       process has fewer processors than threads that would spin.
 *   Q4  Who goes to sleep says so before the last look at its word, and who changes the word looks for sleepers after
 *       the change, both sequentially consistent: one of the two sees the other, and no wake-up is lost.
 *   Q5  A line that two processors write takes as long to travel as a small item takes to run. So everything that a
 *       worker needs to begin lies in one line, and it writes to a line of others' once a loop, when it is through. */
#include "engine/base/pool.h"
#include "engine/base/cgroup.h"
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS 20000
#define LOOKS_PER_CLOCK 64 /* looks at a word between two looks at the clock */

struct share {
    _Alignas(64) _Atomic uint64_t ticket; /* loop << 32 | items that nobody has taken */
    zr_pool_body *body;
    void *context;
    uint32_t end; /* of its items */
};

struct zr_pool {
    _Alignas(64) _Atomic uint32_t loop; /* the futex that workers sleep on: changes with every loop */
    _Atomic uint32_t sleepers;          /* workers that sleep or are about to */
    _Atomic bool stop;
    _Alignas(64) _Atomic uint32_t done; /* the futex that the caller sleeps on: items that workers have finished */
    _Atomic bool caller_sleeps;
    _Alignas(64) uint32_t threads; /* fixed from here on */
    uint64_t spin_ns;
    uint32_t started;
    struct share *shares;
    struct worker {
        struct zr_pool *pool;
        uint32_t number;
        pthread_t thread;
    } * workers;
};

/* Times to look again: ends at once where spinning would take a processor from a thread that has work. */
struct patience {
    uint64_t spin_ns, until_ns;
    uint32_t looks;
};

static bool look_again(struct patience *patience)
{
    if (patience->spin_ns == 0) return false;
    if (++patience->looks % LOOKS_PER_CLOCK == 0) {
        uint64_t now_ns = zr_now_ns();
        if (patience->until_ns == 0) patience->until_ns = now_ns + patience->spin_ns;
        if (now_ns >= patience->until_ns) return false;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    return true;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t how_many)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, how_many, NULL, NULL, 0);
}

/* Takes the share's next item; false when none is left. */
static bool take(struct share *share, uint32_t *ret_item)
{
    uint64_t ticket = atomic_load_explicit(&share->ticket, memory_order_relaxed);
    do {
        if ((uint32_t)ticket == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&share->ticket, &ticket, ticket - 1, memory_order_acquire,
                                                    memory_order_relaxed));
    *ret_item = share->end - (uint32_t)ticket; /* Q1 */
    return true;
}

/* Does items until none is left, its own first; returns how many. */
static uint32_t work(struct zr_pool *pool, uint32_t worker)
{
    uint32_t item, mine = 0;
    for (uint32_t i = 0; i < pool->threads; i++) {
        struct share *share = &pool->shares[(worker + i) % pool->threads];
        for (; take(share, &item); mine++)
            share->body(share->context, item, worker);
    }
    return mine;
}

/* The release publishes what the bodies wrote. */
static void report(struct zr_pool *pool, uint32_t items)
{
    if (items == 0) return;
    atomic_fetch_add(&pool->done, items);
    if (atomic_load(&pool->caller_sleeps)) futex_wake(&pool->done, 1); /* Q4 */
}

static bool new_loop(const struct share *share, uint32_t last)
{
    return (uint32_t)(atomic_load_explicit(&share->ticket, memory_order_relaxed) >> 32) != last;
}

/* Until the share's ticket bears another number than `last`, which every loop and the end of the pool see to. */
static void wait_for_loop(struct zr_pool *pool, const struct share *share, uint32_t last)
{
    struct patience patience = { .spin_ns = pool->spin_ns };
    do {
        if (new_loop(share, last)) return;
    } while (look_again(&patience));
    atomic_fetch_add(&pool->sleepers, 1); /* Q4 */
    for (;;) {
        uint32_t loop = atomic_load(&pool->loop); /* a loop published after this look changes the futex's word */
        if (new_loop(share, last)) break;
        futex_wait(&pool->loop, loop);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct zr_pool *pool = self->pool;
    struct share *share = &pool->shares[self->number];
    for (uint32_t last = 0;;) {
        wait_for_loop(pool, share, last);
        last = (uint32_t)(atomic_load_explicit(&share->ticket, memory_order_acquire) >> 32);
        if (atomic_load(&pool->stop)) return NULL;
        report(pool, work(pool, self->number));
    }
}

uint32_t zr_pool_default_threads(void)
{
    cpu_set_t set;
    uint64_t count, quota = zr_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        count = (uint64_t)CPU_COUNT(&set);
    else /* more processors than the set has bits */
        count = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (quota < count) count = quota;
    return count < 1 ? 1 : count > 1024 ? 1024 : (uint32_t)count;
}

enum zr_code zr_pool_make(uint32_t threads, struct zr_pool **ret_pool, struct zr_error *err)
{
    assert(threads >= 1 && threads <= 1024);
    struct zr_pool *pool = aligned_alloc(_Alignof(struct zr_pool), sizeof *pool);
    if (!pool) return zr_fail(err, ZR_EFULL, "no memory for a pool of %u threads", threads);
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->spin_ns = threads <= zr_pool_default_threads() ? SPIN_NS : 0; /* Q3 */
    pool->workers = calloc(threads, sizeof *pool->workers);
    pool->shares = aligned_alloc(_Alignof(struct share), threads * sizeof *pool->shares);
    if (!pool->workers || !pool->shares) {
        zr_pool_free(pool);
        return zr_fail(err, ZR_EFULL, "no memory for a pool of %u threads", threads);
    }
    memset(pool->shares, 0, threads * sizeof *pool->shares);
    for (uint32_t i = 1; i < threads; i++) {
        pool->workers[i] = (struct worker){ .pool = pool, .number = i };
        int failed = zr_fault("pool_thread")
                         ? EAGAIN
                         : pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]);
        if (failed) {
            zr_pool_free(pool);
            return zr_fail(err, ZR_EFULL, "cannot start thread %u of %u: %s", i, threads, strerrordesc_np(failed));
        }
        pool->started = i;
    }
    *ret_pool = pool;
    return ZR_OK;
}

/* Gives the shares their items; the number comes last, since it lets workers begin. */
static void deal(struct zr_pool *pool, uint32_t loop, uint32_t count, zr_pool_body *body, void *context)
{
    uint32_t begin = 0;
    for (uint32_t i = 0; i < pool->threads; i++) {
        struct share *share = &pool->shares[i];
        uint32_t end = (uint32_t)((uint64_t)count * (i + 1) / pool->threads);
        share->body = body; /* Q1: nobody reads these between two loops */
        share->context = context;
        share->end = end;
        atomic_store_explicit(&share->ticket, (uint64_t)loop << 32 | (end - begin), memory_order_release);
        begin = end;
    }
}

void zr_pool_free(struct zr_pool *pool)
{
    if (!pool) return;
    if (pool->started > 0) {
        uint32_t loop = atomic_load(&pool->loop) + 1;
        atomic_store(&pool->stop, true);
        deal(pool, loop, 0, NULL, NULL);
        atomic_store(&pool->loop, loop);
        futex_wake(&pool->loop, INT_MAX);
    }
    for (uint32_t i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
    free(pool->shares);
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
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    uint32_t loop = atomic_load_explicit(&pool->loop, memory_order_relaxed) + 1;
    deal(pool, loop, count, body, context);
    atomic_store(&pool->loop, loop);
    uint32_t sleepers = atomic_load(&pool->sleepers); /* Q4 */
    if (sleepers) futex_wake(&pool->loop, sleepers < count - 1 ? sleepers : count - 1);

    const uint32_t theirs = count - work(pool, 0);
    struct patience patience = { .spin_ns = pool->spin_ns };
    do {
        if (atomic_load_explicit(&pool->done, memory_order_acquire) == theirs) return;
    } while (look_again(&patience));
    atomic_store(&pool->caller_sleeps, true); /* Q4 */
    uint32_t done;
    while ((done = atomic_load(&pool->done)) != theirs)
        futex_wait(&pool->done, done);
    atomic_store_explicit(&pool->caller_sleeps, false, memory_order_relaxed);
}
