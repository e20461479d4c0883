/* test_nvme_limits.c: machines that allow less: io_uring switched off, little locked memory, small or read-only disks
 *
 * Each case is a child process, since what it takes away from itself does not come back. The parent has no threads. */
#include "nvme_help.h"

#include "engine/base/error.h"
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { WELL = 0, BAD = 1, NOT_HERE = 77 };

#define WANT(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
            return BAD;                                                                                                \
        }                                                                                                              \
    } while (0)

static void in_a_child(int (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(body());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_HERE) skip();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), WELL);
}

/* The same transfers whatever the machine allows; the store's facts. */
static int round_trip(struct zr_nvme_config *config, struct zr_nvme_facts *facts)
{
    struct zr_device_config host = { .kind = ZR_DEVICE_CPU, .threads = 1 };
    struct zr_error err = { 0 };
    struct zr_nvme *nvme = NULL;
    struct zr_nvme_queue *write = NULL, *read = NULL;
    struct zr_timeline *timeline = NULL;
    WANT(zr_device_open(&host, &config->host_device, &err) == ZR_OK, "%s", err.text);
    WANT(zr_nvme_open(config, &nvme, &err) == ZR_OK, "%s", err.text);
    WANT(zr_nvme_queue_open(nvme, ZR_NVME_WRITE, "write", 8, &write, &err) == ZR_OK, "%s", err.text);
    WANT(zr_nvme_queue_open(nvme, ZR_NVME_READ, "read", 8, &read, &err) == ZR_OK, "%s", err.text);
    WANT(zr_timeline_make(&timeline, &err) == ZR_OK, "%s", err.text);
    char *sent = aligned_alloc(4096, config->bytes), *back = config->buffers;
    if (!back) back = aligned_alloc(4096, config->bytes);
    fill_pattern(sent, config->bytes, 5);
    zr_nvme_queue_put(write, 0, sent, config->bytes, NULL);
    zr_nvme_queue_signal(write, timeline, 1);
    zr_nvme_queue_wait(read, timeline, 1);
    zr_nvme_queue_put(read, 0, back, config->bytes, NULL);
    zr_nvme_queue_signal(read, timeline, 2);
    zr_timeline_wait(timeline, 2);
    WANT(zr_device_failure(config->host_device, &err) == ZR_OK, "%s", err.text);
    WANT(memcmp(sent, back, config->bytes) == 0, "other bytes came back");
    zr_nvme_facts(nvme, facts);
    zr_nvme_queue_close(write);
    zr_nvme_queue_close(read);
    zr_nvme_close(nvme);
    zr_timeline_free(timeline);
    zr_device_close(config->host_device);
    free(sent);
    if (back != config->buffers) free(back);
    return WELL;
}

/* -- io_uring switched off ------------------------------------------------------------------------------------------- */

static int refuse_io_uring(int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = sizeof code / sizeof code[0], .filter = code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return -1;
    return 0;
}

static int without_io_uring(int error, const char *part)
{
    if (refuse_io_uring(error)) return NOT_HERE;
    struct zr_nvme_config config = small_config(4 * MIB, 2, NULL);
    struct zr_nvme_facts facts;
    int result = round_trip(&config, &facts);
    if (result) return result;
    WANT(strcmp(facts.engine, "threads") == 0, "%s", facts.engine);
    WANT(strstr(facts.warning, "I/O by threads") && strstr(facts.warning, part), "%s", facts.warning);

    struct zr_nvme *nvme = NULL;
    struct zr_error err = { 0 };
    config.engine = ZR_IO_URING;
    WANT(zr_nvme_open(&config, &nvme, &err) == ZR_EGONE, "%s", err.text);
    WANT(strstr(err.text, part), "%s", err.text);
    return WELL;
}

static int without_io_uring_eperm(void)
{
    FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "r");
    int setting = 0;
    if (file && fscanf(file, "%d", &setting) != 1) setting = 0;
    if (file) fclose(file);
    return without_io_uring(EPERM, setting > 0 ? "kernel.io_uring_disabled" : "seccomp");
}

