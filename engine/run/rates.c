/* rates.c: the formulas, in the order in which DeepSpeed's lr_schedules.py evaluates them */
#include "engine/run/rates.h"
#include <math.h>

/* Share of the warm-up that is done after iteration t, for t < n. */
static double warmup_share(double t, double n, int type)
{
    return type == ZR_WARMUP_LOG ? 1 / log(n) * log(t + 1) : t / n;
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

static double cycle_fall(const struct zr_config *config)
{
    return config->rate.cycle_second_step_size ? config->rate.cycle_second_step_size
                                               : config->rate.cycle_first_step_size;
}

static double cycle_length(const struct zr_config *config)
{
    return config->rate.cycle_first_step_size + cycle_fall(config);
}

/* Position in the cycle, 0 at its ends and 1 at the top; DeepSpeed counts the iteration from 1 here. Stairs are counted
 * from the iteration, a whole number: x may lie a rounding below the stair that it is on. */
static double cycle_scale(const struct zr_config *config, double t)
{
    const double up = config->rate.cycle_first_step_size, down = cycle_fall(config);
    const double size = up + down, ratio = up / size;
    double batch = t + 1, cycle = floor(1 + batch / size), x = 1 + batch / size - cycle;
    const double stairs = x <= ratio ? config->rate.cycle_first_stair_count : config->rate.cycle_second_stair_count;
    if (stairs == 0) return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
    double inside = fmod(batch, size);
    return floor(inside <= up ? inside * stairs / up : (size - inside) * stairs / down) / stairs;
}

/* How many decay steps lie behind the end of the cycle; without a decay step DeepSpeed does not decay at all. */
static double decay_interval(const struct zr_config *config, double t)
{
    return config->rate.decay_step_size ? (t - cycle_length(config) + 1) / config->rate.decay_step_size : 0;
}

static double one_cycle(const struct zr_config *config, double t)
{
    const double low = config->rate.cycle_min_lr, high = config->rate.cycle_max_lr;
    if (t < 0) return low;
    if (t < cycle_length(config)) return low + (high - low) * cycle_scale(config, t);
    return low / (1 + config->rate.decay_lr_rate * decay_interval(config, t));
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

static bool cycles_momentum(const struct zr_config *config)
{
    return config->schedule == ZR_RATE_ONE_CYCLE && config->rate.cycle_momentum;
}

double zr_rate_beta1(const struct zr_config *config, uint64_t update)
{
    const double t = (double)update - 2;
    if (!cycles_momentum(config)) return config->beta1;
    const double low = config->rate.cycle_min_mom, high = config->rate.cycle_max_mom;
    if (t < 0) return low;
    if (t < cycle_length(config)) return high - (high - low) * cycle_scale(config, t);
    return high * (1 + config->rate.decay_mom_rate * decay_interval(config, t));
}

double zr_rate_beta2(const struct zr_config *config)
{
    return cycles_momentum(config) ? 0.99 : config->beta2;
}
