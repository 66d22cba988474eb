/* What milkit eval --against compares a package with: another package, or a checkpoint by the float32 reference. */
#ifndef MILKIT_CLI_EVAL_AGAINST_H
#define MILKIT_CLI_EVAL_AGAINST_H

#include "cli/package_options.h"
#include "reference/reference.h"

/* Tokens whose logits are held at a time. */
#define AGAINST_TOKENS 16

/* Sums over predicted tokens. Top k: the other's best token is among the package's k best. */
struct agreement {
    int64_t n;
    double nll; /* the other's, nats */
    double kl, kl_max, min_cosine;
    int64_t n_not_finite; /* tokens where one side's logits are not: left out */
    int64_t top1, top3, top5;
};

struct against;
/* path: a package or a checkpoint of the same vocabulary; contexts of `window` tokens must fit. */
bool against_open(struct against **out, struct cli *c, const struct package_options *options,
                  const char *path, const struct model *m, int64_t window, struct err *e) MUST_CHECK;
void against_close(struct against *a); /* accepts NULL */
/* An empty context. */
void against_reset(struct against *a);
/* The logits after each of the next n <= AGAINST_TOKENS tokens. */
bool against_feed(struct against *a, const int32_t *ids, size_t n, struct err *e) MUST_CHECK;
/* The package's logits after token i of the last feed, and the token that follows. */
void against_compare(struct against *a, size_t i, const float *logits, int32_t next);
const struct agreement *against_result(const struct against *a);
/* Negative log likelihood of token `next` under logits, in double. */
double eval_token_nll(const float *logits, int64_t n, int32_t next);

#endif
