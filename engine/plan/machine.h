/* machine.h: a machine as values: budgets and bandwidths, measured or stated. Pure. */
#ifndef ZR_PLAN_MACHINE_H
#define ZR_PLAN_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum zr_tier { ZR_DEVICE, ZR_HOST, ZR_NVME, ZR_TIER_COUNT };

/* What runs ops in order. NVMe reads and writes are two queues: a read that the forward pass waits for must not stand
 * behind a write that only frees a buffer. */
enum zr_queue {
    ZR_QUEUE_COMPUTE,
    ZR_QUEUE_H2D,
    ZR_QUEUE_D2H,
    ZR_QUEUE_CPU, /* the optimizer's threads */
    ZR_QUEUE_READ,
    ZR_QUEUE_WRITE,
    ZR_QUEUE_COUNT
};

struct zr_machine {
    uint64_t bytes[ZR_TIER_COUNT]; /* budgets */
    uint32_t element_bytes;        /* of activations: 4 on the CPU backend, 2 on a GPU with bf16 */
    bool widen_weights;            /* the backend computes in fp32 and widens bf16 weights first */
    double flops;                  /* achievable, per second */
    double up, down;               /* host to device and back, bytes per second */
    double host;                   /* DRAM, bytes read plus written per second */
    double read, write;            /* NVMe, sustained */
    double op_seconds;             /* fixed cost of an op */
};

const char *zr_tier_name(enum zr_tier tier);    /* "device", "host", "nvme" */
const char *zr_queue_name(enum zr_queue queue); /* "compute", "h2d", "d2h", "cpu", "nvme read", "nvme write" */

/* A machine of the CPU backend with the given budgets and modest rates, for plans that nothing was measured for. */
void zr_machine_cpu(struct zr_machine *ret_machine, uint64_t device, uint64_t host, uint64_t nvme);

#endif
