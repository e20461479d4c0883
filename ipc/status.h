/* status.h: codes on the wire and their sentence */
#ifndef ZRP_STATUS_H
#define ZRP_STATUS_H

#include <stddef.h>

enum zrp_status {
    ZRP_OK = 0,
    ZRP_EINPUT = 1, /* 1 to 8 are enum zc_error with the sign turned */
    ZRP_EFULL = 2,
    ZRP_EIO = 3,
    ZRP_EGONE = 4,
    ZRP_EACCESS = 5,
    ZRP_EBUG = 6,
    ZRP_ETIME = 7,
    ZRP_ECONFIG = 8,
    ZRP_EVERSION = 9,   /* no common version */
    ZRP_EPROTOCOL = 10, /* a rule of the protocol is broken: the session ends */
    ZRP_STATUS_COUNT
};

/* A sentence beside a code; { 0 } is none. */
struct zrp_why {
    char text[256];
};

/* Writes the sentence, cut to fit, and returns `status`. `why` may be NULL. */
enum zrp_status zrp_fail(struct zrp_why *why, enum zrp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What the code means, for one that came without a sentence. Any number is fine. */
const char *zrp_status_text(unsigned status);

#endif
