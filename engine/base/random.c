/* random.c: Philox 4x32-10 and normal numbers from it */
#include "engine/base/random.h"
#include <math.h>

struct zr_random_block zr_random(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (struct zr_random_block){ { c0, c1, c2, c3 } };
}

/* A uniform number in (0, 1] from 53 of 64 bits. */
static double uniform(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32 | low) >> 11;
    return ((double)bits + 1) * 0x1p-53;
}

void zr_random_normal(uint64_t seed, uint64_t stream, uint64_t index, double ret_pair[2])
{
    struct zr_random_block block = zr_random(seed, stream, index);
    double radius = sqrt(-2 * log(uniform(block.word[0], block.word[1])));
    double angle = 2 * acos(-1) * uniform(block.word[2], block.word[3]);
    ret_pair[0] = radius * cos(angle);
    ret_pair[1] = radius * sin(angle);
}