static int without_io_uring_enosys(void)
{
    return without_io_uring(ENOSYS, "seccomp");
}

static void io_uring_refused_with_eperm_means_threads(void **state)
{
    (void)state;
    in_a_child(without_io_uring_eperm);
}

static void io_uring_refused_with_enosys_means_threads(void **state)
{
    (void)state;
    in_a_child(without_io_uring_enosys);
}

/* -- little locked memory --------------------------------------------------------------------------------------------- */

static int become_nobody(void)
{
    if (geteuid() != 0) return 0; /* somebody without capabilities, or already done */
    if (setgroups(0, NULL) || setgid(65534) || setuid(65534)) return -1;
    return 0;
}

static int with_locked_memory(rlim_t bytes, struct zr_nvme_facts *ret_facts)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_max < bytes) return NOT_HERE;
    limit.rlim_cur = bytes;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) || become_nobody()) return NOT_HERE;
    if (access(test_paths[0], W_OK | X_OK)) return NOT_HERE; /* the build folder is not everybody's */
    struct zr_nvme_config config = small_config(MIB, 1, NULL);
    config.buffers = aligned_alloc(4096, MIB);
    config.buffer_bytes = MIB;
    int result = round_trip(&config, ret_facts);
    free(config.buffers);
    return result;
}

/* Not even a ring may be had, where its own memory counts: then threads do it. */
static int with_no_locked_memory(void)
{
    struct zr_nvme_facts facts;
    int result = with_locked_memory(0, &facts);
    if (result) return result;
    WANT(!facts.registered, "1 MiB was locked under a limit of 0");
    WANT(strstr(facts.warning, "RLIMIT_MEMLOCK") && strstr(facts.warning, "LimitMEMLOCK="), "%s", facts.warning);
    return WELL;
}

static int with_64_kib_of_locked_memory(void)
{
    struct zr_nvme_facts facts;
    int result = with_locked_memory(64 * KIB, &facts);
    if (result) return result;
    if (strcmp(facts.engine, "io_uring") != 0) return NOT_HERE;
    WANT(!facts.registered, "1 MiB was locked under a limit of 64 KiB");
    WANT(strstr(facts.warning, "1 MiB") && strstr(facts.warning, "64 KiB"), "%s", facts.warning);
    WANT(strstr(facts.warning, "LimitMEMLOCK="), "%s", facts.warning);
    return WELL;
}

static int with_enough_locked_memory(void)
{
    struct zr_nvme_facts facts;
    for (int i = 0; i < 20; i++) { /* what a store has locked is free again when it is closed */
        int result = with_locked_memory(8 * MIB, &facts);
        if (result) return result;
        if (strcmp(facts.engine, "io_uring") != 0) return NOT_HERE;
        WANT(facts.registered, "2 MiB were not locked under a limit of 8 MiB: %s", facts.warning);
        WANT(facts.warning[0] == '\0', "%s", facts.warning);
    }
    return WELL;
}

/* Whatever the limit is, and whichever ring is the first that does not fit, the bytes are right. */
static int with_each_limit(void)
{
    struct zr_nvme_facts facts;
    for (rlim_t bytes = 128 * KIB;; bytes -= 4096) {
        int result = with_locked_memory(bytes, &facts);
        if (result) return result;
        if (bytes == 0) return WELL;
    }
}

static void without_locked_memory_buffers_stay_unregistered(void **state)
{
    (void)state;
    in_a_child(with_no_locked_memory);
}

static void with_little_locked_memory_buffers_stay_unregistered(void **state)
{
    (void)state;
    in_a_child(with_64_kib_of_locked_memory);
}

static void with_enough_locked_memory_buffers_are_registered(void **state)
{
    (void)state;
    in_a_child(with_enough_locked_memory);
}

