/* keys.h: every key that a configuration may hold, once
 *
 * Parser, checks, --print-config, the reference page and the completion read the same rows. A row says what a value is and
 * what zerod does with it:
 *
 *   USED     it acts; the value lands at `offset` of struct zr_settings
 *   NOTED    DeepSpeed has it and zerod does not need it: a note says why
 *   REFUSED  ignoring it would change results: an error, unless the value is one of `neutral`
 *   ALIAS    another spelling of the key in `why`, as good as that one
 *   OLD      a name that DeepSpeed gave up, read as the key in `why`, with a notice
 *
 * Inside config/ only. */
#ifndef ZR_CONFIG_KEYS_H
#define ZR_CONFIG_KEYS_H

#include "config/config.h"

#define ZR_KEYS_MAX 320

enum zr_key_type {
    ZR_KEY_SECTION, /* a mapping whose keys are rows of their own */
    ZR_KEY_ANY,     /* anything, a whole section too: not looked into */
    ZR_KEY_BOOL,    /* bool */
    ZR_KEY_COUNT,   /* uint32_t or uint64_t */
    ZR_KEY_NUMBER,  /* double */
    ZR_KEY_NAME,    /* an enum or int: the index in `names` */
    ZR_KEY_TEXT,    /* char[] */
    ZR_KEY_BYTES,   /* uint32_t or uint64_t */
    ZR_KEY_PAIR,    /* double[2] */
    ZR_KEY_PATHS,   /* struct zr_paths: one path or a list */
    ZR_KEY_SET,     /* uint32_t: one bit for each of `names` */
    ZR_KEY_JSON,    /* char[]: a mapping, kept as JSON text */
};

enum zr_key_status { ZR_KEY_USED, ZR_KEY_NOTED, ZR_KEY_REFUSED, ZR_KEY_ALIAS, ZR_KEY_OLD };

struct zr_key {
    const char *path;
    enum zr_key_type type;
    enum zr_key_status status;
    uint32_t offset, size; /* in struct zr_settings; USED only */
    double min, max;       /* COUNT, NUMBER, BYTES, PAIR; both 0: not limited */
    bool open_end;         /* NUMBER, PAIR: `max` itself is out of range, as for betas */
    const char *const *names;
    const char *fallback;  /* the default as one would write it; NULL: none, or derived */
    const char *unit;      /* NULL: a pure number */
    const char *help;      /* what it is; for NOTED why zerod has no need of it, for REFUSED what is missing */
    const char *why;       /* ALIAS, OLD: the key that it stands for */
    bool as_it_is;         /* NOTED: `help` is the whole note */
    const char *neutral;   /* REFUSED: values that ask for nothing, "false|0" */
    const char *automatic; /* USED: what "auto" comes to; NULL: the default */
};

struct zr_paths {
    char path[ZR_NVME_PATHS_MAX][ZR_PATH_MAX];
    uint32_t count;
};

/* struct zr_config and, beside it, what the rules between keys need and nobody else. */
struct zr_settings {
    struct zr_config config;

    bool bf16, fp16;
    int grad_accum; /* index in the names of data_types.grad_accum_dtype */
    bool adam_w_mode, torch_adam;
    double betas[2];
    char scheduler_type[64];
    int optimizer_device, param_device; /* as written; what acts is in config */
    char optimizer_nvme_path[ZR_PATH_MAX], param_nvme_path[ZR_PATH_MAX];
    struct zr_paths nvme_paths;
    uint32_t aio_block_bytes, aio_depth, zerod_block_bytes, zerod_depth;
    int states_type, master_type; /* zerod.optimizer.states, zerod.optimizer.master: one value each today */
};

extern const struct zr_key *const zr_keys;
uint32_t zr_key_count(void);

/* The row of a path as written, which may be an alias. A path inside an aliased section ("bfloat16.enabled") is found as
 * the section's own ("bf16.enabled"). */
bool zr_key_find(const char *path, uint32_t *ret_index);

/* Text between commas, for messages: "none, cpu or nvme". */
void zr_key_list_names(const struct zr_key *key, struct zr_text *out);

/* hint.c: appends "\n  hint: ..." with the right place of a known key that stands in the wrong one, or the nearest
 * spelling; where nothing is near, the keys of the section. */
void zr_hint_key(const char *path, struct zr_text *out);
/* Is it a known section that stands in the wrong place? */
bool zr_hint_misplaced(const char *path);

/* The nearest of `names` (NULL ends them), or NULL. */
const char *zr_hint_name(const char *word, const char *const *names);

#endif
