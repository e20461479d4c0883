/* test_daemon.c: starting, stopping, exit codes, dead sockets, second instances, idle cost: a daemon in a child */
#include "harness.h"
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

static const struct zr_verb no_verbs[] = { { 0 } };

static char config_path[128];

static void write_config(const struct harness *h, const char *text)
{
    snprintf(config_path, sizeof config_path, "%s/test.yaml", h->directory);
    FILE *file = fopen(config_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* zerod in a child; its standard error goes into the file "err" of the directory. */
static pid_t fork_zerod(const struct harness *h, int argc, char **argv)
{
    pid_t pid = fork();
    if (pid == 0) {
        char path[128];
        snprintf(path, sizeof path, "%s/err", h->directory);
        if (!freopen(path, "a", stderr) || !freopen("/dev/null", "w", stdout)) _exit(99);
        setvbuf(stderr, NULL, _IONBF, 0);
        exit(zr_serve_main(argc, argv, no_verbs));
    }
    return pid;
}

static pid_t start_zerod(const struct harness *h)
{
    char *argv[] = { "zerod", "--config", config_path, NULL };
    pid_t pid = fork_zerod(h, 3, argv);
    struct zc_connect options = { .size = sizeof options, .socket = h->socket };
    struct zc_client *client;
    EVENTUALLY(10000, zc_connect(&options, &client) == 0);
    zc_close(client);
    return pid;
}

static int exit_code(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int run_zerod(const struct harness *h, int argc, char **argv)
{
    return exit_code(fork_zerod(h, argc, argv));
}

/* What zerod said so far, in a buffer of the function's own; forgets it afterwards. */
static const char *said(const struct harness *h)
{
    static char text[65536];
    char path[128];
    snprintf(path, sizeof path, "%s/err", h->directory);
    FILE *file = fopen(path, "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
    if (file) fclose(file);
    unlink(path);
    return text;
}

static struct harness *prepare(void)
{
    struct harness *h = calloc(1, sizeof *h);
    harness_configure(h);
    write_config(h, h->text);
    return h;
}

static void exit_codes_tell_usage_from_configuration(void **state)
{
    (void)state;
    struct harness *h = prepare();
    char *help[] = { "zerod", "--help", NULL }, *version[] = { "zerod", "--version", NULL },
         *none[] = { "zerod", NULL }, *unknown[] = { "zerod", "--frobnicate", NULL },
         *rest[] = { "zerod", "--config", config_path, "more", NULL },
         *missing[] = { "zerod", "--config", "/nowhere.yaml", NULL },
         *set[] = { "zerod", "--config", config_path, "--set", "optimizer.params.lrr=1", NULL },
         *print[] = { "zerod", "--config", config_path, "--print-config", NULL },
         *check[] = { "zerod", "--config", config_path, "--check", NULL },
         *where[] = { "zerod", "--config", config_path, "--set", "zerod.socket=/proc/nowhere/zerod.sock", NULL };
    assert_int_equal(run_zerod(h, 2, help), 0);
    assert_int_equal(run_zerod(h, 2, version), 0);
    assert_int_equal(run_zerod(h, 4, print), 0);
    said(h);
    assert_int_equal(run_zerod(h, 1, none), 2);
    assert_non_null(strstr(said(h), "usage: zerod"));
    assert_int_equal(run_zerod(h, 2, unknown), 2);
    assert_int_equal(run_zerod(h, 4, rest), 2);
    assert_int_equal(run_zerod(h, 4, check), 3); /* this engine says that nothing fits */
    said(h);
    assert_int_equal(run_zerod(h, 3, missing), 78);
    assert_non_null(strstr(said(h), "/nowhere.yaml"));
    assert_int_equal(run_zerod(h, 5, set), 78);
    assert_non_null(strstr(said(h), "optimizer.params.lrr"));
    assert_int_not_equal(run_zerod(h, 5, where), 0);
    said(h);
    write_config(h, "train_batch_size: 8\nfrobnicate: 3\n");
    assert_int_equal(run_zerod(h, 4, check), 78);
    const char *text = said(h);
    assert_non_null(strstr(text, "zerod: "));
    assert_non_null(strstr(text, "test.yaml:2: frobnicate: "));
    harness_stop(h);
}

static void a_dead_socket_is_replaced_and_a_live_one_left_alone(void **state)
{
    (void)state;
    struct harness *h = prepare();
    char *again[] = { "zerod", "--config", config_path, NULL }, owner[32];
    pid_t first = start_zerod(h);
    said(h);
    assert_int_equal(run_zerod(h, 3, again), 1);
    snprintf(owner, sizeof owner, "pid %d", (int)first);
    assert_non_null(strstr(said(h), owner));
    zc_close(harness_connect(h)); /* the live one is untouched */
    struct stat stat_of_socket;
    assert_int_equal(stat(h->socket, &stat_of_socket), 0);
    assert_int_equal(stat_of_socket.st_mode & 0777, 0600);

    kill(first, SIGKILL);
    assert_int_equal(exit_code(first), 128 + SIGKILL);
    assert_int_equal(access(h->socket, F_OK), 0); /* left behind */
    pid_t second = start_zerod(h);
    kill(second, SIGTERM);
    assert_int_equal(exit_code(second), 0);
    assert_int_equal(access(h->socket, F_OK), -1); /* cleaned up */

    FILE *file = fopen(h->socket, "w"); /* somebody's file is no socket of ours */
    fclose(file);
    said(h);
    assert_int_equal(run_zerod(h, 3, again), 1);
    assert_non_null(strstr(said(h), "is no socket"));
    assert_int_equal(access(h->socket, F_OK), 0);
    harness_stop(h);
}

/* Two daemons with sockets of their own have nothing in common. */
static void two_daemons_with_two_sockets_run_side_by_side(void **state)
{
    (void)state;
    struct harness *h = prepare();
    pid_t first = start_zerod(h);
    char set[160], path[96];
    snprintf(path, sizeof path, "%s/other.sock", h->directory);
    snprintf(set, sizeof set, "zerod.socket=%s", path);
    char *argv[] = { "zerod", "--config", config_path, "--set", set, NULL };
    pid_t second = fork_zerod(h, 5, argv);
    struct zc_connect options = { .size = sizeof options, .socket = path };
    struct zc_client *client;
    EVENTUALLY(10000, zc_connect(&options, &client) == 0);
    assert_int_equal(zc_daemon_stop(client), 0);
    zc_close(client);
    assert_int_equal(exit_code(second), 0);
    kill(first, SIGINT);
    assert_int_equal(exit_code(first), 0);
    harness_stop(h);
}

static void a_signal_finishes_the_running_step_and_tells_the_clients(void **state)
{
    (void)state;
    struct harness *h = prepare();
    fake.step_ms = 100; /* inherited by the child */
    pid_t pid = start_zerod(h);
    struct zc_client *client = harness_connect(h), *idle = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    struct zc_result result = { .size = sizeof result };
    uint64_t first, second;
    assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, &first), 0);
    assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, &second), 0);
    fake_sleep(30);
    kill(pid, SIGTERM);
    assert_int_equal(zc_wait(client, first, -1, &result), 0);
    assert_int_equal(result.step, 1);
    assert_int_equal(zc_wait(client, second, -1, &result), ZC_EGONE);
    assert_non_null(strstr(zc_error_text(), "stopping"));
    char *json;
    assert_int_equal(zc_daemon_status(idle, &json), ZC_EGONE);
    assert_non_null(strstr(zc_error_text(), "stopping"));
    assert_int_equal(exit_code(pid), 0);
    zc_close(client);
    zc_close(idle);
    harness_stop(h);
}

