/* Choosing the next token from logits: greedy, or by temperature, top-k, top-p and min-p, behind penalties.
 *
 * Order: repetition penalty (as in transformers, over prompt and output), frequency and presence penalty (as in
 * llama.cpp, over the same tokens), suppressed tokens and bad words (as in transformers); then greedy takes the largest
 * logit, and sampling goes on with temperature, top-k, top-p, min-p. So greedy heeds the penalties too. The same seed and
 * logits give the same tokens on every machine (own exponential, own generator).
 */
#ifndef MILKIT_RUNTIME_SAMPLER_H
#define MILKIT_RUNTIME_SAMPLER_H

#include "base/mem.h"
#include "kernel/kernel.h"
#include "format/sampling.h"

struct sampler_options {
    bool greedy;
    double temperature;        /* > 0; 0 means greedy */
    int64_t top_k;             /* 0: off */
    double top_p;              /* in (0, 1]; 1: off */
    double min_p;              /* in [0, 1); 0: off: drops tokens less likely than min_p times the best */
    double repetition_penalty; /* 1: off; logits > 0 of seen tokens are divided by it, others multiplied */
    double presence_penalty;   /* taken off the logit of a token that was seen */
    double frequency_penalty;  /* taken off once for each time that it was seen */
    int64_t repetition_window; /* of the newest tokens that count as seen, for all three; 0: all */
    /* Never chosen as long as there is another token. Ids beyond the vocabulary have no effect. The lists stay the
     * caller's and must outlive the sampler. */
    int n_suppressed;
    const int32_t *suppressed;
    int n_bad_words;
    const struct token_sequence *bad_words; /* the last id of each, where the others stand before it */
    uint64_t seed;
};

/* The options that a recommendation asks for; what it does not say is off, without do_sample temperature is 0 (greedy).
 * The lists are r's. seed is 0. */
struct sampler_options sampler_recommended(const struct recommended_sampling *r);
/* Does the choice depend on more than which logit is the largest? */
bool sampler_looks_beyond_best(const struct sampler_options *o);

struct sampler;
/* Checks the ranges (ERR_USAGE). k NULL: the kernels of this processor. */
bool sampler_new(struct sampler **out, const struct sampler_options *o, int64_t vocab_size,
                 const struct kernels *k, struct err *e) MUST_CHECK;
void sampler_free(struct sampler *s); /* accepts NULL */
/* logits [vocab_size]; history [n]: the tokens before, prompt and output. NaN logits are never chosen. */
int32_t sampler_pick(struct sampler *s, const float *logits, const int32_t *history, size_t n);
/* Is there a logit to choose: a number above minus infinity? */
bool sampler_can_pick(const float *logits, int64_t n);
/* Index of the largest logit, the lowest among equals; NaN never wins. */
int32_t sampler_argmax(const float *logits, int64_t n);

#endif
