/* test_schedule.c: the verifier names what is wrong, queues run beside each other, and simulated seconds on paper */
#include "tests/unit/plan/shapes.h"
#include <math.h>
#include <stdlib.h>

enum { LAYERS = 8 };

struct fixture {
    struct zr_model *model;
    struct zr_plan *plan;
    struct zr_schedule *schedule;
};

static void fixture_init(struct fixture *fixture, const struct zr_wishes *wishes, struct zr_machine machine,
                         const struct zr_schedule_request *request)
{
    struct zr_dims dims = llama_shape(LAYERS, 64, 96, 100);
    struct zr_error err = { 0 };
    fixture->model = make_model(&dims);
    fixture->plan = make_plan(fixture->model, wishes, &machine);
    fixture->schedule = make_schedule(fixture->plan, request);
    if (zr_schedule_verify(fixture->schedule, &err)) fail_msg("%s", err.text);
}

static void fixture_fini(struct fixture *fixture)
{
    zr_schedule_free(fixture->schedule);
    zr_plan_free(fixture->plan);
    zr_model_free(fixture->model);
}

/* The smallest device on which the wishes fit, so that nothing is resident. */
static struct zr_machine tight_machine(const struct zr_wishes *wishes, uint64_t more)
{
    struct zr_dims dims = llama_shape(LAYERS, 64, 96, 100);
    struct zr_model *model = make_model(&dims);
    struct zr_machine machine = roomy_machine();
    machine.bytes[ZR_DEVICE] = 1;
    struct zr_error err = refuse_plan(model, wishes, &machine);
    unsigned long long least = 0;
    assert_int_equal(sscanf(strchr(err.text, '('), "(%llu", &least), 1);
    machine.bytes[ZR_DEVICE] = least + more;
    zr_model_free(model);
    return machine;
}

static struct zr_op_entry *find(struct fixture *fixture, enum zr_op_kind kind, uint32_t unit, uint32_t micro)
{
    for (uint32_t i = 0; i < fixture->schedule->op_count; i++) {
        struct zr_op_entry *op = &fixture->schedule->ops[i];
        if (op->kind == kind && op->unit == unit && op->micro == micro) return op;
    }
    fail_msg("no %s of unit %u", zr_op_kind_name(kind), unit);
    return NULL;
}

static void refused(struct fixture *fixture, const char *text)
{
    struct zr_error err = { 0 };
    assert_int_equal(zr_schedule_verify(fixture->schedule, &err), ZR_EBUG);
    must_say(&err, text);
}

/* Two slots: unit 3 goes where unit 1 was. Two micro-batches, so that the last reader is micro 1. */
static void a_slot_overwritten_while_it_is_read_is_named_with_both_ops(void **state)
{
    (void)state;
    struct fixture fixture;
    struct zr_wishes wishes = streamed_wishes(2, 16);
    fixture_init(&fixture, &wishes, tight_machine(&wishes, 0),
                 &(struct zr_schedule_request){ .pass = ZR_PASS_TRAIN, .micro_count = 2 });
    assert_int_equal(fixture.plan->slot_count[0], 2);
    struct zr_op_entry *load = find(&fixture, ZR_LOAD_WEIGHT, 3, ZR_NONE);
    const struct zr_op_entry *reader = find(&fixture, ZR_FORWARD, 1, 1);
    assert_int_equal(load->wait[ZR_QUEUE_COMPUTE], reader->sequence);
    load->wait[ZR_QUEUE_COMPUTE] = 0;
    char text[160];
    snprintf(
        text, sizeof text,
        "h2d %u (load weight, unit 3) overwrites weight slot 0 while compute %u (forward, unit 1, micro 1) may still "
        "read it",
        load->sequence, reader->sequence);
    refused(&fixture, text);
    load->wait[ZR_QUEUE_COMPUTE] = reader->sequence - 1; /* micro 0 is done, micro 1 is not */
    refused(&fixture, text);
    load->wait[ZR_QUEUE_COMPUTE] = reader->sequence;

    struct zr_op_entry *forward = find(&fixture, ZR_FORWARD, 1, 0);
    uint32_t wait = forward->wait[ZR_QUEUE_H2D];
    assert_true(wait > 0);
    forward->wait[ZR_QUEUE_H2D] = 0;
    refused(&fixture, "(forward, unit 1, micro 0) reads weight slot 0 while h2d ");
    forward->wait[ZR_QUEUE_H2D] = fixture.schedule->queue_length[ZR_QUEUE_H2D] + 1;
    refused(&fixture, "waits for something later");
    forward->wait[ZR_QUEUE_H2D] = wait;

    forward->access[1].buffer = fixture.plan->slots[0][1]; /* the right wait, the wrong slot */
    refused(&fixture, "(forward, unit 1, micro 0) reads weight slot 1 before anything is in it");
    fixture_fini(&fixture);
}

