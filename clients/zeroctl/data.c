/* data.c: finds out what a file holds; windows over text and tokens; the order of rows */
#include "clients/zeroctl/data_inside.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* llm.c's header: 256 int32, [0] magic, [1] version, [2] number of tokens */
enum { HEADER_BYTES = 1024, MAGIC_U16 = 20240520, VERSION_U16 = 1, MAGIC_U32 = 20240801, VERSION_U32 = 7 };
enum { BYTES_VOCABULARY_MAX = 512 };

/* -- order --------------------------------------------------------------------------------------------------------- */

/* splitmix64's finaliser: every bit of the result depends on every bit of the value. */
uint64_t data_mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

/* A permutation of [0, count) without a table: a Feistel network over the next power of four, walked until it is inside. */
uint64_t data_shuffle(uint64_t key, uint64_t index, uint64_t count)
{
    unsigned half = 1;
    while (count > (uint64_t)1 << (2 * half))
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (data_mix(key ^ data_mix(right + (round << 40))) & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}

/* -- windows ------------------------------------------------------------------------------------------------------- */

static int32_t token_at(const struct data *data, uint64_t index)
{
    const unsigned char *at = data->tokens + index * data->token_bytes;
    if (data->token_bytes == 1) return *at;
    if (data->token_bytes == 2) return at[0] | at[1] << 8;
    uint32_t wide = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    return wide > INT32_MAX ? INT32_MAX : (int32_t)wide;
}

static int bad_token(struct call *call, const struct data *data, uint64_t index)
{
    return call_fail(call, EXIT_FAILED,
                     "%s: token %" PRIu64 " is %" PRId32 ", and the model's vocabulary has %" PRIu32 "\n  hint: %s",
                     data->setup.path, index, token_at(data, index), data->setup.vocabulary,
                     data->token_bytes == 2 ? "if the file holds 32-bit tokens, say --token-type u32"
                                            : "make the file with this model's own tokenizer");
}

/* The window that begins at `first`: its tokens, and as targets what follows each. Past the end nothing counts. */
static int fill_window(struct call *call, const struct data *data, uint64_t first, int32_t *tokens, int32_t *labels)
{
    for (uint32_t i = 0; i < data->setup.row_tokens; i++) {
        const uint64_t index = first + i;
        tokens[i] = index < data->last ? token_at(data, index) : 0;
        labels[i] = index + 1 < data->last ? token_at(data, index + 1) : ZC_LABEL_IGNORED;
        if ((uint32_t)tokens[i] >= data->setup.vocabulary) return bad_token(call, data, index);
        if (labels[i] >= 0 && (uint32_t)labels[i] >= data->setup.vocabulary) return bad_token(call, data, index + 1);
    }
    return EXIT_DONE;
}

static int fill_from_windows(struct call *call, const struct data *data, uint64_t number, struct zc_batch *batch,
                             uint32_t row)
{
    const uint64_t width = data->setup.row_tokens;
    uint64_t first = data->first;
    if (data->setup.in_order) {
        first += number * width;
    } else {
        const uint64_t epoch = number / data->rows, key = data_mix(data->setup.seed ^ data_mix(epoch));
        first += key % width + width * data_shuffle(key, number % data->rows, data->rows);
    }
    batch->flags = ZC_BATCH_TARGETS;
    return fill_window(call, data, first, batch->tokens + row * width, batch->labels + row * width);
}

static int count_windows(struct call *call, struct data *data)
{
    const uint64_t width = data->setup.row_tokens, count = data->last - data->first;
    /* a window reads one token more than it is wide, and begins up to width - 1 tokens late */
    data->rows = data->setup.in_order ? (count < 2 ? 0 : (count - 2) / width + 1)
                                      : (count > width ? (count - width) / width : 0);
    if (data->rows > 0) return EXIT_DONE;
    return call_fail(
        call, EXIT_FAILED,
        "%s: %" PRIu64 " tokens%s are too few: %" PRIu64 " are needed for a row of sequence_length %" PRIu64,
        data->setup.path, count, data->setup.begin > 0 || data->setup.end < 1 ? " (of the part that counts)" : "",
        data->setup.in_order ? (uint64_t)2 : 2 * width, width);
}

/* -- what the file is ---------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static int map_file(struct call *call, struct data *data)
{
    const char *path = data->setup.path;
    struct stat stat;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return call_fail(call, EXIT_FAILED, "--data %s: %s", path, strerror(errno));
    int code = EXIT_DONE;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) {
        code = call_fail(call, EXIT_FAILED, "--data %s: not a file", path);
    } else if (stat.st_size == 0) {
        code = call_fail(call, EXIT_FAILED, "--data %s: the file is empty", path);
    } else {
        void *at = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED) {
            code = call_fail(call, EXIT_FAILED, "--data %s: cannot be mapped: %s", path, strerror(errno));
        } else {
            data->bytes = at;
            data->byte_count = (uint64_t)stat.st_size;
        }
    }
    close(fd);
    return code;
}

/* Whole files are needed: a share of `last` decides, so that nothing of the held-out end is ever read in training. */
static void choose_part(struct data *data, uint64_t count)
{
    data->first = (uint64_t)floor((double)count * data->setup.begin);
    data->last = data->setup.end >= 1 ? count : (uint64_t)floor((double)count * data->setup.end);
}

static int open_text(struct call *call, struct data *data)
{
    if (data->setup.vocabulary < 256 || data->setup.vocabulary > BYTES_VOCABULARY_MAX)
        return call_fail(call, EXIT_FAILED,
                         "%s: text is taken as bytes, and this model's vocabulary of %" PRIu32
                         " is not one of bytes\n  hint: give tokens as .bin or .jsonl",
                         data->setup.path, data->setup.vocabulary);
    data->kind = "text";
    data->tokens = data->bytes;
    data->token_bytes = 1;
    choose_part(data, data->byte_count);
    return count_windows(call, data);
}

static int open_bin(struct call *call, struct data *data)
{
    int32_t header[3] = { 0 };
    const char *type = data->setup.token_type;
    if (type && strcmp(type, "u16") != 0 && strcmp(type, "u32") != 0)
        return call_fail(call, EXIT_USAGE, "--token-type %s: u16 or u32", type);
    if (data->byte_count >= HEADER_BYTES) memcpy(header, data->bytes, sizeof header);
    bool headed16 = header[0] == MAGIC_U16 && header[1] == VERSION_U16;
    bool headed32 = header[0] == MAGIC_U32 && header[1] == VERSION_U32, headed = headed16 || headed32;
    if ((header[0] == MAGIC_U16 || header[0] == MAGIC_U32) && !headed)
        return call_fail(call, EXIT_FAILED, "%s: llm.c's header with version %" PRId32 ", which is not known",
                         data->setup.path, header[1]);
    data->kind = headed ? "tokens, llm.c's header" : "tokens";
    data->token_bytes = headed32 || (!headed && type && strcmp(type, "u32") == 0) ? 4 : 2;
    data->tokens = data->bytes + (headed ? HEADER_BYTES : 0);
    uint64_t rest = data->byte_count - (headed ? HEADER_BYTES : 0), count = rest / data->token_bytes;
    if (rest % data->token_bytes || (headed && (uint64_t)(uint32_t)header[2] != count))
        return call_fail(
            call, EXIT_FAILED, "%s: %" PRIu64 " bytes of tokens are not %s of %" PRIu32 " bytes: is it cut off?",
            data->setup.path, rest, headed ? "the number that the header gives" : "a whole number", data->token_bytes);
    choose_part(data, count);
    return count_windows(call, data);
}

int data_open(struct call *call, const struct data_setup *setup, struct data **ret_data)
{
    if (!setup->path) return call_fail(call, EXIT_USAGE, "--data FILE is needed");
    struct data *data = calloc(1, sizeof *data);
    if (!data) return call_fail(call, EXIT_FAILED, "no memory");
    data->setup = *setup;
    int code = map_file(call, data);
    if (code == EXIT_DONE)
        code = ends_with(setup->path, ".jsonl") ? data_open_jsonl(call, data)
               : ends_with(setup->path, ".bin") ? open_bin(call, data)
                                                : open_text(call, data);
    if (code == EXIT_DONE)
        *ret_data = data;
    else
        data_close(data);
    return code;
}

void data_close(struct data *data)
{
    if (!data) return;
    if (data->bytes) munmap((void *)data->bytes, data->byte_count);
    data_close_jsonl(data);
    free(data);
}

uint64_t data_rows(const struct data *data)
{
    return data->rows;
}

const char *data_kind(const struct data *data)
{
    return data->kind;
}

bool data_is_text(const struct data *data)
{
    return data->token_bytes == 1;
}

uint32_t data_documents_max(const struct data *data)
{
    return data->token_bytes ? 0 : data->setup.row_tokens;
}

uint64_t data_cut_examples(const struct data *data)
{
    return data->cut_examples;
}

int data_fill(struct call *call, struct data *data, uint64_t number, struct zc_batch *batch, uint32_t row)
{
    return data->token_bytes ? fill_from_windows(call, data, number, batch, row)
                             : data_fill_jsonl(call, data, number, batch, row);
}
