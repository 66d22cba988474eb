/* Arithmetic: sums in 32-bit fixed point with 16 fraction bits, inputs whose exponents are all numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "lint/checks.h"

#define SUBNORMAL_BELOW 6.103515625e-05 /* 2^-14 */
#define SUM_LIMIT 32768.0
#define READ_AT_ONCE 4096

static const char *const products[] = {"conv", "conv_transpose", "matmul", "linear", NULL};

/* A constant's elements, where they are in memory. */
static const struct mil_value *constant_of(const struct mil_var *v)
{
    const struct mil_op *expands;
    const struct mil_value *value = v ? lint_weight(v, &expands) : NULL;
    bool is_numeric = value && value->data && value->type->kind == MIL_TYPE_TENSOR &&
                      mil_dtype_is_float(value->type->dtype) && value->n_elems > 0;
    return is_numeric ? value : NULL;
}

static const struct mil_value *binding_constant(const struct mil_binding *b)
{
    if (!b->value)
        return constant_of(b->var);
    return b->value->data && b->value->type->kind == MIL_TYPE_TENSOR &&
                   mil_dtype_is_float(b->value->type->dtype)
               ? b->value
               : NULL;
}

struct statistics {
    int64_t n, n_zero, n_subnormal, n_infinite;
    double largest, sum; /* of magnitudes */
};

static void add_statistics(struct statistics *x, const struct mil_value *v, int64_t first, int64_t n)
{
    float part[READ_AT_ONCE];
    for (int64_t at = first; at < first + n; at += READ_AT_ONCE) {
        int64_t m = first + n - at < READ_AT_ONCE ? first + n - at : READ_AT_ONCE;
        mil_value_floats(part, v, at, m);
        for (int64_t i = 0; i < m; i++) {
            double a = fabs((double)part[i]);
            x->n++;
            x->n_zero += a == 0;
            x->n_subnormal += a > 0 && a < SUBNORMAL_BELOW;
            x->n_infinite += !(a < 65504);
            if (a < 65504) {
                x->largest = a > x->largest ? a : x->largest;
                x->sum += a;
            }
        }
    }
}

static struct statistics statistics_of(const struct mil_value *v)
{
    struct statistics x = {0};
    add_statistics(&x, v, 0, v->n_elems);
    return x;
}

/* Constants that enter products. */
static void each_constant(struct lint_scan *s, void (*check)(struct lint_scan *s, const struct mil_op *op,
                                                             const struct statistics *x))
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        for (int k = 0; k < op->n_args && lint_op_is_in(op, products); k++) {
            const struct mil_value *v =
                op->args[k].n == 1 ? binding_constant(&op->args[k].bindings[0]) : NULL;
            if (!v)
                continue;
            struct statistics x = statistics_of(v);
            check(s, op, &x);
        }
    }
}

/* A trained weight has some subnormal elements, which hardly count; one that has little else vanishes. */
static void check_subnormal(struct lint_scan *s, const struct mil_op *op, const struct statistics *x)
{
    if (x->n_subnormal > 0 && x->n_subnormal * 2 >= x->n - x->n_zero)
        lint_add(s, s->rule->severity, op, "%lld of %lld numbers are below 2^-14", (long long)x->n_subnormal,
                 (long long)x->n);
}

void lint_check_subnormal(struct lint_scan *s)
{
    each_constant(s, check_subnormal);
}

static void check_infinite(struct lint_scan *s, const struct mil_op *op, const struct statistics *x)
{
    if (x->n_infinite > 0)
        lint_add(s, s->rule->severity, op, "%lld of %lld numbers are infinite, not numbers or 65504",
                 (long long)x->n_infinite, (long long)x->n);
}

void lint_check_infinite(struct lint_scan *s)
{
    each_constant(s, check_infinite);
    /* A mask that is filled in by select and then multiplied. */
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        for (int k = 0; k < op->n_args && lint_op_is_in(op, products); k++) {
            const struct mil_op *x = op->args[k].n == 1 ? lint_maker(op->args[k].bindings[0].var) : NULL;
            for (int n = 0; x && n < x->n_args && mil_op_is(x, "select"); n++) {
                const struct mil_value *v =
                    x->args[n].n == 1 ? binding_constant(&x->args[n].bindings[0]) : NULL;
                struct statistics found = {0};
                if (v)
                    found = statistics_of(v);
                if (found.n_infinite > 0)
                    lint_add(s, s->rule->severity, op, "select puts %s into %s", "infinite numbers",
                             op->type);
            }
        }
    }
}

/* ---- bounds ---- */

/* The largest magnitude that a variable can have; INFINITY where nothing is known. By variable id, in the order of the program. */
static double bound_arg(const double *bounds, const struct mil_op *op, const char *name)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    if (!a || a->n != 1)
        return INFINITY;
    if (a->bindings[0].var)
        return bounds[a->bindings[0].var->id];
    const struct mil_value *v = binding_constant(&a->bindings[0]);
    return v ? statistics_of(v).largest : INFINITY;
}

static double bound_all(const double *bounds, const struct mil_op *op)
{
    double largest = 0;
    for (int k = 0; k < op->n_args; k++) {
        if (strcmp(op->args[k].name, "values") != 0 && strcmp(op->args[k].name, "x") != 0 &&
            strcmp(op->args[k].name, "a") != 0 && strcmp(op->args[k].name, "b") != 0)
            continue;
        for (int i = 0; i < op->args[k].n; i++) {
            const struct mil_var *v = op->args[k].bindings[i].var;
            double b = v ? bounds[v->id] : INFINITY;
            largest = b > largest ? b : largest;
        }
    }
    return largest;
}

