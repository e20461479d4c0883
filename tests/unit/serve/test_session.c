/* test_session.c: what clients can rely on: order, names, refusals, waiting, leaving */
#include "harness.h"
#include <jansson.h>
#include <poll.h>
#include <sys/stat.h>

static void a_job_stays_when_its_client_leaves_and_is_found_again_by_name(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, "alice/13b");
    struct zc_batch batch = harness_batch(client, 7);
    struct zc_result result = { .size = sizeof result };
    for (uint64_t step = 1; step <= 3; step++) {
        assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), 0);
        assert_int_equal(result.step, step);
        assert_int_equal(result.ticket, step);
        assert_int_equal(result.tokens, 8);
        assert_true(result.loss == 7 && result.learning_rate == 0.5 && result.applied == 1);
    }
    zc_close(client);

    client = harness_connect(h);
    struct zc_job_options attach = { .size = sizeof attach, .flags = ZC_JOB_ATTACH_ONLY, .name = "alice/13b" };
    assert_int_equal(zc_job_open(client, &attach, &job), 0);
    struct zc_job_facts facts = { .size = sizeof facts };
    assert_int_equal(zc_job_facts(job, &facts), 0);
    assert_int_equal(facts.step, 3);
    assert_int_equal(facts.tokens_seen, 24);
    assert_int_equal(facts.vocabulary, FAKE_VOCABULARY);
    assert_int_equal(facts.rows_max, FAKE_ROWS);
    assert_int_equal(facts.row_tokens_max, FAKE_ROW_TOKENS);
    assert_int_equal(facts.sequence_length, 128);
    assert_int_equal(facts.rows_per_step, 8);
    assert_int_equal(zc_job_set_max_steps(job, 50), 0);
    assert_int_equal(zc_job_facts(job, &facts), 0);
    assert_int_equal(facts.max_steps, 50);
    assert_int_equal(zc_job_set_max_steps(job, UINT64_MAX), ZC_EINPUT);
    assert_int_equal(zc_job_close(job), 0);
    assert_int_equal(zc_job_open(client, &attach, &job), ZC_EINPUT);
    assert_string_equal(zc_error_text(), "no job 'alice/13b' is open");
    zc_close(client);
    harness_stop(h);
}

static void opening_refuses_what_cannot_be_meant(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job;
    const char *const settings[] = { "train_batch_size=4" }, *const wrong[] = { "trian_batch_size=4" },
                      *const small[] = { "zerod.device.memory=1MiB" };
    struct zc_job_options options = { .size = sizeof options, .name = "j", .settings = wrong, .setting_count = 1 };
    assert_int_equal(zc_job_open(client, &options, &job), ZC_ECONFIG);
    assert_non_null(strstr(zc_error_text(), "trian_batch_size"));
    options.settings = small;
    assert_int_equal(zc_job_open(client, &options, &job), ZC_EFULL);
    assert_non_null(strstr(zc_error_text(), "missing"));
    options.settings = settings;
    assert_int_equal(zc_job_open(client, &options, &job), 0);
    struct zc_job_facts facts = { .size = sizeof facts };
    assert_int_equal(zc_job_facts(job, &facts), 0);
    assert_int_equal(facts.rows_per_step, 4);                         /* the setting counted */
    assert_int_equal(zc_job_open(client, &options, &job), ZC_EINPUT); /* settings of a job that is open already */
    options.setting_count = 0;
    options.flags = ZC_JOB_CREATE_ONLY;
    assert_int_equal(zc_job_open(client, &options, &job), ZC_EINPUT);
    options.flags = 64;
    assert_int_equal(zc_job_open(client, &options, &job), ZC_EINPUT);
    options.flags = 0;
    options.name = "two words";
    assert_int_equal(zc_job_open(client, &options, &job), ZC_EINPUT);
    options.name = "elsewhere";
    options.model_directory = h->directory; /* no config.json in it */
    assert_int_equal(zc_job_open(client, &options, &job), ZC_EINPUT);
    options.model_directory = "/nowhere";
    assert_int_equal(zc_job_open(client, &options, &job), ZC_EINPUT);
    char name[16];
    struct zc_job_options more = { .size = sizeof more, .name = name };
    for (int i = 1; i < ZR_JOBS_MAX; i++) {
        snprintf(name, sizeof name, "job%d", i);
        assert_int_equal(zc_job_open(client, &more, &job), 0);
    }
    snprintf(name, sizeof name, "onemore");
    assert_int_equal(zc_job_open(client, &more, &job), ZC_EFULL);
    zc_close(client);
    harness_stop(h);
}

