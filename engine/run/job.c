/* job.c: open and close: plan, memory, queues, weights
 *
 * Opening takes everything that the job will ever hold; a step allocates nothing. Any stage may fail: zr_job_close() takes
 * what is there apart, in the opposite order. */
#include "engine/run/job.h"
#include "engine/base/place.h"
#include "engine/base/span.h"
#include "engine/run/wishes.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_ENTRIES 4096
#define IO_ENTRIES 1024

static int simd_limit(enum zr_simd simd)
{
    return simd == ZR_SIMD_SCALAR ? 0 : simd == ZR_SIMD_AVX2 ? 1 : 2;
}

/* The cpu backend's device memory is the host's too: both must be there together, before anything is touched. */
static enum zr_code check_memory(const struct zr_job *job, struct zr_error *err)
{
    struct zr_place place;
    zr_place_look(&place);
    uint64_t need = job->plan->used[ZR_HOST];
    if (job->engine->kind == ZR_DEVICE_CPU) need += job->plan->used[ZR_DEVICE];
    char wanted[24], free_text[24];
    if (need > place.memory_bytes)
        return zr_fail(err, ZR_EFULL,
                       "host memory: the job needs %s (%" PRIu64 " bytes), this process may take %s (what the machine "
                       "has free, cut by the control group's limit); hint: offload_optimizer.device nvme moves the "
                       "optimizer's states to a drive",
                       zr_text_bytes(wanted, need), need, zr_text_bytes(free_text, place.memory_bytes));
    return ZR_OK;
}

static enum zr_code open_memory(struct zr_job *job, struct zr_error *err)
{
    const struct zr_config *config = &job->config;
    enum zr_code code = check_memory(job, err);
    if (code) return code;
    struct zr_device_config device = { .kind = job->engine->kind,
                                       .memory_bytes = job->plan->used[ZR_DEVICE],
                                       .threads = config->compute_threads,
                                       .simd_limit = simd_limit(config->simd),
                                       .trace = job->engine->trace };
    struct zr_device_config host_device = { .kind = ZR_DEVICE_CPU,
                                            .threads = config->optimizer_threads,
                                            .simd_limit = simd_limit(config->simd),
                                            .trace = job->engine->trace };
    struct zr_pool *pool = NULL;
    if ((code = zr_device_open(&device, &job->device, err)) ||
        (code = zr_device_open(&host_device, &job->host_device, err)) ||
        (code = zr_pool_make(zr_pool_default_threads(), &pool, err)))
        return code;
    code = zr_host_open(job->device, job->plan->used[ZR_HOST], pool, &job->host, err);
    zr_pool_free(pool);
    if (code || job->plan->used[ZR_NVME] == 0) return code;

    struct zr_nvme_config nvme = { .path_count = config->nvme_path_count,
                                   .bytes = job->plan->used[ZR_NVME],
                                   .block_bytes = config->io_block_bytes,
                                   .depth = config->io_depth,
                                   .engine = config->io_engine,
                                   .verify = config->nvme_verify,
                                   .allow_buffered = config->nvme_allow_buffered,
                                   .buffers = zr_host_memory(job->host),
                                   .buffer_bytes = job->plan->used[ZR_HOST],
                                   .host_device = job->host_device,
                                   .trace = job->engine->trace };
    for (uint32_t i = 0; i < config->nvme_path_count; i++)
        nvme.paths[i] = config->nvme_path[i];
    return zr_nvme_open(&nvme, &job->nvme, err);
}

