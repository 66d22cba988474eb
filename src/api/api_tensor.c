/* Conversion of elements, one at a time along the strides; dense rows of the engine's own type are copied. */
#include <math.h>
#include <string.h>
#include "api/api_tensor.h"

int32_t tensor_type(enum mil_dtype d)
{
    switch (d) {
    case MIL_FP16:
        return MK_F16;
    case MIL_FP32:
        return MK_F32;
    case MIL_FP64:
        return MK_F64;
    case MIL_INT32:
        return MK_I32;
    case MIL_INT16:
        return MK_I16;
    case MIL_INT8:
        return MK_I8;
    case MIL_UINT8:
        return MK_U8;
    case MIL_BOOL:
        return MK_BOOL;
    default:
        return 0;
    }
}

size_t tensor_type_bytes(int32_t type)
{
    static const uint8_t bytes[] = {0, 4, 2, 8, 4, 2, 1, 1, 1};
    return type > 0 && type < (int32_t)sizeof bytes ? bytes[type] : 0;
}

int64_t tensor_elems(const mk_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

static bool has_strides(const mk_tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->strides[i] != 0)
            return true;
    return false;
}

bool tensor_check(const mk_tensor *t, const char *name, struct err *e)
{
    const int64_t most = (int64_t)1 << 40;
    int64_t n = 1;
    if (tensor_type_bytes(t->type) == 0)
        return err_set(e, ERR_USAGE, "%s: no element type %d", name, t->type);
    if (t->rank < 0 || t->rank > MK_RANK_MAX)
        return err_set(e, ERR_USAGE, "%s: a rank of %d, expected 0 to %d", name, t->rank, MK_RANK_MAX);
    for (int i = 0; i < t->rank; i++) {
        int64_t d = t->dims[i], stride = t->strides[i];
        if (d < 0 || d > most || (d > 0 && n > most / d))
            return err_set(e, ERR_USAGE, "%s: axis %d of %lld elements", name, i, (long long)d);
        if (stride > INT64_MAX / most || stride < -(INT64_MAX / most))
            return err_set(e, ERR_USAGE, "%s: a stride of %lld bytes", name, (long long)stride);
        n *= d;
    }
    return t->data || n == 0 || err_set(e, ERR_USAGE, "%s: no data", name);
}

/* Walks the elements in row-major order: the byte offset of the next one. */
struct walk {
    int rank;
    int64_t dims[MK_RANK_MAX], strides[MK_RANK_MAX], at[MK_RANK_MAX], offset;
};

static struct walk walk_begin(const mk_tensor *t)
{
    struct walk w = {.rank = t->rank};
    int64_t dense = (int64_t)tensor_type_bytes(t->type);
    bool given = has_strides(t);
    for (int i = t->rank - 1; i >= 0; i--) {
        w.dims[i] = t->dims[i];
        w.strides[i] = given ? t->strides[i] : dense;
        dense *= t->dims[i];
    }
    return w;
}

static void walk_next(struct walk *w)
{
    for (int i = w->rank - 1; i >= 0; i--) {
        w->offset += w->strides[i];
        if (++w->at[i] < w->dims[i])
            return;
        w->offset -= w->at[i] * w->strides[i];
        w->at[i] = 0;
    }
}

static double read_element(int32_t type, const char *p)
{
    union {
        float f32;
        double f64;
        f16 f16;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
    } v;
    memcpy(&v, p, tensor_type_bytes(type));
    switch (type) {
    case MK_F32:
        return (double)v.f32;
    case MK_F16:
        return (double)f16_to_f32(v.f16);
    case MK_F64:
        return v.f64;
    case MK_I32:
        return v.i32;
    case MK_I16:
        return v.i16;
    case MK_I8:
        return v.i8;
    case MK_U8:
        return v.u8;
    default:
        return v.u8 != 0;
    }
}

/* What is not a number becomes 0. */
static int32_t cut(double d, double low, double high)
{
    if (isnan(d))
        return 0;
    return (int32_t)(d < low ? low : d > high ? high : d);
}

static void write_element(int32_t type, char *p, double d)
{
    float f32 = (float)d;
    f16 half;
    int32_t i32;
    int16_t i16;
    int8_t i8;
    uint8_t u8;
    switch (type) {
    case MK_F32:
        memcpy(p, &f32, sizeof f32);
        break;
    case MK_F16:
        half = f32_to_f16(f32);
        memcpy(p, &half, sizeof half);
        break;
    case MK_F64:
        memcpy(p, &d, sizeof d);
        break;
    case MK_I32:
        i32 = cut(d, INT32_MIN, INT32_MAX);
        memcpy(p, &i32, sizeof i32);
        break;
    case MK_I16:
        i16 = (int16_t)cut(d, INT16_MIN, INT16_MAX);
        memcpy(p, &i16, sizeof i16);
        break;
    case MK_I8:
        i8 = (int8_t)cut(d, INT8_MIN, INT8_MAX);
        memcpy(p, &i8, sizeof i8);
        break;
    case MK_U8:
        u8 = (uint8_t)cut(d, 0, UINT8_MAX);
        memcpy(p, &u8, sizeof u8);
        break;
    default:
        *p = d != 0;
    }
}

bool tensor_load(void *dst, bool to_int, const mk_tensor *from, const char *name, struct err *e)
{
    int64_t n = tensor_elems(from);
    if (!has_strides(from) && from->type == (to_int ? MK_I32 : MK_F32)) {
        memcpy(dst, from->data, (size_t)n * 4);
        return true;
    }
    struct walk w = walk_begin(from);
    for (int64_t i = 0; i < n; i++, walk_next(&w)) {
        double d = read_element(from->type, (const char *)from->data + w.offset);
        if (!to_int) {
            ((float *)dst)[i] = (float)d;
        } else if (d >= INT32_MIN && d <= INT32_MAX && d == floor(d)) {
            ((int32_t *)dst)[i] = (int32_t)d;
        } else {
            return err_set(e, ERR_USAGE, "%s: element %lld is %g, expected a whole number of 32 bits", name,
                           (long long)i, d);
        }
    }
    return true;
}

void tensor_store(const mk_tensor *to, const void *src, bool from_int)
{
    int64_t n = tensor_elems(to);
    if (!has_strides(to) && to->type == (from_int ? MK_I32 : MK_F32)) {
        memcpy(to->data, src, (size_t)n * 4);
        return;
    }
    struct walk w = walk_begin(to);
    for (int64_t i = 0; i < n; i++, walk_next(&w))
        write_element(to->type, (char *)to->data + w.offset,
                      from_int ? (double)((const int32_t *)src)[i] : (double)((const float *)src)[i]);
}
