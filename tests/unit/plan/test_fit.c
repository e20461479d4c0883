/* test_fit.c: the smallest budgets, by arithmetic on paper, and refusals that name the tier and the bytes that are missing */
#include "tests/unit/plan/shapes.h"

static uint64_t paged(uint64_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* The budget is short by exactly `missing`; with them it fits. */
static void refused_by(const struct zr_model *model, const struct zr_wishes *wishes, struct zr_machine machine,
                       enum zr_tier tier, uint64_t need, uint64_t missing, const char *advice)
{
    static const char *const keys[] = { "zerod.device.memory", "zerod.host.memory", "zerod.nvme.size" };
    char text[160];
    machine.bytes[tier] = need - missing;
    struct zr_error err = refuse_plan(model, wishes, &machine);
    snprintf(text, sizeof text, "does not fit: %s needs at least ", zr_tier_name(tier));
    must_say(&err, text);
    snprintf(text, sizeof text, "(%llu bytes), its budget is ", (unsigned long long)need);
    must_say(&err, text);
    snprintf(text, sizeof text, "(%llu bytes) are missing", (unsigned long long)missing);
    must_say(&err, text);
    snprintf(text, sizeof text, "hint: set %s to %llu or more", keys[tier], (unsigned long long)need);
    must_say(&err, text);
    must_say(&err, advice);
    machine.bytes[tier] = need;
    zr_plan_free(make_plan(model, wishes, &machine));
}

static const uint64_t gaps[] = { 1, 4096, 100000 };

/* Two slots for blocks, one for the ends, one fp32 gradient, hidden states of every micro-batch and three more, the work
 * area, and the small things; nothing else has to be there. */
static void the_smallest_device(void **state)
{
    (void)state;
    enum { HIDDEN = 64, LAYERS = 5, ROWS = 3, TOKENS = 40, VOCABULARY = 1000 };
    struct zr_dims dims = llama_shape(LAYERS, HIDDEN, 96, VOCABULARY);
    struct zr_model *model = make_model(&dims);
    struct zr_wishes wishes = streamed_wishes(ROWS, TOKENS);
    wishes.loss_chunk = 16;
    const uint64_t block = model->units[1].elements, end = model->units[LAYERS + 1].elements;
    assert_int_equal(block, 4 * HIDDEN * HIDDEN + 3 * HIDDEN * 96 + 2 * HIDDEN + 128); /* 128: rounded up to 256 */
    assert_int_equal(end, HIDDEN + VOCABULARY * HIDDEN + 192);
    struct zr_block_work block_work;
    struct zr_head_work head_work;
    zr_block_work(&dims, TOKENS, TOKENS, 2, &block_work);
    zr_head_work(&dims, TOKENS, 16, 2, &head_work);

    uint64_t need = 2 * paged(2 * block) + paged(2 * end) + paged(4 * end) + paged((end / 1024 + 8) * 8);
    need += (ROWS + 3) * paged(2 * TOKENS * HIDDEN);
    need += paged(block_work.bytes > head_work.bytes ? block_work.bytes : head_work.bytes);
    need += paged(ROWS * (3 * 4 * TOKENS + 192)); /* tokens, targets, positions; 41 starts, in lines of 64 bytes */
    need += paged((1 + LAYERS + 2) * 8) + paged(TOKENS * 8 * 4);
    for (size_t i = 0; i < ZR_COUNT(gaps); i++)
        refused_by(model, &wishes, roomy_machine(), ZR_DEVICE, need, gaps[i], "hint: ");
    zr_model_free(model);
}

/* States on the device: the host holds the batch, the sums and the inputs of blocks. */
static void the_smallest_host(void **state)
{
    (void)state;
    enum { HIDDEN = 64, LAYERS = 4, ROWS = 2, TOKENS = 48 };
    struct zr_dims dims = llama_shape(LAYERS, HIDDEN, 96, 100);
    struct zr_model *model = make_model(&dims);
    struct zr_wishes wishes = streamed_wishes(ROWS, TOKENS);
    wishes.states = ZR_DEVICE;
    struct zr_machine machine = roomy_machine();
    const uint64_t small = 2 * 4096;                                  /* batch, sums */
    refused_by(model, &wishes, machine, ZR_HOST, small, 1, "hint: "); /* with a roomy device the inputs go there */

    machine.bytes[ZR_HOST] = small;
    struct zr_plan *plan = make_plan(model, &wishes, &machine);
    assert_int_equal(plan->checkpoints_on_device, LAYERS);
    zr_plan_free(plan);

    wishes.micro_rows = 1;
    machine.bytes[ZR_HOST] = GIB;
    machine.bytes[ZR_DEVICE] = 1;
    struct zr_error err = refuse_plan(model, &wishes, &machine);
    unsigned long long least = 0;
    assert_int_equal(sscanf(strchr(err.text, '('), "(%llu", &least), 1);
    const uint64_t input = paged(2 * TOKENS * HIDDEN);
    for (uint64_t room = 0; room < LAYERS; room++) { /* the device has room for the inputs of so many blocks */
        machine.bytes[ZR_DEVICE] = least + room * ROWS * input;
        refused_by(model, &wishes, machine, ZR_HOST, small + (LAYERS - room) * ROWS * input, 1, "zerod.host.memory");
    }
    zr_model_free(model);
}

/* Every plane of every chunk starts on a page: 10 bytes for a parameter, 2 more for the weight. */
static void the_smallest_nvme(void **state)
{
    (void)state;
    struct zr_dims dims = llama_shape(3, 64, 96, 700);
    struct zr_model *model = make_model(&dims);
    struct zr_wishes wishes = streamed_wishes(1, 16);
    wishes.states = wishes.weight_home = ZR_NVME;
    wishes.nvme_planes = 1u << ZR_LOW | 1u << ZR_M | 1u << ZR_V;
    wishes.update_chunk = 2560; /* low 5120 bytes, m and v 10240 */
    uint64_t need = 0;
    for (uint32_t unit = 0; unit < model->unit_count; unit++) {
        uint64_t elements = model->units[unit].elements, whole = elements / 2560, rest = elements % 2560;
        need += paged(2 * elements) + whole * (8192 + 2 * 12288);
        if (rest) need += paged(2 * rest) + 2 * paged(4 * rest);
    }
    for (size_t i = 0; i < ZR_COUNT(gaps); i++)
        refused_by(model, &wishes, roomy_machine(), ZR_NVME, need, gaps[i], "zerod.nvme.size");
    zr_model_free(model);
}

static void llama_7b_does_not_fit_64_gib_of_host(void **state)
{
    (void)state;
    struct zr_dims dims = llama_7b();
    struct zr_model *model = make_model(&dims);
    struct zr_wishes wishes = streamed_wishes(4, 2048);
    struct zr_machine machine = roomy_machine();
    machine.bytes[ZR_DEVICE] = 24 * GIB;
    machine.bytes[ZR_HOST] = 64 * GIB;
    struct zr_error err = refuse_plan(model, &wishes, &machine);
    must_say(&err, "does not fit: host needs at least 10"); /* 16 bytes each are 100.4 GiB */
    must_say(&err, "its budget is 64 GiB");
    must_say(&err, "zero_optimization.offload_optimizer.device nvme moves the optimizer's states to a drive");

    wishes.states = ZR_NVME;
    wishes.nvme_planes = 1u << ZR_LOW | 1u << ZR_M | 1u << ZR_V;
    struct zr_plan *plan = make_plan(model, &wishes, &machine); /* as it says: 6 bytes each stay */
    assert_true(plan->used[ZR_HOST] >= 6738415616 * 6 && plan->used[ZR_NVME] >= 6738415616 * 10);
    zr_plan_free(plan);
    machine.bytes[ZR_HOST] = 30 * GIB;
    err = refuse_plan(model, &wishes, &machine);
    must_say(&err, "zero_optimization.offload_param.device nvme moves the weights to a drive");
    zr_model_free(model);
}

static void advice_follows_from_what_is_on_the_device(void **state)
{
    (void)state;
    struct zr_dims dims = llama_shape(4, 64, 96, 100);
    struct zr_model *model = make_model(&dims);
    struct zr_machine machine = roomy_machine();
    machine.bytes[ZR_DEVICE] = 100000;
    struct zr_wishes wishes = streamed_wishes(4, 16);
    wishes.stream_weights = false;
    struct zr_error err = refuse_plan(model, &wishes, &machine);
    must_say(&err, "zero_optimization.stage 3 with offload_param.device cpu streams the weights");
    wishes.stream_weights = true;
    wishes.states = ZR_DEVICE;
    err = refuse_plan(model, &wishes, &machine);
    must_say(&err, "offload_optimizer.device cpu moves the optimizer's states to the host");
    wishes.states = ZR_HOST;
    wishes.micro_rows = 4;
    err = refuse_plan(model, &wishes, &machine);
    must_say(&err, "a smaller train_micro_batch_size_per_gpu needs less");
    zr_model_free(model);
}

/* A token table of 200,000 x 8,192 is 3.3 GB in bf16 and 6.6 GB as an fp32 gradient: both must be there, and offsets must
 * not wrap at 4 GiB. */
static void the_largest_tensor_sets_the_least(void **state)
{
    (void)state;
    struct zr_dims dims = llama_shape(2, 8192, 8192, 200000);
    dims.heads = dims.kv_heads = 64;
    dims.head_dim = 128;
    dims.tied = true;
    struct zr_model *model = make_model(&dims);
    struct zr_wishes wishes = streamed_wishes(1, 128);
    wishes.update_chunk = (uint64_t)1 << 40; /* one chunk a unit, longer than 4 GiB */
    struct zr_machine machine = roomy_machine();
    const uint64_t table = (uint64_t)200000 * 8192, block = model->units[1].elements;
    machine.bytes[ZR_DEVICE] = 6 * table;
    struct zr_error err = refuse_plan(model, &wishes, &machine);
    must_say(&err, "does not fit: device");
    machine.bytes[ZR_DEVICE] = 6 * table + 8 * block + ((uint64_t)200 << 20); /* two block slots, a second gradient */
    struct zr_plan *plan = make_plan(model, &wishes, &machine);
    assert_int_equal(plan->units[0].chunk_count, 1);
    assert_int_equal(plan->buffers[plan->units[0].home[ZR_M]].bytes, 4 * table);
    assert_true(plan->used[ZR_HOST] >= 16 * (table + 2 * block));
    struct zr_error none = { 0 };
    assert_int_equal(zr_plan_verify(plan, &none), ZR_OK);
    zr_plan_free(plan);
    zr_model_free(model);
}

/* The step's rows have the divisors 1, 2, 3, 4, 6 and 12. */
static void an_open_micro_batch_is_the_largest_divisor_that_fits(void **state)
{
    (void)state;
    struct zr_dims dims = llama_shape(2, 64, 96, 100);
    struct zr_model *model = make_model(&dims);
    struct zr_wishes wishes = streamed_wishes(12, 64);
    struct zr_machine machine = roomy_machine();
    static const uint32_t divisors[] = { 1, 2, 3, 4, 6, 12 };
    for (size_t i = 0; i < ZR_COUNT(divisors); i++) {
        wishes.micro_rows = divisors[i];
        machine.bytes[ZR_DEVICE] = 1;
        struct zr_error err = refuse_plan(model, &wishes, &machine);
        unsigned long long least = 0;
        assert_int_equal(sscanf(strchr(err.text, '('), "(%llu", &least), 1);
        wishes.micro_rows = 0;
        machine.bytes[ZR_DEVICE] = least;
        struct zr_plan *plan = make_plan(model, &wishes, &machine);
        assert_true(plan->micro_rows >= divisors[i] && 12 % plan->micro_rows == 0);
        zr_plan_free(plan);
    }
    wishes.row_tokens = 1000; /* 8 rows of 1,000 are below 8,192 tokens, 12 are not */
    machine = roomy_machine();
    struct zr_plan *plan = make_plan(model, &wishes, &machine);
    assert_int_equal(plan->micro_rows, 6);
    assert_int_equal(plan->micro_max, 2);
    zr_plan_free(plan);
    zr_model_free(model);
}

static void room_is_spent_on_what_is_short(void **state)
{
    (void)state;
    struct zr_dims dims = llama_shape(6, 64, 96, 100);
    struct zr_model *model = make_model(&dims);
    struct zr_wishes wishes = streamed_wishes(4, 64);
    struct zr_machine machine = roomy_machine();
    struct zr_plan *all =
        make_plan(model, &wishes, &machine); /* room for everything: nothing streams or is done twice */
    assert_true(all->slot_count[0] == 0 && all->slot_count[1] == 0);
    assert_int_equal(all->kept_blocks, 6);
    assert_int_equal(all->checkpoints_on_device, 6);
    machine.bytes[ZR_DEVICE] = all->used[ZR_DEVICE] - 1;
    machine.flops = 1; /* compute is short: activations are kept first, weights stream */
    struct zr_plan *plan = make_plan(model, &wishes, &machine);
    assert_int_equal(plan->kept_blocks, 6);
    zr_plan_free(plan);
    machine.flops = 1e30; /* copies are short */
    plan = make_plan(model, &wishes, &machine);
    assert_int_equal(plan->slot_count[0], 0);
    assert_int_equal(plan->checkpoints_on_device, 6);
    assert_true(plan->kept_blocks < 6);
    zr_plan_free(plan);
    zr_plan_free(all);
    zr_model_free(model);
}

static void wishes_that_contradict_each_other_are_refused_by_key(void **state)
{
    (void)state;
    struct zr_dims dims = llama_shape(2, 64, 96, 100);
    struct zr_model *model = make_model(&dims);
    struct zr_machine machine = roomy_machine();
    struct zr_plan *plan = NULL;
    struct zr_error err = { 0 };
    struct zr_wishes wishes = streamed_wishes(0, 64);
    assert_int_equal(zr_plan_make(model, &wishes, &machine, &plan, &err), ZR_ECONFIG);
    must_say(&err, "train_batch_size");
    wishes = streamed_wishes(2, 64);
    wishes.micro_rows = 3;
    assert_int_equal(zr_plan_make(model, &wishes, &machine, &plan, &err), ZR_ECONFIG);
    must_say(&err, "a micro-batch of 3 sequences is larger than the step's 2");
    wishes = streamed_wishes(2, 64);
    wishes.states = ZR_DEVICE;
    wishes.weight_home = ZR_NVME;
    assert_int_equal(zr_plan_make(model, &wishes, &machine, &plan, &err), ZR_ECONFIG);
    must_say(&err, "offload_param.device nvme needs offload_optimizer.device");
    zr_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_device),
        cmocka_unit_test(the_smallest_host),
        cmocka_unit_test(the_smallest_nvme),
        cmocka_unit_test(llama_7b_does_not_fit_64_gib_of_host),
        cmocka_unit_test(advice_follows_from_what_is_on_the_device),
        cmocka_unit_test(the_largest_tensor_sets_the_least),
        cmocka_unit_test(an_open_micro_batch_is_the_largest_divisor_that_fits),
        cmocka_unit_test(room_is_spent_on_what_is_short),
        cmocka_unit_test(wishes_that_contradict_each_other_are_refused_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
