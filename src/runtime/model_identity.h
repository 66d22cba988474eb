/* What makes two packages the same for a state: XXH3-128 of what their programs say and of all their weights.
 *
 * programs: every function's inputs, ops in order, how they are wired, and immediate values; names of variables and the form
 * (.mlpackage, .mlmodelc) don't count. weights: every byte of every weight that an op refers to. So one changed bit
 * anywhere is another identity, but for an accident of 1 in 2^128; it is no protection against one who wants two
 * packages to look alike. Reads all weights once, in parallel, at the speed of memory.
 */
#ifndef MILKIT_RUNTIME_MODEL_IDENTITY_H
#define MILKIT_RUNTIME_MODEL_IDENTITY_H

#include "runtime/model.h"

struct model_identity {
    uint8_t programs[16], weights[16];
};
bool model_identify(const struct model *m, struct model_identity *out, struct err *e) MUST_CHECK;

#endif
