/* Numbers of the text form: exact hexadecimal floats, and elements of every type to and from value data. */
#ifndef MILKIT_MIL_TEXT_NUMBER_INTERNAL_H
#define MILKIT_MIL_TEXT_NUMBER_INTERNAL_H

#include "base/buf.h"
#include "mil/mil.h"

/* Reads a number at s (at most n bytes): hexadecimal ("-0x1.8p-3") or decimal ("0.1", "1e-5", "3"), "inf",
 * "nan" with an optional minus. Returns the bytes it took; 0 when there is no number, or a hexadecimal one
 * that a double can't hold exactly. */
size_t text_number_read_float(const char *s, size_t n, double *v);

/* Bits that stand for v in a float type, rounded once; false when a finite v does not fit. */
bool text_number_encode_float(enum mil_dtype d, double v, uint64_t *bits);
double text_number_decode_float(enum mil_dtype d, uint64_t bits);

/* Bits of element i: data is little endian, types below 8 bits are packed lowest bit first, a bool is one
 * byte. */
uint64_t text_number_load(const uint8_t *data, enum mil_dtype d, int64_t i);

/* The range of an integer type: low <= 0, so that both ends fit their C types. */
void text_number_range(enum mil_dtype d, int64_t *low, uint64_t *high);
/* Bits of an integer type as a signed value (only for signed types). */
int64_t text_number_sign_extend(enum mil_dtype d, uint64_t bits);
bool text_number_is_signed(enum mil_dtype d);

#endif
