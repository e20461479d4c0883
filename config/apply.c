/* apply.c: text in, struct zr_config out
 *
 *     read ──► tree ──► --set over it ──► walk: each node by its row of the table ──► rules between keys ──► sort remarks
 *
 * Nothing stops at the first error: whoever wrote the file sees everything that is wrong with it at once. Only a text that
 * is no YAML or JSON, or a file that is another program's, ends early. */
#include "config/apply.h"
#include "config/quantity.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct walk {
    struct zr_config_report *report;
    const struct zr_node *seen[ZR_KEYS_MAX]; /* by canonical key: the node that gave it */
};

static void visit(struct walk *walk, const struct zr_node *node, const char *prefix);

static void error_at(struct walk *walk, const struct zr_node *node, const char *path, struct zr_text *text)
{
    zr_report_add(walk->report, ZR_REMARK_ERROR, node->key_where, path, "%s", zr_text_c(text));
    zr_text_fini(text);
}

/* The same key in two spellings. A key spelled twice alike is yaml.c's to find. */
static bool given_before(struct walk *walk, uint32_t index, const struct zr_node *node, const char *path)
{
    const struct zr_node *first = walk->seen[index];
    if (!first) {
        walk->seen[index] = node;
        return false;
    }
    struct zr_text text = { 0 };
    zr_text_add(&text, "given twice: '%s' ", first->key);
    if (first->key_where.from_set)
        zr_text_add(&text, "by --set");
    else
        zr_text_add(&text, "on line %u", first->key_where.line);
    zr_text_add(&text, " is the same key\n  hint: keep one of the two");
    error_at(walk, node, path, &text);
    return true;
}

static void visit_section(struct walk *walk, const struct zr_node *node, const struct zr_key *key)
{
    bool on;
    if (node->kind == ZR_NODE_MAP) {
        for (const struct zr_node *child = node->first; child; child = child->next)
            visit(walk, child, key->path);
        return;
    }
    if (zr_node_is_null(node) || zr_node_is_auto(node)) return;
    if (strcmp(key->path, "zero_optimization") == 0 && zr_value_bool(node, &on)) { /* DeepSpeed's first form */
        struct zr_value_origin *origin = zr_report_origin(walk->report, "zero_optimization.stage");
        walk->report->settings.config.zero_stage = on ? 1 : 0;
        *origin = (struct zr_value_origin){ .origin = node->key_where.from_set ? ZR_FROM_COMMAND_LINE : ZR_FROM_FILE,
                                            .where = node->key_where };
        zr_report_add(walk->report, ZR_REMARK_NOTE, node->key_where, key->path,
                      "an old form: write zero_optimization: {stage: %d}", on ? 1 : 0);
        return;
    }
    struct zr_text text = { 0 };
    zr_text_add(&text, "a mapping of keys belongs here");
    error_at(walk, node, key->path, &text);
}

/* Does the value of a refused key ask for nothing? */
static bool is_neutral(const struct zr_key *key, const struct zr_node *node)
{
    bool on;
    if (zr_node_is_auto(node)) return true;
    if (node->kind == ZR_NODE_LIST) return !node->first;
    if (node->kind == ZR_NODE_MAP) {
        const struct zr_node *enabled = zr_node_find(node, "enabled");
        return !node->first || (enabled && zr_value_bool(enabled, &on) && !on);
    }
    if (key->type == ZR_KEY_ANY && zr_value_bool(node, &on) && !on) return true;

    double number, wanted;
    size_t bytes;
    for (const char *at = key->neutral; *at; at += bytes + (at[bytes] == '|')) {
        char word[32];
        bytes = strcspn(at, "|");
        assert(bytes < sizeof word);
        memcpy(word, at, bytes);
        word[bytes] = '\0';
        if (strcasecmp(node->text, word) == 0) return true;
        if (zr_quantity_number(node->text, &number) && zr_quantity_number(word, &wanted) && number == wanted)
            return true;
        if (key->type == ZR_KEY_BOOL && zr_value_bool(node, &on) && strcmp(word, on ? "true" : "false") == 0)
            return true;
    }
    return false;
}

