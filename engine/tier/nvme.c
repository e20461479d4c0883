/* nvme.c: the space of bytes: which file has what, whether a transfer went well, transfers of the calling thread
 *
 *     block ──submit──► result ──► all there: a write is sealed ──► DONE ──► a read is verified
 *       ▲                 │ EAGAIN, EINTR, fewer bytes: the rest again       (a few times, or while bytes arrive)
 *       └─────────────────┘ nothing, EIO, ENOSPC ──► FAILED
 */
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/span.h"
#include "engine/tier/nvme_store.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static_assert(ZR_NVME_ALIGN == ZR_SEAL_BYTES && ZR_NVME_ALIGN == ZR_IO_ALIGN, "a seal for each aligned piece");
static_assert((int)ZR_NVME_READ == (int)ZR_IO_READ && (int)ZR_NVME_WRITE == (int)ZR_IO_WRITE,
              "one direction, two names");

enum {
    BLOCK_BYTES = 1 << 20,
    BLOCK_BYTES_MAX = 64 << 20,
    DEPTH = 16,
    DEPTH_MAX = 256,
    TRIES_MAX = 200,   /* EAGAIN in a row, ... */
    TRIES_AT_ONCE = 8, /* ... after so many with a pause of a millisecond */
};

/* -- blocks -------------------------------------------------------------------------------------------------------- */

void zr_nvme_block_begin(struct zr_nvme *nvme, enum zr_io_way way, uint64_t offset, void *memory, uint64_t bytes,
                         struct zr_nvme_block *ret_block)
{
    uint64_t in_file = offset, room = bytes;
    uint32_t file = 0;
    if (nvme->file_count > 1) {
        const uint64_t stripe = offset / nvme->stripe_bytes, inside = offset % nvme->stripe_bytes;
        file = (uint32_t)(stripe % nvme->file_count);
        in_file = stripe / nvme->file_count * nvme->stripe_bytes + inside;
        room = nvme->stripe_bytes - inside;
    }
    bytes = zr_min_u64(zr_min_u64(bytes, room), nvme->block_bytes);
    *ret_block = (struct zr_nvme_block){ .way = way,
                                         .file = file,
                                         .bytes = (uint32_t)bytes,
                                         .space_offset = offset,
                                         .file_offset = in_file,
                                         .memory = memory };
    assert(zr_inside(in_file, bytes, nvme->files[file].bytes));
    if (way == ZR_IO_WRITE && nvme->seal) zr_seal_begin(nvme->seal, offset, memory, bytes);
}

struct zr_io_request zr_nvme_block_rest(const struct zr_nvme_block *block, uint32_t slot)
{
    return (struct zr_io_request){ .way = block->way,
                                   .slot = slot,
                                   .file = block->file,
                                   .bytes = block->bytes - block->done,
                                   .offset = block->file_offset + block->done,
                                   .memory = block->memory + block->done };
}

static enum zr_nvme_turn fail_block(const struct zr_nvme *nvme, const struct zr_nvme_block *block, int32_t result,
                                    enum zr_code *ret_code, struct zr_error *err)
{
    const bool full = result == -ENOSPC || result == -EDQUOT || result == -EFBIG;
    const uint32_t got = block->done + (result > 0 ? (uint32_t)result : 0);
    *ret_code = zr_fail(
        err, full ? ZR_EFULL : ZR_EIO, "nvme: %s of %u bytes at %" PRIu64 " of the scratch file in '%s' moved %u: %s",
        block->way == ZR_IO_READ ? "read" : "write", block->bytes, block->file_offset, nvme->files[block->file].path,
        got, result < 0 ? strerrordesc_np(-result) : "the rest does not come");
    return ZR_NVME_FAILED;
}

enum zr_nvme_turn zr_nvme_block_turn(struct zr_nvme *nvme, struct zr_nvme_block *block, int32_t result,
                                     enum zr_code *ret_code, struct zr_error *err)
{
    if ((result == -EAGAIN || result == -EINTR) && ++block->tries < TRIES_MAX) {
        if (block->tries > TRIES_AT_ONCE) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        return ZR_NVME_AGAIN;
    }
    if (result < 0 || (uint32_t)result > block->bytes - block->done)
        return fail_block(nvme, block, result, ret_code, err);

    /* Direct I/O goes on at an aligned place only. */
    const uint32_t whole = (uint32_t)result & ~(ZR_NVME_ALIGN - 1u);
    if (whole == 0) return fail_block(nvme, block, result, ret_code, err);
    block->done += whole;
    block->tries = 0;
    if (block->done < block->bytes) return ZR_NVME_AGAIN;

