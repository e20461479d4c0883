/* YAML is read as text with places; what could mean two things is refused. */
#include "reading.h"

#define BATCH "train_batch_size: 8\n"

static void scalars_are_typed_by_the_key_and_not_by_yaml(void **state)
{
    (void)state;
    read_yaml(BATCH "bf16: {enabled: yes}\n"
                    "optimizer: {type: AdamW, params: {lr: 2e-5, weight_decay: 0.1}}\n" /* text to YAML 1.1 */
                    "model: {path: no}\n"
                    "zero_optimization: {stage: 2.0, offload_optimizer: {device: cpu, pin_memory: off}}\n");
    assert_ok();
    assert_int_equal(now->config.precision, ZR_PRECISION_BF16);
    assert_true(now->config.lr == 2e-5);
    assert_string_equal(now->config.model_path, "no");
    assert_int_equal(now->config.zero_stage, 2);
    assert_false(now->config.optimizer_pin_memory);

    read_yaml(BATCH "sequence_length: 1_000\n");
    assert_refused("t.yaml:2: sequence_length: '1_000' is not a whole number");
    read_yaml(BATCH "sequence_length: 1:30\n");
    assert_refused("'1:30' is not a whole number");
    read_yaml(BATCH "sequence_length: 0x10\n");
    assert_refused("'0x10' is not a whole number");
}

static void a_repeated_key_is_refused_with_both_lines(void **state)
{
    (void)state;
    read_yaml("train_batch_size: 8\n"
              "zero_optimization:\n"
              "  stage: 2\n"
              "  overlap_comm: true\n"
              "  stage: 3\n");
    assert_refused("t.yaml:5: zero_optimization.stage: given twice: 2 on line 3 and 3 on line 5");
    assert_int_equal(now->config.zero_stage, 2);

    read_yaml(BATCH "bf16: {enabled: true}\nseed: 1\nbf16: {enabled: false}\n");
    assert_refused("t.yaml:4: bf16: given twice: on line 2 and on line 4");
}

static void anchors_tags_and_second_documents_are_refused(void **state)
{
    (void)state;
    read_yaml(BATCH "model: &a {path: x}\n");
    assert_refused("t.yaml:2:8: anchors and aliases");
    read_yaml(BATCH "model: *a\n");
    assert_int_equal(now->code, ZR_ECONFIG);
    read_yaml(BATCH "seed: !!int 1\n");
    assert_refused("t.yaml:2:7: tags");
    read_yaml(BATCH "---\nseed: 1\n");
    assert_refused("t.yaml:2:1: a second document");
    read_yaml("---\n" BATCH "...\n");
    assert_ok();
    read_yaml(BATCH "? [a, b]\n: 1\n");
    assert_refused("a key must be text");
}

static void a_bomb_of_aliases_is_refused_at_its_first_anchor(void **state)
{
    (void)state;
    read_yaml("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n");
    assert_refused("t.yaml:1:4: anchors");
}

static void empty_and_foreign_texts_are_named(void **state)
{
    (void)state;
    read_yaml("");
    assert_refused("t.yaml:1:1: the file is empty");
    read_yaml("# only words\n\n");
    assert_refused("empty");
    read_yaml("- a\n- b\n");
    assert_refused("t.yaml:1:1: the file is not a mapping");
    read_yaml("just text\n");
    assert_refused("not a mapping");
    read_yaml(BATCH "zerod: 5\n");
    assert_refused("t.yaml:2: zerod: a mapping of keys belongs here");
    read_yaml(BATCH "zerod:\n"); /* a section with nothing in it */
    assert_ok();
}

static void a_broken_text_names_line_and_column(void **state)
{
    (void)state;
    read_yaml(BATCH "zero_optimization: {stage: 2\nseed: 1\n");
    assert_refused("t.yaml:3:5: not valid YAML");
    assert_said("began on line 2");
    read_yaml("train_batch_size: 8\n\tseed: 1\n");
    assert_refused("t.yaml:2:1: not valid YAML");
    static const char binary[] = "train_batch_size: 8\nseed: \x01\n";
    read_with("t.yaml", binary, sizeof binary - 1, NULL, 0);
    assert_refused("t.yaml:2:7: not a text file");
    static const char not_utf8[] = "train_batch_size: 8\nmodel: {path: \xff\xfe}\n";
    read_with("t.yaml", not_utf8, sizeof not_utf8 - 1, NULL, 0);
    assert_refused("not a text file");
    read_yaml(BATCH "model: {path: \"a\\0b\"}\n");
    assert_refused("a zero byte inside a text");
}

