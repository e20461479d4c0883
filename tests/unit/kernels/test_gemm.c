/* test_gemm.c: products against float64, each element within the error bound of a sum of k rounded products */
#include "everywhere.h"
#include <float.h>

static const uint64_t sizes[]
                           [3] = {
                               /* m, n, k */
                               { 1, 1, 1 },      { 3, 5, 7 },      { 1, 257, 64 },    { 257, 1, 64 },
                               { 64, 64, 1 },    { 33, 130, 65 },  { 17, 600, 31 },   { 300, 61, 90 },
                               { 257, 263, 70 }, { 96, 1030, 40 }, { 301, 205, 129 }, /* the last three in tiles */
                           };

#define GAP 5 /* elements between rows that belong to nobody */

struct kind {
    bool transpose_a, transpose_b, accumulate, bias;
};

static void check(uint64_t m, uint64_t n, uint64_t k, const struct kind *kind)
{
    const uint64_t stride_a = (kind->transpose_a ? m : k) + GAP, rows_a = kind->transpose_a ? k : m;
    const uint64_t stride_b = (kind->transpose_b ? k : n) + GAP, rows_b = kind->transpose_b ? n : k;
    const uint64_t stride_out = n + GAP;
    float *a = numbers(rows_a * stride_a, 1, 1), *b = numbers(rows_b * stride_b, 2, 1);
    float *out = numbers(m * stride_out, 3, 2), *bias = numbers(n, 4, 3);
    double *before = doubles(out, m * stride_out);
    run_everywhere(ZR_OP_gemm,
                   &(struct zr_op_gemm){ .out = out,
                                         .a = a,
                                         .b = b,
                                         .bias = kind->bias ? bias : NULL,
                                         .m = m,
                                         .n = n,
                                         .k = k,
                                         .stride_a = stride_a,
                                         .stride_b = stride_b,
                                         .stride_out = stride_out,
                                         .transpose_a = kind->transpose_a,
                                         .transpose_b = kind->transpose_b,
                                         .accumulate = kind->accumulate,
                                         .dtype = ZR_F32 },
                   (struct written[]){ { out, m * stride_out * 4 } }, 1);
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < stride_out; j++) {
            double was = before[i * stride_out + j], got = out[i * stride_out + j];
            if (j >= n) {
                if (got != was) fail_msg("(%d,%d,%d): column %d was written", (int)m, (int)n, (int)k, (int)j);
                continue;
            }
            double sum = kind->accumulate ? was : kind->bias ? (double)bias[j] : 0, size = fabs(sum);
            for (uint64_t l = 0; l < k; l++) {
                double product = (double)a[kind->transpose_a ? l * stride_a + i : i * stride_a + l] *
                                 (double)b[kind->transpose_b ? j * stride_b + l : l * stride_b + j];
                sum += product;
                size += fabs(product);
            }
            if (!(fabs(got - sum) <= ((double)k + 2) * FLT_EPSILON / 2 * size))
                fail_msg("(%d,%d,%d) a%s b%s%s%s: element (%d,%d) is %.9g, not %.9g", (int)m, (int)n, (int)k,
                         kind->transpose_a ? "'" : "", kind->transpose_b ? "'" : "", kind->accumulate ? " +=" : "",
                         kind->bias ? " + bias" : "", (int)i, (int)j, got, sum);
        }
    free(a);
    free(b);
    free(out);
    free(bias);
    free(before);
}

static void every_form_at_every_size(void **state)
{
    (void)state;
    for (size_t s = 0; s < ZR_COUNT(sizes); s++)
        for (int bits = 0; bits < 16; bits++) {
            struct kind kind = { bits & 1, bits & 2, bits & 4, bits & 8 };
            if (kind.accumulate && kind.bias) continue; /* not a form */
            check(sizes[s][0], sizes[s][1], sizes[s][2], &kind);
        }
}

static void what_was_there_does_not_come_through(void **state)
{
    /* Without accumulate the old contents do not count, even where they are NaN. */
    (void)state;
    float a[6] = { 1, 2, 3, 4, 5, 6 }, b[6] = { 1, 0, 0, 1, 1, 1 }, out[4] = { NAN, NAN, INFINITY, NAN };
    const float want[4] = { 4, 5, 10, 11 };
    run_everywhere(ZR_OP_gemm,
                   &(struct zr_op_gemm){ .out = out,
                                         .a = a,
                                         .b = b,
                                         .m = 2,
                                         .n = 2,
                                         .k = 3,
                                         .stride_a = 3,
                                         .stride_b = 2,
                                         .stride_out = 2,
                                         .dtype = ZR_F32 },
                   (struct written[]){ { out, sizeof out } }, 1);
    assert_memory_equal(out, want, sizeof want);
}

static void what_is_not_finite_shows(void **state)
{
    (void)state;
    float a[4] = { 1, NAN, 0, 1 }, b[4] = { 1, 1, 1, INFINITY }, out[4];
    run_everywhere(ZR_OP_gemm,
                   &(struct zr_op_gemm){ .out = out,
                                         .a = a,
                                         .b = b,
                                         .m = 2,
                                         .n = 2,
                                         .k = 2,
                                         .stride_a = 2,
                                         .stride_b = 2,
                                         .stride_out = 2,
                                         .dtype = ZR_F32 },
                   (struct written[]){ { out, sizeof out } }, 1);
    assert_true(isnan(out[0]) && isnan(out[1]) && out[2] == 1 && isinf(out[3]));
}

int main(void)
{
    const char *name;
    struct zr_error err = { 0 };
    if (zr_cpu_start(&name, &err) != ZR_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_at_every_size),
        cmocka_unit_test(what_was_there_does_not_come_through),
        cmocka_unit_test(what_is_not_finite_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
