/* A function as checks ask about it, and where their findings go. */
#include "lint/scan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "device/support.h"

/* ---- findings ---- */

static const char *op_name(const struct mil_op *op)
{
    return op->n_outputs > 0 ? op->outputs[0]->name : op->type;
}

static void PRINTF_LIKE(4, 0) add(struct lint_scan *s, enum lint_severity severity, const struct mil_op *op,
                                  const char *fmt, va_list args)
{
    const char *program = s->program ? s->program->name : NULL;
    const char *function = s->function ? s->function->f->name : NULL;
    struct lint_finding *f = NULL;
    for (size_t i = s->n_findings; i > 0 && !f && s->findings[i - 1].rule == s->rule; i--) {
        struct lint_finding *x = &s->findings[i - 1];
        if (x->severity == severity && x->program == program && x->function == function)
            f = x;
    }
    if (!f) {
        s->findings = mem_grow(s->findings, s->n_findings, &s->capacity, sizeof *s->findings);
        f = &s->findings[s->n_findings++];
        *f = (struct lint_finding){
            .rule = s->rule, .severity = severity, .program = program, .function = function};
    }
    f->count++;
    if (f->n_places == LINT_PLACES_MAX)
        return;
    char text[400];
    vsnprintf(text, sizeof text, fmt, args);
    f->places[f->n_places++] = (struct lint_place){
        .operation = op ? arena_strdup(s->arena, op_name(op)) : NULL, .text = arena_strdup(s->arena, text)};
}

void lint_add(struct lint_scan *s, enum lint_severity severity, const struct mil_op *op, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    add(s, severity, op, fmt, args);
    va_end(args);
}

void lint_add_op(struct lint_scan *s, const struct mil_op *op, const char *fmt, ...)
{
    bool is_prologue = op->n_outputs > 0 && s->function->is_prologue[op->outputs[0]->id];
    va_list args;
    va_start(args, fmt);
    add(s, is_prologue ? LINT_NOTE : s->rule->severity, op, fmt, args);
    va_end(args);
}

/* ---- target ---- */

bool lint_is_phone(const struct lint_scan *s)
{
    return s->options->system.kind == SYSTEM_IOS || (s->options->chip && s->options->chip->is_phone);
}

bool lint_may_be_up_to(const struct lint_scan *s, enum chip_family family)
{
    return !s->options->chip || s->options->chip->family <= family;
}

bool lint_is_up_to(const struct lint_scan *s, enum chip_family family)
{
    return s->options->chip && s->options->chip->family <= family;
}

/* ---- a function ---- */

static void count_block(const struct mil_block *b, int *n_ops, int *n_uses)
{
    for (int i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        ++*n_ops;
        for (int k = 0; k < op->n_args; k++)
            *n_uses += op->args[k].n;
        for (int k = 0; k < op->n_blocks; k++)
            count_block(op->blocks[k], n_ops, n_uses);
    }
}

static void add_op(struct lint_function *out, const struct mil_op *op)
{
    if (!mil_op_is(op, "const"))
        out->ops[out->n_ops++] = op;
    for (int k = 0; k < op->n_args; k++) {
        for (int i = 0; i < op->args[k].n; i++) {
            const struct mil_var *v = op->args[k].bindings[i].var;
            if (!v)
                continue;
            out->uses[out->n_uses] = (struct lint_use){op, &op->args[k], out->first_use[v->id]};
            out->first_use[v->id] = out->n_uses++;
        }
    }
}

/* Joining an input with constants only says on which axis it is: no arithmetic. */
static bool is_computed(const struct lint_function *f, const struct mil_op *op)
{
    if (lint_op_is_constant(op))
        return false;
    if (!lint_op_is_view(op) && !mil_op_is(op, "concat"))
        return true;
    for (int k = 0; k < op->n_args; k++)
        for (int i = 0; i < op->args[k].n; i++)
            if (op->args[k].bindings[i].var && f->is_computed[op->args[k].bindings[i].var->id])
                return true;
    return false;
}

static void add_block(struct lint_function *out, const struct mil_block *b)
{
    for (int i = 0; i < b->n_ops; i++) {
        const struct mil_op *op = b->ops[i];
        add_op(out, op);
        for (int k = 0; k < op->n_outputs; k++)
            out->is_computed[op->outputs[k]->id] = is_computed(out, op);
        for (int k = 0; k < op->n_blocks; k++)
            add_block(out, op->blocks[k]);
    }
    for (int i = 0; i < b->n_outputs; i++)
        out->is_output[b->outputs[i]->id] = true;
}

/* Uses come behind definitions, so one walk from the end sees each variable's uses before itself. */
static void find_steering(struct lint_function *f)
{
    for (int i = f->n_ops - 1; i >= 0; i--) {
        for (int k = 0; k < f->ops[i]->n_outputs; k++) {
            const struct mil_var *v = f->ops[i]->outputs[k];
            bool only = !f->is_output[v->id];
            for (int u = f->first_use[v->id]; u >= 0 && only; u = f->uses[u].next) {
                const struct mil_op *op = f->uses[u].op;
                only = lint_arg_steers(op, f->uses[u].arg) ||
                       (op->n_outputs == 1 && lint_is_integer(lint_output_type(op)) &&
                        f->only_steers[op->outputs[0]->id]);
            }
            f->only_steers[v->id] = only;
        }
    }
}

