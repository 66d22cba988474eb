/* Calls: of macros, functions, methods, filters and tests, and how arguments find their parameters. */
#include <stdlib.h>

#include "jinja/jinja_internal.h"

struct value function_value(struct jinja *j, const struct builtin *b, struct value self)
{
    struct function *f = JINJA_NEW(j, struct function);
    f->builtin = b;
    f->self = self;
    return (struct value){.type = VALUE_FUNCTION, .function = f};
}

/* --- parameters of builtins --- */

void parameters_bind(struct jinja *j, const char *function, const char *spec, const struct call_args *a,
                     struct value *out)
{
    size_t n = 0;
    const char *names[8];
    size_t lengths[8];
    for (const char *at = spec; *at; n++) {
        names[n] = at;
        lengths[n] = strcspn(at, " ");
        out[n] = (struct value){0};
        at += lengths[n];
        at += *at == ' ';
    }
    if (a->n > n)
        jinja_type_error(j, "%s() takes at most %zu arguments (%zu given)", function, n, a->n);
    for (size_t i = 0; i < a->n; i++)
        out[i] = a->positional[i];
    for (size_t k = 0; k < a->n_named; k++) {
        const struct text *name = a->names[k];
        size_t i = 0;
        while (i < n && !(name->n == lengths[i] - (names[i][lengths[i] - 1] == '!') &&
                          memcmp(name->p, names[i], name->n) == 0))
            i++;
        if (i == n)
            jinja_type_error(j, "%s() got an unexpected keyword argument '%.*s'", function,
                             (int)(name->n < 100 ? name->n : 100), name->p);
        if (out[i].type != VALUE_MISSING)
            jinja_type_error(j, "%s() got multiple values for argument '%.*s'", function, (int)name->n,
                             name->p);
        out[i] = a->named[k];
    }
    for (size_t i = 0; i < n; i++)
        if (out[i].type == VALUE_MISSING && names[i][lengths[i] - 1] == '!')
            jinja_type_error(j, "%s() missing a required argument: '%.*s'", function, (int)lengths[i] - 1,
                             names[i]);
}

bool parameter_bool(struct jinja *j, struct value v, bool otherwise)
{
    return v.type == VALUE_MISSING ? otherwise : value_is_true(j, v);
}

int64_t parameter_int(struct jinja *j, struct value v, int64_t otherwise, const char *what)
{
    return v.type == VALUE_MISSING ? otherwise : value_to_index(j, v, what);
}

const struct text *parameter_text(struct jinja *j, struct value v, const char *what)
{
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (v.type != VALUE_STRING)
        jinja_type_error(j, "%s: expected a string, found '%s'", what, value_type_name(v));
    return v.text;
}

/* --- arguments of a call in the template --- */

static void push_named(struct jinja *j, struct call_args *a, size_t *capacity, const struct text *name,
                       struct value v)
{
    size_t of_names = *capacity; /* both grow together */
    a->names = jinja_grow(j, a->names, a->n_named, &of_names, sizeof *a->names);
    a->named = jinja_grow(j, a->named, a->n_named, capacity, sizeof *a->named);
    a->names[a->n_named] = name;
    a->named[a->n_named++] = v;
}

static void push_named_unpacked(struct jinja *j, struct call_args *a, size_t *capacity, struct value v)
{
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (v.type != VALUE_DICT)
        jinja_type_error(j, "argument after ** must be a mapping, not %s", value_type_name(v));
    for (size_t i = 0; i < v.dict->n; i++) {
        struct value key = v.dict->entries[i].key;
        if (key.type != VALUE_STRING)
            jinja_type_error(j, "keywords must be strings");
        push_named(j, a, capacity, key.text, v.dict->entries[i].value);
    }
}

static struct call_args eval_arguments(struct jinja *j, const struct argument_nodes *n,
                                       const struct value *caller)
{
    struct call_args a = {0};
    size_t capacity = 0;
    if (n) {
        struct list *positional = list_new(j, n->positional.n);
        for (size_t i = 0; i < n->positional.n; i++)
            list_push(j, positional, eval_node(j, n->positional.p[i]));
        for (size_t i = 0; i < n->named.n; i++)
            push_named(j, &a, &capacity, n->names[i], eval_node(j, n->named.p[i]));
        if (n->more_positional) {
            struct list *more = value_to_list(j, eval_node(j, n->more_positional));
            for (size_t i = 0; i < more->n; i++)
                list_push(j, positional, more->items[i]);
        }
        if (n->more_named)
            push_named_unpacked(j, &a, &capacity, eval_node(j, n->more_named));
        a.positional = positional->items;
        a.n = positional->n;
    }
    if (caller)
        push_named(j, &a, &capacity, table_get(j->t->names, "caller"), *caller);
    return a;
}

static void at_node(struct jinja *j, const struct node *n)
{
    j->line = n->line;
    j->column = n->column;
}

struct value eval_call(struct jinja *j, const struct node *n, const struct value *caller)
{
    struct value callee = eval_node(j, n->a);
    struct call_args a = eval_arguments(j, n->arguments, caller);
    at_node(j, n);
    return value_call(j, callee, &a);
}

struct value eval_filter(struct jinja *j, const struct node *n, struct value input)
{
    struct call_args a = eval_arguments(j, n->arguments, NULL);
    at_node(j, n);
    if (!n->builtin)
        jinja_fail(j, ERR_FORMAT, "No filter named '%.*s' found.", (int)(n->name->n < 100 ? n->name->n : 100),
                   n->name->p);
    return n->builtin->fn(j, input, &a);
}

