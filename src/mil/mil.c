/* The program's vocabulary: element types, types, and read access to functions, ops and compile-time values.
 *
 * Nothing here changes a program. Compile-time values come from files: every reader checks that the bytes
 * behind an element are there before it looks at them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "mil/mil.h"

static const struct {
    const char *name;
    unsigned char bits;
    bool is_float, is_integer;
} dtypes[MIL_DTYPES] = {
    [MIL_DTYPE_NONE] = {"?", 0, false, false},   [MIL_BOOL] = {"bool", 8, false, false},
    [MIL_STRING] = {"string", 0, false, false},  [MIL_FP16] = {"fp16", 16, true, false},
    [MIL_FP32] = {"fp32", 32, true, false},      [MIL_FP64] = {"fp64", 64, true, false},
    [MIL_BF16] = {"bf16", 16, true, false},      [MIL_INT4] = {"int4", 4, false, true},
    [MIL_INT8] = {"int8", 8, false, true},       [MIL_INT16] = {"int16", 16, false, true},
    [MIL_INT32] = {"int32", 32, false, true},    [MIL_INT64] = {"int64", 64, false, true},
    [MIL_UINT1] = {"uint1", 1, false, true},     [MIL_UINT2] = {"uint2", 2, false, true},
    [MIL_UINT3] = {"uint3", 3, false, true},     [MIL_UINT4] = {"uint4", 4, false, true},
    [MIL_UINT6] = {"uint6", 6, false, true},     [MIL_UINT8] = {"uint8", 8, false, true},
    [MIL_UINT16] = {"uint16", 16, false, true},  [MIL_UINT32] = {"uint32", 32, false, true},
    [MIL_UINT64] = {"uint64", 64, false, true},  [MIL_FP8E4M3FN] = {"fp8e4m3fn", 8, true, false},
    [MIL_FP8E5M2] = {"fp8e5m2", 8, true, false},
};

/* Types of a damaged file may nest; text of deeper levels is cut, equality of deeper levels is false. */
#define TYPE_DEPTH_MAX 32

static bool dtype_is_valid(enum mil_dtype d)
{
    return (int)d > 0 && (int)d < MIL_DTYPES;
}

const char *mil_dtype_name(enum mil_dtype d)
{
    return dtype_is_valid(d) ? dtypes[d].name : "?";
}

enum mil_dtype mil_dtype_find(const char *s, size_t n)
{
    for (int d = 1; d < MIL_DTYPES; d++) {
        if (strlen(dtypes[d].name) == n && memcmp(dtypes[d].name, s, n) == 0)
            return (enum mil_dtype)d;
    }
    return MIL_DTYPE_NONE;
}

int mil_dtype_bits(enum mil_dtype d)
{
    return dtype_is_valid(d) ? dtypes[d].bits : 0;
}

bool mil_dtype_is_float(enum mil_dtype d)
{
    return dtype_is_valid(d) && dtypes[d].is_float;
}

bool mil_dtype_is_integer(enum mil_dtype d)
{
    return dtype_is_valid(d) && dtypes[d].is_integer;
}

/* ---- types ---- */

int64_t mil_type_elems(const struct mil_type *t)
{
    if (!t || t->kind != MIL_TYPE_TENSOR)
        return -1;
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0 || __builtin_mul_overflow(n, t->dims[i], &n))
            return -1;
    }
    return n;
}

int64_t mil_type_bytes(const struct mil_type *t)
{
    int64_t n = mil_type_elems(t);
    int bits = t ? mil_dtype_bits(t->dtype) : 0;
    if (n < 0 || bits == 0 || __builtin_mul_overflow(n, (int64_t)bits, &n) || n > INT64_MAX - 7)
        return -1;
    return (n + 7) / 8;
}

