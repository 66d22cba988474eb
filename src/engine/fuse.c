/* Patterns over the graph (never over names) that become one step each: RMS norm, rotary embedding, attention
 * over a cached state, gated SiLU. A pattern is taken only when its inner values have no other use, so
 * nothing is computed twice and nothing that the program returns disappears. */
#include <math.h>
#include <string.h>
#include "engine/engine_int.h"

const struct mil_op *fuse_def(const struct compiler *c, const struct mil_var *v, enum mil_op_id id)
{
    const struct mil_op *op = v ? graph_def(&c->g, v) : NULL;
    return op && op->info && op->info->id == id ? op : NULL;
}

static int index_of(const struct compiler *c, const struct mil_op *op)
{
    return op->n_outputs > 0 ? graph_op_index(&c->g, op->outputs[0]) : -1;
}

/* The op that is the single user of v, when it has the given id and is in no pattern yet; else NULL. */
static const struct mil_op *only_user(const struct compiler *c, const struct mil_var *v, enum mil_op_id id)
{
    if (c->g.n_uses[v->id] != 1 || c->g.uses[v->id]->op >= c->g.n_ops)
        return NULL;
    const struct mil_op *op = c->g.ops[c->g.uses[v->id]->op];
    const struct node *node = &c->g.nodes[c->g.uses[v->id]->op];
    return op->info && op->info->id == id && !node->absorbed && !node->fused ? op : NULL;
}

const struct mil_value *fuse_const(const struct compiler *c, const struct mil_op *op, const char *name)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    if (!a || a->n != 1)
        return NULL;
    return a->bindings[0].value ? a->bindings[0].value : c->consts[a->bindings[0].var->id];
}

static bool const_number(const struct compiler *c, const struct mil_op *op, const char *name, double *d)
{
    const struct mil_value *v = fuse_const(c, op, name);
    return v && mil_value_float(v, d);
}

bool fuse_ints(const struct compiler *c, const struct mil_op *op, const char *name, int64_t *d, int *n)
{
    const struct mil_value *v = fuse_const(c, op, name);
    int n_max = *n;
    *n = 0;
    return v && mil_value_ints(v, d, n_max, n);
}

/* The variable operand and the constant number of a commutative op (mul, add). */
bool fuse_var_and_number(const struct compiler *c, const struct mil_op *op, struct mil_var **v, double *d)
{
    if (const_number(c, op, "y", d))
        *v = mil_arg_var(op, "x");
    else if (const_number(c, op, "x", d))
        *v = mil_arg_var(op, "y");
    else
        return false;
    return *v != NULL;
}

static bool var_and_const(const struct compiler *c, const struct mil_op *op, struct mil_var **v,
                          const struct mil_value **k)
{
    if ((*k = fuse_const(c, op, "y")))
        *v = mil_arg_var(op, "x");
    else if ((*k = fuse_const(c, op, "x")))
        *v = mil_arg_var(op, "y");
    else
        return false;
    return *v && !c->consts[(*v)->id];
}

static const struct mil_type *type_of(const struct compiler *c, const struct mil_var *v)
{
    return var_type(c, v);
}

/* Does nothing when a member belongs to another pattern already: each op is computed by one step. */
void fuse_take(struct compiler *c, struct fused *f, int root, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        if (c->g.nodes[members[i]].absorbed || c->g.nodes[members[i]].fused)
            return;
    for (int i = 0; i < n; i++)
        c->g.nodes[members[i]].absorbed = true;
    c->g.nodes[root].absorbed = false;
    c->g.nodes[root].fused = f;
}

static void take(struct compiler *c, struct fused *f, int root, const struct mil_op *const *members, int n)
{
    int index[16];
    INVARIANT(n <= 16, "a pattern that is counted here has at most 16 members");
    for (int i = 0; i < n; i++)
        index[i] = index_of(c, members[i]);
    fuse_take(c, f, root, index, n);
}

