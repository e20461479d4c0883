/* nvme_queue.c: transfers in order, with a thread and an engine of their own
 *
 *        retired            issued, flying            waiting to be issued
 *     ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┤ head ┆ put put signal put ┆ cursor ┆ wait put signal ┆ tail ├┄┄┄ free
 *
 *   Q1  The caller moves `tail`, the thread moves `cursor` and `head`: head <= cursor <= tail <= head + room.
 *   Q2  The cursor passes a wait when its timeline has the value, a put when all its blocks have been submitted, a signal
 *       at once. The head passes a put when its last block is back, a signal by firing it.
 *   Q3  While blocks fly, the thread waits in the engine only, with a limit of POLL_NS where a timeline or a new entry
 *       could let it go on earlier. While none flies it sleeps: on the timeline, or until something is put.
 *   Q4  Checksums are computed beside the disk's work, not instead of it: a block to be written is handed over before the
 *       next one is sealed, and a block that was read is verified after new ones have been submitted into other slots.
 *   Q5  After a failure of the device puts move nothing any more, waits and signals go on (D4). */
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/span.h"
#include "engine/tier/nvme_store.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_NS = 200000, LONG_NS = 100000000, NAME_BYTES = 32 };

struct entry {
    enum { WAIT, PUT, SIGNAL } kind;
    struct zr_timeline *timeline;
    uint64_t value;
    uint64_t offset, bytes, issued; /* a put: bytes of it that have been submitted, or skipped */
    char *host;
    uint32_t flying; /* blocks */
    bool begun, labelled;
    uint64_t begin_ns, end_ns;
    struct zr_event_record label;
};

struct slot {
    struct zr_nvme_block block;
    struct entry *entry;
};

struct zr_nvme_queue {
    struct zr_nvme *nvme;
    enum zr_io_way way;
    char name[NAME_BYTES];
    uint32_t track;
    struct entry *entries;
    uint32_t entry_count;

    pthread_mutex_t lock; /* guards the next six */
    pthread_cond_t more, room;
    uint64_t head, tail;
    bool stop, ready;
    enum zr_code open_code;
    struct zr_error open_error;

    /* The thread's alone. */
    pthread_t thread;
    struct zr_io io;
    uint64_t cursor, known_tail, retired;
    struct slot *slots;
    uint32_t slot_count;               /* the depth, and as many again where reads are verified */
    uint32_t *free_slots, *unverified; /* stack, ring of slot_count */
    uint32_t free_count;
    uint64_t unverified_head, unverified_tail;
    struct zr_io_done *done;
    uint64_t busy_since_ns, traced_until_ns;
};

static struct entry *entry_at(struct zr_nvme_queue *queue, uint64_t number)
{
    return &queue->entries[number % queue->entry_count];
}

/* -- the thread ---------------------------------------------------------------------------------------------------- */

static bool device_failed(struct zr_nvme_queue *queue)
{
    struct zr_error unused = { 0 };
    return queue->nvme->host_device && zr_device_failure(queue->nvme->host_device, &unused) != ZR_OK;
}

static void submit_block(struct zr_nvme_queue *queue, struct entry *entry)
{
    const uint32_t number = queue->free_slots[--queue->free_count];
    struct slot *slot = &queue->slots[number];
    slot->entry = entry;
    zr_nvme_block_begin(queue->nvme, queue->way, entry->offset + entry->issued, entry->host + entry->issued,
                        entry->bytes - entry->issued, &slot->block);
    entry->issued += slot->block.bytes;
    entry->flying++;
    if (queue->io.in_flight == 0) queue->busy_since_ns = zr_now_ns();
    struct zr_io_request rest = zr_nvme_block_rest(&slot->block, number);
    zr_io_submit(&queue->io, &rest);
    if (queue->nvme->seal && queue->way == ZR_IO_WRITE) zr_io_flush(&queue->io); /* Q4 */
}

enum blocked { ON_ENTRIES, ON_TIMELINE, ON_SLOTS };

