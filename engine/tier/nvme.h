/* nvme.h: the NVMe tier: a space of bytes on files without names, striped over directories
 *
 *     offset in the space ──► stripe ──► (path, offset in its file) ──► blocks of io_block_bytes ──► io_uring or threads
 *
 *   N1  The space is scratch: O_TMPFILE files (or unlinked at once), gone with the process, never recovered.
 *   N2  All of it is reserved and written once when it is opened, so that a full disk is found then and not in a step, and
 *       later writes overwrite in place.
 *   N3  Every transfer is checked for its length. A short one is resumed where it stopped; nothing at all, EIO, ENOSPC and
 *       the like fail the queue and through it the device (D4), with file, offset, wanted and got in the text. EAGAIN and
 *       EINTR are tried again.
 *   N4  With `verify`, the CRC32C of each 4 KiB and the number of its last write are kept in RAM (8 bytes) when it is
 *       written and compared when it is read: a flipped, stale or misplaced block is caught. Checkpoints always verify.
 *   N5  Offsets, lengths and host addresses are multiples of ZR_NVME_ALIGN; what lies between a shard's logical length
 *       and that multiple is padding. A file system whose direct I/O asks for more is treated as one that has none.
 *   N6  Nothing is allocated after open. */
#ifndef ZR_TIER_NVME_H
#define ZR_TIER_NVME_H

#include "config/config.h"
#include "engine/device/device.h"

struct zr_nvme;
struct zr_nvme_queue;

#define ZR_NVME_ALIGN 4096

struct zr_nvme_config {
    const char *paths[ZR_NVME_PATHS_MAX]; /* directories that exist */
    uint32_t path_count;
    uint64_t bytes;              /* of the space: a multiple of ZR_NVME_ALIGN */
    uint32_t block_bytes, depth; /* 1 MiB and 16 where 0; depth counts blocks in flight for each path and queue */
    uint64_t stripe_bytes;       /* consecutive bytes on one path; 0: 4 blocks */
    enum zr_io_engine engine;
    bool verify, allow_buffered;
    void *buffers; /* the host area that transfers come from and go to, for registration; may be NULL */
    uint64_t buffer_bytes;
    struct zr_device *host_device; /* failures go here */
    struct zr_trace *trace;
};

struct zr_nvme_facts {
    const char *engine;      /* "io_uring" or "threads" */
    bool direct, registered; /* O_DIRECT; registered buffers */
    char warning[512];       /* why less than the best was taken, and what to do; "" when nothing to say */
    uint64_t read_bytes, written_bytes, read_busy_ns, write_busy_ns; /* since open, the initial writing left out */
};

/* ZR_EFULL  less than `bytes` free on the paths (missing bytes in the text)
 * ZR_EINPUT a path is missing, not a directory, not writable, or has no O_DIRECT and allow_buffered is false
 * ZR_EIO    anything else; ZR_EGONE: io_uring was asked for by name and is not to be had: the text says why */
ZR_MUST_CHECK enum zr_code zr_nvme_open(const struct zr_nvme_config *config, struct zr_nvme **ret_nvme,
                                        struct zr_error *err);
void zr_nvme_close(struct zr_nvme *nvme); /* queues are closed first; NULL is fine */
void zr_nvme_facts(const struct zr_nvme *nvme, struct zr_nvme_facts *ret_facts); /* any thread */

/* Now, on the calling thread, while no queue touches these bytes: for filling and saving. */
ZR_MUST_CHECK enum zr_code zr_nvme_read(struct zr_nvme *nvme, uint64_t offset, void *to, uint64_t bytes,
                                        struct zr_error *err);
ZR_MUST_CHECK enum zr_code zr_nvme_write(struct zr_nvme *nvme, uint64_t offset, const void *from, uint64_t bytes,
                                         struct zr_error *err);

/* An in-order queue of transfers in one direction, with a thread and a ring of its own. Transfers after a wait do not
 * start before the timeline has that value; a signal fires when all transfers before it are complete. Many transfers are
 * in flight at once: a signal between two does not hold the second back. One thread puts at a time; puts block only when
 * `entries` are queued. */
enum zr_nvme_direction { ZR_NVME_READ, ZR_NVME_WRITE };
ZR_MUST_CHECK enum zr_code zr_nvme_queue_open(struct zr_nvme *nvme, enum zr_nvme_direction direction, const char *name,
                                              uint32_t entries, struct zr_nvme_queue **ret_queue, struct zr_error *err);
void zr_nvme_queue_close(struct zr_nvme_queue *queue); /* waits until idle */
void zr_nvme_queue_wait(struct zr_nvme_queue *queue, struct zr_timeline *timeline, uint64_t value);
/* `label` (copied; may be NULL) names the transfer in the trace. */
void zr_nvme_queue_put(struct zr_nvme_queue *queue, uint64_t offset, void *host, uint64_t bytes,
                       const struct zr_event_record *label);
void zr_nvme_queue_signal(struct zr_nvme_queue *queue, struct zr_timeline *timeline, uint64_t value);

#endif
