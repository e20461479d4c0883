/* wait.h: spin a little, then sleep; the bell that wakes a sleeper
 *
 * A bell is a pair of connected sockets: the daemon waits on one end, the client sends a byte on the other. Three reasons
 * against the eventfd that one would expect: the kernel wakes a socket's reader with the hint that the waker is about to
 * sleep, so that the two may share a core instead of waking a halted one, and a blocking round trip becomes as fast as a
 * plain socket's; the flag not to wait is the call's own (MSG_DONTWAIT), where O_NONBLOCK of a shared eventfd could be
 * cleared by the client to block the daemon for ever; and neither end can forge or steal what the other sends. */
#ifndef ZRP_WAIT_H
#define ZRP_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t zrp_now_ns(void);

/* Tells the core that this is a spinning loop. */
static inline void zrp_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A clock for spinning: looks at the time only now and then. */
struct zrp_spin {
    uint64_t end_ns;
    uint32_t turns;
};
struct zrp_spin zrp_spin_for(uint64_t spin_ns);
bool zrp_spin_on(struct zrp_spin *spin); /* false: time is up, sleep now */

/* Whether to spin this time. Spinning pays where the peer runs on another core; where it must wait for ours, each spin
 * lengthens the wait. So one that was in vain keeps the next ones from being tried: 4, then 12, at last 256 of them. */
struct zrp_spinner {
    uint64_t spin_ns; /* 0: never */
    uint32_t skip, penalty;
};
struct zrp_spin zrp_spinner_begin(struct zrp_spinner *spinner, bool hot);
void zrp_spinner_end(struct zrp_spinner *spinner, const struct zrp_spin *spin, bool found);

/* Does spinning help? Not on one core, where it keeps the peer from running. */
bool zrp_spinning_helps(void);

/* ends[0] is waited on, ends[1] is rung. -1 with errno. */
int zrp_bell_make(int ends[2]);
void zrp_bell_ring(int end);
bool zrp_bell_hush(int end); /* takes the rings that are there; false: the other end is closed */

/* Between the threads of one process, and from signal handlers: an eventfd. -1 with errno. */
int zrp_nudge_make(void);
void zrp_nudge(int fd);

/* Waits until `fd` can be read or hung up: 1; 0: time is up. timeout_ns UINT64_MAX: for ever. Signals do not end it. */
int zrp_wait_readable(int fd, uint64_t timeout_ns);

#endif
