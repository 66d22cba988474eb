/* The folder X.mlpackage: Manifest.json and where the model file lies. Format: docs/mlpackage.md. */
#ifndef MILKIT_FORMAT_MLPACKAGE_H
#define MILKIT_FORMAT_MLPACKAGE_H

#include "base/file.h"

/* What a path is, by looking at it: */
enum model_path_kind {
    MODEL_PATH_NONE,
    MODEL_PATH_MLPACKAGE,
    MODEL_PATH_MLMODELC,
    MODEL_PATH_MLMODEL,
    MODEL_PATH_MIL
};
/* By the folder's content (Manifest.json; coremldata.bin or model.mil), not by its name. */
enum model_path_kind model_path_kind(const char *path);

/* Heap strings: the model file and the folder that @model_path means. Checks the manifest: version, root
 * identifier, paths inside the package. */
bool mlpackage_locate(const char *path, char **model_file, char **root, struct err *e) MUST_CHECK;
/* Manifest.json for a package with (or without) a weights folder. UUIDs are derived from seed (name-based, so output is
 * reproducible). */
void mlpackage_manifest(struct buf *out, bool has_weights, const void *seed, size_t seed_bytes);

#endif
