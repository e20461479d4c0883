/* yaml.c: libyaml's events into a tree
 *
 * Refused, each with its place: a key given twice (libyaml does not look), anchors and aliases (a page of them expands to
 * gigabytes), tags, a second document, keys that are not plain text, more than ZR_TREE_DEPTH_MAX levels. */
#include "config/quantity.h"
#include "config/tree.h"
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    struct zr_tree *tree;
    struct zr_config_report *report;
    bool json, done;
    struct zr_node *open; /* the map or list that is being filled */
    uint32_t depth;
    const char *key; /* read already, waiting for its value */
    struct zr_where key_where;
    const char *text; /* the whole file, to count lines up to a byte */
    size_t bytes;
};

static struct zr_where where_of(yaml_mark_t mark)
{
    return (struct zr_where){ .line = (uint32_t)mark.line + 1, .column = (uint32_t)mark.column + 1 };
}

static bool fail(struct reader *reader, struct zr_where where, const char *text)
{
    zr_report_add(reader->report, ZR_REMARK_ERROR, where, "", "%s", text);
    return false;
}

/* What libyaml found wrong, in its words, with the place where it stopped and where the thing began. */
static bool fail_parse(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    struct zr_where where = where_of(parser->problem_mark);
    const char *language = reader->json ? "JSON" : "YAML";
    if (parser->error == YAML_READER_ERROR) { /* these come with an offset alone */
        where = (struct zr_where){ .line = 1, .column = 1 };
        for (size_t i = 0; i < parser->problem_offset && i < reader->bytes; i++) {
            where.column++;
            if (reader->text[i] == '\n') where = (struct zr_where){ .line = where.line + 1, .column = 1 };
        }
        zr_report_add(reader->report, ZR_REMARK_ERROR, where, "", "not a text file: %s", parser->problem);
        return false;
    }
    if (parser->error == YAML_MEMORY_ERROR) abort();
    if (parser->problem && strstr(parser->problem, "Unicode character escape code"))
        return fail(reader, where, "this \\u escape is half of a pair\n  hint: write the character itself");
    if (parser->context && parser->context_mark.line != parser->problem_mark.line)
        zr_report_add(reader->report, ZR_REMARK_ERROR, where, "", "not valid %s: %s, %s that began on line %zu",
                      language, parser->problem, parser->context, parser->context_mark.line + 1);
    else
        zr_report_add(reader->report, ZR_REMARK_ERROR, where, "", "not valid %s: %s%s%s", language,
                      parser->problem ? parser->problem : "cannot be read", parser->context ? ", " : "",
                      parser->context ? parser->context : "");
    return false;
}

static void report_duplicate(struct reader *reader, const struct zr_node *first, const struct zr_node *second)
{
    char path[160], old_value[80], new_value[80];
    zr_node_path(first, path, sizeof path);
    if (first->kind == ZR_NODE_SCALAR && second->kind == ZR_NODE_SCALAR)
        zr_report_add(reader->report, ZR_REMARK_ERROR, reader->key_where, path,
                      "given twice: %s on line %u and %s on line %u", zr_report_clip(old_value, first->text),
                      first->key_where.line, zr_report_clip(new_value, second->text), reader->key_where.line);
    else
        zr_report_add(reader->report, ZR_REMARK_ERROR, reader->key_where, path,
                      "given twice: on line %u and on line %u", first->key_where.line, reader->key_where.line);
}

/* Hangs a new value where it belongs. A repeated key's value is read to its end but hangs nowhere. */
static bool place(struct reader *reader, struct zr_node *node)
{
    if (!node) {
        zr_report_add(reader->report, ZR_REMARK_ERROR, (struct zr_where){ 0 }, "", "more than %d values in one file",
                      ZR_TREE_NODES_MAX);
        return false;
    }
    if (!reader->open) {
        reader->tree->root = node;
        return true;
    }
    if (reader->open->kind == ZR_NODE_MAP) {
        node->key = reader->key;
        node->key_where = reader->key_where;
        const struct zr_node *first = zr_node_find(reader->open, node->key);
        reader->key = NULL;
        if (first) {
            report_duplicate(reader, first, node);
            node->parent = reader->open; /* the way back up */
            return true;
        }
    }
    zr_node_append(reader->open, node);
    return true;
}

