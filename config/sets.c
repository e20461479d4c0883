/* sets.c: --set key.path=value, laid over the tree before anything is typed
 *
 * A set puts a node where the file would have it, so that every check that holds for the file holds for the command line.
 * Where both give a key, the command line's value acts and a note names both. */
#include "config/apply.h"
#include <stdlib.h>
#include <string.h>

static const struct zr_where command_line = { .from_set = true };

static void fail(struct zr_config_report *report, const char *path, const char *text)
{
    zr_report_add(report, ZR_REMARK_ERROR, command_line, path, "%s", text);
}

static void mark(struct zr_node *node)
{
    node->where = node->key_where = command_line;
    for (struct zr_node *child = node->first; child; child = child->next)
        mark(child);
}

/* "[m, v]", "{a: 1}" and "\"text\"" are read as YAML; anything else is the text as it stands. */
static struct zr_node *parse_value(struct zr_tree *tree, const char *path, const char *value,
                                   struct zr_config_report *report)
{
    if (!value[0] || !strchr("[{\"'", value[0])) {
        struct zr_node *node = zr_tree_node(tree, ZR_NODE_SCALAR, command_line);
        if (node) node->text = zr_tree_text(tree, value, strlen(value));
        return node;
    }
    struct zr_text text = { 0 };
    zr_text_add(&text, "value: %s\n", value);
    struct zr_config_report *scratch = zr_report_make("");
    struct zr_node *root = tree->root, *node = NULL;
    tree->root = NULL;
    if (zr_yaml_read(tree, zr_text_c(&text), text.length, false, scratch) && scratch->error_count == 0 &&
        tree->root->first == tree->root->last) {
        node = tree->root->first;
        zr_node_remove(node);
        mark(node);
    } else {
        zr_report_add(report, ZR_REMARK_ERROR, command_line, path, "the value is not valid YAML: %s",
                      scratch->entry_count ? scratch->entries[0].remark.text : "more than one value");
    }
    tree->root = root;
    zr_config_report_free(scratch);
    zr_text_fini(&text);
    return node;
}

/* The section at `name` inside `map`, made when it is not there. */
static struct zr_node *section(struct zr_tree *tree, struct zr_node *map, const char *name)
{
    struct zr_node *node = zr_node_find(map, name);
    if (node && zr_node_is_null(node)) {
        zr_node_remove(node);
        node = NULL;
    }
    if (!node && (node = zr_tree_node(tree, ZR_NODE_MAP, command_line))) {
        node->key = zr_tree_text(tree, name, strlen(name));
        zr_node_append(map, node);
    }
    return node;
}

/* The node in the same section that means the same key, whatever its spelling. */
static struct zr_node *same_key(struct zr_node *map, const char *prefix, const char *target)
{
    for (struct zr_node *node = map->first; node; node = node->next) {
        char path[160];
        uint32_t index;
        if (strlen(prefix) + strlen(node->key) + 2 > sizeof path) continue;
        strcpy(path, prefix);
        if (prefix[0]) strcat(path, ".");
        strcat(path, node->key);
        if (strcmp(path, target) == 0) return node;
        if (zr_key_find(path, &index) && zr_keys[index].status == ZR_KEY_ALIAS &&
            strcmp(zr_keys[index].why, target) == 0)
            return node;
    }
    return NULL;
}

static void note_replaced(const struct zr_node *old, const struct zr_node *node, const char *path,
                          struct zr_config_report *report)
{
    char in_file[80], given[80];
    bool scalars = old->kind == ZR_NODE_SCALAR && node->kind == ZR_NODE_SCALAR;
    if (old->key_where.from_set || (scalars && strcmp(old->text, node->text) == 0)) return;
    if (scalars)
        zr_report_add(report, ZR_REMARK_NOTE, old->key_where, path,
                      "%s on line %u of the file, %s by --set on the command line: %s is used",
                      zr_report_clip(in_file, old->text), old->key_where.line, zr_report_clip(given, node->text),
                      given);
    else
        zr_report_add(report, ZR_REMARK_NOTE, old->key_where, path,
                      "given on line %u of the file and by --set on the command line: the command line's is used",
                      old->key_where.line);
}

static void apply_one(struct zr_tree *tree, const char *set, struct zr_config_report *report)
{
    char path[160], part[160];
    const char *equals = strchr(set, '=');
    size_t length = equals ? (size_t)(equals - set) : strlen(set);
    if (!equals || length == 0 || length >= sizeof path) {
        zr_report_clip(part, set);
        fail(report, part, "a setting is written key.path=value");
        return;
    }
    memcpy(path, set, length);
    path[length] = '\0';

    uint32_t index;
    if (zr_key_find(path, &index)) /* the table's own spelling, whatever way it was asked for */
        strcpy(path, zr_keys[index].status == ZR_KEY_ALIAS ? zr_keys[index].why : zr_keys[index].path);

    struct zr_node *map = tree->root;
    char prefix[160] = "";
    const char *name = path;
    for (const char *dot; (dot = strchr(name, '.')); name = dot + 1) {
        size_t bytes = (size_t)(dot - name);
        memcpy(part, name, bytes);
        part[bytes] = '\0';
        memcpy(prefix, path, (size_t)(dot - path));
        prefix[dot - path] = '\0';
        struct zr_node *above = zr_node_find(map, part) ? NULL : same_key(map, "", prefix); /* bfloat16 for bf16 */
        map = above ? above : section(tree, map, part);
        if (!map || map->kind != ZR_NODE_MAP) {
            zr_report_add(report, ZR_REMARK_ERROR, command_line, path, "'%s' is not a section of the file", prefix);
            return;
        }
    }
    if (!name[0]) {
        fail(report, path, "a setting is written key.path=value");
        return;
    }

    struct zr_node *node = parse_value(tree, path, equals + 1, report);
    if (!node) return;
    struct zr_node *old = same_key(map, prefix, path);
    if (old) {
        note_replaced(old, node, path, report);
        zr_node_remove(old);
    }
    node->key = zr_tree_text(tree, name, strlen(name));
    zr_node_append(map, node);
}

void zr_sets_apply(struct zr_tree *tree, const char *const *sets, uint32_t set_count, struct zr_config_report *report)
{
    for (uint32_t i = 0; i < set_count; i++)
        apply_one(tree, sets[i], report);
}
