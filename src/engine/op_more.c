/* The rarer ops that move or make elements: constants by shape (fill, shape, range_1d), stack, pad, reverse,
 * slice_by_size, cumsum, topk, one_hot, gather_along_axis, band_part. */
#include <math.h>
#include <string.h>
#include "engine/engine_int.h"

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
static bool emit_fill(struct compiler *c, const struct mil_op *op)
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

static bool emit_shape(struct compiler *c, const struct mil_op *op)
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

static bool emit_range_1d(struct compiler *c, const struct mil_op *op)
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

/* ---- views ---- */

static bool emit_reverse(struct compiler *c, const struct mil_op *op)
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
        int64_t axis = axes[i] < 0 ? axes[i] + x.rank : axes[i];
        if (axis < 0 || axis >= x.rank)
            return compile_fail(c, ERR_FORMAT, "axis outside the tensor");
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

static bool emit_slice_by_size(struct compiler *c, const struct mil_op *op)
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

static bool emit_stack(struct compiler *c, const struct mil_op *op)
{
    const struct mil_arg *values = mil_arg_find(op, "values");
    const struct mil_type *t = var_type(c, op->outputs[0]);
    int64_t axis;
    if (!values || values->n < 1 || !arg_int(c, op, "axis", 0, &axis))
        return compile_fail(c, ERR_FORMAT, "no values, or no axis");
    if (axis < 0)
        axis += t->rank;
    if (axis < 0 || axis >= t->rank || t->dims[axis] != values->n)
        return compile_fail(c, ERR_FORMAT, "axis outside the tensor");
    if (!compile_take_steps(c, values->n))
        return false;
    struct value y = value_new(c, dtype_repr(t->dtype), t->rank, t->dims);
    for (int k = 0; k < values->n; k++) {
        struct value part = y, x;
        if (!operand_binding(c, &values->bindings[k], &x) || !to_f32(c, &x))
            return false;
        part.offset += k * y.strides[axis];
        part.rank = t->rank - 1;
        for (int i = (int)axis; i < part.rank; i++) {
            part.dims[i] = y.dims[i + 1];
            part.strides[i] = y.strides[i + 1];
        }
        bool same = x.rank == part.rank && x.repr == y.repr;
        for (int i = 0; same && i < x.rank; i++)
            same = x.dims[i] == part.dims[i];
        if (!same)
            return compile_fail(c, ERR_FORMAT, "values of different shape");
        emit_copy(c, &x, &part);
    }
    set_output(c, op, 0, y);
    return true;
}

/* ---- pad ---- */

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_REPLICATE };

struct pad {
    enum pad_mode mode;
    int32_t constant; /* its bits */
    int rank;
    int64_t dims[MIL_RANK_MAX], x_dims[MIL_RANK_MAX], strides[MIL_RANK_MAX], before[MIL_RANK_MAX];
};

/* Where element i of the result lies along an axis of x; -1: in the constant border. */
static int64_t pad_source(const struct pad *p, int axis, int64_t i)
{
    int64_t n = p->x_dims[axis], k = i - p->before[axis];
    if (k >= 0 && k < n)
        return k;
    switch (p->mode) {
    case PAD_REFLECT:
        return k < 0 ? -k : 2 * (n - 1) - k;
    case PAD_REPLICATE:
        return k < 0 ? 0 : n - 1;
    default:
        return -1;
    }
}

static void run_pad(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct pad *p = s->params;
    const int32_t *x = value_pointer(r, &s->in[0]); /* elements of 4 bytes move as they are */
    int32_t *y = value_pointer(r, &s->out[0]);
    int inner = p->rank - 1;
    int64_t n_rows = 1, begin, end;
    for (int i = 0; i < inner; i++)
        n_rows *= p->dims[i];
    pool_split(n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t from = 0, rest = row;
        bool border = false;
        for (int i = inner - 1; i >= 0; i--) {
            int64_t k = pad_source(p, i, rest % p->dims[i]);
            rest /= p->dims[i];
            border = border || k < 0;
            from += k * p->strides[i];
        }
        for (int64_t i = 0; i < p->dims[inner]; i++) {
            int64_t k = border ? -1 : pad_source(p, inner, i);
            y[row * p->dims[inner] + i] = k < 0 ? p->constant : x[from + k * p->strides[inner]];
        }
    }
}

