/* tree.h: a parsed document: nodes that know their line and column
 *
 * A map's children carry their key; a list's do not. Scalars stay text: the key table decides what they mean, so YAML's
 * own guesses (no = false, 1_000, 1:30 = 90) never happen. All memory is the tree's, freed at once. */
#ifndef ZR_CONFIG_TREE_H
#define ZR_CONFIG_TREE_H

#include "config/report.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZR_TREE_DEPTH_MAX 32
#define ZR_TREE_NODES_MAX 20000
#define ZR_TREE_BYTES_MAX (1u << 20) /* of a file */

enum zr_node_kind { ZR_NODE_MAP, ZR_NODE_LIST, ZR_NODE_SCALAR };

struct zr_node {
    enum zr_node_kind kind;
    struct zr_where where;     /* of the value */
    struct zr_where key_where; /* of its key, in a map; else as `where` */
    const char *key;           /* in a map; else NULL */
    const char *text;          /* of a scalar */
    bool quoted;               /* "true" is text, true may be a truth value */
    struct zr_node *first, *last, *next, *parent;
};

struct zr_tree {
    struct zr_node *root; /* NULL before something was read */
    struct zr_block *blocks;
    uint32_t node_count;
};

void zr_tree_init(struct zr_tree *tree);
void zr_tree_fini(struct zr_tree *tree);

/* NULL when there are ZR_TREE_NODES_MAX already. */
struct zr_node *zr_tree_node(struct zr_tree *tree, enum zr_node_kind kind, struct zr_where where);
const char *zr_tree_text(struct zr_tree *tree, const char *text, size_t bytes);

void zr_node_append(struct zr_node *parent, struct zr_node *child);
void zr_node_remove(struct zr_node *child);
struct zr_node *zr_node_find(const struct zr_node *map, const char *key);

/* A plain null, ~ or nothing at all. */
bool zr_node_is_null(const struct zr_node *node);
bool zr_node_is_auto(const struct zr_node *node);

/* The dotted path of a node, cut to fit. */
void zr_node_path(const struct zr_node *node, char *out, size_t room);

/* Reads one document into tree->root. On failure the report has at least one error more, and false is returned; a
 * repeated key is an error too, but reading goes on (the first one stays) and true is returned.
 * `json`: refuse what JSON has no meaning for, so that a missing comma or quote is found where it is. */
bool zr_yaml_read(struct zr_tree *tree, const char *text, size_t bytes, bool json, struct zr_config_report *report);

/* DeepSpeed's JSON: comments (//, #, block), trailing commas, byte-order mark, any line end. */
bool zr_json_read(struct zr_tree *tree, const char *text, size_t bytes, struct zr_config_report *report);

/* Does the text begin, after blanks and comments, as JSON does? */
bool zr_json_looks_like(const char *text, size_t bytes);

#endif
