/* test_plans.c: thousands of random plans, each checked by arithmetic that shares nothing with the planner
 *
 * Every plan keeps its budgets and holds every plane once, every schedule does everything once and is free of hazards, and
 * what is broken on purpose (a wait taken away, a buffer moved, a byte too many) is found. */
#include "tests/property/draw.h"
#include "tests/property/oracle.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SEED 20251204u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PLANS = 1500, PLANTED_PLANS = 100 };
#else
enum { PLANS = 12000, PLANTED_PLANS = 1500 };
#endif

enum { ORACLE_OPS = 400 }; /* more would take the oracle too long */

struct subject {
    struct draw draw;
    struct zr_dims dims;
    struct zr_wishes wishes;
    struct zr_machine machine;
    struct zr_model *model;
    struct zr_plan *plan;
};

static void broken(const struct subject *subject, const char *what, const char *text)
{
    const struct zr_wishes *w = &subject->wishes;
    fail_msg("seed %llu, plan %llu: %s: %s\n  %s, %u blocks of %u, %s, %s, states %s, weights %s %s, planes %u, "
             "%u rows of %u (micro %u), prefetch %u, budgets %llu %llu %llu",
             (unsigned long long)subject->draw.seed, (unsigned long long)subject->draw.number, what, text,
             zr_family_name(subject->dims.family), subject->dims.layers, subject->dims.hidden,
             subject->dims.tied ? "tied" : "untied", w->split ? "bf16" : "fp32", zr_tier_name(w->states),
             w->stream_weights ? "streamed from" : "resident, home", zr_tier_name(w->weight_home), w->nvme_planes,
             w->rows_per_step, w->row_tokens, w->micro_rows, w->prefetch,
             (unsigned long long)subject->machine.bytes[ZR_DEVICE], (unsigned long long)subject->machine.bytes[ZR_HOST],
             (unsigned long long)subject->machine.bytes[ZR_NVME]);
}

