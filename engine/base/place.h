/* place.h: cores and memory (hwloc): what is there, and binding near a device
 * All functions are best effort: where hwloc or the kernel says no, nothing is bound and nothing fails. */
#ifndef ZR_BASE_PLACE_H
#define ZR_BASE_PLACE_H

#include <stddef.h>
#include <stdint.h>

struct zr_place {
    uint32_t cores, threads, numa_nodes; /* cores that this process may use; hardware threads likewise */
    uint64_t memory_bytes; /* what this process may take: MemAvailable, cut by the cgroup's memory limit */
    char cpu_name[128];
};

void zr_place_look(struct zr_place *ret_place);

#endif
