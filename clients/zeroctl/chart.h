/* chart.h: a curve as SVG and as a few lines of text */
#ifndef ZEROCTL_CHART_H
#define ZEROCTL_CHART_H

#include "clients/zeroctl/verb.h"

struct curve {
    uint64_t *steps; /* from the heap, growing */
    float *values;   /* finite */
    size_t count, room;
};

bool curve_add(struct curve *curve, uint64_t step, double value); /* false: no memory. What is not finite is left out */
void curve_free(struct curve *curve);

/* Training loss and, where it has points, evaluation loss. */
int chart_write_svg(struct call *call, const char *path, const char *title, const struct curve *loss,
                    const struct curve *eval_loss);

/* Seven lines on `stream`, for terminals. */
void chart_print(const struct curve *loss, bool utf8, void *stream);

#endif
