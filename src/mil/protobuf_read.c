/* Reads the program of a serialized Model into the object graph.
 *
 * Whatever the order of map entries in the file, functions, arguments and attributes come out sorted by name,
 * so two files of one model give the same graph. References to one place of a blob file become one shared
 * value.
 */
#include "mil/protobuf.h"

#include <stdlib.h>
#include <string.h>

#include "mil/ops.h"
#include "mil/protobuf_internal.h"

/* Far above what types and values of real programs need; mil_type_text and others recurse as deep. */
#define TYPE_NESTING_MAX 24
#define VALUE_NESTING_MAX 32

struct scope {
    struct table *vars;
    const struct scope *outer;
};

struct reader {
    struct mil_model *model;
    struct arena *arena; /* the model's */
    struct table *blobs; /* "file@offset:type" -> shared struct mil_value */
    int n_vars;          /* of the function being read */
    struct err *e;
};

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

static bool tensor_type_read(struct reader *r, struct mil_type *t, const MilkitPb__TensorType *p)
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

static const struct mil_type *type_read(struct reader *r, const MilkitPb__ValueType *p, int depth)
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
        t->elem = type_read(r, p->list->type, depth + 1);
        return t->elem ? t : NULL;
    case MILKIT_PB__VALUE_TYPE__TYPE_TUPLE:
        t->kind = MIL_TYPE_TUPLE;
        n = p->tuple->n_types;
        items = ARENA_ARRAY(r->arena, const struct mil_type *, n);
        for (size_t i = 0; i < n; i++)
            if (!(items[i] = type_read(r, p->tuple->types[i], depth + 1)))
                return NULL;
        t->items = items;
        t->n_items = (int)n;
        return t;
    case MILKIT_PB__VALUE_TYPE__TYPE_DICTIONARY:
        t->kind = MIL_TYPE_DICT;
        items = ARENA_ARRAY(r->arena, const struct mil_type *, 2);
        items[0] = type_read(r, p->dictionary->key, depth + 1);
        items[1] = items[0] ? type_read(r, p->dictionary->value, depth + 1) : NULL;
        t->items = items;
        t->n_items = 2;
        return items[1] ? t : NULL;
    case MILKIT_PB__VALUE_TYPE__TYPE_STATE:
        t->kind = MIL_TYPE_STATE;
        t->elem = type_read(r, p->state->wrapped, depth + 1);
        if (t->elem && t->elem->kind != MIL_TYPE_TENSOR) {
            err_set(r->e, ERR_FORMAT, "a state that holds no tensor");
            return NULL;
        }
        return t->elem ? t : NULL;
    default:
        err_set(r->e, ERR_UNSUPPORTED, "a type that is no tensor, list, tuple, dictionary or state");
        return NULL;
    }
}

/* ---- immediate tensors ---- */

/* The elements as this type keeps them, and how many bytes each takes in the graph. */
static bool ints_read(struct reader *r, struct mil_value *v, const MilkitPb__Ints *p)
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

static bool copy_read(struct reader *r, struct mil_value *v, const void *values, size_t n, size_t width,
                      enum mil_dtype d1, enum mil_dtype d2)
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

static bool strings_read(struct reader *r, struct mil_value *v, const MilkitPb__Strings *p)
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

static bool bools_read(struct reader *r, struct mil_value *v, const MilkitPb__Bools *p)
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

static bool bytes_read(struct reader *r, struct mil_value *v, const MilkitPb__Bytes *p)
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

static bool tensor_value_read(struct reader *r, struct mil_value *v, const MilkitPb__TensorValue *p)
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

static const struct mil_value *value_read(struct reader *r, const MilkitPb__Value *p, int depth);

static bool sequence_read(struct reader *r, struct mil_value *v, const MilkitPb__ValueSequence *p, int depth)
{
    const struct mil_value **items = arena_try_alloc(r->arena, p->n_values, sizeof *items, r->e);
    if (!items)
        return false;
    for (size_t i = 0; i < p->n_values; i++)
        if (!(items[i] = value_read(r, p->values[i], depth + 1)))
            return false;
    v->kind = MIL_VALUE_ITEMS;
    v->items = items;
    v->n_items = (int)p->n_values;
    return true;
}

