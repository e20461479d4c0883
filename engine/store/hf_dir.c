/* hf_dir.c: loading a Hugging Face directory
 *
 * The model's tensors are looked up one by one, each in the shard that the index names (or in the only file), and streamed
 * through the sink in pieces of a megabyte. */
#include "engine/store/hf_dir.h"
#include "engine/base/span.h"
#include "engine/store/hf_files.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (256u * 1024) /* values */

enum zr_code zr_hf_slurp(int directory_fd, const char *folder, const char *name, uint64_t most, char **ret_text,
                         uint64_t *ret_bytes, struct zr_error *err)
{
    int fd = openat(directory_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0) return zr_fail(err, ZR_EINPUT, "%s/%s: %s", folder, name, strerror(errno));
    enum zr_code code = ZR_OK;
    char *text = NULL;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || (uint64_t)status.st_size > most)
        code = zr_fail(err, ZR_EINPUT, "%s/%s: not a regular file of at most %" PRIu64 " bytes", folder, name, most);
    else if (!(text = malloc((size_t)status.st_size + 1)))
        code = zr_fail(err, ZR_EFULL, "%s/%s: no memory", folder, name);
    uint64_t done = 0;
    while (!code && done < (uint64_t)status.st_size) {
        ssize_t got = read(fd, text + done, (size_t)status.st_size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) code = zr_fail(err, ZR_EIO, "%s/%s: %s", folder, name, got ? strerror(errno) : "ends early");
        if (got > 0) done += (uint64_t)got;
    }
    close(fd);
    if (code) {
        free(text);
        return code;
    }
    text[done] = '\0';
    *ret_text = text;
    *ret_bytes = done;
    return ZR_OK;
}

enum zr_code zr_hf_read_dims(int directory_fd, const char *name, struct zr_dims *ret_dims, struct zr_error *err)
{
    char *text, place[512];
    uint64_t bytes;
    enum zr_code code = zr_hf_slurp(directory_fd, name, "config.json", 1u << 20, &text, &bytes, err);
    if (code) return code;
    snprintf(place, sizeof place, "%s/config.json", name);
    code = zr_dims_read(place, text, bytes, ret_dims, err);
    free(text);
    return code;
}

bool zr_hf_has_weights(int directory_fd)
{
    return faccessat(directory_fd, "model.safetensors", F_OK, 0) == 0 ||
           faccessat(directory_fd, "model.safetensors.index.json", F_OK, 0) == 0;
}

/* -- shards -------------------------------------------------------------------------------------------------------- */

struct source {
    int directory_fd;
    const char *folder;
    struct zr_safetensors *files;
    uint32_t file_count;
};

static void source_close(struct source *source)
{
    for (uint32_t i = 0; i < source->file_count; i++)
        zr_safetensors_close(&source->files[i]);
    free(source->files);
}

static enum zr_code add_file(struct source *source, const char *name, struct zr_error *err)
{
    for (uint32_t i = 0; i < source->file_count; i++)
        if (strcmp(source->files[i].path, name) == 0) return ZR_OK;
    if (strchr(name, '/') || name[0] == '\0' || name[0] == '.')
        return zr_fail(err, ZR_EINPUT, "%s: the index names '%.100s', which is not a file of this directory",
                       source->folder, name);
    struct zr_safetensors *files = realloc(source->files, (source->file_count + 1) * sizeof *files);
    if (!files) return zr_fail(err, ZR_EFULL, "no memory for a table of files");
    source->files = files;
    enum zr_code code = zr_safetensors_open(source->directory_fd, name, &files[source->file_count], err);
    if (code) return zr_fail_in(err, code, "%s", source->folder);
    source->file_count++;
    return ZR_OK;
}

