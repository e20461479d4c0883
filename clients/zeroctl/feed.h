/* feed.h: rows of data as submissions, a few ahead of the daemon, results in order */
#ifndef ZEROCTL_FEED_H
#define ZEROCTL_FEED_H

#include "clients/zeroctl/data.h"
#include "clients/zeroctl/session.h"

enum { FEED_AHEAD = 2 }; /* one batch computes, the next one waits in the ring */

struct feed {
    struct session *session;
    struct data *data;
    enum zc_kind kind;
    struct zc_batch batches[FEED_AHEAD];
    uint64_t tickets[FEED_AHEAD];
    uint64_t submitted, received;
};

int feed_open(struct feed *feed, struct call *call, struct session *session, struct data *data, enum zc_kind kind);
bool feed_has_room(const struct feed *feed);
bool feed_is_empty(const struct feed *feed);

/* Submits the rows that begin with number `first_row`. The feed has room. */
int feed_submit(struct feed *feed, struct call *call, uint64_t first_row);

/* Waits for the oldest one's result. The feed is not empty. */
int feed_receive(struct feed *feed, struct call *call, struct zc_result *result);

void feed_close(struct feed *feed); /* a zeroed one is fine; what is under way is finished by the daemon */

/* Every row of data that was opened in order, forward only. */
struct evaluation {
    double loss; /* nats per token that counts */
    uint64_t tokens;
    double seconds;
};
int evaluate(struct session *session, struct call *call, struct data *data, struct evaluation *ret_evaluation);

double seconds_now(void); /* monotonic */

#endif
