/* Result rules of element-wise ops, data movement, states and stored weights. */
#include <string.h>
#include "mil/infer_rules.h"

bool infer_rule_DECLARED(struct infer *in)
{
    (void)in;
    return true;
}

/* x [steps, batch, inputs], initial_h [batch, hidden]: the outputs of all steps or of the last, then each last state. */
bool infer_rule_RNN(struct infer *in)
{
    const struct mil_type *x, *h;
    int64_t dims[3];
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "initial_h", &h))
        return false;
    if (x->rank != 3 || h->rank != 2)
        return infer_fail(in, "needs x of rank 3 and initial_h of rank 2, found %d and %d", x->rank, h->rank);
    dims[0] = infer_bool(in, "output_sequence", false) ? x->dims[0] : 1;
    dims[1] = x->dims[1];
    dims[2] = h->dims[1];
    if (!infer_out(in, 0, x->dtype, 3, dims))
        return false;
    for (int i = 1; i < in->op->n_outputs; i++)
        if (!infer_out(in, i, x->dtype, 2, dims + 1))
            return false;
    return true;
}

bool infer_rule_CONST(struct infer *in)
{
    const struct mil_value *v = mil_attribute(in->op, "val");
    if (!v)
        return infer_fail(in, "attribute val is missing");
    return infer_out_type(in, 0, v->type);
}

/* ---- element by element ---- */

bool infer_rule_SAME(struct infer *in)
{
    const struct mil_type *x;
    return infer_tensor(in, "x", &x) && infer_out_type(in, 0, x);
}

bool infer_rule_SAME_DATA(struct infer *in)
{
    const struct mil_type *data;
    return infer_tensor(in, "data", &data) && infer_out_type(in, 0, data);
}

static bool infer_two(struct infer *in, const char *a_name, const char *b_name, const struct mil_type **a,
                      int *rank, int64_t dims[MIL_RANK_MAX])
{
    const struct mil_type *b;
    if (!infer_tensor(in, a_name, a) || !infer_tensor(in, b_name, &b))
        return false;
    if ((*a)->dtype != b->dtype)
        return infer_fail(in, "element types differ: %s is %s, %s is %s", a_name, mil_dtype_name((*a)->dtype),
                          b_name, mil_dtype_name(b->dtype));
    return infer_broadcast(in, *a, b, rank, dims);
}

bool infer_rule_BROADCAST(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX];
    int rank;
    return infer_two(in, "x", "y", &x, &rank, dims) && infer_out(in, 0, x->dtype, rank, dims);
}

bool infer_rule_COMPARE(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX];
    int rank;
    return infer_two(in, "x", "y", &x, &rank, dims) && infer_out(in, 0, MIL_BOOL, rank, dims);
}

bool infer_rule_LOGICAL_NOT(struct infer *in)
{
    const struct mil_type *x;
    return infer_tensor(in, "x", &x) && infer_out(in, 0, MIL_BOOL, x->rank, x->dims);
}

bool infer_rule_SELECT(struct infer *in)
{
    const struct mil_type *cond, *a;
    struct mil_type both = {.kind = MIL_TYPE_TENSOR};
    int64_t dims[MIL_RANK_MAX], result[MIL_RANK_MAX];
    int rank;
    if (!infer_tensor(in, "cond", &cond) || !infer_two(in, "a", "b", &a, &both.rank, dims))
        return false;
    both.dtype = a->dtype;
    both.dims = dims;
    return infer_broadcast(in, &both, cond, &rank, result) && infer_out(in, 0, a->dtype, rank, result);
}

/* dtype named by a string argument; NONE and true when it is not known here. */
static bool infer_dtype(struct infer *in, const char *name, enum mil_dtype *d)
{
    struct str s;
    *d = MIL_DTYPE_NONE;
    if (!infer_string(in, name, &s))
        return true;
    *d = mil_dtype_find(s.p, s.n);
    if (*d == MIL_DTYPE_NONE || *d == MIL_STRING)
        return infer_fail(in, "%s '%.*s' is not an element type", name, (int)(s.n < 32 ? s.n : 32), s.p);
    return true;
}

