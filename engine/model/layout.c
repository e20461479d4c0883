/* layout.c: tensors into units: names by family, offsets by M2 */
#include "engine/base/span.h"
#include "engine/base/text.h"
#include "engine/model/model.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 64
#define UNIT_ALIGN 256

/* One tensor of a unit. The name may have one %u: the block's index. */
struct row {
    const char *name;
    uint64_t shape[2]; /* shape[1] 0: a vector; both 0: the family has no such tensor */
    enum zr_init init;
    bool fused;           /* follows the one before without a gap */
    uint64_t *ret_offset; /* where the offset is wanted; may be NULL */
};

struct maker {
    struct zr_model *model;
    uint32_t room;
};

static enum zr_code add_unit(struct maker *maker, uint32_t index, enum zr_unit_kind kind, const struct row *rows,
                             uint32_t row_count, struct zr_error *err)
{
    struct zr_model *model = maker->model;
    struct zr_unit *unit = &model->units[index];
    *unit = (struct zr_unit){ .kind = kind, .first_tensor = model->tensor_count };
    uint64_t offset = 0;
    for (const struct row *row = rows; row < rows + row_count; row++) {
        if (row->shape[0] == 0) continue;
        uint64_t count = row->shape[0] * (row->shape[1] ? row->shape[1] : 1);
        if (!row->fused) offset = zr_round_up(offset, ALIGN);
        if (model->tensor_count == maker->room) {
            maker->room = maker->room ? 2 * maker->room : 64;
            struct zr_tensor *tensors = realloc(model->tensors, maker->room * sizeof *tensors);
            if (!tensors) return zr_fail(err, ZR_EFULL, "no memory for a table of %u tensors", maker->room);
            model->tensors = tensors;
        }
        struct zr_tensor *tensor = &model->tensors[model->tensor_count++];
        *tensor = (struct zr_tensor){ .unit = index,
                                      .offset = offset,
                                      .shape = { row->shape[0], row->shape[1] },
                                      .count = count,
                                      .init = row->init,
                                      .matrix = row->shape[1] != 0 };
        zr_text_print(tensor->name, sizeof tensor->name, row->name, index - 1);
        if (row->ret_offset) *row->ret_offset = offset;
        offset += count;
        unit->parameters += count;
        unit->tensor_count++;
    }
    unit->elements = zr_round_up(offset, UNIT_ALIGN);
    model->parameters += unit->parameters;
    return ZR_OK;
}

static enum zr_code make_llama(struct maker *maker, struct zr_error *err)
{
    struct zr_model *model = maker->model;
    const struct zr_dims *dims = &model->dims;
    const uint64_t h = dims->hidden, i = dims->intermediate, v = dims->vocabulary, d = dims->head_dim;
    const uint64_t q = (uint64_t)dims->heads * d, kv = (uint64_t)dims->kv_heads * d;
    const uint64_t qb = dims->qkv_bias ? q : 0, kvb = dims->qkv_bias ? kv : 0;
    struct zr_block_offsets *at = &model->block;
    const struct row table[] = { { "model.embed_tokens.weight", { v, h }, ZR_INIT_NORMAL, false, &model->ends.table } };
    const struct row block[] = {
        { "model.layers.%u.input_layernorm.weight", { h, 0 }, ZR_INIT_ONE, false, &at->attention_norm },
        { "model.layers.%u.self_attn.q_proj.weight", { q, h }, ZR_INIT_NORMAL, false, &at->qkv },
        { "model.layers.%u.self_attn.k_proj.weight", { kv, h }, ZR_INIT_NORMAL, true, NULL },
        { "model.layers.%u.self_attn.v_proj.weight", { kv, h }, ZR_INIT_NORMAL, true, NULL },
        { "model.layers.%u.self_attn.q_proj.bias", { qb, 0 }, ZR_INIT_ZERO, false, &at->qkv_bias },
        { "model.layers.%u.self_attn.k_proj.bias", { kvb, 0 }, ZR_INIT_ZERO, true, NULL },
        { "model.layers.%u.self_attn.v_proj.bias", { kvb, 0 }, ZR_INIT_ZERO, true, NULL },
        { "model.layers.%u.self_attn.q_norm.weight", { dims->qk_norm ? d : 0, 0 }, ZR_INIT_ONE, false, &at->q_norm },
        { "model.layers.%u.self_attn.k_norm.weight", { dims->qk_norm ? d : 0, 0 }, ZR_INIT_ONE, false, &at->k_norm },
        { "model.layers.%u.self_attn.o_proj.weight", { h, q }, ZR_INIT_NORMAL, false, &at->o },
        { "model.layers.%u.self_attn.o_proj.bias", { dims->o_bias ? h : 0, 0 }, ZR_INIT_ZERO, false, &at->o_bias },
        { "model.layers.%u.post_attention_layernorm.weight", { h, 0 }, ZR_INIT_ONE, false, &at->mlp_norm },
        { "model.layers.%u.mlp.gate_proj.weight", { i, h }, ZR_INIT_NORMAL, false, &at->gate_up },
        { "model.layers.%u.mlp.up_proj.weight", { i, h }, ZR_INIT_NORMAL, true, NULL },
        { "model.layers.%u.mlp.gate_proj.bias", { dims->mlp_bias ? i : 0, 0 }, ZR_INIT_ZERO, false, &at->gate_up_bias },
        { "model.layers.%u.mlp.up_proj.bias", { dims->mlp_bias ? i : 0, 0 }, ZR_INIT_ZERO, true, NULL },
        { "model.layers.%u.mlp.down_proj.weight", { h, i }, ZR_INIT_NORMAL, false, &at->down },
        { "model.layers.%u.mlp.down_proj.bias", { dims->mlp_bias ? h : 0, 0 }, ZR_INIT_ZERO, false, &at->down_bias },
    };
    const struct row head[] = {
        { "model.norm.weight", { h, 0 }, ZR_INIT_ONE, false, &model->ends.final_norm },
        { "lm_head.weight", { dims->tied ? 0 : v, h }, ZR_INIT_NORMAL, false, &model->ends.head },
    };
    enum zr_code code = add_unit(maker, 0, ZR_UNIT_EMBEDDING, table, ZR_COUNT(table), err);
    for (uint32_t layer = 0; layer < dims->layers && !code; layer++)
        code = add_unit(maker, layer + 1, ZR_UNIT_BLOCK, block, ZR_COUNT(block), err);
    return code ? code : add_unit(maker, dims->layers + 1, ZR_UNIT_HEAD, head, ZR_COUNT(head), err);
}

