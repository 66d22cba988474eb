/* Rows are compared while a call's outputs are still in place, so memory is one batch whatever the prompt's length: the
 * watcher of the package feeds the reference as far as the package has come. */
#include "measure/check_layers.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"

struct check_layers {
    const struct model *model;
    struct reference *reference;
    struct check_layers_found found;
    float *rows; /* [n_layers + 2, capacity, hidden]: the reference's for positions from begin on */
    int64_t begin, n_rows, capacity;
    double stream_factor; /* of the package's rows, for the checkpoint's: its stream may be scaled */
    /* of a feed in progress */
    struct reference_session *r;
    const int32_t *tokens; /* that of position `first` comes first */
    int64_t first;
    bool failed;
    struct err e;
    const float *before; /* the package's rows behind the layer before, of the same call */
    int64_t before_layer;
};

const char *check_state_name(enum reference_state_kind kind)
{
    static const char *const names[] = {"keys", "values", "memory", "window"};
    return names[kind];
}

/* ---- rows ---- */

struct sums {
    double ab, aa, bb, dd;
    bool is_finite;
};

static void sums_add(struct sums *s, double a, double b)
{
    s->ab += a * b;
    s->aa += a * a;
    s->bb += b * b;
    s->dd += (a - b) * (a - b);
    s->is_finite = s->is_finite && isfinite(a) && isfinite(b);
}

/* Of a, the reference, and b. Two rows of zeros are the same, one alone is as far away as can be. */
static double sums_cosine(const struct sums *s)
{
    if (s->aa == 0 || s->bb == 0)
        return s->aa == s->bb ? 1 : 0;
    return s->ab / sqrt(s->aa * s->bb);
}

static double sums_error(const struct sums *s)
{
    return s->dd == 0 ? 0 : s->aa == 0 ? INFINITY : sqrt(s->dd / s->aa);
}

static void collect(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    struct check_layers *l = context;
    int64_t h = l->reference->hidden_size;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = position + i - l->begin;
        if (at >= 0 && at < l->capacity)
            memcpy(l->rows + ((layer + 1) * l->capacity + at) * h, rows + i * h, sizeof *rows * (size_t)h);
    }
}

/* The reference up to the end of the package's call. */
static void catch_up(struct check_layers *l, int64_t position, int64_t n)
{
    int64_t at = reference_session_position(l->r);
    if (l->failed || position + n <= at)
        return;
    l->begin = at;
    l->n_rows = position + n - at;
    if (l->n_rows > l->capacity)
        l->failed = true, err_set(&l->e, ERR_BUG, "a call of %lld tokens", (long long)l->n_rows);
    else
        l->failed = !reference_feed(l->r, l->tokens + (at - l->first), (size_t)l->n_rows, NULL, NULL, &l->e);
}

static void compare_row(struct check_layers *l, int64_t layer, int64_t at, const float *row,
                        const float *before)
{
    int64_t h = l->reference->hidden_size;
    const float *want = l->rows + ((layer + 1) * l->capacity + at) * h, *want_before = want - l->capacity * h;
    struct check_layer *t = &l->found.layers[layer + 1];
    struct sums s = {.is_finite = true}, added = {.is_finite = true};
    double factor = layer < l->found.n_layers ? l->stream_factor : 1; /* the final norm undoes the scale */
    for (int64_t i = 0; i < h; i++) {
        sums_add(&s, (double)want[i], (double)row[i] * factor);
        if (before)
            sums_add(&added, (double)want[i] - (double)want_before[i],
                     ((double)row[i] - (double)before[i]) * factor);
    }
    if (!s.is_finite) {
        t->n_not_finite++;
        return;
    }
    double cosine = sums_cosine(&s);
    t->min_cosine = t->n == 0 ? cosine : fmin(t->min_cosine, cosine);
    t->sum_cosine += cosine;
    t->max_error = fmax(t->max_error, sums_error(&s));
    t->n++;
    if (before) {
        double other = sums_cosine(&added);
        t->min_added = t->n_added == 0 ? other : fmin(t->min_added, other);
        t->sum_added += other;
        t->added_ab += added.ab;
        t->added_aa += added.aa;
        t->n_added++;
    }
}

static void watch(void *context, int64_t layer, int64_t position, int64_t n, const float *rows)
{
    struct check_layers *l = context;
    int64_t h = l->reference->hidden_size;
    if (layer == -1)
        catch_up(l, position, n);
    if (layer == SESSION_FINAL_NORM)
        layer = l->found.n_layers;
    if (l->failed || layer > l->found.n_layers)
        return;
    const float *before =
        layer >= 0 && layer < l->found.n_layers && l->before_layer == layer - 1 ? l->before : NULL;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = position + i - l->begin;
        if (at >= 0 && at < l->n_rows)
            compare_row(l, layer, at, rows + i * h, before ? before + i * h : NULL);
    }
    l->before = rows;
    l->before_layer = layer;
}

