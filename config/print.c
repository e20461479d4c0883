/* print.c: --print-config and the reference page, from the table */
#include "config/apply.h"
#include <stdlib.h>
#include <string.h>

/* Is there a value to print that would be read back as the same? */
static bool printable(const struct zr_key *key, const struct zr_settings *settings,
                      const struct zr_config_report *report)
{
    static const char params[] = "scheduler.params.";
    const struct zr_config *config = &settings->config;
    if (key->status != ZR_KEY_USED || key->type == ZR_KEY_SECTION) return false;
    if (strncmp(key->path, params, sizeof params - 1) == 0 &&
        !zr_schedule_takes(config->schedule, key->path + sizeof params - 1))
        return false;
    if (strcmp(key->path, "scheduler.type") == 0 && config->schedule == ZR_RATE_CONSTANT) return false;
    if (strncmp(key->path, "aio.", 4) == 0 && !zr_report_given(report, key->path))
        return false; /* zerod.nvme has them */
    if (config->micro_batch_auto && (strcmp(key->path, "train_micro_batch_size_per_gpu") == 0 ||
                                     strcmp(key->path, "gradient_accumulation_steps") == 0))
        return false; /* the daemon's choice: written down, it would be the user's */
    if (strcmp(key->path, "zero_optimization.offload_optimizer.pin_memory") == 0 &&
        config->optimizer_device == ZR_PLACE_NONE)
        return zr_report_given(report, key->path);
    if (strcmp(key->path, "zero_optimization.offload_param.pin_memory") == 0 && config->param_device == ZR_PLACE_NONE)
        return zr_report_given(report, key->path);
    if (key->type == ZR_KEY_COUNT && key->min > 0) { /* 0: nothing is known */
        struct zr_text value = { 0 };
        zr_value_print(key, settings, &value);
        bool zero = strcmp(zr_text_c(&value), "0") == 0;
        zr_text_fini(&value);
        return !zero;
    }
    return true;
}

static void print_origin(const struct zr_value_origin *origin, const char *name, struct zr_text *out)
{
    switch (origin->origin) {
    case ZR_FROM_DEFAULT:
        zr_text_add(out, "default");
        if (origin->automatic) zr_text_add(out, ", auto on line %u", origin->where.line);
        break;
    case ZR_FROM_FILE:
        zr_text_add(out, "%s:%u", name, origin->where.line);
        break;
    case ZR_FROM_COMMAND_LINE:
        zr_text_add(out, "--set");
        break;
    case ZR_FROM_DERIVED:
        zr_text_add(out, "derived: %s", origin->from);
        break;
    case ZR_FROM_ENVIRONMENT:
        zr_text_add(out, "environment: %s", origin->from);
        break;
    }
}

/* The headers of the sections that `path` lies in and `last` does not; returns the indent of the key. */
static int print_sections(const char *path, const char *last, struct zr_text *out)
{
    int indent = 0;
    const char *begin = path;
    for (const char *dot; (dot = strchr(begin, '.')); begin = dot + 1, indent += 2) {
        size_t bytes = (size_t)(dot + 1 - path);
        if (strncmp(path, last, bytes) == 0) continue;
        zr_text_add(out, "%*s%.*s:\n", indent, "", (int)(dot - begin), begin);
    }
    return indent;
}

void zr_config_print(const struct zr_config *config, const struct zr_config_report *report, struct zr_text *out)
{
    struct zr_settings *settings = malloc(sizeof *settings);
    if (!settings) abort();
    *settings = report->settings;
    settings->config = *config;

    char name[400];
    zr_report_clip_to(name, sizeof name, report->name);
    zr_text_add(out, "# %s as zerod %s reads it; ranks: %u (%s)\n", name, ZR_VERSION, config->ranks,
                config->ranks_origin);
    const char *last = "";
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        const struct zr_key *key = &zr_keys[i];
        if (!printable(key, settings, report)) continue;
        struct zr_text value = { 0 };
        zr_value_print(key, settings, &value);
        if (value.length) {
            int indent = print_sections(key->path, last, out);
            last = key->path;
            const char *dot = strrchr(key->path, '.');
            zr_text_add(out, "%*s%s: %s  # ", indent, "", dot ? dot + 1 : key->path, value.at);
            print_origin(&report->origins[i], name, out);
            zr_text_add(out, "\n");
        }
        zr_text_fini(&value);
    }
    if (config->micro_batch_auto)
        zr_text_add(out, "# the micro-batch is the daemon's choice: at most %u sequences\n", config->micro_batch_size);
    free(settings);
}

