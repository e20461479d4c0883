/* test_hf_save.c: what is saved loads to the same numbers, in every format, whole or in shards; a save that fails leaves
 * what was there */
#include "files.h"
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>

static char folder[TEMP_PATH_BYTES];

static void empty_folder(void)
{
    temp_remove(folder);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static enum zr_code save(struct flat *flat, enum zr_file_dtype dtype, uint64_t shard_bytes, struct zr_error *err)
{
    int fd = open_folder(folder);
    *err = (struct zr_error){ 0 };
    flat->calls = 0;
    enum zr_code code = zr_hf_save(
        fd, "out/dir",
        &(struct zr_hf_save){
            .model = flat->model, .dtype = dtype, .source = flat_source, .context = flat, .shard_bytes = shard_bytes },
        err);
    close(fd);
    return code;
}

static void must_save(struct flat *flat, enum zr_file_dtype dtype, uint64_t shard_bytes)
{
    struct zr_error err;
    if (save(flat, dtype, shard_bytes, &err)) fail_msg("%s", err.text);
}

/* Into a new set of planes; tensor 0 is whole_at(first, .). The model comes from the folder's config.json. */
static void must_load(uint32_t first)
{
    int fd = open_folder(folder);
    struct zr_dims dims;
    struct zr_model *model = NULL;
    struct zr_text warnings = { 0 };
    struct zr_error err = { 0 };
    struct flat flat;
    if (zr_hf_read_dims(fd, "in", &dims, &err) || zr_model_make(&dims, &model, &err)) fail_msg("%s", err.text);
    flat_make(&flat, model);
    if (zr_hf_load(fd, "in", model, flat_sink, &flat, &warnings, &err)) fail_msg("%s", err.text);
    assert_int_equal(warnings.length, 0);
    flat_check(&flat, first);
    close(fd);
    flat_free(&flat);
    zr_model_free(model);
}

static bool is_there(const char *name)
{
    char path[TEMP_PATH_BYTES];
    return access(temp_path(path, folder, name), F_OK) == 0;
}

/* Names of all files, one a line, in no order; and their bytes, after one another. */
static void photograph(struct zr_text *names, struct zr_text *bytes)
{
    struct dirent **list;
    int count = scandir(folder, &list, NULL, alphasort);
    assert_true(count >= 2);
    for (int i = 0; i < count; i++) {
        char path[TEMP_PATH_BYTES], part[4096];
        if (list[i]->d_name[0] == '.') {
            free(list[i]);
            continue;
        }
        zr_text_add(names, "%s\n", list[i]->d_name);
        FILE *file = fopen(temp_path(path, folder, list[i]->d_name), "re");
        for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;)
            zr_text_add_bytes(bytes, part, got);
        fclose(file);
        free(list[i]);
    }
    free(list);
}

static const char *const models[] = { TINY_GPT2, TINY_LLAMA };

static void what_is_saved_loads_to_the_same_numbers(void **state)
{
    (void)state;
    static const uint64_t shard_bytes[] = { 0, 1, 300, 1000000 };
    for (size_t m = 0; m < ZR_COUNT(models); m++)
        for (enum zr_file_dtype dtype = ZR_FILE_F32; dtype <= ZR_FILE_BF16; dtype++)
            for (size_t s = 0; s < ZR_COUNT(shard_bytes); s++) {
                struct zr_model *model = model_of(models[m]);
                struct flat flat;
                flat_make(&flat, model);
                flat_fill(&flat);
                must_save(&flat, dtype, shard_bytes[s]);
                must_load(0);
                bool sharded = shard_bytes[s] == 1 || shard_bytes[s] == 300;
                assert_true(is_there("model.safetensors.index.json") == sharded);
                assert_true(is_there("model.safetensors") == !sharded);
                assert_true(is_there("config.json") && is_there("generation_config.json"));
                flat_free(&flat);
                zr_model_free(model);
                empty_folder();
            }
}

static void the_index_names_every_tensor_and_its_shard(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_LLAMA);
    struct flat flat;
    char path[TEMP_PATH_BYTES];
    flat_make(&flat, model);
    flat_fill(&flat);
    must_save(&flat, ZR_FILE_BF16, 400);
    json_t *index = json_load_file(temp_path(path, folder, "model.safetensors.index.json"), 0, NULL);
    json_t *map = json_object_get(index, "weight_map");
    assert_int_equal(json_object_size(map), model->tensor_count);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
                     2 * model->parameters);
    int fd = open_folder(folder);
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        struct zr_safetensors file;
        struct zr_error err = { 0 };
        const char *name = json_string_value(json_object_get(map, model->tensors[i].name));
        assert_non_null(name);
        if (zr_safetensors_open(fd, name, &file, &err)) fail_msg("%s", err.text);
        const struct zr_file_tensor *tensor = zr_safetensors_find(&file, model->tensors[i].name);
        assert_non_null(tensor);
        uint64_t data = 0;
        for (uint32_t t = 0; t < file.tensor_count; t++)
            data += file.tensors[t].bytes;
        assert_true(data <= 400 || file.tensor_count == 1);
        assert_int_equal(tensor->rank, model->tensors[i].shape[1] ? 2 : 1);
        zr_safetensors_close(&file);
    }
    close(fd);
    json_decref(index);
    flat_free(&flat);
    zr_model_free(model);
    empty_folder();
}

