/* How fast a package is: tests of a prompt, of single tokens and of both behind a context of some depth, as llama-bench
 * means them (random ids, no sampling; the context is made outside of the clock), beside what the machine gives.
 */
#ifndef MILKIT_MEASURE_SPEED_H
#define MILKIT_MEASURE_SPEED_H

#include "runtime/session.h"

/* What a package holds and what a token needs of it. */
struct speed_weights {
    int64_t n_params;      /* a head that the checkpoint ties to the embeddings is not counted */
    uint64_t bytes;        /* of all weights with their tables, each once */
    uint64_t token_bytes;  /* that a single token reads; 0: not known (experts) */
    double chunk_products; /* multiplications of a token by weights of the chunks; 0: not known (experts) */
    double head_products;  /* by those of the head */
    bool is_fixed;         /* the chunks' are palettes or integers */
};
void speed_weights_of(struct speed_weights *out, const struct model *m);

struct speed_test {
    int64_t n_prompt, n_gen, n_depth; /* tokens of a batch, then one by one, behind this many */
};

struct speed_options {
    int64_t n_runs;
    double delay_seconds;    /* before the test */
    bool is_warm;            /* nothing is run before the first measured run */
    bool with_choice;        /* the best token is looked for behind each single token */
    bool with_made_up_depth; /* the context's states are random numbers instead of computed ones */
    struct log *log;
};

struct speed {
    int64_t n_runs;
    double *seconds;              /* [n_runs] */
    double read_bytes_per_second; /* of the same bytes by a plain read, median; 0: not measured */
    double needed_bytes;        /* of a single token: weights and the rows of the caches in use; 0 likewise */
    double products_per_second; /* peak; 0: not known */
    double products;            /* of a run: of the prompt by weights */
    const char *instruction;    /* of that peak */
};

/* ERR_LIMIT where the context does not hold the test: before anything is run. */
bool speed_test_fits(const struct model *m, const struct speed_test *t, struct err *e) MUST_CHECK;
bool speed_measure(struct speed *out, struct session *s, const struct model *m, const struct speed_weights *w,
                   const struct speed_test *t, const struct speed_options *o, struct err *e) MUST_CHECK;
void speed_free(struct speed *s); /* what it holds */

/* Of samples [n] in any order; NAN of none. deviation: with n - 1, 0 of one. */
double speed_mean(const double *samples, int64_t n);
double speed_deviation(const double *samples, int64_t n);
double speed_quantile(const double *samples, int64_t n, double q);
/* The middle 95 % of the ratio of medians a / b when both are drawn again from their samples, 2000 times, always with the same
 * draws; NAN where one of them has a single sample. */
void speed_ratio_range(const double *a, int64_t n_a, const double *b, int64_t n_b, double *low, double *high);

#endif