/* Values out of range, nothing, and too much: refused by name, and the next good batch is as before. */
static void bad_batches_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 5), wrong;
    struct zc_result result = { .size = sizeof result };
    assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), 0);

    batch.tokens[5] = 50257;
    assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), ZC_EINPUT);
    assert_string_equal(zc_error_text(), "row 1: id 50257 is not in [0, 257)");
    assert_int_equal(result.status, ZC_EINPUT);
    batch.tokens[5] = -1;
    assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), ZC_EINPUT);
    batch.tokens[5] = 5;
    batch.flags = ZC_BATCH_LABELS;
    batch.labels[0] = 257;
    assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), ZC_EINPUT);
    for (int i = 0; i < 8; i++)
        batch.labels[i] = ZC_LABEL_IGNORED;
    assert_int_equal(zc_step(job, ZC_EVAL, &batch, &result), 0); /* all ignored: nothing is trained, nothing is wrong */
    assert_int_equal(result.trained_tokens, 0);

    wrong = batch;
    wrong.rows = 0;
    assert_int_equal(zc_step(job, ZC_TRAIN, &wrong, &result), ZC_EINPUT);
    wrong = batch;
    wrong.row_tokens = 0;
    assert_int_equal(zc_step(job, ZC_TRAIN, &wrong, &result), ZC_EINPUT);
    assert_non_null(strstr(zc_error_text(), "0 tokens"));
    wrong = batch;
    wrong.flags = 64;
    assert_int_equal(zc_step(job, ZC_TRAIN, &wrong, &result), ZC_EINPUT);
    wrong = batch;
    wrong.tokens++;
    assert_int_equal(zc_step(job, ZC_TRAIN, &wrong, &result), ZC_EINPUT);
    wrong = batch;
    wrong.flags = ZC_BATCH_DOCUMENTS;
    wrong.document_count = 5; /* room for 4 */
    assert_int_equal(zc_step(job, ZC_TRAIN, &wrong, &result), ZC_EINPUT);
    assert_int_equal(zc_submit(job, ZC_LOGITS, &batch, NULL), ZC_EINPUT);

    struct zc_batch large = { .size = sizeof large, .rows = FAKE_ROWS + 1, .row_tokens = 4 };
    assert_int_equal(zc_batch_take(client, &large), 0);
    assert_int_equal(zc_step(job, ZC_TRAIN, &large, &result), ZC_EINPUT);
    assert_string_equal(zc_error_text(), "the batch has 9 rows, the job takes at most 8");
    zc_batch_give_back(client, &large);
    large.rows = 1;
    large.row_tokens = FAKE_ROW_TOKENS + 1;
    assert_int_equal(zc_batch_take(client, &large), 0);
    assert_int_equal(zc_step(job, ZC_TRAIN, &large, &result), ZC_EINPUT);
    large.rows = large.row_tokens = 0;
    assert_int_equal(zc_batch_take(client, &large), ZC_EINPUT);
    large.rows = large.row_tokens = UINT32_MAX;
    assert_int_equal(zc_batch_take(client, &large), ZC_EFULL);

    batch.flags = 0;
    assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), 0);
    assert_string_equal(zc_error_text(), "");
    assert_int_equal(result.step, 2);
    assert_true(result.loss == 5);
    zc_close(client);
    harness_stop(h);
}

static void a_full_ring_says_so_and_every_result_comes_in_any_order_asked_for(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_connect options = { .size = sizeof options, .socket = h->socket, .ring_entries = 3 };
    struct zc_client *client;
    assert_int_equal(zc_connect(&options, &client), 0);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    struct zc_result result = { .size = sizeof result };
    for (int round = 0; round < 50; round++) {
        uint64_t tickets[4], none;
        for (int i = 0; i < 4; i++)
            assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, tickets + i), 0);
        assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, &none), ZC_EFULL);
        const int order[] = { 2, 0, 3, 1 };
        for (int i = 0; i < 4; i++) {
            assert_int_equal(zc_wait(client, tickets[order[i]], -1, &result), 0);
            assert_int_equal(result.ticket, tickets[order[i]]);
            assert_int_equal(result.step, 4 * round + order[i] + 1);
        }
        assert_int_equal(zc_wait(client, tickets[0], -1, &result), ZC_EINPUT); /* delivered already */
    }
    assert_int_equal(zc_wait(client, 0, -1, &result), ZC_EINPUT); /* nothing to wait for */
    assert_int_equal(zc_wait(client, 9999, -1, &result), ZC_EINPUT);
    assert_int_equal(zc_wait(client, 0, 0, &result), ZC_ETIME);
    zc_close(client);
    harness_stop(h);
}

