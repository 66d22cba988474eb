/* The parser of statements, and what both halves of the parser share. Expressions are in jinja_expression.c.
 *
 * A recursive descent whose depth is bounded by JINJA_MAX_NESTING; unknown filters and tests, tags out of place and
 * break outside of a loop are found here, before anything is rendered.
 */
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

/* --- shared by both halves --- */

/* --- statements --- */

/* Parses up to a tag that begins with one of the names in `ends` ("endfor else"), whose name is then the current
 * token. ends NULL: up to the end of the template. */
static void parse_body(struct parser *p, struct node_list *out, const char *ends);

static bool is_one_of(const struct token *t, const char *names)
{
    if (t->kind != TOKEN_NAME)
        return false;
    for (const char *at = names; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        size_t n = strcspn(at, " ");
        if (n == t->text.n && memcmp(at, t->text.p, n) == 0)
            return true;
    }
    return false;
}

static void expect_block_end(struct parser *p)
{
    if (p->now.kind != TOKEN_BLOCK_END)
        parser_fail(p, &p->now, ERR_FORMAT, "expected the end of the tag, found %s",
                    parser_describe(p, &p->now));
    parser_advance(p);
}

/* The rest of the opening tag, the statements, and (with drop_end) the name of the closing tag. */
static void parse_statements(struct parser *p, struct node_list *out, const char *ends, bool drop_end)
{
    (void)parser_skip_operator(p, ":");
    expect_block_end(p);
    parse_body(p, out, ends);
    if (drop_end)
        parser_advance(p);
}

/* Bodies that have scopes of their own are checked strictly again, as Jinja's compiler does. */
static void parse_inner(struct parser *p, struct node_list *out, const char *ends, bool drop_end)
{
    int n_soft = p->n_soft;
    p->n_soft = 0;
    parse_statements(p, out, ends, drop_end);
    p->n_soft = n_soft;
}

static struct node *parse_for(struct parser *p)
{
    struct node *n = node_new(p, NODE_FOR, &p->now);
    parser_advance(p);
    p->n_for++;
    n->a = parse_target(p, "in", false);
    if (!parser_skip_name(p, "in"))
        parser_fail(p, &p->now, ERR_FORMAT, "expected 'in', found %s", parser_describe(p, &p->now));
    n->b = parse_tuple(p, false, false, "recursive");
    if (parser_skip_name(p, "if"))
        n->c = parse_expression(p, true);
    n->is_recursive = parser_skip_name(p, "recursive");
    p->n_loops++;
    parse_inner(p, &n->body, "endfor else", false);
    p->n_loops--;
    if (parser_skip_name(p, "else"))
        parse_inner(p, &n->other, "endfor", false);
    p->n_for--;
    parser_advance(p);
    return n;
}

