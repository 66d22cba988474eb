/* Ops that only rename elements: reshape, transpose, expand_dims, squeeze, slices, split, reverse. They become strides;
 * data moves only where strides can't say it (a reshape across them). And constants by shape (fill, shape, range_1d),
 * which are known before the run. */
#include <string.h>
#include "engine/compiler.h"

static bool result_dims(struct compiler *c, const struct mil_op *op, int i, const int64_t **dims, int *rank)
{
    const struct mil_type *t = var_type(c, op->outputs[i]);
    *dims = t->dims;
    *rank = t->rank;
    return true;
}

bool emit_view(struct compiler *c, const struct mil_op *op)
{
    struct value x, y;
    const int64_t *dims;
    int rank;
    if (!operand(c, op, "x", &x) || !result_dims(c, op, 0, &dims, &rank))
        return false;
    if (op->info->id == MIL_OP_TRANSPOSE) {
        int64_t perm[MIL_RANK_MAX];
        int n = MIL_RANK_MAX;
        if (!arg_ints(c, op, "perm", perm, &n))
            return false;
        if (n != x.rank)
            return compile_fail(c, ERR_FORMAT, "perm has %d entries for %d axes", n, x.rank);
        y = x;
        for (int i = 0; i < n; i++) {
            int64_t p = perm[i] < 0 ? perm[i] + n : perm[i];
            if (p < 0 || p >= n)
                return compile_fail(c, ERR_FORMAT, "perm names axis %lld of %d", (long long)perm[i], n);
            y.dims[i] = x.dims[p];
            y.strides[i] = x.strides[p];
        }
    } else {
        int64_t n = 1;
        for (int i = 0; i < rank; i++)
            n *= dims[i];
        if (n != value_elems(&x))
            return compile_fail(c, ERR_FORMAT, "%lld elements can't become %lld", (long long)value_elems(&x),
                                (long long)n);
        if (!view_reshape(&x, rank, dims, &y)) {
            if (!to_dense(c, &x))
                return false;
            if (!view_reshape(&x, rank, dims, &y))
                return compile_fail(c, ERR_BUG, "a dense value that can't be reshaped");
        }
    }
    set_var(c, op->outputs[0], y);
    return true;
}

bool emit_slice_by_index(struct compiler *c, const struct mil_op *op)
{
    int64_t begin[MIL_RANK_MAX] = {0}, end[MIL_RANK_MAX] = {0}, stride[MIL_RANK_MAX],
            mask_begin[MIL_RANK_MAX] = {0}, mask_end[MIL_RANK_MAX] = {0}, squeeze[MIL_RANK_MAX] = {0};
    int n_begin = MIL_RANK_MAX, n_end = MIL_RANK_MAX, n_stride = MIL_RANK_MAX, n = MIL_RANK_MAX;
    struct value x, y;
    if (!operand(c, op, "x", &x) || !arg_ints(c, op, "begin", begin, &n_begin) ||
        !arg_ints(c, op, "end", end, &n_end) || !arg_ints(c, op, "stride", stride, &n_stride) ||
        !arg_ints(c, op, "begin_mask", mask_begin, &n))
        return false;
    n = MIL_RANK_MAX;
    if (!arg_ints(c, op, "end_mask", mask_end, &n))
        return false;
    n = MIL_RANK_MAX;
    if (!arg_ints(c, op, "squeeze_mask", squeeze, &n))
        return false;
    if (n_begin != x.rank || (n_end != x.rank))
        return compile_fail(c, ERR_UNSUPPORTED, "begin and end must be constants of %d entries", x.rank);
    y = x;
    y.rank = 0;
    for (int i = 0; i < x.rank; i++) {
        int64_t step = n_stride == x.rank ? stride[i] : 1, size = x.dims[i];
        if (step == 0)
            return compile_fail(c, ERR_FORMAT, "stride 0");
        int64_t b = begin[i] < 0 ? begin[i] + size : begin[i], t = end[i] < 0 ? end[i] + size : end[i];
        if (mask_begin[i])
            b = step > 0 ? 0 : size - 1;
        if (mask_end[i])
            t = step > 0 ? size : -1;
        if (squeeze[i]) {
            t = b + 1;
            step = 1;
        }
        if (t > size)
            t = size;
        if (step > 0 && b > size)
            b = size;
        if (step < 0 && b >= size)
            b = size - 1;
        if (b < 0 || (squeeze[i] && b >= size))
            return compile_fail(c, ERR_FORMAT, "begin %lld lies outside axis %d of %lld", (long long)begin[i],
                                i, (long long)size);
        int64_t count = step > 0 ? (t - b + step - 1) / step : (t - b + step + 1) / step;
        if (count < 0)
            count = 0;
        y.offset += b * x.strides[i];
        if (squeeze[i])
            continue;
        y.dims[y.rank] = count;
        y.strides[y.rank++] = x.strides[i] * step;
    }
    const struct mil_type *t = var_type(c, op->outputs[0]);
    bool same = t->rank == y.rank;
    for (int i = 0; same && i < y.rank; i++)
        same = t->dims[i] == y.dims[i];
    if (!same)
        return compile_fail(c, ERR_FORMAT, "its declared result shape is not what the slice gives");
    set_var(c, op->outputs[0], y);
    return true;
}

