/* test_rates.c: learning rates and betas of single updates against DeepSpeed's formulas, computed apart in double */
#include "engine/base/span.h"
#include "engine/run/rates.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct point {
    uint64_t update;
    double want;
};

static struct zr_config config; /* too large for a stack frame */

static void begin(enum zr_schedule_kind kind)
{
    config = (struct zr_config){ .schedule = kind, .lr = 3e-4, .beta1 = 0.9, .beta2 = 0.999 };
    config.rate.warmup_type = ZR_WARMUP_LINEAR;
}

static void near(const char *what, uint64_t update, double got, double want)
{
    if (!(fabs(got - want) <= 4e-15 * fabs(want) + 1e-19))
        fail_msg("%s of update %llu is %.17g, not %.17g", what, (unsigned long long)update, got, want);
}

static void rates(uint64_t max_steps, const struct point *points, size_t count)
{
    for (size_t i = 0; i < count; i++)
        near("rate", points[i].update, zr_rate(&config, points[i].update, max_steps), points[i].want);
}

static void betas(const struct point *points, size_t count)
{
    for (size_t i = 0; i < count; i++)
        near("beta1", points[i].update, zr_rate_beta1(&config, points[i].update), points[i].want);
}

#define RATES(max_steps, ...)                                                                                          \
    rates(max_steps, (const struct point[]){ __VA_ARGS__ }, ZR_COUNT(((const struct point[]){ __VA_ARGS__ })))
#define BETAS(...) betas((const struct point[]){ __VA_ARGS__ }, ZR_COUNT(((const struct point[]){ __VA_ARGS__ })))

static void without_a_schedule_nothing_moves(void **state)
{
    (void)state;
    begin(ZR_RATE_CONSTANT);
    RATES(0, { 1, 3e-4 }, { 2, 3e-4 }, { 100000, 3e-4 });
    BETAS({ 1, 0.9 }, { 77, 0.9 });
    assert_true(zr_rate_beta2(&config) == 0.999);
}

/* The first two updates of every warm-up use the lowest rate: the constructor's and iteration 0. */
static void a_warm_up_rises_by_the_logarithm_or_a_line(void **state)
{
    (void)state;
    begin(ZR_RATE_WARMUP);
    config.rate.warmup_min_lr = 1e-5;
    config.rate.warmup_max_lr = 1e-3;
    config.rate.warmup_num_steps = 10;
    config.rate.warmup_type = ZR_WARMUP_LOG;
    RATES(0, { 1, 1e-05 }, { 2, 1e-05 }, { 3, 0.0003080196957073414 }, { 4, 0.00048235004217246576 },
          { 7, 0.0007803697378798071 }, { 11, 0.0009999999999999998 }, { 12, 0.001 }, { 13, 0.001 }, { 500, 0.001 });
    config.rate.warmup_min_lr = 0;
    config.rate.warmup_max_lr = 2e-4;
    config.rate.warmup_num_steps = 8;
    config.rate.warmup_type = ZR_WARMUP_LINEAR;
    RATES(0, { 1, 0 }, { 2, 0 }, { 3, 2.5e-05 }, { 5, 7.5e-05 }, { 9, 0.000175 }, { 10, 0.0002 }, { 1000, 0.0002 });
}

static void a_warm_up_of_one_step_takes_two(void **state)
{
    (void)state;
    begin(ZR_RATE_WARMUP);
    config.rate.warmup_max_lr = 1e-3;
    config.rate.warmup_num_steps = 1;
    config.rate.warmup_type = ZR_WARMUP_LOG;
    RATES(0, { 1, 0 }, { 2, 0 }, { 3, 0.001 }, { 4, 0.001 });
}

static void a_linear_decay_ends_at_zero_and_stays_there(void **state)
{
    (void)state;
    begin(ZR_RATE_WARMUP_DECAY);
    config.rate.warmup_max_lr = 1e-3;
    config.rate.warmup_num_steps = 4;
    config.rate.total_num_steps = 20;
    RATES(0, { 1, 0 }, { 2, 0 }, { 3, 0.00025 }, { 5, 0.00075 }, { 6, 0.001 }, { 7, 0.0009375 }, { 14, 0.0005 },
          { 21, 6.25e-05 }, { 22, 0 }, { 40, 0 });
    RATES(12, { 2, 0 }, { 6, 0.001 }, { 10, 0.0005 }, { 14, 0 }, { 15, 0 }); /* max_steps wins over total_num_steps */
    config.rate.warmup_min_lr = 1e-4;
    config.rate.warmup_num_steps = 10;
    config.rate.total_num_steps = 5; /* ends inside the warm-up */
    config.rate.warmup_type = ZR_WARMUP_LOG;
    RATES(0, { 2, 0.0001 }, { 6, 0.0007290730039024168 }, { 11, 0.0009999999999999998 }, { 12, 0.0001 },
          { 13, 0.0001 });
}

