/* draw.h: random models, wishes and budgets: each number a function of (seed, case, how many were drawn before) alone
 *
 * A case that fails is named by its seed and number, and drawn again alone. */
#ifndef ZR_TESTS_DRAW_H
#define ZR_TESTS_DRAW_H

#include "engine/base/random.h"
#include "engine/base/span.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct draw {
    uint64_t seed, number, drawn;
};

/* Uniform in [low, high]; the bias of the division is of no matter here. */
static inline uint64_t draw_between(struct draw *draw, uint64_t low, uint64_t high)
{
    struct zr_random_block block = zr_random(draw->seed, draw->number, draw->drawn++);
    return low + ((uint64_t)block.word[0] << 32 | block.word[1]) % (high - low + 1);
}

static inline uint32_t draw_u32(struct draw *draw, uint32_t low, uint32_t high)
{
    return (uint32_t)draw_between(draw, low, high);
}

static inline bool draw_chance(struct draw *draw, uint32_t percent)
{
    return draw_between(draw, 1, 100) <= percent;
}

/* 2^low to 2^high, every power as likely as the others. */
static inline uint64_t draw_power(struct draw *draw, uint32_t low, uint32_t high)
{
    return (uint64_t)1 << draw_between(draw, low, high);
}

/* A model of `layers` blocks. Small: a few thousand parameters in a block; else up to the widths of a 13B model. */
static inline struct zr_dims draw_dims(struct draw *draw, uint32_t layers, bool small)
{
    struct zr_dims dims = { .family = (enum zr_family)draw_between(draw, 0, ZR_FAMILY_COUNT - 1),
                            .layers = layers,
                            .norm_eps = 1e-5,
                            .initializer_range = 0.08,
                            .bos = -1,
                            .eos = -1 };
    const bool gpt2 = dims.family == ZR_GPT2;
    dims.kv_heads = draw_u32(draw, 1, 2);
    dims.heads = dims.kv_heads * draw_u32(draw, 1, small ? 2 : 20);
    if (gpt2) dims.kv_heads = dims.heads;
    dims.head_dim = (uint32_t)draw_power(draw, 3, small ? 4 : 7);
    dims.hidden = gpt2 || draw_chance(draw, 60) ? dims.heads * dims.head_dim : 8 * draw_u32(draw, 1, small ? 6 : 640);
    dims.intermediate = 8 * draw_u32(draw, 1, small ? 12 : 1728);
    dims.vocabulary = draw_u32(draw, 3, small ? 90 : 50000);
    dims.max_positions = 4096;
    dims.tied = draw_chance(draw, 40);
    dims.attention_scale = 1 / sqrt(dims.head_dim);
    dims.gated = !gpt2;
    dims.layernorm = gpt2;
    dims.qkv_bias = dims.o_bias = dims.mlp_bias = gpt2;
    if (!gpt2) dims.rope = (struct zr_rope_shape){ .kind = ZR_ROPE_DEFAULT, .theta = 10000 };
    if (dims.family == ZR_QWEN2) dims.qkv_bias = true;
    if (dims.family == ZR_QWEN3) dims.qk_norm = true;
    if (dims.family == ZR_LLAMA) dims.qkv_bias = dims.o_bias = dims.mlp_bias = draw_chance(draw, 20);
    return dims;
}

/* Any wishes that a plan may be asked for and that do not contradict each other. */
static inline struct zr_wishes draw_wishes(struct draw *draw, bool small)
{
    struct zr_wishes wishes = { .split = draw_chance(draw, 60),
                                .grad_bf16 = draw_chance(draw, 40),
                                .stream_weights = draw_chance(draw, 70),
                                .weight_home = draw_chance(draw, 35) ? ZR_NVME : ZR_HOST,
                                .states = (enum zr_tier)draw_between(draw, ZR_DEVICE, ZR_NVME),
                                .rows_per_step = draw_u32(draw, 1, 6),
                                .row_tokens = small ? draw_u32(draw, 1, 24) : draw_u32(draw, 1, 4096),
                                .prefetch = draw_u32(draw, 1, 6),
                                .update_chunk = 256 * (small ? draw_between(draw, 1, 24) : draw_power(draw, 14, 20)),
                                .loss_chunk = draw_chance(draw, 30) ? draw_between(draw, 1, 64) : 0 };
    if (wishes.states == ZR_NVME) wishes.nvme_planes = draw_u32(draw, 1, 7) << ZR_LOW; /* any of low, m, v */
    if (wishes.states == ZR_DEVICE) wishes.weight_home = ZR_HOST;
    if (draw_chance(draw, 60)) wishes.micro_rows = draw_u32(draw, 1, wishes.rows_per_step);
    wishes.accumulate = !wishes.grad_bf16;
    return wishes;
}

/* What a refusal for want of room says: the tier that is short and by how many bytes. False: not such a text. */
static inline bool draw_read_refusal(const char *text, enum zr_tier *ret_tier, uint64_t *ret_missing)
{
    const char *name = strstr(text, "does not fit: "), *missing = strstr(text, " bytes) are missing");
    if (!name || !missing) return false;
    name += strlen("does not fit: ");
    *ret_tier = ZR_TIER_COUNT;
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        if (strncmp(name, zr_tier_name((enum zr_tier)tier), strlen(zr_tier_name((enum zr_tier)tier))) == 0)
            *ret_tier = (enum zr_tier)tier;
    while (missing > text && missing[-1] != '(')
        missing--;
    unsigned long long bytes = 0;
    if (*ret_tier == ZR_TIER_COUNT || sscanf(missing, "%llu", &bytes) != 1) return false;
    *ret_missing = bytes;
    return true;
}

#endif
