/* Ops that the engine does not take, or takes with a loss. */
#include <string.h>
#include "device/support.h"
#include "lint/checks.h"

static void each_in(struct lint_scan *s, const char *const *names)
{
    for (int i = 0; i < s->function->n_ops; i++)
        if (lint_op_is_in(s->function->ops[i], names))
            lint_add_op(s, s->function->ops[i], "%s", s->function->ops[i]->type);
}

void lint_check_processor_ops(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++)
        if (device_lacks_op(s->function->ops[i]))
            lint_add_op(s, s->function->ops[i], "%s", s->function->ops[i]->type);
}

static bool has_integer_operand(const struct mil_op *op)
{
    for (int k = 0; k < op->n_args; k++)
        for (int i = 0; i < op->args[k].n; i++) {
            const struct mil_var *v = op->args[k].bindings[i].var;
            const struct mil_type *t = v ? mil_type_tensor(v->type) : NULL;
            if (t && t->kind == MIL_TYPE_TENSOR && mil_dtype_is_integer(t->dtype) &&
                !(v->op && lint_op_is_constant(v->op)) && !lint_arg_steers(op, &op->args[k]))
                return true;
        }
    return false;
}

void lint_check_integers(struct lint_scan *s)
{
    static const char *const other_rules[] = {"topk", "reduce_argmax", "reduce_argmin", "argsort", NULL};
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_type *out = lint_output_type(op);
        if (!out || lint_op_is_constant(op) || lint_op_is_view(op) || lint_op_is_in(op, other_rules) ||
            s->function->looks_up_only)
            continue;
        bool makes = out->dtype != MIL_BOOL && lint_is_integer(out) && !mil_op_is(op, "gather");
        if ((makes || has_integer_operand(op)) && !s->function->only_steers[op->outputs[0]->id])
            lint_add_op(s, op, "%s of whole numbers", op->type);
    }
}

void lint_check_gathers(struct lint_scan *s)
{
    static const char *const names[] = {
        "gather", "gather_nd", "gather_along_axis", "scatter", "scatter_nd", "scatter_along_axis", NULL};
    if (s->function->looks_up_only)
        return;
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        if (!lint_op_is_in(op, names) || mil_arg_value(op, "indices") ||
            lint_is_integer(lint_output_type(op)))
            continue;
        const struct mil_var *indices = lint_behind_views(mil_arg_var(op, "indices"));
        lint_add_op(s, op, "%s at indices from %s", op->type,
                    !indices      ? "the graph"
                    : indices->op ? indices->op->type
                                  : "an input");
    }
}

void lint_check_top(struct lint_scan *s)
{
    static const char *const names[] = {"topk", "reduce_argmax", "reduce_argmin", NULL};
    each_in(s, names);
}

void lint_check_control(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        static const char *const names[] = {"while_loop", "cond", "make_list", NULL};
        if (lint_op_is_in(op, names) || strncmp(op->type, "list_", 5) == 0)
            lint_add(s, s->rule->severity, op, "%s", op->type);
    }
}

void lint_check_slice_begin(struct lint_scan *s)
{
    static const char *const names[] = {"slice_by_index", "slice_by_size", "slice_update", NULL};
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_var *begin = lint_op_is_in(op, names) ? mil_arg_var(op, "begin") : NULL;
        if (begin && s->function->is_computed[begin->id])
            lint_add_op(s, op, "%s at a begin that the graph computes", op->type);
    }
}

void lint_check_sigmoid(struct lint_scan *s)
{
    static const char *const names[] = {"sigmoid", "silu", NULL};
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        if (!lint_op_is_in(op, names))
            continue;
        bool is_silu = mil_op_is(op, "silu");
        for (int u = s->function->first_use[op->outputs[0]->id]; u >= 0 && !is_silu;
             u = s->function->uses[u].next) {
            const struct mil_op *use = s->function->uses[u].op;
            is_silu = mil_op_is(use, "mul") && (mil_arg_var(use, "x") == mil_arg_var(op, "x") ||
                                                mil_arg_var(use, "y") == mil_arg_var(op, "x"));
        }
        lint_add_op(s, op, is_silu ? "%s as silu: off by up to 1.5e-2" : "%s: off by up to 3.4e-3", op->type);
    }
}

void lint_check_gelu(struct lint_scan *s)
{
    static const char *const names[] = {"gelu", NULL};
    each_in(s, names);
}

void lint_check_tile(struct lint_scan *s)
{
    static const char *const names[] = {"tile", NULL};
    each_in(s, names);
}

void lint_check_quantized_activations(struct lint_scan *s)
{
    static const char *const names[] = {"quantize", "dequantize", NULL};
    each_in(s, names);
}

void lint_check_attention(struct lint_scan *s)
{
    static const char *const names[] = {"scaled_dot_product_attention", NULL};
    each_in(s, names);
}

void lint_check_matrix_form(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        bool is_linear = mil_op_is(op, "linear");
        const struct mil_op *y = mil_op_is(op, "matmul") ? lint_arg_maker(op, "y") : NULL;
        const struct mil_type *w = lint_arg_type(op, is_linear ? "weight" : "y");
        bool is_constant =
            is_linear || (y && lint_op_is_constant(y)) || (mil_op_is(op, "matmul") && mil_arg_value(op, "y"));
        /* Small constants of a graph (masks, sums) are no projections. */
        if (is_constant && w && w->rank == 2 && mil_type_elems(w) >= (1 << 16))
            lint_add_op(s, op, "%s with a constant of %lld elements", op->type, (long long)mil_type_elems(w));
    }
}

void lint_check_wide_floats(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        const struct mil_type *t = lint_output_type(op);
        if (!t || lint_op_is_constant(op) || mil_op_is(op, "cast") || t->dtype != MIL_FP32)
            continue;
        lint_add_op(s, op, "%s in fp32", op->type);
    }
}
