/* The engine's column `memory` of the op table (mil/ops.def): whether an op's result may be its operand's memory. */
#include "engine/compiler.h"

enum memory { OWN, VIEW };

static const enum memory memories[MIL_OP_COUNT] = {
#define MIL_OP(id, name, opset, histogram, rule, inputs, emitter, memory, doc) [MIL_OP_##id] = memory,
#include "mil/ops.def"
#undef MIL_OP
};

bool op_is_view(const struct mil_op *op)
{
    return op->info && memories[op->info->id] == VIEW;
}
