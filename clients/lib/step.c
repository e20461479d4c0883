/* step.c: submit, wait
 *
 *     submit ──► sq ──► daemon ──► cq ──► [stash] ──► zc_wait()
 *
 * Waiting spins for a moment where submissions follow results at once, else it sleeps on the socket right away: a wake-up
 * and the death of the daemon both come there, so no timer is needed. Spinning while the daemon must first wake up would be
 * worse than useless on few cores: the scheduler likes to wake it where the client runs. */
#include "clients/lib/internal.h"
#include "ipc/wait.h"
#include <string.h>
#include <unistd.h>

enum { HOT_GAPS = 4 }; /* a submission this many spins after the last result, or sooner, is back to back */

/* -- completions --------------------------------------------------------------------------------------------------- */

/* Moves the oldest completion from the ring into the stash. False: none there. */
static bool collect_one(struct zc_client *client)
{
    int64_t ready = zrp_ring_ready(&client->cq);
    if (ready <= 0 || client->stash_count == client->layout.ring_entries) return false;
    struct zc_stashed *stashed = client->stash + client->stash_count++;
    zrp_ring_peek(&client->cq, &stashed->cqe);
    if (stashed->cqe.status) { /* the sentence is its place's, so it is taken before that is given back */
        memcpy(stashed->sentence,
               (const char *)client->down_area.at + client->layout.sentence_offset +
                   (size_t)zrp_ring_index(&client->cq) * ZRP_SENTENCE,
               ZRP_SENTENCE - 1);
        stashed->sentence[ZRP_SENTENCE - 1] = 0;
    }
    zrp_ring_drop(&client->cq);
    client->completed = stashed->cqe.ticket;
    return true;
}

/* The event loop's descriptor says the truth again: readable exactly while a result may be waiting. */
void zc_arm(struct zc_client *client)
{
    uint64_t count;
    ssize_t got = read(client->nudge, &count, sizeof count); /* EAGAIN: it was not raised */
    (void)got;
    if (client->stash_count == 0 && zrp_ring_ready(&client->cq) == 0) {
        zc_look_at_socket(client, false); /* wake-ups for what was taken already */
        zrp_sleep_announce(&client->up->client_sleeping);
        if (zrp_ring_ready_before_sleep(&client->cq) == 0) return;
    }
    zrp_nudge(client->nudge);
}

static int deliver(struct zc_client *client, uint32_t index, struct zc_result *result)
{
    struct zc_stashed *stashed = client->stash + index;
    const struct zrp_cqe *cqe = &stashed->cqe;
    struct zc_result all = { .ticket = cqe->ticket,
                             .step = cqe->step,
                             .loss = cqe->loss,
                             .grad_norm = cqe->grad_norm,
                             .learning_rate = cqe->learning_rate,
                             .tokens = cqe->tokens,
                             .trained_tokens = cqe->trained_tokens,
                             .applied = cqe->applied,
                             .micro_batches = cqe->micro_batches,
                             .queue_ns = cqe->queue_ns,
                             .run_ns = cqe->run_ns };
    if (cqe->status)
        all.status = zc_fail_status(cqe->status, stashed->sentence);
    else
        zc_clear();
    if (result) zc_copy_out(result, &all, sizeof all);
    int code = all.status;
    client->delivered_ns = zrp_now_ns();
    client->stash_count--;
    client->in_flight--;
    memmove(stashed, stashed + 1, (client->stash_count - index) * sizeof *stashed);
    return code;
}

/* Is it among the stashed? Collects on the way. */
static bool find_result(struct zc_client *client, uint64_t ticket, uint32_t *ret_index)
{
    for (uint32_t i = 0;; i++) {
        if (i == client->stash_count && !collect_one(client)) return false;
        if (ticket == 0 || client->stash[i].cqe.ticket == ticket) {
            *ret_index = i;
            return true;
        }
    }
}

