/* Result rules of products, reductions, indexed access and ops that make new tensors. */
#include <math.h>
#include <string.h>
#include "mil/infer_rules.h"

/* ---- products ---- */

/* Dimensions that must meet: equal where both are known. */
static bool dims_meet(struct infer *in, const char *what, int64_t a, int64_t b)
{
    if (a >= 0 && b >= 0 && a != b)
        return infer_fail(in, "%s differ: %lld and %lld", what, (long long)a, (long long)b);
    return true;
}

static bool dtypes_meet(struct infer *in, const char *a_name, const struct mil_type *a, const char *b_name,
                        const struct mil_type *b)
{
    if (a->dtype != b->dtype)
        return infer_fail(in, "element types differ: %s is %s, %s is %s", a_name, mil_dtype_name(a->dtype),
                          b_name, mil_dtype_name(b->dtype));
    return true;
}

bool infer_rule_MATMUL(struct infer *in)
{
    const struct mil_type *x, *y;
    int64_t dims[MIL_RANK_MAX + 2];
    int rank;
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "y", &y) || !dtypes_meet(in, "x", x, "y", y))
        return false;
    if (x->rank < 1 || y->rank < 1)
        return infer_fail(in, "operands need at least one axis, found ranks %d and %d", x->rank, y->rank);
    bool tx = x->rank > 1 && infer_bool(in, "transpose_x", false);
    bool ty = y->rank > 1 && infer_bool(in, "transpose_y", false);
    int64_t x_inner = x->dims[x->rank - (tx ? 2 : 1)];
    int64_t y_inner = y->rank == 1 ? y->dims[0] : y->dims[y->rank - (ty ? 1 : 2)];
    if (!dims_meet(in, "inner sizes", x_inner, y_inner))
        return false;
    struct mil_type bx = {.kind = MIL_TYPE_TENSOR, .dtype = x->dtype, .rank = x->rank > 2 ? x->rank - 2 : 0};
    struct mil_type by = {.kind = MIL_TYPE_TENSOR, .dtype = y->dtype, .rank = y->rank > 2 ? y->rank - 2 : 0};
    bx.dims = x->dims;
    by.dims = y->dims;
    if (!infer_broadcast(in, &bx, &by, &rank, dims))
        return false;
    /* A vector's missing axis is not part of the result. */
    if (x->rank > 1)
        dims[rank++] = x->dims[x->rank - (tx ? 1 : 2)];
    if (y->rank > 1)
        dims[rank++] = y->dims[y->rank - (ty ? 2 : 1)];
    return infer_out(in, 0, x->dtype, rank, dims);
}

bool infer_rule_LINEAR(struct infer *in)
{
    const struct mil_type *x, *weight;
    int64_t dims[MIL_RANK_MAX];
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "weight", &weight))
        return false;
    if (x->rank < 1 || weight->rank != 2)
        return infer_fail(in, "needs x of rank 1 or more and a weight of rank 2, found %d and %d", x->rank,
                          weight->rank);
    if (!dims_meet(in, "inner sizes of x and weight", x->dims[x->rank - 1], weight->dims[1]))
        return false;
    memcpy(dims, x->dims, sizeof dims[0] * (size_t)x->rank);
    dims[x->rank - 1] = weight->dims[0];
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

/* n_spatial integers, `otherwise` when absent. *known: they can be read here. */
static bool window_ints(struct infer *in, const char *name, int n, int64_t otherwise, int64_t least,
                        int64_t *v, bool *known)
{
    int found;
    if (!mil_arg_find(in->op, name) && !mil_attribute(in->op, name)) {
        for (int i = 0; i < n; i++)
            v[i] = otherwise;
        return true;
    }
    if (!infer_ints(in, name, v, MIL_RANK_MAX * 2, &found)) {
        *known = false;
        return true;
    }
    if (found != n)
        return infer_fail(in, "%s has %d entries, expected %d", name, found, n);
    for (int i = 0; i < n; i++) {
        if (v[i] == MIL_INT_UNKNOWN)
            *known = false;
        else if (v[i] < least || v[i] > INT32_MAX)
            return infer_fail(in, "%s has the entry %lld", name, (long long)v[i]);
    }
    return true;
}

struct window {
    int n; /* spatial axes */
    int64_t kernel[MIL_RANK_MAX], stride[MIL_RANK_MAX * 2], dilation[MIL_RANK_MAX * 2], pad[MIL_RANK_MAX * 2];
    bool is_same, is_custom, known;
};

