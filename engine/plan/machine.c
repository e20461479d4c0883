/* machine.c: names of tiers and queues, and a modest default machine */
#include "engine/plan/machine.h"

const char *zr_tier_name(enum zr_tier tier)
{
    static const char *const names[ZR_TIER_COUNT] = { "device", "host", "nvme" };
    return names[tier];
}

const char *zr_queue_name(enum zr_queue queue)
{
    static const char *const names[ZR_QUEUE_COUNT] = { "compute", "h2d", "d2h", "cpu", "nvme read", "nvme write" };
    return names[queue];
}

void zr_machine_cpu(struct zr_machine *ret_machine, uint64_t device, uint64_t host, uint64_t nvme)
{
    *ret_machine = (struct zr_machine){
        .bytes = { device, host, nvme },
        .element_bytes = 4,
        .widen_weights = true,
        .flops = 200e9,
        .up = 8e9,
        .down = 8e9,
        .host = 20e9,
        .read = 2e9,
        .write = 1.5e9,
        .op_seconds = 20e-6,
    };
}
