/* What the inputs of a weight are like, and what follows for its columns: for methods that weigh an error by what it does.
 *
 * With H the mean of x x^T over inputs x, a row's error d changes the squared output by d^T H d on average. Error feedback
 * (GPTQ, arXiv 2210.17323) rounds column after column and moves what one loses into those that come: for
 * H = mean(diag H) (G + damping I) in the order of falling diagonal and G^-1 = U^T U with U upper triangular, rounding
 * column j by e takes e U_jk / U_jj off every later column k.
 */
#ifndef MILKIT_QUANT_GUIDE_H
#define MILKIT_QUANT_GUIDE_H

#include "base/pool.h"

struct quant_guide {
    int64_t n;
    float *mean_square; /* [n]: the diagonal of H by its mean; positive */
    int32_t *order;     /* [n]: columns, the largest mean square first, of equals the first */
    float *feedback;    /* [n, n]: U_jk / U_jj for k > j, by places in the order; the rest is not defined */
    /* For descent, else NULL: */
    float *h;     /* [n, n]: H by the mean of its diagonal, with a little on the diagonal */
    float *shift; /* [n, n]: w + w shift is what gives the outputs that are wanted; NULL: w */
};

/* h += x^T y; for y == x its upper triangle. Sums of up to 128 rows are float32, their sums double; the order of summation
 * depends on the number of rows alone. */
void quant_gram_add(double *h, const float *x, const float *y, int64_t rows, int64_t n, struct pool *pool);

/* h [n, n]: the sum of quant_gram_add, of any scale. cross [n, n]: the sum of (x' - x)^T x over the same
 * inputs x, for outputs as with inputs x' in their place; NULL: as with x. *out NULL, without an error: the inputs are zeros
 * or no numbers, they say nothing. ERR_NOMEM. The same numbers for any number of threads and any instruction set. */
bool quant_guide_make(struct quant_guide **out, const double *h, const double *cross, int64_t n,
                      bool does_descend, struct pool *pool, struct err *e) MUST_CHECK;
void quant_guide_free(struct quant_guide *g); /* accepts NULL */

/* c [rows, n] += a [rows, n] b [n, n], sums in the order of columns of a. For one thread. */
void quant_product_add(float *c, const float *a, int64_t rows, const float *b, int64_t n);
/* The same, by all threads. */
void quant_products_add(float *c, const float *a, int64_t rows, const float *b, int64_t n, struct pool *pool);

#endif
