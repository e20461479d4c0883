/* depend.c: waits, derived from which buffers ops touch
 *
 * A reader waits for the last writer; a writer waits for the last writer and for every reader since. What remains after
 * that is thinned: a wait that the op's own queue or one of its other waits implies is left out (vector clocks). */
#include "engine/plan/clocks.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Of one buffer: position of the last write, and of the last read on each queue since. */
struct touch {
    struct zr_clock written; /* only the writer's queue is set */
    struct zr_clock read;
};

void zr_schedule_depend(struct zr_schedule *schedule)
{
    struct touch *touches = calloc(schedule->plan->buffer_count, sizeof *touches);
    struct zr_clock *clocks = calloc(schedule->op_count + 1u, sizeof *clocks);
    uint32_t *index[ZR_QUEUE_COUNT];
    zr_clocks_index(schedule, index);
    assert(touches && clocks); /* a few hundred kilobytes, outside of steps */
    struct zr_clock queue_clock[ZR_QUEUE_COUNT] = { 0 };

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        struct zr_op_entry *op = &schedule->ops[i];
        memset(op->wait, 0, sizeof op->wait);
        for (uint32_t a = 0; a < op->access_count; a++) {
            const struct touch *touch = &touches[op->access[a].buffer];
            for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
                uint32_t need = touch->written.at[queue];
                if (op->access[a].write && touch->read.at[queue] > need) need = touch->read.at[queue];
                if (queue != (int)op->queue && need > op->wait[queue]) op->wait[queue] = need;
            }
        }
        for (uint32_t a = 0; a < op->access_count; a++)
            if (!op->access[a].write) touches[op->access[a].buffer].read.at[op->queue] = op->sequence;
        for (uint32_t a = 0; a < op->access_count; a++)
            if (op->access[a].write) {
                struct touch *touch = &touches[op->access[a].buffer];
                memset(touch, 0, sizeof *touch);
                touch->written.at[op->queue] = op->sequence;
            }

        /* Thin: a wait is implied by the own queue's past, or by what another wait brings along. */
        struct zr_clock known = queue_clock[op->queue];
        for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
            if (op->wait[queue] == 0) continue;
            struct zr_clock others = known;
            for (int other = 0; other < ZR_QUEUE_COUNT; other++)
                if (other != queue && op->wait[other])
                    zr_clock_join(&others, &clocks[index[other][op->wait[other] - 1]]);
            if (others.at[queue] >= op->wait[queue]) op->wait[queue] = 0;
        }
        for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
            if (op->wait[queue]) zr_clock_join(&known, &clocks[index[queue][op->wait[queue] - 1]]);
        known.at[op->queue] = op->sequence;
        clocks[i] = queue_clock[op->queue] = known;
    }
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
        free(index[queue]);
    free(clocks);
    free(touches);
}
