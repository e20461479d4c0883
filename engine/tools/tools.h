/* tools.h: verbs of zerod that need the engine in the process and no daemon
 *
 * Each takes argv with argv[0] the verb, prints its result on standard output and all else on standard error, and returns
 * an exit code: 0 done, 1 failed, 2 wrong usage, 3 does not fit, 78 wrong configuration. */
#ifndef ZR_TOOLS_H
#define ZR_TOOLS_H

#include "config/config.h"
#include "engine/model/model.h"

/* How a tool gets a model's dimensions: the store opens Hugging Face directories, and tools stand beside it. */
typedef enum zr_code zr_dims_finder(const struct zr_config *config, struct zr_dims *ret_dims, struct zr_error *err);

/* plan --config FILE [--set KEY=VALUE]... [--device SIZE] [--ram SIZE] [--nvme SIZE] [--json]
 * plan --deepspeed --parameters N --largest-layer N [--gpus N] [--nodes N]   DeepSpeed's own estimate, for comparison */
int zr_verb_plan(int argc, char **argv, zr_dims_finder *find_dims);

#endif
