/* random.h: counter-based random numbers
 *
 * A number is a function of (seed, stream, index) and of nothing else, so it does not depend on threads, placement,
 * chunk size or what was drawn before. Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
 * SC 2011); key = seed, counter = (index low, index high, stream low, stream high). */
#ifndef ZR_BASE_RANDOM_H
#define ZR_BASE_RANDOM_H

#include <stdint.h>

struct zr_random_block {
    uint32_t word[4];
};

struct zr_random_block zr_random(uint64_t seed, uint64_t stream, uint64_t index);

/* Two independent standard normal numbers for one counter (Box-Muller in double from four words). */
void zr_random_normal(uint64_t seed, uint64_t stream, uint64_t index, double ret_pair[2]);

#endif
