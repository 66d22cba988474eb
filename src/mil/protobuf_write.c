/* Writes a model as a serialized Model: the graph as a tree of protobuf-c messages in an arena, then packed
 * at once.
 *
 * Map entries are sorted by key, so the same model gives the same bytes whatever order it was built in.
 */
#include "mil/protobuf.h"

#include <stdlib.h>
#include <string.h>

#include "mil/protobuf_internal.h"

struct writer {
    struct arena *arena;
    struct err *e;
};

#define MESSAGE_NEW(w, type, initial) ((type *)arena_copy((w)->arena, &(const type)initial, sizeof(type)))

/* Messages are packed only, so the texts in them are never changed; protobuf-c's structs lack the const. */
static char *text(const char *s)
{
    return (char *)(s ? s : "");
}

/* ---- types ---- */

static MilkitPb__Dimension *dimension_write(struct writer *w, int64_t size)
{
    MilkitPb__Dimension *d = MESSAGE_NEW(w, MilkitPb__Dimension, MILKIT_PB__DIMENSION__INIT);
    if (size < 0) {
        d->dimension_case = MILKIT_PB__DIMENSION__DIMENSION_UNKNOWN;
        d->unknown = MESSAGE_NEW(w, MilkitPb__UnknownDimension, MILKIT_PB__UNKNOWN_DIMENSION__INIT);
        d->unknown->variadic = size == MIL_DIM_VARIADIC;
    } else {
        d->dimension_case = MILKIT_PB__DIMENSION__DIMENSION_CONSTANT;
        d->constant = MESSAGE_NEW(w, MilkitPb__ConstantDimension, MILKIT_PB__CONSTANT_DIMENSION__INIT);
        d->constant->size = (uint64_t)size;
    }
    return d;
}

static MilkitPb__TensorType *tensor_type_write(struct writer *w, const struct mil_type *t)
{
    MilkitPb__TensorType *p = MESSAGE_NEW(w, MilkitPb__TensorType, MILKIT_PB__TENSOR_TYPE__INIT);
    p->data_type = dtype_to_protobuf(t->dtype);
    p->rank = t->rank;
    p->n_dimensions = (size_t)t->rank;
    p->dimensions = ARENA_ARRAY(w->arena, MilkitPb__Dimension *, t->rank);
    for (int i = 0; i < t->rank; i++)
        p->dimensions[i] = dimension_write(w, t->dims[i]);
    return p;
}

static MilkitPb__ValueType *type_write(struct writer *w, const struct mil_type *t)
{
    MilkitPb__ValueType *p = MESSAGE_NEW(w, MilkitPb__ValueType, MILKIT_PB__VALUE_TYPE__INIT);
    switch (t->kind) {
    case MIL_TYPE_TENSOR:
        p->type_case = MILKIT_PB__VALUE_TYPE__TYPE_TENSOR;
        p->tensor = tensor_type_write(w, t);
        break;
    case MIL_TYPE_LIST:
        p->type_case = MILKIT_PB__VALUE_TYPE__TYPE_LIST;
        p->list = MESSAGE_NEW(w, MilkitPb__ListType, MILKIT_PB__LIST_TYPE__INIT);
        p->list->type = type_write(w, t->elem);
        p->list->length = dimension_write(w, t->length);
        break;
    case MIL_TYPE_TUPLE:
        p->type_case = MILKIT_PB__VALUE_TYPE__TYPE_TUPLE;
        p->tuple = MESSAGE_NEW(w, MilkitPb__TupleType, MILKIT_PB__TUPLE_TYPE__INIT);
        p->tuple->n_types = (size_t)t->n_items;
        p->tuple->types = ARENA_ARRAY(w->arena, MilkitPb__ValueType *, t->n_items);
        for (int i = 0; i < t->n_items; i++)
            p->tuple->types[i] = type_write(w, t->items[i]);
        break;
    case MIL_TYPE_DICT:
        p->type_case = MILKIT_PB__VALUE_TYPE__TYPE_DICTIONARY;
        p->dictionary = MESSAGE_NEW(w, MilkitPb__DictionaryType, MILKIT_PB__DICTIONARY_TYPE__INIT);
        p->dictionary->key = type_write(w, t->items[0]);
        p->dictionary->value = type_write(w, t->items[1]);
        break;
    case MIL_TYPE_STATE:
        p->type_case = MILKIT_PB__VALUE_TYPE__TYPE_STATE;
        p->state = MESSAGE_NEW(w, MilkitPb__StateType, MILKIT_PB__STATE_TYPE__INIT);
        p->state->wrapped = type_write(w, t->elem);
        break;
    }
    return p;
}

