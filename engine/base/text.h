/* text.h: bounded strings, byte counts for people */
#ifndef ZR_BASE_TEXT_H
#define ZR_BASE_TEXT_H

#include "engine/base/error.h"
#include <stddef.h>
#include <stdint.h>

/* A string that grows; its memory is the heap's. { 0 } is an empty one; zr_text_fini() is safe on it.
 * Aborts when memory runs out: texts are small and made outside of steps. */
struct zr_text {
    char *at; /* always ends with NUL once anything was added; NULL before */
    size_t length, room;
};

void zr_text_add(struct zr_text *text, const char *format, ...) ZR_PRINTF(2, 3);
void zr_text_add_bytes(struct zr_text *text, const void *bytes, size_t count);
const char *zr_text_c(const struct zr_text *text); /* "" when empty */
void zr_text_fini(struct zr_text *text);

/* "22 GiB", "5.5 MiB", "96 bytes": binary units, three significant digits, into `out` (at least 24 bytes); returns out. */
const char *zr_text_bytes(char out[24], uint64_t bytes);

/* "1,173,376" into `out` (at least 32 bytes); returns out. */
const char *zr_text_count(char out[32], uint64_t count);

/* snprintf that asserts that the whole text fitted: for names whose length the caller bounds. */
void zr_text_print(char *out, size_t room, const char *format, ...) ZR_PRINTF(3, 4);

#endif
