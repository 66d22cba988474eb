/* Ranks, lengths of axes, sizes of kernels, shapes that are not fixed. */
#include <string.h>
#include "lint/checks.h"

/* Each tensor that the engine would hold: results and floating-point inputs; not constants, and not what is looked up. */
static bool computes(const struct mil_op *op)
{
    return !lint_op_is_constant(op) && op->n_outputs > 0 && lint_output_type(op);
}

static int64_t longest_axis(const struct mil_type *t)
{
    int64_t longest = 0;
    for (int i = 0; i < t->rank; i++)
        longest = t->dims[i] > longest ? t->dims[i] : longest;
    return longest;
}

static void check_axes(struct lint_scan *s, int64_t above, int64_t up_to, enum lint_severity severity)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        int64_t n = computes(op) ? longest_axis(lint_output_type(op)) : 0;
        if (n > above && n <= up_to)
            lint_add(s, severity, op, "%s with an axis of %lld", op->type, (long long)n);
    }
}

void lint_check_axis_over_all(struct lint_scan *s)
{
    check_axes(s, chip_axis_max(CHIP_H18), INT64_MAX, LINT_ERROR);
}

void lint_check_axis_over_old(struct lint_scan *s)
{
    if (lint_may_be_up_to(s, CHIP_H15))
        check_axes(s, chip_axis_max(CHIP_H15), chip_axis_max(CHIP_H18),
                   lint_is_up_to(s, CHIP_H15) ? LINT_ERROR : LINT_WARNING);
}

void lint_check_inner_axis(struct lint_scan *s)
{
    static const char *const products[] = {"matmul", "linear", NULL};
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_type *x = lint_op_is_in(op, products) ? lint_arg_type(op, "x") : NULL;
        bool is_transposed = false;
        double flag;
        if (!x || x->rank < 1)
            continue;
        if (mil_value_float(mil_arg_value(op, "transpose_x"), &flag))
            is_transposed = flag != 0 && x->rank > 1;
        int64_t inner = x->dims[x->rank - 1 - is_transposed];
        if (inner > 32768)
            lint_add_op(s, op, "%s over %lld products", op->type, (long long)inner);
    }
}

void lint_check_rank(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        if (computes(op) && lint_output_type(op)->rank > 5)
            lint_add(s, s->rule->severity, op, "%s with %d axes", op->type, lint_output_type(op)->rank);
    }
}

static bool is_flexible(const struct mil_model *m, const struct mil_function *f, const struct mil_var *v)
{
    const struct mil_type *t = mil_type_tensor(v->type);
    const struct mil_function_description *d = mil_function_description_find(m, f->name);
    for (int i = 0; t && t->kind == MIL_TYPE_TENSOR && i < t->rank; i++)
        if (t->dims[i] < 0)
            return true;
    for (int i = 0; d && i < d->n_inputs; i++)
        if (d->inputs[i].name && strcmp(d->inputs[i].name, v->name) == 0)
            return d->inputs[i].n_ranges > 0 || d->inputs[i].n_enumerated > 0;
    return false;
}

void lint_check_flexible(struct lint_scan *s)
{
    const struct mil_function *f = s->function->f;
    if (s->function->looks_up_only)
        return;
    for (int i = 0; i < f->n_inputs; i++)
        if (is_flexible(s->program->model, f, f->inputs[i]))
            lint_add(s, s->rule->severity, NULL, "input %s has no fixed shape", f->inputs[i]->name);
}

static void check_kernel(struct lint_scan *s, const struct mil_op *op, const int64_t *size, int64_t width_max,
                         int64_t height_max, int64_t square_max)
{
    int64_t height = size[0], width = size[1];
    bool is_square_within = height == width && width <= square_max;
    if ((width > width_max || height > height_max) && !is_square_within)
        lint_add(s, s->rule->severity, op, "%s with a window of %lld x %lld", op->type, (long long)height,
                 (long long)width);
}

void lint_check_kernel_size(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_type *w = mil_op_is(op, "conv") ? lint_arg_type(op, "weight") : NULL;
        int64_t size[4];
        int n = 0;
        if (w && w->rank >= 3) {
            size[0] = w->rank >= 4 ? w->dims[w->rank - 2] : 1;
            size[1] = w->dims[w->rank - 1];
            check_kernel(s, op, size, 15, 31, 16);
        } else if (mil_op_is(op, "max_pool") &&
                   mil_value_ints(mil_arg_value(op, "kernel_sizes"), size, 4, &n) && n >= 1) {
            if (n == 1) {
                size[1] = size[0];
                size[0] = 1;
            }
            check_kernel(s, op, size, 8, INT64_MAX, 8);
        }
    }
}
