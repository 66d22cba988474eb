/* Ops that walk lines along one axis: cumsum, gather_along_axis, one_hot. */
#include <string.h>
#include "engine/lines.h"

/* ---- cumsum ---- */

struct cumsum {
    struct lines lines; /* x, y */
    bool exclusive, reverse;
};

static void run_cumsum(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct cumsum *q = s->params;
    const struct lines *p = &q->lines;
    const int32_t *x = value_pointer(r, &s->in[0]);
    int32_t *y = value_pointer(r, &s->out[0]);
    bool is_float = s->in[0].repr == REPR_F32;
    int64_t begin, end, at[3];
    pool_split(p->n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        double sum = 0;
        uint32_t whole = 0;
        lines_offsets(p, line, at);
        for (int64_t i = 0; i < p->n; i++) {
            int64_t k = q->reverse ? p->n - 1 - i : i, from = at[0] + k * p->step[0],
                    to = at[1] + k * p->step[1];
            double sum_before = sum;
            uint32_t whole_before = whole;
            if (is_float)
                sum += ((const float *)x)[from];
            else
                whole += (uint32_t)x[from];
            if (is_float)
                ((float *)y)[to] = (float)(q->exclusive ? sum_before : sum);
            else
                y[to] = (int32_t)(q->exclusive ? whole_before : whole);
        }
    }
}

bool emit_cumsum(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x;
    int axis;
    bool exclusive, reverse;
    if (!operand_f32(c, op, "x", &x) || !arg_axis(c, op, 0, x.rank, &axis) ||
        !arg_bool(c, op, "exclusive", false, &exclusive) || !arg_bool(c, op, "reverse", false, &reverse))
        return false;
    struct value y = value_new(c, x.repr, t->rank, t->dims);
    struct cumsum *p = ARENA_NEW(c->arena, struct cumsum);
    p->lines = lines_of(axis, (const struct value *const[3]){&x, &y, NULL});
    p->exclusive = exclusive;
    p->reverse = reverse;
    return emit_step(c, op, "cumsum", run_cumsum, p, &x, 1, y);
}

/* ---- gather_along_axis: out[.., i, ..] = x[.., indices[.., i, ..], ..] ---- */

struct gather_along {
    struct lines lines; /* indices, x, y */
    int64_t n_axis;     /* of x */
};

static void run_gather_along(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct gather_along *q = s->params;
    const struct lines *p = &q->lines;
    const int32_t *indices = value_pointer(r, &s->in[0]), *x = value_pointer(r, &s->in[1]);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, at[3];
    pool_split(p->n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        lines_offsets(p, line, at);
        for (int64_t i = 0; i < p->n; i++) {
            int64_t index = indices[at[0] + i * p->step[0]];
            if (index < 0)
                index += q->n_axis;
            if (index < 0 || index >= q->n_axis) {
                run_fail(r, s, "an index lies outside the tensor");
                return;
            }
            y[at[2] + i * p->step[2]] = x[at[1] + index * p->step[1]];
        }
    }
}

bool emit_gather_along_axis(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x, indices;
    int axis;
    if (!operand_f32(c, op, "x", &x) || !operand(c, op, "indices", &indices) ||
        !arg_axis(c, op, 0, x.rank, &axis))
        return false;
    bool fits = indices.repr == REPR_I32 && indices.rank == x.rank && t->rank == x.rank;
    for (int i = 0; fits && i < x.rank; i++)
        fits = t->dims[i] == indices.dims[i] && (i == axis || x.dims[i] == indices.dims[i]);
    if (!fits)
        return compile_fail(c, ERR_FORMAT, "indices do not fit x");
    struct value y = value_new(c, x.repr, t->rank, t->dims);
    struct gather_along *p = ARENA_NEW(c->arena, struct gather_along);
    p->lines = lines_of(axis, (const struct value *const[3]){&indices, &x, &y});
    p->n_axis = x.dims[axis];
    return emit_step(c, op, "gather along axis", run_gather_along, p, (const struct value[]){indices, x}, 2,
                     y);
}

/* ---- one_hot ---- */

struct one_hot {
    struct lines lines; /* y, indices */
    int32_t on, off;    /* their bits */
};

static void run_one_hot(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct one_hot *q = s->params;
    const struct lines *p = &q->lines;
    const int32_t *indices = value_pointer(r, &s->in[0]);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, at[3];
    pool_split(p->n_lines, 1, i_thread, n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        lines_offsets(p, line, at);
        for (int64_t i = 0; i < p->n; i++)
            y[at[0] + i * p->step[0]] = indices[at[1]] == i ? q->on : q->off;
    }
}

bool emit_one_hot(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value indices;
    int axis;
    double values[2];
    int32_t bits[2];
    if (!operand(c, op, "indices", &indices) || !arg_axis(c, op, -1, t->rank, &axis) ||
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
    struct one_hot *p = ARENA_NEW(c->arena, struct one_hot);
    *p = (struct one_hot){.lines = lines_of(axis, (const struct value *const[3]){&y, &wide, NULL}),
                          .on = bits[0],
                          .off = bits[1]};
    return emit_step(c, op, "one hot", run_one_hot, p, &indices, 1, y);
}
