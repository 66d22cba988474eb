/* The shared graph pieces, op by op. They look like what the package format's converters emit, so that an
 * engine (and Apple's compiler) meets known patterns. */
#include "arch/blocks.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static int rank_of(const struct mil_var *x)
{
    return mil_type_tensor(x->type)->rank;
}

static int64_t dim_of(const struct mil_var *x, int axis)
{
    return mil_type_tensor(x->type)->dims[axis];
}

/* A block that counts on a rank is handed something else only by a broken recipe. */
static bool has_rank(struct mil_builder *b, const struct mil_var *x, int rank, const char *block)
{
    if (!x || mil_builder_failed(b))
        return false;
    if (rank_of(x) == rank)
        return true;
    mil_builder_fail(b, ERR_BUG, "%s: %s has rank %d, not %d", block, x->name, rank_of(x), rank);
    return false;
}

struct mil_var *block_binary(struct mil_builder *b, const char *type, struct mil_var *x, struct mil_var *y,
                             const char *name)
{
    const struct mil_build_arg args[] = {MIL_ARG("x", x), MIL_ARG("y", y)};
    return mil_build_op(b, type, name, args, COUNT(args));
}

struct mil_var *block_scale(struct mil_builder *b, struct mil_var *x, double factor, const char *name)
{
    return block_binary(b, "mul", x, mil_build_f16(b, factor, NULL), name);
}

struct mil_var *block_unary(struct mil_builder *b, const char *type, struct mil_var *x, const char *name)
{
    const struct mil_build_arg args[] = {MIL_ARG("x", x)};
    return mil_build_op(b, type, name, args, COUNT(args));
}

struct mil_var *block_reduce(struct mil_builder *b, const char *type, struct mil_var *x, int axis)
{
    const int32_t at = axis;
    const struct mil_build_arg args[] = {MIL_ARG("x", x), MIL_ARG_INTS("axes", &at, 1),
                                         MIL_ARG_BOOL("keep_dims", true)};
    return mil_build_op(b, type, NULL, args, COUNT(args));
}

struct mil_var *block_select(struct mil_builder *b, struct mil_var *condition, struct mil_var *yes,
                             struct mil_var *no)
{
    const struct mil_build_arg args[] = {MIL_ARG("cond", condition), MIL_ARG("a", yes), MIL_ARG("b", no)};
    return mil_build_op(b, "select", NULL, args, COUNT(args));
}

struct mil_var *block_softmax(struct mil_builder *b, struct mil_var *x, int axis)
{
    const struct mil_build_arg args[] = {MIL_ARG("x", x), MIL_ARG_INT("axis", axis)};
    return mil_build_op(b, "softmax", NULL, args, COUNT(args));
}

static struct mil_var *with_axes(struct mil_builder *b, const char *type, struct mil_var *x,
                                 const int32_t *axes, int n)
{
    const struct mil_build_arg args[] = {MIL_ARG("x", x), MIL_ARG_INTS("axes", axes, n)};
    return mil_build_op(b, type, NULL, args, COUNT(args));
}

struct mil_var *block_slice(struct mil_builder *b, struct mil_var *x, int axis, int64_t begin, int64_t end,
                            const char *name)
{
    if (!x || mil_builder_failed(b))
        return NULL;
    int rank = rank_of(x);
    int64_t from[MIL_RANK_MAX] = {0}, to[MIL_RANK_MAX];
    bool whole[MIL_RANK_MAX], has_unknown = false;
    for (int i = 0; i < rank; i++) {
        to[i] = dim_of(x, i);
        whole[i] = i != axis;
        if (to[i] == MIL_DIM_UNKNOWN) {
            to[i] = 0; /* the mask counts */
            has_unknown = true;
        }
    }
    if (axis < 0 || axis >= rank || begin < 0 || end <= begin || end > to[axis]) {
        mil_builder_fail(b, ERR_BUG, "slice of %s: %lld to %lld of axis %d is not inside it", x->name,
                         (long long)begin, (long long)end, axis);
        return NULL;
    }
    from[axis] = begin;
    to[axis] = end;
    const struct mil_build_arg args[] = {
        MIL_ARG("x", x), MIL_ARG_DIMS("begin", from, rank), MIL_ARG_DIMS("end", to, rank),
        MIL_ARG_BOOLS("begin_mask", whole, rank), MIL_ARG_BOOLS("end_mask", whole, rank)};
    return mil_build_op(b, "slice_by_index", name, args, has_unknown ? COUNT(args) : COUNT(args) - 2);
}

