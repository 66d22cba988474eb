/* Shared by the files of the protobuf form: the checked unpacking, and the tables between Core ML's numbers
 * and ours. */
#ifndef MILKIT_MIL_PROTOBUF_INTERNAL_H
#define MILKIT_MIL_PROTOBUF_INTERNAL_H

#include "coreml.pb-c.h"
#include "base/buf.h"
#include "mil/mil.h"

/* Unpacks a message whose whole wire form was checked first: lengths, depth, texts. The message and all in it
 * live in *arena (made here, freed by the caller in every case), whose size is bounded by a multiple of the
 * input's. */
bool wire_unpack(ProtobufCMessage **out, struct arena **arena, const ProtobufCMessageDescriptor *d,
                 const uint8_t *data, size_t bytes, const char *where, struct err *e) MUST_CHECK;
/* Appends the packed message. */
bool wire_pack(const ProtobufCMessage *message, struct buf *out, struct err *e) MUST_CHECK;
/* Field number of the next field of a message at *offset, which moves behind it; 0 at the end, or
 * when it is damaged (then *offset stays). */
uint32_t wire_next_field(const uint8_t *data, size_t bytes, size_t *offset);

/* An element type in a program. 0 or MIL_DTYPE_NONE when unknown. */
enum mil_dtype dtype_from_protobuf(int number);
int dtype_to_protobuf(enum mil_dtype d);

/* Where the elements of an immediate tensor are kept: a number of the oneof in TensorValue. */
MilkitPb__TensorValue__ValueCase immediate_field(enum mil_dtype d);

/* What reading a program needs at hand. */
struct protobuf_reader {
    struct mil_model *model;
    struct arena *arena; /* the model's */
    struct table *blobs; /* "offset:type:file" -> shared struct mil_value */
    int n_vars;          /* of the function being read */
    struct err *e;
};
/* NULL on error. depth: 0 from outside. */
const struct mil_type *protobuf_type_read(struct protobuf_reader *r, const MilkitPb__ValueType *p, int depth);
const struct mil_value *protobuf_value_read(struct protobuf_reader *r, const MilkitPb__Value *p, int depth);

/* Fills m->description; d is packed again to description.bytes. */
bool description_from_message(struct mil_model *m, MilkitPb__Description *d, const char *where,
                              struct err *e) MUST_CHECK;
/* "a neural network" for a field number of Core ML's Model; NULL when unknown. */
const char *model_kind_name(uint32_t field);

#endif
