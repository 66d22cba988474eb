/* The growable byte buffer. */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t max_bytes)
{
    memset(b, 0, sizeof *b);
    b->max_bytes = max_bytes;
}

void buf_fini(struct buf *b)
{
    free(b->p);
    buf_init(b, b->max_bytes);
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->p)
        b->p[0] = '\0';
}

/* Makes room for n more bytes and the 0 behind them; false (and failed) when that can't be had. */
static bool grow(struct buf *b, size_t n)
{
    if (b->failed)
        return false;
    size_t need;
    if (n > b->max_bytes - b->n || !size_add(b->n + n, 1, &need)) {
        b->failed = true;
        return false;
    }
    if (need <= b->capacity)
        return true;
    size_t capacity = b->capacity > SIZE_MAX / 2 ? need : b->capacity * 2;
    if (capacity > b->max_bytes)
        capacity = b->max_bytes;
    if (capacity < 64)
        capacity = 64;
    if (capacity < need)
        capacity = need;
    char *p = realloc(b->p, capacity);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->capacity = capacity;
    b->p[b->n] = '\0';
    return true;
}

void buf_append(struct buf *b, const void *bytes, size_t n)
{
    if (!grow(b, n))
        return;
    if (n)
        memcpy(b->p + b->n, bytes, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
    buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    if (b->failed)
        return;
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    char small[256];
    int n = vsnprintf(small, sizeof small, fmt, args);
    if (n < 0) {
        b->failed = true;
    } else if ((size_t)n < sizeof small) {
        buf_append(b, small, (size_t)n);
    } else if (grow(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

char *buf_take(struct buf *b, size_t *n)
{
    char *p = b->p ? b->p : xcalloc(1, 1);
    if (n)
        *n = b->n;
    buf_init(b, b->max_bytes);
    return p;
}