static void reference_type(const struct zr_key *key, struct zr_text *out)
{
    static const char *const words[] = {
        [ZR_KEY_SECTION] = "section",    [ZR_KEY_ANY] = "anything",  [ZR_KEY_BOOL] = "true or false",
        [ZR_KEY_COUNT] = "whole number", [ZR_KEY_NUMBER] = "number", [ZR_KEY_NAME] = "",
        [ZR_KEY_TEXT] = "text",          [ZR_KEY_BYTES] = "size",    [ZR_KEY_PAIR] = "two numbers",
        [ZR_KEY_PATHS] = "path or list", [ZR_KEY_SET] = "list of ",  [ZR_KEY_JSON] = "mapping",
    };
    zr_text_add(out, "%s", words[key->type]);
    if (key->names) zr_key_list_names(key, out);
    if (key->unit && key->type != ZR_KEY_BYTES) zr_text_add(out, ", %s", key->unit);
    if (key->min == 0 && key->max == 0) return;
    if (key->max >= 4294967295.0 && key->max < 4294967296.0) {
        zr_text_add(out, key->min > 0 ? ", above 0" : "");
        return;
    }
    if (key->min > 0 && key->min < 1e-200) {
        zr_text_add(out, ", above 0");
        return;
    }
    zr_text_add(out, ", ");
    zr_number_print(key->min, out);
    if (key->max < 1e299) {
        zr_text_add(out, " to ");
        zr_number_print(key->max, out);
        if (key->open_end) zr_text_add(out, " (not itself)");
    } else {
        zr_text_add(out, " or more");
    }
}

static void reference_used(struct zr_text *out)
{
    zr_text_add(
        out, "## Keys that act\n\n| key | value | default | \"auto\" | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        const struct zr_key *key = &zr_keys[i];
        if (key->status != ZR_KEY_USED) continue;
        if (key->type == ZR_KEY_SECTION) {
            zr_text_add(out, "| **`%s`** | section | | | %s |\n", key->path, key->help);
            continue;
        }
        zr_text_add(out, "| `%s` | ", key->path);
        reference_type(key, out);
        zr_text_add(out, " | %s | %s | %s |\n", key->fallback ? key->fallback : "",
                    key->automatic ? key->automatic : "", key->help);
    }
}

static void reference_rest(struct zr_text *out, enum zr_key_status status)
{
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        const struct zr_key *key = &zr_keys[i];
        if (key->status != status) continue;
        if (status == ZR_KEY_REFUSED) {
            zr_text_add(out, "| `%s` | ", key->path);
            for (const char *at = key->neutral; *at; at++)
                zr_text_add(out, *at == '|' ? " or " : "%c", *at);
            zr_text_add(out, "%s | %s |\n", key->neutral[0] ? "" : "null", key->help);
        } else {
            zr_text_add(out, "| `%s` | %s%s%s |\n", key->path, status == ZR_KEY_NOTED ? "" : "`",
                        status == ZR_KEY_NOTED ? key->help : key->why, status == ZR_KEY_NOTED ? "" : "`");
        }
    }
}

void zr_config_reference(struct zr_text *out)
{
    zr_text_add(
        out,
        "# Configuration\n\n"
        "One file, YAML or DeepSpeed's JSON (`//`, `#` and block comments and trailing commas are fine). DeepSpeed's "
        "keys keep their names and meanings; what only zerod has stands under `zerod`. `--set key.path=value` goes "
        "before the file; `zerod --print-config` shows each value and where it came from. Defaults are those of "
        "DeepSpeed 0.19. This page is printed from the table in `config/keys.c`.\n\n"
        "A size is written in bytes or with KiB, MiB, GiB, TiB (`24G` is `24GiB`); a whole number may be `5e8`. "
        "A key that begins with `_` is a comment. An unknown key is an error.\n\n");
    reference_used(out);
    zr_text_add(out, "\n## Keys of DeepSpeed that zerod has no need of\n\nThey are noted and change nothing.\n\n"
                     "| key | why |\n| --- | --- |\n");
    reference_rest(out, ZR_KEY_NOTED);
    zr_text_add(
        out, "\n## Keys that are refused\n\nIgnoring them would change results. Only the value that asks for nothing "
             "passes.\n\n| key | passes | why |\n| --- | --- | --- |\n");
    reference_rest(out, ZR_KEY_REFUSED);
    zr_text_add(out, "\n## Other spellings\n\n| key | read as |\n| --- | --- |\n");
    reference_rest(out, ZR_KEY_ALIAS);
    zr_text_add(out, "\n## Old names\n\nRead with a notice.\n\n| key | read as |\n| --- | --- |\n");
    reference_rest(out, ZR_KEY_OLD);
}
