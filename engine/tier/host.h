/* host.h: the host tier: one area of memory, taken when a job opens, carved by the plan's offsets
 *
 * Anonymous memory on huge pages where they can be had (2 MiB aligned, MADV_HUGEPAGE before the first touch), touched in
 * parallel, kept out of forks and core dumps, then registered with the device so that copies run at full speed. A private
 * area only: what clients must map is made by ipc/. Its bytes are zero when opened. */
#ifndef ZR_TIER_HOST_H
#define ZR_TIER_HOST_H

#include "engine/base/pool.h"
#include "engine/device/device.h"

struct zr_host;

struct zr_host_facts {
    uint64_t bytes, huge_bytes; /* taken; of which on huge pages, as the kernel says (smaps) */
    uint64_t touch_ns, register_ns;
};

/* ZR_EFULL  the memory is not there: the text names what was asked for, what is free and which limit (cgroup or machine)
 *           would be hit. Nothing is ever killed for it: the check comes before the touch. */
ZR_MUST_CHECK enum zr_code zr_host_open(struct zr_device *device, uint64_t bytes, struct zr_pool *pool,
                                        struct zr_host **ret_host, struct zr_error *err);
void zr_host_close(struct zr_host *host); /* NULL is fine */
void *zr_host_memory(const struct zr_host *host);
const struct zr_host_facts *zr_host_facts(const struct zr_host *host);

#endif
