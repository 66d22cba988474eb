/* Between the two files of metadata.json. */
#ifndef MILKIT_MIL_METADATA_INTERNAL_H
#define MILKIT_MIL_METADATA_INTERNAL_H

#include "mil/mil.h"

#define PRECISION_SET_MAX 64

/* Names in the order of strcmp, each once; what would be too many is left out. */
struct precision_set {
    char names[PRECISION_SET_MAX][32];
    int n;
};

/* "Float16"; NULL for bool and string. */
const char *precision_name(enum mil_dtype d);
/* Adds the types that the block's ops, and those of blocks inside, compute with. */
void precisions_computed(const struct mil_block *b, struct precision_set *s);
/* Adds how its weights are stored: types, "Palettized (4 bits)", "Sparse". */
void precisions_stored(const struct mil_block *b, struct precision_set *s);

#endif
