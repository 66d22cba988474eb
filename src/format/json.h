/* JSON on top of cJSON: limits, messages that name the file and key, typed getters.
 *
 * Parsed trees are cJSON's own (free with cJSON_Delete). Objects keep their order; walk them by ->child/->next,
 * cJSON's lookup is linear. Lookups here are case sensitive.
 */
#ifndef MILKIT_FORMAT_JSON_H
#define MILKIT_FORMAT_JSON_H

#include <cjson/cJSON.h>
#include "base/buf.h"

/* where: file name for messages. Refuses trailing garbage, more than 200 levels of nesting, and a NUL byte. */
bool json_parse(cJSON **out, const char *text, size_t bytes, const char *where, struct err *e) MUST_CHECK;
bool json_read_file(cJSON **out, const char *path, size_t max_bytes, struct err *e) MUST_CHECK;

const cJSON *json_get(const cJSON *object, const char *key); /* NULL when absent or object is no object */
/* Getters: absent or null leaves *value as it is and succeeds; another type is ERR_FORMAT "where: key ...: expected
 * integer, found string". */
bool json_get_int(const cJSON *object, const char *key, int64_t *value, const char *where,
                  struct err *e) MUST_CHECK;
bool json_get_double(const cJSON *object, const char *key, double *value, const char *where,
                     struct err *e) MUST_CHECK;
bool json_get_bool(const cJSON *object, const char *key, bool *value, const char *where,
                   struct err *e) MUST_CHECK;
/* borrowed from the tree */
bool json_get_string(const cJSON *object, const char *key, const char **value, const char *where,
                     struct err *e) MUST_CHECK;
/* "string", "object", ... for messages */
const char *json_type_name(const cJSON *item);

/* Writing: appends `"key": `, behind a comma unless the object has just begun. Keys are our own words, never input. */
void json_put_key(struct buf *b, const char *key);
/* Appends a JSON string with quotes and escapes (non-ASCII stays as it is, broken UTF-8 becomes U+FFFD). */
void json_put_string(struct buf *b, const char *s, size_t n);
/* Appends a JSON text that means the same and that a terminal shows as it is: what base/terminal.h holds back becomes
 * \u escapes, broken UTF-8 becomes U+FFFD. */
void json_append_printable(struct buf *out, const char *json, size_t n);
/* Shortest decimal that reads back as the same double; null for NaN and infinities. */
void json_put_double(struct buf *b, double d);

#endif
