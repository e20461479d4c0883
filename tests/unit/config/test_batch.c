/* train = micro x accumulation x ranks, by DeepSpeed's rules, for any launcher. */
#include "reading.h"

static void batch_is(uint32_t train, uint32_t micro, uint32_t accumulation)
{
    assert_ok();
    assert_int_equal(now->config.train_batch_size, train);
    assert_int_equal(now->config.micro_batch_size, micro);
    assert_int_equal(now->config.gradient_accumulation_steps, accumulation);
}

static void three_that_do_not_multiply_out_are_refused_with_all_numbers(void **state)
{
    (void)state;
    static const char text[] = "{\"train_batch_size\": 8,\n \"train_micro_batch_size_per_gpu\": 2,\n"
                               " \"gradient_accumulation_steps\": 1}";
    read_json(text);
    assert_refused("t.json:1: train_batch_size: ");
    assert_said("train_batch_size 8 (line 1)");
    assert_said("train_micro_batch_size_per_gpu 2 (line 2)");
    assert_said("gradient_accumulation_steps 1 (line 3)");
    assert_said("8 is not 2 x 1 x 1 = 2");
    assert_said("1 rank (one process: WORLD_SIZE is not set)");
    assert_said("set gradient_accumulation_steps to 4");
    assert_said("start 4 ranks");

    setenv("WORLD_SIZE", "4", 1);
    read_json(text);
    batch_is(8, 2, 1);
    assert_int_equal(now->config.ranks, 4);
    assert_string_equal(now->config.ranks_origin, "WORLD_SIZE in the environment");
}

static void one_corner_is_filled_from_the_others(void **state)
{
    (void)state;
    read_json("{\"train_batch_size\": 2, \"train_micro_batch_size_per_gpu\": 1}");
    batch_is(2, 1, 2);
    read_json("{\"train_batch_size\": 2048, \"gradient_accumulation_steps\": 1}");
    batch_is(2048, 2048, 1);
    assert_false(now->config.micro_batch_auto);
    read_json("{\"train_micro_batch_size_per_gpu\": 32, \"gradient_accumulation_steps\": 8}");
    batch_is(256, 32, 8);
    read_json("{\"train_micro_batch_size_per_gpu\": 3}");
    batch_is(3, 3, 1);
    read_json("{\"train_batch_size\": 128}");
    batch_is(128, 128, 1);
    assert_true(now->config.micro_batch_auto);

    setenv("WORLD_SIZE", "2", 1);
    read_json("{\"train_batch_size\": 2, \"train_micro_batch_size_per_gpu\": 1}");
    batch_is(2, 1, 1);
    read_json("{\"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4}");
    batch_is(16, 2, 4);
    struct zr_text summary = { 0 };
    zr_config_summary(&now->config, now->report, &summary);
    assert_non_null(strstr(summary.at, "effective batch 16 = 2 x 4 x 2"));
    zr_text_fini(&summary);
}

static void integer_division_that_leaves_a_rest_is_refused(void **state)
{
    (void)state;
    setenv("WORLD_SIZE", "3", 1);
    read_json("{\"train_batch_size\": 128}");
    assert_refused("128 is not a multiple of 3");
    read_json("{\"train_batch_size\": 2, \"train_micro_batch_size_per_gpu\": 1}");
    assert_refused("2 is not a multiple of 1 x 3");
    read_json("{\"train_batch_size\": 8, \"gradient_accumulation_steps\": 2}");
    assert_refused("8 is not a multiple of 2 x 3");
    setenv("WORLD_SIZE", "32", 1);
    read_json(
        "{\"train_batch_size\": 1024, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 16}");
    batch_is(1024, 2, 16);
}

static void nothing_given_is_one_message_with_three_names(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"zero_optimization\": {\"stage\": 1}}",
        "{\"train_batch_size\": \"auto\",\n\"train_micro_batch_size_per_gpu\": "
        "\"auto\",\n\"gradient_accumulation_steps\": \"auto\"}",
        "{\"train_micro_batch_size_per_gpu\": \"auto\"}",
        "{\"gradient_accumulation_steps\": 4}",
    };
    for (size_t i = 0; i < ZR_COUNT(texts); i++) {
        read_json(texts[i]);
        assert_refused(
            "no batch size: train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps");
        uint32_t errors = 0;
        for (uint32_t r = 0; r < zr_config_remark_count(now->report); r++)
            errors += zr_config_remark(now->report, r)->kind == ZR_REMARK_ERROR;
        assert_int_equal(errors, 1);
    }
    read_json_set(texts[1], "train_micro_batch_size_per_gpu=2");
    batch_is(2, 2, 1);
    read_json("{\"train_batch_size\": 0}");
    assert_refused("train_batch_size: 0 is out of range: 1 to 4,294,967,295 sequences");
    assert_not_said("no batch size");
}

static void products_beyond_32_bits_are_refused(void **state)
{
    (void)state;
    read_json("{\"train_micro_batch_size_per_gpu\": 4294967295, \"gradient_accumulation_steps\": 4294967295}");
    assert_refused("above 4,294,967,295");
    read_json("{\"train_batch_size\": 1, \"train_micro_batch_size_per_gpu\": 4294967295, "
              "\"gradient_accumulation_steps\": 4294967295}");
    assert_refused("do not fit together");
}

static void ranks_come_from_the_launcher(void **state)
{
    (void)state;
    static const char text[] = "{\"train_batch_size\": 8}";
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    read_json(text);
    assert_int_equal(now->config.ranks, 2);
    setenv("WORLD_SIZE", "4", 1);
    read_json(text);
    assert_refused("2 ranks, but WORLD_SIZE says 4: two launchers disagree");
    no_launcher();

    setenv("SLURM_NTASKS", "8", 1); /* salloc: no step, one process */
    read_json(text);
    assert_int_equal(now->config.ranks, 1);
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_JOB_ID", "7", 1); /* a batch script */
    read_json(text);
    assert_int_equal(now->config.ranks, 1);
    setenv("SLURM_STEP_ID", "0", 1); /* srun */
    read_json(text);
    assert_int_equal(now->config.ranks, 8);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1); /* mpirun inside it */
    read_json(text);
    assert_int_equal(now->config.ranks, 2);
    no_launcher();

    setenv("WORLD_SIZE", "two", 1);
    read_json(text);
    assert_refused("WORLD_SIZE: 'two' in the environment is not a number of ranks");
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", "2", 1);
    read_json(text);
    assert_refused("rank 2 of 2");
    no_launcher();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(three_that_do_not_multiply_out_are_refused_with_all_numbers),
        TEST(one_corner_is_filled_from_the_others),
        TEST(integer_division_that_leaves_a_rest_is_refused),
        TEST(nothing_given_is_one_message_with_three_names),
        TEST(products_beyond_32_bits_are_refused),
        TEST(ranks_come_from_the_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
