/* table.c: the kernels of the level that is being compiled, by operation; and how loops are cut */
#include "kernels/cpu/kernel.h"

#define ZR_TABLE ZR_CPU_JOIN(ZR_CPU_LEVEL, table)
extern zr_cpu_kernel *const ZR_TABLE[ZR_OP_COUNT];

void ZR_KERNEL(gemm)(struct zr_cpu_lane *lane, const void *args)
{
    zr_cpu_gemm(lane, args);
}

zr_cpu_kernel *const ZR_TABLE[ZR_OP_COUNT] = {
#define ENTRY(name) [ZR_OP_##name] = ZR_KERNEL(name),
    ZR_OPS(ENTRY)
#undef ENTRY
};

struct cut {
    const struct zr_cpu_range *range;
    uint64_t step;
};

static void run_item(void *context, uint32_t item, uint32_t worker)
{
    const struct cut *cut = context;
    uint64_t first = item * cut->step;
    (void)worker;
    cut->range->body(cut->range->args, first, zr_min_u64(cut->step, cut->range->count - first));
}

void ZR_KERNEL(rows)(struct zr_cpu_lane *lane, const struct zr_cpu_range *range, uint64_t rows_per_item)
{
    struct cut cut = { .range = range, .step = rows_per_item };
    zr_pool_run(lane->pool, (uint32_t)zr_divide_up(range->count, rows_per_item), run_item, &cut);
}

void ZR_KERNEL(range)(struct zr_cpu_lane *lane, const struct zr_cpu_range *range)
{
    ZR_KERNEL(rows)(lane, range, ZR_CPU_ITEM);
}
