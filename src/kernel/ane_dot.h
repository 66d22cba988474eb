/* Sums of products as the Neural Engine is said to form them: whole numbers of 2^-16, each product rounded to one, halves away from
 * zero, and dropped where the exponents of its factors sum up to less than -16. Whole numbers add up in any order, so every
 * instruction set gives the same sum.
 */
#ifndef MILKIT_KERNEL_ANE_DOT_H
#define MILKIT_KERNEL_ANE_DOT_H

#include <stdint.h>

/* x [n]: fp16 numbers times 65536; least [n]: the least magnitude that a factor of that x must have, for which magnitudes below
 * 2^-14 count as 2^-14; w [n]: fp16 numbers. All finite. The exact sum of the rounded products. */
typedef int64_t (*ane_dot_fn)(const float *x, const float *least, const float *w, int64_t n);

/* For the level of instructions in use. */
ane_dot_fn ane_dot_select(void);
int64_t ane_dot_scalar(const float *x, const float *least, const float *w, int64_t n);
int64_t ane_dot_avx2(const float *x, const float *least, const float *w, int64_t n);

#endif
