/* The engine's column `emitter` of the op table (mil/ops.def): which function runs an op. */
#include "engine/compiler.h"

static const emit_fn emitters[MIL_OP_COUNT] = {
    [MIL_OP_NONE] = emit_none,
#define MIL_OP(id, name, opset, histogram, rule, inputs, emitter, memory, doc) [MIL_OP_##id] = emit_##emitter,
#include "mil/ops.def"
#undef MIL_OP
};

emit_fn op_emitter(const struct mil_op *op)
{
    return emitters[op->info ? (int)op->info->id : MIL_OP_NONE];
}

bool emit_none(struct compiler *c, const struct mil_op *op)
{
    (void)op;
    return compile_fail(c, ERR_UNSUPPORTED, "the engine does not run this op");
}

bool emit_one_by_one(struct compiler *c, const struct mil_op *op)
{
    (void)op;
    return compile_fail(c, ERR_UNSUPPORTED,
                        "what it gives is known only by running it, so no plan can be made");
}

/* Constants and packed weights are taken by their users: as they are by linear steps, expanded by others. */
bool emit_constant(struct compiler *c, const struct mil_op *op)
{
    (void)c;
    (void)op;
    return true;
}
