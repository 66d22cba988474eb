/* What predict says of a result. */
#ifndef MILKIT_CLI_PREDICT_PRINT_H
#define MILKIT_CLI_PREDICT_PRINT_H

#include <stdbool.h>
#include "milkit.h"

/* seconds [n] of the calls, which are sorted. Names, types and shapes of outputs; of a classifier the label and the likeliest classes (all as JSON). */
void predict_print(const mk_result *r, double *seconds, size_t n, bool as_json);

#endif
