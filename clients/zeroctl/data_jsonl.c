/* data_jsonl.c: examples of tokens, one a line, packed into rows
 *
 * Rows are filled with the examples of an epoch in its drawn order, each row until the next example does not fit (next-fit).
 * Which example begins a row is worked out once per epoch; lines are parsed when their row is asked for. */
#include "clients/zeroctl/data_inside.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- one line ------------------------------------------------------------------------------------------------------ */

static uint64_t line_number(const struct data *data, const struct example *example)
{
    uint64_t number = 1;
    const unsigned char *at = data->bytes, *end = data->bytes + example->offset;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
        number++;
        at++;
    }
    return number;
}

static int bad_line(struct call *call, const struct data *data, const struct example *example, const char *what)
{
    return call_fail(call, EXIT_FAILED, "%s:%" PRIu64 ": %s", data->setup.path, line_number(data, example), what);
}

struct parsed {
    json_t *line, *ids, *labels, *mask;
};

static int parse(struct call *call, const struct data *data, const struct example *example, struct parsed *parsed)
{
    json_error_t error;
    parsed->line =
        json_loadb((const char *)data->bytes + example->offset, example->bytes, JSON_REJECT_DUPLICATES, &error);
    if (!parsed->line) return bad_line(call, data, example, error.text);
    parsed->ids = json_object_get(parsed->line, "input_ids");
    parsed->labels = json_object_get(parsed->line, "labels");
    parsed->mask = json_object_get(parsed->line, "attention_mask");
    const char *what = NULL;
    if (!json_is_array(parsed->ids))
        what = "input_ids is missing, or is no list: each line is {\"input_ids\": [1, 2, ...]}";
    else if (parsed->labels && json_array_size(parsed->labels) != json_array_size(parsed->ids))
        what = "labels and input_ids differ in length";
    else if (parsed->mask && json_array_size(parsed->mask) != json_array_size(parsed->ids))
        what = "attention_mask and input_ids differ in length";
    return what ? bad_line(call, data, example, what) : EXIT_DONE;
}

static bool counts(const struct parsed *parsed, size_t index)
{
    return !parsed->mask || json_integer_value(json_array_get(parsed->mask, index)) != 0;
}

static int read_id(struct call *call, const struct data *data, const struct example *example, const json_t *array,
                   size_t index, bool label, int32_t *ret_id)
{
    const json_t *value = json_array_get(array, index);
    const json_int_t id = json_integer_value(value), vocabulary = (json_int_t)data->setup.vocabulary;
    char text[160];
    *ret_id = (int32_t)id;
    if (json_is_integer(value) && ((id >= 0 && id < vocabulary) || (label && id == ZC_LABEL_IGNORED))) return EXIT_DONE;
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%s[%zu] is %lld, and the model's vocabulary has %lld",
                 label ? "labels" : "input_ids", index, (long long)id, (long long)vocabulary);
    else
        snprintf(text, sizeof text, "%s[%zu] is not a whole number", label ? "labels" : "input_ids", index);
    return bad_line(call, data, example, text);
}

/* Writes the example's tokens that count, at most `room`. */
static int write_example(struct call *call, const struct data *data, const struct example *example, int32_t *tokens,
                         int32_t *labels, uint32_t room)
{
    struct parsed parsed = { 0 };
    int code = parse(call, data, example, &parsed);
    uint32_t at = 0;
    for (size_t i = 0; code == EXIT_DONE && at < room && i < json_array_size(parsed.ids); i++) {
        if (!counts(&parsed, i)) continue;
        code = read_id(call, data, example, parsed.ids, i, false, tokens + at);
        labels[at] = tokens[at];
        if (code == EXIT_DONE && parsed.labels)
            code = read_id(call, data, example, parsed.labels, i, true, labels + at);
        at++;
    }
    json_decref(parsed.line);
    return code;
}

/* -- the index ----------------------------------------------------------------------------------------------------- */

static int add_example(struct call *call, struct data *data, uint64_t *room, uint64_t offset, uint64_t bytes)
{
    struct example example = { .offset = offset, .bytes = (uint32_t)bytes };
    if (bytes > UINT32_MAX) return bad_line(call, data, &example, "the line is longer than 4 GiB");
    struct parsed parsed = { 0 };
    int code = parse(call, data, &example, &parsed);
    for (size_t i = 0; code == EXIT_DONE && i < json_array_size(parsed.ids); i++)
        example.tokens += counts(&parsed, i);
    json_decref(parsed.line);
    if (code != EXIT_DONE) return code;
    if (example.tokens < 2) return EXIT_DONE; /* nothing follows anything */
    if (example.tokens > data->setup.row_tokens) {
        example.tokens = data->setup.row_tokens;
        data->cut_examples++;
    }
    if (data->example_count == *room) {
        *room = *room ? 2 * *room : 1024;
        struct example *more = realloc(data->examples, *room * sizeof *more);
        if (!more) return call_fail(call, EXIT_FAILED, "no memory for the index of %s", data->setup.path);
        data->examples = more;
    }
    data->examples[data->example_count++] = example;
    return EXIT_DONE;
}

