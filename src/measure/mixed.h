/* Mixed widths of a conversion: what each weight's width costs, measured, and the choice that follows.
 *
 * A weight is put into the float32 reference in its narrow and in its wide form, alone; the error is what its layer
 * then leaves of the residual stream against what it leaves without: squares of differences by squares of values,
 * token by token, the mean over the tokens of a calibration text.
 */
#ifndef MILKIT_MEASURE_MIXED_H
#define MILKIT_MEASURE_MIXED_H

#include "arch/arch.h"
#include "measure/calibration.h"
#include "quant/quant.h"

/* Tokens of the calibration text that are used. */
#define MIXED_TOKENS_MAX 512

struct mixed {
    struct calibration *calibration;
    struct quant_spec spec; /* of the narrow width */
    double mean_bits;       /* allowed */
    int n_threads;          /* 0: all */
    struct log *log;
    struct quant_choices choices; /* what was found */
};

/* convert_options.choose; context: a struct mixed. The weights are those that quant_apply finds in the chunks. */
bool mixed_choose(void *context, struct arch_model *m, const struct quant_choices **out, struct err *e);
void mixed_fini(struct mixed *x);

#endif