/* ---- values ---- */

static MilkitPb__Ints *ints_write(struct writer *w, const struct mil_value *v, size_t n)
{
    MilkitPb__Ints *p = MESSAGE_NEW(w, MilkitPb__Ints, MILKIT_PB__INTS__INIT);
    const uint8_t *data = v->data;

    p->n_values = n;
    p->values = ARENA_ARRAY(w->arena, int32_t, n);
    for (size_t i = 0; i < n; i++) {
        int16_t narrow = 0;
        uint16_t wide = 0;
        if (v->type->dtype == MIL_INT32) {
            memcpy(&p->values[i], data + 4 * i, 4);
        } else if (v->type->dtype == MIL_INT16) {
            memcpy(&narrow, data + 2 * i, 2);
            p->values[i] = narrow;
        } else {
            memcpy(&wide, data + 2 * i, 2);
            p->values[i] = wide;
        }
    }
    return p;
}

static MilkitPb__Bools *bools_write(struct writer *w, const struct mil_value *v, size_t n)
{
    MilkitPb__Bools *p = MESSAGE_NEW(w, MilkitPb__Bools, MILKIT_PB__BOOLS__INIT);
    p->n_values = n;
    p->values = ARENA_ARRAY(w->arena, protobuf_c_boolean, n);
    for (size_t i = 0; i < n; i++)
        p->values[i] = ((const uint8_t *)v->data)[i] != 0;
    return p;
}

static MilkitPb__Strings *strings_write(struct writer *w, const struct mil_value *v, size_t n)
{
    MilkitPb__Strings *p = MESSAGE_NEW(w, MilkitPb__Strings, MILKIT_PB__STRINGS__INIT);
    p->n_values = n;
    p->values = ARENA_ARRAY(w->arena, ProtobufCBinaryData, n);
    for (size_t i = 0; i < n; i++) {
        p->values[i].len = v->strings[i].n;
        p->values[i].data = (uint8_t *)v->strings[i].p;
    }
    return p;
}

static bool tensor_value_check(const struct writer *w, const struct mil_value *v)
{
    int64_t elems = mil_type_elems(v->type), bytes = mil_type_bytes(v->type);
    bool is_string = v->type->dtype == MIL_STRING;

    if (v->type->kind != MIL_TYPE_TENSOR || v->n_elems < 0 || (elems >= 0 && elems != v->n_elems) ||
        (!is_string && bytes >= 0 && (uint64_t)bytes != v->bytes) ||
        (v->n_elems > 0 && !(is_string ? (const void *)v->strings : v->data)))
        return err_set(w->e, ERR_BUG, "an immediate tensor whose data does not fit its type");
    return true;
}

static MilkitPb__TensorValue *tensor_value_write(struct writer *w, const struct mil_value *v)
{
    MilkitPb__TensorValue *p = MESSAGE_NEW(w, MilkitPb__TensorValue, MILKIT_PB__TENSOR_VALUE__INIT);
    size_t n = (size_t)v->n_elems;
    /* packing reads whole elements, which must be aligned; the value's bytes need not be */
    void *copy = NULL;

    p->value_case = immediate_field(v->type->dtype);
    if (v->bytes > 0 && v->type->dtype != MIL_STRING)
        copy = arena_copy(w->arena, v->data, v->bytes);
    switch (p->value_case) {
    case MILKIT_PB__TENSOR_VALUE__VALUE_FLOATS:
        p->floats = MESSAGE_NEW(w, MilkitPb__Floats, MILKIT_PB__FLOATS__INIT);
        p->floats->n_values = n;
        p->floats->values = copy;
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_DOUBLES:
        p->doubles = MESSAGE_NEW(w, MilkitPb__Doubles, MILKIT_PB__DOUBLES__INIT);
        p->doubles->n_values = n;
        p->doubles->values = copy;
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_LONG_INTS:
        p->long_ints = MESSAGE_NEW(w, MilkitPb__LongInts, MILKIT_PB__LONG_INTS__INIT);
        p->long_ints->n_values = n;
        p->long_ints->values = copy;
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_INTS:
        p->ints = ints_write(w, v, n);
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_BOOLS:
        p->bools = bools_write(w, v, n);
        break;
    case MILKIT_PB__TENSOR_VALUE__VALUE_STRINGS:
        p->strings = strings_write(w, v, n);
        break;
    default:
        p->bytes = MESSAGE_NEW(w, MilkitPb__Bytes, MILKIT_PB__BYTES__INIT);
        p->bytes->values.len = v->bytes;
        p->bytes->values.data = copy;
        break;
    }
    return p;
}