static void a_second_signal_ends_at_once(void **state)
{
    (void)state;
    struct harness *h = prepare();
    fake.step_ms = 20000;
    pid_t pid = start_zerod(h);
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, NULL), 0);
    fake_sleep(50);
    kill(pid, SIGTERM);
    fake_sleep(50);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it finishes its step */
    kill(pid, SIGTERM);
    assert_int_equal(exit_code(pid), 128 + SIGTERM);
    assert_int_equal(zc_wait(client, 0, -1, NULL), ZC_EGONE);
    zc_close(client);
    harness_stop(h);
}

static void waiting_on_a_daemon_that_is_killed_ends_at_once(void **state)
{
    (void)state;
    struct harness *h = prepare();
    fake.step_ms = 20000;
    fake.open_ms = 0;
    pid_t pid = start_zerod(h), killer;
    struct zc_client *client = harness_connect(h);
    struct zc_job *job = harness_open(client, NULL);
    struct zc_batch batch = harness_batch(client, 1);
    assert_int_equal(zc_submit(job, ZC_TRAIN, &batch, NULL), 0);
    if ((killer = fork()) == 0) {
        fake_sleep(100);
        kill(pid, SIGKILL);
        _exit(0);
    }
    assert_int_equal(zc_wait(client, 0, 15000, NULL), ZC_EGONE);
    assert_int_equal(zc_ping(client), ZC_EGONE);
    exit_code(killer);
    exit_code(pid);
    zc_close(client);
    assert_int_equal(
        zc_connect(&(struct zc_connect){ .size = sizeof(struct zc_connect), .socket = h->socket }, &client), ZC_EGONE);
    assert_non_null(strstr(zc_error_text(), h->socket));
    harness_stop(h);
}

