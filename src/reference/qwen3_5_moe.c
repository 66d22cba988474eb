/* Qwen3.5's MLP: one gated block, or the chosen ones of many experts and one that every token shares.
 *
 * Mixture: p = softmax(router x); the k largest, divided by their sum, weigh their experts' results; the shared
 * expert counts with sigmoid(shared_gate x).
 */
#include <math.h>
#include <string.h>
#include "reference/qwen3_5.h"

/* ---- tensors ---- */

static bool find_gated(struct reference *r, const char *name, int64_t size, struct gated *g, struct err *e)
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

static bool find_packed(struct reference *r, const struct qwen3_5 *q, const char *name, struct experts *x,
                        struct err *e)
{
    int64_t h = r->hidden_size, size = q->expert_size;
    int64_t gate_up_shape[3] = {q->n_experts, 2 * size, h}, down_shape[3] = {q->n_experts, h, size};
    const struct st_tensor *gate_up, *down;
    const char *full = arena_printf(r->parts->arena, "%s.experts.gate_up_proj", name);
    if (!reference_require_shape(r, full, 3, gate_up_shape, &gate_up, e))
        return false;
    full = arena_printf(r->parts->arena, "%s.experts.down_proj", name);
    if (!reference_require_shape(r, full, 3, down_shape, &down, e))
        return false;
    for (int64_t i = 0; i < q->n_experts; i++) {
        x->each[i].gate = view(r, gate_up, 2 * size * i, size, h);
        x->each[i].up = view(r, gate_up, 2 * size * i + size, size, h);
        x->each[i].down = view(r, down, h * i, h, size);
    }
    return true;
}

bool reference_qwen3_5_find_experts(struct reference *r, const struct qwen3_5 *q, int64_t i_layer,
                                    struct experts *x, struct err *e)
{
    struct arena *a = r->parts->arena;
    const char *name = arena_printf(a, "model.layers.%lld.mlp", (long long)i_layer);
    if (!reference_require(r, arena_printf(a, "%s.gate.weight", name), q->n_experts, r->hidden_size,
                           &x->router, e))
        return false;
    if (!reference_require(r, arena_printf(a, "%s.shared_expert_gate.weight", name), 1, r->hidden_size,
                           &x->shared_gate, e))
        return false;
    if (!find_gated(r, arena_printf(a, "%s.shared_expert", name), q->shared_size, &x->shared, e))
        return false;
    x->each = ARENA_ARRAY(a, struct gated, q->n_experts);
    if (!checkpoint_has(r->parts->names, arena_printf(a, "%s.experts.0.gate_proj.weight", name)))
        return find_packed(r, q, name, x, e);
    for (int64_t i = 0; i < q->n_experts; i++) {
        if (!find_gated(r, arena_printf(a, "%s.experts.%lld", name, (long long)i), q->expert_size,
                        &x->each[i], e))
            return false;
    }
    return true;
}

/* ---- maths ---- */

static void run_gated(struct reference_session *s, const struct gated *g, const float *x, int64_t n, float *y)
{
    struct qwen3_5_work *w = s->own;
    int64_t size = g->gate->shape[0];
    reference_linear(s, g->gate, NULL, x, n, w->gate);
    reference_linear(s, g->up, NULL, x, n, w->up);
    for (int64_t i = 0; i < n * size; i++)
        w->gate[i] = reference_silu(w->gate[i]) * w->up[i];
    reference_linear(s, g->down, NULL, w->gate, n, y);
}

/* weight [E]: the k largest of softmax(logits) over their sum, 0 elsewhere; probability: room for E */
static void choose(const float *logits, int64_t n, int64_t k, float *probability, float *weight)
{
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
    for (int64_t i = 0; i < n; i++)
        weight[i] = (float)((double)weight[i] / chosen);
}

static void run_experts(struct reference_session *s, const struct experts *x, int64_t n, float *out)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    struct qwen3_5_work *w = s->own;
    int64_t h = s->reference->hidden_size, n_experts = q->n_experts;
    size_t row_bytes = (size_t)h * sizeof *out;
    reference_linear(s, x->router, NULL, w->h, n, w->weight);
    for (int64_t t = 0; t < n; t++) {
        float *row = w->weight + t * n_experts;
        memcpy(w->probabilities + t * n_experts, row, (size_t)n_experts * sizeof *row);
        choose(w->probabilities + t * n_experts, n_experts, q->n_chosen, w->probabilities + t * n_experts,
               row);
    }
    memset(out, 0, (size_t)n * row_bytes);
    for (int64_t i = 0; i < n_experts; i++) {
        int64_t n_picked = 0;
        for (int64_t t = 0; t < n; t++)
            if (w->weight[t * n_experts + i] > 0)
                memcpy(w->picked + n_picked++ * h, w->h + t * h, row_bytes);
        if (n_picked == 0)
            continue;
        run_gated(s, &x->each[i], w->picked, n_picked, w->result);
        const float *from = w->result;
        for (int64_t t = 0; t < n; t++) {
            float weight = w->weight[t * n_experts + i];
            if (!(weight > 0))
                continue;
            for (int64_t c = 0; c < h; c++)
                out[t * h + c] += weight * from[c];
            from += h;
        }
    }
    run_gated(s, &x->shared, w->h, n, w->result);
    reference_linear(s, x->shared_gate, NULL, w->h, n, w->weight);
    for (int64_t t = 0; t < n; t++) {
        float share = 1.0f / (1.0f + expf(-w->weight[t]));
        for (int64_t c = 0; c < h; c++)
            out[t * h + c] += share * w->result[t * h + c];
    }
}

void reference_qwen3_5_mlp(struct reference_session *s, const struct qwen3_5_layer *l, int64_t n, float *out)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    struct qwen3_5_work *w = s->own;
    const struct st_tensor *const *matrix = l->tensors.matrix;
    const struct gated dense = {matrix[DECODER_GATE], matrix[DECODER_UP], matrix[DECODER_DOWN]};
    if (q->is_moe)
        run_experts(s, &l->experts, n, out);
    else
        run_gated(s, &dense, w->h, n, out);
}
