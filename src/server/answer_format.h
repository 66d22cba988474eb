/* The form that a request wants its answer in: JSON of a schema, a grammar, a call of a tool. */
#ifndef MILKIT_SERVER_ANSWER_FORMAT_H
#define MILKIT_SERVER_ANSWER_FORMAT_H

#include "server/chat_messages.h"

/* Reads "response_format", "json_schema" and "grammar". */
bool format_read(struct ask *a, const struct fields *f) MUST_CHECK;
/* schema NULL: any object. path: what errors call the schema. */
bool format_set_schema(struct ask *a, const cJSON *schema, bool is_strict, const char *path,
                       struct problem *p) MUST_CHECK;
/* Where a call is asked for: the answer becomes one. */
bool format_force_call(struct ask *a, const struct chat_prompt *c, const struct fields *f) MUST_CHECK;
/* Behind which text the grammar holds, by the prompt. */
bool format_begin(struct ask *a, struct problem *p) MUST_CHECK;

#endif
