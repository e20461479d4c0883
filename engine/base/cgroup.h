/* cgroup.h: what the control groups of this process leave it: processors and memory
 *
 * Both functions read the file that lists a process's groups (/proc/self/cgroup) and the folder where the hierarchies are
 * mounted (/sys/fs/cgroup), version 2 and version 1, and walk from the process's group up to the root, since the tightest
 * limit on the way counts. Both paths are arguments so that tests can show other people's machines.
 * UINT64_MAX means no limit; what cannot be read is no limit. */
#ifndef ZR_BASE_CGROUP_H
#define ZR_BASE_CGROUP_H

#include <stdint.h>

/* Processors' worth of time, rounded up: a quota of 150 ms in 100 ms is 2. */
uint64_t zr_cgroup_cpus(const char *groups_path, const char *mount);

/* Bytes that may still be taken: the limit less what is in use; pages of files that the kernel would drop first (inactive
 * cache) count as not in use. */
uint64_t zr_cgroup_memory_left(const char *groups_path, const char *mount);

#endif
