/* Writing the JSON of answers: compact, as the original servers write it. */
#ifndef MILKIT_SERVER_PUT_H
#define MILKIT_SERVER_PUT_H

#include <string.h>
#include "base/json_text.h"

/* `"key":`, behind a comma unless the object has just begun. */
static inline void put_key(struct buf *b, const char *key)
{
    if (b->n > 0 && b->p[b->n - 1] != '{')
        buf_putc(b, ',');
    buf_printf(b, "\"%s\":", key);
}

static inline void put_string(struct buf *b, const char *text)
{
    json_put_string(b, text, strlen(text));
}

static inline void put_key_string(struct buf *b, const char *key, const char *text)
{
    put_key(b, key);
    put_string(b, text);
}

static inline void put_key_text(struct buf *b, const char *key, const char *text, size_t n)
{
    put_key(b, key);
    json_put_string(b, text, n);
}

static inline void put_key_int(struct buf *b, const char *key, long long value)
{
    put_key(b, key);
    buf_printf(b, "%lld", value);
}

static inline void put_key_number(struct buf *b, const char *key, double value)
{
    put_key(b, key);
    json_put_double(b, value);
}

/* Members of a tool call: "type" and "function" with these two; arguments: JSON in a string. */
static inline void put_function(struct buf *b, const char *name, const char *arguments)
{
    put_key_string(b, "type", "function");
    put_key(b, "function");
    buf_puts(b, "{");
    put_key_string(b, "name", name);
    put_key_string(b, "arguments", arguments);
    buf_puts(b, "}");
}

/* JSON as it stands. */
static inline void put_key_raw(struct buf *b, const char *key, const char *json)
{
    put_key(b, key);
    buf_puts(b, json);
}

#endif
