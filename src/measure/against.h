/* What the predictions of a package are compared with: another package, or a checkpoint by the float32 reference. */
#ifndef MILKIT_MEASURE_AGAINST_H
#define MILKIT_MEASURE_AGAINST_H

#include "reference/reference.h"
#include "runtime/session.h"

/* Tokens whose logits are held at a time: a batch of most packages. */
#define AGAINST_TOKENS 64

/* Sums over predicted tokens. Top k: the other's best token is among the package's k best. */
struct agreement {
    int64_t n;
    double nll; /* the other's, nats */
    double kl, kl_max, min_cosine;
    int64_t n_not_finite; /* tokens where one side's logits are not: left out */
    int64_t top1, top3, top5;
};

struct against;
/* other: a package, or a checkpoint, of the same vocabulary as m, borrowed; path: what messages call it; contexts of `window`
 * tokens must fit. */
bool against_package(struct against **out, struct model *other, const char *path, const struct model *m,
                     int64_t window, struct err *e) MUST_CHECK;
bool against_checkpoint(struct against **out, struct reference *other, const char *path,
                        const struct model *m, int64_t window, struct err *e) MUST_CHECK;
void against_close(struct against *a); /* accepts NULL */
/* An empty context. */
void against_reset(struct against *a);
/* The logits after each of the next n <= AGAINST_TOKENS tokens. */
bool against_feed(struct against *a, const int32_t *ids, size_t n, struct err *e) MUST_CHECK;
/* The package's logits after token i of the last feed, and the token that follows. */
void against_compare(struct against *a, size_t i, const float *logits, int32_t next);
const struct agreement *against_result(const struct against *a);
/* Negative log likelihood of token `next` under logits, in double. */
double token_nll(const float *logits, int64_t n, int32_t next);

#endif
