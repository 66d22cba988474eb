/* The operands of an op as values: variables as they are, constants and packed weights expanded. */
#include "engine/compiler.h"

bool operand_binding(struct compiler *c, const struct mil_binding *b, struct value *out)
{
    const struct mil_value *v = b->value ? b->value : c->consts[b->var->id];
    if (v) {
        const struct mil_type *t = v->type;
        bool large_f16 = t->kind == MIL_TYPE_TENSOR && t->dtype == MIL_FP16 && v->n_elems > 65536;
        return const_value(c, v, large_f16 ? REPR_F16 : dtype_repr(t->dtype), out);
    }
    const struct mil_op *packed = c->values[b->var->id].storage < 0 ? constexpr_of(c, b->var) : NULL;
    int i_output = 0; /* a mask, and what it keeps */
    while (packed && i_output + 1 < packed->n_outputs && packed->outputs[i_output] != b->var)
        i_output++;
    if (packed && !constexpr_dense(c, packed, i_output, &c->values[b->var->id]))
        return false;
    if (c->values[b->var->id].storage < 0)
        return compile_fail(c, ERR_UNSUPPORTED, "operand %s was not computed (no tensor)", b->var->name);
    *out = c->values[b->var->id];
    return true;
}

bool operand_optional(struct compiler *c, const struct mil_op *op, const char *name, struct value *out,
                      bool *present)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    const struct mil_value *v;
    *present = true;
    if (a && a->n == 1)
        return operand_binding(c, &a->bindings[0], out);
    v = mil_attribute(op, name);
    if (v) {
        struct mil_binding b = {.value = v};
        return operand_binding(c, &b, out);
    }
    *present = false;
    return true;
}

bool operand(struct compiler *c, const struct mil_op *op, const char *name, struct value *out)
{
    bool present;
    if (!operand_optional(c, op, name, out, &present))
        return false;
    return present || compile_fail(c, ERR_FORMAT, "argument %s is missing", name);
}

bool operand_f32(struct compiler *c, const struct mil_op *op, const char *name, struct value *out)
{
    return operand(c, op, name, out) && to_f32(c, out);
}
