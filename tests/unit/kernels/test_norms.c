/* test_norms.c: RMSNorm and LayerNorm, forward and backward, against their formulas in float64 */
#include "everywhere.h"

struct shape {
    uint64_t rows, groups, width;
};

/* One row; widths around 16 parts; rows around the 64 that share a partial sum; heads inside rows. */
static const struct shape shapes[] = {
    { 1, 1, 1 },  { 1, 1, 5 },    { 3, 1, 16 }, { 2, 1, 17 },   { 64, 1, 33 },
    { 65, 1, 8 }, { 130, 1, 47 }, { 5, 3, 16 }, { 129, 2, 10 }, { 2, 1, 4099 },
};

#define GAP 3 /* elements between rows that belong to nobody */

struct rms {
    struct shape shape;
    uint64_t stride, count; /* of x, dx and dy alike */
    float *x, *dy, *dx, *out, *weight, *dweight, *rstd, *scratch;
    struct room room;
};

static void rms_make(struct rms *it, const struct shape *shape)
{
    *it = (struct rms){ .shape = *shape, .stride = shape->groups * shape->width + GAP };
    it->count = shape->rows * it->stride;
    it->x = numbers(it->count, 1, 3);
    it->dy = numbers(it->count, 2, 1);
    it->dx = numbers(it->count, 3, 1);
    it->out = numbers(it->count, 4, 1);
    it->weight = numbers(shape->width, 5, 1);
    it->dweight = numbers(shape->width, 6, 1);
    it->rstd = numbers(shape->rows * shape->groups, 7, 1);
    it->scratch = room_make(&it->room, zr_op_norm_scratch(shape->rows * shape->groups, shape->width) * 4, 4);
}

static void rms_free(struct rms *it)
{
    room_free(&it->room);
    free(it->x);
    free(it->dy);
    free(it->dx);
    free(it->out);
    free(it->weight);
    free(it->dweight);
    free(it->rstd);
}

#define EPS 1e-5f

static void rmsnorm_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * ZR_COUNT(shapes); i++) {
        struct rms it;
        rms_make(&it, &shapes[i / 2]);
        bool in_place = i % 2;
        const uint64_t w = it.shape.width, rows = it.shape.rows, groups = it.shape.groups;
        double *out = doubles(in_place ? it.x : it.out, it.count), *rstd = doubles(it.rstd, rows * groups);
        for (uint64_t r = 0; r < rows * groups; r++) {
            uint64_t at = r / groups * it.stride + r % groups * w;
            double squares = 0;
            for (uint64_t j = 0; j < w; j++)
                squares += (double)it.x[at + j] * (double)it.x[at + j];
            rstd[r] = 1 / sqrt(squares / (double)w + (double)EPS);
            for (uint64_t j = 0; j < w; j++)
                out[at + j] = (double)it.x[at + j] * rstd[r] * (double)it.weight[j];
        }
        float *to = in_place ? it.x : it.out;
        run_everywhere(ZR_OP_rmsnorm_forward,
                       &(struct zr_op_rmsnorm_forward){ .out = to,
                                                        .x = it.x,
                                                        .weight = it.weight,
                                                        .rstd = it.rstd,
                                                        .rows = rows,
                                                        .groups = groups,
                                                        .width = w,
                                                        .stride_x = it.stride,
                                                        .stride_out = it.stride,
                                                        .eps = EPS,
                                                        .dtype = ZR_F32 },
                       (struct written[]){ { to, it.count * 4 }, { it.rstd, rows * groups * 4 } }, 2);
        must_be_near("out", to, out, it.count, 2e-7);
        must_be_near("rstd", it.rstd, rstd, rows * groups, 1e-7);
        rms_free(&it);
    }
}

/* dx[j] = d/dx[j] sum_i dy[i] weight[i] x[i] rstd(x), by the derivative of each factor, not by the kernel's form. */
static double rms_slope(const float *x, const float *dy, const float *weight, uint64_t w, double rstd, uint64_t j)
{
    double through_rstd = 0; /* d rstd / d x[j] = -rstd^3 x[j] / w */
    for (uint64_t i = 0; i < w; i++)
        through_rstd += (double)dy[i] * (double)weight[i] * (double)x[i];
    return (double)dy[j] * (double)weight[j] * rstd - through_rstd * rstd * rstd * rstd * (double)x[j] / (double)w;
}

