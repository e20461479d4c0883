/* ends.c: the embedding in front; final norm, head and chunked cross-entropy at the back
 *
 * The head runs forward and backward together, a chunk of rows at a time: logits, loss and their gradient share one
 * buffer of `loss_chunk` rows, so memory does not grow with the vocabulary times the tokens. */
#include "engine/base/span.h"
#include "engine/block/block.h"
#include "engine/device/launch.h"
#include <assert.h>

/* Rows of logits start at multiples of 16 elements: aligned rows whatever the vocabulary. */
static uint64_t logits_stride(const struct zr_dims *dims)
{
    return zr_round_up(dims->vocabulary, 16);
}

static const void *element(const void *base, uint64_t offset, enum zr_dtype dtype)
{
    return offset == ZR_ABSENT || !base ? NULL : (const char *)base + offset * zr_dtype_bytes(dtype);
}

void zr_embedding_pass(struct zr_stream *stream, const struct zr_ends_args *args)
{
    const struct zr_ends_offsets *at = &args->model->ends;
    zr_embedding_forward(stream, &(struct zr_op_embedding_forward){
                                     .out = args->output,
                                     .table = element(args->embedding, at->table, args->dtype),
                                     .position_table = element(args->embedding, at->position_table, args->dtype),
                                     .tokens = args->micro.ids,
                                     .positions = args->micro.positions,
                                     .rows = args->micro.tokens,
                                     .width = args->model->dims.hidden,
                                     .dtype = args->dtype });
}

void zr_embedding_pass_backward(struct zr_stream *stream, const struct zr_ends_args *args)
{
    const struct zr_ends_offsets *at = &args->model->ends;
    zr_embedding_backward(
        stream,
        &(struct zr_op_embedding_backward){
            .dtable = args->embedding_gradients + at->table,
            .dposition_table = at->position_table == ZR_ABSENT ? NULL : args->embedding_gradients + at->position_table,
            .dy = args->dx,
            .tokens = args->micro.ids,
            .positions = args->micro.positions,
            .rows = args->micro.tokens,
            .width = args->model->dims.hidden,
            .dtype = args->dtype });
}

struct head {
    struct zr_stream *stream;
    const struct zr_ends_args *args;
    const struct zr_dims *dims;
    const void *matrix;
    float *d_matrix;
    char *work;
    uint64_t row_bytes; /* of hidden states */
};

static struct head begin(struct zr_stream *stream, const struct zr_ends_args *args)
{
    const struct zr_ends_offsets *at = &args->model->ends;
    const struct zr_dims *dims = &args->model->dims;
    struct head head = { .stream = stream,
                         .args = args,
                         .dims = dims,
                         .matrix = dims->tied ? element(args->embedding, at->table, args->dtype)
                                              : element(args->head, at->head, args->dtype),
                         .work = args->work,
                         .row_bytes = (uint64_t)dims->hidden * zr_dtype_bytes(args->dtype) };
    if (dims->tied && args->embedding_gradients) head.d_matrix = args->embedding_gradients + at->table;
    if (!dims->tied && args->head_gradients) head.d_matrix = args->head_gradients + at->head;
    assert(head.matrix);
    return head;
}

static void final_norm(const struct head *head)
{
    const struct zr_ends_args *args = head->args;
    const struct zr_ends_offsets *at = &args->model->ends;
    if (head->dims->layernorm)
        zr_layernorm_forward(head->stream, &(struct zr_op_layernorm_forward){
                                               .out = head->work + args->layout->normed,
                                               .x = args->input,
                                               .weight = element(args->head, at->final_norm, args->dtype),
                                               .bias = element(args->head, at->final_norm_bias, args->dtype),
                                               .mean = (float *)(void *)(head->work + args->layout->mean),
                                               .rstd = (float *)(void *)(head->work + args->layout->rstd),
                                               .rows = args->micro.tokens,
                                               .width = head->dims->hidden,
                                               .eps = (float)head->dims->norm_eps,
                                               .dtype = args->dtype });
    else
        zr_rmsnorm_forward(head->stream,
                           &(struct zr_op_rmsnorm_forward){ .out = head->work + args->layout->normed,
                                                            .x = args->input,
                                                            .weight = element(args->head, at->final_norm, args->dtype),
                                                            .rstd = (float *)(void *)(head->work + args->layout->rstd),
                                                            .rows = args->micro.tokens,
                                                            .groups = 1,
                                                            .width = head->dims->hidden,
                                                            .stride_x = head->dims->hidden,
                                                            .stride_out = head->dims->hidden,
                                                            .eps = (float)head->dims->norm_eps,
                                                            .dtype = args->dtype });
}

