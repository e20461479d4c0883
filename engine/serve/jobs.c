/* jobs.c: the jobs that are open: opening, closing, saving; steps are in steps.c */
#include "engine/serve/jobs.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/store/hf_dir.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTE_VOCABULARY = 257 };

bool zr_trusted(uid_t uid)
{
    return uid == geteuid() || uid == 0;
}

void zr_jobs_init(struct zr_jobs *jobs, struct zr_engine *engine, const struct zr_base_config *base,
                  const _Atomic bool *stopping)
{
    *jobs = (struct zr_jobs){ .engine = engine, .base = base, .stopping = stopping };
    pthread_mutex_init(&jobs->lock, NULL);
}

static void close_place(struct zr_jobs *jobs, struct zr_open_job *open)
{
    pthread_mutex_lock(&jobs->lock);
    struct zr_open_job gone = { .job = open->job,
                                .tokens = open->tokens,
                                .labels = open->labels,
                                .documents = open->documents,
                                .positions = open->positions,
                                .logits = open->logits };
    memset(open, 0, sizeof *open);
    pthread_mutex_unlock(&jobs->lock);
    zr_job_close(gone.job);
    free(gone.tokens);
    free(gone.labels);
    free(gone.documents);
    free(gone.positions);
    free(gone.logits);
}

void zr_jobs_fini(struct zr_jobs *jobs)
{
    for (uint32_t i = 0; i < ZR_JOBS_MAX; i++)
        if (jobs->places[i].id) close_place(jobs, jobs->places + i);
    pthread_mutex_destroy(&jobs->lock);
}

struct zr_open_job *zr_jobs_find(struct zr_jobs *jobs, uint32_t id, uid_t uid, enum zrp_status *ret_status,
                                 struct zrp_why *why)
{
    struct zr_open_job *open = jobs->places + id % ZR_JOBS_MAX;
    if (id == 0 || open->id != id)
        *ret_status = zrp_fail(why, ZRP_EGONE, "the job was closed: open it again");
    else if (open->uid != uid && !zr_trusted(uid))
        *ret_status = zrp_fail(why, ZRP_EACCESS, "the job '%s' belongs to another user", open->name);
    else
        return open;
    return NULL;
}

void zr_jobs_wire_facts(const struct zr_open_job *open, struct zrp_facts *ret_facts)
{
    struct zr_job_facts facts;
    const struct zr_config *config = zr_job_config(open->job);
    zr_job_facts(open->job, &facts);
    *ret_facts = (struct zrp_facts){
        .size = sizeof *ret_facts,
        .job = open->id,
        .vocabulary = open->bounds.vocabulary,
        .row_tokens_max = open->bounds.row_tokens_max,
        .rows_max = open->bounds.rows_max,
        .sequence_length = config->sequence_length,
        .rows_per_step = config->train_batch_size,
        .parameters = zr_job_model(open->job)->parameters,
        .step = facts.step,
        .tokens_seen = facts.tokens_seen,
        .max_steps = facts.max_steps,
    };
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

struct open_request {
    uint32_t flags, setting_count;
    const char *name;
    const char **settings; /* from the heap; the texts are the body's */
};

static bool name_is_fine(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= sizeof((struct zr_open_job *)0)->name) return false;
    for (; *name; name++)
        if (*name <= ' ' || *name > '~' || *name == '"' || *name == '\\') return false;
    return true;
}