static struct node *parse_if(struct parser *p)
{
    struct node *n = node_new(p, NODE_IF, &p->now);
    size_t capacity = 0;
    p->n_soft++;
    do {
        parser_advance(p); /* if, elif */
        n->branches = jinja_grow(p->j, n->branches, n->list.n, &capacity, sizeof *n->branches);
        struct node_list body = {0};
        struct node *test = parse_tuple(p, false, false, NULL);
        parse_statements(p, &body, "elif else endif", false);
        n->branches[n->list.n] = body;
        node_list_push(p->j, &n->list, test);
    } while (parser_is_name(&p->now, "elif"));
    if (parser_skip_name(p, "else"))
        parse_statements(p, &n->other, "endif", false);
    parser_advance(p);
    p->n_soft--;
    return n;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = node_new(p, NODE_SET, &p->now);
    parser_advance(p);
    n->a = parse_target(p, NULL, true);
    if (parser_skip_operator(p, "=")) {
        n->b = parse_tuple(p, true, false, NULL);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    n->b = parse_filters(p, NULL, false);
    parse_inner(p, &n->body, "endset", true);
    return n;
}

static void parse_signature(struct parser *p, struct macro_definition *m)
{
    size_t capacity = 0;
    parser_expect_operator(p, "(");
    while (!parser_is_operator(&p->now, ")")) {
        if (m->n_parameters > 0)
            parser_expect_operator(p, ",");
        m->parameters = jinja_grow(p->j, m->parameters, m->n_parameters, &capacity, sizeof *m->parameters);
        struct token at = p->now;
        const struct text *name = parser_expect_name(p);
        for (size_t i = 0; i < m->n_parameters; i++)
            if (m->parameters[i] == name)
                parser_fail(p, &at, ERR_FORMAT, "a parameter given twice");
        if (text_is(name, "caller"))
            m->has_caller_parameter = true;
        m->parameters[m->n_parameters++] = name;
        if (parser_skip_operator(p, "="))
            node_list_push(p->j, &m->defaults, parse_expression(p, true));
        else if (m->defaults.n > 0)
            parser_fail(p, &at, ERR_FORMAT, "a parameter without default behind one with a default");
    }
    parser_advance(p);
}

static void parse_macro_body(struct parser *p, struct macro_definition *m, const char *end)
{
    if (p->n_macros == JINJA_MAX_NESTING)
        parser_fail(p, &p->now, ERR_LIMIT, "macros nested more than %d deep", JINJA_MAX_NESTING);
    int n_loops = p->n_loops;
    p->n_loops = 0;
    p->macros[p->n_macros++] = m;
    parse_inner(p, &m->body, end, true);
    p->n_macros--;
    p->n_loops = n_loops;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = node_new(p, NODE_MACRO, &p->now);
    parser_advance(p);
    n->macro = JINJA_NEW(p->j, struct macro_definition);
    n->name = n->macro->name = parser_expect_name(p);
    parse_signature(p, n->macro);
    parse_macro_body(p, n->macro, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = node_new(p, NODE_CALL_BLOCK, &p->now);
    parser_advance(p);
    n->macro = JINJA_NEW(p->j, struct macro_definition);
    n->macro->name = parser_intern(p, (struct str){"caller", 6});
    if (parser_is_operator(&p->now, "("))
        parse_signature(p, n->macro);
    struct token at = p->now;
    n->a = parse_expression(p, true);
    if (n->a->kind != NODE_CALL)
        parser_fail(p, &at, ERR_FORMAT, "expected a call of a macro");
    parse_macro_body(p, n->macro, "endcall");
    return n;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = node_new(p, NODE_FILTER_BLOCK, &p->now);
    parser_advance(p);
    n->a = parse_filters(p, NULL, true);
    parse_inner(p, &n->body, "endfilter", true);
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = node_new(p, NODE_WITH, &p->now);
    parser_advance(p);
    while (p->now.kind != TOKEN_BLOCK_END && !parser_is_operator(&p->now, ":")) {
        if (n->list.n > 0)
            parser_expect_operator(p, ",");
        node_list_push(p->j, &n->list, parse_target(p, NULL, false));
        parser_expect_operator(p, "=");
        node_list_push(p->j, &n->list, parse_expression(p, true));
    }
    parse_inner(p, &n->body, "endwith", true);
    return n;
}

/* A block is rendered where it stands: nothing can extend a template. */
static struct node *parse_block(struct parser *p)
{
    struct node *n = node_new(p, NODE_SCOPE, &p->now);
    parser_advance(p);
    n->name = parser_expect_name(p);
    (void)parser_skip_name(p, "scoped");
    (void)parser_skip_name(p, "required");
    int n_loops = p->n_loops;
    p->n_loops = 0;
    parse_inner(p, &n->body, "endblock", true);
    p->n_loops = n_loops;
    if (p->now.kind == TOKEN_NAME && parser_intern(p, p->now.text) == n->name)
        parser_advance(p);
    return n;
}

/* Marks what the assistant said, for training; renders as what is in it. */
static struct node *parse_generation(struct parser *p)
{
    struct node *n = node_new(p, NODE_SCOPE, &p->now);
    parser_advance(p);
    int n_loops = p->n_loops;
    p->n_loops = 0;
    parse_inner(p, &n->body, "endgeneration", true);
    p->n_loops = n_loops;
    return n;
}

static struct node *parse_print(struct parser *p)
{
    struct node *n = node_new(p, NODE_OUTPUT, &p->now);
    parser_advance(p);
    while (p->now.kind != TOKEN_BLOCK_END) {
        if (n->list.n > 0)
            parser_expect_operator(p, ",");
        node_list_push(p->j, &n->list, parse_expression(p, true));
    }
    return n;
}

static struct node *parse_loop_control(struct parser *p)
{
    bool is_break = parser_is_name(&p->now, "break");
    struct node *n = node_new(p, is_break ? NODE_BREAK : NODE_CONTINUE, &p->now);
    if (p->n_loops == 0)
        parser_fail(p, &p->now, ERR_FORMAT, "'%s' outside of a loop", is_break ? "break" : "continue");
    parser_advance(p);
    return n;
}

/* The current token is the first one of a tag. */
static struct node *parse_statement(struct parser *p, const char *ends)
{
    static const struct {
        const char *name;
        struct node *(*parse)(struct parser *);
    } statements[] = {
        {"for", parse_for},
        {"if", parse_if},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"block", parse_block},
        {"print", parse_print},
        {"generation", parse_generation},
        {"break", parse_loop_control},
        {"continue", parse_loop_control},
    };
    if (p->now.kind != TOKEN_NAME)
        parser_fail(p, &p->now, ERR_FORMAT, "expected the name of a tag, found %s",
                    parser_describe(p, &p->now));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (parser_is_name(&p->now, statements[i].name))
            return statements[i].parse(p);
    if (is_one_of(&p->now, "extends include import from autoescape"))
        parser_fail(p, &p->now, ERR_UNSUPPORTED, "the tag %s is not supported: a chat template stands alone",
                    parser_describe(p, &p->now));
    if (ends)
        parser_fail(p, &p->now, ERR_FORMAT, "unknown tag %s; expected one of: %s",
                    parser_describe(p, &p->now), ends);
    parser_fail(p, &p->now, ERR_FORMAT, "unknown tag %s", parser_describe(p, &p->now));
}

static _Noreturn void fail_unknown(struct parser *p)
{
    const struct node *n = p->unknown;
    struct token at = {.line = n->line, .column = n->column};
    parser_fail(p, &at, ERR_FORMAT, "No %s named '%.*s'.", n->kind == NODE_FILTER ? "filter" : "test",
                (int)(n->name->n < 100 ? n->name->n : 100), n->name->p);
}

static void parse_body(struct parser *p, struct node_list *out, const char *ends)
{
    struct token opened = p->now;
    parser_enter(p);
    while (p->now.kind != TOKEN_END) {
        struct node *n;
        if (p->now.kind == TOKEN_DATA) {
            n = node_new(p, NODE_TEXT, &p->now);
            n->constant = text_wrap(p->j, p->now.text.p, p->now.text.n, false);
            parser_advance(p);
        } else if (p->now.kind == TOKEN_VARIABLE_BEGIN) {
            n = node_new(p, NODE_OUTPUT, &p->now);
            parser_advance(p);
            node_list_push(p->j, &n->list, parse_tuple(p, true, false, NULL));
            if (p->now.kind != TOKEN_VARIABLE_END)
                parser_fail(p, &p->now, ERR_FORMAT, "expected the end of the print tag, found %s",
                            parser_describe(p, &p->now));
            parser_advance(p);
        } else {
            parser_advance(p); /* {% */
            if (ends && is_one_of(&p->now, ends)) {
                parser_leave(p);
                return;
            }
            n = parse_statement(p, ends);
            expect_block_end(p);
        }
        if (p->unknown)
            fail_unknown(p);
        node_list_push(p->j, out, n);
    }
    if (ends)
        parser_fail(p, &opened, ERR_FORMAT, "the block that begins here has no end; expected one of: %s",
                    ends);
    parser_leave(p);
}

bool jinja_parse(struct jinja_template **out, const char *text, size_t bytes, const char *where,
                 struct err *e)
{
    *out = NULL;
    if (bytes > JINJA_MAX_TEMPLATE_BYTES)
        return err_set(e, ERR_LIMIT, "%s: a template of %zu bytes, at most %zu are read", where, bytes,
                       JINJA_MAX_TEMPLATE_BYTES);
    size_t valid = utf8_valid_prefix(text, bytes);
    if (valid < bytes)
        return err_set(e, ERR_FORMAT, "%s: byte %zu is not UTF-8", where, valid);
    struct jinja_template *t = xcalloc(1, sizeof *t);
    t->arena = arena_new(JINJA_MAX_ARENA_BYTES);
    t->names = table_new();
    t->where = xstrdup(where);
    struct jinja *j = xcalloc(1, sizeof *j);
    struct parser *p = xcalloc(1, sizeof *p);
    j->e = e;
    j->where = t->where;
    j->arena = t->arena;
    j->scratch = arena_new(JINJA_MAX_ARENA_BYTES);
    j->steps_left = INT64_MAX;
    j->max_output_bytes = j->max_builder_bytes = JINJA_MAX_OUTPUT_BYTES;
    p->j = j;
    p->t = t;
    bool ok = setjmp(j->leave) == 0;
    if (ok) {
        lexer_init(&p->lexer, j, text, bytes);
        lexer_next(&p->lexer, &p->next);
        parser_advance(p);
        parse_body(p, &t->body, NULL);
        find_hidden_names(j, t);
    } else {
        jinja_free(t);
        t = NULL;
    }
    jinja_free_builders(j);
    arena_free(j->scratch);
    free(p);
    free(j);
    *out = t;
    return ok;
}

void jinja_free(struct jinja_template *t)
{
    if (!t)
        return;
    table_free(t->names);
    arena_free(t->arena);
    free(t->where);
    free(t);
}
