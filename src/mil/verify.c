/* mil_verify: what must hold before anything trusts a program.
 *
 * First the graph (definitions, uses, arguments against the op table, values), then types by inference, then
 * the description that callers see. Later stages lean on the earlier ones: inference indexes by variable id,
 * which is only safe once the ids are known to be dense and the references to lead to variables of this
 * function.
 */
#include <stdio.h>
#include <string.h>
#include "mil/infer_rules.h"
#include "mil/verify.h"

#define BLOCK_DEPTH_MAX 32
#define VALUE_DEPTH_MAX 64

struct verifier {
    const struct mil_function *f;
    int opset;
    struct mil_var **defined;     /* by id: the variable, while it is in scope */
    bool *seen;                   /* by id: was defined anywhere in the function */
    struct table *names;          /* of the outermost block */
    struct mil_known_ints *known; /* by the declared types */
    struct arena *arena;
    struct err *e;
};

#define fail(v, ...) mil_verify_fail((v)->f, (v)->e, __VA_ARGS__)

/* "conv 'scores'" into dst. */
static const char *op_label(char dst[160], const struct mil_op *op)
{
    const char *name = op->n_outputs > 0 ? op->outputs[0]->name : NULL;
    struct str s;
    if (name)
        snprintf(dst, 160, "op %.60s '%.80s'", op->type, name);
    else if (mil_value_string(mil_attribute(op, "name"), &s))
        snprintf(dst, 160, "op %.60s '%.*s'", op->type, (int)(s.n < 80 ? s.n : 80), s.p);
    else
        snprintf(dst, 160, "op %.60s", op->type);
    return dst;
}

/* ---- values ---- */

/* NULL when v is complete, else what is wrong with it. */
static const char *value_fault(const struct mil_value *v, int depth)
{
    if (!v || !v->type)
        return "has no value";
    if (depth > VALUE_DEPTH_MAX)
        return "is nested too deeply";
    if (v->kind == MIL_VALUE_ITEMS) {
        for (int i = 0; i < v->n_items; i++) {
            const char *fault = value_fault(v->items[i], depth + 1);
            if (fault)
                return fault;
        }
        return NULL;
    }
    if (v->type->kind != MIL_TYPE_TENSOR)
        return "is not a tensor";
    int64_t n = mil_type_elems(v->type), bytes = mil_type_bytes(v->type);
    if (n < 0)
        return "has a type of unknown size";
    if (v->type->dtype == MIL_STRING)
        return v->kind != MIL_VALUE_TENSOR || v->n_elems != n || (n > 0 && !v->strings)
                   ? "has not the strings its type announces"
                   : NULL;
    if (bytes < 0)
        return "has a type of unknown size";
    switch (v->kind) {
    case MIL_VALUE_TENSOR:
        return v->bytes != (size_t)bytes || (bytes > 0 && !v->data) ? "has not the bytes its type announces"
                                                                    : NULL;
    case MIL_VALUE_BLOB:
        if (!v->file)
            return "names no weight file";
        return v->data && v->bytes != (size_t)bytes ? "has not the bytes its type announces" : NULL;
    case MIL_VALUE_WEIGHT:
        return !v->weight || !v->weight->produce ? "has no producer" : NULL;
    case MIL_VALUE_ITEMS:
        break;
    }
    return "is of an unknown kind";
}

static bool check_attributes(struct verifier *v, const struct mil_op *op, const char *label)
{
    for (int i = 0; i < op->n_attributes; i++) {
        const char *fault = value_fault(op->attributes[i].value, 0);
        if (fault)
            return fail(v, "%s: attribute %s %s", label, op->attributes[i].name, fault);
    }
    return true;
}

/* ---- definitions and uses ---- */

