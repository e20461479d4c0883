/* harness.h: a daemon in a thread or in a child, raw clients, and what is left over afterwards */
#ifndef HARNESS_H
#define HARNESS_H

#include "clients/lib/zeroclient.h"
#include "engine/base/log.h"
#include "engine/serve/daemon.h"
#include "fake_engine.h"
#include "ipc/hello.h"
#include "ipc/wait.h"
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

struct harness {
    char directory[64], socket[96], text[768];
    struct zr_config config;
    struct zr_base_config base;
    struct zr_daemon daemon;
    pthread_t thread;
    bool runs;
};

/* Before any daemon thread: a config whose socket lies in a fresh directory. */
static inline void harness_configure(struct harness *h)
{
    snprintf(h->directory, sizeof h->directory, "/tmp/zerod-test-XXXXXX");
    assert_non_null(mkdtemp(h->directory));
    snprintf(h->socket, sizeof h->socket, "%s/run/zerod.sock", h->directory);
    snprintf(h->text, sizeof h->text,
             "model: {config: {model_type: llama, vocab_size: 257, hidden_size: 32, intermediate_size: 64,\n"
             "  num_hidden_layers: 1, num_attention_heads: 2, max_position_embeddings: 128}}\n"
             "sequence_length: 128\n"
             "train_batch_size: 8\n"
             "optimizer: {type: AdamW, params: {lr: 1.0e-3}}\n"
             "zerod:\n"
             "  socket: %s\n"
             "  device: {backend: cpu}\n",
             h->socket);
    struct zr_config_report *report = NULL;
    struct zr_error err = { 0 };
    if (zr_config_read_text("test.yaml", h->text, strlen(h->text), NULL, 0, &h->config, &report, &err) != ZR_OK)
        fail_msg("%s", err.text);
    zr_config_report_free(report);
    h->base =
        (struct zr_base_config){ .name = "test.yaml", .text = h->text, .bytes = strlen(h->text), .config = &h->config };
    zr_log_open(ZR_LOG_ERROR);
}

static inline void *harness_loop(void *context)
{
    struct harness *h = context;
    zr_daemon_loop(&h->daemon);
    return NULL;
}

static inline struct harness *harness_start(void)
{
    struct harness *h = calloc(1, sizeof *h);
    harness_configure(h);
    struct zr_error err = { 0 };
    if (zr_daemon_open(&h->daemon, &h->base, &err) != ZR_OK) fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&h->thread, NULL, harness_loop, h), 0);
    h->runs = true;
    return h;
}

static inline void harness_stop(struct harness *h)
{
    if (h->runs) {
        zr_daemon_stop(&h->daemon);
        pthread_join(h->thread, NULL);
        zr_daemon_close(&h->daemon);
    }
    char path[128];
    snprintf(path, sizeof path, "rm -rf '%s'", h->directory);
    assert_int_equal(system(path), 0);
    fake.step_ms = fake.open_ms = 0;
    fake.fail_next = false;
    assert_int_equal(fake.jobs_open, 0);
    free(h);
}

static inline struct zc_client *harness_connect(const struct harness *h)
{
    struct zc_connect options = { .size = sizeof options, .socket = h->socket, .name = "test", .slab_bytes = 1 << 20 };
    struct zc_client *client = NULL;
    if (zc_connect(&options, &client)) fail_msg("%s", zc_error_text());
    return client;
}

static inline struct zc_job *harness_open(struct zc_client *client, const char *name)
{
    struct zc_job_options options = { .size = sizeof options, .name = name };
    struct zc_job *job = NULL;
    if (zc_job_open(client, &options, &job)) fail_msg("%s", zc_error_text());
    return job;
}

