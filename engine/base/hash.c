/* hash.c: CRC32C by ISA-L, which picks the fastest code for the processor */
#include "engine/base/hash.h"
#include <isa-l/crc.h>

uint32_t zr_crc32c(uint32_t crc, const void *bytes, size_t count)
{
    crc = ~crc;
    const unsigned char *at = bytes;
    while (count > 0) { /* the library counts in int */
        size_t part = count < (1u << 30) ? count : 1u << 30;
        crc = crc32_iscsi((unsigned char *)at, (int)part, crc);
        at += part;
        count -= part;
    }
    return ~crc;
}