static bool window_read(struct infer *in, struct window *w, const char *pad_type_default)
{
    struct str s = {pad_type_default, strlen(pad_type_default)};
    w->known = true;
    if (mil_arg_find(in->op, "pad_type") && !infer_string(in, "pad_type", &s))
        w->known = false;
    w->is_same = infer_string_is(s, "same") || infer_string_is(s, "same_lower");
    w->is_custom = infer_string_is(s, "custom");
    if (!w->is_same && !w->is_custom && !infer_string_is(s, "valid"))
        return infer_fail(in, "pad_type '%.*s' is unknown", (int)(s.n < 32 ? s.n : 32), s.p);
    if (!window_ints(in, "strides", w->n, 1, 1, w->stride, &w->known) ||
        !window_ints(in, "dilations", w->n, 1, 1, w->dilation, &w->known))
        return false;
    /* pad is written and ignored when pad_type does not ask for it */
    memset(w->pad, 0, sizeof w->pad);
    return !w->is_custom || window_ints(in, "pad", 2 * w->n, 0, 0, w->pad, &w->known);
}

/* Size of one spatial axis after the windows. */
static bool window_size(struct infer *in, const struct window *w, int i, int64_t size, bool ceil_mode,
                        int64_t *out)
{
    int64_t padded, reach;
    *out = MIL_DIM_UNKNOWN;
    if (!w->known || size < 0 || w->kernel[i] < 0)
        return true;
    if (w->is_same) {
        *out = size / w->stride[i] + (size % w->stride[i] != 0);
        return true;
    }
    if (w->kernel[i] < 1 || __builtin_mul_overflow(w->kernel[i] - 1, w->dilation[i], &reach) ||
        __builtin_add_overflow(size, w->pad[2 * i] + w->pad[2 * i + 1], &padded))
        return infer_fail(in, "the window of axis %d is too large", i + 2);
    int64_t room = padded - reach - 1;
    if (room < 0)
        return infer_fail(in, "the window (%lld) is larger than axis %d (%lld with padding)",
                          (long long)reach + 1, i + 2, (long long)padded);
    *out = room / w->stride[i] + 1;
    /* A window that would start in the padding behind the end does not count. */
    if (ceil_mode && room % w->stride[i] != 0 && *out * w->stride[i] < size + w->pad[2 * i])
        (*out)++;
    return true;
}

bool infer_rule_CONV(struct infer *in)
{
    const struct mil_type *x, *weight, *bias;
    struct window w = {0};
    int64_t dims[MIL_RANK_MAX], groups, channels;
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "weight", &weight) ||
        !infer_tensor_optional(in, "bias", &bias) || !dtypes_meet(in, "x", x, "weight", weight))
        return false;
    if (x->rank < 3 || x->rank > 5 || weight->rank != x->rank)
        return infer_fail(in, "needs x of rank 3 to 5 and a weight of the same rank, found %d and %d",
                          x->rank, weight->rank);
    w.n = x->rank - 2;
    memcpy(w.kernel, weight->dims + 2, sizeof w.kernel[0] * (size_t)w.n);
    infer_int(in, "groups", 1, &groups);
    if (groups != MIL_INT_UNKNOWN && groups < 1)
        return infer_fail(in, "groups is %lld", (long long)groups);
    if (!window_read(in, &w, "valid") || !infer_dim_mul(in, weight->dims[1], groups, &channels) ||
        !dims_meet(in, "channels of x and weight", x->dims[1], channels))
        return false;
    if (groups > 0 && weight->dims[0] >= 0 && weight->dims[0] % groups != 0)
        return infer_fail(in, "%lld output channels can't be divided into %lld groups",
                          (long long)weight->dims[0], (long long)groups);
    if (bias && (bias->rank != 1 ||
                 !dims_meet(in, "output channels of bias and weight", bias->dims[0], weight->dims[0])))
        return bias->rank != 1 ? infer_fail(in, "bias has rank %d, expected 1", bias->rank) : false;
    dims[0] = x->dims[0];
    dims[1] = weight->dims[0];
    for (int i = 0; i < w.n; i++) {
        if (!window_size(in, &w, i, x->dims[i + 2], false, &dims[i + 2]))
            return false;
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

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