struct mil_var *block_concat(struct mil_builder *b, struct mil_var *const *values, int n, int axis,
                             const char *name)
{
    const struct mil_build_arg args[] = {MIL_ARG_VARS("values", values, n), MIL_ARG_INT("axis", axis),
                                         MIL_ARG_BOOL("interleave", false)};
    return mil_build_op(b, "concat", name, args, COUNT(args));
}

struct mil_var *block_reshape(struct mil_builder *b, struct mil_var *x, int rank, const int64_t *dims,
                              const char *name)
{
    const struct mil_build_arg args[] = {MIL_ARG("x", x), MIL_ARG_DIMS("shape", dims, rank)};
    return mil_build_op(b, "reshape", name, args, COUNT(args));
}

struct mil_var *block_expand(struct mil_builder *b, struct mil_var *x, int axis)
{
    return with_axes(b, "expand_dims", x, (int32_t[]){axis}, 1);
}

struct mil_var *block_squeeze(struct mil_builder *b, struct mil_var *x, int axis)
{
    return with_axes(b, "squeeze", x, (int32_t[]){axis}, 1);
}

struct mil_var *block_transpose(struct mil_builder *b, struct mil_var *x, int rank, const int32_t *perm,
                                const char *name)
{
    const struct mil_build_arg args[] = {MIL_ARG("x", x), MIL_ARG_INTS("perm", perm, rank)};
    return mil_build_op(b, "transpose", name, args, COUNT(args));
}

struct mil_var *block_gather(struct mil_builder *b, const struct mil_value *table, struct mil_var *indices,
                             const char *table_name, const char *name)
{
    const struct mil_build_arg args[] = {MIL_ARG_VALUE("x", table, table_name), MIL_ARG("indices", indices),
                                         MIL_ARG_INT("axis", 0), MIL_ARG_INT("batch_dims", 0),
                                         MIL_ARG_BOOL("validate_indices", false)};
    return mil_build_op(b, "gather", name, args, COUNT(args));
}

static struct mil_var *product(struct mil_builder *b, struct mil_var *x, struct mil_var *y, bool transpose_x,
                               bool transpose_y, const char *name)
{
    const struct mil_build_arg args[] = {MIL_ARG("x", x), MIL_ARG("y", y),
                                         MIL_ARG_BOOL("transpose_x", transpose_x),
                                         MIL_ARG_BOOL("transpose_y", transpose_y)};
    return mil_build_op(b, "matmul", name, args, COUNT(args));
}

struct mil_var *block_matmul(struct mil_builder *b, struct mil_var *x, struct mil_var *y, bool transpose_y,
                             const char *name)
{
    return product(b, x, y, false, transpose_y, name);
}

struct mil_var *block_matmul_transposed(struct mil_builder *b, struct mil_var *x, struct mil_var *y,
                                        const char *name)
{
    return product(b, x, y, true, false, name);
}

struct mil_var *block_to_channels(struct mil_builder *b, struct mil_var *x)
{
    static const int32_t perm[] = {0, 2, 1}, axes[] = {2};
    return with_axes(b, "expand_dims", block_transpose(b, x, 3, perm, NULL), axes, 1);
}

struct mil_var *block_from_channels(struct mil_builder *b, struct mil_var *x, const char *name)
{
    static const int32_t perm[] = {0, 2, 1}, axes[] = {2};
    return block_transpose(b, with_axes(b, "squeeze", x, axes, 1), 3, perm, name);
}

/* "<name>_<suffix>", NULL for no name */
static const char *suffixed(struct mil_builder *b, const char *name, const char *suffix)
{
    return name ? arena_printf(mil_builder_arena(b), "%s_%s", name, suffix) : NULL;
}