static bool dictionary_read(struct reader *r, struct mil_value *v, const MilkitPb__DictionaryValue *p,
                            int depth)
{
    const struct mil_value **items = arena_try_alloc(r->arena, p->n_pairs, 2 * sizeof *items, r->e);
    if (!items)
        return false;
    for (size_t i = 0; i < p->n_pairs; i++) {
        if (!(items[2 * i] = value_read(r, p->pairs[i]->key, depth + 1)) ||
            !(items[2 * i + 1] = value_read(r, p->pairs[i]->value, depth + 1)))
            return false;
    }
    v->kind = MIL_VALUE_ITEMS;
    v->items = items;
    v->n_items = (int)(2 * p->n_pairs);
    return true;
}

static bool immediate_read(struct reader *r, struct mil_value *v, const MilkitPb__Immediate *p, int depth)
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

static const struct mil_value *blob_read(struct reader *r, struct mil_value *v,
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

static const struct mil_value *value_read(struct reader *r, const MilkitPb__Value *p, int depth)
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
    if (!(v->type = type_read(r, p->type, 0)))
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

static int named_value_compare(const void *a, const void *b)
{
    return strcmp(((const struct mil_named_value *)a)->name, ((const struct mil_named_value *)b)->name);
}

static bool attributes_read(struct reader *r, struct mil_named_value **out, int *n_out, size_t n,
                            MilkitPb__ValueEntry **entries)
{
    struct mil_named_value *a = ARENA_ARRAY(r->arena, struct mil_named_value, n);
    for (size_t i = 0; i < n; i++) {
        a[i].name = arena_strdup(r->arena, entries[i]->key);
        if (!(a[i].value = value_read(r, entries[i]->value, 0)))
            return err_wrap(r->e, "attribute \"%.200s\"", a[i].name);
    }
    qsort(a, n, sizeof *a, named_value_compare);
    for (size_t i = 1; i < n; i++)
        if (strcmp(a[i - 1].name, a[i].name) == 0)
            return err_set(r->e, ERR_FORMAT, "attribute \"%.200s\" comes twice", a[i].name);
    *out = a;
    *n_out = (int)n;
    return true;
}

/* ---- blocks ---- */

static struct mil_var *var_find(const struct scope *s, const char *name)
{
    struct mil_var *v = NULL;
    for (; s && !v; s = s->outer)
        v = table_get(s->vars, name);
    return v;
}

static struct mil_var *var_define(struct reader *r, struct scope *s, const MilkitPb__NamedType *p,
                                  struct mil_op *op)
{
    struct mil_var *v = ARENA_NEW(r->arena, struct mil_var);
    v->name = arena_strdup(r->arena, p->name);
    v->op = op;
    if (v->name[0] == '\0') {
        err_set(r->e, ERR_FORMAT, "a variable without a name");
        return NULL;
    }
    if (!(v->type = type_read(r, p->type, 0))) {
        err_wrap(r->e, "variable \"%.200s\"", v->name);
        return NULL;
    }
    if (!table_put(s->vars, v->name, v)) {
        err_set(r->e, ERR_FORMAT, "variable \"%.200s\" is defined twice", v->name);
        return NULL;
    }
    v->id = r->n_vars++;
    return v;
}

static int arg_compare(const void *a, const void *b)
{
    return strcmp(((const struct mil_arg *)a)->name, ((const struct mil_arg *)b)->name);
}

static bool arg_read(struct reader *r, struct mil_arg *a, const MilkitPb__ArgumentEntry *p,
                     const struct scope *s)
{
    size_t n = p->value ? p->value->n_bindings : 0;

    a->name = arena_strdup(r->arena, p->key);
    if (n == 0)
        return err_set(r->e, ERR_FORMAT, "argument \"%.200s\" is bound to nothing", a->name);
    a->n = (int)n;
    a->bindings = ARENA_ARRAY(r->arena, struct mil_binding, n);
    for (size_t i = 0; i < n; i++) {
        const MilkitPb__Binding *b = p->value->bindings[i];
        switch (b->binding_case) {
        case MILKIT_PB__BINDING__BINDING_NAME:
            if (!(a->bindings[i].var = var_find(s, b->name)))
                return err_set(
                    r->e, ERR_FORMAT,
                    "argument \"%.100s\" is \"%.200s\", which is neither an input nor the result of an "
                    "earlier op",
                    a->name, b->name);
            break;
        case MILKIT_PB__BINDING__BINDING_VALUE:
            if (!(a->bindings[i].value = value_read(r, b->value, 0)))
                return err_wrap(r->e, "argument \"%.100s\"", a->name);
            break;
        default:
            return err_set(r->e, ERR_FORMAT, "argument \"%.100s\" is bound to nothing", a->name);
        }
    }
    return true;
}

static bool block_read(struct reader *r, struct mil_block *b, const MilkitPb__Block *p, struct scope *s);

static bool op_read(struct reader *r, struct mil_op *op, const MilkitPb__Operation *p, struct scope *s)
{
    op->type = arena_strdup(r->arena, p->type);
    op->info = mil_op_info_find(op->type);
    if (op->type[0] == '\0')
        return err_set(r->e, ERR_FORMAT, "an op without a type");
    op->n_args = (int)p->n_inputs;
    op->args = ARENA_ARRAY(r->arena, struct mil_arg, p->n_inputs);
    for (size_t i = 0; i < p->n_inputs; i++)
        if (!arg_read(r, &op->args[i], p->inputs[i], s))
            return false;
    qsort(op->args, p->n_inputs, sizeof *op->args, arg_compare);
    for (size_t i = 1; i < p->n_inputs; i++)
        if (strcmp(op->args[i - 1].name, op->args[i].name) == 0)
            return err_set(r->e, ERR_FORMAT, "argument \"%.200s\" comes twice", op->args[i].name);
    if (!attributes_read(r, &op->attributes, &op->n_attributes, p->n_attributes, p->attributes))
        return false;
    op->n_blocks = (int)p->n_blocks;
    op->blocks = ARENA_ARRAY(r->arena, struct mil_block *, p->n_blocks);
    for (size_t i = 0; i < p->n_blocks; i++) {
        struct scope inner = {table_new(), s};
        op->blocks[i] = ARENA_NEW(r->arena, struct mil_block);
        bool ok = block_read(r, op->blocks[i], p->blocks[i], &inner);
        table_free(inner.vars);
        if (!ok)
            return err_wrap(r->e, "block %zu", i);
    }
    /* last: an op does not see its own results */
    op->n_outputs = (int)p->n_outputs;
    op->outputs = ARENA_ARRAY(r->arena, struct mil_var *, p->n_outputs);
    for (size_t i = 0; i < p->n_outputs; i++)
        if (!(op->outputs[i] = var_define(r, s, p->outputs[i], op)))
            return false;
    return true;
}

static bool block_read(struct reader *r, struct mil_block *b, const MilkitPb__Block *p, struct scope *s)
{
    b->n_inputs = (int)p->n_inputs;
    b->inputs = ARENA_ARRAY(r->arena, struct mil_var *, p->n_inputs);
    for (size_t i = 0; i < p->n_inputs; i++)
        if (!(b->inputs[i] = var_define(r, s, p->inputs[i], NULL)))
            return false;
    b->n_ops = (int)p->n_operations;
    b->ops = ARENA_ARRAY(r->arena, struct mil_op *, p->n_operations);
    for (size_t i = 0; i < p->n_operations; i++) {
        const MilkitPb__Operation *op = p->operations[i];
        b->ops[i] = ARENA_NEW(r->arena, struct mil_op);
        if (!op_read(r, b->ops[i], op, s))
            return err_wrap(r->e, "op %zu, %.100s \"%.200s\"", i, op->type,
                            op->n_outputs ? op->outputs[0]->name : "");
    }
    b->n_outputs = (int)p->n_outputs;
    b->outputs = ARENA_ARRAY(r->arena, struct mil_var *, p->n_outputs);
    for (size_t i = 0; i < p->n_outputs; i++)
        if (!(b->outputs[i] = var_find(s, p->outputs[i])))
            return err_set(r->e, ERR_FORMAT, "output \"%.200s\" is neither an input nor the result of an op",
                           p->outputs[i]);
    return attributes_read(r, &b->attributes, &b->n_attributes, p->n_attributes, p->attributes);
}

/* ---- functions ---- */

/* The block written in the function's own opset, or the only one. */
static const MilkitPb__Block *function_block(const MilkitPb__Function *p)
{
    for (size_t i = 0; i < p->n_blocks; i++)
        if (strcmp(p->blocks[i]->key, p->opset) == 0)
            return p->blocks[i]->value;
    return p->n_blocks == 1 ? p->blocks[0]->value : NULL;
}

static bool function_read(struct reader *r, struct mil_function *f, const MilkitPb__Function *p)
{
    struct scope scope = {table_new(), NULL};
    const MilkitPb__Block *block = function_block(p);
    bool ok = false;

    r->n_vars = 0;
    f->opset = arena_strdup(r->arena, p->opset);
    if (!block) {
        err_set(r->e, ERR_FORMAT, "no block for opset \"%.100s\" among %zu", f->opset, p->n_blocks);
        goto done;
    }
    f->n_inputs = (int)p->n_inputs;
    f->inputs = ARENA_ARRAY(r->arena, struct mil_var *, p->n_inputs);
    for (size_t i = 0; i < p->n_inputs; i++)
        if (!(f->inputs[i] = var_define(r, &scope, p->inputs[i], NULL)))
            goto done;
    if (!attributes_read(r, &f->attributes, &f->n_attributes, p->n_attributes, p->attributes))
        goto done;
    if (block->n_inputs) {
        err_set(r->e, ERR_FORMAT, "the outermost block has inputs of its own");
        goto done;
    }
    f->block = ARENA_NEW(r->arena, struct mil_block);
    if (!block_read(r, f->block, block, &scope))
        goto done;
    f->n_vars = r->n_vars;
    ok = true;
done:
    table_free(scope.vars);
    return ok;
}

static int function_compare(const void *a, const void *b)
{
    return strcmp((*(struct mil_function *const *)a)->name, (*(struct mil_function *const *)b)->name);
}

static bool program_read(struct mil_model *m, const MilkitPb__Program *p, struct err *e)
{
    struct reader r = {m, m->arena, table_new(), 0, e};
    struct mil_program *program = ARENA_NEW(m->arena, struct mil_program);
    size_t n = p->n_functions;
    bool ok = false;

    program->version = p->version;
    program->doc = arena_strdup(m->arena, p->doc);
    program->functions = ARENA_ARRAY(m->arena, struct mil_function *, n);
    if (!attributes_read(&r, &program->attributes, &program->n_attributes, p->n_attributes, p->attributes))
        goto done;
    if (n == 0) {
        err_set(e, ERR_FORMAT, "a program without functions");
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        struct mil_function *f = program->functions[i] = ARENA_NEW(m->arena, struct mil_function);
        f->name = arena_strdup(m->arena, p->functions[i]->key);
        if (!p->functions[i]->value) {
            err_set(e, ERR_FORMAT, "function \"%.200s\" is empty", f->name);
            goto done;
        }
        if (!function_read(&r, f, p->functions[i]->value)) {
            err_wrap(e, "function %.200s", f->name);
            goto done;
        }
    }
    qsort(program->functions, n, sizeof *program->functions, function_compare);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(program->functions[i - 1]->name, program->functions[i]->name) == 0) {
            err_set(e, ERR_FORMAT, "function \"%.200s\" comes twice", program->functions[i]->name);
            goto done;
        }
    }
    program->n_functions = (int)n;
    m->program = program;
    ok = true;