static void waiting_ends_in_time_and_the_work_goes_on(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    struct zc_result result = { .size = sizeof result };
    uint64_t ticket;
    fake.step_ms = 60;
    assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, &ticket), 0);
    assert_int_equal(zc_wait(client, ticket, 0, &result), ZC_ETIME);
    assert_int_equal(zc_wait(client, ticket, 10, &result), ZC_ETIME);
    assert_int_equal(zc_wait(client, ticket, -1, &result), 0);
    assert_int_equal(result.step, 1);
    zc_close(client);
    harness_stop(h);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd wanted = { .fd = fd, .events = POLLIN };
    return poll(&wanted, 1, timeout_ms) == 1;
}

/* An event loop that takes one result per event must not miss any. */
static void the_descriptor_is_readable_while_results_wait_and_quiet_afterwards(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    struct zc_result result = { .size = sizeof result };
    int fd = zc_fd(client);
    assert_true(fd >= 0);
    assert_int_equal(zc_fd(client), fd);
    assert_false(readable(fd, 20));
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t count = 1 + round % 5;
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, NULL), 0);
        for (uint32_t i = 0; i < count; i++) {
            int code;
            do
                assert_true(readable(fd, 5000));
            while ((code = zc_wait(client, 0, 0, &result)) == ZC_ETIME);
            assert_int_equal(code, 0);
            if (round % 50 == 0) {
                char *json;
                assert_int_equal(zc_job_status(job, &json), 0); /* swallows wake-ups on the way */
                free(json);
            }
        }
        for (int spurious = 0; round % 20 == 0 && readable(fd, 5); spurious++) { /* a wake-up that came too late */
            assert_int_equal(zc_wait(client, 0, 0, &result), ZC_ETIME);
            assert_true(spurious < 2);
        }
    }
    zc_close(client);
    harness_stop(h);
}

static void two_clients_of_one_job_take_turns_whole_submissions(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *greedy = harness_connect(h), *modest = harness_connect(h);
    struct zc_job *first = harness_open(greedy, NULL), *second = harness_open(modest, NULL);
    struct zc_batch batches[2] = { harness_batch(greedy, 1), harness_batch(modest, 2) };
    struct zc_result result = { .size = sizeof result };
    fake.step_ms = 5;
    for (int i = 0; i < 40; i++)
        assert_int_equal(zc_submit(first, ZC_TRAIN, batches, NULL), 0);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(zc_step(second, ZC_TRAIN, batches + 1, &result), 0);
        assert_true(result.loss == 2);
        assert_true(result.step < 20); /* not behind all forty */
    }
    for (int i = 0; i < 40; i++) {
        assert_int_equal(zc_wait(greedy, 0, -1, &result), 0);
        assert_true(result.loss == 1);
    }
    assert_int_equal(result.step, 43);
    zc_close(greedy);
    zc_close(modest);
    harness_stop(h);
}

static void saving_comes_after_what_was_submitted_before_it(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    fake.step_ms = 3;
    for (int i = 0; i < 10; i++)
        assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, NULL), 0);
    char path[128], file[160];
    snprintf(path, sizeof path, "%s/out", h->directory);
    assert_int_equal(zc_job_save(job, path, 0), 0);
    snprintf(file, sizeof file, "%s/weights", path);
    float values[FAKE_WEIGHTS] = { 0 };
    FILE *saved = fopen(file, "rb");
    assert_non_null(saved);
    assert_int_equal(fread(values, sizeof values, 1, saved), 1);
    fclose(saved);
    assert_true(values[0] == 10);
    assert_int_equal(zc_job_save(job, "/nowhere/at/all", 0), ZC_EINPUT);
    zc_close(client);
    harness_stop(h);
}

static void what_was_submitted_before_leaving_is_finished(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h), *other = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL), *same = harness_open(other, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    fake.step_ms = 3;
    for (int i = 0; i < 20; i++)
        assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, NULL), 0);
    zc_close(client);
    struct zc_job_facts facts = { .size = sizeof facts };
    do
        assert_int_equal(zc_job_facts(same, &facts), 0);
    while (facts.step < 20);
    zc_close(other);
    harness_stop(h);
}