#define CHECK(subject, condition)                                                                                      \
    do {                                                                                                               \
        if (!(condition)) broken(subject, "does not hold", #condition);                                                \
    } while (0)

/* -- drawing ------------------------------------------------------------------------------------------------------- */

static void plan_again(struct subject *subject)
{
    struct zr_error err = { 0 };
    zr_plan_free(subject->plan);
    subject->plan = NULL;
    enum zr_code code = zr_plan_make(subject->model, &subject->wishes, &subject->machine, &subject->plan, &err);
    if (code && code != ZR_EFULL) broken(subject, "a plan", err.text);
}

/* Shrinks the budgets at random; where that was too much, adds what the refusal says is missing, which must be enough, and
 * one byte less must not be. */
static void draw_budgets(struct subject *subject)
{
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        subject->machine.bytes[tier] = (uint64_t)1 << 50;
    plan_again(subject);
    CHECK(subject, subject->plan);
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        if (draw_chance(&subject->draw, 80))
            subject->machine.bytes[tier] =
                subject->plan->used[tier] / 100 *
                (tier == ZR_DEVICE ? draw_between(&subject->draw, 5, 110) : draw_between(&subject->draw, 60, 130));
    plan_again(subject);

    int refusals = 0;
    enum zr_tier previous = ZR_DEVICE;
    for (; !subject->plan; refusals++) {
        struct zr_error err = { 0 };
        enum zr_tier tier = ZR_TIER_COUNT;
        uint64_t missing = 0;
        CHECK(subject,
              zr_plan_make(subject->model, &subject->wishes, &subject->machine, &subject->plan, &err) == ZR_EFULL);
        if (!draw_read_refusal(err.text, &tier, &missing))
            broken(subject, "a refusal that does not say what", err.text);
        CHECK(subject, missing > 0 && (refusals == 0 || tier > previous));
        previous = tier;
        subject->machine.bytes[tier] += missing - 1;
        plan_again(subject);
        CHECK(subject, !subject->plan);
        subject->machine.bytes[tier]++;
        plan_again(subject);
    }
}

static void subject_init(struct subject *subject, uint64_t number)
{
    struct zr_error err = { 0 };
    *subject = (struct subject){ .draw = { .seed = SEED, .number = number } };
    struct draw *draw = &subject->draw;
    const bool small = draw_chance(draw, 70);
    uint32_t layers = draw_chance(draw, 75) ? draw_u32(draw, 1, 6) : draw_u32(draw, 7, draw_chance(draw, 20) ? 48 : 14);
    subject->dims = draw_dims(draw, layers, small);
    subject->wishes = draw_wishes(draw, small);
    zr_machine_cpu(&subject->machine, 0, 0, 0);
    if (draw_chance(draw, 40)) { /* a GPU: computes on bf16 as it is */
        subject->machine.widen_weights = false;
        subject->machine.element_bytes = subject->wishes.split ? 2 : 4;
    }
    subject->machine.flops = (double)draw_power(draw, 25, 50); /* both sides of bound by compute and by copies */
    if (zr_model_make(&subject->dims, &subject->model, &err)) broken(subject, "a model", err.text);
    draw_budgets(subject);
}

static void subject_fini(struct subject *subject)
{
    zr_plan_free(subject->plan);
    zr_model_free(subject->model);
}

/* -- plans --------------------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const struct zr_buffer *first = a, *second = b;
    if (first->tier != second->tier) return first->tier < second->tier ? -1 : 1;
    return first->offset < second->offset ? -1 : first->offset > second->offset;
}

static void check_budgets(const struct subject *subject)
{
    const struct zr_plan *plan = subject->plan;
    struct zr_buffer *sorted = malloc(plan->buffer_count * sizeof *sorted);
    memcpy(sorted, plan->buffers, plan->buffer_count * sizeof *sorted);
    qsort(sorted, plan->buffer_count, sizeof *sorted, by_place);
    uint64_t sum[ZR_TIER_COUNT] = { 0 };
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        CHECK(subject, sorted[i].bytes > 0 && sorted[i].offset % ZR_PLAN_ALIGN == 0);
        if (i > 0 && sorted[i].tier == sorted[i - 1].tier)
            CHECK(subject, sorted[i].offset >= sorted[i - 1].offset + sorted[i - 1].bytes);
        CHECK(subject, sorted[i].offset + sorted[i].bytes <= subject->machine.bytes[sorted[i].tier]);
        sum[sorted[i].tier] += sorted[i].bytes;
    }
    for (int tier = 0; tier < ZR_TIER_COUNT; tier++)
        CHECK(subject, sum[tier] <= plan->used[tier] && plan->used[tier] <= subject->machine.bytes[tier]);
    free(sorted);
}

/* Bytes that must be there, counted from the model: 2+2+4+4 per element split, else 4+4+4, and the gradient. */
static void check_planes(const struct subject *subject)
{
    const struct zr_plan *plan = subject->plan;
    const struct zr_wishes *wishes = &subject->wishes;
    uint64_t elements = 0, resident = 0, gradients = 0, got[ZR_PURPOSE_COUNT] = { 0 };
    for (uint32_t unit = 0; unit < subject->model->unit_count; unit++) {
        uint64_t count = subject->model->units[unit].elements;
        elements += count;
        if (plan->units[unit].resident && wishes->states != ZR_DEVICE) resident += count;
        bool rounded = wishes->split && wishes->grad_bf16 && !(subject->dims.tied && unit == 0);
        gradients += count * (rounded ? 2 : 4);
        if (!wishes->stream_weights) CHECK(subject, plan->units[unit].resident);
    }
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].persistent) got[plan->buffers[i].purpose] += plan->buffers[i].bytes;
    CHECK(subject, got[ZR_FOR_WEIGHTS] == (elements + resident) * (wishes->split ? 2 : 4));
    CHECK(subject, got[ZR_FOR_STATES] == elements * (wishes->split ? 10 : 8));
    CHECK(subject, got[ZR_FOR_GRADIENTS] == gradients);
}

static void check_choices(const struct subject *subject)
{
    const struct zr_plan *plan = subject->plan;
    const struct zr_wishes *wishes = &subject->wishes;
    CHECK(subject, !wishes->micro_rows || plan->micro_rows == wishes->micro_rows);
    CHECK(subject, wishes->micro_rows || wishes->rows_per_step % plan->micro_rows == 0);
    CHECK(subject, plan->micro_max * plan->micro_rows >= wishes->rows_per_step);
    CHECK(subject, (plan->micro_max - 1) * plan->micro_rows < wishes->rows_per_step);
    CHECK(subject, plan->slot_count[0] <= zr_max_u64(2, wishes->prefetch + 1));
    uint64_t next = 0;
    for (uint32_t i = 0; i < plan->chunk_count; i++) { /* the chunks of a unit tile it */
        const struct zr_chunk *chunk = &plan->chunks[i];
        CHECK(subject, chunk->first == next && chunk->count > 0 && chunk->count <= wishes->update_chunk);
        next += chunk->count;
        if (next == subject->model->units[chunk->unit].elements) next = 0;
    }
    CHECK(subject, next == 0 && (plan->chunk_count > 0) == (wishes->states != ZR_DEVICE));
}

