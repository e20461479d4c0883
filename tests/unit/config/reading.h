/* reading.h: one configuration read from a text, with all that was said about it, for the tests of config/ */
#ifndef ZR_TEST_READING_H
#define ZR_TEST_READING_H

#include "config/config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct reading {
    enum zr_code code;
    struct zr_error err;
    struct zr_config config;
    struct zr_config_report *report;
    struct zr_text said; /* every remark, "note: ..." a line */
};

static struct reading *now; /* of the test that runs */

/* Launchers' variables of whoever runs the tests must not count. */
static void no_launcher(void)
{
    static const char *const names[] = { "RANK",         "WORLD_SIZE",   "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                         "PMI_SIZE",     "PMI_RANK",     "SLURM_NTASKS",         "SLURM_PROCID",
                                         "SLURM_JOB_ID", "SLURM_STEP_ID" };
    for (size_t i = 0; i < ZR_COUNT(names); i++)
        unsetenv(names[i]);
}

static void forget(void)
{
    if (!now) return;
    zr_config_report_free(now->report);
    zr_text_fini(&now->said);
    free(now);
    now = NULL;
}

static struct reading *read_with(const char *name, const char *text, size_t bytes, const char *const *sets,
                                 uint32_t count)
{
    static const char *const kinds[] = { "note", "warning", "error" };
    forget();
    now = calloc(1, sizeof *now);
    assert_non_null(now);
    now->code = zr_config_read_text(name, text, bytes, sets, count, &now->config, &now->report, &now->err);
    assert_non_null(now->report);
    assert_true((now->code == ZR_OK) == (now->err.text[0] == '\0'));
    for (uint32_t i = 0; i < zr_config_remark_count(now->report); i++) {
        zr_text_add(&now->said, "%s: ", kinds[zr_config_remark(now->report, i)->kind]);
        zr_config_remark_text(now->report, i, &now->said);
        zr_text_add(&now->said, "\n");
    }
    return now;
}

static inline struct reading *read_yaml(const char *text)
{
    return read_with("t.yaml", text, strlen(text), NULL, 0);
}

static inline struct reading *read_json(const char *text)
{
    return read_with("t.json", text, strlen(text), NULL, 0);
}

static inline struct reading *read_json_set(const char *text, const char *set)
{
    return read_with("t.json", text, strlen(text), &set, 1);
}

#define assert_said(text)                                                                                              \
    do {                                                                                                               \
        if (!strstr(zr_text_c(&now->said), (text))) {                                                                  \
            print_error("not said: %s\nbut:\n%s", (text), zr_text_c(&now->said));                                      \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

#define assert_not_said(text)                                                                                          \
    do {                                                                                                               \
        if (strstr(zr_text_c(&now->said), (text))) {                                                                   \
            print_error("said: %s\nin:\n%s", (text), zr_text_c(&now->said));                                           \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

#define assert_ok()                                                                                                    \
    do {                                                                                                               \
        if (now->code != ZR_OK) fail_msg("%s", now->err.text);                                                         \
    } while (0)

#define assert_refused(text)                                                                                           \
    do {                                                                                                               \
        assert_int_equal(now->code, ZR_ECONFIG);                                                                       \
        assert_said(text);                                                                                             \
    } while (0)

static inline int start(void **state)
{
    (void)state;
    no_launcher();
    return 0;
}

static inline int finish(void **state)
{
    (void)state;
    forget();
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

#endif
