/* nvme_store.h: what the files nvme*.c share */
#ifndef ZR_TIER_NVME_STORE_H
#define ZR_TIER_NVME_STORE_H

#include "engine/tier/io.h"
#include "engine/tier/nvme.h"
#include "engine/tier/seal.h"
#include <stdatomic.h>

struct zr_nvme_file {
    char *path; /* of the directory */
    int fd;     /* -1: none */
    uint64_t bytes;
    bool direct;
};

struct zr_nvme {
    struct zr_nvme_file files[ZR_NVME_PATHS_MAX];
    uint32_t file_count;
    uint64_t bytes, stripe_bytes;
    uint32_t block_bytes;
    uint32_t depth; /* blocks in flight in one queue: what was configured, for each file */
    void *buffers;
    uint64_t buffer_bytes;
    struct zr_device *host_device;
    struct zr_trace *trace;
    struct zr_seal *seal; /* NULL: not verified */
    enum zr_io_engine wish;

    pthread_mutex_t lock; /* guards the next five */
    const struct zr_io_backend *engine;
    char warning[512];
    bool registered, register_refused;
    uint32_t queue_count;

    _Atomic uint64_t moved_bytes[2], busy_ns[2]; /* by enum zr_io_way */
};

/* A piece of a transfer: in one file, at most block_bytes. */
struct zr_nvme_block {
    enum zr_io_way way;
    uint32_t file, bytes, done; /* `done` bytes have been moved */
    uint32_t tries;             /* in a row that moved nothing */
    uint64_t space_offset, file_offset;
    char *memory;
};

enum zr_nvme_turn { ZR_NVME_DONE, ZR_NVME_AGAIN, ZR_NVME_FAILED };

/* The first block of a transfer; the caller goes on behind its `bytes`. Seals what will be written. */
void zr_nvme_block_begin(struct zr_nvme *nvme, enum zr_io_way way, uint64_t offset, void *memory, uint64_t bytes,
                         struct zr_nvme_block *ret_block);
struct zr_io_request zr_nvme_block_rest(const struct zr_nvme_block *block, uint32_t slot);

/* Judges a result (N3). FAILED: *ret_code and err say why. DONE: all bytes are there; a read is yet to be verified. */
enum zr_nvme_turn zr_nvme_block_turn(struct zr_nvme *nvme, struct zr_nvme_block *block, int32_t result,
                                     enum zr_code *ret_code, struct zr_error *err);

/* Compares a block that was read with its seal (N4); ZR_OK where there is nothing to compare. */
ZR_MUST_CHECK enum zr_code zr_nvme_block_verify(const struct zr_nvme *nvme, const struct zr_nvme_block *block,
                                                struct zr_error *err);

/* Adds a sentence to the warning, where it still fits. */
void zr_nvme_warn(struct zr_nvme *nvme, const char *format, ...) ZR_PRINTF(2, 3);

/* Opens the engine that the store uses. Where it is not to be had and the choice is ours, the store uses threads from now
 * on, with a warning. */
ZR_MUST_CHECK enum zr_code zr_nvme_engine_open(struct zr_nvme *nvme, const struct zr_io_setup *setup, struct zr_io *io,
                                               char refusal[ZR_IO_REFUSAL_BYTES], struct zr_error *err);

/* nvme_files.c: opens, reserves and fills the files; chooses the engine on the way. */
ZR_MUST_CHECK enum zr_code zr_nvme_files_open(struct zr_nvme *nvme, const struct zr_nvme_config *config,
                                              struct zr_error *err);
void zr_nvme_files_close(struct zr_nvme *nvme);

/* Where the space's end falls in file `file`. */
uint64_t zr_nvme_file_bytes(const struct zr_nvme *nvme, uint32_t file);

#endif
