/* safetensors.c: reading with every check before use, and writing in one pass */
#include "engine/store/safetensors.h"
#include "engine/base/span.h"
#include "engine/base/text.h"
#include "engine/store/halves.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX (100u * 1000 * 1000)

static const struct {
    const char *name;
    enum zr_file_dtype dtype;
    uint32_t bytes;
} dtypes[] = {
    { "F32", ZR_FILE_F32, 4 },    { "F16", ZR_FILE_F16, 2 },       { "BF16", ZR_FILE_BF16, 2 },
    { "F64", ZR_FILE_OTHER, 8 },  { "I64", ZR_FILE_OTHER, 8 },     { "I32", ZR_FILE_OTHER, 4 },
    { "I16", ZR_FILE_OTHER, 2 },  { "I8", ZR_FILE_OTHER, 1 },      { "U64", ZR_FILE_OTHER, 8 },
    { "U32", ZR_FILE_OTHER, 4 },  { "U16", ZR_FILE_OTHER, 2 },     { "U8", ZR_FILE_OTHER, 1 },
    { "BOOL", ZR_FILE_OTHER, 1 }, { "F8_E4M3", ZR_FILE_OTHER, 1 }, { "F8_E5M2", ZR_FILE_OTHER, 1 },
};

static enum zr_code read_all(const struct zr_safetensors *file, void *to, uint64_t bytes, uint64_t offset,
                             struct zr_error *err)
{
    char *at = to;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, at, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return zr_fail(err, ZR_EIO, "%s: reading at offset %" PRIu64 ": %s", file->path, offset, strerror(errno));
        if (got == 0) return zr_fail(err, ZR_EINPUT, "%s: ends at offset %" PRIu64 ": cut off", file->path, offset);
        at += got;
        bytes -= (uint64_t)got;
        offset += (uint64_t)got;
    }
    return ZR_OK;
}

static enum zr_code bad(const struct zr_safetensors *file, struct zr_error *err, const char *tensor, const char *what)
{
    return zr_fail(err, ZR_EINPUT, "%s: tensor '%.200s': %s", file->path, tensor, what);
}

/* A whole number that fits; jansson keeps integers as signed 64 bit. */
static bool whole(const json_t *value, uint64_t *ret_number)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *ret_number = (uint64_t)json_integer_value(value);
    return true;
}

static enum zr_code read_entry(const struct zr_safetensors *file, const char *name, const json_t *entry, uint64_t data,
                               uint64_t data_bytes, struct zr_file_tensor *tensor, struct zr_error *err)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    if (!dtype || !json_is_array(shape) || !json_is_array(offsets) || json_array_size(offsets) != 2)
        return bad(file, err, name, "dtype, shape or data_offsets is missing");
    uint32_t size = 0;
    for (unsigned i = 0; i < ZR_COUNT(dtypes); i++)
        if (strcmp(dtype, dtypes[i].name) == 0) {
            tensor->dtype = dtypes[i].dtype;
            size = dtypes[i].bytes;
        }
    if (size == 0) return bad(file, err, name, "its dtype is not known");
    snprintf(tensor->dtype_name, sizeof tensor->dtype_name, "%s", dtype);
    if (json_array_size(shape) > ZR_COUNT(tensor->shape)) return bad(file, err, name, "more than 8 dimensions");
    uint64_t bytes = size, begin, end;
    tensor->rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (!whole(json_array_get(shape, i), &tensor->shape[i]) || !zr_multiply(bytes, tensor->shape[i], &bytes))
            return bad(file, err, name, "its shape is not made of whole numbers, or is too large");
    if (!whole(json_array_get(offsets, 0), &begin) || !whole(json_array_get(offsets, 1), &end) || begin > end ||
        end > data_bytes)
        return bad(file, err, name, "data_offsets lie outside the file");
    if (end - begin != bytes) return bad(file, err, name, "data_offsets do not match its shape and dtype");
    tensor->offset = data + begin;
    tensor->bytes = bytes;
    tensor->name = strdup(name);
    return tensor->name ? ZR_OK : zr_fail(err, ZR_EFULL, "no memory for a tensor's name");
}

static int by_offset(const void *a, const void *b)
{
    const struct zr_file_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Sorted by offset, the tensors must fill the data without holes or overlaps. */
static enum zr_code check_cover(struct zr_safetensors *file, uint64_t data, uint64_t data_bytes, struct zr_error *err)
{
    uint64_t end = data;
    qsort(file->tensors, file->tensor_count, sizeof *file->tensors, by_offset);
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const struct zr_file_tensor *tensor = &file->tensors[i];
        if (tensor->offset != end)
            return bad(file, err, tensor->name,
                       tensor->offset < end ? "overlaps another tensor" : "a hole lies before it");
        end += tensor->bytes;
    }
    if (end != data + data_bytes)
        return zr_fail(err, ZR_EINPUT, "%s: %" PRIu64 " bytes at the end belong to no tensor", file->path,
                       data + data_bytes - end);
    return ZR_OK;
}

