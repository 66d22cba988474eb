/* Types and values of the text form, read. A value is driven by its type: only the outermost one is typed in
 * the text. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include "mil/text_number_internal.h"
#include "mil/text_reader_internal.h"

/* ---- types ---- */

static bool read_dim(struct text_reader *r, int64_t *dim)
{
    uint64_t v;

    if (text_take(r, '?')) {
        *dim = MIL_DIM_UNKNOWN;
        return true;
    }
    if (text_peek(r) == '.') {
        if (r->end - r->p < 3 || memcmp(r->p, "...", 3) != 0)
            return text_fail(r, r->p, ERR_FORMAT, "expected a dimension, found '.'");
        r->p += 3;
        *dim = MIL_DIM_VARIADIC;
        return true;
    }
    if (!text_unsigned(r, INT64_MAX, &v, "a dimension"))
        return false;
    *dim = (int64_t)v;
    return true;
}

static bool read_tensor_type(struct text_reader *r, const struct mil_type **out)
{
    int64_t dims[MIL_RANK_MAX];
    struct str name;
    int rank = 0;
    const char *at;

    if (!text_expect(r, '<', "'<' behind \"tensor\""))
        return false;
    text_peek(r);
    at = r->p;
    if (!text_expect_identifier(r, &name, "an element type"))
        return false;
    enum mil_dtype d = mil_dtype_find(name.p, name.n);
    if (d == MIL_DTYPE_NONE)
        return text_fail(r, at, ERR_FORMAT, "unknown element type \"%.*s\"", (int)(name.n < 40 ? name.n : 40),
                         name.p);
    if (!text_expect(r, ',', "',' behind the element type") ||
        !text_expect(r, '[', "'[' before the dimensions"))
        return false;
    if (!text_take(r, ']')) {
        do {
            if (rank == MIL_RANK_MAX)
                return text_fail(r, r->p, ERR_LIMIT, "a tensor of more than %d dimensions", MIL_RANK_MAX);
            if (!read_dim(r, &dims[rank++]))
                return false;
        } while (text_take(r, ','));
        if (!text_expect(r, ']', "',' or ']' in the dimensions"))
            return false;
    }
    if (!text_expect(r, '>', "'>' at the end of the type"))
        return false;
    *out = mil_type_new_tensor(r->arena, d, rank, dims);
    return true;
}

static bool read_item_types(struct text_reader *r, struct mil_type *t)
{
    size_t mark = r->n_stack;
    const struct mil_type *item;
    void **items;

    do {
        if (!text_read_type(r, &item))
            return false;
        text_push(r, (void *)(uintptr_t)item);
    } while (text_take(r, ','));
    if (!text_pop(r, mark, &items, &t->n_items))
        return false;
    t->items = (const struct mil_type *const *)items;
    if (t->kind == MIL_TYPE_DICT && t->n_items != 2)
        return text_fail(r, r->p, ERR_FORMAT, "a dict type has a key and a value type, found %d types",
                         t->n_items);
    return true;
}

static bool read_type_inside(struct text_reader *r, const struct mil_type **out)
{
    const char *at;
    struct str name;
    struct mil_type *t;

    text_peek(r);
    at = r->p;
    if (!text_expect_identifier(r, &name, "a type"))
        return false;
    if (text_str_is(name, "tensor"))
        return read_tensor_type(r, out);
    enum mil_dtype d = mil_dtype_find(name.p, name.n);
    if (d != MIL_DTYPE_NONE) {
        *out = mil_type_new_tensor(r->arena, d, 0, NULL);
        return true;
    }
    t = ARENA_NEW(r->arena, struct mil_type);
    t->length = MIL_DIM_UNKNOWN;
    if (text_str_is(name, "list"))
        t->kind = MIL_TYPE_LIST;
    else if (text_str_is(name, "tuple"))
        t->kind = MIL_TYPE_TUPLE;
    else if (text_str_is(name, "dict"))
        t->kind = MIL_TYPE_DICT;
    else if (text_str_is(name, "state"))
        t->kind = MIL_TYPE_STATE;
    else
        return text_fail(r, at, ERR_FORMAT, "unknown type \"%.*s\"", (int)(name.n < 40 ? name.n : 40),
                         name.p);
    if (!text_expect(r, '<', "'<' behind the type's name"))
        return false;
    if (t->kind == MIL_TYPE_LIST || t->kind == MIL_TYPE_STATE) {
        if (!text_read_type(r, &t->elem))
            return false;
        if (t->kind == MIL_TYPE_LIST) {
            if (!text_expect(r, ',', "',' before the length of the list") || !read_dim(r, &t->length))
                return false;
        } else if (t->elem->kind != MIL_TYPE_TENSOR) {
            return text_fail(r, at, ERR_FORMAT, "a state holds a tensor");
        }
    } else if (!read_item_types(r, t)) {
        return false;
    }
    *out = t;
    return text_expect(r, '>', "'>' at the end of the type");
}

