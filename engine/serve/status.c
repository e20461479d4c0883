/* status.c: the snapshot behind zeroctl status and top */
#include "engine/base/clock.h"
#include "engine/serve/daemon.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *count_of(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *seconds(uint64_t ns)
{
    return json_real((double)ns * 1e-9);
}

/* A text of a client's may be no UTF-8. */
static json_t *text_of(const char *text)
{
    json_t *value = json_string(text);
    return value ? value : json_string("?");
}

static json_t *tiers(const struct zr_job_facts *facts)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < ZR_TIER_COUNT; i++) {
        json_t *tier = json_object();
        json_object_set_new(tier, "name", json_string(zr_tier_name((enum zr_tier)i)));
        json_object_set_new(tier, "used_bytes", count_of(facts->tier_used[i]));
        json_object_set_new(tier, "budget_bytes", count_of(facts->tier_budget[i]));
        json_array_append_new(array, tier);
    }
    return array;
}

static json_t *queues(const struct zr_job_facts *facts)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < ZR_QUEUE_COUNT; i++)
        json_object_set_new(object, zr_queue_name((enum zr_queue)i), seconds(facts->queue_busy_ns[i]));
    return object;
}

static json_t *batch_of(const struct zr_config *config)
{
    json_t *object = json_object();
    json_object_set_new(object, "train_batch_size", count_of(config->train_batch_size));
    json_object_set_new(object, "micro_batch_size", count_of(config->micro_batch_size));
    json_object_set_new(object, "gradient_accumulation_steps", count_of(config->gradient_accumulation_steps));
    json_object_set_new(object, "ranks", count_of(config->ranks));
    json_object_set_new(object, "sequence_length", count_of(config->sequence_length));
    return object;
}

static json_t *moved(const struct zr_job_facts *facts)
{
    json_t *object = json_object();
    json_object_set_new(object, "up_bytes", count_of(facts->up_bytes));
    json_object_set_new(object, "down_bytes", count_of(facts->down_bytes));
    json_object_set_new(object, "nvme_read_bytes", count_of(facts->nvme_read_bytes));
    json_object_set_new(object, "nvme_written_bytes", count_of(facts->nvme_written_bytes));
    return object;
}

/* Bytes by purpose and tier, as allocated. */
static json_t *places(const struct zr_plan *plan)
{
    uint64_t bytes[ZR_TIER_COUNT][ZR_PURPOSE_COUNT];
    json_t *array = json_array();
    zr_plan_bytes(plan, bytes);
    for (int purpose = 0; purpose < ZR_PURPOSE_COUNT; purpose++) {
        json_t *place = json_object();
        json_object_set_new(place, "purpose", json_string(zr_purpose_name((enum zr_purpose)purpose)));
        for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
            json_object_set_new(place, zr_tier_name((enum zr_tier)tier), count_of(bytes[tier][purpose]));
        json_array_append_new(array, place);
    }
    return array;
}

static json_t *job_object(struct zr_open_job *open)
{
    struct zr_job_facts facts;
    zr_job_facts(open->job, &facts);
    uint64_t tokens = atomic_load_explicit(&open->last_tokens, memory_order_relaxed);
    json_t *job = json_object();
    json_object_set_new(job, "name", json_string(open->name));
    json_object_set_new(job, "uid", count_of(open->uid));
    json_object_set_new(job, "open_seconds", seconds(zr_now_ns() - open->opened_ns));
    json_object_set_new(job, "parameters", count_of(zr_job_model(open->job)->parameters));
    json_object_set_new(job, "vocabulary", count_of(open->bounds.vocabulary));
    json_object_set_new(job, "step", count_of(facts.step));
    json_object_set_new(job, "max_steps", count_of(facts.max_steps));
    json_object_set_new(job, "skipped_steps", count_of(facts.skipped_steps));
    json_object_set_new(job, "tokens", count_of(facts.tokens_seen));
    json_object_set_new(job, "trained_tokens", count_of(facts.trained_tokens_seen));
    json_object_set_new(job, "loss", number(facts.last_loss));
    json_object_set_new(job, "grad_norm", number(facts.last_grad_norm));
    json_object_set_new(job, "learning_rate", number(facts.last_learning_rate));
    json_object_set_new(job, "step_seconds", seconds(facts.last_run_ns));
    json_object_set_new(job, "tokens_per_second",
                        number(facts.last_run_ns ? (double)tokens * 1e9 / (double)facts.last_run_ns : 0));
    json_object_set_new(job, "bound_by", json_string(facts.bound_by));
    json_object_set_new(job, "io_engine", json_string(facts.io_engine));
    json_object_set_new(job, "tiers", tiers(&facts));
    json_object_set_new(job, "queue_busy_seconds", queues(&facts));
    json_object_set_new(job, "moved", moved(&facts));
    json_object_set_new(job, "batch", batch_of(zr_job_config(open->job)));
    json_object_set_new(job, "warning", text_of(facts.warning));
    json_object_set_new(job, "failed", json_boolean(facts.failed));
    return job;
}

