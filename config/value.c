/* value.c: text to a typed value and back, by the key's row */
#include "config/apply.h"
#include "config/quantity.h"
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field_of(const struct zr_key *key, struct zr_settings *settings)
{
    return settings ? (char *)settings + key->offset : NULL;
}

static const void *field_of_const(const struct zr_key *key, const struct zr_settings *settings)
{
    return (const char *)settings + key->offset;
}

static void store_u64(const struct zr_key *key, struct zr_settings *settings, uint64_t value)
{
    void *field = field_of(key, settings);
    if (!field) return;
    if (key->size == sizeof(uint64_t))
        *(uint64_t *)field = value;
    else
        *(uint32_t *)field = (uint32_t)value;
}

static uint64_t load_u64(const struct zr_key *key, const struct zr_settings *settings)
{
    const void *field = field_of_const(key, settings);
    return key->size == sizeof(uint64_t) ? *(const uint64_t *)field : *(const uint32_t *)field;
}

void zr_number_print(double number, struct zr_text *out)
{
    char text[40];
    double again = 0;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        for (char *at = text; *at; at++)
            if (*at == ',') *at = '.';
        if (zr_quantity_number(text, &again) && again == number) break;
    }
    zr_text_add(out, "%s", text);
}

static bool out_of_range(const struct zr_key *key, double value)
{
    if (key->min == 0 && key->max == 0) return false;
    return value < key->min || value > key->max || (key->open_end && value == key->max);
}

static bool complain_range(const struct zr_key *key, const char *value, struct zr_text *complaint)
{
    zr_text_add(complaint, "%s is out of range: ", value);
    if (key->min > 0 && key->min < 1e-200)
        zr_text_add(complaint, "above 0");
    else
        zr_number_print(key->min, complaint);
    if (key->max < 1e299) {
        char count[32];
        zr_text_add(complaint, key->min > 0 && key->min < 1e-200 ? ", at most " : " to ");
        if (key->max >= 10000 && key->max < 1e15)
            zr_text_add(complaint, "%s", zr_text_count(count, (uint64_t)key->max));
        else
            zr_number_print(key->max, complaint);
        if (key->open_end) zr_text_add(complaint, ", without it");
    } else if (!(key->min > 0 && key->min < 1e-200)) {
        zr_text_add(complaint, " or more");
    }
    if (key->unit) zr_text_add(complaint, " %s", key->unit);
    return false;
}

bool zr_value_bool(const struct zr_node *node, bool *ret_value)
{
    static const char *const yes[] = { "true", "yes", "on", NULL };
    static const char *const no[] = { "false", "no", "off", NULL };
    if (node->kind != ZR_NODE_SCALAR) return false;
    for (int i = 0; i < 3; i++) {
        if (node->quoted && i > 0) break;
        if (strcasecmp(node->text, yes[i]) == 0) return *ret_value = true, true;
        if (strcasecmp(node->text, no[i]) == 0) return *ret_value = false, true;
    }
    return false;
}

static bool read_bool(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                      const char *clipped, struct zr_text *complaint)
{
    bool value;
    if (!zr_value_bool(node, &value)) {
        zr_text_add(complaint, "'%s' is not true or false", clipped);
        return false;
    }
    if (settings) *(bool *)field_of(key, settings) = value;
    return true;
}

static bool read_count(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                       const char *clipped, struct zr_text *complaint)
{
    uint64_t count;
    double number;
    if (!zr_quantity_count(node->text, &count)) {
        if (zr_quantity_number(node->text, &number) && number < 0 && (key->min != 0 || key->max != 0))
            return complain_range(key, clipped, complaint);
        zr_text_add(complaint, "'%s' is not a whole number%s", clipped,
                    zr_quantity_number(node->text, &number) && number < 0 ? " of 0 or more" : "");
        uint64_t bytes;
        if (zr_quantity_bytes(node->text, &bytes)) zr_text_add(complaint, ": it takes no unit of bytes");
        return false;
    }
    if (out_of_range(key, (double)count)) return complain_range(key, clipped, complaint);
    store_u64(key, settings, count);
    return true;
}

