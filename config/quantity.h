/* quantity.h: sizes, counts and durations as people write them */
#ifndef ZR_CONFIG_QUANTITY_H
#define ZR_CONFIG_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

/* "22GiB", "22G" (= GiB), "512MiB", "64k", "4096", "1.5GiB": bytes. false: not a size, negative or above 2^63. */
bool zr_quantity_bytes(const char *text, uint64_t *ret_bytes);

/* "1e9", "5e8", "4096": a whole number written in any way that is exact. false otherwise. */
bool zr_quantity_count(const char *text, uint64_t *ret_count);

/* "2e-5", "0.1", "1": finite. Never reads "1_000", "0x10", "nan" or "inf". */
bool zr_quantity_number(const char *text, double *ret_number);

#endif
