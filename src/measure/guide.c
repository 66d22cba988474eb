/* Layer by layer: inputs, their products, guides. */
#include "measure/guide.h"
#include <stdlib.h>
#include <string.h>
#include "base/pool.h"
#include "format/mlmodelc.h"
#include "reference/reference.h"

/* A distinct input of the layer: the first matrix that it was shown for owns its products. */
struct gram {
    int64_t n;
    double *sum; /* [n, n], upper triangle; NULL once the guide is made */
    struct quant_guide *guide;
    bool is_made;
};

/* A matrix of the layer and its input. */
struct matrix {
    char *tensor;
    int gram;
    bool is_owner;
};

struct guide_state {
    struct reference *reference;
    struct reference_inputs *inputs;
    struct pool *pool;
    struct ids ids;
    int64_t layer; /* that was run last; -1: none */
    struct gram *grams;
    int n_grams;
    size_t grams_capacity;
    struct matrix *matrices;
    int n_matrices;
    size_t matrices_capacity;
    /* the input that was shown last, a copy */
    float *last;
    int64_t last_rows, last_columns;
    int last_gram;
    struct err error; /* of a call of show */
};

/* ---- one layer ---- */

static void forget_layer(struct guide_state *s)
{
    for (int i = 0; i < s->n_grams; i++) {
        mem_free(s->grams[i].sum);
        quant_guide_free(s->grams[i].guide);
    }
    for (int i = 0; i < s->n_matrices; i++)
        free(s->matrices[i].tensor);
    s->n_grams = s->n_matrices = 0;
    s->last_gram = -1;
}

static struct matrix *find_matrix(struct guide_state *s, const char *tensor)
{
    for (int i = 0; i < s->n_matrices; i++)
        if (strcmp(s->matrices[i].tensor, tensor) == 0)
            return &s->matrices[i];
    return NULL;
}

static int add_gram(struct guide_state *s, int64_t columns)
{
    double *sum = mem_try_alloc((size_t)(columns * columns) * sizeof *sum, &s->error);
    if (!sum)
        return -1;
    s->grams = mem_grow(s->grams, (size_t)s->n_grams, &s->grams_capacity, sizeof *s->grams);
    s->grams[s->n_grams] = (struct gram){.n = columns, .sum = sum};
    return s->n_grams++;
}

static bool is_last_input(const struct guide_state *s, const float *x, int64_t n, int64_t columns)
{
    return s->last_gram >= 0 && s->last_rows == n && s->last_columns == columns &&
           memcmp(s->last, x, (size_t)(n * columns) * sizeof *x) == 0;
}

static void keep_input(struct guide_state *s, const float *x, int64_t n, int64_t columns, int gram)
{
    s->last = xrealloc(s->last, (size_t)(n * columns) * sizeof *s->last);
    memcpy(s->last, x, (size_t)(n * columns) * sizeof *s->last);
    s->last_rows = n;
    s->last_columns = columns;
    s->last_gram = gram;
}

/* A product of the layer: matrices that get the very same input share its sum. Which do is settled by the first text. */
static void show(void *context, const char *tensor, const float *x, int64_t n, int64_t columns)
{
    struct guide_state *s = context;
    struct matrix *m = find_matrix(s, tensor);
    if (s->error.code || n == 0)
        return;
    if (!m) {
        bool is_shared = is_last_input(s, x, n, columns);
        int gram = is_shared ? s->last_gram : add_gram(s, columns);
        if (gram < 0)
            return;
        s->matrices =
            mem_grow(s->matrices, (size_t)s->n_matrices, &s->matrices_capacity, sizeof *s->matrices);
        m = &s->matrices[s->n_matrices++];
        *m = (struct matrix){.tensor = xstrdup(tensor), .gram = gram, .is_owner = !is_shared};
    }
    if (m->is_owner) {
        keep_input(s, x, n, columns, m->gram);
        quant_gram_add(s->grams[m->gram].sum, x, n, columns, s->pool);
    }
}

/* ---- weights ---- */

/* Are the weight's rows rows of the tensor, a factor apart? */
static bool has_rows_of(const struct quant_weight *w, const char **tensor)
{
    struct arch_run run;
    for (int64_t row = 0; row<w->rows; row += w->rows> 1 ? w->rows - 1 : 1) {
        if (!arch_find_run(w->source->weight, row * w->columns, w->columns, &run) || run.n < w->columns ||
            run.tensor->rank != 2 || run.tensor->shape[1] != w->columns || run.at % w->columns != 0)
            return false;
        if (row > 0 && strcmp(*tensor, run.tensor->name) != 0)
            return false;
        *tensor = run.tensor->name;
    }
    return true;
}

