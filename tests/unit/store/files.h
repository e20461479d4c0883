/* files.h: safetensors written byte by byte, good and bad, and flat planes to load into
 *
 * Values are whole numbers below 100, which all three formats hold exactly, so what comes back must be equal. */
#ifndef ZR_TESTS_STORE_FILES_H
#define ZR_TESTS_STORE_FILES_H

#include "engine/store/hf_dir.h"
#include "temp.h"
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The file dir/name: `length` as its first 8 bytes, then the header, then `bytes` of data. */
static inline void write_raw(const char *dir, const char *name, uint64_t length, const void *header,
                             size_t header_bytes, const void *data, size_t bytes)
{
    char path[TEMP_PATH_BYTES];
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)(length >> 8 * i);
    FILE *file = fopen(temp_path(path, dir, name), "we");
    assert_non_null(file);
    assert_int_equal(fwrite(prefix, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, header_bytes, file), header_bytes);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline int open_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* IEEE binary16 of a whole number below 2048, from its definition. */
static inline uint16_t half_of_whole(int value)
{
    int size = abs(value), exponent = 0;
    if (size == 0) return 0;
    while (size >> (exponent + 1))
        exponent++;
    int fraction = exponent <= 10 ? (size << (10 - exponent)) & 1023 : 0;
    return (uint16_t)((value < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | fraction);
}

/* bfloat16 of a whole number below 256: the upper half of its fp32. */
static inline uint16_t brain_of_whole(int value)
{
    float wide = (float)value;
    uint32_t bits;
    memcpy(&bits, &wide, 4);
    assert_int_equal(bits & 0xffff, 0);
    return (uint16_t)(bits >> 16);
}

static inline int whole_at(uint32_t tensor, uint64_t element)
{
    return (int)((tensor * 31 + element * 7) % 197) - 98;
}

/* -- a file of a model's tensors ----------------------------------------------------------------------------------- */

struct entry {
    const char *name, *dtype; /* "F32", "F16", "BF16"; anything else is written as if it were of 2 bytes */
    uint64_t shape[2];        /* shape[1] 0: a vector */
    uint32_t values;          /* whole_at(values, element) */
};

static inline void write_entries(const char *dir, const char *name, const struct entry *entries, uint32_t count,
                                 const char *metadata)
{
    struct zr_text header = { 0 }, data = { 0 };
    zr_text_add(&header, "{%s", metadata ? metadata : "\"__metadata__\":{\"format\":\"pt\"}");
    for (const struct entry *entry = entries; entry < entries + count; entry++) {
        uint64_t begin = data.length, elements = entry->shape[0] * (entry->shape[1] ? entry->shape[1] : 1);
        for (uint64_t i = 0; i < elements; i++) {
            int value = whole_at(entry->values, i);
            float wide = (float)value;
            uint16_t half = strcmp(entry->dtype, "F16") == 0 ? half_of_whole(value) : brain_of_whole(value);
            if (strcmp(entry->dtype, "F32") == 0)
                zr_text_add_bytes(&data, &wide, 4);
            else
                zr_text_add_bytes(&data, &half, 2);
        }
        zr_text_add(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, entry->name, entry->dtype,
                    entry->shape[0]);
        if (entry->shape[1]) zr_text_add(&header, ",%" PRIu64, entry->shape[1]);
        zr_text_add(&header, "],\"data_offsets\":[%" PRIu64 ",%zu]}", begin, data.length);
    }
    zr_text_add(&header, "}");
    write_raw(dir, name, header.length, header.at, header.length, zr_text_c(&data), data.length);
    zr_text_fini(&header);
    zr_text_fini(&data);
}

/* -- models and what is loaded into them --------------------------------------------------------------------------- */

#define TINY_GPT2                                                                                                      \
    "{\"model_type\": \"gpt2\", \"n_embd\": 6, \"n_layer\": 2, \"n_head\": 2, \"n_inner\": 10, \"n_positions\": 7, "   \
    "\"vocab_size\": 11}"
#define TINY_LLAMA                                                                                                     \
    "{\"model_type\": \"llama\", \"hidden_size\": 8, \"intermediate_size\": 12, \"num_hidden_layers\": 1, "            \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"max_position_embeddings\": 16, \"vocab_size\": 11}"

static inline struct zr_model *model_of(const char *json)
{
    struct zr_dims dims;
    struct zr_model *model = NULL;
    struct zr_error err = { 0 };
    if (zr_dims_read("config.json", json, strlen(json), &dims, &err) || zr_model_make(&dims, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

/* Every tensor of the model as an entry; entry i holds whole_at(i, .). */
static inline struct entry *entries_of(const struct zr_model *model, const char *dtype)
{
    struct entry *entries = calloc(model->tensor_count, sizeof *entries);
    assert_non_null(entries);
    for (uint32_t i = 0; i < model->tensor_count; i++)
        entries[i] = (struct entry){ .name = model->tensors[i].name,
                                     .dtype = dtype,
                                     .shape = { model->tensors[i].shape[0], model->tensors[i].shape[1] },
                                     .values = i };
    return entries;
}

struct flat {
    const struct zr_model *model;
    float **units;
    uint32_t calls, fail_at; /* the source and the sink fail at call number fail_at; 0: never */
};

static inline void flat_make(struct flat *flat, const struct zr_model *model)
{
    *flat = (struct flat){ .model = model, .units = calloc(model->unit_count, sizeof *flat->units) };
    for (uint32_t u = 0; u < model->unit_count; u++) {
        flat->units[u] = malloc(model->units[u].elements * sizeof(float));
        for (uint64_t i = 0; i < model->units[u].elements; i++)
            flat->units[u][i] = NAN;
    }
}

static inline void flat_free(struct flat *flat)
{
    for (uint32_t u = 0; u < flat->model->unit_count; u++)
        free(flat->units[u]);
    free(flat->units);
}

static inline enum zr_code flat_sink(void *context, uint32_t unit, uint64_t offset, const float *values, uint64_t count,
                                     struct zr_error *err)
{
    struct flat *flat = context;
    if (++flat->calls == flat->fail_at) return zr_fail(err, ZR_EFULL, "no room in the sink");
    assert_true(unit < flat->model->unit_count && offset + count <= flat->model->units[unit].elements);
    memcpy(flat->units[unit] + offset, values, count * sizeof *values);
    return ZR_OK;
}

static inline enum zr_code flat_source(void *context, uint32_t unit, uint64_t offset, float *ret_values, uint64_t count,
                                       struct zr_error *err)
{
    struct flat *flat = context;
    if (++flat->calls == flat->fail_at) return zr_fail(err, ZR_EIO, "the source has failed");
    assert_true(unit < flat->model->unit_count && offset + count <= flat->model->units[unit].elements);
    memcpy(ret_values, flat->units[unit] + offset, count * sizeof *ret_values);
    return ZR_OK;
}

static inline void flat_fill(struct flat *flat)
{
    for (uint32_t t = 0; t < flat->model->tensor_count; t++)
        for (uint64_t i = 0; i < flat->model->tensors[t].count; i++)
            flat->units[flat->model->tensors[t].unit][flat->model->tensors[t].offset + i] = (float)whole_at(t, i);
}

/* Tensor t holds whole_at(t, .), but for tensor 0, which holds whole_at(first, .). */
static inline void flat_check(const struct flat *flat, uint32_t first)
{
    for (uint32_t t = 0; t < flat->model->tensor_count; t++)
        for (uint64_t i = 0; i < flat->model->tensors[t].count; i++) {
            const struct zr_tensor *tensor = &flat->model->tensors[t];
            float got = flat->units[tensor->unit][tensor->offset + i];
            int want = whole_at(t == 0 ? first : t, i);
            if (!(got == (float)want)) fail_msg("%s[%" PRIu64 "] is %g, not %d", tensor->name, i, (double)got, want);
        }
}

#endif