static void append(json_t *object, struct zr_text *out)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (text) zr_text_add_bytes(out, text, strlen(text));
    free(text);
    json_decref(object);
}

void zr_status_job(struct zr_open_job *open, struct zr_text *out)
{
    json_t *job = job_object(open);
    struct zr_text words = { 0 };
    zr_plan_words(zr_job_plan(open->job), &words);
    json_object_set_new(job, "plan", text_of(zr_text_c(&words)));
    json_object_set_new(job, "places", places(zr_job_plan(open->job)));
    json_object_set_new(job, "model_state_bytes", count_of(zr_plan_state_bytes(zr_job_plan(open->job))));
    zr_text_fini(&words);
    append(job, out);
}

static json_t *daemon_object(struct zr_daemon *daemon)
{
    json_t *object = json_object();
    json_object_set_new(object, "version", json_string(ZR_VERSION));
    json_object_set_new(object, "pid", count_of((uint64_t)getpid()));
    json_object_set_new(object, "uptime_seconds", seconds(zr_now_ns() - daemon->started_ns));
    json_object_set_new(object, "socket", text_of(daemon->door.path));
    json_object_set_new(object, "config", text_of(daemon->base->name));
    json_object_set_new(object, "device", text_of(zr_engine_describe(daemon->engine)));
    json_object_set_new(object, "stopping", json_boolean(atomic_load(&daemon->stopping)));
    json_object_set_new(object, "sessions_opened", count_of(daemon->sessions_opened));
    json_object_set_new(object, "sessions_refused", count_of(daemon->sessions_refused));
    json_object_set_new(object, "submissions", count_of(atomic_load(&daemon->turns.submissions)));
    json_object_set_new(object, "protocol_violations", count_of(atomic_load(&daemon->turns.violations)));
    return object;
}

static json_t *session_object(struct zr_session *session)
{
    json_t *object = json_object();
    uint32_t waiting = atomic_load(&session->up->sq_tail) - atomic_load(&session->down->sq_head);
    json_object_set_new(object, "id", count_of(session->id));
    json_object_set_new(object, "name", text_of(session->name));
    json_object_set_new(object, "pid", count_of((uint64_t)session->pid));
    json_object_set_new(object, "uid", count_of(session->uid));
    json_object_set_new(object, "submissions", count_of(atomic_load(&session->submissions)));
    json_object_set_new(object, "waiting", count_of(waiting <= session->layout.ring_entries ? waiting : 0));
    json_object_set_new(object, "slab_bytes", count_of(session->layout.slab_bytes));
    return object;
}

void zr_status_daemon(struct zr_daemon *daemon, struct zr_text *out)
{
    json_t *whole = json_object(), *sessions = json_array(), *jobs = json_array();
    json_object_set_new(whole, "daemon", daemon_object(daemon));
    for (uint32_t i = 0; i < ZR_SESSIONS_MAX; i++)
        if (daemon->sessions[i] && daemon->sessions[i]->state >= ZR_SESSION_ACTIVE)
            json_array_append_new(sessions, session_object(daemon->sessions[i]));
    json_object_set_new(whole, "sessions", sessions);
    pthread_mutex_lock(&daemon->jobs.lock);
    for (uint32_t i = 0; i < ZR_JOBS_MAX; i++)
        if (daemon->jobs.places[i].id) json_array_append_new(jobs, job_object(daemon->jobs.places + i));
    pthread_mutex_unlock(&daemon->jobs.lock);
    json_object_set_new(whole, "jobs", jobs);
    append(whole, out);
}
