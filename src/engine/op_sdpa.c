/* scaled_dot_product_attention as an op of its own: softmax(q k' / sqrt(d) + mask) v, one query row after another, so a row
 * does not depend on how many rows there are. */
#include <math.h>
#include <string.h>
#include "engine/compiler.h"

struct sdpa {
    int rank;                                              /* of the batch axes */
    int64_t batch[MIL_RANK_MAX], strides[5][MIL_RANK_MAX]; /* y, q, k, v, mask */
    int64_t n_batches, n_rows, n_positions, d_k, d_v;
    int64_t row[5], column[5]; /* strides of the last two axes */
    bool has_mask, is_bool;
    float scale;
};

static void run_sdpa(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct sdpa *p = s->params;
    float *y0 = value_pointer(r, &s->out[0]), *w = run_scratch(r, i_thread);
    const float *q0 = value_pointer(r, &s->in[0]), *k0 = value_pointer(r, &s->in[1]),
                *v0 = value_pointer(r, &s->in[2]);
    const float *mask0 = p->has_mask ? value_pointer(r, &s->in[3]) : NULL;
    int64_t begin, end;
    pool_split(p->n_batches * p->n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t at[5], row = item % p->n_rows;
        walk_offsets(p->rank, p->batch, 5, p->strides, item / p->n_rows, at);
        const float *q = q0 + at[1] + row * p->row[1], *k = k0 + at[2], *v = v0 + at[3];
        const float *mask = mask0 ? mask0 + at[4] + row * p->row[4] : NULL;
        float *y = y0 + at[0] + row * p->row[0];
        for (int64_t i = 0; i < p->n_positions; i++) {
            float sum = 0;
            for (int64_t j = 0; j < p->d_k && !run_stops(r, j); j++)
                sum += q[j * p->column[1]] * k[i * p->row[2] + j * p->column[2]];
            w[i] = sum * p->scale;
            if (mask && p->is_bool)
                w[i] = ((const int32_t *)mask)[i * p->column[4]] ? w[i] : -INFINITY;
            else if (mask)
                w[i] += mask[i * p->column[4]];
        }
        r->k->softmax(w, w, p->n_positions);
        for (int64_t j = 0; j < p->d_v; j++)
            y[j * p->column[0]] = 0;
        for (int64_t i = 0; i < p->n_positions; i++) {
            if (w[i] == 0)
                continue;
            for (int64_t j = 0; j < p->d_v; j++)
                y[j * p->column[0]] += w[i] * v[i * p->row[3] + j * p->column[3]];
        }
    }
}

/* Strides of operand j for the result's batch axes; the last two axes must be rows and columns (or 1: repeated). */
static bool place(struct compiler *c, struct sdpa *p, int j, const struct value *x, const struct mil_type *t,
                  int64_t rows, int64_t columns)
{
    bool fits = x->rank >= 2 && x->rank <= t->rank;
    for (int i = 0; fits && i < t->rank; i++) {
        int axis = i - (t->rank - x->rank);
        int64_t want = i == t->rank - 2 ? rows : i == t->rank - 1 ? columns : t->dims[i];
        int64_t size = axis < 0 ? 1 : x->dims[axis], stride = size == 1 ? 0 : x->strides[axis];
        fits = size == want || (size == 1 && (i < t->rank - 2 || j == 4));
        if (i < t->rank - 2)
            p->strides[j][i] = stride;
        else if (i == t->rank - 2)
            p->row[j] = stride;
        else
            p->column[j] = stride;
    }
    return fits || compile_fail(c, ERR_FORMAT, "operands whose shapes do not fit");
}

bool emit_sdpa(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct sdpa *p = ARENA_NEW(c->arena, struct sdpa);
    struct value x[4];
    if (!operand_f32(c, op, "query", &x[0]) || !operand_f32(c, op, "key", &x[1]) ||
        !operand_f32(c, op, "value", &x[2]) || !operand_optional(c, op, "attn_mask", &x[3], &p->has_mask) ||
        (p->has_mask && !to_f32(c, &x[3])))
        return false;
    for (int i = 0; i < 3; i++)
        if (x[i].repr != REPR_F32 || x[i].rank < 2 || t->rank < 2)
            return compile_fail(c, ERR_FORMAT, "expected floats of rank 2 or more");
    struct value y = value_new(c, REPR_F32, t->rank, t->dims);
    p->n_rows = x[0].dims[x[0].rank - 2];
    p->d_k = x[0].dims[x[0].rank - 1];
    p->n_positions = x[1].dims[x[1].rank - 2];
    p->d_v = x[2].dims[x[2].rank - 1];
    p->scale = (float)(1 / sqrt((double)p->d_k));
    p->rank = t->rank - 2;
    p->n_batches = 1;
    for (int i = 0; i < p->rank; i++) {
        p->batch[i] = t->dims[i];
        p->n_batches *= t->dims[i];
    }
    if (!place(c, p, 0, &y, t, p->n_rows, p->d_v) || !place(c, p, 1, &x[0], t, p->n_rows, p->d_k) ||
        !place(c, p, 2, &x[1], t, p->n_positions, p->d_k) ||
        !place(c, p, 3, &x[2], t, p->n_positions, p->d_v) ||
        (p->has_mask && !place(c, p, 4, &x[3], t, p->n_rows, p->n_positions)))
        return false;
    p->is_bool = p->has_mask && x[3].repr == REPR_I32;
    if (!compile_take_memory(c, p->n_positions, sizeof(float)))
        return false;
    struct step *s = step_make(c, "sdpa", run_sdpa, p, x, 3 + p->has_mask, y);
    s->work = (double)p->n_batches * (double)p->n_rows * (double)p->n_positions * (double)(p->d_k + p->d_v);
    s->serial = (double)value_elems(&y) * (double)p->n_positions < 65536;
    s->scratch_bytes = ((size_t)p->n_positions + 16) * sizeof(float);
    set_output(c, op, 0, y);
    return true;
}