/* Sleeps until something comes in over the socket or the time is up. No wake-up is lost: ipc/ring.h, R5. */
static void sleep_once(struct zc_client *client, uint64_t end_ns)
{
    zrp_sleep_announce(&client->up->client_sleeping);
    bool forever = end_ns == UINT64_MAX, empty = zrp_ring_ready_before_sleep(&client->cq) == 0;
    uint64_t now_ns = forever ? 0 : zrp_now_ns();
    if (empty && !forever && end_ns > now_ns) zrp_wait_readable(client->socket, end_ns - now_ns);
    zc_look_at_socket(client, empty && forever); /* one call into the system where there is no time limit */
    zrp_sleep_end(&client->up->client_sleeping);
}

static int wait_result(struct zc_client *client, uint64_t ticket, uint64_t end_ns, struct zc_result *result)
{
    uint32_t index;
    struct zrp_spin spin = { 0 };
    bool spun = false;
    for (;;) {
        if (find_result(client, ticket, &index)) return deliver(client, index, result);
        if (client->gone) {
            if (zrp_ring_ready(&client->cq) > 0) continue; /* it came just before the daemon left */
            return zc_fail(ZC_EGONE, "%s", client->gone_text);
        }
        if (zrp_ring_ready(&client->cq) < 0) return zc_fail(ZC_EBUG, "the daemon's completion ring is damaged");
        if (end_ns == 0 || (end_ns != UINT64_MAX && zrp_now_ns() >= end_ns)) {
            zc_look_at_socket(client, false);
            if (client->gone || zrp_ring_ready(&client->cq) > 0) continue;
            return zc_fail(ZC_ETIME, "the result has not come yet");
        }
        if (!spun) {
            spun = true;
            spin = zrp_spinner_begin(&client->spinner, client->hot);
            while (zrp_ring_ready(&client->cq) == 0 && zrp_spin_on(&spin))
                ;
            zrp_spinner_end(&client->spinner, &spin, zrp_ring_ready(&client->cq) != 0);
            continue;
        }
        sleep_once(client, end_ns);
    }
}

ZC_EXPORT int zc_wait(struct zc_client *client, uint64_t ticket, int timeout_ms, struct zc_result *result)
{
    zc_clear();
    bool was_gone = client && client->gone;
    if (was_gone) client->gone = false; /* results that came before are still delivered */
    int code = zc_check_owner(client);
    if (was_gone) client->gone = true;
    if (code) return code;
    if (result && result->size < sizeof result->size)
        return zc_fail(ZC_EINPUT, "zc_result.size is not set: set it to sizeof of the struct");
    if (client->in_flight == 0 && client->gone) return zc_fail(ZC_EGONE, "%s", client->gone_text);
    if (client->in_flight == 0 && ticket == 0 && timeout_ms != 0)
        return zc_fail(ZC_EINPUT, "nothing is in flight: there is no result to wait for");
    if (ticket > client->submitted)
        return zc_fail(ZC_EINPUT, "there was no submission %llu", (unsigned long long)ticket);
    if (ticket && ticket <= client->completed) {
        uint32_t index = 0;
        while (index < client->stash_count && client->stash[index].cqe.ticket != ticket)
            index++;
        if (index == client->stash_count)
            return zc_fail(ZC_EINPUT, "the result of submission %llu was delivered already",
                           (unsigned long long)ticket);
    }
    uint64_t end_ns = timeout_ms < 0 ? UINT64_MAX : timeout_ms == 0 ? 0 : zrp_now_ns() + timeout_ms * 1000000ull;
    code = wait_result(client, ticket, end_ns, result);
    if (client->poll_fd >= 0) zc_arm(client);
    return code;
}

/* -- submissions --------------------------------------------------------------------------------------------------- */

static int put(struct zc_client *client, struct zrp_sqe *sqe, uint64_t *ret_ticket)
{
    int64_t room = zrp_ring_room(&client->sq);
    if (room < 0) return zc_fail(ZC_EBUG, "the daemon's submission ring is damaged");
    if (room == 0 || client->in_flight == client->layout.ring_entries)
        return zc_fail(ZC_EFULL, "%u submissions are in flight, which is all that fits: wait for a result first",
                       client->in_flight);
    sqe->ticket = ++client->submitted;
    sqe->submit_ns = zrp_now_ns();
    client->hot = sqe->submit_ns - client->delivered_ns < HOT_GAPS * client->spinner.spin_ns;
    client->in_flight++;
    zrp_ring_put(&client->sq, sqe);
    if (zrp_sleeps_anew(&client->down->daemon_sleeping, &client->rung)) zrp_bell_ring(client->bell);
    *ret_ticket = sqe->ticket;
    return ZC_OK;
}

