/* Ops over rows: layer_norm, softmax; and the rows of the RMS norm (pattern_rms_norm.c). */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

struct rows *rows_new(struct compiler *c, struct value *x, struct value *y)
{
    struct rows *p = ARENA_NEW(c->arena, struct rows);
    int last = x->rank - 1;
    to_unit_rows(c, x);
    *y = value_new_like(c, REPR_F32, x->rank, x->dims, x);
    if (y->dims[last] != 1 && y->strides[last] != 1)
        *y = value_new(c, REPR_F32, x->rank, x->dims);
    p->n = x->dims[last];
    p->n_rows = p->n > 0 ? value_elems(x) / p->n : 0;
    memcpy(p->dims, x->dims, sizeof p->dims);
    memcpy(p->strides[0], y->strides, sizeof p->strides[0]);
    memcpy(p->strides[1], x->strides, sizeof p->strides[1]);
    p->rank = coalesce(last, p->dims, 2, p->strides);
    return p;
}

const float *const_floats(const struct compiler *c, const struct value *v)
{
    return (const float *)c->plan->storages[v->storage].data + v->offset;
}

/* ---- norms ---- */

void run_rows(const struct rows *p, const struct step *s, struct engine_run *r, row_fn f, int i_thread,
              int n_threads)
{
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, at[2];
    pool_split(p->n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        walk_offsets(p->rank, p->dims, 2, p->strides, row, at);
        f(p, r->k, y + at[0], x + at[1]);
    }
}

static void layer_norm_row(const struct rows *p, const struct kernels *k, float *y, const float *x)
{
    k->layer_norm(y, x, p->gamma, p->beta, p->n, p->eps);
}

static void run_layer_norm(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    run_rows(s->params, s, r, layer_norm_row, i_thread, n_threads);
}

static void run_layer_norm_by_pieces(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    run_rows(s->params, s, r, ane_layer_norm_row, i_thread, n_threads);
}

/* Sees x with the axes that are named behind the others, each group in its order: axis i of what is seen is perm[i] of x. No axes named:
 * all of them. *n: how many. */
static bool named_axes_last(struct compiler *c, struct value *x, const int64_t *axes, int *n,
                            int perm[MIL_RANK_MAX])
{
    bool named[MIL_RANK_MAX] = {false};
    const struct value from = *x;
    int at = 0;
    if (x->rank < 1)
        return compile_fail(c, ERR_UNSUPPORTED, "a scalar");
    for (int i = 0; i < *n; i++) {
        int axis;
        if (!axis_of(c, axes[i], x->rank, &axis))
            return false;
        if (named[axis])
            return compile_fail(c, ERR_FORMAT, "axis %d is named twice", axis);
        named[axis] = true;
    }
    for (int i = 0; i < x->rank; i++)
        if (*n > 0 && !named[i])
            perm[at++] = i;
    for (int i = 0; i < x->rank; i++)
        if (*n == 0 || named[i])
            perm[at++] = i;
    if (*n == 0)
        *n = x->rank;
    for (int i = 0; i < x->rank; i++) {
        x->dims[i] = from.dims[perm[i]];
        x->strides[i] = from.strides[perm[i]];
    }
    return true;
}

/* Joins the last n axes of x into one. */
static bool join_last_axes(struct compiler *c, struct value *x, int n)
{
    int64_t dims[MIL_RANK_MAX], last = 1;
    if (n == 1)
        return true;
    for (int i = 0; i < x->rank; i++) {
        if (i < x->rank - n)
            dims[i] = x->dims[i];
        else
            last *= x->dims[i];
    }
    int rank = x->rank - n + 1;
    dims[rank - 1] = last;
    struct value joined;
    if (!to_dense(c, x))
        return false;
    if (!view_reshape(x, rank, dims, &joined))
        return compile_fail(c, ERR_BUG, "a dense value that can't be reshaped");
    *x = joined;
    return true;
}