static enum zr_code open_queues(struct zr_job *job, struct zr_error *err)
{
    enum zr_code code = ZR_OK;
    for (int queue = 0; queue < ZR_QUEUE_COUNT && !code; queue++)
        code = zr_timeline_make(&job->timelines[queue], err);
    for (int queue = ZR_QUEUE_COMPUTE; queue <= ZR_QUEUE_CPU && !code; queue++) {
        struct zr_device *device = queue == ZR_QUEUE_CPU ? job->host_device : job->device;
        bool compute = queue == ZR_QUEUE_COMPUTE || queue == ZR_QUEUE_CPU;
        code = zr_stream_open(device, zr_queue_name(queue), STREAM_ENTRIES, compute, &job->streams[queue], err);
    }
    for (int way = 0; way < 2 && !code && job->nvme; way++)
        code = zr_nvme_queue_open(job->nvme, way ? ZR_NVME_WRITE : ZR_NVME_READ, zr_queue_name(ZR_QUEUE_READ + way),
                                  IO_ENTRIES, &job->io[way], err);
    return code;
}

/* -- update runs --------------------------------------------------------------------------------------------------- */

/* The unit's runs inside [first, first + count): tensors in a row with the same decay become one, gaps go with the tensor
 * before them (they hold zeros and stay zeros). */
static uint32_t runs_of(const struct zr_job *job, uint32_t unit_index, uint64_t first, uint64_t count,
                        struct zr_run *runs)
{
    const struct zr_unit *unit = &job->model->units[unit_index];
    const uint64_t end = first + count;
    uint32_t made = 0;
    for (uint32_t i = 0; i < unit->tensor_count; i++) {
        const struct zr_tensor *tensor = &job->model->tensors[unit->first_tensor + i];
        uint64_t begin = i == 0 ? 0 : tensor->offset;
        uint64_t stop = i + 1 < unit->tensor_count ? tensor[1].offset : unit->elements;
        begin = zr_max_u64(begin, first);
        stop = zr_min_u64(stop, end);
        if (begin >= stop) continue;
        bool decays = job->config.decay_rule == ZR_DECAY_ALL || tensor->matrix;
        if (made > 0 && runs && runs[made - 1].decays == decays) {
            runs[made - 1].count += stop - begin;
        } else {
            if (runs) runs[made] = (struct zr_run){ .first = begin, .count = stop - begin, .decays = decays };
            made++;
        }
    }
    return made;
}

static enum zr_code make_runs(struct zr_job *job, struct zr_error *err)
{
    const struct zr_plan *plan = job->plan;
    const uint32_t lists = plan->chunk_count + job->model->unit_count;
    uint32_t most = 0;
    for (uint32_t i = 0; i < lists; i++) {
        bool chunk = i < plan->chunk_count;
        uint32_t unit = chunk ? plan->chunks[i].unit : i - plan->chunk_count;
        most += runs_of(job, unit, 0, job->model->units[unit].elements, NULL);
    }
    job->runs = calloc(most + 1u, sizeof *job->runs);
    job->first_run = calloc(lists + 1u, sizeof *job->first_run);
    if (!job->runs || !job->first_run) return zr_fail(err, ZR_EFULL, "no memory for the update's runs");
    uint32_t made = 0;
    for (uint32_t i = 0; i < lists; i++) {
        bool chunk = i < plan->chunk_count;
        uint32_t unit = chunk ? plan->chunks[i].unit : i - plan->chunk_count;
        uint64_t first = chunk ? plan->chunks[i].first : 0;
        uint64_t count = chunk ? plan->chunks[i].count : job->model->units[unit].elements;
        job->first_run[i] = made;
        made += runs_of(job, unit, first, count, job->runs + made);
    }
    job->first_run[lists] = made;
    assert(made <= most);
    return ZR_OK;
}

/* -- what memory holds at the start -------------------------------------------------------------------------------- */

static enum zr_code fill_zero(struct zr_job *job, struct zr_error *err)
{
    /* The host's and the drive's bytes are zero already (host.h, N2); the device's need not be. */
    struct zr_stream *stream = job->streams[ZR_QUEUE_COMPUTE];
    zr_stream_launch(stream, ZR_OP_fill,
                     &(struct zr_op_fill){ .out = zr_device_memory(job->device), .bytes = job->plan->used[ZR_DEVICE] });
    zr_stream_signal(stream, job->timelines[ZR_QUEUE_COMPUTE], ++job->base[ZR_QUEUE_COMPUTE]);
    zr_timeline_wait(job->timelines[ZR_QUEUE_COMPUTE], job->base[ZR_QUEUE_COMPUTE]);
    return zr_device_failure(job->device, err);
}

