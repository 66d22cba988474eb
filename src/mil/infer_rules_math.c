/* Result rules of products, windows and reductions. */
#include <math.h>
#include <string.h>
#include "mil/infer_rules.h"

/* ---- products ---- */

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
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "y", &y))
        return false;
    /* A constant may have another type: the result has the one of what is computed. */
    bool x_is_const = mil_arg_value(in->op, "x") != NULL, y_is_const = mil_arg_value(in->op, "y") != NULL;
    if (x_is_const == y_is_const && !dtypes_meet(in, "x", x, "y", y))
        return false;
    if (x->rank < 1 || y->rank < 1)
        return infer_fail(in, "operands need at least one axis, found ranks %d and %d", x->rank, y->rank);
    bool tx = x->rank > 1 && infer_bool(in, "transpose_x", false);
    bool ty = y->rank > 1 && infer_bool(in, "transpose_y", false);
    int64_t x_inner = x->dims[x->rank - (tx ? 2 : 1)];
    int64_t y_inner = y->rank == 1 ? y->dims[0] : y->dims[y->rank - (ty ? 1 : 2)];
    if (!infer_dims_meet(in, "inner sizes", x_inner, y_inner))
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
    return infer_out(in, 0, x_is_const ? y->dtype : x->dtype, rank, dims);
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
    if (!infer_dims_meet(in, "inner sizes of x and weight", x->dims[x->rank - 1], weight->dims[1]))
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
        !infer_dims_meet(in, "channels of x and weight", x->dims[1], channels))
        return false;
    if (groups > 0 && weight->dims[0] >= 0 && weight->dims[0] % groups != 0)
        return infer_fail(in, "%lld output channels can't be divided into %lld groups",
                          (long long)weight->dims[0], (long long)groups);
    if (bias && (bias->rank != 1 ||
                 !infer_dims_meet(in, "output channels of bias and weight", bias->dims[0], weight->dims[0])))
        return bias->rank != 1 ? infer_fail(in, "bias has rank %d, expected 1", bias->rank) : false;
    dims[0] = x->dims[0];
    dims[1] = weight->dims[0];
    for (int i = 0; i < w.n; i++) {
        if (!window_size(in, &w, i, x->dims[i + 2], false, &dims[i + 2]))
            return false;
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

static bool einsum_fail(struct infer *in, struct str s)
{
    return infer_fail(in, "equation '%.*s' does not fit its operands", (int)(s.n < 64 ? s.n : 64), s.p);
}

bool infer_rule_EINSUM(struct infer *in)
{
    const struct mil_arg *values = mil_arg_find(in->op, "values");
    int64_t sizes[128], dims[MIL_RANK_MAX];
    struct str s;
    if (!values || values->n < 1)
        return infer_fail(in, "argument values is missing");
    if (!infer_string(in, "equation", &s))
        return true;
    for (int i = 0; i < 128; i++)
        sizes[i] = 0;
    int i_value = 0, axis = 0, rank = 0;
    bool in_result = false;
    const struct mil_type *t = infer_binding_type(&values->bindings[0], in->types), *first = t;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == ' ')
            continue;
        if (!in_result && (!t || t->kind != MIL_TYPE_TENSOR || t->rank > MIL_RANK_MAX))
            return infer_fail(in, "value %d must be a tensor of rank up to %d", i_value, MIL_RANK_MAX);
        if (c == ',' || (c == '-' && i + 1 < s.n && s.p[i + 1] == '>')) {
            if (in_result || axis != t->rank || (c == ',') != (i_value + 1 < values->n))
                return einsum_fail(in, s);
            axis = 0;
            i_value++;
            in_result = c == '-';
            i += in_result ? 1 : 0;
            t = in_result ? NULL : infer_binding_type(&values->bindings[i_value], in->types);
            continue;
        }
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        int64_t *size = &sizes[(unsigned char)c & 127];
        if (!is_letter || (in_result && (*size == 0 || rank == MIL_RANK_MAX)) ||
            (!in_result && axis >= t->rank))
            return einsum_fail(in, s);
        if (in_result) {
            dims[rank++] = *size;
            continue;
        }
        int64_t d = t->dims[axis++];
        if (*size == 0 || *size == 1 || (*size < 0 && d > 1))
            *size = d;
        else if (d > 1 && *size > 1 && d != *size)
            return einsum_fail(in, s);
    }
    return in_result ? infer_out(in, 0, first->dtype, rank, dims) : einsum_fail(in, s);
}

