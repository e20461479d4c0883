/* bench_ipc.c: round trips through zerod's rings beside a Unix socket's, in the same run
 *
 *     bench_ipc [--rounds N] [--zerod PATH]
 *
 * Two situations, each for both transports, one after another in every round: hot (the next request follows the answer at
 * once) and asleep (1 ms of pause in between, so that both ends sleep). The socket is SOCK_SEQPACKET between two processes
 * that block in send and receive: what a daemon without rings would do. A ring's round trip is an empty submission through
 * the whole path of a step: published by the client, copied, checked and completed by the worker of a daemon in a process of
 * its own. Absolute times differ by a factor between machines, and with their load; the ratios within a round are what
 * counts, and the medians over the rounds are printed. At last: what an attached client and a daemon cost while idle. */
#include "clients/lib/zeroclient.h"
#include "engine/serve/daemon.h"
#include "ipc/wait.h"
#include "tests/unit/serve/fake_engine.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { HOT = 20000, HOT_SOCKET = 4000, ASLEEP = 150, MESSAGE_BYTES = 64, ROUNDS_MAX = 101, IDLE_MS = 2000 };

struct figures {
    double p50, p99; /* microseconds */
};

struct round {
    struct figures ring_hot, socket_hot, ring_asleep, socket_asleep;
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_size);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_ipc: %s: %s\n", what, why);
    exit(1);
}

/* -- the two transports -------------------------------------------------------------------------------------------- */

static struct zc_client *client;
static int pong_socket;

static void ring_trip(void)
{
    if (zc_ping(client)) die("ping", zc_error_text());
}

static void socket_trip(void)
{
    char message[MESSAGE_BYTES] = { 0 };
    if (send(pong_socket, message, sizeof message, 0) != sizeof message ||
        recv(pong_socket, message, sizeof message, 0) != sizeof message)
        die("socket", strerror(errno));
}

static pid_t start_pong(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) die("socketpair", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        char message[MESSAGE_BYTES];
        close(pair[0]);
        while (recv(pair[1], message, sizeof message, 0) == sizeof message)
            if (send(pair[1], message, sizeof message, 0) != sizeof message) break;
        _exit(0);
    }
    close(pair[1]);
    pong_socket = pair[0];
    return pid;
}

static struct figures measure(void (*trip)(void), uint32_t count, bool asleep)
{
    double *us = malloc(count * sizeof *us);
    for (uint32_t i = 0; i < 3; i++)
        trip();
    for (uint32_t i = 0; i < count; i++) {
        if (asleep) fake_sleep(1);
        uint64_t begin_ns = zrp_now_ns();
        trip();
        us[i] = (double)(zrp_now_ns() - begin_ns) * 1e-3;
    }
    struct figures figures = { .p50 = median(us, count), .p99 = us[(uint64_t)count * 99 / 100] };
    free(us);
    return figures;
}

/* -- the daemon ---------------------------------------------------------------------------------------------------- */

static char directory[64], config_path[96], socket_path[96];

static void write_config(void)
{
    snprintf(directory, sizeof directory, "/tmp/zerod-bench-XXXXXX");
    if (!mkdtemp(directory)) die(directory, strerror(errno));
    snprintf(config_path, sizeof config_path, "%s/bench.yaml", directory);
    snprintf(socket_path, sizeof socket_path, "%s/zerod.sock", directory);
    FILE *file = fopen(config_path, "w");
    if (!file) die(config_path, strerror(errno));
    fprintf(file,
            "train_batch_size: 1\noptimizer: {type: AdamW, params: {lr: 1.0e-3}}\n"
            "zerod: {socket: %s, device: {backend: cpu}, log_level: warn}\n",
            socket_path);
    fclose(file);
}

/* The program at `path`, else this process's own copy of the daemon over an engine that computes nothing. */
static pid_t start_daemon(const char *path)
{
    static const struct zr_verb no_verbs[] = { { 0 } };
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = { "zerod", "--config", config_path, NULL };
        if (path) {
            execv(path, argv);
            die(path, strerror(errno));
        }
        exit(zr_serve_main(3, argv, no_verbs));
    }
    struct zc_connect options = { .size = sizeof options, .socket = socket_path, .name = "bench_ipc" };
    for (uint32_t waited = 0; zc_connect(&options, &client); waited++) {
        if (waited == 10000 || waitpid(pid, NULL, WNOHANG) == pid) die("connect", zc_error_text());
        fake_sleep(1);
    }
    return pid;
}

/* -- idle ---------------------------------------------------------------------------------------------------------- */

struct cost {
    double cpu_seconds;
    uint64_t switches;
};

