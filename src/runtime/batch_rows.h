/* Every row of a prefill: the package returns the last token's alone, normed. What stands in front of that slice, what comes
 * behind it, and the head for a whole batch are made of the programs in memory, as functions of their own that give the
 * bits of the package's.
 */
#ifndef MILKIT_RUNTIME_BATCH_ROWS_H
#define MILKIT_RUNTIME_BATCH_ROWS_H

#include "runtime/model.h"

struct batch_rows {
    struct arena *arena;
    struct mil_model batch_mil, final_mil, head_mil; /* the package's files with other programs */
    struct backend_function *batch;                  /* the last chunk's prefill up to the slice */
    int i_batch_output;                              /* its residual stream [1, batch, hidden] */
    struct backend_function *final;                  /* from one row of it [1, 1, hidden] to the normed one */
    struct backend_function *head; /* [1, batch, hidden] to logits [1, batch, ..]; NULL: row by row */
};

/* *out NULL, and no error: this package's programs are not made so, or it runs in a precision without promises about bits. */
bool batch_rows_open(struct batch_rows **out, const struct model *m, struct err *e) MUST_CHECK;
void batch_rows_close(struct batch_rows *r, const struct model *m); /* accepts NULL */

#endif
