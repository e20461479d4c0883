/* test_estimate.c: DeepSpeed's printed tables of model states, and the bytes that a plan of the same model really has
 *
 * 2.85B: the table that DeepSpeed prints for T5-3B on one node of 8 GPUs with buffer factor 1.5, in GiB with two decimals. */
#include "tests/unit/plan/shapes.h"
#include <math.h>

static void gib(const char *what, uint64_t bytes, double want)
{
    if (fabs((double)bytes / (double)GIB - want) > 0.005)
        fail_msg("%s: %.4f GiB, not %.2f", what, (double)bytes / (double)GIB, want);
}

static void estimate(struct zr_deepspeed_question question, double host, double gpu)
{
    struct zr_deepspeed_estimate answer;
    zr_deepspeed_estimate(&question, &answer);
    gib("host", answer.host_bytes, host);
    gib("gpu", answer.gpu_bytes, gpu);
}

static void deepspeeds_table_of_t5_3b(void **state)
{
    (void)state;
    struct zr_deepspeed_question question = { .parameters = 2851598336,
                                              .largest_layer = 32899072,
                                              .gpus_per_node = 8,
                                              .nodes = 1,
                                              .stage = 2,
                                              .offload_optimizer = true,
                                              .buffer_factor = 1.5 };
    estimate(question, 127.48, 5.31);
    question.offload_optimizer = false;
    estimate(question, 127.48, 11.29);
    question.stage = 3;
    question.zero_init = true;
    estimate(question, 1.47, 6.10);
    question.offload_optimizer = true;
    estimate(question, 63.74, 0.79);
    question.offload_param = true;
    estimate(question, 71.71, 0.12);
    question.zero_init = false; /* every rank loads the whole model first */
    estimate(question, 127.48, 0.12);
}

static void deepspeeds_estimate_of_llama_7b_with_both_offloads(void **state)
{
    (void)state;
    struct zr_deepspeed_question question = { .parameters = 6738415616,
                                              .largest_layer = 131072000,
                                              .gpus_per_node = 1,
                                              .nodes = 1,
                                              .stage = 3,
                                              .offload_optimizer = true,
                                              .offload_param = true,
                                              .zero_init = true,
                                              .buffer_factor = 1 };
    struct zr_deepspeed_estimate answer;
    zr_deepspeed_estimate(&question, &answer);
    assert_int_equal(answer.host_bytes, 121291481088); /* 18 bytes each */
    question.buffer_factor = 1.5;
    estimate(question, 169.44, 0.49);
}

static void states_by_stage_are_itemised_and_add_up(void **state)
{
    (void)state;
    static const uint64_t totals[] = { 1991036928, 1244398080, 1119958272, 995518464 }; /* GPT-2 small, two ranks */
    for (uint32_t stage = 0; stage <= 3; stage++) {
        struct zr_states_bytes bytes;
        zr_states_by_stage(124439808, stage, 2, &bytes);
        assert_int_equal(bytes.total, totals[stage]);
        assert_int_equal(bytes.weights + bytes.gradients + bytes.master + bytes.moments, totals[stage]);
        assert_int_equal(bytes.weights, stage >= 3 ? 124439808 : 248879616);
        assert_int_equal(bytes.moments, stage >= 1 ? 497759232 : 995518464);
    }
}

/* Weight 2, low half 2, moments 8, gradient 4 (summed in fp32) or 2. */
static void a_plan_of_llama_7b_has_16_bytes_for_a_parameter_or_14(void **state)
{
    (void)state;
    struct zr_dims dims = llama_7b();
    struct zr_model *model = make_model(&dims);
    struct zr_wishes wishes = streamed_wishes(1, 2048);
    struct zr_machine machine = roomy_machine();
    assert_int_equal(model->parameters, 6738415616);
    struct zr_plan *plan = make_plan(model, &wishes, &machine);
    assert_int_equal(zr_plan_state_bytes(plan), 6738415616 * 16);
    zr_plan_free(plan);
    wishes.accumulate = false;
    wishes.grad_bf16 = true;
    plan = make_plan(model, &wishes, &machine);
    assert_int_equal(zr_plan_state_bytes(plan), 6738415616 * 14);
    zr_plan_free(plan);
    zr_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deepspeeds_table_of_t5_3b),
        cmocka_unit_test(deepspeeds_estimate_of_llama_7b_with_both_offloads),
        cmocka_unit_test(states_by_stage_are_itemised_and_add_up),
        cmocka_unit_test(a_plan_of_llama_7b_has_16_bytes_for_a_parameter_or_14),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
