/* A JSON schema as a grammar (server/grammar.h): the texts that the grammar takes are the JSON values that the schema takes, keys in its order,
 * those that are required first, blanks in bounds. What can't be said in a grammar is refused, or ignored where the request says that it is not
 * strict. Schemas are never loaded from elsewhere.
 */
#ifndef MILKIT_SERVER_SCHEMA_GRAMMAR_H
#define MILKIT_SERVER_SCHEMA_GRAMMAR_H

#include "base/buf.h"
#include "format/json.h"

/* schema NULL: any JSON object. Appends GBNF to out, whose root stands between two texts. ERR_FORMAT names the path and the keyword. */
bool schema_grammar(struct buf *out, const cJSON *schema, bool is_strict, const char *before,
                    const char *after, struct err *e) MUST_CHECK;
/* A pattern "^..$" as the expression of a JSON string's inside. */
bool schema_pattern(struct buf *out, const char *pattern, const char *path, struct err *e) MUST_CHECK;
/* Whole numbers from low to high. */
void schema_integers(struct buf *out, int64_t low, int64_t high);

#endif
