/* Layer by layer from the last: squares of gradients to the file; then from the first: importance out of it. */
#include "measure/fisher.h"
#include <stdlib.h>
#include <string.h>
#include "base/spill.h"
#include "reference/reference.h"

/* What a weight counts at least, by the mean of its group: so every value keeps a say. */
#define LEAST 1e-6f

/* Elements [begin, begin + n) of a tensor. */
struct squares {
    char *tensor;
    int64_t begin, n;
    float *sum;  /* [n]: of the layer that is run; NULL afterwards */
    uint64_t at; /* in the file */
};

struct fisher_state {
    struct reference *reference;
    struct reference_gradients *gradients;
    struct ids ids;
    struct squares *list;
    int n;
    size_t capacity;
    int first_of_layer; /* in the list */
    int last;           /* that was found */
    struct spill *spill;
    uint64_t spilled;
    float **each; /* [n_each]: of the weights of the layer that was told last */
    int n_each;
    struct err error; /* of a call of find_squares */
};

/* ---- squares ---- */

static int64_t find_squares(void *context, const char *tensor, int64_t begin, int64_t n)
{
    struct fisher_state *s = context;
    for (int i = s->first_of_layer; i < s->n; i++)
        if (s->list[i].begin == begin && s->list[i].n == n && strcmp(s->list[i].tensor, tensor) == 0)
            return i;
    float *sum = s->error.code ? NULL : mem_try_alloc((size_t)n * sizeof *sum, &s->error);
    if (!sum)
        return -1;
    s->list = mem_grow(s->list, (size_t)s->n, &s->capacity, sizeof *s->list);
    s->list[s->n] = (struct squares){.tensor = xstrdup(tensor), .begin = begin, .n = n, .sum = sum};
    return s->n++;
}

static void add_squares(void *context, int64_t handle, int64_t begin, int64_t n, const float *values)
{
    struct fisher_state *s = context;
    float *sum = s->list[handle].sum + (begin - s->list[handle].begin);
    for (int64_t i = 0; i < n; i++)
        sum[i] += values[i] * values[i];
}

/* The next step of the gradients, to the file. */
static bool run_step(struct fisher_state *s, struct err *e)
{
    const struct reference_gradient_sink sink = {s, find_squares, add_squares};
    s->first_of_layer = s->n;
    if (!reference_gradients_next(s->gradients, &sink, e))
        return false;
    if (s->error.code) {
        if (e)
            *e = s->error;
        return false;
    }
    for (int i = s->first_of_layer; i < s->n; i++) {
        struct squares *q = &s->list[i];
        size_t bytes = (size_t)q->n * sizeof *q->sum;
        if (!spill_put(s->spill, s->spilled, q->sum, bytes, e))
            return false;
        q->at = s->spilled;
        s->spilled += bytes;
        mem_free(q->sum);
        q->sum = NULL;
    }
    return true;
}

/* ---- importance ---- */

/* The squares that hold this element of a tensor; NULL: none, as where no token came. */
static const struct squares *squares_of(struct fisher_state *s, const char *tensor, int64_t at)
{
    /* Mostly those that were found last. */
    for (int i = 0; i < s->n; i++) {
        int k = (s->last + i) % s->n;
        const struct squares *q = &s->list[k];
        if (at >= q->begin && at < q->begin + q->n && strcmp(q->tensor, tensor) == 0) {
            s->last = k;
            return q;
        }
    }
    return NULL;
}

/* The sums of a weight's elements; *is_known: there are some. */
static bool read_squares(struct fisher_state *s, const struct quant_weight *w, float *each, bool *is_known,
                         struct err *e)
{
    struct arch_run run;
    int64_t n = w->rows * w->columns;
    *is_known = false;
    for (int64_t at = 0, part; at < n; at += part) {
        const struct squares *q = NULL;
        part = n - at;
        if (!arch_find_run(w->source->weight, at, part, &run)) {
            *is_known = false;
            return true;
        }
        part = run.n < part ? run.n : part;
        q = squares_of(s, run.tensor->name, run.at);
        if (q && part > q->begin + q->n - run.at)
            part = q->begin + q->n - run.at;
        /* Those of an expert that no token chose are zeros, but where they end is not known: row by row. */
        if (!q && part > w->columns)
            part = w->columns;
        if (q && !spill_get(s->spill, q->at + (uint64_t)(run.at - q->begin) * sizeof *each, each + at,
                            (size_t)part * sizeof *each, e))
            return false;
        *is_known = *is_known || q;
        /* y = f w: dy = dw / f */
        float factor = (float)(1.0 / (run.factor * run.factor));
        for (int64_t i = 0; i < part && run.factor != 1.0; i++)
            each[at + i] *= factor;
    }
    return true;
}