bool infer_rule_CAST(struct infer *in)
{
    const struct mil_type *x;
    enum mil_dtype d;
    if (!infer_tensor(in, "x", &x) || !infer_dtype(in, "dtype", &d))
        return false;
    return d == MIL_DTYPE_NONE || infer_out(in, 0, d, x->rank, x->dims);
}

bool infer_rule_QUANTIZE(struct infer *in)
{
    const struct mil_type *x;
    enum mil_dtype d;
    if (!infer_tensor(in, "input", &x) || !infer_dtype(in, "output_dtype", &d))
        return false;
    return d == MIL_DTYPE_NONE || infer_out(in, 0, d, x->rank, x->dims);
}

bool infer_rule_DEQUANTIZE(struct infer *in)
{
    const struct mil_type *x, *scale;
    return infer_tensor(in, "input", &x) && infer_tensor(in, "scale", &scale) &&
           infer_out(in, 0, scale->dtype, x->rank, x->dims);
}

/* ---- shapes ---- */

/* The one unknown entry of a shape, from the number of elements. */
static bool reshape_fill(struct infer *in, const struct mil_type *x, int64_t *dims, int rank, int unknown)
{
    int64_t total, known = 1;
    char text[128];
    if (!infer_dim_product(in, x->dims, 0, x->rank, &total))
        return false;
    for (int i = 0; i < rank; i++) {
        if (i != unknown && !infer_dim_mul(in, known, dims[i], &known))
            return false;
    }
    mil_type_text(text, sizeof text, x);
    if (total < 0 || known < 0)
        return true;
    if (unknown < 0)
        return total == known ? true
                              : infer_fail(in, "%s has %lld elements, the shape has %lld", text,
                                           (long long)total, (long long)known);
    if (known == 0 || total % known != 0)
        return infer_fail(in, "%s can't be divided into rows of %lld elements", text, (long long)known);
    dims[unknown] = total / known;
    return true;
}

bool infer_rule_RESHAPE(struct infer *in)
{
    const struct mil_type *x;
    int64_t shape[MIL_RANK_MAX], dims[MIL_RANK_MAX];
    int rank, wildcard = -1;
    bool has_gap = false;
    if (!infer_tensor(in, "x", &x))
        return false;
    if (!infer_ints(in, "shape", shape, MIL_RANK_MAX, &rank))
        return true;
    for (int i = 0; i < rank; i++) {
        dims[i] = shape[i];
        if (shape[i] == MIL_INT_UNKNOWN) {
            dims[i] = MIL_DIM_UNKNOWN;
            has_gap = true;
        } else if (shape[i] == -1) {
            if (wildcard >= 0)
                return infer_fail(in, "shape has -1 more than once");
            wildcard = i;
            dims[i] = MIL_DIM_UNKNOWN;
        } else if (shape[i] == 0 && mil_type_elems(x) != 0) {
            /* The axis of x that is as far from the end (before ios17 only at equal ranks). */
            dims[i] = i + x->rank >= rank ? x->dims[i + x->rank - rank] : 1;
        } else if (shape[i] < -1) {
            return infer_fail(in, "shape has the entry %lld", (long long)shape[i]);
        }
    }
    if (!has_gap && !reshape_fill(in, x, dims, rank, wildcard))
        return false;
    return infer_out(in, 0, x->dtype, rank, dims);
}

