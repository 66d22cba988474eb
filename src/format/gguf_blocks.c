/* Packed blocks of GGUF as float32: each product and each sum is one float32 operation, in the order in which ggml and the
 * gguf library do them, so that the numbers have their bits. Scales are fp16, little-endian.
 */
#include <string.h>
#include "base/half.h"
#include "format/gguf.h"

static float half_at(const uint8_t *p)
{
    return f16_to_f32((f16)load_le(p, 2));
}

static void expand_f32(const uint8_t *p, int64_t n, float *y)
{
    memcpy(y, p, (size_t)n * sizeof *y);
}

static void expand_f16(const uint8_t *p, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = half_at(p + 2 * i);
}

static void expand_bf16(const uint8_t *p, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = bf16_to_f32((bf16)load_le(p + 2 * i, 2));
}

/* ---- blocks of 32: the low halves of 16 bytes, then the high ones ---- */

/* Four bits of element j of 32. */
static int nibble_at(const uint8_t *qs, int j)
{
    return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
}

static void expand_q4_0(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 18, y += 32) {
        float d = half_at(p);
        for (int j = 0; j < 32; j++)
            y[j] = d * (float)(nibble_at(p + 2, j) - 8);
    }
}

static void expand_q4_1(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 20, y += 32) {
        float d = half_at(p), m = half_at(p + 2);
        for (int j = 0; j < 32; j++) {
            float product = d * (float)nibble_at(p + 4, j);
            y[j] = product + m;
        }
    }
}

static int five_bits(const uint8_t *qs, uint32_t high, int j)
{
    return nibble_at(qs, j) | (int)(high >> j & 1) << 4;
}

static void expand_q5_0(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 22, y += 32) {
        float d = half_at(p);
        uint32_t high = (uint32_t)load_le(p + 2, 4);
        for (int j = 0; j < 32; j++)
            y[j] = d * (float)(five_bits(p + 6, high, j) - 16);
    }
}

static void expand_q5_1(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 24, y += 32) {
        float d = half_at(p), m = half_at(p + 2);
        uint32_t high = (uint32_t)load_le(p + 4, 4);
        for (int j = 0; j < 32; j++) {
            float product = d * (float)five_bits(p + 8, high, j);
            y[j] = product + m;
        }
    }
}

static void expand_q8_0(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 34, y += 32) {
        float d = half_at(p);
        for (int j = 0; j < 32; j++)
            y[j] = d * (float)(int8_t)p[2 + j];
    }
}

/* The sixteen values of IQ4. */
static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

static void expand_iq4_nl(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 18, y += 32) {
        float d = half_at(p);
        for (int j = 0; j < 32; j++)
            y[j] = d * (float)iq4_values[nibble_at(p + 2, j)];
    }
}

/* e is an exponent; the table holds twice the values of a four-bit float, so the factor is half of 2^(e - 127). */
static void expand_mxfp4(const uint8_t *p, int64_t n, float *y)
{
    static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (; n > 0; n--, p += 17, y += 32) {
        uint32_t bits = p[0] < 2 ? UINT32_C(0x00200000) << p[0] : (uint32_t)(p[0] - 1) << 23;
        float d;
        memcpy(&d, &bits, 4);
        for (int j = 0; j < 32; j++)
            y[j] = d * (float)values[nibble_at(p + 1, j)];
    }
}

/* ---- blocks of 256: halves of 128 (i / 128), quarters of 32 in them ---- */

/* Two bits of element i of 256. */
static int two_bits(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

static void expand_q2_k(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 84, y += 256) {
        const uint8_t *scales = p, *qs = p + 16;
        float d = half_at(p + 80), d_min = half_at(p + 82);
        for (int i = 0; i < 256; i++) {
            float scale = d * (float)(scales[i / 16] & 15), least = d_min * (float)(scales[i / 16] >> 4);
            float product = scale * (float)two_bits(qs, i);
            y[i] = product - least;
        }
    }
}

static void expand_q3_k(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 110, y += 256) {
        const uint8_t *mask = p, *qs = p + 32, *scales = p + 96;
        float d = half_at(p + 108);
        for (int i = 0; i < 256; i++) {
            int s = i / 16, low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
            int scale = low | (scales[8 + s % 4] >> 2 * (s / 4) & 3) << 4;
            int q = two_bits(qs, i) - (mask[i % 32] >> i / 32 & 1 ? 0 : 4);
            float factor = d * (float)(scale - 32);
            y[i] = factor * (float)q;
        }
    }
}

/* Six-bit scale and minimum of the 32 numbers s of a block of Q4_K or Q5_K. */
static void scale_and_min(const uint8_t *scales, int s, int *scale, int *least)
{
    if (s < 4) {
        *scale = scales[s] & 63;
        *least = scales[s + 4] & 63;
    } else {
        *scale = (scales[s + 4] & 15) | scales[s - 4] >> 6 << 4;
        *least = scales[s + 4] >> 4 | scales[s] >> 6 << 4;
    }
}

/* high: the fifth bits, NULL for Q4_K. */
static void expand_k45(const uint8_t *p, const uint8_t *high, const uint8_t *qs, float *y)
{
    float d = half_at(p), d_min = half_at(p + 2);
    for (int s = 0; s < 8; s++) {
        int scale, least;
        scale_and_min(p + 4, s, &scale, &least);
        float factor = d * (float)scale, base = d_min * (float)least;
        for (int l = 0; l < 32; l++) {
            int q = qs[32 * (s / 2) + l] >> 4 * (s & 1) & 15;
            if (high)
                q |= (high[l] >> s & 1) << 4;
            float product = factor * (float)q;
            y[32 * s + l] = product - base;
        }
    }
}

