/* json.c: DeepSpeed's JSON as YAML's flow style
 *
 * DeepSpeed reads Hjson: comments in three forms and trailing commas. Both are gone, or legal, once comments outside of
 * strings have become blanks: what is left is flow style, which libyaml reads. Blanks keep every line and column, so places
 * in messages are places in the user's file. */
#include "config/tree.h"
#include <stdlib.h>
#include <string.h>

static bool fail(struct zr_config_report *report, uint32_t line, uint32_t column, const char *text)
{
    zr_report_add(report, ZR_REMARK_ERROR, (struct zr_where){ .line = line, .column = column }, "", "%s", text);
    return false;
}

/* Bytes of the comment that begins at `at` (without the end of its line), 0: none begins here; open_ended: a block comment
 * that never ends. */
static size_t comment_bytes(const char *at, const char *end, bool *ret_open_ended)
{
    size_t left = (size_t)(end - at);
    *ret_open_ended = false;
    if (*at == '#' || (left >= 2 && at[0] == '/' && at[1] == '/')) {
        size_t count = 0;
        while (count < left && at[count] != '\n' && at[count] != '\r')
            count++;
        return count;
    }
    if (left >= 2 && at[0] == '/' && at[1] == '*') {
        const char *close = memmem(at + 2, left - 2, "*/", 2);
        *ret_open_ended = close == NULL;
        return close ? (size_t)(close + 2 - at) : left;
    }
    return 0;
}

static const char *skip_mark(const char *at, const char *end)
{
    return end - at >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0 ? at + 3 : at;
}

bool zr_json_looks_like(const char *text, size_t bytes)
{
    const char *end = text + bytes, *at = skip_mark(text, end);
    while (at < end) {
        bool open_ended;
        size_t comment = comment_bytes(at, end, &open_ended);
        if (comment)
            at += comment;
        else if (strchr(" \t\r\n", *at) && *at)
            at++;
        else
            return *at == '{';
    }
    return false;
}

bool zr_json_read(struct zr_tree *tree, const char *text, size_t bytes, struct zr_config_report *report)
{
    char *copy = malloc(bytes + 1);
    if (!copy) abort();
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';

    bool ok = true, anything = false;
    uint32_t line = 1, string_line = 0, string_column = 0;
    const char *start_of_line = skip_mark(copy, copy + bytes);
    char *end = copy + bytes;
    for (char *at = copy + (start_of_line - copy); ok && at < end;) {
        uint32_t column = (uint32_t)(at - start_of_line) + 1;
        bool open_ended;
        size_t comment = string_line ? 0 : comment_bytes(at, end, &open_ended);
        if (comment) {
            if (open_ended) ok = fail(report, line, column, "the comment that begins here is never closed");
            for (char *stop = at + comment; at < stop; at++) {
                if (*at == '\n') {
                    line++;
                    start_of_line = at + 1;
                } else if (*at != '\r') {
                    *at = ' ';
                }
            }
            continue;
        }
        if (*at == '\n') {
            if (string_line)
                ok = fail(report, string_line, string_column, "the text that begins here is not closed on its line");
            line++;
            start_of_line = at + 1;
        } else if (*at == '\\' && string_line && at + 1 < end && at[1] != '\n') {
            at++;
        } else if (*at == '"') {
            string_column = column;
            string_line = string_line ? 0 : line;
            anything = true;
        } else if (*at == '\'' && !string_line) {
            ok = fail(report, line, column, "text stands in double quotes");
        } else if ((*at == '&' || *at == '*' || *at == '!' || *at == '|' || *at == '>' || *at == '%' || *at == '?' ||
                    *at == '@' || *at == '`') &&
                   !string_line) {
            ok = fail(report, line, column, "this character has no meaning in JSON");
        } else if (!strchr(" \t\r", *at) || *at == '\0') {
            if (!anything && *at != '{') ok = fail(report, line, column, "a DeepSpeed file begins with {");
            anything = true;
        }
        at++;
    }
    if (ok && string_line)
        ok = fail(report, string_line, string_column, "the file ends inside the text that begins here");
    if (ok && !anything) ok = fail(report, 1, 1, "the file is empty: it holds no key");
    if (ok) ok = zr_yaml_read(tree, copy, bytes, true, report);
    free(copy);
    return ok;
}
