/* golden.h: one case of tests/golden: what make.py wrote, and a job opened on it */
#ifndef TEST_GOLDEN_H
#define TEST_GOLDEN_H

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/run/engine.h"
#include "engine/store/hf_dir.h"

struct golden {
    char folder[512];
    int directory_fd;
    json_t *json;
    struct zr_safetensors expected;
    struct zr_dims dims;
    uint32_t rows, row_tokens, document_count;
    int32_t *tokens, *labels;
    uint32_t *starts;
    struct zr_batch batch;
};

static inline int32_t *golden_ints(const json_t *array)
{
    size_t count = json_array_size(array);
    int32_t *values = calloc(count + 1, sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return values;
}

static inline double golden_number(const struct golden *golden, const char *key)
{
    return json_number_value(json_object_get(golden->json, key));
}

static inline void golden_open(struct golden *golden, const char *name)
{
    struct zr_error err = { 0 };
    char path[600];
    *golden = (struct golden){ 0 };
    snprintf(golden->folder, sizeof golden->folder, "%s/tests/golden/%s", ZR_SOURCE_DIR, name);
    golden->directory_fd = open(golden->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof path, "%s/case.json", golden->folder);
    golden->json = json_load_file(path, 0, NULL);
    if (golden->directory_fd < 0 || !golden->json ||
        zr_safetensors_open(golden->directory_fd, "expected.safetensors", &golden->expected, &err) ||
        zr_hf_read_dims(golden->directory_fd, name, &golden->dims, &err)) {
        fprintf(stderr, "%s: %s\n", golden->folder, err.text);
        abort();
    }
    golden->rows = (uint32_t)golden_number(golden, "rows");
    golden->row_tokens = (uint32_t)golden_number(golden, "row_tokens");
    golden->tokens = golden_ints(json_object_get(golden->json, "tokens"));
    golden->labels = golden_ints(json_object_get(golden->json, "labels"));
    const json_t *starts = json_object_get(golden->json, "document_starts");
    golden->document_count = (uint32_t)json_array_size(starts);
    golden->starts = (uint32_t *)golden_ints(starts);
    golden->batch = (struct zr_batch){ .rows = golden->rows,
                                       .row_tokens = golden->row_tokens,
                                       .tokens = golden->tokens,
                                       .labels = golden->labels,
                                       .document_starts = golden->starts,
                                       .document_count = golden->document_count };
}

static inline void golden_close(struct golden *golden)
{
    zr_safetensors_close(&golden->expected);
    json_decref(golden->json);
    close(golden->directory_fd);
    free(golden->tokens);
    free(golden->labels);
    free(golden->starts);
}

/* Values of one expected tensor, from the heap; NULL when there is none of that name. */
static inline float *golden_tensor(const struct golden *golden, const char *name, uint64_t *ret_count)
{
    struct zr_error err = { 0 };
    const struct zr_file_tensor *tensor = zr_safetensors_find(&golden->expected, name);
    if (!tensor) return NULL;
    *ret_count = tensor->bytes / 4;
    float *values = malloc(tensor->bytes);
    if (!values || zr_safetensors_read_f32(&golden->expected, tensor, 0, *ret_count, values, &err)) abort();
    return values;
}

static inline enum zr_code golden_load(void *context, const struct zr_model *model,
                                       enum zr_code (*sink)(void *, uint32_t, uint64_t, const float *, uint64_t,
                                                            struct zr_error *),
                                       void *sink_context, struct zr_error *err)
{
    struct golden *golden = context;
    struct zr_text warnings = { 0 };
    enum zr_code code = zr_hf_load(golden->directory_fd, "golden", model, sink, sink_context, &warnings, err);
    if (!code && warnings.length) code = zr_fail(err, ZR_EINPUT, "unexpected: %s", zr_text_c(&warnings));
    zr_text_fini(&warnings);
    return code;
}

#endif
