/* attention.c: softmax attention within documents, tile by tile, forward beside backward
 *
 * A tile is 64 queries by 64 keys, on the stack. Forward keeps a running maximum and sum per query (Milakov, Gimelshein
 * 2018; Dao et al. 2022) and never holds more than one tile of scores. Backward recomputes each tile from lse. Forward's
 * items are (document, head, 64 queries); backward's are (document, key head), which add up the gradients of keys and
 * values over the query heads of their group in order: no two items write one number. */
#include "kernels/cpu/kernel.h"
#include <assert.h>
#include <string.h>

#define TILE 64
#define WIDEST 256

/* Keys that query `t` sees: [first, last]. Positions are inside the document. */
static uint64_t first_key(uint64_t t, uint64_t window)
{
    return window && t + 1 > window ? t + 1 - window : 0;
}

static uint64_t last_key(uint64_t t, uint64_t length, bool causal)
{
    return causal ? t : length - 1;
}

/* The columns [low, high] of a tile that one of its queries sees; none where low > high. */
struct columns {
    int32_t low, high;
};

static inline struct columns columns_of(uint64_t first, uint64_t last, uint64_t k0)
{
    return (struct columns){ .low = first > k0 ? (int32_t)zr_min_u64(first - k0, TILE) : 0,
                             .high = last < k0 ? -1 : (int32_t)zr_min_u64(last - k0, TILE - 1) };
}

struct walk { /* what an item needs */
    const void *args;
};

/* -- forward ------------------------------------------------------------------------------------------------------- */

struct running {
    float most[TILE], sum[TILE];
    float out[TILE * WIDEST];
    float scores[TILE * TILE];
};

/* -inf where a row of scores is not to be seen, and the largest of the rest. Both loops run over whole tiles: columns beyond
 * the keys are beyond what anybody sees, and a fixed length is what the compiler makes vectors of. */
static inline float mask(float *restrict s, struct columns seen)
{
    float part[ZR_PARTS];
    for (int32_t j = 0; j < TILE; j++)
        s[j] = j < seen.low || j > seen.high ? -INFINITY : s[j];
    for (int j = 0; j < ZR_PARTS; j++)
        part[j] = s[j];
    for (int i = ZR_PARTS; i < TILE; i += ZR_PARTS)
        for (int j = 0; j < ZR_PARTS; j++)
            part[j] = s[i + j] > part[j] ? s[i + j] : part[j];
    float most = part[0];
    for (int j = 1; j < ZR_PARTS; j++)
        most = part[j] > most ? part[j] : most;
    return most;
}

/* A row of scores becomes exp(s - most); their sum. */
static inline float exponentials(float *restrict s, float most)
{
    float part[ZR_PARTS] = { 0 }, sum = 0;
    for (int j = 0; j < TILE; j++)
        s[j] = zr_exp(s[j] - most);
    for (int i = 0; i < TILE; i += ZR_PARTS)
        for (int j = 0; j < ZR_PARTS; j++)
            part[j] += s[i + j];
    for (int j = 0; j < ZR_PARTS; j++)
        sum += part[j];
    return sum;
}

/* One tile of keys [k0, k0 + keys) for queries [q0, q0 + queries). */
static void forward_tile(const struct zr_op_attention_forward *a, struct running *r, uint64_t q0, uint64_t queries,
                         uint64_t k0, uint64_t keys, uint64_t length, const float *q, const float *k, const float *v)
{
    const uint64_t d = a->head_dim;
    if (keys < TILE) memset(r->scores, 0, sizeof r->scores);
    zr_cpu_product(false, true, queries, keys, d, a->scale, q + q0 * a->stride_qkv, a->stride_qkv,
                   k + k0 * a->stride_qkv, a->stride_qkv, 0, r->scores, TILE);
    float most[TILE], shrink[TILE];
    for (uint64_t i = 0; i < queries; i++) {
        struct columns seen = columns_of(first_key(q0 + i, a->window), last_key(q0 + i, length, a->causal), k0);
        float here = mask(r->scores + i * TILE, seen);
        most[i] = r->most[i] > here ? r->most[i] : here; /* NaN stays NaN */
    }
    for (uint64_t i = 0; i < queries; i++)
        shrink[i] = zr_exp(r->most[i] - most[i]);
    for (uint64_t i = 0; i < queries; i++) {
        float *s = r->scores + i * TILE;
        if (most[i] == -INFINITY) { /* nothing seen yet */
            memset(s, 0, keys * sizeof *s);
            continue;
        }
        r->sum[i] = r->sum[i] * shrink[i] + exponentials(s, most[i]);
        r->most[i] = most[i];
        if (shrink[i] != 1)
            for (uint64_t c = 0; c < d; c++)
                r->out[i * d + c] *= shrink[i];
    }
    zr_cpu_product(false, false, queries, d, keys, 1, r->scores, TILE, v + k0 * a->stride_qkv, a->stride_qkv, 1, r->out,
                   d);
}

