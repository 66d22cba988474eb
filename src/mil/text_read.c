/* The text form read: the cursor, and programs, functions and statements. Types and values are in
 * text_value.c. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mil/ops.h"
#include "mil/text.h"
#include "mil/text_reader_internal.h"

/* ---- cursor ---- */

/* ---- attributes and arguments ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of arguments or attributes: [n] objects of `size` bytes that begin with the name. */
static bool check_names_differ(struct text_reader *r, const char *at, const void *first, int n, size_t size)
{
    const char **names;
    bool ok = true;

    if (n < 2)
        return true;
    names = xmalloc(sizeof *names * (size_t)n);
    for (int i = 0; i < n; i++)
        memcpy(&names[i], (const char *)first + size * (size_t)i, sizeof names[i]);
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int i = 1; i < n && ok; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            ok = text_fail(r, at, ERR_FORMAT, "\"%.80s\" is given twice", names[i]);
    free(names);
    return ok;
}

static bool read_attributes(struct text_reader *r, struct mil_named_value **out, int *n)
{
    size_t mark = r->n_stack;
    const char *at;
    void **items;

    *out = NULL;
    *n = 0;
    text_peek(r);
    at = r->p;
    if (!text_take(r, '['))
        return true;
    do {
        const struct mil_value *value;
        struct str name;
        if (!text_expect_identifier(r, &name, "the name of an attribute") || !text_expect(r, '=', "'='") ||
            !text_read_value(r, &value))
            return false;
        text_push(r, arena_strndup(r->arena, name.p, name.n));
        text_push(r, (void *)(uintptr_t)value);
    } while (text_take(r, ','));
    if (!text_expect(r, ']', "',' or ']' behind an attribute") || !text_pop(r, mark, &items, n))
        return false;
    *n /= 2;
    *out = arena_try_alloc(r->arena, (size_t)*n, sizeof **out, r->e);
    if (!*out)
        return false;
    for (int i = 0; i < *n; i++) {
        (*out)[i].name = items[2 * i];
        (*out)[i].value = items[2 * i + 1];
    }
    return check_names_differ(r, at, *out, *n, sizeof **out);
}

/* State of one function while it is read. */
struct function_reading {
    struct table *vars; /* name -> struct mil_var */
    struct mil_function *f;
};

static bool read_variable(struct text_reader *r, struct function_reading *fr, struct mil_var **out,
                          const char *what)
{
    struct str name;
    const char *at;
    char *copy;

    text_peek(r);
    at = r->p;
    if (!text_expect_identifier(r, &name, what))
        return false;
    copy = xmalloc(name.n + 1);
    memcpy(copy, name.p, name.n);
    copy[name.n] = '\0';
    *out = table_get(fr->vars, copy);
    free(copy);
    if (!*out)
        return text_fail(r, at, ERR_FORMAT,
                         "\"%.*s\" is neither an input nor the result of an operation above",
                         (int)(name.n < 80 ? name.n : 80), name.p);
    return true;
}

static bool define_variable(struct text_reader *r, struct function_reading *fr, struct mil_var *var,
                            const char *at)
{
    if (!table_put(fr->vars, var->name, var))
        return text_fail(r, at, ERR_FORMAT, "\"%.80s\" is defined twice", var->name);
    var->id = fr->f->n_vars++;
    return true;
}

/* type name, not yet defined */
static bool read_declaration(struct text_reader *r, struct mil_var **out)
{
    struct mil_var *var = ARENA_NEW(r->arena, struct mil_var);
    struct str name;

    if (!text_read_type(r, &var->type) || !text_expect_identifier(r, &name, "a name behind the type"))
        return false;
    var->name = arena_strndup(r->arena, name.p, name.n);
    *out = var;
    return true;
}

/* A name, or a value: only a value has '(' or '<' behind its first word. */
static bool read_operand(struct text_reader *r, struct function_reading *fr, struct mil_binding **out)
{
    struct mil_binding *b = ARENA_NEW(r->arena, struct mil_binding);
    const char *at;
    char next;

    text_peek(r);
    at = r->p;
    text_identifier(r);
    next = text_peek(r);
    r->p = at;
    *out = b;
    if (next == '(' || next == '<')
        return text_read_value(r, &b->value);
    return read_variable(r, fr, &b->var, "a name or a value");
}

static bool read_argument(struct text_reader *r, struct function_reading *fr, struct mil_arg *arg)
{
    size_t mark = r->n_stack;
    struct mil_binding *b;
    struct str name;
    void **items;

    if (!text_expect_identifier(r, &name, "the name of an argument") || !text_expect(r, '=', "'='"))
        return false;
    arg->name = arena_strndup(r->arena, name.p, name.n);
    bool several = text_take(r, '(');
    do {
        if (!read_operand(r, fr, &b))
            return false;
        text_push(r, b);
    } while (several && text_take(r, ','));
    if ((several && !text_expect(r, ')', "',' or ')' behind an operand")) ||
        !text_pop(r, mark, &items, &arg->n))
        return false;
    if (arg->n == 1) {
        arg->bindings = items[0];
        return true;
    }
    arg->bindings = arena_try_alloc(r->arena, (size_t)arg->n, sizeof *arg->bindings, r->e);
    if (!arg->bindings)
        return false;
    for (int i = 0; i < arg->n; i++)
        arg->bindings[i] = *(struct mil_binding *)items[i];
    return true;
}

