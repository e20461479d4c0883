/* tree.c: nodes out of blocks */
#include "config/tree.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 16384

struct zr_block {
    struct zr_block *next;
    size_t used, room;
    _Alignas(16) char bytes[];
};

void zr_tree_init(struct zr_tree *tree)
{
    *tree = (struct zr_tree){ 0 };
}

void zr_tree_fini(struct zr_tree *tree)
{
    for (struct zr_block *block = tree->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    zr_tree_init(tree);
}

static void *take(struct zr_tree *tree, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    struct zr_block *block = tree->blocks;
    if (!block || block->room - block->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = malloc(sizeof *block + room);
        if (!block) abort();
        block->used = 0;
        block->room = room;
        block->next = tree->blocks;
        tree->blocks = block;
    }
    void *at = block->bytes + block->used;
    block->used += bytes;
    return at;
}

struct zr_node *zr_tree_node(struct zr_tree *tree, enum zr_node_kind kind, struct zr_where where)
{
    if (tree->node_count == ZR_TREE_NODES_MAX) return NULL;
    tree->node_count++;
    struct zr_node *node = take(tree, sizeof *node);
    *node = (struct zr_node){ .kind = kind, .where = where, .key_where = where, .text = "" };
    return node;
}

const char *zr_tree_text(struct zr_tree *tree, const char *text, size_t bytes)
{
    char *copy = take(tree, bytes + 1);
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

void zr_node_append(struct zr_node *parent, struct zr_node *child)
{
    assert(!child->parent && !child->next && parent->kind != ZR_NODE_SCALAR);
    child->parent = parent;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
}

void zr_node_remove(struct zr_node *child)
{
    struct zr_node *parent = child->parent, *before = NULL;
    assert(parent);
    for (struct zr_node *node = parent->first; node != child; node = node->next)
        before = node;
    if (before)
        before->next = child->next;
    else
        parent->first = child->next;
    if (parent->last == child) parent->last = before;
    child->parent = child->next = NULL;
}

struct zr_node *zr_node_find(const struct zr_node *map, const char *key)
{
    if (!map || map->kind != ZR_NODE_MAP) return NULL;
    for (struct zr_node *node = map->first; node; node = node->next)
        if (strcmp(node->key, key) == 0) return node;
    return NULL;
}

bool zr_node_is_null(const struct zr_node *node)
{
    return node->kind == ZR_NODE_SCALAR && !node->quoted &&
           (node->text[0] == '\0' || strcmp(node->text, "~") == 0 || strcasecmp(node->text, "null") == 0);
}

bool zr_node_is_auto(const struct zr_node *node)
{
    return node->kind == ZR_NODE_SCALAR && strcmp(node->text, "auto") == 0;
}

void zr_node_path(const struct zr_node *node, char *out, size_t room)
{
    const struct zr_node *chain[ZR_TREE_DEPTH_MAX + 2];
    int depth = 0;
    for (; node && depth < ZR_TREE_DEPTH_MAX + 2; node = node->parent)
        if (node->key) chain[depth++] = node;
    size_t used = 0;
    out[0] = '\0';
    while (depth-- > 0 && used + 1 < room) {
        int wrote = snprintf(out + used, room - used, "%s%s", used ? "." : "", chain[depth]->key);
        used = used + (size_t)wrote < room ? used + (size_t)wrote : room - 1;
    }
}
