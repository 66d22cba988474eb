/* The parser of expressions: one function for each level of precedence, loosest first, as in Jinja's grammar. */
#include <stdlib.h>

#include "jinja/jinja_internal.h"

static struct node *parse_unary(struct parser *p, bool with_filters);

static struct node *binary_node(struct parser *p, enum node_kind kind, struct node *a, struct node *b,
                                const struct token *at)
{
    struct node *n = node_new(p, kind, at);
    n->a = a;
    n->b = b;
    node_depth(p, n, a);
    node_depth(p, n, b);
    return n;
}

static struct node *unary_node(struct parser *p, enum node_kind kind, struct node *a, const struct token *at)
{
    return binary_node(p, kind, a, NULL, at);
}

/* --- literals --- */

/* A list's members, or a dict's keys and values, up to what closes it. */
static struct node *parse_members(struct parser *p, bool is_dict)
{
    const char *close = is_dict ? "}" : "]";
    struct node *n = node_new(p, is_dict ? NODE_DICT : NODE_LIST, &p->now);
    parser_advance(p);
    while (!parser_is_operator(&p->now, close)) {
        if (n->list.n > 0)
            parser_expect_operator(p, ",");
        if (parser_is_operator(&p->now, close))
            break;
        node_list_push(p->j, &n->list, parse_expression(p, true));
        if (!is_dict)
            continue;
        parser_expect_operator(p, ":");
        node_list_push(p->j, &n->list, parse_expression(p, true));
    }
    parser_advance(p);
    return n;
}

static struct node *parse_strings(struct parser *p)
{
    struct node *n = node_new(p, NODE_CONSTANT, &p->now);
    n->constant = p->now.constant;
    parser_advance(p);
    if (p->now.kind != TOKEN_STRING)
        return n;
    struct builder *b = builder_begin(p->j);
    builder_put_text(p->j, b, n->constant.text);
    while (p->now.kind == TOKEN_STRING) {
        builder_put_text(p->j, b, p->now.constant.text);
        parser_advance(p);
    }
    n->constant = builder_finish(p->j, b);
    return n;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        struct value value;
    } constants[] = {
        {"true", {.type = VALUE_BOOL, .boolean = true}},
        {"True", {.type = VALUE_BOOL, .boolean = true}},
        {"false", {.type = VALUE_BOOL, .boolean = false}},
        {"False", {.type = VALUE_BOOL, .boolean = false}},
        {"none", {.type = VALUE_NONE}},
        {"None", {.type = VALUE_NONE}},
    };
    struct node *n = node_new(p, NODE_NAME, &p->now);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!parser_is_name(&p->now, constants[i].name))
            continue;
        n->kind = NODE_CONSTANT;
        n->constant = constants[i].value;
        parser_advance(p);
        return n;
    }
    for (int i = 0; i < p->n_macros; i++) {
        p->macros[i]->uses_varargs |= parser_is_name(&p->now, "varargs");
        p->macros[i]->uses_kwargs |= parser_is_name(&p->now, "kwargs");
        p->macros[i]->uses_caller |= parser_is_name(&p->now, "caller");
    }
    n->name = parser_expect_name(p);
    return n;
}

static struct node *parse_primary(struct parser *p)
{
    struct node *n;
    if (p->now.kind == TOKEN_NAME) {
        n = parse_name(p);
    } else if (p->now.kind == TOKEN_STRING) {
        n = parse_strings(p);
    } else if (p->now.kind == TOKEN_INT || p->now.kind == TOKEN_DOUBLE) {
        n = node_new(p, NODE_CONSTANT, &p->now);
        n->constant = p->now.constant;
        parser_advance(p);
    } else if (parser_skip_operator(p, "(")) {
        n = parse_tuple(p, true, true, NULL);
        parser_expect_operator(p, ")");
    } else if (parser_is_operator(&p->now, "[")) {
        n = parse_members(p, false);
    } else if (parser_is_operator(&p->now, "{")) {
        n = parse_members(p, true);
    } else {
        parser_fail(p, &p->now, ERR_FORMAT, "expected an expression, found %s", parser_describe(p, &p->now));
    }
    return n;
}