static void the_same_weights_give_the_same_bytes(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    struct flat flat;
    struct zr_text names[2] = { { 0 } }, bytes[2] = { { 0 } };
    flat_make(&flat, model);
    flat_fill(&flat);
    for (int i = 0; i < 2; i++) {
        must_save(&flat, ZR_FILE_BF16, 500);
        photograph(&names[i], &bytes[i]);
        empty_folder();
    }
    assert_string_equal(names[0].at, names[1].at);
    assert_int_equal(bytes[0].length, bytes[1].length);
    assert_memory_equal(bytes[0].at, bytes[1].at, bytes[0].length);
    for (int i = 0; i < 2; i++) {
        zr_text_fini(&names[i]);
        zr_text_fini(&bytes[i]);
    }
    flat_free(&flat);
    zr_model_free(model);
}

static void a_tied_head_is_saved_once(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    struct flat flat;
    struct zr_safetensors file;
    struct zr_error err = { 0 };
    flat_make(&flat, model);
    flat_fill(&flat);
    must_save(&flat, ZR_FILE_F32, 0);
    int fd = open_folder(folder);
    if (zr_safetensors_open(fd, "model.safetensors", &file, &err)) fail_msg("%s", err.text);
    assert_null(zr_safetensors_find(&file, "lm_head.weight"));
    const struct zr_file_tensor *table = zr_safetensors_find(&file, "transformer.wte.weight");
    assert_non_null(table);
    assert_int_equal(table->shape[0], 11); /* as many rows as the vocabulary, nothing padded */
    uint64_t elements = 0;
    for (uint32_t i = 0; i < file.tensor_count; i++)
        elements += file.tensors[i].bytes / 4;
    /* two tables; per block two norms, qkv, projection, both of the MLP, with biases; the last norm */
    assert_int_equal(elements, 11 * 6 + 7 * 6 + 2 * (24 + 6 * 18 + 18 + 36 + 6 + 60 + 10 + 60 + 6) + 12);
    zr_safetensors_close(&file);
    close(fd);
    flat_free(&flat);
    zr_model_free(model);
    empty_folder();
}

static void a_vocabulary_of_257_keeps_its_rows(void **state)
{
    (void)state;
    struct zr_model *model = model_of("{\"model_type\": \"gpt2\", \"n_embd\": 10, \"n_layer\": 1, \"n_head\": 2, "
                                      "\"n_positions\": 7, \"vocab_size\": 257}");
    struct flat flat;
    struct zr_safetensors file;
    struct zr_error err = { 0 };
    flat_make(&flat, model);
    flat_fill(&flat);
    must_save(&flat, ZR_FILE_BF16, 0);
    must_load(0);
    int fd = open_folder(folder);
    if (zr_safetensors_open(fd, "model.safetensors", &file, &err)) fail_msg("%s", err.text);
    const struct zr_file_tensor *table = zr_safetensors_find(&file, "transformer.wte.weight");
    assert_true(table && table->shape[0] == 257 && table->shape[1] == 10);
    zr_safetensors_close(&file);
    close(fd);
    flat_free(&flat);
    zr_model_free(model);
    empty_folder();
}

static void a_save_over_another_is_what_loads(void **state)
{
    /* From one file to shards and back: readers look for model.safetensors first, so what is left must not mislead. */
    (void)state;
    static const uint64_t shard_bytes[] = { 0, 300, 0, 600, 300 };
    struct zr_model *model = model_of(TINY_GPT2);
    struct flat flat;
    flat_make(&flat, model);
    flat_fill(&flat);
    for (uint32_t i = 0; i < ZR_COUNT(shard_bytes); i++) {
        for (uint64_t e = 0; e < model->tensors[0].count; e++)
            flat.units[0][model->tensors[0].offset + e] = (float)whole_at(50 + i, e);
        must_save(&flat, ZR_FILE_F32, shard_bytes[i]);
        must_load(50 + i);
        assert_true(is_there("model.safetensors") == (shard_bytes[i] == 0));
        assert_true(is_there("model.safetensors.index.json") == (shard_bytes[i] != 0));
    }
    flat_free(&flat);
    zr_model_free(model);
    empty_folder();
}

/* -- failing ------------------------------------------------------------------------------------------------------- */