static bool looks_up_only(const struct lint_function *f)
{
    bool gathers = false;
    for (int i = 0; i < f->n_ops; i++) {
        const struct mil_op *op = f->ops[i];
        bool is_gather = mil_op_is(op, "gather");
        gathers = gathers || is_gather;
        if (!is_gather && !lint_op_is_constant(op) && !lint_op_is_view(op) && !mil_op_is(op, "mul") &&
            !lint_is_integer(lint_output_type(op)))
            return false;
    }
    return gathers;
}

struct lint_function *lint_function_new(const struct mil_function *f, struct arena *a)
{
    struct lint_function *out = ARENA_NEW(a, struct lint_function);
    int n_ops = 0, n_uses = 0;
    if (f->block)
        count_block(f->block, &n_ops, &n_uses);
    out->f = f;
    out->ops = ARENA_ARRAY(a, const struct mil_op *, n_ops + 1);
    out->uses = ARENA_ARRAY(a, struct lint_use, n_uses + 1);
    out->first_use = ARENA_ARRAY(a, int, f->n_vars + 1);
    out->is_prologue = ARENA_ARRAY(a, bool, f->n_vars + 1);
    out->is_output = ARENA_ARRAY(a, bool, f->n_vars + 1);
    out->only_steers = ARENA_ARRAY(a, bool, f->n_vars + 1);
    out->is_computed = ARENA_ARRAY(a, bool, f->n_vars + 1);
    for (int i = 0; i <= f->n_vars; i++)
        out->first_use[i] = -1;
    bool *prologue = device_prologue(f);
    for (int i = 0; i < f->n_vars; i++)
        out->is_prologue[i] = prologue[i];
    free(prologue);
    if (f->block)
        add_block(out, f->block);
    find_steering(out);
    out->looks_up_only = looks_up_only(out);
    return out;
}

/* ---- questions about ops ---- */

bool lint_op_is_constant(const struct mil_op *op)
{
    return device_is_constant(op);
}

bool lint_op_is_in(const struct mil_op *op, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(op->type, *names) == 0)
            return true;
    return false;
}

bool lint_arg_steers(const struct mil_op *op, const struct mil_arg *arg)
{
    static const char *const slices[] = {"slice_by_index", "slice_by_size", "slice_update", NULL};
    static const char *const gathers[] = {"gather", "gather_nd", "gather_along_axis", NULL};
    if (lint_op_is_in(op, slices))
        return strcmp(arg->name, "x") != 0 && strcmp(arg->name, "update") != 0;
    return lint_op_is_in(op, gathers) && strcmp(arg->name, "indices") == 0;
}

bool lint_op_is_view(const struct mil_op *op)
{
    static const char *const names[] = {"reshape", "transpose", "expand_dims", "squeeze", "identity", NULL};
    const struct mil_type *in, *out;
    if (lint_op_is_in(op, names))
        return true;
    if (!mil_op_is(op, "cast"))
        return false;
    in = lint_arg_type(op, "x");
    out = lint_output_type(op);
    return in && out && mil_dtype_is_float(in->dtype) && mil_dtype_is_float(out->dtype);
}

const struct mil_var *lint_behind_views(const struct mil_var *v)
{
    while (v && v->op && lint_op_is_view(v->op)) {
        const struct mil_var *x = mil_arg_var(v->op, "x");
        if (!x)
            break;
        v = x;
    }
    return v;
}

const struct mil_op *lint_maker(const struct mil_var *v)
{
    v = lint_behind_views(v);
    return v ? v->op : NULL;
}

const struct mil_op *lint_arg_maker(const struct mil_op *op, const char *arg)
{
    return lint_maker(mil_arg_var(op, arg));
}

const struct mil_type *lint_arg_type(const struct mil_op *op, const char *arg)
{
    const struct mil_arg *a = mil_arg_find(op, arg);
    const struct mil_type *t = NULL;
    if (a && a->n == 1)
        t = a->bindings[0].var ? a->bindings[0].var->type : a->bindings[0].value->type;
    const struct mil_value *attribute = a ? NULL : mil_attribute(op, arg); /* of the older constexpr ops */
    t = t ? mil_type_tensor(t) : attribute ? attribute->type : NULL;
    return t && t->kind == MIL_TYPE_TENSOR ? t : NULL;
}

const struct mil_type *lint_output_type(const struct mil_op *op)
{
    const struct mil_type *t = op->n_outputs > 0 ? mil_type_tensor(op->outputs[0]->type) : NULL;
    return t && t->kind == MIL_TYPE_TENSOR ? t : NULL;
}

bool lint_is_integer(const struct mil_type *t)
{
    return t && t->kind == MIL_TYPE_TENSOR && (t->dtype == MIL_BOOL || mil_dtype_is_integer(t->dtype));
}

const struct mil_var *lint_state_read(const struct mil_var *v)
{
    const struct mil_op *op = lint_maker(v);
    return op && mil_op_is(op, "read_state") ? mil_arg_var(op, "input") : NULL;
}

bool lint_has_states(const struct mil_function *f)
{
    for (int i = 0; i < f->n_inputs; i++)
        if (f->inputs[i]->type->kind == MIL_TYPE_STATE)
            return true;
    return false;
}

/* ---- weights ---- */

const struct mil_value *lint_weight(const struct mil_var *v, const struct mil_op **expands)
{
    const struct mil_op *op = lint_maker(v);
    *expands = NULL;
    if (!op)
        return NULL;
    if (mil_op_is(op, "const"))
        return mil_attribute(op, "val");
    if (lint_op_is_constant(op))
        *expands = op;
    return NULL;
}