static bool define(struct verifier *v, struct mil_var *var, const char *label, bool is_outermost)
{
    if (!var || !var->name || !var->type)
        return fail(v, "%s: a variable without a name or a type", label);
    if (var->id < 0 || var->id >= v->f->n_vars)
        return fail(v, "%s: '%s' has the id %d, the function has %d variables", label, var->name, var->id,
                    v->f->n_vars);
    if (v->seen[var->id])
        return fail(v, "%s: '%s' shares its id with another variable", label, var->name);
    if (is_outermost && !table_put(v->names, var->name, var))
        return fail(v, "%s: '%s' is defined twice", label, var->name);
    v->seen[var->id] = true;
    v->defined[var->id] = var;
    return true;
}

static bool is_defined(const struct verifier *v, const struct mil_var *var)
{
    return var && var->id >= 0 && var->id < v->f->n_vars && v->defined[var->id] == var;
}

static bool class_holds(char type_class, const struct mil_type *t)
{
    if (!t)
        return false;
    if (type_class == 'V')
        return t->kind == MIL_TYPE_STATE;
    if (t->kind == MIL_TYPE_STATE)
        return false;
    if (type_class == 'A')
        return true;
    if (t->kind != MIL_TYPE_TENSOR)
        return false;
    switch (type_class) {
    case 'F':
        return mil_dtype_is_float(t->dtype);
    case 'I':
        return mil_dtype_is_integer(t->dtype);
    case 'N':
        return mil_dtype_is_float(t->dtype) || mil_dtype_is_integer(t->dtype);
    case 'B':
        return t->dtype == MIL_BOOL;
    case 'S':
        return t->dtype == MIL_STRING;
    default:
        return t->dtype != MIL_STRING && t->dtype != MIL_DTYPE_NONE;
    }
}

static const char *class_words(char type_class)
{
    switch (type_class) {
    case 'V':
        return "a state";
    case 'F':
        return "a float tensor";
    case 'I':
        return "an integer tensor";
    case 'N':
        return "a tensor of numbers";
    case 'B':
        return "a bool tensor";
    case 'S':
        return "a string";
    case 'A':
        return "no state";
    default:
        return "a tensor of numbers or bools";
    }
}

static bool is_compile_time(const struct mil_binding *b)
{
    return b->value || mil_op_is(b->var->op, "const") ||
           (b->var->op && strncmp(b->var->op->type, "constexpr_", 10) == 0);
}

static bool check_binding(struct verifier *v, const struct mil_arg *arg, const struct mil_binding *b,
                          const char *label)
{
    if ((b->var != NULL) == (b->value != NULL))
        return fail(v, "%s: argument %s must be one variable or one value", label, arg->name);
    if (b->var && !is_defined(v, b->var))
        return fail(v, "%s: argument %s: '%s' is neither a function input nor produced by an earlier op",
                    label, arg->name, b->var->name ? b->var->name : "?");
    const char *fault = b->value ? value_fault(b->value, 0) : NULL;
    return fault ? fail(v, "%s: argument %s %s", label, arg->name, fault) : true;
}

static bool find_input(const struct mil_op_info *info, const char *name, struct mil_op_input *input)
{
    for (const char *at = info->inputs; mil_op_input_next(&at, input);) {
        if (infer_string_is(input->name, name))
            return true;
    }
    return false;
}

/* Argument against its column of the table. */
static bool check_known_arg(struct verifier *v, const struct mil_op *op, const struct mil_arg *arg,
                            const char *label)
{
    struct mil_op_input input;
    char text[160];
    if (!find_input(op->info, arg->name, &input))
        return op->info->rule == MIL_RULE_DECLARED ? true
                                                   : fail(v, "%s has no argument %s", label, arg->name);
    if (arg->n < 1 || (arg->n > 1 && !input.is_variadic))
        return fail(v, "%s: argument %s has %d values, expected %s", label, arg->name, arg->n,
                    input.is_variadic ? "one or more" : "one");
    for (int i = 0; i < arg->n; i++) {
        const struct mil_type *t = infer_binding_type(&arg->bindings[i], NULL);
        if (!class_holds(input.type_class, t)) {
            mil_type_text(text, sizeof text, t);
            return fail(v, "%s: argument %s must be %s, found %s", label, arg->name,
                        class_words(input.type_class), text);
        }
        if (input.is_compile_time && !is_compile_time(&arg->bindings[i]))
            return fail(v, "%s: argument %s must be a constant, found the variable '%s'", label, arg->name,
                        arg->bindings[i].var->name);
    }
    return true;
}

