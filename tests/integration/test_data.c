/* What zeroctl reads and writes: the same tokens train the same weights whatever file they come in; bad files are named. */
#include "run.h"
#include <math.h>

enum { TEXT_BYTES = 20000 };

static char text[TEXT_BYTES + 1];

static int make_files(void **state)
{
    static uint16_t narrow[TEXT_BYTES], headed[512 + TEXT_BYTES];
    static uint32_t wide[TEXT_BYTES];
    make_folder(state);
    const size_t count = make_text(text, TEXT_BYTES);
    for (size_t i = 0; i < count; i++)
        narrow[i] = headed[512 + i] = (uint16_t)(unsigned char)text[i], wide[i] = (unsigned char)text[i];
    const int32_t header[3] = { 20240520, 1, (int32_t)count };
    memcpy(headed, header, sizeof header);
    write_file(in_folder("text"), text, count);
    write_file(in_folder("narrow.bin"), narrow, 2 * count);
    write_file(in_folder("headed.bin"), headed, 1024 + 2 * count);
    write_file(in_folder("wide.bin"), wide, 4 * count);
    return 0;
}

static int train(const char *data, const char *more)
{
    return run("%s train --config %s --data %s/%s --steps 3 --json -q %s", ZEROCTL, QUICKSTART, folder, data, more);
}

static void bytes_and_tokens_of_any_width_are_the_same_data(void **state)
{
    (void)state;
    assert_run(train("text", ""), 0);
    const double loss = printed_number("final_loss");
    static const char *const others[][2] = { { "narrow.bin", "" },
                                             { "headed.bin", "" },
                                             { "wide.bin", "--token-type u32" } };
    for (size_t i = 0; i < 3; i++) {
        assert_run(train(others[i][0], others[i][1]), 0);
        if (printed_number("final_loss") != loss) fail_msg("%s trains something else", others[i][0]);
    }
}

static void bad_token_files_are_named_with_what_is_wrong(void **state)
{
    (void)state;
    const uint16_t large[600] = { [300] = 1000 };
    write_file(in_folder("large.bin"), large, sizeof large);
    write_file(in_folder("odd.bin"), text, 601);
    write_file(in_folder("short"), text, 200);
    write_file(in_folder("empty"), text, 0);
    const int32_t header[256] = { 20240520, 1, 5000 };
    write_file(in_folder("cut.bin"), header, sizeof header);
    assert_run(train("large.bin", ""), 1);
    assert_said("large.bin: token 300 is 1000, and the model's vocabulary has 257");
    assert_run(train("odd.bin", ""), 1);
    assert_said("odd.bin: 601 bytes");
    assert_run(train("cut.bin", ""), 1);
    assert_said("is it cut off?");
    assert_run(train("short", ""), 1);
    assert_said("200 tokens are too few");
    assert_run(train("empty", ""), 1);
    assert_said("empty");
    assert_run(train("nowhere", ""), 1);
    assert_said("nowhere: No such file");
    assert_run(train("text", "--holdout 100"), 2);
    json_t *document = printed(); /* also a failure is one JSON document */
    assert_non_null(json_object_get(json_object_get(document, "error"), "message"));
    json_decref(document);
}

static void write_lines(const char *name, const char *lines)
{
    write_file(in_folder(name), lines, strlen(lines));
}

