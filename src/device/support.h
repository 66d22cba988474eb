/* Which ops the Neural Engine takes, by published tables (M4, macOS 27). */
#ifndef MILKIT_DEVICE_SUPPORT_H
#define MILKIT_DEVICE_SUPPORT_H

#include "mil/mil.h"

/* An op that runs on the processor whatever its operands are: cumsum, mod, argsort, recurrent layers, ... */
bool device_lacks_op(const struct mil_op *op);
/* Why an op is expected on the processor: a few words, static; NULL: the engine takes it. Constants are no work: NULL. */
const char *device_reason(const struct mil_op *op);
/* By variable id (heap): whole numbers, and what is looked up with them, that follow from integer inputs and constants
 * alone, so that they are computed before the engine begins. */
bool *device_prologue(const struct mil_function *f);
bool device_is_constant(const struct mil_op *op); /* const and constexpr_* */

#endif