/* By the mean of each group, with a little for all; groups of zeros count alike. */
static void level(const struct quant_weight *w, float *each)
{
    int64_t n = w->spec.group * w->columns;
    for (int64_t begin = 0; begin < w->rows * w->columns; begin += n) {
        double sum = 0;
        for (int64_t i = begin; i < begin + n; i++)
            sum += (double)each[i];
        bool is_usable = sum > 0 && sum < 1e300;
        double mean = sum / (double)n;
        for (int64_t i = begin; i < begin + n; i++)
            each[i] = is_usable ? (float)((double)each[i] / mean) + LEAST : 1.0f;
    }
}

static bool weigh(struct fisher *f, struct quant_weight *w, struct err *e)
{
    struct fisher_state *s = f->state;
    bool is_known;
    float *each = mem_try_alloc((size_t)(w->rows * w->columns) * sizeof *each, e);
    if (!each || !read_squares(s, w, each, &is_known, e)) {
        mem_free(each);
        return err_wrap(e, "%s", w->name);
    }
    f->n_weighted += is_known;
    f->n_unweighted += !is_known;
    if (!is_known) {
        log_debug(f->log, "%s: its gradients are not known; k-means", w->name);
        mem_free(each);
        return true;
    }
    level(w, each);
    s->each[s->n_each++] = each;
    w->each = each;
    return true;
}

/* Weights are gone with their program once it is written, so none of them is told. */
static void forget_layer(struct fisher_state *s)
{
    for (int i = 0; i < s->n_each; i++)
        mem_free(s->each[i]);
    free(s->each);
    s->each = NULL;
    s->n_each = 0;
}

bool fisher_layer(void *context, int64_t layer, struct quant_weight *const *weights, int n, struct err *e)
{
    struct fisher *f = context;
    struct fisher_state *s = f->state;
    double start = clock_seconds();
    forget_layer(s);
    while (reference_gradients_layer(s->gradients) >= layer)
        if (!run_step(s, e))
            return false;
    s->each = xcalloc((size_t)n + 1, sizeof(float *));
    for (int i = 0; i < n; i++)
        if (!weigh(f, weights[i], e))
            return false;
    f->seconds += clock_seconds() - start;
    return true;
}

/* ---- opening ---- */

bool fisher_begin(void *context, const struct arch_model *m, struct err *e)
{
    struct fisher *f = context;
    struct fisher_state *s = f->state = xcalloc(1, sizeof *s);
    struct reference_options options = {.n_threads = f->n_threads, .log = f->log};
    int64_t n_max = f->n_tokens > 0 ? f->n_tokens : FISHER_TOKENS, n_text = FISHER_TEXT_TOKENS;
    double start = clock_seconds();
    if (!reference_open(&s->reference, m->checkpoint, &options, e) || !spill_open(&s->spill, f->folder, e))
        return false;
    n_text = n_text < s->reference->max_positions ? n_text : s->reference->max_positions;
    f->calibration->n_text = n_text;
    if (!calibration_read(f->calibration, m->checkpoint, &s->ids, e))
        return false;
    f->n_used = (int64_t)s->ids.n < n_max ? (int64_t)s->ids.n : n_max;
    s->ids.n = (size_t)f->n_used;
    calibration_key(&f->state->ids, f->key);
    bool ok = reference_gradients_new(&s->gradients, s->reference, s->ids.p, s->ids.n, (size_t)n_text,
                                      f->folder, e);
    f->seconds += clock_seconds() - start;
    return ok;
}

void fisher_say(const struct fisher *f)
{
    log_info(f->log, "fisher by %lld tokens: %d weights in %.1f s", (long long)f->n_used, f->n_weighted,
             f->seconds);
    if (f->n_unweighted > 0)
        log_warn(f->log, "%d weights whose gradients are not known got k-means", f->n_unweighted);
}

void fisher_close(struct fisher *f)
{
    struct fisher_state *s = f->state;
    if (!s)
        return;
    forget_layer(s);
    for (int i = 0; i < s->n; i++) {
        free(s->list[i].tensor);
        mem_free(s->list[i].sum);
    }
    free(s->list);
    reference_gradients_free(s->gradients);
    reference_close(s->reference);
    spill_close(s->spill);
    ids_free(&s->ids);
    free(s);
    f->state = NULL;
}