static enum zr_code open_index(struct source *source, struct zr_error *err)
{
    char *text;
    uint64_t bytes;
    enum zr_code code = zr_hf_slurp(source->directory_fd, source->folder, "model.safetensors.index.json", 64u << 20,
                                    &text, &bytes, err);
    if (code) return code;
    json_error_t at;
    json_t *index = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    free(text);
    json_t *map = json_object_get(index, "weight_map"), *value;
    const char *key;
    if (!index)
        code = zr_fail(err, ZR_EINPUT, "%s/model.safetensors.index.json:%d: %s", source->folder, at.line, at.text);
    else if (!json_is_object(map))
        code = zr_fail(err, ZR_EINPUT, "%s/model.safetensors.index.json: weight_map is missing", source->folder);
    json_object_foreach(map, key, value) if (!code)
    {
        const char *name = json_string_value(value);
        code = name ? add_file(source, name, err)
                    : zr_fail(err, ZR_EINPUT,
                              "%s/model.safetensors.index.json: weight_map.%.100s: a file's name is needed",
                              source->folder, key);
    }
    json_decref(index);
    return code;
}

static enum zr_code source_open(struct source *source, struct zr_error *err)
{
    if (faccessat(source->directory_fd, "model.safetensors", F_OK, 0) == 0)
        return add_file(source, "model.safetensors", err);
    return open_index(source, err);
}

/* -- tensors ------------------------------------------------------------------------------------------------------- */

static bool is_ignored(const char *name)
{
    static const char *const endings[] = { "rotary_emb.inv_freq", "attn.bias", "attn.masked_bias" };
    size_t length = strlen(name);
    for (unsigned i = 0; i < ZR_COUNT(endings); i++) {
        size_t ending = strlen(endings[i]);
        if (length >= ending && strcmp(name + length - ending, endings[i]) == 0) return true;
    }
    return false;
}

static bool is_head(const char *name)
{
    return strcmp(name, "lm_head.weight") == 0;
}

static enum zr_code check_shape(const struct source *source, const struct zr_safetensors *file,
                                const struct zr_file_tensor *found, const struct zr_tensor *tensor,
                                struct zr_error *err)
{
    uint32_t rank = tensor->shape[1] ? 2 : 1;
    bool same = found->rank == rank && found->shape[0] == tensor->shape[0] &&
                (rank == 1 || found->shape[1] == tensor->shape[1]);
    if (same && found->dtype != ZR_FILE_OTHER) return ZR_OK;
    if (same)
        return zr_fail(err, ZR_EINPUT, "%s/%s: tensor '%.200s' is %s; bf16, fp16 and fp32 can be loaded",
                       source->folder, file->path, found->name, found->dtype_name);
    char shape[ZR_COUNT(found->shape) * 22 + 1] = ""; /* ", " and 20 digits at most */
    int length = 0;
    for (uint32_t i = 0; i < found->rank; i++)
        length += snprintf(shape + length, sizeof shape - (size_t)length, "%s%" PRIu64, i ? ", " : "", found->shape[i]);
    char wanted[64];
    snprintf(wanted, sizeof wanted, rank == 2 ? "%" PRIu64 ", %" PRIu64 : "%" PRIu64, tensor->shape[0],
             tensor->shape[1]);
    return zr_fail(err, ZR_EINPUT, "%s/%s: tensor '%.200s' has shape (%s); config.json makes it (%s)", source->folder,
                   file->path, found->name, shape, wanted);
}

static enum zr_code load_tensor(const struct zr_safetensors *file, const struct zr_file_tensor *found,
                                const struct zr_tensor *tensor, float *piece, zr_weights_sink *sink, void *context,
                                struct zr_error *err)
{
    for (uint64_t first = 0; first < tensor->count; first += PIECE) {
        uint64_t count = zr_min_u64(PIECE, tensor->count - first);
        enum zr_code code = zr_safetensors_read_f32(file, found, first, count, piece, err);
        if (!code) code = sink(context, tensor->unit, tensor->offset + first, piece, count, err);
        if (code) return code;
    }
    return ZR_OK;
}

