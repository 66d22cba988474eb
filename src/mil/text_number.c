/* Exact conversion between numbers of the text form and the bits of every element type. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "mil/text.h"
#include "mil/text_number_internal.h"

#define DECIMAL_CHARS_MAX 127

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Digits, an optional point and an optional binary exponent behind "0x". Digits beyond 60 significant bits
 * must be zero, so that the value in `mantissa` is exact. */
static size_t read_hex(const char *s, size_t n, double *v)
{
    uint64_t mantissa = 0;
    int64_t exponent = 0, written = 0;
    bool point = false, any = false, exact = true;
    size_t i = 0;

    for (; i < n; i++) {
        if (s[i] == '.' && !point) {
            point = true;
            continue;
        }
        int digit = hex_digit(s[i]);
        if (digit < 0)
            break;
        any = true;
        if (mantissa >> 56) {
            exact = exact && digit == 0;
            exponent += point ? 0 : 4;
        } else {
            mantissa = mantissa * 16 + (unsigned)digit;
            exponent -= point ? 4 : 0;
        }
    }
    if (!any || !exact)
        return 0;
    if (i < n && (s[i] == 'p' || s[i] == 'P')) {
        bool negative = false;
        size_t first;
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-'))
            negative = s[i++] == '-';
        for (first = i; i < n && s[i] >= '0' && s[i] <= '9'; i++)
            written = written < 100000 ? written * 10 + (s[i] - '0') : written;
        if (i == first)
            return 0;
        exponent += negative ? -written : written;
    }
    if (mantissa == 0) {
        *v = 0.0;
        return i;
    }
    int zeros = __builtin_ctzll(mantissa);
    mantissa >>= zeros;
    exponent += zeros;
    if (mantissa >> 53 || exponent > 2000 || exponent < -2000)
        return 0;
    if (exponent >= -900 && exponent <= 900) { /* a normal number: exact */
        uint64_t bits = (uint64_t)(exponent + 1023) << 52;
        double power;
        memcpy(&power, &bits, sizeof power);
        *v = (double)mantissa * power;
        return i;
    }
    double r = ldexp((double)mantissa, (int)exponent);
    int back;
    if (isinf(r) || r == 0.0)
        return 0;
    /* a subnormal result may have lost low bits */
    if (ldexp(frexp(r, &back), 53) != ldexp(frexp((double)mantissa, &back), 53))
        return 0;
    *v = r;
    return i;
}

static size_t read_decimal(const char *s, size_t n, double *v)
{
    char copy[DECIMAL_CHARS_MAX + 1];
    char *end;
    size_t i = 0;

    while (i < n && i <= DECIMAL_CHARS_MAX &&
           ((s[i] >= '0' && s[i] <= '9') || s[i] == '.' || s[i] == 'e' || s[i] == 'E' ||
            ((s[i] == '+' || s[i] == '-') && i > 0 && (s[i - 1] == 'e' || s[i - 1] == 'E'))))
        i++;
    if (i == 0 || i > DECIMAL_CHARS_MAX)
        return 0;
    memcpy(copy, s, i);
    copy[i] = '\0';
    *v = strtod(copy, &end);
    if (end != copy + i || isinf(*v))
        return 0;
    return i;
}

size_t text_number_read_float(const char *s, size_t n, double *v)
{
    size_t sign = n > 0 && s[0] == '-' ? 1 : 0;
    size_t took;
    double magnitude = 0;

    s += sign;
    n -= sign;
    if (n >= 3 && memcmp(s, "inf", 3) == 0) {
        magnitude = INFINITY;
        took = 3;
    } else if (n >= 3 && memcmp(s, "nan", 3) == 0) {
        magnitude = NAN;
        took = 3;
    } else if (n >= 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
        took = read_hex(s + 2, n - 2, &magnitude);
        took += took ? 2 : 0;
    } else {
        took = read_decimal(s, n, &magnitude);
    }
    if (took == 0)
        return 0;
    *v = sign ? -magnitude : magnitude;
    return took + sign;
}

/* ---- float types ---- */

static double decode_fp8(uint64_t bits, int mantissa_bits, int bias, bool has_infinity)
{
    int exponent_bits = 7 - mantissa_bits;
    int mantissa = (int)(bits & ((1u << mantissa_bits) - 1));
    int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    int top = (1 << exponent_bits) - 1;
    double v;

    if (exponent == top && has_infinity)
        v = mantissa ? NAN : INFINITY;
    else if (exponent == top && mantissa == (1 << mantissa_bits) - 1)
        v = NAN;
    else if (exponent == 0)
        v = ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        v = ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return bits & 0x80 ? -v : v;
}

/* The nearest of the 256 codes; ties go to the even code. */
static bool encode_fp8(enum mil_dtype d, double v, uint64_t *bits)
{
    double best = INFINITY;
    bool found = false;

    if (isnan(v)) {
        *bits = 0x7f;
        return true;
    }
    for (unsigned code = 0; code < 256; code++) {
        double c = text_number_decode_float(d, code);
        if (isnan(c) || !!signbit(c) != !!signbit(v) || isinf(c) != isinf(v))
            continue;
        double distance = isinf(v) ? 0 : fabs(c - v);
        if (!found || distance < best || (distance == best && (code & 1) == 0)) {
            best = distance;
            *bits = code;
            found = true;
        }
    }
    if (!found || isinf(v))
        return found;
    return fabs(v) <= fabs(text_number_decode_float(d, d == MIL_FP8E5M2 ? 0x7b : 0x7e));
}

