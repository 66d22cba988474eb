/* Reads types and values of the protobuf form. All nesting is bounded here, as others recurse as deep. */
#include <stdlib.h>
#include <string.h>

#include "mil/protobuf_internal.h"

/* Far above what types and values of real programs need. */
#define TYPE_NESTING_MAX 24
#define VALUE_NESTING_MAX 32

/* ---- types ---- */

static bool dimension_read(int64_t *out, const MilkitPb__Dimension *d, struct err *e)
{
    switch (d->dimension_case) {
    case MILKIT_PB__DIMENSION__DIMENSION_CONSTANT:
        if (d->constant->size > INT64_MAX)
            return err_set(e, ERR_FORMAT, "impossible dimension %llu", (unsigned long long)d->constant->size);
        *out = (int64_t)d->constant->size;
        return true;
    case MILKIT_PB__DIMENSION__DIMENSION_UNKNOWN:
        *out = d->unknown->variadic ? MIL_DIM_VARIADIC : MIL_DIM_UNKNOWN;
        return true;
    default:
        return err_set(e, ERR_FORMAT, "a dimension that is neither a number nor unknown");
    }
}

static bool tensor_type_read(struct protobuf_reader *r, struct mil_type *t, const MilkitPb__TensorType *p)
{
    int64_t *dims;

    t->kind = MIL_TYPE_TENSOR;
    t->dtype = dtype_from_protobuf(p->data_type);
    if (t->dtype == MIL_DTYPE_NONE)
        return err_set(r->e, ERR_UNSUPPORTED, "unknown element type number %d", p->data_type);
    if (p->rank < 0)
        return err_set(r->e, ERR_UNSUPPORTED, "a tensor of unknown rank");
    if ((uint64_t)p->rank != p->n_dimensions)
        return err_set(r->e, ERR_FORMAT, "a tensor of rank %lld with %zu dimensions", (long long)p->rank,
                       p->n_dimensions);
    if (p->rank > MIL_RANK_MAX)
        return err_set(r->e, ERR_LIMIT, "a tensor of rank %lld, at most %d are supported", (long long)p->rank,
                       MIL_RANK_MAX);
    t->rank = (int)p->rank;
    dims = ARENA_ARRAY(r->arena, int64_t, t->rank);
    t->dims = dims;
    for (int i = 0; i < t->rank; i++)
        if (!dimension_read(&dims[i], p->dimensions[i], r->e))
            return false;
    return true;
}

const struct mil_type *protobuf_type_read(struct protobuf_reader *r, const MilkitPb__ValueType *p, int depth)
{
    struct mil_type *t;
    const struct mil_type **items;
    size_t n;

    if (!p) {
        err_set(r->e, ERR_FORMAT, "the type is missing");
        return NULL;
    }
    if (depth > TYPE_NESTING_MAX) {
        err_set(r->e, ERR_LIMIT, "types nest more than %d deep", TYPE_NESTING_MAX);
        return NULL;
    }
    t = ARENA_NEW(r->arena, struct mil_type);
    switch (p->type_case) {
    case MILKIT_PB__VALUE_TYPE__TYPE_TENSOR:
        return tensor_type_read(r, t, p->tensor) ? t : NULL;
    case MILKIT_PB__VALUE_TYPE__TYPE_LIST:
        t->kind = MIL_TYPE_LIST;
        t->length = MIL_DIM_UNKNOWN;
        if (p->list->length && !dimension_read(&t->length, p->list->length, r->e))
            return NULL;
        t->elem = protobuf_type_read(r, p->list->type, depth + 1);
        return t->elem ? t : NULL;
    case MILKIT_PB__VALUE_TYPE__TYPE_TUPLE:
        t->kind = MIL_TYPE_TUPLE;
        n = p->tuple->n_types;
        items = ARENA_ARRAY(r->arena, const struct mil_type *, n);
        for (size_t i = 0; i < n; i++)
            if (!(items[i] = protobuf_type_read(r, p->tuple->types[i], depth + 1)))
                return NULL;
        t->items = items;
        t->n_items = (int)n;
        return t;
    case MILKIT_PB__VALUE_TYPE__TYPE_DICTIONARY:
        t->kind = MIL_TYPE_DICT;
        items = ARENA_ARRAY(r->arena, const struct mil_type *, 2);
        items[0] = protobuf_type_read(r, p->dictionary->key, depth + 1);
        items[1] = items[0] ? protobuf_type_read(r, p->dictionary->value, depth + 1) : NULL;
        t->items = items;
        t->n_items = 2;
        return items[1] ? t : NULL;
    case MILKIT_PB__VALUE_TYPE__TYPE_STATE:
        t->kind = MIL_TYPE_STATE;
        t->elem = protobuf_type_read(r, p->state->wrapped, depth + 1);
        if (t->elem && t->elem->kind != MIL_TYPE_TENSOR) {
            err_set(r->e, ERR_FORMAT, "a state that holds no tensor");
            return NULL;
        }
        return t->elem ? t : NULL;
    default:
        err_set(r->e, ERR_UNSUPPORTED, "a type that is not a tensor, list, tuple, dictionary or state");
        return NULL;
    }
}