static enum zr_code read_request(const struct zr_task *task, struct open_request *request, struct zr_error *err)
{
    struct zrp_job_open head;
    struct zrp_why why = { 0 };
    if (zrp_check_struct(task->body, task->bytes, &head, sizeof head, sizeof head, &why))
        return zr_fail(err, ZR_EINPUT, "%s", why.text);
    const char *at = (const char *)task->body + head.size, *end = (const char *)task->body + task->bytes;
    if (head.text_bytes != (uint64_t)(end - at) || head.setting_count > head.text_bytes ||
        (head.flags & ~(ZRP_OPEN_ATTACH_ONLY | ZRP_OPEN_CREATE_ONLY | ZRP_OPEN_OBSERVE)))
        return zr_fail(err, ZR_EINPUT, "the request to open a job is not well formed");
    request->flags = head.flags;
    request->name = zrp_next_text(&at, end);
    if (!request->name || !name_is_fine(request->name))
        return zr_fail(err, ZR_EINPUT,
                       "a job's name has 1 to 63 printable characters without blanks, quotes and backslashes");
    request->settings = calloc(head.setting_count + 1, sizeof *request->settings);
    if (!request->settings) return zr_fail(err, ZR_EFULL, "no memory");
    for (; request->setting_count < head.setting_count; request->setting_count++) {
        const char *setting = zrp_next_text(&at, end);
        if (!setting) return zr_fail(err, ZR_EINPUT, "the request to open a job is not well formed");
        request->settings[request->setting_count] = setting;
    }
    return at == end ? ZR_OK : zr_fail(err, ZR_EINPUT, "the request to open a job is not well formed");
}

/* Paths are opened with the daemon's rights, so only who has these rights may choose them. */
static enum zr_code check_paths(const struct zr_config *config, const struct zr_config *base, struct zr_error *err)
{
    if (strcmp(config->model_path, base->model_path) != 0)
        return zr_fail(err, ZR_EACCESS,
                       "model.path: only the daemon's own user may name a path: hand the directory over instead");
    bool same = config->nvme_path_count == base->nvme_path_count && strcmp(config->socket, base->socket) == 0 &&
                strcmp(config->state_dir, base->state_dir) == 0;
    for (uint32_t i = 0; same && i < config->nvme_path_count; i++)
        same = strcmp(config->nvme_path[i], base->nvme_path[i]) == 0;
    return same ? ZR_OK
                : zr_fail(err, ZR_EACCESS, "only the daemon's own user may set socket, state_dir and nvme paths");
}

static enum zr_code read_config(struct zr_jobs *jobs, const struct open_request *request, uid_t uid,
                                struct zr_config *config, struct zr_error *err)
{
    const struct zr_base_config *base = jobs->base;
    uint32_t count = base->set_count + request->setting_count;
    const char **sets = calloc(count + 1, sizeof *sets);
    if (!sets) return zr_fail(err, ZR_EFULL, "no memory");
    for (uint32_t i = 0; i < count; i++)
        sets[i] = i < base->set_count ? base->sets[i] : request->settings[i - base->set_count];
    struct zr_config_report *report = NULL;
    enum zr_code code = zr_config_read_text(base->name, base->text, base->bytes, sets, count, config, &report, err);
    zr_config_report_free(report);
    free(sets);
    if (code == ZR_OK && !zr_trusted(uid)) code = check_paths(config, base->config, err);
    return code;
}

/* Streams the weights in and looks up now and then whether the daemon is to stop. */
struct loading {
    int directory;
    const char *name;
    const _Atomic bool *stopping;
    zr_weights_sink *sink;
    void *sink_context;
};

static enum zr_code pass_on(void *context, uint32_t unit, uint64_t offset, const float *values, uint64_t count,
                            struct zr_error *err)
{
    struct loading *loading = context;
    if (atomic_load(loading->stopping))
        return zr_fail(err, ZR_EGONE, "the daemon is stopping: the weights were not loaded to the end");
    return loading->sink(loading->sink_context, unit, offset, values, count, err);
}

static enum zr_code load_weights(void *context, const struct zr_model *model, zr_weights_sink *sink, void *sink_context,
                                 struct zr_error *err)
{
    struct loading *loading = context;
    struct zr_text warnings = { 0 };
    loading->sink = sink;
    loading->sink_context = sink_context;
    enum zr_code code = zr_hf_load(loading->directory, loading->name, model, pass_on, loading, &warnings, err);
    if (warnings.length) {
        char quoted[512];
        zr_log(ZR_LOG_WARN, "weights", "text=%s", zr_log_quote(quoted, sizeof quoted, zr_text_c(&warnings)));
    }
    zr_text_fini(&warnings);
    return code;
}

