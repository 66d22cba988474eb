/* Products of two computed tensors (matmul, linear), with batch broadcasting and transposes as strides. Each result element is
 * its own sum over k in one order, so rows do not depend on each other. */
#include <string.h>
#include "engine/compiler.h"

/* Columns whose sums grow side by side: those that lie together, and others. */
enum { NEAR_COLUMNS = 16, FAR_COLUMNS = 8 };

/* y[c] = sum over k of x[k] w[k][c], for n columns that lie w_column apart; n and, for those that lie together, w_column are
 * constants where this is inlined. */
static inline __attribute__((always_inline)) void sum_columns(float *y, const float *x, const float *w,
                                                              const struct matmul *p,
                                                              const struct engine_run *r, int n,
                                                              int64_t w_column)
{
    float sum[NEAR_COLUMNS] = {0};
    for (int64_t k = 0; k < p->n_k && !run_stops(r, k); k++) {
        const float a = x[k * p->x_k], *b = w + k * p->w_k;
        for (int c = 0; c < n; c++)
            sum[c] += a * b[c * w_column];
    }
    for (int c = 0; c < n; c++)
        y[c * p->y_column] = sum[c];
}

static void run_matmul(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct matmul *p = s->params;
    const float *x0 = value_pointer(r, &s->in[0]), *w0 = value_pointer(r, &s->in[1]);
    const float *bias = p->has_bias ? value_pointer(r, &s->in[2]) : NULL;
    float *y0 = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(dims_product(p->batch, p->batch_rank) * p->n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t at[3], row = item % p->n_rows;
        walk_offsets(p->batch_rank, p->batch, 3, p->strides, item / p->n_rows, at);
        float *y = y0 + at[0] + row * p->y_row;
        const float *x = x0 + at[1] + row * p->x_row, *w = w0 + at[2];
        int64_t column = 0;
        for (; p->w_column == 1 && column + NEAR_COLUMNS <= p->n_columns; column += NEAR_COLUMNS)
            sum_columns(y + column * p->y_column, x, w + column, p, r, NEAR_COLUMNS, 1);
        for (; column + FAR_COLUMNS <= p->n_columns; column += FAR_COLUMNS)
            sum_columns(y + column * p->y_column, x, w + column * p->w_column, p, r, FAR_COLUMNS,
                        p->w_column);
        for (; column < p->n_columns; column++) {
            float sum = 0;
            for (int64_t k = 0; k < p->n_k && !run_stops(r, k); k++)
                sum += x[k * p->x_k] * w[k * p->w_k + column * p->w_column];
            y[column * p->y_column] = sum;
        }
        for (column = 0; p->has_bias && column < p->n_columns; column++)
            y[column * p->y_column] += bias[column * s->in[2].strides[0]];
    }
}

/* The same of integers, modulo 2^32. */
static void run_matmul_integer(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct matmul *p = s->params;
    const uint32_t *x0 = value_pointer(r, &s->in[0]), *w0 = value_pointer(r, &s->in[1]);
    const uint32_t *bias = p->has_bias ? value_pointer(r, &s->in[2]) : NULL;
    uint32_t *y0 = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(dims_product(p->batch, p->batch_rank) * p->n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t at[3], row = item % p->n_rows;
        walk_offsets(p->batch_rank, p->batch, 3, p->strides, item / p->n_rows, at);
        const uint32_t *x = x0 + at[1] + row * p->x_row, *w = w0 + at[2];
        for (int64_t column = 0; column < p->n_columns; column++) {
            uint32_t sum = bias ? bias[column * s->in[2].strides[0]] : 0;
            for (int64_t k = 0; k < p->n_k && !run_stops(r, k); k++)
                sum += x[k * p->x_k] * w[k * p->w_k + column * p->w_column];
            y0[at[0] + row * p->y_row + column * p->y_column] = sum;
        }
    }
}

/* An axis of one element at place `axis`. */
static void insert_axis(struct value *v, int axis)
{
    if (v->rank == MIL_RANK_MAX)
        return;
    for (int i = v->rank; i > axis; i--) {
        v->dims[i] = v->dims[i - 1];
        v->strides[i] = v->strides[i - 1];
    }
    v->dims[axis] = 1;
    v->strides[axis] = 1;
    v->rank++;
}

