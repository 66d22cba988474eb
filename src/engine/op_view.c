/* Ops that only rename elements: reshape, transpose, expand_dims, squeeze, slice_by_index, split. They become
 * strides; data moves only where strides can't say it (a reshape across them). */
#include <string.h>
#include "engine/engine_int.h"

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
    int64_t axis, at = 0;
    if (!operand(c, op, "x", &x) || !arg_int(c, op, "axis", 0, &axis))
        return false;
    if (axis < 0)
        axis += x.rank;
    if (axis < 0 || axis >= x.rank)
        return compile_fail(c, ERR_FORMAT, "axis outside the tensor");
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
