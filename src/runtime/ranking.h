/* The best of a vocabulary, in order, in time that grows with its size alone. */
#ifndef MILKIT_RUNTIME_RANKING_H
#define MILKIT_RUNTIME_RANKING_H

#include <stdint.h>

struct candidate {
    float logit; /* not a NaN */
    int32_t id;
};

/* Brings the min(k, n) best of list [n] to its begin: larger logits first, equal ones in the order that they have, +0 equal to -0. What
 * stands behind them is unspecified. scratch [n]. Returns how many. */
int64_t ranking_sort_best(struct candidate *list, struct candidate *scratch, int64_t n, int64_t k);

#endif
