/* The same sum, eight products at a time, in 32 bits where they are enough. */
#include "kernel/ane_dot.h"
#if defined(__x86_64__)
#include <immintrin.h>

/* Products have 22 bits, so float32 holds them; adding a half is exact wherever it can change what is cut off. The sum of magnitudes
 * tells, with room for its own rounding, that no lane leaves 32 bits. */
int64_t ane_dot_avx2(const float *x, const float *least, const float *w, int64_t n)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), half = _mm256_set1_ps(0.5f),
                 smallest = _mm256_set1_ps(0x1p-14f);
    __m256i sum[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    __m256 size[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 2; k++) {
            __m256 b = _mm256_loadu_ps(w + i + 8 * k);
            __m256 p = _mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * k), b);
            __m256 keep = _mm256_cmp_ps(_mm256_max_ps(_mm256_andnot_ps(sign, b), smallest),
                                        _mm256_loadu_ps(least + i + 8 * k), _CMP_GE_OQ);
            p = _mm256_and_ps(p, keep);
            size[k] = _mm256_add_ps(size[k], _mm256_andnot_ps(sign, p));
            p = _mm256_add_ps(p, _mm256_or_ps(_mm256_and_ps(p, sign), half));
            sum[k] = _mm256_add_epi32(sum[k], _mm256_cvttps_epi32(p));
        }
    float sizes[8];
    int32_t sums[8];
    _mm256_storeu_ps(sizes, _mm256_add_ps(size[0], size[1]));
    double all = 0;
    for (int k = 0; k < 8; k++)
        all += (double)sizes[k];
    if (!(all + (double)n < 0x1p30))
        return ane_dot_scalar(x, least, w, n);
    _mm256_storeu_si256((__m256i *)sums, _mm256_add_epi32(sum[0], sum[1]));
    int64_t total = 0;
    for (int k = 0; k < 8; k++)
        total += sums[k];
    return total + ane_dot_scalar(x + i, least + i, w + i, n - i);
}
#endif
