/* timeline.c: a counter that grows, and who sleeps until it has grown enough
 *
 *          signal(v)                                    wait(w)
 *     a   value = v                                1   seen = wakes
 *     b   is wake_at <= v?  no: done               2   wake_at = min(wake_at, w)
 *     c   wake_at = nobody                         3   is value >= w?  yes: done
 *     d   wakes += 1, wake all                     4   sleep while wakes == seen, then again from 1
 *
 *   T1  A signal that nobody sleeps for makes no system call, and neither does one that is below what sleepers want.
 *   T2  No wake-up is lost. All of the above are sequentially consistent, so either 3 sees the value of a, or b comes
 *       after 2 and finds a wake_at that is low enough. Should another signal have reset it in between (c after 2), that
 *       signal's d comes after 1, so 4 does not sleep through it. A spurious wake-up is possible and harmless.
 *   T3  Everything before a signal is visible to who has seen its value.
 *
 * Plain seq_cst operations instead of fences: on x86 a store is one locked exchange either way, and ThreadSanitizer
 * understands them. */
#include "engine/device/timeline.h"
#include "engine/base/clock.h"
#include "engine/base/pool.h"
#include <assert.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* About what falling asleep and waking up cost together: whoever spins this long in vain has lost twice that at most. Stream
 * threads outnumber processors, so a longer spin would take from operations that run. */
#define SPIN_NS 5000
#define LOOKS_PER_CLOCK 16

static_assert(sizeof(struct zr_timeline) <= ZR_TIMELINE_PAGE, "a timeline fits in its page");

static void breathe(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Returns at the latest after timeout_ns (UINT64_MAX: never); also early, when woken or interrupted. */
static void sleep_on(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
                                .tv_nsec = (long)(timeout_ns % 1000000000u) };
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

uint64_t zr_timeline_spin_ns(void)
{
    return zr_pool_default_threads() > 1 ? SPIN_NS : 0;
}

void zr_timeline_init(struct zr_timeline *timeline, uint64_t spin_ns)
{
    atomic_init(&timeline->value, 0);
    atomic_init(&timeline->wake_at, UINT64_MAX);
    atomic_init(&timeline->wakes, 0);
    timeline->spin_ns = spin_ns;
}

enum zr_code zr_timeline_make(struct zr_timeline **ret_timeline, struct zr_error *err)
{
    struct zr_timeline *timeline = aligned_alloc(ZR_TIMELINE_PAGE, ZR_TIMELINE_PAGE);
    if (!timeline) return zr_fail(err, ZR_EFULL, "no memory for a timeline");
    zr_timeline_init(timeline, zr_timeline_spin_ns());
    *ret_timeline = timeline;
    return ZR_OK;
}

void zr_timeline_free(struct zr_timeline *timeline)
{
    free(timeline);
}

uint64_t zr_timeline_value(const struct zr_timeline *timeline)
{
    return atomic_load(&timeline->value);
}

void zr_timeline_wake(struct zr_timeline *timeline, uint64_t value)
{
    if (atomic_load(&timeline->wake_at) > value) return;
    atomic_store(&timeline->wake_at, UINT64_MAX);
    atomic_fetch_add(&timeline->wakes, 1);
    syscall(SYS_futex, &timeline->wakes, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void zr_timeline_signal(struct zr_timeline *timeline, uint64_t value)
{
    uint64_t before = atomic_exchange(&timeline->value, value);
    assert(before <= value); /* values grow, or a waiter might never wake */
    (void)before;
    zr_timeline_wake(timeline, value);
}

static bool spin(struct zr_timeline *timeline, uint64_t value)
{
    uint64_t until = 0;
    for (uint32_t look = 1; timeline->spin_ns > 0; look++) {
        if (atomic_load(&timeline->value) >= value) return true;
        if (look % LOOKS_PER_CLOCK == 0) {
            uint64_t now = zr_now_ns();
            if (until == 0) until = now + timeline->spin_ns;
            if (now >= until) break;
        }
        breathe();
    }
    return false;
}

static void want(struct zr_timeline *timeline, uint64_t value)
{
    uint64_t least = atomic_load(&timeline->wake_at);
    while (value < least && !atomic_compare_exchange_weak(&timeline->wake_at, &least, value)) {
    }
}

bool zr_timeline_wait_for(struct zr_timeline *timeline, uint64_t value, uint64_t timeout_ns)
{
    if (atomic_load(&timeline->value) >= value) return true;
    if (timeout_ns == 0) return false;
    uint64_t until = timeout_ns == UINT64_MAX ? UINT64_MAX : zr_now_ns() + timeout_ns;
    if (until < timeout_ns) until = UINT64_MAX; /* centuries */
    if (timeout_ns > timeline->spin_ns && spin(timeline, value)) return true;

    for (;;) {
        uint32_t seen = atomic_load(&timeline->wakes);
        want(timeline, value);
        if (atomic_load(&timeline->value) >= value) return true;
        uint64_t left = UINT64_MAX;
        if (until != UINT64_MAX) {
            uint64_t now = zr_now_ns();
            if (now >= until) return false;
            left = until - now;
        }
        sleep_on(&timeline->wakes, seen, left);
    }
}

void zr_timeline_wait(struct zr_timeline *timeline, uint64_t value)
{
    zr_timeline_wait_for(timeline, value, UINT64_MAX);
}