static bool pad_mode(struct compiler *c, const struct mil_op *op, enum pad_mode *mode)
{
    static const char *const names[] = {"constant", "reflect", "replicate"};
    const struct mil_value *v = mil_arg_value(op, "mode");
    struct str text = {names[0], strlen(names[0])};
    if (v && !mil_value_string(v, &text))
        return compile_fail(c, ERR_FORMAT, "mode is no string");
    for (int i = 0; i < 3; i++)
        if (text.n == strlen(names[i]) && memcmp(text.p, names[i], text.n) == 0) {
            *mode = (enum pad_mode)i;
            return true;
        }
    return compile_fail(c, ERR_UNSUPPORTED, "mode %.*s", (int)text.n, text.p);
}

static bool emit_pad(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct pad *p = ARENA_NEW(c->arena, struct pad);
    struct value x;
    int64_t pad[2 * MIL_RANK_MAX];
    int n = 2 * MIL_RANK_MAX;
    double constant;
    if (!operand_f32(c, op, "x", &x) || !arg_ints(c, op, "pad", pad, &n) || !pad_mode(c, op, &p->mode) ||
        !arg_float(c, op, "constant_val", 0, &constant))
        return false;
    if (n % 2 != 0 || n / 2 > x.rank || x.rank < 1 || t->rank != x.rank || x.repr != dtype_repr(t->dtype))
        return compile_fail(c, ERR_FORMAT, "pad has %d entries for %d axes", n, x.rank);
    p->rank = x.rank;
    for (int i = 0; i < x.rank; i++) {
        int k = i - (x.rank - n / 2); /* pads of the last axes alone */
        int64_t before = k < 0 ? 0 : pad[2 * k], after = k < 0 ? 0 : pad[2 * k + 1], most = x.dims[i] - 1;
        bool fits =
            before >= 0 && after >= 0 && before <= t->dims[i] && after == t->dims[i] - before - x.dims[i];
        if (p->mode == PAD_REFLECT)
            fits = fits && before <= most && after <= most;
        else if (p->mode == PAD_REPLICATE)
            fits = fits && (x.dims[i] > 0 || before + after == 0);
        if (!fits)
            return compile_fail(c, ERR_FORMAT, "pads of axis %d do not fit", i);
        p->dims[i] = t->dims[i];
        p->x_dims[i] = x.dims[i];
        p->strides[i] = x.strides[i];
        p->before[i] = before;
    }
    if (x.repr == REPR_F32)
        memcpy(&p->constant, &(float){(float)constant}, sizeof p->constant);
    else
        p->constant = (int32_t)constant;
    struct value y = value_new(c, x.repr, t->rank, t->dims);
    struct step *s = step_new(c, "pad", run_pad);
    s->params = p;
    s->serial = value_elems(&y) < PARALLEL_ELEMS;
    step_in(c, s, x);
    step_out(c, s, y);
    set_output(c, op, 0, y);
    return true;
}

/* ---- lines along one axis ---- */

struct lines {
    int id, rank;                                         /* of the other axes */
    int64_t dims[MIL_RANK_MAX], strides[3][MIL_RANK_MAX]; /* of x and two more values */
    int64_t n, step[3], n_lines, k;
    bool exclusive, reverse, ascending;
};

/* v[1] and v[2] may be NULL. All have the dims of v[0] beside the axis. */
static struct lines *lines_new(struct compiler *c, int id, int axis, const struct value *const v[3])
{
    struct lines *p = ARENA_NEW(c->arena, struct lines);
    p->id = id;
    p->n = v[0]->dims[axis];
    p->n_lines = 1;
    for (int i = 0; i < v[0]->rank; i++) {
        if (i == axis)
            continue;
        p->dims[p->rank] = v[0]->dims[i];
        for (int k = 0; k < 3; k++)
            p->strides[k][p->rank] = v[k] ? v[k]->strides[i] : 0;
        p->rank++;
        p->n_lines *= v[0]->dims[i];
    }
    for (int k = 0; k < 3; k++)
        p->step[k] = v[k] ? v[k]->strides[axis] : 0;
    return p;
}

static void line_offsets(const struct lines *p, int64_t line, int64_t at[3])
{
    at[0] = at[1] = at[2] = 0;
    for (int i = p->rank - 1; i >= 0; i--) {
        int64_t k = line % p->dims[i];
        line /= p->dims[i];
        for (int j = 0; j < 3; j++)
            at[j] += k * p->strides[j][i];
    }
}

