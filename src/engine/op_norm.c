/* Ops over rows: RMS norm (fused), layer_norm, softmax. */
#include <math.h>
#include <string.h>
#include "engine/engine_int.h"

/* Rows of n elements with unit stride; the other axes walked by strides, results in the same order. */
struct rows {
    int rank; /* of the outer axes */
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[2][MIL_RANK_MAX]; /* y, x */
    int64_t n_rows, n;
    const float *gamma, *beta;
    float eps;
};

static void row_offsets(const struct rows *p, int64_t row, int64_t at[2])
{
    at[0] = at[1] = 0;
    for (int i = p->rank - 1; i >= 0; i--) {
        int64_t k = row % p->dims[i];
        row /= p->dims[i];
        at[0] += k * p->strides[0][i];
        at[1] += k * p->strides[1][i];
    }
}

/* Prepares rows along the last axis of x; y is new with x's memory order. Copies x when a row has no unit
 * stride. */
static bool rows_new(struct compiler *c, struct value *x, struct value *y, struct rows **out)
{
    struct rows *p = ARENA_NEW(c->arena, struct rows);
    int last = x->rank - 1;
    if (x->dims[last] != 1 && x->strides[last] != 1) {
        struct value dense = value_new(c, x->repr, x->rank, x->dims);
        emit_copy(c, x, &dense);
        *x = dense;
    }
    *y = value_new_like(c, REPR_F32, x->rank, x->dims, x);
    if (y->dims[last] != 1 && y->strides[last] != 1)
        *y = value_new(c, REPR_F32, x->rank, x->dims);
    p->n = x->dims[last];
    p->n_rows = p->n > 0 ? value_elems(x) / p->n : 0;
    memcpy(p->dims, x->dims, sizeof p->dims);
    memcpy(p->strides[0], y->strides, sizeof p->strides[0]);
    memcpy(p->strides[1], x->strides, sizeof p->strides[1]);
    p->rank = coalesce(last, p->dims, 2, p->strides);
    *out = p;
    return true;
}

static const float *const_floats(struct compiler *c, const struct value *v)
{
    return (const float *)c->plan->storages[v->storage].data + v->offset;
}

/* ---- norms ---- */

static void run_rms_norm(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct rows *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, at[2];
    pool_split(p->n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        row_offsets(p, row, at);
        r->k->rms_norm(y + at[0], x + at[1], p->gamma, p->n, p->eps);
    }
}

static void run_layer_norm(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct rows *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, at[2];
    pool_split(p->n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        row_offsets(p, row, at);
        r->k->layer_norm(y + at[0], x + at[1], p->gamma, p->beta, p->n, p->eps);
    }
}

bool emit_rms_norm(struct compiler *c, const struct fused *f)
{
    struct mil_binding b = {.var = f->in[0]};
    struct value x, y, w;
    struct rows *p;
    if (!operand_binding(c, &b, &x) || !to_f32(c, &x) || !rows_new(c, &x, &y, &p))
        return false;
    if (f->weight) {
        if (!const_value(c, f->weight, REPR_F32, &w))
            return false;
        p->gamma = const_floats(c, &w);
    }
    if (f->rest) {
        if (!const_value(c, f->rest, REPR_F32, &w))
            return false;
        const float *rest = const_floats(c, &w);
        float *gain = ARENA_ARRAY(c->arena, float, p->n);
        for (int64_t i = 0; i < p->n; i++)
            gain[i] = p->gamma[i] + rest[i];
        p->gamma = gain;
    }
    p->eps = (float)f->eps;
    struct step *s = step_new(c, "rms norm", run_rms_norm);
    s->params = p;
    s->serial = value_elems(&x) < PARALLEL_ELEMS;
    step_in(c, s, x);
    step_out(c, s, y);
    set_var(c, f->out, y);
    return true;
}

/* Joins the last n axes of x, which are the ones named, into one. No axes named: all of them. */
static bool last_axes(struct compiler *c, struct value *x, const int64_t *axes, int n)
{
    bool named[MIL_RANK_MAX] = {false};
    int64_t dims[MIL_RANK_MAX], last = 1;
    if (x->rank < 1)
        return compile_fail(c, ERR_UNSUPPORTED, "a scalar");
    for (int i = 0; i < n; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + x->rank : axes[i];
        if (axis < 0 || axis >= x->rank)
            return compile_fail(c, ERR_FORMAT, "axis outside the tensor");
        named[axis] = true;
    }
    if (n == 0)
        n = x->rank;
    else
        for (int i = 0; i < x->rank; i++)
            if (named[i] != (i >= x->rank - n))
                return compile_fail(c, ERR_UNSUPPORTED, "axes other than the last ones");
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
    int n = MIL_RANK_MAX;
    double eps;
    bool present;
    if (!operand_f32(c, op, "x", &x) || !arg_ints(c, op, "axes", axes, &n) ||
        !arg_float(c, op, "epsilon", 1e-5, &eps))
        return false;
    if (x.repr != REPR_F32)
        return compile_fail(c, ERR_UNSUPPORTED, "integer operand");
    if (!last_axes(c, &x, axes, n) || !rows_new(c, &x, &y, &p))
        return false;
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
    struct step *s = step_new(c, "layer norm", run_layer_norm);
    s->params = p;
    s->serial = value_elems(&x) < PARALLEL_ELEMS;
    step_in(c, s, x);
    step_out(c, s, y);
    struct value shaped;
    if (y.rank != t->rank) {
        if (!view_reshape(&y, t->rank, t->dims, &shaped))
            return compile_fail(c, ERR_BUG, "a dense value that can't be reshaped");
        y = shaped;
    }
    set_output(c, op, 0, y);
    return true;
}

/* ---- softmax ---- */

static void run_softmax(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct rows *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, at[2];
    pool_split(p->n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        row_offsets(p, row, at);
        r->k->softmax(y + at[0], x + at[1], p->n);
    }
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
    int64_t axis;
    if (!operand_f32(c, op, "x", &x) || !arg_int(c, op, "axis", -1, &axis))
        return false;
    if (axis < 0)
        axis += x.rank;
    if (x.rank < 1 || axis < 0 || axis >= x.rank)
        return compile_fail(c, ERR_FORMAT, "axis outside the tensor");
    x = axis_last(&x, (int)axis);
    if (!rows_new(c, &x, &y, &p))
        return false;
    struct step *s = step_new(c, "softmax", run_softmax);
    s->params = p;
    s->serial = value_elems(&x) < 8192;
    step_in(c, s, x);
    step_out(c, s, y);
    set_output(c, op, 0, last_to_axis(&y, (int)axis));
    return true;
}
