/* apply.h: what the files of config/ ask of each other
 *
 * Inside config/ only. Each function adds its remarks to the report and goes on, so that a person sees all errors at once. */
#ifndef ZR_CONFIG_APPLY_H
#define ZR_CONFIG_APPLY_H

#include "config/report.h"
#include "config/tree.h"

/* value.c: reads `node` as the key's type into `settings` (NULL: only checks it). False: `complaint` has the reason. */
bool zr_value_read(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                   struct zr_text *complaint);
/* The same from the text of a default. */
void zr_value_default(const struct zr_key *key, struct zr_settings *settings);
/* The value as YAML that reads back to the same; "" when there is none. */
void zr_value_print(const struct zr_key *key, const struct zr_settings *settings, struct zr_text *out);
/* true, yes, on / false, no, off, unquoted or as "true" and "false". */
bool zr_value_bool(const struct zr_node *node, bool *ret_value);

/* The shortest text that reads back to the same number, with a point and without a locale. */
void zr_number_print(double number, struct zr_text *out);

/* The node at a dotted path as the file spells it, or NULL. */
const struct zr_node *zr_tree_at(const struct zr_node *root, const char *path);

/* sets.c: --set over the tree; what differs from the file is noted. */
void zr_sets_apply(struct zr_tree *tree, const char *const *sets, uint32_t set_count, struct zr_config_report *report);

/* accelerate.c: is this Hugging Face Accelerate's own layout? Then the one error that says what it asks for. */
bool zr_accelerate_refuse(const struct zr_node *root, struct zr_config_report *report);

/* Rules between keys, in this order. They finish report->settings. */
void zr_rules_ranks(struct zr_config_report *report);                                 /* batch.c */
void zr_rules_batch(struct zr_config_report *report);                                 /* batch.c */
void zr_rules_auto(struct zr_config_report *report);                                  /* deepspeed.c */
void zr_rules_precision(const struct zr_node *root, struct zr_config_report *report); /* deepspeed.c */
void zr_rules_offload(const struct zr_node *root, struct zr_config_report *report);   /* deepspeed.c */
void zr_rules_optimizer(const struct zr_node *root, struct zr_config_report *report); /* training.c */
void zr_rules_scheduler(const struct zr_node *root, struct zr_config_report *report); /* training.c */
void zr_rules_places(struct zr_config_report *report);                                /* places.c */

/* training.c: has this kind of schedule a parameter of this name ("warmup_min_lr")? */
bool zr_schedule_takes(enum zr_schedule_kind kind, const char *param);
const char *zr_schedule_name(enum zr_schedule_kind kind);

#endif