static void rmsnorm_backward(void **state)
{
    (void)state;
    enum { PLAIN, ADD, IN_PLACE, FORMS };
    for (size_t i = 0; i < FORMS * ZR_COUNT(shapes); i++) {
        struct rms it;
        rms_make(&it, &shapes[i / FORMS]);
        int form = i % FORMS;
        float *to = form == IN_PLACE ? it.dy : it.dx;
        const uint64_t w = it.shape.width, rows = it.shape.rows, groups = it.shape.groups;
        double *dx = doubles(to, it.count), *dweight = doubles(it.dweight, w);
        for (uint64_t r = 0; r < rows * groups; r++) {
            uint64_t at = r / groups * it.stride + r % groups * w;
            double squares = 0;
            for (uint64_t j = 0; j < w; j++)
                squares += (double)it.x[at + j] * (double)it.x[at + j];
            double rstd = 1 / sqrt(squares / (double)w + (double)EPS);
            it.rstd[r] = (float)rstd;
            for (uint64_t j = 0; j < w; j++) {
                double slope = rms_slope(it.x + at, it.dy + at, it.weight, w, rstd, j);
                dx[at + j] = form == ADD ? dx[at + j] + slope : slope;
                dweight[j] += (double)it.dy[at + j] * (double)it.x[at + j] * rstd;
            }
        }
        run_everywhere(ZR_OP_rmsnorm_backward,
                       &(struct zr_op_rmsnorm_backward){ .dx = to,
                                                         .dweight = it.dweight,
                                                         .dy = it.dy,
                                                         .x = it.x,
                                                         .weight = it.weight,
                                                         .rstd = it.rstd,
                                                         .scratch = it.scratch,
                                                         .rows = rows,
                                                         .groups = groups,
                                                         .width = w,
                                                         .stride_dx = it.stride,
                                                         .stride_dy = it.stride,
                                                         .stride_x = it.stride,
                                                         .add = form == ADD,
                                                         .dtype = ZR_F32 },
                       (struct written[]){ { to, it.count * 4 }, { it.dweight, w * 4 } }, 2);
        must_be_near("dx", to, dx, it.count, 5e-7);
        must_be_near("dweight", it.dweight, dweight, w, 1e-6);
        rms_free(&it);
    }
}

static void rmsnorm_of_numbers_whose_squares_overflow(void **state)
{
    /* 1e25 squared is beyond fp32; the norm of such a row is still 1. */
    (void)state;
    float x[4] = { 1e25f, -1e25f, 1e25f, 1e25f }, weight[4] = { 1, 1, 1, 2 }, out[4], rstd;
    run_everywhere(ZR_OP_rmsnorm_forward,
                   &(struct zr_op_rmsnorm_forward){ .out = out,
                                                    .x = x,
                                                    .weight = weight,
                                                    .rstd = &rstd,
                                                    .rows = 1,
                                                    .groups = 1,
                                                    .width = 4,
                                                    .stride_x = 4,
                                                    .stride_out = 4,
                                                    .eps = EPS,
                                                    .dtype = ZR_F32 },
                   (struct written[]){ { out, sizeof out }, { &rstd, sizeof rstd } }, 2);
    const double want[4] = { 1, -1, 1, 2 };
    assert_true(near_absolute(out, want, 4) < 1e-6);
}

/* -- LayerNorm ----------------------------------------------------------------------------------------------------- */

struct layer {
    uint64_t rows, width, count;
    float *x, *dy, *dx, *weight, *bias, *dweight, *dbias, *mean, *rstd, *scratch;
    struct room room;
};

static void layer_make(struct layer *it, const struct shape *shape)
{
    *it = (struct layer){ .rows = shape->rows, .width = shape->width * shape->groups };
    it->count = it->rows * it->width;
    it->x = numbers(it->count, 1, 3);
    for (uint64_t i = 0; i < it->count; i++)
        it->x[i] += 1;
    it->dy = numbers(it->count, 2, 1);
    it->dx = numbers(it->count, 3, 1);
    it->weight = numbers(it->width, 4, 1);
    it->bias = numbers(it->width, 5, 1);
    it->dweight = numbers(it->width, 6, 1);
    it->dbias = numbers(it->width, 7, 1);
    it->mean = numbers(it->rows, 8, 1);
    it->rstd = numbers(it->rows, 9, 1);
    it->scratch = room_make(&it->room, 2 * zr_op_norm_scratch(it->rows, it->width) * 4, 4);
}

static void layer_free(struct layer *it)
{
    room_free(&it->room);
    free(it->x);
    free(it->dy);
    free(it->dx);
    free(it->weight);
    free(it->bias);
    free(it->dweight);
    free(it->dbias);
    free(it->mean);
    free(it->rstd);
}

