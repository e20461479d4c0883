/* check.h: is this message, descriptor or range well formed? Always asked about a private copy
 *
 * Two kinds of wrong: what no library of ours sends ends the session (ZRP_EPROTOCOL); what a person can get wrong, such as
 * a batch of no rows, is refused with a sentence and the session goes on (ZRP_EINPUT). */
#ifndef ZRP_CHECK_H
#define ZRP_CHECK_H

#include "ipc/status.h"
#include "ipc/wire.h"
#include <stdbool.h>

/* `bytes` came, with `fd_count` descriptors. */
enum zrp_status zrp_check_header(const struct zrp_header *header, size_t bytes, uint32_t fd_count, struct zrp_why *why);

/* Copies a struct that begins with its size out of a body by W2. `minimum`: what the first version had. ZRP_EPROTOCOL. */
enum zrp_status zrp_check_struct(const void *body, size_t body_bytes, void *ret_struct, size_t struct_bytes,
                                 size_t minimum, struct zrp_why *why);

/* What the job and the session allow. */
struct zrp_bounds {
    uint64_t slab_bytes;
    uint32_t rows_max, row_tokens_max, vocabulary;
};

/* A submission, apart from its job (looked up before, for the bounds) and the values in the slab (checked on the copy).
 * Afterwards every array of it lies inside the slab and every count inside the bounds. `bounds` of a NOP may be NULL. */
enum zrp_status zrp_check_sqe(const struct zrp_sqe *sqe, const struct zrp_bounds *bounds, struct zrp_why *why);

/* Byte offset of the logits of a LOGITS submission in the slab. */
uint64_t zrp_logits_offset(const struct zrp_sqe *sqe);

/* Are [line*64, line*64 + bytes) inside the slab? */
bool zrp_in_slab(uint32_t line, uint64_t bytes, uint64_t slab_bytes);

/* The next text of `*at`, which ends before `end`; NULL: no NUL there. Moves *at behind it. */
const char *zrp_next_text(const char **at, const char *end);

#endif