bool check_layers_feed(struct check_layers *l, struct reference_session *r, struct session *s,
                       const int32_t *tokens, size_t n, struct progress *progress, struct err *e)
{
    l->r = r;
    l->tokens = tokens;
    l->first = session_position(s);
    reference_watch(r, collect, l);
    session_watch(s, watch, l);
    bool ok = session_feed(s, tokens, n, SESSION_CONTRACT, NULL, NULL, progress, e);
    session_watch(s, NULL, NULL);
    reference_watch(r, NULL, NULL);
    if (l->failed) {
        *e = l->e;
        return false;
    }
    return ok;
}

/* ---- states ---- */

/* Where the package keeps what the reference has as [heads or rows, n, width] of a layer. */
struct place {
    const struct backend_state *state;
    int64_t first;   /* element of the first head or row */
    int64_t stride;  /* from head to head */
    int64_t base;    /* position of slot 0 of a cache */
    int64_t n_slots; /* of a cache; 0: none */
    double factor;   /* of what is stored */
};

/* How many layers before this one have such a state. */
static int64_t ordinal(const struct reference_session *r, int64_t layer, enum reference_state_kind kind)
{
    struct reference_state s;
    int64_t n = 0;
    for (int64_t i = 0; i < layer; i++)
        n += reference_state(r, i, kind, &s);
    return n;
}

/* The state whose list of layers in meta.yaml has this one, and the place in the list. */
static const struct meta_state *listed(const struct meta *m, int64_t layer, const char *name, int64_t *slot)
{
    for (int i = 0; i < m->n_states; i++)
        for (int k = 0; k < m->states[i].n_layers; k++)
            if (m->states[i].layers[k] == layer && m->states[i].name &&
                strncmp(m->states[i].name, name, strlen(name)) == 0) {
                *slot = k;
                return &m->states[i];
            }
    return NULL;
}

static bool find_cache(const struct check_layers *l, const struct reference_session *r,
                       const struct session *session, int64_t layer, enum reference_state_kind kind,
                       const struct reference_state *want, struct place *p)
{
    const struct meta *meta = l->model->package->meta;
    const struct backend_state *e = session_find_state(session, STATE_KV_CACHE);
    int64_t slot = ordinal(r, layer, REFERENCE_KEYS), head = 0;
    if (e) { /* keys of all layers, then values of all layers */
        slot += kind == REFERENCE_VALUES ? e->dims[0] / 2 : 0;
    } else { /* a slot for both of a layer; in ANEMLL's form values of all layers behind the keys of all */
        const struct meta_state *s = listed(meta, layer, STATE_KV_CACHE_STEM, &slot);
        e = s ? session_find_state(session, s->name) : NULL;
        bool is_split = e && e->rank == 4 && e->dims[0] == 2 * s->n_layers;
        if (kind == REFERENCE_VALUES && is_split)
            slot += s->n_layers;
        else if (kind == REFERENCE_VALUES)
            head = want->shape[0];
    }
    if (!e || e->rank != 4 || slot >= e->dims[0] || head + want->shape[0] > e->dims[1] ||
        e->dims[3] != want->shape[2])
        return false;
    p->state = e;
    p->stride = e->dims[2] * e->dims[3];
    p->first = (slot * e->dims[1] + head) * p->stride;
    p->n_slots = e->dims[2];
    p->factor = 1;
    int64_t end = reference_session_position(r), batch = l->model->batch_size;
    if (e->dims[2] == l->model->mask_length)
        p->base = 0;
    else if (e->dims[2] == l->model->rotate_from) /* fills, then drops what a call adds */
        p->base = end <= e->dims[2] ? 0 : end - e->dims[2];
    else if (e->dims[2] == meta->local_attention_window + batch) /* drops what a call adds */
        p->base = end - e->dims[2];
    else /* shifts by blocks */
        p->base = ((end - 1) / batch + 1) * batch - e->dims[2];
    return true;
}

static bool find_recurrent(const struct reference_session *r, const struct session *session, int64_t layer,
                           enum reference_state_kind kind, const struct reference_state *want,
                           struct place *p)
{
    bool is_memory = kind == REFERENCE_MEMORY;
    const struct backend_state *e = session_find_state(session, is_memory ? STATE_GDN : STATE_CONV);
    int64_t n = 1, total = 1;
    for (int i = 0; i < want->rank; i++)
        n *= want->shape[i];
    if (!e || e->rank != 3)
        return false;
    for (int i = 0; i < 3; i++)
        total *= e->dims[i];
    p->state = e;
    p->first = ordinal(r, layer, kind) * n;
    p->factor = is_memory ? sqrt((double)want->shape[1]) : 1;
    bool fits = is_memory ? e->dims[1] == want->shape[1] && e->dims[2] == want->shape[2]
                          : e->dims[1] == want->shape[0] && e->dims[2] == want->shape[1];
    return fits && p->first + n <= total;
}

