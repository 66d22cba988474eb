/* Choosing the next token from logits: greedy, or by temperature, top-k, top-p, min-p and repetition penalty.
 *
 * Order of the filters: repetition penalty, temperature, top-k, top-p, min-p. The same seed and logits give
 * the same tokens on every machine (own exponential, own generator).
 */
#ifndef MILKIT_RUNTIME_SAMPLER_H
#define MILKIT_RUNTIME_SAMPLER_H

#include "base/mem.h"
#include "engine/engine.h"

struct sampler_options {
    bool greedy;
    double temperature;        /* > 0; 0 means greedy */
    int64_t top_k;             /* 0: off */
    double top_p;              /* in (0, 1]; 1: off */
    double min_p;              /* in [0, 1); 0: off: drops tokens less likely than min_p times the best */
    double repetition_penalty; /* 1: off; logits > 0 of seen tokens are divided by it, others multiplied */
    int64_t repetition_window; /* of the newest tokens that count as seen; 0: all */
    uint64_t seed;
};

struct sampler;
/* Checks the ranges (ERR_USAGE). */
bool sampler_new(struct sampler **out, const struct sampler_options *o, int64_t vocab_size,
                 const struct kernels *k, struct err *e) MUST_CHECK;
void sampler_free(struct sampler *s); /* accepts NULL */
/* logits [vocab_size]; history [n]: the tokens before (for the penalty). NaN logits are never chosen. */
int32_t sampler_pick(struct sampler *s, const float *logits, const int32_t *history, size_t n);
/* Is there a logit to choose: a number above minus infinity? */
bool sampler_can_pick(const float *logits, int64_t n);
/* Index of the largest logit, the lowest among equals; NaN never wins. */
int32_t sampler_argmax(const float *logits, int64_t n);

#endif
