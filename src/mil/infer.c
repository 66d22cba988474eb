/* Shape inference: dispatch to the rules, whole functions, and the integers that shapes are computed from. */
#include <stdio.h>
#include <string.h>
#include "mil/infer_rules.h"

/* ---- what rules share ---- */

bool infer_fail(struct infer *in, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *name = in->op->n_outputs > 0 ? in->op->outputs[0]->name : NULL;
    if (!name)
        return err_set(in->e, ERR_FORMAT, "op %s: %s", in->op->type, text);
    return err_set(in->e, ERR_FORMAT, "op %s '%s': %s", in->op->type, name, text);
}

const struct mil_type *infer_binding_type(const struct mil_binding *b, const struct mil_type *const *types)
{
    if (b->value)
        return b->value->type;
    if (!b->var)
        return NULL;
    return types && types[b->var->id] ? types[b->var->id] : b->var->type;
}

const struct mil_type *infer_arg(struct infer *in, const char *name)
{
    const struct mil_arg *arg = mil_arg_find(in->op, name);
    if (arg && arg->n > 0)
        return infer_binding_type(&arg->bindings[0], in->types);
    const struct mil_value *v = mil_attribute(in->op, name);
    return v ? v->type : NULL;
}

bool infer_has_rank(const struct mil_type *t)
{
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] == MIL_DIM_VARIADIC)
            return false;
    }
    return true;
}

bool infer_tensor_optional(struct infer *in, const char *name, const struct mil_type **t)
{
    *t = infer_arg(in, name);
    if (!*t)
        return true;
    if ((*t)->kind != MIL_TYPE_TENSOR)
        return infer_fail(in, "argument %s must be a tensor", name);
    if ((*t)->rank > MIL_RANK_MAX)
        return infer_fail(in, "argument %s has rank %d, the limit is %d", name, (*t)->rank, MIL_RANK_MAX);
    return true;
}

bool infer_tensor(struct infer *in, const char *name, const struct mil_type **t)
{
    if (!infer_tensor_optional(in, name, t))
        return false;
    return *t ? true : infer_fail(in, "argument %s is missing", name);
}

void infer_int(struct infer *in, const char *name, int64_t otherwise, int64_t *v)
{
    int n;
    if (!mil_arg_find(in->op, name) && !mil_attribute(in->op, name))
        *v = otherwise;
    else if (!infer_ints(in, name, v, 1, &n) || n != 1)
        *v = MIL_INT_UNKNOWN;
}

static const struct mil_value *infer_value(struct infer *in, const char *name)
{
    const struct mil_value *v = mil_arg_value(in->op, name);
    return v ? v : mil_attribute(in->op, name);
}

bool infer_bool(struct infer *in, const char *name, bool otherwise)
{
    int64_t v;
    int n;
    return mil_value_ints(infer_value(in, name), &v, 1, &n) && n == 1 ? v != 0 : otherwise;
}

bool infer_string(struct infer *in, const char *name, struct str *s)
{
    return mil_value_string(infer_value(in, name), s);
}

bool infer_string_is(struct str s, const char *word)
{
    return strlen(word) == s.n && memcmp(word, s.p, s.n) == 0;
}

