/* Matrix products, norms and the loss against float64 on every level, with odd sizes; their bits for any thread count. */
#include "lanes.h"
#include "near.h"

enum { M = 70, N = 45, K = 131, PAD = 3 };

struct product {
    float *out, *a, *b, *bias, *before;
    double *right;
    struct zr_op_gemm op;
};

static void product_make(struct product *p, bool transpose_a, bool transpose_b, bool accumulate, bool bias)
{
    uint64_t random = 7;
    *p = (struct product){ 0 };
    p->out = calloc(M * (N + PAD), sizeof *p->out);
    p->before = calloc(M * (N + PAD), sizeof *p->before);
    p->a = calloc((M + PAD) * (K + PAD), sizeof *p->a);
    p->b = calloc((N + PAD) * (K + PAD), sizeof *p->b);
    p->bias = calloc(N, sizeof *p->bias);
    p->right = calloc(M * N, sizeof *p->right);
    for (int i = 0; i < (M + PAD) * (K + PAD); i++)
        p->a[i] = draw_f32(&random);
    for (int i = 0; i < (N + PAD) * (K + PAD); i++)
        p->b[i] = draw_f32(&random);
    for (int i = 0; i < N; i++)
        p->bias[i] = draw_f32(&random);
    for (int i = 0; i < M * (N + PAD); i++)
        p->before[i] = draw_f32(&random);
    p->op = (struct zr_op_gemm){ .out = p->out,
                                 .a = p->a,
                                 .b = p->b,
                                 .bias = bias ? p->bias : NULL,
                                 .m = M,
                                 .n = N,
                                 .k = K,
                                 .stride_a = (transpose_a ? M : K) + PAD,
                                 .stride_b = (transpose_b ? K : N) + PAD,
                                 .stride_out = N + PAD,
                                 .transpose_a = transpose_a,
                                 .transpose_b = transpose_b,
                                 .accumulate = accumulate,
                                 .dtype = ZR_F32 };
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            double sum = accumulate ? (double)p->before[m * (N + PAD) + n] : bias ? (double)p->bias[n] : 0;
            for (int k = 0; k < K; k++) {
                const float a = transpose_a ? p->a[k * (M + PAD) + m] : p->a[m * (K + PAD) + k];
                const float b = transpose_b ? p->b[n * (K + PAD) + k] : p->b[k * (N + PAD) + n];
                sum += (double)a * (double)b;
            }
            p->right[m * N + n] = sum;
        }
}

static void product_free(struct product *p)
{
    free(p->out);
    free(p->before);
    free(p->a);
    free(p->b);
    free(p->bias);
    free(p->right);
}

static void a_product_is_right_and_its_bits_do_not_know_the_threads(void **state)
{
    (void)state;
    static float packed[M * N], first[M * (N + PAD)];
    for (int kind = 0; kind < 16; kind++) {
        const bool accumulate = kind & 4, bias = (kind & 8) && !accumulate;
        struct product p;
        product_make(&p, kind & 1, kind & 2, accumulate, bias);
        for (enum zr_simd_level level = 0; level < levels_here(); level++)
            for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
                struct lane lane = lane_make(level, thread_counts[t]);
                memcpy(p.out, p.before, M * (N + PAD) * sizeof *p.out);
                lane_run(&lane, ZR_OP_gemm, &p.op);
                lane_free(&lane);
                for (int m = 0; m < M; m++) {
                    memcpy(packed + m * N, p.out + m * (N + PAD), N * sizeof *packed);
                    for (int i = N; i < N + PAD; i++)
                        assert_true(p.out[m * (N + PAD) + i] == p.before[m * (N + PAD) + i]);
                }
                if (near_relative(packed, p.right, M * N) > 3e-7)
                    fail_msg("kind %d: off by %g", kind, near_relative(packed, p.right, M * N));
                if (t == 0) memcpy(first, p.out, sizeof first);
                if (memcmp(first, p.out, sizeof first) != 0)
                    fail_msg("kind %d, %s: other bits with %u threads", kind, lane.level, thread_counts[t]);
            }
        product_free(&p);
    }
}

enum { ROWS = 37, WIDTH = 77 };