/* Both the table and a head of its own are there though the config ties them: fine when equal. */
static enum zr_code compare_tied(const struct source *source, const struct zr_safetensors *head_file,
                                 const struct zr_file_tensor *head, const struct zr_safetensors *table_file,
                                 const struct zr_file_tensor *table, float *piece, struct zr_text *warnings,
                                 struct zr_error *err)
{
    if (head->dtype != table->dtype || head->bytes != table->bytes || head->dtype == ZR_FILE_OTHER) {
        zr_text_add(warnings, "%s: '%s' and '%s' differ in form though tie_word_embeddings is true: '%s' is loaded\n",
                    source->folder, head->name, table->name, table->name);
        return ZR_OK;
    }
    uint64_t count = head->bytes / (head->dtype == ZR_FILE_F32 ? 4 : 2), half = PIECE / 2;
    for (uint64_t first = 0; first < count; first += half) {
        uint64_t part = zr_min_u64(half, count - first);
        enum zr_code code = zr_safetensors_read_f32(head_file, head, first, part, piece, err);
        if (!code) code = zr_safetensors_read_f32(table_file, table, first, part, piece + half, err);
        if (code) return code;
        if (memcmp(piece, piece + half, part * sizeof *piece) == 0) continue;
        zr_text_add(warnings, "%s: '%s' and '%s' differ though tie_word_embeddings is true: '%s' is loaded\n",
                    source->folder, head->name, table->name, table->name);
        return ZR_OK;
    }
    return ZR_OK;
}

struct place {
    const struct zr_safetensors *file;
    const struct zr_file_tensor *tensor;
};

static enum zr_code find_places(const struct source *source, const struct zr_model *model, struct place *places,
                                struct place *head, struct zr_text *warnings, struct zr_error *err)
{
    for (uint32_t f = 0; f < source->file_count; f++)
        for (uint32_t t = 0; t < source->files[f].tensor_count; t++) {
            const struct zr_file_tensor *found = &source->files[f].tensors[t];
            struct place place = { &source->files[f], found };
            int64_t index = zr_model_find(model, found->name);
            if (index >= 0) {
                if (places[index].tensor)
                    return zr_fail(err, ZR_EINPUT, "%s: tensor '%.200s' is in '%s' and in '%s'", source->folder,
                                   found->name, places[index].file->path, source->files[f].path);
                places[index] = place;
            } else if (is_head(found->name) && model->dims.tied) {
                *head = place;
            } else if (!is_ignored(found->name)) {
                zr_text_add(warnings, "%s/%s: the model has no tensor '%s'\n", source->folder, source->files[f].path,
                            found->name);
            }
        }
    return ZR_OK;
}

static enum zr_code load_places(const struct source *source, const struct zr_model *model, struct place *places,
                                struct place *head, zr_weights_sink *sink, void *context, struct zr_text *warnings,
                                struct zr_error *err)
{
    float *piece = malloc(PIECE * sizeof *piece);
    if (!piece) return zr_fail(err, ZR_EFULL, "no memory to load weights");
    enum zr_code code = ZR_OK;
    for (uint32_t i = 0; i < model->tensor_count && !code; i++) {
        const struct zr_tensor *tensor = &model->tensors[i];
        /* A tied model saved under the head's name alone. */
        if (i == 0 && !places[0].tensor && head->tensor) {
            places[0] = *head;
            head->tensor = NULL;
        }
        if (!places[i].tensor) {
            code = zr_fail(err, ZR_EINPUT, "%s: tensor '%s' is missing", source->folder, tensor->name);
            break;
        }
        code = check_shape(source, places[i].file, places[i].tensor, tensor, err);
        if (!code) code = load_tensor(places[i].file, places[i].tensor, tensor, piece, sink, context, err);
    }
    if (!code && head->tensor)
        code = compare_tied(source, head->file, head->tensor, places[0].file, places[0].tensor, piece, warnings, err);
    free(piece);
    return code;
}

enum zr_code zr_hf_load(int directory_fd, const char *name, const struct zr_model *model, zr_weights_sink *sink,
                        void *context, struct zr_text *warnings, struct zr_error *err)
{
    struct source source = { .directory_fd = directory_fd, .folder = name };
    struct place *places = calloc(model->tensor_count, sizeof *places), head = { 0 };
    enum zr_code code = places ? source_open(&source, err) : zr_fail(err, ZR_EFULL, "no memory to load weights");
    if (!code) code = find_places(&source, model, places, &head, warnings, err);
    if (!code) code = load_places(&source, model, places, &head, sink, context, warnings, err);
    source_close(&source);
    free(places);
    return code;
}
