/* report.c: remarks in the order of their lines */
#include "config/report.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A hostile file can be wrong in ten thousand places; a person reads the first ones. */
enum { REMARKS_MAX = 200, ERRORS_MAX = 400 };

struct zr_config_report *zr_report_make(const char *name)
{
    struct zr_config_report *report = calloc(1, sizeof *report);
    if (!report) abort(); /* as texts do: nothing of a run exists yet */
    strncpy(report->name, name, sizeof report->name - 1);
    return report;
}

void zr_config_report_free(struct zr_config_report *report)
{
    if (!report) return;
    for (uint32_t i = 0; i < report->entry_count; i++)
        free(report->entries[i].remark.text);
    free(report->entries);
    free(report);
}

void zr_report_add(struct zr_config_report *report, enum zr_remark_kind kind, struct zr_where where, const char *key,
                   const char *format, ...)
{
    if (kind == ZR_REMARK_ERROR) report->error_count++;
    if (report->entry_count >= (kind == ZR_REMARK_ERROR ? ERRORS_MAX : REMARKS_MAX)) return;
    if (report->entry_count == report->entry_room) {
        uint32_t room = report->entry_room ? 2 * report->entry_room : 16;
        struct zr_remark_entry *entries = realloc(report->entries, room * sizeof *entries);
        if (!entries) abort();
        report->entries = entries;
        report->entry_room = room;
    }
    struct zr_remark_entry *entry = &report->entries[report->entry_count];
    *entry = (struct zr_remark_entry){ .remark = { .kind = kind, .line = where.line, .column = where.column },
                                       .from_set = where.from_set,
                                       .order = report->entry_count };
    report->entry_count++;
    strncpy(entry->remark.key, key, sizeof entry->remark.key - 1);
    for (char *at = entry->remark.key; *at; at++)
        if ((unsigned char)*at < 32 || *at == 127) *at = '?';

    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&entry->remark.text, format, arguments) < 0) abort();
    va_end(arguments);
}

const char *zr_report_clip_to(char *out, size_t room, const char *text)
{
    size_t length = strlen(text), kept = length < room ? length : room - 4;
    while (kept < length && kept > 0 && ((unsigned char)text[kept] & 0xc0) == 0x80) /* never half a character */
        kept--;
    for (size_t i = 0; i < kept; i++)
        out[i] = (unsigned char)text[i] < 32 || text[i] == 127 ? '?' : text[i];
    strcpy(out + kept, kept < length ? "..." : "");
    return out;
}

const char *zr_report_clip(char out[80], const char *text)
{
    return zr_report_clip_to(out, 80, text);
}

static int by_line(const void *left, const void *right)
{
    const struct zr_remark_entry *a = left, *b = right;
    uint32_t line_a = a->remark.line ? a->remark.line : UINT32_MAX;
    uint32_t line_b = b->remark.line ? b->remark.line : UINT32_MAX;
    if (line_a != line_b) return line_a < line_b ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

void zr_report_sort(struct zr_config_report *report)
{
    if (report->entry_count) qsort(report->entries, report->entry_count, sizeof *report->entries, by_line);
}

struct zr_value_origin *zr_report_origin(struct zr_config_report *report, const char *path)
{
    uint32_t index;
    bool found = zr_key_find(path, &index);
    assert(found); /* paths in rules are our own text */
    return &report->origins[index];
}

const struct zr_value_origin *zr_report_origin_const(const struct zr_config_report *report, const char *path)
{
    return zr_report_origin((struct zr_config_report *)report, path);
}

bool zr_report_given(const struct zr_config_report *report, const char *path)
{
    const struct zr_value_origin *origin = zr_report_origin_const(report, path);
    return origin->origin == ZR_FROM_FILE || origin->origin == ZR_FROM_COMMAND_LINE;
}

uint32_t zr_config_remark_count(const struct zr_config_report *report)
{
    return report->entry_count;
}

const struct zr_remark *zr_config_remark(const struct zr_config_report *report, uint32_t index)
{
    assert(index < report->entry_count);
    return &report->entries[index].remark;
}

void zr_config_remark_text(const struct zr_config_report *report, uint32_t index, struct zr_text *out)
{
    assert(index < report->entry_count);
    const struct zr_remark_entry *entry = &report->entries[index];
    if (entry->from_set)
        zr_text_add(out, "command line: ");
    else if (entry->remark.line && entry->remark.key[0] == '\0') /* syntax: the column is the way to find it */
        zr_text_add(out, "%s:%u:%u: ", report->name, entry->remark.line, entry->remark.column);
    else if (entry->remark.line)
        zr_text_add(out, "%s:%u: ", report->name, entry->remark.line);
    else
        zr_text_add(out, "%s: ", report->name);
    if (entry->remark.key[0]) zr_text_add(out, "%s: ", entry->remark.key);
    zr_text_add(out, "%s", entry->remark.text);
}