static void run_cumsum(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct lines *p = s->params;
    const int32_t *x = value_pointer(r, &s->in[0]);
    int32_t *y = value_pointer(r, &s->out[0]);
    bool is_float = s->in[0].repr == REPR_F32;
    int64_t begin, end, at[3];
    pool_split(p->n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        double sum = 0;
        uint32_t whole = 0;
        line_offsets(p, line, at);
        for (int64_t i = 0; i < p->n; i++) {
            int64_t k = p->reverse ? p->n - 1 - i : i, from = at[0] + k * p->step[0],
                    to = at[1] + k * p->step[1];
            double sum_before = sum;
            uint32_t whole_before = whole;
            if (is_float)
                sum += ((const float *)x)[from];
            else
                whole += (uint32_t)x[from];
            if (is_float)
                ((float *)y)[to] = (float)(p->exclusive ? sum_before : sum);
            else
                y[to] = (int32_t)(p->exclusive ? whole_before : whole);
        }
    }
}

static bool axis_of(struct compiler *c, const struct mil_op *op, int64_t fallback, int rank, int *axis)
{
    int64_t a;
    if (!arg_int(c, op, "axis", fallback, &a))
        return false;
    if (a < 0)
        a += rank;
    *axis = (int)a;
    return (a >= 0 && a < rank) || compile_fail(c, ERR_FORMAT, "axis outside the tensor");
}

static bool emit_cumsum(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x;
    int axis;
    bool exclusive, reverse;
    if (!operand_f32(c, op, "x", &x) || !axis_of(c, op, 0, x.rank, &axis) ||
        !arg_bool(c, op, "exclusive", false, &exclusive) || !arg_bool(c, op, "reverse", false, &reverse))
        return false;
    struct value y = value_new(c, x.repr, t->rank, t->dims);
    struct lines *p = lines_new(c, MIL_OP_CUMSUM, axis, (const struct value *const[3]){&x, &y, NULL});
    p->exclusive = exclusive;
    p->reverse = reverse;
    struct step *s = step_new(c, "cumsum", run_cumsum);
    s->params = p;
    s->serial = value_elems(&y) < PARALLEL_ELEMS;
    step_in(c, s, x);
    step_out(c, s, y);
    set_output(c, op, 0, y);
    return true;
}

/* Does (a, i) stand before (b, k) in the order asked for? Equal values by index, NaN last. */
static bool stands_before(const struct lines *p, double a, int64_t i, double b, int64_t k)
{
    if (a != a || b != b)
        return a == a || (b != b && i < k);
    if (a != b)
        return p->ascending ? a < b : a > b;
    return i < k;
}

/* The k first of each line, one after another: k passes, as k is small. */
static void run_topk(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct lines *p = s->params;
    const int32_t *x = value_pointer(r, &s->in[0]);
    int32_t *values = value_pointer(r, &s->out[0]), *indices = value_pointer(r, &s->out[1]);
    bool is_float = s->in[0].repr == REPR_F32;
    int64_t begin, end, at[3];
    pool_split(p->n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        int64_t last = -1;
        double last_value = 0;
        line_offsets(p, line, at);
        for (int64_t place = 0; place < p->k; place++) {
            int64_t best = -1;
            double best_value = 0;
            for (int64_t i = 0; i < p->n && !run_stops(r, i); i++) {
                int64_t from = at[0] + i * p->step[0];
                double v = is_float ? ((const float *)x)[from] : x[from];
                if ((last < 0 || stands_before(p, last_value, last, v, i)) &&
                    (best < 0 || stands_before(p, v, i, best_value, best))) {
                    best = i;
                    best_value = v;
                }
            }
            if (best < 0) /* stopped */
                return;
            last = best;
            last_value = best_value;
            values[at[1] + place * p->step[1]] = x[at[0] + best * p->step[0]];
            indices[at[2] + place * p->step[2]] = (int32_t)best;
        }
    }
}

static bool emit_topk(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x;
    int axis;
    bool ascending;
    if (!operand_f32(c, op, "x", &x) || !axis_of(c, op, -1, x.rank, &axis) ||
        !arg_bool(c, op, "ascending", false, &ascending))
        return false;
    if (t->rank != x.rank || t->dims[axis] > x.dims[axis] || t->dims[axis] > 1024)
        return compile_fail(c, ERR_UNSUPPORTED, "k: expected at most 1024 of %lld", (long long)x.dims[axis]);
    struct value y = value_new(c, x.repr, t->rank, t->dims), i = value_new(c, REPR_I32, t->rank, t->dims);
    struct lines *p = lines_new(c, MIL_OP_TOPK, axis, (const struct value *const[3]){&x, &y, &i});
    p->k = t->dims[axis];
    p->ascending = ascending;
    struct step *s = step_new(c, "topk", run_topk);
    s->params = p;
    s->work = (double)value_elems(&x) * (double)p->k;
    s->serial = value_elems(&x) < 4096;
    step_in(c, s, x);
    step_out(c, s, y);
    step_out(c, s, i);
    set_output(c, op, 0, y);
    if (op->n_outputs > 1)
        set_output(c, op, 1, i);
    return true;
}

