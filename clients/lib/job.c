/* job.c: open a model, save, close
 *
 * Files are opened here, with the rights of this process, and travel as descriptors. */
#include "clients/lib/internal.h"
#include "ipc/check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_job(const struct zc_job *job)
{
    return job ? zc_check_owner(job->client) : zc_fail(ZC_EINPUT, "no job was given (NULL)");
}

static int request_about(struct zc_job *job, enum zrp_type type, uint64_t value, int fd, uint64_t timeout_ns)
{
    struct zrp_job_request body = { .size = sizeof body, .job = job->id, .value = value };
    return zc_request(job->client, type, &body, sizeof body, fd, timeout_ns);
}

static int reply_facts(struct zc_client *client, struct zrp_facts *ret_facts)
{
    struct zrp_why why = { 0 };
    enum zrp_status status = zrp_check_struct(client->message->body, client->message->header.size, ret_facts,
                                              sizeof *ret_facts, sizeof *ret_facts, &why);
    zrp_message_close_fds(client->message);
    return status ? zc_fail_status(status, why.text) : ZC_OK;
}

/* The request's body: the struct, the name, the settings, each text with its NUL. From malloc(). */
static int open_body(const struct zc_job_options *options, unsigned char **ret_body, size_t *ret_bytes)
{
    const char *name = options->name ? options->name : "default";
    size_t bytes = sizeof(struct zrp_job_open) + strlen(name) + 1;
    if (options->setting_count && !options->settings)
        return zc_fail(ZC_EINPUT, "%u settings are announced and none is given", options->setting_count);
    for (uint32_t i = 0; i < options->setting_count; i++)
        bytes += strlen(options->settings[i]) + 1;
    if (bytes > ZRP_BODY_MAX)
        return zc_fail(ZC_EINPUT, "name and settings take %zu bytes: %u are possible", bytes, ZRP_BODY_MAX);
    unsigned char *body = malloc(bytes);
    if (!body) return zc_fail(ZC_EFULL, "no memory");
    struct zrp_job_open head = { .size = sizeof head,
                                 .flags = options->flags,
                                 .setting_count = options->setting_count,
                                 .text_bytes = (uint32_t)(bytes - sizeof head) };
    memcpy(body, &head, sizeof head);
    char *at = (char *)body + sizeof head;
    at = stpcpy(at, name) + 1;
    for (uint32_t i = 0; i < options->setting_count; i++)
        at = stpcpy(at, options->settings[i]) + 1;
    *ret_body = body;
    *ret_bytes = bytes;
    return ZC_OK;
}

ZC_EXPORT int zc_job_open(struct zc_client *client, const struct zc_job_options *options, struct zc_job **ret_job)
{
    struct zc_job_options asked;
    zc_clear();
    int code = zc_check_owner(client);
    if (code || (code = zc_copy_in(&asked, sizeof asked, options, "zc_job_options"))) return code;
    if (asked.flags & ~(ZC_JOB_ATTACH_ONLY | ZC_JOB_CREATE_ONLY | ZC_JOB_OBSERVE))
        return zc_fail(ZC_EINPUT, "zc_job_options.flags has unknown bits: %#x", asked.flags);
    int directory = -1;
    if (asked.model_directory) {
        directory = open(asked.model_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (directory < 0)
            return zc_fail(errno == EACCES ? ZC_EACCESS : ZC_EINPUT, "%s: %s", asked.model_directory, strerror(errno));
    }
    unsigned char *body = NULL;
    size_t bytes = 0;
    struct zc_job *job = calloc(1, sizeof *job);
    if (!job) code = zc_fail(ZC_EFULL, "no memory");
    if (code == ZC_OK) code = open_body(&asked, &body, &bytes);
    if (code == ZC_OK) code = zc_request(client, ZRP_JOB_OPEN, body, bytes, directory, UINT64_MAX);
    if (code == ZC_OK) code = reply_facts(client, &job->facts);
    free(body);
    if (directory >= 0) close(directory);
    if (code) {
        free(job);
        return code;
    }
    job->client = client;
    job->id = job->facts.job;
    job->observer = asked.flags & ZC_JOB_OBSERVE;
    job->next = client->jobs;
    client->jobs = job;
    *ret_job = job;
    return ZC_OK;
}

ZC_EXPORT int zc_job_close(struct zc_job *job)
{
    zc_clear();
    int code = check_job(job);
    if (code || (code = request_about(job, ZRP_JOB_CLOSE, 0, -1, UINT64_MAX))) return code;
    for (struct zc_job **at = &job->client->jobs; *at; at = &(*at)->next) {
        if (*at != job) continue;
        *at = job->next;
        break;
    }
    free(job);
    return ZC_OK;
}

ZC_EXPORT int zc_job_facts(struct zc_job *job, struct zc_job_facts *facts)
{
    zc_clear();
    struct zrp_facts wire;
    int code = check_job(job);
    if (code == ZC_OK && (!facts || facts->size < sizeof facts->size))
        code = zc_fail(ZC_EINPUT, "zc_job_facts.size is not set: set it to sizeof of the struct");
    if (code || (code = request_about(job, ZRP_JOB_FACTS, 0, -1, zc_timeout_ns(job->client))) ||
        (code = reply_facts(job->client, &wire)))
        return code;
    struct zc_job_facts all = { .vocabulary = wire.vocabulary,
                                .row_tokens_max = wire.row_tokens_max,
                                .rows_max = wire.rows_max,
                                .sequence_length = wire.sequence_length,
                                .rows_per_step = wire.rows_per_step,
                                .parameters = wire.parameters,
                                .step = wire.step,
                                .tokens_seen = wire.tokens_seen,
                                .max_steps = wire.max_steps };
    zc_copy_out(facts, &all, sizeof all);
    return ZC_OK;
}

ZC_EXPORT int zc_job_status(struct zc_job *job, char **ret_json)
{
    zc_clear();
    int code = check_job(job);
    if (code || (code = request_about(job, ZRP_JOB_STATUS, 0, -1, zc_timeout_ns(job->client)))) return code;
    return zc_reply_text(job->client, ret_json);
}

ZC_EXPORT int zc_job_set_max_steps(struct zc_job *job, uint64_t max_steps)
{
    zc_clear();
    int code = check_job(job);
    return code ? code : request_about(job, ZRP_SET_MAX_STEPS, max_steps, -1, UINT64_MAX);
}

ZC_EXPORT int zc_job_save(struct zc_job *job, const char *directory, uint32_t flags)
{
    zc_clear();
    int code = check_job(job);
    if (code) return code;
    if (flags || !directory || !*directory) return zc_fail(ZC_EINPUT, "zc_job_save() wants a directory and flags 0");
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return zc_fail(errno == EACCES ? ZC_EACCESS : ZC_EINPUT, "cannot make %s: %s", directory, strerror(errno));
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return zc_fail(errno == EACCES ? ZC_EACCESS : ZC_EINPUT, "%s: %s", directory, strerror(errno));
    if (faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) != 0)
        code = zc_fail(ZC_EACCESS, "%s: %s", directory, strerror(errno)); /* the daemon may have more rights */
    else
        code = request_about(job, ZRP_JOB_SAVE, 0, fd, UINT64_MAX);
    close(fd);
    return code;
}
