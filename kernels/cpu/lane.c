/* lane.c: which level this machine has, and what the matrix library needs at the start; compiled once */
#include "kernels/cpu/lane.h"
#include <dnnl.h>
#include <stdio.h>

extern zr_cpu_kernel *const zr_cpu_scalar_table[ZR_OP_COUNT], *const zr_cpu_avx2_table[ZR_OP_COUNT],
                                                                  *const zr_cpu_avx512_table[ZR_OP_COUNT];

enum zr_simd_level zr_cpu_simd(enum zr_simd_level limit)
{
    __builtin_cpu_init();
    enum zr_simd_level level = ZR_LEVEL_SCALAR;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) level = ZR_LEVEL_AVX2;
    if (level == ZR_LEVEL_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        level = ZR_LEVEL_AVX512;
    return level < limit ? level : limit;
}

zr_cpu_kernel *const *zr_cpu_table(enum zr_simd_level level)
{
    return level == ZR_LEVEL_AVX512 ? zr_cpu_avx512_table
           : level == ZR_LEVEL_AVX2 ? zr_cpu_avx2_table
                                    : zr_cpu_scalar_table;
}

enum zr_code zr_cpu_start(const char **ret_gemm_name, struct zr_error *err)
{
    static char name[32]; /* the same text every time */
    float one = 1, out = 0;
    if (dnnl_sgemm('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &out, 1) != dnnl_success || out != 1)
        return zr_fail(err, ZR_EGONE, "oneDNN does not work on this processor");
    const dnnl_version_t *version = dnnl_version();
    snprintf(name, sizeof name, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
    *ret_gemm_name = name;
    return ZR_OK;
}