struct mil_var *block_linear(struct mil_builder *b, struct mil_var *x, const struct mil_value *weight,
                             const struct mil_value *bias, const char *name)
{
    static const int32_t ones[] = {1, 1}, zeros[] = {0, 0, 0, 0};
    const struct mil_build_arg args[] = {MIL_ARG("x", x),
                                         MIL_ARG_VALUE("weight", weight, suffixed(b, name, "weight")),
                                         MIL_ARG_INTS("strides", ones, 2),
                                         MIL_ARG_STRING("pad_type", "valid"),
                                         MIL_ARG_INTS("pad", zeros, 4),
                                         MIL_ARG_INTS("dilations", ones, 2),
                                         MIL_ARG_INT("groups", 1),
                                         MIL_ARG_VALUE("bias", bias, suffixed(b, name, "bias"))};
    return mil_build_op(b, "conv", name, args, bias ? COUNT(args) : COUNT(args) - 1);
}

/* x / rms(x); the last op is called `name` */
static struct mil_var *normed(struct mil_builder *b, struct mil_var *x, double epsilon, const char *name)
{
    static const int32_t last[] = {-1};
    if (!x || mil_builder_failed(b))
        return NULL;
    int axis = rank_of(x) - 1;
    int64_t n = dim_of(x, axis);
    struct mil_var *both[2] = {x, block_scale(b, x, -1.0, NULL)};
    /* An epsilon that fp16 rounds to 0 would make NaN of a row of zeros. */
    double epsilon_min = 5.9604644775390625e-8;
    struct mil_var *joined = block_concat(b, both, 2, -1, NULL);
    const struct mil_build_arg args[] = {
        MIL_ARG("x", joined), MIL_ARG_INTS("axes", last, 1),
        MIL_ARG_F16("epsilon", epsilon < epsilon_min ? epsilon_min : epsilon)};
    struct mil_var *y = mil_build_op(b, "layer_norm", NULL, args, COUNT(args));
    return block_slice(b, y, axis, 0, n, name);
}

struct mil_var *block_rms_norm(struct mil_builder *b, struct mil_var *x, const struct mil_value *weight,
                               double epsilon, const char *name)
{
    if (!weight)
        return normed(b, x, epsilon, name);
    struct mil_var *y = normed(b, x, epsilon, NULL);
    return block_binary(b, "mul", y, mil_build_const(b, weight, suffixed(b, name, "weight")), name);
}

struct mil_var *block_rms_norm_split(struct mil_builder *b, struct mil_var *x, const struct mil_value *weight,
                                     const struct mil_value *rest, double epsilon, const char *name)
{
    struct mil_var *y = normed(b, x, epsilon, NULL);
    struct mil_var *small =
        block_binary(b, "mul", y, mil_build_const(b, rest, suffixed(b, name, "weight_rest")), NULL);
    y = block_binary(b, "mul", y, mil_build_const(b, weight, suffixed(b, name, "weight")), NULL);
    return block_binary(b, "add", y, small, name);
}

struct mil_var *block_half_sigmoid(struct mil_builder *b, struct mil_var *half_x)
{
    struct mil_var *t = block_scale(b, block_unary(b, "tanh", half_x, NULL), 0.5, NULL);
    return block_binary(b, "add", t, mil_build_f16(b, 0.5, NULL), NULL);
}

struct mil_var *block_gelu(struct mil_builder *b, struct mil_var *x)
{
    double root = 0.79788456080286535588; /* sqrt(2 / pi) */
    struct mil_var *u = block_scale(b, block_binary(b, "mul", x, x, NULL), 0.044715 * root, NULL);
    u = block_binary(b, "add", u, mil_build_f16(b, root, NULL), NULL);
    return block_binary(b, "mul", x, block_half_sigmoid(b, block_binary(b, "mul", x, u, NULL)), NULL);
}

struct mil_var *block_silu(struct mil_builder *b, struct mil_var *x)
{
    return block_binary(b, "mul", x, block_half_sigmoid(b, block_scale(b, x, 0.5, NULL)), NULL);
}

static const int32_t swap_last_two[] = {0, 1, 3, 2};