/* ---- gather_along_axis: out[.., i, ..] = x[.., indices[.., i, ..], ..] ---- */

static void run_gather_along(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct lines *p = s->params; /* of the indices; x and the result beside them */
    const int32_t *indices = value_pointer(r, &s->in[0]), *x = value_pointer(r, &s->in[1]);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, at[3];
    pool_split(p->n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        line_offsets(p, line, at);
        for (int64_t i = 0; i < p->n; i++) {
            int64_t index = indices[at[0] + i * p->step[0]];
            if (index < 0)
                index += p->k;
            if (index < 0 || index >= p->k) {
                run_fail(r, s, "an index lies outside the tensor");
                return;
            }
            y[at[2] + i * p->step[2]] = x[at[1] + index * p->step[1]];
        }
    }
}

static bool emit_gather_along_axis(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x, indices;
    int axis;
    if (!operand_f32(c, op, "x", &x) || !operand(c, op, "indices", &indices) ||
        !axis_of(c, op, 0, x.rank, &axis))
        return false;
    bool fits = indices.repr == REPR_I32 && indices.rank == x.rank && t->rank == x.rank;
    for (int i = 0; fits && i < x.rank; i++)
        fits = t->dims[i] == indices.dims[i] && (i == axis || x.dims[i] == indices.dims[i]);
    if (!fits)
        return compile_fail(c, ERR_FORMAT, "indices do not fit x");
    struct value y = value_new(c, x.repr, t->rank, t->dims);
    struct lines *p =
        lines_new(c, MIL_OP_GATHER_ALONG_AXIS, axis, (const struct value *const[3]){&indices, &x, &y});
    p->k = x.dims[axis];
    struct step *s = step_new(c, "gather along axis", run_gather_along);
    s->params = p;
    s->serial = value_elems(&y) < PARALLEL_ELEMS;
    step_in(c, s, indices);
    step_in(c, s, x);
    step_out(c, s, y);
    set_output(c, op, 0, y);
    return true;
}

/* ---- one_hot, band_part ---- */

static void run_one_hot(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct lines *p = s->params; /* of the result; step[1] and strides[1] of the indices */
    const int32_t *indices = value_pointer(r, &s->in[0]);
    int32_t *y = value_pointer(r, &s->out[0]), on = (int32_t)s->i[0], off = (int32_t)s->i[1];
    int64_t begin, end, at[3];
    pool_split(p->n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        line_offsets(p, line, at);
        for (int64_t i = 0; i < p->n; i++)
            y[at[0] + i * p->step[0]] = indices[at[1]] == i ? on : off;
    }
}

static bool emit_one_hot(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value indices;
    int axis;
    double values[2];
    int32_t bits[2];
    if (!operand(c, op, "indices", &indices) || !axis_of(c, op, -1, t->rank, &axis) ||
        !arg_float(c, op, "on_value", 1, &values[0]) || !arg_float(c, op, "off_value", 0, &values[1]))
        return false;
    if (indices.repr != REPR_I32 || indices.rank != t->rank - 1)
        return compile_fail(c, ERR_FORMAT, "indices do not fit the result");
    struct value y = value_new(c, dtype_repr(t->dtype), t->rank, t->dims), wide = y;
    for (int i = 0; i < t->rank; i++) /* the indices, seen with the result's axes */
        wide.strides[i] = i == axis ? 0 : indices.strides[i - (i > axis)];
    for (int i = 0; i < 2; i++) {
        if (y.repr == REPR_F32)
            memcpy(&bits[i], &(float){(float)values[i]}, sizeof bits[i]);
        else
            bits[i] = (int32_t)values[i];
    }
    struct step *s = step_new(c, "one hot", run_one_hot);
    s->params = lines_new(c, MIL_OP_ONE_HOT, axis, (const struct value *const[3]){&y, &wide, NULL});
    s->i[0] = bits[0];
    s->i[1] = bits[1];
    s->serial = value_elems(&y) < PARALLEL_ELEMS;
    step_in(c, s, indices);
    step_out(c, s, y);
    set_output(c, op, 0, y);
    return true;
}

