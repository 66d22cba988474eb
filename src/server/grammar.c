/* GBNF to a graph, and what makes a grammar one that ends. */
#include "server/grammar.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "server/grammar_internal.h"

#define NODES_MAX 2000000
#define DEPTH_MAX 200
#define COUNT_MAX 2147483647
/* How often something that may be empty may be repeated, if there is a limit at all: each time is a place of its own. */
#define EMPTY_REPEATS_MAX 64

struct reader {
    struct grammar *g;
    struct table *names; /* of rules: 1 + their number */
    const char *text;
    size_t n, at;
    struct err *e;
    int depth;
};

static bool fail(struct reader *r, const char *what)
{
    size_t line = 1;
    for (size_t i = 0; i < r->at && i < r->n; i++)
        line += r->text[i] == '\n';
    return err_set(r->e, ERR_FORMAT, "grammar, line %zu: %s", line, what);
}

/* ---- the parts of the graph ---- */

static int add_node(struct grammar *g, struct grammar_node node)
{
    g->nodes = mem_grow(g->nodes, (size_t)g->n_nodes, &g->nodes_capacity, sizeof *g->nodes);
    g->nodes[g->n_nodes] = node;
    return g->n_nodes++;
}

static void add_range(struct grammar *g, uint32_t low, uint32_t high)
{
    g->ranges = mem_grow(g->ranges, (size_t)g->n_ranges, &g->ranges_capacity, sizeof *g->ranges);
    g->ranges[g->n_ranges++] = (struct grammar_range){low, high};
}

static int find_rule(struct reader *r, const char *text, size_t n)
{
    struct grammar *g = r->g;
    char *name = strndup(text, n);
    size_t known = (size_t)(uintptr_t)table_get(r->names, name);
    if (known) {
        free(name);
        return (int)known - 1;
    }
    g->rules = mem_grow(g->rules, (size_t)g->n_rules, &g->rules_capacity, sizeof *g->rules);
    g->rules[g->n_rules] = (struct grammar_rule){.name = name, .first = -2};
    (void)table_put(r->names, name, (void *)(uintptr_t)(g->n_rules + 1));
    return g->n_rules++;
}

/* ---- reading ---- */