/* Moves the cursor as far as it goes; says what holds it. */
static enum blocked issue(struct zr_nvme_queue *queue)
{
    for (;; queue->cursor++) {
        if (queue->cursor == queue->known_tail) {
            pthread_mutex_lock(&queue->lock);
            queue->known_tail = queue->tail;
            pthread_mutex_unlock(&queue->lock);
            if (queue->cursor == queue->known_tail) return ON_ENTRIES;
        }
        struct entry *entry = entry_at(queue, queue->cursor);
        if (entry->kind == WAIT && zr_timeline_value(entry->timeline) < entry->value) return ON_TIMELINE;
        if (entry->kind != PUT) continue;
        if (!entry->begun) {
            entry->begun = true;
            entry->begin_ns = entry->end_ns = zr_now_ns();
            if (device_failed(queue)) entry->issued = entry->bytes; /* Q5 */
        }
        while (entry->issued < entry->bytes) {
            if (queue->free_count == 0 || queue->io.in_flight == queue->nvme->depth) return ON_SLOTS;
            submit_block(queue, entry);
        }
    }
}

static void trace(struct zr_nvme_queue *queue, const struct entry *entry)
{
    if (!entry->labelled || !queue->nvme->trace) return;
    struct zr_event_record record = entry->label;
    record.track = queue->track;
    record.bytes = entry->bytes;
    record.begin_ns = zr_max_u64(entry->begin_ns, queue->traced_until_ns); /* events of a track do not overlap */
    record.end_ns = zr_max_u64(entry->end_ns, record.begin_ns);
    queue->traced_until_ns = record.end_ns;
    zr_trace_put(queue->nvme->trace, &record);
}

/* Moves the head over everything that is over, and fires signals on the way. */
static void retire(struct zr_nvme_queue *queue)
{
    const uint64_t before = queue->retired;
    for (; queue->retired < queue->cursor; queue->retired++) {
        struct entry *entry = entry_at(queue, queue->retired);
        if (entry->kind == PUT && entry->flying > 0) break;
        if (entry->kind == PUT) trace(queue, entry);
        if (entry->kind == SIGNAL) zr_timeline_signal(entry->timeline, entry->value);
    }
    if (queue->retired == before) return;
    pthread_mutex_lock(&queue->lock);
    queue->head = queue->retired;
    pthread_cond_signal(&queue->room);
    pthread_mutex_unlock(&queue->lock);
}

static void finish_block(struct zr_nvme_queue *queue, uint32_t number, enum zr_code code, const struct zr_error *err)
{
    struct entry *entry = queue->slots[number].entry;
    if (code) {
        if (queue->nvme->host_device) zr_device_fail(queue->nvme->host_device, code, err);
        entry->issued = entry->bytes; /* the rest of it is not begun */
    }
    entry->flying--;
    entry->end_ns = zr_now_ns();
    queue->free_slots[queue->free_count++] = number;
}

static void block_back(struct zr_nvme_queue *queue, const struct zr_io_done *done)
{
    struct slot *slot = &queue->slots[done->slot];
    struct zr_error err = { 0 };
    enum zr_code code = ZR_OK;
    enum zr_nvme_turn turn = zr_nvme_block_turn(queue->nvme, &slot->block, done->result, &code, &err);
    if (turn == ZR_NVME_AGAIN) {
        struct zr_io_request rest = zr_nvme_block_rest(&slot->block, done->slot);
        zr_io_submit(&queue->io, &rest);
    } else if (turn == ZR_NVME_DONE && queue->nvme->seal && queue->way == ZR_IO_READ) {
        queue->unverified[queue->unverified_tail++ % queue->slot_count] = done->slot;
    } else {
        finish_block(queue, done->slot, code, &err);
    }
}

static void verify_one(struct zr_nvme_queue *queue)
{
    const uint32_t number = queue->unverified[queue->unverified_head++ % queue->slot_count];
    struct zr_error err = { 0 };
    finish_block(queue, number, zr_nvme_block_verify(queue->nvme, &queue->slots[number].block, &err), &err);
}