static enum zr_code fill_rope(struct zr_job *job, struct zr_error *err)
{
    if (job->plan->rope == ZR_NO_BUFFER) return ZR_OK;
    uint64_t bytes = job->plan->buffers[job->plan->rope].bytes;
    float *table = malloc(bytes);
    if (!table) return zr_fail(err, ZR_EFULL, "no memory for the rotary table");
    zr_rope_table(&job->model->dims, job->plan->row_tokens, table);
    struct zr_stream *stream = job->streams[ZR_QUEUE_H2D];
    zr_stream_copy(stream, zr_job_at(job, job->plan->rope), table, bytes);
    zr_stream_signal(stream, job->timelines[ZR_QUEUE_H2D], ++job->base[ZR_QUEUE_H2D]);
    zr_timeline_wait(job->timelines[ZR_QUEUE_H2D], job->base[ZR_QUEUE_H2D]);
    free(table);
    return zr_device_failure(job->device, err);
}

static enum zr_code random_weights(struct zr_job *job, struct zr_error *err)
{
    enum { PIECE = 1 << 16 };
    float *values = malloc(PIECE * sizeof *values);
    if (!values) return zr_fail(err, ZR_EFULL, "no memory for random weights");
    enum zr_code code = ZR_OK;
    for (uint32_t index = 0; index < job->model->tensor_count && !code; index++) {
        const struct zr_tensor *tensor = &job->model->tensors[index];
        for (uint64_t first = 0; first < tensor->count && !code; first += PIECE) {
            uint64_t count = zr_min_u64(PIECE, tensor->count - first);
            zr_model_init_tensor(job->model, index, job->config.model_seed, first, count, values);
            code = zr_job_take_weights(job, tensor->unit, tensor->offset + first, values, count, err);
        }
    }
    free(values);
    return code;
}

static enum zr_code open_stages(struct zr_job *job, const struct zr_dims *dims, const struct zr_weights *weights,
                                struct zr_error *err)
{
    struct zr_wishes wishes;
    struct zr_machine machine = job->engine->machine;
    enum zr_code code;
    if ((code = zr_wishes_make(&job->config, dims, &wishes, err)) ||
        (code = zr_wishes_budgets(&job->config, &machine, err)) || (code = zr_model_make(dims, &job->model, err)) ||
        (code = zr_plan_make(job->model, &wishes, &machine, &job->plan, err)) || (code = open_memory(job, err)) ||
        (code = open_queues(job, err)) || (code = make_runs(job, err)))
        return code;

    job->micro_documents = calloc(job->plan->micro_max, sizeof *job->micro_documents);
    job->micro_picked = calloc(job->plan->micro_max, sizeof *job->micro_picked);
    job->logits_offset = calloc(job->plan->micro_max, sizeof *job->logits_offset);
    job->records = calloc(ZR_JOB_RECORDS, sizeof *job->records);
    job->bounce = aligned_alloc(ZR_NVME_ALIGN, ZR_BOUNCE_BYTES);
    if (!job->micro_documents || !job->micro_picked || !job->logits_offset || !job->records || !job->bounce)
        return zr_fail(err, ZR_EFULL, "no memory for the job's tables");

    if ((code = fill_zero(job, err)) || (code = fill_rope(job, err))) return code;
    code = weights && weights->load ? weights->load(weights->context, job->model, zr_job_take_weights, job, err)
                                    : random_weights(job, err);
    return code ? code : zr_planes_refresh(job, err);
}