done:
    table_free(r.blobs);
    return ok;
}

/* ---- the model ---- */

static const struct {
    uint32_t field;
    const char *name;
} model_kinds[] = {
    {200, "a pipeline classifier"},
    {201, "a pipeline regressor"},
    {202, "a pipeline"},
    {300, "a generalized linear regressor"},
    {301, "a support vector regressor"},
    {302, "a tree ensemble regressor"},
    {303, "a neural network regressor"},
    {304, "a Bayesian probit regressor"},
    {400, "a generalized linear classifier"},
    {401, "a support vector classifier"},
    {402, "a tree ensemble classifier"},
    {403, "a neural network classifier"},
    {404, "a nearest neighbours classifier"},
    {500, "a neural network"},
    {501, "an item similarity recommender"},
    {555, "a custom model"},
    {556, "a linked model"},
    {560, "a class confidence thresholding model"},
    {600, "a one-hot encoder"},
    {601, "an imputer"},
    {602, "a feature vectorizer"},
    {603, "a dictionary vectorizer"},
    {604, "a scaler"},
    {606, "a categorical mapping"},
    {607, "a normalizer"},
    {609, "an array feature extractor"},
    {610, "a non-maximum suppression model"},
    {900, "an identity model"},
    {2000, "a text classifier"},
    {2001, "a word tagger"},
    {2002, "a vision feature print"},
    {2003, "a sound analysis preprocessing"},
    {2004, "a gazetteer"},
    {2005, "a word embedding"},
    {2006, "an audio feature print"},
    {3000, "a serialized model"},
};

