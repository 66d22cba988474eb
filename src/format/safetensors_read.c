/* The values of a tensor as float64, float32 or fp16, whatever type they have. */
#include <math.h>
#include <string.h>
#include "base/half.h"
#include "format/safetensors_internal.h"

#define BLOCK 1024

/* n <= BLOCK elements from `begin` on as doubles: exact but for 64-bit integers beyond 2^53. */
static void load_f64(const struct st_tensor *t, int64_t begin, size_t n, double *dst)
{
    if (t->dtype == ST_F8_E4M3) {
        st_load_f8(t, begin, (int64_t)n, dst);
        return;
    }
    size_t bytes = st_dtype_bytes(t->dtype);
    const uint8_t *src = t->data + (size_t)begin * bytes;
    for (size_t i = 0; i < n; i++, src += bytes) {
        uint64_t v = load_le(src, bytes);
        switch (t->dtype) {
        case ST_F64:
            memcpy(&dst[i], &v, 8);
            break;
        case ST_I8:
            dst[i] = (int8_t)v;
            break;
        case ST_I16:
            dst[i] = (int16_t)v;
            break;
        case ST_I32:
            dst[i] = (int32_t)v;
            break;
        case ST_I64:
            dst[i] = (double)(int64_t)v;
            break;
        default:
            dst[i] = (double)v;
            break;
        }
    }
}

/* n <= BLOCK elements of a type of at most 32 float bits as floats, exact. */
static void load_f32(const struct st_tensor *t, int64_t begin, size_t n, float *dst)
{
    uint16_t aligned[BLOCK];
    if (t->dtype == ST_PACKED) {
        st_load_packed(t, begin, (int64_t)n, dst);
        return;
    }
    const uint8_t *src = t->data + (size_t)begin * st_dtype_bytes(t->dtype);
    if (t->dtype == ST_F32) {
        memcpy(dst, src, n * 4);
        return;
    }
    memcpy(aligned, src, n * 2);
    if (t->dtype == ST_F16)
        f16_to_f32_n(dst, aligned, n);
    else
        bf16_to_f32_n(dst, aligned, n);
}

static bool is_short_float(enum st_dtype d)
{
    return d == ST_F32 || d == ST_F16 || d == ST_BF16 || d == ST_PACKED;
}

static bool check_readable(const struct st_tensor *t, const char *as, struct err *e)
{
    if (t->dtype == ST_F8_E4M3 && !t->scale)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: tensor %s: expected %s_scale_inv beside it, a scale for each block of %d x %d, "
                       "row, matrix or "
                       "tensor",
                       t->file, t->name, t->name, ST_SCALE_BLOCK, ST_SCALE_BLOCK);
    if (t->dtype == ST_UNKNOWN || t->dtype == ST_F8_E5M2)
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s: tensor %s: expected a type that can be read as %s (F16, BF16, F32, F64, integers), found %s",
            t->file, t->name, as, t->dtype_name);
    return true;
}

bool st_read_f32(const struct st_tensor *t, float *dst, struct err *e)
{
    double block[BLOCK];
    if (!check_readable(t, "float32", e))
        return false;
    for (int64_t at = 0; at < t->n_elems;) {
        size_t n = t->n_elems - at < BLOCK ? (size_t)(t->n_elems - at) : BLOCK;
        if (is_short_float(t->dtype)) {
            load_f32(t, at, n, dst + at);
        } else {
            load_f64(t, at, n, block);
            for (size_t i = 0; i < n; i++)
                dst[at + (int64_t)i] = (float)block[i];
        }
        at += (int64_t)n;
    }
    return true;
}

static bool check_range(const struct st_tensor *t, int64_t begin, int64_t n, struct err *e)
{
    if (begin >= 0 && n >= 0 && begin <= t->n_elems && n <= t->n_elems - begin)
        return true;
    return err_set(e, ERR_BUG, "%s: tensor %s: elements %lld to %lld asked for, there are %lld", t->file,
                   t->name, (long long)begin, (long long)begin + (long long)n, (long long)t->n_elems);
}

bool st_read_f64(const struct st_tensor *t, int64_t begin, int64_t n, double *dst, struct err *e)
{
    float block[BLOCK];
    if (!check_readable(t, "float64", e) || !check_range(t, begin, n, e))
        return false;
    for (int64_t done = 0; done < n;) {
        size_t count = n - done < BLOCK ? (size_t)(n - done) : BLOCK;
        if (is_short_float(t->dtype)) {
            load_f32(t, begin + done, count, block);
            for (size_t i = 0; i < count; i++)
                dst[done + (int64_t)i] = (double)block[i];
        } else {
            load_f64(t, begin + done, count, dst + done);
        }
        done += (int64_t)count;
    }
    return true;
}

/* Index of the first of n halves that is an infinity or no number, or n. */
static size_t find_not_finite(const uint16_t *halves, size_t n)
{
    unsigned any = 0; /* without a branch, so that it is done many at a time */
    for (size_t i = 0; i < n; i++)
        any |= (halves[i] & 0x7fff) >= 0x7c00;
    size_t i = any ? 0 : n;
    while (i < n && (halves[i] & 0x7fff) < 0x7c00)
        i++;
    return i;
}

/* Rounds a block to fp16; returns the index of the first value that is not a finite number there, or n. */
static size_t round_block(const struct st_tensor *t, int64_t begin, size_t n, uint16_t *dst, double *bad)
{
    union {
        float f32[BLOCK];
        double f64[BLOCK];
    } block;
    bool is_short = is_short_float(t->dtype);
    if (t->dtype == ST_F16) {
        memcpy(dst, t->data + (size_t)begin * 2, n * 2);
    } else if (is_short) {
        load_f32(t, begin, n, block.f32);
        f32_to_f16_n(dst, block.f32, n);
    } else {
        load_f64(t, begin, n, block.f64);
        for (size_t i = 0; i < n; i++)
            dst[i] = f64_to_f16(block.f64[i]);
    }
    size_t i = find_not_finite(dst, n);
    if (i < n)
        *bad = t->dtype == ST_F16 ? (double)f16_to_f32(dst[i])
               : is_short         ? (double)block.f32[i]
                                  : block.f64[i];
    return i;
}

bool st_read_f16(const struct st_tensor *t, int64_t begin, int64_t n, uint16_t *dst, struct err *e)
{
    if (!check_readable(t, "fp16", e) || !check_range(t, begin, n, e))
        return false;
    for (int64_t done = 0; done < n;) {
        size_t count = n - done < BLOCK ? (size_t)(n - done) : BLOCK;
        double bad = 0.0;
        size_t i = round_block(t, begin + done, count, dst + done, &bad);
        if (i < count)
            return err_set(
                e, ERR_FORMAT,
                "%s: tensor %s: element %lld: expected a number within fp16's range (at most 65504), found "
                "%.9g",
                t->file, t->name, (long long)(begin + done + (int64_t)i), isnan(bad) ? (double)NAN : bad);
        done += (int64_t)count;
    }
    return true;
}
