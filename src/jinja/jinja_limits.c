/* What a template may use: memory and work, and how exceeding either ends it. */
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

void jinja_fail(struct jinja *j, enum err_code code, const char *fmt, ...)
{
    char message[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    for (char *c = message; *c; c++) /* a message is one line */
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    if (j->line > 0)
        err_set(j->e, code, "%.200s: line %d, column %d: %s", j->where, j->line, j->column, message);
    else
        err_set(j->e, code, "%.200s: %s", j->where, message);
    longjmp(j->leave, 1);
}

void *jinja_alloc(struct jinja *j, size_t n, size_t bytes)
{
    struct err e = {0};
    void *p = arena_try_alloc(j->arena, n ? n : 1, bytes, &e);
    if (!p)
        jinja_fail(j, e.code, "needs too much memory: %.300s", e.msg);
    return p;
}

void *jinja_grow(struct jinja *j, const void *p, size_t n, size_t *capacity, size_t bytes)
{
    if (n < *capacity)
        return (void *)p;
    *capacity = MEM_GROWN(*capacity, 4);
    void *larger = jinja_alloc(j, *capacity, bytes);
    if (n > 0)
        memcpy(larger, p, n * bytes);
    return larger;
}

void jinja_charge(struct jinja *j, size_t n)
{
    j->steps_left -= 1 + (int64_t)(n / 64);
    if (j->steps_left < 0)
        jinja_fail(j, ERR_LIMIT, "the template takes too many steps");
}

void jinja_charge_bytes(struct jinja *j, size_t n)
{
    j->bytes_moved += n + 8;
    if (j->bytes_moved >= 64) {
        jinja_charge(j, j->bytes_moved);
        j->bytes_moved = 0;
    }
}
