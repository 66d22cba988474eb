/* Strings that know which of their bytes came from user data, and the builders that make them. */
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

/* --- builders --- */

struct builder *builder_begin(struct jinja *j)
{
    struct builder *b = xcalloc(1, sizeof *b);
    b->below = j->builders;
    j->builders = b;
    return b;
}

static void builder_free(struct jinja *j, struct builder *b)
{
    j->builder_bytes -= b->capacity + b->marks_capacity * sizeof *b->marks;
    free(b->p);
    free(b->marks);
    free(b);
}

void jinja_free_builders(struct jinja *j)
{
    while (j->builders) {
        struct builder *b = j->builders;
        j->builders = b->below;
        builder_free(j, b);
    }
}

/* The capacity for n items of `bytes` bytes, within what all builders together may have. */
static size_t grown(struct jinja *j, size_t capacity, size_t n, size_t bytes)
{
    size_t wanted = MEM_GROWN(capacity, 64);
    while (wanted < n)
        wanted *= 2;
    size_t more = (wanted - capacity) * bytes;
    if (j->builder_bytes + more > j->max_builder_bytes)
        jinja_fail(j, ERR_LIMIT, "more than %zu MiB of text under construction", j->max_builder_bytes >> 20);
    j->builder_bytes += more;
    return wanted;
}

