/* Numbers that memory has no room for: a file without a name, which is gone with the process, however that ends. */
#ifndef MILKIT_BASE_SPILL_H
#define MILKIT_BASE_SPILL_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct spill;
/* folder: an existing one, or one that is to be made in an existing one. */
bool spill_open(struct spill **out, const char *folder, struct err *e) MUST_CHECK;
void spill_close(struct spill *s); /* accepts NULL */
/* At any place, in any order; what was never put reads as zeros up to the last place that was. */
bool spill_put(struct spill *s, uint64_t at, const void *data, size_t n, struct err *e) MUST_CHECK;
bool spill_get(const struct spill *s, uint64_t at, void *data, size_t n, struct err *e) MUST_CHECK;

#endif