/* A tuple of one number a binding, or (as other writers have it) one list of them. */
static bool tuple_ints(struct infer *in, const char *name, int64_t *dst, int n_max, int *n)
{
    const struct mil_arg *a = mil_arg_find(in->op, name);
    if (!a || a->n <= 1)
        return infer_ints(in, name, dst, n_max, n);
    *n = 0;
    for (int i = 0; i < a->n; i++) {
        const struct mil_value *v = mil_binding_value(&a->bindings[i]);
        int64_t number;
        int count;
        if (*n == n_max || !v || !mil_value_ints(v, &number, 1, &count) || count != 1)
            return false;
        dst[(*n)++] = number;
    }
    return true;
}

bool infer_rule_RESHAPE_LIKE(struct infer *in)
{
    const struct mil_type *x, *ref;
    const struct mil_arg *refs = mil_arg_find(in->op, "ref_tensors");
    int64_t begins[MIL_RANK_MAX], ends[MIL_RANK_MAX], masks[MIL_RANK_MAX], dims[MIL_RANK_MAX];
    int n_begins, n_ends, n_masks, rank = 0;
    if (!infer_tensor(in, "x", &x))
        return false;
    if (!refs || !tuple_ints(in, "begins", begins, MIL_RANK_MAX, &n_begins) ||
        !tuple_ints(in, "ends", ends, MIL_RANK_MAX, &n_ends) ||
        !tuple_ints(in, "end_masks", masks, MIL_RANK_MAX, &n_masks))
        return true;
    if (n_begins != refs->n || n_ends != refs->n || n_masks != refs->n)
        return infer_fail(in, "begins, ends and end_masks must have one entry for each of the %d ref_tensors",
                          refs->n);
    for (int i = 0; i < refs->n; i++) {
        ref = infer_binding_type(&refs->bindings[i], in->types);
        if (!ref || ref->kind != MIL_TYPE_TENSOR || begins[i] == MIL_INT_UNKNOWN ||
            ends[i] == MIL_INT_UNKNOWN)
            return true;
        int64_t begin = begins[i] < 0 ? begins[i] + ref->rank : begins[i];
        int64_t end = masks[i] ? ref->rank : ends[i] < 0 ? ends[i] + ref->rank : ends[i];
        if (begin < 0 || end > ref->rank)
            return infer_fail(in, "axes %lld to %lld are outside rank %d of a reference", (long long)begin,
                              (long long)end, ref->rank);
        for (int64_t k = begin; k < end; k++) {
            if (rank == MIL_RANK_MAX)
                return infer_fail(in, "the result has more than %d axes", MIL_RANK_MAX);
            dims[rank++] = ref->dims[k];
        }
    }
    return reshape_fill(in, x, dims, rank, -1) && infer_out(in, 0, x->dtype, rank, dims);
}

bool infer_rule_TRANSPOSE(struct infer *in)
{
    const struct mil_type *x;
    int64_t perm[MIL_RANK_MAX], dims[MIL_RANK_MAX];
    bool used[MIL_RANK_MAX] = {false};
    int n, axis;
    if (!infer_tensor(in, "x", &x))
        return false;
    if (!infer_ints(in, "perm", perm, MIL_RANK_MAX, &n))
        return true;
    if (n != x->rank)
        return infer_fail(in, "perm has %d entries, x has rank %d", n, x->rank);
    for (int i = 0; i < n; i++) {
        if (perm[i] == MIL_INT_UNKNOWN)
            return true;
        if (!infer_axis(in, "perm entry", perm[i], x->rank, &axis))
            return false;
        if (used[axis])
            return infer_fail(in, "perm names axis %d twice", axis);
        used[axis] = true;
        dims[i] = x->dims[axis];
    }
    return infer_out(in, 0, x->dtype, n, dims);
}