void builder_put(struct jinja *j, struct builder *b, const char *p, size_t n, bool is_user)
{
    if (n == 0)
        return;
    if (n > j->max_output_bytes - b->n)
        jinja_fail(j, ERR_LIMIT, "a text of more than %zu bytes", j->max_output_bytes);
    jinja_charge_bytes(j, n);
    if (b->n + n > b->capacity) {
        b->capacity = grown(j, b->capacity, b->n + n, 1);
        b->p = xrealloc(b->p, b->capacity);
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
    if (b->n_marks == 0 || b->marks[b->n_marks - 1].is_user != is_user) {
        if (b->n_marks == b->marks_capacity) {
            b->marks_capacity = grown(j, b->marks_capacity, b->n_marks + 1, sizeof *b->marks);
            b->marks = xrealloc(b->marks, b->marks_capacity * sizeof *b->marks);
        }
        b->marks[b->n_marks++].is_user = is_user;
    }
    b->marks[b->n_marks - 1].end = (uint32_t)b->n;
}

void builder_puts(struct jinja *j, struct builder *b, const char *s)
{
    builder_put(j, b, s, strlen(s), false);
}

void builder_put_char(struct jinja *j, struct builder *b, uint32_t cp, bool is_user)
{
    char bytes[4];
    if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        cp = 0xfffd;
    builder_put(j, b, bytes, utf8_put(bytes, cp), is_user);
}

void builder_put_range(struct jinja *j, struct builder *b, const struct text *t, size_t begin, size_t end)
{
    if (!t->marks) {
        builder_put(j, b, t->p + begin, end - begin, t->is_user);
        return;
    }
    size_t stop;
    bool is_user;
    for (size_t at = begin; at < end && text_run(t, at, &stop, &is_user); at = stop) {
        if (stop > end)
            stop = end;
        builder_put(j, b, t->p + at, stop - at, is_user);
    }
}

void builder_put_text(struct jinja *j, struct builder *b, const struct text *t)
{
    builder_put_range(j, b, t, 0, t->n);
}

struct value builder_finish(struct jinja *j, struct builder *b)
{
    struct text *t = JINJA_NEW(j, struct text);
    char *p = jinja_alloc(j, b->n + 1, 1);
    if (b->n > 0)
        memcpy(p, b->p, b->n);
    t->p = p;
    t->n = (uint32_t)b->n;
    t->n_chars = (uint32_t)text_chars(p, b->n);
    t->is_user = b->n_marks > 0 && b->marks[0].is_user;
    if (b->n_marks > 1) {
        struct mark *marks = jinja_alloc(j, b->n_marks, sizeof *marks);
        memcpy(marks, b->marks, b->n_marks * sizeof *marks);
        t->marks = marks;
        t->n_marks = (uint32_t)b->n_marks;
    }
    j->builders = b->below;
    builder_free(j, b);
    return text_value(t);
}

/* --- strings --- */

size_t text_chars(const char *p, size_t n)
{
    size_t n_chars = 0;
    for (size_t i = 0; i < n; i++)
        n_chars += ((unsigned char)p[i] & 0xc0) != 0x80;
    return n_chars;
}

struct value text_value(const struct text *t)
{
    return (struct value){.type = VALUE_STRING, .text = t};
}

struct value text_wrap(struct jinja *j, const char *p, size_t n, bool is_user)
{
    if (n > j->max_output_bytes)
        jinja_fail(j, ERR_LIMIT, "a text of more than %zu bytes", j->max_output_bytes);
    struct text *t = JINJA_NEW(j, struct text);
    jinja_charge(j, n);
    t->p = p;
    t->n = (uint32_t)n;
    t->n_chars = (uint32_t)text_chars(p, n);
    t->is_user = is_user;
    return text_value(t);
}

struct value text_printf(struct jinja *j, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    char *p = jinja_alloc(j, length + 1, 1);
    memcpy(p, line, length);
    return text_wrap(j, p, length, false);
}

/* Index of the mark that holds byte `at` (at < t->n). */
static uint32_t find_mark(const struct text *t, size_t at)
{
    uint32_t low = 0, high = t->n_marks - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->marks[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool text_run(const struct text *t, size_t at, size_t *end, bool *is_user)
{
    if (at >= t->n)
        return false;
    *end = t->n;
    *is_user = t->is_user;
    if (t->marks) {
        uint32_t i = find_mark(t, at);
        *end = t->marks[i].end;
        *is_user = t->marks[i].is_user;
    }
    return true;
}

bool text_is_user_at(const struct text *t, size_t at)
{
    size_t end;
    bool is_user = t->is_user;
    (void)text_run(t, at, &end, &is_user);
    return is_user;
}

const struct text *text_slice(struct jinja *j, const struct text *t, size_t begin, size_t end)
{
    if (begin == 0 && end == t->n)
        return t;
    struct text *s = JINJA_NEW(j, struct text);
    jinja_charge(j, end - begin);
    s->p = t->p + begin;
    s->n = (uint32_t)(end - begin);
    s->n_chars = t->n == t->n_chars ? s->n : (uint32_t)text_chars(s->p, s->n);
    s->is_markup = t->is_markup;
    s->is_user = t->is_user;
    if (!t->marks || s->n == 0)
        return s;
    uint32_t first = find_mark(t, begin), last = find_mark(t, end - 1);
    s->is_user = t->marks[first].is_user;
    if (first == last)
        return s;
    struct mark *marks = jinja_alloc(j, last - first + 1, sizeof *marks);
    for (uint32_t i = first; i <= last; i++) {
        marks[i - first] = t->marks[i];
        marks[i - first].end = (uint32_t)((t->marks[i].end < end ? t->marks[i].end : end) - begin);
    }
    s->marks = marks;
    s->n_marks = last - first + 1;
    return s;
}

bool text_equal(const struct text *a, const struct text *b)
{
    return a == b || (a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0));
}

bool text_is(const struct text *t, const char *s)
{
    return t->n == strlen(s) && memcmp(t->p, s, t->n) == 0;
}

int text_compare(const struct text *a, const struct text *b)
{
    /* the order of UTF-8 bytes is that of code points */
    size_t n = a->n < b->n ? a->n : b->n;
    int order = n > 0 ? memcmp(a->p, b->p, n) : 0;
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

size_t text_offset(const struct text *t, size_t i_char)
{
    if (t->n == t->n_chars)
        return i_char;
    size_t at = 0;
    for (size_t i = 0; i < i_char && at < t->n; i++) {
        at++;
        while (at < t->n && ((unsigned char)t->p[at] & 0xc0) == 0x80)
            at++;
    }
    return at;
}

size_t text_find(struct jinja *j, const struct text *hay, size_t from, size_t end, const struct text *needle)
{
    if (from > end || needle->n > end - from)
        return SIZE_MAX;
    if (needle->n == 0)
        return from;
    const char *hit = memmem(hay->p + from, end - from, needle->p, needle->n);
    jinja_charge(j, hit ? (size_t)(hit - hay->p) - from : end - from);
    return hit ? (size_t)(hit - hay->p) : SIZE_MAX;
}

size_t text_find_last(struct jinja *j, const struct text *hay, size_t from, size_t end,
                      const struct text *needle)
{
    if (from > end || needle->n > end - from)
        return SIZE_MAX;
    for (size_t at = end - needle->n;; at--) {
        size_t n = 0;
        while (n < needle->n && hay->p[at + n] == needle->p[n])
            n++;
        jinja_charge(j, n + 1);
        if (n == needle->n)
            return at;
        if (at == from)
            return SIZE_MAX;
    }
}
