/* words.c: numbers for people */
#include "clients/zeroctl/words.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct words words_bytes(uint64_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    struct words words;
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1000 && unit < 6) { /* 1000, not 1024: never more than three digits before the point */
        value /= 1024;
        unit++;
    }
    snprintf(words.text, sizeof words.text,
             unit == 0     ? "%.0f %s"
             : value < 10  ? "%.2f %s"
             : value < 100 ? "%.1f %s"
                           : "%.0f %s",
             value, units[unit]);
    return words;
}

struct words words_count(uint64_t count)
{
    struct words words;
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) words.text[at++] = ',';
        words.text[at++] = digits[i];
    }
    words.text[at] = 0;
    return words;
}

struct words words_rate(double rate)
{
    struct words words;
    if (rate >= 999500)
        snprintf(words.text, sizeof words.text, "%.2fM", rate / 1e6);
    else if (rate >= 9995)
        snprintf(words.text, sizeof words.text, "%.1fk", rate / 1e3);
    else
        snprintf(words.text, sizeof words.text, "%.0f", rate);
    return words;
}

struct words words_duration(double seconds)
{
    struct words words;
    if (!isfinite(seconds) || seconds < 0) seconds = 0;
    const uint64_t whole = (uint64_t)(seconds + 0.5), hours = whole / 3600;
    if (hours >= 48)
        snprintf(words.text, sizeof words.text, "%" PRIu64 " d %02" PRIu64 " h", hours / 24, hours % 24);
    else if (hours > 0)
        snprintf(words.text, sizeof words.text, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, hours, whole / 60 % 60,
                 whole % 60);
    else
        snprintf(words.text, sizeof words.text, "%" PRIu64 ":%02" PRIu64, whole / 60, whole % 60);
    return words;
}
