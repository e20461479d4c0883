/* span.h: sizes and alignment without surprises */
#ifndef ZR_BASE_SPAN_H
#define ZR_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `value` rounded up to a multiple of `step` (a power of two). The caller's values never come near 2^64. */
static inline uint64_t zr_round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) & ~(step - 1);
}

static inline uint64_t zr_divide_up(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

static inline uint64_t zr_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t zr_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* *product = a * b; false when that does not fit in 64 bits. For sizes that come from outside. */
static inline bool zr_multiply(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* Is [offset, offset + bytes) inside [0, limit)? Never overflows. */
static inline bool zr_inside(uint64_t offset, uint64_t bytes, uint64_t limit)
{
    return offset <= limit && bytes <= limit - offset;
}

#endif
