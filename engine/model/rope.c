/* rope.c: rotary frequencies with every scaling, as transformers' modeling_rope_utils computes them */
#include "engine/model/model.h"
#include <math.h>
#include <stdlib.h>

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

static double llama3(const struct zr_rope_shape *rope, double inv_freq)
{
    const double length = (double)rope->original_positions, wavelength = 2 * acos(-1) / inv_freq;
    if (wavelength < length / rope->high_freq_factor) return inv_freq;
    if (wavelength > length / rope->low_freq_factor) return inv_freq / rope->factor;
    double smooth = (length / wavelength - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * inv_freq / rope->factor + smooth * inv_freq;
}

/* The dimension whose frequency turns `rotations` times over the original length. */
static double yarn_dimension(const struct zr_dims *dims, double rotations, double length)
{
    return dims->head_dim * log(length / (rotations * 2 * acos(-1))) / (2 * log(dims->rope.theta));
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static void yarn(const struct zr_dims *dims, float *inv_freq, double *ret_factor)
{
    const struct zr_rope_shape *rope = &dims->rope;
    const double length = rope->original_positions ? (double)rope->original_positions : dims->max_positions;
    double low = yarn_dimension(dims, rope->beta_fast, length), high = yarn_dimension(dims, rope->beta_slow, length);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)dims->head_dim - 1);
    if (low == high) high += 0.001;
    for (uint32_t i = 0; i < dims->head_dim / 2; i++) {
        double ramp = clamp01((i - low) / (high - low)); /* 0: keep the frequency, 1: stretch it */
        inv_freq[i] = (float)(inv_freq[i] / rope->factor * ramp + inv_freq[i] * (1 - ramp));
    }
    if (rope->attention_factor > 0)
        *ret_factor = rope->attention_factor;
    else if (rope->mscale > 0 && rope->mscale_all_dim > 0)
        *ret_factor = yarn_mscale(rope->factor, rope->mscale) / yarn_mscale(rope->factor, rope->mscale_all_dim);
    else
        *ret_factor = yarn_mscale(rope->factor, 1);
}

void zr_rope_frequencies(const struct zr_dims *dims, uint64_t length, float *ret_inv_freq, double *ret_factor)
{
    const struct zr_rope_shape *rope = &dims->rope;
    const uint32_t d = dims->head_dim;
    double theta = rope->theta;
    *ret_factor = 1;
    if (rope->kind == ZR_ROPE_DYNAMIC && length > dims->max_positions)
        theta *= pow(rope->factor * (double)length / dims->max_positions - (rope->factor - 1), d / (d - 2.0));
    for (uint32_t i = 0; i < d / 2; i++) {
        /* transformers: 1 / theta^(fp32(2i / d)) in fp32 */
        float exponent = (float)(2 * i) / (float)d;
        ret_inv_freq[i] = 1.0f / powf((float)theta, exponent);
        if (rope->kind == ZR_ROPE_LINEAR) ret_inv_freq[i] = (float)(ret_inv_freq[i] / rope->factor);
        if (rope->kind == ZR_ROPE_LLAMA3) ret_inv_freq[i] = (float)llama3(rope, ret_inv_freq[i]);
    }
    if (rope->kind == ZR_ROPE_YARN) yarn(dims, ret_inv_freq, ret_factor);
}

void zr_rope_table(const struct zr_dims *dims, uint64_t positions, float *ret_table)
{
    const uint32_t half = dims->head_dim / 2;
    float inv_freq[128]; /* head_dim is at most 256 */
    double factor;
    zr_rope_frequencies(dims, positions, inv_freq, &factor);
    for (uint64_t position = 0; position < positions; position++)
        for (uint32_t i = 0; i < half; i++) {
            float angle = (float)position * inv_freq[i];
            ret_table[position * dims->head_dim + i] = cosf(angle) * (float)factor;
            ret_table[position * dims->head_dim + half + i] = sinf(angle) * (float)factor;
        }
}
