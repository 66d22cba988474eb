/* The workspace of steps of several sessions: made and kept in batch_workspace.c, used in batch.c. */
#ifndef MILKIT_RUNTIME_BATCH_INT_H
#define MILKIT_RUNTIME_BATCH_INT_H

#include "runtime/batch.h"
#include "runtime/model_int.h"

/* Inputs of a chunk that each member brings along. */
enum { IN_HIDDEN, IN_PER_LAYER, IN_POSITIONS, IN_MASK, IN_CURRENT, IN_UPDATE, INPUTS };

struct part {
    struct backend_batch *batch; /* NULL: the package has no such function */
    int inputs[INPUTS];          /* of the function; -1: it has none of this name */
};

struct batch {
    struct model *model;
    int n_most;
    struct part embeddings, head, *chunks[2]; /* [n_chunks] plain and rotating */
    struct backend_member *members;           /* [n_most] */
    struct batch_member **group;              /* [n_most] */
};

#endif
