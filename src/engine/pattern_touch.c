/* The pattern by which a program touches a state that it does not use, so that the state stays an argument of it:
 *
 *     y = x + reshape(one element of read_state(s)) * 0
 *
 * The element is finite in every state that a program can produce, so y is x: no step at all. */
#include "engine/match.h"

static bool emit_touch(struct compiler *c, const struct fused *f)
{
    struct value x;
    if (!fused_operand(c, f, 0, &x))
        return false;
    set_var(c, f->out, x);
    return true;
}

void pattern_touch(struct compiler *c, int i_add)
{
    const struct mil_op *add = c->g.ops[i_add];
    struct match m = match_begin(c);
    struct mil_var *x = mil_arg_var(add, "x"), *zero = mil_arg_var(add, "y"), *element, *slice, *v;
    double factor;
    if (!x || !zero)
        return;
    if (!match_def(c, zero, MIL_OP_MUL)) {
        v = x;
        x = zero;
        zero = v;
    }
    const struct mil_op *product = match_member(&m, zero, MIL_OP_MUL);
    if (!product || !match_var_and_number(c, product, &element, &factor) || factor != 0)
        return;
    const struct mil_op *reshape = match_member(&m, element, MIL_OP_RESHAPE);
    slice = reshape ? mil_arg_var(reshape, "x") : NULL;
    if (!slice)
        return;
    const struct mil_op *cut = match_member(&m, slice, MIL_OP_SLICE_BY_INDEX);
    v = cut ? mil_arg_var(cut, "x") : NULL;
    if (!v || mil_type_elems(var_type(c, slice)) != 1 || !match_member(&m, v, MIL_OP_READ_STATE) ||
        !mil_type_equal(var_type(c, x), var_type(c, add->outputs[0])))
        return;
    match_add(&m, i_add);
    if (!match_is_closed(&m, add->outputs[0]))
        return;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){.emit = emit_touch, .out = add->outputs[0], .in = {x}, .is_view = true};
    match_take(&m, f, i_add);
}