static double cpu_seconds(pid_t pid)
{
    char path[64];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system),
                     2);
    fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* Sixteen clients attached, one of them waiting in its sleep: nobody wakes up. */
static void idle_clients_and_an_idle_daemon_cost_no_time(void **state)
{
    (void)state;
    struct harness *h = prepare();
    pid_t pid = start_zerod(h);
    struct zc_client *clients[16];
    for (int i = 0; i < 16; i++) {
        clients[i] = harness_connect(h);
        assert_int_equal(zc_ping(clients[i]), 0);
    }
    fake_sleep(50);
    char path[64], line[256];
    struct rusage usage[2];
    unsigned long switches[2] = { 0, 0 };
    double cpu = cpu_seconds(pid);
    for (int i = 0; i < 2; i++) {
        getrusage(RUSAGE_SELF, usage + i);
        DIR *threads;
        snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
        threads = opendir(path);
        for (struct dirent *thread; (thread = readdir(threads));) {
            char status[384];
            snprintf(status, sizeof status, "%s/%s/status", path, thread->d_name);
            FILE *file = thread->d_name[0] == '.' ? NULL : fopen(status, "r");
            unsigned long count;
            while (file && fgets(line, sizeof line, file))
                if (sscanf(line, "voluntary_ctxt_switches: %lu", &count) == 1) switches[i] += count;
            if (file) fclose(file);
        }
        closedir(threads);
        if (i == 0) fake_sleep(700);
    }
#ifndef __SANITIZE_THREAD__                     /* its own thread wakes up */
    assert_int_equal(switches[0], switches[1]); /* no thread of the daemon woke up even once */
#endif
    assert_true(cpu_seconds(pid) - cpu < 0.02);
    assert_true(usage[1].ru_utime.tv_usec - usage[0].ru_utime.tv_usec < 20000);
    for (int i = 0; i < 16; i++)
        zc_close(clients[i]);
    kill(pid, SIGTERM);
    assert_int_equal(exit_code(pid), 0);
    harness_stop(h);
}

