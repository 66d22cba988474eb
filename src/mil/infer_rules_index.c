/* Result rules of indexed access, of ops that make new tensors and of those that move blocks between axes. */
#include <math.h>
#include <string.h>
#include "mil/infer_rules.h"

/* ---- indexed access ---- */

bool infer_rule_GATHER(struct infer *in)
{
    const struct mil_type *x, *indices;
    int64_t dims[MIL_RANK_MAX * 2], at, batch;
    int axis, rank = 0;
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "indices", &indices))
        return false;
    infer_int(in, "axis", 0, &at);
    infer_int(in, "batch_dims", 0, &batch);
    if (at == MIL_INT_UNKNOWN || batch == MIL_INT_UNKNOWN)
        return true;
    if (!infer_axis(in, "axis", at, x->rank, &axis))
        return false;
    if (batch < 0)
        batch += indices->rank;
    if (batch < 0 || batch > axis || batch > indices->rank)
        return infer_fail(in, "batch_dims %lld does not fit axis %d and indices of rank %d", (long long)batch,
                          axis, indices->rank);
    for (int i = 0; i < axis; i++)
        dims[rank++] = x->dims[i];
    for (int i = (int)batch; i < indices->rank; i++)
        dims[rank++] = indices->dims[i];
    for (int i = axis + 1; i < x->rank; i++)
        dims[rank++] = x->dims[i];
    return infer_out(in, 0, x->dtype, rank, dims);
}

bool infer_rule_GATHER_ALONG(struct infer *in)
{
    const struct mil_type *x, *indices;
    int64_t at;
    int axis;
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "indices", &indices))
        return false;
    if (x->rank != indices->rank)
        return infer_fail(in, "x has rank %d, indices have rank %d", x->rank, indices->rank);
    infer_int(in, "axis", 0, &at);
    if (at != MIL_INT_UNKNOWN) {
        if (!infer_axis(in, "axis", at, x->rank, &axis))
            return false;
        for (int i = 0; i < x->rank; i++) {
            if (i != axis && !infer_dims_meet(in, "sizes of x and indices", x->dims[i], indices->dims[i]))
                return false;
        }
    }
    return infer_out(in, 0, x->dtype, indices->rank, indices->dims);
}

bool infer_rule_GATHER_ND(struct infer *in)
{
    const struct mil_type *x, *indices;
    int64_t dims[MIL_RANK_MAX * 2], batch;
    int rank = 0;
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "indices", &indices))
        return false;
    infer_int(in, "batch_dims", 0, &batch);
    if (batch == MIL_INT_UNKNOWN)
        return true;
    if (indices->rank < 1)
        return infer_fail(in, "indices need at least one axis");
    int64_t n = indices->dims[indices->rank - 1];
    if (n < 0)
        return true;
    if (batch < 0 || batch >= indices->rank || n > x->rank - batch)
        return infer_fail(in, "tuples of %lld indices behind %lld batch axes do not fit rank %d",
                          (long long)n, (long long)batch, x->rank);
    for (int i = 0; i < indices->rank - 1; i++)
        dims[rank++] = indices->dims[i];
    for (int i = (int)(batch + n); i < x->rank; i++)
        dims[rank++] = x->dims[i];
    return infer_out(in, 0, x->dtype, rank, dims);
}

bool infer_rule_TOPK(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX], at, k;
    int axis;
    if (!infer_tensor(in, "x", &x))
        return false;
    infer_int(in, "axis", -1, &at);
    infer_int(in, "k", 1, &k);
    if (at == MIL_INT_UNKNOWN)
        return true;
    if (!infer_axis(in, "axis", at, x->rank, &axis))
        return false;
    if (k >= 0 && x->dims[axis] >= 0 && k > x->dims[axis])
        return infer_fail(in, "k is %lld, axis %d has size %lld", (long long)k, axis,
                          (long long)x->dims[axis]);
    memcpy(dims, x->dims, sizeof dims[0] * (size_t)x->rank);
    dims[axis] = k < 0 ? MIL_DIM_UNKNOWN : k;
    if (!infer_out(in, 0, x->dtype, x->rank, dims) || !infer_bool(in, "return_indices", true))
        return in->op->n_outputs > 0;
    enum mil_dtype d = infer_named_dtype(in, "output_indices_dtype", MIL_INT32);
    if (!mil_dtype_is_integer(d))
        return infer_fail(in, "output_indices_dtype is not an integer type");
    return infer_out(in, 1, d, x->rank, dims);
}

bool infer_rule_ARGSORT(struct infer *in)
{
    const struct mil_type *x;
    return infer_tensor(in, "x", &x) && infer_out(in, 0, MIL_INT32, x->rank, x->dims);
}

