/* test_adamw.c: the update is PyTorch's, and its bits depend on neither instruction set, threads, cuts nor alignment */
#include "kernels/split.h"
#include "lanes.h"
#include <math.h>

/* torch.optim.AdamW and torch.optim.Adam(weight_decay) as documented, in float64. */
struct reference {
    double lr, beta1, beta2, eps, decay;
    bool l2, bias_correction;
};

static void reference_step(const struct reference *r, uint64_t step, double g, double *w, double *m, double *v)
{
    if (r->l2)
        g += r->decay * *w;
    else
        *w -= r->lr * r->decay * *w;
    *m = r->beta1 * *m + (1 - r->beta1) * g;
    *v = r->beta2 * *v + (1 - r->beta2) * g * g;
    double m_hat = *m, v_hat = *v;
    if (r->bias_correction) {
        m_hat /= 1 - pow(r->beta1, (double)step);
        v_hat /= 1 - pow(r->beta2, (double)step);
    }
    *w -= r->lr * m_hat / (sqrt(v_hat) + r->eps);
}

static void fill_scalars(struct zr_op_adamw *op, const struct reference *r, uint64_t step)
{
    op->l2 = r->l2;
    op->grad_scale = 1;
    zr_adamw_scalars(op, r->lr, r->beta1, r->beta2, r->eps, r->decay, step, r->bias_correction);
}

/* -- arrays of one update ------------------------------------------------------------------------------------------- */

struct states {
    struct room rooms[5];
    void *weight, *grad;
    uint16_t *low;
    float *m, *v;
    uint64_t count;
    enum zr_state_layout layout;
    enum zr_dtype grad_dtype;
};

/* Each array begins `shift` elements after a cache line. */
static void states_make(struct states *s, uint64_t count, uint64_t shift, enum zr_state_layout layout,
                        enum zr_dtype grad_dtype)
{
    *s = (struct states){ .count = count, .layout = layout, .grad_dtype = grad_dtype };
    uint64_t weight_bytes = layout == ZR_LAYOUT_SPLIT ? 2 : 4, grad_bytes = zr_dtype_bytes(grad_dtype);
    s->weight = room_make(&s->rooms[0], count * weight_bytes, shift * weight_bytes);
    s->low = room_make(&s->rooms[1], count * 2, shift * 2);
    s->m = room_make(&s->rooms[2], count * 4, shift * 4);
    s->v = room_make(&s->rooms[3], count * 4, shift * 4);
    s->grad = room_make(&s->rooms[4], count * grad_bytes, shift * grad_bytes);
}

static void states_free(struct states *s)
{
    for (size_t i = 0; i < ZR_COUNT(s->rooms); i++)
        room_free(&s->rooms[i]);
}

static void set_weight(struct states *s, uint64_t i, float w)
{
    if (s->layout == ZR_LAYOUT_SPLIT)
        zr_split_encode(w, &((uint16_t *)s->weight)[i], &s->low[i]);
    else
        ((float *)s->weight)[i] = w;
}

static float weight(const struct states *s, uint64_t i)
{
    return s->layout == ZR_LAYOUT_SPLIT ? zr_split_decode(((uint16_t *)s->weight)[i], s->low[i])
                                        : ((float *)s->weight)[i];
}

static void set_grad(struct states *s, uint64_t i, float g)
{
    if (s->grad_dtype == ZR_BF16)
        ((uint16_t *)s->grad)[i] = zr_f32_to_bf16(g);
    else
        ((float *)s->grad)[i] = g;
}

static float grad(const struct states *s, uint64_t i)
{
    return s->grad_dtype == ZR_BF16 ? zr_bf16_to_f32(((uint16_t *)s->grad)[i]) : ((float *)s->grad)[i];
}

static void update(struct lane *lane, struct states *s, struct zr_op_adamw *op)
{
    op->weight = s->weight;
    op->low = s->layout == ZR_LAYOUT_SPLIT ? s->low : NULL;
    op->m = s->m;
    op->v = s->v;
    op->grad = s->grad;
    op->count = s->count;
    op->layout = s->layout;
    op->grad_dtype = s->grad_dtype;
    lane_run(lane, ZR_OP_adamw, op);
}

/* -- values --------------------------------------------------------------------------------------------------------- */

static void near(double value, double expected, double tolerance, const char *what, uint64_t i)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%s[%llu] is %.9g, expected %.9g within %.2g", what, (unsigned long long)i, value, expected,
                 tolerance);
}