/* ---- immediate tensors ---- */

/* The elements as this type keeps them, and how many bytes each takes in the graph. */
static bool ints_read(struct protobuf_reader *r, struct mil_value *v, const MilkitPb__Ints *p)
{
    static const struct {
        enum mil_dtype dtype;
        int32_t low;
        int64_t high;
    } ranges[] = {
        {MIL_INT8, INT8_MIN, INT8_MAX},
        {MIL_UINT8, 0, UINT8_MAX},
        {MIL_INT16, INT16_MIN, INT16_MAX},
        {MIL_UINT16, 0, UINT16_MAX},
        {MIL_INT32, INT32_MIN, INT32_MAX},
        /* the bits of a uint32 above INT32_MAX come as a negative number */
        {MIL_UINT32, INT32_MIN, INT32_MAX},
    };
    enum mil_dtype d = v->type->dtype;
    size_t width = (size_t)mil_dtype_bits(d) / 8, k = 0;

    while (k < sizeof ranges / sizeof ranges[0] && ranges[k].dtype != d)
        k++;
    if (k == sizeof ranges / sizeof ranges[0])
        return err_set(r->e, ERR_FORMAT, "%s elements kept as ints", mil_dtype_name(d));
    uint8_t *data = arena_try_alloc(r->arena, p->n_values, width, r->e);
    if (!data)
        return false;
    for (size_t i = 0; i < p->n_values; i++) {
        int32_t x = p->values[i];
        if (x < ranges[k].low || x > ranges[k].high)
            return err_set(r->e, ERR_FORMAT, "element %zu is %d, out of the range of %s", i, x,
                           mil_dtype_name(d));
        /* two's complement, little endian: the low bytes are the narrow number */
        memcpy(data + i * width, &x, width);
    }
    v->data = data;
    v->n_elems = (int64_t)p->n_values;
    v->bytes = p->n_values * width;
    return true;
}

static bool copy_read(struct protobuf_reader *r, struct mil_value *v, const void *values, size_t n,
                      size_t width, enum mil_dtype d1, enum mil_dtype d2)
{
    if (v->type->dtype != d1 && v->type->dtype != d2)
        return err_set(r->e, ERR_FORMAT, "%s elements kept as %s", mil_dtype_name(v->type->dtype),
                       mil_dtype_name(d1));
    void *data = arena_try_alloc(r->arena, n, width, r->e);
    if (!data)
        return false;
    if (n)
        memcpy(data, values, n * width);
    v->data = data;
    v->n_elems = (int64_t)n;
    v->bytes = n * width;
    return true;
}

static bool strings_read(struct protobuf_reader *r, struct mil_value *v, const MilkitPb__Strings *p)
{
    if (v->type->dtype != MIL_STRING)
        return err_set(r->e, ERR_FORMAT, "%s elements kept as strings", mil_dtype_name(v->type->dtype));
    struct str *strings = arena_try_alloc(r->arena, p->n_values, sizeof *strings, r->e);
    if (!strings)
        return false;
    for (size_t i = 0; i < p->n_values; i++) {
        const ProtobufCBinaryData *s = &p->values[i];
        strings[i].p = arena_strndup(r->arena, s->data ? (const char *)s->data : "", s->len);
        strings[i].n = s->len;
    }
    v->strings = strings;
    v->n_elems = (int64_t)p->n_values;
    return true;
}