static double simulate(const struct fixture *fixture, const struct zr_machine *machine,
                       struct zr_simulation *simulation)
{
    *simulation = (struct zr_simulation){ 0 };
    zr_schedule_simulate(fixture->schedule, machine, simulation);
    return simulation->seconds;
}

static double busiest(const struct zr_simulation *simulation)
{
    return simulation->busy[simulation->bound_by];
}

/* Copies up and compute take as long as each other: with slots to load ahead into they overlap; in turns they would take
 * the sum of both. */
static void the_next_unit_is_loaded_while_one_computes(void **state)
{
    (void)state;
    struct fixture fixture;
    struct zr_simulation simulation;
    struct zr_wishes wishes = streamed_wishes(4, 64);
    fixture_init(&fixture, &wishes, tight_machine(&wishes, 2 * 65536 + 8 * 4096),
                 &(struct zr_schedule_request){ .pass = ZR_PASS_TRAIN, .micro_count = 4 });
    assert_true(fixture.plan->slot_count[0] >= 2);
    struct zr_machine machine = fixture.plan->machine;
    machine.op_seconds = 0;
    machine.host = machine.down = 1e30;
    simulate(&fixture, &machine, &simulation);
    machine.up *= simulation.busy[ZR_QUEUE_H2D] / simulation.busy[ZR_QUEUE_COMPUTE];
    double seconds = simulate(&fixture, &machine, &simulation);
    double sum = simulation.busy[ZR_QUEUE_H2D] + simulation.busy[ZR_QUEUE_COMPUTE];
    assert_true(fabs(busiest(&simulation) - sum / 2) < 0.01 * sum);
    if (!(seconds < 0.75 * sum)) fail_msg("%g s of %g s in turns", seconds, sum);
    fixture_fini(&fixture);
}

/* A chunk is read, updated and written; with a stage for each, all three queues are at work. */
static void states_are_read_updated_and_written_side_by_side(void **state)
{
    (void)state;
    struct fixture fixture;
    struct zr_simulation simulation;
    struct zr_wishes wishes = streamed_wishes(1, 16);
    wishes.states = ZR_NVME;
    wishes.nvme_planes = 1u << ZR_LOW | 1u << ZR_M | 1u << ZR_V;
    wishes.update_chunk = 1024;
    fixture_init(&fixture, &wishes, roomy_machine(),
                 &(struct zr_schedule_request){ .pass = ZR_PASS_FLUSH, .update = true });
    struct zr_machine machine = fixture.plan->machine;
    machine.op_seconds = 0;
    machine.up = 1e30;
    simulate(&fixture, &machine, &simulation);
    machine.read *= simulation.busy[ZR_QUEUE_READ] / simulation.busy[ZR_QUEUE_CPU];
    machine.write *= simulation.busy[ZR_QUEUE_WRITE] / simulation.busy[ZR_QUEUE_CPU];
    double seconds = simulate(&fixture, &machine, &simulation);
    if (!(seconds < 1.2 * busiest(&simulation)))
        fail_msg("%g s, the busiest queue has %g", seconds, busiest(&simulation));
    fixture_fini(&fixture);
}

/* States on the device: one update a unit, all on the compute queue, each over 16 bytes a parameter (2 weight, 2 low,
 * 4 m, 4 v, 4 gradient) and costing a fixed 3 ms. */
