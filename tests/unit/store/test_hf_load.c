/* test_hf_load.c: a Hugging Face directory into a model: tied heads in four forms, shards, spellings; what is wrong is
 * refused with the file and the tensor, and nothing crashes */
#include "files.h"

static char folder[TEMP_PATH_BYTES];

/* Loads what is in the folder; the folder is empty afterwards. */
static enum zr_code load(const struct zr_model *model, struct flat *flat, struct zr_text *warnings,
                         struct zr_error *err)
{
    int fd = open_folder(folder);
    *err = (struct zr_error){ 0 };
    enum zr_code code = zr_hf_load(fd, "some/dir", model, flat_sink, flat, warnings, err);
    close(fd);
    temp_remove(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    return code;
}

/* Everything arrives, tensor 0 as whole_at(first, .); `warning` is in the warnings, NULL: there are none. */
static void must_load(const struct zr_model *model, uint32_t first, const char *warning, const char *warning_too)
{
    struct flat flat;
    struct zr_text warnings = { 0 };
    struct zr_error err;
    flat_make(&flat, model);
    if (load(model, &flat, &warnings, &err)) fail_msg("%s", err.text);
    flat_check(&flat, first);
    if (warning ? !strstr(zr_text_c(&warnings), warning) || !strstr(warnings.at, warning_too) : warnings.length)
        fail_msg("warnings: '%s'", zr_text_c(&warnings));
    zr_text_fini(&warnings);
    flat_free(&flat);
}

static void must_refuse(const struct zr_model *model, const char *text, const char *text_too)
{
    struct flat flat;
    struct zr_text warnings = { 0 };
    struct zr_error err;
    flat_make(&flat, model);
    if (load(model, &flat, &warnings, &err) != ZR_EINPUT) fail_msg("'%s' was expected, not '%s'", text, err.text);
    if (!strstr(err.text, "some/dir") || !strstr(err.text, text) || !strstr(err.text, text_too))
        fail_msg("'%s' and '%s' were expected: %s", text, text_too, err.text);
    zr_text_fini(&warnings);
    flat_free(&flat);
}

/* The model's tensors, with room for some more. */
static struct entry *all_of(const struct zr_model *model, const char *dtype, uint32_t *ret_count)
{
    struct entry *entries = entries_of(model, dtype);
    *ret_count = model->tensor_count;
    entries = realloc(entries, (*ret_count + 4) * sizeof *entries);
    assert_non_null(entries);
    return entries;
}

/* -- tied heads ---------------------------------------------------------------------------------------------------- */

static void a_tied_head_may_be_absent(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    struct entry *entries = all_of(model, "F32", &count);
    assert_true(model->dims.tied);
    for (uint32_t i = 0; i < count; i++)
        assert_string_not_equal(entries[i].name, "lm_head.weight");
    write_entries(folder, "model.safetensors", entries, count, NULL);
    must_load(model, 0, NULL, NULL);
    free(entries);
    zr_model_free(model);
}

static void a_tied_table_may_come_under_the_heads_name(void **state)
{
    (void)state;
    static const char *const json[] = { TINY_GPT2, NULL }; /* and a LLaMA that ties */
    for (int i = 0; i < 2; i++) {
        char tied_llama[512];
        snprintf(tied_llama, sizeof tied_llama, "%.*s, \"tie_word_embeddings\": true}", (int)strlen(TINY_LLAMA) - 1,
                 TINY_LLAMA);
        struct zr_model *model = model_of(json[i] ? json[i] : tied_llama);
        uint32_t count;
        struct entry *entries = all_of(model, "F32", &count);
        char alias[256];
        snprintf(alias, sizeof alias, "\"__metadata__\":{\"format\":\"pt\",\"%s\":\"lm_head.weight\"}",
                 entries[0].name);
        entries[0].name = "lm_head.weight";
        write_entries(folder, "model.safetensors", entries, count, alias);
        must_load(model, 0, NULL, NULL);
        free(entries);
        zr_model_free(model);
    }
}

static void a_tied_head_may_be_there_and_equal(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    struct entry *entries = all_of(model, "BF16", &count);
    entries[count] = entries[0];
    entries[count].name = "lm_head.weight";
    write_entries(folder, "model.safetensors", entries, count + 1, NULL);
    must_load(model, 0, NULL, NULL);
    free(entries);
    zr_model_free(model);
}

static void a_tied_head_that_differs_is_told_of_by_both_names(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    struct entry *entries = all_of(model, "F32", &count);
    entries[count] = entries[0];
    entries[count].name = "lm_head.weight";
    entries[count].values = 77;
    write_entries(folder, "model.safetensors", entries, count + 1, NULL);
    must_load(model, 0, "lm_head.weight", "transformer.wte.weight");
    entries[count].values = 0; /* equal numbers in another format */
    entries[count].dtype = "BF16";
    write_entries(folder, "model.safetensors", entries, count + 1, NULL);
    must_load(model, 0, "lm_head.weight", "transformer.wte.weight");
    free(entries);
    zr_model_free(model);
}

static void a_head_that_is_not_tied_is_needed(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_LLAMA);
    uint32_t count;
    struct entry *entries = all_of(model, "F32", &count);
    assert_string_equal(entries[count - 1].name, "lm_head.weight");
    write_entries(folder, "model.safetensors", entries, count - 1, NULL);
    must_refuse(model, "lm_head.weight", "missing");
    free(entries);
    zr_model_free(model);
}

