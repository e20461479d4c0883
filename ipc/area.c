/* area.c: memory to share: make, seal, map */
#include "ipc/area.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

struct zrp_layout zrp_layout_make(uint32_t ring_entries, uint64_t slab_bytes)
{
    struct zrp_layout layout = { .ring_entries = ring_entries, .slab_bytes = slab_bytes };
    layout.cqe_offset = ZRP_CONTROL;
    layout.sentence_offset = layout.cqe_offset + (uint64_t)ring_entries * sizeof(struct zrp_cqe);
    layout.down_bytes = round_up(layout.sentence_offset + (uint64_t)ring_entries * ZRP_SENTENCE, ZRP_SLAB_ALIGN);
    layout.sqe_offset = ZRP_CONTROL;
    layout.slab_offset = round_up(layout.sqe_offset + (uint64_t)ring_entries * sizeof(struct zrp_sqe), ZRP_SLAB_ALIGN);
    layout.up_bytes = layout.slab_offset + slab_bytes;
    return layout;
}

static int memfd_open(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

enum zrp_status zrp_area_make(struct zrp_area *area, enum zrp_area_kind kind, size_t bytes, struct zrp_why *why)
{
    static const struct {
        const char *name;
        int seals;
    } kinds[] = {
        [ZRP_AREA_DOWN] = { "zerod-down", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL },
        [ZRP_AREA_UP] = { "zerod-up", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL },
        [ZRP_AREA_TEXT] = { "zerod-text", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL },
    };
    *area = (struct zrp_area){ .fd = memfd_open(kinds[kind].name) };
    if (area->fd >= 0 && ftruncate(area->fd, (off_t)bytes) == 0) {
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, area->fd, 0);
        if (at != MAP_FAILED) {
            area->at = at;
            area->bytes = bytes;
            if (fcntl(area->fd, F_ADD_SEALS, kinds[kind].seals) == 0) return ZRP_OK;
        }
    }
    enum zrp_status status = zrp_fail(why, ZRP_EFULL, "no shared memory of %zu bytes: %s", bytes, strerror(errno));
    zrp_area_close(area);
    return status;
}

enum zrp_status zrp_area_make_text(struct zrp_area *area, const void *text, size_t bytes, struct zrp_why *why)
{
    enum zrp_status status = zrp_area_make(area, ZRP_AREA_TEXT, bytes ? bytes : 1, why);
    if (status == ZRP_OK) memcpy(area->at, text, bytes);
    return status;
}

enum zrp_status zrp_area_map(struct zrp_area *area, int fd, size_t bytes, bool writable, struct zrp_why *why)
{
    *area = (struct zrp_area){ .fd = -1 };
    struct stat stat;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &stat) != 0 || stat.st_size < 0 || (uint64_t)stat.st_size != bytes)
        return zrp_fail(why, ZRP_EPROTOCOL, "shared memory of another size than agreed came along");
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return zrp_fail(why, ZRP_EPROTOCOL, "shared memory that could shrink came along");
    void *at = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return zrp_fail(why, ZRP_EFULL, "cannot map %zu bytes of shared memory: %s", bytes, strerror(errno));
    *area = (struct zrp_area){ .fd = fd, .at = at, .bytes = bytes };
    return ZRP_OK;
}

void zrp_area_close(struct zrp_area *area)
{
    if (area->at) munmap(area->at, area->bytes);
    if (area->fd >= 0) close(area->fd);
    *area = (struct zrp_area){ .fd = -1 };
}
