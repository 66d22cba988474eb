/* Mixtures of experts: p = softmax(router x); the k largest, in most families divided by their sum, weigh their experts'
 * results, each down(silu(gate x) * up x). */
#include <math.h>
#include <string.h>
#include "reference/tape.h"

/* ---- tensors ---- */

bool reference_find_gated(struct reference *r, const char *name, int64_t size, struct reference_gated *g,
                          struct err *e)
{
    static const char *const parts[] = {"gate", "up", "down"};
    const struct st_tensor **to[] = {&g->gate, &g->up, &g->down};
    int64_t h = r->hidden_size;
    for (int i = 0; i < 3; i++) {
        const char *full = arena_printf(r->parts->arena, "%s.%s_proj.weight", name, parts[i]);
        if (!reference_require(r, full, i < 2 ? size : h, i < 2 ? h : size, to[i], e))
            return false;
    }
    return true;
}

/* Rows row .. row + rows of a tensor of any rank seen as one list of rows with `columns` numbers. */
static const struct st_tensor *view(struct reference *r, const struct st_tensor *t, int64_t row, int64_t rows,
                                    int64_t columns)
{
    struct st_tensor *v = ARENA_NEW(r->parts->arena, struct st_tensor);
    *v = *t;
    v->rank = 2;
    v->shape[0] = rows;
    v->shape[1] = columns;
    v->n_elems = rows * columns;
    v->bytes = (size_t)v->n_elems * st_dtype_bytes(t->dtype);
    v->data = t->data + (size_t)(row * columns) * st_dtype_bytes(t->dtype);
    return v;
}

static bool find_packed(struct reference *r, const struct config_experts *c, const char *name,
                        struct reference_experts *x, struct err *e)
{
    int64_t h = r->hidden_size, size = c->size;
    int64_t gate_up_shape[3] = {c->n, 2 * size, h}, down_shape[3] = {c->n, h, size};
    const struct st_tensor *gate_up, *down;
    const char *full = arena_printf(r->parts->arena, "%s.experts.gate_up_proj", name);
    if (!reference_require_shape(r, full, 3, gate_up_shape, &gate_up, e))
        return false;
    full = arena_printf(r->parts->arena, "%s.experts.down_proj", name);
    if (!reference_require_shape(r, full, 3, down_shape, &down, e))
        return false;
    for (int64_t i = 0; i < c->n; i++) {
        x->each[i].gate = view(r, gate_up, 2 * size * i, size, h);
        x->each[i].up = view(r, gate_up, 2 * size * i + size, size, h);
        x->each[i].down = view(r, down, h * i, h, size);
    }
    return true;
}

bool reference_find_experts(struct reference *r, int64_t layer, const struct config_experts *c,
                            struct reference_experts *x, struct err *e)
{
    struct arena *a = r->parts->arena;
    const char *name = arena_printf(a, "model.layers.%lld.mlp", (long long)layer);
    if (!reference_require(r, arena_printf(a, "%s.gate.weight", name), c->n, r->hidden_size, &x->router, e))
        return false;
    x->each = ARENA_ARRAY(a, struct reference_gated, c->n);
    if (!checkpoint_has(r->parts->names, arena_printf(a, "%s.experts.0.gate_proj.weight", name)))
        return find_packed(r, c, name, x, e);
    for (int64_t i = 0; i < c->n; i++) {
        if (!reference_find_gated(r, arena_printf(a, "%s.experts.%lld", name, (long long)i), c->size,
                                  &x->each[i], e))
            return false;
    }
    return true;
}

/* ---- work space ---- */

bool reference_experts_take(struct reference_session *s, const struct config_experts *c, int64_t widest,
                            struct reference_experts_work *w, struct err *e)
{
    int64_t batch = s->batch, h = s->reference->hidden_size, n = c->n > 0 ? c->n : 1;
    w->rows = ARENA_ARRAY(s->arena, int32_t, batch);
    return reference_take(s, &w->gate, batch, widest, 1, e) &&
           reference_take(s, &w->up, batch, widest, 1, e) &&
           reference_take(s, &w->probabilities, batch, n, 1, e) &&
           reference_take(s, &w->weight, batch, n, 1, e) && reference_take(s, &w->picked, batch, h, 1, e) &&
           reference_take(s, &w->result, batch, h, 1, e);
}

