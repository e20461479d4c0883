/* engine.c: what the process owns, and the plan of a job without the job */
#include "engine/base/pool.h"
#include "engine/run/job.h"
#include "engine/run/wishes.h"
#include <stdlib.h>

#define TRACE_EVENTS 65536

static enum zr_code look_at_backend(struct zr_engine *engine, struct zr_error *err)
{
    const struct zr_config *config = &engine->config;
    if (config->backend == ZR_BACKEND_AUTO)
        return zr_fail(err, ZR_EGONE,
                       "zerod.device.backend is auto and this build has no CUDA backend; "
                       "hint: set zerod.device.backend to cpu to train on the processor");
    struct zr_device_config wanted = { .kind = config->backend == ZR_BACKEND_CPU ? ZR_DEVICE_CPU : ZR_DEVICE_CUDA,
                                       .simd_limit = 2,
                                       .threads = config->compute_threads };
    struct zr_device *device = NULL;
    enum zr_code code = zr_device_open(&wanted, &device, err);
    if (code) return code;
    engine->kind = wanted.kind;
    zr_text_print(engine->description, sizeof engine->description, "%.200s", zr_device_describe(device));
    zr_device_close(device);
    zr_machine_cpu(&engine->machine, 0, 0, 0);
    return ZR_OK;
}

enum zr_code zr_engine_open(const struct zr_config *config, struct zr_engine **ret_engine, struct zr_error *err)
{
    struct zr_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return zr_fail(err, ZR_EFULL, "no memory for the engine");
    engine->config = *config;
    enum zr_code code = look_at_backend(engine, err);
    if (!code) code = zr_trace_make(TRACE_EVENTS, &engine->trace, err);
    if (code) {
        zr_engine_close(engine);
        return code;
    }
    for (int kind = 0; kind < ZR_OP_KIND_COUNT; kind++)
        engine->step_name[kind] = zr_trace_name(engine->trace, zr_op_kind_name(kind));
    *ret_engine = engine;
    return ZR_OK;
}

void zr_engine_close(struct zr_engine *engine)
{
    if (!engine) return;
    zr_trace_free(engine->trace);
    free(engine);
}

const char *zr_engine_describe(const struct zr_engine *engine)
{
    return engine->description;
}

struct zr_trace *zr_engine_trace(struct zr_engine *engine)
{
    return engine->trace;
}

enum zr_code zr_job_plan_only(const struct zr_config *config, const struct zr_dims *dims, struct zr_model **ret_model,
                              struct zr_plan **ret_plan, struct zr_error *err)
{
    struct zr_wishes wishes;
    struct zr_machine machine;
    struct zr_model *model = NULL;
    zr_machine_cpu(&machine, 0, 0, 0);
    enum zr_code code;
    if ((code = zr_wishes_make(config, dims, &wishes, err)) || (code = zr_wishes_budgets(config, &machine, err)) ||
        (code = zr_model_make(dims, &model, err)))
        return code;
    if ((code = zr_plan_make(model, &wishes, &machine, ret_plan, err))) {
        zr_model_free(model);
        return code;
    }
    *ret_model = model;
    return ZR_OK;
}
