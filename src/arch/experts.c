/* A mixture of experts, evaluated densely. */
#include "arch/experts.h"
#include <stdio.h>
#include <stdlib.h>

#define AXIS_MAX 16384 /* of a convolution's channels on older Neural Engines */

/* ---- tensors ---- */

static const struct st_tensor *find(struct arch_model *m, int64_t layer, const char *name, int rank,
                                    int64_t a, int64_t b, int64_t c, struct err *e)
{
    const int64_t shape[3] = {a, b, c};
    return arch_require_tensor(m, arena_printf(m->arena, "model.layers.%lld.mlp.%s", (long long)layer, name),
                               rank, shape, e);
}

static bool find_one(struct arch_model *m, int64_t layer, int64_t i, const struct config_experts *c,
                     struct experts *t, struct err *e)
{
    const struct {
        const char *name;
        const struct st_tensor **to;
        bool is_down;
    } parts[] = {{"gate", &t->gate[i], false}, {"up", &t->up[i], false}, {"down", &t->down[i], true}};
    for (int k = 0; k < 3; k++) {
        char name[64];
        snprintf(name, sizeof name, "experts.%lld.%s_proj.weight", (long long)i, parts[k].name);
        *parts[k].to = parts[k].is_down ? find(m, layer, name, 2, m->hidden_size, c->size, 0, e)
                                        : find(m, layer, name, 2, c->size, m->hidden_size, 0, e);
        if (!*parts[k].to)
            return false;
    }
    return true;
}

bool experts_find(struct arch_model *m, int64_t layer, const struct config_experts *c, struct experts *out,
                  struct err *e)
{
    int64_t h = m->hidden_size;
    const char *first =
        arena_printf(m->arena, "model.layers.%lld.mlp.experts.0.gate_proj.weight", (long long)layer);
    out->router = find(m, layer, "gate.weight", 2, c->n, h, 0, e);
    if (!out->router)
        return false;
    /* Packed unless there is a tensor of the first expert. */
    out->packed = !arch_has_tensor(m, first);
    out->n = out->packed ? 1 : c->n;
    out->gate = ARENA_ARRAY(m->arena, const struct st_tensor *, out->n);
    out->up = ARENA_ARRAY(m->arena, const struct st_tensor *, out->n);
    out->down = ARENA_ARRAY(m->arena, const struct st_tensor *, out->n);
    if (out->packed) {
        out->gate[0] = find(m, layer, "experts.gate_up_proj", 3, c->n, 2 * c->size, h, e);
        if (!out->gate[0])
            return false;
        out->down[0] = find(m, layer, "experts.down_proj", 3, c->n, h, c->size, e);
        return out->down[0] != NULL;
    }
    for (int64_t i = 0; i < out->n; i++)
        if (!find_one(m, layer, i, c, out, e))
            return false;
    return true;
}

/* ---- weights ---- */

/* Experts begin .. begin + n of projections [E, I, H] as one [n * I, H, 1, 1]; of the packed tensor, whose
 * experts hold 2 * I rows, I rows from `row` on. */
static const struct mil_value *expert_rows(struct mil_model *out, const struct config_experts *c,
                                           int64_t hidden, const struct st_tensor *const *tensors,
                                           bool packed, int64_t row, int64_t begin, int64_t n)
{
    int64_t size = c->size, dims[4] = {n * size, hidden, 1, 1};
    struct arch_layout l = arch_layout_of(packed ? tensors : tensors + begin, n * size, hidden);
    l.row_block = size;
    if (packed) {
        l.offset = (begin * 2 * size + row) * hidden;
        l.row_block_stride = 2 * size * hidden;
    } else {
        l.n_tensors = n;
    }
    return arch_layout_weight(out, &l, 4, dims);
}

/* Down projections [E, H, I] side by side: [H, n * I, 1, 1] */
static const struct mil_value *expert_columns(struct mil_model *out, const struct config_experts *c,
                                              int64_t hidden, const struct st_tensor *const *tensors,
                                              bool packed, int64_t begin, int64_t n, double factor)
{
    int64_t size = c->size, dims[4] = {hidden, n * size, 1, 1};
    struct arch_layout l = arch_layout_of(packed ? tensors : tensors + begin, hidden, n * size);
    l.factor = factor;
    l.row_stride = size;
    l.column_block = size;
    if (packed) {
        l.offset = begin * hidden * size;
        l.column_block_stride = hidden * size;
    } else {
        l.n_tensors = n;
    }
    return arch_layout_weight(out, &l, 4, dims);
}