static bool read_arguments(struct text_reader *r, struct function_reading *fr, struct mil_op *op)
{
    size_t mark = r->n_stack;
    const char *at;
    void **items;

    text_peek(r);
    at = r->p;
    if (!text_expect(r, '(', "'(' before the arguments"))
        return false;
    if (text_take(r, ')'))
        return true;
    do {
        struct mil_arg *arg = ARENA_NEW(r->arena, struct mil_arg);
        if (!read_argument(r, fr, arg))
            return false;
        text_push(r, arg);
    } while (text_take(r, ','));
    if (!text_expect(r, ')', "',' or ')' behind an argument") || !text_pop(r, mark, &items, &op->n_args))
        return false;
    op->args = arena_try_alloc(r->arena, (size_t)op->n_args, sizeof *op->args, r->e);
    if (!op->args)
        return false;
    for (int i = 0; i < op->n_args; i++)
        op->args[i] = *(struct mil_arg *)items[i];
    return check_names_differ(r, at, op->args, op->n_args, sizeof *op->args);
}

/* ---- statements, functions, programs ---- */

/* Results come first, unless the first word is an operation already: then '(' follows it. */
static bool read_results(struct text_reader *r, struct mil_op *op)
{
    size_t mark = r->n_stack;
    struct mil_var *var;
    const char *at;
    void **items;
    char next;

    text_peek(r);
    at = r->p;
    text_identifier(r);
    next = text_peek(r);
    r->p = at;
    if (next == '(')
        return true;
    do {
        if (!read_declaration(r, &var))
            return false;
        var->op = op;
        text_push(r, var);
    } while (text_take(r, ','));
    if (!text_expect(r, '=', "',' or '=' behind a result") || !text_pop(r, mark, &items, &op->n_outputs))
        return false;
    op->outputs = (struct mil_var **)items;
    return true;
}

static bool read_statement(struct text_reader *r, struct function_reading *fr, struct mil_op **out)
{
    struct mil_op *op = ARENA_NEW(r->arena, struct mil_op);
    struct str type;
    const char *at;

    text_peek(r);
    at = r->p;
    if (!read_results(r, op) || !text_expect_identifier(r, &type, "the name of an operation"))
        return false;
    op->type = arena_strndup(r->arena, type.p, type.n);
    op->info = mil_op_info_find(op->type);
    if (!read_arguments(r, fr, op) || !read_attributes(r, &op->attributes, &op->n_attributes))
        return false;
    if (text_peek(r) == '{')
        return text_fail(r, r->p, ERR_UNSUPPORTED, "%.80s with a nested block has no known text form",
                         op->type);
    for (int i = 0; i < op->n_outputs; i++)
        if (!define_variable(r, fr, op->outputs[i], at))
            return false;
    *out = op;
    return text_expect(r, ';', "';' at the end of the operation");
}

static bool read_block(struct text_reader *r, struct function_reading *fr)
{
    struct mil_block *block = ARENA_NEW(r->arena, struct mil_block);
    size_t mark = r->n_stack;
    struct mil_var *var;
    void **items;

    fr->f->block = block;
    if (!text_expect(r, '{', "'{' before the operations"))
        return false;
    while (!text_take(r, '}')) {
        struct mil_op *op = NULL;
        if (!read_statement(r, fr, &op))
            return false;
        text_push(r, op);
    }
    if (!text_pop(r, mark, &items, &block->n_ops))
        return false;
    block->ops = (struct mil_op **)items;
    if (!text_expect(r, '-', "\"->\" behind the block") || !text_expect(r, '>', "\"->\" behind the block") ||
        !text_expect(r, '(', "'(' before the outputs"))
        return false;
    if (!text_take(r, ')')) {
        do {
            if (!read_variable(r, fr, &var, "the name of an output"))
                return false;
            text_push(r, var);
        } while (text_take(r, ','));
        if (!text_expect(r, ')', "',' or ')' behind an output"))
            return false;
    }
    if (!text_pop(r, mark, &items, &block->n_outputs))
        return false;
    block->outputs = (struct mil_var **)items;
    return text_expect(r, ';', "';' at the end of the function");
}

/* "ios18" is "CoreML8" in the object graph, as in packages; another word stays as it is. */
static const char *opset_from_text(struct arena *a, struct str s)
{
    if (s.n == 5 && memcmp(s.p, "ios", 3) == 0 && s.p[3] == '1' && s.p[4] >= '1' && s.p[4] <= '9')
        return arena_printf(a, "CoreML%c", s.p[4]);
    return arena_strndup(a, s.p, s.n);
}

