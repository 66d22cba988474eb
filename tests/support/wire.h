/* Protobuf messages made by hand, field by field. */
#ifndef MILKIT_TESTS_WIRE_H
#define MILKIT_TESTS_WIRE_H

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

static inline void put_varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_putc(b, (char)(v | 0x80));
    buf_putc(b, (char)v);
}

static inline void put_number(struct buf *b, uint32_t field, uint64_t v)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, v);
}

static inline void put_bytes(struct buf *b, uint32_t field, const void *p, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    buf_append(b, p, n);
}

/* Wraps what is in *b as field `field` of an outer message. */
static inline void wrap(struct buf *b, uint32_t field)
{
    size_t n;
    char *inner = buf_take(b, &n);
    put_bytes(b, field, inner, n);
    free(inner);
}

static inline void put_text(struct buf *b, uint32_t field, const char *s)
{
    put_bytes(b, field, s, strlen(s));
}

#endif
