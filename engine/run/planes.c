/* planes.c: reading and writing planes wherever they live, between steps
 *
 * Loading, export and tests go through here; steps never do. Bytes on the device pass through the h2d and d2h streams,
 * bytes on NVMe through an aligned bounce buffer, since offsets inside a plane have no alignment. */
#include "engine/base/span.h"
#include "engine/run/job.h"
#include "kernels/split.h"
#include <assert.h>
#include <string.h>

void *zr_job_at(const struct zr_job *job, uint32_t index)
{
    assert(index < job->plan->buffer_count);
    const struct zr_buffer *buffer = &job->plan->buffers[index];
    assert(buffer->tier != ZR_NVME);
    char *base = buffer->tier == ZR_DEVICE ? zr_device_memory(job->device) : zr_host_memory(job->host);
    return base + buffer->offset;
}

/* Queues one copy and waits for it: the timeline of that queue moves on by one. */
static enum zr_code copy_now(struct zr_job *job, enum zr_queue queue, void *to, const void *from, uint64_t bytes,
                             struct zr_error *err)
{
    zr_stream_copy(job->streams[queue], to, from, bytes);
    zr_stream_signal(job->streams[queue], job->timelines[queue], ++job->base[queue]);
    zr_timeline_wait(job->timelines[queue], job->base[queue]);
    return zr_device_failure(job->device, err);
}

static enum zr_code nvme_piece(struct zr_job *job, uint64_t offset, uint64_t bytes, void *to, const void *from,
                               struct zr_error *err)
{
    const uint64_t align = ZR_NVME_ALIGN;
    while (bytes > 0) {
        uint64_t begin = offset & ~(align - 1), inside = offset - begin;
        uint64_t part = zr_min_u64(bytes, ZR_BOUNCE_BYTES - inside);
        uint64_t span = zr_round_up(inside + part, align);
        enum zr_code code = ZR_OK;
        bool whole = inside == 0 && part == span;
        if (to || !whole) code = zr_nvme_read(job->nvme, begin, job->bounce, span, err);
        if (code) return code;
        if (to) {
            memcpy(to, (char *)job->bounce + inside, part);
            to = (char *)to + part;
        } else {
            memcpy((char *)job->bounce + inside, from, part);
            if ((code = zr_nvme_write(job->nvme, begin, job->bounce, span, err))) return code;
            from = (const char *)from + part;
        }
        offset += part;
        bytes -= part;
    }
    return ZR_OK;
}

/* Exactly one of `to` and `from` is given. */
static enum zr_code move(struct zr_job *job, uint32_t buffer_index, uint64_t skip, uint64_t bytes, void *to,
                         const void *from, struct zr_error *err)
{
    const struct zr_buffer *buffer = &job->plan->buffers[buffer_index];
    assert(zr_inside(skip, bytes, buffer->bytes));
    if (buffer->tier == ZR_NVME) return nvme_piece(job, buffer->offset + skip, bytes, to, from, err);
    char *at = (char *)zr_job_at(job, buffer_index) + skip;
    if (buffer->tier == ZR_DEVICE)
        return to ? copy_now(job, ZR_QUEUE_D2H, to, at, bytes, err) : copy_now(job, ZR_QUEUE_H2D, at, from, bytes, err);
    if (to)
        memcpy(to, at, bytes);
    else
        memcpy(at, from, bytes);
    return ZR_OK;
}

static enum zr_code move_plane(struct zr_job *job, uint32_t unit, enum zr_plane plane, uint64_t first, uint64_t count,
                               void *to, const void *from, struct zr_error *err)
{
    const struct zr_unit_plan *place = &job->plan->units[unit];
    const uint64_t size = zr_plane_bytes(job->plan, unit, plane);
    assert(size > 0 && zr_inside(first, count, job->model->units[unit].elements));
    if (place->home[plane] != ZR_NO_BUFFER)
        return move(job, place->home[plane], first * size, count * size, to, from, err);
    if (plane == ZR_WEIGHT) return move(job, place->nvme_weight, first * size, count * size, to, from, err);

    for (uint32_t i = 0; i < place->chunk_count && count > 0; i++) {
        const struct zr_chunk *chunk = &job->plan->chunks[place->first_chunk + i];
        if (first >= chunk->first + chunk->count) continue;
        uint64_t part = zr_min_u64(count, chunk->first + chunk->count - first);
        enum zr_code code = move(job, chunk->nvme[plane], (first - chunk->first) * size, part * size, to, from, err);
        if (code) return code;
        if (to) to = (char *)to + part * size;
        if (from) from = (const char *)from + part * size;
        first += part;
        count -= part;
    }
    assert(count == 0);
    return ZR_OK;
}

