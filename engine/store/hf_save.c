/* hf_save.c: writing a Hugging Face directory
 *
 * Every file is written under a temporary name and synced; when all are whole they are renamed, the index and config last,
 * and the directory is synced. A reader sees the old model or the new one. */
#include "engine/base/span.h"
#include "engine/store/hf_dir.h"
#include "engine/store/hf_files.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (256u * 1024) /* values */
#define SHARD_BYTES 5000000000u
#define TEMPORARY ".zerod-new"

struct saver {
    int directory_fd;
    const char *folder;
    const struct zr_hf_save *save;
    uint32_t *shard_of; /* per tensor */
    uint32_t shard_count;
    uint64_t total_bytes;
    float *piece;
};

static void shard_name(const struct saver *saver, uint32_t shard, char out[64])
{
    if (saver->shard_count == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05u-of-%05u.safetensors", shard + 1, saver->shard_count);
}

static void cut_shards(struct saver *saver)
{
    const struct zr_model *model = saver->save->model;
    const uint64_t size = saver->save->dtype == ZR_FILE_F32 ? 4 : 2;
    const uint64_t most = saver->save->shard_bytes ? saver->save->shard_bytes : SHARD_BYTES;
    uint64_t bytes = 0;
    uint32_t shard = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        uint64_t tensor = model->tensors[i].count * size;
        if (bytes > 0 && bytes + tensor > most) {
            shard++;
            bytes = 0;
        }
        bytes += tensor;
        saver->total_bytes += tensor;
        saver->shard_of[i] = shard;
    }
    saver->shard_count = shard + 1;
}

static enum zr_code write_values(struct saver *saver, struct zr_safetensors_writer *writer, uint32_t shard,
                                 struct zr_error *err)
{
    const struct zr_model *model = saver->save->model;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct zr_tensor *tensor = &model->tensors[i];
        if (saver->shard_of[i] != shard) continue;
        for (uint64_t first = 0; first < tensor->count; first += PIECE) {
            uint64_t count = zr_min_u64(PIECE, tensor->count - first);
            enum zr_code code = saver->save->source(saver->save->context, tensor->unit, tensor->offset + first,
                                                    saver->piece, count, err);
            if (!code) code = zr_safetensors_put_f32(writer, saver->piece, count, err);
            if (code) return code;
        }
    }
    return ZR_OK;
}

static enum zr_code write_shard(struct saver *saver, uint32_t shard, struct zr_error *err)
{
    const struct zr_model *model = saver->save->model;
    struct zr_write_tensor *table = calloc(model->tensor_count, sizeof *table);
    if (!table) return zr_fail(err, ZR_EFULL, "no memory to save");
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->tensor_count; i++)
        if (saver->shard_of[i] == shard)
            table[count++] =
                (struct zr_write_tensor){ .name = model->tensors[i].name,
                                          .shape = { model->tensors[i].shape[0], model->tensors[i].shape[1] } };
    char name[64], temporary[96];
    shard_name(saver, shard, name);
    snprintf(temporary, sizeof temporary, "%s" TEMPORARY, name);
    struct zr_safetensors_writer *writer = NULL;
    enum zr_code code =
        zr_safetensors_create(saver->directory_fd, temporary, table, count, saver->save->dtype, &writer, err);
    free(table);
    if (code) return code;
    if ((code = write_values(saver, writer, shard, err))) {
        zr_safetensors_abandon(writer);
        return code;
    }
    return zr_safetensors_finish(writer, err);
}

static enum zr_code write_text(struct saver *saver, const char *name, char *text, struct zr_error *err)
{
    char temporary[96];
    snprintf(temporary, sizeof temporary, "%s" TEMPORARY, name);
    int fd = openat(saver->directory_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    enum zr_code code = fd < 0 ? zr_fail(err, errno == EACCES ? ZR_EACCESS : ZR_EIO, "%s", strerror(errno)) : ZR_OK;
    size_t length = strlen(text), done = 0;
    while (!code && done < length) {
        ssize_t part = write(fd, text + done, length - done);
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) code = zr_fail(err, errno == ENOSPC ? ZR_EFULL : ZR_EIO, "%s", strerror(errno));
        if (part > 0) done += (size_t)part;
    }
    if (!code && fdatasync(fd) != 0) code = zr_fail(err, ZR_EIO, "cannot be synced: %s", strerror(errno));
    if (fd >= 0) close(fd);
    free(text);
    return code ? zr_fail_in(err, code, "%s/%s", saver->folder, name) : ZR_OK;
}

static char *index_text(const struct saver *saver)
{
    const struct zr_model *model = saver->save->model;
    json_t *map = json_object();
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        char name[64];
        shard_name(saver, saver->shard_of[i], name);
        json_object_set_new(map, model->tensors[i].name, json_string(name));
    }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)saver->total_bytes, "weight_map", map);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    if (!text) abort();
    return text;
}