bool emit_matrix_product(struct compiler *c, const struct mil_op *op, struct value x, bool transpose_x,
                         struct value w, bool transpose_w, const struct value *bias)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct matmul *p = ARENA_NEW(c->arena, struct matmul);
    /* Integers stay integers where all are; else what comes out is float32 first. */
    bool is_integer = x.repr == REPR_I32 && w.repr == REPR_I32 && !(bias && bias->repr == REPR_F32);
    enum mil_dtype d = is_integer ? MIL_INT32 : MIL_FP32;
    to_number(c, &x, d);
    to_number(c, &w, d);
    if (x.rank < 1 || w.rank < 1)
        return compile_fail(c, ERR_FORMAT, "a scalar operand");
    /* A vector is a row in front and a column behind; the result has no such axis. */
    struct value result = value_new(c, dtype_repr(d), t->rank, t->dims), y = result;
    if (x.rank == 1) {
        insert_axis(&x, 0);
        insert_axis(&y, y.rank - (w.rank > 1));
        transpose_x = false;
    }
    if (w.rank == 1) {
        insert_axis(&w, 1);
        insert_axis(&y, y.rank);
        transpose_w = false;
    }
    if (y.rank < 2 || y.rank > MIL_RANK_MAX)
        return compile_fail(c, ERR_FORMAT, "operands whose shapes do not fit");
    int row = x.rank - 2 + transpose_x, xk = x.rank - 1 - transpose_x, wk = w.rank - 2 + transpose_w,
        column = w.rank - 1 - transpose_w;
    p->n_rows = x.dims[row];
    p->n_k = x.dims[xk];
    p->n_columns = w.dims[column];
    if (w.dims[wk] != p->n_k || y.dims[y.rank - 2] != p->n_rows || y.dims[y.rank - 1] != p->n_columns)
        return compile_fail(c, ERR_FORMAT, "operands whose shapes do not fit");
    p->x_row = x.strides[row];
    p->x_k = x.strides[xk];
    p->w_k = w.strides[wk];
    p->w_column = w.strides[column];
    p->y_row = y.strides[y.rank - 2];
    p->y_column = 1;
    p->batch_rank = y.rank - 2;
    for (int i = 0; i < p->batch_rank; i++) {
        const struct value *v[2] = {&x, &w};
        p->batch[i] = y.dims[i];
        p->strides[0][i] = y.strides[i];
        for (int k = 0; k < 2; k++) {
            int axis = i - (y.rank - v[k]->rank);
            if (axis >= 0 && v[k]->dims[axis] != 1 && v[k]->dims[axis] != y.dims[i])
                return compile_fail(c, ERR_FORMAT, "batch axes that do not broadcast");
            p->strides[k + 1][i] = axis < 0 || v[k]->dims[axis] == 1 ? 0 : v[k]->strides[axis];
        }
    }
    struct value operands[3] = {x, w};
    if (bias) {
        operands[2] = *bias;
        to_number(c, &operands[2], d);
        if (operands[2].rank != 1 || operands[2].dims[0] != p->n_columns)
            return compile_fail(c, ERR_FORMAT, "a bias that does not fit the weight");
        p->has_bias = true;
    }
    bool is_emulated = c->plan->precision == ENGINE_ANE && !is_integer && !bias;
    struct step *s = step_make(c, "matmul",
                               is_emulated  ? ane_run_matmul
                               : is_integer ? run_matmul_integer
                                            : run_matmul,
                               p, operands, bias ? 3 : 2, result);
    s->work = (double)value_elems(&y) * (double)p->n_k;
    if (is_emulated)
        s->scratch_bytes = ane_scratch_bytes(p->n_rows, p->n_k);
    s->serial = s->work < 65536;
    to_number(c, &result, t->dtype);
    set_output(c, op, 0, result);
    return true;
}

bool emit_matmul(struct compiler *c, const struct mil_op *op)
{
    struct value x, w;
    bool transpose_x, transpose_y;
    return operand_f32(c, op, "x", &x) && operand_f32(c, op, "y", &w) &&
           arg_bool(c, op, "transpose_x", false, &transpose_x) &&
           arg_bool(c, op, "transpose_y", false, &transpose_y) &&
           emit_matrix_product(c, op, x, transpose_x, w, transpose_y, NULL);
}
