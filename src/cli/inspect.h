/* What milkit inspect finds out about a path: one JSON object a thing, from which the report is printed too.
 *
 * Every function adds its fields to `o`, an object of the caller, and reports the first error.
 */
#ifndef MILKIT_CLI_INSPECT_H
#define MILKIT_CLI_INSPECT_H

#include <stdio.h>
#include "base/file.h"
#include "format/json.h"

/* X.mlpackage, X.mlmodelc, X.mlmodel; and the text of a program alone. */
bool inspect_model(cJSON *o, const char *path, struct err *e) MUST_CHECK;
bool inspect_program_text(cJSON *o, const char *path, struct err *e) MUST_CHECK;
/* A folder with meta.yaml and the models that it names. */
bool inspect_package(cJSON *o, const char *path, struct err *e) MUST_CHECK;

/* A .safetensors file, an index or a checkpoint folder. */
bool inspect_checkpoint(cJSON *o, const char *path, struct err *e) MUST_CHECK;
bool inspect_weight_file(cJSON *o, const char *path, struct err *e) MUST_CHECK;
bool inspect_tokenizer(cJSON *o, const char *path, struct err *e) MUST_CHECK;
bool inspect_meta(cJSON *o, const char *path, struct err *e) MUST_CHECK;

/* The report for people, of an object that one of the above filled. Control characters of names are not
 * printed as they are. */
void inspect_print(FILE *f, const cJSON *o);

/* Adds count and bytes under o[list][name]. */
void inspect_count(cJSON *o, const char *list, const char *name, int64_t bytes);
cJSON *inspect_dims(const int64_t *dims, int rank);

#endif