static void a_norm_and_its_gradient_are_those_of_the_formula(void **state)
{
    (void)state;
    static float x[ROWS * WIDTH], weight[WIDTH], dy[ROWS * WIDTH], out[ROWS * WIDTH], dx[ROWS * WIDTH], dweight[WIDTH],
        rstd[ROWS], first[2][ROWS * WIDTH];
    static double right_out[ROWS * WIDTH], right_dx[ROWS * WIDTH], right_dweight[WIDTH];
    uint64_t random = 11;
    for (int i = 0; i < WIDTH; i++)
        weight[i] = draw_f32(&random);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = 3 * draw_f32(&random), dy[i] = draw_f32(&random);
    for (int r = 0; r < ROWS; r++) {
        const float *row = x + r * WIDTH, *d = dy + r * WIDTH;
        double squares = 0, dot = 0;
        for (int i = 0; i < WIDTH; i++)
            squares += (double)row[i] * (double)row[i], dot += (double)d[i] * (double)weight[i] * (double)row[i];
        const double scale = 1 / sqrt(squares / WIDTH + 1e-5);
        for (int i = 0; i < WIDTH; i++) {
            right_out[r * WIDTH + i] = (double)row[i] * scale * (double)weight[i];
            right_dx[r * WIDTH + i] =
                scale * ((double)d[i] * (double)weight[i] - (double)row[i] * scale * scale * dot / WIDTH);
            right_dweight[i] += (double)d[i] * (double)row[i] * scale;
        }
    }
    float *scratch = calloc(zr_op_norm_scratch(ROWS, WIDTH), sizeof *scratch);
    for (enum zr_simd_level level = 0; level < levels_here(); level++)
        for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
            struct lane lane = lane_make(level, thread_counts[t]);
            const struct zr_op_rmsnorm_forward forward = { .out = out,
                                                           .x = x,
                                                           .weight = weight,
                                                           .rstd = rstd,
                                                           .rows = ROWS,
                                                           .groups = 1,
                                                           .width = WIDTH,
                                                           .stride_x = WIDTH,
                                                           .stride_out = WIDTH,
                                                           .eps = 1e-5f,
                                                           .dtype = ZR_F32 };
            const struct zr_op_rmsnorm_backward backward = { .dx = dx,
                                                             .dweight = dweight,
                                                             .dy = dy,
                                                             .x = x,
                                                             .weight = weight,
                                                             .rstd = rstd,
                                                             .scratch = scratch,
                                                             .rows = ROWS,
                                                             .groups = 1,
                                                             .width = WIDTH,
                                                             .stride_dx = WIDTH,
                                                             .stride_dy = WIDTH,
                                                             .stride_x = WIDTH,
                                                             .dtype = ZR_F32 };
            memset(dweight, 0, sizeof dweight);
            lane_run(&lane, ZR_OP_rmsnorm_forward, &forward);
            lane_run(&lane, ZR_OP_rmsnorm_backward, &backward);
            lane_free(&lane);
            assert_true(near_relative(out, right_out, ROWS * WIDTH) < 2e-7);
            assert_true(near_relative(dx, right_dx, ROWS * WIDTH) < 5e-7);
            assert_true(near_relative(dweight, right_dweight, WIDTH) < 5e-7);
            if (level == 0 && t == 0) memcpy(first[0], out, sizeof out), memcpy(first[1], dx, sizeof dx);
            assert_memory_equal(first[0], out, sizeof out); /* whatever level, whatever threads */
            assert_memory_equal(first[1], dx, sizeof dx);
        }
    free(scratch);
}

static void a_loss_and_its_gradient_stay_finite_for_large_logits(void **state)
{
    (void)state;
    enum { VOCABULARY = 257, STRIDE = 264 };
    static float drawn[ROWS * STRIDE], logits[ROWS * STRIDE], first[ROWS * STRIDE], packed[ROWS * VOCABULARY],
        loss[ROWS];
    static double right[ROWS * VOCABULARY], right_loss[ROWS];
    static int32_t targets[ROWS];
    uint64_t random = 13;
    for (int i = 0; i < ROWS * STRIDE; i++)
        drawn[i] = draw_f32(&random) * (i / STRIDE == 5 ? 500 : 4);
    for (int r = 0; r < ROWS; r++) {
        targets[r] = r % 7 == 3 ? -100 : (int32_t)(draw(&random) % VOCABULARY);
        double largest = -1e30, sum = 0;
        for (int i = 0; i < VOCABULARY; i++)
            largest = fmax(largest, (double)drawn[r * STRIDE + i]);
        for (int i = 0; i < VOCABULARY; i++)
            sum += exp((double)drawn[r * STRIDE + i] - largest);
        right_loss[r] = targets[r] < 0 ? 0 : largest + log(sum) - (double)drawn[r * STRIDE + targets[r]];
        for (int i = 0; i < VOCABULARY; i++)
            right[r * VOCABULARY + i] =
                targets[r] < 0 ? 0 : 0.5 * (exp((double)drawn[r * STRIDE + i] - largest) / sum - (i == targets[r]));
    }
    for (enum zr_simd_level level = 0; level < levels_here(); level++)
        for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
            struct lane lane = lane_make(level, thread_counts[t]);
            const struct zr_op_cross_entropy op = { .logits = logits,
                                                    .targets = targets,
                                                    .loss = loss,
                                                    .rows = ROWS,
                                                    .vocabulary = VOCABULARY,
                                                    .stride = STRIDE,
                                                    .scale = 0.5f,
                                                    .gradient = true,
                                                    .dtype = ZR_F32 };
            memcpy(logits, drawn, sizeof logits);
            lane_run(&lane, ZR_OP_cross_entropy, &op);
            lane_free(&lane);
            for (int r = 0; r < ROWS; r++) {
                memcpy(packed + r * VOCABULARY, logits + r * STRIDE, VOCABULARY * sizeof *packed);
                for (int i = VOCABULARY; i < STRIDE; i++)
                    assert_true(logits[r * STRIDE + i] == drawn[r * STRIDE + i]);
            }
            assert_true(near_relative(packed, right, ROWS * VOCABULARY) < 2e-6);
            assert_true(near_relative(loss, right_loss, ROWS) < 1e-6);
            if (level == 0 && t == 0) memcpy(first, logits, sizeof first);
            assert_memory_equal(first, logits, sizeof first);
        }
}

int main(void)
{
    const char *name;
    struct zr_error err = { 0 };
    if (zr_cpu_start(&name, &err) != ZR_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_is_right_and_its_bits_do_not_know_the_threads),
        cmocka_unit_test(a_norm_and_its_gradient_are_those_of_the_formula),
        cmocka_unit_test(a_loss_and_its_gradient_stay_finite_for_large_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