struct mil_var *block_to_heads(struct mil_builder *b, struct mil_var *x, int64_t n_heads)
{
    if (!has_rank(b, x, 4, "to_heads"))
        return NULL;
    int64_t dims[4] = {1, n_heads, dim_of(x, 1) / n_heads, dim_of(x, 3)};
    return block_transpose(b, block_reshape(b, x, 4, dims, NULL), 4, swap_last_two, NULL);
}

struct mil_var *block_from_heads(struct mil_builder *b, struct mil_var *x)
{
    if (!has_rank(b, x, 4, "from_heads"))
        return NULL;
    int64_t dims[4] = {1, dim_of(x, 1) * dim_of(x, 3), 1, dim_of(x, 2)};
    return block_reshape(b, block_transpose(b, x, 4, swap_last_two, NULL), 4, dims, NULL);
}

struct mil_var *block_repeat_heads(struct mil_builder *b, struct mil_var *x, int64_t n)
{
    static const int32_t axes[] = {2};
    if (n == 1 || !has_rank(b, x, 4, "repeat_heads"))
        return x;
    int64_t reps[5] = {1, 1, n, 1, 1};
    int64_t dims[4] = {1, dim_of(x, 1) * n, dim_of(x, 2), dim_of(x, 3)};
    struct mil_var *expanded = with_axes(b, "expand_dims", x, axes, 1);
    const struct mil_build_arg args[] = {MIL_ARG("x", expanded), MIL_ARG_DIMS("reps", reps, 5)};
    return block_reshape(b, mil_build_op(b, "tile", NULL, args, COUNT(args)), 4, dims, NULL);
}

struct mil_var *block_rope_rows(struct mil_builder *b, const struct mil_value *table,
                                struct mil_var *position_ids, const char *name)
{
    static const int32_t axes[] = {0, 1};
    struct mil_var *rows = block_gather(b, table, position_ids, name, NULL);
    return with_axes(b, "expand_dims", rows, axes, 2);
}

struct mil_var *block_rope(struct mil_builder *b, struct mil_var *x, struct mil_var *cos, struct mil_var *sin,
                           int64_t span, const char *name)
{
    if (!has_rank(b, x, 4, "rope") || !has_rank(b, cos, 4, "rope"))
        return NULL;
    int64_t pairs = dim_of(cos, 3), half = span / 2, d = dim_of(x, 3);
    struct mil_var *low = block_slice(b, x, 3, 0, pairs, NULL);
    struct mil_var *high = block_slice(b, x, 3, half, half + pairs, NULL);
    struct mil_var *parts[4];
    int n = 0;
    struct mil_var *low_cos = block_binary(b, "mul", low, cos, NULL);
    struct mil_var *high_sin = block_binary(b, "mul", high, sin, NULL);
    parts[n++] = block_binary(b, "sub", low_cos, high_sin, NULL);
    if (pairs < half)
        parts[n++] = block_slice(b, x, 3, pairs, half, NULL);
    struct mil_var *high_cos = block_binary(b, "mul", high, cos, NULL);
    struct mil_var *low_sin = block_binary(b, "mul", low, sin, NULL);
    parts[n++] = block_binary(b, "add", high_cos, low_sin, NULL);
    if (half + pairs < d)
        parts[n++] = block_slice(b, x, 3, half + pairs, d, NULL);
    return block_concat(b, parts, n, 3, name);
}

struct mil_var *block_read_state(struct mil_builder *b, struct mil_var *state)
{
    const struct mil_build_arg args[] = {MIL_ARG("input", state)};
    return mil_build_op(b, "read_state", NULL, args, COUNT(args));
}

/* begin, end: int32 [rank] */
static bool write_region(struct mil_builder *b, struct mil_var *state, struct mil_var *old,
                         struct mil_var *value, struct mil_var *begin, struct mil_var *end, const char *name)
{
    const struct mil_build_arg update[] = {MIL_ARG("x", old), MIL_ARG("update", value),
                                           MIL_ARG("begin", begin), MIL_ARG("end", end)};
    struct mil_var *updated = mil_build_op(b, "slice_update", name, update, COUNT(update));
    const struct mil_build_arg write[] = {MIL_ARG("input", state), MIL_ARG("data", updated)};
    return mil_build_op_n(b, "write_state", suffixed(b, name, "write_state"), write, COUNT(write), NULL, 0);
}