static void a_flush_on_the_device_takes_its_bytes_and_its_ops(void **state)
{
    (void)state;
    struct fixture fixture;
    struct zr_simulation simulation;
    struct zr_wishes wishes = streamed_wishes(1, 16);
    wishes.states = ZR_DEVICE;
    fixture_init(&fixture, &wishes, roomy_machine(),
                 &(struct zr_schedule_request){ .pass = ZR_PASS_FLUSH, .update = true });
    struct zr_machine machine = fixture.plan->machine;
    machine.op_seconds = 3e-3;
    machine.host = 1e6;
    double seconds = simulate(&fixture, &machine, &simulation);
    uint64_t elements = 0;
    for (uint32_t unit = 0; unit < fixture.model->unit_count; unit++)
        elements += fixture.model->units[unit].elements;
    double want = (double)elements * 16 / 1e6 + (LAYERS + 2) * 3e-3;
    assert_true(fabs(seconds - want) < 1e-9 * want);
    assert_true(fabs(simulation.floor - (double)elements * 16 / 1e6) < 1e-9 * want);
    assert_int_equal(simulation.bound_by, ZR_QUEUE_COMPUTE);
    fixture_fini(&fixture);
}

/* An op begins the moment its queue is free and its waits are over. */
static void a_simulated_op_begins_when_its_waits_are_over(void **state)
{
    (void)state;
    struct fixture fixture;
    struct zr_wishes wishes = streamed_wishes(3, 16);
    wishes.states = wishes.weight_home = ZR_NVME;
    wishes.nvme_planes = 1u << ZR_M;
    fixture_init(&fixture, &wishes, tight_machine(&wishes, 0),
                 &(struct zr_schedule_request){ .pass = ZR_PASS_TRAIN, .micro_count = 3, .update = true });
    const uint32_t count = fixture.schedule->op_count;
    double *begin = calloc(2 * (size_t)count, sizeof *begin), *end = begin + count;
    struct zr_simulation simulation = { .begin = begin, .end = end };
    zr_schedule_simulate(fixture.schedule, &fixture.plan->machine, &simulation);
    uint32_t delayed = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct zr_op_entry *op = &fixture.schedule->ops[i];
        double in_turn = 0, waited = 0;
        for (uint32_t j = 0; j < i; j++) {
            const struct zr_op_entry *before = &fixture.schedule->ops[j];
            if (before->queue == op->queue) in_turn = fmax(in_turn, end[j]);
            if (before->sequence == op->wait[before->queue]) waited = fmax(waited, end[j]);
        }
        assert_true(begin[i] == fmax(in_turn, waited) && end[i] > begin[i] && end[i] <= simulation.seconds);
        delayed += waited > in_turn;
    }
    assert_true(delayed > count / 10);
    assert_true(simulation.seconds >= simulation.floor);
    free(begin);
    fixture_fini(&fixture);
}

/* A weight that streams goes up twice (forward, backward) but for the last block's, a gradient comes down once, however
 * many micro-batches there are. */
static void bytes_on_the_way_do_not_grow_with_micro_batches(void **state)
{
    (void)state;
    for (uint32_t micros = 1; micros <= 4; micros++) {
        struct fixture fixture;
        struct zr_wishes wishes = streamed_wishes(4, 16);
        fixture_init(&fixture, &wishes, tight_machine(&wishes, 0),
                     &(struct zr_schedule_request){ .pass = ZR_PASS_TRAIN, .micro_count = micros });
        uint32_t loads[LAYERS + 2] = { 0 }, saves[LAYERS + 2] = { 0 };
        for (uint32_t i = 0; i < fixture.schedule->op_count; i++) {
            const struct zr_op_entry *op = &fixture.schedule->ops[i];
            if (op->kind == ZR_LOAD_WEIGHT) loads[op->unit]++;
            if (op->kind == ZR_SAVE_GRAD) saves[op->unit]++;
        }
        for (uint32_t unit = 0; unit < LAYERS + 2; unit++) {
            bool once = unit == 0 || unit >= LAYERS - 1; /* the ends, and what is still in the two slots */
            assert_int_equal(loads[unit], once ? 1 : 2);
            assert_int_equal(saves[unit], 1);
        }
        fixture_fini(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_overwritten_while_it_is_read_is_named_with_both_ops),
        cmocka_unit_test(the_next_unit_is_loaded_while_one_computes),
        cmocka_unit_test(states_are_read_updated_and_written_side_by_side),
        cmocka_unit_test(a_flush_on_the_device_takes_its_bytes_and_its_ops),
        cmocka_unit_test(a_simulated_op_begins_when_its_waits_are_over),
        cmocka_unit_test(bytes_on_the_way_do_not_grow_with_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