/* --- subscripts, calls, filters, tests --- */

static struct node *parse_subscribed(struct parser *p)
{
    struct token at = p->now;
    struct node *parts[3] = {NULL, NULL, NULL};
    if (!parser_is_operator(&p->now, ":")) {
        parts[0] = parse_expression(p, true);
        if (!parser_is_operator(&p->now, ":"))
            return parts[0];
    }
    for (int i = 1; i < 3 && parser_skip_operator(p, ":"); i++)
        if (!parser_is_operator(&p->now, ":") && !parser_is_operator(&p->now, "]") &&
            !parser_is_operator(&p->now, ","))
            parts[i] = parse_expression(p, true);
    struct node *n = binary_node(p, NODE_SLICE, parts[0], parts[1], &at);
    n->c = parts[2];
    node_depth(p, n, n->c);
    return n;
}

static struct node *parse_subscript(struct parser *p, struct node *a)
{
    struct token at = p->now;
    if (parser_skip_operator(p, ".")) {
        if (p->now.kind == TOKEN_INT) {
            struct node *key = node_new(p, NODE_CONSTANT, &p->now);
            key->constant = p->now.constant;
            parser_advance(p);
            return binary_node(p, NODE_ITEM, a, key, &at);
        }
        struct node *n = unary_node(p, NODE_ATTRIBUTE, a, &p->now);
        n->name = parser_expect_name(p);
        return n;
    }
    parser_advance(p); /* [ */
    if (parser_is_operator(&p->now, "]"))
        parser_fail(p, &p->now, ERR_FORMAT, "expected a subscript, found ']'");
    struct node *key = parse_subscribed(p);
    if (parser_is_operator(&p->now, ",")) {
        struct node *tuple = node_new(p, NODE_TUPLE, &at);
        node_list_push(p->j, &tuple->list, key);
        while (parser_skip_operator(p, ",") && !parser_is_operator(&p->now, "]"))
            node_list_push(p->j, &tuple->list, parse_subscribed(p));
        key = tuple;
    }
    parser_expect_operator(p, "]");
    return binary_node(p, NODE_ITEM, a, key, &at);
}

static void parse_argument(struct parser *p, struct argument_nodes *a, size_t *capacity,
                           const struct token *at)
{
    if (parser_is_operator(&p->now, "*") && !a->more_positional && !a->more_named) {
        parser_advance(p);
        a->more_positional = parse_expression(p, true);
    } else if (parser_is_operator(&p->now, "**") && !a->more_named) {
        parser_advance(p);
        a->more_named = parse_expression(p, true);
    } else if (p->now.kind == TOKEN_NAME && parser_is_operator(&p->next, "=") && !a->more_named) {
        a->names = jinja_grow(p->j, a->names, a->named.n, capacity, sizeof *a->names);
        const struct text *name = parser_expect_name(p);
        for (size_t i = 0; i < a->named.n; i++)
            if (a->names[i] == name)
                parser_fail(p, at, ERR_FORMAT, "keyword argument repeated: %.*s", (int)name->n, name->p);
        parser_advance(p); /* = */
        a->names[a->named.n] = name;
        node_list_push(p->j, &a->named, parse_expression(p, true));
    } else if (!a->more_positional && !a->more_named && a->named.n == 0) {
        node_list_push(p->j, &a->positional, parse_expression(p, true));
    } else {
        parser_fail(p, &p->now, ERR_FORMAT, "a positional argument behind named ones");
    }
}

static struct argument_nodes *parse_arguments(struct parser *p)
{
    struct argument_nodes *a = JINJA_NEW(p->j, struct argument_nodes);
    struct token at = p->now;
    size_t capacity = 0;
    bool is_first = true;
    parser_expect_operator(p, "(");
    while (!parser_is_operator(&p->now, ")")) {
        if (!is_first) {
            parser_expect_operator(p, ",");
            if (parser_is_operator(&p->now, ")"))
                break;
        }
        is_first = false;
        parse_argument(p, a, &capacity, &at);
    }
    parser_advance(p);
    return a;
}

