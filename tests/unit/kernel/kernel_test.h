/* What the kernel tests share: repeatable numbers, arrays that end at an unreadable page, comparison of bits.
 */
#ifndef MILKIT_TESTS_KERNEL_TEST_H
#define MILKIT_TESTS_KERNEL_TEST_H

#include "support.h"
#include <math.h>
#include <sys/mman.h>
#include "kernel/kernel.h"

struct random_state {
    uint64_t s;
};

static inline uint32_t random_bits(struct random_state *r)
{
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return (uint32_t)(r->s >> 32);
}

/* low <= result <= high */
static inline int64_t random_between(struct random_state *r, int64_t low, int64_t high)
{
    return low + (int64_t)(random_bits(r) % (uint64_t)(high - low + 1));
}

/* in [-1, 1) */
static inline float random_unit(struct random_state *r)
{
    return (float)(int32_t)random_bits(r) * 0x1p-31f;
}

static inline uint32_t float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* An array whose end is the end of readable memory, and whose page before the first is unreadable, too. */
struct guarded {
    void *map;
    size_t map_bytes;
    void *p;
};

#define GUARDED_MAX 512

struct guard_pool {
    struct guarded list[GUARDED_MAX];
    int n;
};

static inline void *guard_alloc(struct guard_pool *pool, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inner = (bytes + page - 1) / page * page;
    struct guarded g = {.map_bytes = inner + 2 * page};
    assert_true(pool->n < GUARDED_MAX);
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    if (inner > 0)
        assert_int_equal(mprotect((char *)g.map + page, inner, PROT_READ | PROT_WRITE), 0);
    g.p = (char *)g.map + page + inner - bytes;
    pool->list[pool->n++] = g;
    return g.p;
}

static inline void guard_free_all(struct guard_pool *pool)
{
    for (int i = 0; i < pool->n; i++)
        munmap(pool->list[i].map, pool->list[i].map_bytes);
    pool->n = 0;
}

/* What numbers an array gets. */
enum numbers { NUMBERS_PLAIN, NUMBERS_WIDE, NUMBERS_SPECIAL, NUMBERS_KINDS };

static inline float random_float(struct random_state *r, enum numbers kind)
{
    static const uint32_t specials[] = {
        0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x00000001, 0x80000001, 0x007fffff,
        0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0x42b17217, 0x42b17218, 0xc2aeac4f, 0xc2aeac50,
        0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fc000, 0x3f200000};
    if (kind == NUMBERS_SPECIAL && random_bits(r) % 8 == 0)
        return bits_float(specials[random_bits(r) % (sizeof specials / sizeof specials[0])]);
    if (kind == NUMBERS_WIDE) {
        int exponent = (int)random_between(r, -40, 40);
        return ldexpf(random_unit(r), exponent);
    }
    return random_unit(r) * 4.0f;
}

static inline f16 random_f16(struct random_state *r, enum numbers kind)
{
    if (kind == NUMBERS_SPECIAL && random_bits(r) % 8 == 0)
        return (f16)random_bits(r);
    if (kind == NUMBERS_WIDE)
        return (f16)(random_bits(r) & 0xbfff); /* all below 2: subnormals are frequent */
    return f32_to_f16(random_unit(r));
}

static inline float *guarded_floats(struct guard_pool *pool, struct random_state *r, int64_t n,
                                    enum numbers kind)
{
    float *p = guard_alloc(pool, (size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = random_float(r, kind);
    return p;
}

static inline f16 *guarded_f16(struct guard_pool *pool, struct random_state *r, int64_t n, enum numbers kind)
{
    f16 *p = guard_alloc(pool, (size_t)n * sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = random_f16(r, kind);
    return p;
}

/* The same bits; of a NaN only that it is one. */
static inline bool is_same(float a, float b)
{
    return float_bits(a) == float_bits(b) || (a != a && b != b);
}

static inline void assert_same_floats(const char *what, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!is_same(a[i], b[i]))
            fail_msg("%s: element %lld of %lld: %a (%08x), expected %a (%08x)", what, (long long)i,
                     (long long)n, (double)a[i], float_bits(a[i]), (double)b[i], float_bits(b[i]));
    }
}

#endif