bool infer_axis(struct infer *in, const char *name, int64_t axis, int rank, int *out)
{
    if (axis < -(int64_t)rank || axis >= rank)
        return infer_fail(in, "%s %lld is outside rank %d", name, (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

bool infer_axes(struct infer *in, const char *name, int rank, bool *flags, bool *known)
{
    int64_t axes[MIL_RANK_MAX * 2];
    int n = 0, axis = 0;
    *known = infer_ints(in, name, axes, MIL_RANK_MAX * 2, &n);
    for (int i = 0; *known && i < n; i++) {
        if (axes[i] == MIL_INT_UNKNOWN) {
            *known = false;
            break;
        }
        if (!infer_axis(in, name, axes[i], rank, &axis))
            return false;
        if (flags[axis])
            return infer_fail(in, "%s names axis %d twice", name, axis);
        flags[axis] = true;
    }
    return true;
}

bool infer_out(struct infer *in, int i, enum mil_dtype d, int rank, const int64_t *dims)
{
    if (i >= in->op->n_outputs)
        return infer_fail(in, "has %d results, expected at least %d", in->op->n_outputs, i + 1);
    if (rank > MIL_RANK_MAX)
        return infer_fail(in, "the result has rank %d, the limit is %d", rank, MIL_RANK_MAX);
    in->out[i] = mil_type_new_tensor(in->a, d, rank, dims);
    return true;
}

bool infer_out_type(struct infer *in, int i, const struct mil_type *t)
{
    if (i >= in->op->n_outputs)
        return infer_fail(in, "has %d results, expected at least %d", in->op->n_outputs, i + 1);
    in->out[i] = t;
    return true;
}

bool infer_broadcast(struct infer *in, const struct mil_type *a, const struct mil_type *b, int *rank,
                     int64_t dims[MIL_RANK_MAX])
{
    char text_a[128], text_b[128];
    *rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 0; i < *rank; i++) {
        int ia = i - (*rank - a->rank), ib = i - (*rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->dims[ia], db = ib < 0 ? 1 : b->dims[ib];
        if (da == db || db == 1)
            dims[i] = da;
        else if (da == 1)
            dims[i] = db;
        else if (da < 0 || db < 0)
            dims[i] = da < 0 ? db : da; /* an unknown size beside a known one above 1 can only be it (or 1) */
        else {
            mil_type_text(text_a, sizeof text_a, a);
            mil_type_text(text_b, sizeof text_b, b);
            return infer_fail(in, "shapes do not broadcast: %s and %s", text_a, text_b);
        }
    }
    return true;
}

bool infer_dim_mul(struct infer *in, int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0)
        *out = MIL_DIM_UNKNOWN;
    else if (__builtin_mul_overflow(a, b, out))
        return infer_fail(in, "the result is too large");
    return true;
}

bool infer_dim_add(struct infer *in, int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0)
        *out = MIL_DIM_UNKNOWN;
    else if (__builtin_add_overflow(a, b, out))
        return infer_fail(in, "the result is too large");
    return true;
}

bool infer_dim_product(struct infer *in, const int64_t *dims, int begin, int end, int64_t *out)
{
    *out = 1;
    for (int i = begin; i < end; i++) {
        if (!infer_dim_mul(in, *out, dims[i], out))
            return false;
    }
    return true;
}

bool infer_dims_meet(struct infer *in, const char *what, int64_t a, int64_t b)
{
    if (a >= 0 && b >= 0 && a != b)
        return infer_fail(in, "%s differ: %lld and %lld", what, (long long)a, (long long)b);
    return true;
}

enum mil_dtype infer_named_dtype(struct infer *in, const char *name, enum mil_dtype otherwise)
{
    struct str s;
    return infer_string(in, name, &s) ? mil_dtype_find(s.p, s.n) : otherwise;
}

/* ---- integers known from shapes ---- */

/* Shape arithmetic is small: more elements are left unknown. Without a table of what is known already, so are longer
 * chains, and the step budget bounds the work on graphs whose branches meet again (each visit of a shared op counts). */
#define FOLD_ELEMS_MAX 64
#define FOLD_DEPTH_MAX 48
#define FOLD_STEPS_MAX 4096

struct ints {
    int64_t v[FOLD_ELEMS_MAX];
    int n;
    int rank; /* 0 or 1; deeper tensors are not folded */
};

/* What is known of a variable. */
struct known_ints {
    bool is_some; /* false: nothing */
    int n, rank;
    int64_t v[]; /* [n] */
};

struct mil_known_ints {
    struct arena *arena;
    int n_vars;
    const struct known_ints **of; /* [n_vars]; NULL: not looked at yet */
};

struct fold {
    const struct mil_type *const *types;
    struct mil_known_ints *known;
    int steps, depth;
};

static bool fold_binding(struct fold *f, const struct mil_binding *b, struct ints *r);

static bool fold_arg(struct fold *f, const struct mil_op *op, const char *name, struct ints *r)
{
    const struct mil_arg *arg = mil_arg_find(op, name);
    return arg && arg->n == 1 && fold_binding(f, &arg->bindings[0], r);
}

static int64_t fold_optional_int(struct fold *f, const struct mil_op *op, const char *name, int64_t otherwise)
{
    struct ints r;
    if (!mil_arg_find(op, name))
        return otherwise;
    return fold_arg(f, op, name, &r) && r.n == 1 ? r.v[0] : MIL_INT_UNKNOWN;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static int64_t fold_two(enum mil_op_id id, int64_t a, int64_t b)
{
    int64_t r;
    if (a == MIL_INT_UNKNOWN || b == MIL_INT_UNKNOWN)
        return MIL_INT_UNKNOWN;
    switch (id) {
    case MIL_OP_ADD:
        return __builtin_add_overflow(a, b, &r) ? MIL_INT_UNKNOWN : r;
    case MIL_OP_SUB:
        return __builtin_sub_overflow(a, b, &r) ? MIL_INT_UNKNOWN : r;
    case MIL_OP_MUL:
        return __builtin_mul_overflow(a, b, &r) ? MIL_INT_UNKNOWN : r;
    case MIL_OP_FLOOR_DIV:
        return b == 0 || b == -1 ? MIL_INT_UNKNOWN : floor_div(a, b);
    case MIL_OP_MOD:
        return b == 0 || b == -1 ? MIL_INT_UNKNOWN : a - b * floor_div(a, b);
    case MIL_OP_MAXIMUM:
        return a > b ? a : b;
    case MIL_OP_MINIMUM:
        return a < b ? a : b;
    default:
        return MIL_INT_UNKNOWN;
    }
}

static bool fold_binary(struct fold *f, const struct mil_op *op, struct ints *r)
{
    struct ints x, y;
    if (!fold_arg(f, op, "x", &x) || !fold_arg(f, op, "y", &y) || (x.n != y.n && x.n != 1 && y.n != 1))
        return false;
    r->n = x.n == 1 ? y.n : x.n;
    r->rank = x.rank > y.rank ? x.rank : y.rank;
    for (int i = 0; i < r->n; i++)
        r->v[i] = fold_two(op->info->id, x.v[x.n == 1 ? 0 : i], y.v[y.n == 1 ? 0 : i]);
    return true;
}

static bool fold_gather(struct fold *f, const struct mil_op *op, struct ints *r)
{
    struct ints x, indices;
    int64_t axis = fold_optional_int(f, op, "axis", 0), batch = fold_optional_int(f, op, "batch_dims", 0);
    if (!fold_arg(f, op, "x", &x) || !fold_arg(f, op, "indices", &indices) || x.rank != 1 ||
        (axis != 0 && axis != -1) || batch != 0)
        return false;
    r->n = indices.n;
    r->rank = indices.rank;
    for (int i = 0; i < r->n; i++) {
        int64_t k = indices.v[i];
        if (k < 0 && k != MIL_INT_UNKNOWN)
            k += x.n;
        r->v[i] = k >= 0 && k < x.n ? x.v[k] : MIL_INT_UNKNOWN;
    }
    return true;
}

static bool fold_concat(struct fold *f, const struct mil_op *op, struct ints *r)
{
    const struct mil_arg *values = mil_arg_find(op, "values");
    struct ints part;
    r->n = 0;
    r->rank = 1;
    for (int i = 0; values && i < values->n; i++) {
        if (!fold_binding(f, &values->bindings[i], &part) || r->n + part.n > FOLD_ELEMS_MAX)
            return false;
        memcpy(r->v + r->n, part.v, sizeof part.v[0] * (size_t)part.n);
        r->n += part.n;
    }
    return values != NULL;
}

static bool fold_slice(struct fold *f, const struct mil_op *op, struct ints *r)
{
    struct ints x;
    int64_t begin = fold_optional_int(f, op, "begin", 0), end = fold_optional_int(f, op, "end", 0);
    int64_t stride = fold_optional_int(f, op, "stride", 1);
    bool from_start = fold_optional_int(f, op, "begin_mask", 0) == 1;
    bool to_end = fold_optional_int(f, op, "end_mask", 0) == 1;
    bool squeeze = fold_optional_int(f, op, "squeeze_mask", 0) == 1;
    if (!fold_arg(f, op, "x", &x) || x.rank != 1 || stride != 1)
        return false;
    if (from_start)
        begin = 0;
    if (begin == MIL_INT_UNKNOWN || (end == MIL_INT_UNKNOWN && !to_end && !squeeze))
        return false;
    begin += begin < 0 ? x.n : 0;
    if (begin < 0 || begin > x.n)
        return false;
    if (to_end || squeeze)
        end = squeeze ? begin + 1 : x.n;
    end += end < 0 ? x.n : 0;
    end = end > x.n ? x.n : end;
    r->n = end > begin ? (int)(end - begin) : 0;
    r->rank = squeeze ? 0 : 1;
    if (squeeze && r->n != 1)
        return false;
    memcpy(r->v, x.v + begin, sizeof x.v[0] * (size_t)r->n);
    return true;
}

static bool fold_op(struct fold *f, const struct mil_op *op, struct ints *r)
{
    const struct mil_arg *arg;
    const struct mil_type *t;
    switch (op->info->id) {
    case MIL_OP_SHAPE:
        arg = mil_arg_find(op, "x");
        t = arg && arg->n == 1 ? infer_binding_type(&arg->bindings[0], f->types) : NULL;
        if (!t || t->kind != MIL_TYPE_TENSOR || t->rank > MIL_RANK_MAX || !infer_has_rank(t))
            return false;
        for (int i = 0; i < t->rank; i++)
            r->v[i] = t->dims[i] < 0 ? MIL_INT_UNKNOWN : t->dims[i];
        r->n = t->rank;
        r->rank = 1;
        return true;
    case MIL_OP_ADD:
    case MIL_OP_SUB:
    case MIL_OP_MUL:
    case MIL_OP_FLOOR_DIV:
    case MIL_OP_MOD:
    case MIL_OP_MAXIMUM:
    case MIL_OP_MINIMUM:
        return fold_binary(f, op, r);
    case MIL_OP_IDENTITY:
    case MIL_OP_CAST:
        return fold_arg(f, op, "x", r);
    case MIL_OP_EXPAND_DIMS:
        if (!fold_arg(f, op, "x", r) || r->rank != 0)
            return false;
        r->rank = 1;
        return true;
    case MIL_OP_SQUEEZE:
        if (!fold_arg(f, op, "x", r) || r->n != 1)
            return false;
        r->rank = 0;
        return true;
    case MIL_OP_GATHER:
        return fold_gather(f, op, r);
    case MIL_OP_CONCAT:
    case MIL_OP_STACK:
        return fold_concat(f, op, r);
    case MIL_OP_SLICE_BY_INDEX:
        return fold_slice(f, op, r);
    default:
        return false;
    }
}

static bool fold_var(struct fold *f, const struct mil_var *var, const struct mil_type *t, struct ints *r)
{
    const struct mil_op *op = var->op;
    if (op && op->info && mil_dtype_is_integer(t->dtype) && f->depth < FOLD_DEPTH_MAX &&
        f->steps++ < FOLD_STEPS_MAX) {
        f->depth++;
        bool ok = fold_op(f, op, r);
        f->depth--;
        /* Narrowing casts may wrap; what is used here are sizes and positions. */
        if (ok && r->n <= FOLD_ELEMS_MAX)
            return true;
    }
    /* The number of elements alone is worth knowing: a reshape to [?, ?, ?] has rank 3. */
    int64_t n = mil_type_elems(t);
    if (n < 0 || n > FOLD_ELEMS_MAX)
        return false;
    r->n = (int)n;
    r->rank = t->rank;
    for (int i = 0; i < r->n; i++)
        r->v[i] = MIL_INT_UNKNOWN;
    return true;
}

static bool fold_binding(struct fold *f, const struct mil_binding *b, struct ints *r)
{
    const struct mil_value *v = mil_binding_value(b);
    r->n = 0;
    if (v) {
        if (!v->type || v->type->kind != MIL_TYPE_TENSOR || v->type->rank > 1 ||
            !mil_value_ints(v, r->v, FOLD_ELEMS_MAX, &r->n))
            return false;
        r->rank = v->type->rank;
        return true;
    }
    const struct mil_type *t = infer_binding_type(b, f->types);
    if (!b->var || !t || t->kind != MIL_TYPE_TENSOR || t->rank > 1)
        return false;
    if (!f->known || b->var->id < 0 || b->var->id >= f->known->n_vars)
        return fold_var(f, b->var, t, r);
    const struct known_ints **known = &f->known->of[b->var->id];
    if (!*known) {
        bool is_some = fold_var(f, b->var, t, r);
        int n_kept = is_some ? r->n : 0;
        struct known_ints *kept =
            arena_alloc(f->known->arena, sizeof *kept + sizeof r->v[0] * (size_t)n_kept);
        *kept = (struct known_ints){is_some, n_kept, is_some ? r->rank : 0};
        memcpy(kept->v, r->v, sizeof r->v[0] * (size_t)n_kept);
        *known = kept;
    }
    r->n = (*known)->n;
    r->rank = (*known)->rank;
    memcpy(r->v, (*known)->v, sizeof r->v[0] * (size_t)r->n);
    return (*known)->is_some;
}

struct mil_known_ints *mil_known_ints_new(int n_vars, struct arena *a)
{
    struct mil_known_ints *known = ARENA_NEW(a, struct mil_known_ints);
    known->arena = a;
    known->n_vars = n_vars;
    known->of = ARENA_ARRAY(a, const struct known_ints *, n_vars + 1);
    return known;
}

void mil_known_ints_add(struct mil_known_ints *known, const struct mil_op *op,
                        const struct mil_type *const *types)
{
    struct fold f = {.types = types, .known = known};
    struct ints r;
    for (int i = 0; i < op->n_outputs; i++) {
        const struct mil_binding b = {.var = op->outputs[i]};
        const struct mil_type *t = infer_binding_type(&b, types);
        if (op->info && t && t->kind == MIL_TYPE_TENSOR && mil_dtype_is_integer(t->dtype))
            fold_binding(&f, &b, &r);
    }
}

bool mil_infer_ints(const struct mil_op *op, const char *name, const struct mil_type *const *types,
                    struct mil_known_ints *known, int64_t *dst, int n_max, int *n)
{
    struct fold f = {.types = types, .known = known};
    struct ints r;
    const struct mil_arg *arg = mil_arg_find(op, name);
    if (!arg || arg->n != 1)
        return false;
    const struct mil_value *v = mil_binding_value(&arg->bindings[0]);
    if (v)
        return mil_value_ints(v, dst, n_max, n);
    if (!fold_binding(&f, &arg->bindings[0], &r) || r.n > n_max)
        return false;
    memcpy(dst, r.v, sizeof r.v[0] * (size_t)r.n);
    *n = r.n;
    return true;
}

bool infer_ints(struct infer *in, const char *name, int64_t *dst, int n_max, int *n)
{
    if (mil_arg_find(in->op, name))
        return mil_infer_ints(in->op, name, in->types, in->known, dst, n_max, n);
    return mil_value_ints(mil_attribute(in->op, name), dst, n_max, n);
}

bool mil_type_agrees(const struct mil_type *declared, const struct mil_type *found)
{
    if (!declared || !found)
        return true;
    if (declared->kind != found->kind)
        return false;
    if (declared->kind == MIL_TYPE_STATE)
        return mil_type_agrees(declared->elem, found->elem);
    if (declared->kind != MIL_TYPE_TENSOR)
        return mil_type_equal(declared, found);
    if (declared->dtype != found->dtype)
        return false;
    if (!infer_has_rank(declared) || !infer_has_rank(found))
        return true;
    if (declared->rank != found->rank)
        return false;
    for (int i = 0; i < declared->rank; i++) {
        if (declared->dims[i] >= 0 && found->dims[i] >= 0 && declared->dims[i] != found->dims[i])
            return false;
    }
    return true;
}
