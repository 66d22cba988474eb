/* Qwen3.5's MLP: dense, or a mixture of experts with one that every token shares. */
#include "arch/qwen3_5.h"

static struct gated_values gated_values(const struct arch_model *m, struct mil_model *out,
                                        const struct qwen3_5_gated *t)
{
    return (struct gated_values){.gate = arch_linear(out, t->gate, 1),
                                 .up = arch_linear(out, t->up, 1),
                                 .down = arch_linear(out, t->down, m->settings.residual_scale)};
}

struct qwen3_5_mlp_values qwen3_5_mlp_values(const struct arch_model *m, const struct qwen3_5_layer *t,
                                             struct mil_model *out)
{
    const struct qwen3_5 *q = m->own;
    struct qwen3_5_mlp_values v = {0};
    if (!q->is_moe) {
        const struct qwen3_5_gated dense = {
            .gate = t->tensors[DECODER_GATE], .up = t->tensors[DECODER_UP], .down = t->tensors[DECODER_DOWN]};
        v.gated = gated_values(m, out, &dense);
        return v;
    }
    v.experts = experts_values(m, &q->experts, &t->experts, out);
    v.shared_gate = arch_linear(out, t->shared_gate, 0.5);
    v.gated = gated_values(m, out, &t->shared);
    return v;
}

static struct mil_var *experts(struct mil_builder *b, const struct qwen3_5 *q, int64_t layer,
                               const struct qwen3_5_mlp_values *w, const struct mil_value *order,
                               struct mil_var *x)
{
    struct mil_var *y = experts_build(b, &q->experts, layer, &w->experts, order, x);
    struct mil_var *shared = experts_build_gated(b, layer, "mlp_shared_expert", &w->gated, x);
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
    x = q->is_moe ? experts(b, q, layer, w, order, x) : experts_build_gated(b, layer, "mlp", &w->gated, x);
    return block_from_channels(b, x, NULL);
}