bool infer_rule_EXPAND_DIMS(struct infer *in)
{
    const struct mil_type *x;
    int64_t axes[MIL_RANK_MAX], dims[MIL_RANK_MAX];
    bool is_new[MIL_RANK_MAX] = {false}, known;
    int n;
    if (!infer_tensor(in, "x", &x))
        return false;
    if (!infer_ints(in, "axes", axes, MIL_RANK_MAX, &n))
        return true;
    int rank = x->rank + n;
    if (rank > MIL_RANK_MAX)
        return infer_fail(in, "the result has rank %d, the limit is %d", rank, MIL_RANK_MAX);
    if (!infer_axes(in, "axes", rank, is_new, &known))
        return false;
    for (int i = 0, k = 0; i < rank && known; i++)
        dims[i] = is_new[i] ? 1 : x->dims[k++];
    return !known || infer_out(in, 0, x->dtype, rank, dims);
}

bool infer_rule_SQUEEZE(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX];
    bool gone[MIL_RANK_MAX] = {false}, known;
    int rank = 0;
    if (!infer_tensor(in, "x", &x) || !infer_axes(in, "axes", x->rank, gone, &known))
        return false;
    if (!known && mil_arg_find(in->op, "axes"))
        return true;
    for (int i = 0; i < x->rank; i++) {
        if (!known && x->dims[i] < 0)
            return true; /* all ones go, and this may be one */
        if (!known)
            gone[i] = x->dims[i] == 1;
        if (gone[i] && x->dims[i] >= 0 && x->dims[i] != 1)
            return infer_fail(in, "axis %d has size %lld, only size 1 can go", i, (long long)x->dims[i]);
        if (!gone[i])
            dims[rank++] = x->dims[i];
    }
    return infer_out(in, 0, x->dtype, rank, dims);
}

bool infer_rule_TILE(struct infer *in)
{
    const struct mil_type *x;
    int64_t reps[MIL_RANK_MAX], dims[MIL_RANK_MAX];
    int n;
    if (!infer_tensor(in, "x", &x))
        return false;
    if (!infer_ints(in, "reps", reps, MIL_RANK_MAX, &n))
        return true;
    if (n != x->rank)
        return infer_fail(in, "reps has %d entries, x has rank %d", n, x->rank);
    for (int i = 0; i < n; i++) {
        if (reps[i] != MIL_INT_UNKNOWN && reps[i] < 1)
            return infer_fail(in, "reps has the entry %lld", (long long)reps[i]);
        if (!infer_dim_mul(in, x->dims[i], reps[i], &dims[i]))
            return false;
    }
    return infer_out(in, 0, x->dtype, n, dims);
}

/* The tensors of a variadic argument: same element type and rank. */
static bool infer_values(struct infer *in, const struct mil_arg **values)
{
    const struct mil_arg *arg = mil_arg_find(in->op, "values");
    if (!arg || arg->n < 1)
        return infer_fail(in, "argument values is missing");
    const struct mil_type *first = infer_binding_type(&arg->bindings[0], in->types);
    for (int i = 0; i < arg->n; i++) {
        const struct mil_type *t = infer_binding_type(&arg->bindings[i], in->types);
        if (!t || t->kind != MIL_TYPE_TENSOR || t->rank > MIL_RANK_MAX)
            return infer_fail(in, "value %d must be a tensor of rank up to %d", i, MIL_RANK_MAX);
        if (t->dtype != first->dtype || t->rank != first->rank)
            return infer_fail(in, "value %d is %s of rank %d, value 0 is %s of rank %d", i,
                              mil_dtype_name(t->dtype), t->rank, mil_dtype_name(first->dtype), first->rank);
    }
    *values = arg;
    return true;
}

/* dims: of the first value; every other must agree outside axis (-1: everywhere). Unknown sizes are filled
 * in. */
static bool merge_dims(struct infer *in, const struct mil_arg *values, int axis, int64_t dims[MIL_RANK_MAX])
{
    for (int i = 0; i < values->n; i++) {
        const struct mil_type *t = infer_binding_type(&values->bindings[i], in->types);
        for (int k = 0; k < t->rank; k++) {
            if (i == 0)
                dims[k] = t->dims[k];
            else if (k != axis && dims[k] < 0)
                dims[k] = t->dims[k];
            else if (k != axis && t->dims[k] >= 0 && t->dims[k] != dims[k])
                return infer_fail(in, "value %d has size %lld on axis %d, the others have %lld", i,
                                  (long long)t->dims[k], k, (long long)dims[k]);
        }
    }
    return true;
}