static void moments(const float *x, uint64_t width, double *mean, double *rstd)
{
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < width; i++)
        sum += x[i];
    *mean = sum / (double)width;
    for (uint64_t i = 0; i < width; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1 / sqrt(squares / (double)width + (double)EPS);
}

static void layernorm_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZR_COUNT(shapes); i++) {
        struct layer it;
        layer_make(&it, &shapes[i]);
        double *out = doubles(it.dx, it.count), *mean = doubles(it.mean, it.rows), *rstd = doubles(it.rstd, it.rows);
        for (uint64_t r = 0; r < it.rows; r++) {
            moments(it.x + r * it.width, it.width, &mean[r], &rstd[r]);
            for (uint64_t j = 0; j < it.width; j++)
                out[r * it.width + j] =
                    (it.x[r * it.width + j] - mean[r]) * rstd[r] * (double)it.weight[j] + (double)it.bias[j];
        }
        run_everywhere(
            ZR_OP_layernorm_forward,
            &(struct zr_op_layernorm_forward){ .out = it.dx,
                                               .x = it.x,
                                               .weight = it.weight,
                                               .bias = it.bias,
                                               .mean = it.mean,
                                               .rstd = it.rstd,
                                               .rows = it.rows,
                                               .width = it.width,
                                               .eps = EPS,
                                               .dtype = ZR_F32 },
            (struct written[]){ { it.dx, it.count * 4 }, { it.mean, it.rows * 4 }, { it.rstd, it.rows * 4 } }, 3);
        must_be_near("out", it.dx, out, it.count, 3e-7);
        must_be_near("mean", it.mean, mean, it.rows, 1e-7);
        must_be_near("rstd", it.rstd, rstd, it.rows, 1e-7);
        layer_free(&it);
    }
}

static void layernorm_backward(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * ZR_COUNT(shapes); i++) {
        struct layer it;
        layer_make(&it, &shapes[i / 2]);
        if (it.width == 1) { /* its gradient is zero; nothing to be near to */
            layer_free(&it);
            continue;
        }
        bool add = i % 2;
        const uint64_t w = it.width;
        double *dx = doubles(it.dx, it.count), *dweight = doubles(it.dweight, w), *dbias = doubles(it.dbias, w);
        for (uint64_t r = 0; r < it.rows; r++) {
            const float *x = it.x + r * w, *dy = it.dy + r * w;
            double mean, rstd, sum = 0, along = 0;
            moments(x, w, &mean, &rstd);
            it.mean[r] = (float)mean;
            it.rstd[r] = (float)rstd;
            for (uint64_t j = 0; j < w; j++) {
                sum += (double)dy[j] * (double)it.weight[j];
                along += (double)dy[j] * (double)it.weight[j] * (x[j] - mean);
                dweight[j] += (double)dy[j] * (x[j] - mean) * rstd;
                dbias[j] += dy[j];
            }
            for (uint64_t j = 0; j < w;
                 j++) { /* d rstd / d x[j] = -rstd^3 (x[j] - mean) / w; d mean / d x[j] = 1 / w */
                double slope = rstd * ((double)dy[j] * (double)it.weight[j] - sum / (double)w) -
                               rstd * rstd * rstd * (x[j] - mean) * along / (double)w;
                dx[r * w + j] = add ? dx[r * w + j] + slope : slope;
            }
        }
        run_everywhere(ZR_OP_layernorm_backward,
                       &(struct zr_op_layernorm_backward){ .dx = it.dx,
                                                           .dweight = it.dweight,
                                                           .dbias = it.dbias,
                                                           .dy = it.dy,
                                                           .x = it.x,
                                                           .weight = it.weight,
                                                           .mean = it.mean,
                                                           .rstd = it.rstd,
                                                           .scratch = it.scratch,
                                                           .rows = it.rows,
                                                           .width = w,
                                                           .add = add,
                                                           .dtype = ZR_F32 },
                       (struct written[]){ { it.dx, it.count * 4 }, { it.dweight, w * 4 }, { it.dbias, w * 4 } }, 3);
        must_be_near("dx", it.dx, dx, it.count, 1e-6);
        must_be_near("dweight", it.dweight, dweight, w, 1e-6);
        must_be_near("dbias", it.dbias, dbias, w, 1e-6);
        layer_free(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_forward),
        cmocka_unit_test(rmsnorm_backward),
        cmocka_unit_test(layernorm_forward),
        cmocka_unit_test(layernorm_backward),
        cmocka_unit_test(rmsnorm_of_numbers_whose_squares_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
