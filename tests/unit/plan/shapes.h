/* shapes.h: the models that the tests of the plan room share, and a plan that is made or refused */
#ifndef ZR_TEST_SHAPES_H
#define ZR_TEST_SHAPES_H

#include "engine/base/span.h"
#include "engine/plan/schedule.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

static inline struct zr_dims llama_shape(uint32_t layers, uint32_t hidden, uint32_t inner, uint32_t vocabulary)
{
    return (struct zr_dims){ .family = ZR_LLAMA,
                             .hidden = hidden,
                             .layers = layers,
                             .heads = hidden / 8,
                             .kv_heads = hidden / 8,
                             .head_dim = 8,
                             .intermediate = inner,
                             .vocabulary = vocabulary,
                             .max_positions = 4096,
                             .rope = { .kind = ZR_ROPE_DEFAULT, .theta = 10000 },
                             .gated = true };
}

static inline struct zr_dims llama_7b(void)
{
    struct zr_dims dims = llama_shape(32, 4096, 11008, 32000);
    dims.heads = dims.kv_heads = 32;
    dims.head_dim = 128;
    return dims;
}

/* bf16, everything streamed: weights and states on the host. */
static inline struct zr_wishes streamed_wishes(uint32_t rows, uint32_t row_tokens)
{
    return (struct zr_wishes){ .split = true,
                               .stream_weights = true,
                               .weight_home = ZR_HOST,
                               .states = ZR_HOST,
                               .rows_per_step = rows,
                               .row_tokens = row_tokens,
                               .micro_rows = 1,
                               .prefetch = 2,
                               .update_chunk = 1 << 20,
                               .accumulate = true };
}

/* A GPU's kind of machine: computes on bf16 as it is. */
static inline struct zr_machine roomy_machine(void)
{
    struct zr_machine machine;
    zr_machine_cpu(&machine, 1024 * GIB, 1024 * GIB, 1024 * GIB);
    machine.widen_weights = false;
    machine.element_bytes = 2;
    return machine;
}

static inline struct zr_model *make_model(const struct zr_dims *dims)
{
    struct zr_error err = { 0 };
    struct zr_model *model = NULL;
    if (zr_model_make(dims, &model, &err)) fail_msg("%s", err.text);
    return model;
}

static inline struct zr_plan *make_plan(const struct zr_model *model, const struct zr_wishes *wishes,
                                        const struct zr_machine *machine)
{
    struct zr_error err = { 0 };
    struct zr_plan *plan = NULL;
    if (zr_plan_make(model, wishes, machine, &plan, &err)) fail_msg("%s", err.text);
    return plan;
}

static inline struct zr_error refuse_plan(const struct zr_model *model, const struct zr_wishes *wishes,
                                          const struct zr_machine *machine)
{
    struct zr_error err = { 0 };
    struct zr_plan *plan = NULL;
    assert_int_equal(zr_plan_make(model, wishes, machine, &plan, &err), ZR_EFULL);
    return err;
}

static inline struct zr_schedule *make_schedule(const struct zr_plan *plan, const struct zr_schedule_request *request)
{
    struct zr_error err = { 0 };
    struct zr_schedule *schedule = NULL;
    if (zr_schedule_make(plan, request, &schedule, &err)) fail_msg("%s", err.text);
    return schedule;
}

static inline void must_say(const struct zr_error *err, const char *text)
{
    if (!strstr(err->text, text)) fail_msg("'%s' does not say '%s'", err->text, text);
}

#endif
