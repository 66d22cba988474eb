/* Internals of opening a model, for model.c, model_check.c and watch.c. */
#ifndef MILKIT_RUNTIME_MODEL_INT_H
#define MILKIT_RUNTIME_MODEL_INT_H

#include "runtime/model.h"

/* Before functions are made of it: the chunk's functions also return the residual stream behind each layer that can be told. */
void model_add_watches(struct mil_model *mil);
/* After that: which output is which layer's. */
void model_find_watches(const struct model *m, struct model_part *part, bool is_last);

/* Chunk i's file says which chunk and layers it holds; another one's is ERR_FORMAT. The chunks before it are open. */
bool model_check_chunk_order(const struct model *m, int i, struct err *e) MUST_CHECK;
/* Where a cache is shorter than the context and nothing says how it goes on: tries the last position, so that what would
 * fail there is refused at opening (ERR_FORMAT). */
bool model_check_positions(const struct model *m, struct err *e) MUST_CHECK;
/* A warning for each thing that meta.yaml says and the models do not. */
void model_check_meta(const struct model *m, struct log *log);

/* batch.c: workspaces that wait for their next user. */
struct batch_store *batch_store_new(void);
void batch_store_free(struct batch_store *s); /* accepts NULL */

#endif
