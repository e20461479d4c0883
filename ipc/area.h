/* area.h: memory to share: make, seal, map
 *
 * The daemon makes both areas. `down` is mapped by the daemon first and then sealed against any later writable mapping, so
 * that nobody forges completions. Both are sealed against a change of size, so that no access ever ends in SIGBUS. */
#ifndef ZRP_AREA_H
#define ZRP_AREA_H

#include "ipc/status.h"
#include "ipc/wire.h"
#include <stdbool.h>

struct zrp_area {
    int fd; /* -1: none, or closed already */
    void *at;
    size_t bytes;
};

/* Where everything lies, from the two sizes that the handshake agrees upon. */
struct zrp_layout {
    uint32_t ring_entries;
    uint64_t slab_bytes;
    uint64_t cqe_offset, sentence_offset, down_bytes;
    uint64_t sqe_offset, slab_offset, up_bytes;
};

/* ring_entries: a power of two up to ZRP_RING_MAX; slab_bytes: a multiple of ZRP_SLAB_ALIGN below 2^37 (lines fit in 32
 * bits). */
struct zrp_layout zrp_layout_make(uint32_t ring_entries, uint64_t slab_bytes);

enum zrp_area_kind { ZRP_AREA_DOWN, ZRP_AREA_UP, ZRP_AREA_TEXT /* read-only for everybody once filled */ };

/* Makes, maps and seals. On failure the area is empty and safe to close. ZRP_EFULL: no memory or descriptors. */
enum zrp_status zrp_area_make(struct zrp_area *area, enum zrp_area_kind kind, size_t bytes, struct zrp_why *why);

/* A TEXT area with these bytes in it. */
enum zrp_status zrp_area_make_text(struct zrp_area *area, const void *text, size_t bytes, struct zrp_why *why);

/* Maps what came over the socket: its size must be `bytes` and it must be sealed against shrinking. Takes `fd` over on
 * success. */
enum zrp_status zrp_area_map(struct zrp_area *area, int fd, size_t bytes, bool writable, struct zrp_why *why);

void zrp_area_close(struct zrp_area *area);

#endif
