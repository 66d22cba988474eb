/* What differs between two models: metadata, functions with their inputs and outputs, operations, weights. */
#ifndef MILKIT_INSPECT_DIFF_H
#define MILKIT_INSPECT_DIFF_H

#include "format/json.h"

/* Adds to o, an empty object of the caller: "schema" (1), "a" and "b" (paths), "same", and lists of what differs, by what it is of: "metadata", "functions",
 * "operations" (one entry a type of operation and function), "weights" (those of a weight file, by the variable that they are). Nothing is run. */
bool inspect_diff(cJSON *o, const char *a, const char *b, struct err *e) MUST_CHECK;

#endif
