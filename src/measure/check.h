/* Does a package compute what its checkpoint computes?
 *
 * The reference continues a prompt greedily in float32; the package gets the same tokens (teacher forcing), the prompt by
 * the contract's call sequence, and its logits are compared at the prompt's last position and at every generated one. End of
 * text is ignored, so that as many positions are compared as were asked for. What each layer leaves and the states are
 * compared as well: a fault in one layer may hardly show in the logits. A package that is there in both forms is run in both.
 */
#ifndef MILKIT_MEASURE_CHECK_H
#define MILKIT_MEASURE_CHECK_H

#include "measure/check_layers.h"
#include "measure/compare.h"

#define CHECK_TOKENS_DEFAULT 32

struct check_position {
    int64_t position;
    int32_t token; /* the input */
    struct logits_difference d;
};

struct check_summary {
    double min_cosine, mean_cosine, mean_kl, max_kl, max_difference;
    int64_t n_not_finite; /* positions where the package's logits are not; the means leave them out */
    int64_t n_counted, n_agreed;
};

/* A form of the package against the reference. */
struct check_side {
    const char *form;
    struct check_position *positions; /* [n_positions] */
    struct check_summary summary;
};

struct check {
    /* Given, and borrowed. With a reference the model was opened with watch_layers. */
    struct model *model,
        *other_model; /* other_model: the same package in its other form; NULL: there is one form only */
    struct reference *reference; /* NULL: nothing is compared */
    struct log *log;
    /* Given, then changed by check_fit and check_compare. */
    struct check_limits limits;
    int64_t n_more;  /* tokens to generate; < 0: CHECK_TOKENS_DEFAULT, fewer where the context is full */
    struct ids ids;  /* the prompt, then what was generated */
    size_t n_prompt; /* of ids */
    /* Found. */
    struct check_side sides[2]; /* [n_sides] */
    int n_sides;
    struct backend_range range;  /* of values that fp16 has to hold */
    int64_t n_positions, n_same; /* n_same: where the logits of both forms have the same bits */
    struct check_layers *layers;
};

/* Can this be a package of that checkpoint? ERR_MISMATCH, with the two sizes that differ. */
bool check_sizes(const struct check *k, struct err *e) MUST_CHECK;
/* Fills ids with a prompt of our own, one full batch and some tokens more, so that both functions run: a text when there is
 * a tokenizer, else ids spread over the vocabulary. t may be NULL. */
bool check_make_prompt(struct check *k, const struct tokenizer *t, struct err *e) MUST_CHECK;
/* Once ids holds the prompt: sets n_prompt, n_more as far as the package's context goes (warns where fewer were asked
 * for), and the limits that were not given. */
bool check_fit(struct check *k, struct err *e) MUST_CHECK;
/* Runs all side by side. ERR_MISMATCH when the two forms have other vocabularies. */
bool check_compare(struct check *k, struct err *e) MUST_CHECK;

enum check_verdict {
    CHECK_NONE, /* nothing was compared, or nothing tells rounding from a fault at this width and no limit was given */
    CHECK_PASS,
    CHECK_FAIL
};
/* why: what is outside the limits, one sentence a line; empty: nothing. */
enum check_verdict check_judge(const struct check *k, struct buf *why);
/* What was found, not what was given. */
void check_fini(struct check *k);

#endif
