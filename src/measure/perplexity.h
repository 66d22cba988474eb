/* Perplexity of a text, in windows that start with an empty context; and how near the predictions are to another's. */
#ifndef MILKIT_MEASURE_PERPLEXITY_H
#define MILKIT_MEASURE_PERPLEXITY_H

#include "measure/against.h"

struct perplexity {
    int64_t n_predicted;
    double mean_nll;       /* of the predicted tokens, nats; perplexity is its exponential */
    double standard_error; /* of mean_nll */
};

struct perplexity_text {
    const int32_t *ids; /* [n], n >= 2 */
    size_t n;
    int64_t window; /* tokens, from 2 on; with `before` as many as the session's context holds at most */
    const int32_t *before; /* [n_before]: stands in front of each window (bos); not predicted */
    size_t n_before;
    struct against *against; /* takes part in every window; NULL: nothing to compare with */
    struct log *log;         /* progress; its cancel flag stops the measurement */
};

/* ERR_MISMATCH where a token's likelihood is not a finite number. */
bool perplexity_measure(struct perplexity *out, struct session *s, const struct model *m,
                        const struct perplexity_text *text, struct err *e) MUST_CHECK;

#endif