static struct sums compare_state(const struct reference_session *r, const struct reference_state *want,
                                 const struct place *p, const float *have)
{
    struct sums s = {.is_finite = true};
    int64_t n = 1, end = reference_session_position(r), width = want->shape[2];
    for (int i = 0; i < want->rank; i++)
        n *= want->shape[i];
    for (int64_t i = 0; p->n_slots == 0 && i < n; i++)
        sums_add(&s, (double)want->data[i], (double)have[p->first + i] / p->factor);
    for (int64_t head = 0; p->n_slots > 0 && head < want->shape[0]; head++)
        for (int64_t slot = p->base < 0 ? -p->base : 0; slot < p->n_slots && p->base + slot < end; slot++) {
            const float *a = want->data + (head * want->shape[1] + p->base + slot) * width,
                        *b = have + p->first + head * p->stride + slot * width;
            for (int64_t i = 0; i < width; i++)
                sums_add(&s, (double)a[i], (double)b[i]);
        }
    return s;
}

bool check_layers_states(struct check_layers *l, const struct reference_session *r, struct session *s,
                         struct err *e)
{
    const struct backend_states *states = session_states(s);
    int64_t largest = 1;
    for (int i = 0; i < states->n; i++)
        largest = states->list[i].n_elems > largest ? states->list[i].n_elems : largest;
    f16 *halves = mem_try_alloc((size_t)largest * sizeof *halves, e);
    float *values = mem_try_alloc((size_t)largest * sizeof *values, e);
    bool ok = halves && values;
    const struct backend_state *read = NULL; /* what lies in values */
    for (int kind = REFERENCE_KEYS; ok && kind <= REFERENCE_WINDOW; kind++) {
        for (int64_t layer = 0; layer < l->found.n_layers; layer++) {
            enum reference_state_kind k = (enum reference_state_kind)kind;
            struct reference_state want;
            struct place p = {0};
            bool is_cache = k == REFERENCE_KEYS || k == REFERENCE_VALUES;
            if (!reference_state(r, layer, k, &want) ||
                !(is_cache ? find_cache(l, r, s, layer, k, &want, &p)
                           : find_recurrent(r, s, layer, k, &want, &p)))
                continue;
            if (read != p.state) {
                session_read_state(s, p.state, halves);
                f16_to_f32_n(values, halves, (size_t)p.state->n_elems);
                read = p.state;
            }
            struct sums sums = compare_state(r, &want, &p, values);
            l->found.states =
                xrealloc(l->found.states, sizeof *l->found.states * (size_t)(l->found.n_states + 1));
            l->found.states[l->found.n_states++] = (struct check_state){xstrdup(p.state->name),
                                                                        layer,
                                                                        k,
                                                                        sums.is_finite,
                                                                        sums_cosine(&sums),
                                                                        sums_error(&sums),
                                                                        sums.aa > 0 ? sums.ab / sums.aa : 1};
        }
    }
    mem_free(halves);
    mem_free(values);
    return ok;
}

/* ---- making ---- */

static void name_types(struct check_layers *l)
{
    const struct meta *meta = l->model->package->meta;
    l->found.types = xcalloc((size_t)l->found.n_layers + 1, sizeof *l->found.types);
    for (int64_t i = 0; i < l->found.n_layers; i++)
        l->found.types[i] =
            xstrdup(i < meta->n_layer_types && meta->layer_types[i] ? meta->layer_types[i] : "full");
}

bool check_layers_new(struct check_layers **out, const struct model *m, struct reference *r, struct err *e)
{
    struct check_layers *l = xcalloc(1, sizeof *l);
    size_t n;
    *out = l;
    if (m->is_monolithic)
        return err_set(e, ERR_UNSUPPORTED, "%s is one model from token ids to logits, which shows no layers",
                       m->package->path);
    l->stream_factor = m->package->meta->residual_scale > 0 ? 1 / m->package->meta->residual_scale : 1;
    l->model = m;
    l->reference = r;
    l->found.n_layers = r->n_layers;
    l->capacity = m->batch_size;
    l->found.layers = xcalloc((size_t)r->n_layers + 2, sizeof *l->found.layers);
    name_types(l);
    if (!size_mul((size_t)(r->n_layers + 2), (size_t)l->capacity, &n) ||
        !size_mul(n, (size_t)r->hidden_size * sizeof(float), &n))
        return err_set(e, ERR_LIMIT, "%lld layers x %lld tokens x %lld numbers do not fit in memory",
                       (long long)r->n_layers, (long long)l->capacity, (long long)r->hidden_size);
    return (l->rows = mem_try_alloc(n, e)) != NULL;
}

