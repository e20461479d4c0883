/* test_safetensors.c: one file: what is good is read exactly, what is bad is refused by name, and nothing crashes */
#include "files.h"
#include <jansson.h>

static char folder[TEMP_PATH_BYTES];
static int folder_fd;

static enum zr_code open_file(const char *name, struct zr_safetensors *file, struct zr_error *err)
{
    *err = (struct zr_error){ 0 };
    return zr_safetensors_open(folder_fd, name, file, err);
}

static void must_refuse(const char *what, const char *text)
{
    struct zr_safetensors file;
    struct zr_error err;
    enum zr_code code = open_file("bad.safetensors", &file, &err);
    if (code != ZR_EINPUT || !strstr(err.text, "bad.safetensors") || !strstr(err.text, text))
        fail_msg("%s: code %d, '%s'", what, (int)code, err.text);
    assert_int_equal(file.fd, -1);
    zr_safetensors_close(&file); /* as after success */
}

#define SHAPE_2 "\"shape\":[2]"

static void bad_headers_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        const char *text;
        size_t data_bytes;
    } cases[] = {
        { "", "header", 0 },
        { "[]", "not an object", 0 },
        { "null", "header", 0 },
        { "{", "header", 0 },
        { "{}x", "header", 0 },
        { "{\"a\":1}", "'a'", 0 },
        { "{\"\xff\":{}}", "header", 0 },
        { "{\"a\\u0000b\":{}}", "header", 0 },
        { "{\"__metadata__\":[]}", "__metadata__", 0 },
        { "{\"a\":{" SHAPE_2 ",\"data_offsets\":[0,8]}}", "'a'", 8 },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", "'a'", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 "}}", "'a'", 8 },
        { "{\"a\":{\"dtype\":4," SHAPE_2 ",\"data_offsets\":[0,8]}}", "'a'", 8 },
        { "{\"a\":{\"dtype\":\"F31\"," SHAPE_2 ",\"data_offsets\":[0,8]}}", "'a': its dtype", 8 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", "'a'", 8 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "'a': its shape", 8 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", "'a': its shape", 8 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]}}", "'a': its shape", 8 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", "'a': more than", 8 },
        /* 2^32 * 2^32 * 4 is 0 in 64 bits, and 2^62 * 4 too */
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", "'a': its shape", 0 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", "'a': its shape", 0 },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]}}", "header", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":8}}", "'a'", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0]}}", "'a'", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0,8,16]}}", "'a'", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[8,0]}}", "'a': data_offsets", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[-8,0]}}", "'a': data_offsets", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0,8]}}", "'a': data_offsets", 7 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[9223372036854775799,9223372036854775807]}}",
          "'a': data_offsets", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0,4]}}", "'a': data_offsets", 8 },
        { "{\"a\":{\"dtype\":\"BF16\"," SHAPE_2 ",\"data_offsets\":[0,8]}}", "'a': data_offsets", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[4,12]}}", "'a': a hole", 12 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0,8]}}", "1 bytes at the end", 9 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0,8]},"
          "\"b\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[4,12]}}",
          "'b': overlaps", 12 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0,8]},"
          "\"b\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0,8]}}",
          "overlaps", 8 },
        { "{\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[0,8]},"
          "\"a\":{\"dtype\":\"F32\"," SHAPE_2 ",\"data_offsets\":[8,16]}}",
          "header", 16 },
    };
    static const char zeros[64];
    for (size_t i = 0; i < ZR_COUNT(cases); i++) {
        size_t length = strlen(cases[i].header);
        write_raw(folder, "bad.safetensors", length, cases[i].header, length, zeros, cases[i].data_bytes);
        must_refuse(cases[i].header, cases[i].text);
    }
}

