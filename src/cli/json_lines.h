/* --jsonl: one JSON object a line in, one out, each at once: the other end may wait for it before it writes the next. */
#ifndef MILKIT_CLI_JSON_LINES_H
#define MILKIT_CLI_JSON_LINES_H

#include "base/buf.h"
#include "cli/cli.h"

#define JSON_LINE_BYTES_MAX ((size_t)1 << 30)

/* Appends the answer to a line [n], with its newline. False ends the command (e filled, without the line's number). */
typedef bool (*json_line_fn)(void *context, const char *line, size_t n, struct buf *out, struct err *e);
/* Until stdin ends or the user asks to stop; blank lines are left out. */
bool json_lines_answer(struct cli *c, json_line_fn answer, void *context, struct err *e) MUST_CHECK;

/* A line as an object; strings may hold U+0000. */
struct json_object;
bool json_object_read(struct json_object **out, const char *line, size_t n, const char *where,
                      struct err *e) MUST_CHECK;
void json_object_free(struct json_object *o); /* accepts NULL */
/* Appends the string of that key; false: there is none. */
bool json_object_text(const struct json_object *o, const char *key, struct buf *out);
bool json_object_has_list(const struct json_object *o, const char *key);
/* Token ids of a list, on the heap. */
bool json_object_ids(const struct json_object *o, const char *key, int32_t **ids, size_t *n,
                     struct err *e) MUST_CHECK;
/* "object", "array", ..: what the line holds */
const char *json_object_type(const struct json_object *o);

#endif