static MilkitPb__Value *value_write(struct writer *w, const struct mil_value *v);

static MilkitPb__ValueSequence *sequence_write(struct writer *w, const struct mil_value *v)
{
    MilkitPb__ValueSequence *p = MESSAGE_NEW(w, MilkitPb__ValueSequence, MILKIT_PB__VALUE_SEQUENCE__INIT);
    p->n_values = (size_t)v->n_items;
    p->values = ARENA_ARRAY(w->arena, MilkitPb__Value *, v->n_items);
    for (int i = 0; i < v->n_items; i++)
        if (!(p->values[i] = value_write(w, v->items[i])))
            return NULL;
    return p;
}

static MilkitPb__DictionaryValue *dictionary_write(struct writer *w, const struct mil_value *v)
{
    MilkitPb__DictionaryValue *p =
        MESSAGE_NEW(w, MilkitPb__DictionaryValue, MILKIT_PB__DICTIONARY_VALUE__INIT);
    size_t n = (size_t)v->n_items / 2;

    p->n_pairs = n;
    p->pairs = ARENA_ARRAY(w->arena, MilkitPb__Pair *, n);
    for (size_t i = 0; i < n; i++) {
        p->pairs[i] = MESSAGE_NEW(w, MilkitPb__Pair, MILKIT_PB__PAIR__INIT);
        if (!(p->pairs[i]->key = value_write(w, v->items[2 * i])) ||
            !(p->pairs[i]->value = value_write(w, v->items[2 * i + 1])))
            return NULL;
    }
    return p;
}

static bool items_write(struct writer *w, MilkitPb__Immediate *p, const struct mil_value *v)
{
    switch (v->type->kind) {
    case MIL_TYPE_LIST:
        p->value_case = MILKIT_PB__IMMEDIATE__VALUE_LIST;
        return (p->list = sequence_write(w, v)) != NULL;
    case MIL_TYPE_TUPLE:
        p->value_case = MILKIT_PB__IMMEDIATE__VALUE_TUPLE;
        return (p->tuple = sequence_write(w, v)) != NULL;
    case MIL_TYPE_DICT:
        p->value_case = MILKIT_PB__IMMEDIATE__VALUE_DICTIONARY;
        return (p->dictionary = dictionary_write(w, v)) != NULL;
    default:
        return err_set(w->e, ERR_BUG, "a value of several items that is not a list, tuple or dictionary");
    }
}

/* NULL on error. */
static MilkitPb__Value *value_write(struct writer *w, const struct mil_value *v)
{
    MilkitPb__Value *p = MESSAGE_NEW(w, MilkitPb__Value, MILKIT_PB__VALUE__INIT);

    p->type = type_write(w, v->type);
    switch (v->kind) {
    case MIL_VALUE_TENSOR:
        if (!tensor_value_check(w, v))
            return NULL;
        p->value_case = MILKIT_PB__VALUE__VALUE_IMMEDIATE;
        p->immediate = MESSAGE_NEW(w, MilkitPb__Immediate, MILKIT_PB__IMMEDIATE__INIT);
        p->immediate->value_case = MILKIT_PB__IMMEDIATE__VALUE_TENSOR;
        p->immediate->tensor = tensor_value_write(w, v);
        return p;
    case MIL_VALUE_ITEMS:
        p->value_case = MILKIT_PB__VALUE__VALUE_IMMEDIATE;
        p->immediate = MESSAGE_NEW(w, MilkitPb__Immediate, MILKIT_PB__IMMEDIATE__INIT);
        return items_write(w, p->immediate, v) ? p : NULL;
    case MIL_VALUE_BLOB:
        p->value_case = MILKIT_PB__VALUE__VALUE_BLOB;
        p->blob = MESSAGE_NEW(w, MilkitPb__BlobReference, MILKIT_PB__BLOB_REFERENCE__INIT);
        p->blob->file = text(v->file);
        p->blob->offset = v->offset;
        return p;
    default:
        err_set(w->e, ERR_BUG, "weight \"%s\" has no place in a file yet",
                v->weight && v->weight->name ? v->weight->name : "?");
        return NULL;
    }
}

static int entry_compare(const void *a, const void *b)
{
    return strcmp((*(MilkitPb__ValueEntry *const *)a)->key, (*(MilkitPb__ValueEntry *const *)b)->key);
}