/* ---- new tensors ---- */

bool infer_rule_PAD(struct infer *in)
{
    const struct mil_type *x, *pad_type;
    int64_t pad[MIL_RANK_MAX * 2], dims[MIL_RANK_MAX];
    int n;
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "pad", &pad_type))
        return false;
    if (!infer_ints(in, "pad", pad, MIL_RANK_MAX * 2, &n))
        return true;
    if (n % 2 != 0 || n / 2 > x->rank)
        return infer_fail(in, "pad has %d entries, expected two for each axis, at most %d", n, 2 * x->rank);
    if (x->rank > 0)
        memcpy(dims, x->dims, sizeof dims[0] * (size_t)x->rank);
    for (int i = 0; i < n / 2; i++) {
        int64_t *d = &dims[x->rank - n / 2 + i];
        for (int k = 2 * i; k < 2 * i + 2; k++) {
            if (pad[k] < 0 && pad[k] != MIL_INT_UNKNOWN)
                return infer_fail(in, "pad has the entry %lld", (long long)pad[k]);
            if (!infer_dim_add(in, *d, pad[k], d))
                return false;
        }
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

bool infer_rule_ONE_HOT(struct infer *in)
{
    const struct mil_type *indices, *on;
    int64_t dims[MIL_RANK_MAX], at, size;
    int axis;
    if (!infer_tensor(in, "indices", &indices) || !infer_tensor_optional(in, "on_value", &on))
        return false;
    infer_int(in, "axis", -1, &at);
    infer_int(in, "one_hot_vector_size", MIL_INT_UNKNOWN, &size);
    if (at == MIL_INT_UNKNOWN)
        return true;
    if (size < 0 && size != MIL_INT_UNKNOWN)
        return infer_fail(in, "one_hot_vector_size is %lld", (long long)size);
    if (indices->rank == MIL_RANK_MAX)
        return infer_fail(in, "the result has more than %d axes", MIL_RANK_MAX);
    if (!infer_axis(in, "axis", at, indices->rank + 1, &axis))
        return false;
    for (int i = 0, k = 0; i <= indices->rank; i++)
        dims[i] = i == axis ? (size < 0 ? MIL_DIM_UNKNOWN : size) : indices->dims[k++];
    return infer_out(in, 0, on ? on->dtype : MIL_INT32, indices->rank + 1, dims);
}

bool infer_rule_RANGE_1D(struct infer *in)
{
    static const char *const names[3] = {"start", "end", "step"};
    const struct mil_type *t;
    double v[3];
    int64_t whole, n = MIL_DIM_UNKNOWN;
    bool known = true;
    for (int i = 0; i < 3; i++) {
        if (!infer_tensor(in, names[i], &t))
            return false;
        if (mil_dtype_is_integer(t->dtype)) {
            infer_int(in, names[i], MIL_INT_UNKNOWN, &whole);
            known &= whole != MIL_INT_UNKNOWN;
            v[i] = (double)whole;
        } else {
            known &= mil_value_float(mil_arg_value(in->op, names[i]), &v[i]);
        }
    }
    if (known) {
        if (!(v[2] < 0 || v[2] > 0))
            return infer_fail(in, "step is 0 or no number");
        double count = ceil((v[1] - v[0]) / v[2]);
        if (!(count < 0x1p62))
            return infer_fail(in, "the range has no countable length");
        n = count > 0 ? (int64_t)count : 0;
    }
    return infer_out(in, 0, t->dtype, 1, &n);
}

bool infer_shape_out(struct infer *in, enum mil_dtype d)
{
    int64_t dims[MIL_RANK_MAX];
    int n;
    if (!infer_ints(in, "shape", dims, MIL_RANK_MAX, &n))
        return true;
    for (int i = 0; i < n; i++) {
        if (dims[i] < 0 && dims[i] != MIL_INT_UNKNOWN)
            return infer_fail(in, "shape has the entry %lld", (long long)dims[i]);
        if (dims[i] == MIL_INT_UNKNOWN)
            dims[i] = MIL_DIM_UNKNOWN;
    }
    return infer_out(in, 0, d, n, dims);
}

bool infer_rule_FILL(struct infer *in)
{
    const struct mil_type *value;
    return infer_tensor_optional(in, "value", &value) && infer_shape_out(in, value ? value->dtype : MIL_FP32);
}

bool infer_rule_FILL_LIKE(struct infer *in)
{
    const struct mil_type *ref, *value;
    return infer_tensor(in, "ref_tensor", &ref) && infer_tensor_optional(in, "value", &value) &&
           infer_out(in, 0, value ? value->dtype : MIL_FP32, ref->rank, ref->dims);
}

bool infer_rule_SHAPE(struct infer *in)
{
    const struct mil_type *x;
    if (!infer_tensor(in, "x", &x))
        return false;
    int64_t n = x->rank;
    return infer_out(in, 0, MIL_INT32, 1, &n);
}

bool infer_rule_NON_ZERO(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[2] = {MIL_DIM_UNKNOWN, 0};
    if (!infer_tensor(in, "x", &x))
        return false;
    dims[1] = x->rank;
    return infer_out(in, 0, MIL_INT32, 2, dims);
}

bool infer_rule_FLATTEN2D(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[2], axis;
    if (!infer_tensor(in, "x", &x))
        return false;
    infer_int(in, "axis", 1, &axis);
    if (axis == MIL_INT_UNKNOWN)
        return true;
    if (axis < -x->rank || axis > x->rank)
        return infer_fail(in, "axis %lld is outside rank %d", (long long)axis, x->rank);
    int at = (int)(axis < 0 ? axis + x->rank : axis);
    return infer_dim_product(in, x->dims, 0, at, &dims[0]) &&
           infer_dim_product(in, x->dims, at, x->rank, &dims[1]) && infer_out(in, 0, x->dtype, 2, dims);
}

/* Channels of [n, c, h, w] divided by factor squared and height and width multiplied by it, or the other way.
 */
static bool move_blocks(struct infer *in, const char *factor_name, bool to_channels)
{
    const struct mil_type *x;
    int64_t f, square, dims[4];
    if (!infer_tensor(in, "x", &x))
        return false;
    infer_int(in, factor_name, MIL_INT_UNKNOWN, &f);
    if (x->rank != 4)
        return infer_fail(in, "needs x of rank 4, found %d", x->rank);
    if (f == MIL_INT_UNKNOWN)
        return true;
    if (f < 1 || f > INT32_MAX)
        return infer_fail(in, "%s is %lld", factor_name, (long long)f);
    square = f * f;
    for (int i = 0; i < 4; i++) {
        int64_t d = x->dims[i], by = i == 0 ? 1 : i == 1 ? square : f;
        bool divide = (i == 1) != to_channels;
        dims[i] = d;
        if (divide && d >= 0 && d % by != 0)
            return infer_fail(in, "axis %d has size %lld, which %lld does not divide", i, (long long)d,
                              (long long)by);
        if (divide)
            dims[i] = d < 0 ? MIL_DIM_UNKNOWN : d / by;
        else if (!infer_dim_mul(in, d, by, &dims[i]))
            return false;
    }
    return infer_out(in, 0, x->dtype, 4, dims);
}

bool infer_rule_DEPTH_TO_SPACE(struct infer *in)
{
    return move_blocks(in, "block_size", false);
}

bool infer_rule_SPACE_TO_DEPTH(struct infer *in)
{
    return move_blocks(in, "block_size", true);
}

bool infer_rule_PIXEL_SHUFFLE(struct infer *in)
{
    return move_blocks(in, "upscale_factor", false);
}

bool infer_rule_PIXEL_UNSHUFFLE(struct infer *in)
{
    return move_blocks(in, "downscale_factor", true);
}

bool infer_rule_SLIDING_WINDOWS(struct infer *in)
{
    const struct mil_type *x;
    int64_t at, size, stride, dims[MIL_RANK_MAX + 1];
    int axis, rank = 0;
    if (!infer_tensor(in, "x", &x))
        return false;
    infer_int(in, "axis", MIL_INT_UNKNOWN, &at);
    infer_int(in, "size", MIL_INT_UNKNOWN, &size);
    infer_int(in, "stride", 1, &stride);
    if (at == MIL_INT_UNKNOWN || size == MIL_INT_UNKNOWN || stride == MIL_INT_UNKNOWN)
        return true;
    if (!infer_axis(in, "axis", at, x->rank, &axis))
        return false;
    if (size < 1 || stride < 1 || (x->dims[axis] >= 0 && size > x->dims[axis]))
        return infer_fail(in, "windows of size %lld and stride %lld do not fit axis %d of size %lld",
                          (long long)size, (long long)stride, axis, (long long)x->dims[axis]);
    for (int i = 0; i < x->rank; i++) {
        dims[rank++] = i != axis || x->dims[i] < 0 ? x->dims[i] : (x->dims[i] - size) / stride + 1;
        if (i == axis)
            dims[rank++] = size;
    }
    return infer_out(in, 0, x->dtype, rank, dims);
}