static void logits_come_piece_by_piece_where_the_slab_is_small(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_connect options = { .size = sizeof options, .socket = h->socket, .slab_bytes = 16384 };
    struct zc_client *client;
    assert_int_equal(zc_connect(&options, &client), 0);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = { .size = sizeof batch, .rows = 8, .row_tokens = 16 };
    assert_int_equal(zc_batch_take(client, &batch), 0);
    memset(batch.tokens, 0, 8 * 16 * 4);
    uint32_t positions[100];
    for (uint32_t i = 0; i < 100; i++)
        positions[i] = i; /* 100 x 257 x 4 bytes are 6 slabs */
    float *logits = malloc(100 * FAKE_VOCABULARY * sizeof *logits);
    assert_int_equal(zc_logits(job, &batch, positions, 100, logits), 0);
    for (uint32_t i = 0; i < 100; i++)
        for (uint32_t v = 0; v < FAKE_VOCABULARY; v++)
            assert_true(logits[i * FAKE_VOCABULARY + v] == (float)(i * 1000 + v));
    free(logits);
    zc_close(client);
    harness_stop(h);
}

static void observers_look_and_do_not_submit(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *owner = harness_connect(h), *observer = harness_connect(h);
    struct zc_job *job = harness_open(owner, NULL), *seen;
    struct zc_job_options options = { .size = sizeof options, .flags = ZC_JOB_OBSERVE };
    assert_int_equal(zc_job_open(observer, &options, &seen), 0);
    struct zc_batch batch = harness_batch(observer, 1);
    assert_int_equal(zc_step(seen, ZC_TRAIN, &batch, NULL), ZC_EACCESS);
    char *json;
    assert_int_equal(zc_job_status(seen, &json), 0);
    free(json);
    assert_int_equal(zc_job_close(job), 0);
    assert_int_equal(zc_job_status(seen, &json), ZC_EGONE);
    zc_close(owner);
    zc_close(observer);
    harness_stop(h);
}

static void status_and_trace_are_json_that_says_what_goes_on(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, "j");
    struct zc_batch batch = harness_batch(client, 1);
    assert_int_equal(zc_step(job, ZC_TRAIN, &batch, NULL), 0);
    char *text, path[128];
    assert_int_equal(zc_daemon_status(client, &text), 0);
    json_t *whole = json_loads(text, 0, NULL), *found = json_array_get(json_object_get(whole, "jobs"), 0);
    free(text);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(whole, "daemon"), "pid")), getpid());
    assert_string_equal(json_string_value(json_object_get(found, "name")), "j");
    assert_int_equal(json_integer_value(json_object_get(found, "step")), 1);
    assert_true(json_real_value(json_object_get(found, "tokens_per_second")) == 8000);
    json_t *tier = json_array_get(json_object_get(found, "tiers"), 1);
    assert_string_equal(json_string_value(json_object_get(tier, "name")), "host");
    assert_int_equal(json_integer_value(json_object_get(tier, "budget_bytes")), 20);
    json_t *session = json_array_get(json_object_get(whole, "sessions"), 0);
    assert_string_equal(json_string_value(json_object_get(session, "name")), "test");
    json_decref(whole);
    assert_int_equal(zc_job_status(job, &text), 0);
    whole = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(json_object_get(whole, "plan"));
    json_decref(whole);
    snprintf(path, sizeof path, "%s/trace.json", h->directory);
    assert_int_equal(zc_daemon_trace(client, path), 0);
    whole = json_load_file(path, 0, NULL);
    assert_non_null(json_object_get(whole, "traceEvents"));
    json_decref(whole);
    zc_close(client);
    harness_stop(h);
}

static void a_failed_job_reports_it_and_the_daemon_goes_on(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    zr_log_open((enum zr_level)0); /* the error line is meant */
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    struct zc_result result = { .size = sizeof result };
    fake.fail_next = true;
    assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), ZC_EIO);
    assert_non_null(strstr(zc_error_text(), "stopped at step 0"));
    assert_int_equal(zc_ping(client), 0);
    zc_close(client);
    harness_stop(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_stays_when_its_client_leaves_and_is_found_again_by_name),
        cmocka_unit_test(opening_refuses_what_cannot_be_meant),
        cmocka_unit_test(bad_batches_are_refused_and_change_nothing),
        cmocka_unit_test(a_full_ring_says_so_and_every_result_comes_in_any_order_asked_for),
        cmocka_unit_test(waiting_ends_in_time_and_the_work_goes_on),
        cmocka_unit_test(the_descriptor_is_readable_while_results_wait_and_quiet_afterwards),
        cmocka_unit_test(two_clients_of_one_job_take_turns_whole_submissions),
        cmocka_unit_test(saving_comes_after_what_was_submitted_before_it),
        cmocka_unit_test(what_was_submitted_before_leaving_is_finished),
        cmocka_unit_test(logits_come_piece_by_piece_where_the_slab_is_small),
        cmocka_unit_test(observers_look_and_do_not_submit),
        cmocka_unit_test(status_and_trace_are_json_that_says_what_goes_on),
        cmocka_unit_test(a_failed_job_reports_it_and_the_daemon_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
