/* Writing JSON into a buffer. Reading is format/json.h. */
#ifndef MILKIT_BASE_JSON_TEXT_H
#define MILKIT_BASE_JSON_TEXT_H

#include "base/buf.h"

/* Appends `"key": `, behind a comma unless the object has just begun. Keys are our own words, never input. */
void json_put_key(struct buf *b, const char *key);
/* Appends a JSON string with quotes and escapes (non-ASCII stays as it is, broken UTF-8 becomes U+FFFD). */
void json_put_string(struct buf *b, const char *s, size_t n);
/* Appends a JSON text that means the same and that a terminal shows as it is: what base/terminal.h holds back becomes
 * \u escapes, broken UTF-8 becomes U+FFFD. */
void json_append_printable(struct buf *out, const char *json, size_t n);
/* Shortest decimal that reads back as the same double; null for NaN and infinities. */
void json_put_double(struct buf *b, double d);
/* [1, 2, 3] */
void json_put_ids(struct buf *b, const int32_t *ids, size_t n);

#endif
