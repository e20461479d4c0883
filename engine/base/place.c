/* place.c: what this process may use of the machine */
#include "engine/base/place.h"
#include "engine/base/pool.h"
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The first number in a file; UINT64_MAX when there is none ("max", or no such file). */
static uint64_t number_in(const char *path)
{
    unsigned long long value = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (!file) return UINT64_MAX;
    if (fscanf(file, "%llu", &value) != 1) value = UINT64_MAX;
    fclose(file);
    return value;
}

static uint64_t available_memory(void)
{
    char line[256];
    unsigned long long kib, bytes = UINT64_MAX;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file) return UINT64_MAX;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) bytes = kib * 1024;
    fclose(file);
    return bytes;
}

/* What is left under the limit of a control group; files of version 2 or 1. */
static uint64_t left_under(const char *folder, const char *limit_name, const char *used_name)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    uint64_t limit = number_in(path);
    if (limit >= (uint64_t)1 << 60) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", folder, used_name);
    uint64_t used = number_in(path);
    return used == UINT64_MAX ? limit : used < limit ? limit - used : 0;
}

/* Walks from this process's control group up to the root: the tightest limit counts. */
static uint64_t cgroup_memory(void)
{
    char line[4096], folder[4300];
    uint64_t least = UINT64_MAX;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file) return UINT64_MAX;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *path = strrchr(line, ':');
        if (!path) continue;
        bool unified = strncmp(line, "0::", 3) == 0, memory = strstr(line, ":memory:") != NULL;
        if (!unified && !memory) continue;
        path++;
        for (;;) {
            snprintf(folder, sizeof folder, unified ? "/sys/fs/cgroup%s" : "/sys/fs/cgroup/memory%s",
                     strcmp(path, "/") == 0 ? "" : path);
            uint64_t left = unified ? left_under(folder, "memory.max", "memory.current")
                                    : left_under(folder, "memory.limit_in_bytes", "memory.usage_in_bytes");
            if (left < least) least = left;
            char *slash = strrchr(path, '/');
            if (!slash || path[0] == '\0') break;
            *slash = '\0';
        }
    }
    fclose(file);
    return least;
}

static void look_at_topology(struct zr_place *place)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
        if (cores > 0) place->cores = (uint32_t)cores;
        if (nodes > 0) place->numa_nodes = (uint32_t)nodes;
        hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
        const char *name = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
        if (name) snprintf(place->cpu_name, sizeof place->cpu_name, "%s", name);
    }
    hwloc_topology_destroy(topology);
}

void zr_place_look(struct zr_place *ret_place)
{
    uint32_t threads = zr_pool_default_threads();
    *ret_place = (struct zr_place){ .cores = threads, .threads = threads, .numa_nodes = 1, .cpu_name = "unknown" };
    look_at_topology(ret_place);
    uint64_t machine = available_memory(), group = cgroup_memory();
    ret_place->memory_bytes = machine < group ? machine : group;
    if (ret_place->memory_bytes == UINT64_MAX) ret_place->memory_bytes = 0;
}
