/* How fast a package is, without anything that watches it. */
#ifndef MILKIT_MEASURE_CHECK_BENCH_H
#define MILKIT_MEASURE_CHECK_BENCH_H

#include "runtime/session.h"

struct check_rate {
    double median, slowest, fastest; /* tokens per second */
};

struct check_bench {
    int64_t n_runs;                    /* that were measured, after one that was not */
    int64_t n_prefill, n_decode;       /* tokens of a run */
    struct check_rate prefill, decode; /* of none: not filled */
};

/* The first n_prompt of ids in full batches as far as they go, the rest and n_more behind them one by one. More ids are
 * generated greedily where ids has fewer. n_runs is given. */
bool check_bench_run(struct check_bench *b, struct model *m, struct log *log, struct ids *ids,
                     size_t n_prompt, size_t n_more, struct err *e) MUST_CHECK;

#endif
