/* How large the residual stream of a checkpoint gets, and the scale that keeps it within fp16, which packages declare.
 *
 * The float32 reference runs over the beginning of a calibration text. What is largest in trained models stands at the first
 * tokens, whatever the text, so a few are enough, and weights are read once for all of them; the limit leaves room for texts that go further.
 */
#ifndef MILKIT_MEASURE_RESIDUAL_H
#define MILKIT_MEASURE_RESIDUAL_H

#include "arch/arch.h"
#include "measure/calibration.h"

/* Tokens of the text that are used. */
#define RESIDUAL_TOKENS 64
/* Half of what fp16 holds: a larger stream is scaled to at most this. */
#define RESIDUAL_LIMIT 32768.0
/* The smallest scale; factors of weights stay far from fp16's smallest numbers. */
#define RESIDUAL_SCALE_MIN 0x1p-10

struct residual {
    struct calibration *calibration;
    int n_threads; /* 0: all */
    struct log *log;
};

/* convert_options.measure_residual; context: a struct residual. Without a text and a tokenizer the ids are spread over the
 * vocabulary. */
bool residual_measure(void *context, const struct arch_model *m, struct arch_residual *out, struct err *e);

#endif
