/* test_cross_entropy.c: losses and gradients over logits against log-softmax in float64; ignored rows; chunks */
#include "everywhere.h"

struct shape {
    uint64_t rows, vocabulary, stride;
};

static const struct shape shapes[] = {
    { 1, 1, 1 }, { 3, 2, 16 }, { 5, 17, 17 }, { 130, 257, 272 }, { 2, 50257, 50272 }, { 65, 1000, 1000 },
};

struct problem {
    struct shape shape;
    uint64_t count;
    float *logits, *loss;
    int32_t *targets;
};

static void problem_make(struct problem *it, const struct shape *shape, float size)
{
    *it = (struct problem){ .shape = *shape, .count = shape->rows * shape->stride };
    it->logits = numbers(it->count, 1, size);
    it->loss = numbers(shape->rows, 2, 1);
    it->targets = malloc(shape->rows * sizeof *it->targets);
    uint64_t random = 3;
    for (uint64_t t = 0; t < shape->rows; t++)
        it->targets[t] = t % 5 == 1   ? -100
                         : t % 5 == 2 ? (int32_t)shape->vocabulary - 1
                         : t % 5 == 3 ? 0
                                      : (int32_t)(draw(&random) % shape->vocabulary);
}

static void problem_free(struct problem *it)
{
    free(it->logits);
    free(it->loss);
    free(it->targets);
}

static struct zr_op_cross_entropy operation(const struct problem *it, float scale, bool gradient)
{
    return (struct zr_op_cross_entropy){ .logits = it->logits,
                                         .targets = it->targets,
                                         .loss = it->loss,
                                         .rows = it->shape.rows,
                                         .vocabulary = it->shape.vocabulary,
                                         .stride = it->shape.stride,
                                         .scale = scale,
                                         .gradient = gradient,
                                         .dtype = ZR_F32 };
}

/* z holds the logits and takes the gradient; columns past the vocabulary stay. */
static void reference(const struct problem *it, double scale, double *z, double *loss)
{
    const uint64_t v = it->shape.vocabulary;
    for (uint64_t t = 0; t < it->shape.rows; t++) {
        double *row = z + t * it->shape.stride, most = -INFINITY, sum = 0;
        int32_t target = it->targets[t];
        if (target < 0) {
            loss[t] = 0;
            memset(row, 0, v * sizeof *row);
            continue;
        }
        for (uint64_t i = 0; i < v; i++)
            most = fmax(most, row[i]);
        for (uint64_t i = 0; i < v; i++)
            sum += exp(row[i] - most);
        double lse = most + log(sum);
        loss[t] = lse - row[target];
        for (uint64_t i = 0; i < v; i++)
            row[i] = (exp(row[i] - lse) - (i == (uint64_t)target)) * scale;
    }
}

static void check(const struct shape *shape, float size, double bound)
{
    struct problem it;
    problem_make(&it, shape, size);
    const float scale = 0.25f;
    double *loss = doubles(it.loss, shape->rows), *z = doubles(it.logits, it.count);
    reference(&it, scale, z, loss);
    struct zr_op_cross_entropy only = operation(&it, scale, false), both = operation(&it, scale, true);
    float *untouched = malloc(it.count * 4), *first = malloc(shape->rows * 4);
    memcpy(untouched, it.logits, it.count * 4);
    run_everywhere(ZR_OP_cross_entropy, &only,
                   (struct written[]){ { it.loss, shape->rows * 4 }, { it.logits, it.count * 4 } }, 2);
    assert_memory_equal(untouched, it.logits, it.count * 4);
    memcpy(first, it.loss, shape->rows * 4);
    run_everywhere(ZR_OP_cross_entropy, &both,
                   (struct written[]){ { it.loss, shape->rows * 4 }, { it.logits, it.count * 4 } }, 2);
    assert_memory_equal(first, it.loss, shape->rows * 4); /* evaluation and training see one loss */
    must_be_near("loss", it.loss, loss, shape->rows, bound);
    for (uint64_t t = 0; t < shape->rows; t++) { /* the gap would hide the gradient in a norm */
        double *row = z + t * shape->stride;
        for (uint64_t i = 0; i < shape->stride; i++) {
            double got = it.logits[t * shape->stride + i];
            double allowed = i < shape->vocabulary ? bound * (double)scale : 0;
            if (!(fabs(got - row[i]) <= allowed))
                fail_msg("gradient (%d,%d) is %.9g, not %.9g", (int)t, (int)i, got, row[i]);
        }
    }
    free(z);
    free(untouched);
    free(first);
    problem_free(&it);
}

