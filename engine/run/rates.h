/* rates.h: learning-rate schedules by DeepSpeed's formulas
 *
 * DeepSpeed steps its schedule once after each applied update, and its constructor applies "iteration -1": so update
 * number 1 uses iteration -1 and update number k uses iteration k - 2. The first two updates of a warm-up from 0 therefore
 * change nothing but the moments; parity asks for it. Pure. */
#ifndef ZR_RUN_RATES_H
#define ZR_RUN_RATES_H

#include "config/config.h"

/* Rate of update number `update` (1 for the first applied one). `max_steps` replaces the schedule's total number of steps
 * when it is not 0. */
double zr_rate(const struct zr_config *config, uint64_t update, uint64_t max_steps);

/* beta1 of that update: OneCycle moves it, every other schedule leaves it alone. */
double zr_rate_beta1(const struct zr_config *config, uint64_t update);

/* beta2: with OneCycle's momentum DeepSpeed takes 0.99, whatever the optimizer's own is. */
double zr_rate_beta2(const struct zr_config *config);

#endif
