/* The text form of a program (model.mil), read and printed. Grammar and printing rules: docs/mil-text.md. */
#ifndef MILKIT_MIL_TEXT_H
#define MILKIT_MIL_TEXT_H

#include "base/buf.h"
#include "mil/mil.h"

struct mil_text_options {
    /* Added to (or replacing in) buildInfo; NULL: buildInfo is printed as it is. */
    const char *coremlc_component, *coremlc_version;
    /* Add FlexibleShapeInformation to functions whose description has flexible inputs. */
    bool add_flexible_shapes;
};
/* The versions that milkit writes into compiled models. */
#define MIL_COREMLC_COMPONENT "3520.4.1"
#define MIL_COREMLC_VERSION "3520.5.1"

/* Prints the program of m as Apple's compiler does: dialect by specification version, functions and inputs
 * sorted by name, no newline at the end. Nested blocks, and values without a text form, are ERR_UNSUPPORTED.
 */
bool mil_text_write(const struct mil_model *m, const struct mil_text_options *options, struct buf *out,
                    struct err *e) MUST_CHECK;

/* Reads a program into m (arena, program; specification_version is set from the dialect and opsets when it is
 * 0). Attributes that the compiler added (FlexibleShapeInformation, coremlc-*) stay as attributes. Errors
 * name line and column. Limits: nesting 64 levels, 2 GB, counts that fit the text. */
bool mil_text_read(struct mil_model *m, const char *text, size_t bytes, const char *where,
                   struct err *e) MUST_CHECK;

/* Appends a float as the text form prints it: C99 %a of the exact value, normalised ("0x1.8p-3", "-inf"). */
void mil_text_put_float(struct buf *out, double v);

#endif
