/* The builder: variables and ops collected in growing lists, names kept unique in one table a function.
 *
 * A const made without a wished name gets one from the first op that uses it ("attention_scores_perm_0"), as
 * readers of such programs expect; the rest are named when the function ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/build.h"

struct list {
    void **p;
    int n;
    size_t capacity;
};

struct mil_builder {
    struct mil_model *model;
    struct arena *arena;
    struct mil_function *function;
    struct table *names; /* taken names -> the variable, or the builder itself for an op without a result */
    struct table *constants; /* content -> variable of a const op */
    struct table *counters;  /* wished name -> the number tried last (an int in the arena) */
    struct list inputs, ops, vars;
    const struct mil_type **types; /* by var id, a growing copy of every variable's type for inference */
    size_t types_capacity;
    bool failed;
    struct err err;
};

static void list_add(struct list *l, void *item)
{
    l->p = mem_grow(l->p, (size_t)l->n, &l->capacity, sizeof *l->p);
    l->p[l->n++] = item;
}

static void *list_freeze(struct arena *a, const struct list *l)
{
    return l->n ? arena_copy(a, l->p, sizeof l->p[0] * (size_t)l->n) : NULL;
}

struct mil_builder *mil_builder_new(struct mil_model *m, const char *function, const char *opset)
{
    struct mil_builder *b = xcalloc(1, sizeof *b);
    b->model = m;
    b->arena = m->arena;
    b->function = ARENA_NEW(b->arena, struct mil_function);
    b->function->name = arena_strdup(b->arena, function);
    b->function->opset = arena_strdup(b->arena, opset);
    b->names = table_new();
    b->constants = table_new();
    b->counters = table_new();
    if (mil_opset_number(opset) == 0)
        mil_builder_fail(b, ERR_BUG, "opset '%s' is unknown", opset);
    if (mil_function_find(m, function))
        mil_builder_fail(b, ERR_BUG, "the program has a function of this name already");
    return b;
}

static void builder_free(struct mil_builder *b)
{
    table_free(b->names);
    table_free(b->constants);
    table_free(b->counters);
    free(b->inputs.p);
    free(b->ops.p);
    free(b->vars.p);
    free(b->types);
    free(b);
}

struct arena *mil_builder_arena(struct mil_builder *b)
{
    return b->arena;
}

bool mil_builder_failed(const struct mil_builder *b)
{
    return b->failed;
}

void mil_builder_fail(struct mil_builder *b, enum err_code code, const char *fmt, ...)
{
    char text[900];
    va_list ap;
    if (b->failed)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    b->failed = true;
    err_set(&b->err, code, "function %s: %s", b->function->name, text);
}

/* ---- names and variables ---- */