    if (nvme->seal && block->way == ZR_IO_WRITE) zr_seal_end(nvme->seal, block->space_offset, block->bytes);
    atomic_fetch_add_explicit(&nvme->moved_bytes[block->way], block->bytes, memory_order_relaxed);
    return ZR_NVME_DONE;
}

enum zr_code zr_nvme_block_verify(const struct zr_nvme *nvme, const struct zr_nvme_block *block, struct zr_error *err)
{
    if (!nvme->seal || block->way != ZR_IO_READ) return ZR_OK;
    enum zr_code code = zr_seal_check(nvme->seal, block->space_offset, block->memory, block->bytes, err);
    if (code)
        zr_fail_in(err, code, "scratch file in '%s' at %" PRIu64, nvme->files[block->file].path, block->file_offset);
    return code;
}

/* -- transfers of the calling thread ------------------------------------------------------------------------------- */

static enum zr_code transfer(struct zr_nvme *nvme, enum zr_io_way way, uint64_t offset, char *memory, uint64_t bytes,
                             struct zr_error *err)
{
    assert(zr_inside(offset, bytes, nvme->bytes) && offset % ZR_NVME_ALIGN == 0 && bytes % ZR_NVME_ALIGN == 0);
    const uint64_t begin_ns = zr_now_ns();
    while (bytes > 0) {
        struct zr_nvme_block block;
        enum zr_nvme_turn turn;
        enum zr_code code;
        zr_nvme_block_begin(nvme, way, offset, memory, bytes, &block);
        do {
            struct zr_io_request rest = zr_nvme_block_rest(&block, 0);
            turn = zr_nvme_block_turn(nvme, &block, zr_io_now(nvme->files[block.file].fd, &rest), &code, err);
        } while (turn == ZR_NVME_AGAIN);
        if (turn == ZR_NVME_FAILED || (code = zr_nvme_block_verify(nvme, &block, err))) return code;
        offset += block.bytes;
        memory += block.bytes;
        bytes -= block.bytes;
    }
    atomic_fetch_add_explicit(&nvme->busy_ns[way], zr_now_ns() - begin_ns, memory_order_relaxed);
    return ZR_OK;
}

enum zr_code zr_nvme_read(struct zr_nvme *nvme, uint64_t offset, void *to, uint64_t bytes, struct zr_error *err)
{
    return transfer(nvme, ZR_IO_READ, offset, to, bytes, err);
}

enum zr_code zr_nvme_write(struct zr_nvme *nvme, uint64_t offset, const void *from, uint64_t bytes,
                           struct zr_error *err)
{
    return transfer(nvme, ZR_IO_WRITE, offset, (char *)(uintptr_t)from, bytes,
                    err); /* only read through this pointer */
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

void zr_nvme_warn(struct zr_nvme *nvme, const char *format, ...)
{
    char text[sizeof nvme->warning];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&nvme->lock);
    size_t length = strlen(nvme->warning);
    snprintf(nvme->warning + length, sizeof nvme->warning - length, "%s%s", length ? "; " : "", text);
    pthread_mutex_unlock(&nvme->lock);
}

enum zr_code zr_nvme_engine_open(struct zr_nvme *nvme, const struct zr_io_setup *setup, struct zr_io *io,
                                 char refusal[ZR_IO_REFUSAL_BYTES], struct zr_error *err)
{
    struct zr_error why = { 0 };
    pthread_mutex_lock(&nvme->lock);
    const struct zr_io_backend *engine = nvme->engine;
    pthread_mutex_unlock(&nvme->lock);
    enum zr_code code = zr_io_open(io, engine, setup, refusal, &why);
    if (code == ZR_EGONE && nvme->wish == ZR_IO_AUTO && engine != &zr_io_backend_threads) {
        zr_nvme_warn(nvme, "I/O by threads: %s", why.text);
        pthread_mutex_lock(&nvme->lock);
        nvme->engine = &zr_io_backend_threads;
        pthread_mutex_unlock(&nvme->lock);
        code = zr_io_open(io, &zr_io_backend_threads, setup, refusal, &why);
    }
    return code ? zr_fail(err, code, "nvme: %s", why.text) : ZR_OK;
}