static void skip(struct reader *r, bool newlines)
{
    while (r->at < r->n) {
        char c = r->text[r->at];
        if (c == '#')
            while (r->at < r->n && r->text[r->at] != '\n')
                r->at++;
        else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r')))
            r->at++;
        else
            break;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static size_t name_bytes(const struct reader *r)
{
    size_t n = 0;
    while (r->at + n < r->n && is_name(r->text[r->at + n]))
        n++;
    return n;
}

static bool read_hex(struct reader *r, int n_digits, uint32_t *cp)
{
    *cp = 0;
    for (int i = 0; i < n_digits; i++) {
        char c = r->at < r->n ? r->text[r->at] : '\0';
        int digit = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (digit < 0)
            return fail(r, "expected hexadecimal digits");
        *cp = *cp * 16 + (uint32_t)digit;
        r->at++;
    }
    return *cp <= 0x10ffff || fail(r, "not a character");
}

/* A character or an escape, of a literal or a class. */
static bool read_character(struct reader *r, uint32_t *cp)
{
    static const char letters[] = "nrt\"\\[]-", values[] = "\n\r\t\"\\[]-";
    if (r->text[r->at] != '\\') {
        if (utf8_step(r->text + r->at, r->n - r->at, cp) <= 0)
            return fail(r, "not UTF-8");
        r->at += utf8_next(r->text + r->at, cp);
        return true;
    }
    char c = r->at + 1 < r->n ? r->text[r->at + 1] : '\0';
    r->at += 2;
    if (c == 'x' || c == 'u' || c == 'U')
        return read_hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, cp);
    const char *found = c ? strchr(letters, c) : NULL;
    if (!found)
        return fail(r, "unknown escape");
    *cp = (unsigned char)values[found - letters];
    return true;
}

static bool read_choices(struct reader *r, bool in_group, int *first);

static bool read_literal(struct reader *r, int *begin, int *end)
{
    uint32_t cp;
    *begin = *end = -1;
    for (r->at++; r->at < r->n && r->text[r->at] != '"';) {
        if (r->text[r->at] == '\n' || !read_character(r, &cp))
            return r->e->code ? false : fail(r, "a literal without end");
        struct grammar_node node = {.kind = NODE_CHARACTERS, .next = -1, .first = r->g->n_ranges, .n = 1};
        add_range(r->g, cp, cp);
        int i = add_node(r->g, node);
        if (*begin < 0)
            *begin = i;
        else
            r->g->nodes[*end].next = i;
        *end = i;
    }
    if (r->at >= r->n)
        return fail(r, "a literal without end");
    r->at++;
    return true;
}

static bool read_class(struct reader *r, int *begin, int *end)
{
    struct grammar_node node = {.kind = NODE_CHARACTERS, .next = -1, .first = r->g->n_ranges};
    uint32_t low, high;
    r->at++;
    if (r->at < r->n && r->text[r->at] == '^') {
        node.is_negated = true;
        r->at++;
    }
    while (r->at < r->n && r->text[r->at] != ']') {
        if (r->text[r->at] == '\n' || !read_character(r, &low))
            return r->e->code ? false : fail(r, "a class without end");
        high = low;
        if (r->at + 1 < r->n && r->text[r->at] == '-' && r->text[r->at + 1] != ']') {
            r->at++;
            if (!read_character(r, &high))
                return false;
            if (high < low)
                return fail(r, "a range that ends before it begins");
        }
        add_range(r->g, low, high);
        node.n++;
    }
    if (r->at >= r->n)
        return fail(r, "a class without end");
    r->at++;
    *begin = *end = add_node(r->g, node);
    return true;
}

static bool read_number(struct reader *r, int64_t *value)
{
    *value = 0;
    if (r->at >= r->n || r->text[r->at] < '0' || r->text[r->at] > '9')
        return fail(r, "expected a number");
    for (; r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++) {
        *value = *value * 10 + (r->text[r->at] - '0');
        if (*value > COUNT_MAX)
            return fail(r, "a count above 2147483647");
    }
    return true;
}

/* *, +, ? and {m,n} behind an element. False with r->e set: an error. */
static bool read_count(struct reader *r, int64_t *least, int64_t *most, bool *is_there)
{
    char c = r->at < r->n ? r->text[r->at] : '\0';
    *is_there = c == '*' || c == '+' || c == '?' || c == '{';
    if (!*is_there)
        return true;
    r->at++;
    *least = c == '+';
    *most = c == '?' ? 1 : -1;
    if (c != '{')
        return true;
    skip(r, false);
    if (!read_number(r, least))
        return false;
    skip(r, false);
    *most = *least;
    if (r->at < r->n && r->text[r->at] == ',') {
        r->at++;
        skip(r, false);
        *most = -1;
        if (r->at < r->n && r->text[r->at] != '}' && !read_number(r, most))
            return false;
        skip(r, false);
    }
    if (r->at >= r->n || r->text[r->at] != '}')
        return fail(r, "expected }");
    r->at++;
    return *most < 0 || *most >= *least || fail(r, "a count whose end is below its begin");
}

/* One element without its count. begin -1: empty. */
static bool read_element(struct reader *r, int *begin, int *end)
{
    char c = r->text[r->at];
    if (c == '"')
        return read_literal(r, begin, end);
    if (c == '[')
        return read_class(r, begin, end);
    if (c == '.') {
        r->at++;
        *begin = *end = add_node(
            r->g, (struct grammar_node){.kind = NODE_CHARACTERS, .next = -1, .first = 0, .is_negated = true});
        return true;
    }
    if (c == '(') {
        int first;
        r->at++;
        if (!read_choices(r, true, &first))
            return false;
        if (r->at >= r->n || r->text[r->at] != ')')
            return fail(r, "expected )");
        r->at++;
        /* what is inside ends where a rule would: it is one of its own */
        char name[32];
        int n = snprintf(name, sizeof name, " %d", r->g->n_rules);
        int rule = find_rule(r, name, (size_t)n);
        r->g->rules[rule].first = first;
        *begin = *end = add_node(r->g, (struct grammar_node){.kind = NODE_CALL, .next = -1, .first = rule});
        return true;
    }
    size_t n = name_bytes(r);
    if (n == 0)
        return fail(r, "expected a literal, a class, a group or a rule's name");
    int rule = find_rule(r, r->text + r->at, n);
    r->at += n;
    *begin = *end = add_node(r->g, (struct grammar_node){.kind = NODE_CALL, .next = -1, .first = rule});
    return true;
}

/* Is a rule's definition next: a name and "::="? Then what came before has ended. */
static bool is_definition(const struct reader *r)
{
    struct reader look = *r;
    size_t n = name_bytes(&look);
    look.at += n;
    skip(&look, true);
    return n > 0 && look.n - look.at >= 3 && memcmp(look.text + look.at, "::=", 3) == 0;
}

static bool read_sequence(struct reader *r, bool in_group, int *first)
{
    int last = -1;
    *first = -1;
    for (;;) {
        int begin = -1, end = -1;
        int64_t least, most;
        bool is_there;
        skip(r, in_group);
        if (!in_group && r->at < r->n && (r->text[r->at] == '\n' || r->text[r->at] == '\r')) {
            skip(r, true); /* the next line goes on unless it begins a rule, or another way */
            if (r->at >= r->n || is_definition(r))
                return true;
        }
        if (r->at >= r->n || r->text[r->at] == '|' || r->text[r->at] == ')' || is_definition(r))
            return true;
        if (!read_element(r, &begin, &end) || !read_count(r, &least, &most, &is_there))
            return false;
        if (is_there && begin >= 0) {
            /* of a literal the last character alone is repeated in some notations; here all of it is */
            begin = end = add_node(
                r->g, (struct grammar_node){
                          .kind = NODE_REPEAT, .next = -1, .first = begin, .least = least, .most = most});
        }
        if (r->g->n_nodes > NODES_MAX)
            return fail(r, "the grammar is too large");
        if (begin < 0)
            continue;
        if (last < 0)
            *first = begin;
        else
            r->g->nodes[last].next = begin;
        last = end;
    }
}

static bool read_choices(struct reader *r, bool in_group, int *first)
{
    int *ways = NULL, n = 0;
    size_t capacity = 0;
    bool ok = ++r->depth <= DEPTH_MAX || fail(r, "nested too deep");
    while (ok) {
        int way;
        ok = read_sequence(r, in_group, &way);
        ways = mem_grow(ways, (size_t)n, &capacity, sizeof *ways);
        ways[n++] = way;
        if (!ok || r->at >= r->n || r->text[r->at] != '|')
            break;
        r->at++;
    }
    r->depth--;
    if (ok && n == 1) {
        *first = ways[0];
    } else if (ok) {
        struct grammar *g = r->g;
        struct grammar_node node = {.kind = NODE_CHOICE, .next = -1, .first = g->n_choices, .n = n};
        for (int i = 0; i < n; i++) {
            g->choices = mem_grow(g->choices, (size_t)g->n_choices, &g->choices_capacity, sizeof *g->choices);
            g->choices[g->n_choices++] = ways[i];
        }
        *first = add_node(g, node);
    }
    free(ways);
    return ok;
}

static bool read_rules(struct reader *r)
{
    for (skip(r, true); r->at < r->n; skip(r, true)) {
        size_t n = name_bytes(r);
        int first;
        if (n == 0)
            return fail(r, "expected a rule's name");
        int rule = find_rule(r, r->text + r->at, n);
        r->at += n;
        skip(r, false);
        if (r->n - r->at < 3 || memcmp(r->text + r->at, "::=", 3) != 0)
            return fail(r, "expected ::=");
        r->at += 3;
        skip(r, true);
        if (!read_choices(r, false, &first))
            return false;
        if (r->at < r->n && r->text[r->at] == ')')
            return fail(r, "a ) too many");
        r->g->rules[rule].first = first;
    }
    return true;
}

/* ---- what must hold ---- */

static bool node_is_nullable(const struct grammar *g, int i)
{
    for (; i >= 0; i = g->nodes[i].next) {
        const struct grammar_node *node = &g->nodes[i];
        bool is_nullable = false;
        switch (node->kind) {
        case NODE_CHARACTERS:
            break;
        case NODE_CALL:
            is_nullable = g->rules[node->first].is_nullable;
            break;
        case NODE_CHOICE:
            for (int k = 0; k < node->n && !is_nullable; k++)
                is_nullable = node_is_nullable(g, g->choices[node->first + k]);
            break;
        case NODE_REPEAT:
            is_nullable = node->least == 0 || node_is_nullable(g, node->first);
            break;
        }
        if (!is_nullable)
            return false;
    }
    return true;
}

static bool visit_rule(struct grammar *g, int rule, int depth, struct err *e);

/* Goes through all that can come first from node i on. */
static bool visit_first(struct grammar *g, int i, int depth, struct err *e)
{
    for (; i >= 0; i = g->nodes[i].next) {
        const struct grammar_node *node = &g->nodes[i];
        bool ok = true, goes_on = false;
        if (node->kind == NODE_CALL) {
            ok = visit_rule(g, node->first, depth + 1, e);
            goes_on = g->rules[node->first].is_nullable;
        } else if (node->kind == NODE_CHOICE) {
            for (int k = 0; k < node->n && ok; k++) {
                ok = visit_first(g, g->choices[node->first + k], depth, e);
                goes_on = goes_on || node_is_nullable(g, g->choices[node->first + k]);
            }
        } else if (node->kind == NODE_REPEAT) {
            ok = visit_first(g, node->first, depth, e);
            goes_on = node->least == 0 || node_is_nullable(g, node->first);
        }
        if (!ok)
            return false;
        if (!goes_on)
            return true;
    }
    return true;
}

static bool visit_rule(struct grammar *g, int rule, int depth, struct err *e)
{
    struct grammar_rule *r = &g->rules[rule];
    if (r->visit == 2)
        return true;
    if (r->visit == 1)
        return err_set(e, ERR_FORMAT, "grammar: the rule \"%.60s\" begins with itself (left recursion)",
                       r->name);
    if (depth > 10000)
        return err_set(e, ERR_FORMAT, "grammar: rules are nested too deep");
    r->visit = 1;
    if (!visit_first(g, r->first, depth, e))
        return false;
    g->rules[rule].visit = 2;
    return true;
}

static bool check(struct grammar *g, struct err *e)
{
    for (int i = 0; i < g->n_rules; i++)
        if (g->rules[i].first == -2)
            return err_set(e, ERR_FORMAT, "grammar: there is no rule \"%.60s\"", g->rules[i].name);
    for (bool changes = true; changes;) {
        changes = false;
        for (int i = 0; i < g->n_rules; i++)
            if (!g->rules[i].is_nullable && node_is_nullable(g, g->rules[i].first))
                g->rules[i].is_nullable = changes = true;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        struct grammar_node *node = &g->nodes[i];
        if (node->kind != NODE_REPEAT || !node_is_nullable(g, node->first))
            continue;
        if (node->most > EMPTY_REPEATS_MAX)
            return err_set(e, ERR_FORMAT, "grammar: something that may be empty is repeated up to %lld times",
                           (long long)node->most);
        node->least = 0; /* the empty ones are as good as none */
    }
    for (int i = 0; i < g->n_rules; i++)
        if (!visit_rule(g, i, 0, e))
            return false;
    return true;
}

bool grammar_parse(struct grammar **out, const char *text, size_t n, struct err *e)
{
    struct grammar *g = xcalloc(1, sizeof *g);
    struct reader r = {.g = g, .text = text, .n = n, .e = e};
    *out = NULL;
    *e = (struct err){0};
    atomic_init(&g->n_references, 1);
    bool ok = n <= GRAMMAR_TEXT_BYTES_MAX ||
              err_set(e, ERR_LIMIT, "grammar: more than %zu bytes", GRAMMAR_TEXT_BYTES_MAX);
    r.names = table_new();
    ok = ok && (!memchr(text, '\0', n) || err_set(e, ERR_FORMAT, "grammar: a NUL byte")) && read_rules(&r);
    g->root = ok ? find_rule(&r, "root", 4) : 0;
    ok = ok && check(g, e);
    table_free(r.names);
    if (ok)
        *out = g;
    else
        grammar_free(g);
    return ok;
}

struct grammar *grammar_keep(struct grammar *g)
{
    if (g)
        atomic_fetch_add(&g->n_references, 1);
    return g;
}

void grammar_free(struct grammar *g)
{
    if (!g || atomic_fetch_sub(&g->n_references, 1) != 1)
        return;
    for (int i = 0; i < g->n_rules; i++)
        free(g->rules[i].name);
    free(g->rules);
    free(g->nodes);
    free(g->ranges);
    free(g->choices);
    free(g);
}
