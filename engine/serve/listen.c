/* listen.c: the daemon's socket: made, found dead and replaced, or handed over by systemd */
#include "engine/serve/listen.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BACKLOG = 64, FIRST_PASSED_FD = 3 };

static enum zr_code fail_errno(struct zr_error *err, const char *what, const char *path)
{
    enum zr_code code = errno == EACCES || errno == EPERM || errno == EROFS ? ZR_EACCESS : ZR_EINPUT;
    return zr_fail(err, code, "zerod.socket: %s %s: %s", what, path, strerror(errno));
}

static enum zr_code choose_path(const char *configured, struct zr_listen *door, struct zr_error *err)
{
    const char *runtime = getenv("RUNTIME_DIRECTORY"), *user = getenv("XDG_RUNTIME_DIR");
    char path[4096];
    if (configured[0])
        snprintf(path, sizeof path, "%s", configured);
    else if (runtime && *runtime)
        snprintf(path, sizeof path, "%s/zerod.sock", runtime);
    else if (user && *user && geteuid() != 0)
        snprintf(path, sizeof path, "%s/zerod/zerod.sock", user);
    else
        snprintf(path, sizeof path, "/run/zerod/zerod.sock");
    if (strlen(path) >= sizeof door->path)
        return zr_fail(err, ZR_ECONFIG, "zerod.socket: a socket's path has at most %zu bytes: %s",
                       sizeof door->path - 1, path);
    memcpy(door->path, path, strlen(path) + 1);
    return ZR_OK;
}

static enum zr_code make_directories(const char *path, struct zr_error *err)
{
    char directory[sizeof((struct zr_listen *)0)->path];
    snprintf(directory, sizeof directory, "%s", path);
    for (char *slash = strchr(directory + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(directory, 0755) != 0 && errno != EEXIST) return fail_errno(err, "cannot make", directory);
        *slash = '/';
    }
    return ZR_OK;
}

static enum zr_code take_lock(struct zr_listen *door, struct zr_error *err)
{
    char path[sizeof door->path + 8], owner[32] = "";
    snprintf(path, sizeof path, "%s.lock", door->path);
    door->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (door->lock < 0) return fail_errno(err, "cannot open", path);
    if (flock(door->lock, LOCK_EX | LOCK_NB) != 0) {
        ssize_t got = pread(door->lock, owner, sizeof owner - 1, 0);
        owner[got > 0 ? strcspn(owner, "\n") : 0] = 0;
        close(door->lock);
        door->lock = -1;
        return zr_fail(
            err, ZR_EINPUT,
            "zerod.socket: %s belongs to a running zerod, pid %s\n  hint: stop it with zeroctl stop, or give "
            "this one another zerod.socket",
            door->path, owner[0] ? owner : "unknown");
    }
    int length = snprintf(owner, sizeof owner, "%d\n", (int)getpid());
    if (ftruncate(door->lock, 0) != 0 || pwrite(door->lock, owner, (size_t)length, 0) != length)
        return fail_errno(err, "cannot write", path);
    return ZR_OK;
}

/* We hold the lock, so no zerod is alive there; but what lies there may be somebody else's. */
static enum zr_code remove_dead(const struct sockaddr_un *address, struct zr_error *err)
{
    struct stat stat;
    if (lstat(address->sun_path, &stat) != 0)
        return errno == ENOENT ? ZR_OK : fail_errno(err, "cannot look at", address->sun_path);
    if (!S_ISSOCK(stat.st_mode))
        return zr_fail(err, ZR_EINPUT, "zerod.socket: %s is there and is no socket: it is left alone",
                       address->sun_path);
    int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    if (probe < 0 || connect(probe, (const struct sockaddr *)address, sizeof *address) != 0) error = errno;
    struct ucred owner = { 0 };
    socklen_t length = sizeof owner;
    if (!error || error == EAGAIN) (void)getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &owner, &length);
    if (probe >= 0) close(probe);
    if (error == 0 || error == EAGAIN || error == EPROTOTYPE)
        return zr_fail(err, ZR_EINPUT, "zerod.socket: a process (pid %d) answers at %s: its socket is left alone",
                       (int)owner.pid, address->sun_path);
    if (unlink(address->sun_path) != 0) return fail_errno(err, "cannot replace the dead socket", address->sun_path);
    return ZR_OK;
}

/* 0660 where a group shares the system's daemon, else for the owner alone. */
static mode_t socket_mode(const char *path)
{
    return strncmp(path, "/run/zerod/", 11) == 0 ? 0660 : 0600;
}

static enum zr_code make_socket(struct zr_listen *door, struct zr_error *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path, door->path, strlen(door->path));
    enum zr_code code;
    if ((code = make_directories(door->path, err)) || (code = take_lock(door, err)) ||
        (code = remove_dead(&address, err)))
        return code;
    door->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door->socket < 0) return fail_errno(err, "cannot make a socket for", door->path);
    mode_t before = umask(0777 & ~socket_mode(door->path)); /* nobody else may connect in between */
    int bound = bind(door->socket, (struct sockaddr *)&address, sizeof address);
    umask(before);
    if (bound != 0 || listen(door->socket, BACKLOG) != 0) {
        code = fail_errno(err, "cannot listen at", door->path);
        close(door->socket); /* what lies at the path is not ours to unlink */
        door->socket = -1;
    }
    return code;
}

/* systemd's protocol: LISTEN_PID is us, LISTEN_FDS counts descriptors from 3 on. Read once, then unset. */
static int passed_socket(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    bool ours = pid && count && atoi(pid) == getpid() && atoi(count) == 1;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    int type = 0, listening = 0;
    socklen_t length = sizeof type;
    if (!ours || getsockopt(FIRST_PASSED_FD, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET ||
        getsockopt(FIRST_PASSED_FD, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || !listening)
        return -1;
    fcntl(FIRST_PASSED_FD, F_SETFD, FD_CLOEXEC);
    fcntl(FIRST_PASSED_FD, F_SETFL, O_NONBLOCK);
    return FIRST_PASSED_FD;
}

enum zr_code zr_listen_open(const char *configured, struct zr_listen *door, struct zr_error *err)
{
    *door = (struct zr_listen){ .socket = -1, .lock = -1 };
    enum zr_code code = choose_path(configured, door, err);
    if (code != ZR_OK) return code;
    door->socket = passed_socket();
    door->inherited = door->socket >= 0;
    if (door->inherited) {
        struct sockaddr_un address = { 0 };
        socklen_t length = sizeof address;
        if (getsockname(door->socket, (struct sockaddr *)&address, &length) == 0)
            snprintf(door->path, sizeof door->path, "%.*s", (int)sizeof door->path - 1, address.sun_path);
        return ZR_OK;
    }
    if ((code = make_socket(door, err))) zr_listen_close(door);
    return code;
}

void zr_listen_close(struct zr_listen *door)
{
    if (door->socket >= 0) {
        if (!door->inherited) unlink(door->path);
        close(door->socket);
    }
    if (door->lock >= 0)
        close(door->lock); /* the file stays: unlinking it would let two daemons lock two files of that name */
    door->socket = door->lock = -1;
}

void zr_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof address.sun_path) return;
    memcpy(address.sun_path, path, strlen(path));
    if (path[0] == '@') address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}
