/* clocks.h: vector clocks over queues; internal to the plan room
 *
 * An op's clock says, for each queue, up to which position everything has happened before the op is done. */
#ifndef ZR_PLAN_CLOCKS_H
#define ZR_PLAN_CLOCKS_H

#include "engine/plan/schedule.h"
#include <assert.h>
#include <stdlib.h>

struct zr_clock {
    uint32_t at[ZR_QUEUE_COUNT];
};

static inline void zr_clock_join(struct zr_clock *clock, const struct zr_clock *with)
{
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
        if (with->at[queue] > clock->at[queue]) clock->at[queue] = with->at[queue];
}

/* index[queue][position - 1] = op index; arrays from the heap. */
static inline void zr_clocks_index(const struct zr_schedule *schedule, uint32_t *index[ZR_QUEUE_COUNT])
{
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
        index[queue] = malloc((schedule->queue_length[queue] + 1u) * sizeof(uint32_t));
        assert(index[queue]);
    }
    for (uint32_t i = 0; i < schedule->op_count; i++)
        index[schedule->ops[i].queue][schedule->ops[i].sequence - 1] = i;
}

#endif