bool text_read_type(struct text_reader *r, const struct mil_type **out)
{
    if (r->depth == TEXT_NESTING_MAX)
        return text_fail(r, r->p, ERR_LIMIT, "more than %d levels of nesting", TEXT_NESTING_MAX);
    r->depth++;
    bool ok = read_type_inside(r, out);
    r->depth--;
    return ok;
}

/* ---- tensors ---- */

/* Elements are collected in r->scratch: bytes, or struct str for strings. */
struct tensor_reading {
    const struct mil_type *type;
    enum mil_dtype dtype;
    int width; /* bits of an element */
    bool is_float;
    int64_t low;
    uint64_t high;
    uint64_t pending; /* bits below a whole byte */
    int n_pending;
    int64_t n;
    int64_t unknown; /* what "?" turned out to be; -1 before */
};

static void put_bits(struct text_reader *r, struct tensor_reading *t, uint64_t bits)
{
    char bytes[8];

    if (t->width >= 8) {
        for (int b = 0; b < t->width / 8; b++)
            bytes[b] = (char)(bits >> (8 * b) & 0xff);
        buf_append(&r->scratch, bytes, (size_t)t->width / 8);
        return;
    }
    t->pending |= (bits & ((UINT64_C(1) << t->width) - 1)) << t->n_pending;
    t->n_pending += t->width;
    if (t->n_pending >= 8) {
        buf_putc(&r->scratch, (char)(t->pending & 0xff));
        t->pending >>= 8;
        t->n_pending -= 8;
    }
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A string literal into the arena. The text may hold raw bytes of any kind inside the quotes. */
static bool read_string(struct text_reader *r, struct str *out)
{
    const char *start, *s;
    char *dst;
    size_t n = 0;

    if (text_peek(r) != '"') {
        char next[48];
        text_describe_next(r, next);
        return text_fail(r, r->p, ERR_FORMAT, "expected a string, found %s", next);
    }
    start = r->p++;
    for (s = r->p; s < r->end && *s != '"'; s++) {
        if (*s == '\\' && ++s == r->end)
            break;
    }
    if (s >= r->end)
        return text_fail(r, start, ERR_FORMAT, "the string has no end");
    dst = arena_try_alloc(r->arena, (size_t)(s - r->p) + 1, 1, r->e);
    if (!dst)
        return false;
    for (const char *end = s; r->p < end; r->p++) {
        char c = *r->p;
        if (c == '\\') {
            c = *++r->p;
            int high, low;
            if (c == 'n') {
                c = '\n';
            } else if (c == 't') {
                c = '\t';
            } else if (c == 'r') {
                c = '\r';
            } else if (c == 'x' && end - r->p > 2 && (high = hex_value(r->p[1])) >= 0 &&
                       (low = hex_value(r->p[2])) >= 0) {
                c = (char)(high * 16 + low);
                r->p += 2;
            } else if (c != '"' && c != '\\' && c != '\'') {
                return text_fail(r, r->p - 1, ERR_FORMAT, "unknown escape in a string");
            }
        }
        dst[n++] = c;
    }
    r->p++;
    out->p = dst;
    out->n = n;
    return true;
}

static bool read_integer(struct text_reader *r, struct tensor_reading *t, uint64_t *bits)
{
    const char *at = r->p;
    bool negative = r->p < r->end && *r->p == '-';
    uint64_t v = 0;
    bool overflow = false;

    r->p += negative;
    const char *first = r->p;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++) {
        unsigned digit = (unsigned)(*r->p - '0');
        overflow = overflow || v > (UINT64_MAX - digit) / 10;
        v = v * 10 + digit;
    }
    if (r->p == first) {
        char next[48];
        text_describe_next(r, next);
        return text_fail(r, at, ERR_FORMAT, "expected an integer, found %s", next);
    }
    uint64_t limit = !negative ? t->high : t->low < 0 ? (uint64_t) - (t->low + 1) + 1 : 0;
    if (overflow || v > limit)
        return text_fail(r, at, ERR_FORMAT, "the number does not fit %s", mil_dtype_name(t->dtype));
    *bits = negative ? (uint64_t)0 - v : v;
    return true;
}

