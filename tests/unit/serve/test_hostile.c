/* test_hostile.c: whatever a client writes, or however it dies, ends its own session and nothing else */
#include "harness.h"

static void put_sqe(struct raw *raw, uint32_t index, struct zrp_sqe sqe)
{
    raw->sqes[index % raw->layout.ring_entries] = sqe;
    atomic_store(&raw->up->sq_tail, index + 1);
    zrp_bell_ring(raw->bell);
}

/* The daemon says why, hangs up, counts it; a second client notices nothing. */
static void expect_end(struct harness *h, struct raw *raw, struct zc_job *bystander, const struct zc_batch *batch)
{
    uint64_t violations = atomic_load(&h->daemon.turns.violations);
    struct zc_result result = { .size = sizeof result };
    assert_int_equal(raw_receive(raw), ZRP_OK);
    assert_int_equal(raw->message.header.type, ZRP_ERROR);
    assert_true(raw->message.header.size > 0);
    assert_int_equal(raw_receive(raw), ZRP_EGONE);
    assert_true(violations + 1 >= atomic_load(&h->daemon.turns.violations));
    assert_int_equal(zc_step(bystander, ZC_TRAIN, batch, &result), 0);
    raw_close(raw);
}

static void garbage_in_a_ring_ends_that_session_alone(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    zr_log_open((enum zr_level)0); /* the warnings are meant */

    const uint32_t tails[] = { 9, 100, 0x80000000u, UINT32_MAX };
    for (size_t i = 0; i < ZR_COUNT(tails); i++) {
        struct raw *raw = raw_attach(h);
        atomic_store(&raw->up->sq_tail, tails[i]);
        zrp_bell_ring(raw->bell);
        expect_end(h, raw, job, &batch);
    }
    struct raw *raw = raw_attach(h); /* claims to have taken completions that never were */
    atomic_store(&raw->up->cq_head, 77);
    put_sqe(raw, 0, (struct zrp_sqe){ .op = ZRP_NOP });
    expect_end(h, raw, job, &batch);

    for (uint32_t kind = 0; kind < 6; kind++) {
        raw = raw_attach(h);
        struct zrp_sqe sqe = { .op = ZRP_TRAIN, .job = raw_open_job(raw), .rows = 1, .row_tokens = 16 };
        if (kind == 0) sqe.op = 200;
        if (kind == 1) sqe.flags = 128;
        if (kind == 2) sqe.zero2 = 1;
        if (kind == 3) sqe.tokens_line = UINT32_MAX;
        if (kind == 4) sqe.flags = ZRP_SQE_LABELS, sqe.labels_line = 65536 / 64;
        if (kind == 5) sqe.op = ZRP_LOGITS, sqe.position_count = 1, sqe.extra_line = 65536 / 64 - 1;
        put_sqe(raw, 0, sqe);
        expect_end(h, raw, job, &batch);
    }
    assert_int_equal(atomic_load(&h->daemon.turns.violations), 11);
    zc_close(client);
    harness_stop(h);
}

/* What is checked is the copy: a client that changes batch and entries all the time gets results or refusals. */
static void a_client_that_rewrites_everything_while_it_is_read_harms_nobody(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct raw *raw = raw_attach(h);
    uint32_t job = raw_open_job(raw), seed = 1;
    int32_t *slab = (int32_t *)(void *)((char *)raw->up_area.at + raw->layout.slab_offset);
    for (uint32_t index = 0; index < 300; index++) {
        put_sqe(raw, index,
                (struct zrp_sqe){ .op = ZRP_TRAIN, .job = job, .ticket = index, .rows = 8, .row_tokens = 128 });
        while (atomic_load(&raw->down->cq_tail) != index + 1) {
            seed = seed * 1664525u + 1013904223u;
            slab[seed >> 22] = (int32_t)(seed % 3 ? seed % 257 : seed);
            raw->sqes[(index + 1 + seed % 7) % 8].rows = seed; /* entries that are not published */
        }
        atomic_store(&raw->up->cq_head, index + 1);
    }
    raw_close(raw);
    harness_stop(h);
}

