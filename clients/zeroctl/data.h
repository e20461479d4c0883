/* data.h: a file of training data as rows of tokens
 *
 *   text      every byte is a token; for models whose vocabulary is the bytes and a few more
 *   .bin      uint16 or uint32 tokens: raw as nanoGPT writes them, or with llm.c's header
 *   .jsonl    one example a line: {"input_ids": [...], "labels": [...], "attention_mask": [...]}, the last two optional
 *
 * Text and .bin are cut into windows of `row_tokens`, shifted anew each epoch; examples of a .jsonl are packed into rows, each
 * a document of its own. The order is drawn from the seed, and row n is the same whoever asks, in whatever order: a run that
 * is taken up again goes on with exactly the rows that were left. Nothing is held in memory but the index of a .jsonl (16
 * bytes an example): the file is mapped. */
#ifndef ZEROCTL_DATA_H
#define ZEROCTL_DATA_H

#include "clients/zeroctl/verb.h"
#include <stddef.h>

struct data;

struct data_setup {
    const char *path, *token_type; /* NULL: u16 */
    uint32_t row_tokens, vocabulary;
    uint64_t seed;
    double begin, end; /* the part that counts: 0 to 1 is all of it, 0.95 to 1 the last 5 % */
    bool in_order;     /* every token once, from begin to end: for evaluation */
};

/* EXIT_FAILED, EXIT_USAGE: the sentence names the file and what to do. */
int data_open(struct call *call, const struct data_setup *setup, struct data **ret_data);
void data_close(struct data *data); /* NULL is fine */

uint64_t data_rows(const struct data *data); /* of one epoch; of a .jsonl: of the first one */
const char *data_kind(const struct data *data);
bool data_is_text(const struct data *data);
uint32_t data_documents_max(const struct data *data); /* per row; 0: rows are not packed */
uint64_t data_cut_examples(const struct data *data);  /* longer than a row: their ends are left out */

/* Fills row `row` of `batch` with row number `number` of the data (any number: epochs follow one another). In order, rows
 * past the end have no labels that count. Rows of one batch are filled in order, from row 0. */
int data_fill(struct call *call, struct data *data, uint64_t number, struct zc_batch *batch, uint32_t row);

#endif