bool infer_rule_CONCAT(struct infer *in)
{
    const struct mil_arg *values;
    int64_t dims[MIL_RANK_MAX], at, sum = 0;
    int axis;
    if (!infer_values(in, &values))
        return false;
    const struct mil_type *first = infer_binding_type(&values->bindings[0], in->types);
    infer_int(in, "axis", MIL_INT_UNKNOWN, &at);
    if (at == MIL_INT_UNKNOWN)
        return true;
    if (first->rank == 0) { /* scalars join to a vector */
        sum = values->n;
        return infer_out(in, 0, first->dtype, 1, &sum);
    }
    if (!infer_axis(in, "axis", at, first->rank, &axis))
        return false;
    bool interleave = infer_bool(in, "interleave", false);
    if (!merge_dims(in, values, interleave ? -1 : axis, dims))
        return false;
    for (int i = 0; i < values->n; i++) {
        if (!infer_dim_add(in, sum, infer_binding_type(&values->bindings[i], in->types)->dims[axis], &sum))
            return false;
    }
    dims[axis] = sum;
    return infer_out(in, 0, first->dtype, first->rank, dims);
}

bool infer_rule_STACK(struct infer *in)
{
    const struct mil_arg *values;
    int64_t dims[MIL_RANK_MAX], result[MIL_RANK_MAX], at;
    int axis;
    if (!infer_values(in, &values) || !merge_dims(in, values, -1, dims))
        return false;
    const struct mil_type *first = infer_binding_type(&values->bindings[0], in->types);
    infer_int(in, "axis", MIL_INT_UNKNOWN, &at);
    if (at == MIL_INT_UNKNOWN)
        return true;
    if (first->rank == MIL_RANK_MAX)
        return infer_fail(in, "the result has more than %d axes", MIL_RANK_MAX);
    if (!infer_axis(in, "axis", at, first->rank + 1, &axis))
        return false;
    for (int i = 0, k = 0; i <= first->rank; i++)
        result[i] = i == axis ? values->n : dims[k++];
    return infer_out(in, 0, first->dtype, first->rank + 1, result);
}

bool infer_rule_SPLIT(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX], at, n_splits, *sizes = ARENA_ARRAY(in->a, int64_t, in->op->n_outputs + 1);
    int axis, n_sizes = 0, n_outputs = in->op->n_outputs;
    if (!infer_tensor(in, "x", &x))
        return false;
    infer_int(in, "axis", MIL_INT_UNKNOWN, &at);
    infer_int(in, "num_splits", MIL_INT_UNKNOWN, &n_splits);
    if (at == MIL_INT_UNKNOWN)
        return true;
    if (!infer_axis(in, "axis", at, x->rank, &axis))
        return false;
    if (n_splits != MIL_INT_UNKNOWN && n_splits != n_outputs)
        return infer_fail(in, "num_splits is %lld, but there are %d results", (long long)n_splits, n_outputs);
    bool has_sizes = mil_arg_find(in->op, "split_sizes") != NULL;
    int64_t sum = 0;
    if (has_sizes) {
        if (!infer_ints(in, "split_sizes", sizes, n_outputs + 1, &n_sizes) || n_sizes != n_outputs)
            return infer_fail(in, "split_sizes must have one entry for each of the %d results", n_outputs);
        for (int i = 0; i < n_outputs; i++) {
            if (sizes[i] < 0 && sizes[i] != MIL_INT_UNKNOWN)
                return infer_fail(in, "split_sizes has the entry %lld", (long long)sizes[i]);
            if (!infer_dim_add(in, sum, sizes[i], &sum))
                return false;
        }
        if (sum >= 0 && x->dims[axis] >= 0 && sum != x->dims[axis])
            return infer_fail(in, "split_sizes add up to %lld, axis %d has %lld", (long long)sum, axis,
                              (long long)x->dims[axis]);
    } else if (n_outputs > 0 && x->dims[axis] >= 0 && x->dims[axis] % n_outputs != 0) {
        return infer_fail(in, "axis %d has size %lld, which %d parts do not divide", axis,
                          (long long)x->dims[axis], n_outputs);
    }
    for (int i = 0; i < x->rank; i++)
        dims[i] = x->dims[i];
    for (int i = 0; i < n_outputs; i++) {
        if (has_sizes)
            dims[axis] = sizes[i] < 0 ? MIL_DIM_UNKNOWN : sizes[i];
        else
            dims[axis] = x->dims[axis] < 0 ? MIL_DIM_UNKNOWN : x->dims[axis] / n_outputs;
        if (!infer_out(in, i, x->dtype, x->rank, dims))
            return false;
    }
    return true;
}