static void forward_block(const struct zr_op_attention_forward *a, uint64_t start, uint64_t length, uint64_t head,
                          uint64_t q0)
{
    struct running r;
    const uint64_t d = a->head_dim, queries = zr_min_u64(TILE, length - q0);
    const uint64_t kv = head / (a->heads / a->kv_heads);
    const float *q = (const float *)a->q + start * a->stride_qkv + head * d;
    const float *k = (const float *)a->k + start * a->stride_qkv + kv * d;
    const float *v = (const float *)a->v + start * a->stride_qkv + kv * d;
    for (uint64_t i = 0; i < queries; i++) {
        r.most[i] = -INFINITY;
        r.sum[i] = 0;
    }
    memset(r.out, 0, queries * d * sizeof *r.out);
    uint64_t end = last_key(q0 + queries - 1, length, a->causal) + 1;
    for (uint64_t k0 = first_key(q0, a->window) / TILE * TILE; k0 < end; k0 += TILE)
        forward_tile(a, &r, q0, queries, k0, zr_min_u64(TILE, end - k0), length, q, k, v);
    for (uint64_t i = 0; i < queries; i++) {
        uint64_t t = start + q0 + i;
        float *out = (float *)a->out + t * a->stride_out + head * d, inverse = 1 / r.sum[i];
        for (uint64_t c = 0; c < d; c++)
            out[c] = r.out[i * d + c] * inverse;
        a->lse[head * a->rows + t] = r.most[i] + logf(r.sum[i]);
    }
}

/* Items are numbered over all blocks of 64 queries of all documents, then heads. */
static void forward_item(void *context, uint32_t item, uint32_t worker)
{
    const struct walk *walk = context;
    const struct zr_op_attention_forward *a = walk->args;
    (void)worker;
    uint64_t head = item % a->heads, block = item / a->heads;
    for (uint64_t document = 0; document < a->documents; document++) {
        uint64_t start = (uint64_t)a->starts[document], length = (uint64_t)a->starts[document + 1] - start;
        uint64_t blocks = zr_divide_up(length, TILE);
        if (block < blocks) {
            forward_block(a, start, length, head, block * TILE);
            return;
        }
        block -= blocks;
    }
}

void ZR_KERNEL(attention_forward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_attention_forward *a = args;
    assert(a->dtype == ZR_F32 && a->head_dim <= WIDEST);
    struct walk walk = { .args = a };
    uint64_t blocks = 0;
    for (uint64_t document = 0; document < a->documents; document++)
        blocks += zr_divide_up((uint64_t)(a->starts[document + 1] - a->starts[document]), TILE);
    zr_pool_run(lane->pool, (uint32_t)(blocks * a->heads), forward_item, &walk);
}

/* -- backward ------------------------------------------------------------------------------------------------------ */

struct head_pointers {
    const float *q, *k, *v, *dout;
    float *dq, *dk, *dv;
    const float *lse, *delta;
};

