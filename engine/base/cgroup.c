/* cgroup.c: limits of control groups
 *
 * A line of the list of groups reads "number:controllers:path"; number 0 without controllers is version 2. Version 1
 * mounts each hierarchy in a folder named after its controllers. Inside a container the path may be one that only the
 * host can see; the walk up to the root then finds the container's own limits in the root. */
#include "engine/base/cgroup.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NONE UINT64_MAX

/* Version 1 has no word for "no limit": it shows the largest whole page below 2^63. */
#define LIMIT_TOP ((uint64_t)1 << 60)

/* Reads what is left under the limit of one group's folder; NONE where there is no limit. */
typedef uint64_t limit_of_folder(const char *folder, bool unified);

/* folder + "/" + name, opened; NULL where it is not there. */
static FILE *open_in(const char *folder, const char *name)
{
    char path[4608];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* The first number of a file; NONE for "max", a negative number or no file. */
static uint64_t number_in(const char *folder, const char *name)
{
    int64_t value = -1;
    FILE *file = open_in(folder, name);
    if (!file) return NONE;
    if (fscanf(file, "%" SCNd64, &value) != 1) value = -1;
    fclose(file);
    return value < 0 ? NONE : (uint64_t)value;
}

/* The number behind `key` in a file of "key number" lines; 0 where it is not. */
static uint64_t number_after(const char *folder, const char *name, const char *key)
{
    char line[256];
    uint64_t value = 0;
    size_t length = strlen(key);
    FILE *file = open_in(folder, name);
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, length) == 0 && line[length] == ' ' && sscanf(line + length, "%" SCNu64, &value) == 1)
            break;
    fclose(file);
    return value;
}

static uint64_t memory_left(const char *folder, bool unified)
{
    uint64_t limit = number_in(folder, unified ? "memory.max" : "memory.limit_in_bytes");
    if (limit >= LIMIT_TOP) return NONE;
    uint64_t used = number_in(folder, unified ? "memory.current" : "memory.usage_in_bytes");
    if (used == NONE) return limit;
    uint64_t cache = number_after(folder, "memory.stat", unified ? "inactive_file" : "total_inactive_file");
    used -= cache < used ? cache : used;
    return used < limit ? limit - used : 0;
}

static uint64_t cpus(const char *folder, bool unified)
{
    uint64_t quota = NONE, period = 0;
    if (unified) {
        FILE *file = open_in(folder, "cpu.max");
        if (!file) return NONE;
        int found = fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period); /* "max 100000" begins with no number */
        fclose(file);
        if (found != 2) return NONE;
    } else {
        quota = number_in(folder, "cpu.cfs_quota_us"); /* -1: no limit */
        period = number_in(folder, "cpu.cfs_period_us");
        if (quota == NONE || period == NONE) return NONE;
    }
    return period == 0 ? NONE : quota == 0 ? 1 : (quota - 1) / period + 1;
}

/* The tightest limit from mount + path up to mount itself. Shortens `path`. */
static uint64_t tightest_on_the_way(const char *mount, char *path, bool unified, limit_of_folder *limit)
{
    char folder[4480];
    uint64_t least = NONE;
    for (;;) {
        int length = snprintf(folder, sizeof folder, "%s%s", mount, path);
        uint64_t here = length < (int)sizeof folder ? limit(folder, unified) : NONE;
        if (here < least) least = here;
        char *slash = strrchr(path, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

static bool lists(const char *controllers, const char *wanted)
{
    size_t length = strlen(wanted);
    for (const char *at = controllers; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, wanted, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
    }
    return false;
}

static uint64_t tightest(const char *groups_path, const char *mount, const char *controller, limit_of_folder *limit)
{
    char line[4352], folder[256];
    uint64_t least = NONE;
    FILE *file = fopen(groups_path, "re");
    if (!file) return NONE;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL; /* a path may hold colons of its own */
        if (!path) continue;
        *controllers++ = '\0';
        *path++ = '\0';
        bool unified = controllers[0] == '\0';
        if (!unified && !lists(controllers, controller)) continue;
        if (unified)
            snprintf(folder, sizeof folder, "%s", mount);
        else /* "cpu" is a link to "cpu,cpuacct" where the two share a hierarchy */
            snprintf(folder, sizeof folder, "%s/%s", mount, controller);
        uint64_t here = tightest_on_the_way(folder, path, unified, limit);
        if (here < least) least = here;
    }
    fclose(file);
    return least;
}

uint64_t zr_cgroup_cpus(const char *groups_path, const char *mount)
{
    return tightest(groups_path, mount, "cpu", cpus);
}

uint64_t zr_cgroup_memory_left(const char *groups_path, const char *mount)
{
    return tightest(groups_path, mount, "memory", memory_left);
}
