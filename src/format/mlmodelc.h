/* The binary files of a compiled bundle X.mlmodelc: coremldata.bin and analytics/coremldata.bin. Format:
 * docs/mlmodelc.md. */
#ifndef MILKIT_FORMAT_MLMODELC_H
#define MILKIT_FORMAT_MLMODELC_H

#include "base/file.h"

struct coremldata {
    int specification_version;
    const uint8_t *description; /* serialized ModelDescription, borrowed from the input, [n_description] */
    size_t n_description;
    /* classifier: the tail as it is, else NULL */
    const uint8_t *tail;
    size_t n_tail;
};
bool coremldata_read(struct coremldata *out, const uint8_t *data, size_t bytes, const char *where,
                     struct err *e) MUST_CHECK;
/* n_functions: entries of the function table (0 counts as 1). */
void coremldata_write(struct buf *out, int specification_version, const void *description,
                      size_t n_description, int n_functions);
/* analytics: hash is base64 of SHA-256 over the whole model.mlmodel. */
void coremldata_write_analytics(struct buf *out, const char *hash, const char *model_name);
void sha256(uint8_t digest[32], const void *data, size_t bytes);
void base64_encode(struct buf *out, const void *data, size_t bytes);

#endif