static void run_band_part(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct value *x = &s->in[0];
    const int32_t *from = value_pointer(r, x);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t n_rows = x->dims[x->rank - 2], n_columns = x->dims[x->rank - 1], begin, end;
    pool_split(s->i[2], 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        int64_t row = line % n_rows, at = 0, rest = line;
        for (int i = x->rank - 2; i >= 0; i--) {
            at += rest % x->dims[i] * x->strides[i];
            rest /= x->dims[i];
        }
        for (int64_t k = 0; k < n_columns; k++) {
            bool inside = (s->i[0] < 0 || row - k <= s->i[0]) && (s->i[1] < 0 || k - row <= s->i[1]);
            y[line * n_columns + k] = inside ? from[at + k * x->strides[x->rank - 1]] : 0;
        }
    }
}

static bool emit_band_part(struct compiler *c, const struct mil_op *op)
{
    struct value x;
    int64_t lower, upper;
    if (!operand_f32(c, op, "x", &x) || !arg_int(c, op, "lower", -1, &lower) ||
        !arg_int(c, op, "upper", -1, &upper))
        return false;
    if (x.rank < 2)
        return compile_fail(c, ERR_FORMAT, "expected x of rank 2 or more");
    struct value y = value_new(c, x.repr, x.rank, x.dims);
    struct step *s = step_new(c, "band part", run_band_part);
    s->i[0] = lower;
    s->i[1] = upper;
    s->i[2] = x.dims[x.rank - 1] > 0 ? value_elems(&x) / x.dims[x.rank - 1] : 0;
    s->serial = value_elems(&y) < PARALLEL_ELEMS;
    step_in(c, s, x);
    step_out(c, s, y);
    set_output(c, op, 0, y);
    return true;
}

/* ---- dispatch ---- */

emit_fn emitter_of_more(int id)
{
    switch (id) {
    case MIL_OP_FLATTEN2D:
        return emit_view;
    case MIL_OP_ACOS:
    case MIL_OP_ASIN:
    case MIL_OP_ATAN:
    case MIL_OP_ATANH:
    case MIL_OP_CEIL:
    case MIL_OP_CLAMPED_RELU:
    case MIL_OP_CLIP:
    case MIL_OP_COS:
    case MIL_OP_COSH:
    case MIL_OP_ELU:
    case MIL_OP_ERF:
    case MIL_OP_EXP2:
    case MIL_OP_FLOOR:
    case MIL_OP_GELU:
    case MIL_OP_INVERSE:
    case MIL_OP_LEAKY_RELU:
    case MIL_OP_LINEAR_ACTIVATION:
    case MIL_OP_RELU6:
    case MIL_OP_ROUND:
    case MIL_OP_SCALED_TANH:
    case MIL_OP_SIGMOID_HARD:
    case MIL_OP_SIGN:
    case MIL_OP_SIN:
    case MIL_OP_SINH:
    case MIL_OP_SOFTSIGN:
    case MIL_OP_TAN:
    case MIL_OP_THRESHOLD:
    case MIL_OP_THRESHOLDED_RELU:
        return emit_unary;
    case MIL_OP_PRELU:
        return emit_prelu;
    case MIL_OP_POW:
        return emit_binary;
    case MIL_OP_REDUCE_ARGMAX:
    case MIL_OP_REDUCE_ARGMIN:
    case MIL_OP_REDUCE_L1_NORM:
    case MIL_OP_REDUCE_L2_NORM:
    case MIL_OP_REDUCE_LOG_SUM:
    case MIL_OP_REDUCE_LOG_SUM_EXP:
    case MIL_OP_REDUCE_PROD:
    case MIL_OP_REDUCE_SUM_SQUARE:
        return emit_reduce;
    case MIL_OP_FILL:
    case MIL_OP_FILL_LIKE:
        return emit_fill;
    case MIL_OP_SHAPE:
        return emit_shape;
    case MIL_OP_RANGE_1D:
        return emit_range_1d;
    case MIL_OP_REVERSE:
        return emit_reverse;
    case MIL_OP_SLICE_BY_SIZE:
        return emit_slice_by_size;
    case MIL_OP_STACK:
        return emit_stack;
    case MIL_OP_PAD:
        return emit_pad;
    case MIL_OP_CUMSUM:
        return emit_cumsum;
    case MIL_OP_TOPK:
        return emit_topk;
    case MIL_OP_GATHER_ALONG_AXIS:
        return emit_gather_along_axis;
    case MIL_OP_ONE_HOT:
        return emit_one_hot;
    case MIL_OP_BAND_PART:
        return emit_band_part;
    case MIL_OP_SCALED_DOT_PRODUCT_ATTENTION:
        return emit_sdpa;
    default:
        return NULL;
    }
}
