/* Measuring weights for mixed widths: quantizes each with both widths into memory and lets the reference's probe run its
 * layer with it. Memory holds one weight's codes and what the products of one layer take and give. */
#include "measure/mixed.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/pool.h"
#include "measure/replaced.h"
#include "tokenizer/tokenizer.h"

/* ---- a quantized weight in memory ---- */

struct stored {
    const struct quant_weight *weight;
    uint8_t *codes; /* packed */
    f16 *table;
};

static void stored_fini(struct stored *s)
{
    mem_free(s->codes);
    mem_free(s->table);
}

static bool put(struct quant_sink *sink, enum quant_output which, uint64_t at, const void *data, size_t n,
                struct err *e)
{
    const struct stored *s = sink->ctx;
    (void)e;
    memcpy((which == QUANT_CODES ? s->codes : (uint8_t *)s->table) + at, data, n);
    return true;
}

struct quantize {
    struct stored *stored;
    struct quant_scratch **scratch; /* [n_threads] */
    struct err *errors;             /* [n_threads] */
    atomic_llong next;
};

static void quantize_thread(void *context, int i_thread, int n_threads)
{
    (void)n_threads;
    struct quantize *q = context;
    struct quant_sink sink = {.put = put, .ctx = q->stored};
    if (!q->scratch[i_thread])
        q->scratch[i_thread] = quant_scratch_new();
    for (;;) {
        int64_t unit = atomic_fetch_add(&q->next, 1);
        struct quant_stats stats = {0};
        if (unit >= q->stored->weight->n_units || q->errors[i_thread].code)
            return;
        if (!quant_weight_run(q->stored->weight, unit, q->scratch[i_thread], &sink, &stats,
                              &q->errors[i_thread]))
            return;
    }
}

static bool stored_make(struct stored *s, const struct quant_weight *w, struct pool *pool,
                        struct quant_scratch **scratch, struct err *e)
{
    int n_threads = pool_threads(pool);
    struct quantize q = {.stored = s, .scratch = scratch};
    *s = (struct stored){.weight = w};
    s->codes = mem_try_alloc(w->codes->bytes, e);
    s->table = s->codes ? mem_try_alloc(w->table->bytes, e) : NULL;
    if (!s->table)
        return false;
    q.errors = xcalloc((size_t)n_threads, sizeof *q.errors);
    atomic_init(&q.next, 0);
    pool_run(pool, quantize_thread, &q);
    bool ok = true;
    for (int i = 0; i < n_threads && ok; i++) {
        ok = !q.errors[i].code;
        if (!ok && e)
            *e = q.errors[i];
    }
    free(q.errors);
    return ok || err_wrap(e, "%s", w->name);
}

/* ---- the measurement ---- */

/* A weight in both widths, in programs of their own. */
struct subject {
    const struct quant_weight *narrow, *wide;
    int64_t layer; /* -1: of none */
};

struct measurement {
    struct mixed *mixed;
    struct mil_model **models; /* [n_models], chunks in both widths */
    int n_models;
    struct subject *subjects; /* [n]: as choices.list */
    int n;
    struct reference *reference;
    struct reference_probe *probe;
    struct pool *pool;
    struct quant_scratch **scratch;
    struct ids ids;
    struct progress progress;
    int n_done;
};

/* The weights of a chunk with one width; the model stays open for their sources. */
static bool list_weights(struct measurement *x, struct arch_model *m, int i_chunk, int bits,
                         struct quant_weight ***list, int *n, struct err *e)
{
    struct quant_spec spec = x->mixed->spec;
    struct mil_model *model = mil_model_new(9);
    spec.bits = bits;
    x->models[x->n_models++] = model;
    return m->family->build_chunk(m, i_chunk, model, e) &&
           quant_apply(model, &spec, NULL, QUANT_LINEAR, list, n, e);
}

static bool list_chunk(struct measurement *x, struct arch_model *m, int i_chunk, struct err *e)
{
    struct quant_choices *c = &x->mixed->choices;
    struct quant_weight **narrow, **wide;
    int n, n_wide;
    if (!list_weights(x, m, i_chunk, c->narrow, &narrow, &n, e) ||
        !list_weights(x, m, i_chunk, c->wide, &wide, &n_wide, e))
        return false;
    if (n != n_wide)
        return err_set(e, ERR_BUG, "chunk %d has %d weights with one width, %d with another", i_chunk, n,
                       n_wide);
    c->list = xrealloc(c->list, (size_t)(c->n + n) * sizeof *c->list);
    x->subjects = xrealloc(x->subjects, (size_t)(c->n + n) * sizeof *x->subjects);
    for (int i = 0; i < n; i++) {
        const struct quant_weight *w = narrow[i];
        c->list[c->n] = (struct quant_choice){
            .name = xstrdup(w->name), .ordinal = w->ordinal, .n_elems = w->rows * w->columns};
        x->subjects[c->n++] = (struct subject){.narrow = w, .wide = wide[i], .layer = arch_layer_of(w->name)};
    }
    x->n = c->n;
    return true;
}

static bool read_tokens(struct measurement *x, const struct arch_model *m, struct err *e)
{
    size_t n_max = MIXED_TOKENS_MAX;
    if (!calibration_read(x->mixed->calibration, m->checkpoint, &x->ids, e))
        return false;
    if (n_max > (size_t)x->reference->max_positions)
        n_max = (size_t)x->reference->max_positions;
    if (x->ids.n > n_max)
        x->ids.n = n_max;
    x->mixed->choices.n_tokens = (int64_t)x->ids.n;
    return true;
}

