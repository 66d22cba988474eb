/* Verifier and shape inference.
 *
 * The result types of an op follow from its operand types and compile-time values by its row's rule. Unknown
 * ops infer nothing (their declared types are taken).
 */
#ifndef MILKIT_MIL_INFER_H
#define MILKIT_MIL_INFER_H

#include "mil/ops.h"

/* The small integers of a function's variables (see mil_infer_ints), by var id, each found once: what is asked of a
 * function then costs time in proportion to its ops, however its branches meet. Belongs to one set of types. */
struct mil_known_ints;
struct mil_known_ints *mil_known_ints_new(int n_vars, struct arena *a);
/* Finds those of an op's results, after their types; in the order of the program it takes no recursion. */
void mil_known_ints_add(struct mil_known_ints *known, const struct mil_op *op,
                        const struct mil_type *const *types);

/* types: by var id, the type of every variable known so far (may differ from var->type: a specialised shape;
 * NULL: as declared). known: NULL looks again at each question. Fills out[0 .. op->n_outputs - 1] (allocated in a); NULL where the rule can't tell.
 * Unknown dimensions give unknown dimensions. Operands that do not fit each other are ERR_FORMAT naming the
 * op. */
bool mil_infer_op(const struct mil_op *op, const struct mil_type *const *types, struct mil_known_ints *known,
                  const struct mil_type **out, struct arena *a, struct err *e) MUST_CHECK;

/* Infers a whole function for given input types ([n_inputs], NULL entries: as declared). types: [n_vars],
 * filled by var id. known: of n_vars, filled likewise; NULL: nobody asks later. Where a declared type is more specific than what is inferred, the declared one fills the
 * gaps. A result that contradicts its declaration is an error. */
bool mil_infer_function(const struct mil_function *f, const struct mil_type *const *input_types,
                        const struct mil_type **types, struct mil_known_ints *known, struct arena *a,
                        struct err *e) MUST_CHECK;

/* Small integers that follow from compile-time values and known shapes alone (shape, gather, concat,
 * arithmetic ...): the elements of argument name. Entries that can't be known are MIL_INT_UNKNOWN. False:
 * nothing is known, or there are more than n_max elements. */
#define MIL_INT_UNKNOWN INT64_MIN
bool mil_infer_ints(const struct mil_op *op, const char *name, const struct mil_type *const *types,
                    struct mil_known_ints *known, int64_t *dst, int n_max, int *n);

/* Can a value of type `found` stand where `declared` is written? Same element type and rank, equal dimensions
 * where both are known. */
bool mil_type_agrees(const struct mil_type *declared, const struct mil_type *found);

/* Checks a whole model: names defined before use and once, known arguments present and of the right kind,
 * declared output types equal to inferred ones where both are known, states only used by state ops, weights
 * complete, description and functions agree on names, types and shapes. The message names function, op and
 * variable. */
bool mil_verify(const struct mil_model *m, struct err *e) MUST_CHECK;

#endif