enum zr_code zr_job_open(struct zr_engine *engine, const char *name, const struct zr_config *config,
                         const struct zr_dims *dims, const struct zr_weights *weights, struct zr_job **ret_job,
                         struct zr_error *err)
{
    struct zr_job *job = calloc(1, sizeof *job);
    if (!job) return zr_fail(err, ZR_EFULL, "no memory for a job");
    pthread_mutex_init(&job->facts_lock, NULL);
    job->engine = engine;
    job->config = *config;
    zr_text_print(job->name, sizeof job->name, "%.63s", name);
    job->facts.max_steps = config->max_steps ? config->max_steps : config->rate.total_num_steps;

    enum zr_code code = open_stages(job, dims, weights, err);
    if (code) {
        zr_job_close(job);
        return code;
    }
    memcpy(job->facts.tier_used, job->plan->used, sizeof job->plan->used);
    memcpy(job->facts.tier_budget, job->plan->machine.bytes, sizeof job->plan->machine.bytes);
    *ret_job = job;
    return ZR_OK;
}

void zr_job_close(struct zr_job *job)
{
    if (!job) return;
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
        if (job->streams[queue]) zr_stream_close(job->streams[queue]);
    for (int way = 0; way < 2; way++)
        if (job->io[way]) zr_nvme_queue_close(job->io[way]);
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
        if (job->timelines[queue]) zr_timeline_free(job->timelines[queue]);
    zr_tapes_free(job);
    zr_nvme_close(job->nvme);
    zr_host_close(job->host);
    zr_device_close(job->host_device);
    zr_device_close(job->device);
    zr_plan_free(job->plan);
    zr_model_free(job->model);
    free(job->runs);
    free(job->first_run);
    free(job->micro_documents);
    free(job->micro_picked);
    free(job->logits_offset);
    free(job->records);
    free(job->bounce);
    pthread_mutex_destroy(&job->facts_lock);
    free(job);
}

/* -- looking at it ------------------------------------------------------------------------------------------------- */

const char *zr_job_name(const struct zr_job *job)
{
    return job->name;
}

const struct zr_model *zr_job_model(const struct zr_job *job)
{
    return job->model;
}

const struct zr_plan *zr_job_plan(const struct zr_job *job)
{
    return job->plan;
}

const struct zr_config *zr_job_config(const struct zr_job *job)
{
    return &job->config;
}

/* Busy time of each queue in the newest step that the trace still has whole. */
static void meter(struct zr_job *job, struct zr_job_facts *facts)
{
    uint32_t count = zr_trace_read(job->engine->trace, job->records, ZR_JOB_RECORDS);
    if (facts->step == 0) return;
    uint32_t step = (uint32_t)facts->step - 1; /* the step that made `step` updates counted from the one before */
    for (uint32_t i = 0; i < count; i++) {
        const struct zr_event_record *record = &job->records[i];
        if (record->step != step) continue;
        const char *track = zr_trace_track_text(job->engine->trace, record->track);
        for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
            if (strcmp(track, zr_queue_name(queue)) == 0)
                facts->queue_busy_ns[queue] += record->end_ns - record->begin_ns;
    }
    int busiest = 0;
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
        if (facts->queue_busy_ns[queue] > facts->queue_busy_ns[busiest]) busiest = queue;
    zr_text_print(facts->bound_by, sizeof facts->bound_by, "%s", zr_queue_name(busiest));
}

void zr_job_facts(struct zr_job *job, struct zr_job_facts *ret_facts)
{
    pthread_mutex_lock(&job->facts_lock);
    *ret_facts = job->facts;
    ret_facts->failed = job->failed;
    meter(job, ret_facts);
    pthread_mutex_unlock(&job->facts_lock);
    if (!job->nvme) return;
    struct zr_nvme_facts nvme;
    zr_nvme_facts(job->nvme, &nvme);
    ret_facts->nvme_read_bytes = nvme.read_bytes;
    ret_facts->nvme_written_bytes = nvme.written_bytes;
    zr_text_print(ret_facts->io_engine, sizeof ret_facts->io_engine, "%s", nvme.engine);
    zr_text_print(ret_facts->warning, sizeof ret_facts->warning, "%.511s", nvme.warning);
}