static bool read_bool(struct text_reader *r, uint64_t *bits)
{
    const char *at = r->p;
    struct str word = text_identifier(r);

    if (text_str_is(word, "true"))
        *bits = 1;
    else if (text_str_is(word, "false"))
        *bits = 0;
    else
        return text_fail(r, at, ERR_FORMAT, "expected true or false");
    return true;
}

static bool read_element(struct text_reader *r, struct tensor_reading *t)
{
    uint64_t bits = 0;
    double v;

    text_peek(r);
    if (t->dtype == MIL_STRING) {
        struct str s;
        if (!read_string(r, &s))
            return false;
        buf_append(&r->scratch, &s, sizeof s);
    } else if (t->dtype == MIL_BOOL) {
        if (!read_bool(r, &bits))
            return false;
        buf_putc(&r->scratch, (char)bits);
    } else if (t->is_float) {
        size_t took = text_number_read_float(r->p, (size_t)(r->end - r->p), &v);
        if (took == 0) {
            char next[48];
            text_describe_next(r, next);
            return text_fail(r, r->p, ERR_FORMAT, "expected a number that fp64 holds exactly, found %s",
                             next);
        }
        if (!text_number_encode_float(t->dtype, v, &bits))
            return text_fail(r, r->p, ERR_FORMAT, "the number does not fit %s", mil_dtype_name(t->dtype));
        r->p += took;
        put_bits(r, t, bits);
    } else {
        if (!read_integer(r, t, &bits))
            return false;
        put_bits(r, t, bits);
    }
    t->n++;
    return true;
}

static bool read_rows(struct text_reader *r, struct tensor_reading *t, int level)
{
    int64_t n = 0;
    int64_t expected = level < t->type->rank ? t->type->dims[level] : 0;
    const char *at;

    if (level == t->type->rank)
        return read_element(r, t);
    text_peek(r);
    at = r->p;
    if (!text_expect(r, '[', "'[' before the elements"))
        return false;
    if (!text_take(r, ']')) {
        bool last = level + 1 == t->type->rank;
        do {
            if (!(last ? read_element(r, t) : read_rows(r, t, level + 1)))
                return false;
            n++;
        } while (text_take(r, ','));
        if (!text_expect(r, ']', "',' or ']' behind an element"))
            return false;
    }
    if (expected == MIL_DIM_UNKNOWN) {
        if (t->unknown < 0)
            t->unknown = n;
        expected = t->unknown;
    }
    if (n != expected)
        return text_fail(r, at, ERR_FORMAT, "expected %" PRId64 " elements on level %d, found %" PRId64,
                         expected, level + 1, n);
    return true;
}

