/* test_check.c: each field of a hostile header, struct and submission */
#include "ipc/check.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct zrp_bounds bounds = {
    .slab_bytes = 1 << 20, .rows_max = 8, .row_tokens_max = 128, .vocabulary = 257
};

/* 8 x 128 tokens, labels and 8 documents, all inside. */
static struct zrp_sqe good(enum zrp_op op)
{
    return (struct zrp_sqe){ .op = (uint8_t)op,
                             .flags = ZRP_SQE_LABELS | ZRP_SQE_DOCUMENTS,
                             .job = 16,
                             .ticket = 1,
                             .tokens_line = 0,
                             .labels_line = 64,
                             .documents_line = 128,
                             .extra_line = 256,
                             .rows = 8,
                             .row_tokens = 128,
                             .document_count = 8,
                             .position_count = op == ZRP_LOGITS ? 4 : 0 };
}

static enum zrp_status check(struct zrp_sqe sqe)
{
    struct zrp_why why = { 0 };
    enum zrp_status status = zrp_check_sqe(&sqe, &bounds, &why);
    assert_true((status == ZRP_OK) == (why.text[0] == 0)); /* who refuses says why */
    return status;
}

#define WITH(op, member, value)                                                                                        \
    ({                                                                                                                 \
        struct zrp_sqe s = good(op);                                                                                   \
        s.member = value;                                                                                              \
        check(s);                                                                                                      \
    })

static void good_submissions_pass(void **state)
{
    (void)state;
    assert_int_equal(check(good(ZRP_TRAIN)), ZRP_OK);
    assert_int_equal(check(good(ZRP_ACCUMULATE)), ZRP_OK);
    assert_int_equal(check(good(ZRP_EVAL)), ZRP_OK);
    assert_int_equal(check(good(ZRP_LOGITS)), ZRP_OK);
    struct zrp_sqe nop = { .op = ZRP_NOP, .ticket = 7 };
    assert_int_equal(zrp_check_sqe(&nop, NULL, NULL), ZRP_OK);
    assert_int_equal(WITH(ZRP_TRAIN, row_tokens, 1), ZRP_OK); /* nothing to predict is no error */
}

static void what_a_person_gets_wrong_is_refused_and_the_session_goes_on(void **state)
{
    (void)state;
    assert_int_equal(WITH(ZRP_TRAIN, rows, 0), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_TRAIN, row_tokens, 0), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_TRAIN, rows, 9), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_TRAIN, rows, UINT32_MAX), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_TRAIN, row_tokens, 129), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_TRAIN, row_tokens, UINT32_MAX), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_TRAIN, document_count, 0), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_TRAIN, document_count, 8 * 128 + 1), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_LOGITS, position_count, 0), ZRP_EINPUT);
    assert_int_equal(WITH(ZRP_LOGITS, position_count, UINT32_MAX), ZRP_EINPUT);
}

static void what_no_library_sends_breaks_the_protocol(void **state)
{
    (void)state;
    for (uint32_t op = ZRP_OP_COUNT; op < 256; op++)
        assert_int_equal(WITH(ZRP_TRAIN, op, (uint8_t)op), ZRP_EPROTOCOL);
    for (uint32_t bit = 8; bit < 256; bit *= 2)
        assert_int_equal(WITH(ZRP_TRAIN, flags, (uint8_t)bit), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_TRAIN, flags, ZRP_SQE_LABELS | ZRP_SQE_TARGETS), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_TRAIN, flags, 0), ZRP_EPROTOCOL); /* counts documents that it does not have */
    assert_int_equal(WITH(ZRP_TRAIN, zero, 1), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_NOP, zero2, 1), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_TRAIN, position_count, 1), ZRP_EPROTOCOL);
}

/* The first line at which an array still fits, and the next: tokens and labels take 64 lines, documents 1. */
static void arrays_end_exactly_at_the_slabs_end(void **state)
{
    (void)state;
    const uint32_t lines = (1 << 20) / 64;
    assert_int_equal(WITH(ZRP_TRAIN, tokens_line, lines - 64), ZRP_OK);
    assert_int_equal(WITH(ZRP_TRAIN, tokens_line, lines - 63), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_TRAIN, tokens_line, UINT32_MAX), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_TRAIN, labels_line, lines - 64), ZRP_OK);
    assert_int_equal(WITH(ZRP_TRAIN, labels_line, lines - 63), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_TRAIN, documents_line, lines - 1), ZRP_OK);
    assert_int_equal(WITH(ZRP_TRAIN, documents_line, lines), ZRP_EPROTOCOL);
    /* 4 positions in one line, then 4 * 257 * 4 = 4112 bytes = 64.25 lines */
    assert_int_equal(WITH(ZRP_LOGITS, extra_line, lines - 66), ZRP_OK);
    assert_int_equal(WITH(ZRP_LOGITS, extra_line, lines - 65), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_LOGITS, extra_line, lines - 1), ZRP_EPROTOCOL);
    assert_int_equal(WITH(ZRP_LOGITS, extra_line, UINT32_MAX), ZRP_EPROTOCOL);
}

static void logits_of_a_huge_vocabulary_do_not_overflow(void **state)
{
    (void)state;
    struct zrp_bounds huge = {
        .slab_bytes = UINT64_C(1) << 32, .rows_max = UINT32_MAX, .row_tokens_max = UINT32_MAX, .vocabulary = UINT32_MAX
    };
    struct zrp_sqe sqe = { .op = ZRP_LOGITS, .rows = 32768, .row_tokens = 32768, .position_count = 1 << 30 };
    assert_int_equal(zrp_check_sqe(&sqe, &huge, NULL), ZRP_EPROTOCOL);
}