static bool read_bytes(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                       const char *clipped, struct zr_text *complaint)
{
    uint64_t bytes;
    if (strcmp(node->text, "auto") == 0 && key->fallback && strcmp(key->fallback, "auto") == 0) {
        store_u64(key, settings, 0);
        return true;
    }
    if (!zr_quantity_bytes(node->text, &bytes)) {
        zr_text_add(complaint,
                    "'%s' is not a size\n  hint: write bytes, or a number with KiB, MiB, GiB or TiB (G is GiB)",
                    clipped);
        return false;
    }
    if (key->fallback && strcmp(key->fallback, "auto") == 0 && bytes == 0) {
        zr_text_add(complaint, "a budget of 0 bytes holds nothing\n  hint: write auto for what is there");
        return false;
    }
    if (out_of_range(key, (double)bytes)) return complain_range(key, clipped, complaint);
    store_u64(key, settings, bytes);
    return true;
}

static bool read_number_text(const struct zr_key *key, const char *text, double *ret_number, struct zr_text *complaint)
{
    char clipped[80];
    if (!zr_quantity_number(text, ret_number)) {
        zr_text_add(complaint, "'%s' is not a number", zr_report_clip(clipped, text));
        return false;
    }
    if (out_of_range(key, *ret_number)) return complain_range(key, zr_report_clip(clipped, text), complaint);
    return true;
}

static bool read_name(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                      const char *clipped, struct zr_text *complaint)
{
    for (int i = 0; key->names[i]; i++)
        if (strcmp(node->text, key->names[i]) == 0) {
            if (settings) *(int *)field_of(key, settings) = i;
            return true;
        }
    zr_text_add(complaint, "'%s' is not %s", clipped, key->names[1] ? "one of " : "");
    zr_key_list_names(key, complaint);
    const char *near = zr_hint_name(node->text, key->names);
    if (near) zr_text_add(complaint, "\n  hint: did you mean %s?", near);
    return false;
}

static bool read_text_value(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                            struct zr_text *complaint)
{
    size_t bytes = strlen(node->text);
    if (!settings) return true;
    if (bytes >= key->size) {
        zr_text_add(complaint, "%zu bytes long, at most %u fit", bytes, key->size - 1);
        return false;
    }
    memcpy(field_of(key, settings), node->text, bytes + 1);
    return true;
}

static bool read_pair(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                      struct zr_text *complaint)
{
    double pair[2];
    int count = 0;
    for (const struct zr_node *item = node->first; item; item = item->next, count++)
        if (count >= 2 || item->kind != ZR_NODE_SCALAR) {
            count = 3;
            break;
        }
    if (count != 2) {
        zr_text_add(complaint, "two numbers belong here, as in [0.9, 0.999]");
        return false;
    }
    if (!read_number_text(key, node->first->text, &pair[0], complaint) ||
        !read_number_text(key, node->last->text, &pair[1], complaint))
        return false;
    if (settings) memcpy(field_of(key, settings), pair, sizeof pair);
    return true;
}

static bool read_paths(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                       struct zr_text *complaint)
{
    struct zr_paths *paths = field_of(key, settings);
    paths->count = 0;
    for (const struct zr_node *item = node->kind == ZR_NODE_LIST ? node->first : node; item;
         item = node->kind == ZR_NODE_LIST ? item->next : NULL) {
        if (item->kind != ZR_NODE_SCALAR || item->text[0] == '\0' || strlen(item->text) >= ZR_PATH_MAX) {
            zr_text_add(complaint, "a path, or a list of paths, belongs here");
            return false;
        }
        if (paths->count == ZR_NVME_PATHS_MAX) {
            zr_text_add(complaint, "more than %d paths", ZR_NVME_PATHS_MAX);
            return false;
        }
        strcpy(paths->path[paths->count++], item->text);
    }
    if (paths->count == 0) zr_text_add(complaint, "an empty list");
    return paths->count > 0;
}

static bool read_set(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                     struct zr_text *complaint)
{
    uint32_t bits = 0;
    for (const struct zr_node *item = node->kind == ZR_NODE_LIST ? node->first : node; item;
         item = node->kind == ZR_NODE_LIST ? item->next : NULL) {
        int i = 0;
        while (item->kind == ZR_NODE_SCALAR && key->names[i] && strcmp(item->text, key->names[i]) != 0)
            i++;
        if (item->kind != ZR_NODE_SCALAR || !key->names[i]) {
            char clipped[80];
            zr_text_add(complaint, "'%s' is none of ", zr_report_clip(clipped, item->text));
            zr_key_list_names(key, complaint);
            return false;
        }
        bits |= 1u << i;
    }
    *(uint32_t *)field_of(key, settings) = bits;
    return true;
}

