/* Quantized weights in place of the checkpoint's numbers, for the reference. */
#ifndef MILKIT_MEASURE_REPLACED_H
#define MILKIT_MEASURE_REPLACED_H

#include "quant/quant.h"
#include "reference/reference.h"

struct replaced;
struct replaced *replaced_new(void);
void replaced_free(struct replaced *r); /* accepts NULL */
/* The weight's numbers come from codes, packed or one a byte, and its tables, which live as long. ERR_BUG: the weight is not
 * made of a tensor's numbers. */
bool replaced_add(struct replaced *r, const struct quant_weight *w, const uint8_t *codes, bool is_packed,
                  const f16 *tables, struct err *e) MUST_CHECK;
void replaced_clear(struct replaced *r);
/* Until the next call of replaced_add or replaced_clear. */
struct reference_replacement replaced_numbers(struct replaced *r);

#endif
