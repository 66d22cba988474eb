/* What callers of a function see of it, whatever computes it: its inputs and outputs as buffers, and the shapes of inputs
 * that the program leaves open. */
#ifndef MILKIT_MIL_PORT_H
#define MILKIT_MIL_PORT_H

#include "mil/mil.h"

/* The shape of one input that the program leaves open. */
struct mil_input_shape {
    const char *input;
    int rank;
    int64_t dims[MIL_RANK_MAX];
};

/* One input or output. */
struct mil_port {
    const char *name;
    enum mil_dtype dtype; /* as declared */
    bool is_int;          /* the buffer holds int32, else float */
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t n_elems;
};

/* Index by name, -1 when absent. */
int mil_port_find(const struct mil_port *ports, int n, const char *name);

/* Types of the inputs that have a shape here, by their index in the function: types [n_inputs], the others stay as they are.
 * ERR_USAGE: a shape that program or description do not allow. */
bool mil_input_types(const struct mil_type **types, const struct mil_model *m, const struct mil_function *f,
                     const struct mil_input_shape *shapes, int n_shapes, struct arena *a,
                     struct err *e) MUST_CHECK;

#endif