/* A slice [begin, end) of the last axis alone, unit stride; the other axes whole. */
bool fuse_last_slice(const struct compiler *c, const struct mil_op *op, int64_t *begin, int64_t *end)
{
    const struct mil_var *x = mil_arg_var(op, "x");
    int64_t b[MIL_RANK_MAX], e[MIL_RANK_MAX], s[MIL_RANK_MAX], m[MIL_RANK_MAX];
    int n = MIL_RANK_MAX, k = MIL_RANK_MAX;
    if (!x || !op->info || op->info->id != MIL_OP_SLICE_BY_INDEX)
        return false;
    const struct mil_type *t = type_of(c, x), *y = type_of(c, op->outputs[0]);
    if (t->rank < 1 || y->rank != t->rank)
        return false;
    for (int i = 0; i + 1 < t->rank; i++)
        if (t->dims[i] != y->dims[i])
            return false;
    if (!fuse_ints(c, op, "begin", b, &n) || n != t->rank || !fuse_ints(c, op, "end", e, &k) || k != t->rank)
        return false;
    int last = t->rank - 1;
    int64_t size = t->dims[last];
    n = MIL_RANK_MAX;
    if (fuse_ints(c, op, "stride", s, &n))
        for (int i = 0; i < n; i++)
            if (s[i] != 1)
                return false;
    *begin = b[last] < 0 ? b[last] + size : b[last];
    *end = e[last] < 0 ? e[last] + size : e[last];
    n = MIL_RANK_MAX;
    if (fuse_ints(c, op, "begin_mask", m, &n) && n == t->rank && m[last])
        *begin = 0;
    n = MIL_RANK_MAX;
    if (fuse_ints(c, op, "end_mask", m, &n) && n == t->rank && m[last])
        *end = size;
    return *end - *begin == y->dims[last];
}

bool fuse_is_plain_slice(const struct compiler *c, const struct mil_op *op)
{
    static const char *const names[] = {"stride", "begin_mask", "squeeze_mask"};
    for (int k = 0; k < 3; k++) {
        int64_t v[MIL_RANK_MAX];
        int n = MIL_RANK_MAX;
        if (mil_arg_find(op, names[k]) && !fuse_ints(c, op, names[k], v, &n))
            return false;
        for (int i = 0; mil_arg_find(op, names[k]) && i < n; i++)
            if (v[i] != (k == 0))
                return false;
    }
    return true;
}

static bool is_last_axis(const struct compiler *c, const struct mil_op *op, const char *name, int rank)
{
    int64_t axis[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    return fuse_ints(c, op, name, axis, &n) && n == 1 && (axis[0] == -1 || axis[0] == rank - 1);
}

/* ---- RMS norm: concat([x, -x]) -> layer_norm without gain -> first half [-> * weight [+ * rest]] ---- */

/* op multiplies y [.., n] by a constant of n numbers along the last axis. */
static bool is_gain(const struct compiler *c, const struct mil_op *op, const struct mil_var *y,
                    const struct mil_value **weight)
{
    const struct mil_type *t = type_of(c, y);
    int64_t n = t->dims[t->rank - 1];
    struct mil_var *v;
    return var_and_const(c, op, &v, weight) && v == y && (*weight)->type->kind == MIL_TYPE_TENSOR &&
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
        const struct mil_op *user = only_user(c, products[i]->outputs[0], MIL_OP_ADD);
        if (!user || (sum && user != sum))
            return NULL;
        sum = user;
    }
    return products[0] != products[1] ? sum : NULL;
}

