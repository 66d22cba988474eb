/* Mixture of experts evaluated densely: gate and up projections of all experts as two wide products, silu(gate) * up,
 * times the experts' weights (0 for those not chosen), and a wide down product. As a pattern: only the experts with a
 * weight are computed, and the down product leaves out the columns that are zero. The same bits as computing all. */
#include <string.h>
#include "engine/engine_int.h"

/* v as the result of a 1x1 convolution with a constant weight; else NULL. */
static const struct mil_op *pointwise(const struct compiler *c, const struct mil_var *v)
{
    const struct mil_op *op = fuse_def(c, v, MIL_OP_CONV);
    const struct mil_arg *w = op ? mil_arg_find(op, "weight") : NULL;
    if (!w || w->n != 1 || mil_arg_find(op, "bias"))
        return NULL;
    const struct mil_value *k = mil_binding_value(&w->bindings[0]);
    const struct mil_type *t = k ? k->type : w->bindings[0].var ? var_type(c, w->bindings[0].var) : NULL;
    if (!t || (!k && !constexpr_of(c, w->bindings[0].var)) || t->rank != 4 || t->dims[2] != 1 ||
        t->dims[3] != 1 || !mil_dtype_is_float(t->dtype))
        return NULL;
    const struct mil_type *x = var_type(c, mil_arg_var(op, "x")), *y = var_type(c, v);
    return x && x->rank == 4 && x->dims[0] == 1 && x->dims[2] == 1 && x->dims[1] == t->dims[1] &&
                   y->dims[1] == t->dims[0] && y->dims[3] == x->dims[3]
               ? op
               : NULL;
}

/* down: conv(reshape(mul(reshape(hidden), weights))) where hidden is a gated SiLU that was fused already. */
void fuse_experts(struct compiler *c, const struct mil_op *down)
{
    struct graph *g = &c->g;
    int i_down = graph_op_index(g, down->outputs[0]);
    const struct mil_op *flat = fuse_def(c, mil_arg_var(down, "x"), MIL_OP_RESHAPE);
    struct mil_var *scaled = flat ? mil_arg_var(flat, "x") : NULL;
    const struct mil_op *mul = fuse_def(c, scaled, MIL_OP_MUL);
    if (!mul || !pointwise(c, down->outputs[0]))
        return;
    struct mil_var *apart = mil_arg_var(mul, "x"), *weights = mil_arg_var(mul, "y");
    const struct mil_op *reshape = fuse_def(c, apart, MIL_OP_RESHAPE);
    struct mil_var *hidden = reshape ? mil_arg_var(reshape, "x") : NULL;
    int i_hidden = hidden ? graph_op_index(g, hidden) : -1;
    if (i_hidden < 0 || !weights || c->consts[weights->id] || !g->nodes[i_hidden].fused ||
        g->nodes[i_hidden].fused->kind != FUSED_SILU_MUL || !g->nodes[i_hidden].fused->in[1])
        return;
    const struct fused *silu = g->nodes[i_hidden].fused;
    const struct mil_op *gate = pointwise(c, silu->in[0]), *up = pointwise(c, silu->in[1]);
    const struct mil_type *t = var_type(c, apart), *w = var_type(c, weights), *h = var_type(c, hidden);
    if (!gate || !up || mil_arg_var(gate, "x") != mil_arg_var(up, "x") || t->rank != 4 || w->rank != 4 ||
        h->rank != 4 || t->dims[0] != 1 || w->dims[0] != 1 || w->dims[1] != t->dims[1] || w->dims[2] != 1 ||
        w->dims[3] != t->dims[3] || h->dims[1] != t->dims[1] * t->dims[2] || h->dims[3] != t->dims[3] ||
        t->dims[1] < 2)
        return;
    /* Nobody else looks inside. The gate has two or more uses, all in the fused silu. */
    const struct mil_var *inner[] = {hidden, apart, scaled, flat->outputs[0]};
    const int users[] = {graph_op_index(g, apart), graph_op_index(g, scaled),
                         graph_op_index(g, flat->outputs[0]), i_down};
    for (int i = 0; i < 4; i++)
        if (!graph_used_once_by(g, inner[i], users[i]))
            return;
    for (int i = 0; i < 2; i++)
        for (const struct use *u = g->uses[silu->in[i]->id]; u; u = u->next)
            if (u->op >= g->n_ops || !(g->nodes[u->op].absorbed || u->op == i_hidden))
                return;
    const int members[] = {
        graph_op_index(g, silu->in[0]), graph_op_index(g, silu->in[1]), users[0], users[1], users[2], i_down};
    for (int i = 0; i < 6; i++)
        if (g->nodes[members[i]].absorbed || g->nodes[members[i]].fused)
            return;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){.kind = FUSED_EXPERTS,
                        .out = down->outputs[0],
                        .in = {mil_arg_var(gate, "x"), silu->in[0], silu->in[1], weights}};
    g->nodes[i_hidden].fused = NULL;
    fuse_take(c, f, i_down, members, 6);
    g->nodes[i_hidden].absorbed = true;
}