static enum zr_code make_buffers(struct zr_open_job *open, struct zr_error *err)
{
    size_t tokens = (size_t)open->bounds.rows_max * open->bounds.row_tokens_max;
    open->tokens = calloc(tokens, sizeof *open->tokens);
    open->labels = calloc(tokens, sizeof *open->labels);
    open->documents = calloc(tokens, sizeof *open->documents);
    open->positions = calloc(tokens, sizeof *open->positions);
    return open->tokens && open->labels && open->documents && open->positions
               ? ZR_OK
               : zr_fail(err, ZR_EFULL, "no memory for the buffers of a batch of %zu tokens", tokens);
}

static int open_directory(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Opens the configured directory where the model is not given inline; -1: it is, or there is none. */
static enum zr_code open_configured(const struct zr_config *config, int *ret_directory, struct zr_error *err)
{
    *ret_directory = -1;
    if (config->model_config_json[0]) return ZR_OK;
    if (!config->model_path[0])
        return zr_fail(err, ZR_ECONFIG, "no model: set model.path to a Hugging Face directory, or model.config");
    *ret_directory = open_directory(config->model_path);
    return *ret_directory >= 0 ? ZR_OK
                               : zr_fail(err, ZR_ECONFIG, "model.path: %s: %s", config->model_path, strerror(errno));
}

static enum zr_code read_dims(const struct zr_config *config, int directory, const char *name, struct zr_dims *ret_dims,
                              struct zr_error *err)
{
    if (directory >= 0) return zr_hf_read_dims(directory, name, ret_dims, err);
    return zr_dims_read("model.config", config->model_config_json, strlen(config->model_config_json), ret_dims, err);
}

enum zr_code zr_jobs_dims(const struct zr_config *config, struct zr_dims *ret_dims, struct zr_error *err)
{
    int directory;
    enum zr_code code = open_configured(config, &directory, err);
    if (code == ZR_OK) code = read_dims(config, directory, config->model_path, ret_dims, err);
    if (directory >= 0) close(directory);
    return code;
}

/* The model: the directory that came along, else an inline config.json, else the configured directory. */
static enum zr_code open_model(struct zr_open_job *open, struct zr_jobs *jobs, const struct zr_config *config,
                               int passed, struct zr_error *err)
{
    struct zr_dims dims;
    int own = -1;
    enum zr_code code = passed >= 0 ? ZR_OK : open_configured(config, &own, err);
    int directory = passed >= 0 ? passed : own;
    const char *name = passed >= 0 ? "the model directory" : config->model_path;
    if (code == ZR_OK) code = read_dims(config, directory, name, &dims, err);
    struct loading loading = { .directory = directory, .name = name, .stopping = jobs->stopping };
    struct zr_weights weights = { .load = load_weights, .context = &loading };
    bool stored = code == ZR_OK && directory >= 0 && zr_hf_has_weights(directory);
    if (code == ZR_OK)
        code = zr_job_open(jobs->engine, open->name, config, &dims, stored ? &weights : NULL, &open->job, err);
    if (own >= 0) close(own);
    if (code != ZR_OK) return code;
    const struct zr_plan *plan = zr_job_plan(open->job);
    open->bounds = (struct zrp_bounds){ .rows_max = plan->wishes.rows_per_step,
                                        .row_tokens_max = plan->wishes.row_tokens,
                                        .vocabulary = dims.vocabulary };
    return make_buffers(open, err);
}

static void log_opened(const struct zr_open_job *open, uid_t uid)
{
    const struct zr_config *config = zr_job_config(open->job);
    zr_log(ZR_LOG_INFO, "job_opened",
           "job=%s uid=%u parameters=%" PRIu64 " effective_batch=%u micro=%u accumulation=%u ranks=%u", open->name,
           (unsigned)uid, zr_job_model(open->job)->parameters, config->train_batch_size, config->micro_batch_size,
           config->gradient_accumulation_steps, config->ranks);
}

static enum zr_code create(struct zr_jobs *jobs, struct zr_session *session, const struct open_request *request,
                           int directory, struct zr_open_job **ret_open, struct zr_error *err)
{
    struct zr_open_job *place = jobs->places;
    while (place < jobs->places + ZR_JOBS_MAX && place->id)
        place++;
    if (place == jobs->places + ZR_JOBS_MAX)
        return zr_fail(err, ZR_EFULL, "%d jobs are open, which is all that fits: close one first", ZR_JOBS_MAX);

    struct zr_open_job open = { .uid = session->uid, .opened_ns = zr_now_ns() };
    memcpy(open.name, request->name, strlen(request->name) + 1);
    struct zr_config *config = malloc(sizeof *config); /* too large for a stack */
    enum zr_code code =
        config ? read_config(jobs, request, session->uid, config, err) : zr_fail(err, ZR_EFULL, "no memory");
    if (code == ZR_OK) code = open_model(&open, jobs, config, directory, err);
    free(config);
    if (code != ZR_OK) {
        close_place(jobs, &open);
        return code;
    }
    pthread_mutex_lock(&jobs->lock);
    jobs->generation++;
    open.id = jobs->generation * ZR_JOBS_MAX + (uint32_t)(place - jobs->places);
    *place = open;
    pthread_mutex_unlock(&jobs->lock);
    log_opened(place, session->uid);
    *ret_open = place;
    return ZR_OK;
}

static enum zr_code attach(struct zr_session *session, const struct zr_open_job *open, bool observer,
                           struct zr_error *err)
{
    struct zr_attachment *free_one = NULL;
    for (uint32_t i = 0; i < ZR_JOBS_MAX; i++) {
        struct zr_attachment *attachment = session->attached + i;
        if (attachment->job == open->id) {
            attachment->observer = attachment->observer && observer;
            return ZR_OK;
        }
        /* of two jobs that took the same place one after the other, only the later can be open */
        if (!free_one && (attachment->job == 0 || attachment->job % ZR_JOBS_MAX == open->id % ZR_JOBS_MAX))
            free_one = attachment;
    }
    if (!free_one)
        return zr_fail(err, ZR_EFULL, "this client is attached to %d jobs, which is all that fits", ZR_JOBS_MAX);
    *free_one = (struct zr_attachment){ .job = open->id, .observer = observer };
    return ZR_OK;
}

static enum zr_code open_or_attach(struct zr_jobs *jobs, struct zr_session *session, const struct zr_task *task,
                                   struct open_request *request, struct zr_open_job **ret_open, struct zr_error *err)
{
    enum zr_code code = read_request(task, request, err);
    if (code != ZR_OK) return code;
    struct zr_open_job *open = NULL;
    for (uint32_t i = 0; i < ZR_JOBS_MAX; i++)
        if (jobs->places[i].id && strcmp(jobs->places[i].name, request->name) == 0) open = jobs->places + i;
    if (open && open->uid != session->uid && !zr_trusted(session->uid))
        return zr_fail(err, ZR_EACCESS, "the job '%s' belongs to another user", request->name);
    if (open && (request->flags & ZRP_OPEN_CREATE_ONLY))
        return zr_fail(err, ZR_EINPUT, "a job '%s' is open already: choose another name, or attach to it",
                       request->name);
    if (open && request->setting_count)
        return zr_fail(err, ZR_EINPUT,
                       "the job '%s' is open already: settings count only when it is opened; close it first, or attach "
                       "without them",
                       request->name);
    if (!open && (request->flags & (ZRP_OPEN_ATTACH_ONLY | ZRP_OPEN_OBSERVE)))
        return zr_fail(err, ZR_EINPUT, "no job '%s' is open", request->name);
    if (!open && (code = create(jobs, session, request, task->fd, &open, err))) return code;
    *ret_open = open;
    return attach(session, open, request->flags & ZRP_OPEN_OBSERVE, err);
}

static void reply_error(struct zr_session *session, const struct zr_task *task, enum zr_code code,
                        const struct zr_error *err)
{
    zr_session_reply(session, task->type, task->seq, zr_status_of(code), err->text, strlen(err->text));
}

static void do_open(struct zr_jobs *jobs, struct zr_session *session, const struct zr_task *task)
{
    struct open_request request = { 0 };
    struct zr_open_job *open = NULL;
    struct zr_error err = { 0 };
    enum zr_code code = open_or_attach(jobs, session, task, &request, &open, &err);
    if (code == ZR_OK) {
        struct zrp_facts facts;
        zr_jobs_wire_facts(open, &facts);
        zr_session_reply(session, task->type, task->seq, ZRP_OK, &facts, sizeof facts);
    } else {
        char quoted[512];
        zr_log(ZR_LOG_WARN, "job_refused", "session=%" PRIu64 " code=%s text=%s", session->id, zr_code_name(code),
               zr_log_quote(quoted, sizeof quoted, err.text));
        reply_error(session, task, code, &err);
    }
    free(request.settings);
}

/* -- saving, closing, changing ------------------------------------------------------------------------------------- */

struct saving {
    struct zr_job *job;
    enum zr_plane_view view;
};

static enum zr_code read_weights(void *context, uint32_t unit, uint64_t offset, float *ret_values, uint64_t count,
                                 struct zr_error *err)
{
    struct saving *saving = context;
    return zr_job_read(saving->job, saving->view, unit, offset, ret_values, count, err);
}

static enum zr_code save(struct zr_open_job *open, int directory, struct zr_error *err)
{
    struct stat stat;
    if (directory < 0 || fstat(directory, &stat) != 0 || !S_ISDIR(stat.st_mode))
        return zr_fail(err, ZR_EINPUT, "a directory to save into must come along");
    bool full = zr_job_config(open->job)->precision == ZR_PRECISION_FP32;
    struct saving saving = { .job = open->job, .view = full ? ZR_VIEW_MASTER : ZR_VIEW_WEIGHT };
    struct zr_hf_save what = { .model = zr_job_model(open->job),
                               .dtype = full ? ZR_FILE_F32 : ZR_FILE_BF16,
                               .source = read_weights,
                               .context = &saving,
                               .byte_tokenizer = open->bounds.vocabulary == BYTE_VOCABULARY };
    enum zr_code code = zr_job_flush(open->job, err);
    return code ? code : zr_hf_save(directory, "the output directory", &what, err);
}

static void do_about_job(struct zr_jobs *jobs, struct zr_session *session, const struct zr_task *task)
{
    struct zrp_job_request request;
    struct zrp_why why = { 0 };
    enum zrp_status status = zrp_check_struct(task->body, task->bytes, &request, sizeof request, sizeof request, &why);
    struct zr_open_job *open = NULL;
    if (status == ZRP_OK) open = zr_jobs_find(jobs, request.job, session->uid, &status, &why);
    if (!open) {
        zr_session_reply(session, task->type, task->seq, status, why.text, strlen(why.text));
        return;
    }
    struct zr_error err = { 0 };
    enum zr_code code = ZR_OK;
    if (task->type == ZRP_JOB_SAVE)
        code = save(open, task->fd, &err);
    else if (task->type == ZRP_SET_MAX_STEPS)
        code = zr_job_set_max_steps(open->job, request.value, &err);
    else {
        zr_log(ZR_LOG_INFO, "job_closed", "job=%s", open->name);
        close_place(jobs, open);
    }
    if (code == ZR_OK)
        zr_session_reply(session, task->type, task->seq, ZRP_OK, NULL, 0);
    else
        reply_error(session, task, code, &err);
}

void zr_jobs_do(struct zr_jobs *jobs, struct zr_session *session, const struct zr_task *task)
{
    if (task->type == ZRP_JOB_OPEN)
        do_open(jobs, session, task);
    else
        do_about_job(jobs, session, task);
}
