/* data_inside.h: what data.c and data_jsonl.c share */
#ifndef ZEROCTL_DATA_INSIDE_H
#define ZEROCTL_DATA_INSIDE_H

#include "clients/zeroctl/data.h"

struct example {
    uint64_t offset; /* of its line */
    uint32_t bytes, tokens;
};

struct data {
    struct data_setup setup;
    const char *kind;
    const unsigned char *bytes; /* the mapped file */
    uint64_t byte_count, rows, cut_examples;

    /* text and .bin */
    const unsigned char *tokens;
    uint32_t token_bytes; /* 0: .jsonl */
    uint64_t first, last; /* the tokens that count */

    /* .jsonl */
    struct example *examples;
    uint64_t example_count, epoch, epoch_first_row, epoch_rows;
    uint64_t
        *row_begins; /* of the epoch at hand: number, in its order, of the row's first example; one more at the end */
};

uint64_t data_mix(uint64_t value);
uint64_t data_shuffle(uint64_t key, uint64_t index, uint64_t count);

int data_open_jsonl(struct call *call, struct data *data);
void data_close_jsonl(struct data *data);
int data_fill_jsonl(struct call *call, struct data *data, uint64_t number, struct zc_batch *batch, uint32_t row);

#endif