/* Scalars of config.json: numbers as numbers, true, false and null as such, all else as text. Depth is bounded by the tree. */
static json_t *to_json(const struct zr_node *node)
{
    if (node->kind == ZR_NODE_SCALAR) {
        uint64_t count;
        double number;
        if (node->quoted) return json_string(node->text);
        if (zr_node_is_null(node)) return json_null();
        if (strcmp(node->text, "true") == 0) return json_true();
        if (strcmp(node->text, "false") == 0) return json_false();
        bool whole = strspn(node->text, "0123456789") == strlen(node->text);
        if (whole && zr_quantity_count(node->text, &count) && count <= INT64_MAX)
            return json_integer((json_int_t)count);
        if (zr_quantity_number(node->text, &number)) {
            bool negative = node->text[0] == '-' && strspn(node->text + 1, "0123456789") == strlen(node->text + 1);
            if (negative && number > -1e15) return json_integer((json_int_t)number);
            return json_real(number);
        }
        return json_string(node->text);
    }
    json_t *json = node->kind == ZR_NODE_MAP ? json_object() : json_array();
    for (const struct zr_node *item = node->first; json && item; item = item->next) {
        int failed = node->kind == ZR_NODE_MAP ? json_object_set_new(json, item->key, to_json(item))
                                               : json_array_append_new(json, to_json(item));
        if (failed) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

static bool read_json(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                      struct zr_text *complaint)
{
    if (node->kind != ZR_NODE_MAP) {
        zr_text_add(complaint, "a mapping belongs here, as in {hidden_size: 128, ...}");
        return false;
    }
    json_t *json = to_json(node);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!text) { /* jansson takes no text that is not UTF-8; libyaml has seen to that */
        zr_text_add(complaint, "cannot be written as JSON");
        return false;
    }
    bool fits = strlen(text) < key->size;
    if (fits && settings) strcpy(field_of(key, settings), text);
    if (!fits) zr_text_add(complaint, "%zu bytes of JSON, at most %u fit: use model.path", strlen(text), key->size - 1);
    free(text);
    return fits;
}

bool zr_value_read(const struct zr_key *key, const struct zr_node *node, struct zr_settings *settings,
                   struct zr_text *complaint)
{
    char clipped[80];
    bool many = key->type == ZR_KEY_PAIR || key->type == ZR_KEY_PATHS || key->type == ZR_KEY_SET ||
                key->type == ZR_KEY_JSON || key->type == ZR_KEY_ANY;
    if (key->status != ZR_KEY_USED) settings = NULL;
    if (!many && node->kind != ZR_NODE_SCALAR) {
        zr_text_add(complaint, "a %s stands where one value belongs", node->kind == ZR_NODE_MAP ? "mapping" : "list");
        return false;
    }
    zr_report_clip(clipped, node->text);

    switch (key->type) {
    case ZR_KEY_SECTION:
    case ZR_KEY_ANY:
        return true;
    case ZR_KEY_BOOL:
        return read_bool(key, node, settings, clipped, complaint);
    case ZR_KEY_COUNT:
        return read_count(key, node, settings, clipped, complaint);
    case ZR_KEY_NUMBER: {
        double number;
        if (!read_number_text(key, node->text, &number, complaint)) return false;
        if (settings) *(double *)field_of(key, settings) = number;
        return true;
    }
    case ZR_KEY_NAME:
        return read_name(key, node, settings, clipped, complaint);
    case ZR_KEY_TEXT:
        return read_text_value(key, node, settings, complaint);
    case ZR_KEY_BYTES:
        return read_bytes(key, node, settings, clipped, complaint);
    case ZR_KEY_PAIR:
        return read_pair(key, node, settings, complaint);
    case ZR_KEY_PATHS:
        return read_paths(key, node, settings, complaint);
    case ZR_KEY_SET:
        return read_set(key, node, settings, complaint);
    case ZR_KEY_JSON:
        return read_json(key, node, settings, complaint);
    }
    assert(!"a key's type");
    return false;
}

/* "[a, b]" */
static bool default_pair(const char *text, double pair[2])
{
    char first[32], second[32];
    return sscanf(text, "[%31[^,], %31[^]]]", first, second) == 2 && zr_quantity_number(first, &pair[0]) &&
           zr_quantity_number(second, &pair[1]);
}

void zr_value_default(const struct zr_key *key, struct zr_settings *settings)
{
    if (key->status != ZR_KEY_USED || key->type == ZR_KEY_SECTION || !key->fallback) return;
    struct zr_text complaint = { 0 };
    bool ok;
    if (key->type == ZR_KEY_PAIR) {
        ok = default_pair(key->fallback, field_of(key, settings));
    } else if (key->type == ZR_KEY_JSON) {
        ok = true; /* none */
    } else if (key->type == ZR_KEY_COUNT && strcmp(key->fallback, "0") == 0) {
        store_u64(key, settings, 0); /* "none given", which the range may not hold */
        ok = true;
    } else {
        struct zr_node node = { .kind = ZR_NODE_SCALAR, .text = key->fallback };
        ok = zr_value_read(key, &node, settings, &complaint);
    }
    assert(ok); /* the table's own text */
    zr_text_fini(&complaint);
}

/* Plain where YAML and we read it back as the same text, else in double quotes. */
static void print_text(const char *text, struct zr_text *out)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    bool plain = text[0] && text[0] != '-' && strspn(text, safe) == strlen(text) && strcasecmp(text, "null") != 0 &&
                 strcmp(text, "auto") != 0;
    if (plain) {
        zr_text_add(out, "%s", text);
        return;
    }
    zr_text_add(out, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            zr_text_add(out, "\\%c", *at);
        else if (*at < 32 || *at == 127)
            zr_text_add(out, "\\x%02x", *at);
        else
            zr_text_add_bytes(out, at, 1);
    }
    zr_text_add(out, "\"");
}