/* ---- slices ---- */

/* begin, end or stride: unknown entries when absent or unknown; the number of entries is checked. */
static bool slice_ints(struct infer *in, const char *name, int64_t otherwise, int rank, int64_t *v)
{
    int n = 0;
    bool given = mil_arg_find(in->op, name) || mil_attribute(in->op, name);
    if (given && infer_ints(in, name, v, MIL_RANK_MAX, &n)) {
        if (n != rank)
            return infer_fail(in, "%s has %d entries, x has rank %d", name, n, rank);
        return true;
    }
    for (int i = 0; i < rank; i++)
        v[i] = given ? MIL_INT_UNKNOWN : otherwise;
    return true;
}

static int64_t clamp_int(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* Elements of begin:end:stride in size, as Python counts. */
static int64_t slice_length(int64_t size, int64_t begin, int64_t end, int64_t stride, bool from_start,
                            bool to_end)
{
    if (stride == MIL_INT_UNKNOWN || stride == 0)
        return MIL_DIM_UNKNOWN;
    if (size < 0)
        return MIL_DIM_UNKNOWN;
    if ((!from_start && begin == MIL_INT_UNKNOWN) || (!to_end && end == MIL_INT_UNKNOWN))
        return MIL_DIM_UNKNOWN;
    int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
    begin = from_start ? (stride > 0 ? low : high) : clamp_int(begin < 0 ? begin + size : begin, low, high);
    end = to_end ? (stride > 0 ? high : low) : clamp_int(end < 0 ? end + size : end, low, high);
    if (stride > 0)
        return end > begin ? (end - begin - 1) / stride + 1 : 0;
    return begin > end ? (begin - end - 1) / -stride + 1 : 0;
}

bool infer_slice_shape(struct infer *in, const struct mil_type *x, int *rank, int64_t dims[MIL_RANK_MAX])
{
    int64_t begin[MIL_RANK_MAX], end[MIL_RANK_MAX], stride[MIL_RANK_MAX];
    int64_t from_start[MIL_RANK_MAX], to_end[MIL_RANK_MAX], squeeze[MIL_RANK_MAX];
    if (!slice_ints(in, "begin", 0, x->rank, begin) || !slice_ints(in, "end", 0, x->rank, end) ||
        !slice_ints(in, "stride", 1, x->rank, stride) ||
        !slice_ints(in, "begin_mask", 0, x->rank, from_start) ||
        !slice_ints(in, "end_mask", 0, x->rank, to_end) ||
        !slice_ints(in, "squeeze_mask", 0, x->rank, squeeze))
        return false;
    *rank = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t size = x->dims[i];
        if (stride[i] == 0)
            return infer_fail(in, "stride has a 0");
        if (squeeze[i] == 1) {
            if (size >= 0 && begin[i] != MIL_INT_UNKNOWN && from_start[i] != 1 &&
                (begin[i] >= size || begin[i] < -size))
                return infer_fail(in, "begin %lld is outside axis %d of size %lld", (long long)begin[i], i,
                                  (long long)size);
            continue;
        }
        dims[(*rank)++] = slice_length(size, begin[i], end[i], stride[i], from_start[i] == 1, to_end[i] == 1);
    }
    return true;
}

