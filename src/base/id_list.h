/* Lists of token ids as text: numbers separated by commas or blanks. */
#ifndef MILKIT_BASE_ID_LIST_H
#define MILKIT_BASE_ID_LIST_H

#include <stdint.h>
#include "base/mem.h"

#define ID_LIST_BYTES_MAX ((size_t)64 << 20)

/* At least one, each from 0 on, on the heap. Something else there: an error of the code `fault` that begins with `where`. */
bool id_list_read(const char *text, const char *where, enum err_code fault, int32_t **ids, size_t *n,
                  struct err *e) MUST_CHECK;
/* Every id is one of a vocabulary of this size, else ERR_USAGE. */
bool id_list_check(const int32_t *ids, size_t n, int64_t vocab_size, struct err *e) MUST_CHECK;

#endif
