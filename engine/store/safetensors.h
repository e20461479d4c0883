/* safetensors.h: one safetensors file: header and tensors, checked before use
 *
 * u64 little-endian length of the header, JSON header, data. Checked when opened: header at most 100 MB and inside the
 * file; offsets in range, in order, without overlap or holes; product(shape) * size == length, without overflow; no
 * duplicate names. Reading streams: nothing larger than the caller's buffer is held. */
#ifndef ZR_STORE_SAFETENSORS_H
#define ZR_STORE_SAFETENSORS_H

#include "engine/base/error.h"
#include "engine/model/model.h"

enum zr_file_dtype { ZR_FILE_F32, ZR_FILE_F16, ZR_FILE_BF16, ZR_FILE_OTHER };

struct zr_file_tensor {
    char *name;
    enum zr_file_dtype dtype;
    char dtype_name[16];
    uint64_t shape[8];
    uint32_t rank;
    uint64_t offset, bytes; /* offset from the start of the file */
};

struct zr_safetensors {
    int fd;
    char *path; /* for messages */
    struct zr_file_tensor *tensors;
    uint32_t tensor_count;
};

/* Opens `name` inside the directory `directory_fd`. Safe to close after failure and when zeroed with fd -1. */
ZR_MUST_CHECK enum zr_code zr_safetensors_open(int directory_fd, const char *name, struct zr_safetensors *file,
                                               struct zr_error *err);
void zr_safetensors_close(struct zr_safetensors *file);
const struct zr_file_tensor *zr_safetensors_find(const struct zr_safetensors *file, const char *name);

/* Elements [first, first + count) as fp32 (exact for all three formats). */
ZR_MUST_CHECK enum zr_code zr_safetensors_read_f32(const struct zr_safetensors *file,
                                                   const struct zr_file_tensor *tensor, uint64_t first, uint64_t count,
                                                   float *ret_values, struct zr_error *err);

/* Writing: the whole table first, then the data in the table's order, then finish (which checks that all came and syncs
 * the file). Metadata is {"format":"pt"}. Data starts at a multiple of 64. */
struct zr_safetensors_writer;
struct zr_write_tensor {
    const char *name;
    uint64_t shape[2]; /* shape[1] 0: a vector */
};
ZR_MUST_CHECK enum zr_code zr_safetensors_create(int directory_fd, const char *name,
                                                 const struct zr_write_tensor *tensors, uint32_t tensor_count,
                                                 enum zr_file_dtype dtype, struct zr_safetensors_writer **ret_writer,
                                                 struct zr_error *err);
ZR_MUST_CHECK enum zr_code zr_safetensors_put_f32(struct zr_safetensors_writer *writer, const float *values,
                                                  uint64_t count, struct zr_error *err);
ZR_MUST_CHECK enum zr_code zr_safetensors_finish(struct zr_safetensors_writer *writer, struct zr_error *err);
void zr_safetensors_abandon(struct zr_safetensors_writer *writer); /* removes the file; NULL is fine */

#endif
