/* feed.c: batches in turn: filled while the one before computes */
#include "clients/zeroctl/feed.h"
#include <time.h>

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int feed_open(struct feed *feed, struct call *call, struct session *session, struct data *data, enum zc_kind kind)
{
    const struct zc_job_facts *facts = &session->facts;
    *feed = (struct feed){ .session = session, .data = data, .kind = kind };
    for (int i = 0; i < FEED_AHEAD; i++) {
        struct zc_batch batch = { .size = sizeof batch,
                                  .rows = facts->rows_per_step,
                                  .row_tokens = facts->sequence_length,
                                  .document_max = 2 * facts->rows_per_step * data_documents_max(data) };
        if (batch.document_max > batch.rows * batch.row_tokens) batch.document_max = batch.rows * batch.row_tokens;
        int zc = zc_batch_take(session->client, &batch);
        if (zc) return call_fail_zc(call, zc, "room for batches");
        feed->batches[i] = batch;
    }
    return EXIT_DONE;
}

bool feed_has_room(const struct feed *feed)
{
    return feed->submitted - feed->received < FEED_AHEAD;
}

bool feed_is_empty(const struct feed *feed)
{
    return feed->submitted == feed->received;
}

int feed_submit(struct feed *feed, struct call *call, uint64_t first_row)
{
    struct zc_batch *batch = &feed->batches[feed->submitted % FEED_AHEAD];
    for (uint32_t row = 0; row < batch->rows; row++) {
        int code = data_fill(call, feed->data, first_row + row, batch, row);
        if (code != EXIT_DONE) return code;
    }
    int zc = zc_submit(feed->session->job, feed->kind, batch, &feed->tickets[feed->submitted % FEED_AHEAD]);
    if (zc) return call_fail_zc(call, zc, "");
    feed->submitted++;
    return EXIT_DONE;
}

int feed_receive(struct feed *feed, struct call *call, struct zc_result *result)
{
    *result = (struct zc_result){ .size = sizeof *result };
    int zc = zc_wait(feed->session->client, feed->tickets[feed->received % FEED_AHEAD], -1, result);
    if (zc) return call_fail_zc(call, zc, "");
    feed->received++;
    return EXIT_DONE;
}

void feed_close(struct feed *feed)
{
    for (int i = 0; feed->session && feed_is_empty(feed) && i < FEED_AHEAD; i++)
        if (feed->batches[i].tokens) zc_batch_give_back(feed->session->client, &feed->batches[i]);
    *feed = (struct feed){ 0 };
}

int evaluate(struct session *session, struct call *call, struct data *data, struct evaluation *ret_evaluation)
{
    struct feed feed;
    const uint64_t rows = data_rows(data), step = session->facts.rows_per_step;
    const double begin = seconds_now();
    double sum = 0;
    uint64_t tokens = 0, next = 0;
    int code = feed_open(&feed, call, session, data, ZC_EVAL);
    while (code == EXIT_DONE && (next < rows || !feed_is_empty(&feed))) {
        if (next < rows && feed_has_room(&feed)) {
            code = feed_submit(&feed, call, next);
            next += step;
            continue;
        }
        struct zc_result result;
        code = feed_receive(&feed, call, &result);
        if (code != EXIT_DONE || result.trained_tokens == 0) continue;
        sum += result.loss * (double)result.trained_tokens;
        tokens += result.trained_tokens;
    }
    feed_close(&feed);
    if (code == EXIT_DONE && tokens == 0) code = call_fail(call, EXIT_FAILED, "no label of the evaluation data counts");
    *ret_evaluation = (struct evaluation){ .loss = tokens ? sum / (double)tokens : 0,
                                           .tokens = tokens,
                                           .seconds = seconds_now() - begin };
    return code;
}
