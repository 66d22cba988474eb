/* YAML: libyaml's events into a tree, and what a plain scalar means (YAML 1.1 as Python's reader takes it).
 */
#include "format/yaml.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>
#include "format/json.h"

#define DEPTH_MAX 32
#define NODES_MAX 100000

struct reader {
    yaml_parser_t parser;
    struct arena *arena;
    const char *where;
    int n_nodes;
};

/* A mapping or list that is being filled. */
struct level {
    struct yaml_node *node, **end;
    const char *key; /* of a mapping: read, its value is next */
    int key_line;
    struct table *keys; /* of a mapping: those that were there */
};

static int event_line(const yaml_event_t *event)
{
    return event->start_mark.line < INT32_MAX ? (int)event->start_mark.line + 1 : INT32_MAX;
}

static bool next_event(struct reader *r, yaml_event_t *event, struct err *e)
{
    if (yaml_parser_parse(&r->parser, event))
        return true;
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return err_set(e, ERR_NOMEM, "%s: out of memory", r->where);
    if (p->error == YAML_READER_ERROR)
        return err_set(e, ERR_FORMAT, "%s: byte %zu: not valid YAML: %s", r->where, p->problem_offset,
                       p->problem ? p->problem : "unreadable");
    return err_set(e, ERR_FORMAT, "%s: line %zu: not valid YAML: %s%s%s", r->where, p->problem_mark.line + 1,
                   p->problem ? p->problem : "unreadable", p->context ? ", " : "",
                   p->context ? p->context : "");
}

static bool check_event(const struct reader *r, const yaml_event_t *event, struct err *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        anchor = event->data.alias.anchor;
        break;
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor)
        return err_set(e, ERR_FORMAT, "%s: line %d: expected plain values, found the %s \"%.64s\"", r->where,
                       event_line(event), event->type == YAML_ALIAS_EVENT ? "alias" : "anchor",
                       (const char *)anchor);
    if (tag)
        return err_set(e, ERR_FORMAT, "%s: line %d: expected plain values, found the tag \"%.64s\"", r->where,
                       event_line(event), (const char *)tag);
    return true;
}

static bool new_node(struct reader *r, enum yaml_kind kind, const yaml_event_t *event, struct yaml_node **out,
                     struct err *e)
{
    if (++r->n_nodes > NODES_MAX)
        return err_set(e, ERR_LIMIT, "%s: line %d: more than %d values", r->where, event_line(event),
                       NODES_MAX);
    struct yaml_node *n = ARENA_NEW(r->arena, struct yaml_node);
    n->kind = kind;
    n->line = event_line(event);
    if (kind == YAML_SCALAR) {
        const char *text = (const char *)event->data.scalar.value;
        size_t length = event->data.scalar.length;
        if (memchr(text, '\0', length))
            return err_set(e, ERR_FORMAT, "%s: line %d: found a NUL character in a value", r->where, n->line);
        n->text = arena_strndup(r->arena, text, length);
        n->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    }
    *out = n;
    return true;
}

/* Puts a finished scalar, or a mapping or list that now begins, where it belongs. */
static bool attach(struct reader *r, struct level *level, struct yaml_node *n, struct err *e)
{
    if (level->node->kind == YAML_MAP && !level->key) {
        if (n->kind != YAML_SCALAR)
            return err_set(e, ERR_FORMAT, "%s: line %d: expected a key, found a %s", r->where, n->line,
                           yaml_kind_name(n));
        if (!table_put(level->keys, n->text, n)) {
            const struct yaml_node *first = table_get(level->keys, n->text);
            return err_set(e, ERR_FORMAT,
                           "%s: line %d: expected each key once, found \"%.64s\" also on line %d", r->where,
                           n->line, n->text, first ? first->line : 0);
        }
        level->key = n->text;
        return true;
    }
    n->key = level->key;
    level->key = NULL;
    *level->end = n;
    level->end = &n->next;
    return true;
}

static void push(struct level *level, struct yaml_node *n)
{
    *level = (struct level){.node = n, .end = &n->child};
    if (n->kind == YAML_MAP)
        level->keys = table_new();
}