bool infer_rule_CONV_TRANSPOSE(struct infer *in)
{
    const struct mil_type *x, *weight;
    struct window w = {0};
    int64_t dims[MIL_RANK_MAX], groups;
    int n;
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "weight", &weight) ||
        !dtypes_meet(in, "x", x, "weight", weight))
        return false;
    if (x->rank < 3 || x->rank > 5 || weight->rank != x->rank)
        return infer_fail(in, "needs x of rank 3 to 5 and a weight of the same rank, found %d and %d",
                          x->rank, weight->rank);
    if (!infer_dims_meet(in, "channels of x and weight", x->dims[1], weight->dims[0]))
        return false;
    infer_int(in, "groups", 1, &groups);
    if (groups != MIL_INT_UNKNOWN && groups < 1)
        return infer_fail(in, "groups is %lld", (long long)groups);
    w.n = x->rank - 2;
    memcpy(w.kernel, weight->dims + 2, sizeof w.kernel[0] * (size_t)w.n);
    if (!window_read(in, &w, "valid") || !infer_dim_mul(in, weight->dims[1], groups, &dims[1]))
        return false;
    dims[0] = x->dims[0];
    int64_t given[MIL_RANK_MAX];
    bool has_shape = infer_ints(in, "output_shape", given, MIL_RANK_MAX, &n) && n == x->rank;
    for (int i = 0; i < w.n; i++) {
        int64_t size = x->dims[i + 2], reach, *out = &dims[i + 2];
        *out = MIL_DIM_UNKNOWN;
        if (has_shape) {
            *out = given[i + 2] < 0 ? MIL_DIM_UNKNOWN : given[i + 2];
        } else if (w.known && size >= 0 && w.kernel[i] >= 0) {
            if (!infer_dim_mul(in, size - (w.is_same || size == 0 ? 0 : 1), w.stride[i], out) || w.is_same)
                continue;
            if (w.kernel[i] < 1 || __builtin_mul_overflow(w.kernel[i] - 1, w.dilation[i], &reach) ||
                !infer_dim_add(in, *out, reach, out) || !infer_dim_add(in, *out, 1, out))
                return infer_fail(in, "the kernel of axis %d has no valid size", i + 2);
            *out -= w.pad[2 * i] + w.pad[2 * i + 1];
            if (*out < 0)
                return infer_fail(in, "more is cut from axis %d than there is", i + 2);
        }
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

bool infer_rule_POOL(struct infer *in)
{
    const struct mil_type *x;
    struct window w = {0};
    int64_t dims[MIL_RANK_MAX];
    bool known = true;
    if (!infer_tensor(in, "x", &x))
        return false;
    if (x->rank < 3 || x->rank > 5)
        return infer_fail(in, "needs x of rank 3 to 5, found %d", x->rank);
    w.n = x->rank - 2;
    int64_t kernel[MIL_RANK_MAX * 2];
    if (!window_ints(in, "kernel_sizes", w.n, MIL_DIM_UNKNOWN, 1, kernel, &known) ||
        !window_read(in, &w, "valid"))
        return false;
    w.known &= known;
    memcpy(w.kernel, kernel, sizeof w.kernel[0] * (size_t)w.n);
    dims[0] = x->dims[0];
    dims[1] = x->dims[1];
    bool ceil_mode = infer_bool(in, "ceil_mode", false);
    for (int i = 0; i < w.n; i++) {
        if (!window_size(in, &w, i, x->dims[i + 2], ceil_mode, &dims[i + 2]))
            return false;
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

bool infer_rule_ATTENTION(struct infer *in)
{
    const struct mil_type *query, *key, *value, *mask;
    int64_t dims[MIL_RANK_MAX];
    if (!infer_tensor(in, "query", &query) || !infer_tensor(in, "key", &key) ||
        !infer_tensor(in, "value", &value) || !infer_tensor_optional(in, "attn_mask", &mask))
        return false;
    int rank = query->rank;
    if (rank < 3 || key->rank != rank || value->rank != rank)
        return infer_fail(in, "query, key and value need one rank of at least 3, found %d, %d and %d", rank,
                          key->rank, value->rank);
    for (int i = 0; i < rank - 2; i++) {
        if (!infer_dims_meet(in, "leading sizes of query and key", query->dims[i], key->dims[i]) ||
            !infer_dims_meet(in, "leading sizes of query and value", query->dims[i], value->dims[i]))
            return false;
    }
    if (!infer_dims_meet(in, "last sizes of query and key", query->dims[rank - 1], key->dims[rank - 1]) ||
        !infer_dims_meet(in, "lengths of key and value", key->dims[rank - 2], value->dims[rank - 2]))
        return false;
    if (mask) {
        struct mil_type scores = {.kind = MIL_TYPE_TENSOR, .rank = rank};
        int64_t merged[MIL_RANK_MAX];
        int merged_rank;
        memcpy(dims, query->dims, sizeof dims[0] * (size_t)rank);
        dims[rank - 1] = key->dims[rank - 2];
        scores.dims = dims;
        if (!infer_broadcast(in, &scores, mask, &merged_rank, merged))
            return false;
    }
    memcpy(dims, query->dims, sizeof dims[0] * (size_t)rank);
    dims[rank - 1] = value->dims[rank - 1];
    return infer_out(in, 0, query->dtype, rank, dims);
}

bool infer_rule_UPSAMPLE(struct infer *in)
{
    static const char *const names[2] = {"scale_factor_height", "scale_factor_width"};
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX];
    if (!infer_tensor(in, "x", &x))
        return false;
    if (x->rank < 3)
        return infer_fail(in, "needs x of rank 3 or more, found %d", x->rank);
    memcpy(dims, x->dims, sizeof dims[0] * (size_t)x->rank);
    for (int i = 0; i < 2; i++) {
        int64_t *d = &dims[x->rank - 2 + i];
        double factor = 1;
        if (mil_arg_find(in->op, names[i]) && !mil_value_float(mil_arg_value(in->op, names[i]), &factor))
            return true;
        if (!(factor > 0 && factor < 0x1p31) || (double)*d * factor > 0x1p62)
            return infer_fail(in, "%s has no valid value", names[i]);
        *d = *d < 0 ? MIL_DIM_UNKNOWN : (int64_t)floor((double)*d * factor);
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

/* ---- reductions ---- */

static bool reduce_out(struct infer *in, const struct mil_type *x, const bool *gone, enum mil_dtype d)
{
    int64_t dims[MIL_RANK_MAX];
    int rank = 0;
    bool keep = infer_bool(in, "keep_dims", false);
    for (int i = 0; i < x->rank; i++) {
        if (!gone[i])
            dims[rank++] = x->dims[i];
        else if (keep)
            dims[rank++] = 1;
    }
    return infer_out(in, 0, d, rank, dims);
}

bool infer_rule_REDUCE(struct infer *in)
{
    const struct mil_type *x;
    bool gone[MIL_RANK_MAX] = {false}, known;
    if (!infer_tensor(in, "x", &x) || !infer_axes(in, "axes", x->rank, gone, &known))
        return false;
    if (!known && mil_arg_find(in->op, "axes"))
        return true;
    for (int i = 0; i < x->rank && !known; i++)
        gone[i] = true;
    return reduce_out(in, x, gone, x->dtype);
}

bool infer_rule_REDUCE_ARG(struct infer *in)
{
    const struct mil_type *x;
    bool gone[MIL_RANK_MAX] = {false};
    int64_t at;
    int axis;
    if (!infer_tensor(in, "x", &x))
        return false;
    infer_int(in, "axis", -1, &at);
    if (at == MIL_INT_UNKNOWN)
        return true;
    if (!infer_axis(in, "axis", at, x->rank, &axis))
        return false;
    gone[axis] = true;
    enum mil_dtype d = infer_named_dtype(in, "output_dtype", MIL_INT32);
    if (!mil_dtype_is_integer(d))
        return infer_fail(in, "output_dtype is not an integer type");
    return reduce_out(in, x, gone, d);
}
