/* test_rope.c: rotation of halves by position, against complex numbers in float64 */
#include "everywhere.h"
#include <complex.h>

struct shape {
    uint64_t rows, heads, head_dim;
};

static const struct shape shapes[] = { { 1, 1, 2 }, { 5, 3, 6 }, { 70, 2, 64 }, { 33, 4, 34 }, { 600, 2, 16 } };

#define POSITIONS 50
#define GAP 3

/* Angles of no particular kind: the operation takes the table as it is. */
static float *make_table(uint64_t head_dim)
{
    float *table = malloc(POSITIONS * head_dim * sizeof *table);
    for (uint64_t p = 0; p < POSITIONS; p++)
        for (uint64_t i = 0; i < head_dim / 2; i++) {
            double angle = (double)p / pow(100, 2.0 * (double)i / (double)head_dim);
            table[p * head_dim + i] = (float)cos(angle);
            table[p * head_dim + head_dim / 2 + i] = (float)sin(angle);
        }
    return table;
}

static void pairs_turn_by_their_position(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2 * ZR_COUNT(shapes); n++) {
        const struct shape *s = &shapes[n / 2];
        const bool inverse = n % 2;
        const uint64_t stride = s->heads * s->head_dim + GAP, count = s->rows * stride, half = s->head_dim / 2;
        float *table = make_table(s->head_dim), *x = numbers(count, 1, 1);
        int32_t *positions = malloc(s->rows * sizeof *positions);
        double *want = doubles(x, count);
        for (uint64_t t = 0; t < s->rows; t++) {
            positions[t] = (int32_t)(t * 7 % POSITIONS); /* documents restart, so positions are not row numbers */
            const float *angles = table + (uint64_t)positions[t] * s->head_dim;
            for (uint64_t h = 0; h < s->heads; h++)
                for (uint64_t i = 0; i < half; i++) {
                    double *low = want + t * stride + h * s->head_dim + i, *high = low + half;
                    double _Complex turn = CMPLX(angles[i], inverse ? -angles[half + i] : angles[half + i]);
                    double _Complex turned = CMPLX(*low, *high) * turn;
                    *low = creal(turned);
                    *high = cimag(turned);
                }
        }
        run_everywhere(ZR_OP_rope,
                       &(struct zr_op_rope){ .x = x,
                                             .cos_sin = table,
                                             .positions = positions,
                                             .rows = s->rows,
                                             .heads = s->heads,
                                             .head_dim = s->head_dim,
                                             .stride = stride,
                                             .inverse = inverse,
                                             .dtype = ZR_F32 },
                       (struct written[]){ { x, count * 4 } }, 1);
        must_be_near("x", x, want, count, 1e-7);
        free(table);
        free(x);
        free(positions);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(pairs_turn_by_their_position) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
