/* seal.h: what every 4 KiB of the NVMe tier must hold: checksum and number of the last write, in RAM
 *
 * Nothing of it is on the disk, so a block that the disk lost, kept old, put elsewhere or changed cannot agree with it.
 * Eight bytes for each 4096. The number is odd from the moment a write begins until it has ended well: a read in between,
 * or after a failed write, is told apart from a broken disk.
 *
 * Any thread; two that touch the same bytes are ordered by their callers (timelines). */
#ifndef ZR_TIER_SEAL_H
#define ZR_TIER_SEAL_H

#include "engine/base/error.h"
#include <stdint.h>

#define ZR_SEAL_BYTES 4096u

struct zr_seal;

/* For `bytes` (a multiple of ZR_SEAL_BYTES) of zeros. ZR_EFULL: no memory for the table. */
ZR_MUST_CHECK enum zr_code zr_seal_make(uint64_t bytes, struct zr_seal **ret_seal, struct zr_error *err);
void zr_seal_free(struct zr_seal *seal); /* NULL is fine */

/* Before the write: takes the checksums of what will be written. After it went well: makes them valid. */
void zr_seal_begin(struct zr_seal *seal, uint64_t offset, const void *from, uint64_t bytes);
void zr_seal_end(struct zr_seal *seal, uint64_t offset, uint64_t bytes);

/* ZR_EIO: the bytes are not those of the last write (the text has the offset, both checksums and the write's number), or
 * that write failed or has not ended. */
ZR_MUST_CHECK enum zr_code zr_seal_check(const struct zr_seal *seal, uint64_t offset, const void *bytes_read,
                                         uint64_t bytes, struct zr_error *err);

#endif