/* Clients beyond the descriptors wait in the socket's queue; the daemon neither ends nor spins. */
static void a_daemon_without_descriptors_waits_until_there_are_some(void **state)
{
    (void)state;
    struct harness *h = prepare();
    struct rlimit before, few;
    getrlimit(RLIMIT_NOFILE, &before);
    few = (struct rlimit){ .rlim_cur = 40, .rlim_max = before.rlim_max };
    setrlimit(RLIMIT_NOFILE, &few);
    pid_t pid = start_zerod(h);
    setrlimit(RLIMIT_NOFILE, &before);
    struct zc_client *clients[40];
    struct zc_connect options = { .size = sizeof options, .socket = h->socket, .timeout_ms = 300 };
    int count = 0;
    while (count < 40 && zc_connect(&options, clients + count) == 0)
        count++;
    assert_true(count > 3 && count < 40);
    double cpu = cpu_seconds(pid);
    fake_sleep(500);
    assert_true(cpu_seconds(pid) - cpu < 0.1);
    for (int i = 0; i < count; i++) {
        assert_int_equal(zc_ping(clients[i]), 0);
        zc_close(clients[i]);
    }
    options.timeout_ms = 10000;
    assert_int_equal(zc_connect(&options, clients), 0);
    assert_int_equal(zc_ping(clients[0]), 0);
    zc_close(clients[0]);
    kill(pid, SIGTERM);
    assert_int_equal(exit_code(pid), 0);
    harness_stop(h);
}

static void systemd_is_told_and_its_socket_is_used(void **state)
{
    (void)state;
    struct harness *h = prepare();
    struct sockaddr_un notify = { .sun_family = AF_UNIX }, door = { .sun_family = AF_UNIX };
    snprintf(notify.sun_path, sizeof notify.sun_path, "%s/notify", h->directory);
    snprintf(door.sun_path, sizeof door.sun_path, "%s/door", h->directory);
    int told = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(told, (struct sockaddr *)&notify, sizeof notify), 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&door, sizeof door), 0);
    assert_int_equal(listen(listening, 8), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = { "zerod", "--config", config_path, NULL }, own[16];
        snprintf(own, sizeof own, "%d", (int)getpid());
        setenv("NOTIFY_SOCKET", notify.sun_path, 1);
        setenv("LISTEN_PID", own, 1);
        setenv("LISTEN_FDS", "1", 1);
        if (listening != 3) dup2(listening, 3);
        if (!freopen("/dev/null", "w", stderr)) _exit(99);
        exit(zr_serve_main(3, argv, no_verbs));
    }
    close(listening);
    char text[64] = "";
    assert_int_equal(zrp_wait_readable(told, 10000000000u), 1);
    assert_true(recv(told, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, "READY=1");
    struct zc_connect options = { .size = sizeof options, .socket = door.sun_path };
    struct zc_client *client;
    assert_int_equal(zc_connect(&options, &client), 0);
    assert_int_equal(zc_ping(client), 0);
    zc_close(client);
    kill(pid, SIGTERM);
    assert_int_equal(zrp_wait_readable(told, 10000000000u), 1);
    memset(text, 0, sizeof text);
    assert_true(recv(told, text, sizeof text - 1, 0) > 0);
    assert_string_equal(text, "STOPPING=1");
    assert_int_equal(exit_code(pid), 0);
    assert_int_equal(access(door.sun_path, F_OK), 0); /* systemd's to remove */
    close(told);
    harness_stop(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_codes_tell_usage_from_configuration),
        cmocka_unit_test(a_dead_socket_is_replaced_and_a_live_one_left_alone),
        cmocka_unit_test(two_daemons_with_two_sockets_run_side_by_side),
        cmocka_unit_test(a_signal_finishes_the_running_step_and_tells_the_clients),
        cmocka_unit_test(a_second_signal_ends_at_once),
        cmocka_unit_test(waiting_on_a_daemon_that_is_killed_ends_at_once),
        cmocka_unit_test(idle_clients_and_an_idle_daemon_cost_no_time),
        cmocka_unit_test(a_daemon_without_descriptors_waits_until_there_are_some),
        cmocka_unit_test(systemd_is_told_and_its_socket_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