static bool check_required(struct verifier *v, const struct mil_op *op, const char *label)
{
    struct mil_op_input input;
    if (op->info->rule == MIL_RULE_DECLARED)
        return true;
    for (const char *at = op->info->inputs; mil_op_input_next(&at, &input);) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)input.name.n, input.name.p);
        /* Opset ios16 kept the operands of stored weights as attributes. */
        if (!input.is_optional && !mil_arg_find(op, name) && !mil_attribute(op, name))
            return fail(v, "%s: argument %s is missing", label, name);
    }
    return true;
}

static bool check_args(struct verifier *v, const struct mil_op *op, const char *label)
{
    for (int i = 0; i < op->n_args; i++) {
        const struct mil_arg *arg = &op->args[i];
        for (int k = 0; k < i; k++) {
            if (strcmp(op->args[k].name, arg->name) == 0)
                return fail(v, "%s: argument %s is given twice", label, arg->name);
        }
        for (int k = 0; k < arg->n; k++) {
            if (!check_binding(v, arg, &arg->bindings[k], label))
                return false;
        }
        if (op->info && !check_known_arg(v, op, arg, label))
            return false;
    }
    return !op->info || check_required(v, op, label);
}

static bool check_block(struct verifier *v, const struct mil_block *b, int depth);

static bool check_op(struct verifier *v, const struct mil_op *op, int depth)
{
    char label[160];
    op_label(label, op);
    if (op->info && op->info->opset > v->opset)
        return fail(v, "%s exists from opset ios%d on, the function has %s", label, op->info->opset,
                    v->f->opset);
    if (!check_args(v, op, label) || !check_attributes(v, op, label))
        return false;
    for (int i = 0; i < op->n_blocks; i++) {
        if (!check_block(v, op->blocks[i], depth + 1))
            return false;
    }
    if (op->info && op->info->id == MIL_OP_WRITE_STATE && op->n_outputs > 0)
        return fail(v, "%s has a result, expected none", label);
    if (op->n_outputs < 1 && op->info && op->info->id != MIL_OP_WRITE_STATE)
        return fail(v, "%s has no result", label);
    for (int i = 0; i < op->n_outputs; i++) {
        if (!define(v, op->outputs[i], label, depth == 0))
            return false;
        if (op->outputs[i]->type->kind == MIL_TYPE_STATE)
            return fail(v, "%s: '%s' is a state; only a function input can be one", label,
                        op->outputs[i]->name);
        if (op->outputs[i]->op != op)
            return fail(v, "%s: '%s' belongs to another op", label, op->outputs[i]->name);
    }
    return true;
}

/* Types of nested ops, which mil_infer_function does not visit. */
static bool check_nested_types(struct verifier *v, const struct mil_op *op)
{
    char label[160], declared[160], found[160];
    const struct mil_type **out = ARENA_ARRAY(v->arena, const struct mil_type *, op->n_outputs + 1);
    if (!mil_infer_op(op, NULL, v->known, out, v->arena, v->e))
        return err_wrap(v->e, "function %s", v->f->name);
    for (int i = 0; i < op->n_outputs; i++) {
        if (mil_type_agrees(op->outputs[i]->type, out[i]))
            continue;
        mil_type_text(declared, sizeof declared, op->outputs[i]->type);
        mil_type_text(found, sizeof found, out[i]);
        return fail(v, "%s: declared %s, but its operands give %s", op_label(label, op), declared, found);
    }
    return true;
}

