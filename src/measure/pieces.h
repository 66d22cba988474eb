/* Which inputs a quantized weight has: bands of rows, whose columns stand in blocks of one matrix of the checkpoint each. */
#ifndef MILKIT_MEASURE_PIECES_H
#define MILKIT_MEASURE_PIECES_H

#include "measure/inputs.h"
#include "quant/quant.h"

struct block {
    int input; /* of struct inputs */
    int64_t column, n_columns;
};
struct band {
    int64_t row, n_rows;
    struct block *blocks;
    int n_blocks;
    bool is_made; /* tables are there */
};
struct pieces {
    struct quant_weight *weight;
    struct quant_made *made; /* its palette */
    struct band *bands;
    int n_bands;
    int stage; /* the latest one of its inputs */
};

/* false: not all inputs are known, or groups have rows of several kinds; to be released nevertheless. */
bool pieces_find(struct pieces *p, struct quant_weight *w, const struct inputs *inputs);
void pieces_fini(struct pieces *p);

#endif