/* -- names and formats --------------------------------------------------------------------------------------------- */

static void every_format_and_spelling_loads_alike(void **state)
{
    (void)state;
    static const char *const dtypes[] = { "F32", "F16", "BF16" };
    static const char *const models[] = { TINY_GPT2, TINY_LLAMA };
    for (int m = 0; m < 2; m++)
        for (int d = 0; d < 3; d++) {
            struct zr_model *model = model_of(models[m]);
            uint32_t count;
            struct entry *entries = all_of(model, dtypes[d], &count);
            entries[1].dtype = dtypes[(d + 1) % 3]; /* a file may mix them */
            write_entries(folder, "model.safetensors", entries, count, NULL);
            must_load(model, 0, NULL, NULL);
            for (uint32_t i = 0; i < count; i++) { /* without "transformer." or "model." */
                const char *dot = strchr(entries[i].name, '.');
                if (strncmp(entries[i].name, "transformer.", 12) == 0 || strncmp(entries[i].name, "model.", 6) == 0)
                    entries[i].name = dot + 1;
            }
            write_entries(folder, "model.safetensors", entries, count, NULL);
            must_load(model, 0, NULL, NULL);
            free(entries);
            zr_model_free(model);
        }
}

static void buffers_are_ignored_and_strangers_told_of(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    struct entry *entries = all_of(model, "F32", &count);
    entries[count] = (struct entry){ "transformer.h.0.attn.bias", "F32", { 7, 7 }, 0 };
    entries[count + 1] = (struct entry){ "transformer.h.0.attn.masked_bias", "F32", { 1, 0 }, 0 };
    write_entries(folder, "model.safetensors", entries, count + 2, NULL);
    must_load(model, 0, NULL, NULL);
    entries[count + 2] = (struct entry){ "transformer.h.2.ln_1.weight", "F32", { 6, 0 }, 0 }; /* a third block */
    write_entries(folder, "model.safetensors", entries, count + 3, NULL);
    must_load(model, 0, "transformer.h.2.ln_1.weight", "model.safetensors");
    free(entries);
    zr_model_free(model);
}

static void a_tensor_in_both_spellings_is_refused(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    struct entry *entries = all_of(model, "F32", &count);
    entries[count] = entries[1];
    entries[count].name = "wpe.weight";
    write_entries(folder, "model.safetensors", entries, count + 1, NULL);
    must_refuse(model, "wpe.weight", "model.safetensors");
    free(entries);
    zr_model_free(model);
}

/* -- what is wrong ------------------------------------------------------------------------------------------------- */

static void wrong_tensors_are_refused_with_file_and_name(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    for (uint32_t t = 0; t < model->tensor_count; t += 3) {
        struct entry *entries = all_of(model, "F32", &count);
        const char *name = entries[t].name;
        entries[t].name = "some.other.name";
        write_entries(folder, "model.safetensors", entries, count, NULL);
        must_refuse(model, name, "missing");
        entries[t].name = name;
        entries[t].dtype = "I16";
        write_entries(folder, "model.safetensors", entries, count, NULL);
        must_refuse(model, name, "model.safetensors");
        entries[t].dtype = "F32";
        entries[t].shape[0] += 1;
        write_entries(folder, "model.safetensors", entries, count, NULL);
        must_refuse(model, name, "model.safetensors");
        entries[t].shape[0] = model->tensors[t].count; /* as many elements in another shape */
        entries[t].shape[1] = 1;
        write_entries(folder, "model.safetensors", entries, count, NULL);
        must_refuse(model, name, "config.json");
        free(entries);
    }
    zr_model_free(model);
}