static void visit_refused(struct walk *walk, const struct zr_node *node, const struct zr_key *key)
{
    if (is_neutral(key, node)) return;
    char clipped[80];
    struct zr_text text = { 0 };
    if (node->kind == ZR_NODE_SCALAR)
        zr_text_add(&text, "%s is refused: %s", zr_report_clip(clipped, node->text), key->help);
    else
        zr_text_add(&text, "refused: %s", key->help);
    error_at(walk, node, key->path, &text);
}

static void visit_noted(struct walk *walk, const struct zr_node *node, const struct zr_key *key, const char *path)
{
    double number;
    struct zr_text text = { 0 };
    if (zr_node_is_auto(node)) {
        walk->report->origins[key - zr_keys].automatic = true;
        if (key->automatic)
            zr_report_add(walk->report, ZR_REMARK_NOTE, node->key_where, path, "auto: %s; not needed: %s",
                          key->automatic, key->help);
        else
            zr_report_add(walk->report, ZR_REMARK_NOTE, node->key_where, path,
                          "auto: no trainer supplies it, DeepSpeed takes its default; not needed: %s", key->help);
        return;
    }
    if (key->type == ZR_KEY_COUNT && node->kind == ZR_NODE_SCALAR && zr_quantity_number(node->text, &number) &&
        number > 0 && number < 1e18 && number != (double)(uint64_t)number) {
        char count[32];
        zr_report_add(walk->report, ZR_REMARK_WARNING, node->key_where, path,
                      "%s is not a whole number (DeepSpeed refuses it): taken as %s; not needed: %s", node->text,
                      zr_text_count(count, (uint64_t)number), key->help);
        return;
    }
    if (!zr_value_read(key, node, NULL, &text)) {
        error_at(walk, node, path, &text);
        return;
    }
    zr_report_add(walk->report, ZR_REMARK_NOTE, node->key_where, path, "%s%s",
                  key->as_it_is ? "" : "not needed: ", key->help);
}

/* A name that DeepSpeed gave up. The cpu_offload keys were truth values, the others only changed their name. */
static void visit_old(struct walk *walk, const struct zr_node *node, const struct zr_key *key, const char *path)
{
    uint32_t index;
    bool on, found = zr_key_find(key->why, &index);
    assert(found);
    const struct zr_key *target = &zr_keys[index];
    bool was_bool = target->type == ZR_KEY_NAME; /* of a device */

    if (was_bool && zr_node_is_auto(node)) return;
    if (was_bool && !zr_value_bool(node, &on)) {
        struct zr_text text = { 0 };
        zr_text_add(&text, "an old key that is true or false\n  hint: write %s", key->why);
        error_at(walk, node, path, &text);
        return;
    }
    if (was_bool) {
        const char *section =
            strcmp(key->why, "zero_optimization.offload_optimizer.device") == 0 ? "offload_optimizer" : "offload_param";
        const struct zr_node *successor = zr_node_find(node->parent, section);
        if (successor && !zr_node_is_null(successor)) {
            const struct zr_node *device = zr_node_find(successor, "device");
            char first[80], second[80];
            struct zr_text text = { 0 };
            zr_text_add(&text,
                        "%s on line %u, and its successor %s%s%s on line %u: both cannot hold\n  hint: keep %s alone",
                        zr_report_clip(first, node->text), node->key_where.line, section, device ? ".device " : "",
                        device ? zr_report_clip(second, device->text) : "",
                        device ? device->key_where.line : successor->key_where.line, section);
            error_at(walk, node, path, &text);
            return;
        }
        if (given_before(walk, index, node, path)) return;
        struct zr_node as_device = *node;
        struct zr_text unused = { 0 };
        as_device.text = on ? "cpu" : "none";
        bool read = zr_value_read(target, &as_device, &walk->report->settings, &unused);
        assert(read);
        walk->report->origins[index] =
            (struct zr_value_origin){ .origin = node->key_where.from_set ? ZR_FROM_COMMAND_LINE : ZR_FROM_FILE,
                                      .where = node->key_where };
        zr_report_add(walk->report, ZR_REMARK_NOTE, node->key_where, path,
                      "an old key, read as %s: %s\n  hint: write \"%s\": {\"device\": \"%s\"}", key->why,
                      as_device.text, section, as_device.text);
        return;
    }

    char value[80];
    zr_report_add(walk->report, ZR_REMARK_NOTE, node->key_where, path, "an old name\n  hint: write \"%s\": %s",
                  strrchr(key->why, '.') + 1, node->kind == ZR_NODE_SCALAR ? zr_report_clip(value, node->text) : "...");
    if (!given_before(walk, index, node, path)) visit_noted(walk, node, target, target->path);
}