void check_layers_free(struct check_layers *l)
{
    if (!l)
        return;
    for (int64_t i = 0; i < l->found.n_layers; i++)
        free(l->found.types[i]);
    free(l->found.types);
    free(l->found.layers);
    mem_free(l->rows);
    for (int i = 0; i < l->found.n_states; i++)
        free(l->found.states[i].name);
    free(l->found.states);
    free(l);
}

/* ---- what was found ---- */

const struct check_layers_found *check_layers_found(const struct check_layers *l)
{
    return &l->found;
}

void check_layer_name(const struct check_layers_found *l, int64_t layer, char *dst, size_t n)
{
    if (layer < 0)
        snprintf(dst, n, "embeddings");
    else if (layer == l->n_layers)
        snprintf(dst, n, "final norm");
    else
        snprintf(dst, n, "layer %lld (%.20s)", (long long)layer, l->types[layer]);
}

double check_layer_cosine(const struct check_layer *t)
{
    return t->n ? t->sum_cosine / (double)t->n : NAN;
}

double check_layer_added(const struct check_layer *t)
{
    return t->n_added ? t->sum_added / (double)t->n_added : NAN;
}

double check_layer_gain(const struct check_layer *t)
{
    return t->n_added && t->added_aa > 0 ? t->added_ab / t->added_aa : NAN;
}

bool check_layers_worst(const struct check_layers_found *l, int64_t *layer, const struct check_state **state)
{
    const struct check_layer *worst = NULL;
    *state = NULL;
    for (int64_t i = 0; i <= l->n_layers + 1; i++) {
        const struct check_layer *t = &l->layers[i];
        if (t->n > 0 && (!worst || check_layer_cosine(t) < check_layer_cosine(worst)))
            worst = t;
    }
    for (int i = 0; i < l->n_states; i++)
        if (l->states[i].is_finite && (!*state || l->states[i].cosine < (*state)->cosine))
            *state = &l->states[i];
    *layer = worst ? worst - l->layers - 1 : -1;
    return worst != NULL;
}

/* ---- the verdict ---- */

/* What can't be told is within every limit. */
static bool is_outside(double value, double least, double most)
{
    return value < least || value > most;
}

/* What is wrong with a layer or a state, in words; "": nothing. */
static void complain(char dst[128], double cosine, double added, double gain, const struct check_limits *l)
{
    dst[0] = '\0';
    if (is_outside(cosine, l->min_layer_cosine, INFINITY))
        snprintf(dst, 128, "cosine %.10g is below %.10g", cosine, l->min_layer_cosine);
    else if (is_outside(added, l->min_added_cosine, INFINITY))
        snprintf(dst, 128, "what it adds has cosine %.10g, below %.10g", added, l->min_added_cosine);
    else if (is_outside(gain, l->min_gain, l->max_gain))
        snprintf(dst, 128, "its strength is %.4g of the right one, outside %.4g to %.4g", gain, l->min_gain,
                 l->max_gain);
}

void check_layers_judge(const struct check_layers_found *l, const struct check_limits *limits,
                        struct buf *why)
{
    char name[64], what[128];
    /* Those behind the first one have its error in their input. */
    for (int64_t i = -1; i <= l->n_layers; i++) {
        const struct check_layer *t = &l->layers[i + 1];
        check_layer_name(l, i, name, sizeof name);
        if (t->n_not_finite > 0) {
            buf_printf(why, "%s is the first one that is not finite (at %lld positions)\n", name,
                       (long long)t->n_not_finite);
            break;
        }
        complain(what, check_layer_cosine(t), check_layer_added(t), check_layer_gain(t), limits);
        if (what[0]) {
            buf_printf(why, "%s is the first one outside the limits: %s\n", name, what);
            break;
        }
    }
    const struct check_state *first = NULL;
    for (int i = 0; i < l->n_states; i++) {
        const struct check_state *s = &l->states[i];
        complain(what, s->cosine, NAN, s->gain, limits);
        if ((!s->is_finite || what[0]) && (!first || s->layer < first->layer))
            first = s;
    }
    if (!first)
        return;
    complain(what, first->cosine, NAN, first->gain, limits);
    buf_printf(why, "the %s of layer %lld in %s: %s\n", check_state_name(first->kind),
               (long long)first->layer, first->name, first->is_finite ? what : "not finite");
}
