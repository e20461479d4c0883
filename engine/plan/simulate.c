/* simulate.c: the same list against a machine
 *
 * An op starts when its queue is free and its waits are done. Its duration is its work over the machine's rate plus the
 * fixed cost of an op. The floor is the time that no order could beat:
 *     max(compute, up, down, (up + down + update bytes) / DRAM, nvme read + nvme write)      one drive serves both ways */
#include "engine/plan/clocks.h"
#include <string.h>

static double work_seconds(const struct zr_op_entry *op, const struct zr_machine *machine)
{
    switch (op->queue) {
    case ZR_QUEUE_COMPUTE:
        return op->flops / machine->flops + (double)op->bytes / machine->host;
    case ZR_QUEUE_H2D:
        return (double)op->bytes / machine->up;
    case ZR_QUEUE_D2H:
        return (double)op->bytes / machine->down;
    case ZR_QUEUE_CPU:
        return (double)op->bytes / machine->host;
    case ZR_QUEUE_READ:
        return (double)op->bytes / machine->read;
    default:
        return (double)op->bytes / machine->write;
    }
}

void zr_schedule_simulate(const struct zr_schedule *schedule, const struct zr_machine *machine,
                          struct zr_simulation *simulation)
{
    double *done[ZR_QUEUE_COUNT], work[ZR_QUEUE_COUNT] = { 0 }, free_at[ZR_QUEUE_COUNT] = { 0 };
    double bytes[ZR_QUEUE_COUNT] = { 0 };
    memset(simulation->busy, 0, sizeof simulation->busy);
    simulation->seconds = 0;
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
        done[queue] = calloc(schedule->queue_length[queue] + 1u, sizeof(double));
        assert(done[queue]);
    }
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct zr_op_entry *op = &schedule->ops[i];
        double begin = free_at[op->queue], seconds = work_seconds(op, machine);
        for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
            if (op->wait[queue] && done[queue][op->wait[queue]] > begin) begin = done[queue][op->wait[queue]];
        double end = begin + seconds + machine->op_seconds;
        free_at[op->queue] = done[op->queue][op->sequence] = end;
        simulation->busy[op->queue] += end - begin;
        work[op->queue] += seconds;
        bytes[op->queue] += (double)op->bytes;
        if (end > simulation->seconds) simulation->seconds = end;
        if (simulation->begin) simulation->begin[i] = begin;
        if (simulation->end) simulation->end[i] = end;
    }
    simulation->bound_by = ZR_QUEUE_COMPUTE;
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
        if (simulation->busy[queue] > simulation->busy[simulation->bound_by]) simulation->bound_by = queue;
        free(done[queue]);
    }
    double dram = (bytes[ZR_QUEUE_H2D] + bytes[ZR_QUEUE_D2H] + bytes[ZR_QUEUE_CPU] + bytes[ZR_QUEUE_READ] +
                   bytes[ZR_QUEUE_WRITE]) /
                  machine->host;
    double nvme = work[ZR_QUEUE_READ] + work[ZR_QUEUE_WRITE];
    simulation->floor = work[ZR_QUEUE_COMPUTE];
    for (int queue = ZR_QUEUE_H2D; queue <= ZR_QUEUE_CPU; queue++)
        if (work[queue] > simulation->floor) simulation->floor = work[queue];
    if (dram > simulation->floor) simulation->floor = dram;
    if (nvme > simulation->floor) simulation->floor = nvme;
}
