/* error.h: the one convention for failure
 *
 * A function that can fail returns enum zr_code and takes a struct zr_error * last. Who fails fills the sentence with
 * zr_fail(); who succeeds leaves it alone. The code is for the program (a kind exists only where someone acts on it
 * differently), the text is for the person: it names the file, line, key or tensor, and what to do. */
#ifndef ZR_BASE_ERROR_H
#define ZR_BASE_ERROR_H

#include <stdarg.h>

#define ZR_MUST_CHECK __attribute__((warn_unused_result))
#define ZR_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define ZR_COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum zr_code {
    ZR_OK,
    ZR_EINPUT,  /* a file, key, tensor or request is wrong: nothing was changed         */
    ZR_ECONFIG, /* the configuration is wrong: exit code 78                             */
    ZR_EFULL,   /* a budget or a disk is full: make room and ask again                  */
    ZR_EIO,     /* a device or file failed: the job stops at its last whole step        */
    ZR_EGONE,   /* the peer or the device went away: attach again                       */
    ZR_EACCESS, /* not allowed: exit code 77                                            */
    ZR_EBUG,    /* zerod broke its own promise: report it                               */
};

/* A sentence, empty while all is well. Initialise with { 0 }. A value: copy it freely. */
struct zr_error {
    char text[1024];
};

/* Writes the sentence (cut to fit, between characters of UTF-8; the arguments may be pieces of the old sentence) and
 * returns `code`, so that `return zr_fail(...)` reads well. `err` may be NULL. */
enum zr_code zr_fail(struct zr_error *err, enum zr_code code, const char *format, ...) ZR_PRINTF(3, 4);

/* Puts "prefix: " before a sentence that is there, does nothing where there is none: for callers who know more (which file, which unit). Returns `code`. */
enum zr_code zr_fail_in(struct zr_error *err, enum zr_code code, const char *format, ...) ZR_PRINTF(3, 4);

/* "input", "full", "io", ...: for logs and JSON. */
const char *zr_code_name(enum zr_code code);

#endif