static void check_plan_is_guarded(struct subject *subject)
{
    struct zr_plan *plan = subject->plan;
    struct zr_error err = { 0 };
    CHECK(subject, zr_plan_verify(plan, &err) == ZR_OK);
    enum zr_tier tier = draw_chance(&subject->draw, 50) ? ZR_DEVICE : ZR_HOST; /* never empty */
    uint64_t budget = plan->machine.bytes[tier];
    plan->machine.bytes[tier] = plan->used[tier] - 1;
    CHECK(subject, zr_plan_verify(plan, &err) == ZR_EBUG);
    plan->machine.bytes[tier] = budget;

    struct zr_buffer *buffer = &plan->buffers[draw_u32(&subject->draw, 0, plan->buffer_count - 1)];
    if (buffer->offset == 0) return;
    buffer->offset -= ZR_PLAN_ALIGN;
    CHECK(subject, zr_plan_verify(plan, &err) == ZR_EBUG);
    buffer->offset += ZR_PLAN_ALIGN;
}

/* -- schedules ----------------------------------------------------------------------------------------------------- */

/* What may be asked for; a pending update is flushed before anything but training. */
static struct zr_schedule_request draw_request(struct subject *subject)
{
    struct zr_schedule_request request = { .pass = (enum zr_pass)draw_between(&subject->draw, 0, ZR_PASS_FLUSH),
                                           .micro_count = draw_u32(&subject->draw, 1, subject->plan->micro_max) };
    if (request.pass == ZR_PASS_FLUSH) request.update = true;
    if (request.pass == ZR_PASS_TRAIN)
        request.accumulate = subject->wishes.accumulate && draw_chance(&subject->draw, 70);
    return request;
}

static struct zr_schedule *make_schedule(const struct subject *subject, const struct zr_schedule_request *request)
{
    struct zr_error err = { 0 };
    struct zr_schedule *schedule = NULL;
    if (zr_schedule_make(subject->plan, request, &schedule, &err)) broken(subject, "a schedule", err.text);
    if (zr_schedule_verify(schedule, &err)) broken(subject, "a hazard", err.text);
    return schedule;
}

static void check_once(const struct subject *subject, const uint32_t *counts, uint32_t count, uint32_t want)
{
    for (uint32_t i = 0; i < count; i++)
        CHECK(subject, counts[i] == want);
}

/* Every micro-batch passes every unit, every gradient is finished and every chunk updated: once, and only if asked for.
 * No copy is longer than what it reads or writes. */
static void check_whole(const struct subject *subject, const struct zr_schedule *schedule)
{
    const struct zr_plan *plan = subject->plan;
    const uint32_t units = subject->model->unit_count, micros = schedule->request.micro_count;
    const bool flush = schedule->request.pass == ZR_PASS_FLUSH, train = schedule->request.pass == ZR_PASS_TRAIN;
    uint32_t *forward =
        calloc(4 * (size_t)units * plan->micro_max + units + plan->chunk_count + units, sizeof *forward);
    uint32_t *backward = forward + units * plan->micro_max, *saved = backward + units * plan->micro_max;
    uint32_t *loaded = saved + units * plan->micro_max, *finished = loaded + units * plan->micro_max;
    uint32_t *updated = finished + units, *whole = updated + plan->chunk_count;

    for (uint32_t i = 0; i < schedule->op_count; i++) {
        const struct zr_op_entry *op = &schedule->ops[i];
        uint64_t place = op->micro == ZR_NONE ? 0 : (uint64_t)op->unit * micros + op->micro;
        if (op->kind == ZR_EMBED || op->kind == ZR_FORWARD || op->kind == ZR_HEAD || op->kind == ZR_LOGITS)
            forward[place]++;
        if (op->kind == ZR_BACKWARD || op->kind == ZR_EMBED_BACKWARD) backward[place]++;
        if (op->kind == ZR_SAVE_INPUT) saved[place]++;
        if (op->kind == ZR_LOAD_INPUT) loaded[place]++;
        if (op->kind == ZR_FINISH_GRAD) finished[op->unit]++;
        if (op->kind == ZR_UPDATE) ++*(op->chunk == ZR_NONE ? &whole[op->unit] : &updated[op->chunk]);
        if (op->queue == ZR_QUEUE_H2D || op->queue == ZR_QUEUE_D2H || op->kind == ZR_CLEAR_GRAD)
            for (uint32_t a = 0; a < op->access_count; a++)
                CHECK(subject, op->bytes <= plan->buffers[op->access[a].buffer].bytes);
    }
    check_once(subject, forward, units * micros, !flush);
    check_once(subject, backward, (units - 1) * micros, train);
    check_once(subject, finished, units, train);
    check_once(subject, updated, plan->chunk_count, schedule->request.update);
    check_once(subject, whole, units, schedule->request.update && plan->chunk_count == 0);
    for (uint32_t i = 0; i < units * micros; i++)
        CHECK(subject, saved[i] == loaded[i]);
    free(forward);
}

