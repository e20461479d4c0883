/* init.c: random weights, a function of (seed, tensor, element) alone */
#include "engine/base/random.h"
#include "engine/model/model.h"
#include <math.h>

void zr_model_init_tensor(const struct zr_model *model, uint32_t tensor_index, uint64_t seed, uint64_t first,
                          uint64_t count, float *ret_values)
{
    const struct zr_tensor *tensor = &model->tensors[tensor_index];
    double scale = model->dims.initializer_range;
    if (tensor->init == ZR_INIT_NORMAL_RESIDUAL) scale /= sqrt(2.0 * model->dims.layers);
    for (uint64_t i = 0; i < count; i++) {
        if (tensor->init == ZR_INIT_ONE || tensor->init == ZR_INIT_ZERO) {
            ret_values[i] = tensor->init == ZR_INIT_ONE;
            continue;
        }
        double pair[2]; /* of elements 2k and 2k + 1 */
        zr_random_normal(seed, tensor_index, (first + i) / 2, pair);
        ret_values[i] = (float)(scale * pair[(first + i) % 2]);
        if ((first + i) % 2 == 0 && i + 1 < count) ret_values[++i] = (float)(scale * pair[1]);
    }
}
