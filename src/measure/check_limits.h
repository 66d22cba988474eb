/* milkit check: what a verdict needs of the numbers, by the width of the weights and the precision of the run. */
#ifndef MILKIT_MEASURE_CHECK_LIMITS_H
#define MILKIT_MEASURE_CHECK_LIMITS_H

#include <math.h>
#include "runtime/model.h"

/* NAN: not given, or nothing that would mean something at this width. */
struct check_limits {
    double min_cosine, max_mean_kl, min_top1;
    double min_layer_cosine;   /* mean over the rows behind a layer, and of each state */
    double min_added_cosine;   /* mean over the rows of what a layer adds */
    double min_gain, max_gain; /* of what a layer adds, and of each state: its strength, 1 is right */
    double max_difference;     /* of a logit; infinite: not limited */
    double margin;             /* positions where the reference's best leads by less do not count for top-1 */
    char what[64];             /* the weights and the precision that they suit */
    bool has_verdict; /* false: at this width nothing tells rounding from a fault, and no limit was given */
};

#define CHECK_LIMITS_NOT_GIVEN ((struct check_limits){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, "", false})

/* Fills in what was not given. */
void check_limits_choose(struct check_limits *l, const struct model *m);

#endif
