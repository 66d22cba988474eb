/* Layer by layer: inputs, their products, palettes. */
#include "measure/guide.h"
#include <stdlib.h>
#include <string.h>
#include "measure/pieces.h"
#include "measure/replaced.h"
#include "measure/self_text.h"

/* With fewer tokens than these, or than this part of its columns, an input tells how large its numbers are, and no more. */
#define TOKENS_MIN 32
#define COLUMNS_PER_TOKEN 16

struct guide_state {
    struct reference *reference;
    struct reference_inputs *original, *changed; /* changed: through palettes; NULL: no one asks */
    struct pool *pool;
    struct ids ids;
    int64_t layer; /* that is next */
    struct inputs inputs;
    struct replaced *replaced;
    /* of the layer */
    struct pieces *pieces; /* [n_weights] */
    int n_weights;
};

/* ---- palettes ---- */

static bool is_thin(const struct input *input)
{
    return input->n_rows < TOKENS_MIN || input->n_rows * COLUMNS_PER_TOKEN < input->n;
}

/* The columns' mean squares, by their mean; NULL: the inputs say nothing. Heap. */
static float *importance_of(const struct inputs *inputs, const struct band *band, int64_t n)
{
    float *list = xmalloc((size_t)n * sizeof *list);
    double sum = 0;
    for (int i = 0; i < band->n_blocks; i++)
        for (int64_t j = 0; j < band->blocks[i].n_columns; j++)
            sum += inputs->list[band->blocks[i].input].squares[j];
    if (!(sum > 0) || sum > 1e300) {
        free(list);
        return NULL;
    }
    for (int i = 0; i < band->n_blocks; i++)
        for (int64_t j = 0; j < band->blocks[i].n_columns; j++) {
            double relative = inputs->list[band->blocks[i].input].squares[j] / (sum / (double)n);
            list[band->blocks[i].column + j] = (float)(relative > 1e-6 ? relative : 1e-6);
        }
    return list;
}

/* Tables and nearest entries of all bands that have none, with what is known of the inputs. */
static bool make_tables(struct guide *g, struct pieces *p, struct err *e)
{
    struct guide_state *s = g->state;
    bool ok = true;
    for (int i = 0; i < p->n_bands && ok; i++) {
        struct band *band = &p->bands[i];
        if (band->is_made)
            continue;
        float *importance = importance_of(&s->inputs, band, p->weight->columns);
        ok = quant_make_nearest(p->weight, band->row, band->n_rows, importance, s->pool, e);
        band->is_made = true;
        free(importance);
    }
    return ok;
}

/* All blocks with this input. */
static bool use_guide(struct guide *g, int input, const struct quant_guide *guide, struct err *e)
{
    struct guide_state *s = g->state;
    for (int i = 0; i < s->n_weights; i++) {
        struct pieces *p = &s->pieces[i];
        for (int b = 0; b < p->n_bands; b++) {
            const struct band *band = &p->bands[b];
            for (int k = 0; k < band->n_blocks; k++) {
                const struct block *block = &band->blocks[k];
                struct quant_piece at = {band->row, band->n_rows, block->column, block->n_columns, guide};
                if (block->input == input &&
                    (log_cancelled(g->log, e) || !quant_make_piece(p->weight, &at, s->pool, e)))
                    return false;
            }
        }
    }
    return true;
}

static bool is_used(const struct guide_state *s, int input)
{
    for (int i = 0; i < s->n_weights; i++)
        for (int b = 0; b < s->pieces[i].n_bands; b++)
            for (int k = 0; k < s->pieces[i].bands[b].n_blocks; k++)
                if (s->pieces[i].bands[b].blocks[k].input == input)
                    return true;
    return false;
}

/* What the sums of a run are good for; they go. */
static bool use_sums(struct guide *g, struct err *e)
{
    struct guide_state *s = g->state;
    bool ok = true;
    for (int i = 0; i < s->inputs.n && ok; i++) {
        struct input *input = &s->inputs.list[i];
        struct quant_guide *guide = NULL;
        if (!input->sum)
            continue;
        if (is_used(s, i) && !is_thin(input))
            ok = quant_guide_make(&guide, input->sum, input->cross, input->n, g->method == QUANT_BEST,
                                  s->pool, e);
        inputs_drop(input);
        input->is_done = true;
        ok = ok && (!guide || use_guide(g, i, guide, e));
        quant_guide_free(guide);
    }
    return ok;
}

/* ---- a layer ---- */

static bool run(struct guide_state *s, struct reference_inputs *text, enum input_task task, int stage,
                bool is_finish, struct err *e)
{
    struct reference_replacement numbers = replaced_numbers(s->replaced);
    inputs_start(&s->inputs, task, stage);
    bool ok = is_finish ? reference_inputs_finish(text, inputs_show, &s->inputs, e)
                        : reference_inputs_run(text, text == s->changed ? &numbers : NULL, inputs_show,
                                               &s->inputs, e);
    if (ok && s->inputs.error.code) {
        if (e)
            *e = s->inputs.error;
        ok = false;
    }
    return ok;
}

