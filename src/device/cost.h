/* What programs cost on the engine by what is published: bytes, operations, time of an op, of a token. */
#ifndef MILKIT_DEVICE_COST_H
#define MILKIT_DEVICE_COST_H

#include "device/chip.h"
#include "device/models.h"

/* What one call of a function takes part with. */
struct device_cost {
    double weight_bytes; /* packed, each value in a file once */
    double state_bytes;  /* of all states it declares */
    double multiplies;   /* of products, millions are 1e6 */
    int n_ops;           /* without constants */
    int rows_per_table;  /* of palettes, the fewest; 0: none, or one table for all rows */
};
struct device_cost device_function_cost(const struct mil_function *f);
/* Of all functions together, what they share once. */
double device_weight_bytes(const struct mil_model *m);
/* Weights that an op reads: packed bytes of its operands that constants make. */
double device_op_weight_bytes(const struct mil_op *op);
double device_op_multiplies(const struct mil_op *op);
/* The function is a lookup: gathers of tables and what changes shapes, so its table is not streamed. */
bool device_looks_up_only(const struct mil_function *f);

#endif