const struct mil_value *experts_order(const struct arch_model *m, const struct config_experts *c,
                                      int64_t n_tokens, struct mil_model *out)
{
    if (!m->settings.exact_topk)
        return NULL;
    int64_t n = c->n, dims[4] = {1, n, 1, n_tokens};
    f16 *order = xmalloc(sizeof *order * (size_t)(n * n_tokens));
    for (int64_t i = 0; i < n * n_tokens; i++)
        order[i] = f64_to_f16((double)(n - i / n_tokens));
    const struct mil_value *v = mil_value_new(out, MIL_FP16, 4, dims, order);
    free(order);
    return v;
}

struct experts_values experts_values(const struct arch_model *m, const struct config_experts *c,
                                     const struct experts *t, struct mil_model *out)
{
    struct experts_values v = {0};
    int64_t router_dims[4] = {c->n, m->hidden_size, 1, 1};
    struct arch_layout router = arch_layout_of(&t->router, c->n, m->hidden_size);
    router.keep_fp16 = true;
    v.router = arch_layout_weight(out, &router, 4, router_dims);
    v.group_size = AXIS_MAX / c->size;
    v.group_size = v.group_size < 1 ? 1 : v.group_size > c->n ? c->n : v.group_size;
    v.n_groups = (int)((c->n + v.group_size - 1) / v.group_size);
    v.groups = ARENA_ARRAY(out->arena, struct gated_values, v.n_groups);
    for (int i = 0; i < v.n_groups; i++) {
        int64_t begin = i * v.group_size;
        int64_t n = c->n - begin < v.group_size ? c->n - begin : v.group_size;
        const struct st_tensor *const *up = t->packed ? t->gate : t->up;
        v.groups[i].gate = expert_rows(out, c, m->hidden_size, t->gate, t->packed, 0, begin, n);
        v.groups[i].up = expert_rows(out, c, m->hidden_size, up, t->packed, c->size, begin, n);
        v.groups[i].down =
            expert_columns(out, c, m->hidden_size, t->down, t->packed, begin, n, m->settings.residual_scale);
    }
    return v;
}

/* ---- graph ---- */

/* silu(gate x) * up x */
static struct mil_var *gated_hidden(struct mil_builder *b, int64_t layer, const char *name,
                                    const struct gated_values *w, struct mil_var *x)
{
    struct arena *a = mil_builder_arena(b);
    struct mil_var *gate =
        block_linear(b, x, w->gate, NULL, arch_layer_name(b, layer, arena_printf(a, "%s_gate_proj", name)));
    struct mil_var *up =
        block_linear(b, x, w->up, NULL, arch_layer_name(b, layer, arena_printf(a, "%s_up_proj", name)));
    return block_binary(b, "mul", block_silu(b, gate), up, NULL);
}

struct mil_var *experts_build_gated(struct mil_builder *b, int64_t layer, const char *name,
                                    const struct gated_values *w, struct mil_var *x)
{
    return block_linear(b, gated_hidden(b, layer, name, w, x), w->down, NULL,
                        arch_layer_name(b, layer, arena_printf(mil_builder_arena(b), "%s_down_proj", name)));
}

/* probability [1, E, 1, T] -> those not below the k-th largest of each token, as a bool. k - 1 rounds take away the
 * largest, and equal ones with it: where fp16 makes weights equal, more than k can stay. */
static struct mil_var *above_threshold(struct mil_builder *b, int64_t k, struct mil_var *probability)
{
    struct mil_var *taken = mil_build_f16(b, -1.0, NULL), *left = probability;
    for (int64_t i = 0; i + 1 < k && !mil_builder_failed(b); i++) {
        struct mil_var *largest = block_reduce(b, "reduce_max", left, 1);
        left = block_select(b, block_binary(b, "greater_equal", left, largest, NULL), taken, left);
    }
    struct mil_var *threshold = block_reduce(b, "reduce_max", left, 1);
    return block_binary(b, "greater_equal", probability, threshold, NULL);
}