static void losses_and_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZR_COUNT(shapes); i++) {
        check(&shapes[i], 3, 5e-7);
        check(&shapes[i], 1e4f, 1e-6); /* exp() of these alone is infinite */
    }
}

static void equal_logits_lose_the_logarithm_of_the_vocabulary(void **state)
{
    /* 257 symbols in rows of 264: ln 257 = 5.549076; 5.575949 = ln 264 would count the padding. */
    (void)state;
    struct problem it;
    problem_make(&it, &(struct shape){ 4, 257, 264 }, 100);
    for (uint64_t t = 0; t < 4; t++)
        memset(it.logits + t * 264, 0, 257 * sizeof(float));
    struct zr_op_cross_entropy op = operation(&it, 1, true);
    it.targets[1] = 5;
    run_everywhere(ZR_OP_cross_entropy, &op, (struct written[]){ { it.loss, 16 }, { it.logits, it.count * 4 } }, 2);
    for (uint64_t t = 0; t < 4; t++) {
        assert_true(fabs((double)it.loss[t] - 5.549076084895) < 1e-6);
        assert_true(fabs((double)it.logits[t * 264 + 5] - 1.0 / 257 + (it.targets[t] == 5)) < 1e-7);
    }
    problem_free(&it);
}

static void an_ignored_row_counts_nothing_whatever_it_holds(void **state)
{
    (void)state;
    struct problem it;
    problem_make(&it, &(struct shape){ 3, 20, 20 }, 1);
    for (int i = 0; i < 20; i++)
        it.logits[20 + i] = i % 2 ? NAN : INFINITY;
    it.targets[1] = -1; /* any negative label, not -100 alone */
    struct zr_op_cross_entropy op = operation(&it, 1, true);
    run_everywhere(ZR_OP_cross_entropy, &op, (struct written[]){ { it.loss, 12 }, { it.logits, it.count * 4 } }, 2);
    assert_true(it.loss[1] == 0);
    for (int i = 0; i < 60; i++)
        assert_true(i / 20 == 1 ? it.logits[i] == 0 : isfinite(it.logits[i]));
    problem_free(&it);
}

static void what_is_not_finite_shows(void **state)
{
    (void)state;
    const float bad[] = { NAN, INFINITY };
    for (int i = 0; i < 2; i++) {
        struct problem it;
        problem_make(&it, &(struct shape){ 1, 40, 40 }, 1);
        it.logits[33] = bad[i];
        it.targets[0] = 2;
        struct zr_op_cross_entropy op = operation(&it, 1, true);
        run_everywhere(ZR_OP_cross_entropy, &op, (struct written[]){ { it.loss, 4 }, { it.logits, 160 } }, 2);
        assert_false(isfinite(it.loss[0]));
        assert_false(isfinite(it.logits[33]));
        problem_free(&it);
    }
}

static void chunks_give_the_bits_of_the_whole(void **state)
{
    (void)state;
    struct problem whole, cut;
    problem_make(&whole, &shapes[3], 5);
    problem_make(&cut, &shapes[3], 5);
    struct lane lane = lane_make(levels_here() - 1, 2);
    struct zr_op_cross_entropy op = operation(&whole, 0.5f, true);
    lane_run(&lane, ZR_OP_cross_entropy, &op);
    for (uint64_t first = 0, rows; first < shapes[3].rows; first += rows) {
        rows = shapes[3].rows - first < 37 ? shapes[3].rows - first : 37;
        op = operation(&cut, 0.5f, true);
        op.logits = cut.logits + first * shapes[3].stride;
        op.targets = cut.targets + first;
        op.loss = cut.loss + first;
        op.rows = rows;
        lane_run(&lane, ZR_OP_cross_entropy, &op);
    }
    lane_free(&lane);
    assert_memory_equal(whole.loss, cut.loss, shapes[3].rows * 4);
    assert_memory_equal(whole.logits, cut.logits, whole.count * 4);
    problem_free(&whole);
    problem_free(&cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients),
        cmocka_unit_test(equal_logits_lose_the_logarithm_of_the_vocabulary),
        cmocka_unit_test(an_ignored_row_counts_nothing_whatever_it_holds),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(chunks_give_the_bits_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
