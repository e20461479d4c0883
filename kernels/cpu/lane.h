/* lane.h: what a CPU kernel runs with
 *
 * Every kernel is plain C that the compiler vectorises, compiled three times: for any x86-64, for AVX2 and for AVX-512
 * (CMakeLists.txt). Products and sums are rounded as written (no contraction, no reassociation; where a fused
 * multiply-add is meant the code says fmaf), and sums over an array run in 16 interleaved parts, so the three give the
 * same bits. Only the matrix products come from a library that differs between instruction sets. */
#ifndef ZR_KERNELS_CPU_LANE_H
#define ZR_KERNELS_CPU_LANE_H

#include "engine/base/pool.h"
#include "kernels/ops.h"

enum zr_simd_level { ZR_LEVEL_SCALAR, ZR_LEVEL_AVX2, ZR_LEVEL_AVX512, ZR_LEVEL_COUNT };

struct zr_cpu_lane;
typedef void zr_cpu_kernel(struct zr_cpu_lane *lane, const void *args);

/* One per stream; used by one thread at a time. */
struct zr_cpu_lane {
    struct zr_pool *pool;
    zr_cpu_kernel *const *table; /* by enum zr_op, from zr_cpu_table() */
};

/* The best level of this machine, or `limit` where that is lower. */
enum zr_simd_level zr_cpu_simd(enum zr_simd_level limit);

/* The entry for each operation at a level; never NULL. */
zr_cpu_kernel *const *zr_cpu_table(enum zr_simd_level level);

/* Warms what the matrix library needs (its first call builds code); tells its name for logs (a static string). Call once
 * before streams run. */
enum zr_code zr_cpu_start(const char **ret_gemm_name, struct zr_error *err);

#endif
