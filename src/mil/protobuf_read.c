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

struct scope {
    struct table *vars;
    const struct scope *outer;
};

static int named_value_compare(const void *a, const void *b)
{
    return strcmp(((const struct mil_named_value *)a)->name, ((const struct mil_named_value *)b)->name);
}

static bool attributes_read(struct protobuf_reader *r, struct mil_named_value **out, int *n_out, size_t n,
                            MilkitPb__ValueEntry **entries)
{
    struct mil_named_value *a = ARENA_ARRAY(r->arena, struct mil_named_value, n);
    for (size_t i = 0; i < n; i++) {
        a[i].name = arena_strdup(r->arena, entries[i]->key);
        if (!(a[i].value = protobuf_value_read(r, entries[i]->value, 0)))
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

static struct mil_var *var_define(struct protobuf_reader *r, struct scope *s, const MilkitPb__NamedType *p,
                                  struct mil_op *op)
{
    struct mil_var *v = ARENA_NEW(r->arena, struct mil_var);
    v->name = arena_strdup(r->arena, p->name);
    v->op = op;
    if (v->name[0] == '\0') {
        err_set(r->e, ERR_FORMAT, "a variable without a name");
        return NULL;
    }
    if (!(v->type = protobuf_type_read(r, p->type, 0))) {
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

static bool arg_read(struct protobuf_reader *r, struct mil_arg *a, const MilkitPb__ArgumentEntry *p,
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
            if (!(a->bindings[i].value = protobuf_value_read(r, b->value, 0)))
                return err_wrap(r->e, "argument \"%.100s\"", a->name);
            break;
        default:
            return err_set(r->e, ERR_FORMAT, "argument \"%.100s\" is bound to nothing", a->name);
        }
    }
    return true;
}

static bool block_read(struct protobuf_reader *r, struct mil_block *b, const MilkitPb__Block *p,
                       struct scope *s);

static bool op_read(struct protobuf_reader *r, struct mil_op *op, const MilkitPb__Operation *p,
                    struct scope *s)
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

static bool block_read(struct protobuf_reader *r, struct mil_block *b, const MilkitPb__Block *p,
                       struct scope *s)
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

static bool function_read(struct protobuf_reader *r, struct mil_function *f, const MilkitPb__Function *p)
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
    struct protobuf_reader r = {m, m->arena, table_new(), 0, e};
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