static enum zr_code make_gpt2(struct maker *maker, struct zr_error *err)
{
    struct zr_model *model = maker->model;
    const struct zr_dims *dims = &model->dims;
    const uint64_t h = dims->hidden, i = dims->intermediate, v = dims->vocabulary, p = dims->max_positions;
    struct zr_block_offsets *at = &model->block;
    const struct row table[] = {
        { "transformer.wte.weight", { v, h }, ZR_INIT_NORMAL, false, &model->ends.table },
        { "transformer.wpe.weight", { p, h }, ZR_INIT_NORMAL, false, &model->ends.position_table },
    };
    const struct row block[] = {
        { "transformer.h.%u.ln_1.weight", { h, 0 }, ZR_INIT_ONE, false, &at->attention_norm },
        { "transformer.h.%u.ln_1.bias", { h, 0 }, ZR_INIT_ZERO, false, &at->attention_norm_bias },
        { "transformer.h.%u.attn.c_attn.weight", { h, 3 * h }, ZR_INIT_NORMAL, false, &at->qkv },
        { "transformer.h.%u.attn.c_attn.bias", { 3 * h, 0 }, ZR_INIT_ZERO, false, &at->qkv_bias },
        { "transformer.h.%u.attn.c_proj.weight", { h, h }, ZR_INIT_NORMAL_RESIDUAL, false, &at->o },
        { "transformer.h.%u.attn.c_proj.bias", { h, 0 }, ZR_INIT_ZERO, false, &at->o_bias },
        { "transformer.h.%u.ln_2.weight", { h, 0 }, ZR_INIT_ONE, false, &at->mlp_norm },
        { "transformer.h.%u.ln_2.bias", { h, 0 }, ZR_INIT_ZERO, false, &at->mlp_norm_bias },
        { "transformer.h.%u.mlp.c_fc.weight", { h, i }, ZR_INIT_NORMAL, false, &at->gate_up },
        { "transformer.h.%u.mlp.c_fc.bias", { i, 0 }, ZR_INIT_ZERO, false, &at->gate_up_bias },
        { "transformer.h.%u.mlp.c_proj.weight", { i, h }, ZR_INIT_NORMAL_RESIDUAL, false, &at->down },
        { "transformer.h.%u.mlp.c_proj.bias", { h, 0 }, ZR_INIT_ZERO, false, &at->down_bias },
    };
    const struct row head[] = {
        { "transformer.ln_f.weight", { h, 0 }, ZR_INIT_ONE, false, &model->ends.final_norm },
        { "transformer.ln_f.bias", { h, 0 }, ZR_INIT_ZERO, false, &model->ends.final_norm_bias },
        { "lm_head.weight", { dims->tied ? 0 : v, h }, ZR_INIT_NORMAL, false, &model->ends.head },
    };
    enum zr_code code = add_unit(maker, 0, ZR_UNIT_EMBEDDING, table, ZR_COUNT(table), err);
    for (uint32_t layer = 0; layer < dims->layers && !code; layer++)
        code = add_unit(maker, layer + 1, ZR_UNIT_BLOCK, block, ZR_COUNT(block), err);
    return code ? code : add_unit(maker, dims->layers + 1, ZR_UNIT_HEAD, head, ZR_COUNT(head), err);
}

enum zr_code zr_model_make(const struct zr_dims *dims, struct zr_model **ret_model, struct zr_error *err)
{
    struct zr_model *model = calloc(1, sizeof *model);
    if (!model) return zr_fail(err, ZR_EFULL, "no memory for a model");
    model->dims = *dims;
    model->unit_count = dims->layers + 2;
    memset(&model->block, 0xff, sizeof model->block); /* ZR_ABSENT in every field */
    memset(&model->ends, 0xff, sizeof model->ends);
    model->units = calloc(model->unit_count, sizeof *model->units);
    struct maker maker = { .model = model };
    enum zr_code code = !model->units             ? zr_fail(err, ZR_EFULL, "no memory for a model")
                        : dims->family == ZR_GPT2 ? make_gpt2(&maker, err)
                                                  : make_llama(&maker, err);
    if (code) {
        zr_model_free(model);
        return code;
    }
    *ret_model = model;
    return ZR_OK;
}

void zr_model_free(struct zr_model *model)
{
    if (!model) return;
    free(model->tensors);
    free(model->units);
    free(model);
}

/* A name without the prefix that some writers leave out. */
static const char *bare(const char *name)
{
    static const char *const prefixes[] = { "transformer.", "model." };
    for (unsigned i = 0; i < ZR_COUNT(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return name + strlen(prefixes[i]);
    return name;
}

int64_t zr_model_find(const struct zr_model *model, const char *name)
{
    const char *wanted = bare(name);
    for (uint32_t i = 0; i < model->tensor_count; i++)
        if (strcmp(bare(model->tensors[i].name), wanted) == 0) return i;
    return -1;
}