/* Of a normalised vector of n, the one that has all its length in one element. */
static double bound_layer_norm(const struct mil_op *op)
{
    const struct mil_type *t = lint_output_type(op);
    const struct mil_value *gain = binding_constant(
        &(struct mil_binding){.var = mil_arg_var(op, "gamma"), .value = mil_arg_value(op, "gamma")});
    int64_t axes[MIL_RANK_MAX];
    int n_axes = 0;
    double n = 1;
    if (!t || (mil_arg_find(op, "gamma") && !gain) || mil_arg_find(op, "beta") ||
        !mil_value_ints(mil_arg_value(op, "axes"), axes, MIL_RANK_MAX, &n_axes))
        return INFINITY;
    for (int i = 0; i < n_axes; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + t->rank : axes[i];
        if (axis < 0 || axis >= t->rank || t->dims[axis] < 1)
            return INFINITY;
        n *= (double)t->dims[axis];
    }
    return sqrt(n) * (gain ? statistics_of(gain).largest : 1);
}

static double bound_of(const double *bounds, const struct mil_op *op)
{
    static const char *const ones[] = {"softmax", "sigmoid", "tanh", "sin", "cos", "erf", "sign", NULL};
    static const char *const same[] = {"concat", "slice_by_index", "slice_by_size", "split", "select",
                                       "tile",   "relu",           "abs",           NULL};
    if (mil_op_is(op, "const")) {
        const struct mil_value *v = mil_attribute(op, "val");
        bool is_float =
            v && v->data && v->type->kind == MIL_TYPE_TENSOR && mil_dtype_is_float(v->type->dtype);
        return is_float && v->n_elems <= (1 << 16) ? statistics_of(v).largest : INFINITY;
    }
    if (lint_op_is_in(op, ones))
        return 1;
    if (lint_op_is_view(op) || lint_op_is_in(op, same))
        return bound_all(bounds, op);
    if (mil_op_is(op, "layer_norm"))
        return bound_layer_norm(op);
    if (mil_op_is(op, "mul"))
        return bound_arg(bounds, op, "x") * bound_arg(bounds, op, "y");
    if (mil_op_is(op, "add") || mil_op_is(op, "sub"))
        return bound_arg(bounds, op, "x") + bound_arg(bounds, op, "y");
    if (mil_op_is(op, "clip")) {
        double low, high;
        if (mil_value_float(mil_arg_value(op, "alpha"), &low) &&
            mil_value_float(mil_arg_value(op, "beta"), &high))
            return fmax(fabs(low), fabs(high));
    }
    return INFINITY;
}

static void set_bounds(double *bounds, const struct mil_block *b)
{
    for (int i = 0; i < b->n_ops; i++)
        for (int k = 0; k < b->ops[i]->n_outputs; k++) {
            double bound = b->ops[i]->n_blocks > 0 ? INFINITY : bound_of(bounds, b->ops[i]);
            bounds[b->ops[i]->outputs[k]->id] = bound >= 0 ? bound : INFINITY;
        }
}

/* The row of a weight whose magnitudes sum up to the most. */
static double largest_row(const struct mil_value *w)
{
    int64_t rows = w->type->rank > 0 ? w->type->dims[0] : 0, columns = rows > 0 ? w->n_elems / rows : 0;
    double largest = 0;
    for (int64_t i = 0; i < rows && columns > 0; i++) {
        struct statistics x = {0};
        add_statistics(&x, w, i * columns, columns);
        largest = x.sum > largest ? x.sum : largest;
    }
    return largest;
}

void lint_check_overflow(struct lint_scan *s)
{
    const struct mil_function *f = s->function->f;
    double *bounds = xcalloc((size_t)f->n_vars + 1, sizeof *bounds);
    for (int i = 0; i <= f->n_vars; i++)
        bounds[i] = INFINITY;
    if (f->block)
        set_bounds(bounds, f->block);
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_value *w = NULL;
        if (mil_op_is(op, "conv") || mil_op_is(op, "linear"))
            w = constant_of(mil_arg_var(op, "weight"));
        double x = w ? bound_arg(bounds, op, "x") : INFINITY;
        if (!w || !isfinite(x))
            continue;
        double sum = x * largest_row(w);
        if (sum >= SUM_LIMIT)
            lint_add(s, s->rule->severity, op, "%s may sum up to %.3g (operands up to %.3g)", op->type, sum,
                     x);
    }
    free(bounds);
}

/* ---- forms ---- */

void lint_check_probabilities(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_op *x = mil_op_is(op, "matmul") ? lint_arg_maker(op, "x") : NULL;
        const struct mil_type *t = x && mil_op_is(x, "softmax") ? lint_output_type(x) : NULL;
        if (t && t->rank > 0 && t->dims[t->rank - 1] > 1024)
            lint_add_op(s, op, "probabilities of %lld keys", (long long)t->dims[t->rank - 1]);
    }
}

static bool is_square(const struct mil_op *op)
{
    return op &&
           (mil_op_is(op, "square") ||
            (mil_op_is(op, "mul") && mil_arg_var(op, "x") && mil_arg_var(op, "x") == mil_arg_var(op, "y")) ||
            (mil_op_is(op, "pow") && mil_arg_value(op, "y")));
}

void lint_check_mean_of_squares(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_type *t = lint_output_type(op);
        if (!t || t->dtype != MIL_FP16)
            continue;
        bool is_sum = mil_op_is(op, "reduce_mean") || mil_op_is(op, "reduce_sum");
        if (mil_op_is(op, "reduce_sum_square") || (is_sum && is_square(lint_arg_maker(op, "x"))))
            lint_add_op(s, op, "%s of squares", op->type);
    }
}
