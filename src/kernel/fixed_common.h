/* What the two forms of fixed-point products share before they differ: sizes, and small things over 256-bit registers. */
#ifndef MILKIT_KERNEL_FIXED_COMMON_H
#define MILKIT_KERNEL_FIXED_COMMON_H

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "kernel/kernel_internal.h"

#ifndef FIXED_SPREAD
#define FIXED_SPREAD 0 /* 1: bits are deposited (pdep) by one fast instruction */
#endif
#ifndef FIXED_PAIRS
#define FIXED_PAIRS 0 /* 1: one activation row is multiplied with two weight rows at a time */
#endif
/* Weight rows whose sums are finished together, for one activation row. */
#define TOGETHER 8
#define LANES_BYTES 32

static ALWAYS_INLINE int64_t fixed_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static ALWAYS_INLINE int64_t blocks_of(int64_t n_in)
{
    return (n_in + FIXED_BLOCK - 1) / FIXED_BLOCK;
}

/* Columns whose products lie in half a register of sums of a unit, where weights are integers: scales of blocks of
 * columns are applied to such halves. */
static ALWAYS_INLINE int half_columns(int bits)
{
    return 128 / bits;
}

static ALWAYS_INLINE const uint8_t *table_of(const struct fixed_weight *w, int64_t o)
{
    return w->tables + o / w->rows_per_group * w->table_stride;
}

static ALWAYS_INLINE __m256i load_i(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Keeps the compiler from reordering integer sums, which it does until registers run out, and from loading the same
 * bytes again at each use. */
static ALWAYS_INLINE __m256i in_register(__m256i a)
{
    __asm__("" : "+x"(a));
    return a;
}

static ALWAYS_INLINE void store_i(void *p, __m256i a)
{
    _mm256_storeu_si256((__m256i *)p, a);
}

/* to[i] = q[column[i]] */
static ALWAYS_INLINE void put_each_in_order(int16_t to[FIXED_BLOCK], const int16_t q[FIXED_BLOCK],
                                            const uint8_t column[FIXED_BLOCK])
{
    for (int i = 0; i < FIXED_BLOCK; i++)
        to[i] = q[column[i]];
}

/* The exact sum high * 65536 + L, rounded once: low is that sum modulo 2^32, 0 <= L < 2^24, |high| < 2^24. */
static ALWAYS_INLINE __m256 float_of_halves(__m256i high, __m256i low)
{
    __m256i rest = _mm256_sub_epi32(low, _mm256_slli_epi32(high, 16));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), _mm256_set1_ps(65536.0f), _mm256_cvtepi32_ps(rest));
}

static ALWAYS_INLINE int32_t sum_lanes(__m256i a)
{
    __m128i total = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(total, _mm_shuffle_epi32(total, 0xb1)));
}

#endif
