/* Running a test. Contexts go through session_sync, so one that is there already is not computed again; each measured run
 * is followed by what it is compared with, so that both meet the same neighbours.
 */
#include "measure/speed.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "format/blob.h"
#include "measure/machine.h"
#include "runtime/sampler.h"

/* More than any cache holds. */
#define STAND_IN_BYTES ((size_t)256 << 20)

struct work {
    struct session *session;
    const struct model *model;
    const struct speed_test *test;
    const struct speed_options *options;
    int32_t *depth_ids, *ids; /* [n_depth], [n_prompt + n_gen] */
    int64_t n_spans;
    struct machine_span *spans; /* what a single token reads */
    void *stand_in;             /* for the states */
    int32_t chosen;
};

/* Any ids of the vocabulary, always the same ones. */
static void fill_ids(int32_t *ids, int64_t n, int64_t vocab_size, uint64_t seed)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % (uint64_t)vocab_size);
    }
}

bool speed_test_fits(const struct model *m, const struct speed_test *t, struct err *e)
{
    int64_t n = t->n_depth + t->n_prompt + t->n_gen;
    if (n <= m->context_length)
        return true;
    return err_set(
        e, ERR_LIMIT,
        "%s: %lld + %lld tokens behind a context of %lld do not fit: the package's context holds %lld",
        m->package->path, (long long)t->n_prompt, (long long)t->n_gen, (long long)t->n_depth,
        (long long)m->context_length);
}

/* The context that the test begins with. */
static bool set_context(struct work *w, struct err *e)
{
    int64_t n = w->test->n_depth;
    if (n == 0) {
        session_reset(w->session);
        return true;
    }
    if (w->options->with_made_up_depth && session_position(w->session) < n)
        session_make_up(w->session, w->depth_ids, (size_t)n - 1);
    return session_sync(w->session, w->depth_ids, (size_t)n, NULL, NULL, e);
}

static bool run_part(struct work *w, int64_t n_prompt, int64_t n_gen, struct err *e)
{
    struct session *s = w->session;
    if (n_prompt > 0 && !session_feed(s, w->ids, (size_t)n_prompt, SESSION_CONTRACT, NULL, NULL, NULL, e))
        return false;
    for (int64_t i = 0; i < n_gen; i++) {
        if (!session_feed(s, w->ids + n_prompt + i, 1, SESSION_INFER_ONLY, NULL, NULL, NULL, e))
            return false;
        if (w->options->with_choice)
            w->chosen ^= sampler_argmax(session_logits(s), w->model->vocab_size);
    }
    return true;
}

static void wait_seconds(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    if (seconds > 0)
        nanosleep(&t, NULL); /* a signal ends it: the next look at the log's flag sees why */
}

static void add_span(struct work *w, const void *data, size_t bytes)
{
    if (!data || bytes == 0)
        return;
    w->spans = xrealloc(w->spans, ((size_t)w->n_spans + 1) * sizeof *w->spans);
    w->spans[w->n_spans++] = (struct machine_span){data, bytes};
}

static void add_files(struct work *w, const struct mil_model *m)
{
    for (int i = 0; m && i < m->n_files; i++)
        if (m->files[i])
            add_span(w, m->files[i]->map->data, m->files[i]->map->bytes);
}

/* Bytes of states that a token reads in the middle of the test: of a cache of all positions those in use. */
static double state_bytes(const struct work *w)
{
    const struct backend_states *states = session_states(w->session);
    int64_t n_rows = w->test->n_depth + w->test->n_prompt + w->test->n_gen / 2;
    double sum = 0;
    for (int i = 0; i < states->n; i++) {
        const struct backend_state *s = &states->list[i];
        double bytes = (double)backend_state_bytes(s);
        if (model_is_full_cache(w->model, s->rank, s->dims))
            bytes *= fmin(1, (double)n_rows / (double)s->dims[2]);
        sum += bytes;
    }
    return sum;
}

