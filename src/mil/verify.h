/* The second half of mil_verify, in its own file: does the description fit the program? Private to src/mil.
 */
#ifndef MILKIT_MIL_VERIFY_H
#define MILKIT_MIL_VERIFY_H

#include "mil/mil.h"

/* Only for models whose functions are known to be sound. A model under construction without any description
 * passes. */
bool mil_verify_description(const struct mil_model *m, struct err *e) MUST_CHECK;
/* "function <name>: <message>", ERR_FORMAT. */
bool mil_verify_fail(const struct mil_function *f, struct err *e, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
