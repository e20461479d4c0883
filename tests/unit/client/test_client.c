/* test_client.c: the library alone: where it looks, what it refuses, and daemons that misbehave */
#include "clients/lib/zeroclient.h"
#include "ipc/channel.h"
#include "ipc/hello.h"
#include "ipc/wait.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/zeroclient-test-XXXXXX", path[128];

static int make_directory(void **state)
{
    (void)state;
    unsetenv("ZEROD_HOST");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static int connect_to(const char *socket, uint32_t timeout_ms, struct zc_client **client)
{
    struct zc_connect options = { .size = sizeof options, .socket = socket, .timeout_ms = timeout_ms };
    return zc_connect(&options, client);
}

static void a_daemon_that_is_not_there_is_named_with_its_socket(void **state)
{
    (void)state;
    struct zc_client *client = NULL;
    snprintf(path, sizeof path, "%s/none.sock", directory);
    assert_int_equal(connect_to(path, 0, &client), ZC_EGONE);
    assert_non_null(strstr(zc_error_text(), path));
    assert_null(client);
    char url[160];
    snprintf(url, sizeof url, "unix://%s", path);
    setenv("ZEROD_HOST", url, 1);
    assert_int_equal(zc_connect(NULL, &client), ZC_EGONE);
    assert_non_null(strstr(zc_error_text(), path));
    setenv("ZEROD_HOST", "tcp://localhost:1", 1);
    assert_int_equal(zc_connect(NULL, &client), ZC_EINPUT);
    unsetenv("ZEROD_HOST");
    char longest[300];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(connect_to(longest, 0, &client), ZC_EINPUT);
}

static void a_socket_without_the_right_to_it_is_told_apart(void **state)
{
    (void)state;
    if (geteuid() == 0) return; /* root has every right */
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct zc_client *client;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/closed.sock", directory);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(chmod(address.sun_path, 0), 0);
    assert_int_equal(connect_to(address.sun_path, 0, &client), ZC_EACCESS);
    unlink(address.sun_path);
    close(fd);
}

static void structs_of_newer_and_older_callers_are_understood(void **state)
{
    (void)state;
    struct zc_client *client;
    struct {
        struct zc_connect options;
        uint64_t newer;
    } longer = { .options = { .size = sizeof longer, .socket = "/nowhere/sock" } };
    assert_int_equal(zc_connect(&longer.options, &client), ZC_EGONE);
    longer.newer = 1;
    assert_int_equal(zc_connect(&longer.options, &client), ZC_EINPUT);
    longer.options.size = 0;
    assert_int_equal(zc_connect(&longer.options, &client), ZC_EINPUT);
    longer.options.size = offsetof(struct zc_connect, name);
    assert_int_equal(zc_connect(&longer.options, &client), ZC_EGONE);
}

static void null_is_an_error_and_not_a_crash(void **state)
{
    (void)state;
    struct zc_batch batch = { .size = sizeof batch, .rows = 1, .row_tokens = 1 };
    char *json;
    zc_close(NULL);
    zc_batch_give_back(NULL, NULL);
    assert_int_equal(zc_ping(NULL), ZC_EINPUT);
    assert_int_equal(zc_fd(NULL), ZC_EINPUT);
    assert_int_equal(zc_wait(NULL, 0, 0, NULL), ZC_EINPUT);
    assert_int_equal(zc_batch_take(NULL, &batch), ZC_EINPUT);
    assert_int_equal(zc_submit(NULL, ZC_TRAIN, &batch, NULL), ZC_EINPUT);
    assert_int_equal(zc_job_close(NULL), ZC_EINPUT);
    assert_int_equal(zc_job_save(NULL, "x", 0), ZC_EINPUT);
    assert_int_equal(zc_job_facts(NULL, NULL), ZC_EINPUT);
    assert_int_equal(zc_daemon_status(NULL, &json), ZC_EINPUT);
    assert_string_equal(zc_version(), "zeroclient " ZR_VERSION);
}

/* -- daemons that misbehave ---------------------------------------------------------------------------------------- */

enum manner { SILENT, HANGS_UP, NO_AREAS, UNSEALED, SMALL, REFUSES, NONSENSE, GOOD };

struct impostor {
    enum manner manner;
    int listening;
};

static void *pretend(void *context)
{
    struct impostor *impostor = context;
    struct zrp_message *message = malloc(sizeof *message);
    struct zrp_hello hello;
    struct zrp_welcome welcome;
    struct zrp_layout layout;
    struct zrp_area down = { .fd = -1 }, up = { .fd = -1 };
    int fd = accept(impostor->listening, NULL, NULL), bell[2];
    assert_int_equal(zrp_receive(fd, message, true, NULL), ZRP_OK);
    const struct zrp_limits limits = { .ring_entries_max = 4096, .slab_bytes_max = 1 << 30 };
    assert_int_equal(zrp_hello_answer(message->body, message->header.size, &limits, &hello, &welcome, &layout, NULL),
                     ZRP_OK);
    assert_int_equal(zrp_area_make(&down, ZRP_AREA_DOWN, layout.down_bytes, NULL), ZRP_OK);
    assert_int_equal(zrp_area_make(&up, ZRP_AREA_UP, layout.up_bytes, NULL), ZRP_OK);
    assert_int_equal(zrp_bell_make(bell), 0);
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC), fds[3] = { down.fd, up.fd, bell[1] };
    assert_int_equal(ftruncate(unsealed, (off_t)layout.up_bytes), 0);
    if (impostor->manner == UNSEALED) fds[1] = unsealed;
    if (impostor->manner == SMALL) fds[1] = down.fd;
    switch (impostor->manner) {
    case SILENT:
        (void)zrp_wait_readable(fd, 5000000000u);
        break;
    case HANGS_UP:
        break;
    case REFUSES:
        zrp_send(fd, ZRP_ERROR, 0, 0, ZRP_EVERSION, "versions differ", 15, NULL, 0);
        break;
    case NONSENSE:
        assert_int_equal(send(fd, "hello", 5, MSG_NOSIGNAL), 5);
        break;
    default:
        zrp_send(fd, ZRP_WELCOME, ZRP_REPLY, message->header.seq, ZRP_OK, &welcome, sizeof welcome, fds,
                 impostor->manner == NO_AREAS ? 0 : 3);
        (void)zrp_receive(fd, message, true, NULL); /* READY, or the end */
    }
    close(fd);
    close(unsealed);
    close(bell[0]);
    close(bell[1]);
    zrp_area_close(&down);
    zrp_area_close(&up);
    free(message);
    return NULL;
}