static void fuse_rms_norm(struct compiler *c, const struct mil_op *norm)
{
    const struct mil_op *members[7], *products[2];
    struct mil_var *joined = mil_arg_var(norm, "x"), *negated, *x;
    const struct mil_op *concat = fuse_def(c, joined, MIL_OP_CONCAT);
    const struct mil_arg *values = concat ? mil_arg_find(concat, "values") : NULL;
    double factor, eps = 1e-5;
    int64_t begin, end;
    if (!values || values->n != 2 || !values->bindings[0].var || !values->bindings[1].var)
        return;
    x = values->bindings[0].var;
    negated = values->bindings[1].var;
    const struct mil_op *negate = fuse_def(c, negated, MIL_OP_MUL);
    const struct mil_type *t = type_of(c, x);
    struct mil_var *source;
    if (!negate || !fuse_var_and_number(c, negate, &source, &factor) || factor != -1 || source != x ||
        t->rank < 1 || !is_last_axis(c, concat, "axis", t->rank) || !is_last_axis(c, norm, "axes", t->rank))
        return;
    if (fuse_const(c, norm, "gamma") || fuse_const(c, norm, "beta") || mil_arg_find(norm, "gamma") ||
        mil_arg_find(norm, "beta"))
        return;
    const_number(c, norm, "epsilon", &eps);
    if (!graph_used_once_by(&c->g, joined, index_of(c, norm)) ||
        !graph_used_once_by(&c->g, negated, index_of(c, concat)))
        return;
    const struct mil_op *half = only_user(c, norm->outputs[0], MIL_OP_SLICE_BY_INDEX);
    if (!half || !fuse_last_slice(c, half, &begin, &end) || begin != 0 || end != t->dims[t->rank - 1])
        return;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    const struct mil_op *gain = only_user(c, half->outputs[0], MIL_OP_MUL);
    const struct mil_value *weights[2] = {NULL};
    int n_members = 0;
    members[n_members++] = negate;
    members[n_members++] = concat;
    members[n_members++] = norm;
    members[n_members++] = half;
    const struct mil_op *root = half, *sum = split_gain(c, half->outputs[0], products, weights);
    if (sum) {
        members[n_members++] = products[0];
        members[n_members++] = products[1];
        members[n_members++] = root = sum;
    } else {
        weights[0] = weights[1] = NULL;
        if (gain && is_gain(c, gain, half->outputs[0], &weights[0]))
            members[n_members++] = root = gain;
        else
            weights[0] = NULL;
    }
    *f = (struct fused){.kind = FUSED_RMS_NORM,
                        .out = root->outputs[0],
                        .in = {x},
                        .weight = weights[0],
                        .rest = weights[1],
                        .eps = eps};
    take(c, f, index_of(c, root), members, n_members);
}

/* ---- rotary embedding: concat of a*cos - b*sin, [middle,] b*cos + a*sin [, rest] ---- */

/* op = a*t + sign*b*u with variables: fills both products' operands. */
static bool two_products(const struct compiler *c, const struct mil_op *op, const struct mil_op *m[2])
{
    for (int i = 0; i < 2; i++) {
        struct mil_var *v = mil_arg_var(op, i ? "y" : "x");
        m[i] = fuse_def(c, v, MIL_OP_MUL);
        if (!m[i] || !graph_used_once_by(&c->g, v, index_of(c, op)) || !mil_arg_var(m[i], "x") ||
            !mil_arg_var(m[i], "y"))
            return false;
    }
    return true;
}

/* A product of one of `left` with another variable, which goes to *other. */
static bool product_of(const struct mil_op *m, const struct mil_var *left, struct mil_var **other)
{
    struct mil_var *x = mil_arg_var(m, "x"), *y = mil_arg_var(m, "y");
    *other = x == left ? y : x;
    return x == left || y == left;
}