static void check_one_step(struct lane *lane, enum zr_state_layout layout, const struct reference *r, uint64_t step)
{
    struct states s;
    states_make(&s, 4099, 0, layout, ZR_F32);
    struct {
        double w, m, v;
    } *expected = calloc(s.count, sizeof *expected);
    uint64_t random = 7 + step;
    for (uint64_t i = 0; i < s.count; i++) {
        set_weight(&s, i, draw_f32(&random));
        s.m[i] = 0.01f * draw_f32(&random);
        s.v[i] = 1e-4f * fabsf(draw_f32(&random));
        set_grad(&s, i, 0.1f * draw_f32(&random));
        expected[i].w = weight(&s, i), expected[i].m = s.m[i], expected[i].v = s.v[i];
    }
    struct zr_op_adamw op = { 0 };
    fill_scalars(&op, r, step);
    for (uint64_t i = 0; i < s.count; i++)
        reference_step(r, step, grad(&s, i), &expected[i].w, &expected[i].m, &expected[i].v);
    double before_m_scale = 0.01, g_scale = 0.1 + r->decay;
    update(lane, &s, &op);
    for (uint64_t i = 0; i < s.count; i++) {
        /* Where m nearly cancels, its error is that of its terms, and so is the step's. */
        double m_error = 3e-7 * (r->beta1 * before_m_scale + (1 - r->beta1) * g_scale);
        near(s.m[i], expected[i].m, m_error, "m", i);
        near(s.v[i], expected[i].v, 1e-6 * expected[i].v + 1e-12, "v", i);
        double step_error = op.step_size * (m_error + 1e-6 * fabs(expected[i].m)) /
                            (sqrt(expected[i].v) * (double)op.inverse_sqrt_correction2 + r->eps);
        near(weight(&s, i), expected[i].w, 2e-7 * fabs(expected[i].w) + step_error + 1e-9, "w", i);
    }
    free(expected);
    states_free(&s);
}

static void one_step_is_that_of_pytorch(void **state)
{
    static const struct reference rows[] = {
        { 1e-3, 0.9, 0.999, 1e-8, 0.0, false, true },  { 2e-5, 0.9, 0.95, 1e-8, 0.1, false, true },
        { 1e-3, 0.9, 0.999, 1e-8, 0.01, true, true },  { 1e-2, 0.8, 0.99, 1e-6, 0.1, false, false },
        { 1e-4, 0.95, 0.9999, 1e-8, 0.1, true, true },
    };
    static const uint64_t steps[] = { 1, 2, 10, 1000, 100000 };
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++) {
        struct lane lane = lane_make(level, 1);
        for (size_t row = 0; row < ZR_COUNT(rows); row++)
            for (size_t i = 0; i < ZR_COUNT(steps); i++) {
                check_one_step(&lane, ZR_LAYOUT_FP32, &rows[row], steps[i]);
                check_one_step(&lane, ZR_LAYOUT_SPLIT, &rows[row], steps[i]);
            }
        lane_free(&lane);
    }
}

static void two_hundred_steps_stay_beside_float64(void **state)
{
    const struct reference r = { 1e-3, 0.9, 0.999, 1e-8, 0.1, false, true };
    (void)state;
    struct lane lane = lane_make(zr_cpu_simd(ZR_LEVEL_AVX512), 2);
    for (enum zr_state_layout layout = ZR_LAYOUT_FP32; layout <= ZR_LAYOUT_SPLIT; layout++) {
        struct states s;
        states_make(&s, 257, 0, layout, ZR_F32);
        double w[257], m[257] = { 0 }, v[257] = { 0 };
        uint64_t random = 3;
        for (uint64_t i = 0; i < s.count; i++) {
            set_weight(&s, i, draw_f32(&random));
            w[i] = weight(&s, i);
            s.m[i] = s.v[i] = 0;
        }
        for (uint64_t step = 1; step <= 200; step++) {
            struct zr_op_adamw op = { 0 };
            fill_scalars(&op, &r, step);
            for (uint64_t i = 0; i < s.count; i++) {
                set_grad(&s, i, 0.05f + draw_f32(&random));
                reference_step(&r, step, grad(&s, i), &w[i], &m[i], &v[i]);
            }
            update(&lane, &s, &op);
        }
        /* Each step adds one rounding of w (6e-8 of it) and 1e-5 of a step of 1e-3 for beta2 rounded to fp32. */
        for (uint64_t i = 0; i < s.count; i++)
            near(weight(&s, i), w[i], 200 * (6e-8 * fabs(w[i]) + 1e-8), "w", i);
        states_free(&s);
    }
    lane_free(&lane);
}

