/* train.c: fine-tunes on the bytes of a file, in fewer than sixty lines
 *
 *     cc train.c $(pkg-config --cflags --libs zeroclient) -o train
 *     zerod --config config/examples/quickstart.yaml &
 *     ./train FILE STEPS OUT */
#include <stdio.h>
#include <stdlib.h>
#include <zeroclient.h>

static int give_up(void)
{
    fprintf(stderr, "train: %s\n", zc_error_text());
    return 1;
}

/* Rows of consecutive bytes; past the end of the file it begins anew. */
static void fill(struct zc_batch *batch, FILE *file)
{
    for (uint32_t i = 0; i < batch->rows * batch->row_tokens; i++) {
        int byte = fgetc(file);
        if (byte == EOF) {
            rewind(file);
            byte = fgetc(file);
        }
        batch->tokens[i] = byte;
    }
}

int main(int argc, char **argv)
{
    FILE *file = argc == 4 ? fopen(argv[1], "rb") : NULL;
    if (!file || fgetc(file) == EOF) {
        fprintf(stderr, "usage: train FILE STEPS OUT\n");
        return 2;
    }
    struct zc_client *client;
    struct zc_job *job;
    struct zc_job_facts facts = { .size = sizeof facts };
    if (zc_connect(NULL, &client) || zc_job_open(client, NULL, &job) || zc_job_facts(job, &facts)) return give_up();

    struct zc_batch batch = { .size = sizeof batch, .rows = facts.rows_per_step, .row_tokens = facts.sequence_length };
    if (zc_batch_take(client, &batch)) return give_up();
    for (int step = 0; step < atoi(argv[2]); step++) {
        struct zc_result result = { .size = sizeof result };
        fill(&batch, file); /* without labels of its own, a batch learns to predict its next token */
        if (zc_step(job, ZC_TRAIN, &batch, &result)) return give_up();
        printf("step %llu  loss %.4f\n", (unsigned long long)result.step, result.loss);
    }
    if (zc_job_save(job, argv[3], 0)) return give_up();
    zc_close(client);
    fclose(file);
    return 0;
}
