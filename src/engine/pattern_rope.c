/* The pattern of a rotary embedding over the last axis of x [1, heads, T, d]:
 *
 *     a = x[.., 0 : pairs]        b = x[.., half : half + pairs]
 *     y = concat(a cos - b sin, x[.., pairs : half], b cos + a sin, x[.., half + pairs : d])
 *
 * The pieces that pass through are there where they are not empty; cos and sin [1, 1, T, pairs] are computed, not
 * constant; products and the sum may have their operands in either order. */
#include "engine/match.h"

/* ---- match ---- */

struct rope_split {
    int64_t pairs, half; /* elements of a; where b begins */
};

/* op = a*t + sign*b*u with variables: fills both products' operands. */
static bool two_products(const struct compiler *c, const struct mil_op *op, const struct mil_op *m[2])
{
    for (int i = 0; i < 2; i++) {
        struct mil_var *v = mil_arg_var(op, i ? "y" : "x");
        m[i] = match_def(c, v, MIL_OP_MUL);
        if (!m[i] || !graph_used_once_by(&c->g, v, graph_op_index(&c->g, op->outputs[0])) ||
            !mil_arg_var(m[i], "x") || !mil_arg_var(m[i], "y"))
            return false;
    }
    return true;
}

static bool emit_rope(struct compiler *c, const struct fused *f);

void pattern_rope(struct compiler *c, int i_concat)
{
    struct match m = match_begin(c);
    const struct mil_op *concat = c->g.ops[i_concat];
    const struct mil_arg *values = mil_arg_find(concat, "values");
    const struct mil_type *t = var_type(c, concat->outputs[0]);
    const struct mil_op *sub, *add = NULL, *minus[2], *plus[2], *slices[4];
    int n_slices = 0, at_add = -1;
    if (!values || values->n < 2 || values->n > 4 || t->rank != 4 ||
        !match_is_last_axis(c, concat, "axis", 4))
        return;
    for (int i = 0; i < values->n; i++)
        if (!values->bindings[i].var ||
            !graph_used_once_by(&c->g, values->bindings[i].var, graph_op_index(&c->g, concat->outputs[0])))
            return;
    sub = match_def(c, values->bindings[0].var, MIL_OP_SUB);
    for (int i = 1; i < values->n && at_add < 0; i++)
        if ((add = match_def(c, values->bindings[i].var, MIL_OP_ADD)))
            at_add = i;
    if (!sub || !add || at_add > 2 || !two_products(c, sub, minus) || !two_products(c, add, plus))
        return;
    /* minus = a*cos, b*sin; find a and b as slices of one x. */
    for (int swap = 0; swap < 2; swap++) {
        struct mil_var *a = mil_arg_var(minus[0], swap ? "y" : "x"), *cos_rows, *sin_rows, *b, *o1, *o2;
        const struct mil_op *slice_a = match_def(c, a, MIL_OP_SLICE_BY_INDEX), *slice_b;
        int64_t a0, a1, b0, b1;
        if (!slice_a || !match_product_of(minus[0], a, &cos_rows))
            continue;
        b = mil_arg_var(minus[1], "x");
        slice_b = match_def(c, b, MIL_OP_SLICE_BY_INDEX);
        if (!slice_b || mil_arg_var(slice_b, "x") != mil_arg_var(slice_a, "x")) {
            b = mil_arg_var(minus[1], "y");
            slice_b = match_def(c, b, MIL_OP_SLICE_BY_INDEX);
        }
        struct mil_var *x = mil_arg_var(slice_a, "x");
        if (!slice_b || mil_arg_var(slice_b, "x") != x || !match_product_of(minus[1], b, &sin_rows) ||
            !match_last_slice(c, slice_a, &a0, &a1) || !match_last_slice(c, slice_b, &b0, &b1) || a0 != 0 ||
            a1 - a0 != b1 - b0)
            continue;
        /* plus: b*cos + a*sin in either order */
        bool fits = (match_product_of(plus[0], b, &o1) && o1 == cos_rows &&
                     match_product_of(plus[1], a, &o2) && o2 == sin_rows) ||
                    (match_product_of(plus[1], b, &o1) && o1 == cos_rows &&
                     match_product_of(plus[0], a, &o2) && o2 == sin_rows);
        if (!fits || c->g.n_uses[a->id] != 2 || c->g.n_uses[b->id] != 2)
            continue;
        const struct mil_type *tables[2] = {var_type(c, cos_rows), var_type(c, sin_rows)};
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
            const struct mil_op *gap = match_def(c, values->bindings[i].var, MIL_OP_SLICE_BY_INDEX);
            fits = gap && mil_arg_var(gap, "x") == x && match_last_slice(c, gap, &g0, &g1) && g0 == want;
            want = g1;
            slices[n_slices++] = gap;
        }
        if (!fits || want != t->dims[3] || var_type(c, x)->rank != 4 || var_type(c, x)->dims[3] != want ||
            t->dims[0] != 1)
            return;
        struct rope_split *own = ARENA_NEW(c->scratch, struct rope_split);
        *own = (struct rope_split){.pairs = a1, .half = b0};
        struct fused *f = ARENA_NEW(c->scratch, struct fused);
        *f = (struct fused){
            .emit = emit_rope, .out = concat->outputs[0], .in = {x, cos_rows, sin_rows}, .own = own};
        match_add_op(&m, slice_a);
        match_add_op(&m, slice_b);
        match_add_op(&m, sub);
        match_add_op(&m, add);
        for (int i = 0; i < 2; i++) {
            match_add_op(&m, minus[i]);
            match_add_op(&m, plus[i]);
        }
        for (int i = 0; i < n_slices; i++)
            match_add_op(&m, slices[i]);
        match_take(&m, f, i_concat);
        return;
    }
}

