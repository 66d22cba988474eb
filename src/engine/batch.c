/* Several runs of one plan at once.
 *
 * The runs' values of one storage lie side by side, n_runs times as far apart from other storages' as in a single run: so lives
 * that are apart stay apart, and a row of each run is a row of one matrix to products with constant weights, which read
 * their weights once (struct step_rows). All other steps are done run by run: a thread does its part of each, and serial
 * steps of different runs are shared out. What a run computes does not depend on the others. */
#include <stdlib.h>
#include "engine/compiler.h"

struct engine_batch {
    const struct engine_plan *plan;
    int n_runs, n_threads;
    int n_slots; /* for values of one storage: n_runs, or more where results have one form that takes more memory */
    char *arena;
    struct engine_run **runs; /* [n_runs]; the first one's scratch serves rows, too */
    bool *is_live;            /* [n_runs]: no failure so far */
};

bool engine_batch_new(struct engine_batch **out, const struct engine_plan *p, int n_runs, int n_threads,
                      struct err *e)
{
    struct engine_batch *b = xcalloc(1, sizeof *b);
    size_t rows_scratch = p->scratch_bytes;
    bool ok = false;
    *out = NULL;
    b->plan = p;
    b->n_runs = b->n_slots = n_runs;
    b->n_threads = n_threads;
    b->runs = xcalloc((size_t)n_runs + 1, sizeof *b->runs);
    b->is_live = xcalloc((size_t)n_runs + 1, sizeof *b->is_live);
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        size_t bytes = s->rows ? s->rows->scratch_bytes(s, n_runs) : 0;
        if (bytes > rows_scratch)
            rows_scratch = (bytes + 127) / 64 * 64;
        for (int n = 2; s->rows && s->rows->form_bytes && n <= n_runs; n++)
            while (s->rows->form_bytes(s, p->kernels, n) >
                   (size_t)b->n_slots * storage_bytes(&p->storages[s->out[0].storage]))
                b->n_slots++;
    }
    double more = (double)p->arena_bytes * (b->n_slots - 1) +
                  (double)p->scratch_bytes * ((double)n_runs * n_threads - n_threads - 1) +
                  (double)rows_scratch * n_threads;
    if ((double)p->memory + more > (double)p->memory_max) {
        err_set(e, ERR_LIMIT,
                "function %s: %d runs at once need %.0f MB of memory, the limit is %.0f MB (" LIMIT_HINT ")",
                p->function, n_runs, ((double)p->memory + more) * 1e-6, (double)p->memory_max * 1e-6);
        goto done;
    }
    if (!(b->arena = mem_try_alloc(p->arena_bytes * (size_t)b->n_slots + 64, e)))
        goto done;
    for (int i = 0; i < n_runs; i++)
        if (!run_new(&b->runs[i], p, n_threads, b->arena, i, b->n_slots,
                     i == 0 ? rows_scratch : p->scratch_bytes, e))
            goto done;
    *out = b;
    b = NULL;
    ok = true;
done:
    engine_batch_free(b);
    return ok;
}

void engine_batch_free(struct engine_batch *b)
{
    if (!b)
        return;
    for (int i = 0; i < b->n_runs; i++)
        engine_run_free(b->runs[i]);
    mem_free(b->arena);
    free(b->runs);
    free(b->is_live);
    free(b);
}

struct engine_run *engine_batch_run(const struct engine_batch *b, int i)
{
    return b->runs[i];
}

struct batch_call {
    struct engine_batch *batch;
    const struct step *step;
    int n, n_parts;
};

/* All live members want to stop: then the rest of a long step is of no use. */
static bool all_stop(const struct batch_call *c)
{
    for (int i = 0; i < c->n; i++)
        if (c->batch->is_live[i] && !stop_requested(c->batch->runs[i]->stop))
            return false;
    return true;
}

static void run_together(void *context, int i_thread, int n_threads)
{
    const struct batch_call *c = context;
    for (int k = 0; k < c->n_parts && (k == 0 || !all_stop(c)); k++)
        c->step->rows->run(c->step, c->batch->runs, c->n, i_thread * c->n_parts + k, n_threads * c->n_parts);
}

static void run_serially(void *context, int i_thread, int n_threads)
{
    const struct batch_call *c = context;
    for (int i = i_thread; i < c->n; i += n_threads)
        for (int k = 0; c->batch->is_live[i] && k < c->n_parts; k++)
            if (k == 0 || !stop_requested(c->batch->runs[i]->stop))
                c->step->run(c->step, c->batch->runs[i], k, c->n_parts);
}

static void run_in_parts(void *context, int i_thread, int n_threads)
{
    const struct batch_call *c = context;
    for (int i = 0; i < c->n; i++)
        for (int k = 0; c->batch->is_live[i] && k < c->n_parts; k++)
            if (k == 0 || !stop_requested(c->batch->runs[i]->stop))
                c->step->run(c->step, c->batch->runs[i], i_thread * c->n_parts + k, n_threads * c->n_parts);
}

static void run_step(struct engine_batch *b, const struct step *s, int n, struct pool *pool, int n_threads)
{
    double work = s->work * n;
    bool alone = n_threads == 1 || (s->serial && work < PARALLEL_ELEMS);
    struct batch_call call = {.batch = b, .step = s, .n = n};
    int sharing = alone || (s->serial && !s->rows) ? 1 : n_threads; /* threads that share one run's work */
    pool_fn fn = s->rows ? run_together : s->serial ? run_serially : run_in_parts;
    call.n_parts = run_parts(s->rows ? work : s->work, sharing);
    for (int i = 0; i < n; i++)
        b->runs[i]->n_parts = call.n_parts;
    if (alone)
        fn(&call, 0, 1);
    else
        pool_run(pool, fn, &call);
}

bool engine_batch_execute(struct engine_batch *b, struct engine_member *members, int n, struct pool *pool,
                          struct err *e)
{
    const struct engine_plan *p = b->plan;
    int n_threads = pool ? pool_threads(pool) : 1, n_live = 0;
    if (n_threads > b->n_threads || n > b->n_runs)
        return err_set(e, ERR_BUG, "%d runs made for %d threads are executed as %d by %d", b->n_runs,
                       b->n_threads, n, n_threads);
    for (int i = 0; i < n; i++) {
        struct engine_member *m = &members[i];
        struct err why = {0};
        bool is_bound =
            run_bind(b->runs[i], m->state, &why); /* inputs in any case: rows are read from all runs */
        if (!m->has_failed && !is_bound) {
            m->has_failed = true;
            m->error = why;
        }
        b->is_live[i] = !m->has_failed;
        n_live += b->is_live[i];
    }
    for (int i = 0; i < p->n_steps && n_live > 0; i++) {
        run_step(b, &p->steps[i], n, pool, n_threads);
        for (int k = 0; k < n; k++)
            if (b->is_live[k] && !run_check(b->runs[k], &p->steps[i], &members[k].error)) {
                members[k].has_failed = true;
                b->is_live[k] = false;
                n_live--;
            }
    }
    return true;
}