static bool read_tensor(struct text_reader *r, const struct mil_type *type, struct mil_value *v)
{
    struct tensor_reading t = {.type = type, .dtype = type->dtype, .unknown = -1};
    int n_unknown = 0;
    int64_t known = 1;

    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] == MIL_DIM_VARIADIC)
            return text_fail(r, r->p, ERR_UNSUPPORTED, "a value of a type with \"...\"");
        n_unknown += type->dims[i] == MIL_DIM_UNKNOWN;
        known = type->dims[i] == 0 ? 0 : known;
    }
    /* more than one "?" could not be printed back from the elements alone */
    if (n_unknown > 1 || (n_unknown == 1 && known == 0))
        return text_fail(r, r->p, ERR_UNSUPPORTED,
                         "a value whose dimensions do not follow from its elements");
    t.width = t.dtype == MIL_STRING ? 0 : mil_dtype_bits(t.dtype);
    t.is_float = mil_dtype_is_float(t.dtype);
    if (!t.is_float && t.dtype != MIL_STRING && t.dtype != MIL_BOOL)
        text_number_range(t.dtype, &t.low, &t.high);
    buf_clear(&r->scratch);
    if (!read_rows(r, &t, 0))
        return false;
    if (t.n_pending > 0)
        buf_putc(&r->scratch, (char)(t.pending & 0xff));
    if (r->scratch.failed)
        return text_fail(r, r->p, ERR_LIMIT, "a value that is too large");
    v->n_elems = t.n;
    if (r->scratch.n > 0) {
        void *copy = arena_try_alloc(r->arena, r->scratch.n, 1, r->e);
        if (!copy)
            return false;
        memcpy(copy, r->scratch.p, r->scratch.n);
        if (t.dtype == MIL_STRING)
            v->strings = copy;
        else
            v->data = copy;
    } else {
        v->data = arena_alloc(r->arena, 1);
    }
    if (t.dtype != MIL_STRING)
        v->bytes = r->scratch.n;
    return true;
}

/* ---- lists, tuples, dicts ---- */

static bool read_raw(struct text_reader *r, const struct mil_type *type, const struct mil_value **out);

static bool read_list(struct text_reader *r, const struct mil_type *type)
{
    const struct mil_value *item;

    if (!text_expect(r, '[', "'[' before the items of a list"))
        return false;
    if (text_take(r, ']'))
        return true;
    do {
        if (!read_raw(r, type->elem, &item))
            return false;
        text_push(r, (void *)(uintptr_t)item);
    } while (text_take(r, ','));
    return text_expect(r, ']', "',' or ']' behind an item of a list");
}

static bool read_tuple(struct text_reader *r, const struct mil_type *type)
{
    const struct mil_value *item;

    if (!text_expect(r, '(', "'(' before the items of a tuple"))
        return false;
    for (int i = 0; i < type->n_items; i++) {
        if ((i > 0 && !text_expect(r, ',', "',' and the next item of the tuple")) ||
            !read_raw(r, type->items[i], &item))
            return false;
        text_push(r, (void *)(uintptr_t)item);
    }
    return text_expect(r, ')', "')' behind the last item of the tuple");
}

static bool read_dict(struct text_reader *r, const struct mil_type *type)
{
    const struct mil_value *key, *value;

    if (!text_expect(r, '{', "'{' before the entries of a dict"))
        return false;
    if (text_take(r, '}'))
        return true;
    do {
        if (!text_expect(r, '{', "'{' before an entry of a dict") || !read_raw(r, type->items[0], &key) ||
            !text_expect(r, ',', "',' between key and value") || !read_raw(r, type->items[1], &value) ||
            !text_expect(r, '}', "'}' behind an entry of a dict"))
            return false;
        text_push(r, (void *)(uintptr_t)key);
        text_push(r, (void *)(uintptr_t)value);
    } while (text_take(r, ','));
    return text_expect(r, '}', "',' or '}' behind an entry of a dict");
}

