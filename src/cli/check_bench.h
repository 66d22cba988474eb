/* milkit check --bench: how fast a package is, without anything that watches it. */
#ifndef MILKIT_CLI_CHECK_BENCH_H
#define MILKIT_CLI_CHECK_BENCH_H

#include "cli/package_options.h"

struct check_rate {
    double median, slowest, fastest; /* tokens per second */
};

struct check_bench {
    int64_t n_runs;                    /* that were measured, after one that was not */
    int64_t n_prefill, n_decode;       /* tokens of a run */
    struct check_rate prefill, decode; /* of none: not filled */
};

/* The first n_prompt of ids in full batches as far as they go, the rest and n_more behind them one by one. More ids are
 * generated greedily where ids has fewer. */
bool check_bench_run(struct check_bench *b, struct cli *c, const struct package_options *package,
                     struct ids *ids, size_t n_prompt, size_t n_more, struct err *e) MUST_CHECK;
void check_bench_put_text(const struct check_bench *b, struct buf *out);
/* "bench": {...}, with a comma behind */
void check_bench_put_json(const struct check_bench *b, struct buf *out);

#endif