/* Rows [first, first + rows): dx and the norm's own gradients from d_normed, which holds just these rows. */
static void final_norm_backward(const struct head *head, uint64_t first, uint64_t rows)
{
    const struct zr_ends_args *args = head->args;
    const struct zr_ends_offsets *at = &args->model->ends;
    void *dx = (char *)args->dx + first * head->row_bytes;
    const void *x = (const char *)args->input + first * head->row_bytes;
    const float *rstd = (const float *)(void *)(head->work + args->layout->rstd) + first;
    float *scratch = (float *)(void *)(head->work + args->layout->scratch);
    if (head->dims->layernorm)
        zr_layernorm_backward(head->stream,
                              &(struct zr_op_layernorm_backward){
                                  .dx = dx,
                                  .dweight = args->head_gradients + at->final_norm,
                                  .dbias = args->head_gradients + at->final_norm_bias,
                                  .dy = head->work + args->layout->d_normed,
                                  .x = x,
                                  .weight = element(args->head, at->final_norm, args->dtype),
                                  .mean = (const float *)(void *)(head->work + args->layout->mean) + first,
                                  .rstd = rstd,
                                  .scratch = scratch,
                                  .rows = rows,
                                  .width = head->dims->hidden,
                                  .dtype = args->dtype });
    else
        zr_rmsnorm_backward(
            head->stream, &(struct zr_op_rmsnorm_backward){ .dx = dx,
                                                            .dweight = args->head_gradients + at->final_norm,
                                                            .dy = head->work + args->layout->d_normed,
                                                            .x = x,
                                                            .weight = element(args->head, at->final_norm, args->dtype),
                                                            .rstd = rstd,
                                                            .scratch = scratch,
                                                            .rows = rows,
                                                            .groups = 1,
                                                            .width = head->dims->hidden,
                                                            .stride_dx = head->dims->hidden,
                                                            .stride_dy = head->dims->hidden,
                                                            .stride_x = head->dims->hidden,
                                                            .dtype = args->dtype });
}

/* logits (rows,V) = normed rows (rows,H) W' */
static void logits_of(const struct head *head, const void *rows_at, uint64_t rows)
{
    const uint64_t hidden = head->dims->hidden;
    zr_gemm(head->stream, &(struct zr_op_gemm){ .out = head->work + head->args->layout->logits,
                                                .a = rows_at,
                                                .b = head->matrix,
                                                .m = rows,
                                                .n = head->dims->vocabulary,
                                                .k = hidden,
                                                .stride_a = hidden,
                                                .stride_b = hidden,
                                                .stride_out = logits_stride(head->dims),
                                                .transpose_b = true,
                                                .dtype = head->args->dtype });
}

static void chunk_pass(const struct head *head, uint64_t first, uint64_t rows, bool train)
{
    const struct zr_ends_args *args = head->args;
    const uint64_t hidden = head->dims->hidden, vocabulary = head->dims->vocabulary;
    const char *normed = head->work + args->layout->normed + first * head->row_bytes;
    void *logits = head->work + args->layout->logits;

    logits_of(head, normed, rows);
    zr_cross_entropy(head->stream,
                     &(struct zr_op_cross_entropy){ .logits = logits,
                                                    .targets = args->micro.targets + first,
                                                    .loss = (float *)(void *)(head->work + args->layout->loss) + first,
                                                    .rows = rows,
                                                    .vocabulary = vocabulary,
                                                    .stride = logits_stride(head->dims),
                                                    .scale = 1,
                                                    .gradient = train,
                                                    .dtype = args->dtype });
    if (!train) return;
    zr_gemm(head->stream, &(struct zr_op_gemm){ .out = head->d_matrix,
                                                .a = logits,
                                                .b = normed,
                                                .m = vocabulary,
                                                .n = hidden,
                                                .k = rows,
                                                .stride_a = logits_stride(head->dims),
                                                .stride_b = hidden,
                                                .stride_out = hidden,
                                                .transpose_a = true,
                                                .accumulate = true,
                                                .dtype = args->dtype });
    zr_gemm(head->stream, &(struct zr_op_gemm){ .out = head->work + args->layout->d_normed,
                                                .a = logits,
                                                .b = head->matrix,
                                                .m = rows,
                                                .n = hidden,
                                                .k = vocabulary,
                                                .stride_a = logits_stride(head->dims),
                                                .stride_b = hidden,
                                                .stride_out = hidden,
                                                .dtype = args->dtype });
    final_norm_backward(head, first, rows);
}

void zr_head_pass(struct zr_stream *stream, const struct zr_ends_args *args, bool train)
{
    struct head head = begin(stream, args);
    final_norm(&head);
    for (uint64_t first = 0; first < args->micro.tokens; first += args->loss_chunk)
        chunk_pass(&head, first, zr_min_u64(args->loss_chunk, args->micro.tokens - first), train);
    zr_sum(stream, &(struct zr_op_sum){ .out = args->loss_sum,
                                        .x = (const float *)(void *)(head.work + args->layout->loss),
                                        .count = args->micro.tokens });
}

void zr_head_logits(struct zr_stream *stream, const struct zr_ends_args *args, const int32_t *picked, uint32_t count,
                    float *logits)
{
    struct head head = begin(stream, args);
    const uint64_t vocabulary = head.dims->vocabulary;
    final_norm(&head);
    for (uint64_t first = 0; first < count; first += args->loss_chunk) {
        uint64_t rows = zr_min_u64(args->loss_chunk, count - first);
        zr_gather_rows(stream, &(struct zr_op_gather_rows){ .out = head.work + args->layout->d_normed,
                                                            .x = head.work + args->layout->normed,
                                                            .index = picked + first,
                                                            .rows = rows,
                                                            .width = head.dims->hidden,
                                                            .dtype = args->dtype });
        logits_of(&head, head.work + args->layout->d_normed, rows);
        for (uint64_t row = 0; row < rows; row++)
            zr_stream_copy(stream, logits + (first + row) * vocabulary,
                           head.work + args->layout->logits + row * logits_stride(head.dims) * sizeof(float),
                           vocabulary * sizeof(float));
    }
}
