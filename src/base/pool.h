/* A pool of threads: fixed workers, static split, a barrier at the end of each run.
 *
 * pool_run calls fn(ctx, i, n) for i = 0 .. n-1, i = 0 on the calling thread, and returns when all are done.
 * The others have threads of their own, but what a worker has not begun when the caller is done with its part, the
 * caller does too: calls must not wait for each other.
 * Workers spin for some microseconds after a run and then sleep. What a worker computes must not depend on n:
 * that is how results stay the same for any thread count. Several threads may call pool_run at once: the workers serve
 * one of them, and the others do all parts of their runs themselves, so nobody waits for another's work. Never from inside
 * a run.
 */
#ifndef MILKIT_BASE_POOL_H
#define MILKIT_BASE_POOL_H

#include "base/mem.h"

struct pool;
typedef void (*pool_fn)(void *ctx, int i_thread, int n_threads);

/* n_threads >= 1 (1: no worker is started); 0: the number of processors this process may use. */
bool pool_new(struct pool **out, int n_threads, struct err *e) MUST_CHECK;
void pool_free(struct pool *p); /* accepts NULL */
int pool_threads(const struct pool *p);
void pool_run(struct pool *p, pool_fn fn, void *ctx);

/* The part [*begin, *end) of 0..n that thread i of n_threads owns, borders at multiples of grain. */
void pool_split(int64_t n, int64_t grain, int i, int n_threads, int64_t *begin, int64_t *end);

#endif
