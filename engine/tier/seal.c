/* seal.c: checksums of the NVMe tier's blocks */
#include "engine/tier/seal.h"
#include "engine/base/fault.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

struct zr_seal {
    uint64_t count;
    struct mark {
        _Atomic uint32_t crc;
        _Atomic uint32_t write; /* twice the number of writes; odd: begun, not ended */
    } marks[];
};

static void put(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed); /* callers bring the order */
}

static uint32_t get(const _Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

enum zr_code zr_seal_make(uint64_t bytes, struct zr_seal **ret_seal, struct zr_error *err)
{
    static const unsigned char zeros[ZR_SEAL_BYTES];
    assert(bytes % ZR_SEAL_BYTES == 0);
    const uint64_t count = bytes / ZR_SEAL_BYTES;
    struct zr_seal *seal =
        zr_fault("nvme.seal.memory") ? NULL : malloc(sizeof *seal + (size_t)count * sizeof seal->marks[0]);
    char text[24];
    if (!seal)
        return zr_fail(err, ZR_EFULL, "no memory for the checksums of the nvme tier (%s)",
                       zr_text_bytes(text, count * sizeof seal->marks[0]));
    const uint32_t crc = zr_crc32c(0, zeros, sizeof zeros);
    seal->count = count;
    for (uint64_t i = 0; i < count; i++) {
        atomic_init(&seal->marks[i].crc, crc);
        atomic_init(&seal->marks[i].write, 0);
    }
    *ret_seal = seal;
    return ZR_OK;
}

void zr_seal_free(struct zr_seal *seal)
{
    free(seal);
}

static uint64_t first_mark(const struct zr_seal *seal, uint64_t offset, uint64_t bytes)
{
    assert(offset % ZR_SEAL_BYTES == 0 && bytes % ZR_SEAL_BYTES == 0);
    assert((offset + bytes) / ZR_SEAL_BYTES <= seal->count);
    return offset / ZR_SEAL_BYTES;
}

void zr_seal_begin(struct zr_seal *seal, uint64_t offset, const void *from, uint64_t bytes)
{
    struct mark *mark = seal->marks + first_mark(seal, offset, bytes);
    for (const char *at = from; bytes > 0; at += ZR_SEAL_BYTES, bytes -= ZR_SEAL_BYTES, mark++) {
        put(&mark->write, (get(&mark->write) + 1) | 1);
        put(&mark->crc, zr_crc32c(0, at, ZR_SEAL_BYTES));
    }
}

void zr_seal_end(struct zr_seal *seal, uint64_t offset, uint64_t bytes)
{
    struct mark *mark = seal->marks + first_mark(seal, offset, bytes);
    for (; bytes > 0; bytes -= ZR_SEAL_BYTES, mark++)
        put(&mark->write, (get(&mark->write) | 1) + 1);
}

enum zr_code zr_seal_check(const struct zr_seal *seal, uint64_t offset, const void *bytes_read, uint64_t bytes,
                           struct zr_error *err)
{
    const struct mark *mark = seal->marks + first_mark(seal, offset, bytes);
    for (const char *at = bytes_read; bytes > 0; at += ZR_SEAL_BYTES, bytes -= ZR_SEAL_BYTES, mark++) {
        const uint64_t where = (uint64_t)(mark - seal->marks) * ZR_SEAL_BYTES;
        const uint32_t write = get(&mark->write), wanted = get(&mark->crc);
        if (write & 1)
            return zr_fail(err, ZR_EIO,
                           "block at %" PRIu64 " of the nvme tier is read, but write %u of it has not ended well",
                           where, write / 2 + 1);
        const uint32_t got = zr_crc32c(0, at, ZR_SEAL_BYTES);
        if (got != wanted)
            return zr_fail(err, ZR_EIO,
                           "block at %" PRIu64
                           " of the nvme tier does not hold the bytes of its last write (number %u): "
                           "CRC-32C %08x, wanted %08x; the disk lost, mixed up or changed them",
                           where, write / 2, got, wanted);
    }
    return ZR_OK;
}