static bool blank(const unsigned char *at, uint64_t bytes)
{
    for (; bytes > 0; at++, bytes--)
        if (*at != ' ' && *at != '\t' && *at != '\r') return false;
    return true;
}

static int index_lines(struct call *call, struct data *data)
{
    uint64_t room = 0;
    int code = EXIT_DONE;
    for (uint64_t offset = 0, bytes; code == EXIT_DONE && offset < data->byte_count; offset += bytes + 1) {
        const unsigned char *at = data->bytes + offset, *end = memchr(at, '\n', data->byte_count - offset);
        bytes = end ? (uint64_t)(end - at) : data->byte_count - offset;
        if (!blank(at, bytes)) code = add_example(call, data, &room, offset, bytes);
    }
    if (code != EXIT_DONE) return code;
    if (data->example_count == 0)
        return call_fail(call, EXIT_FAILED, "%s: no example of two tokens or more", data->setup.path);
    const uint64_t first = (uint64_t)floor((double)data->example_count * data->setup.begin);
    const uint64_t last =
        data->setup.end >= 1 ? data->example_count : (uint64_t)floor((double)data->example_count * data->setup.end);
    data->example_count = last - first;
    memmove(data->examples, data->examples + first, data->example_count * sizeof *data->examples);
    return data->example_count
               ? EXIT_DONE
               : call_fail(call, EXIT_FAILED, "%s: the part that counts has no example", data->setup.path);
}

/* -- rows ---------------------------------------------------------------------------------------------------------- */

static const struct example *example_of(const struct data *data, uint64_t index)
{
    if (data->setup.in_order) return data->examples + index;
    const uint64_t key = data_mix(data->setup.seed ^ data_mix(data->epoch));
    return data->examples + data_shuffle(key, index, data->example_count);
}

static void pack_epoch(struct data *data)
{
    uint64_t rows = 0;
    uint32_t used = data->setup.row_tokens;
    for (uint64_t i = 0; i < data->example_count; i++) {
        const uint32_t tokens = example_of(data, i)->tokens;
        if (used + tokens > data->setup.row_tokens) {
            data->row_begins[rows++] = i;
            used = 0;
        }
        used += tokens;
    }
    data->row_begins[rows] = data->example_count;
    data->epoch_rows = rows;
}

/* Epochs differ in their number of rows, so those before are worked out on the way. */
static void go_to(struct data *data, uint64_t number)
{
    if (number < data->epoch_first_row) {
        data->epoch = data->epoch_first_row = 0;
        pack_epoch(data);
    }
    while (!data->setup.in_order && number >= data->epoch_first_row + data->epoch_rows) {
        data->epoch_first_row += data->epoch_rows;
        data->epoch++;
        pack_epoch(data);
    }
}

int data_open_jsonl(struct call *call, struct data *data)
{
    data->kind = "examples";
    int code = index_lines(call, data);
    if (code != EXIT_DONE) return code;
    data->row_begins = calloc(data->example_count + 1, sizeof *data->row_begins);
    if (!data->row_begins) return call_fail(call, EXIT_FAILED, "no memory for the rows of %s", data->setup.path);
    pack_epoch(data);
    data->rows = data->epoch_rows;
    return EXIT_DONE;
}

void data_close_jsonl(struct data *data)
{
    free(data->examples);
    free(data->row_begins);
}

int data_fill_jsonl(struct call *call, struct data *data, uint64_t number, struct zc_batch *batch, uint32_t row)
{
    const uint32_t width = data->setup.row_tokens;
    int32_t *tokens = batch->tokens + (size_t)row * width, *labels = batch->labels + (size_t)row * width;
    uint32_t at = 0;
    batch->flags = ZC_BATCH_LABELS | ZC_BATCH_DOCUMENTS;
    if (row == 0) batch->document_count = 0;
    go_to(data, number);
    const uint64_t index = number - data->epoch_first_row;
    const bool past = index >= data->epoch_rows;
    for (uint64_t i = past ? 0 : data->row_begins[index]; !past && i < data->row_begins[index + 1]; i++) {
        const struct example *example = example_of(data, i);
        int code = write_example(call, data, example, tokens + at, labels + at, width - at);
        if (code != EXIT_DONE) return code;
        batch->document_starts[batch->document_count++] = row * width + at;
        at += example->tokens;
    }
    if (at < width) batch->document_starts[batch->document_count++] = row * width + at; /* padding attends to itself */
    for (; at < width; at++) {
        tokens[at] = 0;
        labels[at] = ZC_LABEL_IGNORED;
    }
    return EXIT_DONE;
}