static void backward_tile(const struct zr_op_attention_backward *a, const struct head_pointers *at, uint64_t q0,
                          uint64_t queries, uint64_t k0, uint64_t keys, uint64_t length)
{
    const uint64_t d = a->head_dim, stride = a->stride_qkv;
    float p[TILE * TILE], ds[TILE * TILE];
    if (keys < TILE) { /* the loops below run over whole tiles */
        memset(p, 0, sizeof p);
        memset(ds, 0, sizeof ds);
    }
    const float *dout = at->dout + q0 * a->stride_out;
    zr_cpu_product(false, true, queries, keys, d, a->scale, at->q + q0 * stride, stride, at->k + k0 * stride, stride, 0,
                   p, TILE);
    zr_cpu_product(false, true, queries, keys, d, 1, dout, a->stride_out, at->v + k0 * stride, stride, 0, ds, TILE);
    for (uint64_t i = 0; i < queries; i++) {
        float *pi = p + i * TILE, *dsi = ds + i * TILE;
        const float lse = at->lse[q0 + i], delta = at->delta[q0 + i];
        struct columns seen = columns_of(first_key(q0 + i, a->window), last_key(q0 + i, length, a->causal), k0);
        for (int32_t j = 0; j < TILE; j++) {
            float e = zr_exp(pi[j] - lse);
            pi[j] = j < seen.low || j > seen.high ? 0 : e;
        }
        for (int j = 0; j < TILE; j++)
            dsi[j] = pi[j] * (dsi[j] - delta) * a->scale;
    }
    zr_cpu_product(true, false, keys, d, queries, 1, p, TILE, dout, a->stride_out, 1, at->dv + k0 * stride, stride);
    zr_cpu_product(true, false, keys, d, queries, 1, ds, TILE, at->q + q0 * stride, stride, 1, at->dk + k0 * stride,
                   stride);
    zr_cpu_product(false, false, queries, d, keys, 1, ds, TILE, at->k + k0 * stride, stride, 1, at->dq + q0 * stride,
                   stride);
}

static void clear_rows(float *x, uint64_t rows, uint64_t width, uint64_t stride)
{
    for (uint64_t r = 0; r < rows; r++)
        memset(x + r * stride, 0, width * sizeof *x);
}

static void backward_head(const struct zr_op_attention_backward *a, uint64_t start, uint64_t length, uint64_t head,
                          uint64_t kv)
{
    const uint64_t d = a->head_dim, row = start * a->stride_qkv, out_row = start * a->stride_out;
    const float *out = (const float *)a->out + out_row + head * d, *dout = (const float *)a->dout + out_row + head * d;
    float *delta = a->scratch + head * a->rows + start;
    for (uint64_t t = 0; t < length; t++)
        delta[t] = (float)zr_dot(out + t * a->stride_out, dout + t * a->stride_out, d);
    struct head_pointers at = { .q = (const float *)a->q + row + head * d,
                                .k = (const float *)a->k + row + kv * d,
                                .v = (const float *)a->v + row + kv * d,
                                .dout = dout,
                                .dq = (float *)a->dq + row + head * d,
                                .dk = (float *)a->dk + row + kv * d,
                                .dv = (float *)a->dv + row + kv * d,
                                .lse = a->lse + head * a->rows + start,
                                .delta = delta };
    clear_rows(at.dq, length, d, a->stride_qkv);
    for (uint64_t q0 = 0; q0 < length; q0 += TILE) {
        uint64_t queries = zr_min_u64(TILE, length - q0), end = last_key(q0 + queries - 1, length, a->causal) + 1;
        for (uint64_t k0 = first_key(q0, a->window) / TILE * TILE; k0 < end; k0 += TILE)
            backward_tile(a, &at, q0, queries, k0, zr_min_u64(TILE, end - k0), length);
    }
}

static void backward_item(void *context, uint32_t item, uint32_t worker)
{
    const struct walk *walk = context;
    const struct zr_op_attention_backward *a = walk->args;
    (void)worker;
    uint64_t document = item / a->kv_heads, kv = item % a->kv_heads, group = a->heads / a->kv_heads;
    uint64_t start = (uint64_t)a->starts[document], length = (uint64_t)a->starts[document + 1] - start;
    clear_rows((float *)a->dk + start * a->stride_qkv + kv * a->head_dim, length, a->head_dim, a->stride_qkv);
    clear_rows((float *)a->dv + start * a->stride_qkv + kv * a->head_dim, length, a->head_dim, a->stride_qkv);
    for (uint64_t head = kv * group; head < (kv + 1) * group; head++)
        backward_head(a, start, length, head, kv);
}

void ZR_KERNEL(attention_backward)(struct zr_cpu_lane *lane, const void *args)
{
    const struct zr_op_attention_backward *a = args;
    assert(a->dtype == ZR_F32 && a->head_dim <= WIDEST);
    struct walk walk = { .args = a };
    zr_pool_run(lane->pool, (uint32_t)(a->documents * a->kv_heads), backward_item, &walk);
}
