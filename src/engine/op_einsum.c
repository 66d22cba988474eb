/* einsum of one or two tensors: each result element is its own sum over the labels that the result does not have, in the order of the equation. */
#include <string.h>
#include "engine/compiler.h"

enum { LABELS_MAX = 2 * MIL_RANK_MAX };

struct einsum {
    int n_operands, rank, n_summed;
    int64_t dims[MIL_RANK_MAX], strides[2][MIL_RANK_MAX];             /* of the result's labels */
    int64_t summed[LABELS_MAX], summed_strides[2][LABELS_MAX], n_sum; /* of the others */
};

static void run_einsum(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct einsum *p = s->params;
    const float *x[2] = {value_pointer(r, &s->in[0]), value_pointer(r, &s->in[p->n_operands - 1])};
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end, n_inner = p->n_summed > 0 ? p->summed[p->n_summed - 1] : 1;
    int64_t steps[2] = {0, 0};
    for (int k = 0; k < 2 && p->n_summed > 0; k++)
        steps[k] = p->summed_strides[k][p->n_summed - 1];
    pool_split(value_elems(&s->out[0]), 1, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float sum = 0;
        int64_t at[2];
        walk_offsets(p->rank, p->dims, 2, p->strides, i, at);
        for (int64_t outer = 0; outer < p->n_sum && !run_stops(r, outer); outer += n_inner) {
            int64_t from[2] = {at[0], at[1]}, rest = outer / n_inner;
            for (int k = p->n_summed - 2; k >= 0; k--) {
                from[0] += rest % p->summed[k] * p->summed_strides[0][k];
                from[1] += rest % p->summed[k] * p->summed_strides[1][k];
                rest /= p->summed[k];
            }
            for (int64_t k = 0; k < n_inner; k++) {
                float a = x[0][from[0] + k * steps[0]];
                sum += p->n_operands > 1 ? a * x[1][from[1] + k * steps[1]] : a;
            }
        }
        y[i] = sum;
    }
}

bool emit_einsum(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    const struct mil_arg *values = mil_arg_find(op, "values");
    const struct mil_value *v = mil_arg_value(op, "equation");
    struct einsum *p = ARENA_NEW(c->arena, struct einsum);
    struct value x[2];
    struct str s;
    int64_t sizes[128], strides[2][128];
    char labels[LABELS_MAX];
    bool is_result[128] = {false};
    int n_labels = 0, operand = 0, axis = 0;
    size_t i = 0;
    if (!values || values->n < 1 || values->n > 2 || !v || !mil_value_string(v, &s))
        return compile_fail(c, ERR_UNSUPPORTED, "expected one or two values and a constant equation");
    memset(sizes, 0, sizeof sizes);
    memset(strides, 0, sizeof strides);
    p->n_operands = values->n;
    for (int k = 0; k < values->n; k++) {
        if (!operand_binding(c, &values->bindings[k], &x[k]) || !to_f32(c, &x[k]))
            return false;
        if (x[k].repr != REPR_F32)
            return compile_fail(c, ERR_UNSUPPORTED, "integer operands");
    }
    /* Shape inference has checked the equation against the ranks; what it gives is used, not believed. */
    for (; i < s.n && s.p[i] != '-'; i++) {
        int l = (unsigned char)s.p[i] & 127;
        if (s.p[i] == ' ')
            continue;
        if (s.p[i] == ',') {
            operand++;
            axis = 0;
            continue;
        }
        if (operand >= p->n_operands || axis >= x[operand].rank)
            return compile_fail(c, ERR_FORMAT, "the equation does not fit its operands");
        int64_t size = x[operand].dims[axis];
        if (sizes[l] == 0) {
            sizes[l] = size;
            if (n_labels == LABELS_MAX)
                return compile_fail(c, ERR_FORMAT, "more labels than axes");
            labels[n_labels++] = (char)l;
        } else if (sizes[l] == 1) {
            sizes[l] = size;
        } else if (size != sizes[l] && size != 1) {
            return compile_fail(c, ERR_FORMAT, "sizes of one label differ");
        }
        strides[operand][l] += size == 1 ? 0 : x[operand].strides[axis];
        axis++;
    }
    for (i += 2; i < s.n; i++) {
        int l = (unsigned char)s.p[i] & 127;
        if (s.p[i] == ' ')
            continue;
        if (p->rank >= t->rank || t->dims[p->rank] != sizes[l])
            return compile_fail(c, ERR_FORMAT, "the equation does not give the declared shape");
        is_result[l] = true;
        p->dims[p->rank] = sizes[l];
        for (int k = 0; k < 2; k++)
            p->strides[k][p->rank] = strides[k][l];
        p->rank++;
    }
    if (p->rank != t->rank)
        return compile_fail(c, ERR_FORMAT, "the equation does not give the declared shape");
    p->n_sum = 1;
    for (int k = 0; k < n_labels; k++) {
        int l = labels[k];
        if (is_result[l])
            continue;
        p->summed[p->n_summed] = sizes[l];
        p->summed_strides[0][p->n_summed] = strides[0][l];
        p->summed_strides[1][p->n_summed++] = strides[1][l];
        if (__builtin_mul_overflow(p->n_sum, sizes[l], &p->n_sum))
            return compile_fail(c, ERR_LIMIT, "a sum of too many products");
    }
    struct value y = value_new(c, REPR_F32, t->rank, t->dims);
    struct step *step = step_make(c, "einsum", run_einsum, p, x, p->n_operands, y);
    step->work = (double)value_elems(&y) * (double)p->n_sum;
    step->serial = step->work < PARALLEL_ELEMS;
    set_output(c, op, 0, y);
    return true;
}