static void submissions_to_jobs_that_are_not_ones_own_are_refused(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct raw *raw = raw_attach(h);
    const uint32_t ids[] = { 0, 1, 16, 17, UINT32_MAX }; /* 16 is open, but not by this client */
    for (uint32_t i = 0; i < ZR_COUNT(ids); i++) {
        put_sqe(raw, i, (struct zrp_sqe){ .op = ZRP_TRAIN, .job = ids[i], .rows = 1, .row_tokens = 1 });
        EVENTUALLY(5000, atomic_load(&raw->down->cq_tail) == i + 1);
        const struct zrp_cqe *cqes =
            (const struct zrp_cqe *)(const void *)((char *)raw->down_area.at + raw->layout.cqe_offset);
        assert_int_equal(cqes[i].status, ZRP_EINPUT);
        atomic_store(&raw->up->cq_head, i + 1);
    }
    struct zc_job_facts facts = { .size = sizeof facts };
    assert_int_equal(zc_job_facts(job, &facts), 0);
    assert_int_equal(facts.step, 0);
    raw_close(raw);
    zc_close(client);
    harness_stop(h);
}

static void strange_messages_are_answered_or_end_the_connection(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct raw *raw = raw_attach(h);
    zrp_send(raw->socket, (enum zrp_type)999, 0, 5, ZRP_OK, NULL, 0, NULL, 0); /* unknown: kept */
    assert_int_equal(raw_receive(raw), ZRP_OK);
    assert_int_equal(raw->message.header.status, ZRP_EINPUT);
    assert_int_equal(raw->message.header.seq, 5);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uint32_t before = harness_fds();
    const enum zrp_type types[] = { ZRP_JOB_OPEN,   ZRP_JOB_CLOSE, ZRP_JOB_FACTS,
                                    ZRP_JOB_STATUS, ZRP_JOB_SAVE,  ZRP_SET_MAX_STEPS };
    unsigned char junk[512];
    for (uint32_t round = 0; round < 600; round++) {
        for (uint32_t i = 0; i < sizeof junk; i++)
            junk[i] = (unsigned char)(rand() >> 7);
        uint32_t size = round % 3 ? 16 : 200; /* sometimes the size that it should have */
        memcpy(junk, &size, sizeof size);
        int fds[] = { null, null, null };
        assert_int_equal(zrp_send(raw->socket, types[round % 6], 0, round, ZRP_OK, junk, round % sizeof junk, fds,
                                  (uint16_t)(round % 4)),
                         ZRP_OK);
        assert_int_equal(raw_receive(raw), ZRP_OK);
        assert_int_not_equal(raw->message.header.status, 0);
    }
    EVENTUALLY(5000, harness_fds() == before); /* none of the descriptors stayed with the daemon */
    close(null);
    raw_close(raw);

    int fd = raw_socket(h); /* does not greet */
    assert_int_equal(zrp_send(fd, ZRP_STATUS, 0, 1, ZRP_OK, NULL, 0, NULL, 0), ZRP_OK);
    struct zrp_message *message = malloc(sizeof *message);
    assert_int_equal(zrp_wait_readable(fd, 5000000000u), 1);
    assert_int_equal(zrp_receive(fd, message, false, NULL), ZRP_OK);
    assert_int_equal(message->header.type, ZRP_ERROR);
    close(fd);
    fd = raw_socket(h); /* speaks another version */
    struct zrp_hello hello = zrp_hello_make("x", "x", 8, 4096);
    hello.major = 9;
    assert_int_equal(zrp_send(fd, ZRP_HELLO, 0, 1, ZRP_OK, &hello, sizeof hello, NULL, 0), ZRP_OK);
    assert_int_equal(zrp_wait_readable(fd, 5000000000u), 1);
    assert_int_equal(zrp_receive(fd, message, false, NULL), ZRP_OK);
    assert_int_equal(message->header.status, ZRP_EVERSION);
    close(fd);
    fd = raw_socket(h); /* says nothing at all */
    assert_int_equal(zrp_wait_readable(fd, 5000000000u), 1);
    assert_int_equal(zrp_receive(fd, message, false, NULL), ZRP_OK);
    assert_int_equal(message->header.status, ZRP_ETIME);
    close(fd);
    free(message);
    harness_stop(h);
}

/* In a child: attaches, fills its ring with slow steps, and waits to be killed. */
static pid_t fork_victim(const struct harness *h, bool with_heir)
{
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct zc_client *client = harness_connect(h);
        struct zc_job *job = harness_open(client, NULL);
        struct zc_batch batch = harness_batch(client, 1);
        for (int i = 0; i < 30; i++)
            zc_submit(job, ZC_TRAIN, &batch, NULL);
        if (with_heir && fork() == 0) { /* like a data loader's worker: holds the socket open */
            fake_sleep(3000);
            _exit(0);
        }
        char byte = 1;
        if (write(told[1], &byte, 1) != 1) _exit(1);
        for (;;)
            pause();
    }
    char byte;
    assert_int_equal(read(told[0], &byte, 1), 1);
    close(told[0]);
    close(told[1]);
    return pid;
}