/* The mean over rows of squares of differences by squares of values. */
static double relative_error(const float *expected, const float *found, int64_t n, int64_t width)
{
    double sum = 0;
    for (int64_t t = 0; t < n; t++, expected += width, found += width) {
        double difference = 0, energy = 0;
        for (int64_t i = 0; i < width; i++) {
            double d = (double)found[i] - (double)expected[i];
            difference += d * d;
            energy += (double)expected[i] * (double)expected[i];
        }
        if (energy != 0) /* what is not a number must reach the sum */
            sum += difference / energy;
    }
    return sum / (double)n;
}

static bool measure_width(struct measurement *x, const struct quant_weight *w, const float *expected,
                          double *error, struct err *e)
{
    struct stored s = {0};
    struct replaced *replaced = replaced_new();
    const float *rows = NULL;
    progress_update(&x->progress, 0.5 * x->n_done++, w->name);
    bool ok =
        stored_make(&s, w, x->pool, x->scratch, e) && replaced_add(replaced, w, s.codes, true, s.table, e);
    if (ok) {
        struct reference_replacement replacement = replaced_numbers(replaced);
        ok = reference_probe_replaced(x->probe, &replacement, &rows, e);
    }
    if (ok) {
        *error = relative_error(expected, rows, (int64_t)x->ids.n, x->reference->hidden_size);
        if (!isfinite(*error))
            ok = err_set(e, ERR_FORMAT, "%s: its layer gives no finite numbers on the calibration text",
                         w->name);
    }
    replaced_free(replaced);
    stored_fini(&s);
    return ok;
}

static bool measure_layers(struct measurement *x, struct err *e)
{
    struct quant_choices *c = &x->mixed->choices;
    for (int64_t layer = 0; layer < x->reference->n_layers; layer++) {
        const float *expected = NULL;
        if (!reference_probe_next(x->probe, &expected, e))
            return false;
        for (int i = 0; i < x->n; i++) {
            const struct subject *s = &x->subjects[i];
            if (s->layer == layer && (!measure_width(x, s->narrow, expected, &c->list[i].narrow_error, e) ||
                                      !measure_width(x, s->wide, expected, &c->list[i].wide_error, e)))
                return false;
        }
    }
    return true;
}

static void say(const struct mixed *x)
{
    const struct quant_choices *c = &x->choices;
    int n_wide = 0;
    for (int i = 0; i < c->n; i++) {
        const struct quant_choice *w = &c->list[i];
        n_wide += w->bits == c->wide;
        log_debug(x->log, "%d bits for %s: its layer's output has error %.3g with %d, %.3g with %d", w->bits,
                  w->name, w->narrow_error, c->narrow, w->wide_error, c->wide);
    }
    log_info(x->log, "%d of %d weights of the layers have %d bits, the others %d: %.3f on average", n_wide,
             c->n, c->wide, c->narrow, c->mean);
}

static bool measure(struct measurement *x, struct arch_model *m, struct err *e)
{
    struct mixed *mixed = x->mixed;
    struct reference_options options = {.n_threads = mixed->n_threads, .log = mixed->log};
    x->models = xcalloc(2 * (size_t)m->settings.n_chunks, sizeof *x->models);
    for (int i = 0; i < m->settings.n_chunks; i++) {
        if (!list_chunk(x, m, i, e))
            return false;
    }
    if (!pool_new(&x->pool, mixed->n_threads, e) ||
        !reference_open(&x->reference, m->checkpoint, &options, e) || !read_tokens(x, m, e) ||
        !reference_probe_new(&x->probe, x->reference, x->ids.p, x->ids.n, e))
        return false;
    x->scratch = xcalloc((size_t)pool_threads(x->pool), sizeof *x->scratch);
    progress_begin(&x->progress, mixed->log, "measuring", "weights", 1, x->n);
    bool ok = measure_layers(x, e);
    progress_end(&x->progress);
    return ok;
}

bool mixed_choose(void *context, struct arch_model *m, const struct quant_choices **out, struct err *e)
{
    struct mixed *mixed = context;
    struct measurement x = {.mixed = mixed};
    mixed->choices.narrow = mixed->spec.bits;
    mixed->choices.wide = quant_wider(mixed->spec.bits);
    mixed->choices.limit = mixed->mean_bits;
    bool ok = measure(&x, m, e);
    if (ok) {
        quant_choose(&mixed->choices);
        say(mixed);
        *out = &mixed->choices;
    }
    for (int i = 0; x.scratch && i < pool_threads(x.pool); i++)
        quant_scratch_free(x.scratch[i]);
    for (int i = 0; i < x.n_models; i++)
        mil_model_close(x.models[i]);
    free(x.scratch);
    free(x.models);
    free(x.subjects);
    ids_free(&x.ids);
    reference_probe_free(x.probe);
    reference_close(x.reference);
    pool_free(x.pool);
    return ok;
}

void mixed_fini(struct mixed *x)
{
    for (int i = 0; i < x->choices.n; i++)
        free((char *)x->choices.list[i].name);
    free(x->choices.list);
    x->choices = (struct quant_choices){0};
}
