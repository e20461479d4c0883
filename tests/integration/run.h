/* run.h: programs as a user starts them: what they printed, how they ended; a folder that goes away with the test */
#ifndef INTEGRATION_RUN_H
#define INTEGRATION_RUN_H

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define ZEROD ZR_BINARY_DIR "/bin/zerod"
#define ZEROCTL ZR_BINARY_DIR "/bin/zeroctl"
#define QUICKSTART ZR_SOURCE_DIR "/config/examples/quickstart.yaml"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* everything takes ten times as long, and memory of the sanitizer's own */
#else
#define SANITIZED 0
#endif

enum { WORDS_MAX = 64, OUTPUT_BYTES = 1 << 16 };

static char folder[64], out_text[OUTPUT_BYTES], err_text[OUTPUT_BYTES];

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/var/tmp/zerod-run-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A path inside the test's folder; four of them live at a time. */
static inline const char *in_folder(const char *name)
{
    static char paths[4][160];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

static inline void doze(double seconds)
{
    nanosleep(
        &(struct timespec){ .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) },
        NULL);
}

/* -- programs ------------------------------------------------------------------------------------------------------ */

/* Starts the words (NULL ends them) with standard output and error in "out" and "err" of the folder, NAME in front. */
static inline pid_t start_words(const char *name, const char *const *words)
{
    char out[160], err[160];
    snprintf(out, sizeof out, "%s/%s-out", folder, name);
    snprintf(err, sizeof err, "%s/%s-err", folder, name);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    execv(words[0], (char *const *)words);
    _exit(127);
}

/* Exit code, or 128 and the signal. */
static inline int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline void read_into(const char *path, char text[OUTPUT_BYTES])
{
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, OUTPUT_BYTES - 1, file) : 0;
    text[length] = 0;
    if (file) fclose(file);
}

/* Splits `line` at blanks; "a b" stays together. Words stay valid until the next call. */
static inline const char *const *split(const char *format, va_list arguments)
{
    static char line[4096];
    static const char *words[WORDS_MAX];
    size_t count = 0;
    vsnprintf(line, sizeof line, format, arguments);
    for (char *at = line; *at;) {
        while (*at == ' ')
            at++;
        if (!*at) break;
        const char end = *at == '"' ? '"' : ' ';
        at += end == '"';
        assert_true(count < WORDS_MAX - 1);
        words[count++] = at;
        while (*at && *at != end)
            at++;
        if (*at) *at++ = 0;
    }
    words[count] = NULL;
    return words;
}

/* Runs to the end; what it printed is in out_text and err_text. */
__attribute__((format(printf, 1, 2))) static inline int run(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pid_t pid = start_words("run", split(format, arguments));
    va_end(arguments);
    int code = wait_for(pid);
    read_into(in_folder("run-out"), out_text);
    read_into(in_folder("run-err"), err_text);
    return code;
}

__attribute__((format(printf, 2, 3))) static inline pid_t start(const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pid_t pid = start_words(name, split(format, arguments));
    va_end(arguments);
    return pid;
}

static inline void assert_run(int code, int expected)
{
    if (code != expected) fail_msg("ended with %d instead of %d\n%s%s", code, expected, out_text, err_text);
}

static inline void assert_said(const char *text)
{
    if (!strstr(err_text, text)) fail_msg("'%s' was not said, but:\n%s", text, err_text);
}

/* -- JSON ---------------------------------------------------------------------------------------------------------- */

/* The one document that the last run printed; the caller's. */
static inline json_t *printed(void)
{
    json_error_t error;
    json_t *document = json_loads(out_text, 0, &error);
    if (!document) fail_msg("no JSON: %s\n%s", error.text, out_text);
    return document;
}

static inline double number_in(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number '%s' in\n%s", key, out_text);
    return json_number_value(value);
}

static inline double printed_number(const char *key)
{
    json_t *document = printed();
    double number = number_in(document, key);
    json_decref(document);
    return number;
}

/* -- files --------------------------------------------------------------------------------------------------------- */

static inline void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* A text that has something to learn in it, the same each time: sentences over a few words. */
static inline size_t make_text(char *text, size_t room)
{
    static const char *const words[] = { "the ", "disk ", "feeds ",  "a ",      "slot, ",
                                         "and ", "host ", "memory ", "waits.\n" };
    uint64_t random = 1;
    size_t length = 0;
    for (;;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const char *word = words[(random >> 33) % 9];
        if (length + strlen(word) > room) return length;
        memcpy(text + length, word, strlen(word));
        length += strlen(word);
    }
}

static inline bool same_file(const char *one, const char *other)
{
    char command[400];
    snprintf(command, sizeof command, "cmp -s '%s' '%s'", one, other);
    return system(command) == 0;
}

/* -- daemons ------------------------------------------------------------------------------------------------------- */

/* A daemon on the quickstart's configuration with its socket in the folder, and `more` options. Waits until it answers. */
static inline pid_t start_zerod(const char *more)
{
    pid_t pid = start("zerod", "%s --config %s --set zerod.socket=%s/sock %s", ZEROD, QUICKSTART, folder, more);
    for (int i = 0; i < 3000; i++) {
        if (run("%s status --host %s/sock --json", ZEROCTL, folder) == 0) return pid;
        if (waitpid(pid, NULL, WNOHANG) == pid) break;
        doze(0.01);
    }
    read_into(in_folder("zerod-err"), err_text);
    fail_msg("zerod is not ready:\n%s", err_text);
    return -1;
}

/* The job's step, by the daemon's status; -1: no such job. */
static inline int64_t job_step(const char *name)
{
    if (run("%s status --host %s/sock --json", ZEROCTL, folder) != 0) return -1;
    json_t *whole = printed(), *job;
    int64_t step = -1;
    size_t index;
    json_array_foreach(json_object_get(whole, "jobs"), index,
                       job) if (strcmp(json_string_value(json_object_get(job, "name")), name) == 0) step =
        (int64_t)number_in(job, "step");
    json_decref(whole);
    return step;
}

#endif