static void rings_that_do_not_fit_are_replaced_by_threads(void **state)
{
    (void)state;
    in_a_child(with_each_limit);
}

/* -- disks ------------------------------------------------------------------------------------------------------------ */

static int refusal(const struct zr_nvme_config *config, enum zr_code code, const char *part)
{
    struct zr_nvme *nvme = NULL;
    struct zr_error err = { 0 };
    WANT(zr_nvme_open(config, &nvme, &err) == code, "%s", err.text);
    WANT(strstr(err.text, part) && strstr(err.text, test_paths[0]), "%s", err.text);
    return WELL;
}

static int with_a_small_file_limit(void)
{
    struct rlimit limit = { .rlim_cur = 3 * MIB, .rlim_max = 3 * MIB };
    if (setrlimit(RLIMIT_FSIZE, &limit)) return NOT_HERE;
    struct zr_nvme_config config = small_config(4 * MIB, 1, NULL);
    return refusal(&config, ZR_EFULL, "1048576 bytes are missing"); /* and SIGXFSZ has not killed us */
}

static void a_limit_of_file_sizes_is_a_full_disk(void **state)
{
    (void)state;
    in_a_child(with_a_small_file_limit);
}

static int mount_here(const char *options, unsigned long flags)
{
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return -1;
    return mount("tmpfs", test_paths[0], "tmpfs", flags, options);
}

static int with_a_small_disk(void)
{
    if (mount_here("size=4m", 0)) return NOT_HERE;
    struct zr_nvme_config config = small_config(8 * MIB, 1, NULL);
    config.allow_buffered = true;
    int result = refusal(&config, ZR_EFULL, "4194304 bytes are missing");
    if (result) return result;
    /* What a store gives back is there when it is closed, and not some time later. */
    struct zr_nvme_facts facts;
    config.bytes = 3 * MIB;
    for (int i = 0; i < 20 && result == WELL; i++)
        result = round_trip(&config, &facts);
    return result;
}

static int with_a_read_only_disk(void)
{
    if (mount_here("size=4m", MS_RDONLY)) return NOT_HERE;
    struct zr_nvme_config config = small_config(MIB, 1, NULL);
    return refusal(&config, ZR_EINPUT, "Read-only file system");
}

static int with_somebody_elses_folder(void)
{
    if (geteuid() != 0 || chmod(test_paths[0], 0755) || become_nobody()) return NOT_HERE;
    if (access(test_paths[0], X_OK)) return NOT_HERE;
    struct zr_nvme_config config = small_config(MIB, 1, NULL);
    return refusal(&config, ZR_EINPUT, "not writable");
}

static void a_disk_smaller_than_the_space_is_refused_with_the_missing_bytes(void **state)
{
    (void)state;
    in_a_child(with_a_small_disk);
}

static void a_read_only_disk_is_refused(void **state)
{
    (void)state;
    in_a_child(with_a_read_only_disk);
}

static void a_folder_without_write_permission_is_refused(void **state)
{
    (void)state;
    in_a_child(with_somebody_elses_folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(io_uring_refused_with_eperm_means_threads),
        cmocka_unit_test(io_uring_refused_with_enosys_means_threads),
        cmocka_unit_test(without_locked_memory_buffers_stay_unregistered),
        cmocka_unit_test(with_little_locked_memory_buffers_stay_unregistered),
        cmocka_unit_test(with_enough_locked_memory_buffers_are_registered),
        cmocka_unit_test(rings_that_do_not_fit_are_replaced_by_threads),
        cmocka_unit_test(a_limit_of_file_sizes_is_a_full_disk),
        cmocka_unit_test(a_disk_smaller_than_the_space_is_refused_with_the_missing_bytes),
        cmocka_unit_test(a_read_only_disk_is_refused),
        cmocka_unit_test(a_folder_without_write_permission_is_refused),
    };
    return cmocka_run_group_tests(tests, make_places, remove_places);
}
