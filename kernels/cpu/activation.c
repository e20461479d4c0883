/* activation.c: SwiGLU and GELU, forward beside backward
 *
 * The tanh form of GELU is x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), since (1 + tanh u) / 2 = sigmoid(2u): no
 * cancellation where tanh is near -1. */
#include "kernels/cpu/kernel.h"
#include <assert.h>

static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + zr_exp(-x));
}

static void swiglu(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_swiglu_forward *a = args;
    for (uint64_t t = first; t < first + count; t++) {
        const float *restrict gate = (const float *)a->gate_up + t * 2 * a->width, *restrict up = gate + a->width;
        float *restrict out = (float *)a->out + t * a->width;
        for (uint64_t i = 0; i < a->width; i++)
            out[i] = gate[i] * sigmoid(gate[i]) * up[i];
    }
}

void ZR_KERNEL(swiglu_forward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_swiglu_forward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = swiglu },
     zr_rows_per_item(a->rows, 2 * a->width));
}

static void swiglu_back(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_swiglu_backward *a = args;
    for (uint64_t t = first; t < first + count; t++) {
        const float *gate = (const float *)a->gate_up + t * 2 * a->width, *up = gate + a->width;
        const float *dout = (const float *)a->dout + t * a->width;
        float *dgate = (float *)a->dgate_up + t * 2 * a->width, *dup = dgate + a->width;
#pragma GCC ivdep
        for (uint64_t i = 0; i < a->width; i++) {
            float g = gate[i], u = up[i], d = dout[i], s = sigmoid(g);
            dgate[i] = d * u * s * (1.0f + g * (1.0f - s));
            dup[i] = d * g * s;
        }
    }
}

void ZR_KERNEL(swiglu_backward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_swiglu_backward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(rows)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->rows, .body = swiglu_back },
     zr_rows_per_item(a->rows, 2 * a->width));
}

#define ROOT_2_OVER_PI 0.7978845608028654f
#define CUBE 0.044715f

static void gelu_tanh(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_gelu_forward *a = args;
    const float *x = a->x;
    float *out = a->out;
#pragma GCC ivdep
    for (uint64_t i = first; i < first + count; i++) {
        float u = ROOT_2_OVER_PI * (x[i] + CUBE * x[i] * x[i] * x[i]);
        out[i] = x[i] * sigmoid(2 * u);
    }
}

static void gelu_erf(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_gelu_forward *a = args;
    const float *x = a->x;
    for (uint64_t i = first; i < first + count; i++)
        ((float *)a->out)[i] = 0.5f * x[i] * erfcf(-x[i] * 0.70710678118654752f);
}

void ZR_KERNEL(gelu_forward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_gelu_forward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(range)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->count, .body = a->erf ? gelu_erf : gelu_tanh });
}

static void gelu_tanh_back(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_gelu_backward *a = args;
    const float *x = a->x, *dout = a->dout;
    float *dx = a->dx;
#pragma GCC ivdep
    for (uint64_t i = first; i < first + count; i++) {
        float square = x[i] * x[i], u = ROOT_2_OVER_PI * (x[i] + CUBE * x[i] * square);
        float s = sigmoid(2 * u), slope = 2 * ROOT_2_OVER_PI * (1 + 3 * CUBE * square);
        dx[i] = dout[i] * (s + x[i] * s * (1 - s) * slope);
    }
}

static void gelu_erf_back(const void *args, uint64_t first, uint64_t count)
{
    const struct zr_op_gelu_backward *a = args;
    const float *x = a->x, *dout = a->dout;
    for (uint64_t i = first; i < first + count; i++) {
        float phi = 0.3989422804014327f * expf(-0.5f * x[i] * x[i]);
        ((float *)a->dx)[i] = dout[i] * (0.5f * erfcf(-x[i] * 0.70710678118654752f) + x[i] * phi);
    }
}

void ZR_KERNEL(gelu_backward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_gelu_backward *a = args;
    assert(a->dtype == ZR_F32);
    ZR_KERNEL(range)
    (lane, &(struct zr_cpu_range){ .args = a, .count = a->count, .body = a->erf ? gelu_erf_back : gelu_tanh_back });
}
