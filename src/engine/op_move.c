/* Ops that move elements: concat, stack, tile, pad, gather, casts, band_part. */
#include <string.h>
#include "engine/compiler.h"

/* ---- concat ---- */

/* Small integer lists (the begin and end of a cache write) are put together in one step. */
static void run_concat_ints(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    int32_t *y = value_pointer(r, &s->out[0]);
    (void)i_thread;
    (void)n_threads;
    for (int k = 0; k < s->n_more; k++) {
        const int32_t *x = value_pointer(r, &s->more[k]);
        int64_t n = s->more[k].rank ? s->more[k].dims[0] : 1;
        for (int64_t i = 0; i < n; i++)
            *y++ = x[i * s->more[k].strides[0]];
    }
}

bool emit_concat(struct compiler *c, const struct mil_op *op)
{
    const struct mil_arg *values = mil_arg_find(op, "values");
    const struct mil_type *t = var_type(c, op->outputs[0]);
    int axis;
    int64_t at = 0;
    bool interleave;
    if (!values || values->n < 1)
        return compile_fail(c, ERR_FORMAT, "no values");
    if (!arg_bool(c, op, "interleave", false, &interleave) || !arg_axis(c, op, 0, t->rank, &axis))
        return false;
    if (!compile_take_steps(c, values->n) || !compile_take_memory(c, values->n, sizeof(struct value)))
        return false;
    struct value *parts = ARENA_ARRAY(c->arena, struct value, values->n);
    for (int k = 0; k < values->n; k++) {
        if (!operand_binding(c, &values->bindings[k], &parts[k]) || (t->rank > 1 && !to_f32(c, &parts[k])))
            return false;
        if (parts[k].rank != t->rank && !(t->rank == 1 && parts[k].rank == 0))
            return compile_fail(c, ERR_FORMAT, "values of different rank");
    }
    enum repr repr = dtype_repr(t->dtype);
    if (t->rank == 1 && repr == REPR_I32 && t->dims[0] <= 64 && !interleave) {
        struct value y = value_new(c, repr, 1, t->dims);
        struct step *s = step_make(c, "concat ints", run_concat_ints, NULL, NULL, 0, y);
        s->more = parts;
        s->n_more = values->n;
        set_output(c, op, 0, y);
        return true;
    }
    /* The result keeps the order of axes of the first value; the joined axis needs no special place in it. */
    struct value y = value_new_like(c, repr, t->rank, t->dims, &parts[0]);
    for (int k = 0; k < values->n; k++) {
        struct value part = y;
        if (parts[k].rank != t->rank)
            return compile_fail(c, ERR_UNSUPPORTED, "scalars among many values");
        part.dims[axis] = parts[k].dims[axis];
        part.offset += (interleave ? k : at) * y.strides[axis];
        if (interleave) /* equal parts: their elements in turns */
            part.strides[axis] *= values->n;
        at += part.dims[axis];
        if (at > t->dims[axis] || (interleave && part.dims[axis] != parts[0].dims[axis]))
            return compile_fail(c, ERR_FORMAT, "the values are longer than the result");
        emit_copy(c, &parts[k], &part);
    }
    set_output(c, op, 0, y);
    return true;
}

/* ---- stack ---- */

bool emit_stack(struct compiler *c, const struct mil_op *op)
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

/* ---- tile ---- */

struct tile {
    int rank;
    int64_t dims[MIL_RANK_MAX];                          /* of the result, which is dense */
    int64_t x_dims[MIL_RANK_MAX], strides[MIL_RANK_MAX]; /* of x */
};

static void run_tile(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct tile *p = s->params;
    const int32_t *x = value_pointer(r, &s->in[0]); /* both representations of 4 bytes move as they are */
    int32_t *y = value_pointer(r, &s->out[0]);
    int inner = p->rank - 1;
    int64_t n_rows = 1, n = p->x_dims[inner], begin, end;
    for (int i = 0; i < inner; i++)
        n_rows *= p->dims[i];
    pool_split(n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t from = 0, rest = row;
        int32_t *to = y + row * p->dims[inner];
        for (int i = inner - 1; i >= 0; i--) {
            from += rest % p->dims[i] % p->x_dims[i] * p->strides[i];
            rest /= p->dims[i];
        }
        for (int64_t i = 0; i < n; i++)
            to[i] = x[from + i * p->strides[inner]];
        for (int64_t i = n; i < p->dims[inner]; i++)
            to[i] = to[i - n];
    }
}

