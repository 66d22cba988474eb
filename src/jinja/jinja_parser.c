/* What both parsers stand on, of statements and of expressions: the current token, names, depth, nodes. */
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

void parser_fail(struct parser *p, const struct token *at, enum err_code code, const char *fmt, ...)
{
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    p->j->line = at->line;
    p->j->column = at->column;
    jinja_fail(p->j, code, "%s", message);
}

void parser_advance(struct parser *p)
{
    p->now = p->next;
    if (p->now.kind != TOKEN_END)
        lexer_next(&p->lexer, &p->next);
}

bool parser_is_name(const struct token *t, const char *name)
{
    return t->kind == TOKEN_NAME && t->text.n == strlen(name) && memcmp(t->text.p, name, t->text.n) == 0;
}

bool parser_is_operator(const struct token *t, const char *op)
{
    return t->kind == TOKEN_OPERATOR && t->text.n == strlen(op) && memcmp(t->text.p, op, t->text.n) == 0;
}

bool parser_skip_name(struct parser *p, const char *name)
{
    if (!parser_is_name(&p->now, name))
        return false;
    parser_advance(p);
    return true;
}

bool parser_skip_operator(struct parser *p, const char *op)
{
    if (!parser_is_operator(&p->now, op))
        return false;
    parser_advance(p);
    return true;
}

const char *parser_describe(struct parser *p, const struct token *t)
{
    switch (t->kind) {
    case TOKEN_END:
        return "the end of the template";
    case TOKEN_BLOCK_END:
        return "the end of the tag";
    case TOKEN_VARIABLE_END:
        return "the end of the print tag";
    case TOKEN_STRING:
        return "a string";
    case TOKEN_INT:
    case TOKEN_DOUBLE:
        return "a number";
    case TOKEN_NAME:
    case TOKEN_OPERATOR: {
        int n = (int)(t->text.n < 100 ? t->text.n : 100);
        return arena_printf(p->j->arena, "'%.*s'", n, t->text.p);
    }
    default:
        return "text";
    }
}

void parser_expect_operator(struct parser *p, const char *op)
{
    if (!parser_skip_operator(p, op))
        parser_fail(p, &p->now, ERR_FORMAT, "expected '%s', found %s", op, parser_describe(p, &p->now));
}

const struct text *parser_intern(struct parser *p, struct str name)
{
    struct jinja *j = p->j;
    if (memchr(name.p, 0, name.n))
        parser_fail(p, &p->now, ERR_FORMAT, "a name with a NUL byte");
    char *key = jinja_alloc(j, name.n + 1, 1);
    memcpy(key, name.p, name.n);
    struct text *t = table_get(p->t->names, key);
    if (!t) {
        t = (struct text *)(uintptr_t)text_wrap(j, key, name.n, false).text;
        (void)table_put(p->t->names, key, t);
    }
    return t;
}

const struct text *parser_expect_name(struct parser *p)
{
    if (p->now.kind != TOKEN_NAME)
        parser_fail(p, &p->now, ERR_FORMAT, "expected a name, found %s", parser_describe(p, &p->now));
    const struct text *name = parser_intern(p, p->now.text);
    parser_advance(p);
    return name;
}

void parser_enter(struct parser *p)
{
    if (++p->depth > JINJA_MAX_NESTING)
        parser_fail(p, &p->now, ERR_LIMIT, "nested more than %d deep", JINJA_MAX_NESTING);
}

void parser_leave(struct parser *p)
{
    p->depth--;
}

struct node *node_new(struct parser *p, enum node_kind kind, const struct token *at)
{
    struct node *n = JINJA_NEW(p->j, struct node);
    n->kind = kind;
    n->line = at->line;
    n->column = at->column;
    n->depth = 1;
    return n;
}

void node_depth(struct parser *p, struct node *n, const struct node *child)
{
    if (!child || child->depth < n->depth)
        return;
    n->depth = child->depth + 1;
    if (n->depth > JINJA_MAX_CHAIN) {
        p->j->line = n->line;
        p->j->column = n->column;
        jinja_fail(p->j, ERR_LIMIT, "an expression of more than %d operators in a row", JINJA_MAX_CHAIN);
    }
}

void node_list_push(struct jinja *j, struct node_list *l, struct node *n)
{
    l->p = jinja_grow(j, l->p, l->n, &l->capacity, sizeof *l->p);
    l->p[l->n++] = n;
}