enum zr_code zr_plane_put(struct zr_job *job, uint32_t unit, enum zr_plane plane, uint64_t first, uint64_t count,
                          const void *from, struct zr_error *err)
{
    return move_plane(job, unit, plane, first, count, NULL, from, err);
}

enum zr_code zr_plane_get(struct zr_job *job, uint32_t unit, enum zr_plane plane, uint64_t first, uint64_t count,
                          void *to, struct zr_error *err)
{
    return move_plane(job, unit, plane, first, count, to, NULL, err);
}

enum zr_code zr_planes_refresh(struct zr_job *job, struct zr_error *err)
{
    for (uint32_t unit = 0; unit < job->model->unit_count; unit++) {
        const struct zr_unit_plan *place = &job->plan->units[unit];
        if (!place->resident || place->weight_home == ZR_DEVICE) continue;
        uint64_t bytes = job->plan->buffers[place->device_weight].bytes;
        const void *from;
        enum zr_code code = ZR_OK;
        if (place->weight_home == ZR_HOST) {
            from = zr_job_at(job, place->home[ZR_WEIGHT]);
        } else {
            void *slot = zr_job_at(job, job->plan->host_slots[0]);
            code = zr_nvme_read(job->nvme, job->plan->buffers[place->nvme_weight].offset, slot,
                                zr_round_up(bytes, ZR_NVME_ALIGN), err);
            from = slot;
        }
        if (!code) code = copy_now(job, ZR_QUEUE_H2D, zr_job_at(job, place->device_weight), from, bytes, err);
        if (code) return code;
    }
    return ZR_OK;
}

/* -- as fp32 values ------------------------------------------------------------------------------------------------ */

enum zr_code zr_job_read(struct zr_job *job, enum zr_plane_view view, uint32_t unit, uint64_t offset, float *ret_values,
                         uint64_t count, struct zr_error *err)
{
    if (unit >= job->model->unit_count || !zr_inside(offset, count, job->model->units[unit].elements))
        return zr_fail(err, ZR_EINPUT, "unit %u has no elements %llu to %llu", unit, (unsigned long long)offset,
                       (unsigned long long)(offset + count));
    static const enum zr_plane planes[] = { ZR_WEIGHT, ZR_WEIGHT, ZR_M, ZR_V, ZR_GRAD };
    const enum zr_plane plane = planes[view];
    if (zr_plane_bytes(job->plan, unit, plane) == 4)
        return zr_plane_get(job, unit, plane, offset, count, ret_values, err);

    uint16_t high[1024], low[1024];
    for (uint64_t done = 0; done < count; done += ZR_COUNT(high)) {
        uint64_t part = zr_min_u64(count - done, ZR_COUNT(high));
        enum zr_code code = zr_plane_get(job, unit, plane, offset + done, part, high, err);
        if (!code && view == ZR_VIEW_MASTER) code = zr_plane_get(job, unit, ZR_LOW, offset + done, part, low, err);
        if (code) return code;
        for (uint64_t i = 0; i < part; i++)
            ret_values[done + i] = view == ZR_VIEW_MASTER ? zr_split_decode(high[i], low[i]) : zr_bf16_to_f32(high[i]);
    }
    return ZR_OK;
}

/* The sink of loading: fp32 values into the weight plane, split where the plan says so. */
enum zr_code zr_job_take_weights(void *context, uint32_t unit, uint64_t offset, const float *values, uint64_t count,
                                 struct zr_error *err)
{
    struct zr_job *job = context;
    if (!job->plan->wishes.split) return zr_plane_put(job, unit, ZR_WEIGHT, offset, count, values, err);
    uint16_t high[1024], low[1024];
    for (uint64_t done = 0; done < count; done += ZR_COUNT(high)) {
        uint64_t part = zr_min_u64(count - done, ZR_COUNT(high));
        for (uint64_t i = 0; i < part; i++)
            zr_split_encode(values[done + i], &high[i], &low[i]);
        enum zr_code code = zr_plane_put(job, unit, ZR_WEIGHT, offset + done, part, high, err);
        if (!code) code = zr_plane_put(job, unit, ZR_LOW, offset + done, part, low, err);
        if (code) return code;
    }
    return ZR_OK;
}