static void a_save_that_fails_leaves_what_was_there(void **state)
{
    (void)state;
    static const uint64_t shard_bytes[] = { 0, 300 };
    struct zr_model *model = model_of(TINY_GPT2);
    struct flat flat;
    for (size_t s = 0; s < 2; s++) {
        struct zr_text names = { 0 }, bytes = { 0 };
        flat_make(&flat, model);
        flat_fill(&flat);
        must_save(&flat, ZR_FILE_F32, shard_bytes[s]);
        photograph(&names, &bytes);
        for (uint64_t i = 0; i < model->units[1].elements; i++)
            flat.units[1][i] = 1; /* what must not be seen */
        for (uint32_t at = 1; at <= model->tensor_count; at += 3) {
            struct zr_text names_now = { 0 }, bytes_now = { 0 };
            struct zr_error err;
            flat.fail_at = at;
            assert_int_equal(save(&flat, ZR_FILE_F32, shard_bytes[s], &err), ZR_EIO);
            assert_non_null(strstr(err.text, "the source has failed"));
            photograph(&names_now, &bytes_now);
            assert_string_equal(names.at, names_now.at);
            assert_int_equal(bytes.length, bytes_now.length);
            assert_memory_equal(bytes.at, bytes_now.at, bytes.length);
            zr_text_fini(&names_now);
            zr_text_fini(&bytes_now);
        }
        must_load(0);
        zr_text_fini(&names);
        zr_text_fini(&bytes);
        flat_free(&flat);
        empty_folder();
    }
    zr_model_free(model);
}

static void a_file_that_cannot_grow_fails_the_save_by_name(void **state)
{
    /* A limit on the size of files stands for a disk that fills up. */
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    struct flat flat;
    struct rlimit before, small;
    struct zr_error err;
    flat_make(&flat, model);
    flat_fill(&flat);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t limit = 0; limit < 3000; limit += 700) {
        small = before;
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        enum zr_code code = save(&flat, ZR_FILE_F32, 0, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_true(code == ZR_EIO || code == ZR_EFULL);
        if (!strstr(err.text, "model.safetensors")) fail_msg("%s", err.text);
        struct zr_text names = { 0 }, bytes = { 0 };
        photograph(&names, &bytes);
        assert_int_equal(names.length, 0);
        zr_text_fini(&names);
        zr_text_fini(&bytes);
    }
    signal(SIGXFSZ, SIG_DFL);
    flat_free(&flat);
    zr_model_free(model);
}

static void the_byte_tokenizer_has_257_tokens_and_each_byte_is_itself(void **state)
{
    (void)state;
    struct zr_model *model = model_of(TINY_GPT2);
    struct flat flat;
    struct zr_error err = { 0 };
    char path[TEMP_PATH_BYTES];
    flat_make(&flat, model);
    flat_fill(&flat);
    int fd = open_folder(folder);
    struct zr_hf_save what = {
        .model = model, .dtype = ZR_FILE_F32, .source = flat_source, .context = &flat, .byte_tokenizer = true
    };
    assert_int_equal(zr_hf_save(fd, "out", &what, &err), ZR_OK);
    close(fd);
    json_t *root = json_load_file(temp_path(path, folder, "tokenizer.json"), 0, NULL);
    json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab");
    assert_int_equal(json_object_size(vocabulary), 256);
    /* GPT-2's table of printable stand-ins: 'A' is itself, a newline is U+010A, a blank U+0120, byte 0 U+0100. */
    assert_int_equal(json_integer_value(json_object_get(vocabulary, "A")), 'A');
    assert_int_equal(json_integer_value(json_object_get(vocabulary, "\xc4\x8a")), '\n');
    assert_int_equal(json_integer_value(json_object_get(vocabulary, "\xc4\xa0")), ' ');
    assert_int_equal(json_integer_value(json_object_get(vocabulary, "\xc4\x80")), 0);
    assert_int_equal(json_integer_value(json_object_get(vocabulary, "\xc3\xbf")), 255);
    bool seen[256] = { false };
    const char *key;
    json_t *value;
    json_object_foreach(vocabulary, key, value)
    {
        assert_false(seen[json_integer_value(value)]);
        seen[json_integer_value(value)] = true;
    }
    json_decref(root);
    assert_true(is_there("tokenizer_config.json"));
    flat_free(&flat);
    zr_model_free(model);
    empty_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_loads_to_the_same_numbers),
        cmocka_unit_test(the_index_names_every_tensor_and_its_shard),
        cmocka_unit_test(the_same_weights_give_the_same_bytes),
        cmocka_unit_test(a_tied_head_is_saved_once),
        cmocka_unit_test(a_vocabulary_of_257_keeps_its_rows),
        cmocka_unit_test(a_save_over_another_is_what_loads),
        cmocka_unit_test(a_save_that_fails_leaves_what_was_there),
        cmocka_unit_test(a_file_that_cannot_grow_fails_the_save_by_name),
        cmocka_unit_test(the_byte_tokenizer_has_257_tokens_and_each_byte_is_itself),
    };
    temp_make(folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_remove(folder);
    return failed;
}
