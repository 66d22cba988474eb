/* The table of MIL operations: one row an op in ops.def, from which the verifier, shape inference, the engine's
 * dispatch, the tests and docs/mil-ops.md are made.
 *
 * A row: MIL_OP(ID, "name", OPSET, HISTOGRAM, RULE, "inputs", "sentence"). OPSET: first opset that has it. HISTOGRAM:
 * how Apple's metadata.json prefixes it by model opset. RULE: the result rule in infer.c. inputs: "x:T y:T? axes:I"
 * (? optional, * variadic; T any numeric, F float, I integer, B bool, S string, V state).
 */
#ifndef MILKIT_MIL_OPS_H
#define MILKIT_MIL_OPS_H

#include "mil/mil.h"

enum mil_op_id {
    MIL_OP_NONE = 0,
#define MIL_OP(id, name, opset, histogram, rule, inputs, doc) MIL_OP_##id,
#include "mil/ops.def"
#undef MIL_OP
    MIL_OP_COUNT
};

struct mil_op_info {
    enum mil_op_id id;
    const char *name;
    int opset; /* 15 .. 19 */
    const char *inputs, *doc;
    int rule;
};

const struct mil_op_info *mil_op_info_find(const char *name); /* NULL when not in the table */
const struct mil_op_info *mil_op_info_by_id(enum mil_op_id id);
/* Key of an op in metadata.json's mlProgramOperationTypeHistogram for a model of this opset ("Ios18.matmul", "Transpose"). */
void mil_op_histogram_key(char dst[96], const char *op_type, int opset);
int mil_opset_number(const char *opset); /* "CoreML8" -> 18, "ios18" -> 18; 0 when unknown */

#endif