static void fuse_rope(struct compiler *c, const struct mil_op *concat)
{
    const struct mil_arg *values = mil_arg_find(concat, "values");
    const struct mil_type *t = type_of(c, concat->outputs[0]);
    const struct mil_op *sub, *add = NULL, *minus[2], *plus[2], *slices[4], *members[12];
    int n_members = 0, n_slices = 0, at_add = -1;
    if (!values || values->n < 2 || values->n > 4 || t->rank != 4 || !is_last_axis(c, concat, "axis", 4))
        return;
    for (int i = 0; i < values->n; i++)
        if (!values->bindings[i].var ||
            !graph_used_once_by(&c->g, values->bindings[i].var, index_of(c, concat)))
            return;
    sub = fuse_def(c, values->bindings[0].var, MIL_OP_SUB);
    for (int i = 1; i < values->n && at_add < 0; i++)
        if ((add = fuse_def(c, values->bindings[i].var, MIL_OP_ADD)))
            at_add = i;
    if (!sub || !add || at_add > 2 || !two_products(c, sub, minus) || !two_products(c, add, plus))
        return;
    /* minus = a*cos, b*sin; find a and b as slices of one x. */
    for (int swap = 0; swap < 2; swap++) {
        struct mil_var *a = mil_arg_var(minus[0], swap ? "y" : "x"), *cos_rows, *sin_rows, *b, *o1, *o2;
        const struct mil_op *slice_a = fuse_def(c, a, MIL_OP_SLICE_BY_INDEX), *slice_b;
        int64_t a0, a1, b0, b1;
        if (!slice_a || !product_of(minus[0], a, &cos_rows))
            continue;
        b = mil_arg_var(minus[1], "x");
        slice_b = fuse_def(c, b, MIL_OP_SLICE_BY_INDEX);
        if (!slice_b || mil_arg_var(slice_b, "x") != mil_arg_var(slice_a, "x")) {
            b = mil_arg_var(minus[1], "y");
            slice_b = fuse_def(c, b, MIL_OP_SLICE_BY_INDEX);
        }
        struct mil_var *x = mil_arg_var(slice_a, "x");
        if (!slice_b || mil_arg_var(slice_b, "x") != x || !product_of(minus[1], b, &sin_rows) ||
            !fuse_last_slice(c, slice_a, &a0, &a1) || !fuse_last_slice(c, slice_b, &b0, &b1) || a0 != 0 ||
            a1 - a0 != b1 - b0)
            continue;
        /* plus: b*cos + a*sin in either order */
        bool fits =
            (product_of(plus[0], b, &o1) && o1 == cos_rows && product_of(plus[1], a, &o2) &&
             o2 == sin_rows) ||
            (product_of(plus[1], b, &o1) && o1 == cos_rows && product_of(plus[0], a, &o2) && o2 == sin_rows);
        if (!fits || c->g.n_uses[a->id] != 2 || c->g.n_uses[b->id] != 2)
            continue;
        const struct mil_type *tables[2] = {type_of(c, cos_rows), type_of(c, sin_rows)};
        for (int i = 0; i < 2; i++)
            fits = fits && tables[i]->rank == 4 && tables[i]->dims[0] == 1 && tables[i]->dims[1] == 1 &&
                   tables[i]->dims[2] == t->dims[2] && tables[i]->dims[3] == a1 &&
                   !c->consts[(i ? sin_rows : cos_rows)->id];
        /* The pieces that pass through must be the gaps: [a1, b0) between, [b1, d) at the end. */
        int64_t want = a1;
        for (int i = 1; fits && i < values->n; i++) {
            int64_t g0 = 0, g1 = 0;
            if (i == at_add) {
                fits = want == b0;
                want = b1;
                continue;
            }
            const struct mil_op *gap = fuse_def(c, values->bindings[i].var, MIL_OP_SLICE_BY_INDEX);
            fits = gap && mil_arg_var(gap, "x") == x && fuse_last_slice(c, gap, &g0, &g1) && g0 == want;
            want = g1;
            slices[n_slices++] = gap;
        }
        if (!fits || want != t->dims[3] || type_of(c, x)->rank != 4 || type_of(c, x)->dims[3] != want ||
            t->dims[0] != 1)
            return;
        struct fused *f = ARENA_NEW(c->scratch, struct fused);
        *f = (struct fused){.kind = FUSED_ROPE,
                            .out = concat->outputs[0],
                            .in = {x, cos_rows, sin_rows},
                            .pairs = a1,
                            .half = b0};
        members[n_members++] = slice_a;
        members[n_members++] = slice_b;
        members[n_members++] = sub;
        members[n_members++] = add;
        for (int i = 0; i < 2; i++) {
            members[n_members++] = minus[i];
            members[n_members++] = plus[i];
        }
        for (int i = 0; i < n_slices; i++)
            members[n_members++] = slices[i];
        take(c, f, index_of(c, concat), members, n_members);
        return;
    }
}

/* ---- attention: softmax(q k^T * scale + mask) v, k and v repeated slices of a state ---- */

/* Is v a slice of a state that is held as fp16, as the kernels of attention read it? */
static bool is_state_slice(const struct compiler *c, const struct mil_var *v)
{
    const struct mil_var *state = c->state_slice[v->id];
    return state && !engine_state_is_recurrent(c->state_forms, state->name);
}