bool emit_layer_norm(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x, y, v;
    struct rows *p;
    int64_t axes[MIL_RANK_MAX];
    int n = MIL_RANK_MAX, perm[MIL_RANK_MAX];
    double eps;
    bool present;
    if (!operand_f32(c, op, "x", &x) || !arg_ints(c, op, "axes", axes, &n) ||
        !arg_float(c, op, "epsilon", 1e-5, &eps))
        return false;
    if (x.repr != REPR_F32)
        return compile_fail(c, ERR_UNSUPPORTED, "integer operand");
    if (!named_axes_last(c, &x, axes, &n, perm))
        return false;
    int64_t seen[MIL_RANK_MAX];
    memcpy(seen, x.dims, sizeof seen);
    if (!join_last_axes(c, &x, n))
        return false;
    p = rows_new(c, &x, &y);
    const char *const names[2] = {"gamma", "beta"};
    for (int i = 0; i < 2; i++) {
        if (!operand_optional(c, op, names[i], &v, &present) || (present && !to_f32(c, &v)))
            return false;
        if (present &&
            (c->plan->storages[v.storage].kind != STORAGE_CONST || value_elems(&v) != p->n || !is_dense(&v)))
            return compile_fail(c, ERR_UNSUPPORTED, "%s must be a constant of %lld numbers", names[i],
                                (long long)p->n);
        if (present)
            *(i == 0 ? &p->gamma : &p->beta) = const_floats(c, &v);
    }
    p->eps = (float)eps;
    bool by_pieces = c->plan->precision == ENGINE_ANE && c->plan->ane.fp16_norms;
    struct step *s =
        step_make(c, "layer norm", by_pieces ? run_layer_norm_by_pieces : run_layer_norm, p, &x, 1, y);
    s->serial = value_elems(&x) < PARALLEL_ELEMS;
    struct value shaped = y;
    if (y.rank != t->rank && !view_reshape(&y, t->rank, seen, &shaped))
        return compile_fail(c, ERR_BUG, "a dense value that can't be reshaped");
    y = shaped;
    for (int i = 0; i < t->rank; i++) { /* the axes of x again */
        y.dims[perm[i]] = shaped.dims[i];
        y.strides[perm[i]] = shaped.strides[i];
    }
    set_output(c, op, 0, y);
    return true;
}

/* ---- softmax ---- */

static void softmax_row(const struct rows *p, const struct kernels *k, float *y, const float *x)
{
    k->softmax(y, x, p->n);
}

static void run_softmax(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    run_rows(s->params, s, r, softmax_row, i_thread, n_threads);
}

static void run_softmax_by_pieces(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    run_rows(s->params, s, r, ane_softmax_row, i_thread, n_threads);
}

/* Moves an axis to the end as a view. */
static struct value axis_last(const struct value *v, int axis)
{
    struct value y = *v;
    for (int i = axis; i + 1 < v->rank; i++) {
        y.dims[i] = v->dims[i + 1];
        y.strides[i] = v->strides[i + 1];
    }
    y.dims[v->rank - 1] = v->dims[axis];
    y.strides[v->rank - 1] = v->strides[axis];
    return y;
}

static struct value last_to_axis(const struct value *v, int axis)
{
    struct value y = *v;
    for (int i = v->rank - 1; i > axis; i--) {
        y.dims[i] = v->dims[i - 1];
        y.strides[i] = v->strides[i - 1];
    }
    y.dims[axis] = v->dims[v->rank - 1];
    y.strides[axis] = v->strides[v->rank - 1];
    return y;
}

bool emit_softmax(struct compiler *c, const struct mil_op *op)
{
    struct value x, y;
    struct rows *p;
    int axis;
    if (!operand_f32(c, op, "x", &x) || !arg_axis(c, op, -1, x.rank, &axis))
        return false;
    x = axis_last(&x, axis);
    p = rows_new(c, &x, &y);
    bool by_pieces = c->plan->precision == ENGINE_ANE && c->plan->ane.fp16_norms;
    struct step *s = step_make(c, "softmax", by_pieces ? run_softmax_by_pieces : run_softmax, p, &x, 1, y);
    s->serial = value_elems(&x) < 8192;
    set_output(c, op, 0, last_to_axis(&y, axis));
    return true;
}
