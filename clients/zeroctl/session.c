/* session.c: finds the daemon, or starts one and ends it */
#include "clients/zeroctl/session.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_SECONDS = 60, STOP_SECONDS = 30 };

void session_program(const char *name, char *ret_path, size_t room)
{
    char own[4096];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    char *slash = NULL;
    if (length > 0) {
        own[length] = 0;
        slash = strrchr(own, '/');
    }
    if (slash && (size_t)(slash - own) + strlen(name) + 2 <= room) {
        snprintf(ret_path, room, "%.*s/%s", (int)(slash - own), own, name);
        if (access(ret_path, X_OK) == 0) return;
    }
    snprintf(ret_path, room, "%s", name);
}

static void doze(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

/* -- a daemon of our own ------------------------------------------------------------------------------------------- */

static void path_in(const struct session *session, const char *name, char ret_path[96])
{
    snprintf(ret_path, 96, "%s/%s", session->directory, name);
}

static void run_zerod(const struct session *session, const struct options *options)
{
    const char **arguments = calloc(2 * (size_t)options->set_count + 6, sizeof *arguments);
    char program[4096], socket[128], log[96];
    if (!arguments) _exit(EXIT_FAILED);
    session_program("zerod", program, sizeof program);
    snprintf(socket, sizeof socket, "zerod.socket=%s/zerod.sock", session->directory);
    path_in(session, "log", log);
    size_t count = 0;
    arguments[count++] = "zerod";
    arguments[count++] = "--config";
    arguments[count++] = options->config;
    for (uint32_t i = 0; i < options->set_count; i++) {
        arguments[count++] = "--set";
        arguments[count++] = options->sets[i];
    }
    arguments[count++] = "--set";
    arguments[count++] = socket;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC), kept = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(nothing, 0);
    dup2(options->json ? 2 : 1, 1);
    if (!options->verbose) dup2(kept, 2);
    dup2(nothing, 1);
    execvp(program, (char *const *)arguments);
    dprintf(2, "zerod: cannot be started: %s: %s\n", program, strerror(errno));
    _exit(EXIT_NOBODY);
}

/* What the daemon said, without its notes and its log lines (they begin with a time); of one that runs only warnings. */
static void read_complaint(const struct session *session, bool warnings_only, char *ret_text, size_t room)
{
    char path[96], line[1024];
    size_t length = 0;
    ret_text[0] = 0;
    path_in(session, "log", path);
    FILE *file = fopen(path, "re");
    if (!file) return;
    bool wanted = false;
    while (fgets(line, sizeof line, file)) {
        const char *text = line;
        if (strncmp(line, "zerod: ", 7) == 0) {
            text += 7;
            wanted = warnings_only ? strncmp(text, "warning: ", 9) == 0 : strncmp(text, "note: ", 6) != 0;
        } else if (line[0] != ' ') {
            wanted = false;
        }
        if (wanted && length + strlen(text) < room)
            length += (size_t)snprintf(ret_text + length, room - length, "%s", text);
    }
    fclose(file);
    if (length && ret_text[length - 1] == '\n') ret_text[length - 1] = 0;
}

static int await_daemon(struct session *session, struct call *call, const struct zc_connect *connect)
{
    char complaint[900];
    const time_t end = time(NULL) + START_SECONDS;
    while (zc_connect(connect, &session->client) != ZC_OK) {
        int status;
        if (waitpid(session->daemon, &status, WNOHANG) == session->daemon) {
            session->daemon = 0;
            read_complaint(session, false, complaint, sizeof complaint);
            return call_fail(call, WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_FAILED, "%s",
                             complaint[0] ? complaint : "zerod ended before it was ready");
        }
        if (time(NULL) >= end)
            return call_fail(call, EXIT_NOBODY, "zerod was started and is not ready after %d s", START_SECONDS);
        doze();
    }
    read_complaint(session, true, complaint, sizeof complaint);
    if (complaint[0]) call_note(call, "%s", complaint);
    return EXIT_DONE;
}

static int start_own(struct session *session, struct call *call, struct zc_connect *connect)
{
    char socket[96];
    const char *place = getenv("XDG_RUNTIME_DIR");
    if (!place || strlen(place) > 32 || access(place, W_OK) != 0) place = "/tmp";
    snprintf(session->directory, sizeof session->directory, "%s/zeroctl-XXXXXX", place);
    if (!mkdtemp(session->directory)) {
        session->directory[0] = 0;
        return call_fail(call, EXIT_FAILED, "cannot make a folder in %s: %s", place, strerror(errno));
    }
    session->daemon = fork();
    if (session->daemon < 0) {
        session->daemon = 0;
        return call_fail(call, EXIT_FAILED, "cannot start zerod: %s", strerror(errno));
    }
    if (session->daemon == 0) run_zerod(session, &call->options);
    path_in(session, "zerod.sock", socket);
    connect->socket = socket;
    return await_daemon(session, call, connect);
}

static void stop_own(struct session *session)
{
    static const char *const names[] = { "zerod.sock", "zerod.sock.lock", "log" };
    if (session->daemon) {
        const time_t end = time(NULL) + STOP_SECONDS;
        kill(session->daemon, SIGTERM);
        while (waitpid(session->daemon, NULL, WNOHANG) == 0) {
            if (time(NULL) >= end) kill(session->daemon, SIGKILL);
            doze();
        }
    }
    for (size_t i = 0; session->directory[0] && i < sizeof names / sizeof names[0]; i++) {
        char path[96];
        path_in(session, names[i], path);
        unlink(path);
    }
    if (session->directory[0]) rmdir(session->directory);
}

/* -- the session --------------------------------------------------------------------------------------------------- */

int session_open(struct session *session, struct call *call)
{
    const struct options *options = &call->options;
    struct zc_connect connect = { .size = sizeof connect,
                                  .socket = options->host,
                                  .name = "zeroctl",
                                  .timeout_ms = (uint32_t)(options->timeout_s ? options->timeout_s : 10) * 1000 };
    if (options->config && options->host)
        return call_fail(call, EXIT_USAGE,
                         "--config starts a zerod of its own, --host names a running one: give one of them");
    if (options->config) return start_own(session, call, &connect);
    int zc = zc_connect(&connect, &session->client);
    return zc ? call_fail_zc(call, zc, "") : EXIT_DONE;
}

int session_job(struct session *session, struct call *call, uint32_t flags)
{
    const struct options *options = &call->options;
    struct zc_job_options wanted = { .size = sizeof wanted,
                                     .flags = flags,
                                     .name = options->job,
                                     .settings =
                                         session->daemon ? NULL : options->sets, /* its own one has them already */
                                     .setting_count = session->daemon ? 0 : options->set_count,
                                     .model_directory = options->model };
    int zc = zc_job_open(session->client, &wanted, &session->job);
    session->facts.size = sizeof session->facts;
    if (!zc) zc = zc_job_facts(session->job, &session->facts);
    return zc ? call_fail_zc(call, zc, "") : EXIT_DONE;
}

void session_close(struct session *session)
{
    zc_close(session->client);
    stop_own(session);
    *session = (struct session){ 0 };
}