static void reap(struct zr_nvme_queue *queue, uint64_t timeout_ns)
{
    uint32_t count = zr_io_reap(&queue->io, queue->done, queue->slot_count, timeout_ns);
    for (uint32_t i = 0; i < count; i++)
        block_back(queue, &queue->done[i]);
    const uint64_t now_ns = zr_now_ns();
    atomic_fetch_add_explicit(&queue->nvme->busy_ns[queue->way], now_ns - queue->busy_since_ns, memory_order_relaxed);
    queue->busy_since_ns = now_ns;
}

/* false: the queue is being closed, and everything has been done. */
static bool sleep_until_more(struct zr_nvme_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->tail == queue->cursor && !queue->stop)
        pthread_cond_wait(&queue->more, &queue->lock);
    bool more = queue->tail != queue->cursor;
    pthread_mutex_unlock(&queue->lock);
    return more;
}

static enum zr_code open_engine(struct zr_nvme_queue *queue, struct zr_error *err)
{
    struct zr_nvme *nvme = queue->nvme;
    struct zr_io_setup setup = { .fd_count = nvme->file_count, .depth = queue->slot_count };
    for (uint32_t i = 0; i < nvme->file_count; i++)
        setup.fds[i] = nvme->files[i].fd;
    pthread_mutex_lock(&nvme->lock);
    if (!nvme->register_refused) { /* what one ring was refused the other one does not try */
        setup.buffers = nvme->buffers;
        setup.buffer_bytes = nvme->buffer_bytes;
    }
    pthread_mutex_unlock(&nvme->lock);

    char refusal[ZR_IO_REFUSAL_BYTES];
    enum zr_code code = zr_nvme_engine_open(nvme, &setup, &queue->io, refusal, err);
    if (code) return zr_fail_in(err, code, "nvme queue '%s'", queue->name);
    if (refusal[0]) zr_nvme_warn(nvme, "%s", refusal);
    pthread_mutex_lock(&nvme->lock);
    nvme->register_refused |= refusal[0] != '\0';
    nvme->registered = queue->io.registered && (nvme->registered || nvme->queue_count == 0);
    pthread_mutex_unlock(&nvme->lock);
    return ZR_OK;
}

static void *work(void *argument)
{
    struct zr_nvme_queue *queue = argument;
    struct zr_error err = { 0 };
    enum zr_code code = open_engine(queue, &err); /* here, since a ring belongs to the thread that made it */
    pthread_mutex_lock(&queue->lock);
    queue->ready = true;
    queue->open_code = code;
    queue->open_error = err;
    pthread_cond_signal(&queue->room);
    pthread_mutex_unlock(&queue->lock);
    if (code) return NULL;

    for (;;) {
        enum blocked blocked = issue(queue);
        retire(queue);
        if (queue->unverified_head != queue->unverified_tail) {
            if (queue->io.in_flight > 0) reap(queue, 0);
            verify_one(queue);
        } else if (queue->io.in_flight > 0) {
            reap(queue, blocked == ON_SLOTS ? LONG_NS : POLL_NS); /* Q3 */
        } else if (blocked == ON_TIMELINE) {
            const struct entry *entry = entry_at(queue, queue->cursor);
            zr_timeline_wait(entry->timeline, entry->value);
        } else if (!sleep_until_more(queue)) {
            break;
        }
    }
    zr_io_close(&queue->io);
    return NULL;
}

/* -- the caller ---------------------------------------------------------------------------------------------------- */

static void free_queue(struct zr_nvme_queue *queue)
{
    pthread_cond_destroy(&queue->more);
    pthread_cond_destroy(&queue->room);
    pthread_mutex_destroy(&queue->lock);
    free(queue->entries);
    free(queue->slots);
    free(queue->free_slots);
    free(queue->unverified);
    free(queue->done);
    free(queue);
}

static enum zr_code start(struct zr_nvme_queue *queue, struct zr_error *err)
{
    enum zr_code code = zr_io_thread(&queue->thread, work, queue, queue->name, err);
    if (code) return code;
    pthread_mutex_lock(&queue->lock);
    while (!queue->ready)
        pthread_cond_wait(&queue->room, &queue->lock);
    code = queue->open_code;
    pthread_mutex_unlock(&queue->lock);
    if (code == ZR_OK) return ZR_OK;
    pthread_join(queue->thread, NULL);
    return zr_fail(err, code, "%s", queue->open_error.text);
}