static bool attributes_write(struct writer *w, MilkitPb__ValueEntry ***out, size_t *n_out,
                             const struct mil_named_value *attributes, int n)
{
    MilkitPb__ValueEntry **entries = ARENA_ARRAY(w->arena, MilkitPb__ValueEntry *, n);
    for (int i = 0; i < n; i++) {
        entries[i] = MESSAGE_NEW(w, MilkitPb__ValueEntry, MILKIT_PB__VALUE_ENTRY__INIT);
        entries[i]->key = text(attributes[i].name);
        if (!(entries[i]->value = value_write(w, attributes[i].value)))
            return err_wrap(w->e, "attribute \"%s\"", attributes[i].name);
    }
    qsort(entries, (size_t)n, sizeof *entries, entry_compare);
    *out = entries;
    *n_out = (size_t)n;
    return true;
}

/* ---- ops, blocks, functions ---- */

static MilkitPb__NamedType **vars_write(struct writer *w, struct mil_var *const *vars, int n)
{
    MilkitPb__NamedType **p = ARENA_ARRAY(w->arena, MilkitPb__NamedType *, n);
    for (int i = 0; i < n; i++) {
        p[i] = MESSAGE_NEW(w, MilkitPb__NamedType, MILKIT_PB__NAMED_TYPE__INIT);
        p[i]->name = text(vars[i]->name);
        p[i]->type = type_write(w, vars[i]->type);
    }
    return p;
}

static int argument_compare(const void *a, const void *b)
{
    return strcmp((*(MilkitPb__ArgumentEntry *const *)a)->key, (*(MilkitPb__ArgumentEntry *const *)b)->key);
}

static bool binding_write(struct writer *w, MilkitPb__Binding *p, const struct mil_binding *b)
{
    if (b->var) {
        p->binding_case = MILKIT_PB__BINDING__BINDING_NAME;
        p->name = text(b->var->name);
        return true;
    }
    p->binding_case = MILKIT_PB__BINDING__BINDING_VALUE;
    if (!b->value)
        return err_set(w->e, ERR_BUG, "an argument bound to nothing");
    return (p->value = value_write(w, b->value)) != NULL;
}

static bool arguments_write(struct writer *w, MilkitPb__Operation *p, const struct mil_op *op)
{
    p->n_inputs = (size_t)op->n_args;
    p->inputs = ARENA_ARRAY(w->arena, MilkitPb__ArgumentEntry *, op->n_args);
    for (int i = 0; i < op->n_args; i++) {
        const struct mil_arg *arg = &op->args[i];
        MilkitPb__ArgumentEntry *entry =
            MESSAGE_NEW(w, MilkitPb__ArgumentEntry, MILKIT_PB__ARGUMENT_ENTRY__INIT);
        p->inputs[i] = entry;
        entry->key = text(arg->name);
        entry->value = MESSAGE_NEW(w, MilkitPb__Argument, MILKIT_PB__ARGUMENT__INIT);
        entry->value->n_bindings = (size_t)arg->n;
        entry->value->bindings = ARENA_ARRAY(w->arena, MilkitPb__Binding *, arg->n);
        for (int j = 0; j < arg->n; j++) {
            entry->value->bindings[j] = MESSAGE_NEW(w, MilkitPb__Binding, MILKIT_PB__BINDING__INIT);
            if (!binding_write(w, entry->value->bindings[j], &arg->bindings[j]))
                return err_wrap(w->e, "argument \"%s\"", arg->name);
        }
    }
    qsort(p->inputs, p->n_inputs, sizeof *p->inputs, argument_compare);
    return true;
}

static MilkitPb__Block *block_write(struct writer *w, const struct mil_block *b);

static MilkitPb__Operation *op_write(struct writer *w, const struct mil_op *op)
{
    MilkitPb__Operation *p = MESSAGE_NEW(w, MilkitPb__Operation, MILKIT_PB__OPERATION__INIT);

    p->type = text(op->type);
    if (!arguments_write(w, p, op) ||
        !attributes_write(w, &p->attributes, &p->n_attributes, op->attributes, op->n_attributes))
        return NULL;
    p->n_outputs = (size_t)op->n_outputs;
    p->outputs = vars_write(w, op->outputs, op->n_outputs);
    p->n_blocks = (size_t)op->n_blocks;
    p->blocks = ARENA_ARRAY(w->arena, MilkitPb__Block *, op->n_blocks);
    for (int i = 0; i < op->n_blocks; i++)
        if (!(p->blocks[i] = block_write(w, op->blocks[i])))
            return NULL;
    return p;
}