/* One weight 1.0, one update. */
static float single(struct lane *lane, enum zr_state_layout layout, const struct reference *r, float g)
{
    struct states s;
    states_make(&s, 1, 0, layout, ZR_F32);
    set_weight(&s, 0, 1.0f);
    set_grad(&s, 0, g);
    s.m[0] = s.v[0] = 0;
    struct zr_op_adamw op = { 0 };
    fill_scalars(&op, r, 1);
    update(lane, &s, &op);
    float w = weight(&s, 0);
    if (layout == ZR_LAYOUT_SPLIT) assert_int_equal(*(uint16_t *)s.weight, zr_f32_to_bf16(w));
    states_free(&s);
    return w;
}

static void decay_means_what_its_name_says(void **state)
{
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++)
        for (enum zr_state_layout layout = ZR_LAYOUT_FP32; layout <= ZR_LAYOUT_SPLIT; layout++) {
            struct lane lane = lane_make(level, 1);
            struct reference r = { 0.1, 0.9, 0.999, 1e-8, 0.1, false, true };
            near(single(&lane, layout, &r, 0), 0.99, 6e-8, "decoupled", 0);
            r.l2 = true;
            near(single(&lane, layout, &r, 0), 0.9, 1e-6, "l2", 0);
            r.decay = 0;
            assert_true(single(&lane, layout, &r, 0) == 1.0f);
            r.l2 = false;
            assert_true(single(&lane, layout, &r, 0) == 1.0f);
            lane_free(&lane);
        }
}

static void without_bias_correction_the_first_step_is_larger(void **state)
{
    (void)state;
    struct lane lane = lane_make(zr_cpu_simd(ZR_LEVEL_AVX512), 1);
    struct reference r = { 0.1, 0.9, 0.999, 0, 0, false, true };
    /* m = 0.1, v = 0.001: corrected the step is lr; uncorrected lr * 0.1 / sqrt(0.001). */
    near(single(&lane, ZR_LAYOUT_FP32, &r, 1), 0.9, 1e-7, "corrected", 0);
    r.bias_correction = false;
    near(single(&lane, ZR_LAYOUT_FP32, &r, 1), 1 - 0.1 * 0.1 / 0.0316227766016838, 1e-7, "uncorrected", 0);
    lane_free(&lane);
}

static void corrections_come_from_doubles(void **state)
{
    (void)state;
    struct zr_op_adamw op = { 0 };
    zr_adamw_scalars(&op, 3e-4, 0.9, 0.999, 1e-8, 0.1, 2, true);
    assert_true(op.step_size == (float)(3e-4 / 0.19));
    near(op.inverse_sqrt_correction2, 1 / sqrt(0.001999), 3e-6, "correction", 0);
    assert_true(op.one_minus_beta2 == 0.001f); /* 1 - 0.999f is 1.3e-5 away from it */
    zr_adamw_scalars(&op, 3e-4, 0.9, 0.999, 1e-8, 0.1, 1000000000, true);
    assert_true(op.step_size == 3e-4f && op.inverse_sqrt_correction2 == 1.0f);
    zr_adamw_scalars(&op, 3e-4, 0.9, 0.999, 1e-8, 0.1, 5, false);
    assert_true(op.step_size == 3e-4f && op.inverse_sqrt_correction2 == 1.0f);
}

/* -- bits ----------------------------------------------------------------------------------------------------------- */

/* Ordinary numbers with zeros, denormals, the largest, infinities and NaNs sown in. */
static float odd_number(uint64_t *random, float scale)
{
    static const uint32_t specials[] = {
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x00800001, 0x7f7fffff,
        0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x3f808000, 0x3f818000, 0x7f7f8000, 0x00008000,
    };
    uint32_t chance = draw(random);
    if (chance % 16 == 0) return zr_f32_of_bits(specials[draw(random) % ZR_COUNT(specials)]);
    if (chance % 16 == 1) return zr_f32_of_bits(draw(random) & 0x80ffffffu); /* tiny */
    return scale * draw_f32(random);
}

static void sow(struct states *s, uint64_t seed)
{
    uint64_t random = seed;
    for (uint64_t i = 0; i < s->count; i++) {
        set_weight(s, i, odd_number(&random, 1));
        s->m[i] = odd_number(&random, 0.1f);
        s->v[i] = fabsf(odd_number(&random, 0.01f));
        set_grad(s, i, odd_number(&random, 0.1f));
    }
}