static bool type_equal(const struct mil_type *a, const struct mil_type *b, int depth)
{
    if (a == b)
        return true;
    if (!a || !b || a->kind != b->kind || depth > TYPE_DEPTH_MAX)
        return false;
    switch (a->kind) {
    case MIL_TYPE_TENSOR:
        return a->dtype == b->dtype && a->rank == b->rank &&
               (a->rank == 0 || memcmp(a->dims, b->dims, sizeof a->dims[0] * (size_t)a->rank) == 0);
    case MIL_TYPE_LIST:
        return a->length == b->length && type_equal(a->elem, b->elem, depth + 1);
    case MIL_TYPE_STATE:
        return type_equal(a->elem, b->elem, depth + 1);
    case MIL_TYPE_TUPLE:
    case MIL_TYPE_DICT:
        if (a->n_items != b->n_items)
            return false;
        for (int i = 0; i < a->n_items; i++) {
            if (!type_equal(a->items[i], b->items[i], depth + 1))
                return false;
        }
        return true;
    }
    return false;
}

bool mil_type_equal(const struct mil_type *a, const struct mil_type *b)
{
    return type_equal(a, b, 0);
}

const struct mil_type *mil_type_tensor(const struct mil_type *t)
{
    return t && t->kind == MIL_TYPE_STATE ? t->elem : t;
}

struct mil_type *mil_type_new_tensor(struct arena *a, enum mil_dtype d, int rank, const int64_t *dims)
{
    struct mil_type *t = ARENA_NEW(a, struct mil_type);
    t->kind = MIL_TYPE_TENSOR;
    t->dtype = d;
    t->rank = rank;
    if (rank > 0)
        t->dims = arena_copy(a, dims, sizeof dims[0] * (size_t)rank);
    return t;
}

struct mil_type *mil_type_new_state(struct arena *a, const struct mil_type *tensor)
{
    struct mil_type *t = ARENA_NEW(a, struct mil_type);
    t->kind = MIL_TYPE_STATE;
    t->elem = tensor;
    return t;
}

/* A bounded writer: what does not fit is cut, dst stays terminated. */
struct cursor {
    char *p;
    size_t n, used;
};

static void put(struct cursor *c, const char *s)
{
    while (*s && c->used + 1 < c->n)
        c->p[c->used++] = *s++;
    if (c->n)
        c->p[c->used] = '\0';
}

static void put_dim(struct cursor *c, int64_t d)
{
    char text[32];
    if (d == MIL_DIM_VARIADIC)
        put(c, "...");
    else if (d < 0)
        put(c, "?");
    else {
        snprintf(text, sizeof text, "%lld", (long long)d);
        put(c, text);
    }
}

static void put_type(struct cursor *c, const struct mil_type *t, int depth)
{
    if (!t || depth > TYPE_DEPTH_MAX) {
        put(c, "?");
        return;
    }
    switch (t->kind) {
    case MIL_TYPE_TENSOR:
        if (t->rank == 0) {
            put(c, mil_dtype_name(t->dtype));
            return;
        }
        put(c, "tensor<");
        put(c, mil_dtype_name(t->dtype));
        put(c, ", [");
        for (int i = 0; i < t->rank; i++) {
            if (i)
                put(c, ", ");
            put_dim(c, t->dims[i]);
        }
        put(c, "]>");
        return;
    case MIL_TYPE_LIST:
        put(c, "list<");
        put_type(c, t->elem, depth + 1);
        put(c, ", ");
        put_dim(c, t->length);
        put(c, ">");
        return;
    case MIL_TYPE_STATE:
        put(c, "state<");
        put_type(c, t->elem, depth + 1);
        put(c, ">");
        return;
    case MIL_TYPE_TUPLE:
    case MIL_TYPE_DICT:
        put(c, t->kind == MIL_TYPE_DICT ? "dict<" : "tuple<");
        for (int i = 0; i < t->n_items; i++) {
            if (i)
                put(c, ", ");
            put_type(c, t->items[i], depth + 1);
        }
        put(c, ">");
        return;
    }
}

void mil_type_text(char *dst, size_t n, const struct mil_type *t)
{
    struct cursor c = {dst, n, 0};
    put(&c, "");
    put_type(&c, t, 0);
}

/* ---- functions ---- */