static void expand_q4_k(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 144, y += 256)
        expand_k45(p, NULL, p + 16, y);
}

static void expand_q5_k(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 176, y += 256)
        expand_k45(p, p + 16, p + 48, y);
}

static void expand_q6_k(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 210, y += 256) {
        const uint8_t *low = p, *high = p + 128, *scales = p + 192;
        float d = half_at(p + 208);
        for (int i = 0; i < 256; i++) {
            int h = i / 128, j = i % 128 / 32, l = i % 32;
            int q = low[64 * h + 32 * (j & 1) + l] >> (j < 2 ? 0 : 4) & 15;
            q |= (high[32 * h + l] >> 2 * j & 3) << 4;
            float factor = d * (float)(int8_t)scales[i / 16];
            y[i] = factor * (float)(q - 32);
        }
    }
}

static void expand_iq4_xs(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 136, y += 256) {
        const uint8_t *low = p + 4, *qs = p + 8;
        unsigned high = (unsigned)load_le(p + 2, 2);
        float d = half_at(p);
        for (int s = 0; s < 8; s++) {
            int scale = (low[s / 2] >> 4 * (s & 1) & 15) | (int)(high >> 2 * s & 3) << 4;
            float factor = d * (float)(scale - 32);
            for (int j = 0; j < 32; j++)
                y[32 * s + j] = factor * (float)iq4_values[nibble_at(qs + 16 * s, j)];
        }
    }
}

static void expand_tq2_0(const uint8_t *p, int64_t n, float *y)
{
    for (; n > 0; n--, p += 66, y += 256) {
        float d = half_at(p + 64);
        for (int i = 0; i < 256; i++)
            y[i] = d * (float)(two_bits(p, i) - 1);
    }
}

/* ---- the table ---- */

/* Types whose numbers need tables of several KB, and those that no model's weights have, are known by name. */
static const struct gguf_block_type types[] = {
    {GGUF_TYPE_F32, "F32", 1, 4, expand_f32},
    {GGUF_TYPE_F16, "F16", 1, 2, expand_f16},
    {GGUF_TYPE_Q4_0, "Q4_0", 32, 18, expand_q4_0},
    {GGUF_TYPE_Q4_1, "Q4_1", 32, 20, expand_q4_1},
    {GGUF_TYPE_Q5_0, "Q5_0", 32, 22, expand_q5_0},
    {GGUF_TYPE_Q5_1, "Q5_1", 32, 24, expand_q5_1},
    {GGUF_TYPE_Q8_0, "Q8_0", 32, 34, expand_q8_0},
    {9, "Q8_1", 32, 36, NULL},
    {GGUF_TYPE_Q2_K, "Q2_K", 256, 84, expand_q2_k},
    {GGUF_TYPE_Q3_K, "Q3_K", 256, 110, expand_q3_k},
    {GGUF_TYPE_Q4_K, "Q4_K", 256, 144, expand_q4_k},
    {GGUF_TYPE_Q5_K, "Q5_K", 256, 176, expand_q5_k},
    {GGUF_TYPE_Q6_K, "Q6_K", 256, 210, expand_q6_k},
    {15, "Q8_K", 256, 292, NULL},
    {16, "IQ2_XXS", 256, 66, NULL},
    {17, "IQ2_XS", 256, 74, NULL},
    {18, "IQ3_XXS", 256, 98, NULL},
    {19, "IQ1_S", 256, 50, NULL},
    {GGUF_TYPE_IQ4_NL, "IQ4_NL", 32, 18, expand_iq4_nl},
    {21, "IQ3_S", 256, 110, NULL},
    {22, "IQ2_S", 256, 82, NULL},
    {GGUF_TYPE_IQ4_XS, "IQ4_XS", 256, 136, expand_iq4_xs},
    {24, "I8", 1, 1, NULL},
    {25, "I16", 1, 2, NULL},
    {26, "I32", 1, 4, NULL},
    {27, "I64", 1, 8, NULL},
    {28, "F64", 1, 8, NULL},
    {29, "IQ1_M", 256, 56, NULL},
    {GGUF_TYPE_BF16, "BF16", 1, 2, expand_bf16},
    {34, "TQ1_0", 256, 54, NULL},
    {GGUF_TYPE_TQ2_0, "TQ2_0", 256, 66, expand_tq2_0},
    {GGUF_TYPE_MXFP4, "MXFP4", 32, 17, expand_mxfp4},
    {40, "NVFP4", 64, 36, NULL},
    {41, "Q1_0", 128, 18, NULL},
};

const struct gguf_block_type *gguf_block_type(uint32_t id)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].id == id)
            return &types[i];
    }
    return NULL;
}

void gguf_expand(const struct gguf_block_type *t, const uint8_t *data, int64_t begin, int64_t n, float *dst)
{
    float block[GGUF_BLOCK_MAX];
    int64_t size = t->elements;
    while (n > 0) {
        int64_t inside = begin % size, part = size - inside;
        const uint8_t *from = data + (size_t)(begin / size) * (size_t)t->bytes;
        if (inside == 0 && n >= size) {
            part = n / size * size;
            t->expand(from, n / size, dst);
        } else {
            part = part < n ? part : n;
            t->expand(from, 1, block);
            memcpy(dst, block + inside, (size_t)part * sizeof *dst);
        }
        begin += part;
        dst += part;
        n -= part;
    }
}
