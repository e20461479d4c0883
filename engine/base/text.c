/* text.c: bounded strings, byte counts for people */
#include "engine/base/text.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void make_room(struct zr_text *text, size_t more)
{
    size_t need = text->length + more + 1;
    if (need <= text->room) return;
    size_t room = text->room ? text->room : 128;
    while (room < need)
        room *= 2;
    char *at = realloc(text->at, room);
    if (!at) abort();
    text->at = at;
    text->room = room;
}

void zr_text_add(struct zr_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    assert(length >= 0);
    make_room(text, (size_t)length);
    vsnprintf(text->at + text->length, (size_t)length + 1, format, again);
    va_end(again);
    text->length += (size_t)length;
}

void zr_text_add_bytes(struct zr_text *text, const void *bytes, size_t count)
{
    make_room(text, count);
    memcpy(text->at + text->length, bytes, count);
    text->length += count;
    text->at[text->length] = '\0';
}

const char *zr_text_c(const struct zr_text *text)
{
    return text->at ? text->at : "";
}

void zr_text_fini(struct zr_text *text)
{
    free(text->at);
    *text = (struct zr_text){ 0 };
}

const char *zr_text_bytes(char out[24], uint64_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    unsigned unit = 0;
    while (value >= 999.5 && unit + 1 < ZR_COUNT(units)) {
        value /= 1024;
        unit++;
    }
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
    int length = snprintf(out, 24, "%.*f", decimals, value);
    if (decimals > 0) { /* 22.0 is 22, 5.50 is 5.5 */
        while (out[length - 1] == '0')
            length--;
        if (out[length - 1] == '.') length--;
    }
    snprintf(out + length, 24 - (size_t)length, " %s", bytes == 1 ? "byte" : units[unit]);
    return out;
}

const char *zr_text_count(char out[32], uint64_t count)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
    char *to = out;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

void zr_text_print(char *out, size_t room, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out, room, format, args);
    va_end(args);
    assert(length >= 0 && (size_t)length < room);
}
