/* nvme_files.c: the files under the NVMe tier: opened without a name, reserved, written once
 *
 * Writing everything once is not for the zeros: a block that was only reserved costs the file system a journal entry and
 * a lock when it is first written, at less than half the speed of an overwrite. It also finds what a reservation does
 * not: a file system that promises space and has none, or an engine that cannot write here. */
#include "engine/base/fault.h"
#include "engine/base/span.h"
#include "engine/base/text.h"
#include "engine/tier/nvme_store.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { FILL_BYTES = 4 << 20, FILL_DEPTH = 4 }; /* for each file */

uint64_t zr_nvme_file_bytes(const struct zr_nvme *nvme, uint32_t file)
{
    if (nvme->file_count == 1) return nvme->bytes;
    const uint64_t whole = nvme->bytes / nvme->stripe_bytes, rest = nvme->bytes % nvme->stripe_bytes;
    const uint64_t mine = whole / nvme->file_count + (file < whole % nvme->file_count);
    return mine * nvme->stripe_bytes + (file == whole % nvme->file_count ? rest : 0);
}

/* -- one file ------------------------------------------------------------------------------------------------------ */

static enum zr_code check_directory(const char *path, struct stat *ret_status, struct zr_error *err)
{
    if (stat(path, ret_status) != 0) return zr_fail(err, ZR_EINPUT, "nvme path '%s': %s", path, strerrordesc_np(errno));
    if (!S_ISDIR(ret_status->st_mode)) return zr_fail(err, ZR_EINPUT, "nvme path '%s' is not a directory", path);
    if (access(path, W_OK | X_OK) != 0)
        return zr_fail(err, ZR_EINPUT, "nvme path '%s' is not writable: %s", path, strerrordesc_np(errno));
    return ZR_OK;
}

static int failed(int error)
{
    errno = error;
    return -1;
}

