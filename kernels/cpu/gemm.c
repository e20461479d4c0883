/* gemm.c: products by oneDNN, cut into tiles by shape alone; compiled once
 *
 * No matrix library gives the same bits for every number of threads, so it is never given more than one: the output is cut
 * into tiles whose size depends on (m, n, k) only, k is never split, and each tile is one single-threaded call on the
 * lane's own pool. */
#include "engine/base/span.h"
#include "kernels/cpu/lane.h"
#include <assert.h>
#include <dlfcn.h>
#include <dnnl.h>
#include <string.h>

void zr_cpu_product(bool transpose_a, bool transpose_b, uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a,
                    uint64_t stride_a, const float *b, uint64_t stride_b, float beta, float *out, uint64_t stride_out);
zr_cpu_kernel zr_cpu_gemm;

/* oneDNN brings libgomp along. Told once per thread, it starts no team of its own in any of ours. */
static void one_thread(void)
{
    static _Thread_local bool told;
    if (told) return;
    void (*set)(int);
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&set, &symbol, sizeof set);
    if (symbol) set(1);
    told = true;
}

void zr_cpu_product(bool transpose_a, bool transpose_b, uint64_t m, uint64_t n, uint64_t k, float alpha, const float *a,
                    uint64_t stride_a, const float *b, uint64_t stride_b, float beta, float *out, uint64_t stride_out)
{
    one_thread();
    dnnl_status_t status =
        dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, alpha,
                   a, (dnnl_dim_t)stride_a, b, (dnnl_dim_t)stride_b, beta, out, (dnnl_dim_t)stride_out);
    assert(status == dnnl_success); /* it refuses nothing but impossible shapes, which zr_op_check() has refused */
}

struct tiles {
    const struct zr_op_gemm *args;
    uint64_t rows, columns, per_row;
};

static void tile(void *context, uint32_t item, uint32_t worker)
{
    const struct tiles *tiles = context;
    const struct zr_op_gemm *g = tiles->args;
    (void)worker;
    uint64_t row = item / tiles->per_row * tiles->rows, column = item % tiles->per_row * tiles->columns;
    uint64_t m = zr_min_u64(tiles->rows, g->m - row), n = zr_min_u64(tiles->columns, g->n - column);
    const float *a = (const float *)g->a + (g->transpose_a ? row : row * g->stride_a);
    const float *b = (const float *)g->b + (g->transpose_b ? column * g->stride_b : column);
    float *out = (float *)g->out + row * g->stride_out + column;
    zr_cpu_product(g->transpose_a, g->transpose_b, m, n, g->k, 1, a, g->stride_a, b, g->stride_b, g->accumulate ? 1 : 0,
                   out, g->stride_out);
    if (!g->bias) return;
    const float *bias = (const float *)g->bias + column;
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++)
            out[i * g->stride_out + j] += bias[j];
}

/* Tiles large enough to be worth a call (about 4 MFLOP), small enough that 16 threads find work in a big product. */
static void cut(const struct zr_op_gemm *g, struct tiles *tiles)
{
    *tiles = (struct tiles){ .args = g, .rows = g->m, .columns = g->n };
    const double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    double pieces = flops / 4e6;
    if (pieces > 64) pieces = 64;
    if (pieces >= 2) {
        uint64_t rows = zr_round_up((uint64_t)((double)g->m / pieces) + 1, 32);
        tiles->rows = zr_min_u64(zr_max_u64(rows, g->m >= 256 ? 64 : 32), g->m);
        double left = pieces / (double)zr_divide_up(g->m, tiles->rows);
        if (left >= 2) tiles->columns = zr_min_u64(zr_round_up((uint64_t)((double)g->n / left) + 1, 64), g->n);
    }
    tiles->per_row = zr_divide_up(g->n, tiles->columns);
}

void zr_cpu_gemm(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_gemm *g = args;
    assert(g->dtype == ZR_F32);
    struct tiles tiles;
    cut(g, &tiles);
    zr_pool_run(lane->pool, (uint32_t)(zr_divide_up(g->m, tiles.rows) * tiles.per_row), tile, &tiles);
}