struct value eval_test(struct jinja *j, const struct node *n)
{
    struct value input = eval_node(j, n->a);
    struct call_args a = eval_arguments(j, n->arguments, NULL);
    at_node(j, n);
    if (!n->builtin)
        jinja_fail(j, ERR_FORMAT, "No test named '%.*s' found.", (int)(n->name->n < 100 ? n->name->n : 100),
                   n->name->p);
    return n->builtin->fn(j, input, &a);
}

struct value value_call(struct jinja *j, struct value callee, const struct call_args *a)
{
    struct value v = {0};
    frame_enter(j);
    switch (callee.type) {
    case VALUE_FUNCTION:
        v = callee.function->builtin->fn(j, callee.function->self, a);
        break;
    case VALUE_MACRO:
        v = macro_call(j, callee.macro, a);
        break;
    case VALUE_LOOP:
        if (a->n != 1 || a->n_named > 0)
            jinja_type_error(j, "loop() takes one argument (%zu given)", a->n + a->n_named);
        v = loop_call(j, callee.loop, a->positional[0]);
        break;
    case VALUE_JOINER:
        v = callee.joiner->used ? callee.joiner->separator : text_wrap(j, "", 0, false);
        callee.joiner->used = true;
        break;
    case VALUE_UNDEFINED:
        fail_undefined(j, callee);
    default:
        jinja_type_error(j, "'%s' object is not callable", value_type_name(callee));
    }
    frame_leave(j);
    return v;
}

/* --- macros --- */

static void name_argument(struct jinja *j, const struct macro_definition *d, const struct call_args *a,
                          struct value *bound, struct dict *kwargs, struct value *caller)
{
    for (size_t k = 0; k < a->n_named; k++) {
        const struct text *name = a->names[k];
        size_t i = 0;
        while (i < d->n_parameters && !text_equal(d->parameters[i], name))
            i++;
        /* a parameter that was given by position already is no longer taken by name, as in Jinja */
        if (i < d->n_parameters && bound[i].type == VALUE_MISSING)
            bound[i] = a->named[k];
        else if (text_is(name, "caller") && d->uses_caller && !d->has_caller_parameter)
            *caller = a->named[k];
        else if (kwargs)
            dict_put(j, kwargs, text_value(name), a->named[k]);
        else if (text_is(name, "caller"))
            jinja_type_error(
                j,
                "macro '%.*s' was invoked with two values for the special caller argument. This is "
                "most likely a bug.",
                (int)d->name->n, d->name->p);
        else
            jinja_type_error(j, "macro '%.*s' takes no keyword argument '%.*s'",
                             (int)(d->name->n < 100 ? d->name->n : 100), d->name->p,
                             (int)(name->n < 100 ? name->n : 100), name->p);
    }
}

/* Fills the macro's scope; j->scope is that scope, so that defaults see the parameters before them. */
static void bind_macro(struct jinja *j, const struct macro_definition *d, const struct call_args *a)
{
    struct value *bound = jinja_alloc(j, d->n_parameters + 1, sizeof *bound);
    struct dict *kwargs = d->uses_kwargs ? dict_new(j) : NULL;
    struct value caller = value_none();
    for (size_t i = 0; i < a->n && i < d->n_parameters; i++)
        bound[i] = a->positional[i];
    name_argument(j, d, a, bound, kwargs, &caller);
    if (a->n > d->n_parameters && !d->uses_varargs)
        jinja_type_error(j, "macro '%.*s' takes not more than %zu argument(s)",
                         (int)(d->name->n < 100 ? d->name->n : 100), d->name->p, d->n_parameters);
    if (d->uses_varargs) {
        struct list *l = list_new(j, 0);
        for (size_t i = d->n_parameters; i < a->n; i++)
            list_push(j, l, a->positional[i]);
        scope_put(j, j->scope, table_get(j->t->names, "varargs"), value_tuple(l));
    }
    if (kwargs)
        scope_put(j, j->scope, table_get(j->t->names, "kwargs"),
                  (struct value){.type = VALUE_DICT, .dict = kwargs});
    if (d->uses_caller && !d->has_caller_parameter)
        scope_put(j, j->scope, table_get(j->t->names, "caller"),
                  caller.type == VALUE_NONE ? value_undefined_hint(j, "No caller defined") : caller);
    scope_hide(j, j->scope, &d->hidden);
    size_t n_required = d->n_parameters - d->defaults.n;
    for (size_t i = 0; i < d->n_parameters; i++) {
        struct value v = bound[i];
        if (v.type == VALUE_MISSING && i >= n_required)
            v = eval_node(j, d->defaults.p[i - n_required]);
        else if (v.type == VALUE_MISSING)
            v = value_undefined_hint(
                j, arena_printf(j->arena, "parameter '%.*s' was not provided",
                                (int)(d->parameters[i]->n < 100 ? d->parameters[i]->n : 100),
                                d->parameters[i]->p));
        scope_put(j, j->scope, d->parameters[i], v);
    }
}

struct value macro_call(struct jinja *j, struct macro *m, const struct call_args *a)
{
    if (++j->n_calls > JINJA_MAX_CALLS)
        jinja_fail(j, ERR_LIMIT, "macros and recursive loops nested more than %d deep", JINJA_MAX_CALLS);
    struct scope *scope = j->scope;
    struct builder *out = j->out;
    j->scope = scope_new(j, m->scope);
    bind_macro(j, m->definition, a);
    j->out = builder_begin(j);
    (void)exec_list(j, &m->definition->body);
    struct value v = builder_finish(j, j->out);
    j->out = out;
    j->scope = scope;
    j->n_calls--;
    return v;
}
