/* The tree at the end of every sum, from the eight sums s8[j] = lane[j] + lane[j + 8] on; shared by the x86
 * levels. */
#ifndef MILKIT_KERNEL_LANES_TREE_H
#define MILKIT_KERNEL_LANES_TREE_H

#include <immintrin.h>
#include "kernel/kernel_internal.h"

static ALWAYS_INLINE float tree_of_eight(__m256 s8)
{
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* Eight trees at once: element i of the result is the tree of a[i]. Each step adds for every sum the same
 * pairs as tree_of_eight and packs the survivors of two registers into one. */
static ALWAYS_INLINE __m256 tree_of_eight_x8(const __m256 a[8])
{
    __m256 s4[4], s2[2];
    UNROLL_ALL
    for (int i = 0; i < 4; i++) /* [sum i | sum i + 4] */
        s4[i] = _mm256_add_ps(_mm256_permute2f128_ps(a[i], a[i + 4], 0x20),
                              _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    UNROLL_ALL
    for (int i = 0; i < 2; i++) { /* [2i, 2i, 2i+1, 2i+1 | the same + 4] */
        __m256d p = _mm256_castps_pd(s4[2 * i]), q = _mm256_castps_pd(s4[2 * i + 1]);
        s2[i] = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(p, q)),
                              _mm256_castpd_ps(_mm256_unpackhi_pd(p, q)));
    }
    return _mm256_add_ps(_mm256_shuffle_ps(s2[0], s2[1], 0x88), _mm256_shuffle_ps(s2[0], s2[1], 0xdd));
}

/* Eight numbers of fp16 of each of eight rows as float columns: to[16 * i + j] = rows[j][at + i]. */
static ALWAYS_INLINE void transpose_f16_8x8(float *to, const f16 *const *rows, int64_t at)
{
    __m256 a[8], b[8], c[8];
    UNROLL_ALL
    for (int j = 0; j < 8; j++)
        a[j] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(rows[j] + at)));
    UNROLL_ALL
    for (int j = 0; j < 8; j += 2) {
        b[j] = _mm256_unpacklo_ps(a[j], a[j + 1]);
        b[j + 1] = _mm256_unpackhi_ps(a[j], a[j + 1]);
    }
    UNROLL_ALL
    for (int j = 0; j < 8; j += 4) {
        UNROLL_ALL
        for (int k = 0; k < 2; k++) {
            c[j + 2 * k] = _mm256_shuffle_ps(b[j + k], b[j + k + 2], 0x44);
            c[j + 2 * k + 1] = _mm256_shuffle_ps(b[j + k], b[j + k + 2], 0xee);
        }
    }
    UNROLL_ALL
    for (int k = 0; k < 4; k++) {
        _mm256_storeu_ps(to + 16 * k, _mm256_permute2f128_ps(c[k], c[k + 4], 0x20));
        _mm256_storeu_ps(to + 16 * (k + 4), _mm256_permute2f128_ps(c[k], c[k + 4], 0x31));
    }
}

#endif