static int open_fds(void)
{
    int count = 0;
    struct stat stat;
    for (int fd = 0; fd < 256; fd++)
        count += fstat(fd, &stat) == 0;
    return count;
}

static void a_daemon_that_misbehaves_ends_the_connection_with_a_sentence(void **state)
{
    (void)state;
    static const int expected[] = {
        [SILENT] = ZC_ETIME, [HANGS_UP] = ZC_EGONE, [NO_AREAS] = ZC_EBUG, [UNSEALED] = ZC_EBUG,
        [SMALL] = ZC_EBUG,   [REFUSES] = ZC_EINPUT, [NONSENSE] = ZC_EGONE
    };
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(path, sizeof path, "%s/impostor.sock", directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listening, 4), 0);
    int before = open_fds();
    for (enum manner manner = SILENT; manner < GOOD; manner++) {
        struct impostor impostor = { .manner = manner, .listening = listening };
        struct zc_client *client;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, pretend, &impostor), 0);
        assert_int_equal(connect_to(path, manner == SILENT ? 100 : 5000, &client), expected[manner]);
        assert_true(zc_error_text()[0]);
        pthread_join(thread, NULL);
        assert_int_equal(open_fds(), before);
    }
    struct impostor good = { .manner = GOOD, .listening = listening };
    struct zc_client *client;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, pretend, &good), 0);
    assert_int_equal(connect_to(path, 5000, &client), 0);
    pthread_join(thread, NULL); /* it left after READY */
    pid_t child = fork();
    if (child == 0) {
        int code = zc_ping(client); /* the parent's */
        zc_close(client);           /* allowed */
        _exit(code == ZC_EINPUT ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(zc_ping(client), ZC_EGONE);
    zc_close(client);
    assert_int_equal(open_fds(), before);
    close(listening);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_daemon_that_is_not_there_is_named_with_its_socket),
        cmocka_unit_test(a_socket_without_the_right_to_it_is_told_apart),
        cmocka_unit_test(structs_of_newer_and_older_callers_are_understood),
        cmocka_unit_test(null_is_an_error_and_not_a_crash),
        cmocka_unit_test(a_daemon_that_misbehaves_ends_the_connection_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