static void lengths_that_the_file_does_not_have_are_refused(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES];
    temp_path(path, folder, "bad.safetensors");
    for (int bytes = 0; bytes < 8; bytes++) {
        write_raw(folder, "bad.safetensors", 2, "{}", 2, "", 0);
        assert_int_equal(truncate(path, bytes), 0);
        must_refuse("cut in its first word", "too short");
    }
    static const uint64_t lengths[] = { 3, 1000, 1u << 31, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63 };
    for (size_t i = 0; i < ZR_COUNT(lengths); i++) {
        write_raw(folder, "bad.safetensors", lengths[i], "{}", 2, "", 0);
        must_refuse("a header beyond the end", "claims");
    }
    write_raw(folder, "bad.safetensors", 100000001, "{}", 2, "", 0);
    assert_int_equal(truncate(path, 200000000), 0); /* sparse: the file is that long, the header is not believed */
    must_refuse("a header of more than 100 MB", "claims");
    assert_int_equal(unlink(path), 0);
}

static void nesting_without_end_is_refused(void **state)
{
    (void)state;
    static char header[400000];
    memset(header, '[', sizeof header);
    memcpy(header, "{\"a\":", 5);
    write_raw(folder, "bad.safetensors", sizeof header, header, sizeof header, "", 0);
    must_refuse("nesting", "header");
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    char path[TEMP_PATH_BYTES];
    temp_path(path, folder, "bad.safetensors");
    unlink(path);
    must_refuse("nothing", "No such file");
    assert_int_equal(mkdir(path, 0700), 0);
    must_refuse("a folder", "regular");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    must_refuse("a pipe, which would block for ever", "regular");
    assert_int_equal(unlink(path), 0);
}

static void good_files_in_unusual_form_are_read(void **state)
{
    /* Out of order in the header, an empty tensor between two, a scalar, a type that is not loaded, blanks at the end. */
    (void)state;
    const char *header = "{\"late\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[4,12]},"
                         "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[4,4]},"
                         "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                         "\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[12,20]}}   ";
    const float data[] = { 3, 4, 5, 0, 0 };
    struct zr_safetensors file;
    struct zr_error err;
    float values[2];
    write_raw(folder, "good.safetensors", strlen(header), header, strlen(header), data, sizeof data);
    if (open_file("good.safetensors", &file, &err)) fail_msg("%s", err.text);
    assert_int_equal(file.tensor_count, 4);
    assert_int_equal(zr_safetensors_read_f32(&file, zr_safetensors_find(&file, "late"), 0, 2, values, &err), ZR_OK);
    assert_true(values[0] == 4 && values[1] == 5);
    assert_int_equal(zr_safetensors_read_f32(&file, zr_safetensors_find(&file, "scalar"), 0, 1, values, &err), ZR_OK);
    assert_true(values[0] == 3);
    assert_int_equal(zr_safetensors_find(&file, "empty")->bytes, 0);
    assert_null(zr_safetensors_find(&file, "none"));
    assert_int_equal(zr_safetensors_read_f32(&file, zr_safetensors_find(&file, "ids"), 0, 1, values, &err), ZR_EINPUT);
    assert_non_null(strstr(err.text, "ids"));
    assert_non_null(strstr(err.text, "I64"));
    zr_safetensors_close(&file);
}

static void every_part_of_every_format_is_read_exactly(void **state)
{
    (void)state;
    static const struct entry entries[] = {
        { "f32", "F32", { 7, 13 }, 1 },
        { "bf16", "BF16", { 91, 0 }, 2 },
        { "f16", "F16", { 13, 7 }, 3 },
    };
    struct zr_safetensors file;
    struct zr_error err;
    write_entries(folder, "good.safetensors", entries, ZR_COUNT(entries), NULL);
    if (open_file("good.safetensors", &file, &err)) fail_msg("%s", err.text);
    for (uint32_t e = 0; e < ZR_COUNT(entries); e++)
        for (uint64_t first = 0; first < 91; first += 5)
            for (uint64_t count = 1; first + count <= 91; count += 9) {
                float *values = malloc(count * sizeof *values); /* no longer than asked for */
                assert_int_equal(zr_safetensors_read_f32(&file, zr_safetensors_find(&file, entries[e].name), first,
                                                         count, values, &err),
                                 ZR_OK);
                for (uint64_t i = 0; i < count; i++)
                    assert_true(values[i] == (float)whole_at(entries[e].values, first + i));
                free(values);
            }
    zr_safetensors_close(&file);
}

