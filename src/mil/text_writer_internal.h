/* Inside the printer of the text form: what programs (text_write.c) need of types and values
 * (text_write_value.c).
 *
 * Functions that return false have filled the error. A buffer that is full shows at the end (buf.failed).
 */
#ifndef MILKIT_MIL_TEXT_WRITER_INTERNAL_H
#define MILKIT_MIL_TEXT_WRITER_INTERNAL_H

#include "base/buf.h"
#include "mil/mil.h"

struct text_writer {
    struct buf *out;
    struct err *e;
    bool bare_scalars; /* dialect 1.3: "fp16", not "tensor<fp16, []>" */
    int depth;
};

bool text_put_name(struct text_writer *w, const char *name) MUST_CHECK;
void text_put_signed(struct buf *out, int64_t v);
void text_put_string(struct buf *out, const char *s, size_t n);
void text_put_scalar(struct text_writer *w, enum mil_dtype d); /* the type of a scalar */
bool text_put_type(struct text_writer *w, const struct mil_type *t) MUST_CHECK;
bool text_put_value(struct text_writer *w, const struct mil_value *v) MUST_CHECK;

#endif