static void a_killed_client_is_noticed_its_queue_dropped_and_its_job_kept(void **state)
{
    (void)state;
    for (int with_heir = 0; with_heir < 2; with_heir++) {
        struct harness *h = harness_start();
        struct zc_client *other = harness_connect(h);
        struct zc_job *job = harness_open(other, NULL);
        struct zc_batch batch = harness_batch(other, 2);
        struct zc_result result = { .size = sizeof result };
        fake.step_ms = 10;
        uint32_t before = harness_fds();
        pid_t victim = fork_victim(h, with_heir);
        assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), 0); /* both are at work */
        assert_int_equal(kill(victim, SIGKILL), 0);
        assert_int_equal(waitpid(victim, NULL, 0), victim);
        for (int i = 0; i < 5; i++)
            assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), 0);
        assert_true(result.loss == 2);
        EVENTUALLY(5000, harness_fds() == before);
        uint64_t step = result.step;
        assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), 0);
        assert_int_equal(result.step, step + 1); /* nothing of the dead one's runs any more */
        assert_true(result.step < 25);
        struct zc_client *heir = harness_connect(h);
        struct zc_job *again = harness_open(heir, NULL);
        struct zc_batch next = harness_batch(heir, 3);
        assert_int_equal(zc_step(again, ZC_TRAIN, &next, &result), 0);
        assert_int_equal(result.step, step + 2);
        zc_close(heir);
        zc_close(other);
        harness_stop(h);
    }
}

/* A client that is stopped in the middle holds nobody up. */
static void a_frozen_client_holds_nobody_up(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    struct zc_client *other = harness_connect(h);
    struct zc_job *job = harness_open(other, NULL);
    struct zc_batch batch = harness_batch(other, 2);
    struct zc_result result = { .size = sizeof result };
    fake.step_ms = 2;
    pid_t victim = fork_victim(h, false);
    kill(victim, SIGSTOP);
    for (int i = 0; i < 60; i++)
        assert_int_equal(zc_step(job, ZC_TRAIN, &batch, &result), 0);
    assert_int_equal(result.step, 90); /* the frozen one's thirty were run as well */
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
    zc_close(other);
    harness_stop(h);
}

static void coming_and_going_leaves_no_descriptor_and_no_memory_mapped(void **state)
{
    (void)state;
    struct harness *h = harness_start();
    uint32_t before = harness_fds();
    for (int i = 0; i < 200; i++) {
        struct zc_client *client = harness_connect(h);
        if (i % 2) assert_int_equal(zc_ping(client), 0);
        if (i % 3) assert_true(zc_fd(client) >= 0);
        zc_close(client);
    }
    EVENTUALLY(5000, atomic_load(&h->daemon.turns.known) == 0);
    EVENTUALLY(5000, harness_fds() == before);
    struct zc_client *clients[ZR_SESSIONS_MAX], *one_more;
    for (int i = 0; i < ZR_SESSIONS_MAX; i++)
        clients[i] = harness_connect(h);
    struct zc_connect options = { .size = sizeof options, .socket = h->socket };
    assert_int_equal(zc_connect(&options, &one_more), ZC_EFULL);
    for (int i = 0; i < ZR_SESSIONS_MAX; i++) {
        assert_int_equal(zc_ping(clients[i]), 0);
        zc_close(clients[i]);
    }
    EVENTUALLY(5000, harness_fds() == before);
    harness_stop(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_in_a_ring_ends_that_session_alone),
        cmocka_unit_test(a_client_that_rewrites_everything_while_it_is_read_harms_nobody),
        cmocka_unit_test(submissions_to_jobs_that_are_not_ones_own_are_refused),
        cmocka_unit_test(strange_messages_are_answered_or_end_the_connection),
        cmocka_unit_test(a_killed_client_is_noticed_its_queue_dropped_and_its_job_kept),
        cmocka_unit_test(a_frozen_client_holds_nobody_up),
        cmocka_unit_test(coming_and_going_leaves_no_descriptor_and_no_memory_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
