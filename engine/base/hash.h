/* hash.h: checksums of chunks and files (CRC32C by ISA-L) */
#ifndef ZR_BASE_HASH_H
#define ZR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli), standard init and final xor: zr_crc32c(0, "123456789", 9) is 0xE3069283. Chainable: pass the
 * last result as `crc` to go on. */
uint32_t zr_crc32c(uint32_t crc, const void *bytes, size_t count);

#endif
