/* quantity.c: sizes, counts and numbers, exact or refused
 *
 * One reader of decimal text serves all three: sign, digits, fraction, exponent, and where it stopped. What YAML 1.1 or C
 * would also take (1_000, 0x10, 010, nan, 1:30) stops it early, so that nothing is read as something else. */
#include "config/quantity.h"
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 40 /* significant digits that a person may write */

struct decimal {
    char digits[DIGITS_MAX + 1]; /* without the point and without leading zeros; "" is zero */
    int count;                   /* of digits */
    long exponent;               /* value = digits * 10^exponent */
    bool negative;
    const char *end; /* first character that is not part of the number */
};

static bool read_digits(const char **at, struct decimal *number, bool after_point)
{
    for (; isdigit((unsigned char)**at); ++*at) {
        if (after_point) number->exponent--;
        if (number->count == 0 && **at == '0') continue; /* leading zeros */
        if (number->count == DIGITS_MAX) return false;
        number->digits[number->count++] = **at;
    }
    return true;
}

/* [+-] digits [. digits] [e [+-] digits]; or [+-] . digits. No leading zero before another digit. */
static bool read_decimal(const char *text, struct decimal *number)
{
    *number = (struct decimal){ .negative = text[0] == '-' };
    const char *at = text + (text[0] == '-' || text[0] == '+');
    if (at[0] == '0' && isdigit((unsigned char)at[1])) return false; /* octal to some readers */

    const char *first = at;
    if (!read_digits(&at, number, false)) return false;
    bool any = at > first;
    if (*at == '.') {
        const char *fraction = ++at;
        if (!read_digits(&at, number, true)) return false;
        any = any || at > fraction;
    }
    if (!any) return false;

    if (*at == 'e' || *at == 'E') {
        const char *digits = at + 1 + (at[1] == '-' || at[1] == '+');
        if (isdigit((unsigned char)*digits)) {
            long power = 0;
            for (at++; at < digits; at++)
                ;
            for (; isdigit((unsigned char)*at); at++)
                if (power < 100000) power = power * 10 + (*at - '0');
            number->exponent += digits[-1] == '-' ? -power : power;
        }
    }
    number->end = at;
    return true;
}

/* number * unit, rounded down; *ret_exact tells whether nothing was cut off. false: above 2^63. */
static bool scale_decimal(const struct decimal *number, uint64_t unit, uint64_t *ret_value, bool *ret_exact)
{
    const unsigned __int128 limit = (unsigned __int128)1 << 63;
    unsigned __int128 value = 0;
    *ret_exact = true;
    *ret_value = 0;
    if (number->count == 0) return true;

    /* Whole part first, then the digits behind the point one by one: value = whole * unit + sum(digit * unit / 10^k). */
    long whole_digits = number->count + number->exponent;
    if (whole_digits > 20) return false;
    for (long i = 0; i < whole_digits; i++)
        value = value * 10 + (unsigned)(i < number->count ? number->digits[i] - '0' : 0);
    if (value > limit) return false;
    value *= unit;
    if (value > limit) return false;

    unsigned __int128 rest = 0, divisor = 1;
    for (long i = whole_digits < 0 ? whole_digits : 0; i < number->count; i++) {
        if (i >= 0 && i < whole_digits) continue;
        unsigned digit = i < 0 ? 0 : (unsigned)(number->digits[i] - '0');
        if (divisor > (unsigned __int128)1000000000000000000u) { /* beyond 18 places nothing adds a byte */
            if (digit) *ret_exact = false;
            continue;
        }
        divisor *= 10;
        rest = rest * 10 + digit;
    }
    rest *= unit;
    if (rest % divisor) *ret_exact = false;
    value += rest / divisor;
    if (value > limit) return false;
    *ret_value = (uint64_t)value;
    return true;
}

/* Power of 1024 of "G", "GiB", "g", ...; 0: not a unit. */
static uint64_t unit_of(const char *text)
{
    static const char letters[] = "kmgtp";
    if (text[0] == '\0' || strcasecmp(text, "B") == 0) return 1;
    const char *letter = strchr(letters, tolower((unsigned char)text[0]));
    if (!letter || (text[1] != '\0' && strcasecmp(text + 1, "iB") != 0)) return 0;
    return (uint64_t)1 << (10 * (letter - letters + 1));
}

bool zr_quantity_bytes(const char *text, uint64_t *ret_bytes)
{
    struct decimal number;
    if (!read_decimal(text, &number) || number.negative) return false;
    const char *unit_text = number.end + (*number.end == ' '); /* "22 GiB", as sizes are printed */
    uint64_t unit = unit_of(unit_text);
    if (unit == 0 || (*number.end == ' ' && *unit_text == '\0')) return false;

    uint64_t bytes;
    bool exact;
    if (!scale_decimal(&number, unit, &bytes, &exact) || (unit == 1 && !exact)) return false;
    *ret_bytes = bytes;
    return true;
}

bool zr_quantity_count(const char *text, uint64_t *ret_count)
{
    struct decimal number;
    uint64_t count;
    bool exact;
    if (!read_decimal(text, &number) || number.negative || *number.end != '\0') return false;
    if (!scale_decimal(&number, 1, &count, &exact) || !exact) return false;
    *ret_count = count;
    return true;
}

bool zr_quantity_number(const char *text, double *ret_number)
{
    struct decimal number;
    if (!read_decimal(text, &number) || *number.end != '\0') return false;

    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* a point is a point wherever the program runs */
    if (plain == (locale_t)0) return false;
    char *end;
    double value = strtod_l(text, &end, plain);
    freelocale(plain);
    if (*end != '\0' || !isfinite(value)) return false;
    if (value == 0 && number.count > 0) return false; /* 1e-400 is not zero */
    *ret_number = value;
    return true;
}
