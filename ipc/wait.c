/* wait.c: spin a little, then sleep; the bell that wakes a sleeper */
#include "ipc/wait.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { TURNS_PER_LOOK = 32 }; /* a look at the clock costs as much as about that many turns */

uint64_t zrp_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

struct zrp_spin zrp_spin_for(uint64_t spin_ns)
{
    return (struct zrp_spin){ .end_ns = spin_ns ? zrp_now_ns() + spin_ns : 0 };
}

bool zrp_spin_on(struct zrp_spin *spin)
{
    if (spin->end_ns == 0) return false;
    zrp_relax();
    if (++spin->turns % TURNS_PER_LOOK) return true;
    return zrp_now_ns() < spin->end_ns;
}

bool zrp_spinning_helps(void)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 1;
}

int zrp_bell_make(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void zrp_bell_ring(int bell)
{
    uint64_t one = 1;
    ssize_t written = write(bell, &one, sizeof one); /* EAGAIN: it rings already */
    (void)written;
}

int zrp_wait_readable(int fd, uint64_t timeout_ns)
{
    uint64_t end_ns = timeout_ns == UINT64_MAX ? UINT64_MAX : zrp_now_ns() + timeout_ns;
    struct pollfd wanted = { .fd = fd, .events = POLLIN | POLLRDHUP };
    for (;;) {
        struct timespec left = { 0 }, *limit = NULL;
        if (end_ns != UINT64_MAX) {
            uint64_t now_ns = zrp_now_ns(), left_ns = now_ns < end_ns ? end_ns - now_ns : 0;
            left = (struct timespec){ .tv_sec = (time_t)(left_ns / 1000000000u),
                                      .tv_nsec = (long)(left_ns % 1000000000u) };
            limit = &left;
        }
        int ready = ppoll(&wanted, 1, limit, NULL);
        if (ready >= 0) return ready > 0;
        if (errno != EINTR) return 1; /* the read that follows says what is wrong */
    }
}