void block_write_region(struct mil_builder *b, struct mil_var *state, struct mil_var *old,
                        struct mil_var *value, int rank, const int64_t *begin, const int64_t *end,
                        const char *name)
{
    struct mil_var *from = mil_build_dims(b, begin, rank, NULL);
    struct mil_var *to = mil_build_dims(b, end, rank, NULL);
    (void)write_region(b, state, old, value, from, to, name);
}

/* int32 [4]: a corner of a region of a state */
static struct mil_var *corner(struct mil_builder *b, int64_t slot, int64_t head, struct mil_var *position,
                              int64_t dim)
{
    struct mil_var *parts[4] = {NULL, NULL, position, NULL};
    parts[0] = mil_build_dims(b, &slot, 1, NULL);
    parts[1] = mil_build_dims(b, &head, 1, NULL);
    parts[3] = mil_build_dims(b, &dim, 1, NULL);
    return block_concat(b, parts, 4, 0, NULL);
}

struct mil_var *block_write_rows(struct mil_builder *b, struct mil_var *state, struct mil_var *value,
                                 int64_t slot, int64_t head, struct mil_var *position, bool want_result,
                                 const char *name)
{
    if (!has_rank(b, value, 4, "write_rows") || !state)
        return NULL;
    int64_t t = dim_of(value, 2), d = dim_of(value, 3), slot_end = slot + 1,
            head_end = head + dim_of(value, 1);
    struct mil_var *behind = block_binary(b, "add", position, mil_build_dims(b, &t, 1, NULL), NULL);
    struct mil_var *old = block_read_state(b, state);
    struct mil_var *from = corner(b, slot, head, position, 0), *to = corner(b, slot_end, head_end, behind, d);
    if (!write_region(b, state, old, value, from, to, name))
        return NULL;
    return want_result ? block_read_state(b, state) : NULL;
}

struct mil_var *block_touch_state(struct mil_builder *b, struct mil_var *x, struct mil_var *state)
{
    static const int64_t begin[MIL_RANK_MAX] = {0}, end[MIL_RANK_MAX] = {1, 1, 1, 1, 1, 1, 1, 1},
                         dims[3] = {1, 1, 1};
    if (!state || mil_builder_failed(b))
        return NULL;
    struct mil_var *whole = block_read_state(b, state);
    const struct mil_build_arg args[] = {MIL_ARG("x", whole), MIL_ARG_DIMS("begin", begin, rank_of(state)),
                                         MIL_ARG_DIMS("end", end, rank_of(state))};
    struct mil_var *element = mil_build_op(b, "slice_by_index", NULL, args, COUNT(args));
    element = block_scale(b, block_reshape(b, element, 3, dims, NULL), 0.0, NULL);
    return block_binary(b, "add", x, element, NULL);
}

struct mil_var *block_attention(struct mil_builder *b, struct mil_var *q, struct mil_var *k,
                                struct mil_var *v, struct mil_var *mask, double scale, const char *name)
{
    if (!has_rank(b, q, 4, "attention") || !has_rank(b, k, 4, "attention"))
        return NULL;
    int64_t n = dim_of(q, 1) / dim_of(k, 1);
    struct mil_var *scores = block_matmul(b, q, block_repeat_heads(b, k, n), true, NULL);
    struct mil_var *values = block_repeat_heads(b, v, n);
    if (scale != 1.0)
        scores = block_scale(b, scores, scale, NULL);
    scores = block_binary(b, "add", scores, mask, NULL);
    return block_matmul(b, block_softmax(b, scores, -1), values, false, name);
}

struct mil_var *block_last_row(struct mil_builder *b, struct mil_var *x)
{
    if (!has_rank(b, x, 3, "last_row"))
        return NULL;
    int64_t t = dim_of(x, 1);
    return t == 1 ? x : block_slice(b, x, 1, t - 1, t, NULL);
}
