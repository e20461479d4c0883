/* error.c: sentences for people, codes for the program */
#include "engine/base/error.h"
#include <stdio.h>
#include <string.h>

enum zr_code zr_fail(struct zr_error *err, enum zr_code code, const char *format, ...)
{
    if (!err) return code;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return code;
}

enum zr_code zr_fail_in(struct zr_error *err, enum zr_code code, const char *format, ...)
{
    if (!err) return code;
    char rest[sizeof err->text];
    memcpy(rest, err->text, sizeof rest);
    va_list args;
    va_start(args, format);
    int length = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (length < 0 || (size_t)length + 3 > sizeof err->text) return code;
    size_t room = sizeof err->text - (size_t)length - 3; /* for ": " and the NUL */
    memcpy(err->text + length, ": ", 2);
    size_t kept = strnlen(rest, room);
    memcpy(err->text + length + 2, rest, kept);
    err->text[(size_t)length + 2 + kept] = '\0';
    return code;
}

const char *zr_code_name(enum zr_code code)
{
    static const char *const names[] = { "ok", "input", "config", "full", "io", "gone", "access", "bug" };
    return (unsigned)code < ZR_COUNT(names) ? names[code] : "unknown";
}
