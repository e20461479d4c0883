/* wishes.c: which keys decide where bytes live
 *
 *     offload_optimizer.device none | cpu | nvme     states on the device | the host | nvme (planes by zerod.nvme.planes)
 *     offload_param.device     none | cpu | nvme     weights on the device | streamed from the host | from nvme  (stage 3) */
#include "engine/run/wishes.h"
#include "engine/base/place.h"

static enum zr_tier tier_of(enum zr_place_tier place)
{
    return place == ZR_PLACE_NONE ? ZR_DEVICE : place == ZR_PLACE_CPU ? ZR_HOST : ZR_NVME;
}

enum zr_code zr_wishes_make(const struct zr_config *config, const struct zr_dims *dims, struct zr_wishes *ret_wishes,
                            struct zr_error *err)
{
    if (config->precision == ZR_PRECISION_FP16)
        return zr_fail(err, ZR_ECONFIG, "fp16.enabled: the cpu backend computes fp32 and bf16; hint: use bf16.enabled");
    if (config->ranks > 1)
        return zr_fail(err, ZR_ECONFIG, "%u ranks (%s): this build trains on one", config->ranks, config->ranks_origin);
    if (config->sequence_length == 0)
        return zr_fail(err, ZR_ECONFIG, "sequence_length is missing: tokens per sequence, for instance %u",
                       dims->max_positions);

    const bool stream = config->zero_stage == 3 && config->param_device != ZR_PLACE_NONE;
    const bool split = config->precision == ZR_PRECISION_BF16;
    uint32_t planes = 0;
    if (config->nvme_planes & ZR_NVME_LOW) planes |= 1u << ZR_LOW;
    if (config->nvme_planes & ZR_NVME_M) planes |= 1u << ZR_M;
    if (config->nvme_planes & ZR_NVME_V) planes |= 1u << ZR_V;
    enum zr_tier states = tier_of(config->optimizer_device);
    /* Weights that stream need a home off the device, and so their update runs on the host. */
    if (stream && states == ZR_DEVICE)
        return zr_fail(err, ZR_ECONFIG,
                       "zero_optimization.offload_param.device needs offload_optimizer.device cpu or "
                       "nvme: streamed weights are updated on the host");
    *ret_wishes = (struct zr_wishes){
        .split = split,
        .grad_bf16 = config->grad_accum_bf16,
        .stream_weights = stream,
        .weight_home = stream && config->param_device == ZR_PLACE_NVME ? ZR_NVME : ZR_HOST,
        .states = states,
        .nvme_planes = planes,
        .rows_per_step = config->train_batch_size,
        .row_tokens = config->sequence_length,
        .micro_rows = config->micro_batch_auto ? 0 : config->micro_batch_size,
        .prefetch = config->prefetch,
        .update_chunk = config->update_chunk,
        .loss_chunk = config->loss_chunk_rows,
        .accumulate = !config->grad_accum_bf16,
    };
    return ZR_OK;
}

enum zr_code zr_wishes_budgets(const struct zr_config *config, struct zr_machine *machine, struct zr_error *err)
{
    struct zr_place place;
    zr_place_look(&place);
    const bool need_nvme = config->optimizer_device == ZR_PLACE_NVME || config->param_device == ZR_PLACE_NVME;
    if (need_nvme && config->nvme_path_count == 0)
        return zr_fail(err, ZR_ECONFIG,
                       "offload to nvme needs zerod.nvme.path or an nvme_path: a directory on the drive");

    /* The cpu backend's "device" is a part of the host: left open, each gets half of what is free. */
    machine->bytes[ZR_DEVICE] = config->device_bytes ? config->device_bytes : place.memory_bytes / 2;
    machine->bytes[ZR_HOST] = config->host_bytes ? config->host_bytes : place.memory_bytes / 2;
    machine->bytes[ZR_NVME] = !need_nvme ? 0 : config->nvme_bytes ? config->nvme_bytes : (uint64_t)1 << 50;
    return ZR_OK;
}
