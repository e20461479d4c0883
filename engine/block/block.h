/* block.h: forward and backward of a unit over one micro-batch, written once over the operations of kernels/ops.h
 *
 *   B1  A call queues operations on one compute stream and returns; it never waits and never fails (the stream's device
 *       keeps failures).
 *   B2  Activations lie in the work area as engine/model/cost.h lays it out. With `recompute` backward fills it again
 *       from the block's input; without, it is what forward left there.
 *   B3  Gradients of parameters are fp32 sums over tokens of the token losses: nothing is divided by a count here.
 *   B4  Backward may overwrite the work area, and turns `dx` from the gradient of the block's output into that of its
 *       input. */
#ifndef ZR_BLOCK_H
#define ZR_BLOCK_H

#include "engine/device/device.h"
#include "engine/model/cost.h"

/* The tokens of one micro-batch, on the device. */
struct zr_micro {
    uint32_t tokens, documents;
    const int32_t *ids, *targets, *positions; /* (tokens) */
    const int32_t *starts;                    /* (documents + 1) */
};

struct zr_block_args {
    const struct zr_model *model;
    const struct zr_block_work *layout;
    struct zr_micro micro;
    enum zr_dtype dtype; /* of weights at work and activations */
    uint32_t layer;      /* 0-based */
    const void *weights; /* flat, of the block's unit */
    float *gradients;    /* flat; backward only */
    const float *rope;   /* cos/sin table, or NULL */
    void *work;
    const void *input; /* (T,H) */
    void *output;      /* (T,H); forward only */
    void *dx;          /* (T,H); backward only */
};

void zr_block_forward(struct zr_stream *stream, const struct zr_block_args *args);
void zr_block_backward(struct zr_stream *stream, const struct zr_block_args *args, bool recompute);

struct zr_ends_args {
    const struct zr_model *model;
    const struct zr_head_work *layout;
    struct zr_micro micro;
    enum zr_dtype dtype;
    uint64_t loss_chunk; /* rows of logits at a time */
    const void *embedding,
        *head; /* flat weights of unit 0 and of the last unit; embedding may be NULL where not tied */
    float *embedding_gradients, *head_gradients; /* training only; the first only where tied, or for the embedding */
    void *work;
    const void *input; /* of the head */
    void *output;      /* of the embedding */
    void *dx;          /* head: written; embedding backward: read */
    double *loss_sum;  /* += the sum of token losses */
};

void zr_embedding_pass(struct zr_stream *stream, const struct zr_ends_args *args);
void zr_embedding_pass_backward(struct zr_stream *stream, const struct zr_ends_args *args);

/* Final norm, logits in chunks, loss; with `train` also dx and the gradients. The whole logits never exist. */
void zr_head_pass(struct zr_stream *stream, const struct zr_ends_args *args, bool train);

/* Logits of the rows `picked` (device, `count` indices into the micro-batch), copied to `logits` (count, V) on the host
 * in the stream's order. fp32. */
void zr_head_logits(struct zr_stream *stream, const struct zr_ends_args *args, const int32_t *picked, uint32_t count,
                    float *logits);

#endif
