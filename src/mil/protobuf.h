/* The protobuf form (model.mlmodel): CoreML.Specification.Model <-> struct mil_model, by protobuf-c over coreml.proto. */
#ifndef MILKIT_MIL_PROTOBUF_H
#define MILKIT_MIL_PROTOBUF_H

#include "base/buf.h"
#include "mil/mil.h"

/* Reads a serialized Model into m (specification_version, description incl. bytes, program). Not an ML Program
 * (neural network, pipeline, ...): ERR_UNSUPPORTED naming the kind. */
bool mil_protobuf_read(struct mil_model *m, const uint8_t *data, size_t bytes, const char *where,
                       struct err *e) MUST_CHECK;
/* Map entries in sorted order, so the same model gives the same bytes. */
bool mil_protobuf_write(const struct mil_model *m, struct buf *out, struct err *e) MUST_CHECK;

/* The description alone, as coremldata.bin holds it. */
bool mil_description_read(struct mil_model *m, const uint8_t *data, size_t bytes, const char *where,
                          struct err *e) MUST_CHECK;
/* m->description.bytes when present, else packed from the struct; metadata (field 100) always present. */
bool mil_description_write(const struct mil_model *m, struct buf *out, struct err *e) MUST_CHECK;

#endif
