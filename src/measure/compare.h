/* How far logits are from the reference's. Computed in double, whatever the vocabulary's size. */
#ifndef MILKIT_MEASURE_COMPARE_H
#define MILKIT_MEASURE_COMPARE_H

#include "base/mem.h"

struct logits_difference {
    bool reference_finite, other_finite; /* one of them false: the numbers below mean nothing */
    double cosine;
    double kl; /* Kullback-Leibler divergence of other from reference, nats; >= 0 but for rounding */
    double max_difference;
    int32_t reference_top, other_top; /* the lowest among equals */
    double margin;                    /* the reference's best minus its second best logit */
};
/* n >= 1 */
void logits_compare(const float *reference, const float *other, int64_t n, struct logits_difference *out);

#endif
