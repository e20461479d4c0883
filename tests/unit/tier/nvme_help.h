/* nvme_help.h: what the tests of the NVMe tier share: a place on the disk, patterns, a counter of descriptors */
#ifndef TEST_NVME_HELP_H
#define TEST_NVME_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/device/device.h"
#include "engine/tier/nvme.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB 1024u
#define MIB (1024u * 1024u)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Directories under the build folder, which is on a disk, with one name for each path of a store. */
static char test_root[256], test_paths[4][300];

static inline int make_places(void **state)
{
    (void)state;
    snprintf(test_root, sizeof test_root, "%s/nvme-test-XXXXXX", ZR_BINARY_DIR);
    if (!mkdtemp(test_root) || chmod(test_root, 0755)) return -1;
    for (int i = 0; i < 4; i++) {
        snprintf(test_paths[i], sizeof test_paths[i], "%s/disk%d", test_root, i);
        if (mkdir(test_paths[i], 0777) || chmod(test_paths[i], 0777)) return -1;
    }
    return 0;
}

static inline int remove_places(void **state)
{
    (void)state;
    int failed = 0;
    for (int i = 0; i < 4; i++)
        failed |= rmdir(test_paths[i]); /* fails when a file was left behind */
    return failed | rmdir(test_root);
}

static inline struct zr_device *open_host_device(void)
{
    struct zr_device_config config = { .kind = ZR_DEVICE_CPU, .threads = 1 };
    struct zr_device *device = NULL;
    struct zr_error err = { 0 };
    assert_int_equal(zr_device_open(&config, &device, &err), ZR_OK);
    return device;
}

static inline struct zr_nvme_config small_config(uint64_t bytes, uint32_t path_count, struct zr_device *device)
{
    struct zr_nvme_config config = { .path_count = path_count, .bytes = bytes, .host_device = device };
    for (uint32_t i = 0; i < path_count; i++)
        config.paths[i] = test_paths[i];
    return config;
}

static inline struct zr_nvme *open_store(const struct zr_nvme_config *config)
{
    struct zr_nvme *nvme = NULL;
    struct zr_error err = { 0 };
    enum zr_code code = zr_nvme_open(config, &nvme, &err);
    if (code) fail_msg("%s: %s", zr_code_name(code), err.text);
    return nvme;
}

static inline void *aligned_bytes(uint64_t bytes)
{
    void *at = aligned_alloc(4096, bytes);
    assert_non_null(at);
    memset(at, 0xEE, bytes);
    return at;
}

/* splitmix64 */
static inline uint64_t next_random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline void fill_pattern(void *at, uint64_t bytes, uint64_t seed)
{
    uint64_t *words = at;
    for (uint64_t i = 0; i < bytes / 8; i++)
        words[i] = next_random(&seed);
}

static inline unsigned entries_of(const char *path)
{
    DIR *dir = opendir(path);
    unsigned count = 0;
    while (dir && readdir(dir))
        count++;
    if (dir) closedir(dir);
    return count;
}

static inline unsigned open_descriptors(void)
{
    return entries_of("/proc/self/fd");
}

#endif