static void a_file_that_shrinks_while_open_is_an_error(void **state)
{
    (void)state;
    static const struct entry entry = { "w", "F32", { 3000, 0 }, 1 };
    struct zr_safetensors file;
    struct zr_error err;
    char path[TEMP_PATH_BYTES];
    float *values = malloc(3000 * sizeof *values);
    write_entries(folder, "good.safetensors", &entry, 1, NULL);
    if (open_file("good.safetensors", &file, &err)) fail_msg("%s", err.text);
    assert_int_equal(truncate(temp_path(path, folder, "good.safetensors"), 6000), 0);
    assert_true(zr_safetensors_read_f32(&file, &file.tensors[0], 0, 3000, values, &err) != ZR_OK);
    assert_non_null(strstr(err.text, "good.safetensors"));
    free(values);
    zr_safetensors_close(&file);
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void files_with_broken_bytes_never_crash(void **state)
{
    /* Bytes changed, taken out and cut off at the end; whoever still opens can be read to the last element. */
    (void)state;
    static const struct entry entries[] = { { "a", "F32", { 2, 3 }, 1 }, { "b", "BF16", { 5, 0 }, 2 } };
    char path[TEMP_PATH_BYTES];
    unsigned char good[1024], bad[1024];
    write_entries(folder, "good.safetensors", entries, 2, NULL);
    FILE *in = fopen(temp_path(path, folder, "good.safetensors"), "re");
    size_t bytes = fread(good, 1, sizeof good, in);
    fclose(in);
    assert_true(bytes > 100 && bytes < sizeof good);
    int opened = 0;
    uint64_t random = 1;
    for (int round = 0; round < 3000; round++) {
        size_t length = bytes;
        memcpy(bad, good, bytes);
        for (uint32_t changes = draw(&random) % 4; changes > 0; changes--) {
            size_t at = draw(&random) % length;
            static const char likely[] = "0123456789[]{},:\"";
            bad[at] = draw(&random) % 2 ? (unsigned char)likely[draw(&random) % 17] : (unsigned char)draw(&random);
        }
        if (draw(&random) % 4 == 0) length = draw(&random) % length;
        FILE *out = fopen(temp_path(path, folder, "fuzz.safetensors"), "we");
        assert_int_equal(fwrite(bad, 1, length, out), length);
        fclose(out);
        struct zr_safetensors file;
        struct zr_error err;
        enum zr_code code = open_file("fuzz.safetensors", &file, &err);
        assert_true(code == ZR_OK || (code == ZR_EINPUT && strstr(err.text, "fuzz.safetensors")));
        for (uint32_t i = 0; !code && i < file.tensor_count; i++) {
            uint64_t size = file.tensors[i].dtype == ZR_FILE_F32 ? 4 : 2, count = file.tensors[i].bytes / size;
            float *values = malloc((count + 1) * sizeof *values);
            if (file.tensors[i].dtype != ZR_FILE_OTHER && count)
                assert_int_equal(zr_safetensors_read_f32(&file, &file.tensors[i], 0, count, values, &err), ZR_OK);
            free(values);
        }
        opened += code == ZR_OK;
        zr_safetensors_close(&file);
    }
    assert_true(opened > 100 && opened < 2900);
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

static void what_is_written_is_what_the_format_says(void **state)
{
    (void)state;
    static const struct zr_write_tensor table[] = { { "m", { 3, 4 } }, { "v", { 5, 0 } } };
    static const char *const names[] = { "F32", "F16", "BF16" };
    struct zr_error err = { 0 };
    char path[TEMP_PATH_BYTES];
    for (enum zr_file_dtype dtype = ZR_FILE_F32; dtype <= ZR_FILE_BF16; dtype++) {
        const size_t size = dtype == ZR_FILE_F32 ? 4 : 2;
        struct zr_safetensors_writer *writer;
        float values[17];
        for (int i = 0; i < 17; i++)
            values[i] = (float)whole_at(1, (uint64_t)i);
        assert_int_equal(zr_safetensors_create(folder_fd, "new.safetensors", table, 2, dtype, &writer, &err), ZR_OK);
        assert_int_equal(zr_safetensors_put_f32(writer, values, 7, &err), ZR_OK); /* pieces need not be tensors */
        assert_int_equal(zr_safetensors_put_f32(writer, values + 7, 10, &err), ZR_OK);
        assert_int_equal(zr_safetensors_finish(writer, &err), ZR_OK);

        unsigned char bytes[2048];
        FILE *file = fopen(temp_path(path, folder, "new.safetensors"), "re");
        size_t count = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        uint64_t length = 0;
        for (int i = 7; i >= 0; i--)
            length = length << 8 | bytes[i];
        assert_int_equal((8 + length) % 64, 0);
        assert_int_equal(count, 8 + length + 17 * size);
        json_t *header = json_loadb((char *)bytes + 8, length, JSON_REJECT_DUPLICATES, NULL);
        assert_int_equal(json_object_size(header), 3);
        const char *format, *m, *v;
        int rows, columns, width, m_begin, m_end, v_begin, v_end;
        assert_int_equal(json_unpack(header, "{s:{s:s}, s:{s:s, s:[ii!], s:[ii!]!}, s:{s:s, s:[i!], s:[ii!]!}}",
                                     "__metadata__", "format", &format, "m", "dtype", &m, "shape", &rows, &columns,
                                     "data_offsets", &m_begin, &m_end, "v", "dtype", &v, "shape", &width,
                                     "data_offsets", &v_begin, &v_end),
                         0);
        assert_string_equal(format, "pt");
        assert_string_equal(m, names[dtype]);
        assert_string_equal(v, names[dtype]);
        assert_true(rows == 3 && columns == 4 && width == 5);
        assert_true(m_begin == 0 && m_end == 12 * (int)size && v_begin == m_end && v_end == 17 * (int)size);
        json_decref(header);
        for (int i = 0; i < 17; i++) {
            int value = whole_at(1, (uint64_t)i);
            uint16_t half = dtype == ZR_FILE_F16 ? half_of_whole(value) : brain_of_whole(value);
            const unsigned char *at = bytes + 8 + length + (size_t)i * size;
            assert_memory_equal(at, dtype == ZR_FILE_F32 ? (void *)&values[i] : (void *)&half, size);
        }
    }
}

static void an_abandoned_file_is_gone(void **state)
{
    (void)state;
    static const struct zr_write_tensor table[] = { { "m", { 3, 4 } } };
    struct zr_error err = { 0 };
    struct zr_safetensors_writer *writer;
    const float values[2] = { 1, 2 };
    assert_int_equal(zr_safetensors_create(folder_fd, "gone.safetensors", table, 1, ZR_FILE_F32, &writer, &err), ZR_OK);
    assert_int_equal(zr_safetensors_put_f32(writer, values, 2, &err), ZR_OK);
    zr_safetensors_abandon(writer);
    assert_int_equal(faccessat(folder_fd, "gone.safetensors", F_OK, 0), -1);
    zr_safetensors_abandon(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_headers_are_refused_by_name),
        cmocka_unit_test(lengths_that_the_file_does_not_have_are_refused),
        cmocka_unit_test(nesting_without_end_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(good_files_in_unusual_form_are_read),
        cmocka_unit_test(every_part_of_every_format_is_read_exactly),
        cmocka_unit_test(a_file_that_shrinks_while_open_is_an_error),
        cmocka_unit_test(files_with_broken_bytes_never_crash),
        cmocka_unit_test(what_is_written_is_what_the_format_says),
        cmocka_unit_test(an_abandoned_file_is_gone),
    };
    temp_make(folder);
    folder_fd = open_folder(folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close(folder_fd);
    temp_remove(folder);
    return failed;
}
