/* near.h: how far a float result is from a double reference */
#ifndef ZR_TESTS_NEAR_H
#define ZR_TESTS_NEAR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* |got - want| / |want| over whole arrays, in the 2-norm; the plain norm of the difference where the reference is all zero.
 * Infinite when anything in `got` is no number, so that a comparison with a bound fails. */
static inline double near_relative(const float *got, const double *want, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - want[i];
        if (!isfinite(d)) return INFINITY;
        difference += d * d;
        size += want[i] * want[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

/* The largest |got - want| over whole arrays; infinite when anything in `got` is no number. */
static inline double near_absolute(const float *got, const double *want, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!isfinite(d)) return INFINITY;
        if (d > largest) largest = d;
    }
    return largest;
}

/* Floats in the order of their values as integers: neighbours differ by 1, and both zeros are 0. */
static inline int64_t near_order(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 31 ? -(int64_t)(bits & 0x7fffffffu) : (int64_t)bits;
}

/* Floats that lie between a and b, counting one of the two; UINT64_MAX when one of them is no number. */
static inline uint64_t near_ulps(float a, float b)
{
    if (isnan(a) || isnan(b)) return UINT64_MAX;
    int64_t distance = near_order(a) - near_order(b);
    return (uint64_t)(distance < 0 ? -distance : distance);
}

/* The largest near_ulps() between an array and its reference rounded to float. */
static inline uint64_t near_ulps_most(const float *got, const double *want, size_t count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t ulps = near_ulps(got[i], (float)want[i]);
        if (ulps > most) most = ulps;
    }
    return most;
}

#endif