/* Which variables lead back to a read of a state through slices and axes of one element. */
static void find_state_slices(struct compiler *c)
{
    c->state_slice = ARENA_ARRAY(c->scratch, const struct mil_var *, c->g.f->n_vars + 1);
    for (int i = 0; i < c->g.n_ops; i++) {
        const struct mil_op *op = c->g.ops[i];
        const struct mil_var *x = mil_arg_var(op, "x");
        switch (op->info ? op->info->id : MIL_OP_NONE) {
        case MIL_OP_READ_STATE:
            c->state_slice[op->outputs[0]->id] = mil_arg_var(op, "input");
            break;
        case MIL_OP_SLICE_BY_INDEX:
        case MIL_OP_SQUEEZE:
        case MIL_OP_EXPAND_DIMS:
        case MIL_OP_IDENTITY:
            c->state_slice[op->outputs[0]->id] = x ? c->state_slice[x->id] : NULL;
            break;
        default:
            break;
        }
    }
}

/* v [(1,) heads, S, d] is k [.., heads/r, S, d] with each head r times in a row (expand_dims, tile, reshape),
 * or k itself. */
static struct mil_var *unrepeat(const struct compiler *c, struct mil_var *v, int user,
                                const struct mil_op **members, int *n_members, int *n_repeat)
{
    const struct mil_type *t = type_of(c, v);
    const struct mil_op *reshape = fuse_def(c, v, MIL_OP_RESHAPE);
    int64_t reps[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    int first = t->rank - 3; /* axis of the heads */
    *n_repeat = 1;
    if (t->rank < 3 || t->rank > 4 || (t->rank == 4 && t->dims[0] != 1))
        return NULL;
    if (!reshape)
        return is_state_slice(c, v) ? v : NULL;
    const struct mil_op *tile = fuse_def(c, mil_arg_var(reshape, "x"), MIL_OP_TILE);
    const struct mil_op *expand = tile ? fuse_def(c, mil_arg_var(tile, "x"), MIL_OP_EXPAND_DIMS) : NULL;
    struct mil_var *k = expand ? mil_arg_var(expand, "x") : NULL;
    if (!k || !is_state_slice(c, k) || !graph_used_once_by(&c->g, v, user) ||
        !graph_used_once_by(&c->g, tile->outputs[0], index_of(c, reshape)) ||
        !graph_used_once_by(&c->g, expand->outputs[0], index_of(c, tile)))
        return NULL;
    const struct mil_type *kt = type_of(c, k), *wide = type_of(c, expand->outputs[0]);
    int axis = wide->rank - 3; /* the new axis, between heads and positions */
    if (kt->rank < 3 || wide->rank != kt->rank + 1 || wide->dims[axis] != 1 ||
        !fuse_ints(c, tile, "reps", reps, &n) || n != wide->rank)
        return NULL;
    int64_t axes[MIL_RANK_MAX];
    n = MIL_RANK_MAX;
    if (!fuse_ints(c, expand, "axes", axes, &n) || n != 1 ||
        (axes[0] != axis && axes[0] != axis - wide->rank))
        return NULL;
    for (int i = 0; i < wide->rank; i++)
        if (i != axis && reps[i] != 1)
            return NULL;
    for (int i = 0; i < kt->rank - 3; i++)
        if (kt->dims[i] != 1)
            return NULL;
    if (t->dims[first] != kt->dims[kt->rank - 3] * reps[axis] ||
        t->dims[first + 1] != kt->dims[kt->rank - 2] || t->dims[first + 2] != kt->dims[kt->rank - 1])
        return NULL;
    *n_repeat = (int)reps[axis];
    members[(*n_members)++] = reshape;
    members[(*n_members)++] = tile;
    members[(*n_members)++] = expand;
    return k;
}

static bool const_flag(const struct compiler *c, const struct mil_op *op, const char *name)
{
    int64_t v = 0;
    int n = 1;
    return fuse_ints(c, op, name, &v, &n) && n == 1 && v != 0;
}

/* A reshape from [1, a, b, c] to [a, b, c], or back. */
static bool moves_first_axis(const struct compiler *c, const struct mil_op *reshape, bool away)
{
    const struct mil_var *x = mil_arg_var(reshape, "x");
    const struct mil_type *wide = x ? type_of(c, x) : NULL, *flat = type_of(c, reshape->outputs[0]);
    if (!wide)
        return false;
    if (!away) {
        const struct mil_type *swap = wide;
        wide = flat;
        flat = swap;
    }
    return wide->rank == 4 && flat->rank == 3 && wide->dims[0] == 1 && wide->dims[1] == flat->dims[0] &&
           wide->dims[2] == flat->dims[1] && wide->dims[3] == flat->dims[2];
}

static void fuse_attention(struct compiler *c, const struct mil_op *softmax)
{
    const struct mil_op *members[16], *add, *scores, *scaled;
    int n_members = 0, repeat_k, repeat_v;
    struct mil_var *sum = mil_arg_var(softmax, "x"), *mask, *product, *p = softmax->outputs[0];
    const struct mil_type *t = type_of(c, p);
    double scale = 1;
    if (t->rank != 4 || t->dims[0] != 1 || !is_last_axis(c, softmax, "axis", 4) ||
        !(add = fuse_def(c, sum, MIL_OP_ADD)) || !graph_used_once_by(&c->g, sum, index_of(c, softmax)))
        return;
    /* Which operand of the addition is the mask [1, 1, T, S]? */
    product = mil_arg_var(add, "x");
    mask = mil_arg_var(add, "y");
    if (product && mask && type_of(c, product)->rank == 4 && type_of(c, product)->dims[1] == 1 &&
        (fuse_def(c, mask, MIL_OP_MUL) || fuse_def(c, mask, MIL_OP_MATMUL))) {
        struct mil_var *swap = product;
        product = mask;
        mask = swap;
    }
    if (!product || !mask)
        return;
    const struct mil_type *mt = type_of(c, mask);
    if (mt->rank != 4 || mt->dims[0] != 1 || mt->dims[1] != 1 || mt->dims[2] != t->dims[2] ||
        mt->dims[3] != t->dims[3] || !graph_used_once_by(&c->g, product, index_of(c, add)))
        return;
    scaled = fuse_def(c, product, MIL_OP_MUL);
    if (scaled) {
        struct mil_var *inner;
        if (!fuse_var_and_number(c, scaled, &inner, &scale) ||
            !graph_used_once_by(&c->g, inner, index_of(c, scaled)))
            return;
        members[n_members++] = scaled;
        product = inner;
    }
    scores = fuse_def(c, product, MIL_OP_MATMUL);
    /* The product with the values, or (as an einsum is lowered) the same without the first axis. */
    const struct mil_op *flat = only_user(c, p, MIL_OP_RESHAPE), *flat_v = NULL;
    const struct mil_op *result = only_user(c, flat ? flat->outputs[0] : p, MIL_OP_MATMUL), *root = result;
    if (!scores || !result || mil_arg_var(result, "x") != (flat ? flat->outputs[0] : p) ||
        const_flag(c, scores, "transpose_x") || !const_flag(c, scores, "transpose_y") ||
        const_flag(c, result, "transpose_x") || const_flag(c, result, "transpose_y"))
        return;
    struct mil_var *q = mil_arg_var(scores, "x"), *k = mil_arg_var(scores, "y"),
                   *v = mil_arg_var(result, "y");
    if (flat) {
        root = only_user(c, result->outputs[0], MIL_OP_RESHAPE);
        if (!root || !v || !moves_first_axis(c, flat, true) || !moves_first_axis(c, root, false))
            return;
        members[n_members++] = flat;
        members[n_members++] = result;
        flat_v = fuse_def(c, v, MIL_OP_RESHAPE);
        if (flat_v && !moves_first_axis(c, flat_v, true))
            flat_v = NULL; /* the reshape behind the repetition gives the flat form itself */
        if (flat_v) {
            if (!graph_used_once_by(&c->g, v, index_of(c, result)))
                return;
            v = mil_arg_var(flat_v, "x");
            members[n_members++] = flat_v;
        }
    }
    if (!q || !k || !v || type_of(c, q)->rank != 4 || type_of(c, q)->dims[1] != t->dims[1])
        return;
    k = unrepeat(c, k, index_of(c, scores), members, &n_members, &repeat_k);
    v = k ? unrepeat(c, v, index_of(c, flat_v ? flat_v : result), members, &n_members, &repeat_v) : NULL;
    if (!k || !v || repeat_k != repeat_v)
        return;
    const struct mil_type *kt = type_of(c, k), *vt = type_of(c, v);
    if (t->dims[1] < 1 || t->dims[1] != kt->dims[kt->rank - 3] * repeat_k ||
        type_of(c, q)->dims[3] != kt->dims[kt->rank - 1])
        return;
    if (kt->rank < 3 || vt->rank < 3 || vt->dims[vt->rank - 3] != kt->dims[kt->rank - 3] ||
        vt->dims[vt->rank - 2] != kt->dims[kt->rank - 2])
        return; /* broadcast heads */
    members[n_members++] = scores;
    members[n_members++] = add;
    members[n_members++] = softmax;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){
        .kind = FUSED_ATTENTION, .out = root->outputs[0], .in = {q, k, v, mask}, .scale = scale};
    take(c, f, index_of(c, root), members, n_members);
}

