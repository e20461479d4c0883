/* listen.h: the daemon's socket: made, found dead and replaced, or handed over by systemd
 *
 * A lock file beside the socket ("zerod.sock.lock") is held by flock() as long as the daemon lives and names its pid. The
 * kernel drops the lock with the process, so a socket whose lock is free is dead whoever left it there. */
#ifndef ZR_SERVE_LISTEN_H
#define ZR_SERVE_LISTEN_H

#include "engine/base/error.h"
#include <stdbool.h>
#include <sys/un.h>

struct zr_listen {
    int socket, lock; /* -1: none */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    bool inherited; /* systemd's: never unlinked */
};

/* `configured` may be "": $RUNTIME_DIRECTORY, the user's runtime directory, or /run/zerod. Directories are made.
 * ZR_EINPUT  another daemon is alive there: its pid is named, its socket is left alone
 * ZR_EACCESS no right to make it */
ZR_MUST_CHECK enum zr_code zr_listen_open(const char *configured, struct zr_listen *door, struct zr_error *err);
void zr_listen_close(struct zr_listen *door); /* safe twice */

/* Tells systemd ("READY=1", ...), where it asked to be told. */
void zr_notify(const char *state);

#endif