static void same(uint32_t a, uint32_t b, const char *what, uint64_t i, const char *who)
{
    if (a != b && !(is_nan(a) && is_nan(b)))
        fail_msg("%s[%llu] is %08x, but %08x %s", what, (unsigned long long)i, a, b, who);
}

static void same_states(const struct states *a, const struct states *b, const char *who)
{
    for (uint64_t i = 0; i < a->count; i++) {
        same(zr_f32_bits(weight(a, i)), zr_f32_bits(weight(b, i)), "w", i, who);
        same(zr_f32_bits(a->m[i]), zr_f32_bits(b->m[i]), "m", i, who);
        same(zr_f32_bits(a->v[i]), zr_f32_bits(b->v[i]), "v", i, who);
        if (a->layout == ZR_LAYOUT_SPLIT)
            same((uint32_t)((uint16_t *)a->weight)[i] << 16, (uint32_t)((uint16_t *)b->weight)[i] << 16, "high", i,
                 who);
    }
}

static void three_updates(struct lane *lane, struct states *s, uint64_t seed, bool l2)
{
    const struct reference r = { 1e-2, 0.9, 0.999, 1e-8, 0.1, l2, true };
    sow(s, seed);
    for (uint64_t step = 1; step <= 3; step++) {
        struct zr_op_adamw op = { 0 };
        fill_scalars(&op, &r, step);
        op.grad_scale = 0.37f;
        update(lane, s, &op);
    }
}

#define EVERY_VARIANT(variant) for (uint32_t variant = 0; variant < 8; variant++)
#define LAYOUT_OF(variant) ((variant)&1 ? ZR_LAYOUT_SPLIT : ZR_LAYOUT_FP32)
#define GRAD_OF(variant) ((variant)&2 ? ZR_BF16 : ZR_F32)
#define L2_OF(variant) (((variant)&4) != 0)

static void levels_and_offsets_change_no_bit(void **state)
{
    static const uint64_t counts[] = { 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 4097 };
    (void)state;
    struct lane plain = lane_make(ZR_LEVEL_SCALAR, 1);
    for (enum zr_simd_level level = 0; level < levels_here(); level++) {
        struct lane lane = lane_make(level, 1);
        EVERY_VARIANT(variant)
        for (size_t row = 0; row < ZR_COUNT(counts); row++)
            for (uint64_t shift = 0; shift < 4; shift++) {
                struct states a, b;
                states_make(&a, counts[row], 0, LAYOUT_OF(variant), GRAD_OF(variant));
                states_make(&b, counts[row], shift, LAYOUT_OF(variant), GRAD_OF(variant));
                three_updates(&plain, &a, counts[row], L2_OF(variant));
                three_updates(&lane, &b, counts[row], L2_OF(variant));
                same_states(&a, &b, lane.level);
                states_free(&a);
                states_free(&b);
            }
        lane_free(&lane);
    }
    lane_free(&plain);
}

static void levels_and_threads_change_no_bit(void **state)
{
    (void)state;
    struct lane plain = lane_make(ZR_LEVEL_SCALAR, 1);
    EVERY_VARIANT(variant)
    {
        struct states a;
        states_make(&a, 3 * 65536 + 13, 0, LAYOUT_OF(variant), GRAD_OF(variant));
        three_updates(&plain, &a, 1, L2_OF(variant));
        for (enum zr_simd_level level = 0; level < levels_here(); level++)
            for (size_t i = 0; i < ZR_COUNT(thread_counts); i++) {
                if (level == ZR_LEVEL_SCALAR && i != 2) continue; /* slow, and the cuts are the same code */
                struct lane lane = lane_make(level, thread_counts[i]);
                struct states b;
                states_make(&b, a.count, i, a.layout, a.grad_dtype);
                three_updates(&lane, &b, 1, L2_OF(variant));
                same_states(&a, &b, lane.level);
                states_free(&b);
                lane_free(&lane);
            }
        states_free(&a);
    }
    lane_free(&plain);
}