struct mil_function *mil_function_find(const struct mil_model *m, const char *name)
{
    for (int i = 0; m->program && i < m->program->n_functions; i++) {
        if (strcmp(m->program->functions[i]->name, name) == 0)
            return m->program->functions[i];
    }
    return NULL;
}

const char *mil_default_function_name(const struct mil_model *m)
{
    const char *name = m->description.default_function_name;
    if (name && name[0])
        return name;
    if (m->program && m->program->n_functions == 1)
        return m->program->functions[0]->name;
    return "main";
}

const struct mil_function_description *mil_function_description_find(const struct mil_model *m,
                                                                     const char *name)
{
    const struct mil_description *d = &m->description;
    for (int i = 0; i < d->n_functions; i++) {
        /* The one description of a model without a function table belongs to its only function. */
        if (d->functions[i].name ? strcmp(d->functions[i].name, name) == 0
                                 : strcmp(mil_default_function_name(m), name) == 0)
            return &d->functions[i];
    }
    return NULL;
}

/* ---- ops ---- */

const struct mil_arg *mil_arg_find(const struct mil_op *op, const char *name)
{
    for (int i = 0; i < op->n_args; i++) {
        if (strcmp(op->args[i].name, name) == 0)
            return &op->args[i];
    }
    return NULL;
}

struct mil_var *mil_arg_var(const struct mil_op *op, const char *name)
{
    const struct mil_arg *arg = mil_arg_find(op, name);
    return arg && arg->n == 1 ? arg->bindings[0].var : NULL;
}

const struct mil_value *mil_attribute(const struct mil_op *op, const char *name)
{
    for (int i = 0; i < op->n_attributes; i++) {
        if (strcmp(op->attributes[i].name, name) == 0)
            return op->attributes[i].value;
    }
    return NULL;
}

bool mil_op_is(const struct mil_op *op, const char *type)
{
    return op && strcmp(op->type, type) == 0;
}

const struct mil_value *mil_binding_value(const struct mil_binding *b)
{
    if (b->value)
        return b->value;
    if (b->var && mil_op_is(b->var->op, "const"))
        return mil_attribute(b->var->op, "val");
    return NULL;
}

const struct mil_value *mil_arg_value(const struct mil_op *op, const char *name)
{
    const struct mil_arg *arg = mil_arg_find(op, name);
    return arg && arg->n == 1 ? mil_binding_value(&arg->bindings[0]) : NULL;
}

/* ---- values ---- */

/* Number of elements that can be read from v, -1 when it is no tensor whose bytes are at hand. */
static int64_t readable_elems(const struct mil_value *v)
{
    if (!v || (v->kind != MIL_VALUE_TENSOR && v->kind != MIL_VALUE_BLOB) || !v->type ||
        v->type->kind != MIL_TYPE_TENSOR)
        return -1;
    int64_t n = mil_type_elems(v->type), bytes = mil_type_bytes(v->type);
    if (n < 0 || bytes < 0 || (uint64_t)bytes > v->bytes || (bytes > 0 && !v->data))
        return -1;
    return n;
}

static uint64_t read_bits(const uint8_t *p, int64_t i, int bits)
{
    uint64_t v = 0;
    if (bits >= 8) {
        memcpy(&v, p + i * (bits / 8), (size_t)bits / 8);
        return v;
    }
    int64_t first = i * bits;
    for (int k = 0; k < bits; k++)
        v |= (uint64_t)((p[(first + k) >> 3] >> ((first + k) & 7)) & 1) << k;
    return v;
}

static bool dtype_is_signed(enum mil_dtype d)
{
    return d == MIL_INT4 || d == MIL_INT8 || d == MIL_INT16 || d == MIL_INT32 || d == MIL_INT64;
}

static int64_t read_int(const struct mil_value *v, int64_t i)
{
    enum mil_dtype d = v->type->dtype;
    int bits = mil_dtype_bits(d);
    uint64_t raw = read_bits(v->data, i, bits);
    if (dtype_is_signed(d) && bits < 64 && (raw >> (bits - 1)) & 1)
        raw |= ~(uint64_t)0 << bits;
    return d == MIL_BOOL ? raw != 0 : (int64_t)raw;
}