/* ---- silu: x * (0.5 + 0.5 tanh(x / 2)), or the op itself [, times another tensor] ---- */

static void fuse_silu(struct compiler *c, const struct mil_op *op)
{
    const struct mil_op *members[6], *root = op;
    int n_members = 0;
    struct mil_var *x = NULL, *v;
    double d;
    if (op->info->id == MIL_OP_SILU) {
        x = mil_arg_var(op, "x");
        members[n_members++] = op;
    } else { /* op is the tanh */
        const struct mil_op *half = fuse_def(c, mil_arg_var(op, "x"), MIL_OP_MUL), *scale, *shift;
        if (!half || !fuse_var_and_number(c, half, &x, &d) || d != 0.5 ||
            !graph_used_once_by(&c->g, half->outputs[0], index_of(c, op)))
            return;
        scale = only_user(c, op->outputs[0], MIL_OP_MUL);
        if (!scale || !fuse_var_and_number(c, scale, &v, &d) || d != 0.5 || v != op->outputs[0])
            return;
        shift = only_user(c, scale->outputs[0], MIL_OP_ADD);
        if (!shift || !fuse_var_and_number(c, shift, &v, &d) || d != 0.5 || v != scale->outputs[0])
            return;
        root = only_user(c, shift->outputs[0], MIL_OP_MUL);
        if (!root || !product_of(root, shift->outputs[0], &v) || v != x)
            return;
        members[n_members++] = half;
        members[n_members++] = op;
        members[n_members++] = scale;
        members[n_members++] = shift;
        members[n_members++] = root;
    }
    if (!x || c->consts[x->id] || !mil_dtype_is_float(type_of(c, x)->dtype))
        return;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    struct mil_var *up = NULL;
    const struct mil_op *gate = only_user(c, root->outputs[0], MIL_OP_MUL);
    if (gate && product_of(gate, root->outputs[0], &up) && up && up != root->outputs[0] &&
        !c->consts[up->id] && mil_type_equal(type_of(c, up), type_of(c, x))) {
        members[n_members++] = gate;
        root = gate;
    } else {
        up = NULL;
    }
    *f = (struct fused){.kind = FUSED_SILU_MUL, .out = root->outputs[0], .in = {x, up}};
    take(c, f, index_of(c, root), members, n_members);
}