/* Finds what the weights' inputs are, after the first run. */
static bool find_pieces(struct guide *g, struct quant_weight *const *weights, int n, struct err *e)
{
    struct guide_state *s = g->state;
    s->pieces = xcalloc((size_t)n + 1, sizeof *s->pieces);
    for (int i = 0; i < n; i++) {
        struct pieces *p = &s->pieces[s->n_weights];
        if (!pieces_find(p, weights[i], &s->inputs)) {
            pieces_fini(p);
            g->n_unguided++;
            log_debug(g->log, "%s: nothing is known of its inputs; k-means", weights[i]->name);
            continue;
        }
        s->n_weights++;
        g->n_guided++;
        if (!(p->made = quant_made_new(weights[i], e)))
            return err_wrap(e, "%s", weights[i]->name);
    }
    return true;
}

/* Weights with an input that has too few tokens. */
static void count_thin(struct guide *g)
{
    struct guide_state *s = g->state;
    for (int i = 0; i < s->n_weights; i++) {
        const struct pieces *p = &s->pieces[i];
        int n_thin = 0, n = 0;
        for (int b = 0; b < p->n_bands; b++)
            for (int k = 0; k < p->bands[b].n_blocks; k++, n++)
                n_thin += is_thin(&s->inputs.list[p->bands[b].blocks[k].input]);
        g->n_thin += n_thin > 0;
        if (n_thin > 0)
            log_debug(g->log, "%s: too few tokens for %d of %d inputs; nearest entries there",
                      p->weight->name, n_thin, n);
    }
}

/* Palettes of the weights whose inputs are known up to this stage; -1: all. */
static bool make_stage_tables(struct guide *g, int stage, struct err *e)
{
    struct guide_state *s = g->state;
    for (int i = 0; i < s->n_weights; i++)
        if ((stage < 0 || s->pieces[i].stage == stage) && !make_tables(g, &s->pieces[i], e))
            return false;
    return true;
}

/* All weights with the inputs of the original. The first run knows no weights yet. */
static bool make_layer(struct guide *g, struct quant_weight *const *weights, int n, bool is_finish,
                       struct err *e)
{
    struct guide_state *s = g->state;
    enum input_task task = g->method == QUANT_ACTIVATION ? INPUTS_SQUARE : INPUTS_SUM;
    bool is_first = true;
    do {
        if (!run(s, s->original, task, 0, is_finish, e))
            return false;
        if (is_first && (!find_pieces(g, weights, n, e) || !make_stage_tables(g, -1, e)))
            return false;
        if (is_first)
            count_thin(g);
        is_first = false;
        if (!use_sums(g, e))
            return false;
    } while (s->inputs.was_short);
    return true;
}

static bool replace_stage(struct guide_state *s, int stage, struct err *e)
{
    for (int i = 0; i < s->n_weights; i++) {
        const struct pieces *p = &s->pieces[i];
        if (p->stage == stage &&
            !replaced_add(s->replaced, p->weight, p->made->codes, false, p->made->tables, e))
            return false;
    }
    return true;
}

/* Stage after stage with the inputs that come through the palettes before. */
static bool make_layer_after(struct guide *g, struct quant_weight *const *weights, int n, bool is_finish,
                             struct err *e)
{
    struct guide_state *s = g->state;
    if (!run(s, s->original, INPUTS_KEEP, 0, is_finish, e) || !find_pieces(g, weights, n, e))
        return false;
    count_thin(g);
    for (int stage = 0; stage < s->inputs.n_stages; stage++) {
        bool is_asked_for = false;
        for (int i = 0; i < s->n_weights; i++)
            is_asked_for = is_asked_for || s->pieces[i].stage >= stage;
        if (!is_asked_for)
            break;
        if (!make_stage_tables(g, stage, e))
            return false;
        do {
            if (!run(s, s->changed, INPUTS_COMPARE, stage, is_finish, e) || !use_sums(g, e))
                return false;
        } while (s->inputs.was_short);
        if (!replace_stage(s, stage, e))
            return false;
    }
    return is_finish || !s->changed || run(s, s->changed, INPUTS_NOTHING, 0, false, e);
}

static void forget_layer(struct guide_state *s)
{
    for (int i = 0; i < s->n_weights; i++)
        pieces_fini(&s->pieces[i]);
    free(s->pieces);
    s->pieces = NULL;
    s->n_weights = 0;
    replaced_clear(s->replaced);
    inputs_begin(&s->inputs);
}

static void go_on(struct guide_state *s)
{
    reference_inputs_go_on(s->original);
    if (s->changed)
        reference_inputs_go_on(s->changed);
    s->layer++;
}

/* Layers that nobody asks for. */
static bool skip_to(struct guide_state *s, int64_t layer, struct err *e)
{
    for (; s->layer < layer; go_on(s)) {
        if (!reference_inputs_run(s->original, NULL, NULL, NULL, e) ||
            (s->changed && !reference_inputs_run(s->changed, NULL, NULL, NULL, e)))
            return false;
    }
    return true;
}