static bool open_node(struct reader *reader, enum zr_node_kind kind, const yaml_event_t *event)
{
    struct zr_where where = where_of(event->start_mark);
    if (reader->open && reader->open->kind == ZR_NODE_MAP && !reader->key)
        return fail(reader, where, "a key must be text, not a list or a mapping");
    if (reader->depth == ZR_TREE_DEPTH_MAX) return fail(reader, where, "nested too deep");
    struct zr_node *node = zr_tree_node(reader->tree, kind, where);
    if (!place(reader, node)) return false;
    reader->open = node;
    reader->depth++;
    return true;
}

static bool close_node(struct reader *reader)
{
    reader->open = reader->open->parent;
    reader->depth--;
    return true;
}

/* In JSON a plain scalar is a number, true, false or null; anything else is a forgotten quote or comma. */
static bool plain_json(const char *text)
{
    double number;
    return strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || strcmp(text, "null") == 0 ||
           zr_quantity_number(text, &number);
}

static bool plain_json_key(const char *text)
{
    return text[0] && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == strlen(text);
}

static bool read_scalar(struct reader *reader, const yaml_event_t *event)
{
    struct zr_where where = where_of(event->start_mark);
    const char *value = (const char *)event->data.scalar.value;
    size_t bytes = event->data.scalar.length;
    bool quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    bool is_key = reader->open && reader->open->kind == ZR_NODE_MAP && !reader->key;
    char clipped[80];

    if (strlen(value) != bytes) return fail(reader, where, "a zero byte inside a text");
    if (reader->json && !quoted && !(is_key ? plain_json_key(value) : plain_json(value))) {
        if (value[0] == '\0') return fail(reader, where, is_key ? "a key is missing" : "a value is missing");
        zr_report_add(
            reader->report, ZR_REMARK_ERROR, where, "",
            "%s is not a number, true, false or null\n  hint: text stands in double quotes, and a comma between "
            "two values",
            zr_report_clip(clipped, value));
        return false;
    }
    if (is_key) {
        reader->key = zr_tree_text(reader->tree, value, bytes);
        reader->key_where = where;
        return true;
    }
    struct zr_node *node = zr_tree_node(reader->tree, ZR_NODE_SCALAR, where);
    if (node) {
        node->text = zr_tree_text(reader->tree, value, bytes);
        node->quoted = quoted;
    }
    return place(reader, node);
}

static bool read_event(struct reader *reader, const yaml_event_t *event)
{
    const char *anchor = NULL, *tag = NULL;
    struct zr_where where = where_of(event->start_mark);

    switch (event->type) {
    case YAML_SCALAR_EVENT:
        anchor = (const char *)event->data.scalar.anchor;
        tag = (const char *)event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = (const char *)event->data.sequence_start.anchor;
        tag = (const char *)event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = (const char *)event->data.mapping_start.anchor;
        tag = (const char *)event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor || event->type == YAML_ALIAS_EVENT)
        return fail(reader, where, "anchors and aliases (& and *) are not taken: write the value out");
    if (tag) return fail(reader, where, "tags (!) are not taken");

    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (reader->tree->root) return fail(reader, where, "a second document: one file is one configuration");
        return true;
    case YAML_SCALAR_EVENT:
        return read_scalar(reader, event);
    case YAML_SEQUENCE_START_EVENT:
        return open_node(reader, ZR_NODE_LIST, event);
    case YAML_MAPPING_START_EVENT:
        return open_node(reader, ZR_NODE_MAP, event);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_node(reader);
    case YAML_STREAM_END_EVENT:
        reader->done = true;
        return true;
    default:
        return true;
    }
}

bool zr_yaml_read(struct zr_tree *tree, const char *text, size_t bytes, bool json, struct zr_config_report *report)
{
    struct reader reader = { .tree = tree, .report = report, .json = json, .text = text, .bytes = bytes };
    bool ok = true;
    if (!yaml_parser_initialize(&reader.parser)) abort();
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);

    while (ok && !reader.done) {
        yaml_event_t event;
        if (!yaml_parser_parse(&reader.parser, &event)) {
            ok = fail_parse(&reader);
            break;
        }
        ok = read_event(&reader, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&reader.parser);
    if (!ok) return false;

    if (!tree->root || zr_node_is_null(tree->root)) {
        zr_report_add(report, ZR_REMARK_ERROR, (struct zr_where){ .line = 1, .column = 1 }, "",
                      "the file is empty: it holds no key");
        return false;
    }
    if (tree->root->kind != ZR_NODE_MAP) {
        zr_report_add(report, ZR_REMARK_ERROR, tree->root->where, "", "the file is not a mapping of keys to values");
        return false;
    }
    return true;
}
