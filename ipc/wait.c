/* wait.c: spin a little, then sleep; the bell that wakes a sleeper */
#include "ipc/wait.h"
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TURNS_PER_LOOK = 32 }; /* a look at the clock costs as much as about that many turns */
enum { SKIPS_FIRST = 4, SKIPS_MOST = 256 };

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

struct zrp_spin zrp_spinner_begin(struct zrp_spinner *spinner, bool hot)
{
    if (!hot || spinner->skip == 0) return zrp_spin_for(hot ? spinner->spin_ns : 0);
    spinner->skip--;
    return zrp_spin_for(0);
}

void zrp_spinner_end(struct zrp_spinner *spinner, const struct zrp_spin *spin, bool found)
{
    if (spin->end_ns == 0) return; /* there was none */
    spinner->penalty = found ? 0 : spinner->penalty * 2 + SKIPS_FIRST;
    if (spinner->penalty > SKIPS_MOST) spinner->penalty = SKIPS_MOST;
    spinner->skip = spinner->penalty;
}

bool zrp_spinning_helps(void)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 1;
}

int zrp_bell_make(int ends[2])
{
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
}

void zrp_bell_ring(int end)
{
    (void)send(end, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* no room: it rings already */
}

bool zrp_bell_hush(int end)
{
    char rings[256];
    ssize_t got = recv(end, rings, sizeof rings, MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

int zrp_nudge_make(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void zrp_nudge(int fd)
{
    uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one); /* EAGAIN: it is readable already */
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
