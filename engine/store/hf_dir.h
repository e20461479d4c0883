/* hf_dir.h: a Hugging Face model directory: config.json, safetensors single or sharded, tokenizer files
 *
 * Loading streams every tensor in pieces through the sink, never a second copy of the model. Saving writes beside the
 * names it will have, syncs, renames: a reader never sees half a file. Directories come as descriptors: the daemon opens
 * no path on a client's behalf. */
#ifndef ZR_STORE_HF_DIR_H
#define ZR_STORE_HF_DIR_H

#include "engine/base/text.h"
#include "engine/store/safetensors.h"

/* config.json of the directory into dims. `name` stands for the directory in messages. */
ZR_MUST_CHECK enum zr_code zr_hf_read_dims(int directory_fd, const char *name, struct zr_dims *ret_dims,
                                           struct zr_error *err);

/* Does the directory hold weights (model.safetensors, or an index)? */
bool zr_hf_has_weights(int directory_fd);

/* Takes `count` values of the flat layout of `unit` from element `offset` on. */
typedef enum zr_code zr_weights_sink(void *context, uint32_t unit, uint64_t offset, const float *values, uint64_t count,
                                     struct zr_error *err);

/* All tensors of the model from the directory's safetensors. Names with and without "transformer." / "model." prefixes;
 * rotary inv_freq and GPT-2's attn.bias / masked_bias buffers are ignored. Tied heads: head absent, alias in the header's
 * metadata, or both present (equal: fine; different: the embedding is loaded and `warnings` says so with both names).
 * A missing tensor, a wrong shape or a format other than bf16, fp16, fp32 is an error that names the tensor and file; a
 * tensor that the model does not have is a warning. */
ZR_MUST_CHECK enum zr_code zr_hf_load(int directory_fd, const char *name, const struct zr_model *model,
                                      zr_weights_sink *sink, void *context, struct zr_text *warnings,
                                      struct zr_error *err);

typedef enum zr_code zr_weights_source(void *context, uint32_t unit, uint64_t offset, float *ret_values, uint64_t count,
                                       struct zr_error *err);

struct zr_hf_save {
    const struct zr_model *model;
    enum zr_file_dtype dtype;
    zr_weights_source *source;
    void *context;
    uint64_t shard_bytes; /* 0: 5 GB, as transformers does */
    bool byte_tokenizer;  /* also tokenizer.json and tokenizer_config.json of a byte-level vocabulary of 257 */
};

/* Writes config.json, generation_config.json, model.safetensors or shards with index, and the tokenizer files. The same
 * weights always give the same bytes. */
ZR_MUST_CHECK enum zr_code zr_hf_save(int directory_fd, const char *name, const struct zr_hf_save *save,
                                      struct zr_error *err);

#endif