static MilkitPb__Block *block_write(struct writer *w, const struct mil_block *b)
{
    MilkitPb__Block *p = MESSAGE_NEW(w, MilkitPb__Block, MILKIT_PB__BLOCK__INIT);

    p->n_inputs = (size_t)b->n_inputs;
    p->inputs = vars_write(w, b->inputs, b->n_inputs);
    p->n_operations = (size_t)b->n_ops;
    p->operations = ARENA_ARRAY(w->arena, MilkitPb__Operation *, b->n_ops);
    for (int i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        if (!(p->operations[i] = op_write(w, op))) {
            err_wrap(w->e, "op %d, %s \"%s\"", i, op->type, op->n_outputs ? op->outputs[0]->name : "");
            return NULL;
        }
    }
    p->n_outputs = (size_t)b->n_outputs;
    p->outputs = ARENA_ARRAY(w->arena, char *, b->n_outputs);
    for (int i = 0; i < b->n_outputs; i++)
        p->outputs[i] = text(b->outputs[i]->name);
    return attributes_write(w, &p->attributes, &p->n_attributes, b->attributes, b->n_attributes) ? p : NULL;
}

static MilkitPb__FunctionEntry *function_write(struct writer *w, const struct mil_function *f)
{
    MilkitPb__FunctionEntry *entry = MESSAGE_NEW(w, MilkitPb__FunctionEntry, MILKIT_PB__FUNCTION_ENTRY__INIT);
    MilkitPb__Function *p = MESSAGE_NEW(w, MilkitPb__Function, MILKIT_PB__FUNCTION__INIT);

    entry->key = text(f->name);
    entry->value = p;
    p->opset = text(f->opset);
    p->n_inputs = (size_t)f->n_inputs;
    p->inputs = vars_write(w, f->inputs, f->n_inputs);
    if (!attributes_write(w, &p->attributes, &p->n_attributes, f->attributes, f->n_attributes))
        return NULL;
    p->n_blocks = 1;
    p->blocks = ARENA_ARRAY(w->arena, MilkitPb__BlockEntry *, 1);
    p->blocks[0] = MESSAGE_NEW(w, MilkitPb__BlockEntry, MILKIT_PB__BLOCK_ENTRY__INIT);
    p->blocks[0]->key = text(f->opset);
    p->blocks[0]->value = block_write(w, f->block);
    return p->blocks[0]->value ? entry : NULL;
}

static int function_compare(const void *a, const void *b)
{
    return strcmp((*(MilkitPb__FunctionEntry *const *)a)->key, (*(MilkitPb__FunctionEntry *const *)b)->key);
}

static MilkitPb__Program *program_write(struct writer *w, const struct mil_program *program)
{
    MilkitPb__Program *p = MESSAGE_NEW(w, MilkitPb__Program, MILKIT_PB__PROGRAM__INIT);

    p->version = program->version;
    p->doc = text(program->doc);
    if (!attributes_write(w, &p->attributes, &p->n_attributes, program->attributes, program->n_attributes))
        return NULL;
    p->n_functions = (size_t)program->n_functions;
    p->functions = ARENA_ARRAY(w->arena, MilkitPb__FunctionEntry *, program->n_functions);
    for (int i = 0; i < program->n_functions; i++) {
        if (!(p->functions[i] = function_write(w, program->functions[i]))) {
            err_wrap(w->e, "function %s", program->functions[i]->name);
            return NULL;
        }
    }
    qsort(p->functions, p->n_functions, sizeof *p->functions, function_compare);
    return p;
}

bool mil_protobuf_write(const struct mil_model *m, struct buf *out, struct err *e)
{
    struct writer w = {arena_new(0), e};
    struct buf bytes;
    ProtobufCMessage *description = NULL;
    struct arena *description_arena = NULL;
    MilkitPb__Model p = MILKIT_PB__MODEL__INIT;
    bool ok = false;

    buf_init(&bytes, out->max_bytes);
    p.specification_version = m->specification_version;
    p.is_updatable = m->is_updatable;
    if (!mil_description_write(m, &bytes, e))
        goto done;
    if (!wire_unpack(&description, &description_arena, &milkit_pb__description__descriptor,
                     (const uint8_t *)bytes.p, bytes.n, "description", e))
        goto done;
    p.description = (MilkitPb__Description *)description;
    p.program = program_write(&w, m->program);
    ok = p.program && wire_pack(&p.base, out, e);
done:
    arena_free(description_arena);
    arena_free(w.arena);
    buf_fini(&bytes);
    return ok;
}
