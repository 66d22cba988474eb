/* One kind of path each: adds its fields to `o`, an object of the caller, and reports the first error. */
#ifndef MILKIT_INSPECT_INSPECT_INTERNAL_H
#define MILKIT_INSPECT_INSPECT_INTERNAL_H

#include "base/file.h"
#include "format/json.h"

/* X.mlpackage, X.mlmodelc, X.mlmodel; and the text of a program alone. */
bool inspect_model(cJSON *o, const char *path, struct err *e) MUST_CHECK;
bool inspect_program_text(cJSON *o, const char *path, struct err *e) MUST_CHECK;
/* A folder with meta.yaml and the models that it names. */
bool inspect_package(cJSON *o, const char *path, struct err *e) MUST_CHECK;

/* A .safetensors file, an index or a checkpoint folder. */
bool inspect_checkpoint(cJSON *o, const char *path, struct err *e) MUST_CHECK;
/* The keys of a GGUF file, strings and arrays by their beginnings, and its tensors. */
bool inspect_gguf(cJSON *o, const char *path, struct err *e) MUST_CHECK;
bool inspect_weight_file(cJSON *o, const char *path, struct err *e) MUST_CHECK;
bool inspect_tokenizer(cJSON *o, const char *path, struct err *e) MUST_CHECK;
bool inspect_meta(cJSON *o, const char *path, struct err *e) MUST_CHECK;

/* Adds count and bytes under o[list][name]. */
void inspect_count(cJSON *o, const char *list, const char *name, int64_t bytes);
cJSON *inspect_dims(const int64_t *dims, int rank);

#endif