bool emit_tile(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x;
    int64_t reps[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    if (!operand(c, op, "x", &x) || !arg_ints(c, op, "reps", reps, &n))
        return false;
    if (n != x.rank)
        return compile_fail(c, ERR_UNSUPPORTED, "reps must be a constant of %d entries", x.rank);
    struct value view = x;
    bool broadcast = true, fits = t->rank == n;
    for (int i = 0; fits && i < n; i++) {
        fits = reps[i] > 0 && x.dims[i] <= INT64_MAX / reps[i] && x.dims[i] * reps[i] == t->dims[i];
        broadcast = broadcast && (reps[i] == 1 || x.dims[i] == 1);
        view.dims[i] = t->dims[i];
        if (x.dims[i] == 1)
            view.strides[i] = 0;
    }
    if (!fits)
        return compile_fail(c, ERR_FORMAT, "reps do not give the declared shape of its result");
    if (broadcast) { /* repeating an axis of one element: a stride of 0 */
        set_var(c, op->outputs[0], view);
        return true;
    }
    if (!to_f32(c, &x))
        return false;
    struct value y = value_new(c, x.repr, view.rank, view.dims);
    if (value_elems(&y) > 0) {
        struct tile *p = ARENA_NEW(c->arena, struct tile);
        p->rank = y.rank;
        memcpy(p->dims, y.dims, sizeof p->dims);
        memcpy(p->x_dims, x.dims, sizeof p->x_dims);
        memcpy(p->strides, x.strides, sizeof p->strides);
        step_make(c, "tile", run_tile, p, &x, 1, y);
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

bool emit_pad(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct pad *p = ARENA_NEW(c->arena, struct pad);
    struct value x;
    static const char *const modes[] = {"constant", "reflect", "replicate"};
    int64_t pad[2 * MIL_RANK_MAX];
    int n = 2 * MIL_RANK_MAX, mode;
    double constant;
    if (!operand_f32(c, op, "x", &x) || !arg_ints(c, op, "pad", pad, &n) ||
        !arg_word(c, op, "mode", modes, 3, &mode) || !arg_float(c, op, "constant_val", 0, &constant))
        return false;
    if (n % 2 != 0 || n / 2 > x.rank || x.rank < 1 || t->rank != x.rank || x.repr != dtype_repr(t->dtype))
        return compile_fail(c, ERR_FORMAT, "pad has %d entries for %d axes", n, x.rank);
    p->mode = (enum pad_mode)mode;
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
    return emit_step(c, op, "pad", run_pad, p, &x, 1, y);
}

/* ---- gather ---- */

/* out[batch, outer, index, inner] = x[batch, outer, indices[batch, index], inner] */
struct gather {
    int64_t n_outer, n_axis, n_indices, n_inner, n_batch;
};

static void run_gather(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct gather *p = s->params;
    const struct value *x = &s->in[0];
    const int32_t *indices = value_pointer(r, &s->in[1]);
    int64_t n_outer = p->n_outer, n_axis = p->n_axis, n_indices = p->n_indices, n_inner = p->n_inner;
    const char *from = value_pointer(r, x);
    char *to = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_batch * n_outer * n_indices, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t index = indices[row / (n_outer * n_indices) * n_indices + row % n_indices];
        if (index < 0)
            index += n_axis;
        if (index < 0 || index >= n_axis) {
            run_fail(r, s, "an index lies outside the table");
            return;
        }
        int64_t src = (row / n_indices * n_axis + index) * n_inner;
        if (x->repr == REPR_F16)
            r->k->f16_to_f32((float *)to + row * n_inner, (const f16 *)from + src, n_inner);
        else
            memcpy(to + row * n_inner * 4, from + src * 4, (size_t)n_inner * 4);
    }
}

bool emit_gather(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x, indices;
    int64_t axis, batch_dims;
    if (!operand(c, op, "x", &x) || !operand(c, op, "indices", &indices) ||
        !arg_int(c, op, "axis", 0, &axis) || !arg_int(c, op, "batch_dims", 0, &batch_dims))
        return false;
    if (axis < 0)
        axis += x.rank;
    if (axis < 0 || axis >= x.rank || indices.repr != REPR_I32)
        return compile_fail(c, ERR_FORMAT, "axis outside the table, or indices that are not integers");
    if (batch_dims < 0 || batch_dims > axis || batch_dims > indices.rank)
        return compile_fail(c, ERR_UNSUPPORTED, "batch_dims %lld", (long long)batch_dims);
    for (int i = 0; i < batch_dims; i++)
        if (x.dims[i] != indices.dims[i])
            return compile_fail(c, ERR_FORMAT, "batch axes of different size");
    if (!to_dense(c, &x) || !to_dense(c, &indices))
        return false;
    struct value y = value_new(c, x.repr == REPR_F16 ? REPR_F32 : x.repr, t->rank, t->dims);
    struct gather *p = ARENA_NEW(c->arena, struct gather);
    *p = (struct gather){.n_outer = 1, .n_inner = 1, .n_batch = 1};
    for (int i = 0; i < batch_dims; i++)
        p->n_batch *= x.dims[i];
    for (int i = (int)batch_dims; i < axis; i++)
        p->n_outer *= x.dims[i];
    for (int i = (int)axis + 1; i < x.rank; i++)
        p->n_inner *= x.dims[i];
    p->n_axis = x.dims[axis];
    p->n_indices = p->n_batch > 0 ? value_elems(&indices) / p->n_batch : 0;
    return emit_step(c, op, "gather", run_gather, p, (const struct value[]){x, indices}, 2, y);
}

/* ---- cast ---- */

struct cast {
    enum mil_dtype to;
    int64_t n;
};

static void run_cast(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const void *x = value_pointer(r, &s->in[0]);
    void *y = value_pointer(r, &s->out[0]);
    const struct cast *p = s->params;
    enum mil_dtype to = p->to;
    int64_t begin, end;
    pool_split(p->n, 64, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        if (s->out[0].repr == REPR_F32) {
            ((float *)y)[i] =
                s->in[0].repr == REPR_F32 ? ((const float *)x)[i] : (float)((const int32_t *)x)[i];
            continue;
        }
        int32_t v;
        if (s->in[0].repr == REPR_F32) {
            float f = ((const float *)x)[i];
            if (to == MIL_BOOL)
                v = f != 0;
            else
                v = f >= 2147483648.0f ? INT32_MAX : f >= -2147483648.0f ? (int32_t)f : f < 0 ? INT32_MIN : 0;
        } else {
            v = ((const int32_t *)x)[i];
        }
        switch (to) {
        case MIL_BOOL:
            v = v != 0;
            break;
        case MIL_INT8:
            v = (int8_t)v;
            break;
        case MIL_UINT8:
            v = (uint8_t)v;
            break;
        case MIL_INT16:
            v = (int16_t)v;
            break;
        case MIL_UINT16:
            v = (uint16_t)v;
            break;
        default:
            break;
        }
        ((int32_t *)y)[i] = v;
    }
}

bool emit_cast(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x;
    if (!operand_f32(c, op, "x", &x))
        return false;
    /* Between float types, and to int32 from smaller integers, a cast changes nothing that the engine keeps.
     */
    if (x.repr == REPR_F32 && dtype_repr(t->dtype) == REPR_F32 && c->plan->precision != ENGINE_FP16 &&
        c->plan->precision != ENGINE_ANE) {
        set_var(c, op->outputs[0], x);
        return true;
    }
    if (!to_dense(c, &x))
        return false;
    struct value y = value_new(c, dtype_repr(t->dtype), t->rank, t->dims);
    struct cast *p = ARENA_NEW(c->arena, struct cast);
    *p = (struct cast){.to = t->dtype, .n = value_elems(&x)};
    struct step *s = step_make(c, "cast", run_cast, p, &x, 1, y);
    s->serial = p->n < PARALLEL_ELEMS;
    set_output(c, op, 0, y);
    return true;
}

void to_number(struct compiler *c, struct value *v, enum mil_dtype d)
{
    if (v->repr == dtype_repr(d) || !to_dense(c, v))
        return;
    struct value y = value_new(c, dtype_repr(d), v->rank, v->dims);
    struct cast *p = ARENA_NEW(c->arena, struct cast);
    *p = (struct cast){.to = d, .n = value_elems(v)};
    step_make(c, "cast", run_cast, p, v, 1, y)->serial = p->n < PARALLEL_ELEMS;
    *v = y;
}

/* ---- band_part ---- */

struct band_part {
    int64_t lower, upper, n_lines; /* width of the band, negative: all; rows of all matrices */
};

static void run_band_part(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct band_part *p = s->params;
    const struct value *x = &s->in[0];
    const int32_t *from = value_pointer(r, x);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t n_rows = x->dims[x->rank - 2], n_columns = x->dims[x->rank - 1], begin, end;
    pool_split(p->n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        int64_t row = line % n_rows, at = walk_offset(x->rank - 1, x->dims, x->strides, line);
        for (int64_t k = 0; k < n_columns; k++) {
            bool inside = (p->lower < 0 || row - k <= p->lower) && (p->upper < 0 || k - row <= p->upper);
            y[line * n_columns + k] = inside ? from[at + k * x->strides[x->rank - 1]] : 0;
        }
    }
}

bool emit_band_part(struct compiler *c, const struct mil_op *op)
{
    struct value x;
    int64_t lower, upper;
    if (!operand_f32(c, op, "x", &x) || !arg_int(c, op, "lower", -1, &lower) ||
        !arg_int(c, op, "upper", -1, &upper))
        return false;
    if (x.rank < 2)
        return compile_fail(c, ERR_FORMAT, "expected x of rank 2 or more");
    struct value y = value_new(c, x.repr, x.rank, x.dims);
    struct band_part *p = ARENA_NEW(c->arena, struct band_part);
    *p = (struct band_part){.lower = lower, .upper = upper};
    p->n_lines = x.dims[x.rank - 1] > 0 ? value_elems(&x) / x.dims[x.rank - 1] : 0;
    return emit_step(c, op, "band part", run_band_part, p, &x, 1, y);
}
