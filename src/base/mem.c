/* Allocation that ends the program, aligned tensor memory, checked sizes, and arenas. */
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Nothing sensible can go on without a few bytes, and callers need no error path that can't be tested. A program that wants
 * another end has a function of this name. */
__attribute__((weak)) _Noreturn void mem_exhausted(size_t bytes)
{
    (void)bytes;
    abort();
}

void *xmalloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        mem_exhausted(bytes);
    return p;
}

void *xcalloc(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes ? bytes : 1);
    if (!p) {
        size_t total;
        mem_exhausted(size_mul(n, bytes, &total) ? total : SIZE_MAX);
    }
    return p;
}

void *xrealloc(void *p, size_t bytes)
{
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q)
        mem_exhausted(bytes);
    return q;
}

void *mem_grow(void *p, size_t n, size_t *capacity, size_t bytes)
{
    size_t all;
    if (n < *capacity)
        return p;
    *capacity = MEM_GROWN(*capacity, 16);
    if (!size_mul(*capacity, bytes, &all))
        mem_exhausted(SIZE_MAX);
    return xrealloc(p, all);
}

char *xstrdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(xmalloc(n), s, n);
}

char *xasprintf(const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        n = 0;
    char *p = xmalloc((size_t)n + 1);
    p[0] = '\0';
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

#define TENSOR_ALIGN 64
/* No machine has more, and an allocator asked for more may end the program instead of failing. */
#define LARGEST_ALLOCATION ((size_t)1 << 39)

/* calloc hands out large zeroed memory without touching its pages, which aligned_alloc plus memset would not.
 * The pointer to release lies in the 8 bytes in front of what the caller sees. */
void *mem_try_alloc(size_t bytes, struct err *e)
{
    size_t total;
    char *raw = NULL;
    if (size_add(bytes, 2 * TENSOR_ALIGN, &total) && total <= LARGEST_ALLOCATION)
        raw = calloc(1, total);
    if (!raw) {
        err_set(e, ERR_NOMEM, "out of memory: %zu bytes asked for", bytes);
        return NULL;
    }
    uintptr_t at = ((uintptr_t)raw + 2 * TENSOR_ALIGN - 1) & ~(uintptr_t)(TENSOR_ALIGN - 1);
    char *p = raw + (at - (uintptr_t)raw);
    memcpy(p - sizeof raw, &raw, sizeof raw);
    return p;
}

void mem_free(void *p)
{
    if (!p)
        return;
    char *raw;
    memcpy(&raw, (char *)p - sizeof raw, sizeof raw);
    free(raw);
}

/* Whole pages in this many bytes and more are given back, not written: the system hands them out as zeros when they are
 * touched again, and those that never were are none of its work. */
#define ZERO_BY_PAGES ((size_t)1 << 20)

void mem_zero(void *p, size_t bytes)
{
    char *begin = p, *end = begin + bytes;
#ifdef __linux__
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *first = begin + (page - (uintptr_t)begin % page) % page, *last = end - (uintptr_t)end % page;
    if (bytes >= ZERO_BY_PAGES && first < last &&
        madvise(first, (size_t)(last - first), MADV_DONTNEED) == 0) {
        memset(begin, 0, (size_t)(first - begin));
        memset(last, 0, (size_t)(end - last));
        return;
    }
#endif
    memset(begin, 0, bytes);
}

void mem_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

bool size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Blocks of memory, newest first. Objects larger than a quarter block get a block of their own, placed behind
 * the newest one so that its room is not lost. */
struct block {
    struct block *next;
    size_t bytes, used;
};

struct arena {
    struct block *blocks;
    size_t limit_bytes, used_bytes, next_block_bytes;
};

#define BLOCK_HEAD ((sizeof(struct block) + 15) & ~(size_t)15)
#define FIRST_BLOCK_BYTES ((size_t)4 << 10)
#define LAST_BLOCK_BYTES ((size_t)1 << 20)

struct arena *arena_new(size_t limit_bytes)
{
    struct arena *a = xcalloc(1, sizeof *a);
    a->limit_bytes = limit_bytes;
    a->next_block_bytes = FIRST_BLOCK_BYTES;
    return a;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    for (struct block *b = a->blocks; b;) {
        struct block *next = b->next;
        free(b);
        b = next;
    }
    free(a);
}

static struct block *block_new(size_t bytes)
{
    size_t total;
    if (!size_add(bytes, BLOCK_HEAD, &total) || total > LARGEST_ALLOCATION)
        return NULL;
    struct block *b = calloc(1, total);
    if (b)
        b->bytes = bytes;
    return b;
}

/* NULL when memory is out; the limit is the caller's to check. bytes is a multiple of 16. */
static void *take(struct arena *a, size_t bytes)
{
    struct block *b = a->blocks;
    if (!b || b->bytes - b->used < bytes) {
        bool own_block = bytes > a->next_block_bytes / 4;
        b = block_new(own_block ? bytes : a->next_block_bytes);
        if (!b)
            return NULL;
        if (own_block && a->blocks) {
            b->next = a->blocks->next;
            a->blocks->next = b;
        } else {
            b->next = a->blocks;
            a->blocks = b;
        }
        if (!own_block && a->next_block_bytes < LAST_BLOCK_BYTES)
            a->next_block_bytes *= 2;
    }
    void *p = (char *)b + BLOCK_HEAD + b->used;
    b->used += bytes;
    a->used_bytes += bytes;
    return p;
}

static bool round_up(size_t bytes, size_t *out)
{
    if (!size_add(bytes, 15, out))
        return false;
    *out &= ~(size_t)15;
    if (*out == 0)
        *out = 16;
    return true;
}

static bool within_limit(const struct arena *a, size_t bytes)
{
    return a->limit_bytes == 0 ||
           (a->used_bytes <= a->limit_bytes && bytes <= a->limit_bytes - a->used_bytes);
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t rounded;
    void *p = round_up(bytes, &rounded) && within_limit(a, rounded) ? take(a, rounded) : NULL;
    if (!p)
        mem_exhausted(bytes);
    return p;
}

void *arena_try_alloc(struct arena *a, size_t n, size_t bytes, struct err *e)
{
    size_t total, rounded;
    if (!size_mul(n, bytes, &total) || !round_up(total, &rounded) || !within_limit(a, rounded)) {
        err_set(e, ERR_LIMIT, "%zu objects of %zu bytes are over the limit of %zu bytes", n, bytes,
                a->limit_bytes);
        return NULL;
    }
    void *p = take(a, rounded);
    if (!p)
        err_set(e, ERR_NOMEM, "out of memory: %zu bytes asked for", total);
    return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t bytes;
    if (!size_add(n, 1, &bytes))
        mem_exhausted(n);
    char *p = arena_alloc(a, bytes);
    if (n)
        memcpy(p, s, n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        n = 0;
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void *arena_copy(struct arena *a, const void *p, size_t bytes)
{
    void *q = arena_alloc(a, bytes);
    if (bytes)
        memcpy(q, p, bytes);
    return q;
}

size_t arena_used_bytes(const struct arena *a)
{
    return a->used_bytes;
}

/* Merges two sorted halves; the first one waits in scratch. */
static void sort_part(char *p, char *scratch, size_t n, size_t bytes,
                      int (*compare)(const void *, const void *))
{
    if (n < 2)
        return;
    size_t half = n / 2;
    sort_part(p, scratch, half, bytes, compare);
    sort_part(p + half * bytes, scratch, n - half, bytes, compare);
    memcpy(scratch, p, half * bytes);
    for (size_t i = 0, j = half, k = 0; i < half; k++) {
        bool from_second = j < n && compare(p + j * bytes, scratch + i * bytes) < 0;
        memcpy(p + k * bytes, from_second ? p + j++ * bytes : scratch + i++ * bytes, bytes);
    }
}

void mem_sort_stable(void *p, size_t n, size_t bytes, int (*compare)(const void *a, const void *b))
{
    char *scratch = xmalloc((n / 2 + 1) * bytes);
    sort_part(p, scratch, n, bytes, compare);
    free(scratch);
}