bool infer_rule_SLICE_BY_INDEX(struct infer *in)
{
    const struct mil_type *x;
    int64_t dims[MIL_RANK_MAX];
    int rank;
    return infer_tensor(in, "x", &x) && infer_slice_shape(in, x, &rank, dims) &&
           infer_out(in, 0, x->dtype, rank, dims);
}

bool infer_rule_SLICE_BY_SIZE(struct infer *in)
{
    const struct mil_type *x;
    int64_t begin[MIL_RANK_MAX], size[MIL_RANK_MAX], dims[MIL_RANK_MAX];
    if (!infer_tensor(in, "x", &x) || !slice_ints(in, "begin", MIL_INT_UNKNOWN, x->rank, begin) ||
        !slice_ints(in, "size", MIL_INT_UNKNOWN, x->rank, size))
        return false;
    for (int i = 0; i < x->rank; i++) {
        int64_t have = x->dims[i], from = begin[i];
        if (from != MIL_INT_UNKNOWN && from < 0 && have >= 0)
            from += have;
        dims[i] = size[i];
        if (size[i] == MIL_INT_UNKNOWN)
            dims[i] = MIL_DIM_UNKNOWN;
        else if (size[i] == -1)
            dims[i] = have < 0 || from < 0 ? MIL_DIM_UNKNOWN : have - from;
        else if (size[i] < 0)
            return infer_fail(in, "size has the entry %lld", (long long)size[i]);
        if (have >= 0 && from != MIL_INT_UNKNOWN &&
            (from < 0 || from > have || (dims[i] >= 0 && dims[i] > have - from)))
            return infer_fail(in, "%lld elements from %lld are outside axis %d of size %lld",
                              (long long)dims[i], (long long)begin[i], i, (long long)have);
    }
    return infer_out(in, 0, x->dtype, x->rank, dims);
}

bool infer_rule_SLICE_UPDATE(struct infer *in)
{
    const struct mil_type *x, *update;
    int64_t dims[MIL_RANK_MAX];
    int rank;
    char text[128], text_update[128];
    if (!infer_tensor(in, "x", &x) || !infer_tensor(in, "update", &update) ||
        !infer_slice_shape(in, x, &rank, dims))
        return false;
    struct mil_type slice = {.kind = MIL_TYPE_TENSOR, .dtype = x->dtype, .rank = rank, .dims = dims};
    if (!mil_type_agrees(&slice, update)) {
        mil_type_text(text, sizeof text, &slice);
        mil_type_text(text_update, sizeof text_update, update);
        return infer_fail(in, "the slice is %s, the update is %s", text, text_update);
    }
    return infer_out_type(in, 0, x);
}

/* ---- states ---- */

bool infer_rule_READ_STATE(struct infer *in)
{
    const struct mil_type *state = infer_arg(in, "input");
    if (!state || state->kind != MIL_TYPE_STATE)
        return infer_fail(in, "argument input must be a state");
    return infer_out_type(in, 0, state->elem);
}

bool infer_rule_WRITE_STATE(struct infer *in)
{
    const struct mil_type *state = infer_arg(in, "input"), *data;
    char text[128], text_data[128];
    if (!infer_tensor(in, "data", &data))
        return false;
    if (!state || state->kind != MIL_TYPE_STATE)
        return infer_fail(in, "argument input must be a state");
    if (!mil_type_agrees(state->elem, data)) {
        mil_type_text(text, sizeof text, state->elem);
        mil_type_text(text_data, sizeof text_data, data);
        return infer_fail(in, "the state holds %s, data is %s", text, text_data);
    }
    return true;
}