/* Letters, digits and underscores, not starting with a digit: what a MIL identifier may be. */
static char *clean_name(struct arena *a, const char *wish)
{
    char *name = arena_printf(a, "%s%s", *wish >= '0' && *wish <= '9' ? "_" : "", *wish ? wish : "_");
    for (char *p = name; *p; p++) {
        bool ok =
            (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '_';
        if (!ok)
            *p = '_';
    }
    return name;
}

/* stem_N, N the number behind the last one of this stem, of those that are not taken. */
static const char *count_name(struct mil_builder *b, const char *stem, int first, void *owner)
{
    int *counter = table_get(b->counters, stem);
    if (!counter) {
        counter = ARENA_NEW(b->arena, int);
        *counter = first - 1;
        (void)table_put(b->counters, stem, counter);
    }
    for (;;) {
        const char *name = arena_printf(b->arena, "%s_%d", stem, ++*counter);
        if (table_put(b->names, name, owner))
            return name;
    }
}

static const char *take_name(struct mil_builder *b, const char *wish, void *owner)
{
    const char *name = clean_name(b->arena, wish);
    return table_put(b->names, name, owner) ? name : count_name(b, name, 1, owner);
}

static struct mil_var *new_var(struct mil_builder *b, const struct mil_type *type, struct mil_op *op)
{
    struct mil_var *v = ARENA_NEW(b->arena, struct mil_var);
    v->type = type;
    v->op = op;
    v->id = b->vars.n;
    list_add(&b->vars, v);
    b->types = mem_grow(b->types, (size_t)v->id, &b->types_capacity, sizeof *b->types);
    b->types[v->id] = type;
    return v;
}

static struct mil_var *new_input(struct mil_builder *b, const char *name, const struct mil_type *type)
{
    if (b->failed)
        return NULL;
    struct mil_var *v = new_var(b, type, NULL);
    v->name = arena_strdup(b->arena, name);
    if (!table_put(b->names, name, v)) {
        mil_builder_fail(b, ERR_BUG, "input name '%s' is taken", name);
        return NULL;
    }
    list_add(&b->inputs, v);
    return v;
}

struct mil_var *mil_build_input(struct mil_builder *b, const char *name, enum mil_dtype d, int rank,
                                const int64_t *dims)
{
    return new_input(b, name, mil_type_new_tensor(b->arena, d, rank, dims));
}

struct mil_var *mil_build_state(struct mil_builder *b, const char *name, enum mil_dtype d, int rank,
                                const int64_t *dims)
{
    return new_input(b, name, mil_type_new_state(b->arena, mil_type_new_tensor(b->arena, d, rank, dims)));
}

/* ---- values ---- */

const struct mil_value *mil_value_new(struct mil_model *m, enum mil_dtype d, int rank, const int64_t *dims,
                                      const void *data)
{
    struct mil_value *v = ARENA_NEW(m->arena, struct mil_value);
    v->kind = MIL_VALUE_TENSOR;
    v->type = mil_type_new_tensor(m->arena, d, rank, dims);
    v->n_elems = mil_type_elems(v->type);
    v->bytes = (size_t)mil_type_bytes(v->type);
    v->data = arena_copy(m->arena, data, v->bytes);
    return v;
}

const struct mil_value *mil_value_new_string(struct mil_model *m, const char *s)
{
    struct mil_value *v = ARENA_NEW(m->arena, struct mil_value);
    struct str *strings = ARENA_NEW(m->arena, struct str);
    strings->p = arena_strdup(m->arena, s);
    strings->n = strlen(s);
    v->kind = MIL_VALUE_TENSOR;
    v->type = mil_type_new_tensor(m->arena, MIL_STRING, 0, NULL);
    v->n_elems = 1;
    v->strings = strings;
    return v;
}

struct mil_value *mil_value_new_weight(struct mil_model *m, enum mil_dtype d, int rank, const int64_t *dims,
                                       const struct mil_weight *w)
{
    struct mil_value *v = ARENA_NEW(m->arena, struct mil_value);
    v->kind = MIL_VALUE_WEIGHT;
    v->type = mil_type_new_tensor(m->arena, d, rank, dims);
    v->n_elems = mil_type_elems(v->type);
    v->bytes = (size_t)mil_type_bytes(v->type);
    v->weight = arena_copy(m->arena, w, sizeof *w);
    return v;
}

/* ---- consts ---- */

static void name_op(struct mil_builder *b, struct mil_op *op, const char *name)
{
    op->attributes[0].name = "name";
    op->attributes[0].value = mil_value_new_string(b->model, name);
}

/* A const op for v, or the one made before under the same key. */
static struct mil_var *const_by_key(struct mil_builder *b, const char *key, const struct mil_value *v,
                                    const char *name)
{
    struct mil_var *var = table_get(b->constants, key);
    if (var) {
        if (name && !var->name) {
            var->name = take_name(b, name, var);
            name_op(b, var->op, var->name);
        }
        return var;
    }
    struct mil_op *op = ARENA_NEW(b->arena, struct mil_op);
    op->type = "const";
    op->info = mil_op_info_by_id(MIL_OP_CONST);
    op->n_attributes = 2;
    op->attributes = ARENA_ARRAY(b->arena, struct mil_named_value, 2);
    op->attributes[1].name = "val";
    op->attributes[1].value = v;
    op->n_outputs = 1;
    op->outputs = ARENA_NEW(b->arena, struct mil_var *);
    var = op->outputs[0] = new_var(b, v->type, op);
    if (name) {
        var->name = take_name(b, name, var);
        name_op(b, op, var->name);
    }
    list_add(&b->ops, op);
    (void)table_put(b->constants, key, var);
    return var;
}

struct mil_var *mil_build_const(struct mil_builder *b, const struct mil_value *v, const char *name)
{
    char key[40];
    if (b->failed)
        return NULL;
    if (!v) {
        mil_builder_fail(b, ERR_BUG, "const '%s' has no value", name ? name : "?");
        return NULL;
    }
    snprintf(key, sizeof key, "value %p", (const void *)v);
    return const_by_key(b, key, v, name);
}

static struct mil_var *const_of_bytes(struct mil_builder *b, enum mil_dtype d, int rank, int n,
                                      const void *data, const char *name)
{
    if (b->failed)
        return NULL;
    int64_t dim = n;
    const struct mil_value *v = NULL;
    size_t bytes = (size_t)n * (size_t)mil_dtype_bits(d) / 8;
    char *key = xmalloc(64 + 2 * bytes);
    int at = snprintf(key, 64, "%s %d %d ", mil_dtype_name(d), rank, n);
    for (size_t i = 0; i < bytes; i++)
        snprintf(key + at + 2 * i, 3, "%02x", ((const uint8_t *)data)[i]);
    if (!table_get(b->constants, key))
        v = mil_value_new(b->model, d, rank, &dim, data);
    struct mil_var *var = const_by_key(b, key, v, name);
    free(key);
    return var;
}

struct mil_var *mil_build_ints(struct mil_builder *b, const int32_t *v, int n, const char *name)
{
    return const_of_bytes(b, MIL_INT32, 1, n, v, name);
}

struct mil_var *mil_build_dims(struct mil_builder *b, const int64_t *v, int n, const char *name)
{
    int32_t narrow[MIL_RANK_MAX] = {0};
    if (n < 0 || n > MIL_RANK_MAX) {
        mil_builder_fail(b, ERR_BUG, "%d dimensions in one const", n);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        if (v[i] < INT32_MIN || v[i] > INT32_MAX) {
            mil_builder_fail(b, ERR_LIMIT, "a dimension of %lld is larger than int32 can hold",
                             (long long)v[i]);
            return NULL;
        }
        narrow[i] = (int32_t)v[i];
    }
    return mil_build_ints(b, narrow, n, name);
}

struct mil_var *mil_build_int(struct mil_builder *b, int32_t v, const char *name)
{
    return const_of_bytes(b, MIL_INT32, 0, 1, &v, name);
}

struct mil_var *mil_build_bools(struct mil_builder *b, const bool *v, int n, const char *name)
{
    uint8_t bytes[MIL_RANK_MAX * 4];
    if (n < 0 || n > (int)sizeof bytes) {
        mil_builder_fail(b, ERR_BUG, "%d bools in one const", n);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        bytes[i] = v[i] ? 1 : 0;
    return const_of_bytes(b, MIL_BOOL, 1, n, bytes, name);
}

struct mil_var *mil_build_bool(struct mil_builder *b, bool v, const char *name)
{
    uint8_t byte = v ? 1 : 0;
    return const_of_bytes(b, MIL_BOOL, 0, 1, &byte, name);
}

struct mil_var *mil_build_f16(struct mil_builder *b, double v, const char *name)
{
    f16 half = f64_to_f16(v);
    return const_of_bytes(b, MIL_FP16, 0, 1, &half, name);
}

struct mil_var *mil_build_string(struct mil_builder *b, const char *s, const char *name)
{
    if (b->failed)
        return NULL;
    char *key = xasprintf("string %s", s);
    const struct mil_value *v = table_get(b->constants, key) ? NULL : mil_value_new_string(b->model, s);
    struct mil_var *var = const_by_key(b, key, v, name);
    free(key);
    return var;
}

/* ---- ops ---- */

/* The variable of an argument that is not a list of variables. */
static struct mil_var *arg_var(struct mil_builder *b, const struct mil_build_arg *a)
{
    switch (a->kind) {
    case MIL_BUILD_NONE:
        return a->var;
    case MIL_BUILD_VALUE:
        return mil_build_const(b, a->constant.value, a->wish);
    case MIL_BUILD_INT:
        return mil_build_int(b, a->constant.i, NULL);
    case MIL_BUILD_INTS:
        return mil_build_ints(b, a->constant.ints, a->n, NULL);
    case MIL_BUILD_DIMS:
        return mil_build_dims(b, a->constant.dims, a->n, NULL);
    case MIL_BUILD_BOOL:
        return mil_build_bool(b, a->constant.boolean, NULL);
    case MIL_BUILD_BOOLS:
        return mil_build_bools(b, a->constant.bools, a->n, NULL);
    case MIL_BUILD_F16:
        return mil_build_f16(b, a->constant.number, NULL);
    case MIL_BUILD_STRING:
        return mil_build_string(b, a->constant.text, NULL);
    }
    return NULL;
}

static bool bind_args(struct mil_builder *b, struct mil_op *op, const char *label,
                      const struct mil_build_arg *args, int n_args)
{
    op->n_args = n_args;
    op->args = n_args ? ARENA_ARRAY(b->arena, struct mil_arg, n_args) : NULL;
    for (int i = 0; i < n_args; i++) {
        bool is_list = args[i].vars != NULL;
        int n = is_list ? args[i].n_vars : 1;
        op->args[i].name = arena_strdup(b->arena, args[i].name);
        op->args[i].n = n;
        op->args[i].bindings = ARENA_ARRAY(b->arena, struct mil_binding, n > 0 ? n : 1);
        for (int k = 0; k < n; k++) {
            struct mil_var *v = is_list ? args[i].vars[k] : arg_var(b, &args[i]);
            if (!v) {
                mil_builder_fail(b, ERR_BUG, "op %s '%s': argument %s is NULL", op->type, label,
                                 args[i].name);
                return false;
            }
            op->args[i].bindings[k].var = v;
        }
    }
    return true;
}

static void name_constants(struct mil_builder *b, struct mil_op *op, const char *op_name)
{
    for (int i = 0; i < op->n_args; i++) {
        for (int k = 0; k < op->args[i].n; k++) {
            struct mil_var *v = op->args[i].bindings[k].var;
            if (v->name)
                continue;
            v->name = take_name(b, arena_printf(b->arena, "%s_%s_%d", op_name, op->args[i].name, k), v);
            name_op(b, v->op, v->name);
        }
    }
}

bool mil_build_op_n(struct mil_builder *b, const char *type, const char *name,
                    const struct mil_build_arg *args, int n_args, struct mil_var **outputs, int n_outputs)
{
    struct err e = {0};
    for (int i = 0; i < n_outputs; i++)
        outputs[i] = NULL;
    if (b->failed)
        return false;
    struct mil_op *op = ARENA_NEW(b->arena, struct mil_op);
    op->info = mil_op_info_find(type);
    if (!op->info) {
        mil_builder_fail(b, ERR_BUG, "op %s is not in the table", type);
        return false;
    }
    op->type = op->info->name;
    if (op->info->opset > mil_opset_number(b->function->opset)) {
        mil_builder_fail(b, ERR_BUG, "op %s does not exist in opset %s", type, b->function->opset);
        return false;
    }
    if (!bind_args(b, op, name ? name : "", args, n_args))
        return false;
    op->n_outputs = n_outputs;
    op->outputs = ARENA_ARRAY(b->arena, struct mil_var *, n_outputs > 0 ? n_outputs : 1);
    op->n_attributes = 1;
    op->attributes = ARENA_NEW(b->arena, struct mil_named_value);
    /* The rules name the op by its first output in their messages: give it one before the types are known. */
    int first = b->vars.n;
    for (int i = 0; i < n_outputs; i++)
        op->outputs[i] = new_var(b, NULL, op);
    void *owner = n_outputs > 0 ? (void *)op->outputs[0] : (void *)b;
    const char *op_name = name ? take_name(b, name, owner) : count_name(b, op->type, 0, owner);
    name_op(b, op, op_name);
    for (int i = 0; i < n_outputs; i++)
        op->outputs[i]->name =
            i == 0 ? op_name : take_name(b, arena_printf(b->arena, "%s_%d", op_name, i), op->outputs[i]);
    name_constants(b, op, op_name);
    const struct mil_type **result =
        ARENA_ARRAY(b->arena, const struct mil_type *, n_outputs > 0 ? n_outputs : 1);
    if (!mil_infer_op(op, b->types, NULL, result, b->arena, &e)) {
        mil_builder_fail(b, e.code, "%s", e.msg);
        return false;
    }
    for (int i = 0; i < n_outputs; i++) {
        if (!result[i]) {
            mil_builder_fail(b, ERR_BUG,
                             "op %s '%s': the type of its result does not follow from its operands", type,
                             op_name);
            return false;
        }
        op->outputs[i]->type = b->types[first + i] = result[i];
        outputs[i] = op->outputs[i];
    }
    list_add(&b->ops, op);
    return true;
}

struct mil_var *mil_build_op(struct mil_builder *b, const char *type, const char *name,
                             const struct mil_build_arg *args, int n_args)
{
    struct mil_var *v = NULL;
    return mil_build_op_n(b, type, name, args, n_args, &v, 1) ? v : NULL;
}

void mil_build_rename(struct mil_builder *b, struct mil_var *v, const char *name)
{
    if (b->failed)
        return;
    if (!v || !v->op) {
        mil_builder_fail(b, ERR_BUG, "only the result of an op can be renamed to '%s'", name);
        return;
    }
    if (v->name && strcmp(v->name, name) == 0)
        return;
    void *owner = table_get(b->names, name);
    if (owner && owner != v) {
        /* A helper that happens to hold the final name gives way. */
        struct mil_var *other = owner == (void *)b ? NULL : owner;
        if (!other || !other->op) {
            mil_builder_fail(b, ERR_BUG, "the name '%s' is taken", name);
            return;
        }
        if (strcmp(other->name, name) == 0) {
            other->name = take_name(b, name, other);
            if (other == other->op->outputs[0])
                name_op(b, other->op, other->name);
        }
    } else if (!owner) {
        (void)table_put(b->names, name, v);
    }
    v->name = arena_strdup(b->arena, name);
    if (v == v->op->outputs[0])
        name_op(b, v->op, name);
}

/* ---- the end ---- */

static void add_function(struct mil_builder *b)
{
    struct mil_program *p = b->model->program;
    if (!p) {
        p = b->model->program = ARENA_NEW(b->arena, struct mil_program);
        p->version = 1;
    }
    struct mil_function **functions = ARENA_ARRAY(b->arena, struct mil_function *, p->n_functions + 1);
    for (int i = 0; i < p->n_functions; i++)
        functions[i] = p->functions[i];
    functions[p->n_functions++] = b->function;
    p->functions = functions;
}

bool mil_builder_finish(struct mil_builder *b, struct mil_var *const *outputs, int n_outputs, struct err *e)
{
    struct mil_function *f = b->function;
    for (int i = 0; i < n_outputs && !b->failed; i++) {
        if (!outputs[i])
            mil_builder_fail(b, ERR_BUG, "output %d is NULL", i);
    }
    if (b->failed) {
        err_set(e, b->err.code, "%s", b->err.msg);
        builder_free(b);
        return false;
    }
    for (int i = 0; i < b->vars.n; i++) {
        struct mil_var *v = b->vars.p[i];
        if (!v->name) {
            v->name = count_name(b, "const", 0, v);
            name_op(b, v->op, v->name);
        }
    }
    f->n_inputs = b->inputs.n;
    f->inputs = list_freeze(b->arena, &b->inputs);
    f->n_vars = b->vars.n;
    f->block = ARENA_NEW(b->arena, struct mil_block);
    f->block->n_ops = b->ops.n;
    f->block->ops = list_freeze(b->arena, &b->ops);
    f->block->n_outputs = n_outputs;
    f->block->outputs = ARENA_ARRAY(b->arena, struct mil_var *, n_outputs > 0 ? n_outputs : 1);
    for (int i = 0; i < n_outputs; i++)
        f->block->outputs[i] = outputs[i];
    add_function(b);
    builder_free(b);
    return true;
}