static bool read_inputs(struct text_reader *r, struct function_reading *fr)
{
    size_t mark = r->n_stack;
    void **items;

    if (!text_expect(r, '(', "'(' before the inputs"))
        return false;
    if (text_take(r, ')'))
        return true;
    do {
        struct mil_var *var;
        text_peek(r);
        const char *at = r->p;
        if (!read_declaration(r, &var) || !define_variable(r, fr, var, at))
            return false;
        text_push(r, var);
    } while (text_take(r, ','));
    if (!text_expect(r, ')', "',' or ')' behind an input") || !text_pop(r, mark, &items, &fr->f->n_inputs))
        return false;
    fr->f->inputs = (struct mil_var **)items;
    return true;
}

static bool read_function_inside(struct text_reader *r, struct function_reading *fr)
{
    struct mil_function *f = fr->f;
    struct str word;
    const char *at;

    text_peek(r);
    at = r->p;
    word = text_identifier(r);
    if (!text_str_is(word, "func"))
        return text_fail(r, at, ERR_FORMAT, "expected \"func\"");
    if (!text_expect_identifier(r, &word, "the name of the function"))
        return false;
    f->name = arena_strndup(r->arena, word.p, word.n);
    if (!text_expect(r, '<', "'<' before the opset") || !text_expect_identifier(r, &word, "the opset"))
        return false;
    f->opset = opset_from_text(r->arena, word);
    return text_expect(r, '>', "'>' behind the opset") && read_inputs(r, fr) &&
           read_attributes(r, &f->attributes, &f->n_attributes) && read_block(r, fr);
}

static bool read_function(struct text_reader *r, struct mil_function **out)
{
    struct function_reading fr = {.vars = table_new(), .f = ARENA_NEW(r->arena, struct mil_function)};
    bool ok = read_function_inside(r, &fr);

    table_free(fr.vars);
    *out = fr.f;
    return ok;
}

static bool read_header(struct text_reader *r, uint64_t *minor)
{
    uint64_t major;
    struct str word;

    word = text_identifier(r);
    if (!text_str_is(word, "program"))
        return text_fail(r, r->begin, ERR_FORMAT, "expected \"program(\" at the beginning of a model.mil");
    if (!text_expect(r, '(', "'(' before the version") || !text_unsigned(r, 1000, &major, "the version"))
        return false;
    if (major != 1)
        return text_fail(r, r->p, ERR_UNSUPPORTED, "a program of version %u; versions 1.x are known",
                         (unsigned)major);
    return text_expect(r, '.', "'.' in the version") && text_unsigned(r, 1000, minor, "the version") &&
           text_expect(r, ')', "')' behind the version");
}

static bool read_program(struct text_reader *r, struct mil_model *m)
{
    struct mil_program *program = ARENA_NEW(r->arena, struct mil_program);
    size_t mark = r->n_stack;
    uint64_t minor;
    const char *at;
    void **items;
    int opset = 0;

    program->version = 1;
    program->doc = "";
    if (!read_header(r, &minor) || !read_attributes(r, &program->attributes, &program->n_attributes) ||
        !text_expect(r, '{', "'{' before the functions"))
        return false;
    text_peek(r);
    at = r->p;
    while (!text_take(r, '}')) {
        struct mil_function *f;
        if (!read_function(r, &f))
            return false;
        int n = mil_opset_number(f->opset);
        opset = n > opset ? n : opset;
        text_push(r, f);
    }
    if (!text_pop(r, mark, &items, &program->n_functions))
        return false;
    if (program->n_functions == 0)
        return text_fail(r, at, ERR_FORMAT, "a program without functions");
    program->functions = (struct mil_function **)items;
    for (int i = 0; i < program->n_functions; i++)
        text_push(r, (void *)(uintptr_t)program->functions[i]->name);
    if (!text_pop(r, mark, &items, &program->n_functions) ||
        !check_names_differ(r, at, items, program->n_functions, sizeof *items))
        return false;
    text_peek(r);
    if (r->p != r->end)
        return text_fail(r, r->p, ERR_FORMAT, "there is more text behind the end of the program");
    if (m->specification_version == 0) {
        int least = minor >= 3 ? 9 : 6, from_opset = opset - 9;
        m->specification_version = from_opset > least ? (from_opset < 10 ? from_opset : 10) : least;
    }
    m->program = program;
    return true;
}

bool mil_text_read(struct mil_model *m, const char *text, size_t bytes, const char *where, struct err *e)
{
    struct text_reader r = {
        .begin = text, .p = text, .end = text + bytes, .where = where, .arena = m->arena, .e = e};
    bool ok;

    if (bytes > TEXT_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "%s: a text of %zu bytes; at most %zu are read", where, bytes,
                       TEXT_BYTES_MAX);
    buf_init(&r.scratch, TEXT_BYTES_MAX * 8);
    ok = read_program(&r, m);
    buf_fini(&r.scratch);
    free(r.stack);
    return ok;
}