static void a_narrow_gradient_is_the_same_number(void **state)
{
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++)
        for (enum zr_state_layout layout = ZR_LAYOUT_FP32; layout <= ZR_LAYOUT_SPLIT; layout++) {
            struct lane lane = lane_make(level, 1);
            struct states wide, narrow;
            states_make(&wide, 1000, 0, layout, ZR_F32);
            states_make(&narrow, 1000, 0, layout, ZR_BF16);
            sow(&narrow, 5);
            sow(&wide, 5);
            for (uint64_t i = 0; i < wide.count; i++)
                set_grad(&wide, i, grad(&narrow, i));
            struct reference r = { 1e-2, 0.9, 0.999, 1e-8, 0.1, false, true };
            struct zr_op_adamw op = { 0 };
            fill_scalars(&op, &r, 1);
            update(&lane, &wide, &op);
            update(&lane, &narrow, &op);
            same_states(&wide, &narrow, lane.level);
            states_free(&wide);
            states_free(&narrow);
            lane_free(&lane);
        }
}

static void the_scale_of_gradients_is_applied_first(void **state)
{
    (void)state;
    struct lane lane = lane_make(zr_cpu_simd(ZR_LEVEL_AVX512), 1);
    struct reference r = { 1e-2, 0.9, 0.999, 1e-8, 0.1, true, true };
    struct states a, b;
    states_make(&a, 100, 0, ZR_LAYOUT_FP32, ZR_F32);
    states_make(&b, 100, 0, ZR_LAYOUT_FP32, ZR_F32);
    uint64_t random = 11;
    for (uint64_t i = 0; i < a.count; i++) {
        float g = draw_f32(&random);
        set_weight(&a, i, 0.5f), set_weight(&b, i, 0.5f);
        a.m[i] = b.m[i] = a.v[i] = b.v[i] = 0;
        set_grad(&a, i, g);
        set_grad(&b, i, 8 * g); /* a power of two scales exactly */
    }
    struct zr_op_adamw op = { 0 };
    fill_scalars(&op, &r, 1);
    update(&lane, &a, &op);
    op.grad_scale = 0.125f;
    update(&lane, &b, &op);
    same_states(&a, &b, "with gradients and scale 8 times apart");
    states_free(&a);
    states_free(&b);
    lane_free(&lane);
}

static void the_split_master_is_the_fp32_one_but_for_ties(void **state)
{
    (void)state;
    for (enum zr_simd_level level = 0; level < levels_here(); level++) {
        struct lane lane = lane_make(level, 1);
        struct states fp32, split;
        states_make(&fp32, 200000, 0, ZR_LAYOUT_FP32, ZR_F32);
        states_make(&split, 200000, 0, ZR_LAYOUT_SPLIT, ZR_F32);
        sow(&split, 9);
        sow(&fp32, 9);
        for (uint64_t i = 0; i < fp32.count; i++) {
            if (i % 50 == 0) { /* zero gradient, no decay: w stays, and is a tie */
                set_weight(&split, i, zr_f32_of_bits(0x3f808000u + (uint32_t)(i / 50 % 128 << 16)));
                split.m[i] = fp32.m[i] = 0;
                set_grad(&split, i, 0), set_grad(&fp32, i, 0);
            }
            set_weight(&fp32, i, weight(&split, i));
        }
        struct reference r = { 1e-3, 0.9, 0.999, 1e-8, 0, false, true };
        struct zr_op_adamw op = { 0 };
        fill_scalars(&op, &r, 1);
        update(&lane, &fp32, &op);
        update(&lane, &split, &op);
        for (uint64_t i = 0; i < fp32.count; i++) {
            uint32_t expected = zr_f32_bits(weight(&fp32, i));
            if ((expected & 0x1ffffu) == 0x8000u) expected -= 1;
            same(zr_f32_bits(weight(&split, i)), expected, "w", i, lane.level);
            same((uint32_t)((uint16_t *)split.weight)[i] << 16, (uint32_t)zr_f32_to_bf16(weight(&fp32, i)) << 16,
                 "high", i, lane.level);
        }
        states_free(&fp32);
        states_free(&split);
        lane_free(&lane);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_step_is_that_of_pytorch),
        cmocka_unit_test(two_hundred_steps_stay_beside_float64),
        cmocka_unit_test(decay_means_what_its_name_says),
        cmocka_unit_test(without_bias_correction_the_first_step_is_larger),
        cmocka_unit_test(corrections_come_from_doubles),
        cmocka_unit_test(levels_and_offsets_change_no_bit),
        cmocka_unit_test(levels_and_threads_change_no_bit),
        cmocka_unit_test(a_narrow_gradient_is_the_same_number),
        cmocka_unit_test(the_scale_of_gradients_is_applied_first),
        cmocka_unit_test(the_split_master_is_the_fp32_one_but_for_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