/* The nesting of values follows the nesting of their types, which is limited. */
static bool read_raw(struct text_reader *r, const struct mil_type *type, const struct mil_value **out)
{
    struct mil_value *v = ARENA_NEW(r->arena, struct mil_value);
    size_t mark = r->n_stack;
    const char *at;
    void **items;
    bool ok;

    *out = v;
    v->type = type;
    if (type->kind == MIL_TYPE_TENSOR) {
        v->kind = MIL_VALUE_TENSOR;
        return read_tensor(r, type, v);
    }
    text_peek(r);
    at = r->p;
    v->kind = MIL_VALUE_ITEMS;
    switch (type->kind) {
    case MIL_TYPE_LIST:
        ok = read_list(r, type);
        break;
    case MIL_TYPE_TUPLE:
        ok = read_tuple(r, type);
        break;
    case MIL_TYPE_DICT:
        ok = read_dict(r, type);
        break;
    default:
        return text_fail(r, r->p, ERR_FORMAT, "a state has no value");
    }
    if (!ok || !text_pop(r, mark, &items, &v->n_items))
        return false;
    v->items = (const struct mil_value *const *)items;
    if (type->kind == MIL_TYPE_LIST && type->length != MIL_DIM_UNKNOWN && type->length != v->n_items)
        return text_fail(r, at, ERR_FORMAT, "expected a list of %" PRId64 " items, found %d", type->length,
                         v->n_items);
    v->n_elems = v->n_items;
    return true;
}

static bool read_named_scalar(struct text_reader *r, const char *name, enum mil_dtype d,
                              const struct mil_value **out)
{
    const struct mil_type *type;
    const char *at;
    struct str word;

    text_peek(r);
    at = r->p;
    word = text_identifier(r);
    if (!text_str_is(word, name))
        return text_fail(r, at, ERR_FORMAT, "expected \"%s\"", name);
    if (!text_expect(r, '=', "'='"))
        return false;
    text_peek(r);
    at = r->p;
    if (!text_read_type(r, &type))
        return false;
    if (type->kind != MIL_TYPE_TENSOR || type->rank != 0 || type->dtype != d)
        return text_fail(r, at, ERR_FORMAT, "%s: expected a value of type %s", name, mil_dtype_name(d));
    return text_expect(r, '(', "'(' before the value") && read_raw(r, type, out) &&
           text_expect(r, ')', "')' behind the value");
}

static bool read_blob(struct text_reader *r, const struct mil_type *type, const char *at, struct mil_value *v)
{
    const struct mil_value *path, *offset;

    if (type->kind != MIL_TYPE_TENSOR || type->dtype == MIL_STRING)
        return text_fail(r, at, ERR_FORMAT, "only tensors of numbers lie in a weight file");
    if (!text_expect(r, '(', "'(' behind BLOBFILE") || !read_named_scalar(r, "path", MIL_STRING, &path) ||
        !text_expect(r, ',', "',' behind the path") || !read_named_scalar(r, "offset", MIL_UINT64, &offset) ||
        !text_expect(r, ')', "')' behind the offset"))
        return false;
    if (path->strings[0].n == 0 || memchr(path->strings[0].p, 0, path->strings[0].n))
        return text_fail(r, at, ERR_FORMAT, "the path of a weight file is empty or has a NUL byte in it");
    v->kind = MIL_VALUE_BLOB;
    v->type = type;
    v->file = arena_strndup(r->arena, path->strings[0].p, path->strings[0].n);
    v->offset = text_number_load(offset->data, MIL_UINT64, 0);
    int64_t bytes = mil_type_bytes(type);
    v->n_elems = mil_type_elems(type);
    if (bytes < 0 || v->n_elems < 0)
        return text_fail(r, at, ERR_FORMAT, "a weight's dimensions must be known and its bytes fit 63 bits");
    v->bytes = (size_t)bytes;
    return true;
}

bool text_read_value(struct text_reader *r, const struct mil_value **out)
{
    const struct mil_type *type;
    const char *at;

    if (!text_read_type(r, &type) || !text_expect(r, '(', "'(' before the value"))
        return false;
    text_peek(r);
    at = r->p;
    if (r->end - r->p >= 8 && memcmp(r->p, "BLOBFILE", 8) == 0) {
        struct mil_value *v = ARENA_NEW(r->arena, struct mil_value);
        r->p += 8;
        if (!read_blob(r, type, at, v))
            return false;
        *out = v;
    } else if (!read_raw(r, type, out)) {
        return false;
    }
    return text_expect(r, ')', "')' behind the value");
}