/* ---- maths ---- */

void reference_gated_run(struct reference_session *s, const struct reference_gated *g,
                         struct reference_experts_work *w, const float *x, int64_t n, float *y)
{
    int64_t size = g->gate->shape[0];
    reference_linear(s, g->gate, NULL, x, n, w->gate);
    reference_linear(s, g->up, NULL, x, n, w->up);
    reference_gate(s, &(struct reference_gate){.gate = w->gate,
                                               .x = w->up,
                                               .gate_stride = size,
                                               .x_stride = size,
                                               .n = n,
                                               .width = size,
                                               .out = w->gate});
    reference_linear(s, g->down, NULL, w->gate, n, y);
}

/* weight [E]: the k largest of softmax(logits), over their sum where they are normalized, 0 elsewhere; probability: room
 * for E */
static void choose(const struct config_experts *c, const float *logits, float *probability, float *weight)
{
    int64_t n = c->n, k = c->n_chosen;
    float largest = logits[0];
    double sum = 0, chosen = 0;
    for (int64_t i = 0; i < n; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    for (int64_t i = 0; i < n; i++) {
        probability[i] = expf(logits[i] - largest);
        sum += (double)probability[i];
    }
    for (int64_t i = 0; i < n; i++) {
        probability[i] = (float)((double)probability[i] / sum);
        weight[i] = 0;
    }
    for (int64_t round = 0; round < k; round++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if (weight[i] == 0 && (best < 0 || probability[i] > probability[best]))
                best = i;
        /* A probability that vanished would look like one that was not taken; it weighs nothing either way. */
        if (best < 0 || probability[best] == 0)
            break;
        weight[best] = probability[best];
        chosen += (double)probability[best];
    }
    for (int64_t i = 0; c->normalizes && i < n; i++)
        weight[i] = (float)((double)weight[i] / chosen);
}

void reference_pick(struct reference_session *s, const float *from, const int32_t *rows, int64_t n,
                    int64_t width, float *to)
{
    if (s->tape)
        reference_record_pick(s, from, rows, n, width, to);
    for (int64_t k = 0; k < n; k++)
        memcpy(to + k * width, from + rows[k] * width, (size_t)width * sizeof *to);
}

void reference_add_picked(struct reference_session *s, const struct reference_picked *p)
{
    if (s->tape)
        reference_record_add_picked(s, p);
    for (int64_t k = 0; k < p->n; k++) {
        int64_t row = p->rows ? p->rows[k] : k;
        for (int64_t i = 0; i < p->width; i++)
            p->to[row * p->width + i] += p->weight[row * p->stride] * p->from[k * p->width + i];
    }
}

void reference_experts_run(struct reference_session *s, const struct config_experts *c,
                           const struct reference_experts *x, struct reference_experts_work *w,
                           const float *h, int64_t n, float *out)
{
    int64_t width = s->reference->hidden_size;
    reference_linear(s, x->router, NULL, h, n, w->weight);
    for (int64_t t = 0; t < n; t++) {
        float *row = w->weight + t * c->n;
        memcpy(w->probabilities + t * c->n, row, (size_t)c->n * sizeof *row);
        choose(c, w->probabilities + t * c->n, w->probabilities + t * c->n, row);
    }
    if (s->tape)
        reference_record_choose(s, c, w->probabilities, w->weight, n);
    reference_clear(s, out, n * width);
    for (int64_t i = 0; i < c->n; i++) {
        int64_t n_picked = 0;
        for (int64_t t = 0; t < n; t++)
            if (w->weight[t * c->n + i] > 0)
                w->rows[n_picked++] = (int32_t)t;
        if (n_picked == 0)
            continue;
        reference_pick(s, h, w->rows, n_picked, width, w->picked);
        s->input.expert = i + 1;
        reference_gated_run(s, &x->each[i], w, w->picked, n_picked, w->result);
        s->input.expert = 0;
        reference_add_picked(s, &(struct reference_picked){.from = w->result,
                                                           .weight = w->weight + i,
                                                           .rows = w->rows,
                                                           .n = n_picked,
                                                           .width = width,
                                                           .stride = c->n,
                                                           .to = out});
    }
}
