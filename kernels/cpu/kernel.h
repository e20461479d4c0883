/* kernel.h: names of kernels at the level that is being compiled, and the few things that all of them use */
#ifndef ZR_KERNELS_CPU_KERNEL_H
#define ZR_KERNELS_CPU_KERNEL_H

#include "engine/base/span.h"
#include "kernels/cpu/lane.h"
#include <math.h>

/* ZR_CPU_LEVEL is scalar, avx2 or avx512: set by CMake for each of the three compilations. */
#define ZR_CPU_JOIN_(a, b) zr_cpu_##a##_##b
#define ZR_CPU_JOIN(a, b) ZR_CPU_JOIN_(a, b)
#define ZR_KERNEL(name) ZR_CPU_JOIN(ZR_CPU_LEVEL, name)

#define ZR_DECLARE(name) zr_cpu_kernel ZR_KERNEL(name);
ZR_OPS(ZR_DECLARE)
#undef ZR_DECLARE

/* The library behind both; compiled once. out (m,n) = op(a) op(b) * alpha + beta * out on the calling thread alone. */
void zr_cpu_product(bool transpose_a, bool transpose_b, uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a,
                    uint64_t stride_a, const float *b, uint64_t stride_b, float beta, float *out, uint64_t stride_out);
zr_cpu_kernel zr_cpu_gemm;

/* Elements that one item of an elementwise loop handles: enough to be worth a hand-over, a constant so that cuts depend
 * on the count alone. */
#define ZR_CPU_ITEM 16384

/* exp(x) within 2 ulp for |x| < 87 (Cephes' polynomial after reduction by multiples of ln 2), 0 below, +inf above, NaN for
 * NaN. Branch-free, so that loops around it vectorise. */
static inline float zr_exp(float x)
{
    float bounded = x > 88.72f ? 88.72f : x;
    bounded = bounded < -87.33f ? -87.33f : bounded;
    float shifted = fmaf(bounded, 1.44269504088896341f, 12582912.0f);
    float n = shifted - 12582912.0f;
    float r = fmaf(n, -0.693359375f, bounded);
    r = fmaf(n, 2.12194440e-4f, r);
    float p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p * r, r, r) + 1.0f;
    /* 2^n in two factors: n reaches 128. */
    uint32_t half = (uint32_t)((int32_t)zr_f32_bits(shifted) - 0x4b400000);
    int32_t first = (int32_t)half / 2, second = (int32_t)half - first;
    float y = p * zr_f32_of_bits((uint32_t)(first + 127) << 23) * zr_f32_of_bits((uint32_t)(second + 127) << 23);
    y = x > 88.72f ? INFINITY : y;
    return x < -87.33f ? 0.0f : y;
}

/* Sums in 16 interleaved parts, added up in order: the same bits for any vector width. */
#define ZR_PARTS 16

static inline double zr_sum_parts(const double part[ZR_PARTS])
{
    double sum = 0;
    for (int i = 0; i < ZR_PARTS; i++)
        sum += part[i];
    return sum;
}

static inline double zr_dot(const float *a, const float *b, uint64_t count)
{
    double part[ZR_PARTS] = { 0 };
    uint64_t i = 0;
    for (; i + ZR_PARTS <= count; i += ZR_PARTS)
        for (int j = 0; j < ZR_PARTS; j++)
            part[j] += (double)a[i + j] * b[i + j];
    for (int j = 0; i < count; i++, j++)
        part[j] += (double)a[i] * b[i];
    return zr_sum_parts(part);
}

static inline double zr_total(const float *a, uint64_t count)
{
    double part[ZR_PARTS] = { 0 };
    uint64_t i = 0;
    for (; i + ZR_PARTS <= count; i += ZR_PARTS)
        for (int j = 0; j < ZR_PARTS; j++)
            part[j] += (double)a[i + j];
    for (int j = 0; i < count; i++, j++)
        part[j] += (double)a[i];
    return zr_sum_parts(part);
}

/* One loop over elements, cut into items of ZR_CPU_ITEM. */
struct zr_cpu_range {
    const void *args;
    uint64_t count;
    void (*body)(const void *args, uint64_t first, uint64_t count);
};
void ZR_KERNEL(range)(struct zr_cpu_lane *lane, const struct zr_cpu_range *range);

/* The same over rows, `rows_per_item` at a time. */
void ZR_KERNEL(rows)(struct zr_cpu_lane *lane, const struct zr_cpu_range *range, uint64_t rows_per_item);

/* Rows of `width` elements that make a decent item. The number of items is a power of two, so that kernels of different
 * widths cut the same rows at the same places: a thread of the pool then finds them in its cache. */
static inline uint64_t zr_rows_per_item(uint64_t rows, uint64_t width)
{
    uint64_t items = 1;
    while (items < rows && items * ZR_CPU_ITEM < rows * width)
        items *= 2;
    return zr_max_u64(zr_divide_up(rows, items), 1);
}

#endif
