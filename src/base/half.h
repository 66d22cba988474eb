/* fp16 and bf16 as plain integers, with conversions that round to nearest, ties to even.
 *
 * The bulk functions give bit for bit what the scalar ones give, on every machine. NaN stays NaN (quiet).
 */
#ifndef MILKIT_BASE_HALF_H
#define MILKIT_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t f16;
typedef uint16_t bf16;

#define F16_MAX 65504.0f

static inline float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t bits_of_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float f16_to_f32(f16 h);
f16 f32_to_f16(float f);  /* overflow gives infinity */
f16 f64_to_f16(double d); /* one rounding, not two */
float bf16_to_f32(bf16 h);
static inline float f16_round(float f)
{
    return f16_to_f32(f32_to_f16(f));
}

void f16_to_f32_n(float *dst, const f16 *src, size_t n);
void f32_to_f16_n(f16 *dst, const float *src, size_t n);
void bf16_to_f32_n(float *dst, const bf16 *src, size_t n);

#endif
