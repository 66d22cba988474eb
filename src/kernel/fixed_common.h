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
/* Weight rows whose sums are finished together, and rows decoded at once for several activation rows. */
#define TOGETHER 8
#define LANES_BYTES 32
#define PANEL_DECODED 16
#define PANEL_X 128 /* activation rows that share a decoding */
#define DECODED_BLOCK 1024

_Static_assert(PANEL_DECODED *DECODED_BLOCK + PANEL_DECODED * PANEL_X * 4 <= KERNEL_FIXED_SCRATCH(0, 2),
               "scratch holds a decoded block and unfinished sums");

/* The end of a block of prepared activations. Sums come out too large by a correction, [1] with identity tables. */
struct x_block {
    float scale;
    int32_t correction[2];
};

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

static ALWAYS_INLINE const int8_t *table_of(const struct fixed_weight *w, int64_t o)
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

static ALWAYS_INLINE int32_t sum_lanes(__m256i a)
{
    __m128i total = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(total, _mm_shuffle_epi32(total, 0xb1)));
}

#endif