/* ---- emit and run ---- */

struct rope {
    int64_t n_heads, n_rows, d, pairs, half;
    int64_t x_head, x_row, y_head, y_row, table_row;
};

static void run_rope(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct rope *p = s->params;
    const float *x = value_pointer(r, &s->in[0]), *cos_rows = value_pointer(r, &s->in[1]),
                *sin_rows = value_pointer(r, &s->in[2]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_rows * p->n_heads, 1, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / p->n_heads, h = i % p->n_heads;
        r->k->rope(y + h * p->y_head + t * p->y_row, x + h * p->x_head + t * p->x_row,
                   cos_rows + t * p->table_row, sin_rows + t * p->table_row, p->pairs, p->half, p->d);
    }
}

static bool emit_rope(struct compiler *c, const struct fused *f)
{
    const struct rope_split *own = f->own;
    struct rope *p = ARENA_NEW(c->arena, struct rope);
    struct value x[3]; /* x [1, n, T, d]; cos, sin [1, 1, T, pairs] */
    for (int i = 0; i < 3; i++) {
        if (!fused_operand(c, f, i, &x[i]) || !to_f32(c, &x[i]) || (i > 0 && !to_dense(c, &x[i])))
            return false;
    }
    to_unit_rows(c, &x[0]);
    struct value y = value_new_like(c, REPR_F32, 4, x[0].dims, &x[0]);
    if (y.dims[3] != 1 && y.strides[3] != 1)
        y = value_new(c, REPR_F32, 4, x[0].dims);
    p->n_heads = x[0].dims[1];
    p->n_rows = x[0].dims[2];
    p->d = x[0].dims[3];
    p->pairs = own->pairs;
    p->half = own->half;
    p->x_head = x[0].strides[1];
    p->x_row = x[0].strides[2];
    p->y_head = y.strides[1];
    p->y_row = y.strides[2];
    p->table_row = own->pairs;
    step_make(c, "rope", run_rope, p, x, 3, y);
    set_var(c, f->out, y);
    return true;
}
