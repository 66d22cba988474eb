/* The ops that the engine does not take. */
#include "device/support.h"
#include <stdlib.h>
#include <string.h>

static bool is_in(const struct mil_op *op, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(op->type, *names) == 0)
            return true;
    return false;
}

bool device_lacks_op(const struct mil_op *op)
{
    static const char *const names[] = {"cumsum",
                                        "mod",
                                        "reduce_prod",
                                        "tan",
                                        "asin",
                                        "acos",
                                        "sinh",
                                        "cosh",
                                        "atanh",
                                        "lstm",
                                        "gru",
                                        "rnn",
                                        "band_part",
                                        "one_hot",
                                        "non_zero",
                                        "range_1d",
                                        "argsort",
                                        "crop_resize",
                                        "sliding_windows",
                                        "random_bernoulli",
                                        "random_categorical",
                                        "random_normal",
                                        "random_uniform",
                                        NULL};
    return is_in(op, names);
}

bool device_is_constant(const struct mil_op *op)
{
    return mil_op_is(op, "const") || strncmp(op->type, "constexpr_", 10) == 0;
}

static const struct mil_type *tensor_of(const struct mil_type *t)
{
    t = t ? mil_type_tensor(t) : NULL;
    return t && t->kind == MIL_TYPE_TENSOR ? t : NULL;
}

static bool makes_integers(const struct mil_op *op)
{
    const struct mil_type *t = op->n_outputs > 0 ? tensor_of(op->outputs[0]->type) : NULL;
    return t && mil_dtype_is_integer(t->dtype);
}

/* x, y or cond of whole numbers that are not constants. */
static bool takes_integers(const struct mil_op *op)
{
    static const char *const names[] = {"x", "y", "values", "a", "b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct mil_arg *a = mil_arg_find(op, names[i]);
        for (int k = 0; a && k < a->n; k++) {
            const struct mil_var *v = a->bindings[k].var;
            const struct mil_type *t = v ? tensor_of(v->type) : NULL;
            if (t && mil_dtype_is_integer(t->dtype) && !(v->op && device_is_constant(v->op)))
                return true;
        }
    }
    return false;
}

static bool is_too_long(const struct mil_op *op)
{
    const struct mil_type *t = op->n_outputs > 0 ? tensor_of(op->outputs[0]->type) : NULL;
    for (int i = 0; t && i < t->rank; i++)
        if (t->dims[i] > 65536)
            return true;
    return false;
}

const char *device_reason(const struct mil_op *op)
{
    static const char *const control[] = {"while_loop", "cond", "make_list", "list_read", "list_write", NULL};
    static const char *const lookups[] = {
        "gather", "gather_nd", "gather_along_axis", "scatter", "scatter_nd", "scatter_along_axis", NULL};
    static const char *const ranks[] = {"topk", "reduce_argmax", "reduce_argmin", NULL};
    if (device_is_constant(op))
        return NULL;
    if (device_lacks_op(op))
        return "the engine lacks the op";
    if (is_in(op, control))
        return "the engine has no loops, branches and lists";
    if (is_in(op, lookups) && !mil_arg_value(op, "indices"))
        return "its indices come from data";
    if (is_in(op, ranks))
        return "its indices are int32";
    if (makes_integers(op) || takes_integers(op))
        return "the engine has no int32 arithmetic";
    if (is_too_long(op))
        return "an axis above 65536";
    return NULL;
}

static bool makes_whole_numbers(const struct mil_op *op)
{
    const struct mil_type *t = op->n_outputs > 0 ? tensor_of(op->outputs[0]->type) : NULL;
    return makes_integers(op) || (t && t->dtype == MIL_BOOL);
}

bool *device_prologue(const struct mil_function *f)
{
    bool *is_known = xcalloc((size_t)f->n_vars + 1, sizeof *is_known);
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_type *t = f->inputs[i]->type;
        is_known[f->inputs[i]->id] = t->kind == MIL_TYPE_TENSOR && mil_dtype_is_integer(t->dtype);
    }
    for (int i = 0; f->block && i < f->block->n_ops; i++) {
        const struct mil_op *op = f->block->ops[i];
        /* Numbers that were looked up are where the work on them begins. */
        bool all = device_is_constant(op) ||
                   (op->n_args > 0 && (makes_whole_numbers(op) || mil_op_is(op, "gather")));
        for (int k = 0; k < op->n_args && !device_is_constant(op); k++)
            for (int n = 0; n < op->args[k].n; n++)
                all = all && (!op->args[k].bindings[n].var || is_known[op->args[k].bindings[n].var->id]);
        for (int k = 0; k < op->n_outputs; k++)
            is_known[op->outputs[k]->id] = all && op->n_blocks == 0;
    }
    return is_known;
}
