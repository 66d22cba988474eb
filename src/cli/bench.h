/* milkit bench in parts: rows and their formats (bench_print.c), comparing with results of llama-bench (bench_compare.c).
 */
#ifndef MILKIT_CLI_BENCH_H
#define MILKIT_CLI_BENCH_H

#include "base/buf.h"
#include "cli/cli.h"

enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL, BENCH_SQL, BENCH_NONE };
/* "md", ..; "none" writes nothing. ERR_USAGE for another name. */
bool bench_format_find(const char *name, const char *option, enum bench_format *out,
                       struct err *e) MUST_CHECK;

enum bench_field {
#define BENCH_FIELD(name, kind) BENCH_##name,
#define BENCH_LAST
#include "cli/bench_fields.def"
#undef BENCH_FIELD
#undef BENCH_LAST
    BENCH_FIELDS
};

/* A result. Fields that are not set are empty: "" or, of numbers, null (in CSV and SQL ""). */
struct bench_row {
    char *fields[BENCH_FIELDS]; /* heap */
    int64_t n_samples;
    const double *seconds; /* [n_samples]; borrowed */
};
void bench_put_text(struct bench_row *r, enum bench_field f, const char *text);
void bench_put_int(struct bench_row *r, enum bench_field f, int64_t value);
void bench_put_real(struct bench_row *r, enum bench_field f, double value); /* not finite: left empty */
void bench_row_free(struct bench_row *r);
/* All rates of the row's n_prompt, n_gen and samples. */
void bench_put_rates(struct bench_row *r);
/* "pp512", "tg128 @ d4096", "pp512+tg128" */
void bench_test_name(char dst[96], int64_t n_prompt, int64_t n_gen, int64_t n_depth);

/* One stream of rows; each row is flushed, so that a run that is stopped keeps what it has. */
struct bench_output {
    FILE *stream;
    enum bench_format format;
    bool is_plain; /* md: llama-bench's columns only */
    bool is_begun; /* with the first row: what fails before it prints nothing */
    int64_t n_rows;
};
void bench_put_row(struct bench_output *o, const struct bench_row *r);
void bench_end(struct bench_output *o, const char *build); /* build: for the last line of md */

/* Results: rows of files that llama-bench or milkit bench wrote as JSON or JSONL. Rows of one model, number of threads
 * and test are put together, so runs in turns can be appended to one file. */
struct bench_results;
struct bench_results *bench_results_new(void);
void bench_results_free(struct bench_results *r);
bool bench_results_read(struct bench_results *r, const char *path, struct err *e) MUST_CHECK;
void bench_results_add(struct bench_results *r, const struct bench_row *row);
/* A line for each pair of rows of the same test and number of threads: the ratio of medians and its 95 % interval, in md or
 * JSON. *n_pairs: how many there were. */
void bench_compare(const struct bench_results *ours, const struct bench_results *others, bool as_json,
                   FILE *out, int64_t *n_pairs);

#endif