static struct cost cost_of(pid_t pid)
{
    struct cost cost = { 0 };
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    for (struct dirent *thread; threads && (thread = readdir(threads));) {
        char name[384];
        unsigned long long run_ns, switches;
        snprintf(name, sizeof name, "%s/%s/schedstat", path, thread->d_name);
        FILE *file = thread->d_name[0] == '.' ? NULL : fopen(name, "r");
        if (file && fscanf(file, "%llu", &run_ns) == 1) cost.cpu_seconds += (double)run_ns * 1e-9;
        if (file) fclose(file);
        snprintf(name, sizeof name, "%s/%s/status", path, thread->d_name);
        file = thread->d_name[0] == '.' ? NULL : fopen(name, "r");
        while (file && fgets(line, sizeof line, file))
            if (sscanf(line, "voluntary_ctxt_switches: %llu", &switches) == 1) cost.switches += switches;
        if (file) fclose(file);
    }
    if (threads) closedir(threads);
    return cost;
}

/* The client of these figures is a child: this process itself has work to do. */
static void print_idle(pid_t daemon)
{
    pid_t idle = fork();
    if (idle == 0) {
        struct zc_connect options = { .size = sizeof options, .socket = socket_path };
        struct zc_client *own;
        if (zc_connect(&options, &own) || zc_ping(own)) _exit(1);
        for (;;)
            pause();
    }
    fake_sleep(100);
    struct cost before[2] = { cost_of(daemon), cost_of(idle) };
    fake_sleep(IDLE_MS);
    struct cost after[2] = { cost_of(daemon), cost_of(idle) };
    const char *const names[2] = { "daemon", "client" };
    for (int i = 0; i < 2; i++)
        printf("idle %-7s %d s: %.3f ms of CPU, %llu wake-ups\n", names[i], IDLE_MS / 1000,
               (after[i].cpu_seconds - before[i].cpu_seconds) * 1e3,
               (unsigned long long)(after[i].switches - before[i].switches));
    kill(idle, SIGKILL);
    waitpid(idle, NULL, 0);
}

/* -- the table ----------------------------------------------------------------------------------------------------- */

static void print_line(const char *name, const struct round *rounds, uint32_t count, size_t ring, size_t other)
{
    double p50[2][ROUNDS_MAX], p99[2][ROUNDS_MAX], ratio[ROUNDS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        const struct figures *of[2] = { (const void *)((const char *)(rounds + i) + ring),
                                        (const void *)((const char *)(rounds + i) + other) };
        ratio[i] = of[0]->p50 / of[1]->p50;
        for (int side = 0; side < 2; side++) {
            p50[side][i] = of[side]->p50;
            p99[side][i] = of[side]->p99;
        }
    }
    printf("%-8s ring p50 %8.2f us  p99 %8.2f us   socket p50 %8.2f us  p99 %8.2f us   ratio of p50 %.3f\n", name,
           median(p50[0], count), median(p99[0], count), median(p50[1], count), median(p99[1], count),
           median(ratio, count));
}

int main(int argc, char **argv)
{
    uint32_t count = 7;
    const char *zerod = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rounds") == 0)
            count = (uint32_t)atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--zerod") == 0)
            zerod = argv[i + 1];
        else
            die(argv[i], "usage: bench_ipc [--rounds N] [--zerod PATH]");
    }
    if (count == 0 || count > ROUNDS_MAX) die("--rounds", "1 to 101");
    static struct round rounds[ROUNDS_MAX];
    write_config();
    pid_t pong = start_pong(), daemon = start_daemon(zerod);
    for (uint32_t i = 0; i < count; i++) {
        rounds[i].ring_hot = measure(ring_trip, HOT, false);
        rounds[i].socket_hot = measure(socket_trip, HOT_SOCKET, false);
        rounds[i].ring_asleep = measure(ring_trip, ASLEEP, true);
        rounds[i].socket_asleep = measure(socket_trip, ASLEEP, true);
    }
    double load[1] = { 0 };
    getloadavg(load, 1);
    printf("medians of %u rounds, %ld cores, load %.2f, spin up to 50 us, %s\n", count, sysconf(_SC_NPROCESSORS_ONLN),
           load[0], zerod ? zerod : "own copy of the daemon");
    print_line("hot", rounds, count, offsetof(struct round, ring_hot), offsetof(struct round, socket_hot));
    print_line("asleep", rounds, count, offsetof(struct round, ring_asleep), offsetof(struct round, socket_asleep));
    print_idle(daemon);
    zc_close(client);
    kill(daemon, SIGTERM);
    waitpid(daemon, NULL, 0);
    kill(pong, SIGKILL);
    waitpid(pong, NULL, 0);
    unlink(config_path);
    char lock[128];
    snprintf(lock, sizeof lock, "%s.lock", socket_path);
    unlink(lock);
    rmdir(directory);
    return 0;
}
