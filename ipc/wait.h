/* wait.h: spin a little, then sleep; the bell that wakes a sleeper
 *
 * Bells are eventfds. The daemon registers them edge-triggered and never reads them: the open file is shared, so a client
 * could clear O_NONBLOCK and block a reader for ever. In the other direction the daemon never writes to a client's eventfd
 * either (one filled to the brim would block the writer): it sends a WAKE message without waiting. */
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

/* Does spinning help? Not on one core, where it keeps the peer from running. */
bool zrp_spinning_helps(void);

int zrp_bell_make(void); /* -1 with errno */
void zrp_bell_ring(int bell);

/* Waits until `fd` can be read or hung up: 1; 0: time is up. timeout_ns UINT64_MAX: for ever. Signals do not end it. */
int zrp_wait_readable(int fd, uint64_t timeout_ns);

#endif
