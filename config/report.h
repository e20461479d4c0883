/* report.h: what the reading of one configuration leaves behind: remarks, and where each value came from
 *
 * Inside config/ only; the rest of the program sees struct zr_config_report through config.h. */
#ifndef ZR_CONFIG_REPORT_H
#define ZR_CONFIG_REPORT_H

#include "config/config.h"
#include "config/keys.h"

/* A place to which a remark points. */
struct zr_where {
    uint32_t line, column; /* 0: not from the file */
    bool from_set;         /* from --set */
};

struct zr_value_origin {
    enum zr_origin origin;
    struct zr_where where;
    bool automatic;   /* the file says "auto" */
    const char *from; /* environment variable or derivation, for ZR_FROM_ENVIRONMENT and ZR_FROM_DERIVED; static text */
};

struct zr_remark_entry {
    struct zr_remark remark;
    bool from_set;
    uint32_t order; /* as they were made: keeps the sort stable */
};

struct zr_config_report {
    char name[ZR_PATH_MAX]; /* the file as the user wrote it */
    struct zr_remark_entry *entries;
    uint32_t entry_count, entry_room;
    uint32_t error_count;
    bool applied;                                /* the text was a configuration: the settings mean something */
    struct zr_value_origin origins[ZR_KEYS_MAX]; /* by zr_key_index() */
    struct zr_settings settings;                 /* what was read, with what is not in struct zr_config */
};

struct zr_config_report *zr_report_make(const char *name);

/* `key` may be "". The text may hold further lines, "\n  hint: ...". */
void zr_report_add(struct zr_config_report *report, enum zr_remark_kind kind, struct zr_where where, const char *key,
                   const char *format, ...) ZR_PRINTF(5, 6);

/* Orders remarks by line, those without one last. */
void zr_report_sort(struct zr_config_report *report);

/* The origin of the key at a canonical path, which must be in the table. */
struct zr_value_origin *zr_report_origin(struct zr_config_report *report, const char *path);
const struct zr_value_origin *zr_report_origin_const(const struct zr_config_report *report, const char *path);

/* `text` fit for a message: control bytes as '?', cut to the room with "..."; returns out. */
const char *zr_report_clip(char out[80], const char *text);
const char *zr_report_clip_to(char *out, size_t room, const char *text); /* room: at least 8 */

/* Did the file or the command line give this key a value of its own ("auto" and null are none)? */
bool zr_report_given(const struct zr_config_report *report, const char *path);

#endif