bool emit_split(struct compiler *c, const struct mil_op *op)
{
    struct value x;
    int axis;
    int64_t at = 0;
    if (!operand(c, op, "x", &x) || !arg_axis(c, op, 0, x.rank, &axis))
        return false;
    for (int i = 0; i < op->n_outputs; i++) {
        const struct mil_type *t = var_type(c, op->outputs[i]);
        struct value y = x;
        if (t->rank != x.rank || at + t->dims[axis] > x.dims[axis])
            return compile_fail(c, ERR_FORMAT, "the parts are more than the whole");
        y.dims[axis] = t->dims[axis];
        y.offset += at * x.strides[axis];
        at += t->dims[axis];
        set_var(c, op->outputs[i], y);
    }
    return true;
}

bool emit_reverse(struct compiler *c, const struct mil_op *op)
{
    struct value x;
    int64_t axes[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    bool turned[MIL_RANK_MAX] = {false};
    if (!operand(c, op, "x", &x) || !arg_ints(c, op, "axes", axes, &n))
        return false;
    for (int i = 0; i < x.rank; i++)
        turned[i] = n == 0;
    for (int i = 0; i < n; i++) {
        int axis;
        if (!axis_of(c, axes[i], x.rank, &axis))
            return false;
        turned[axis] = true;
    }
    for (int i = 0; i < x.rank; i++) {
        if (!turned[i] || x.dims[i] < 1)
            continue;
        x.offset += (x.dims[i] - 1) * x.strides[i];
        x.strides[i] = -x.strides[i];
    }
    set_var(c, op->outputs[0], x);
    return true;
}

bool emit_slice_by_size(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x;
    int64_t begin[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    if (!operand(c, op, "x", &x) || !arg_ints(c, op, "begin", begin, &n))
        return false;
    if (n != x.rank || t->rank != x.rank)
        return compile_fail(c, ERR_FORMAT, "begin has %d entries for %d axes", n, x.rank);
    for (int i = 0; i < n; i++) {
        int64_t b = begin[i] < 0 ? begin[i] + x.dims[i] : begin[i];
        if (b < 0 || b > x.dims[i] || t->dims[i] > x.dims[i] - b)
            return compile_fail(c, ERR_FORMAT, "the slice lies outside axis %d", i);
        x.offset += b * x.strides[i];
        x.dims[i] = t->dims[i];
    }
    set_var(c, op->outputs[0], x);
    return true;
}

/* ---- known before the run ---- */

/* A constant of the plan with n elements of 4 bytes; the caller fills *data. */
static bool new_const(struct compiler *c, enum repr repr, int rank, const int64_t *dims, void **data,
                      struct value *out)
{
    struct value v = {.repr = repr, .rank = rank};
    for (int i = 0; i < rank; i++)
        v.dims[i] = dims[i];
    dense_strides(rank, dims, v.strides);
    int64_t n = value_elems(&v);
    if (!compile_take_memory(c, n, 4) || !(*data = arena_try_alloc(c->arena, (size_t)n + 16, 4, c->e)))
        return false;
    v.storage = storage_new(c, STORAGE_CONST, repr, n);
    c->plan->storages[v.storage].data = *data;
    *out = v;
    return true;
}

/* One number seen at every place of the result. */
bool emit_fill(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    double number;
    void *data;
    struct value v;
    enum repr repr = dtype_repr(t->dtype);
    if (!arg_float(c, op, "value", 0, &number) || !new_const(c, repr, 0, NULL, &data, &v))
        return false;
    if (repr == REPR_F32)
        *(float *)data = (float)number;
    else
        *(int32_t *)data = (int32_t)number;
    v.rank = t->rank;
    for (int i = 0; i < t->rank; i++) {
        v.dims[i] = t->dims[i];
        v.strides[i] = 0;
    }
    set_var(c, op->outputs[0], v);
    return true;
}

bool emit_shape(struct compiler *c, const struct mil_op *op)
{
    const struct mil_var *x = mil_arg_var(op, "x");
    const struct mil_type *t = x ? var_type(c, x) : NULL;
    void *data;
    struct value v;
    if (!t || t->kind != MIL_TYPE_TENSOR || mil_type_elems(t) < 0)
        return compile_fail(c, ERR_UNSUPPORTED, "the shape of x is not known before the run");
    if (!new_const(c, REPR_I32, 1, &(int64_t){t->rank}, &data, &v))
        return false;
    for (int i = 0; i < t->rank; i++)
        ((int32_t *)data)[i] = (int32_t)t->dims[i];
    set_var(c, op->outputs[0], v);
    return true;
}

bool emit_range_1d(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    void *data;
    struct value v;
    if (!new_const(c, dtype_repr(t->dtype), 1, t->dims, &data, &v))
        return false;
    if (v.repr == REPR_I32) {
        int64_t start, step;
        if (!arg_int(c, op, "start", 0, &start) || !arg_int(c, op, "step", 1, &step))
            return false;
        for (int64_t i = 0; i < t->dims[0]; i++)
            ((int32_t *)data)[i] = (int32_t)(start + i * step);
    } else {
        double start, step;
        if (!arg_float(c, op, "start", 0, &start) || !arg_float(c, op, "step", 1, &step))
            return false;
        for (int64_t i = 0; i < t->dims[0]; i++)
            ((float *)data)[i] = (float)(start + (double)i * step);
    }
    set_var(c, op->outputs[0], v);
    return true;
}
