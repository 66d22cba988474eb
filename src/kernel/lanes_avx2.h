/* Sixteen float lanes as two AVX registers: the operations that the kernel bodies and kernel_math.h are
 * written in. lanes_avx512.h has the same list. A *_part function touches only the first n elements (0 <= n
 * <= 16); loads fill the other lanes with +0. A `part` is one register; sixteen lanes are V_PARTS of them. */
#ifndef MILKIT_KERNEL_LANES_AVX2_H
#define MILKIT_KERNEL_LANES_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "kernel/lanes_tree.h"

#define ISA(name) name##__avx2

/* Registers: 16. A block of weight rows x activation rows needs V_PARTS-wise rows * tokens accumulators. */
#define V_PARTS 2
#define PART_LANES 8
typedef __m256 part;
typedef struct {
    __m256 p[V_PARTS];
} vf;

static ALWAYS_INLINE part part_zero(void)
{
    return _mm256_setzero_ps();
}

static ALWAYS_INLINE part part_set1(float x)
{
    return _mm256_set1_ps(x);
}

static ALWAYS_INLINE part part_load(const float *x)
{
    return _mm256_loadu_ps(x);
}

/* Keeps the compiler from loading the same part again at each use: loads, not products, are what runs out. */
static ALWAYS_INLINE part part_in_register(part a)
{
    __asm__("" : "+x"(a));
    return a;
}

static ALWAYS_INLINE void part_store(float *y, part a)
{
    _mm256_storeu_ps(y, a);
}

