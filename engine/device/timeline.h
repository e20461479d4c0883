/* timeline.h: what a timeline is made of; for this room and its backends alone
 *
 * A timeline that is made with zr_timeline_make() has a page of its own, with `value` first: a backend whose hardware
 * writes counters (CUDA: stream memory operations on page-locked memory) can register that page, let the device write
 * `value`, and call zr_timeline_wake() from a host function behind the write. */
#ifndef ZR_DEVICE_TIMELINE_H
#define ZR_DEVICE_TIMELINE_H

#include "engine/device/device.h"
#include <stdatomic.h>

#define ZR_TIMELINE_PAGE 4096

struct zr_timeline {
    _Alignas(64) _Atomic uint64_t value;
    uint64_t spin_ns; /* set by init, then read only */
    /* Touched by sleepers, and by a signal that reaches one. */
    _Alignas(64) _Atomic uint64_t wake_at; /* the least value that a sleeper waits for; UINT64_MAX: nobody sleeps */
    _Atomic uint32_t wakes;                /* the word that sleepers sleep on: grows with every wake-up */
};

/* A timeline inside a struct of the caller's. `spin_ns`: zr_timeline_spin_ns(). */
void zr_timeline_init(struct zr_timeline *timeline, uint64_t spin_ns);

/* How long a wait may spin before it sleeps: nothing where this process has a single processor. Set-up only. */
uint64_t zr_timeline_spin_ns(void);

/* Wakes who waits for `value` or less, after someone else has stored it. No system call when nobody sleeps. */
void zr_timeline_wake(struct zr_timeline *timeline, uint64_t value);

#endif