/* A file that nobody else can open; -1 and errno. */
static int open_nameless(const char *path, int flags)
{
    if (zr_fault("nvme.open.file")) return failed(EMFILE);
    if (flags & O_DIRECT && zr_fault("nvme.open.direct")) return failed(EINVAL);
    flags |= O_RDWR | O_CLOEXEC;
    int fd = zr_fault("nvme.open.tmpfile") ? failed(EOPNOTSUPP) : open(path, O_TMPFILE | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;

    /* A file system without O_TMPFILE: a name for a moment. */
    for (int tries = 0; tries < 16; tries++) {
        uint64_t number;
        char name[ZR_PATH_MAX + 64];
        if (getrandom(&number, sizeof number, 0) != sizeof number) return -1;
        if (snprintf(name, sizeof name, "%s/.zerod-scratch-%016" PRIx64, path, number) >= (int)sizeof name)
            return failed(ENAMETOOLONG);
        fd = open(name, O_CREAT | O_EXCL | O_NOFOLLOW | flags, 0600);
        if (fd >= 0) unlink(name);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return fd;
}

/* What direct I/O on this file wants aligned; 0: none possible. Kernels that do not tell get the usual 4096. */
static uint32_t direct_align(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx facts;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 && facts.stx_mask & STATX_DIOALIGN)
        return (uint32_t)zr_max_u64(facts.stx_dio_mem_align, facts.stx_dio_offset_align);
#endif
    (void)fd;
    return ZR_NVME_ALIGN;
}

static void warn_of_kind(struct zr_nvme *nvme, const struct zr_nvme_file *file)
{
    struct statfs facts;
    if (fstatfs(file->fd, &facts) != 0) return;
    if (facts.f_type == TMPFS_MAGIC || facts.f_type == RAMFS_MAGIC)
        zr_nvme_warn(nvme, "'%s' is on a memory file system: it takes RAM and moves nothing out of it", file->path);
    if (facts.f_type == BTRFS_SUPER_MAGIC)
        zr_nvme_warn(nvme,
                     "'%s' is on btrfs, which copies on each write: chattr +C the empty directory, or use ext4 or xfs",
                     file->path);
}

static enum zr_code no_file(const struct zr_nvme_file *file, int error, struct zr_error *err)
{
    const bool theirs = error == EACCES || error == EPERM || error == EROFS || error == ENAMETOOLONG;
    return zr_fail(err,
                   theirs                               ? ZR_EINPUT
                   : error == ENOSPC || error == EDQUOT ? ZR_EFULL
                                                        : ZR_EIO,
                   "nvme path '%s': cannot make a file there: %s", file->path, strerrordesc_np(error));
}

static enum zr_code open_buffered(struct zr_nvme *nvme, struct zr_nvme_file *file, bool allowed, uint32_t align,
                                  struct zr_error *err)
{
    if (!allowed && align > ZR_NVME_ALIGN)
        return zr_fail(
            err, ZR_EINPUT,
            "nvme path '%s': direct I/O there wants an alignment of %u bytes, %d are offered; choose another "
            "directory, or set zerod.nvme.allow_buffered to go through the page cache",
            file->path, align, ZR_NVME_ALIGN);
    if (!allowed)
        return zr_fail(err, ZR_EINPUT,
                       "nvme path '%s' has no direct I/O; choose a directory on ext4 or xfs, or set "
                       "zerod.nvme.allow_buffered to go through the page cache",
                       file->path);
    file->fd = open_nameless(file->path, 0);
    if (file->fd < 0) return no_file(file, errno, err);
    zr_nvme_warn(nvme, "'%s' has no direct I/O: its blocks go through the page cache, which takes memory and time",
                 file->path);
    return ZR_OK;
}

static enum zr_code open_file(struct zr_nvme *nvme, struct zr_nvme_file *file, bool allow_buffered,
                              struct zr_error *err)
{
    uint32_t align = 0;
    file->fd = open_nameless(file->path, O_DIRECT);
    if (file->fd < 0 && errno != EINVAL && errno != EOPNOTSUPP) return no_file(file, errno, err);
    if (file->fd >= 0) align = direct_align(file->fd);
    file->direct = align > 0 && align <= ZR_NVME_ALIGN;
    if (!file->direct) {
        if (file->fd >= 0) close(file->fd);
        file->fd = -1;
        enum zr_code code = open_buffered(nvme, file, allow_buffered, align, err);
        if (code) return code;
    }
    warn_of_kind(nvme, file);
    return ZR_OK;
}

/* -- space --------------------------------------------------------------------------------------------------------- */

/* Paths may share a file system: the need is summed. */
static enum zr_code check_space(const struct zr_nvme *nvme, const struct stat *status, struct zr_error *err)
{
    for (uint32_t i = 0; i < nvme->file_count; i++) {
        uint64_t need = 0;
        for (uint32_t j = 0; j < nvme->file_count; j++)
            if (status[j].st_dev == status[i].st_dev) need += nvme->files[j].bytes;
        struct statvfs room;
        if (statvfs(nvme->files[i].path, &room) != 0)
            return zr_fail(err, ZR_EIO, "nvme path '%s': statvfs: %s", nvme->files[i].path, strerrordesc_np(errno));
        const uint64_t free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
        char need_text[24], free_text[24];
        if (need > free_bytes)
            return zr_fail(err, ZR_EFULL, "nvme path '%s': %s asked for, %s free: %" PRIu64 " bytes are missing",
                           nvme->files[i].path, zr_text_bytes(need_text, need), zr_text_bytes(free_text, free_bytes),
                           need - free_bytes);
        struct rlimit limit;
        if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
            limit.rlim_cur < nvme->files[i].bytes) /* going beyond would kill the process by SIGXFSZ */
            return zr_fail(
                err, ZR_EFULL,
                "nvme path '%s': %s asked for, but files may not be larger than %s (RLIMIT_FSIZE, LimitFSIZE=): "
                "%" PRIu64 " bytes are missing",
                nvme->files[i].path, zr_text_bytes(need_text, nvme->files[i].bytes),
                zr_text_bytes(free_text, limit.rlim_cur), nvme->files[i].bytes - (uint64_t)limit.rlim_cur);
    }
    return ZR_OK;
}

static enum zr_code reserve(const struct zr_nvme_file *file, struct zr_error *err)
{
    int error = 0;
    if (file->bytes == 0) return ZR_OK;
    do {
        if (zr_fault("nvme.open.fallocate"))
            error = ENOSPC;
        else
            error = fallocate(file->fd, 0, 0, (off_t)file->bytes) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error == EOPNOTSUPP) error = ftruncate(file->fd, (off_t)file->bytes) == 0 ? 0 : errno; /* the fill will tell */
    char text[24];
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return zr_fail(err, ZR_EFULL, "nvme path '%s': %s cannot be reserved: %s", file->path,
                       zr_text_bytes(text, file->bytes), strerrordesc_np(error));
    if (error) return zr_fail(err, ZR_EIO, "nvme path '%s': fallocate: %s", file->path, strerrordesc_np(error));
    return ZR_OK;
}

/* -- the initial writing ------------------------------------------------------------------------------------------- */

/* Slot s writes file s % file_count, one block after the other. */
struct fill {
    struct zr_io io;
    char *zeros;
    uint64_t next[ZR_NVME_PATHS_MAX];
    struct zr_nvme_block blocks[FILL_DEPTH * ZR_NVME_PATHS_MAX];
};