/* Weights where they are mapped; memory of our own stands for the states, read again where they are larger. */
static bool find_spans(struct work *w, const struct speed_weights *weights, struct speed *out, struct err *e)
{
    const struct model *m = w->model;
    double states = state_bytes(w);
    size_t left = (size_t)states, most = left < STAND_IN_BYTES ? left : STAND_IN_BYTES;
    for (int i = 0; i < m->n_chunks; i++) {
        add_files(w, m->chunks[i].mil);
        if (m->chunks[i].second && !m->chunks[i].functions[MODEL_INFER])
            add_files(w, m->chunks[i].second);
    }
    add_files(w, m->head.mil);
    if (most > 0 && !(w->stand_in = mem_try_alloc(most, e)))
        return false;
    for (size_t i = 0; i < most; i += 64) /* pages of its own */
        ((char *)w->stand_in)[i] = 1;
    for (size_t n; left > 0; left -= n) {
        n = left < most ? left : most;
        add_span(w, w->stand_in, n);
    }
    out->needed_bytes = (double)weights->token_bytes + states;
    return true;
}

/* Bytes a second of a plain read of what a token reads, or the peak of the instruction that the prompt's products use. */
static double compare_with(struct work *w, struct speed *out, const struct speed_weights *weights)
{
    struct pool *pool = w->model->pool;
    if (w->test->n_prompt > 0 && w->test->n_gen == 0)
        return machine_peak(pool, weights->is_fixed ? MACHINE_PRODUCTS16 : MACHINE_FMA32, &out->instruction);
    double bytes = 0, seconds = machine_read(pool, w->spans, (int)w->n_spans);
    for (int64_t i = 0; i < w->n_spans; i++)
        bytes += (double)w->spans[i].bytes;
    return bytes / seconds;
}

bool speed_measure(struct speed *out, struct session *s, const struct model *m,
                   const struct speed_weights *weights, const struct speed_test *t,
                   const struct speed_options *o, struct err *e)
{
    struct work w = {.session = s, .model = m, .test = t, .options = o};
    double *others = xcalloc((size_t)o->n_runs, sizeof *others);
    int64_t n_ids = t->n_prompt + t->n_gen;
    bool is_prompt = t->n_prompt > 0 && t->n_gen == 0;
    bool is_gen = t->n_gen > 0 && t->n_prompt == 0 && weights->token_bytes > 0;
    memset(out, 0, sizeof *out);
    out->seconds = xcalloc((size_t)o->n_runs, sizeof *out->seconds);
    w.depth_ids = xcalloc((size_t)t->n_depth + 1, sizeof *w.depth_ids);
    w.ids = xcalloc((size_t)n_ids + 1, sizeof *w.ids);
    fill_ids(w.depth_ids, t->n_depth, m->vocab_size, 1);
    fill_ids(w.ids, n_ids, m->vocab_size, 2);
    bool ok = speed_test_fits(m, t, e);
    wait_seconds(ok ? o->delay_seconds : 0);
    ok = ok && set_context(&w, e);
    if (ok && o->is_warm && (t->n_prompt > 0 || t->n_gen > 0))
        ok = run_part(&w, t->n_prompt, t->n_gen > 0 ? 1 : 0, e);
    if (ok && is_gen)
        ok = find_spans(&w, weights, out, e);
    if (ok && (is_prompt || is_gen))
        (void)compare_with(&w, out, weights); /* pages, clocks */
    for (int64_t i = 0; ok && i < o->n_runs; i++) {
        ok = set_context(&w, e) && !log_cancelled(o->log, e);
        double start = clock_seconds();
        ok = ok && run_part(&w, t->n_prompt, t->n_gen, e);
        out->seconds[i] = fmax(clock_seconds() - start, 1e-9);
        out->n_runs = i + 1;
        if (ok && (is_prompt || is_gen))
            others[i] = compare_with(&w, out, weights);
        ok = ok && !log_cancelled(o->log, e);
    }
    if (ok && is_gen)
        out->read_bytes_per_second = speed_quantile(others, o->n_runs, 0.5);
    if (ok && is_prompt && weights->chunk_products > 0) {
        out->products_per_second = speed_quantile(others, o->n_runs, 1);
        out->products = weights->chunk_products * (double)t->n_prompt + weights->head_products;
    }
    free(others);
    free(w.depth_ids);
    free(w.ids);
    free(w.spans);
    mem_free(w.stand_in);
    if (!ok)
        speed_free(out);
    return ok;
}

void speed_free(struct speed *s)
{
    free(s->seconds);
    memset(s, 0, sizeof *s);
}
