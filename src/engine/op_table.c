/* The engine's columns of the op table (mil/ops.def): which emitter runs an op, and whether its result may be its
 * operand's memory. */
#include "engine/compiler.h"

enum memory { OWN, VIEW };

static const struct {
    emit_fn emit;
    enum memory memory;
} rows[MIL_OP_COUNT] = {
    [MIL_OP_NONE] = {emit_none, OWN},
#define MIL_OP(id, name, opset, histogram, rule, inputs, emitter, memory, doc)                               \
    [MIL_OP_##id] = {emit_##emitter, memory},
#include "mil/ops.def"
#undef MIL_OP
};

static int row_of(const struct mil_op *op)
{
    return op->info ? (int)op->info->id : MIL_OP_NONE;
}

emit_fn op_emitter(const struct mil_op *op)
{
    return rows[row_of(op)].emit;
}

bool op_is_view(const struct mil_op *op)
{
    return rows[row_of(op)].memory == VIEW;
}

bool emit_none(struct compiler *c, const struct mil_op *op)
{
    (void)op;
    return compile_fail(c, ERR_UNSUPPORTED, "the engine does not run this op");
}

/* Constants and packed weights are taken by their users: as they are by linear steps, expanded by others. */
bool emit_constant(struct compiler *c, const struct mil_op *op)
{
    (void)c;
    (void)op;
    return true;
}