static ALWAYS_INLINE part part_load_f16(const f16 *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static ALWAYS_INLINE part part_fma(part a, part b, part c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static ALWAYS_INLINE part part_add(part a, part b)
{
    return _mm256_add_ps(a, b);
}

/* turned[i]: number i of each of the eight rows `stride` apart. */
static ALWAYS_INLINE void part_turn(part turned[4], const float *rows, int64_t stride)
{
    __m256 t[4];
    UNROLL_ALL
    for (int i = 0; i < 4; i++)
        t[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(rows + i * stride)),
                                    _mm_loadu_ps(rows + (4 + i) * stride), 1);
    __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(t[0], t[1])),
            b = _mm256_castps_pd(_mm256_unpackhi_ps(t[0], t[1]));
    __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(t[2], t[3])),
            d = _mm256_castps_pd(_mm256_unpackhi_ps(t[2], t[3]));
    turned[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
    turned[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
    turned[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
    turned[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
}

static ALWAYS_INLINE vf v_pair(__m256 low, __m256 high)
{
    vf r = {{low, high}};
    return r;
}

static ALWAYS_INLINE vf v_set1(float x)
{
    return v_pair(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

static ALWAYS_INLINE vf v_load(const float *x)
{
    return v_pair(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
}

static ALWAYS_INLINE void v_store(float *y, vf a)
{
    _mm256_storeu_ps(y, a.p[0]);
    _mm256_storeu_ps(y + 8, a.p[1]);
}

/* All ones in those of the eight lanes first, first + 1, .. that are below n. */
static ALWAYS_INLINE __m256i lane_mask(int64_t n, int first)
{
    __m256i j = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), j);
}

static ALWAYS_INLINE vf v_load_part(const float *x, int64_t n)
{
    return v_pair(_mm256_maskload_ps(x, lane_mask(n, 0)),
                  n > 8 ? _mm256_maskload_ps(x + 8, lane_mask(n, 8)) : _mm256_setzero_ps());
}

static ALWAYS_INLINE void v_store_part(float *y, vf a, int64_t n)
{
    _mm256_maskstore_ps(y, lane_mask(n, 0), a.p[0]);
    if (n > 8)
        _mm256_maskstore_ps(y + 8, lane_mask(n, 8), a.p[1]);
}

/* The first n lanes, the others replaced by `other`. */
static ALWAYS_INLINE vf v_keep(vf a, int64_t n, vf other)
{
    return v_pair(_mm256_blendv_ps(other.p[0], a.p[0], _mm256_castsi256_ps(lane_mask(n, 0))),
                  _mm256_blendv_ps(other.p[1], a.p[1], _mm256_castsi256_ps(lane_mask(n, 8))));
}

static ALWAYS_INLINE vf v_load_f16(const f16 *x)
{
    return v_pair(part_load_f16(x), part_load_f16(x + 8));
}

static ALWAYS_INLINE vf v_load_f16_part(const f16 *x, int64_t n)
{
    f16 full[16] = {0};
    memcpy(full, x, (size_t)n * sizeof *x);
    return v_load_f16(full);
}

static ALWAYS_INLINE void v_store_f16(f16 *y, vf a)
{
    _mm_storeu_si128((__m128i *)(void *)y, _mm256_cvtps_ph(a.p[0], _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(y + 8), _mm256_cvtps_ph(a.p[1], _MM_FROUND_TO_NEAREST_INT));
}

static ALWAYS_INLINE void v_store_f16_part(f16 *y, vf a, int64_t n)
{
    f16 full[16];
    v_store_f16(full, a);
    memcpy(y, full, (size_t)n * sizeof *y);
}

static ALWAYS_INLINE vf v_round_f16(vf a)
{
    return v_pair(_mm256_cvtph_ps(_mm256_cvtps_ph(a.p[0], _MM_FROUND_TO_NEAREST_INT)),
                  _mm256_cvtph_ps(_mm256_cvtps_ph(a.p[1], _MM_FROUND_TO_NEAREST_INT)));
}

#define V_EACH(op, a, b) v_pair(op((a).p[0], (b).p[0]), op((a).p[1], (b).p[1]))

static ALWAYS_INLINE vf v_add(vf a, vf b)
{
    return V_EACH(_mm256_add_ps, a, b);
}

static ALWAYS_INLINE vf v_sub(vf a, vf b)
{
    return V_EACH(_mm256_sub_ps, a, b);
}

static ALWAYS_INLINE vf v_mul(vf a, vf b)
{
    return V_EACH(_mm256_mul_ps, a, b);
}

static ALWAYS_INLINE vf v_div(vf a, vf b)
{
    return V_EACH(_mm256_div_ps, a, b);
}

/* a > b ? a : b, so b where either is NaN */
static ALWAYS_INLINE vf v_max(vf a, vf b)
{
    return V_EACH(_mm256_max_ps, a, b);
}

static ALWAYS_INLINE vf v_fma(vf a, vf b, vf c)
{
    return v_pair(_mm256_fmadd_ps(a.p[0], b.p[0], c.p[0]), _mm256_fmadd_ps(a.p[1], b.p[1], c.p[1]));
}

static ALWAYS_INLINE vf v_abs(vf a)
{
    vf sign = v_set1(-0.0f);
    return V_EACH(_mm256_andnot_ps, sign, a);
}

static ALWAYS_INLINE vf v_neg(vf a)
{
    vf sign = v_set1(-0.0f);
    return V_EACH(_mm256_xor_ps, sign, a);
}

static ALWAYS_INLINE vf v_copysign(vf magnitude, vf sign_of)
{
    vf sign = v_set1(-0.0f);
    vf bit = V_EACH(_mm256_and_ps, sign, sign_of), rest = V_EACH(_mm256_andnot_ps, sign, magnitude);
    return V_EACH(_mm256_or_ps, bit, rest);
}

/* a < b ? yes : no */
static ALWAYS_INLINE vf v_select_less(vf a, vf b, vf yes, vf no)
{
    return v_pair(_mm256_blendv_ps(no.p[0], yes.p[0], _mm256_cmp_ps(a.p[0], b.p[0], _CMP_LT_OQ)),
                  _mm256_blendv_ps(no.p[1], yes.p[1], _mm256_cmp_ps(a.p[1], b.p[1], _CMP_LT_OQ)));
}

static ALWAYS_INLINE vf v_select_nan(vf a, vf yes, vf no)
{
    return v_pair(_mm256_blendv_ps(no.p[0], yes.p[0], _mm256_cmp_ps(a.p[0], a.p[0], _CMP_UNORD_Q)),
                  _mm256_blendv_ps(no.p[1], yes.p[1], _mm256_cmp_ps(a.p[1], a.p[1], _CMP_UNORD_Q)));
}

static ALWAYS_INLINE __m256 part_scale(__m256 p, __m256 t)
{
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}

/* p * 2^n for the integer n in the low bits of t */
static ALWAYS_INLINE vf v_scale(vf p, vf t)
{
    return V_EACH(part_scale, p, t);
}

static ALWAYS_INLINE float v_tree(vf a)
{
    return tree_of_eight(_mm256_add_ps(a.p[0], a.p[1]));
}

/* Eight trees at once: y[i] = v_tree(a[i]). */
static ALWAYS_INLINE void v_tree_x8(float *y, const vf a[8])
{
    __m256 s8[8];
    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        s8[i] = _mm256_add_ps(a[i].p[0], a[i].p[1]);
    _mm256_storeu_ps(y, tree_of_eight_x8(s8));
}

/* The largest lane, NaN-free input. */
static ALWAYS_INLINE float v_largest(vf a)
{
    __m256 m8 = _mm256_max_ps(a.p[0], a.p[1]);
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

#endif