static enum zr_code read_header(struct zr_safetensors *file, const json_t *header, uint64_t data, uint64_t data_bytes,
                                struct zr_error *err)
{
    const char *name;
    json_t *entry;
    file->tensors = calloc(json_object_size(header) + 1, sizeof *file->tensors);
    if (!file->tensors) return zr_fail(err, ZR_EFULL, "%s: no memory for its table of tensors", file->path);
    json_object_foreach((json_t *)header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if (!json_is_object(entry)) return bad(file, err, name, "an object of strings is needed");
            continue;
        }
        struct zr_file_tensor *tensor = &file->tensors[file->tensor_count];
        enum zr_code code = read_entry(file, name, entry, data, data_bytes, tensor, err);
        if (code) return code;
        file->tensor_count++;
    }
    return check_cover(file, data, data_bytes, err);
}

static enum zr_code open_checked(struct zr_safetensors *file, struct zr_error *err)
{
    struct stat status;
    unsigned char prefix[8];
    if (fstat(file->fd, &status) != 0) return zr_fail(err, ZR_EIO, "%s: %s", file->path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return zr_fail(err, ZR_EINPUT, "%s: not a regular file", file->path);
    uint64_t size = (uint64_t)status.st_size, length = 0;
    if (size < 8) return zr_fail(err, ZR_EINPUT, "%s: %" PRIu64 " bytes: too short for safetensors", file->path, size);
    enum zr_code code = read_all(file, prefix, 8, 0, err);
    if (code) return code;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | prefix[i];
    if (length > HEADER_MAX || !zr_inside(8, length, size))
        return zr_fail(err, ZR_EINPUT, "%s: its header claims %" PRIu64 " bytes, the file has %" PRIu64, file->path,
                       length, size);
    char *text = malloc(length + 1);
    if (!text) return zr_fail(err, ZR_EFULL, "%s: no memory for a header of %" PRIu64 " bytes", file->path, length);
    code = read_all(file, text, length, 8, err);
    json_error_t at;
    json_t *header = code ? NULL : json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (code) return code;
    if (!json_is_object(header)) {
        code = header ? zr_fail(err, ZR_EINPUT, "%s: its header is not an object", file->path)
                      : zr_fail(err, ZR_EINPUT, "%s: header: %s", file->path, at.text);
    } else {
        code = read_header(file, header, 8 + length, size - 8 - length, err);
    }
    json_decref(header);
    return code;
}

enum zr_code zr_safetensors_open(int directory_fd, const char *name, struct zr_safetensors *file, struct zr_error *err)
{
    *file = (struct zr_safetensors){ .fd = -1 };
    if (!(file->path = strdup(name))) return zr_fail(err, ZR_EFULL, "no memory for a file's name");
    file->fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum zr_code code =
        file->fd < 0 ? zr_fail(err, ZR_EINPUT, "%s: %s", name, strerror(errno)) : open_checked(file, err);
    if (code) zr_safetensors_close(file);
    return code;
}

void zr_safetensors_close(struct zr_safetensors *file)
{
    if (file->fd >= 0) close(file->fd);
    for (uint32_t i = 0; i < file->tensor_count; i++)
        free(file->tensors[i].name);
    free(file->tensors);
    free(file->path);
    *file = (struct zr_safetensors){ .fd = -1 };
}

const struct zr_file_tensor *zr_safetensors_find(const struct zr_safetensors *file, const char *name)
{
    for (uint32_t i = 0; i < file->tensor_count; i++)
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    return NULL;
}

enum zr_code zr_safetensors_read_f32(const struct zr_safetensors *file, const struct zr_file_tensor *tensor,
                                     uint64_t first, uint64_t count, float *ret_values, struct zr_error *err)
{
    const uint64_t size = tensor->dtype == ZR_FILE_F32 ? 4 : 2;
    if (tensor->dtype == ZR_FILE_OTHER)
        return zr_fail(err, ZR_EINPUT, "%s: tensor '%.200s' is %s; bf16, fp16 and fp32 can be loaded", file->path,
                       tensor->name, tensor->dtype_name);
    assert(zr_inside(first, count, tensor->bytes / size));
    /* 16-bit values are read into the upper half of the output and widened from the front. */
    char *raw = (char *)ret_values + count * (4 - size);
    enum zr_code code = read_all(file, raw, count * size, tensor->offset + first * size, err);
    if (code || size == 4) return code;
    zr_widen_halves(ret_values, raw, count, tensor->dtype == ZR_FILE_BF16);
    return ZR_OK;
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

struct zr_safetensors_writer {
    int directory_fd, fd;
    char *name;
    enum zr_file_dtype dtype;
    uint64_t left; /* values that are still to come */
    uint16_t halves[4096];
};

static enum zr_code write_all(struct zr_safetensors_writer *writer, const void *from, uint64_t bytes,
                              struct zr_error *err)
{
    const char *at = from;
    while (bytes > 0) {
        ssize_t done = write(writer->fd, at, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0)
            return zr_fail(err, errno == ENOSPC || errno == EDQUOT ? ZR_EFULL : ZR_EIO, "%s: %s", writer->name,
                           strerror(errno));
        at += done;
        bytes -= (uint64_t)done;
    }
    return ZR_OK;
}

static char *header_text(const struct zr_write_tensor *tensors, uint32_t tensor_count, enum zr_file_dtype dtype,
                         uint64_t *ret_values)
{
    const uint64_t size = dtype == ZR_FILE_F32 ? 4 : 2;
    struct zr_text text = { 0 };
    uint64_t offset = 0;
    zr_text_add(&text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < tensor_count; i++) {
        uint64_t columns = tensors[i].shape[1], count = tensors[i].shape[0] * (columns ? columns : 1);
        zr_text_add(&text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, tensors[i].name,
                    dtype == ZR_FILE_F32   ? "F32"
                    : dtype == ZR_FILE_F16 ? "F16"
                                           : "BF16",
                    tensors[i].shape[0]);
        if (columns) zr_text_add(&text, ",%" PRIu64, columns);
        zr_text_add(&text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + count * size);
        offset += count * size;
    }
    zr_text_add(&text, "}");
    while ((8 + text.length) % 64)
        zr_text_add(&text, " "); /* data starts aligned */
    *ret_values = offset / size;
    return text.at;
}

enum zr_code zr_safetensors_create(int directory_fd, const char *name, const struct zr_write_tensor *tensors,
                                   uint32_t tensor_count, enum zr_file_dtype dtype,
                                   struct zr_safetensors_writer **ret_writer, struct zr_error *err)
{
    assert(dtype != ZR_FILE_OTHER);
    struct zr_safetensors_writer *writer = calloc(1, sizeof *writer);
    if (writer) *writer = (struct zr_safetensors_writer){ .directory_fd = directory_fd, .fd = -1, .dtype = dtype };
    if (!writer || !(writer->name = strdup(name))) {
        free(writer);
        return zr_fail(err, ZR_EFULL, "%s: no memory to write it", name);
    }
    enum zr_code code = ZR_OK;
    writer->fd = openat(directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (writer->fd < 0) code = zr_fail(err, errno == EACCES ? ZR_EACCESS : ZR_EIO, "%s: %s", name, strerror(errno));
    if (!code) {
        char *header = header_text(tensors, tensor_count, dtype, &writer->left);
        unsigned char prefix[8];
        uint64_t length = strlen(header);
        for (int i = 0; i < 8; i++)
            prefix[i] = (unsigned char)(length >> 8 * i);
        if (!(code = write_all(writer, prefix, 8, err))) code = write_all(writer, header, length, err);
        free(header);
    }
    if (code) {
        zr_safetensors_abandon(writer);
        return code;
    }
    *ret_writer = writer;
    return ZR_OK;
}

enum zr_code zr_safetensors_put_f32(struct zr_safetensors_writer *writer, const float *values, uint64_t count,
                                    struct zr_error *err)
{
    assert(count <= writer->left);
    writer->left -= count;
    if (writer->dtype == ZR_FILE_F32) return write_all(writer, values, count * sizeof *values, err);
    while (count > 0) {
        uint64_t part = zr_min_u64(count, ZR_COUNT(writer->halves));
        zr_narrow_halves(writer->halves, values, part, writer->dtype == ZR_FILE_BF16);
        enum zr_code code = write_all(writer, writer->halves, part * sizeof *writer->halves, err);
        if (code) return code;
        values += part;
        count -= part;
    }
    return ZR_OK;
}

static void writer_free(struct zr_safetensors_writer *writer)
{
    if (writer->fd >= 0) close(writer->fd);
    free(writer->name);
    free(writer);
}

enum zr_code zr_safetensors_finish(struct zr_safetensors_writer *writer, struct zr_error *err)
{
    assert(writer->left == 0);
    enum zr_code code = ZR_OK;
    if (fdatasync(writer->fd) != 0)
        code = zr_fail(err, ZR_EIO, "%s: cannot be synced: %s", writer->name, strerror(errno));
    if (code)
        zr_safetensors_abandon(writer);
    else
        writer_free(writer);
    return code;
}

void zr_safetensors_abandon(struct zr_safetensors_writer *writer)
{
    if (!writer) return;
    if (writer->fd >= 0) unlinkat(writer->directory_fd, writer->name, 0);
    writer_free(writer);
}
