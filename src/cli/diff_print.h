/* What `inspect --diff` found, as lines of text. */
#ifndef MILKIT_CLI_DIFF_PRINT_H
#define MILKIT_CLI_DIFF_PRINT_H

#include <stdio.h>
#include "inspect/diff.h"

void diff_print(FILE *f, const cJSON *o);

#endif
