/* test_embedding.c: rows out of tables, and sums back into them: in the order of the tokens, to the bit
 *
 * Sums of fp32 depend on their order, so the references add in fp32, token by token, and nothing but equality will do. */
#include "everywhere.h"

enum { ROWS = 333, VOCABULARY = 57, POSITIONS = 90 };

static const uint32_t widths[] = { 1, 5, 127, 128, 129, 300 };

/* Few tokens, often repeated, never sorted; positions restart as those of packed documents do. */
static void draw_ids(int32_t tokens[ROWS], int32_t positions[ROWS])
{
    uint64_t random = 9;
    for (int t = 0; t < ROWS; t++) {
        tokens[t] = t % 3 ? (int32_t)(draw(&random) % VOCABULARY) : VOCABULARY - 1;
        positions[t] = t % POSITIONS;
    }
}

/* Magnitudes apart, so that another order gives other bits. */
static float *uneven(uint64_t count, uint64_t seed)
{
    float *x = numbers(count, seed, 1);
    for (uint64_t i = 0; i < count; i++)
        x[i] = ldexpf(x[i], (int)(draw(&seed) % 20));
    return x;
}

static void rows_come_out_as_they_are(void **state)
{
    (void)state;
    int32_t tokens[ROWS], positions[ROWS];
    draw_ids(tokens, positions);
    for (size_t n = 0; n < ZR_COUNT(widths); n++) {
        const uint64_t w = widths[n];
        float *table = numbers(VOCABULARY * w, 1, 1), *places = numbers(POSITIONS * w, 2, 1);
        float *out = numbers(ROWS * w, 3, 1);
        struct zr_op_embedding_forward op = {
            .out = out, .table = table, .tokens = tokens, .rows = ROWS, .width = w, .dtype = ZR_F32
        };
        run_everywhere(ZR_OP_embedding_forward, &op, (struct written[]){ { out, ROWS * w * 4 } }, 1);
        for (uint64_t i = 0; i < ROWS * w; i++)
            assert_true(out[i] == table[(uint64_t)tokens[i / w] * w + i % w]);
        op.position_table = places;
        op.positions = positions;
        run_everywhere(ZR_OP_embedding_forward, &op, (struct written[]){ { out, ROWS * w * 4 } }, 1);
        for (uint64_t i = 0; i < ROWS * w; i++) {
            float want = table[(uint64_t)tokens[i / w] * w + i % w] + places[(uint64_t)positions[i / w] * w + i % w];
            assert_true(out[i] == want);
        }
        free(table);
        free(places);
        free(out);
    }
}

static void gradients_of_repeated_tokens_add_up_in_order(void **state)
{
    (void)state;
    int32_t tokens[ROWS], positions[ROWS];
    draw_ids(tokens, positions);
    for (size_t n = 0; n < 2 * ZR_COUNT(widths); n++) {
        const uint64_t w = widths[n / 2];
        const bool with_positions = n % 2;
        float *dy = uneven(ROWS * w, 1), *table = uneven(VOCABULARY * w, 2), *places = uneven(POSITIONS * w, 3);
        float *want = malloc(VOCABULARY * w * 4), *want_places = malloc(POSITIONS * w * 4);
        memcpy(want, table, VOCABULARY * w * 4);
        memcpy(want_places, places, POSITIONS * w * 4);
        for (uint64_t t = 0; t < ROWS; t++)
            for (uint64_t i = 0; i < w; i++) {
                want[(uint64_t)tokens[t] * w + i] += dy[t * w + i];
                if (with_positions) want_places[(uint64_t)positions[t] * w + i] += dy[t * w + i];
            }
        run_everywhere(ZR_OP_embedding_backward,
                       &(struct zr_op_embedding_backward){ .dtable = table,
                                                           .dposition_table = with_positions ? places : NULL,
                                                           .dy = dy,
                                                           .tokens = tokens,
                                                           .positions = positions,
                                                           .rows = ROWS,
                                                           .width = w,
                                                           .dtype = ZR_F32 },
                       (struct written[]){ { table, VOCABULARY * w * 4 }, { places, POSITIONS * w * 4 } }, 2);
        assert_memory_equal(table, want, VOCABULARY * w * 4);
        assert_memory_equal(places, want_places, POSITIONS * w * 4);
        free(dy);
        free(table);
        free(places);
        free(want);
        free(want_places);
    }
}

static void gradients_of_a_bias_add_up_in_order(void **state)
{
    (void)state;
    for (size_t n = 0; n < ZR_COUNT(widths); n++) {
        const uint64_t w = widths[n], stride = w + 3;
        float *dy = uneven(ROWS * stride, 1), *out = uneven(w, 2), *want = malloc(w * 4);
        memcpy(want, out, w * 4);
        for (uint64_t t = 0; t < ROWS; t++)
            for (uint64_t i = 0; i < w; i++)
                want[i] += dy[t * stride + i];
        run_everywhere(ZR_OP_bias_gradient,
                       &(struct zr_op_bias_gradient){
                           .out = out, .dy = dy, .rows = ROWS, .width = w, .stride = stride, .dtype = ZR_F32 },
                       (struct written[]){ { out, w * 4 } }, 1);
        assert_memory_equal(out, want, w * 4);
        free(dy);
        free(out);
        free(want);
    }
}

static void gathered_rows_are_those_named(void **state)
{
    (void)state;
    int32_t tokens[ROWS], positions[ROWS];
    draw_ids(tokens, positions);
    for (size_t n = 0; n < ZR_COUNT(widths); n++) {
        const uint64_t w = widths[n];
        float *x = numbers(VOCABULARY * w, 1, 1), *out = numbers(ROWS * w, 2, 1);
        run_everywhere(ZR_OP_gather_rows,
                       &(struct zr_op_gather_rows){
                           .out = out, .x = x, .index = tokens, .rows = ROWS, .width = w, .dtype = ZR_F32 },
                       (struct written[]){ { out, ROWS * w * 4 } }, 1);
        for (uint64_t i = 0; i < ROWS * w; i++)
            assert_true(out[i] == x[(uint64_t)tokens[i / w] * w + i % w]);
        free(x);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_out_as_they_are),
        cmocka_unit_test(gradients_of_repeated_tokens_add_up_in_order),
        cmocka_unit_test(gradients_of_a_bias_add_up_in_order),
        cmocka_unit_test(gathered_rows_are_those_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
