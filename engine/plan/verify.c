/* verify.c: proves a schedule free of hazards, from its waits alone
 *
 * Contents: run serially, every read finds what it expects (S1). Order: for every two ops that touch one buffer, one of
 * them writing, a chain of queue order and waits leads from the first to the second (S2). The walk keeps, per buffer, the
 * accesses since the last write; older ones are ordered through that write. Budgets: the plan's own check. */
#include "engine/plan/clocks.h"
#include <stdio.h>
#include <string.h>

struct last {
    uint64_t content;
    bool written;                    /* in this step */
    uint32_t writer;                 /* op index */
    uint32_t reader[ZR_QUEUE_COUNT]; /* op index + 1 of the last reader on each queue since the write; 0: none */
};

struct check {
    const struct zr_schedule *schedule;
    struct last *lasts;
    struct zr_clock *clocks;
};

static void describe(char out[96], const struct zr_op_entry *op)
{
    int length = snprintf(out, 96, "%s %u (%s", zr_queue_name(op->queue), op->sequence, zr_op_kind_name(op->kind));
    if (op->unit != ZR_NONE) length += snprintf(out + length, 96 - (size_t)length, ", unit %u", op->unit);
    if (op->micro != ZR_NONE) length += snprintf(out + length, 96 - (size_t)length, ", micro %u", op->micro);
    if (op->chunk != ZR_NONE) length += snprintf(out + length, 96 - (size_t)length, ", chunk %u", op->chunk);
    snprintf(out + length, 96 - (size_t)length, ")");
}

static bool ordered(const struct check *check, uint32_t before, uint32_t after)
{
    const struct zr_op_entry *first = &check->schedule->ops[before];
    return check->clocks[after].at[first->queue] >= first->sequence && before != after;
}

static enum zr_code race(const struct check *check, uint32_t before, uint32_t after, uint32_t buffer, bool after_writes,
                         bool before_writes, struct zr_error *err)
{
    char first[96], second[96];
    describe(first, &check->schedule->ops[before]);
    describe(second, &check->schedule->ops[after]);
    return zr_fail(err, ZR_EBUG, "%s %s %s while %s may still %s it", second, after_writes ? "overwrites" : "reads",
                   check->schedule->plan->buffers[buffer].name, first, before_writes ? "write" : "read");
}

static enum zr_code check_access(const struct check *check, uint32_t index, const struct zr_access *access,
                                 struct zr_error *err)
{
    const struct zr_buffer *buffer = &check->schedule->plan->buffers[access->buffer];
    struct last *last = &check->lasts[access->buffer];
    if (last->written && last->writer != index && !ordered(check, last->writer, index))
        return race(check, last->writer, index, access->buffer, access->write, true, err);
    if (access->write) {
        for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
            if (last->reader[queue] && last->reader[queue] - 1 != index &&
                !ordered(check, last->reader[queue] - 1, index))
                return race(check, last->reader[queue] - 1, index, access->buffer, true, false, err);
        return ZR_OK;
    }
    char name[96];
    describe(name, &check->schedule->ops[index]);
    if (!last->written && !buffer->persistent)
        return zr_fail(err, ZR_EBUG, "%s reads %s before anything is in it", name, buffer->name);
    if (access->content && last->content && last->content != access->content)
        return zr_fail(err, ZR_EBUG, "%s finds something else in %s than it expects", name, buffer->name);
    return ZR_OK;
}

static void note_access(struct check *check, uint32_t index, const struct zr_access *access)
{
    struct last *last = &check->lasts[access->buffer];
    if (access->write) {
        memset(last, 0, sizeof *last);
        last->content = access->content;
        last->written = true;
        last->writer = index;
    } else {
        if (!last->written) last->content = access->content; /* what was there before the step */
        last->reader[check->schedule->ops[index].queue] = index + 1;
    }
}

enum zr_code zr_schedule_verify(const struct zr_schedule *schedule, struct zr_error *err)
{
    enum zr_code code = zr_plan_verify(schedule->plan, err);
    if (code) return code;
    struct check check = {
        .schedule = schedule,
        .lasts = calloc(schedule->plan->buffer_count, sizeof(struct last)),
        .clocks = calloc(schedule->op_count + 1u, sizeof(struct zr_clock)),
    };
    uint32_t *index[ZR_QUEUE_COUNT];
    zr_clocks_index(schedule, index);
    struct zr_clock queue_clock[ZR_QUEUE_COUNT] = { 0 };
    if (!check.lasts || !check.clocks) code = zr_fail(err, ZR_EFULL, "no memory to verify a schedule");

    for (uint32_t i = 0; i < schedule->op_count && !code; i++) {
        const struct zr_op_entry *op = &schedule->ops[i];
        struct zr_clock clock = queue_clock[op->queue];
        for (int queue = 0; queue < ZR_QUEUE_COUNT && !code; queue++) {
            if (op->wait[queue] == 0) continue;
            if (op->wait[queue] > schedule->queue_length[queue] || index[queue][op->wait[queue] - 1] >= i) {
                char name[96];
                describe(name, op);
                code = zr_fail(err, ZR_EBUG, "%s waits for something later", name);
            } else {
                zr_clock_join(&clock, &check.clocks[index[queue][op->wait[queue] - 1]]);
            }
        }
        check.clocks[i] = clock;
        for (uint32_t a = 0; a < op->access_count && !code; a++)
            code = check_access(&check, i, &op->access[a], err);
        for (int write = 0; write < 2; write++)
            for (uint32_t a = 0; a < op->access_count && !code; a++)
                if (op->access[a].write == write) note_access(&check, i, &op->access[a]);
        clock.at[op->queue] = op->sequence;
        check.clocks[i] = queue_clock[op->queue] = clock;
    }
    for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++)
        free(index[queue]);
    free(check.lasts);
    free(check.clocks);
    return code;
}