static void leave_scope(struct verifier *v, const struct mil_block *b)
{
    for (int i = 0; i < b->n_inputs; i++)
        v->defined[b->inputs[i]->id] = NULL;
    for (int i = 0; i < b->n_ops; i++) {
        for (int k = 0; k < b->ops[i]->n_outputs; k++)
            v->defined[b->ops[i]->outputs[k]->id] = NULL;
    }
}

static bool check_block(struct verifier *v, const struct mil_block *b, int depth)
{
    if (depth > BLOCK_DEPTH_MAX)
        return fail(v, "blocks are nested deeper than %d levels", BLOCK_DEPTH_MAX);
    for (int i = 0; i < b->n_inputs; i++) {
        if (!define(v, b->inputs[i], "a block input", false))
            return false;
    }
    for (int i = 0; i < b->n_ops; i++) {
        if (!check_op(v, b->ops[i], depth) || (depth > 0 && !check_nested_types(v, b->ops[i])))
            return false;
        mil_known_ints_add(v->known, b->ops[i], NULL);
    }
    for (int i = 0; i < b->n_outputs; i++) {
        const struct mil_var *var = b->outputs[i];
        if (!is_defined(v, var))
            return fail(v, "the output '%s' is neither an input nor produced by an op",
                        var && var->name ? var->name : "?");
        if (var->type->kind == MIL_TYPE_STATE)
            return fail(v, "the output '%s' is a state", var->name);
    }
    if (depth > 0)
        leave_scope(v, b);
    return true;
}

/* ---- functions ---- */

static bool check_function_graph(struct verifier *v)
{
    for (int i = 0; i < v->f->n_inputs; i++) {
        if (!define(v, v->f->inputs[i], "a function input", true))
            return false;
        if (v->f->inputs[i]->op)
            return fail(v, "the input '%s' is also the result of an op", v->f->inputs[i]->name);
        const struct mil_type *t = v->f->inputs[i]->type;
        if (t->kind == MIL_TYPE_STATE &&
            (!t->elem || t->elem->kind != MIL_TYPE_TENSOR || mil_type_elems(t->elem) < 0))
            return fail(v, "the state '%s' must be a tensor of known shape", v->f->inputs[i]->name);
    }
    return check_block(v, v->f->block, 0);
}

static bool check_function(const struct mil_function *f, struct err *e)
{
    struct verifier v = {.f = f, .opset = mil_opset_number(f->opset), .e = e};
    bool ok = false;
    v.arena = arena_new(0);
    v.names = table_new();
    if (v.opset == 0) {
        err_set(e, ERR_UNSUPPORTED, "function %s: opset '%s' is unknown, expected CoreML5 to CoreML9",
                f->name, f->opset ? f->opset : "");
        goto done;
    }
    if (!f->block || f->n_vars < 0) {
        fail(&v, "no block for its opset %s", f->opset);
        goto done;
    }
    v.defined = ARENA_ARRAY(v.arena, struct mil_var *, f->n_vars + 1);
    v.seen = ARENA_ARRAY(v.arena, bool, f->n_vars + 1);
    v.known = mil_known_ints_new(f->n_vars, v.arena);
    const struct mil_type **types = ARENA_ARRAY(v.arena, const struct mil_type *, f->n_vars + 1);
    ok = check_function_graph(&v) && mil_infer_function(f, NULL, types, NULL, v.arena, e);
done:
    table_free(v.names);
    arena_free(v.arena);
    return ok;
}

bool mil_verify(const struct mil_model *m, struct err *e)
{
    struct table *names = table_new();
    bool ok = m->program && m->program->n_functions > 0;
    if (!ok)
        err_set(e, ERR_FORMAT, "the program has no functions");
    for (int i = 0; ok && i < m->program->n_functions; i++) {
        struct mil_function *f = m->program->functions[i];
        ok = f->name && f->name[0] && table_put(names, f->name, f);
        if (!ok)
            err_set(e, ERR_FORMAT, "function name '%s' is empty or used twice", f->name ? f->name : "");
        else
            ok = check_function(f, e);
    }
    table_free(names);
    return ok && mil_verify_description(m, e);
}
