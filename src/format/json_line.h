/* JSON whose strings may hold any text, U+0000 included: lines that carry users' text to a command and back.
 *
 * json_parse refuses U+0000, since cJSON's strings end there. Here the escape \u0000 travels through cJSON as the
 * bytes C0 80, which no well-formed text holds, and json_line_string turns them back.
 */
#ifndef MILKIT_FORMAT_JSON_LINE_H
#define MILKIT_FORMAT_JSON_LINE_H

#include "format/json.h"

/* Like json_parse; bytes that are not UTF-8 are read as U+FFFD. */
bool json_line_parse(cJSON **out, const char *text, size_t bytes, const char *where,
                     struct err *e) MUST_CHECK;
/* Appends the text of a string item. */
void json_line_string(struct buf *out, const cJSON *item);

#endif
