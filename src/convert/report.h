/* The report of a conversion: JSON for programs, lines for people. Internal to convert. */
#ifndef MILKIT_CONVERT_REPORT_H
#define MILKIT_CONVERT_REPORT_H

#include "convert/parts.h"

/* The tensors that no program took, in groups; heap, NULL for none. */
char *convert_left_out(const struct arch_model *m);
/* One line about a part that is done. */
void convert_report_say(struct log *log, const struct convert_part *p);
/* choices: NULL for one width a part */
bool convert_report_write(const struct convert_options *o, const struct quant_choices *choices,
                          const struct arch_residual *residual, const struct convert_report *r,
                          const struct convert_part *parts, int n_parts, int n_threads,
                          struct err *e) MUST_CHECK;

#endif
