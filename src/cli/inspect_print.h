/* milkit inspect: the report for people. */
#ifndef MILKIT_CLI_INSPECT_PRINT_H
#define MILKIT_CLI_INSPECT_PRINT_H

#include <stdio.h>
#include "format/json.h"

/* Of an object that inspect_path has filled. Control characters of names are not printed as they are. */
void inspect_print(FILE *f, const cJSON *o);

#endif
