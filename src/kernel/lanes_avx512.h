/* Sixteen float lanes as one AVX-512 register (F, BW, DQ, VL): the same list of operations as lanes_avx2.h,
 * where they are described. */
#ifndef MILKIT_KERNEL_LANES_AVX512_H
#define MILKIT_KERNEL_LANES_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <string.h>
#include "kernel/lanes_tree.h"

#define ISA(name) name##__avx512

#define V_PARTS 1
#define PART_LANES 16
typedef __m512 part;
typedef struct {
    __m512 p[V_PARTS];
} vf;

static ALWAYS_INLINE part part_zero(void)
{
    return _mm512_setzero_ps();
}

static ALWAYS_INLINE part part_set1(float x)
{
    return _mm512_set1_ps(x);
}

static ALWAYS_INLINE part part_load(const float *x)
{
    return _mm512_loadu_ps(x);
}

/* Keeps the compiler from loading the same part again at each use: loads, not products, are what runs out. */
static ALWAYS_INLINE part part_in_register(part a)
{
    __asm__("" : "+v"(a));
    return a;
}

static ALWAYS_INLINE void part_store(float *y, part a)
{
    _mm512_storeu_ps(y, a);
}

static ALWAYS_INLINE part part_load_f16(const f16 *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
}

static ALWAYS_INLINE part part_fma(part a, part b, part c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static ALWAYS_INLINE part part_add(part a, part b)
{
    return _mm512_add_ps(a, b);
}

static ALWAYS_INLINE void part_turn(part turned[4], const float *rows, int64_t stride)
{
    __m512 t[4];
    UNROLL_ALL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_castps128_ps512(_mm_loadu_ps(rows + i * stride));
        t[i] = _mm512_insertf32x4(t[i], _mm_loadu_ps(rows + (4 + i) * stride), 1);
        t[i] = _mm512_insertf32x4(t[i], _mm_loadu_ps(rows + (8 + i) * stride), 2);
        t[i] = _mm512_insertf32x4(t[i], _mm_loadu_ps(rows + (12 + i) * stride), 3);
    }
    __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(t[0], t[1])),
            b = _mm512_castps_pd(_mm512_unpackhi_ps(t[0], t[1]));
    __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(t[2], t[3])),
            d = _mm512_castps_pd(_mm512_unpackhi_ps(t[2], t[3]));
    turned[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    turned[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    turned[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    turned[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
}

static ALWAYS_INLINE vf v_one(__m512 a)
{
    vf r = {{a}};
    return r;
}

static ALWAYS_INLINE vf v_set1(float x)
{
    return v_one(_mm512_set1_ps(x));
}

static ALWAYS_INLINE vf v_load(const float *x)
{
    return v_one(_mm512_loadu_ps(x));
}

static ALWAYS_INLINE void v_store(float *y, vf a)
{
    _mm512_storeu_ps(y, a.p[0]);
}

/* Ones for lanes j < n. */
static ALWAYS_INLINE __mmask16 lane_mask(int64_t n)
{
    return (__mmask16)((UINT32_C(1) << n) - 1);
}

static ALWAYS_INLINE vf v_load_part(const float *x, int64_t n)
{
    return v_one(_mm512_maskz_loadu_ps(lane_mask(n), x));
}

static ALWAYS_INLINE void v_store_part(float *y, vf a, int64_t n)
{
    _mm512_mask_storeu_ps(y, lane_mask(n), a.p[0]);
}

static ALWAYS_INLINE vf v_keep(vf a, int64_t n, vf other)
{
    return v_one(_mm512_mask_blend_ps(lane_mask(n), other.p[0], a.p[0]));
}

static ALWAYS_INLINE vf v_load_f16(const f16 *x)
{
    return v_one(part_load_f16(x));
}

static ALWAYS_INLINE vf v_load_f16_part(const f16 *x, int64_t n)
{
    return v_one(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lane_mask(n), x)));
}

static ALWAYS_INLINE void v_store_f16(f16 *y, vf a)
{
    _mm256_storeu_si256((__m256i *)(void *)y, _mm512_cvtps_ph(a.p[0], _MM_FROUND_TO_NEAREST_INT));
}

static ALWAYS_INLINE void v_store_f16_part(f16 *y, vf a, int64_t n)
{
    _mm256_mask_storeu_epi16(y, lane_mask(n), _mm512_cvtps_ph(a.p[0], _MM_FROUND_TO_NEAREST_INT));
}

static ALWAYS_INLINE vf v_round_f16(vf a)
{
    return v_one(_mm512_cvtph_ps(_mm512_cvtps_ph(a.p[0], _MM_FROUND_TO_NEAREST_INT)));
}

static ALWAYS_INLINE vf v_add(vf a, vf b)
{
    return v_one(_mm512_add_ps(a.p[0], b.p[0]));
}

static ALWAYS_INLINE vf v_sub(vf a, vf b)
{
    return v_one(_mm512_sub_ps(a.p[0], b.p[0]));
}

static ALWAYS_INLINE vf v_mul(vf a, vf b)
{
    return v_one(_mm512_mul_ps(a.p[0], b.p[0]));
}

static ALWAYS_INLINE vf v_div(vf a, vf b)
{
    return v_one(_mm512_div_ps(a.p[0], b.p[0]));
}

static ALWAYS_INLINE vf v_max(vf a, vf b)
{
    return v_one(_mm512_max_ps(a.p[0], b.p[0]));
}

static ALWAYS_INLINE vf v_fma(vf a, vf b, vf c)
{
    return v_one(_mm512_fmadd_ps(a.p[0], b.p[0], c.p[0]));
}

static ALWAYS_INLINE vf v_abs(vf a)
{
    return v_one(_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.p[0]));
}