/* The same for exactly k, however fp16 rounds: one expert a round, among equals the one with the lowest index. */
static struct mil_var *first_of_equals(struct mil_builder *b, int64_t k, struct mil_var *probability,
                                       struct mil_var *order)
{
    struct mil_var *zero = mil_build_f16(b, 0.0, NULL), *taken = mil_build_f16(b, -1.0, NULL);
    struct mil_var *left = probability, *keep = NULL;
    for (int64_t i = 0; i < k; i++) {
        struct mil_var *largest =
            block_binary(b, "greater_equal", left, block_reduce(b, "reduce_max", left, 1), NULL);
        struct mil_var *candidate = block_select(b, largest, order, zero);
        struct mil_var *hit =
            block_binary(b, "equal", candidate, block_reduce(b, "reduce_max", candidate, 1), NULL);
        if (i + 1 < k)
            left = block_select(b, hit, taken, left);
        keep = keep ? block_binary(b, "logical_or", keep, hit, NULL) : hit;
    }
    return keep;
}

/* probability [1, E, 1, T] -> the k largest of each token, over their sum where they are normalized, 0 for the others;
 * order: NULL for the threshold. */
static struct mil_var *top_weights(struct mil_builder *b, const struct config_experts *c,
                                   struct mil_var *probability, const struct mil_value *order,
                                   const char *name)
{
    struct mil_var *keep =
        order ? first_of_equals(b, c->n_chosen, probability, mil_build_const(b, order, "expert_order"))
              : above_threshold(b, c->n_chosen, probability);
    struct mil_var *w = block_select(b, keep, probability, mil_build_f16(b, 0.0, NULL));
    return c->normalizes ? block_binary(b, "real_div", w, block_reduce(b, "reduce_sum", w, 1), name) : w;
}

/* One group's contribution; weights [1, E, 1, T] of all experts. */
static struct mil_var *expert_group(struct mil_builder *b, const struct config_experts *c, int64_t layer,
                                    int i_group, const struct experts_values *w, struct mil_var *x,
                                    struct mil_var *weights)
{
    const struct gated_values *g = &w->groups[i_group];
    int64_t begin = i_group * w->group_size, tokens = mil_type_tensor(x->type)->dims[3];
    int64_t n = c->n - begin < w->group_size ? c->n - begin : w->group_size;
    int64_t apart[4] = {1, n, c->size, tokens}, together[4] = {1, n * c->size, 1, tokens};
    const char *name =
        w->n_groups == 1 ? "mlp_experts" : arena_printf(mil_builder_arena(b), "mlp_experts_%d", i_group);
    struct mil_var *h = block_reshape(b, gated_hidden(b, layer, name, g, x), 4, apart, NULL);
    if (w->n_groups > 1)
        weights = block_slice(b, weights, 1, begin, begin + n, NULL);
    h = block_reshape(b, block_binary(b, "mul", h, weights, NULL), 4, together, NULL);
    return block_linear(b, h, g->down, NULL,
                        arch_layer_name(b, layer, arena_printf(mil_builder_arena(b), "%s_down_proj", name)));
}

struct mil_var *experts_build(struct mil_builder *b, const struct config_experts *c, int64_t layer,
                              const struct experts_values *w, const struct mil_value *order,
                              struct mil_var *x)
{
    if (!x || mil_builder_failed(b))
        return NULL;
    struct mil_var *router = block_linear(b, x, w->router, NULL, arch_layer_name(b, layer, "mlp_router"));
    struct mil_var *weights = top_weights(b, c, block_softmax(b, router, 1), order,
                                          arch_layer_name(b, layer, "mlp_router_weights"));
    struct mil_var *y = NULL;
    for (int i = 0; i < w->n_groups && !mil_builder_failed(b); i++) {
        struct mil_var *part = expert_group(b, c, layer, i, w, x, weights);
        y = y ? block_binary(b, "add", y, part, NULL) : part;
    }
    return y;
}