/* One row each: documents of 3 and 4 tokens; labels that do not count are left out of the sum. */
static void examples_are_packed_and_their_labels_obeyed(void **state)
{
    (void)state;
    write_lines("all.jsonl",
                "{\"input_ids\": [1, 2, 3]}\n\n{\"input_ids\": [4, 5, 6, 7], \"labels\": [-100, 5, -100, 7]}\n");
    assert_run(train("all.jsonl", "--set train_batch_size=1 --set train_micro_batch_size_per_gpu=1 --set "
                                  "gradient_accumulation_steps=1 --steps 1"),
               0);
    /* 2, 3 follow something; of 5, 6, 7 the first and the last count */
    assert_int_equal((int)printed_number("trained_tokens"), 4);
    assert_int_equal((int)printed_number("tokens"), 128);

    write_lines("masked.jsonl", "{\"input_ids\": [0, 0, 1, 2, 3], \"attention_mask\": [0, 0, 1, 1, 1]}\n");
    assert_run(train("masked.jsonl", "--set train_batch_size=1 --set train_micro_batch_size_per_gpu=1 --set "
                                     "gradient_accumulation_steps=1 --steps 1"),
               0);
    assert_int_equal((int)printed_number("trained_tokens"), 2);

    static const char *const bad[][2] = {
        { "{\"input_ids\": [1, 2]}\n{\"input_ids\": [1, 2}\n", ".jsonl:2: " },
        { "{\"input_ids\": [1, 257]}\n", ".jsonl:1: input_ids[1] is 257" },
        { "{\"input_ids\": [1, -1]}\n", ".jsonl:1: input_ids[1] is -1" },
        { "{\"input_ids\": [1, 2.5]}\n", ".jsonl:1: input_ids[1] is not a whole number" },
        { "{\"input_ids\": [1, 2], \"labels\": [1]}\n", ".jsonl:1: labels and input_ids differ in length" },
        { "{\"tokens\": [1, 2]}\n", ".jsonl:1: input_ids is missing" },
        { "{\"input_ids\": [1]}\n", "no example of two tokens" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_lines("bad.jsonl", bad[i][0]);
        assert_run(train("bad.jsonl", ""), 1);
        assert_said(bad[i][1]);
    }
}

/* A model that was drawn with a small deviation knows nothing: the loss is that of guessing, and the same each time. */
static void evaluation_counts_every_token_once_and_changes_nothing(void **state)
{
    (void)state;
    assert_run(run("%s eval --config %s --data %s/text --json", ZEROCTL, QUICKSTART, folder), 0);
    const double loss = printed_number("loss"), tokens = printed_number("tokens");
    struct stat stat_of_text;
    assert_int_equal(stat(in_folder("text"), &stat_of_text), 0);
    assert_int_equal((int)tokens, (int)stat_of_text.st_size - 1);
    assert_true(fabs(loss - log(257)) < 0.2);
    assert_run(run("%s eval --config %s --data %s/text --holdout 5%% --json", ZEROCTL, QUICKSTART, folder), 0);
    assert_true(fabs(printed_number("tokens") - 0.05 * (double)stat_of_text.st_size) < 2);
}

static double saved_loss(const char *more)
{
    assert_run(
        run("%s eval --config %s --model %s/model --data %s/text --json %s", ZEROCTL, QUICKSTART, folder, folder, more),
        0);
    return printed_number("loss");
}

static void a_saved_model_is_read_back_and_writes_the_same(void **state)
{
    (void)state;
    char more[256], first[4096];
    snprintf(more, sizeof more, "--save %s/model --log %s/log.jsonl --chart %s/loss.svg", folder, folder, folder);
    assert_run(train("text", more), 0);
    const double loss = saved_loss("");
    assert_true(loss < log(257) - 0.1);
    assert_true(saved_loss("--set zerod.prefetch=1") == loss);
    for (int i = 0; i < 2; i++) {
        assert_run(run("%s generate --config %s --model %s/model --prompt memory --tokens 30 --temperature 0", ZEROCTL,
                       QUICKSTART, folder),
                   0);
        if (i == 0) snprintf(first, sizeof first, "%.4000s", out_text);
    }
    assert_string_equal(first, out_text);
    assert_int_equal(strlen(first), 31); /* thirty bytes and the line's end */

    read_into(in_folder("log.jsonl"), out_text);
    int lines = 0;
    for (char *line = strtok(out_text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        assert_int_equal((int)number_in(object, "step"), ++lines);
        assert_true(number_in(object, "tokens") == 1024);
        json_decref(object);
    }
    assert_int_equal(lines, 3);
    read_into(in_folder("loss.svg"), out_text);
    assert_non_null(strstr(out_text, "</svg>"));
}

static void the_command_line_is_told_what_it_got_wrong(void **state)
{
    (void)state;
    assert_run(run("%s", ZEROCTL), 2);
    assert_run(run("%s --help", ZEROCTL), 0);
    assert_run(run("%s train --help", ZEROCTL), 0);
    assert_run(run("%s tain", ZEROCTL), 2);
    assert_run(run("%s train --frobnicate", ZEROCTL), 2);
    assert_said("--frobnicate");
    assert_run(run("%s train --steps many --data x", ZEROCTL), 2);
    assert_said("--steps many: a whole number");
    assert_run(run("%s train --data", ZEROCTL), 2);
    assert_run(run("%s status --host %s/nobody", ZEROCTL, folder), 69);
    assert_said("nobody");
    assert_run(run("%s train --config %s/nowhere.yaml --data %s/text", ZEROCTL, folder, folder), 78);
    assert_said("nowhere.yaml");
    assert_run(train("text", "--set zerod.prefech=1"), 78);
    assert_said("did you mean prefetch?");
    assert_run(train("text", "--set zerod.device.memory=1MiB"), 75);
    assert_said("device");
    assert_run(run("%s plan --config %s --set zerod.device.memory=1MiB", ZEROCTL, QUICKSTART), 3);
    assert_run(run("%s plan --config %s --json", ZEROCTL, QUICKSTART), 0);
    json_decref(printed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_and_tokens_of_any_width_are_the_same_data, make_files, remove_folder),
        cmocka_unit_test_setup_teardown(bad_token_files_are_named_with_what_is_wrong, make_files, remove_folder),
        cmocka_unit_test_setup_teardown(examples_are_packed_and_their_labels_obeyed, make_files, remove_folder),
        cmocka_unit_test_setup_teardown(evaluation_counts_every_token_once_and_changes_nothing, make_files,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_saved_model_is_read_back_and_writes_the_same, make_files, remove_folder),
        cmocka_unit_test_setup_teardown(the_command_line_is_told_what_it_got_wrong, make_files, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
