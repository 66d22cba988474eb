/* Writing models to disk: the source form (.mlpackage) and the compiled one (.mlmodelc), and metadata.json.
 */
#ifndef MILKIT_MIL_COMPILED_H
#define MILKIT_MIL_COMPILED_H

#include "base/file.h"
#include "mil/mil.h"

/* metadata.json of a compiled bundle. class_name: base name of the compiled file without extension. */
bool mil_metadata_write(const struct mil_model *m, const char *class_name, struct buf *out,
                        struct err *e) MUST_CHECK;

/* Writes the files of a bundle into an existing empty folder. All blob values must have file and offset set
 * already; weight files are not touched. mlmodel bytes (for the analytics hash): NULL -> packed from m. */
bool mil_write_mlmodelc_files(const struct mil_model *m, const char *folder, const char *class_name,
                              const void *mlmodel, size_t mlmodel_bytes, struct err *e) MUST_CHECK;
/* Manifest.json and Data/com.apple.CoreML/model.mlmodel into an existing empty folder; the weights file, if
 * any, is Data/com.apple.CoreML/weights/weight.bin, written by the caller before or after. */
bool mil_write_mlpackage_files(const struct mil_model *m, const char *folder, bool has_weights,
                               struct err *e) MUST_CHECK;

/* milkit compile: X.mlpackage (or X.mlmodel with weights beside it) -> out (atomic; an existing one is
 * refused unless replace). Weight files are copied. */
bool mil_compile(const char *path, const char *out, bool replace, struct err *e) MUST_CHECK;
/* The same with the compiler versions to be printed; NULL: MIL_COREMLC_COMPONENT and MIL_COREMLC_VERSION. */
struct mil_text_options;
bool mil_compile_as(const char *path, const char *out, bool replace, const struct mil_text_options *versions,
                    struct err *e) MUST_CHECK;

#endif
