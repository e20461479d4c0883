/* check.c: is this message, descriptor or range well formed? Always asked about a private copy */
#include "ipc/check.h"
#include <string.h>

enum zrp_status zrp_check_header(const struct zrp_header *header, size_t bytes, uint32_t fd_count, struct zrp_why *why)
{
    if (bytes < sizeof *header) return zrp_fail(why, ZRP_EPROTOCOL, "a message of %zu bytes has no header", bytes);
    if (header->magic != ZRP_MAGIC) return zrp_fail(why, ZRP_EPROTOCOL, "a message does not begin with ZRP1");
    if (header->size > ZRP_BODY_MAX || header->size != bytes - sizeof *header)
        return zrp_fail(why, ZRP_EPROTOCOL, "a message's body has %zu bytes, its header says %u",
                        bytes - sizeof *header, header->size);
    if (header->fd_count != fd_count)
        return zrp_fail(why, ZRP_EPROTOCOL, "%u descriptors came, the header says %u", fd_count, header->fd_count);
    if (header->zero || header->zero2 || (header->flags & ~(ZRP_REPLY | ZRP_BODY_IN_FD)))
        return zrp_fail(why, ZRP_EPROTOCOL, "reserved bits of a message are set");
    return ZRP_OK;
}

enum zrp_status zrp_check_struct(const void *body, size_t body_bytes, void *ret_struct, size_t struct_bytes,
                                 size_t minimum, struct zrp_why *why)
{
    uint32_t size;
    if (body_bytes < sizeof size) return zrp_fail(why, ZRP_EPROTOCOL, "a message's body is missing");
    memcpy(&size, body, sizeof size);
    if (size < minimum || size > body_bytes)
        return zrp_fail(why, ZRP_EPROTOCOL, "a message's struct says %u bytes, %zu came, %zu are needed", size,
                        body_bytes, minimum);
    for (size_t i = struct_bytes; i < size; i++)
        if (((const unsigned char *)body)[i])
            return zrp_fail(why, ZRP_EPROTOCOL, "a message uses fields that this version does not know");
    memset(ret_struct, 0, struct_bytes);
    memcpy(ret_struct, body, size < struct_bytes ? size : struct_bytes);
    return ZRP_OK;
}

bool zrp_in_slab(uint32_t line, uint64_t bytes, uint64_t slab_bytes)
{
    uint64_t offset = (uint64_t)line * ZRP_LINE;
    return offset <= slab_bytes && bytes <= slab_bytes - offset;
}

uint64_t zrp_logits_offset(const struct zrp_sqe *sqe)
{
    uint64_t end = (uint64_t)sqe->extra_line * ZRP_LINE + (uint64_t)sqe->position_count * 4;
    return (end + ZRP_LINE - 1) / ZRP_LINE * ZRP_LINE;
}

static enum zrp_status check_reserved(const struct zrp_sqe *sqe, struct zrp_why *why)
{
    if (sqe->op >= ZRP_OP_COUNT)
        return zrp_fail(why, ZRP_EPROTOCOL, "a submission asks for operation %u, which does not exist", sqe->op);
    if (sqe->zero || sqe->zero2 || (sqe->flags & ~(ZRP_SQE_LABELS | ZRP_SQE_TARGETS | ZRP_SQE_DOCUMENTS)))
        return zrp_fail(why, ZRP_EPROTOCOL, "reserved bits of a submission are set");
    if ((sqe->flags & ZRP_SQE_LABELS) && (sqe->flags & ZRP_SQE_TARGETS))
        return zrp_fail(why, ZRP_EPROTOCOL, "a submission has labels both shifted and not");
    return ZRP_OK;
}

/* Counts first: they bound the sizes that the ranges are made of, so that no product below can overflow. */
static enum zrp_status check_counts(const struct zrp_sqe *sqe, const struct zrp_bounds *bounds, struct zrp_why *why)
{
    if (sqe->rows == 0) return zrp_fail(why, ZRP_EINPUT, "the batch has 0 rows: at least 1 is needed");
    if (sqe->row_tokens == 0)
        return zrp_fail(why, ZRP_EINPUT, "the batch has %u rows of 0 tokens: at least 1 token is needed", sqe->rows);
    if (sqe->rows > bounds->rows_max)
        return zrp_fail(why, ZRP_EINPUT, "the batch has %u rows, the job takes at most %u", sqe->rows,
                        bounds->rows_max);
    if (sqe->row_tokens > bounds->row_tokens_max)
        return zrp_fail(why, ZRP_EINPUT, "the batch's rows have %u tokens, the job takes at most %u", sqe->row_tokens,
                        bounds->row_tokens_max);
    uint64_t tokens = (uint64_t)sqe->rows * sqe->row_tokens;
    if (!(sqe->flags & ZRP_SQE_DOCUMENTS) && sqe->document_count)
        return zrp_fail(why, ZRP_EPROTOCOL, "a submission counts documents without having any");
    if ((sqe->flags & ZRP_SQE_DOCUMENTS) && (sqe->document_count == 0 || sqe->document_count > tokens))
        return zrp_fail(why, ZRP_EINPUT, "the batch has %u documents for %llu tokens: 1 to %llu are possible",
                        sqe->document_count, (unsigned long long)tokens, (unsigned long long)tokens);
    if (sqe->op != ZRP_LOGITS && sqe->position_count)
        return zrp_fail(why, ZRP_EPROTOCOL, "a submission counts positions that it cannot have");
    if (sqe->op == ZRP_LOGITS && (sqe->position_count == 0 || sqe->position_count > tokens))
        return zrp_fail(why, ZRP_EINPUT, "logits of %u positions were asked for: 1 to %llu are possible",
                        sqe->position_count, (unsigned long long)tokens);
    return ZRP_OK;
}

enum zrp_status zrp_check_sqe(const struct zrp_sqe *sqe, const struct zrp_bounds *bounds, struct zrp_why *why)
{
    enum zrp_status status = check_reserved(sqe, why);
    if (status || sqe->op == ZRP_NOP) return status;
    if ((status = check_counts(sqe, bounds, why))) return status;

    uint64_t bytes = (uint64_t)sqe->rows * sqe->row_tokens * 4, slab_bytes = bounds->slab_bytes;
    bool inside = zrp_in_slab(sqe->tokens_line, bytes, slab_bytes);
    if (sqe->flags & (ZRP_SQE_LABELS | ZRP_SQE_TARGETS))
        inside = inside && zrp_in_slab(sqe->labels_line, bytes, slab_bytes);
    if (sqe->flags & ZRP_SQE_DOCUMENTS)
        inside = inside && zrp_in_slab(sqe->documents_line, (uint64_t)sqe->document_count * 4, slab_bytes);
    if (sqe->op == ZRP_LOGITS) {
        /* positions * vocabulary * 4 < 2^66: divide instead of multiplying */
        inside = inside && zrp_in_slab(sqe->extra_line, (uint64_t)sqe->position_count * 4, slab_bytes) &&
                 zrp_logits_offset(sqe) <= slab_bytes &&
                 (uint64_t)sqe->position_count * bounds->vocabulary <= (slab_bytes - zrp_logits_offset(sqe)) / 4;
    }
    if (!inside) return zrp_fail(why, ZRP_EPROTOCOL, "a submission points outside of the shared memory");
    return ZRP_OK;
}

const char *zrp_next_text(const char **at, const char *end)
{
    const char *text = *at, *nul = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;
    if (!nul) return NULL;
    *at = nul + 1;
    return text;
}
