/* accelerate.c: Hugging Face Accelerate's own layout, recognised and explained
 *
 * Accelerate wraps DeepSpeed's keys under other names and keeps the launcher's beside them. zerod is no launcher, so such a
 * file is not run: its owner is told what it asks for and what to write instead. */
#include "config/apply.h"
#include <string.h>

static const char *text_at(const struct zr_node *root, const char *path, const char *fallback)
{
    const struct zr_node *node = zr_tree_at(root, path);
    return node && node->kind == ZR_NODE_SCALAR && !zr_node_is_null(node) ? node->text : fallback;
}

static void add_fact(struct zr_text *text, const char *words, const char *value)
{
    char clipped[80];
    if (value) zr_text_add(text, "%s%s%s", text->length ? ", " : "", words, zr_report_clip(clipped, value));
}

bool zr_accelerate_refuse(const struct zr_node *root, struct zr_config_report *report)
{
    const struct zr_node *section = zr_node_find(root, "deepspeed_config");
    const struct zr_node *type = zr_node_find(root, "distributed_type");
    if (!section && !(type && zr_node_find(root, "compute_environment"))) return false;

    const char *stage = text_at(root, "deepspeed_config.zero_stage", NULL);
    const char *optimizer = text_at(root, "deepspeed_config.offload_optimizer_device", NULL);
    const char *param = text_at(root, "deepspeed_config.offload_param_device", NULL);
    const char *accumulation = text_at(root, "deepspeed_config.gradient_accumulation_steps", NULL);
    const char *clipping = text_at(root, "deepspeed_config.gradient_clipping", NULL);
    const char *precision = text_at(root, "mixed_precision", NULL);
    const char *processes = text_at(root, "num_processes", NULL);
    const char *file = text_at(root, "deepspeed_config.deepspeed_config_file", NULL);
    const char *gather = text_at(root, "deepspeed_config.zero3_save_16bit_model", NULL);

    struct zr_text facts = { 0 }, write = { 0 };
    char a[80], b[80], c[80];
    add_fact(&facts, "stage ", stage);
    add_fact(&facts, "optimizer states on ", optimizer);
    add_fact(&facts, "weights on ", param);
    add_fact(&facts, "precision ", precision);
    add_fact(&facts, "processes ", processes);
    add_fact(&facts, "accumulation ", accumulation);
    add_fact(&facts, "clipping ", clipping);
    add_fact(&facts, "whole weights at save ", gather);
    add_fact(&facts, "downcast_bf16 ", text_at(root, "downcast_bf16", NULL));

    zr_text_add(&write, "{");
    if (accumulation) zr_text_add(&write, "gradient_accumulation_steps: %s, ", zr_report_clip(a, accumulation));
    if (clipping) zr_text_add(&write, "gradient_clipping: %s, ", zr_report_clip(a, clipping));
    if (precision && (strcmp(precision, "bf16") == 0 || strcmp(precision, "fp16") == 0))
        zr_text_add(&write, "%s: {enabled: true}, ", precision);
    zr_text_add(&write, "zero_optimization: {stage: %s, offload_optimizer: {device: %s}, offload_param: {device: %s}}}",
                stage ? zr_report_clip(a, stage) : "2", optimizer ? zr_report_clip(b, optimizer) : "none",
                param ? zr_report_clip(c, param) : "none");

    struct zr_text hints = { 0 };
    if (file)
        zr_text_add(&hints, "\n  hint: give zerod the DeepSpeed file that it names: %s", zr_report_clip(a, file));
    else
        zr_text_add(&hints, "\n  hint: write %s and a batch size", zr_text_c(&write));
    if (processes && strcmp(processes, "1") != 0)
        zr_text_add(&hints, "\n  hint: start the %s processes with mpirun or srun, one for each GPU",
                    zr_report_clip(b, processes));

    const struct zr_node *at = section ? section : type;
    zr_report_add(report, ZR_REMARK_ERROR, at->key_where, at->key,
                  "this is a file of Hugging Face Accelerate, not in DeepSpeed's layout; it asks for: %s%s",
                  facts.length ? facts.at : "nothing of DeepSpeed", zr_text_c(&hints));
    zr_text_fini(&facts);
    zr_text_fini(&write);
    zr_text_fini(&hints);
    return true;
}