enum zr_code zr_nvme_queue_open(struct zr_nvme *nvme, enum zr_nvme_direction direction, const char *name,
                                uint32_t entries, struct zr_nvme_queue **ret_queue, struct zr_error *err)
{
    assert(entries > 0);
    struct zr_nvme_queue *queue = zr_fault("nvme.queue.memory") ? NULL : calloc(1, sizeof *queue);
    if (!queue) return zr_fail(err, ZR_EFULL, "no memory for the nvme queue '%s'", name);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->more, NULL);
    pthread_cond_init(&queue->room, NULL);
    queue->nvme = nvme;
    queue->way = (enum zr_io_way)direction;
    queue->entry_count = entries;
    strncpy(queue->name, name, sizeof queue->name - 1);
    queue->track = nvme->trace ? zr_trace_track(nvme->trace, name) : 0;
    queue->entries = calloc(entries, sizeof *queue->entries);
    queue->slot_count = nvme->seal && direction == ZR_NVME_READ ? 2 * nvme->depth : nvme->depth;
    queue->slots = calloc(queue->slot_count, sizeof *queue->slots);
    queue->free_slots = calloc(queue->slot_count, sizeof *queue->free_slots);
    queue->unverified = calloc(queue->slot_count, sizeof *queue->unverified);
    queue->done = calloc(queue->slot_count, sizeof *queue->done);
    enum zr_code code;
    if (!queue->entries || !queue->slots || !queue->free_slots || !queue->unverified || !queue->done) {
        code = zr_fail(err, ZR_EFULL, "no memory for the nvme queue '%s'", name);
    } else {
        while (queue->free_count < queue->slot_count) {
            queue->free_slots[queue->free_count] = queue->free_count;
            queue->free_count++;
        }
        code = start(queue, err);
    }
    if (code) {
        free_queue(queue);
        return code;
    }
    pthread_mutex_lock(&nvme->lock);
    nvme->queue_count++;
    pthread_mutex_unlock(&nvme->lock);
    *ret_queue = queue;
    return ZR_OK;
}

void zr_nvme_queue_close(struct zr_nvme_queue *queue)
{
    if (!queue) return;
    pthread_mutex_lock(&queue->lock);
    queue->stop = true;
    pthread_cond_signal(&queue->more);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    assert(queue->head == queue->tail);
    pthread_mutex_lock(&queue->nvme->lock);
    queue->nvme->queue_count--;
    pthread_mutex_unlock(&queue->nvme->lock);
    free_queue(queue);
}

static void put(struct zr_nvme_queue *queue, const struct entry *entry)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->tail - queue->head == queue->entry_count) /* Q1 */
        pthread_cond_wait(&queue->room, &queue->lock);
    *entry_at(queue, queue->tail) = *entry;
    queue->tail++;
    pthread_cond_signal(&queue->more);
    pthread_mutex_unlock(&queue->lock);
}

void zr_nvme_queue_wait(struct zr_nvme_queue *queue, struct zr_timeline *timeline, uint64_t value)
{
    put(queue, &(struct entry){ .kind = WAIT, .timeline = timeline, .value = value });
}

void zr_nvme_queue_put(struct zr_nvme_queue *queue, uint64_t offset, void *host, uint64_t bytes,
                       const struct zr_event_record *label)
{
    assert(zr_inside(offset, bytes, queue->nvme->bytes));
    assert(offset % ZR_NVME_ALIGN == 0 && bytes % ZR_NVME_ALIGN == 0 && (uintptr_t)host % ZR_NVME_ALIGN == 0); /* N5 */
    struct entry entry = { .kind = PUT, .offset = offset, .bytes = bytes, .host = host, .labelled = label != NULL };
    if (label) entry.label = *label;
    put(queue, &entry);
}

void zr_nvme_queue_signal(struct zr_nvme_queue *queue, struct zr_timeline *timeline, uint64_t value)
{
    put(queue, &(struct entry){ .kind = SIGNAL, .timeline = timeline, .value = value });
}
