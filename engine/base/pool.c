/* pool.c: worker threads for parallel loops
 *
 * A loop is one 64-bit word, the ticket: its number in the high half, the items that nobody has taken yet in the low
 * half. Whoever lowers the ticket by one has taken an item; whoever finds it at zero leaves and reports how many items
 * it did.
 *
 *   Q1  body, context and count belong to the loop whose number the ticket bears. They change only while every item of
 *       the last loop is done, so who took an item may read them, and nobody else does.
 *   Q2  The caller waits for items, not for workers: a worker that sleeps through a short loop, or that the kernel took
 *       off its processor, holds nobody up. A late one finds another number in the ticket and takes nothing of the old.
 *   Q3  Workers spin a little before they sleep, since loops follow each other within microseconds; never when the
 *       process has fewer processors than threads that would spin.
 *   Q4  Who goes to sleep says so before the last look at its word, and who changes the word looks for sleepers after
 *       the change, both sequentially consistent: one of the two sees the other, and no wake-up is lost. */
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

struct zr_pool {
    _Alignas(64) _Atomic uint64_t ticket; /* loop << 32 | items that nobody has taken */
    _Alignas(64) _Atomic uint32_t loop;   /* the futex that workers sleep on: changes with every loop */
    _Atomic uint32_t sleepers;            /* workers that sleep or are about to */
    _Atomic bool stop;
    zr_pool_body *body;
    void *context;
    uint32_t count;
    _Alignas(64) _Atomic uint32_t done; /* the futex that the caller sleeps on: finished items */
    _Atomic bool caller_sleeps;
    _Alignas(64) uint32_t threads; /* fixed from here on */
    uint64_t spin_ns;
    uint32_t started;
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

/* Takes the next item; false when none is left. */
static bool take(struct zr_pool *pool, uint32_t *ret_item)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    do {
        if ((uint32_t)ticket == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1, memory_order_acquire,
                                                    memory_order_relaxed));
    *ret_item = pool->count - (uint32_t)ticket; /* Q1 */
    return true;
}

/* Does items until none is left, then reports them. The release in the report publishes what the bodies wrote. */
static void work(struct zr_pool *pool, uint32_t worker)
{
    uint32_t item, count = 0, mine = 0;
    while (take(pool, &item)) {
        pool->body(pool->context, item, worker);
        count = pool->count;
        mine++;
    }
    if (mine == 0) return;
    bool last = atomic_fetch_add(&pool->done, mine) + mine == count;
    if (last && atomic_load(&pool->caller_sleeps)) futex_wake(&pool->done, 1); /* Q4 */
}

static bool something_to_do(struct zr_pool *pool)
{
    return (uint32_t)atomic_load_explicit(&pool->ticket, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&pool->stop, memory_order_relaxed);
}

static void wait_for_loop(struct zr_pool *pool)
{
    struct patience patience = { .spin_ns = pool->spin_ns };
    do {
        if (something_to_do(pool)) return;
    } while (look_again(&patience));
    atomic_fetch_add(&pool->sleepers, 1); /* Q4 */
    for (;;) {
        uint32_t loop = atomic_load(&pool->loop); /* a loop published after this look changes the futex's word */
        if (something_to_do(pool)) break;
        futex_wait(&pool->loop, loop);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    struct zr_pool *pool = self->pool;
    while (!atomic_load_explicit(&pool->stop, memory_order_acquire)) {
        work(pool, self->number);
        wait_for_loop(pool);
    }
    return NULL;
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
    if (!pool->workers) {
        zr_pool_free(pool);
        return zr_fail(err, ZR_EFULL, "no memory for a pool of %u threads", threads);
    }
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

void zr_pool_free(struct zr_pool *pool)
{
    if (!pool) return;
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->loop, 1);
    futex_wake(&pool->loop, INT_MAX);
    for (uint32_t i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
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
    pool->body = body; /* Q1: no worker reads these between two loops */
    pool->context = context;
    pool->count = count;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    uint32_t loop = atomic_load_explicit(&pool->loop, memory_order_relaxed) + 1;
    atomic_store_explicit(&pool->ticket, (uint64_t)loop << 32 | count, memory_order_release);
    atomic_store(&pool->loop, loop);
    uint32_t sleepers = atomic_load(&pool->sleepers); /* Q4 */
    if (sleepers) futex_wake(&pool->loop, sleepers < count - 1 ? sleepers : count - 1);

    work(pool, 0);
    struct patience patience = { .spin_ns = pool->spin_ns };
    do {
        if (atomic_load_explicit(&pool->done, memory_order_acquire) == count) return;
    } while (look_again(&patience));
    atomic_store(&pool->caller_sleeps, true); /* Q4 */
    uint32_t done;
    while ((done = atomic_load(&pool->done)) != count)
        futex_wait(&pool->done, done);
    atomic_store_explicit(&pool->caller_sleeps, false, memory_order_relaxed);
}