struct planted {
    uint64_t plans, waits, harmless, weakened, weakened_caught;
};

/* One wait less: depend.c leaves out what other waits imply, so each one that is there is needed, and both the oracle and
 * the verifier must miss it. */
static void drop_waits(struct subject *subject, struct zr_schedule *schedule, struct oracle *oracle,
                       struct planted *planted)
{
    const uint32_t first = draw_u32(&subject->draw, 0, schedule->op_count - 1);
    uint32_t tried = 0;
    for (uint32_t i = 0; i < schedule->op_count && tried < 12; i++) {
        struct zr_op_entry *op = &schedule->ops[(first + i) % schedule->op_count];
        for (int queue = 0; queue < ZR_QUEUE_COUNT; queue++) {
            struct zr_error err = { 0 };
            uint32_t wait = op->wait[queue];
            if (wait == 0) continue;
            op->wait[queue] = 0;
            bool safe = oracle_is_safe(oracle, schedule), accepted = zr_schedule_verify(schedule, &err) == ZR_OK;
            if (safe != accepted) broken(subject, safe ? "refused without a hazard" : "a hazard overlooked", err.text);
            if (!accepted) CHECK(subject, strstr(err.text, "may still"));
            planted->harmless += safe;
            planted->waits++;
            tried++;

            op->wait[queue] = draw_u32(&subject->draw, 0, wait - 1); /* waits, but not long enough */
            safe = oracle_is_safe(oracle, schedule);
            accepted = zr_schedule_verify(schedule, &err) == ZR_OK;
            if (safe != accepted) broken(subject, safe ? "refused without a hazard" : "a hazard overlooked", err.text);
            planted->weakened++;
            planted->weakened_caught += !safe;
            op->wait[queue] = wait;
        }
    }
}

/* One access goes to another buffer of the same kind: a read then finds something else, or nothing. */
static void swap_slots(struct subject *subject, struct zr_schedule *schedule)
{
    const struct zr_plan *plan = subject->plan;
    for (uint32_t i = 0; i < schedule->op_count; i++) {
        struct zr_op_entry *op = &schedule->ops[i];
        if (op->kind != ZR_LOAD_WEIGHT || plan->units[op->unit].resident || plan->slot_count[0] < 2 ||
            plan->units[op->unit].slot_class != 0)
            continue;
        struct zr_access *load = &op->access[1];
        uint32_t right = load->buffer;
        load->buffer = plan->slots[0][right == plan->slots[0][0]];
        struct zr_error err = { 0 };
        zr_schedule_depend(schedule);
        CHECK(subject, zr_schedule_verify(schedule, &err) == ZR_EBUG);
        if (!strstr(err.text, "before anything is in it") && !strstr(err.text, "finds something else"))
            broken(subject, "the wrong slot is refused for another reason", err.text);
        load->buffer = right;
        break;
    }
    struct zr_error err = { 0 };
    zr_schedule_depend(schedule);
    if (zr_schedule_verify(schedule, &err)) broken(subject, "a hazard after mending", err.text);
}

/* What the drawing must reach often enough for the other properties to mean something. */
enum reached {
    STREAMED,
    PARTLY_RESIDENT,
    WEIGHTS_ON_NVME,
    STAGED,
    INPUTS_ON_HOST,
    INPUTS_ON_BOTH,
    KEPT,
    ONE_SLOT_SHORT,
    SEVERAL_MICROS,
    ODD_MICROS,
    TIGHT,
    TIED_BF16,
    NARROWED,
    REACHED_COUNT
};

