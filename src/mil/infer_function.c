/* Types of an op by its rule, and of a whole function. */
#include <string.h>
#include "mil/infer_rules.h"

static const infer_rule rules[MIL_RULE_COUNT] = {
#define RULE_ENTRY(name, doc) [MIL_RULE_##name] = infer_rule_##name,
    MIL_RULES(RULE_ENTRY)
#undef RULE_ENTRY
};

bool mil_infer_op(const struct mil_op *op, const struct mil_type *const *types, struct mil_known_ints *known,
                  const struct mil_type **out, struct arena *a, struct err *e)
{
    struct infer in = {op, types, known, out, a, e};
    for (int i = 0; i < op->n_outputs; i++)
        out[i] = NULL;
    if (!op->info)
        return true;
    /* A tensor of unknown rank says nothing about the result. */
    for (int i = 0; i < op->n_args; i++) {
        for (int k = 0; k < op->args[i].n; k++) {
            const struct mil_type *t = infer_binding_type(&op->args[i].bindings[k], types);
            if (t && t->kind == MIL_TYPE_TENSOR && !infer_has_rank(t))
                return true;
        }
    }
    return rules[op->info->rule](&in);
}

/* found with its gaps filled from declared. */
static const struct mil_type *merge_types(const struct mil_type *declared, const struct mil_type *found,
                                          struct arena *a)
{
    if (!found || (found->kind == MIL_TYPE_TENSOR && !infer_has_rank(found)))
        return declared;
    if (!declared || found->kind != MIL_TYPE_TENSOR || !infer_has_rank(declared) ||
        found->rank > MIL_RANK_MAX)
        return found;
    bool has_gap = false;
    for (int i = 0; i < found->rank; i++)
        has_gap |= found->dims[i] < 0 && declared->dims[i] >= 0;
    if (!has_gap)
        return found;
    int64_t dims[MIL_RANK_MAX];
    for (int i = 0; i < found->rank; i++)
        dims[i] = found->dims[i] >= 0 ? found->dims[i] : declared->dims[i];
    return mil_type_new_tensor(a, found->dtype, found->rank, dims);
}

/* A writer in wide use declares a select by the shapes of a and b alone, forgetting cond. The values have the
 * shape that all three give, so that is what is taken. */
static bool forgets_condition(const struct mil_op *op, const struct mil_type *declared,
                              const struct mil_type *found)
{
    if (!op->info || op->info->id != MIL_OP_SELECT || declared->kind != MIL_TYPE_TENSOR ||
        declared->dtype != found->dtype || declared->rank > found->rank)
        return false;
    for (int i = 1; i <= declared->rank; i++) {
        int64_t d = declared->dims[declared->rank - i];
        if (d > 1 && d != found->dims[found->rank - i])
            return false;
    }
    return true;
}

static bool infer_function_op(const struct mil_op *op, const struct mil_type **types,
                              struct mil_known_ints *known, const struct mil_type **out, struct arena *a,
                              struct err *e)
{
    char text_declared[160], text_found[160];
    if (!mil_infer_op(op, types, known, out, a, e))
        return false;
    for (int i = 0; i < op->n_outputs; i++) {
        const struct mil_var *v = op->outputs[i];
        if (!mil_type_agrees(v->type, out[i])) {
            if (forgets_condition(op, v->type, out[i])) {
                types[v->id] = out[i];
                continue;
            }
            mil_type_text(text_declared, sizeof text_declared, v->type);
            mil_type_text(text_found, sizeof text_found, out[i]);
            return err_set(e, ERR_FORMAT, "op %s '%s': declared %s, but its operands give %s", op->type,
                           v->name, text_declared, text_found);
        }
        types[v->id] = merge_types(v->type, out[i], a);
    }
    mil_known_ints_add(known, op, types);
    return true;
}

bool mil_infer_function(const struct mil_function *f, const struct mil_type *const *input_types,
                        const struct mil_type **types, struct mil_known_ints *known, struct arena *a,
                        struct err *e)
{
    char text_declared[160], text_found[160];
    int n_outputs_max = 1;
    for (int i = 0; i < f->n_vars; i++)
        types[i] = NULL;
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_var *v = f->inputs[i];
        const struct mil_type *t = input_types && input_types[i] ? input_types[i] : v->type;
        if (!mil_type_agrees(v->type, t)) {
            mil_type_text(text_declared, sizeof text_declared, v->type);
            mil_type_text(text_found, sizeof text_found, t);
            return err_set(e, ERR_USAGE, "function %s: input '%s' is declared %s, given %s", f->name, v->name,
                           text_declared, text_found);
        }
        types[v->id] = t;
    }
    for (int i = 0; i < f->block->n_ops; i++) {
        if (f->block->ops[i]->n_outputs > n_outputs_max)
            n_outputs_max = f->block->ops[i]->n_outputs;
    }
    const struct mil_type **out = ARENA_ARRAY(a, const struct mil_type *, n_outputs_max);
    if (!known)
        known = mil_known_ints_new(f->n_vars, a);
    for (int i = 0; i < f->block->n_ops; i++) {
        if (!infer_function_op(f->block->ops[i], types, known, out, a, e))
            return err_wrap(e, "function %s", f->name);
    }
    return true;
}
