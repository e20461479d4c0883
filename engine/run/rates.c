/* rates.c: the formulas, in the order in which DeepSpeed's lr_schedules.py evaluates them */
#include "engine/run/rates.h"
#include <math.h>

/* Share of the warm-up that is done after iteration t, for t < n. */
static double warmup_share(double t, double n, int type)
{
    return type == ZR_WARMUP_LOG ? log(t + 1) / log(n) : t / n;
}

static double warmup_steps(const struct zr_config *config)
{
    return config->rate.warmup_num_steps < 2 ? 2 : config->rate.warmup_num_steps;
}

static double warmup(const struct zr_config *config, double t, double total)
{
    const double n = warmup_steps(config);
    const double low = config->rate.warmup_min_lr, high = config->rate.warmup_max_lr;
    double share = 1;
    if (t < n)
        share = warmup_share(t, n, config->rate.warmup_type);
    else if (config->schedule == ZR_RATE_WARMUP_DECAY)
        share = fmax(0, (total - t) / fmax(1, total - n));
    return low + (high - low) * share;
}

static double cosine(const struct zr_config *config, double t, double total)
{
    const double n = warmup_steps(config), pi = acos(-1);
    if (t < 0) return 0;
    if (t < n) {
        double first = config->rate.warmup_min_ratio;
        return config->lr * (first + (1 - first) * warmup_share(t, n, config->rate.warmup_type));
    }
    double progress = fmin(1, (t - n + 1) / fmax(1, total - n));
    double last = config->rate.cos_min_ratio;
    return config->lr * fmax(0, last + (1 - last) * (1 + cos(pi * progress)) / 2);
}

/* Position in the cycle, 0 at its ends and 1 at the top; DeepSpeed counts the iteration from 1 here. */
static double cycle_scale(const struct zr_config *config, double t)
{
    const double up = config->rate.cycle_first_step_size;
    const double down = config->rate.cycle_second_step_size ? config->rate.cycle_second_step_size : up;
    const double size = up + down, ratio = up / size;
    double batch = t + 1, cycle = floor(1 + batch / size), x = 1 + batch / size - cycle;
    return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
}

static double cycle_length(const struct zr_config *config)
{
    const double up = config->rate.cycle_first_step_size;
    return up + (config->rate.cycle_second_step_size ? config->rate.cycle_second_step_size : up);
}

static double decay_interval(const struct zr_config *config, double t)
{
    double batch = t - cycle_length(config) + 1;
    return config->rate.decay_step_size ? batch / config->rate.decay_step_size : batch;
}

static double one_cycle(const struct zr_config *config, double t)
{
    const double low = config->rate.cycle_min_lr, high = config->rate.cycle_max_lr;
    if (t < 0) return low;
    if (t < cycle_length(config)) return low + (high - low) * cycle_scale(config, t);
    if (config->rate.decay_lr_rate == 0) return low;
    return low / (1 + decay_interval(config, t) * config->rate.decay_lr_rate);
}

double zr_rate(const struct zr_config *config, uint64_t update, uint64_t max_steps)
{
    const double t = (double)update - 2;
    const double total = max_steps ? (double)max_steps : config->rate.total_num_steps;
    switch (config->schedule) {
    case ZR_RATE_CONSTANT:
        return config->lr;
    case ZR_RATE_WARMUP:
    case ZR_RATE_WARMUP_DECAY:
        return t < 0 ? config->rate.warmup_min_lr : warmup(config, t, total);
    case ZR_RATE_WARMUP_COSINE:
        return cosine(config, t, total);
    default:
        return one_cycle(config, t);
    }
}

double zr_rate_beta1(const struct zr_config *config, uint64_t update)
{
    const double t = (double)update - 2;
    if (config->schedule != ZR_RATE_ONE_CYCLE || !config->rate.cycle_momentum) return config->beta1;
    const double low = config->rate.cycle_min_mom, high = config->rate.cycle_max_mom;
    if (t < 0) return high;
    if (t < cycle_length(config)) return high - (high - low) * cycle_scale(config, t);
    if (config->rate.decay_mom_rate == 0) return high;
    return high * (1 + decay_interval(config, t) * config->rate.decay_mom_rate);
}