static void visit_used(struct walk *walk, const struct zr_node *node, const struct zr_key *key, const char *path)
{
    struct zr_value_origin *origin = &walk->report->origins[key - zr_keys];
    struct zr_text text = { 0 };
    bool auto_is_a_value = (key->names && strcmp(key->names[0], "auto") == 0) || key->type == ZR_KEY_BYTES;
    origin->where = node->key_where;
    if (zr_node_is_auto(node) && !(auto_is_a_value && zr_value_read(key, node, NULL, &text))) {
        zr_text_fini(&text);
        bool zero_is_auto = key->type == ZR_KEY_COUNT && key->fallback && strcmp(key->fallback, "0") == 0;
        if (strncmp(path, "zerod.", 6) == 0 && !zero_is_auto) {
            zr_text_add(&text, "auto has no meaning here\n  hint: leave the key out for its default, %s",
                        key->fallback ? key->fallback : "none");
            error_at(walk, node, path, &text);
            return;
        }
        origin->automatic = true; /* the rules say what it comes to */
        return;
    }
    if (!zr_value_read(key, node, &walk->report->settings, &text)) {
        error_at(walk, node, path, &text);
        return;
    }
    origin->origin = node->key_where.from_set ? ZR_FROM_COMMAND_LINE : ZR_FROM_FILE;
}

static void visit(struct walk *walk, const struct zr_node *node, const char *prefix)
{
    char path[160];
    uint32_t index;
    if (node->key[0] == '_') return; /* a comment, by custom */
    size_t before = strlen(prefix);
    struct zr_text text = { 0 };
    if (before + strlen(node->key) + 2 > sizeof path) {
        char clipped[80];
        zr_text_add(&text, "unknown key in %s", before ? prefix : "the file");
        error_at(walk, node, zr_report_clip(clipped, node->key), &text);
        return;
    }
    strcpy(path, prefix);
    if (before) strcat(path, ".");
    strcat(path, node->key);

    if (!zr_key_find(path, &index)) {
        if (zr_hint_misplaced(path))
            zr_text_add(&text, "in the wrong place, where it has no effect");
        else if (before)
            zr_text_add(&text, "unknown key in %s", prefix);
        else
            zr_text_add(&text, "unknown key");
        zr_hint_key(path, &text);
        error_at(walk, node, path, &text);
        return;
    }
    const struct zr_key *key = &zr_keys[index];
    if (key->status == ZR_KEY_ALIAS) {
        bool found = zr_key_find(key->why, &index);
        assert(found);
        key = &zr_keys[index];
    }
    if (key->status == ZR_KEY_OLD) {
        if (!zr_node_is_null(node)) visit_old(walk, node, key, path);
        return;
    }
    if (given_before(walk, index, node, path)) return;
    if (key->type == ZR_KEY_SECTION && key->status == ZR_KEY_USED) {
        visit_section(walk, node, key);
        return;
    }
    if (zr_node_is_null(node)) return; /* DeepSpeed's None: not given */
    if (key->status == ZR_KEY_REFUSED)
        visit_refused(walk, node, key);
    else if (key->status == ZR_KEY_NOTED)
        visit_noted(walk, node, key, path);
    else
        visit_used(walk, node, key, path);
}

const struct zr_node *zr_tree_at(const struct zr_node *root, const char *path)
{
    const struct zr_node *node = root;
    while (node && *path) {
        char part[160];
        size_t bytes = strcspn(path, ".");
        assert(bytes < sizeof part);
        memcpy(part, path, bytes);
        part[bytes] = '\0';
        node = zr_node_find(node, part);
        path += bytes + (path[bytes] == '.');
    }
    return node;
}

