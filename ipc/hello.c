/* hello.c: versions, features, limits */
#include "ipc/hello.h"
#include "ipc/check.h"
#include <stdio.h>
#include <string.h>

#define SLAB_LIMIT ((uint64_t)1 << 37) /* lines fit in 32 bits, with room to spare */

static uint16_t smaller(uint16_t a, uint16_t b)
{
    return a < b ? a : b;
}

struct zrp_hello zrp_hello_make(const char *name, const char *library, uint32_t ring_entries, uint64_t slab_bytes)
{
    struct zrp_hello hello = { .size = sizeof hello, .major = ZRP_MAJOR, .minor = ZRP_MINOR, .features = ZRP_FEATURES };
    hello.ring_entries = 1;
    while (hello.ring_entries < ring_entries && hello.ring_entries < ((uint32_t)1 << 31))
        hello.ring_entries *= 2;
    hello.slab_bytes = slab_bytes > SLAB_LIMIT ? SLAB_LIMIT : slab_bytes;
    hello.slab_bytes = (hello.slab_bytes + ZRP_SLAB_ALIGN - 1) / ZRP_SLAB_ALIGN * ZRP_SLAB_ALIGN;
    snprintf(hello.name, sizeof hello.name, "%s", name);
    snprintf(hello.library, sizeof hello.library, "%s", library);
    return hello;
}

enum zrp_status zrp_hello_answer(const void *body, size_t bytes, const struct zrp_limits *limits,
                                 struct zrp_hello *ret_hello, struct zrp_welcome *ret_welcome,
                                 struct zrp_layout *ret_layout, struct zrp_why *why)
{
    struct zrp_hello hello = { 0 };
    if (bytes < offsetof(struct zrp_hello, features))
        return zrp_fail(why, ZRP_EPROTOCOL, "a greeting of %zu bytes is too short", bytes);
    memcpy(&hello, body, offsetof(struct zrp_hello, features)); /* these fields are the same in every major version */
    if (hello.major != ZRP_MAJOR)
        return zrp_fail(why, ZRP_EVERSION, "the library speaks protocol %u.%u, this daemon %u.0 to %u.%u", hello.major,
                        hello.minor, ZRP_MAJOR, ZRP_MAJOR, ZRP_MINOR);
    enum zrp_status status = zrp_check_struct(body, bytes, &hello, sizeof hello, sizeof hello, why);
    if (status) return status;
    if (hello.zero || !memchr(hello.name, 0, sizeof hello.name) || !memchr(hello.library, 0, sizeof hello.library))
        return zrp_fail(why, ZRP_EPROTOCOL, "the greeting is not well formed");
    if (hello.ring_entries == 0 || (hello.ring_entries & (hello.ring_entries - 1)) ||
        hello.ring_entries > limits->ring_entries_max)
        return zrp_fail(why, ZRP_EINPUT, "a ring of %u entries was asked for: a power of two up to %u is possible",
                        hello.ring_entries, limits->ring_entries_max);
    if (hello.slab_bytes == 0 || hello.slab_bytes % ZRP_SLAB_ALIGN || hello.slab_bytes > limits->slab_bytes_max)
        return zrp_fail(why, ZRP_EINPUT,
                        "shared memory of %llu bytes was asked for: pages up to %llu bytes are possible",
                        (unsigned long long)hello.slab_bytes, (unsigned long long)limits->slab_bytes_max);

    struct zrp_layout layout = zrp_layout_make(hello.ring_entries, hello.slab_bytes);
    *ret_hello = hello;
    *ret_layout = layout;
    *ret_welcome = (struct zrp_welcome){
        .size = sizeof *ret_welcome,
        .major = ZRP_MAJOR,
        .minor = smaller(hello.minor, ZRP_MINOR),
        .features = hello.features & ZRP_FEATURES,
        .ring_entries = layout.ring_entries,
        .down_bytes = layout.down_bytes,
        .up_bytes = layout.up_bytes,
        .cqe_offset = layout.cqe_offset,
        .sentence_offset = layout.sentence_offset,
        .sqe_offset = layout.sqe_offset,
        .slab_offset = layout.slab_offset,
        .slab_bytes = layout.slab_bytes,
    };
    return ZRP_OK;
}

enum zrp_status zrp_welcome_check(const void *body, size_t bytes, const struct zrp_hello *hello,
                                  struct zrp_welcome *ret_welcome, struct zrp_layout *ret_layout, struct zrp_why *why)
{
    struct zrp_welcome welcome;
    enum zrp_status status = zrp_check_struct(body, bytes, &welcome, sizeof welcome, sizeof welcome, why);
    if (status) return status;
    if (welcome.major != ZRP_MAJOR || welcome.minor > ZRP_MINOR || (welcome.features & ~hello->features))
        return zrp_fail(why, ZRP_EVERSION, "the daemon chose protocol %u.%u, which this library does not speak",
                        welcome.major, welcome.minor);
    if (welcome.ring_entries != hello->ring_entries || welcome.slab_bytes != hello->slab_bytes)
        return zrp_fail(why, ZRP_EPROTOCOL, "the daemon granted other sizes than were asked for");
    struct zrp_layout layout = zrp_layout_make(welcome.ring_entries, welcome.slab_bytes);
    if (welcome.down_bytes != layout.down_bytes || welcome.up_bytes != layout.up_bytes ||
        welcome.cqe_offset != layout.cqe_offset || welcome.sentence_offset != layout.sentence_offset ||
        welcome.sqe_offset != layout.sqe_offset || welcome.slab_offset != layout.slab_offset)
        return zrp_fail(why, ZRP_EPROTOCOL, "the daemon lays the shared memory out in an unknown way");
    *ret_welcome = welcome;
    *ret_layout = layout;
    return ZRP_OK;
}
