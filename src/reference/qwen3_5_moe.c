/* Qwen3.5's MLP: one gated block, or the chosen ones of many experts and one that every token shares, which counts with
 * sigmoid(shared_gate x). */
#include "reference/qwen3_5.h"

bool reference_qwen3_5_find_experts(struct reference *r, const struct qwen3_5 *q, int64_t i_layer,
                                    struct qwen3_5_layer *l, struct err *e)
{
    struct arena *a = r->parts->arena;
    const char *name = arena_printf(a, "model.layers.%lld.mlp", (long long)i_layer);
    return reference_require(r, arena_printf(a, "%s.shared_expert_gate.weight", name), 1, r->hidden_size,
                             &l->shared_gate, e) &&
           reference_find_gated(r, arena_printf(a, "%s.shared_expert", name), q->shared_size, &l->shared,
                                e) &&
           reference_find_experts(r, i_layer, &q->experts, &l->experts, e);
}

static void add_shared(struct reference_session *s, const struct qwen3_5_layer *l, int64_t n, float *out)
{
    struct qwen3_5_work *w = s->own;
    struct reference_experts_work *x = &w->experts;
    reference_gated_run(s, &l->shared, x, w->h, n, x->result);
    reference_linear(s, l->shared_gate, NULL, w->h, n, x->weight);
    reference_gate(s, &(struct reference_gate){.act = REFERENCE_SIGMOID,
                                               .gate = x->weight,
                                               .gate_stride = 1,
                                               .n = n,
                                               .width = 1,
                                               .out = x->weight});
    reference_add_picked(s, &(struct reference_picked){.from = x->result,
                                                       .weight = x->weight,
                                                       .n = n,
                                                       .width = s->reference->hidden_size,
                                                       .stride = 1,
                                                       .to = out});
}

void reference_qwen3_5_mlp(struct reference_session *s, const struct qwen3_5_layer *l, int64_t n, float *out)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    struct qwen3_5_work *w = s->own;
    const struct st_tensor *const *matrix = l->tensors.matrix;
    const struct reference_gated dense = {matrix[DECODER_GATE], matrix[DECODER_UP], matrix[DECODER_DOWN]};
    if (!q->is_moe) {
        reference_gated_run(s, &dense, &w->experts, w->h, n, out);
        return;
    }
    reference_experts_run(s, &q->experts, &l->experts, &w->experts, w->h, n, out);
    add_shared(s, l, n, out);
}