static ALWAYS_INLINE vf v_neg(vf a)
{
    return v_one(_mm512_xor_ps(_mm512_set1_ps(-0.0f), a.p[0]));
}

static ALWAYS_INLINE vf v_copysign(vf magnitude, vf sign_of)
{
    __m512 sign = _mm512_set1_ps(-0.0f);
    return v_one(_mm512_or_ps(_mm512_and_ps(sign, sign_of.p[0]), _mm512_andnot_ps(sign, magnitude.p[0])));
}

static ALWAYS_INLINE vf v_select_less(vf a, vf b, vf yes, vf no)
{
    return v_one(_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.p[0], b.p[0], _CMP_LT_OQ), no.p[0], yes.p[0]));
}

static ALWAYS_INLINE vf v_select_nan(vf a, vf yes, vf no)
{
    return v_one(_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.p[0], a.p[0], _CMP_UNORD_Q), no.p[0], yes.p[0]));
}

static ALWAYS_INLINE vf v_scale(vf p, vf t)
{
    return v_one(_mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(p.p[0]), _mm512_slli_epi32(_mm512_castps_si512(t.p[0]), 23))));
}

/* s8[j] = lane[j] + lane[j + 8] */
static ALWAYS_INLINE __m256 fold_to_eight(vf a)
{
    return _mm256_add_ps(_mm512_castps512_ps256(a.p[0]), _mm512_extractf32x8_ps(a.p[0], 1));
}

static ALWAYS_INLINE float v_tree(vf a)
{
    return tree_of_eight(fold_to_eight(a));
}

static ALWAYS_INLINE void v_tree_x8(float *y, const vf a[8])
{
    __m256 s8[8];
    UNROLL_ALL
    for (int i = 0; i < 8; i++)
        s8[i] = fold_to_eight(a[i]);
    _mm256_storeu_ps(y, tree_of_eight_x8(s8));
}

static ALWAYS_INLINE float v_largest(vf a)
{
    __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(a.p[0]), _mm512_extractf32x8_ps(a.p[0], 1));
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

#endif