static void print_bytes(uint64_t bytes, struct zr_text *out)
{
    static const char *const units[] = { "", "KiB", "MiB", "GiB", "TiB" };
    int unit = 0;
    while (unit < 4 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    zr_text_add(out, "%llu%s", (unsigned long long)bytes, units[unit]);
}

void zr_value_print(const struct zr_key *key, const struct zr_settings *settings, struct zr_text *out)
{
    const void *field = field_of_const(key, settings);
    switch (key->type) {
    case ZR_KEY_BOOL:
        zr_text_add(out, *(const bool *)field ? "true" : "false");
        break;
    case ZR_KEY_COUNT:
        zr_text_add(out, "%llu", (unsigned long long)load_u64(key, settings));
        break;
    case ZR_KEY_NUMBER:
        zr_number_print(*(const double *)field, out);
        break;
    case ZR_KEY_NAME:
        zr_text_add(out, "%s", key->names[*(const int *)field]);
        break;
    case ZR_KEY_TEXT:
        if (*(const char *)field) print_text(field, out);
        break;
    case ZR_KEY_BYTES:
        if (load_u64(key, settings) == 0)
            zr_text_add(out, "auto");
        else
            print_bytes(load_u64(key, settings), out);
        break;
    case ZR_KEY_PAIR:
        zr_text_add(out, "[");
        zr_number_print(((const double *)field)[0], out);
        zr_text_add(out, ", ");
        zr_number_print(((const double *)field)[1], out);
        zr_text_add(out, "]");
        break;
    case ZR_KEY_PATHS: {
        const struct zr_paths *paths = field;
        for (uint32_t i = 0; i < paths->count; i++) {
            zr_text_add(out, i ? ", " : "[");
            print_text(paths->path[i], out);
        }
        if (paths->count) zr_text_add(out, "]");
        break;
    }
    case ZR_KEY_SET:
        zr_text_add(out, "[");
        for (uint32_t i = 0, any = 0; key->names[i]; i++)
            if (*(const uint32_t *)field >> i & 1) zr_text_add(out, "%s%s", any++ ? ", " : "", key->names[i]);
        zr_text_add(out, "]");
        break;
    case ZR_KEY_JSON: /* JSON is flow-style YAML */
        zr_text_add(out, "%s", (const char *)field);
        break;
    case ZR_KEY_SECTION:
    case ZR_KEY_ANY:
        break;
    }
}
