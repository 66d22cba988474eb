/* Qwen3.5: the gated MLP and the mixture of experts.
 *
 * All experts are evaluated: the gate, up and down projections of many experts are three wide convolutions,
 * and the hidden numbers of an expert are multiplied by its weight, 0 for one that was not chosen. That is one
 * shape for any choice, which the Neural Engine needs; an engine may skip experts whose weight is 0.
 */
#include <stdlib.h>
#include "arch/qwen3_5.h"

#define AXIS_MAX 16384 /* of a convolution's channels on older Neural Engines */

/* Experts begin .. begin + n of projections [E, I, H] as one [n * I, H, 1, 1]; of the packed tensor, whose
 * experts hold 2 * I rows, I rows from `row` on. */
static const struct mil_value *expert_rows(struct mil_model *out, const struct qwen3_5 *q, int64_t hidden,
                                           const struct st_tensor *const *tensors, bool packed, int64_t row,
                                           int64_t begin, int64_t n)
{
    int64_t size = q->expert_size, dims[4] = {n * size, hidden, 1, 1};
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
static const struct mil_value *expert_columns(struct mil_model *out, const struct qwen3_5 *q, int64_t hidden,
                                              const struct st_tensor *const *tensors, bool packed,
                                              int64_t begin, int64_t n)
{
    int64_t size = q->expert_size, dims[4] = {hidden, n * size, 1, 1};
    struct arch_layout l = arch_layout_of(packed ? tensors : tensors + begin, hidden, n * size);
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

static struct qwen3_5_gated_values gated_values(struct mil_model *out, const struct qwen3_5_gated *t)
{
    return (struct qwen3_5_gated_values){.gate = arch_linear(out, t->gate, ARCH_KEEP),
                                         .up = arch_linear(out, t->up, ARCH_KEEP),
                                         .down = arch_linear(out, t->down, ARCH_KEEP)};
}

const struct mil_value *qwen3_5_expert_order(const struct arch_model *m, int64_t n_tokens,
                                             struct mil_model *out)
{
    const struct qwen3_5 *q = m->own;
    if (!q->is_moe || !m->settings.exact_topk)
        return NULL;
    int64_t n = q->n_experts, dims[4] = {1, n, 1, n_tokens};
    f16 *order = xmalloc(sizeof *order * (size_t)(n * n_tokens));
    for (int64_t i = 0; i < n * n_tokens; i++)
        order[i] = f64_to_f16((double)(n - i / n_tokens));
    const struct mil_value *v = mil_value_new(out, MIL_FP16, 4, dims, order);
    free(order);
    return v;
}

struct qwen3_5_mlp_values qwen3_5_mlp_values(const struct arch_model *m, const struct qwen3_5_layer *t,
                                             struct mil_model *out)
{
    const struct qwen3_5 *q = m->own;
    struct qwen3_5_mlp_values v = {0};
    if (!q->is_moe) {
        const struct qwen3_5_gated dense = {
            .gate = t->tensors[DECODER_GATE], .up = t->tensors[DECODER_UP], .down = t->tensors[DECODER_DOWN]};
        v.gated = gated_values(out, &dense);
        return v;
    }
    const struct qwen3_5_experts *x = &t->experts;
    int64_t router_dims[4] = {q->n_experts, m->hidden_size, 1, 1};
    struct arch_layout router = arch_layout_of(&x->router, q->n_experts, m->hidden_size);
    router.keep_fp16 = true;
    v.router = arch_layout_weight(out, &router, 4, router_dims);
    v.shared_gate = arch_linear(out, x->shared_gate, ARCH_HALVE);
    v.gated = gated_values(out, &x->shared);
    v.group_size = AXIS_MAX / q->expert_size;
    v.group_size = v.group_size < 1 ? 1 : v.group_size > q->n_experts ? q->n_experts : v.group_size;
    v.n_groups = (int)((q->n_experts + v.group_size - 1) / v.group_size);
    v.groups = ARENA_ARRAY(out->arena, struct qwen3_5_gated_values, v.n_groups);
    for (int i = 0; i < v.n_groups; i++) {
        int64_t begin = i * v.group_size;
        int64_t n = q->n_experts - begin < v.group_size ? q->n_experts - begin : v.group_size;
        const struct st_tensor *const *up = x->packed ? x->gate : x->up;
        v.groups[i].gate = expert_rows(out, q, m->hidden_size, x->gate, x->packed, 0, begin, n);
        v.groups[i].up = expert_rows(out, q, m->hidden_size, up, x->packed, q->expert_size, begin, n);
        v.groups[i].down = expert_columns(out, q, m->hidden_size, x->down, x->packed, begin, n);
    }
    return v;
}

/* silu(gate x) * up x */
static struct mil_var *gated_hidden(struct mil_builder *b, int64_t layer, const char *name,
                                    const struct qwen3_5_gated_values *w, struct mil_var *x)
{
    struct arena *a = mil_builder_arena(b);
    struct mil_var *gate =
        block_linear(b, x, w->gate, NULL, arch_layer_name(b, layer, arena_printf(a, "%s_gate_proj", name)));
    struct mil_var *up =
        block_linear(b, x, w->up, NULL, arch_layer_name(b, layer, arena_printf(a, "%s_up_proj", name)));
    return block_binary(b, "mul", block_silu(b, gate), up, NULL);
}

static struct mil_var *gated(struct mil_builder *b, int64_t layer, const char *name,
                             const struct qwen3_5_gated_values *w, struct mil_var *x)
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

/* probability [1, E, 1, T] -> the k largest of each token over their sum, 0 for the others; order: NULL for the
 * threshold. */
static struct mil_var *top_weights(struct mil_builder *b, int64_t k, struct mil_var *probability,
                                   const struct mil_value *order, const char *name)
{
    struct mil_var *keep = order
                               ? first_of_equals(b, k, probability, mil_build_const(b, order, "expert_order"))
                               : above_threshold(b, k, probability);
    struct mil_var *w = block_select(b, keep, probability, mil_build_f16(b, 0.0, NULL));
    return block_binary(b, "real_div", w, block_reduce(b, "reduce_sum", w, 1), name);
}

/* One group's contribution; weights [1, E, 1, T] of all experts. */
static struct mil_var *expert_group(struct mil_builder *b, const struct qwen3_5 *q, int64_t layer,
                                    int i_group, const struct qwen3_5_mlp_values *w, struct mil_var *x,
                                    struct mil_var *weights)
{
    const struct qwen3_5_gated_values *g = &w->groups[i_group];
    int64_t begin = i_group * w->group_size, tokens = mil_type_tensor(x->type)->dims[3];
    int64_t n = q->n_experts - begin < w->group_size ? q->n_experts - begin : w->group_size;
    int64_t apart[4] = {1, n, q->expert_size, tokens}, together[4] = {1, n * q->expert_size, 1, tokens};
    const char *name =
        w->n_groups == 1 ? "mlp_experts" : arena_printf(mil_builder_arena(b), "mlp_experts_%d", i_group);
    struct mil_var *h = block_reshape(b, gated_hidden(b, layer, name, g, x), 4, apart, NULL);
    if (w->n_groups > 1)
        weights = block_slice(b, weights, 1, begin, begin + n, NULL);
    h = block_reshape(b, block_binary(b, "mul", h, weights, NULL), 4, together, NULL);
    return block_linear(b, h, g->down, NULL,
                        arch_layer_name(b, layer, arena_printf(mil_builder_arena(b), "%s_down_proj", name)));
}

static struct mil_var *experts(struct mil_builder *b, const struct qwen3_5 *q, int64_t layer,
                               const struct qwen3_5_mlp_values *w, const struct mil_value *order,
                               struct mil_var *x)
{
    struct mil_var *router = block_linear(b, x, w->router, NULL, arch_layer_name(b, layer, "mlp_router"));
    struct mil_var *weights = top_weights(b, q->n_chosen, block_softmax(b, router, 1), order,
                                          arch_layer_name(b, layer, "mlp_router_weights"));
    struct mil_var *y = NULL;
    for (int i = 0; i < w->n_groups && !mil_builder_failed(b); i++) {
        struct mil_var *part = expert_group(b, q, layer, i, w, x, weights);
        y = y ? block_binary(b, "add", y, part, NULL) : part;
    }
    struct mil_var *shared = gated(b, layer, "mlp_shared_expert", &w->gated, x);
    struct mil_var *gate =
        block_linear(b, x, w->shared_gate, NULL, arch_layer_name(b, layer, "mlp_shared_expert_gate"));
    return block_binary(b, "add", y, block_binary(b, "mul", shared, block_half_sigmoid(b, gate), NULL), NULL);
}

struct mil_var *qwen3_5_build_mlp(const struct arch_model *m, struct mil_builder *b, int64_t layer,
                                  const struct qwen3_5_mlp_values *w, const struct mil_value *order,
                                  struct mil_var *x)
{
    const struct qwen3_5 *q = m->own;
    if (mil_builder_failed(b))
        return NULL;
    x = block_to_channels(b, x);
    x = q->is_moe ? experts(b, q, layer, w, order, x) : gated(b, layer, "mlp", &w->gated, x);
    return block_from_channels(b, x, NULL);
}