static void fill_next(struct zr_nvme *nvme, struct fill *fill, uint32_t slot)
{
    const uint32_t file = slot % nvme->file_count;
    const uint64_t left = nvme->files[file].bytes - fill->next[file];
    if (left == 0) return;
    struct zr_nvme_block *block = &fill->blocks[slot];
    *block = (struct zr_nvme_block){ .way = ZR_IO_WRITE,
                                     .file = file,
                                     .bytes = (uint32_t)zr_min_u64(left, FILL_BYTES),
                                     .file_offset = fill->next[file],
                                     .memory = fill->zeros };
    fill->next[file] += block->bytes;
    struct zr_io_request rest = zr_nvme_block_rest(block, slot);
    zr_io_submit(&fill->io, &rest);
}

static enum zr_code fill_all(struct zr_nvme *nvme, struct fill *fill, uint32_t slots, struct zr_error *err)
{
    enum zr_code code = ZR_OK;
    for (uint32_t slot = 0; slot < slots; slot++)
        fill_next(nvme, fill, slot);
    while (fill->io.in_flight > 0) {
        struct zr_io_done done[FILL_DEPTH * ZR_NVME_PATHS_MAX];
        uint32_t count = zr_io_reap(&fill->io, done, ZR_COUNT(done), 100000000);
        for (uint32_t i = 0; i < count; i++) {
            enum zr_code failure = ZR_OK;
            struct zr_nvme_block *block = &fill->blocks[done[i].slot];
            struct zr_error why = { 0 };
            enum zr_nvme_turn turn = zr_nvme_block_turn(nvme, block, done[i].result, &failure, &why);
            if (turn == ZR_NVME_FAILED && code == ZR_OK) code = zr_fail(err, failure, "%s", why.text);
            if (code) continue; /* nothing new is begun: what flies comes back */
            struct zr_io_request rest = zr_nvme_block_rest(block, done[i].slot);
            if (turn == ZR_NVME_AGAIN)
                zr_io_submit(&fill->io, &rest);
            else
                fill_next(nvme, fill, done[i].slot);
        }
    }
    return code;
}

static enum zr_code fill_files(struct zr_nvme *nvme, struct zr_error *err)
{
    struct zr_io_setup setup = { .fd_count = nvme->file_count, .depth = FILL_DEPTH * nvme->file_count };
    for (uint32_t i = 0; i < nvme->file_count; i++)
        setup.fds[i] = nvme->files[i].fd;
    struct fill *fill = calloc(1, sizeof *fill);
    char *zeros = mmap(NULL, FILL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!fill || zeros == MAP_FAILED) {
        free(fill);
        if (zeros != MAP_FAILED) munmap(zeros, FILL_BYTES);
        return zr_fail(err, ZR_EFULL, "no memory to fill the nvme tier with");
    }
    memset(zeros, 0, FILL_BYTES);
    fill->zeros = zeros;
    char refusal[ZR_IO_REFUSAL_BYTES];
    enum zr_code code = zr_nvme_engine_open(nvme, &setup, &fill->io, refusal, err);
    if (!code) {
        code = fill_all(nvme, fill, setup.depth, err);
        zr_io_close(&fill->io);
    }
    munmap(zeros, FILL_BYTES);
    free(fill);
    return code;
}

/* ------------------------------------------------------------------------------------------------------------------ */

enum zr_code zr_nvme_files_open(struct zr_nvme *nvme, const struct zr_nvme_config *config, struct zr_error *err)
{
    struct stat status[ZR_NVME_PATHS_MAX];
    enum zr_code code = ZR_OK;
    for (uint32_t i = 0; i < nvme->file_count && !code; i++) {
        nvme->files[i].path = strdup(config->paths[i]);
        nvme->files[i].bytes = zr_nvme_file_bytes(nvme, i);
        code = nvme->files[i].path ? check_directory(nvme->files[i].path, &status[i], err)
                                   : zr_fail(err, ZR_EFULL, "no memory for the nvme tier");
    }
    if (!code) code = check_space(nvme, status, err);
    for (uint32_t i = 0; i < nvme->file_count && !code; i++)
        if (!(code = open_file(nvme, &nvme->files[i], config->allow_buffered, err)))
            code = reserve(&nvme->files[i], err);
    if (!code) code = fill_files(nvme, err);
    return code;
}

void zr_nvme_files_close(struct zr_nvme *nvme)
{
    for (uint32_t i = 0; i < nvme->file_count; i++) {
        if (nvme->files[i].fd >= 0) close(nvme->files[i].fd);
        free(nvme->files[i].path);
    }
}
