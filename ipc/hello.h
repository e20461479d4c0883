/* hello.h: versions, features, limits */
#ifndef ZRP_HELLO_H
#define ZRP_HELLO_H

#include "ipc/area.h"
#include "ipc/status.h"
#include "ipc/wire.h"

#define ZRP_FEATURES 0u /* none yet: behaviour changes only through these bits */

struct zrp_limits {
    uint32_t ring_entries_max;
    uint64_t slab_bytes_max;
};

/* What a library says first. `ring_entries` is rounded up to a power of two and `slab_bytes` to whole pages. */
struct zrp_hello zrp_hello_make(const char *name, const char *library, uint32_t ring_entries, uint64_t slab_bytes);

/* The daemon's answer. ZRP_EVERSION: no common major. ZRP_EINPUT: a size beyond the limits, which the sentence names.
 * ZRP_EPROTOCOL: not a HELLO. */
enum zrp_status zrp_hello_answer(const void *body, size_t bytes, const struct zrp_limits *limits,
                                 struct zrp_hello *ret_hello, struct zrp_welcome *ret_welcome,
                                 struct zrp_layout *ret_layout, struct zrp_why *why);

/* Does the answer fit the question, and is its layout the one that follows from its sizes? */
enum zrp_status zrp_welcome_check(const void *body, size_t bytes, const struct zrp_hello *hello,
                                  struct zrp_welcome *ret_welcome, struct zrp_layout *ret_layout, struct zrp_why *why);

#endif
