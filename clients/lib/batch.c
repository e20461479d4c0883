/* batch.c: room for tokens in the slab
 *
 * The slab is the client's: the daemon only reads where a submission points. Extents are lent first fit from a list in the
 * process's own memory, in multiples of 4 KiB, so that no two batches share a page. */
#include "clients/lib/internal.h"
#include <stdlib.h>
#include <string.h>

enum { EXTENT_ALIGN = 4096 };

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* The gap before extent `index` (extent_count: after the last). */
static struct zc_extent gap_before(const struct zc_client *client, uint32_t index)
{
    const struct zc_extent *extents = client->extents;
    uint64_t begin = index ? extents[index - 1].offset + extents[index - 1].bytes : 0;
    uint64_t end = index < client->extent_count ? extents[index].offset : client->layout.slab_bytes;
    return (struct zc_extent){ .offset = begin, .bytes = end - begin };
}

uint64_t zc_slab_largest(const struct zc_client *client)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i <= client->extent_count; i++)
        if (gap_before(client, i).bytes > largest) largest = gap_before(client, i).bytes;
    return largest;
}

bool zc_slab_take(struct zc_client *client, uint64_t bytes, uint64_t *ret_offset)
{
    if (bytes > client->layout.slab_bytes) return false;
    bytes = round_up(bytes ? bytes : 1, EXTENT_ALIGN);
    if (client->extent_count == client->extent_room) {
        uint32_t room = client->extent_room ? client->extent_room * 2 : 16;
        struct zc_extent *extents = realloc(client->extents, room * sizeof *extents);
        if (!extents) return false;
        client->extents = extents;
        client->extent_room = room;
    }
    for (uint32_t i = 0; i <= client->extent_count; i++) {
        struct zc_extent gap = gap_before(client, i);
        if (gap.bytes < bytes) continue;
        memmove(client->extents + i + 1, client->extents + i, (client->extent_count - i) * sizeof *client->extents);
        client->extents[i] = (struct zc_extent){ .offset = gap.offset, .bytes = bytes };
        client->extent_count++;
        *ret_offset = gap.offset;
        return true;
    }
    return false;
}

void zc_slab_give_back(struct zc_client *client, uint64_t offset)
{
    for (uint32_t i = 0; i < client->extent_count; i++) {
        if (client->extents[i].offset != offset) continue;
        client->extent_count--;
        memmove(client->extents + i, client->extents + i + 1, (client->extent_count - i) * sizeof *client->extents);
        return;
    }
}

ZC_EXPORT int zc_batch_take(struct zc_client *client, struct zc_batch *batch)
{
    zc_clear();
    int code = zc_check_owner(client);
    if (code) return code;
    if (!batch || batch->size < sizeof *batch)
        return zc_fail(ZC_EINPUT, "zc_batch.size is not set: set it to sizeof of the struct");
    if (batch->rows == 0 || batch->row_tokens == 0)
        return zc_fail(ZC_EINPUT, "a batch of %u rows of %u tokens: at least 1 of each is needed", batch->rows,
                       batch->row_tokens);
    uint64_t array_bytes = round_up((uint64_t)batch->rows * batch->row_tokens * 4, ZRP_LINE); /* below 2^66: */
    if ((uint64_t)batch->rows * batch->row_tokens > client->layout.slab_bytes / 4)
        array_bytes = client->layout.slab_bytes; /* two of them never fit */
    uint64_t bytes = 2 * array_bytes + (uint64_t)batch->document_max * 4, offset;
    if (!zc_slab_take(client, bytes, &offset))
        return zc_fail(ZC_EFULL,
                       "a batch of %u rows of %u tokens takes %llu bytes; the largest free piece of the %llu shared "
                       "bytes has %llu: give batches back, or connect with a larger slab",
                       batch->rows, batch->row_tokens, (unsigned long long)bytes,
                       (unsigned long long)client->layout.slab_bytes, (unsigned long long)zc_slab_largest(client));
    batch->private_offset = offset;
    batch->tokens = (int32_t *)(void *)(client->slab + offset);
    batch->labels = (int32_t *)(void *)(client->slab + offset + array_bytes);
    batch->document_starts = batch->document_max ? (uint32_t *)(void *)(client->slab + offset + 2 * array_bytes) : NULL;
    return ZC_OK;
}

ZC_EXPORT void zc_batch_give_back(struct zc_client *client, struct zc_batch *batch)
{
    if (!client || !batch || !batch->tokens) return;
    zc_slab_give_back(client, batch->private_offset);
    batch->tokens = batch->labels = NULL;
    batch->document_starts = NULL;
}
