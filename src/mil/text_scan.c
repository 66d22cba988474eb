/* The text form, character by character: blanks, punctuation, names, numbers, and the stack of what was read. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/text_reader_internal.h"

bool text_fail(struct text_reader *r, const char *at, enum err_code code, const char *fmt, ...)
{
    char message[512];
    unsigned long line = 1, column = 1;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    for (const char *s = r->begin; s < at; s++) {
        column++;
        if (*s == '\n') {
            line++;
            column = 1;
        }
    }
    return err_set(r->e, code, "%s:%lu:%lu: %s", r->where, line, column, message);
}

char text_peek(struct text_reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r'))
        r->p++;
    return r->p < r->end ? *r->p : '\0';
}

bool text_take(struct text_reader *r, char c)
{
    if (text_peek(r) != c || r->p == r->end)
        return false;
    r->p++;
    return true;
}

void text_describe_next(struct text_reader *r, char dst[48])
{
    unsigned char c = (unsigned char)text_peek(r);

    if (r->p == r->end)
        snprintf(dst, 48, "the end of the text");
    else if (c < 0x20 || c >= 0x7f)
        snprintf(dst, 48, "byte 0x%02x", c);
    else
        snprintf(dst, 48, "'%c'", c);
}

bool text_expect(struct text_reader *r, char c, const char *what)
{
    char next[48];

    if (text_take(r, c))
        return true;
    text_describe_next(r, next);
    return text_fail(r, r->p, ERR_FORMAT, "expected %s, found %s", what, next);
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

struct str text_identifier(struct text_reader *r)
{
    struct str s = {r->p, 0};

    if (!is_name_start(text_peek(r)))
        return s;
    s.p = r->p;
    while (r->p < r->end && (is_name_start(*r->p) || (*r->p >= '0' && *r->p <= '9') || *r->p == '@'))
        r->p++;
    s.n = (size_t)(r->p - s.p);
    return s;
}

bool text_expect_identifier(struct text_reader *r, struct str *out, const char *what)
{
    char next[48];

    *out = text_identifier(r);
    if (out->n > 0)
        return true;
    text_describe_next(r, next);
    return text_fail(r, r->p, ERR_FORMAT, "expected %s, found %s", what, next);
}

bool text_str_is(struct str s, const char *word)
{
    return strlen(word) == s.n && memcmp(s.p, word, s.n) == 0;
}

bool text_unsigned(struct text_reader *r, uint64_t max, uint64_t *v, const char *what)
{
    char next[48];
    const char *first;

    text_peek(r);
    first = r->p;
    for (*v = 0; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
        unsigned digit = (unsigned)(*r->p - '0');
        if (*v > (max - digit) / 10)
            return text_fail(r, first, ERR_LIMIT, "%s is too large", what);
        *v = *v * 10 + digit;
    }
    if (r->p > first)
        return true;
    text_describe_next(r, next);
    return text_fail(r, first, ERR_FORMAT, "expected %s, found %s", what, next);
}

void text_push(struct text_reader *r, void *item)
{
    r->stack = mem_grow(r->stack, r->n_stack, &r->stack_capacity, sizeof *r->stack);
    r->stack[r->n_stack++] = item;
}

bool text_pop(struct text_reader *r, size_t mark, void ***items, int *n)
{
    size_t count = r->n_stack - mark;

    r->n_stack = mark;
    *items = NULL;
    *n = 0;
    if (count > INT_MAX)
        return text_fail(r, r->p, ERR_LIMIT, "a list of %zu items", count);
    if (count == 0)
        return true;
    *items = arena_try_alloc(r->arena, count, sizeof **items, r->e);
    if (!*items)
        return false;
    memcpy(*items, r->stack + mark, count * sizeof **items);
    *n = (int)count;
    return true;
}