static bool bools_read(struct protobuf_reader *r, struct mil_value *v, const MilkitPb__Bools *p)
{
    if (v->type->dtype != MIL_BOOL)
        return err_set(r->e, ERR_FORMAT, "%s elements kept as bools", mil_dtype_name(v->type->dtype));
    uint8_t *data = arena_try_alloc(r->arena, p->n_values, 1, r->e);
    if (!data)
        return false;
    for (size_t i = 0; i < p->n_values; i++)
        data[i] = p->values[i] ? 1 : 0;
    v->data = data;
    v->n_elems = (int64_t)p->n_values;
    v->bytes = p->n_values;
    return true;
}

static bool bytes_read(struct protobuf_reader *r, struct mil_value *v, const MilkitPb__Bytes *p)
{
    size_t bits = (size_t)mil_dtype_bits(v->type->dtype), n = p->values.len;
    int64_t elems = mil_type_elems(v->type), bytes = mil_type_bytes(v->type);

    if (bits == 0)
        return err_set(r->e, ERR_FORMAT, "%s elements kept as bytes", mil_dtype_name(v->type->dtype));
    if (elems < 0) {
        if (bits % 8 || n % (bits / 8))
            return err_set(r->e, ERR_FORMAT, "%zu bytes for %s elements of unknown number", n,
                           mil_dtype_name(v->type->dtype));
        elems = (int64_t)(n / (bits / 8));
        bytes = (int64_t)n;
    }
    if (bytes < 0 || (uint64_t)bytes != n)
        return err_set(r->e, ERR_FORMAT, "expected %lld bytes, found %zu", (long long)bytes, n);
    void *data = arena_try_alloc(r->arena, n, 1, r->e);
    if (!data)
        return false;
    if (n)
        memcpy(data, p->values.data, n);
    v->data = data;
    v->n_elems = elems;
    v->bytes = n;
    return true;
}

static bool tensor_value_read(struct protobuf_reader *r, struct mil_value *v, const MilkitPb__TensorValue *p)
{
    bool ok = true;
    int64_t elems = mil_type_elems(v->type);

    v->kind = MIL_VALUE_TENSOR;
    switch (p->value_case) {
    case MILKIT_PB__TENSOR_VALUE__VALUE_FLOATS:
        ok = copy_read(r, v, p->floats->values, p->floats->n_values, 4, MIL_FP32, MIL_FP32);
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_INTS:
        ok = ints_read(r, v, p->ints);
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_BOOLS:
        ok = bools_read(r, v, p->bools);
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_STRINGS:
        ok = strings_read(r, v, p->strings);
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_LONG_INTS:
        ok = copy_read(r, v, p->long_ints->values, p->long_ints->n_values, 8, MIL_INT64, MIL_UINT64);
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_DOUBLES:
        ok = copy_read(r, v, p->doubles->values, p->doubles->n_values, 8, MIL_FP64, MIL_FP64);
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_BYTES:
        return bytes_read(r, v, p->bytes);
    default:
        /* an empty tensor may come without its field */
        break;
    }
    if (!ok)
        return false;
    if (elems >= 0 && elems != v->n_elems)
        return err_set(r->e, ERR_FORMAT, "expected %lld elements, found %lld", (long long)elems,
                       (long long)v->n_elems);
    return true;
}

/* ---- values ---- */

static bool sequence_read(struct protobuf_reader *r, struct mil_value *v, const MilkitPb__ValueSequence *p,
                          int depth)
{
    const struct mil_value **items = arena_try_alloc(r->arena, p->n_values, sizeof *items, r->e);
    if (!items)
        return false;
    for (size_t i = 0; i < p->n_values; i++)
        if (!(items[i] = protobuf_value_read(r, p->values[i], depth + 1)))
            return false;
    v->kind = MIL_VALUE_ITEMS;
    v->items = items;
    v->n_items = (int)p->n_values;
    return true;
}

