/* Sizes, counts and numbers are read exactly or not at all. Expected values are powers of two and ten, worked by hand. */
#include "config/quantity.h"
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void sizes_are_binary_and_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        { "0", 0 },
        { "4096", 4096 },
        { "64k", 65536 },
        { "64K", 65536 },
        { "64KiB", 65536 },
        { "512MiB", 536870912 },
        { "5.5MiB", 5767168 },
        { "22GiB", 23622320128u },
        { "22G", 23622320128u },
        { "22 GiB", 23622320128u },
        { "22g", 23622320128u },
        { "1.5GiB", 1610612736 },
        { "0.5KiB", 512 },
        { "2T", 2199023255552u },
        { "1e6", 1000000 },
        { "96B", 96 },
        { "8191PiB", 9222246136947933184u },
        { "9223372036854775807", 9223372036854775807u },
        { "9223372036854775808", 9223372036854775808u }, /* 2^63 itself */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 1;
        if (!zr_quantity_bytes(cases[i].text, &bytes)) fail_msg("%s", cases[i].text);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void what_is_no_size_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = { "",
                                         "GiB",
                                         "-1",
                                         "-1GiB",
                                         "22GB",
                                         "22GX",
                                         "22 ",
                                         " 22",
                                         "1_000",
                                         "0x10",
                                         "010",
                                         "nan",
                                         "inf",
                                         "1.5",
                                         "1e-3",
                                         "80%",
                                         "9000PiB",
                                         "1e30",
                                         "auto",
                                         "1,5G",
                                         "22GiB ",
                                         "22  G",
                                         "1e",
                                         "1.2.3",
                                         "9223372036854775809",
                                         "99999999999999999999999999999999999999999999999" };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 77;
        if (zr_quantity_bytes(cases[i], &bytes)) fail_msg("'%s' was read as %llu", cases[i], (unsigned long long)bytes);
        assert_int_equal(bytes, 77);
    }
}

static void counts_may_be_written_in_any_exact_way(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t count;
    } cases[] = { { "0", 0 },
                  { "5e8", 500000000 },
                  { "1e9", 1000000000 },
                  { "500000000.0", 500000000 },
                  { "2.5e3", 2500 },
                  { "1E3", 1000 },
                  { "1e+3", 1000 },
                  { "1200e-2", 12 },
                  { "+7", 7 },
                  { "0.5e1", 5 },
                  { "0e5", 0 },
                  { "1e18", 1000000000000000000u },
                  { "9007199254740993", 9007199254740993u } /* not a double */ };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t count = 1;
        if (!zr_quantity_count(cases[i].text, &count)) fail_msg("%s", cases[i].text);
        assert_int_equal(count, cases[i].count);
    }
    static const char *const wrong[] = { "0.5", "419430.4", "1e-10", "-1",  "-0.0e1x", "1e400",
                                         "1k",  "012",      "1_0",   "0b1", "true",    "1e99999999999999999999",
                                         "." };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint64_t count;
        if (zr_quantity_count(wrong[i], &count)) fail_msg("'%s' was read", wrong[i]);
    }
}

static void numbers_are_finite_decimals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double number;
    } cases[] = { { "2e-5", 2e-5 }, { "0.1", 0.1 },   { "1", 1 },         { "-3", -3 }, { ".5", 0.5 },
                  { "1.", 1 },      { "3e-4", 3e-4 }, { "1e308", 1e308 }, { "0", 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double number = 99;
        if (!zr_quantity_number(cases[i].text, &number)) fail_msg("%s", cases[i].text);
        assert_true(number == cases[i].number);
    }
    static const char *const wrong[] = { "nan",    "inf",  "-inf", "NaN", "infinity", "1_000", "0x10", "0x1p3", "1e400",
                                         "1e-400", "1e5x", "",     "-",   "e5",       ".",     "1:30", "1 " };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        double number;
        if (zr_quantity_number(wrong[i], &number)) fail_msg("'%s' was read", wrong[i]);
    }
}

int main(void)
{
    setlocale(LC_ALL, ""); /* a German or French user's point is a comma */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_binary_and_exact),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(counts_may_be_written_in_any_exact_way),
        cmocka_unit_test(numbers_are_finite_decimals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
