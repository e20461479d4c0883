/* test_activation.c: the kernels' exp, SwiGLU and both forms of GELU, forward and backward, against libm in float64 */
#define ZR_CPU_LEVEL scalar /* for zr_exp() alone */
#include "everywhere.h"
#include "kernels/cpu/kernel.h"

static void exp_is_within_2_ulp(void **state)
{
    (void)state;
    uint64_t worst = 0;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t bits = 0; bits < 0x42ae0000u /* 87 */; bits += 1009) {
            float x = zr_f32_of_bits(bits | sign << 31);
            uint64_t ulps = near_ulps(zr_exp(x), (float)exp((double)x));
            if (ulps > worst) worst = ulps;
            if (ulps > 2) fail_msg("exp(%.9g) is %llu ulp off", (double)x, (unsigned long long)ulps);
        }
    assert_true(zr_exp(0) == 1 && zr_exp(-0.0f) == 1);
    assert_true(zr_exp(-INFINITY) == 0 && zr_exp(-1000) == 0 && zr_exp(-88) == 0);
    assert_true(isinf(zr_exp(INFINITY)) && isinf(zr_exp(1000)) && isinf(zr_exp(88.73f)));
    assert_true(isfinite(zr_exp(88.72f)));
    assert_true(isnan(zr_exp(NAN)));
}

/* From -12 to 12 in even steps, then far out on both sides, then zeros. */
static float *sweep(uint64_t count)
{
    float *x = malloc(count * sizeof *x);
    for (uint64_t i = 0; i < count; i++)
        x[i] = i % 97 == 3   ? (i % 2 ? 80.0f : -80.0f)
               : i % 97 == 5 ? (i % 2 ? 1e6f : -1e6f)
               : i % 97 == 7 ? (i % 2 ? 0.0f : -0.0f)
                             : (float)(-12 + 24 * (double)i / (double)count);
    return x;
}

/* What 1 - sigmoid(u) may lose near 1, times the slopes of u in the range of the sweep. */
#define SLOPE_BOUND 4e-6

/* Each element by itself: relative where the value is of the size of its input, absolute where it fades to nothing. */
static void elements_near(const char *what, const float *got, double *want, const float *x, uint64_t count,
                          double absolute)
{
    for (uint64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i]) <= 6e-7 * fabs(want[i]) + absolute))
            fail_msg("%s at %.9g is %.9g, not %.9g", what, (double)x[i], (double)got[i], want[i]);
    free(want);
}

static const uint64_t counts[] = { 1, 15, 17, 300, 16384, 16385, 40000 };

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double silu_slope(double x)
{
    double s = 1 / (1 + exp(-x));
    return s + x * s * (1 - s);
}

static void swiglu_and_its_gradient(void **state)
{
    (void)state;
    static const uint64_t shapes[][2] = { { 1, 1 }, { 3, 17 }, { 70, 130 }, { 2, 9001 } };
    for (size_t n = 0; n < ZR_COUNT(shapes); n++) {
        const uint64_t rows = shapes[n][0], w = shapes[n][1], count = rows * w;
        float *gates = sweep(count), *ups = numbers(count, 1, 2), *gate_up = malloc(2 * count * sizeof *gate_up);
        float *dout = numbers(count, 2, 1), *out = numbers(count, 3, 1), *dgate_up = numbers(2 * count, 4, 1);
        double *want = doubles(out, count), *back = doubles(dgate_up, 2 * count);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t gate = i / w * 2 * w + i % w, up = gate + w;
            gate_up[gate] = gates[i];
            gate_up[up] = ups[i];
            want[i] = silu(gates[i]) * (double)ups[i];
            back[gate] = (double)dout[i] * (double)ups[i] * silu_slope(gates[i]);
            back[up] = (double)dout[i] * silu(gates[i]);
        }
        run_everywhere(
            ZR_OP_swiglu_forward,
            &(struct zr_op_swiglu_forward){ .out = out, .gate_up = gate_up, .rows = rows, .width = w, .dtype = ZR_F32 },
            (struct written[]){ { out, count * 4 } }, 1);
        elements_near("swiglu", out, want, gates, count, 2e-7);
        struct zr_op_swiglu_backward backward = {
            .dgate_up = dgate_up, .dout = dout, .gate_up = gate_up, .rows = rows, .width = w, .dtype = ZR_F32
        };
        run_everywhere(ZR_OP_swiglu_backward, &backward, (struct written[]){ { dgate_up, 2 * count * 4 } }, 1);
        elements_near("swiglu's gradient", dgate_up, back, gate_up, 2 * count, SLOPE_BOUND);
        backward.dgate_up = gate_up; /* in place gives the same */
        run_everywhere(ZR_OP_swiglu_backward, &backward, (struct written[]){ { gate_up, 2 * count * 4 } }, 1);
        assert_memory_equal(gate_up, dgate_up, 2 * count * 4);
        free(gates);
        free(ups);
        free(gate_up);
        free(dout);
        free(out);
        free(dgate_up);
    }
}

static double gelu(double x, bool erf_form)
{
    if (erf_form) return 0.5 * x * erfc(-x / sqrt(2));
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x, bool erf_form)
{
    const double pi = acos(-1);
    if (erf_form) return 0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * pi);
    double t = tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
}

static void gelu_and_its_gradient(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2 * ZR_COUNT(counts); n++) {
        const uint64_t count = counts[n / 2];
        const bool erf_form = n % 2;
        float *x = sweep(count), *out = numbers(count, 1, 1), *dout = numbers(count, 2, 1);
        double *want = doubles(out, count), *back = doubles(dout, count);
        for (uint64_t i = 0; i < count; i++) {
            want[i] = gelu(x[i], erf_form);
            back[i] = (double)dout[i] * gelu_slope(x[i], erf_form);
        }
        run_everywhere(
            ZR_OP_gelu_forward,
            &(struct zr_op_gelu_forward){ .out = out, .x = x, .count = count, .erf = erf_form, .dtype = ZR_F32 },
            (struct written[]){ { out, count * 4 } }, 1);
        elements_near(erf_form ? "gelu (erf)" : "gelu (tanh)", out, want, x, count, 2e-7);
        struct zr_op_gelu_backward backward = {
            .dx = out, .dout = dout, .x = x, .count = count, .erf = erf_form, .dtype = ZR_F32
        };
        run_everywhere(ZR_OP_gelu_backward, &backward, (struct written[]){ { out, count * 4 } }, 1);
        elements_near(erf_form ? "slope of gelu (erf)" : "slope of gelu (tanh)", out, back, x, count, SLOPE_BOUND);
        backward.dx = dout; /* in place gives the same */
        run_everywhere(ZR_OP_gelu_backward, &backward, (struct written[]){ { dout, count * 4 } }, 1);
        assert_memory_equal(dout, out, count * 4);
        free(x);
        free(out);
        free(dout);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_2_ulp),
        cmocka_unit_test(swiglu_and_its_gradient),
        cmocka_unit_test(gelu_and_its_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