/* A batch of 2 x 4 tokens, all `token`. */
static inline struct zc_batch harness_batch(struct zc_client *client, int32_t token)
{
    struct zc_batch batch = { .size = sizeof batch, .rows = 2, .row_tokens = 4, .document_max = 4 };
    if (zc_batch_take(client, &batch)) fail_msg("%s", zc_error_text());
    for (int i = 0; i < 8; i++)
        batch.tokens[i] = batch.labels[i] = token;
    return batch;
}

static inline uint32_t harness_fds(void)
{
    uint32_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* Waits until `condition` holds, at most `ms`; for what another thread does on its own. */
#define EVENTUALLY(ms, condition)                                                                                      \
    do {                                                                                                               \
        for (int waited = 0; !(condition); waited++) {                                                                 \
            assert_true(waited < (ms));                                                                                \
            fake_sleep(1);                                                                                             \
        }                                                                                                              \
    } while (0)

/* A client that speaks the protocol by hand and may break it. */
struct raw {
    int socket, bell;
    struct zrp_layout layout;
    struct zrp_area down_area, up_area;
    struct zrp_down *down;
    struct zrp_up *up;
    struct zrp_sqe *sqes;
    struct zrp_message message;
};

static inline int raw_socket(const struct harness *h)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%s", h->socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* The next message that is no WAKE. */
static inline enum zrp_status raw_receive(struct raw *raw)
{
    for (;;) {
        assert_int_equal(zrp_wait_readable(raw->socket, 10000000000u), 1);
        struct zrp_why why = { 0 };
        enum zrp_status status = zrp_receive(raw->socket, &raw->message, false, &why);
        if (status != ZRP_OK || raw->message.header.type != ZRP_WAKE) return status;
    }
}

static inline struct raw *raw_attach(const struct harness *h)
{
    struct raw *raw = calloc(1, sizeof *raw);
    raw->socket = raw_socket(h);
    struct zrp_hello hello = zrp_hello_make("raw", "raw", 8, 65536);
    struct zrp_welcome welcome;
    assert_int_equal(zrp_send(raw->socket, ZRP_HELLO, 0, 1, ZRP_OK, &hello, sizeof hello, NULL, 0), ZRP_OK);
    assert_int_equal(raw_receive(raw), ZRP_OK);
    assert_int_equal(
        zrp_welcome_check(raw->message.body, raw->message.header.size, &hello, &welcome, &raw->layout, NULL), ZRP_OK);
    assert_int_equal(zrp_area_map(&raw->down_area, raw->message.fds[0], raw->layout.down_bytes, false, NULL), ZRP_OK);
    assert_int_equal(zrp_area_map(&raw->up_area, raw->message.fds[1], raw->layout.up_bytes, true, NULL), ZRP_OK);
    raw->bell = raw->message.fds[2];
    raw->down = raw->down_area.at;
    raw->up = raw->up_area.at;
    raw->sqes = (struct zrp_sqe *)(void *)((char *)raw->up_area.at + raw->layout.sqe_offset);
    assert_int_equal(zrp_send(raw->socket, ZRP_READY, 0, 2, ZRP_OK, NULL, 0, NULL, 0), ZRP_OK);
    return raw;
}

static inline void raw_close(struct raw *raw)
{
    close(raw->socket);
    close(raw->bell);
    zrp_area_close(&raw->down_area);
    zrp_area_close(&raw->up_area);
    free(raw);
}

/* Opens the job "default" and returns its id. */
static inline uint32_t raw_open_job(struct raw *raw)
{
    struct {
        struct zrp_job_open head;
        char name[8];
    } body = { .head = { .size = sizeof body.head, .text_bytes = 8 }, .name = "default" };
    assert_int_equal(zrp_send(raw->socket, ZRP_JOB_OPEN, 0, 3, ZRP_OK, &body, sizeof body, NULL, 0), ZRP_OK);
    assert_int_equal(raw_receive(raw), ZRP_OK);
    assert_int_equal(raw->message.header.status, 0);
    struct zrp_facts facts;
    memcpy(&facts, raw->message.body, sizeof facts);
    return facts.job;
}

#endif
