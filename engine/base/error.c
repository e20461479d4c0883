/* error.c: sentences for people, codes for the program */
#include "engine/base/error.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Cuts a text that did not fit back to whole characters: a reader of JSON refuses half a UTF-8 sequence. */
static void cut_to_characters(char *text)
{
    size_t length = strlen(text), start = length;
    while (start > 0 && length - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start == 0) return;
    unsigned char first = (unsigned char)text[start - 1];
    size_t wanted = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    if (length - (start - 1) < wanted) text[start - 1] = '\0';
}

enum zr_code zr_fail(struct zr_error *err, enum zr_code code, const char *format, ...)
{
    if (!err) return code;
    char text[sizeof err->text]; /* the arguments may point into the old sentence */
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0) text[0] = '\0';
    if (length >= (int)sizeof text) cut_to_characters(text);
    strcpy(err->text, text);
    return code;
}

enum zr_code zr_fail_in(struct zr_error *err, enum zr_code code, const char *format, ...)
{
    if (!err || !err->text[0]) return code;
    char text[2 * sizeof err->text];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof err->text, format, args);
    va_end(args);
    if (length < 0) return code;
    size_t prefix = strlen(text);
    snprintf(text + prefix, sizeof text - prefix, ": %s", err->text);
    bool cut = strlen(text) >= sizeof err->text;
    text[sizeof err->text - 1] = '\0';
    if (cut) cut_to_characters(text);
    strcpy(err->text, text);
    return code;
}

const char *zr_code_name(enum zr_code code)
{
    static const char *const names[] = { "ok", "input", "config", "full", "io", "gone", "access", "bug" };
    return (unsigned)code < ZR_COUNT(names) ? names[code] : "unknown";
}