static enum zr_code check_config(const struct zr_nvme_config *config, struct zr_error *err)
{
    if (config->path_count < 1 || config->path_count > ZR_NVME_PATHS_MAX)
        return zr_fail(err, ZR_EINPUT, "nvme: %u paths given, 1 to %d wanted", config->path_count, ZR_NVME_PATHS_MAX);
    if (config->bytes == 0 || config->bytes % ZR_NVME_ALIGN)
        return zr_fail(err, ZR_EINPUT, "nvme: a size of %" PRIu64 " bytes is not a multiple of %d", config->bytes,
                       ZR_NVME_ALIGN);
    if (config->block_bytes % ZR_NVME_ALIGN || config->block_bytes > BLOCK_BYTES_MAX)
        return zr_fail(err, ZR_EINPUT, "nvme: blocks of %u bytes: a multiple of %d up to %d is wanted",
                       config->block_bytes, ZR_NVME_ALIGN, BLOCK_BYTES_MAX);
    if (config->stripe_bytes % ZR_NVME_ALIGN)
        return zr_fail(err, ZR_EINPUT, "nvme: stripes of %" PRIu64 " bytes are not a multiple of %d",
                       config->stripe_bytes, ZR_NVME_ALIGN);
    if (config->depth > DEPTH_MAX)
        return zr_fail(err, ZR_EINPUT, "nvme: a depth of %u, at most %d is wanted", config->depth, DEPTH_MAX);
    return ZR_OK;
}

enum zr_code zr_nvme_open(const struct zr_nvme_config *config, struct zr_nvme **ret_nvme, struct zr_error *err)
{
    enum zr_code code = check_config(config, err);
    if (code) return code;
    struct zr_nvme *nvme = zr_fault("nvme.memory") ? NULL : calloc(1, sizeof *nvme);
    if (!nvme) return zr_fail(err, ZR_EFULL, "no memory for the nvme tier");
    pthread_mutex_init(&nvme->lock, NULL);
    for (uint32_t i = 0; i < ZR_NVME_PATHS_MAX; i++)
        nvme->files[i].fd = -1; /* from here on, safe to close */
    nvme->file_count = config->path_count;
    nvme->bytes = config->bytes;
    nvme->block_bytes = config->block_bytes ? config->block_bytes : BLOCK_BYTES;
    nvme->stripe_bytes = config->stripe_bytes ? config->stripe_bytes : (uint64_t)4 * nvme->block_bytes;
    nvme->depth = (config->depth ? config->depth : DEPTH) * config->path_count;
    nvme->wish = config->engine;
    nvme->engine = config->engine == ZR_IO_THREADS ? &zr_io_backend_threads : &zr_io_backend_uring;
    nvme->buffers = config->buffers;
    nvme->buffer_bytes = config->buffer_bytes;
    nvme->host_device = config->host_device;
    nvme->trace = config->trace;

    if ((code = zr_nvme_files_open(nvme, config, err)) ||
        (config->verify && (code = zr_seal_make(config->bytes, &nvme->seal, err)))) {
        zr_nvme_close(nvme);
        return code;
    }
    for (int way = 0; way < 2; way++)
        atomic_store(&nvme->moved_bytes[way], 0); /* the initial writing is left out */
    *ret_nvme = nvme;
    return ZR_OK;
}

void zr_nvme_close(struct zr_nvme *nvme)
{
    if (!nvme) return;
    assert(nvme->queue_count == 0);
    zr_nvme_files_close(nvme);
    zr_seal_free(nvme->seal);
    pthread_mutex_destroy(&nvme->lock);
    free(nvme);
}

void zr_nvme_facts(const struct zr_nvme *nvme, struct zr_nvme_facts *ret_facts)
{
    struct zr_nvme *self = (struct zr_nvme *)(uintptr_t)nvme; /* the lock is not part of what the caller sees */
    *ret_facts = (struct zr_nvme_facts){ .direct = true };
    for (uint32_t i = 0; i < nvme->file_count; i++)
        ret_facts->direct &= nvme->files[i].direct;
    pthread_mutex_lock(&self->lock);
    ret_facts->engine = nvme->engine->name;
    ret_facts->registered = nvme->registered;
    memcpy(ret_facts->warning, nvme->warning, sizeof nvme->warning);
    pthread_mutex_unlock(&self->lock);
    ret_facts->read_bytes = atomic_load_explicit(&nvme->moved_bytes[ZR_IO_READ], memory_order_relaxed);
    ret_facts->written_bytes = atomic_load_explicit(&nvme->moved_bytes[ZR_IO_WRITE], memory_order_relaxed);
    ret_facts->read_busy_ns = atomic_load_explicit(&nvme->busy_ns[ZR_IO_READ], memory_order_relaxed);
    ret_facts->write_busy_ns = atomic_load_explicit(&nvme->busy_ns[ZR_IO_WRITE], memory_order_relaxed);
}
