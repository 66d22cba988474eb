/* Jinja templates as chat templates use them: parse once, render often, within stated limits.
 *
 * The language is that of Jinja2 with the settings of transformers: sandboxed and immutable, trim_blocks and
 * lstrip_blocks on, break and continue, a plain tojson, raise_exception, strftime_now, {% generation %}. Integers beyond
 * 64 bits keep their digits, but there is little arithmetic with them. Templates can't load other templates. docs/templates.md lists what there is.
 *
 * Strings remember which of their bytes came from user data, whatever the template does with them, so the result
 * is a list of parts: text of the template, in which special tokens are meant, and text of users, in which they
 * are not.
 *
 * A parsed template is immutable; several threads may render it at once. Messages name the template, line and column.
 */
#ifndef MILKIT_JINJA_JINJA_H
#define MILKIT_JINJA_JINJA_H

#include "base/buf.h"

#define JINJA_MAX_TEMPLATE_BYTES ((size_t)1 << 20)
#define JINJA_MAX_NESTING 200
#define JINJA_MAX_STEPS 10000000
#define JINJA_MAX_OUTPUT_BYTES ((size_t)64 << 20)
#define JINJA_MAX_ARENA_BYTES ((size_t)256 << 20)

struct jinja_template;

/* where: name of the template for messages. Text must be UTF-8. ERR_FORMAT for bad syntax, ERR_UNSUPPORTED for what the
 * sandbox has no room for (include, extends), ERR_LIMIT. */
bool jinja_parse(struct jinja_template **out, const char *text, size_t bytes, const char *where,
                 struct err *e) MUST_CHECK;
void jinja_free(struct jinja_template *t); /* accepts NULL */

/* A variable of the template, as JSON text (invalid bytes are read as U+FFFD, keys keep their order, 1 and 1.0 are
 * different numbers). name NULL: json is an object, each member of which is a variable. A later variable replaces
 * an earlier one of the same name. */
struct jinja_variable {
    const char *name;
    struct str json;
    bool is_user; /* whether its strings are marked as user data */
    /* Strings at these places that hold a JSON object are replaced by it: keys with dots between, "*" for all items
     * of a list ("*.tool_calls.*.function.arguments"). NULL: none. */
    const char *decode_path;
};

struct jinja_options {
    int64_t now;       /* seconds since 1970 for strftime_now, local time; 0: the clock */
    int64_t max_steps; /* 0: JINJA_MAX_STEPS; the others likewise */
    size_t max_output_bytes;
    size_t max_arena_bytes;
};

struct jinja_part {
    size_t begin, end; /* bytes of text */
    bool is_user;
};

struct jinja_output {
    char *text; /* heap, [bytes + 1] */
    size_t bytes;
    struct jinja_part *parts; /* heap, [n_parts]; together all of text, neighbours differ in is_user */
    size_t n_parts;
    char *raised; /* heap: what the template said with raise_exception when that ended it, else NULL */
};
void jinja_output_free(struct jinja_output *o);

/* options may be NULL. On failure out holds nothing but `raised`; free it in either case. */
bool jinja_render(const struct jinja_template *t, const struct jinja_variable *variables, size_t n,
                  const struct jinja_options *options, struct jinja_output *out, struct err *e) MUST_CHECK;

#endif
