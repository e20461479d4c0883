/* screen.h: progress on standard error: two lines that are drawn anew on a terminal, one plain line now and then elsewhere */
#ifndef ZEROCTL_SCREEN_H
#define ZEROCTL_SCREEN_H

#include "clients/zeroctl/verb.h"

struct progress {
    uint64_t step, max_steps;
    double loss, tokens_per_second, seconds_left, learning_rate, grad_norm, step_seconds;
    char bound_by[16];
    uint64_t tier_used[3], tier_budget[3];
};

struct screen {
    bool quiet, terminal, colour, utf8;
    int lines;         /* of the last drawing, to be drawn over */
    double last_drawn; /* seconds_now() */
};

void screen_open(struct screen *screen, const struct call *call);

/* Draws where it is time to: at most 10 times a second on a terminal, each 10 seconds elsewhere. `last`: in any case. */
void screen_show(struct screen *screen, const struct progress *progress, bool last);

/* Whatever is printed next begins on a line of its own. */
void screen_close(struct screen *screen);

#endif
