/* Fields of a request, read strictly: a value of another type or out of its range is a problem that names the field. null is as good as
 * absent: the value stays as it is.
 */
#ifndef MILKIT_SERVER_FIELDS_H
#define MILKIT_SERVER_FIELDS_H

#include "format/json.h"
#include "server/problem.h"

/* A body as an object: UTF-8, nesting of at most 64 levels. */
bool body_parse(cJSON **out, struct str body, struct problem *p) MUST_CHECK;

/* An object, and what errors call it: "" at the top, "messages[2]" within. */
struct fields {
    const cJSON *object;
    const char *path;
    struct problem *problem;
};
/* NULL when absent or null. */
const cJSON *fields_get(const struct fields *f, const char *key);
/* "messages[2].content" */
void fields_path(const struct fields *f, const char *key, char *out, size_t n);
bool fields_int(const struct fields *f, const char *key, int64_t *value, int64_t least,
                int64_t most) MUST_CHECK;
bool fields_number(const struct fields *f, const char *key, double *value, double least,
                   double most) MUST_CHECK;
bool fields_bool(const struct fields *f, const char *key, bool *value) MUST_CHECK;
bool fields_string(const struct fields *f, const char *key, const char **value) MUST_CHECK;
/* The item itself, which must be of cJSON's type (cJSON_Array, ..). */
bool fields_item(const struct fields *f, const char *key, int type, const cJSON **value) MUST_CHECK;
/* "expected X, found Y" about a field */
bool fields_fail(const struct fields *f, const char *key, const char *expected, const cJSON *found);

/* The text of a member as it stands in the JSON object: key order and forms of numbers included. False: absent. */
bool json_slice(struct str object, const char *key, struct str *value);

#endif