static void note_reached(const struct subject *subject, uint32_t reached[REACHED_COUNT])
{
    const struct zr_plan *plan = subject->plan;
    const struct zr_wishes *wishes = &subject->wishes;
    const uint32_t layers = subject->dims.layers;
    uint32_t resident = 0;
    for (uint32_t layer = 0; layer < layers; layer++)
        resident += plan->units[layer + 1].resident;
    reached[STREAMED] += resident == 0;
    reached[PARTLY_RESIDENT] += resident > 0 && resident < layers;
    reached[WEIGHTS_ON_NVME] += plan->host_slot_count > 0;
    reached[STAGED] += plan->stage_count > 0;
    reached[INPUTS_ON_HOST] += plan->checkpoints_on_device == 0;
    reached[INPUTS_ON_BOTH] += plan->checkpoints_on_device > 0 && plan->checkpoints_on_device < layers;
    reached[KEPT] += plan->kept_blocks > 0;
    reached[ONE_SLOT_SHORT] += plan->slot_count[0] && plan->slot_count[0] < zr_min_u64(wishes->prefetch + 1, layers);
    reached[SEVERAL_MICROS] += plan->micro_max > 1;
    reached[ODD_MICROS] += wishes->rows_per_step % plan->micro_rows != 0;
    reached[TIGHT] += plan->used[ZR_DEVICE] == plan->machine.bytes[ZR_DEVICE];
    reached[TIED_BF16] += subject->dims.tied && wishes->split;
    reached[NARROWED] += plan->narrow_slots[0] != ZR_NO_BUFFER;
}

static void every_random_plan_fits_and_is_free_of_hazards(void **state)
{
    (void)state;
    uint64_t ops = 0;
    uint32_t reached[REACHED_COUNT] = { 0 };
    for (uint64_t number = 0; number < PLANS; number++) {
        struct subject subject;
        subject_init(&subject, number);
        check_budgets(&subject);
        check_planes(&subject);
        check_choices(&subject);
        struct zr_schedule_request requests[] = {
            { .pass = ZR_PASS_TRAIN, .micro_count = subject.plan->micro_max, .update = true },
            draw_request(&subject),
        };
        for (size_t i = 0; i < ZR_COUNT(requests); i++) {
            struct zr_schedule *schedule = make_schedule(&subject, &requests[i]);
            check_whole(&subject, schedule);
            ops += schedule->op_count;
            zr_schedule_free(schedule);
        }
        check_plan_is_guarded(&subject);
        note_reached(&subject, reached);
        subject_fini(&subject);
    }
    for (int what = 0; what < REACHED_COUNT; what++)
        if (reached[what] < PLANS / 100) fail_msg("only %u of %d plans reach case %d", reached[what], PLANS, what);
    print_message("  seed %u: %d plans, %llu ops\n", SEED, PLANS, (unsigned long long)ops);
}

static void a_wait_that_is_taken_away_is_missed(void **state)
{
    (void)state;
    struct planted planted = { 0 };
    for (uint64_t number = 0; planted.plans < PLANTED_PLANS; number++) {
        struct subject subject;
        subject_init(&subject, number);
        struct zr_schedule_request request = { .pass = ZR_PASS_TRAIN,
                                               .micro_count = subject.plan->micro_max,
                                               .update = draw_chance(&subject.draw, 70) };
        struct zr_schedule *schedule = make_schedule(&subject, &request);
        if (schedule->op_count <= ORACLE_OPS) {
            struct oracle oracle;
            oracle_init(&oracle, schedule);
            CHECK(&subject, oracle_is_safe(&oracle, schedule));
            drop_waits(&subject, schedule, &oracle, &planted);
            oracle_fini(&oracle);
            swap_slots(&subject, schedule);
            planted.plans++;
        }
        zr_schedule_free(schedule);
        subject_fini(&subject);
    }
    print_message(
        "  %llu plans: %llu waits taken away, %llu of them needed by no pair; %llu of %llu too short caught\n",
        (unsigned long long)planted.plans, (unsigned long long)planted.waits, (unsigned long long)planted.harmless,
        (unsigned long long)planted.weakened_caught, (unsigned long long)planted.weakened);
    assert_int_equal(planted.harmless, 0);
    assert_true(planted.waits >= 4 * planted.plans && planted.weakened_caught > planted.weakened / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_random_plan_fits_and_is_free_of_hazards),
        cmocka_unit_test(a_wait_that_is_taken_away_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