bool guide_layer(void *context, int64_t layer, struct quant_weight *const *weights, int n, struct err *e)
{
    struct guide *g = context;
    struct guide_state *s = g->state;
    double start = clock_seconds();
    bool is_finish = layer == s->reference->n_layers;
    if (layer < s->layer || layer > s->reference->n_layers)
        return err_set(e, ERR_BUG, "layer %lld after layer %lld of %lld", (long long)layer,
                       (long long)s->layer - 1, (long long)s->reference->n_layers);
    forget_layer(s);
    if (!skip_to(s, layer, e) || !(s->changed ? make_layer_after(g, weights, n, is_finish, e)
                                              : make_layer(g, weights, n, is_finish, e)))
        return false;
    if (!is_finish)
        go_on(s);
    g->seconds += clock_seconds() - start;
    return true;
}

/* ---- opening ---- */

/* Multiplications and additions a second, by all threads, of products like those that take the most time. */
static double measure_speed(struct pool *pool)
{
    enum { N = 512, ROWS = 256 };
    float *a = xcalloc((size_t)ROWS * N, sizeof *a), *b = xcalloc((size_t)N * N, sizeof *b);
    float *c = xcalloc((size_t)ROWS * N, sizeof *c);
    double start = clock_seconds();
    quant_products_add(c, a, ROWS, b, N, pool);
    double seconds = clock_seconds() - start;
    free(a);
    free(b);
    free(c);
    return (double)ROWS * N * N / (seconds > 1e-6 ? seconds : 1e-6);
}

/* About how long it will take: passes over the matrices, and the products of inputs beside them. */
static void say_estimate(const struct guide *g, const struct arch_model *m)
{
    double passes = g->method == QUANT_BEST ? 6 : g->method == QUANT_FEEDBACK ? 2 : 1, n_numbers = 0;
    for (int i = 0; i < m->tensors->n_tensors; i++)
        if (m->tensors->tensors[i].rank >= 2 && arch_layer_of(m->tensors->tensors[i].name) >= 0)
            n_numbers += (double)m->tensors->tensors[i].n_elems;
    if (m->n_experts > 0)
        n_numbers *= (double)m->n_chosen / (double)m->n_experts;
    double minutes = passes * n_numbers * (double)g->n_used / measure_speed(g->state->pool) / 60;
    if (minutes > 0.5)
        log_info(g->log, "palettes by %lld tokens, %s: about %.0f minutes", (long long)g->n_used,
                 quant_method_name(g->method), minutes);
}

bool guide_begin(void *context, const struct arch_model *m, struct err *e)
{
    struct guide *g = context;
    struct guide_state *s = xcalloc(1, sizeof *s);
    struct reference_options options = {.n_threads = g->n_threads, .log = g->log};
    size_t n_max = (size_t)(g->n_tokens > 0 ? g->n_tokens : GUIDE_TOKENS), n_text;
    bool is_self = g->calibration->from && strcmp(g->calibration->from, CALIBRATION_SELF) == 0;
    g->state = s;
    s->replaced = replaced_new();
    if (!reference_open(&s->reference, m->checkpoint, &options, e) || !pool_new(&s->pool, g->n_threads, e))
        return false;
    n_text = is_self ? SELF_TEXT_TOKENS : GUIDE_TEXT_TOKENS;
    if (n_text > (size_t)s->reference->max_positions)
        n_text = (size_t)s->reference->max_positions;
    g->calibration->n_text = (int64_t)n_text;
    if (!calibration_read(g->calibration, m->checkpoint, &s->ids, e))
        return false;
    s->inputs.pool = s->pool;
    s->inputs.bytes_max = g->memory ? g->memory : GUIDE_MEMORY;
    if (s->ids.n > n_max)
        s->ids.n = n_max;
    g->n_used = (int64_t)s->ids.n;
    calibration_key(&g->state->ids, g->key);
    say_estimate(g, m);
    return reference_inputs_new(&s->original, s->reference, s->ids.p, s->ids.n, n_text, e) &&
           (g->method != QUANT_BEST ||
            reference_inputs_new(&s->changed, s->reference, s->ids.p, s->ids.n, n_text, e));
}

void guide_say(const struct guide *g)
{
    log_info(g->log, "%s by %lld tokens: %d weights in %.1f s", quant_method_name(g->method),
             (long long)g->n_used, g->n_guided, g->seconds);
    if (g->n_unguided > 0)
        log_warn(g->log, "%d weights whose inputs are not known got k-means", g->n_unguided);
    if (g->n_thin > 0)
        log_warn(g->log, "%d weights have inputs with too few tokens; nearest entries there", g->n_thin);
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
    inputs_fini(&s->inputs);
    replaced_free(s->replaced);
    reference_inputs_free(s->original);
    reference_inputs_free(s->changed);
    reference_close(s->reference);
    pool_free(s->pool);
    ids_free(&s->ids);
    free(s);
    g->state = NULL;
}
