/* wishes.h: a configuration as a plan's wishes and budgets: the only place where config meets plan; internal to run */
#ifndef ZR_RUN_WISHES_H
#define ZR_RUN_WISHES_H

#include "config/config.h"
#include "engine/plan/plan.h"

/* ZR_ECONFIG  something that the engine cannot do: the key is named */
ZR_MUST_CHECK enum zr_code zr_wishes_make(const struct zr_config *config, const struct zr_dims *dims,
                                          struct zr_wishes *ret_wishes, struct zr_error *err);

/* Budgets of the config in `machine`; what it leaves open is taken from what is there. */
ZR_MUST_CHECK enum zr_code zr_wishes_budgets(const struct zr_config *config, struct zr_machine *machine,
                                             struct zr_error *err);

#endif
