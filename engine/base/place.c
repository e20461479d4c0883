/* place.c: what this process may use of the machine */
#include "engine/base/place.h"
#include "engine/base/cgroup.h"
#include "engine/base/pool.h"
#include <hwloc.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

/* MemAvailable of /proc/meminfo; 0 where it is not told. */
static uint64_t available_memory(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1) break;
    fclose(file);
    return kib * 1024;
}

/* The topology holds what the process's control group allows; its affinity mask may allow less. */
static void look_at_topology(struct zr_place *place, hwloc_topology_t topology)
{
    hwloc_cpuset_t mask = hwloc_bitmap_alloc();
    if (mask && hwloc_get_cpubind(topology, mask, HWLOC_CPUBIND_THREAD) == 0) {
        int cores = 0;
        for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));)
            if (hwloc_bitmap_intersects(core->cpuset, mask)) cores++;
        if (cores > 0 && (uint32_t)cores < place->cores) place->cores = (uint32_t)cores;
    }
    hwloc_bitmap_free(mask);
    int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    if (nodes > 0) place->numa_nodes = (uint32_t)nodes;
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char *name = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (name) snprintf(place->cpu_name, sizeof place->cpu_name, "%s", name);
}

/* Loaded once and kept: a load opens every plugin of hwloc and takes longer than all else that opening a job does. */
static hwloc_topology_t topology_once;

static void load_topology(void)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0)
        topology_once = topology;
    else
        hwloc_topology_destroy(topology);
}

void zr_place_look(struct zr_place *ret_place)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_topology);
    uint32_t threads = zr_pool_default_threads();
    *ret_place = (struct zr_place){ .cores = threads, .threads = threads, .numa_nodes = 1, .cpu_name = "unknown" };
    if (topology_once) look_at_topology(ret_place, topology_once);
    uint64_t group = zr_cgroup_memory_left("/proc/self/cgroup", "/sys/fs/cgroup");
    ret_place->memory_bytes = available_memory();
    if (group < ret_place->memory_bytes) ret_place->memory_bytes = group;
}
