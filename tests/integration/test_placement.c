/* Where the bytes live, how many threads move them and which instructions compute must not change a bit of the result. */
#include "run.h"

enum { STEPS = SANITIZED ? 2 : 6 };

static int make_folder_with_text(void **state)
{
    static char text[20000];
    make_folder(state);
    write_file(in_folder("text"), text, make_text(text, sizeof text));
    return 0;
}

static void train(const char *name, const char *settings)
{
    assert_run(run("%s train --config %s --data %s/text --steps %d --save %s/%s --json -q %s", ZEROCTL, QUICKSTART,
                   folder, STEPS, folder, name, settings),
               0);
    assert_true(printed_number("device_peak_bytes") <= printed_number("device_budget_bytes"));
}

static void no_placement_changes_a_bit(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "--set zerod.device.memory=64MiB",
        "--set zero_optimization.offload_optimizer.device=cpu",
        "--set zero_optimization.stage=3 --set zero_optimization.offload_param.device=nvme",
        "--set zero_optimization.offload_param.device=nvme --set zerod.nvme.planes=[m,v]",
        "--set zero_optimization.offload_param.device=none --set zero_optimization.offload_optimizer.device=none --set "
        "zerod.device.memory=128MiB",
        "--set zerod.optimizer.threads=1",
        "--set zerod.optimizer.threads=4",
        "--set zerod.prefetch=1",
        "--set zerod.prefetch=4",
        "--set zerod.compute.threads=1",
        "--set zerod.optimizer.simd=scalar",
        "--set zerod.optimizer.simd=avx2",
        "--set zerod.nvme.engine=threads",
        "--set zerod.optimizer.chunk=4096",
    };
    train("plain", "");
    assert_true(SANITIZED || printed_number("final_loss") < printed_number("first_loss"));
    assert_true(printed_number("model_state_bytes") >= 3 * printed_number("device_budget_bytes"));
    assert_true(printed_number("nvme_bytes_written") > 0);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        train("other", settings[i]);
        if (!same_file(in_folder("plain/model.safetensors"), in_folder("other/model.safetensors")))
            fail_msg("other weights with %s", settings[i]);
    }
}

/* The scratch file has no name: nothing is left of it, whatever happens. */
static void nothing_is_left_on_the_drive(void **state)
{
    (void)state;
    char command[160];
    mkdir(in_folder("drive"), 0700);
    snprintf(command, sizeof command, "--set zerod.nvme.path=%s/drive", folder);
    train("drive-model", command);
    assert_true(printed_number("nvme_bytes_written") > 0);
    assert_int_equal(rmdir(in_folder("drive")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_placement_changes_a_bit, make_folder_with_text, remove_folder),
        cmocka_unit_test_setup_teardown(nothing_is_left_on_the_drive, make_folder_with_text, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
