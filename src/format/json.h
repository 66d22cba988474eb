/* JSON on top of cJSON: limits, messages that name the file and key, typed getters.
 *
 * Parsed trees are cJSON's own (free with cJSON_Delete). Objects keep their order; walk them by ->child/->next,
 * cJSON's lookup is linear. Lookups here are case sensitive.
 */
#ifndef MILKIT_FORMAT_JSON_H
#define MILKIT_FORMAT_JSON_H

#include <cjson/cJSON.h>
#include "base/json_text.h"

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

#endif