static char *generation_text(const struct zr_dims *dims)
{
    json_t *root = json_object();
    json_object_set_new(root, "bos_token_id", dims->bos < 0 ? json_null() : json_integer(dims->bos));
    json_object_set_new(root, "eos_token_id", dims->eos < 0 ? json_null() : json_integer(dims->eos));
    char *text = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (!text) abort();
    return text;
}

static enum zr_code commit(struct saver *saver, const char *name, struct zr_error *err)
{
    char temporary[96];
    snprintf(temporary, sizeof temporary, "%s" TEMPORARY, name);
    if (renameat(saver->directory_fd, temporary, saver->directory_fd, name) != 0)
        return zr_fail(err, ZR_EIO, "%s/%s: cannot be put in place: %s", saver->folder, name, strerror(errno));
    return ZR_OK;
}

/* Readers look for the one file first, then for an index: the other form of an older save would hide this one. */
static enum zr_code remove_other_form(const struct saver *saver, struct zr_error *err)
{
    const char *other = saver->shard_count > 1 ? "model.safetensors" : "model.safetensors.index.json";
    if (unlinkat(saver->directory_fd, other, 0) != 0 && errno != ENOENT)
        return zr_fail(err, ZR_EIO, "%s/%s: cannot be removed: %s", saver->folder, other, strerror(errno));
    return ZR_OK;
}

static const char *const texts[] = { "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                     "model.safetensors.index.json", "config.json" };

static char *text_of(const struct saver *saver, unsigned which)
{
    static const char *const dtype_names[] = { "float32", "float16", "bfloat16" };
    const struct zr_dims *dims = &saver->save->model->dims;
    switch (which) {
    case 0:
        return generation_text(dims);
    case 1:
        return saver->save->byte_tokenizer ? zr_byte_tokenizer() : NULL;
    case 2:
        return saver->save->byte_tokenizer ? zr_byte_tokenizer_config() : NULL;
    case 3:
        return saver->shard_count > 1 ? index_text(saver) : NULL;
    default:
        return zr_dims_write(dims, dtype_names[saver->save->dtype]);
    }
}

static enum zr_code write_all(struct saver *saver, struct zr_error *err)
{
    bool there[ZR_COUNT(texts)] = { false };
    char name[64];
    enum zr_code code = ZR_OK;
    for (uint32_t shard = 0; shard < saver->shard_count && !code; shard++)
        code = write_shard(saver, shard, err);
    for (unsigned i = 0; i < ZR_COUNT(texts) && !code; i++) {
        char *text = text_of(saver, i);
        there[i] = text != NULL;
        if (text) code = write_text(saver, texts[i], text, err);
    }
    for (uint32_t shard = 0; shard < saver->shard_count && !code; shard++) {
        shard_name(saver, shard, name);
        code = commit(saver, name, err);
    }
    for (unsigned i = 0; i < ZR_COUNT(texts) && !code; i++)
        if (there[i]) code = commit(saver, texts[i], err);
    if (!code) code = remove_other_form(saver, err);
    if (!code && fsync(saver->directory_fd) != 0)
        code = zr_fail(err, ZR_EIO, "%s: cannot be synced: %s", saver->folder, strerror(errno));
    return code;
}

/* Temporary files of a save that failed. */
static void clean_up(const struct saver *saver)
{
    char name[64], temporary[96];
    for (uint32_t shard = 0; shard < saver->shard_count; shard++) {
        shard_name(saver, shard, name);
        snprintf(temporary, sizeof temporary, "%s" TEMPORARY, name);
        unlinkat(saver->directory_fd, temporary, 0);
    }
    for (unsigned i = 0; i < ZR_COUNT(texts); i++) {
        snprintf(temporary, sizeof temporary, "%s" TEMPORARY, texts[i]);
        unlinkat(saver->directory_fd, temporary, 0);
    }
}

enum zr_code zr_hf_save(int directory_fd, const char *name, const struct zr_hf_save *save, struct zr_error *err)
{
    struct saver saver = { .directory_fd = directory_fd, .folder = name, .save = save };
    saver.shard_of = calloc(save->model->tensor_count, sizeof *saver.shard_of);
    saver.piece = malloc(PIECE * sizeof *saver.piece);
    enum zr_code code = saver.shard_of && saver.piece ? ZR_OK : zr_fail(err, ZR_EFULL, "no memory to save");
    if (!code) {
        cut_shards(&saver);
        code = write_all(&saver, err);
        if (code) clean_up(&saver);
    }
    free(saver.shard_of);
    free(saver.piece);
    return code;
}
