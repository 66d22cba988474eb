/* milkit check: what cmd_check.c finds out and check_report.c says about it. */
#ifndef MILKIT_CLI_CHECK_H
#define MILKIT_CLI_CHECK_H

#include "cli/check_bench.h"
#include "cli/check_layers.h"
#include "measure/check_limits.h"
#include "cli/prompt.h"
#include "measure/compare.h"

struct position {
    int64_t position;
    int32_t token; /* the input */
    struct logits_difference d;
};

struct summary {
    double min_cosine, mean_cosine, mean_kl, max_kl, max_difference;
    int64_t n_not_finite; /* positions where the package's logits are not; the means leave them out */
    int64_t n_counted, n_agreed;
};

/* A form of the package against the reference. */
struct side {
    const char *form;
    struct position *positions; /* [n_positions] */
    struct summary summary;
};

struct check {
    struct package_options package;
    const char *checkpoint;
    struct prompt_options prompt;
    int64_t n;
    bool json, bench, plan, with_layers;
    struct check_limits limits;
    /* made on the way */
    struct cli *cli;
    struct log quiet;                  /* for a package that is opened again: its warnings were said */
    struct model *model, *other_model; /* NULL: there is one form only */
    struct reference *reference;       /* NULL: nothing is compared */
    struct tokenizer *tokenizer;       /* NULL: the package has none */
    struct ids ids;                    /* the prompt, then what was generated */
    size_t n_prompt;
    struct side sides[2]; /* [n_sides] */
    int n_sides;
    int64_t n_positions, n_same; /* n_same: where the logits of both forms have the same bits */
    struct check_bench measured;
    struct check_layers *layers;
};

/* Prints the report, or the JSON; ERR_MISMATCH when something is outside the limits. */
bool check_report(const struct check *k, struct err *e) MUST_CHECK;

#endif