static void a_shape_of_huge_numbers_is_told_of_within_bounds(void **state)
{
    /* A dimension of 0 makes all the others possible, however long their digits are. */
    (void)state;
    static const char *const shapes[] = {
        "0,9223372036854775807,9223372036854775807,9223372036854775807,9223372036854775807,9223372036854775807",
        "0,9223372036854775807,9223372036854775807,9223372036854775807,123456789,9223372036854775807",
        "0,9223372036854775807,9223372036854775807,9223372036854775807,1234567890123,9223372036854775807,1",
        "0,1,1,1,1,1,1,1",
    };
    struct zr_model *model = model_of(TINY_GPT2);
    for (size_t i = 0; i < ZR_COUNT(shapes); i++) {
        char header[512];
        int length = snprintf(header, sizeof header,
                              "{\"transformer.wte.weight\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,0]}}",
                              shapes[i]);
        write_raw(folder, "model.safetensors", (uint64_t)length, header, (size_t)length, "", 0);
        must_refuse(model, "transformer.wte.weight", "shape (0, ");
    }
    zr_model_free(model);
}

static void a_file_cut_at_any_place_is_refused(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    struct entry *entries = all_of(model, "BF16", &count);
    char path[TEMP_PATH_BYTES];
    struct stat status;
    write_entries(folder, "model.safetensors", entries, count, NULL);
    assert_int_equal(stat(temp_path(path, folder, "model.safetensors"), &status), 0);
    for (off_t length = 0; length < status.st_size; length += 97) {
        write_entries(folder, "model.safetensors", entries, count, NULL);
        assert_int_equal(truncate(path, length), 0);
        must_refuse(model, "model.safetensors", "");
    }
    free(entries);
    zr_model_free(model);
}

static void a_sink_that_fails_ends_the_load(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    struct entry *entries = all_of(model, "F32", &count);
    for (uint32_t at = 1; at <= count; at += 5) {
        struct flat flat;
        struct zr_text warnings = { 0 };
        struct zr_error err;
        flat_make(&flat, model);
        flat.fail_at = at;
        write_entries(folder, "model.safetensors", entries, count, NULL);
        assert_int_equal(load(model, &flat, &warnings, &err), ZR_EFULL);
        assert_int_equal(flat.calls, at);
        assert_non_null(strstr(err.text, "no room in the sink"));
        zr_text_fini(&warnings);
        flat_free(&flat);
    }
    free(entries);
    zr_model_free(model);
}

/* -- shards -------------------------------------------------------------------------------------------------------- */

#define FIRST "model-00001-of-00002.safetensors"
#define SECOND "model-00002-of-00002.safetensors"

/* Tensors up to `half` in the first shard, the others in the second; the index says so. */
static void write_shards(const struct entry *entries, uint32_t count, uint32_t half)
{
    struct zr_text index = { 0 };
    zr_text_add(&index, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (uint32_t i = 0; i < count; i++)
        zr_text_add(&index, "%s\"%s\":\"%s\"", i ? "," : "", entries[i].name, i < half ? FIRST : SECOND);
    zr_text_add(&index, "}}");
    write_entries(folder, FIRST, entries, half, NULL);
    write_entries(folder, SECOND, entries + half, count - half, NULL);
    temp_write(folder, "model.safetensors.index.json", index.at);
    zr_text_fini(&index);
}

static void shards_load_and_what_is_wrong_with_one_is_told(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    char path[TEMP_PATH_BYTES];
    struct entry *entries = all_of(model, "F16", &count);
    write_shards(entries, count, 10);
    must_load(model, 0, NULL, NULL);

    write_shards(entries, count, 10); /* the index names a shard that is not there */
    unlink(temp_path(path, folder, SECOND));
    must_refuse(model, SECOND, "No such file");

    write_shards(entries, count, 10); /* a download that stopped */
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size - 1), 0);
    must_refuse(model, SECOND, entries[count - 1].name);

    write_shards(entries, count, 10); /* a tensor that is in no shard, whatever the index says */
    write_entries(folder, SECOND, entries + 11, count - 11, NULL);
    must_refuse(model, entries[10].name, "missing");

    write_shards(entries, count, 10); /* one that is in both */
    write_entries(folder, SECOND, entries + 9, count - 9, NULL);
    must_refuse(model, entries[9].name, FIRST);
    free(entries);
    zr_model_free(model);
}

