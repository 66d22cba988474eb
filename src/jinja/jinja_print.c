/* Values as text: Python's str() and repr(), and its numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

void double_repr(char out[DOUBLE_CHARS], double d)
{
    if (isnan(d) || isinf(d)) {
        strcpy(out, isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
        return;
    }
    char digits[DOUBLE_CHARS];
    int precision = 0;
    for (; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, d);
        if (strtod(digits, NULL) == d)
            break;
    }
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision - exponent;
        snprintf(out, DOUBLE_CHARS, "%.*f", decimals < 1 ? 1 : decimals, d);
        return;
    }
    /* Python writes the exponent with two digits at least, as printf does */
    snprintf(out, DOUBLE_CHARS, "%.*e", precision, d);
}

static void put_string_repr(struct jinja *j, struct builder *b, const struct text *t)
{
    char quote = t->n > 0 && memchr(t->p, '\'', t->n) && !memchr(t->p, '"', t->n) ? '"' : '\'';
    builder_put(j, b, &quote, 1, false);
    size_t end;
    bool is_user;
    for (size_t at = 0; text_run(t, at, &end, &is_user); at = end) {
        while (at < end) {
            uint32_t cp;
            size_t n = utf8_next(t->p + at, &cp);
            char escape[16] = "";
            if (cp == '\\' || cp == (uint32_t)quote)
                snprintf(escape, sizeof escape, "\\%c", (char)cp);
            else if (cp == '\n' || cp == '\r' || cp == '\t')
                snprintf(escape, sizeof escape, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
            else if (!char_is_printable(cp))
                snprintf(escape, sizeof escape,
                         cp < 0x100     ? "\\x%02x"
                         : cp < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                         cp);
            builder_put(j, b, escape[0] ? escape : t->p + at, escape[0] ? strlen(escape) : n, is_user);
            at += n;
        }
    }
    builder_put(j, b, &quote, 1, false);
}

static void put_repr_at(struct jinja *j, struct builder *b, struct value v, int depth);

static void put_items(struct jinja *j, struct builder *b, const struct list *l, int depth)
{
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            builder_puts(j, b, ", ");
        put_repr_at(j, b, l->items[i], depth + 1);
    }
}

static void put_dict(struct jinja *j, struct builder *b, const struct dict *d, int depth)
{
    builder_puts(j, b, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            builder_puts(j, b, ", ");
        put_repr_at(j, b, d->entries[i].key, depth + 1);
        builder_puts(j, b, ": ");
        put_repr_at(j, b, d->entries[i].value, depth + 1);
    }
    builder_puts(j, b, "}");
}

static void put_sequence(struct jinja *j, struct builder *b, struct value v, int depth)
{
    if (v.type == VALUE_VIEW) {
        builder_puts(j, b, v.list->view_name);
        builder_puts(j, b, "([");
        put_items(j, b, v.list, depth);
        builder_puts(j, b, "])");
        return;
    }
    bool is_tuple = v.type == VALUE_TUPLE;
    builder_puts(j, b, is_tuple ? "(" : "[");
    put_items(j, b, v.list, depth);
    builder_puts(j, b, is_tuple ? (v.list->n == 1 ? ",)" : ")") : "]");
}

static void put_printf(struct jinja *j, struct builder *b, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void put_printf(struct jinja *j, struct builder *b, const char *fmt, ...)
{
    char line[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    builder_puts(j, b, line);
}

static void put_repr_at(struct jinja *j, struct builder *b, struct value v, int depth)
{
    if (depth > JINJA_MAX_DATA_DEPTH)
        jinja_fail(j, ERR_LIMIT, "data nested more than %d deep", JINJA_MAX_DATA_DEPTH);
    char number[DOUBLE_CHARS];
    switch (v.type) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
        builder_puts(j, b, "Undefined");
        return;
    case VALUE_NONE:
        builder_puts(j, b, "None");
        return;
    case VALUE_BOOL:
        builder_puts(j, b, v.boolean ? "True" : "False");
        return;
    case VALUE_INT:
        put_printf(j, b, "%lld", (long long)v.integer);
        return;
    case VALUE_BIG:
        builder_puts(j, b, v.big->is_negative ? "-" : "");
        builder_puts(j, b, v.big->digits);
        return;
    case VALUE_DOUBLE:
        double_repr(number, v.number);
        builder_puts(j, b, number);
        return;
    case VALUE_STRING:
        if (v.text->is_markup)
            builder_puts(j, b, "Markup(");
        put_string_repr(j, b, v.text);
        if (v.text->is_markup)
            builder_puts(j, b, ")");
        return;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_VIEW:
        put_sequence(j, b, v, depth);
        return;
    case VALUE_RANGE:
        if (v.range->step == 1)
            put_printf(j, b, "range(%lld, %lld)", (long long)v.range->start, (long long)v.range->stop);
        else
            put_printf(j, b, "range(%lld, %lld, %lld)", (long long)v.range->start, (long long)v.range->stop,
                       (long long)v.range->step);
        return;
    case VALUE_SLICE:
        builder_puts(j, b, "slice(");
        put_repr_at(j, b, v.slice->start, depth + 1);
        builder_puts(j, b, ", ");
        put_repr_at(j, b, v.slice->stop, depth + 1);
        builder_puts(j, b, ", ");
        put_repr_at(j, b, v.slice->step, depth + 1);
        builder_puts(j, b, ")");
        return;
    case VALUE_DICT:
        put_dict(j, b, v.dict, depth);
        return;
    case VALUE_NAMESPACE:
        builder_puts(j, b, "<Namespace ");
        put_dict(j, b, v.dict, depth);
        builder_puts(j, b, ">");
        return;
    case VALUE_MACRO:
        builder_puts(j, b, "<Macro ");
        if (v.macro->definition->name)
            put_string_repr(j, b, v.macro->definition->name);
        else
            builder_puts(j, b, "anonymous");
        builder_puts(j, b, ">");
        return;
    case VALUE_LOOP:
        loop_print(j, b, v.loop);
        return;
    default: /* Python adds an address, which differs from run to run */
        put_printf(j, b, "<%s object>", value_type_name(v));
        return;
    }
}

void builder_put_repr(struct jinja *j, struct builder *b, struct value v)
{
    put_repr_at(j, b, v, 0);
}

void builder_put_value(struct jinja *j, struct builder *b, struct value v)
{
    if (v.type == VALUE_STRING)
        builder_put_text(j, b, v.text);
    else if (v.type != VALUE_UNDEFINED && v.type != VALUE_MISSING)
        put_repr_at(j, b, v, 0);
}

const struct text *value_to_text(struct jinja *j, struct value v)
{
    if (v.type == VALUE_STRING)
        return v.text;
    struct builder *b = builder_begin(j);
    builder_put_value(j, b, v);
    return builder_finish(j, b).text;
}
