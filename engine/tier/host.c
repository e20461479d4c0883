/* host.c: the host tier: one area of anonymous memory on huge pages
 *
 *     guard │ memory, 2 MiB aligned ........................ │ guard        one reservation; guards are never touched
 *
 *   H1  What is not there is refused before the first touch: touching more than the machine or the control group has
 *       would wake the kernel's killer instead of failing.
 *   H2  Every page is there when the area is open, so no step meets a page fault. Items of the touching loop are cut by
 *       size alone; a page is placed near the thread that touches it, and copies read them all anyway.
 *   H3  The guards keep neighbours from running together in the kernel's map: its count of huge pages for this mapping is
 *       ours alone. */
#include "engine/tier/host.h"
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/place.h"
#include "engine/base/span.h"
#include "engine/base/text.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096u
#define HUGE_BYTES (2u << 20)
#define TOUCH_BYTES (64u << 20) /* one item of the touching loop */
#define SPARE_BYTES (64u << 20) /* stays free for stacks, page tables and small things */

struct zr_host {
    struct zr_device *device;
    char *memory; /* NULL when nothing was asked for */
    void *area;
    uint64_t area_bytes;
    bool registered;
    struct zr_host_facts facts;
};

/* What the whole machine has free; UINT64_MAX when it does not say. */
static uint64_t machine_free_bytes(void)
{
    char line[256];
    unsigned long long kib = 0;
    bool found = false;
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file) return UINT64_MAX;
    while (!found && fgets(line, sizeof line, file))
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    fclose(file);
    return found ? kib * 1024u : UINT64_MAX;
}

static enum zr_code check_room(uint64_t bytes, struct zr_error *err)
{
    struct zr_place place;
    zr_place_look(&place);
    uint64_t tables = bytes / 512; /* page tables, should no huge page be had: 8 bytes a page */
    uint64_t need = bytes + tables + SPARE_BYTES;
    if (need >= bytes && need <= place.memory_bytes && !zr_fault("host_room")) return ZR_OK;

    uint64_t machine = machine_free_bytes();
    bool group = place.memory_bytes < machine - machine / 64; /* the machine's number moves while we look */
    char wanted[24], room[24], spare[24];
    return zr_fail(err, ZR_EFULL, "host memory: %s asked for, %s free %s, of which %s stay free",
                   zr_text_bytes(wanted, bytes), zr_text_bytes(room, place.memory_bytes),
                   group ? "under the memory limit of this control group" : "on this machine",
                   zr_text_bytes(spare, tables + SPARE_BYTES));
}

struct touching {
    char *memory;
    uint64_t bytes;
    _Atomic int failed; /* errno of any item */
};

static void touch_item(void *context, uint32_t item, uint32_t worker)
{
    (void)worker;
    struct touching *touching = context;
    uint64_t first = (uint64_t)item * TOUCH_BYTES, bytes = zr_min_u64(TOUCH_BYTES, touching->bytes - first);
    volatile char *at = touching->memory + first;
    if (madvise((void *)(uintptr_t)at, bytes, MADV_POPULATE_WRITE) == 0) return;
    if (errno != EINVAL) {
        atomic_store(&touching->failed, errno);
        return;
    }
    for (uint64_t offset = 0; offset < bytes; offset += PAGE_BYTES) /* kernels before 5.14 */
        at[offset] = 0;
}

static enum zr_code touch(struct zr_host *host, struct zr_pool *pool, struct zr_error *err)
{
    struct touching touching = { .memory = host->memory, .bytes = host->facts.bytes };
    uint64_t begin_ns = zr_now_ns();
    zr_pool_run(pool, (uint32_t)zr_divide_up(touching.bytes, TOUCH_BYTES), touch_item, &touching);
    host->facts.touch_ns = zr_now_ns() - begin_ns;
    int failed = zr_fault("host_touch") ? ENOMEM : atomic_load(&touching.failed);
    char wanted[24];
    if (failed)
        return zr_fail(err, ZR_EFULL, "host memory: the kernel could not give %s: %s",
                       zr_text_bytes(wanted, touching.bytes), strerror(failed));
    return ZR_OK;
}

static enum zr_code map(struct zr_host *host, uint64_t bytes, struct zr_error *err)
{
    uint64_t align = bytes >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES;
    char wanted[24];
    host->facts.bytes = zr_round_up(bytes, PAGE_BYTES);
    host->area_bytes = host->facts.bytes + align + 2 * PAGE_BYTES;
    void *area = zr_fault("host_map")
                     ? MAP_FAILED
                     : mmap(NULL, host->area_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED)
        return zr_fail(err, ZR_EFULL, "host memory: no addresses for %s: %s", zr_text_bytes(wanted, bytes),
                       strerror(errno));
    host->area = area;
    host->memory = (char *)zr_round_up((uintptr_t)area + PAGE_BYTES, align);
    if (mprotect(host->memory, host->facts.bytes, PROT_READ | PROT_WRITE) != 0)
        return zr_fail(err, ZR_EFULL, "host memory: the kernel refuses %s: %s (its overcommit limit)",
                       zr_text_bytes(wanted, bytes), strerror(errno));
    madvise(host->memory, host->facts.bytes, MADV_HUGEPAGE); /* best effort, as the next two */
    madvise(host->memory, host->facts.bytes, MADV_DONTFORK);
    madvise(host->memory, host->facts.bytes, MADV_DONTDUMP);
    return ZR_OK;
}

/* Bytes of the mapping that begins at `memory` that lie on huge pages; 0 when the kernel does not say. */
static uint64_t huge_bytes_at(const void *memory)
{
    char line[512];
    unsigned long long first, end, kib, huge_kib = 0;
    bool ours = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%llx-%llx ", &first, &end) == 2) {
            if (ours) break;
            ours = first == (uintptr_t)memory;
        } else if (ours && sscanf(line, "AnonHugePages: %llu kB", &kib) == 1) {
            huge_kib = kib;
        }
    }
    fclose(file);
    return huge_kib * 1024u;
}

static enum zr_code register_with_device(struct zr_host *host, struct zr_error *err)
{
    uint64_t begin_ns = zr_now_ns();
    enum zr_code code = zr_device_register(host->device, host->memory, host->facts.bytes, err);
    host->facts.register_ns = zr_now_ns() - begin_ns;
    host->registered = !code;
    return code;
}

enum zr_code zr_host_open(struct zr_device *device, uint64_t bytes, struct zr_pool *pool, struct zr_host **ret_host,
                          struct zr_error *err)
{
    enum zr_code code = ZR_OK;
    struct zr_host *host = calloc(1, sizeof *host);
    if (!host) return zr_fail(err, ZR_EFULL, "no memory for the host tier");
    host->device = device;
    if (bytes > 0 && ((code = check_room(bytes, err)) || (code = map(host, bytes, err)) ||
                      (code = touch(host, pool, err)) || (code = register_with_device(host, err)))) {
        zr_host_close(host);
        return code;
    }
    if (bytes > 0) host->facts.huge_bytes = huge_bytes_at(host->memory);
    *ret_host = host;
    return ZR_OK;
}

void zr_host_close(struct zr_host *host)
{
    if (!host) return;
    if (host->registered) zr_device_unregister(host->device, host->memory);
    if (host->area) munmap(host->area, host->area_bytes);
    free(host);
}

void *zr_host_memory(const struct zr_host *host)
{
    return host->memory;
}

const struct zr_host_facts *zr_host_facts(const struct zr_host *host)
{
    return &host->facts;
}