static void read_tree(struct zr_tree *tree, const char *const *sets, uint32_t set_count,
                      struct zr_config_report *report)
{
    zr_sets_apply(tree, sets, set_count, report);
    struct walk *walk = calloc(1, sizeof *walk);
    if (!walk) abort();
    walk->report = report;
    for (const struct zr_node *node = tree->root->first; node; node = node->next)
        visit(walk, node, "");
    free(walk);

    zr_rules_ranks(report);
    zr_rules_batch(report);
    zr_rules_auto(report);
    zr_rules_precision(tree->root, report);
    zr_rules_offload(tree->root, report);
    zr_rules_optimizer(tree->root, report);
    zr_rules_scheduler(tree->root, report);
    zr_rules_places(report);
}

static bool ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), tail = strlen(end);
    return bytes >= tail && strcasecmp(text + bytes - tail, end) == 0;
}

/* The name decides where it is clear about it; else the first character that is not blank or comment does. */
static bool is_json(const char *name, const char *text, size_t bytes)
{
    if (ends_with(name, ".json") || ends_with(name, ".hjson")) return true;
    if (ends_with(name, ".yaml") || ends_with(name, ".yml")) return false;
    return zr_json_looks_like(text, bytes);
}

enum zr_code zr_config_read_text(const char *name, const char *text, size_t bytes, const char *const *sets,
                                 uint32_t set_count, struct zr_config *config, struct zr_config_report **ret_report,
                                 struct zr_error *err)
{
    struct zr_config_report *report = zr_report_make(name);
    for (uint32_t i = 0; i < zr_key_count(); i++)
        zr_value_default(&zr_keys[i], &report->settings);

    struct zr_tree tree;
    zr_tree_init(&tree);
    bool read = bytes <= ZR_TREE_BYTES_MAX;
    if (!read)
        zr_report_add(report, ZR_REMARK_ERROR, (struct zr_where){ 0 }, "", "larger than %u bytes: not a configuration",
                      ZR_TREE_BYTES_MAX);
    else
        read = is_json(name, text, bytes) ? zr_json_read(&tree, text, bytes, report)
                                          : zr_yaml_read(&tree, text, bytes, false, report);
    report->applied = read && !zr_accelerate_refuse(tree.root, report);
    if (report->applied) read_tree(&tree, sets, set_count, report);
    zr_tree_fini(&tree);

    zr_report_sort(report);
    *config = report->settings.config;
    *ret_report = report;
    if (report->error_count == 0) return ZR_OK;
    for (uint32_t i = 0; i < report->entry_count; i++)
        if (report->entries[i].remark.kind == ZR_REMARK_ERROR) {
            struct zr_text first = { 0 };
            zr_config_remark_text(report, i, &first);
            zr_fail(err, ZR_ECONFIG, "%s", zr_text_c(&first));
            zr_text_fini(&first);
            return ZR_ECONFIG;
        }
    return zr_fail(err, ZR_ECONFIG, "%s: too many remarks to list", name);
}

enum zr_code zr_config_read(const char *path, const char *const *sets, uint32_t set_count, struct zr_config *config,
                            struct zr_config_report **ret_report, struct zr_error *err)
{
    *ret_report = NULL;
    bool standard_input = strcmp(path, "-") == 0;
    if (strlen(path) >= ZR_PATH_MAX) return zr_fail(err, ZR_EINPUT, "the name of the configuration is too long");
    int fd = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return zr_fail(err, ZR_EINPUT, "%s: cannot be opened: %s", path, strerror(errno));

    struct zr_text text = { 0 };
    enum zr_code code = ZR_OK;
    for (;;) {
        char piece[16384];
        ssize_t got = read(fd, piece, sizeof piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) code = zr_fail(err, ZR_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        if (got <= 0 || text.length > ZR_TREE_BYTES_MAX) break; /* one byte too many is enough to refuse it */
        zr_text_add_bytes(&text, piece, (size_t)got);
    }
    if (!standard_input) close(fd);
    if (code == ZR_OK)
        code = zr_config_read_text(standard_input ? "(standard input)" : path, zr_text_c(&text), text.length, sets,
                                   set_count, config, ret_report, err);
    zr_text_fini(&text);
    return code;
}
