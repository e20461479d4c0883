/* An unknown key is an error that names the right one, or its right place. */
#include "reading.h"

static void a_slip_of_the_hand_finds_its_key(void **state)
{
    (void)state;
    static const struct {
        const char *json, *said, *hint;
    } cases[] = {
        { "\"zero_optimization\": {\"contigous_gradients\": true}",
          "t.json:2: zero_optimization.contigous_gradients: unknown key in zero_optimization",
          "hint: did you mean contiguous_gradients?" },
        { "\"gradient_cliping\": 1.0", "t.json:2: gradient_cliping: unknown key",
          "hint: did you mean gradient_clipping?" },
        { "\"zero_optimisation\": {\"stage\": 3}", "unknown key", "hint: did you mean zero_optimization?" },
        { "\"optimzer\": {\"type\": \"Adam\"}", "unknown key", "hint: did you mean optimizer?" },
        { "\"fp16\": {\"enable\": true}", "fp16.enable: unknown key in fp16", "hint: did you mean enabled?" },
        { "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"weigth_decay\": 0.1}}", "unknown key in optimizer.params",
          "hint: did you mean weight_decay?" },
        { "\"zerod\": {\"prefech\": 3}", "zerod.prefech: unknown key in zerod", "hint: did you mean prefetch?" },
        { "\"fp16\": {\"fp16_scale_tolerance\": 0.25}", "fp16.fp16_scale_tolerance: unknown key in fp16",
          "hint: the keys here are enabled, auto_cast, loss_scale" },
    };
    for (size_t i = 0; i < ZR_COUNT(cases); i++) {
        char text[400];
        snprintf(text, sizeof text, "{\"train_batch_size\": 8,\n%s}", cases[i].json);
        read_json(text);
        assert_refused(cases[i].said);
        assert_said(cases[i].hint);
    }
}

static void a_known_key_in_the_wrong_place_is_told_its_place(void **state)
{
    (void)state;
    read_json("{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2},\n\"offload_optimizer\": {\"device\": "
              "\"cpu\"}}");
    assert_refused("t.json:2: offload_optimizer: in the wrong place, where it has no effect");
    assert_said("hint: its place is zero_optimization.offload_optimizer");
    assert_int_equal(now->config.optimizer_device, ZR_PLACE_NONE);

    read_json(
        "{\"train_batch_size\": 8, \"zero_optimization\": {\n\"aio\": {\"block_size\": 262144, \"queue_depth\": 32}}}");
    assert_refused("t.json:2: zero_optimization.aio: in the wrong place");
    assert_said("hint: its place is aio");

    read_json("{\"train_batch_size\": 8, \"stage\": 3}");
    assert_refused("hint: its place is zero_optimization.stage");
    read_json("{\"train_batch_size\": 8, \"fp16\": {\"opt_level\": \"O2\"}}");
    assert_refused("fp16.opt_level: unknown key in fp16");
    assert_said("hint: amp.opt_level is the only key of that name");
}

static void a_key_that_begins_with_an_underscore_is_a_comment(void **state)
{
    (void)state;
    read_json("{\"_comment\": {\"any\": [\"thing\"]}, \"train_batch_size\": 8, \"zero_optimization\": {\"_why\": 1}}");
    assert_ok();
    assert_not_said("_comment");
}

static void what_is_near_nothing_gets_no_hint(void **state)
{
    (void)state;
    read_json("{\"train_batch_size\": 8, \"xyzzy\": 1}");
    assert_refused("t.json:1: xyzzy: unknown key");
    assert_not_said("did you mean");
    read_json("{\"train_batch_size\": 8, \"a.b.c\": 1, \"\": 2, \"zero_optimization\": {\"\\u001b[31m\": 1}}");
    assert_int_equal(now->code, ZR_ECONFIG);
    assert_not_said("\x1b"); /* a terminal obeys nobody's file */

    struct zr_text text = { 0 };
    zr_text_add(&text, "{\"train_batch_size\": 8, \"zerod\": {\"");
    for (int i = 0; i < 900; i++)
        zr_text_add(&text, "k");
    zr_text_add(&text, "\": 1}}");
    read_json(text.at);
    assert_refused("unknown key in zerod");
    zr_text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slip_of_the_hand_finds_its_key),
        TEST(a_known_key_in_the_wrong_place_is_told_its_place),
        TEST(a_key_that_begins_with_an_underscore_is_a_comment),
        TEST(what_is_near_nothing_gets_no_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
