/* Memory: arenas for object graphs, checked sizes, and allocation that ends the program when memory is out.
 *
 * x* functions and arena_alloc never return NULL: a few bytes that can't be had end the program (mem_exhausted). Every size that comes from input goes through size_mul/size_add and a stated limit
 * first, and large buffers of such sizes through mem_try_alloc or arena_try_alloc, which can fail.
 */
#ifndef MILKIT_BASE_MEM_H
#define MILKIT_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* A borrowed slice of text or bytes, not terminated. */
struct str {
    const char *p;
    size_t n;
};

/* What happens then: abort(). A program that defines a function of this name has its own end; it must not return. */
_Noreturn void mem_exhausted(size_t bytes);

void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);
void *xrealloc(void *p, size_t bytes);
/* p [*capacity] with room for one more behind its first n: as it is, or twice as large where n is *capacity. */
void *mem_grow(void *p, size_t n, size_t *capacity, size_t bytes);
/* The capacity behind a full one. */
#define MEM_GROWN(capacity, first) ((capacity) ? 2 * (capacity) : (first))
char *xstrdup(const char *s);
/* printf into a fresh heap string. */
char *xasprintf(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* 64-byte aligned, zeroed memory for tensors; NULL with ERR_NOMEM when it can't be had. Release with
 * mem_free. */
void *mem_try_alloc(size_t bytes, struct err *e) MUST_CHECK;
void mem_free(void *p);
/* Zeros again what mem_try_alloc gave, in time that grows with the pages in use and not with the bytes. */
void mem_zero(void *p, size_t bytes);
/* Gives back to the system what the allocator keeps of released memory, after work that needed much for a while. */
void mem_trim(void);

/* Sorts n objects, those that compare equal in the order they have. compare as of qsort. */
void mem_sort_stable(void *p, size_t n, size_t bytes, int (*compare)(const void *a, const void *b));

/* The little-endian number of up to 8 bytes at any address. */
static inline uint64_t load_le(const uint8_t *p, size_t bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

/* *out = a * b or a + b; false on overflow. */
bool size_mul(size_t a, size_t b, size_t *out) MUST_CHECK;
bool size_add(size_t a, size_t b, size_t *out) MUST_CHECK;

/* An arena: many small objects that die together. Memory is zeroed and 16-byte aligned. Not thread safe. */
struct arena;
/* limit_bytes: the most the arena may hand out (0: no limit). */
struct arena *arena_new(size_t limit_bytes);
void arena_free(struct arena *a); /* accepts NULL */
/* Never NULL; over the limit or out of memory ends the program: for sizes that milkit chose. */
void *arena_alloc(struct arena *a, size_t bytes);
/* n objects of `bytes` each. NULL with ERR_LIMIT or ERR_NOMEM: for sizes that come from input. */
void *arena_try_alloc(struct arena *a, size_t n, size_t bytes, struct err *e) MUST_CHECK;
char *arena_strdup(struct arena *a, const char *s);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void *arena_copy(struct arena *a, const void *p, size_t bytes);
size_t arena_used_bytes(const struct arena *a);
#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (size_t)(n)))

/* A hash table from string to pointer; keys are copied. */
struct table;
struct table *table_new(void);
void table_free(struct table *t);
/* False when the key is there already (the old value stays). */
bool table_put(struct table *t, const char *key, void *value);
void *table_get(const struct table *t, const char *key); /* NULL when absent */
size_t table_count(const struct table *t);

#endif