static bool dictionary_read(struct protobuf_reader *r, struct mil_value *v,
                            const MilkitPb__DictionaryValue *p, int depth)
{
    const struct mil_value **items = arena_try_alloc(r->arena, p->n_pairs, 2 * sizeof *items, r->e);
    if (!items)
        return false;
    for (size_t i = 0; i < p->n_pairs; i++) {
        if (!(items[2 * i] = protobuf_value_read(r, p->pairs[i]->key, depth + 1)) ||
            !(items[2 * i + 1] = protobuf_value_read(r, p->pairs[i]->value, depth + 1)))
            return false;
    }
    v->kind = MIL_VALUE_ITEMS;
    v->items = items;
    v->n_items = (int)(2 * p->n_pairs);
    return true;
}

static bool immediate_read(struct protobuf_reader *r, struct mil_value *v, const MilkitPb__Immediate *p,
                           int depth)
{
    static const struct {
        MilkitPb__Immediate__ValueCase value_case;
        enum mil_type_kind kind;
    } expected[] = {
        {MILKIT_PB__IMMEDIATE__VALUE_TENSOR, MIL_TYPE_TENSOR},
        {MILKIT_PB__IMMEDIATE__VALUE_TUPLE, MIL_TYPE_TUPLE},
        {MILKIT_PB__IMMEDIATE__VALUE_LIST, MIL_TYPE_LIST},
        {MILKIT_PB__IMMEDIATE__VALUE_DICTIONARY, MIL_TYPE_DICT},
    };
    bool fits = false;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        fits |= expected[i].value_case == p->value_case && expected[i].kind == v->type->kind;
    if (!fits) {
        char type[100];
        mil_type_text(type, sizeof type, v->type);
        return err_set(r->e, ERR_FORMAT, "a value of type %s that holds something else", type);
    }
    switch (p->value_case) {
    case MILKIT_PB__IMMEDIATE__VALUE_TENSOR:
        return tensor_value_read(r, v, p->tensor);
    case MILKIT_PB__IMMEDIATE__VALUE_TUPLE:
        if (p->tuple->n_values != (size_t)v->type->n_items)
            return err_set(r->e, ERR_FORMAT, "a tuple of %zu values, its type has %d", p->tuple->n_values,
                           v->type->n_items);
        return sequence_read(r, v, p->tuple, depth);
    case MILKIT_PB__IMMEDIATE__VALUE_LIST:
        return sequence_read(r, v, p->list, depth);
    default:
        return dictionary_read(r, v, p->dictionary, depth);
    }
}

static const struct mil_value *blob_read(struct protobuf_reader *r, struct mil_value *v,
                                         const MilkitPb__BlobReference *p)
{
    char type[160], *key;
    const struct mil_value *shared;
    int64_t bytes = mil_type_bytes(v->type);

    mil_type_text(type, sizeof type, v->type);
    if (v->type->kind != MIL_TYPE_TENSOR || bytes < 0) {
        err_set(r->e, ERR_FORMAT, "a value of type %s in a weight file", type);
        return NULL;
    }
    key = xasprintf("%llu:%s:%s", (unsigned long long)p->offset, type, p->file);
    shared = table_get(r->blobs, key);
    if (!shared) {
        v->kind = MIL_VALUE_BLOB;
        v->n_elems = mil_type_elems(v->type);
        v->bytes = (size_t)bytes;
        v->file = arena_strdup(r->arena, p->file);
        v->offset = p->offset;
        table_put(r->blobs, key, v);
        shared = v;
    }
    free(key);
    return shared;
}

const struct mil_value *protobuf_value_read(struct protobuf_reader *r, const MilkitPb__Value *p, int depth)
{
    struct mil_value *v;

    if (!p) {
        err_set(r->e, ERR_FORMAT, "a value is missing");
        return NULL;
    }
    if (depth > VALUE_NESTING_MAX) {
        err_set(r->e, ERR_LIMIT, "values nest more than %d deep", VALUE_NESTING_MAX);
        return NULL;
    }
    v = ARENA_NEW(r->arena, struct mil_value);
    if (!(v->type = protobuf_type_read(r, p->type, 0)))
        return NULL;
    switch (p->value_case) {
    case MILKIT_PB__VALUE__VALUE_IMMEDIATE:
        return immediate_read(r, v, p->immediate, depth) ? v : NULL;
    case MILKIT_PB__VALUE__VALUE_BLOB:
        return blob_read(r, v, p->blob);
    default:
        err_set(r->e, ERR_FORMAT, "a value that is neither immediate nor in a weight file");
        return NULL;
    }
}
