/* test_elementwise.c: add and fill, whatever the length and the alignment; what an operation cannot be given is refused */
#include "everywhere.h"

static const uint64_t counts[] = { 1, 2, 15, 16, 17, 16383, 16384, 16385, 50000 };

static void sums_of_two_are_one_rounding(void **state)
{
    (void)state;
    for (size_t n = 0; n < ZR_COUNT(counts); n++)
        for (uint64_t shift = 0; shift < 8; shift += 4) {
            const uint64_t count = counts[n];
            struct room room;
            float *a = numbers(count, 1, 100), *b = numbers(count, 2, 1);
            float *out = room_make(&room, count * 4, shift);
            struct zr_op_add op = { .out = out, .a = a, .b = b, .count = count, .dtype = ZR_F32 };
            memset(out, 0, count * 4);
            run_everywhere(ZR_OP_add, &op, (struct written[]){ { out, count * 4 } }, 1);
            for (uint64_t i = 0; i < count; i++)
                assert_true(out[i] == (float)((double)a[i] + (double)b[i]));
            op.out = a;
            run_everywhere(ZR_OP_add, &op, (struct written[]){ { a, count * 4 } }, 1);
            assert_memory_equal(a, out, count * 4);
            free(a);
            free(b);
            room_free(&room);
        }
}

static void zeros_to_the_byte(void **state)
{
    (void)state;
    static const uint64_t bytes[] = { 1, 3, 64, 4097, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 700001 };
    for (size_t n = 0; n < ZR_COUNT(bytes); n++)
        for (uint64_t shift = 0; shift < 3; shift++) {
            struct room room;
            unsigned char *out = room_make(&room, bytes[n], shift);
            memset(out, 1, bytes[n]);
            run_everywhere(ZR_OP_fill, &(struct zr_op_fill){ .out = out, .bytes = bytes[n] },
                           (struct written[]){ { out, bytes[n] } }, 1);
            for (uint64_t i = 0; i < bytes[n]; i++)
                assert_int_equal(out[i], 0);
            room_free(&room);
        }
}

static void refused(enum zr_op op, const void *args)
{
    struct zr_error err = { 0 };
    assert_int_equal(zr_op_check(op, args, &err), ZR_EBUG);
    if (!strstr(err.text, zr_op_name(op))) fail_msg("%s: '%s'", zr_op_name(op), err.text);
}

static void impossible_arguments_are_refused_by_name(void **state)
{
    (void)state;
    float x[64] = { 0 };
    int32_t ids[4] = { 0 };
    static const uint64_t nothing[64] = { 0 };
    for (enum zr_op op = 0; op < ZR_OP_COUNT; op++) {
        assert_true(zr_op_args_bytes(op) > 0 && zr_op_args_bytes(op) <= sizeof nothing);
        refused(op, nothing);
    }
    struct zr_op_gemm gemm = {
        .out = x, .a = x, .b = x, .m = 2, .n = 3, .k = 4, .stride_a = 4, .stride_b = 3, .stride_out = 3
    };
    struct zr_error err = { 0 };
    assert_int_equal(zr_op_check(ZR_OP_gemm, &gemm, &err), ZR_OK);
    for (int broken = 0; broken < 6; broken++) {
        struct zr_op_gemm bad = gemm;
        if (broken == 0) bad.stride_a = 3;
        if (broken == 1) bad.stride_b = 2;
        if (broken == 2) bad.stride_out = 2;
        if (broken == 3) bad.transpose_b = true; /* rows of k now */
        if (broken == 4) bad.k = 0;
        if (broken == 5) bad.bias = x, bad.accumulate = true;
        refused(ZR_OP_gemm, &bad);
    }
    struct zr_op_rope rope = {
        .x = x, .cos_sin = x, .positions = ids, .rows = 1, .heads = 2, .head_dim = 4, .stride = 8
    };
    assert_int_equal(zr_op_check(ZR_OP_rope, &rope, &err), ZR_OK);
    rope.head_dim = 3;
    refused(ZR_OP_rope, &rope);
    struct zr_op_attention_forward attention = {
        .out = x,
        .lse = x,
        .q = x,
        .k = x,
        .v = x,
        .starts = ids,
        .rows = 1,
        .documents = 1,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 2,
        .stride_qkv = 16,
        .stride_out = 8,
    };
    assert_int_equal(zr_op_check(ZR_OP_attention_forward, &attention, &err), ZR_OK);
    attention.kv_heads = 3;
    refused(ZR_OP_attention_forward, &attention);
    attention.kv_heads = 2;
    attention.head_dim = 257;
    attention.stride_out = 4 * 257;
    refused(ZR_OP_attention_forward, &attention);
    struct zr_op_cross_entropy loss = {
        .logits = x, .targets = ids, .loss = x, .rows = 1, .vocabulary = 9, .stride = 8
    };
    refused(ZR_OP_cross_entropy, &loss);
    assert_true(err.text[0] == '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_two_are_one_rounding),
        cmocka_unit_test(zeros_to_the_byte),
        cmocka_unit_test(impossible_arguments_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
