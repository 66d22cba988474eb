/* The bytes of every token of a package, read when they are first wanted. */
#ifndef MILKIT_SERVER_VOCABULARY_BYTES_H
#define MILKIT_SERVER_VOCABULARY_BYTES_H

#include "base/buf.h"
#include "milkit.h"

struct vocabulary_bytes;
/* Immutable once made. NULL when the package has no tokenizer. */
struct vocabulary_bytes *vocabulary_bytes_new(const mk_package *p);
void vocabulary_bytes_free(struct vocabulary_bytes *v); /* accepts NULL */
/* Of an id of the package's model; empty for special tokens. */
struct str vocabulary_bytes_of(const struct vocabulary_bytes *v, int32_t id);
/* The name of a special token; empty for others. */
struct str vocabulary_bytes_special(const struct vocabulary_bytes *v, int32_t id);
int32_t vocabulary_bytes_count(const struct vocabulary_bytes *v);

#endif