static struct node *parse_call(struct parser *p, struct node *a)
{
    struct node *n = unary_node(p, NODE_CALL, a, &p->now);
    n->arguments = parse_arguments(p);
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    for (;;) {
        if (parser_is_operator(&p->now, ".") || parser_is_operator(&p->now, "["))
            n = parse_subscript(p, n);
        else if (parser_is_operator(&p->now, "("))
            n = parse_call(p, n);
        else
            return n;
    }
}

/* A filter or test may be called "a.b". */
static struct str parse_dotted_name(struct parser *p)
{
    const struct text *name = parser_expect_name(p);
    struct str s = {name->p, name->n};
    while (parser_skip_operator(p, ".")) {
        const struct text *more = parser_expect_name(p);
        char *whole = jinja_alloc(p->j, s.n + more->n + 2, 1);
        memcpy(whole, s.p, s.n);
        whole[s.n] = '.';
        memcpy(whole + s.n + 1, more->p, more->n);
        s = (struct str){whole, s.n + 1 + more->n};
    }
    return s;
}

struct node *parse_filters(struct parser *p, struct node *n, bool starts_inline)
{
    while (starts_inline || parser_is_operator(&p->now, "|")) {
        if (!starts_inline)
            parser_advance(p);
        starts_inline = false;
        struct token at = p->now;
        struct node *filter = unary_node(p, NODE_FILTER, n, &at);
        struct str name = parse_dotted_name(p);
        filter->name = parser_intern(p, name);
        filter->builtin = find_filter(name);
        if (!filter->builtin && p->n_soft == 0 && !p->unknown)
            p->unknown = filter;
        if (parser_is_operator(&p->now, "("))
            filter->arguments = parse_arguments(p);
        n = filter;
    }
    return n;
}

static struct node *parse_test(struct parser *p, struct node *a)
{
    parser_advance(p); /* is */
    bool is_negated = parser_skip_name(p, "not");
    struct token at = p->now;
    struct node *n = unary_node(p, NODE_TEST, a, &at);
    struct str name = parse_dotted_name(p);
    n->name = parser_intern(p, name);
    n->builtin = find_test(name);
    if (!n->builtin && p->n_soft == 0 && !p->unknown)
        p->unknown = n;
    const struct token *t = &p->now;
    bool starts_argument = t->kind == TOKEN_NAME || t->kind == TOKEN_STRING || t->kind == TOKEN_INT ||
                           t->kind == TOKEN_DOUBLE || parser_is_operator(t, "[") ||
                           parser_is_operator(t, "{");
    if (parser_is_operator(t, "(")) {
        n->arguments = parse_arguments(p);
    } else if (starts_argument && !parser_is_name(t, "else") && !parser_is_name(t, "or") &&
               !parser_is_name(t, "and")) {
        if (parser_is_name(t, "is"))
            parser_fail(p, t, ERR_FORMAT, "tests can't be chained with 'is'");
        n->arguments = JINJA_NEW(p->j, struct argument_nodes);
        struct node *argument = parse_postfix(p, parse_primary(p));
        node_list_push(p->j, &n->arguments->positional, argument);
        node_depth(p, n, argument);
    }
    return is_negated ? unary_node(p, NODE_NOT, n, &at) : n;
}

/* --- operators --- */

