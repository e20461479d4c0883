/* lane.h: what a CPU kernel runs with */
#ifndef ZR_KERNELS_CPU_LANE_H
#define ZR_KERNELS_CPU_LANE_H

#include "engine/base/pool.h"
#include "kernels/ops.h"

/* One per stream; used by one thread at a time. */
struct zr_cpu_lane {
    struct zr_pool *pool;
    int simd; /* enum zr_simd_level, chosen once by zr_cpu_simd() */
};

enum zr_simd_level { ZR_LEVEL_SCALAR, ZR_LEVEL_AVX2, ZR_LEVEL_AVX512 };

/* The best level of this machine, or `limit` where that is lower. */
enum zr_simd_level zr_cpu_simd(enum zr_simd_level limit);

typedef void zr_cpu_kernel(struct zr_cpu_lane *lane, const void *args);

/* The CPU's entry for each operation (kernels/cpu/table.c); never NULL. */
extern zr_cpu_kernel *const zr_cpu_table[ZR_OP_COUNT];

/* Loads and warms what the matrix library needs (its first call builds code); tells which instruction set it uses.
 * Call once before streams run. `name` is a static string, for logs. */
enum zr_code zr_cpu_start(const char **ret_gemm_name, struct zr_error *err);

#endif