static void a_cosine_ends_at_its_lowest_ratio(void **state)
{
    (void)state;
    begin(ZR_RATE_WARMUP_COSINE);
    config.rate.warmup_min_ratio = 0.1;
    config.rate.cos_min_ratio = 0.01;
    config.rate.warmup_num_steps = 5;
    config.rate.total_num_steps = 20;
    RATES(0, { 1, 0 }, { 2, 3e-05 }, { 3, 8.4e-05 }, { 6, 0.000246 }, { 7, 0.0002967549187089701 },
          { 8, 0.0002871615004599262 }, { 14, 0.00013597752320475346 }, { 20, 6.245081291029854e-06 }, { 21, 3e-06 },
          { 22, 3e-06 }, { 60, 3e-06 });
    config.rate.warmup_min_ratio = 0;
    config.rate.cos_min_ratio = 1e-4;
    config.rate.warmup_num_steps = 10;
    config.rate.total_num_steps = 100;
    config.rate.warmup_type = ZR_WARMUP_LOG;
    RATES(0, { 1, 0 }, { 2, 0 }, { 3, 9.030899869919434e-05 }, { 8, 0.000253529412004277 }, { 11, 0.0003 },
          { 12, 0.0002999086331904591 }, { 50, 0.00018119863494730161 }, { 101, 3e-08 }, { 102, 3e-08 });
    config.lr = 1;
    config.rate.cos_min_ratio = 0.25;
    config.rate.warmup_num_steps = 6;
    config.rate.total_num_steps = 4; /* nothing left for the cosine */
    config.rate.warmup_type = ZR_WARMUP_LINEAR;
    RATES(0, { 2, 0 }, { 7, 5.0 / 6 }, { 8, 0.25 }, { 9, 0.25 });
}

static void begin_cycle(double low, double high, uint32_t up, uint32_t down)
{
    begin(ZR_RATE_ONE_CYCLE);
    config.rate.cycle_min_lr = low;
    config.rate.cycle_max_lr = high;
    config.rate.cycle_first_step_size = up;
    config.rate.cycle_second_step_size = down;
    config.rate.cycle_momentum = true;
    config.rate.cycle_min_mom = 0.8;
    config.rate.cycle_max_mom = 0.9;
}

static void one_cycle_rises_and_falls_and_momentum_mirrors_it(void **state)
{
    (void)state;
    begin_cycle(1e-5, 1e-3, 4, 6);
    RATES(0, { 1, 1e-05 }, { 2, 0.0002575 }, { 3, 0.000505 }, { 4, 0.0007525 }, { 5, 0.001 }, { 6, 0.000835 },
          { 8, 0.000505 }, { 10, 0.000175 }, { 11, 1e-05 }, { 12, 1e-05 }, { 13, 1e-05 }, { 50, 1e-05 });
    BETAS({ 1, 0.8 }, { 2, 0.875 }, { 4, 0.825 }, { 5, 0.8 }, { 6, 0.8 + 0.1 / 6 }, { 11, 0.9 }, { 12, 0.9 },
          { 50, 0.9 });
    assert_true(zr_rate_beta2(&config) == 0.99); /* (momentum, 0.99) is what DeepSpeed puts in place of both betas */
    config.rate.cycle_momentum = false;
    BETAS({ 1, 0.9 }, { 2, 0.9 }, { 5, 0.9 });
    assert_true(zr_rate_beta2(&config) == 0.999);
}

static void one_cycle_decays_after_the_cycle_where_it_is_asked_to(void **state)
{
    (void)state;
    begin_cycle(1e-4, 1e-3, 5, 5);
    config.rate.decay_lr_rate = 0.5;
    config.rate.decay_mom_rate = 0.01;
    config.rate.decay_step_size = 4;
    config.rate.cycle_min_mom = 0.85;
    config.rate.cycle_max_mom = 0.95;
    RATES(0, { 1, 0.0001 }, { 5, 0.00082 }, { 6, 0.001 }, { 11, 0.0001 }, { 12, 8.888888888888889e-05 }, { 13, 8e-05 },
          { 15, 6.666666666666667e-05 }, { 19, 5e-05 }, { 111, 7.4074074074074075e-06 });
    BETAS({ 1, 0.85 }, { 5, 0.87 }, { 6, 0.85 }, { 11, 0.95 }, { 12, 0.952375 }, { 13, 0.95475 }, { 15, 0.9595 },
          { 19, 0.969 });
    config.rate.decay_step_size = 0; /* no step, no decay, whatever the rates say */
    RATES(0, { 11, 0.0001 }, { 12, 0.0001 }, { 13, 0.0001 }, { 40, 0.0001 });
    BETAS({ 11, 0.95 }, { 12, 0.95 }, { 40, 0.95 });
}

static void one_cycle_climbs_in_stairs(void **state)
{
    (void)state;
    begin_cycle(0, 1, 8, 4);
    config.rate.cycle_first_stair_count = config.rate.cycle_second_stair_count = 2;
    RATES(0, { 1, 0 }, { 4, 0 }, { 5, 0.5 }, { 8, 0.5 }, { 9, 1 }, { 10, 0.5 }, { 11, 0.5 }, { 12, 0 }, { 13, 0 });
    BETAS({ 1, 0.8 }, { 2, 0.9 }, { 5, 0.85 }, { 9, 0.8 }, { 12, 0.9 }, { 13, 0.9 });
    config.rate.cycle_first_stair_count = 4;
    config.rate.cycle_second_stair_count = 0;
    RATES(0, { 2, 0 }, { 3, 0.25 }, { 4, 0.25 }, { 5, 0.5 }, { 7, 0.75 }, { 9, 1 }, { 10, 0.7499999999999999 },
          { 11, 0.4999999999999995 }, { 12, 0.2500000000000004 }, { 13, 0 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_schedule_nothing_moves),
        cmocka_unit_test(a_warm_up_rises_by_the_logarithm_or_a_line),
        cmocka_unit_test(a_warm_up_of_one_step_takes_two),
        cmocka_unit_test(a_linear_decay_ends_at_zero_and_stays_there),
        cmocka_unit_test(a_cosine_ends_at_its_lowest_ratio),
        cmocka_unit_test(one_cycle_rises_and_falls_and_momentum_mirrors_it),
        cmocka_unit_test(one_cycle_decays_after_the_cycle_where_it_is_asked_to),
        cmocka_unit_test(one_cycle_climbs_in_stairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
