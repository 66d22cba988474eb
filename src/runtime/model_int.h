/* Internals of opening a model, for model.c and watch.c. */
#ifndef MILKIT_RUNTIME_MODEL_INT_H
#define MILKIT_RUNTIME_MODEL_INT_H

#include "runtime/model.h"

/* Before planning: the chunk's functions also return the residual stream behind each layer that can be told. */
void model_add_watches(struct mil_model *mil);
/* After planning: which output is which layer's. */
void model_find_watches(const struct model *m, struct model_part *part, bool is_last);

#endif
