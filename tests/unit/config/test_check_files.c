/* Files on disk: the examples, the drive's directories, files that cannot be read. */
#include "reading.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int make_folder(void **state)
{
    strcpy(folder, "/var/tmp/zerod-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return start(state);
}

static int remove_folder(void **state)
{
    rmdir(folder);
    return finish(state);
}

static struct reading *read_file(const char *path, const char *set)
{
    forget();
    now = calloc(1, sizeof *now);
    assert_non_null(now);
    now->code = zr_config_read(path, &set, set ? 1 : 0, &now->config, &now->report, &now->err);
    for (uint32_t i = 0; now->report && i < zr_config_remark_count(now->report); i++) {
        zr_config_remark_text(now->report, i, &now->said);
        zr_text_add(&now->said, "\n");
    }
    return now;
}

static void nvme_json(const char *path, const char *extra)
{
    char text[800];
    snprintf(text, sizeof text,
             "{\"train_batch_size\": 8,\n\"zero_optimization\": {\"stage\": 3,\n\"offload_optimizer\": {\"device\": "
             "\"nvme\"%s%s%s}}%s}",
             path ? ",\n\"nvme_path\": \"" : "", path ? path : "", path ? "\"" : "", extra);
    read_json(text);
}

static void the_path_on_the_drive_is_checked_with_its_line(void **state)
{
    (void)state;
    char path[128];
    nvme_json(NULL, "");
    assert_refused("t.json:3: zero_optimization.offload_optimizer.nvme_path: missing, and the device is nvme");
    snprintf(path, sizeof path, "%s/not-there", folder);
    nvme_json(path, "");
    assert_refused("t.json:4: zero_optimization.offload_optimizer.nvme_path: ");
    assert_said("there is no such directory");

    snprintf(path, sizeof path, "%s/file", folder);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    nvme_json(path, "");
    unlink(path);
    assert_refused("not a directory");

    assert_int_equal(chmod(folder, 0500), 0);
    nvme_json(folder, "");
    assert_int_equal(chmod(folder, 0700), 0);
    if (geteuid() != 0) assert_refused("not writable"); /* to root everything is */

    nvme_json(folder, "");
    assert_ok();
    assert_int_equal(now->config.nvme_path_count, 1);
    assert_string_equal(now->config.nvme_path[0], folder);
    assert_int_equal(now->config.nvme_planes, ZR_NVME_LOW | ZR_NVME_M | ZR_NVME_V);
}

static void zerods_own_path_goes_before_deepspeeds(void **state)
{
    (void)state;
    char extra[200];
    snprintf(extra, sizeof extra, ",\n\"zerod\": {\"nvme\": {\"path\": \"%s\", \"planes\": [\"v\"]}}", folder);
    nvme_json("/not/there", extra);
    assert_ok();
    assert_said("nvme_path: without effect: zerod.nvme.path goes before it");
    assert_string_equal(now->config.nvme_path[0], folder);
    assert_int_equal(now->config.nvme_planes, ZR_NVME_V);
    nvme_json(NULL, ",\n\"zerod\": {\"nvme\": {\"path\": \"/not/there\"}}");
    assert_refused("t.json:4: zerod.nvme.path: /not/there: there is no such directory");
    nvme_json(NULL, extra);
    assert_ok();
    snprintf(extra, sizeof extra, ",\n\"zerod\": {\"nvme\": {\"path\": \"%s\", \"planes\": [\"weight\"]}}", folder);
    nvme_json(NULL, extra);
    assert_ok();
    assert_said("weight is listed, but zero_optimization.offload_param.device is not nvme: it stays where it is");
    assert_int_equal(now->config.nvme_planes, 0);
}

static void aio_acts_and_zerods_own_keys_go_before_it(void **state)
{
    (void)state;
    nvme_json(folder, ",\n\"aio\": {\"block_size\": 262144, \"queue_depth\": 32}");
    assert_ok();
    assert_int_equal(now->config.io_block_bytes, 262144);
    assert_int_equal(now->config.io_depth, 32);
    nvme_json(folder, ",\n\"aio\": {\"block_size\": 262144}, \"zerod\": {\"nvme\": {\"block\": \"2MiB\"}}");
    assert_ok();
    assert_int_equal(now->config.io_block_bytes, 2 << 20);
    assert_said("aio.block_size: without effect: zerod.nvme.block goes before it");
    nvme_json(folder, "");
    assert_int_equal(now->config.io_block_bytes, 1 << 20);
}

static void a_memory_file_system_is_warned_of(void **state)
{
    (void)state;
    if (access("/dev/shm", W_OK) != 0) skip();
    nvme_json("/dev/shm", "");
    assert_ok();
    assert_said("/dev/shm: a memory file system");
}

static void the_examples_are_right(void **state)
{
    (void)state;
    char set[128];
    read_file(ZR_SOURCE_DIR "/config/examples/zero2-offload.yaml", NULL);
    assert_ok();
    assert_int_equal(now->config.zero_stage, 2);
    assert_int_equal(now->config.optimizer_device, ZR_PLACE_CPU);
    assert_int_equal(now->config.device_bytes, 22ull << 30);
    assert_int_equal(now->config.schedule, ZR_RATE_WARMUP_COSINE);
    assert_true(now->config.micro_batch_auto);

    snprintf(set, sizeof set, "zerod.nvme.path=%s", folder);
    read_file(ZR_SOURCE_DIR "/config/examples/zero3-nvme.yaml", set);
    assert_ok();
    assert_int_equal(now->config.param_device, ZR_PLACE_CPU);
    assert_int_equal(now->config.nvme_planes, ZR_NVME_LOW | ZR_NVME_M | ZR_NVME_V);

    read_file(ZR_SOURCE_DIR "/config/examples/quickstart.yaml", set);
    assert_ok();
    const struct zr_config *c = &now->config;
    assert_int_equal(c->backend, ZR_BACKEND_CPU);
    assert_int_equal(c->device_bytes, 5767168);
    assert_int_equal(c->host_bytes, 32 << 20);
    assert_int_equal(c->train_batch_size, 8);
    assert_int_equal(c->micro_batch_size, 2);
    assert_int_equal(c->gradient_accumulation_steps, 4);
    assert_int_equal(c->sequence_length, 128);
    assert_int_equal(c->nvme_planes, ZR_NVME_V);
    assert_true(c->lr == 3e-3 && c->beta2 == 0.95 && c->weight_decay == 0.1 && c->gradient_clipping == 1.0);
    assert_true(c->rate.cos_min_ratio == 0.1);
    assert_int_equal(c->rate.total_num_steps, 2500);
    assert_non_null(strstr(c->model_config_json, "\"hidden_size\":128"));
    assert_int_equal(c->precision, ZR_PRECISION_FP32);
}

static void a_file_that_cannot_be_read_is_an_input_error(void **state)
{
    (void)state;
    read_file("/not/there.yaml", NULL);
    assert_int_equal(now->code, ZR_EINPUT);
    assert_null(now->report);
    assert_string_equal(now->err.text, "/not/there.yaml: cannot be opened: No such file or directory");
    read_file(folder, NULL);
    assert_int_equal(now->code, ZR_EINPUT);
    read_file("/dev/null", NULL);
    assert_refused("empty");
    read_file("/dev/zero", NULL); /* endless */
    assert_refused("larger than");
}

#define TEST_IN_FOLDER(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(the_path_on_the_drive_is_checked_with_its_line),
        TEST_IN_FOLDER(zerods_own_path_goes_before_deepspeeds),
        TEST_IN_FOLDER(aio_acts_and_zerods_own_keys_go_before_it),
        TEST_IN_FOLDER(a_memory_file_system_is_warned_of),
        TEST_IN_FOLDER(the_examples_are_right),
        TEST_IN_FOLDER(a_file_that_cannot_be_read_is_an_input_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