static bool read_tree(struct reader *r, struct yaml_node **root, struct err *e)
{
    struct level levels[DEPTH_MAX];
    int depth = 0;
    bool ok = true, done = false;
    while (ok && !done) {
        yaml_event_t event;
        struct yaml_node *n = NULL;
        ok = next_event(r, &event, e);
        if (!ok)
            break;
        ok = check_event(r, &event, e);
        switch (ok ? event.type : YAML_NO_EVENT) {
        case YAML_STREAM_END_EVENT:
            done = true;
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (*root)
                ok = err_set(e, ERR_FORMAT, "%s: line %d: expected one document, found a second one",
                             r->where, event_line(&event));
            break;
        case YAML_SCALAR_EVENT:
            ok = new_node(r, YAML_SCALAR, &event, &n, e);
            break;
        case YAML_SEQUENCE_START_EVENT:
        case YAML_MAPPING_START_EVENT:
            if (depth == DEPTH_MAX)
                ok = err_set(e, ERR_FORMAT, "%s: line %d: nesting deeper than %d levels", r->where,
                             event_line(&event), DEPTH_MAX);
            else
                ok =
                    new_node(r, event.type == YAML_MAPPING_START_EVENT ? YAML_MAP : YAML_LIST, &event, &n, e);
            break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
            table_free(levels[--depth].keys);
            break;
        default:
            break;
        }
        yaml_event_delete(&event);
        if (!ok || !n)
            continue;
        if (depth == 0)
            *root = n;
        else
            ok = attach(r, &levels[depth - 1], n, e);
        if (ok && n->kind != YAML_SCALAR)
            push(&levels[depth++], n);
    }
    while (depth > 0)
        table_free(levels[--depth].keys);
    return ok;
}

bool yaml_parse(struct yaml_node **out, struct arena *a, const char *text, size_t bytes, const char *where,
                struct err *e)
{
    struct reader r = {.arena = a, .where = where};
    *out = NULL;
    if (!yaml_parser_initialize(&r.parser))
        return err_set(e, ERR_NOMEM, "%s: out of memory", where);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    bool ok = read_tree(&r, out, e);
    yaml_parser_delete(&r.parser);
    if (!ok)
        *out = NULL;
    return ok;
}

const char *yaml_kind_name(const struct yaml_node *n)
{
    return n->kind == YAML_MAP ? "mapping" : n->kind == YAML_LIST ? "list" : "scalar";
}

bool yaml_is_null(const struct yaml_node *n)
{
    return n->kind == YAML_SCALAR && n->is_plain &&
           (!n->text[0] || strcmp(n->text, "~") == 0 || strcasecmp(n->text, "null") == 0);
}

bool yaml_text_int(const char *text, int64_t *value)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!*digits || digits[strspn(digits, "0123456789")])
        return false;
    errno = 0;
    long long v = strtoll(text, NULL, 10);
    if (errno)
        return false;
    *value = v;
    return true;
}

bool yaml_get_int(const struct yaml_node *n, int64_t *value)
{
    return n->kind == YAML_SCALAR && n->is_plain && yaml_text_int(n->text, value);
}

bool yaml_get_bool(const struct yaml_node *n, bool *value)
{
    static const char *const words[2][3] = {{"false", "no", "off"}, {"true", "yes", "on"}};
    if (n->kind != YAML_SCALAR || !n->is_plain)
        return false;
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < 3; i++)
            if (strcasecmp(n->text, words[v][i]) == 0) {
                *value = v;
                return true;
            }
    return false;
}

bool yaml_get_double(const struct yaml_node *n, double *value)
{
    if (n->kind != YAML_SCALAR || !n->is_plain || !n->text[0] || n->text[strspn(n->text, "0123456789+-.eE")])
        return false;
    char *end;
    double d = strtod(n->text, &end);
    if (end == n->text || *end || !isfinite(d))
        return false;
    *value = d;
    return true;
}

void yaml_put_number(struct buf *b, double d)
{
    struct buf text;
    buf_init(&text, 64);
    json_put_double(&text, d);
    const char *exponent = text.p ? strchr(text.p, 'e') : NULL;
    if (!text.p || !isfinite(d)) {
        buf_puts(b, "0.0");
    } else if (strchr(text.p, '.')) {
        buf_puts(b, text.p);
    } else {
        buf_append(b, text.p, exponent ? (size_t)(exponent - text.p) : text.n);
        buf_puts(b, ".0");
        buf_puts(b, exponent ? exponent : "");
    }
    buf_fini(&text);
}
