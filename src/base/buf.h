/* A growable byte buffer with a maximum given at creation. Owns its memory; always keeps a 0 byte behind n.
 *
 * An append that would pass max_bytes appends nothing and sets `failed`; later appends do nothing. So a
 * writer appends freely and looks at `failed` once, at the end.
 */
#ifndef MILKIT_BASE_BUF_H
#define MILKIT_BASE_BUF_H

#include <stdarg.h>
#include "base/mem.h"

struct buf {
    char *p; /* [n + 1], NULL before the first append */
    size_t n;
    size_t capacity;
    size_t max_bytes;
    bool failed;
};

void buf_init(struct buf *b, size_t max_bytes);
void buf_fini(struct buf *b);
void buf_clear(struct buf *b);
void buf_append(struct buf *b, const void *bytes, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Moves the bytes out as a heap string (free with free); the buffer is empty afterwards. Never NULL. */
char *buf_take(struct buf *b, size_t *n);

#endif