const char *model_kind_name(uint32_t field)
{
    for (size_t i = 0; i < sizeof model_kinds / sizeof model_kinds[0]; i++)
        if (model_kinds[i].field == field)
            return model_kinds[i].name;
    return NULL;
}

/* By the field numbers of the outermost message alone: another kind of model is told before anything of it is
 * unpacked, and a file that is no model at all is not called a damaged one. */
static bool kind_check(const uint8_t *data, size_t bytes, const char *where, struct err *e)
{
    size_t offset = 0;
    bool is_program = false;
    const char *other = NULL;
    uint32_t field, unknown = 0;

    if (bytes == 0)
        return err_set(e, ERR_FORMAT, "%s: empty, expected a Core ML model", where);
    if (data[0] != 0x08)
        return err_set(e, ERR_FORMAT,
                       "%s: not a Core ML model (it does not begin with a specification version)", where);
    while ((field = wire_next_field(data, bytes, &offset)) != 0) {
        if (field == 502)
            is_program = true;
        else if (model_kind_name(field))
            other = model_kind_name(field);
        else if (field >= 200)
            unknown = field;
    }
    if (is_program)
        return true;
    if (other)
        return err_set(e, ERR_UNSUPPORTED, "%s: the model is %s; only ML Programs are supported", where,
                       other);
    if (unknown)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: the model is of unknown kind %u; only ML Programs are supported", where, unknown);
    if (offset < bytes)
        return err_set(e, ERR_FORMAT, "%s: damaged or cut off: field at byte %zu of %zu", where, offset,
                       bytes);
    return err_set(e, ERR_FORMAT, "%s: holds no model", where);
}

bool mil_protobuf_read(struct mil_model *m, const uint8_t *data, size_t bytes, const char *where,
                       struct err *e)
{
    ProtobufCMessage *message = NULL;
    struct arena *arena = NULL;
    const MilkitPb__Model *p;
    bool ok = false;

    if (!kind_check(data, bytes, where, e))
        return false;
    if (!wire_unpack(&message, &arena, &milkit_pb__model__descriptor, data, bytes, where, e))
        goto done;
    p = (const MilkitPb__Model *)message;
    if (p->specification_version < 6 || p->specification_version > 10) {
        err_set(e, ERR_UNSUPPORTED, "%s: specification version %d, supported are 6 to 10", where,
                p->specification_version);
        goto done;
    }
    if (!p->description || !p->program) {
        err_set(e, ERR_FORMAT, "%s: the model has no %s", where, p->description ? "program" : "description");
        goto done;
    }
    m->specification_version = p->specification_version;
    m->is_updatable = p->is_updatable;
    if (!description_from_message(m, p->description, where, e))
        goto done;
    if (!program_read(m, p->program, e)) {
        err_wrap(e, "%s", where);
        goto done;
    }
    ok = true;
done:
    arena_free(arena);
    return ok;
}