double text_number_decode_float(enum mil_dtype d, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float f;
    double v;

    switch (d) {
    case MIL_FP16:
        return f16_to_f32((f16)bits);
    case MIL_BF16:
        return bf16_to_f32((bf16)bits);
    case MIL_FP32:
        memcpy(&f, &low, sizeof f);
        return f;
    case MIL_FP64:
        memcpy(&v, &bits, sizeof v);
        return v;
    case MIL_FP8E4M3FN:
        return decode_fp8(bits, 3, 7, false);
    case MIL_FP8E5M2:
        return decode_fp8(bits, 2, 15, true);
    default:
        return NAN;
    }
}

bool text_number_encode_float(enum mil_dtype d, double v, uint64_t *bits)
{
    float f;
    uint32_t u;

    switch (d) {
    case MIL_FP16:
        *bits = isnan(v) ? 0x7e00 : f64_to_f16(v);
        return isinf(v) || (*bits & 0x7fff) != 0x7c00;
    case MIL_BF16:
        if (isnan(v)) {
            *bits = 0x7fc0;
            return true;
        }
        f = (float)v;
        memcpy(&u, &f, sizeof u);
        *bits = (u + 0x7fff + (u >> 16 & 1)) >> 16;
        return isinf(v) || (*bits & 0x7fff) != 0x7f80;
    case MIL_FP32:
        f = isnan(v) ? NAN : (float)v;
        memcpy(&u, &f, sizeof u);
        *bits = u;
        return isinf(v) || !isinf(f);
    case MIL_FP64:
        memcpy(bits, &v, sizeof v);
        return true;
    case MIL_FP8E4M3FN:
    case MIL_FP8E5M2:
        return encode_fp8(d, v, bits);
    default:
        return false;
    }
}

/* ---- integer types ---- */

bool text_number_is_signed(enum mil_dtype d)
{
    return d == MIL_INT4 || d == MIL_INT8 || d == MIL_INT16 || d == MIL_INT32 || d == MIL_INT64;
}

void text_number_range(enum mil_dtype d, int64_t *low, uint64_t *high)
{
    int bits = mil_dtype_bits(d);

    if (text_number_is_signed(d)) {
        *high = (UINT64_C(1) << (bits - 1)) - 1;
        *low = -(int64_t)*high - 1;
    } else {
        *high = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
        *low = 0;
    }
}

int64_t text_number_sign_extend(enum mil_dtype d, uint64_t bits)
{
    int unused = 64 - mil_dtype_bits(d);

    return (int64_t)(bits << unused) >> unused;
}

uint64_t text_number_load(const uint8_t *data, enum mil_dtype d, int64_t i)
{
    int width = mil_dtype_bits(d);
    uint64_t v = 0;

    if (width >= 8) {
        int bytes = width / 8;
        for (int b = 0; b < bytes; b++)
            v |= (uint64_t)data[i * bytes + b] << (8 * b);
        return v;
    }
    for (int b = 0; b < width; b++) {
        int64_t bit = i * width + b;
        v |= (uint64_t)(data[bit / 8] >> (bit % 8) & 1) << b;
    }
    return v;
}

void mil_text_put_float(struct buf *out, double v)
{
    static const char digits[] = "0123456789abcdef";
    char s[32];
    size_t n = 0;
    uint64_t bits, mantissa;
    int exponent;

    if (isnan(v)) {
        buf_append(out, "nan", 3);
        return;
    }
    if (signbit(v))
        s[n++] = '-';
    if (isinf(v)) {
        memcpy(s + n, "inf", 3);
        buf_append(out, s, n + 3);
        return;
    }
    memcpy(&bits, &v, sizeof bits);
    mantissa = bits & ((UINT64_C(1) << 52) - 1);
    exponent = (int)(bits >> 52 & 0x7ff);
    s[n++] = '0';
    s[n++] = 'x';
    if (exponent == 0 && mantissa == 0) {
        s[n++] = '0';
    } else {
        s[n++] = '1';
        if (exponent == 0) {
            exponent = 1;
            while (!(mantissa >> 52)) {
                mantissa <<= 1;
                exponent--;
            }
            mantissa &= (UINT64_C(1) << 52) - 1;
        }
        exponent -= 1023;
        if (mantissa)
            s[n++] = '.';
        for (; mantissa; mantissa = mantissa << 4 & ((UINT64_C(1) << 52) - 1))
            s[n++] = digits[mantissa >> 48];
    }
    s[n++] = 'p';
    s[n++] = exponent < 0 ? '-' : '+';
    unsigned e = (unsigned)(exponent < 0 ? -exponent : exponent);
    if (e >= 1000)
        s[n++] = (char)('0' + e / 1000);
    if (e >= 100)
        s[n++] = (char)('0' + e / 100 % 10);
    if (e >= 10)
        s[n++] = (char)('0' + e / 10 % 10);
    s[n++] = (char)('0' + e % 10);
    buf_append(out, s, n);
}