static struct node *parse_unary(struct parser *p, bool with_filters)
{
    struct token at = p->now;
    struct node *n;
    if (parser_is_operator(&p->now, "-") || parser_is_operator(&p->now, "+")) {
        parser_enter(p);
        parser_advance(p);
        n = unary_node(p, at.text.p[0] == '-' ? NODE_NEGATE : NODE_PLUS, parse_unary(p, false), &at);
        parser_leave(p);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    while (with_filters) {
        if (parser_is_operator(&p->now, "|"))
            n = parse_filters(p, n, false);
        else if (parser_is_name(&p->now, "is"))
            n = parse_test(p, n);
        else if (parser_is_operator(&p->now, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

struct operator_name {
    const char *text;
    enum operator op;
};

/* Operands and operators of one level, from the left. */
static struct node *parse_level(struct parser *p, struct node *(*operand)(struct parser *),
                                const struct operator_name *operators)
{
    struct node *a = operand(p);
    for (;;) {
        const struct operator_name *o = operators;
        while (o->text && !parser_is_operator(&p->now, o->text))
            o++;
        if (!o->text)
            return a;
        struct token at = p->now;
        parser_advance(p);
        a = binary_node(p, NODE_BINARY, a, operand(p), &at);
        a->op = o->op;
    }
}

static struct node *parse_operand(struct parser *p)
{
    return parse_unary(p, true);
}

static struct node *parse_power(struct parser *p)
{
    static const struct operator_name operators[] = {{"**", OPERATOR_POWER}, {NULL, 0}};
    return parse_level(p, parse_operand, operators);
}

static struct node *parse_product(struct parser *p)
{
    static const struct operator_name operators[] = {{"*", OPERATOR_MULTIPLY},
                                                     {"/", OPERATOR_DIVIDE},
                                                     {"//", OPERATOR_FLOOR_DIVIDE},
                                                     {"%", OPERATOR_MODULO},
                                                     {NULL, 0}};
    return parse_level(p, parse_power, operators);
}

static struct node *parse_concat(struct parser *p)
{
    struct token at = p->now;
    struct node *a = parse_product(p);
    if (!parser_is_operator(&p->now, "~"))
        return a;
    struct node *n = node_new(p, NODE_CONCAT, &at);
    node_list_push(p->j, &n->list, a);
    node_depth(p, n, a);
    while (parser_skip_operator(p, "~")) {
        struct node *b = parse_product(p);
        node_list_push(p->j, &n->list, b);
        node_depth(p, n, b);
    }
    return n;
}

static struct node *parse_sum(struct parser *p)
{
    static const struct operator_name operators[] = {
        {"+", OPERATOR_ADD}, {"-", OPERATOR_SUBTRACT}, {NULL, 0}};
    return parse_level(p, parse_concat, operators);
}

static bool compare_operator(struct parser *p, enum operator* op)
{
    static const struct operator_name operators[] = {
        {"==", OPERATOR_EQUAL},         {"!=", OPERATOR_NOT_EQUAL}, {">", OPERATOR_GREATER},
        {">=", OPERATOR_GREATER_EQUAL}, {"<", OPERATOR_LESS},       {"<=", OPERATOR_LESS_EQUAL},
    };
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (parser_skip_operator(p, operators[i].text)) {
            *op = operators[i].op;
            return true;
        }
    }
    if (parser_skip_name(p, "in")) {
        *op = OPERATOR_IN;
        return true;
    }
    if (parser_is_name(&p->now, "not") && parser_is_name(&p->next, "in")) {
        parser_advance(p);
        parser_advance(p);
        *op = OPERATOR_NOT_IN;
        return true;
    }
    return false;
}

static struct node *parse_compare(struct parser *p)
{
    struct token at = p->now;
    struct node *a = parse_sum(p);
    enum operator op;
    if (!compare_operator(p, &op))
        return a;
    struct node *n = unary_node(p, NODE_COMPARE, a, &at);
    enum operator* operators = NULL;
    size_t capacity = 0;
    do {
        n->operators = operators = jinja_grow(p->j, operators, n->list.n, &capacity, sizeof *operators);
        operators[n->list.n] = op;
        struct node *b = parse_sum(p);
        node_list_push(p->j, &n->list, b);
        node_depth(p, n, b);
    } while (compare_operator(p, &op));
    return n;
}

static struct node *parse_not(struct parser *p)
{
    struct token at = p->now;
    if (!parser_is_name(&p->now, "not"))
        return parse_compare(p);
    parser_advance(p);
    parser_enter(p);
    struct node *n = unary_node(p, NODE_NOT, parse_not(p), &at);
    parser_leave(p);
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct token at = p->now;
    struct node *a = parse_not(p);
    while (parser_skip_name(p, "and"))
        a = binary_node(p, NODE_AND, a, parse_not(p), &at);
    return a;
}

static struct node *parse_or(struct parser *p)
{
    struct token at = p->now;
    struct node *a = parse_and(p);
    while (parser_skip_name(p, "or"))
        a = binary_node(p, NODE_OR, a, parse_and(p), &at);
    return a;
}

static struct node *parse_condition(struct parser *p)
{
    struct token at = p->now;
    const struct node *unknown = p->unknown;
    struct node *a = parse_or(p);
    while (parser_skip_name(p, "if")) {
        p->unknown = unknown; /* what comes before the "if" is inside of it too */
        p->n_soft++;
        struct node *test = parse_or(p);
        struct node *n = binary_node(p, NODE_CONDITION, a, test, &at);
        if (parser_skip_name(p, "else"))
            n->c = parse_condition(p);
        node_depth(p, n, n->c);
        p->n_soft--;
        a = n;
    }
    return a;
}

struct node *parse_expression(struct parser *p, bool with_condition)
{
    parser_enter(p);
    struct node *n = with_condition ? parse_condition(p) : parse_or(p);
    parser_leave(p);
    return n;
}

static bool is_tuple_end(const struct parser *p, const char *end_name)
{
    return p->now.kind == TOKEN_VARIABLE_END || p->now.kind == TOKEN_BLOCK_END ||
           parser_is_operator(&p->now, ")") || (end_name && parser_is_name(&p->now, end_name));
}

struct node *parse_tuple(struct parser *p, bool with_condition, bool is_in_parentheses, const char *end_name)
{
    struct node *n = node_new(p, NODE_TUPLE, &p->now);
    bool is_tuple = false;
    while (!is_tuple_end(p, end_name)) {
        struct node *item = parse_expression(p, with_condition);
        node_list_push(p->j, &n->list, item);
        node_depth(p, n, item);
        if (!parser_skip_operator(p, ","))
            break;
        is_tuple = true;
    }
    if (is_tuple || (n->list.n == 0 && is_in_parentheses))
        return n;
    if (n->list.n == 0)
        parser_fail(p, &p->now, ERR_FORMAT, "expected an expression, found %s", parser_describe(p, &p->now));
    return n->list.p[0];
}

/* --- what can be assigned to --- */

static struct node *parse_one_target(struct parser *p, bool with_namespace)
{
    struct token at = p->now;
    struct node *n;
    if (p->now.kind == TOKEN_NAME && with_namespace && parser_is_operator(&p->next, ".")) {
        n = node_new(p, NODE_NAMESPACE_TARGET, &at);
        n->a = parse_name(p);
        parser_advance(p);
        n->name = parser_expect_name(p);
        if (n->a->kind == NODE_NAME)
            return n;
    } else if (parser_skip_operator(p, "(")) {
        parser_enter(p);
        n = parse_target(p, NULL, false);
        parser_leave(p);
        parser_expect_operator(p, ")");
        return n;
    } else {
        n = parse_primary(p);
        if (n->kind == NODE_NAME && p->n_for > 0 && text_is(n->name, "loop"))
            parser_fail(p, &at, ERR_FORMAT, "Can't assign to special loop variable in for-loop target");
        if (n->kind == NODE_NAME)
            return n;
    }
    parser_fail(p, &at, ERR_FORMAT, "this can't be assigned to");
}

struct node *parse_target(struct parser *p, const char *end_name, bool with_namespace)
{
    struct node *n = node_new(p, NODE_TUPLE, &p->now);
    bool is_tuple = false;
    do {
        if (is_tuple && (is_tuple_end(p, end_name) || parser_is_operator(&p->now, "=")))
            break;
        node_list_push(p->j, &n->list, parse_one_target(p, with_namespace));
        is_tuple |= parser_is_operator(&p->now, ",");
    } while (parser_skip_operator(p, ","));
    return is_tuple ? n : n->list.p[0];
}