static double fp8_to_double(uint8_t raw, int exponent_bits, int mantissa_bits, bool is_ieee)
{
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = (raw & 0x7f) >> mantissa_bits;
    int mantissa = raw & ((1 << mantissa_bits) - 1);
    double v;
    if (is_ieee && exponent == (1 << exponent_bits) - 1)
        v = mantissa ? (double)NAN : (double)INFINITY;
    else if (!is_ieee && (raw & 0x7f) == 0x7f)
        v = (double)NAN;
    else if (exponent == 0)
        v = ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        v = ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
    return raw & 0x80 ? -v : v;
}

static double read_element(const struct mil_value *v, int64_t i)
{
    const uint8_t *p = v->data;
    uint64_t raw;
    uint32_t raw32;
    float single;
    double d;
    switch (v->type->dtype) {
    case MIL_FP16:
        return (double)f16_to_f32((f16)read_bits(p, i, 16));
    case MIL_BF16:
        return (double)bf16_to_f32((bf16)read_bits(p, i, 16));
    case MIL_FP32:
        raw32 = (uint32_t)read_bits(p, i, 32);
        memcpy(&single, &raw32, sizeof single);
        return (double)single;
    case MIL_FP64:
        raw = read_bits(p, i, 64);
        memcpy(&d, &raw, sizeof d);
        return d;
    case MIL_FP8E4M3FN:
        return fp8_to_double(p[i], 4, 3, false);
    case MIL_FP8E5M2:
        return fp8_to_double(p[i], 5, 2, true);
    case MIL_UINT64:
        return (double)read_bits(p, i, 64);
    default:
        return (double)read_int(v, i);
    }
}

bool mil_value_ints(const struct mil_value *v, int64_t *dst, int n_max, int *n)
{
    int64_t n_elems = readable_elems(v);
    if (n_elems < 0 || n_elems > n_max)
        return false;
    for (int64_t i = 0; i < n_elems; i++) {
        if (!mil_dtype_is_float(v->type->dtype)) {
            dst[i] = read_int(v, i);
            continue;
        }
        double d = read_element(v, i);
        if (!(d > -0x1p62 && d < 0x1p62))
            return false;
        dst[i] = (int64_t)d;
    }
    *n = (int)n_elems;
    return true;
}

bool mil_value_float(const struct mil_value *v, double *dst)
{
    if (readable_elems(v) != 1)
        return false;
    *dst = read_element(v, 0);
    return true;
}

bool mil_value_string(const struct mil_value *v, struct str *dst)
{
    if (!v || v->kind != MIL_VALUE_TENSOR || !v->strings || v->n_elems != 1)
        return false;
    *dst = v->strings[0];
    return true;
}

double mil_value_element(const struct mil_value *v, int64_t i)
{
    return i >= 0 && i < readable_elems(v) ? read_element(v, i) : (double)NAN;
}

void mil_value_floats(float *dst, const struct mil_value *v, int64_t first, int64_t n)
{
    enum { AT_A_TIME = 512 };
    int64_t n_readable = readable_elems(v);
    enum mil_dtype dtype = n_readable > 0 ? v->type->dtype : MIL_DTYPE_NONE;
    bool is_inside = first >= 0 && n >= 0 && first <= n_readable && n <= n_readable - first;
    if (is_inside && dtype == MIL_FP32) {
        memcpy(dst, (const uint8_t *)v->data + 4 * first, 4 * (size_t)n);
    } else if (is_inside && dtype == MIL_FP16) {
        /* Immediates need not be aligned. */
        f16 halves[AT_A_TIME];
        for (int64_t i = 0; i < n; i += AT_A_TIME) {
            size_t count = (size_t)(n - i < AT_A_TIME ? n - i : AT_A_TIME);
            memcpy(halves, (const uint8_t *)v->data + 2 * (first + i), 2 * count);
            f16_to_f32_n(dst + i, halves, count);
        }
    } else {
        for (int64_t i = 0; i < n; i++)
            dst[i] = (float)mil_value_element(v, first + i);
    }
}
