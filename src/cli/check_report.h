/* milkit check: what measure/check.h found out, for people and for programs. */
#ifndef MILKIT_CLI_CHECK_REPORT_H
#define MILKIT_CLI_CHECK_REPORT_H

#include "measure/check.h"
#include "measure/check_bench.h"

struct check_report {
    const struct check *check;
    const char *checkpoint;            /* as the user named it; NULL: nothing was compared */
    const struct tokenizer *tokenizer; /* NULL: the package has none */
    const struct check_bench *bench;   /* NULL: nothing was measured */
    bool is_json, with_layers;
};

/* Prints the report, or the JSON; ERR_MISMATCH when something is outside the limits. */
bool check_report(const struct check_report *o, struct err *e) MUST_CHECK;

/* A line: the worst layer and state. */
void check_report_worst(const struct check_layers_found *l, struct buf *b);
void check_report_layers(const struct check_layers_found *l, struct buf *b);
/* "layers": [...], "states": [...], with a comma behind */
void check_report_layers_json(const struct check_layers_found *l, struct buf *b);

#endif
