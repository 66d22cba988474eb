/* The pattern of an RMS norm, as it is written for hardware that has layer_norm alone:
 *
 *     n = layer_norm(concat(x, x * -1))          over the last axis, without gamma and beta; the mean is 0
 *     y = n[.., 0 : d]                           the half of x
 *     y = y * weight                             perhaps
 *     y = y * weight + y * rest                  or as two products
 *
 * One step that computes x / sqrt(mean(x^2) + eps) * (weight + rest). */
#include "engine/match.h"

/* ---- match ---- */

struct rms_norm {
    const struct mil_value *weight; /* or NULL */
    const struct mil_value *rest;   /* what is added to weight, or NULL */
    double eps;
};

/* op multiplies y [.., n] by a constant of n numbers along the last axis. */
static bool is_gain(const struct compiler *c, const struct mil_op *op, const struct mil_var *y,
                    const struct mil_value **weight)
{
    const struct mil_type *t = var_type(c, y);
    int64_t n = t->dims[t->rank - 1];
    struct mil_var *v;
    return match_var_and_const(c, op, &v, weight) && v == y && (*weight)->type->kind == MIL_TYPE_TENSOR &&
           (*weight)->n_elems == n && (*weight)->type->rank <= t->rank && (*weight)->type->rank >= 1 &&
           (*weight)->type->dims[(*weight)->type->rank - 1] == n &&
           mil_dtype_is_float((*weight)->type->dtype);
}

/* y weight + y rest, which are all uses of y: the sum, and the products in the order of the graph. */
static const struct mil_op *split_gain(const struct compiler *c, const struct mil_var *y,
                                       const struct mil_op *products[2], const struct mil_value *weights[2])
{
    const struct mil_op *sum = NULL;
    if (c->g.n_uses[y->id] != 2)
        return NULL;
    const struct use *use = c->g.uses[y->id];
    for (int i = 0; i < 2; i++, use = use->next) {
        if (use->op >= c->g.n_ops || c->g.nodes[use->op].absorbed || c->g.nodes[use->op].fused)
            return NULL;
        products[i] = c->g.ops[use->op];
        if (!products[i]->info || products[i]->info->id != MIL_OP_MUL ||
            !is_gain(c, products[i], y, &weights[i]))
            return NULL;
        const struct mil_op *user = match_only_user(c, products[i]->outputs[0], MIL_OP_ADD);
        if (!user || (sum && user != sum))
            return NULL;
        sum = user;
    }
    return products[0] != products[1] ? sum : NULL;
}

static bool emit_rms_norm(struct compiler *c, const struct fused *f);

void pattern_rms_norm(struct compiler *c, int root_op)
{
    struct match m = match_begin(c);
    const struct mil_op *norm = c->g.ops[root_op], *products[2];
    struct mil_var *joined = mil_arg_var(norm, "x"), *negated, *x;
    const struct mil_op *concat = match_def(c, joined, MIL_OP_CONCAT);
    const struct mil_arg *values = concat ? mil_arg_find(concat, "values") : NULL;
    double factor, eps = 1e-5;
    int64_t begin, end;
    if (!values || values->n != 2 || !values->bindings[0].var || !values->bindings[1].var)
        return;
    x = values->bindings[0].var;
    negated = values->bindings[1].var;
    const struct mil_op *negate = match_def(c, negated, MIL_OP_MUL);
    const struct mil_type *t = var_type(c, x);
    struct mil_var *source;
    if (!negate || !match_var_and_number(c, negate, &source, &factor) || factor != -1 || source != x ||
        t->rank < 1 || !match_is_last_axis(c, concat, "axis", t->rank) ||
        !match_is_last_axis(c, norm, "axes", t->rank))
        return;
    if (match_const(c, norm, "gamma") || match_const(c, norm, "beta") || mil_arg_find(norm, "gamma") ||
        mil_arg_find(norm, "beta"))
        return;
    match_number(c, norm, "epsilon", &eps);
    if (!graph_used_once_by(&c->g, joined, graph_op_index(&c->g, norm->outputs[0])) ||
        !graph_used_once_by(&c->g, negated, graph_op_index(&c->g, concat->outputs[0])))
        return;
    const struct mil_op *half = match_only_user(c, norm->outputs[0], MIL_OP_SLICE_BY_INDEX);
    if (!half || !match_last_slice(c, half, &begin, &end) || begin != 0 || end != t->dims[t->rank - 1])
        return;
    const struct mil_op *gain = match_only_user(c, half->outputs[0], MIL_OP_MUL);
    const struct mil_value *weights[2] = {NULL};
    match_add_op(&m, negate);
    match_add_op(&m, concat);
    match_add_op(&m, norm);
    match_add_op(&m, half);
    const struct mil_op *root = half, *sum = split_gain(c, half->outputs[0], products, weights);
    if (sum) {
        match_add_op(&m, products[0]);
        match_add_op(&m, products[1]);
        match_add_op(&m, root = sum);
    } else {
        weights[0] = weights[1] = NULL;
        if (gain && is_gain(c, gain, half->outputs[0], &weights[0]))
            match_add_op(&m, root = gain);
        else
            weights[0] = NULL;
    }
    struct rms_norm *own = ARENA_NEW(c->scratch, struct rms_norm);
    *own = (struct rms_norm){.weight = weights[0], .rest = weights[1], .eps = eps};
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){.emit = emit_rms_norm, .out = root->outputs[0], .in = {x}, .own = own};
    match_take(&m, f, graph_op_index(&c->g, root->outputs[0]));
}

/* ---- emit and run ---- */

static void rms_norm_row(const struct rows *p, const struct kernels *k, float *y, const float *x)
{
    k->rms_norm(y, x, p->gamma, p->n, p->eps);
}

static void run_rms_norm(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    run_rows(s->params, s, r, rms_norm_row, i_thread, n_threads);
}

static bool emit_rms_norm(struct compiler *c, const struct fused *f)
{
    const struct rms_norm *own = f->own;
    struct value x, y, w;
    struct rows *p;
    if (!fused_operand(c, f, 0, &x) || !to_f32(c, &x))
        return false;
    p = rows_new(c, &x, &y);
    if (own->weight) {
        if (!const_value(c, own->weight, REPR_F32, &w))
            return false;
        p->gamma = const_floats(c, &w);
    }
    if (own->rest) {
        if (!const_value(c, own->rest, REPR_F32, &w))
            return false;
        const float *rest = const_floats(c, &w);
        float *gain = ARENA_ARRAY(c->arena, float, p->n);
        for (int64_t i = 0; i < p->n; i++)
            gain[i] = p->gamma[i] + rest[i];
        p->gamma = gain;
    }
    p->eps = (float)own->eps;
    struct step *s = step_make(c, "rms norm", run_rms_norm, p, &x, 1, y);
    s->serial = value_elems(&x) < PARALLEL_ELEMS;
    set_var(c, f->out, y);
    return true;
}
