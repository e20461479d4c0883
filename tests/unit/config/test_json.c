/* DeepSpeed's JSON: what its Hjson reader takes is taken, with the values and places unharmed. */
#include "reading.h"

static void comments_and_trailing_commas_do_no_harm(void **state)
{
    (void)state;
    read_json("{ // train\n"
              "  \"train_batch_size\": 8, # sequences\n"
              "  /* over\n     two lines */ \"model\": {\"path\": \"/a//b#c/*d*/\"},\n"
              "  \"seed\": 7, // last\n"
              "}\n"
              "# end\n");
    assert_ok();
    assert_int_equal(now->config.train_batch_size, 8);
    assert_int_equal(now->config.seed, 7);
    assert_string_equal(now->config.model_path, "/a//b#c/*d*/");

    read_json("{\n  \"train_batch_size\": 8, /* a\n b */\n  \"seed\": -1,\n}\n");
    assert_refused("t.json:4: seed: '-1' is not a whole number");
}

static void byte_order_mark_line_ends_tabs_and_escapes_pass(void **state)
{
    (void)state;
    read_json("\xef\xbb\xbf{\r\n\t\"train_batch_size\":8,\r\n\t\"model\":{\"path\":\"\\/"
              "x\\u00e9\\\"y\"},\r\n\"seed\":1}\r\n");
    assert_ok();
    assert_string_equal(now->config.model_path, "/x\xc3\xa9\"y");
    assert_int_equal(now->config.seed, 1);
    read_json("\xef\xbb\xbf{\r\n\"train_batch_size\": 8,\r\n\"sed\": 1}");
    assert_refused("t.json:3: sed: unknown key");
}

static void numbers_are_numbers_however_they_are_written(void **state)
{
    (void)state;
    read_json("{\"train_batch_size\": 1e3, \"train_micro_batch_size_per_gpu\": 500.0,"
              " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"3e-4\", \"eps\": 1E-8}}}");
    assert_ok();
    assert_int_equal(now->config.gradient_accumulation_steps, 2);
    assert_true(now->config.lr == 3e-4);
    assert_true(now->config.eps == 1e-8);
}

static void a_missing_comma_or_quote_is_found_where_it_is(void **state)
{
    (void)state;
    read_json("{\n  \"train_batch_size\": 8\n  \"seed\": 1\n}");
    assert_int_equal(now->code, ZR_ECONFIG);
    assert_said("t.json:");
    read_json("{\n  \"train_batch_size\": 8,\n  \"model\": {\"path\": \"/x},\n  \"seed\": 1\n}");
    assert_refused("t.json:3:21: the text that begins here is not closed on its line");
    read_json("{\"train_batch_size\": 8, \"model\": {\"path\": /x}}");
    assert_refused("t.json:1:43: /x is not a number, true, false or null");
    read_json("{\"train_batch_size\": }");
    assert_refused("a value is missing");
    read_json("{\"train_batch_size\": 8, 'seed': 1}");
    assert_refused("t.json:1:25: text stands in double quotes");
    read_json("{\"train_batch_size\": True}");
    assert_refused("True is not a number, true, false or null");
    read_json("{\"train_batch_size\": &a 8}");
    assert_refused("no meaning in JSON");
}

static void empty_and_cut_files_name_the_place(void **state)
{
    (void)state;
    read_json("");
    assert_refused("t.json:1:1: the file is empty");
    read_json(" \n // nothing\n");
    assert_refused("empty");
    read_json("{\n \"train_batch_size\": 8,\n \"bf16\": {\"enabled\": tr");
    assert_int_equal(now->code, ZR_ECONFIG);
    assert_said("t.json:3:");
    read_json("{\n \"train_batch_size\": 8, /* never");
    assert_refused("t.json:2:25: the comment that begins here is never closed");
    read_json("[1, 2]");
    assert_refused("t.json:1:1: a DeepSpeed file begins with {");
    read_json("{\"train_batch_size\": 8}\n{\"train_batch_size\": 8}");
    assert_int_equal(now->code, ZR_ECONFIG);
    read_json("{\"a\": \"\\ud83d\\ude00\"}");
    assert_refused("write the character itself");
}

static void repeated_keys_name_both_lines_and_values(void **state)
{
    (void)state;
    read_json("{\n\"train_batch_size\": 8,\n\"zero_optimization\": {\n\"stage\": 2,\n\n\n\n\n\"stage\": 3}}");
    assert_refused("t.json:9: zero_optimization.stage: given twice: 2 on line 4 and 3 on line 9");
    read_json("{\"train_batch_size\": 8,\n\"fp16\": {},\n\"fp16\": {\"enabled\": true}}");
    assert_refused("t.json:3: fp16: given twice");
}

static const char whole[] =
    "{\"train_batch_size\": 8, /* x */ \"fp16\": {\"enabled\": false}, // y\n"
    " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-3, \"betas\": [0.9, 0.95],},},\n"
    " \"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true, \"reduce_bucket_size\": 5e8}, # z\n"
    " \"model\": {\"path\": \"\\u00e9\\\\\"}}\n";

static void every_prefix_and_every_flipped_byte_ends_in_an_answer(void **state)
{
    (void)state;
    char text[sizeof whole];
    for (size_t bytes = 0; bytes < sizeof whole; bytes++) {
        char *exact = malloc(bytes ? bytes : 1);
        assert_non_null(exact);
        memcpy(exact, whole, bytes);
        read_with("t.json", exact, bytes, NULL, 0);
        assert_true(bytes + 2 >= sizeof whole || now->code == ZR_ECONFIG);
        free(exact);
    }
    for (size_t at = 0; at + 1 < sizeof whole; at++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(text, whole, sizeof whole);
            text[at] = (char)(text[at] ^ (1 << bit));
            read_with("t.json", text, sizeof whole - 1, NULL, 0);
            assert_true(now->code == ZR_OK || now->code == ZR_ECONFIG);
        }
}

static void hostile_shapes_are_errors(void **state)
{
    (void)state;
    struct zr_text text = { 0 };
    zr_text_add(&text, "{\"train_batch_size\": 8, \"a\": ");
    for (int i = 0; i < 20000; i++)
        zr_text_add(&text, "[");
    read_with("t.json", text.at, text.length, NULL, 0);
    assert_refused("nested too deep");
    zr_text_fini(&text);
    zr_text_add(&text, "{\"train_batch_size\": ");
    for (int i = 0; i < 100000; i++)
        zr_text_add(&text, "9");
    zr_text_add(&text, "}");
    read_with("t.json", text.at, text.length, NULL, 0);
    assert_int_equal(now->code, ZR_ECONFIG);
    zr_text_fini(&text);
    static const char zero[] = "{\"train_batch_size\": 8, \0 \"seed\": 1}";
    read_with("t.json", zero, sizeof zero - 1, NULL, 0);
    assert_int_equal(now->code, ZR_ECONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(comments_and_trailing_commas_do_no_harm),
        TEST(byte_order_mark_line_ends_tabs_and_escapes_pass),
        TEST(numbers_are_numbers_however_they_are_written),
        TEST(a_missing_comma_or_quote_is_found_where_it_is),
        TEST(empty_and_cut_files_name_the_place),
        TEST(repeated_keys_name_both_lines_and_values),
        TEST(every_prefix_and_every_flipped_byte_ends_in_an_answer),
        TEST(hostile_shapes_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
