/* fit.h: chooses what a plan leaves open; internal to the plan room */
#ifndef ZR_PLAN_FIT_H
#define ZR_PLAN_FIT_H

#include "engine/plan/layout.h"

/* Picks the micro-batch (where the wishes leave it open, the largest divisor of the step's rows that fits and has at most
 * ZR_FIT_MICRO_TOKENS tokens), then spends what is left of the device: weight slots up to prefetch + 1, and then whatever
 * the time model says is short: where copies bound the step, checkpoints on the device and resident weights; where compute
 * does, activations that need not be computed again. ZR_EFULL: says what is missing and what would help. */
ZR_MUST_CHECK enum zr_code zr_fit(const struct zr_plan *plan, struct zr_choices *ret_choices, struct zr_error *err);

#define ZR_FIT_MICRO_TOKENS 8192

#endif