static void a_tied_head_may_lie_in_another_shard(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    uint32_t count;
    struct entry *entries = all_of(model, "F32", &count);
    entries[count] = entries[0];
    entries[count].name = "lm_head.weight";
    write_shards(entries, count + 1, 5);
    must_load(model, 0, NULL, NULL);
    entries[count].values = 5;
    write_shards(entries, count + 1, 5);
    must_load(model, 0, "lm_head.weight", "transformer.wte.weight");
    free(entries);
    zr_model_free(model);
}

static void bad_indexes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        { "", "index.json:" },
        { "{", "index.json:" },
        { "[]", "weight_map" },
        { "{}", "weight_map" },
        { "{\"weight_map\":3}", "weight_map" },
        { "{\"weight_map\":{}}", "missing" },
        { "{\"weight_map\":{\"wte.weight\":3}}", "wte.weight" },
        { "{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "index.json:" },
        { "{\"weight_map\":{\"wte.weight\":\"../model.safetensors\"}}", "../model.safetensors" },
        { "{\"weight_map\":{\"wte.weight\":\"/etc/passwd\"}}", "/etc/passwd" },
        { "{\"weight_map\":{\"wte.weight\":\"\"}}", "not a file" },
        { "{\"weight_map\":{\"wte.weight\":\"..\"}}", ".." },
        { "{\"weight_map\":{\"wte.weight\":\"model.safetensors.index.json\"}}", "model.safetensors.index.json" },
    };
    struct zr_model *model = model_of(TINY_GPT2);
    for (size_t i = 0; i < ZR_COUNT(cases); i++) {
        temp_write(folder, "model.safetensors.index.json", cases[i].text);
        must_refuse(model, cases[i].expected, "");
    }
    must_refuse(model, "model.safetensors.index.json", "No such file"); /* an empty folder */
    zr_model_free(model);
}

static void dims_of_a_folder(void **state)
{
    (void)state;
    struct zr_dims dims;
    struct zr_error err = { 0 };
    int fd = open_folder(folder);
    assert_false(zr_hf_has_weights(fd));
    assert_int_equal(zr_hf_read_dims(fd, "some/dir", &dims, &err), ZR_EINPUT);
    assert_non_null(strstr(err.text, "some/dir/config.json"));
    temp_write(folder, "config.json", TINY_LLAMA);
    assert_int_equal(zr_hf_read_dims(fd, "some/dir", &dims, &err), ZR_OK);
    assert_int_equal(dims.hidden, 8);
    temp_write(folder, "config.json", "{\"model_type\": \"mamba\"}");
    assert_int_equal(zr_hf_read_dims(fd, "some/dir", &dims, &err), ZR_EINPUT);
    assert_non_null(strstr(err.text, "some/dir/config.json"));
    assert_non_null(strstr(err.text, "mamba"));
    temp_write(folder, "model.safetensors.index.json", "");
    assert_true(zr_hf_has_weights(fd));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tied_head_may_be_absent),
        cmocka_unit_test(a_tied_table_may_come_under_the_heads_name),
        cmocka_unit_test(a_tied_head_may_be_there_and_equal),
        cmocka_unit_test(a_tied_head_that_differs_is_told_of_by_both_names),
        cmocka_unit_test(a_head_that_is_not_tied_is_needed),
        cmocka_unit_test(every_format_and_spelling_loads_alike),
        cmocka_unit_test(buffers_are_ignored_and_strangers_told_of),
        cmocka_unit_test(a_tensor_in_both_spellings_is_refused),
        cmocka_unit_test(wrong_tensors_are_refused_with_file_and_name),
        cmocka_unit_test(a_shape_of_huge_numbers_is_told_of_within_bounds),
        cmocka_unit_test(a_file_cut_at_any_place_is_refused),
        cmocka_unit_test(a_sink_that_fails_ends_the_load),
        cmocka_unit_test(shards_load_and_what_is_wrong_with_one_is_told),
        cmocka_unit_test(a_tied_head_may_lie_in_another_shard),
        cmocka_unit_test(bad_indexes_are_refused),
        cmocka_unit_test(dims_of_a_folder),
    };
    temp_make(folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_remove(folder);
    return failed;
}
