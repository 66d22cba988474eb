/* What is in a file or folder of any kind that milkit reads, as one JSON object: a model, a package, a checkpoint, a weight file, a
 * tokenizer, meta.yaml. Nothing is run, and nothing of the weights is read but their headers.
 */
#ifndef MILKIT_INSPECT_INSPECT_H
#define MILKIT_INSPECT_INSPECT_H

#include "format/json.h"

/* Adds to o, an empty object of the caller: "schema" (1), "path", "kind", and what there is. ERR_IO where nothing is there,
 * ERR_FORMAT for what milkit does not read. */
bool inspect_path(cJSON *o, const char *path, struct err *e) MUST_CHECK;
/* The same as text, a heap string. */
bool inspect_text(char **out, const char *path, struct err *e) MUST_CHECK;

#endif
