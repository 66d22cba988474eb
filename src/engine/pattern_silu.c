/* The pattern of a gated SiLU:
 *
 *     y = silu(x)                             the op, or
 *     y = x * (tanh(x * 0.5) * 0.5 + 0.5)     the same by tanh
 *     y = y * up                              perhaps */
#include <string.h>
#include "engine/match.h"

/* ---- match ---- */

static bool emit_silu_mul(struct compiler *c, const struct fused *f);

void pattern_silu(struct compiler *c, int i_op)
{
    struct match m = match_begin(c);
    const struct mil_op *op = c->g.ops[i_op], *root = op;
    struct mil_var *x = NULL, *v;
    double d;
    if (op->info->id == MIL_OP_SILU) {
        x = mil_arg_var(op, "x");
        match_add_op(&m, op);
    } else { /* op is the tanh */
        const struct mil_op *half = match_def(c, mil_arg_var(op, "x"), MIL_OP_MUL), *scale, *shift;
        if (!half || !match_var_and_number(c, half, &x, &d) || d != 0.5 ||
            !graph_used_once_by(&c->g, half->outputs[0], graph_op_index(&c->g, op->outputs[0])))
            return;
        scale = match_only_user(c, op->outputs[0], MIL_OP_MUL);
        if (!scale || !match_var_and_number(c, scale, &v, &d) || d != 0.5 || v != op->outputs[0])
            return;
        shift = match_only_user(c, scale->outputs[0], MIL_OP_ADD);
        if (!shift || !match_var_and_number(c, shift, &v, &d) || d != 0.5 || v != scale->outputs[0])
            return;
        root = match_only_user(c, shift->outputs[0], MIL_OP_MUL);
        if (!root || !match_product_of(root, shift->outputs[0], &v) || v != x)
            return;
        match_add_op(&m, half);
        match_add_op(&m, op);
        match_add_op(&m, scale);
        match_add_op(&m, shift);
        match_add_op(&m, root);
    }
    if (!x || c->consts[x->id] || !mil_dtype_is_float(var_type(c, x)->dtype))
        return;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    struct mil_var *up = NULL;
    const struct mil_op *gate = match_only_user(c, root->outputs[0], MIL_OP_MUL);
    if (gate && match_product_of(gate, root->outputs[0], &up) && up && up != root->outputs[0] &&
        !c->consts[up->id] && mil_type_equal(var_type(c, up), var_type(c, x))) {
        match_add_op(&m, gate);
        root = gate;
    } else {
        up = NULL;
    }
    *f = (struct fused){.emit = emit_silu_mul, .out = root->outputs[0], .in = {x, up}};
    match_take(&m, f, graph_op_index(&c->g, root->outputs[0]));
}

bool fused_is_gated_silu(const struct fused *f)
{
    return f->emit == emit_silu_mul && f->in[1];
}

/* ---- emit and run ---- */

struct silu_mul {
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[3][MIL_RANK_MAX]; /* y, x, up: unit stride in the last axis */
};

static void run_silu_mul(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct silu_mul *p = s->params;
    const float *x = value_pointer(r, &s->in[0]), *up = s->n_in > 1 ? value_pointer(r, &s->in[1]) : NULL;
    float *y = value_pointer(r, &s->out[0]);
    int inner = p->rank - 1;
    int64_t n_rows = 1, begin, end;
    for (int i = 0; i < inner; i++)
        n_rows *= p->dims[i];
    if (n_rows == 1) {
        pool_split(p->dims[inner], 64, i_thread, n_threads, &begin, &end);
        if (end > begin)
            r->k->silu_mul(y + begin, x + begin, up ? up + begin : NULL, end - begin);
        return;
    }
    pool_split(n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t at[3];
        walk_offsets(inner, p->dims, 3, p->strides, row, at);
        r->k->silu_mul(y + at[0], x + at[1], up ? up + at[2] : NULL, p->dims[inner]);
    }
}

static bool emit_silu_mul(struct compiler *c, const struct fused *f)
{
    struct silu_mul *p = ARENA_NEW(c->arena, struct silu_mul);
    struct value x[2];
    int n = f->in[1] ? 2 : 1;
    for (int i = 0; i < n; i++) {
        if (!fused_operand(c, f, i, &x[i]) || !to_f32(c, &x[i]))
            return false;
    }
    struct value y = value_new_like(c, REPR_F32, x[0].rank, x[0].dims, &x[0]);
    int order[MIL_RANK_MAX];
    axes_by_stride(&y, order);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < y.rank; i++) {
            p->dims[i] = y.dims[order[i]];
            p->strides[0][i] = y.strides[order[i]];
            p->strides[1][i] = x[0].strides[order[i]];
            p->strides[2][i] = x[n - 1].strides[order[i]];
        }
        p->rank = coalesce(y.rank, p->dims, 3, p->strides);
        bool unit = true;
        for (int j = 0; j < 3; j++)
            unit = unit && (p->dims[p->rank - 1] == 1 || p->strides[j][p->rank - 1] == 1);
        if (unit)
            break;
        for (int i = 0; i < n; i++) { /* an unusual layout: bring both into the result's */
            struct value same = value_new(c, REPR_F32, y.rank, y.dims);
            memcpy(same.strides, y.strides, sizeof same.strides);
            emit_copy(c, &x[i], &same);
            x[i] = same;
        }
    }
    struct step *s = step_make(c, n == 2 ? "silu mul" : "silu", run_silu_mul, p, x, n, y);
    s->serial = value_elems(&y) < 4096;
    set_var(c, f->out, y);
    return true;
}