/* Offset in the slab of an array of `bytes`; false when it does not lie there. */
static bool line_of(const struct zc_client *client, const void *array, uint64_t bytes, uint32_t *ret_line)
{
    uintptr_t at = (uintptr_t)array, begin = (uintptr_t)client->slab, slab_bytes = client->layout.slab_bytes;
    if (at < begin || at - begin > slab_bytes || bytes > slab_bytes - (at - begin) || (at - begin) % ZRP_LINE)
        return false;
    *ret_line = (uint32_t)((at - begin) / ZRP_LINE);
    return true;
}

static int describe(const struct zc_client *client, const struct zc_batch *batch, struct zrp_sqe *sqe)
{
    static const uint32_t known = ZC_BATCH_LABELS | ZC_BATCH_TARGETS | ZC_BATCH_DOCUMENTS;
    if (!batch || batch->size < sizeof *batch)
        return zc_fail(ZC_EINPUT, "zc_batch.size is not set: set it to sizeof of the struct");
    if (batch->flags & ~known) return zc_fail(ZC_EINPUT, "zc_batch.flags has unknown bits: %#x", batch->flags);
    if ((batch->flags & ZC_BATCH_LABELS) && (batch->flags & ZC_BATCH_TARGETS))
        return zc_fail(ZC_EINPUT, "zc_batch.flags: labels are either shifted (ZC_BATCH_TARGETS) or not, not both");
    if (batch->rows == 0 || batch->row_tokens == 0)
        return zc_fail(ZC_EINPUT, "the batch has %u rows of %u tokens: at least 1 of each is needed", batch->rows,
                       batch->row_tokens);
    sqe->flags = (uint8_t)batch->flags; /* the same bits */
    sqe->rows = batch->rows;
    sqe->row_tokens = batch->row_tokens;
    uint64_t tokens = (uint64_t)batch->rows * batch->row_tokens;
    uint64_t bytes = tokens > client->layout.slab_bytes / 4 ? client->layout.slab_bytes + 1 : tokens * 4;
    bool inside = line_of(client, batch->tokens, bytes, &sqe->tokens_line);
    if (batch->flags & (ZC_BATCH_LABELS | ZC_BATCH_TARGETS))
        inside = inside && line_of(client, batch->labels, bytes, &sqe->labels_line);
    if (batch->flags & ZC_BATCH_DOCUMENTS) {
        sqe->document_count = batch->document_count;
        if (batch->document_count == 0 || batch->document_count > batch->document_max)
            return zc_fail(ZC_EINPUT, "zc_batch.document_count is %u: 1 to %u (document_max) are possible",
                           batch->document_count, batch->document_max);
        inside = inside &&
                 line_of(client, batch->document_starts, (uint64_t)batch->document_count * 4, &sqe->documents_line);
    }
    if (!inside) return zc_fail(ZC_EINPUT, "the batch's arrays are not those of zc_batch_take(), or it grew since");
    return ZC_OK;
}

static int check_submitter(const struct zc_job *job)
{
    if (!job) return zc_fail(ZC_EINPUT, "no job was given (NULL)");
    int code = zc_check_owner(job->client);
    if (code == ZC_OK && job->observer)
        code = zc_fail(ZC_EACCESS, "the job was opened to observe: it takes no submissions from here");
    return code;
}

