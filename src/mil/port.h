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

#endif
