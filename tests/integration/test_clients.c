/* Clients come, die, come again; daemons are asked to stop: what was trained stays, to the bit. */
#include "run.h"
#include <sys/resource.h>

enum { STEPS = SANITIZED ? 16 : 60, TEXT_BYTES = 60000 };

static int make_text_file(void **state)
{
    static char text[TEXT_BYTES];
    make_folder(state);
    write_file(in_folder("text"), text, make_text(text, sizeof text));
    return 0;
}

static void wait_for_step(const char *job, int64_t step)
{
    for (int i = 0; i < 6000; i++) {
        if (job_step(job) >= step) return;
        doze(0.02);
    }
    fail_msg("job %s does not reach step %lld", job, (long long)step);
}

#define TRAIN "%s train --host %s/sock --job %s --data %s/text --steps %d --json"

static void a_job_whose_client_was_killed_goes_on_with_the_rows_that_were_left(void **state)
{
    (void)state;
    pid_t daemon = start_zerod("");
    assert_run(run(TRAIN " --save %s/whole", ZEROCTL, folder, "whole", folder, STEPS, folder), 0);
    assert_said("effective batch 8 = 2 x 4 x 1 sequences of 128");

    pid_t client = start("first", TRAIN, ZEROCTL, folder, "killed", folder, STEPS);
    wait_for_step("killed", 5);
    kill(client, SIGKILL);
    assert_int_equal(wait_for(client), 128 + SIGKILL);
    const int64_t reached = job_step("killed");
    assert_true(reached >= 5 && reached < STEPS);
    assert_run(run(TRAIN " --save %s/resumed", ZEROCTL, folder, "killed", folder, STEPS, folder), 0);
    assert_int_equal((int)printed_number("steps"), STEPS);
    assert_true(same_file(in_folder("whole/model.safetensors"), in_folder("resumed/model.safetensors")));

    assert_run(run("%s stop --host %s/sock whole", ZEROCTL, folder), 0);
    assert_int_equal(job_step("whole"), -1);
    assert_int_equal(job_step("killed"), STEPS);
    assert_run(run("%s stop --host %s/sock", ZEROCTL, folder), 0);
    assert_int_equal(wait_for(daemon), 0);
    assert_int_equal(access(in_folder("sock"), F_OK), -1);
}

/* DMN-4: the client ends with 75 after the step, saved; the daemon with 0. */
static void being_asked_to_stop_saves_first(void **state)
{
    (void)state;
    pid_t daemon = start_zerod("");
    pid_t client = start("client", TRAIN " --save %s/out", ZEROCTL, folder, "long", folder, 100000, folder);
    wait_for_step("long", 3);
    kill(client, SIGTERM);
    assert_int_equal(wait_for(client), 75);
    assert_int_equal(access(in_folder("out/model.safetensors"), R_OK), 0);
    const int64_t reached = job_step("long");
    assert_true(reached >= 3);

    client = start("client", TRAIN " --save %s/out2", ZEROCTL, folder, "long", folder, 100000, folder);
    wait_for_step("long", reached + 3);
    kill(client, SIGINT);
    assert_int_equal(wait_for(client), 0);
    assert_int_equal(access(in_folder("out2/model.safetensors"), R_OK), 0);

    client = start("client", TRAIN, ZEROCTL, folder, "long", folder, 100000);
    doze(0.3);
    kill(daemon, SIGTERM);
    assert_int_equal(wait_for(daemon), 0);
    int code = wait_for(client);
    read_into(in_folder("client-err"), err_text);
    if (code != 69) fail_msg("the client ended with %d: %s", code, err_text);
}

/* DMN-1, DMN-6: a killed daemon's socket is taken over; a living one's is not. */
static void a_second_daemon_leaves_the_first_alone(void **state)
{
    (void)state;
    pid_t first = start_zerod("");
    assert_int_not_equal(run("%s --config %s --set zerod.socket=%s/sock", ZEROD, QUICKSTART, folder), 0);
    char number[32];
    snprintf(number, sizeof number, "%d", (int)first);
    assert_said(number);
    assert_run(run("%s status --host %s/sock", ZEROCTL, folder), 0);
    kill(first, SIGKILL);
    wait_for(first);
    assert_run(run("%s status --host %s/sock", ZEROCTL, folder), 69);
    pid_t second = start_zerod("");
    kill(second, SIGTERM);
    assert_int_equal(wait_for(second), 0);
}

static uint64_t resident_bytes(pid_t pid)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1) break;
    fclose(file);
    return kib * 1024;
}

/* Peak resident memory less what was planned; sanitizers have memory of their own. */
static void the_daemon_holds_little_beside_its_budgets(void **state)
{
    (void)state;
    pid_t daemon = start_zerod("");
    assert_run(run(TRAIN, ZEROCTL, folder, "job", folder, STEPS), 0);
    const double planned = printed_number("device_peak_bytes") + printed_number("host_peak_bytes");
    const double beside = (double)resident_bytes(daemon) - planned;
    print_message("%.1f MiB beside the %.1f MiB that were planned\n", beside / 1048576, planned / 1048576);
    assert_true(SANITIZED || beside < 64 * 1048576.0);
    kill(daemon, SIGTERM);
    assert_int_equal(wait_for(daemon), 0);
}

/* The example of the documentation does what it says. */
static void the_c_example_trains(void **state)
{
    (void)state;
    pid_t daemon = start_zerod("");
    char host[160];
    snprintf(host, sizeof host, "unix://%s/sock", folder);
    setenv("ZEROD_HOST", host, 1);
    assert_run(run("%s/bin/example_train %s/text 3 %s/out", ZR_BINARY_DIR, folder, folder), 0);
    unsetenv("ZEROD_HOST");
    assert_non_null(strstr(out_text, "step 3  loss "));
    assert_int_equal(access(in_folder("out/model.safetensors"), R_OK), 0);
    kill(daemon, SIGTERM);
    assert_int_equal(wait_for(daemon), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_job_whose_client_was_killed_goes_on_with_the_rows_that_were_left,
                                        make_text_file, remove_folder),
        cmocka_unit_test_setup_teardown(being_asked_to_stop_saves_first, make_text_file, remove_folder),
        cmocka_unit_test_setup_teardown(a_second_daemon_leaves_the_first_alone, make_text_file, remove_folder),
        cmocka_unit_test_setup_teardown(the_c_example_trains, make_text_file, remove_folder),
        cmocka_unit_test_setup_teardown(the_daemon_holds_little_beside_its_budgets, make_text_file, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
