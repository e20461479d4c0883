/* layout.h: from choices to buffers; internal to the plan room */
#ifndef ZR_PLAN_LAYOUT_H
#define ZR_PLAN_LAYOUT_H

#include "engine/plan/plan.h"

/* What the fit decides. Everything else follows from the wishes. */
struct zr_choices {
    uint32_t micro_rows;
    uint32_t slots;           /* of class 0 */
    uint32_t grad_slots;      /* 1 or 2 */
    uint32_t stages;          /* host staging for states on NVMe */
    uint32_t resident_blocks; /* the last blocks */
    bool resident_ends;       /* embedding and head */
    uint32_t checkpoints_on_device;
    uint32_t kept_blocks;
};

/* Fills `used` of a plan for these choices without building the lists: for comparing choices. */
void zr_layout_measure(const struct zr_plan *plan, const struct zr_choices *choices, uint64_t used[ZR_TIER_COUNT]);

/* Builds every list of the plan. `plan` has model, wishes and machine; the rest is overwritten. ZR_EFULL: no memory for
 * the lists themselves. */
ZR_MUST_CHECK enum zr_code zr_layout_build(struct zr_plan *plan, const struct zr_choices *choices,
                                           struct zr_error *err);

#endif
