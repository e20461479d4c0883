/* pool.h: worker threads for parallel loops that give the same bits for any thread count
 *
 *   P1  A loop is cut into `count` items by its caller, by shape alone; the pool decides only who runs which item.
 *   P2  The caller of zr_pool_run() works too, so a pool of 1 has no threads at all.
 *   P3  zr_pool_run() allocates nothing. Workers spin for a few tens of microseconds, then sleep on a futex.
 *   P4  One loop at a time per pool: a pool belongs to one queue (one stream thread), never to two. */
#ifndef ZR_BASE_POOL_H
#define ZR_BASE_POOL_H

#include "engine/base/error.h"
#include <stdint.h>

struct zr_pool;

/* Threads that this process may use at once: its affinity mask, cut by the cgroup's CPU quota; at least 1. Never
 * OMP_NUM_THREADS, which launchers set to 1. */
uint32_t zr_pool_default_threads(void);

/* `threads` counts the caller: 1 to 1024. */
ZR_MUST_CHECK enum zr_code zr_pool_make(uint32_t threads, struct zr_pool **ret_pool, struct zr_error *err);
void zr_pool_free(struct zr_pool *pool);
uint32_t zr_pool_threads(const struct zr_pool *pool);

/* Calls body(context, item, worker) for every item in [0, count), in any order and on any worker; returns when all are
 * done. `worker` is below zr_pool_threads(): use it to find a worker's own scratch. */
typedef void zr_pool_body(void *context, uint32_t item, uint32_t worker);
void zr_pool_run(struct zr_pool *pool, uint32_t count, zr_pool_body *body, void *context);

#endif
