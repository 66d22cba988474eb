/* milkit check: what measure/check.h found out, for people and for programs. */
#ifndef MILKIT_CLI_CHECK_REPORT_H
#define MILKIT_CLI_CHECK_REPORT_H

#include "measure/check_json.h"

struct check_report {
    struct check_json found;
    const char *beside; /* lines to be shown with what --bench measured; "" for none */
    bool is_json;
};

/* Prints the report, or the JSON; ERR_MISMATCH when something is outside the limits. */
bool check_report(const struct check_report *o, struct err *e) MUST_CHECK;

/* A line: the worst layer and state. */
void check_report_worst(const struct check_layers_found *l, struct buf *b);
void check_report_layers(const struct check_layers_found *l, struct buf *b);

#endif