ZC_EXPORT int zc_submit(struct zc_job *job, enum zc_kind kind, const struct zc_batch *batch, uint64_t *ret_ticket)
{
    static_assert((int)ZC_TRAIN == (int)ZRP_TRAIN && (int)ZC_ACCUMULATE == (int)ZRP_ACCUMULATE &&
                      (int)ZC_EVAL == (int)ZRP_EVAL && (int)ZC_BATCH_LABELS == (int)ZRP_SQE_LABELS &&
                      (int)ZC_BATCH_TARGETS == (int)ZRP_SQE_TARGETS &&
                      (int)ZC_BATCH_DOCUMENTS == (int)ZRP_SQE_DOCUMENTS,
                  "the header's numbers are those of the wire");
    zc_clear();
    uint64_t ticket;
    int code = check_submitter(job);
    if (code) return code;
    if (kind != ZC_TRAIN && kind != ZC_ACCUMULATE && kind != ZC_EVAL)
        return zc_fail(ZC_EINPUT, "kind %d cannot be submitted%s", (int)kind,
                       kind == ZC_LOGITS ? ": call zc_logits()" : "");
    struct zrp_sqe sqe = { .op = (uint8_t)kind, .job = job->id };
    if ((code = describe(job->client, batch, &sqe))) return code;
    return put(job->client, &sqe, ret_ticket ? ret_ticket : &ticket);
}

ZC_EXPORT int zc_step(struct zc_job *job, enum zc_kind kind, const struct zc_batch *batch, struct zc_result *result)
{
    uint64_t ticket;
    int code = zc_submit(job, kind, batch, &ticket);
    return code ? code : zc_wait(job->client, ticket, -1, result);
}

ZC_EXPORT int zc_ping(struct zc_client *client)
{
    zc_clear();
    uint64_t ticket;
    struct zrp_sqe sqe = { .op = ZRP_NOP };
    int code = zc_check_owner(client);
    if (code || (code = put(client, &sqe, &ticket))) return code;
    return zc_wait(client, ticket, -1, NULL);
}

/* One forward pass for as many positions as the slab has room for. */
static int logits_piece(struct zc_job *job, struct zrp_sqe *sqe, const uint32_t *positions, uint32_t count,
                        uint64_t offset, float *logits)
{
    struct zc_client *client = job->client;
    uint64_t ticket, logits_offset = offset + ((uint64_t)count * 4 + ZRP_LINE - 1) / ZRP_LINE * ZRP_LINE;
    memcpy(client->slab + offset, positions, (size_t)count * 4);
    sqe->extra_line = (uint32_t)(offset / ZRP_LINE);
    sqe->position_count = count;
    int code = put(client, sqe, &ticket);
    if (code || (code = zc_wait(client, ticket, -1, NULL))) return code;
    memcpy(logits, client->slab + logits_offset, (size_t)count * job->facts.vocabulary * sizeof *logits);
    return ZC_OK;
}

ZC_EXPORT int zc_logits(struct zc_job *job, const struct zc_batch *batch, const uint32_t *positions, uint32_t count,
                        float *logits)
{
    zc_clear();
    int code = check_submitter(job);
    if (code) return code;
    struct zrp_sqe sqe = { .op = ZRP_LOGITS, .job = job->id };
    if ((code = describe(job->client, batch, &sqe))) return code;
    if (count == 0 || !positions || !logits)
        return zc_fail(ZC_EINPUT, "zc_logits() wants at least one position and room for its logits");
    uint64_t each = 4 + (uint64_t)job->facts.vocabulary * sizeof *logits, free_bytes = zc_slab_largest(job->client);
    uint64_t at_a_time = free_bytes > ZRP_LINE ? (free_bytes - ZRP_LINE) / each : 0, offset;
    if (at_a_time > count) at_a_time = count;
    if (at_a_time == 0 || !zc_slab_take(job->client, at_a_time * each + ZRP_LINE, &offset))
        return zc_fail(ZC_EFULL,
                       "logits of one position take %llu bytes of the slab and %llu are free: connect with a larger "
                       "slab",
                       (unsigned long long)(each + ZRP_LINE), (unsigned long long)free_bytes);
    for (uint32_t done = 0; done < count && code == ZC_OK;) {
        uint32_t piece = count - done < at_a_time ? count - done : (uint32_t)at_a_time;
        code = logits_piece(job, &sqe, positions + done, piece, offset, logits + (size_t)done * job->facts.vocabulary);
        done += piece;
    }
    zc_slab_give_back(job->client, offset);
    return code;
}
