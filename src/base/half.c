/* fp16 and bf16 conversions on bit patterns: selects instead of branches, so that compilers vectorise the
 * loops.
 *
 * Results equal those of the conversion instructions of x86 and Arm (NaN: payload kept, made quiet), which
 * lets kernels use these where they exist. They need the default rounding mode.
 */
#include "base/half.h"

static inline float widen(uint32_t h)
{
    uint32_t magnitude = h & 0x7fff;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t special = (magnitude << 13) | 0x7f800000u | (magnitude > 0x7c00 ? 0x400000u : 0);
    uint32_t tiny = bits_of_float((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t u = magnitude >= 0x7c00 ? special : normal;
    u = magnitude < 0x400 ? tiny : u;
    return float_of_bits(u | (h & 0x8000) << 16);
}

static inline uint32_t narrow(float f)
{
    uint32_t u = bits_of_float(f);
    uint32_t a = u & 0x7fffffff;
    /* Adding 0.5 leaves the value in units of 2^-24, rounded by the addition itself. */
    uint32_t tiny = bits_of_float(float_of_bits(a) + 0.5f) - 0x3f000000u;
    uint32_t normal = (a + 0xfff + ((a >> 13) & 1) - (112u << 23)) >> 13;
    uint32_t h = a < 0x38800000u ? tiny : normal;
    h = a >= 0x477ff000u ? 0x7c00 : h;
    h = a > 0x7f800000u ? 0x7e00 | ((a >> 13) & 0x3ff) : h;
    return h | ((u >> 16) & 0x8000);
}

static inline float widen_bf16(uint32_t h)
{
    uint32_t u = h << 16;
    return float_of_bits((u & 0x7fffffff) > 0x7f800000u ? u | 0x400000u : u);
}

float f16_to_f32(f16 h)
{
    return widen(h);
}

f16 f32_to_f16(float f)
{
    return (f16)narrow(f);
}

f16 f64_to_f16(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    uint64_t a = u & 0x7fffffffffffffffu;
    unsigned sign = (unsigned)(u >> 48) & 0x8000;
    if (a > 0x7ff0000000000000u)
        return (f16)(sign | 0x7e00 | ((unsigned)(a >> 42) & 0x3ff));
    if (a >= 0x40effe0000000000u) /* 65520, halfway between the largest half and the next one */
        return (f16)(sign | 0x7c00);
    if (a < 0x3f10000000000000u) { /* 2^-14: as in narrow, 2^28 has units of 2^-24 */
        double sum;
        memcpy(&sum, &a, sizeof sum);
        sum += 0x1p28;
        memcpy(&a, &sum, sizeof a);
        return (f16)(sign | (unsigned)(a - 0x41b0000000000000u));
    }
    a += 0x1ffffffffffu + ((a >> 42) & 1);
    return (f16)(sign | (unsigned)((a - (1008ull << 52)) >> 42));
}

float bf16_to_f32(bf16 h)
{
    return widen_bf16(h);
}

void f16_to_f32_n(float *dst, const f16 *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = widen(src[i]);
}

void f32_to_f16_n(f16 *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (f16)narrow(src[i]);
}

void bf16_to_f32_n(float *dst, const bf16 *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = widen_bf16(src[i]);
}