static bool guide_weight(struct guide *g, struct quant_weight *w, struct err *e)
{
    struct guide_state *s = g->state;
    const char *tensor = NULL;
    const struct matrix *m = has_rows_of(w, &tensor) ? find_matrix(s, tensor) : NULL;
    struct gram *gram = m ? &s->grams[m->gram] : NULL;
    if (gram && gram->n != w->columns)
        gram = NULL;
    if (gram && !gram->is_made) {
        bool ok = quant_guide_make(&gram->guide, gram->sum, gram->n, s->pool, e);
        mem_free(gram->sum);
        gram->sum = NULL;
        gram->is_made = true;
        if (!ok)
            return err_wrap(e, "%s", w->name);
    }
    w->guide = gram ? gram->guide : NULL;
    w->importance = w->guide ? w->guide->mean_square : NULL;
    g->n_guided += w->guide != NULL;
    g->n_unguided += w->guide == NULL;
    if (!w->guide)
        log_debug(g->log, "%s: nothing is known of its inputs; k-means", w->name);
    return true;
}

bool guide_layer(void *context, int64_t layer, struct quant_weight *const *weights, int n, struct err *e)
{
    struct guide *g = context;
    struct guide_state *s = g->state;
    if (layer < s->layer || layer >= s->reference->n_layers)
        return err_set(e, ERR_BUG, "layer %lld after layer %lld of %lld", (long long)layer,
                       (long long)s->layer, (long long)s->reference->n_layers);
    while (s->layer < layer) {
        forget_layer(s);
        bool is_asked_for = s->layer + 1 == layer;
        if (!reference_inputs_next(s->inputs, is_asked_for ? show : NULL, s, e))
            return false;
        if (s->error.code) {
            if (e)
                *e = s->error;
            return false;
        }
        s->layer++;
    }
    for (int i = 0; i < n; i++)
        if (!guide_weight(g, weights[i], e))
            return false;
    return true;
}

/* ---- opening ---- */

static void make_key(struct guide *g)
{
    uint8_t digest[32];
    const struct ids *ids = &g->state->ids;
    sha256(digest, ids->p, ids->n * sizeof *ids->p);
    for (int i = 0; i < 8; i++)
        snprintf(g->key + 2 * i, 3, "%02x", digest[i]);
}

bool guide_begin(void *context, const struct arch_model *m, struct err *e)
{
    struct guide *g = context;
    struct guide_state *s = xcalloc(1, sizeof *s);
    struct reference_options options = {.n_threads = g->n_threads, .log = g->log};
    size_t n_max = (size_t)(g->n_tokens > 0 ? g->n_tokens : GUIDE_TOKENS), n_text = GUIDE_TEXT_TOKENS;
    g->state = s;
    s->layer = s->last_gram = -1;
    if (!calibration_read(g->calibration, m->checkpoint, &s->ids, e) ||
        !reference_open(&s->reference, m->checkpoint, &options, e) || !pool_new(&s->pool, g->n_threads, e))
        return false;
    if (s->ids.n > n_max)
        s->ids.n = n_max;
    if (n_text > (size_t)s->reference->max_positions)
        n_text = (size_t)s->reference->max_positions;
    g->n_used = (int64_t)s->ids.n;
    make_key(g);
    return reference_inputs_new(&s->inputs, s->reference, s->ids.p, s->ids.n, n_text, e);
}

void guide_say(const struct guide *g)
{
    log_info(g->log, "error feedback by %lld tokens: %d weights", (long long)g->n_used, g->n_guided);
    if (g->n_unguided > 0)
        log_warn(g->log, "%d weights whose inputs are not known got k-means", g->n_unguided);
    if (g->n_used < GUIDE_TOKENS_FEW && g->n_guided > 0)
        log_warn(
            g->log,
            "%lld tokens say little about the inputs: some thousand of text like the model's use are better",
            (long long)g->n_used);
}

void guide_close(struct guide *g)
{
    struct guide_state *s = g->state;
    if (!s)
        return;
    forget_layer(s);
    free(s->grams);
    free(s->matrices);
    free(s->last);
    reference_inputs_free(s->inputs);
    reference_close(s->reference);
    pool_free(s->pool);
    ids_free(&s->ids);
    free(s);
    g->state = NULL;
}
