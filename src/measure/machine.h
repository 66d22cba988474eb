/* What this machine gives in the same minute: a plain read of memory, and the peak of the instructions that products are
 * made of. Yardsticks for speeds, which mean little by themselves on a machine that others use, too.
 */
#ifndef MILKIT_MEASURE_MACHINE_H
#define MILKIT_MEASURE_MACHINE_H

#include "base/pool.h"

struct machine_span {
    const void *data;
    size_t bytes;
};

/* Seconds of summing all spans once, each thread a part of each, in one linear stream. */
double machine_read(struct pool *pool, const struct machine_span *spans, int n);

enum machine_unit {
    MACHINE_FMA32,     /* fused multiply-adds of float32 */
    MACHINE_PRODUCTS16 /* products of 16-bit integers, summed in 32 bits */
};
/* Multiplications (each with its addition) a second of all threads together at the level in use; 0: the level has no such
 * instruction. *instruction (may be NULL): its name. Takes some milliseconds. */
double machine_peak(struct pool *pool, enum machine_unit unit, const char **instruction);

#endif