void fuse_patterns(struct compiler *c)
{
    find_state_slices(c);
    for (int i = 0; i < c->g.n_ops; i++) {
        const struct mil_op *op = c->g.ops[i];
        if (!op->info || c->g.nodes[i].absorbed || c->g.nodes[i].fused)
            continue;
        switch (op->info->id) {
        case MIL_OP_LAYER_NORM:
            fuse_rms_norm(c, op);
            break;
        case MIL_OP_CONCAT:
            fuse_rope(c, op);
            break;
        case MIL_OP_SOFTMAX:
            fuse_attention(c, op);
            break;
        case MIL_OP_ADD:
            fuse_touch(c, op);
            break;
        case MIL_OP_SLICE_UPDATE:
            fuse_gated_delta(c, op);
            break;
        case MIL_OP_WRITE_STATE:
            fuse_window(c, i);
            break;
        case MIL_OP_TANH:
        case MIL_OP_SILU:
            fuse_silu(c, op);
            break;
        default:
            break;
        }
    }
    for (int i = 0; i < c->g.n_ops; i++)
        if (c->g.ops[i]->info && c->g.ops[i]->info->id == MIL_OP_CONV && !c->g.nodes[i].absorbed &&
            !c->g.nodes[i].fused)
            fuse_experts(c, c->g.ops[i]);
}
