/* A lint report for people, from the object that --json prints. */
#ifndef MILKIT_CLI_LINT_PRINT_H
#define MILKIT_CLI_LINT_PRINT_H

#include <stdio.h>
#include "base/buf.h"
#include "format/json.h"

void lint_print(FILE *f, const cJSON *report);
/* One line: the ids of errors and warnings, and how many notes there are. */
void lint_print_short(struct buf *out, const cJSON *report);

#endif
