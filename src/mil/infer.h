/* Verifier and shape inference.
 *
 * The result types of an op follow from its operand types and compile-time values by its row's rule. Unknown ops infer
 * nothing (their declared types are taken).
 */
#ifndef MILKIT_MIL_INFER_H
#define MILKIT_MIL_INFER_H

#include "mil/ops.h"

/* types: by var id, the type of every variable known so far (may differ from var->type: a specialised shape).
 * Fills out[0 .. op->n_outputs - 1] (allocated in a). Unknown dimensions give unknown dimensions. */
bool mil_infer_op(const struct mil_op *op, const struct mil_type *const *types, const struct mil_type **out,
                  struct arena *a, struct err *e) MUST_CHECK;

/* Infers a whole function for given input types ([n_inputs], NULL entries: as declared). types: [n_vars], filled by
 * var id. Where a declared type is more specific than what is inferred, the declared one fills the gaps. */
bool mil_infer_function(const struct mil_function *f, const struct mil_type *const *input_types,
                        const struct mil_type **types, struct arena *a, struct err *e) MUST_CHECK;

/* Checks a whole model: names defined before use and once, known arguments present and of the right kind, declared
 * output types equal to inferred ones where both are known, states only used by state ops, weights complete,
 * description and functions agree on names, types and shapes. The message names function, op and variable. */
bool mil_verify(const struct mil_model *m, struct err *e) MUST_CHECK;

#endif