/* Random submissions: what passes really lies inside. */
static void whatever_passes_lies_inside_the_slab(void **state)
{
    (void)state;
    uint64_t seed = 0x9e3779b97f4a7c15u, passed = 0;
    for (uint32_t round = 0; round < 300000; round++) {
        struct zrp_sqe sqe = good((enum zrp_op)(1 + round % 4));
        for (uint32_t changes = 0; changes < 3; changes++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint32_t value = (uint32_t)(seed >> 33) >> (seed >> 8) % 32;
            uint32_t *const members[] = {
                &sqe.tokens_line, &sqe.labels_line, &sqe.documents_line, &sqe.extra_line,
                &sqe.rows,        &sqe.row_tokens,  &sqe.document_count, &sqe.position_count
            };
            *members[(seed >> 40) % 8] = value;
        }
        if (zrp_check_sqe(&sqe, &bounds, NULL) != ZRP_OK) continue;
        passed++;
        uint64_t tokens = (uint64_t)sqe.rows * sqe.row_tokens * 4;
        assert_true(sqe.tokens_line * UINT64_C(64) + tokens <= bounds.slab_bytes);
        assert_true(sqe.labels_line * UINT64_C(64) + tokens <= bounds.slab_bytes);
        assert_true(sqe.documents_line * UINT64_C(64) + sqe.document_count * UINT64_C(4) <= bounds.slab_bytes);
        if (sqe.op == ZRP_LOGITS)
            assert_true(zrp_logits_offset(&sqe) + sqe.position_count * UINT64_C(257) * 4 <= bounds.slab_bytes);
    }
    assert_true(passed > 1000);
}

static void each_wrong_field_of_a_header_is_refused(void **state)
{
    (void)state;
    const struct zrp_header fine = { .magic = ZRP_MAGIC, .type = ZRP_HELLO, .size = 100, .fd_count = 2 };
    struct zrp_why why = { 0 };
    assert_int_equal(zrp_check_header(&fine, 132, 2, &why), ZRP_OK);
    assert_int_equal(zrp_check_header(&fine, 31, 2, &why), ZRP_EPROTOCOL);
    assert_int_equal(zrp_check_header(&fine, 131, 2, &why), ZRP_EPROTOCOL);
    assert_int_equal(zrp_check_header(&fine, 133, 2, &why), ZRP_EPROTOCOL);
    assert_int_equal(zrp_check_header(&fine, 132, 1, &why), ZRP_EPROTOCOL);
    struct zrp_header wrong[7] = { fine, fine, fine, fine, fine, fine, fine };
    wrong[0].magic++;
    wrong[1].zero = 1;
    wrong[2].zero2 = 1;
    wrong[3].flags = 4;
    wrong[4].size = UINT32_MAX;
    wrong[5].fd_count = UINT16_MAX;
    wrong[6].size = ZRP_BODY_MAX + 1;
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(zrp_check_header(wrong + i, 132, 2, &why), ZRP_EPROTOCOL);
}

static void a_longer_struct_passes_only_with_zeros_at_its_end(void **state)
{
    (void)state;
    struct {
        struct zrp_job_request request;
        uint64_t newer;
    } longer = { .request = { .size = 24, .job = 3, .value = 9 } };
    struct zrp_job_request read;
    assert_int_equal(zrp_check_struct(&longer, 24, &read, sizeof read, sizeof read, NULL), ZRP_OK);
    assert_int_equal(read.value, 9);
    longer.newer = 1;
    assert_int_equal(zrp_check_struct(&longer, 24, &read, sizeof read, sizeof read, NULL), ZRP_EPROTOCOL);
    longer.request.size = 15;
    assert_int_equal(zrp_check_struct(&longer, 24, &read, sizeof read, sizeof read, NULL), ZRP_EPROTOCOL);
    longer.request.size = 25; /* says more than came */
    assert_int_equal(zrp_check_struct(&longer, 24, &read, sizeof read, sizeof read, NULL), ZRP_EPROTOCOL);
    assert_int_equal(zrp_check_struct(&longer, 3, &read, sizeof read, sizeof read, NULL), ZRP_EPROTOCOL);
}

static void texts_end_inside_the_body(void **state)
{
    (void)state;
    const char body[] = { 'a', 'b', 0, 0, 'c', 'd' };
    const char *at = body, *end = body + sizeof body;
    assert_string_equal(zrp_next_text(&at, end), "ab");
    assert_string_equal(zrp_next_text(&at, end), "");
    assert_null(zrp_next_text(&at, end)); /* no NUL behind "cd" */
    at = end;
    assert_null(zrp_next_text(&at, end));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_submissions_pass),
        cmocka_unit_test(what_a_person_gets_wrong_is_refused_and_the_session_goes_on),
        cmocka_unit_test(what_no_library_sends_breaks_the_protocol),
        cmocka_unit_test(arrays_end_exactly_at_the_slabs_end),
        cmocka_unit_test(logits_of_a_huge_vocabulary_do_not_overflow),
        cmocka_unit_test(whatever_passes_lies_inside_the_slab),
        cmocka_unit_test(each_wrong_field_of_a_header_is_refused),
        cmocka_unit_test(a_longer_struct_passes_only_with_zeros_at_its_end),
        cmocka_unit_test(texts_end_inside_the_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