static void depth_and_size_have_limits(void **state)
{
    (void)state;
    struct zr_text text = { 0 };
    for (int i = 0; i < 5000; i++)
        zr_text_add(&text, "[");
    read_with("t.yaml", text.at, text.length, NULL, 0);
    assert_int_equal(now->code, ZR_ECONFIG);
    zr_text_fini(&text);

    zr_text_add(&text, "zerod: ");
    for (int i = 0; i < 40; i++)
        zr_text_add(&text, "{a: ");
    for (int i = 0; i < 40; i++)
        zr_text_add(&text, "}");
    read_with("t.yaml", text.at, text.length, NULL, 0);
    assert_refused("nested too deep");
    zr_text_fini(&text);

    for (int i = 0; i < 30000; i++)
        zr_text_add(&text, "k%d: 1\n", i);
    read_with("t.yaml", text.at, text.length, NULL, 0);
    assert_int_equal(now->code, ZR_ECONFIG);
    zr_text_fini(&text);

    for (int i = 0; i < 40000; i++)
        zr_text_add(&text, "# thirty bytes of nothing at all\n");
    read_with("t.yaml", text.at, text.length, NULL, 0);
    assert_refused("larger than");
    zr_text_fini(&text);
}

static const char whole[] = "model: {path: '/x y', config: }\nsequence_length: 128\ntrain_batch_size: 8\n"
                            "optimizer:\n  type: AdamW\n  params: {lr: 1e-3, betas: [0.9, 0.95]}\n"
                            "zero_optimization: {stage: 3, offload_param: {device: \"cpu\"}}\n"
                            "zerod: {device: {memory: 22GiB}, nvme: {planes: [], path: [/a, /b]}}\n";

static void every_prefix_and_every_flipped_byte_ends_in_an_answer(void **state)
{
    (void)state;
    char text[sizeof whole];
    for (size_t bytes = 0; bytes < sizeof whole; bytes++) {
        char *exact = malloc(bytes ? bytes : 1); /* so that reading past the end is seen */
        assert_non_null(exact);
        memcpy(exact, whole, bytes);
        read_with("t.yaml", exact, bytes, NULL, 0);
        assert_true(now->code == ZR_OK || now->code == ZR_ECONFIG);
        free(exact);
    }
    for (size_t at = 0; at + 1 < sizeof whole; at++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(text, whole, sizeof whole);
            text[at] = (char)(text[at] ^ (1 << bit));
            read_with("t.yaml", text, sizeof whole - 1, NULL, 0);
            assert_true(now->code == ZR_OK || now->code == ZR_ECONFIG);
        }
}

static void the_name_and_the_first_character_tell_the_format(void **state)
{
    (void)state;
    static const char json[] = "// a comment\n{\"train_batch_size\": 8, /* more */ }\n";
    read_with("ds_config", json, sizeof json - 1, NULL, 0);
    assert_ok();
    read_with("(standard input)", json, sizeof json - 1, NULL, 0);
    assert_ok();
    static const char yaml[] = "train_batch_size: 8\n";
    read_with("ds_config", yaml, sizeof yaml - 1, NULL, 0);
    assert_ok();
    read_with("x.json", yaml, sizeof yaml - 1, NULL, 0);
    assert_refused("x.json:1:1: a DeepSpeed file begins with {");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(scalars_are_typed_by_the_key_and_not_by_yaml),
        TEST(a_repeated_key_is_refused_with_both_lines),
        TEST(anchors_tags_and_second_documents_are_refused),
        TEST(a_bomb_of_aliases_is_refused_at_its_first_anchor),
        TEST(empty_and_foreign_texts_are_named),
        TEST(a_broken_text_names_line_and_column),
        TEST(depth_and_size_have_limits),
        TEST(every_prefix_and_every_flipped_byte_ends_in_an_answer),
        TEST(the_name_and_the_first_character_tell_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
