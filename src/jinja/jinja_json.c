/* JSON to values and back, as Python's json module does it: integers stay integers, keys keep their order, a
 * repeated key keeps its first place and its last value. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

struct reader {
    struct jinja *j;
    const char *p;
    size_t n, at;
    const char *name; /* of the variable, for messages */
    bool is_user;
    int depth;
};

static _Noreturn void reader_fail(struct reader *r, const char *expected)
{
    r->j->line = r->j->column = 0;
    jinja_fail(r->j, ERR_FORMAT, "%s: bad JSON at byte %zu: expected %s", r->name, r->at, expected);
}

static void skip_blanks(struct reader *r)
{
    while (r->at < r->n &&
           (r->p[r->at] == ' ' || r->p[r->at] == '\t' || r->p[r->at] == '\n' || r->p[r->at] == '\r'))
        r->at++;
}

static bool accept(struct reader *r, const char *word)
{
    size_t n = strlen(word);
    if (r->n - r->at < n || memcmp(r->p + r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static uint32_t read_hex(struct reader *r)
{
    uint32_t cp = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = r->at < r->n ? r->p[r->at] : 0;
        if (c >= '0' && c <= '9')
            cp = cp * 16 + (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            cp = cp * 16 + (uint32_t)((c | 32) - 'a' + 10);
        else
            reader_fail(r, "four hexadecimal digits");
    }
    return cp;
}

static void read_escape(struct reader *r, struct builder *b)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->n ? r->p[r->at++] : 0;
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        builder_put(r->j, b, &to[simple - from], 1, r->is_user);
        return;
    }
    if (c != 'u')
        reader_fail(r, "an escape");
    uint32_t cp = read_hex(r);
    if (cp >= 0xd800 && cp < 0xdc00 && r->n - r->at >= 2 && r->p[r->at] == '\\' && r->p[r->at + 1] == 'u') {
        size_t back = r->at;
        r->at += 2;
        uint32_t low = read_hex(r);
        if (low >= 0xdc00 && low < 0xe000)
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        else
            r->at = back;
    }
    builder_put_char(r->j, b, cp, r->is_user); /* a lone surrogate becomes U+FFFD */
}

static struct value read_string(struct reader *r)
{
    size_t begin = r->at;
    while (r->at < r->n && r->p[r->at] != '"' && r->p[r->at] != '\\')
        r->at++;
    if (r->at < r->n && r->p[r->at] == '"') { /* no escapes: borrowed */
        struct value v = text_wrap(r->j, r->p + begin, r->at - begin, r->is_user);
        r->at++;
        return v;
    }
    struct builder *b = builder_begin(r->j);
    r->at = begin;
    for (;;) {
        size_t from = r->at;
        while (r->at < r->n && r->p[r->at] != '"' && r->p[r->at] != '\\')
            r->at++;
        builder_put(r->j, b, r->p + from, r->at - from, r->is_user);
        if (r->at >= r->n)
            reader_fail(r, "the end of a string");
        if (r->p[r->at++] == '"')
            return builder_finish(r->j, b);
        read_escape(r, b);
    }
}

static struct value read_number(struct reader *r)
{
    size_t begin = r->at;
    bool is_double = false;
    if (r->p[r->at] == '-')
        r->at++;
    if (accept(r, "Infinity"))
        return value_double(r->p[begin] == '-' ? -INFINITY : INFINITY);
    size_t digits = r->at;
    for (; r->at < r->n; r->at++) {
        char c = r->p[r->at];
        if (c == '.' || c == 'e' || c == 'E')
            is_double = true;
        else if (!(c >= '0' && c <= '9') &&
                 !((c == '-' || c == '+') && r->at > digits && (r->p[r->at - 1] | 32) == 'e'))
            break;
    }
    if (r->at == digits || r->p[digits] < '0' || r->p[digits] > '9') {
        r->at = begin;
        reader_fail(r, "a value");
    }
    size_t n = r->at - begin;
    char *copy = jinja_alloc(r->j, n + 1, 1);
    memcpy(copy, r->p + begin, n);
    char *end;
    if (is_double) {
        double d = strtod(copy, &end);
        if (*end)
            reader_fail(r, "a number");
        return value_double(d);
    }
    bool is_negative = copy[0] == '-';
    return integer_from_digits(r->j, is_negative, copy + is_negative, n - is_negative);
}

static struct value read_value(struct reader *r);

static struct value read_object(struct reader *r)
{
    struct dict *d = dict_new(r->j);
    skip_blanks(r);
    if (!accept(r, "}")) {
        do {
            skip_blanks(r);
            if (!accept(r, "\""))
                reader_fail(r, "a key");
            struct value key = read_string(r);
            skip_blanks(r);
            if (!accept(r, ":"))
                reader_fail(r, "':'");
            dict_put(r->j, d, key, read_value(r));
            skip_blanks(r);
        } while (accept(r, ","));
        if (!accept(r, "}"))
            reader_fail(r, "',' or '}'");
    }
    return (struct value){.type = VALUE_DICT, .dict = d};
}

static struct value read_array(struct reader *r)
{
    struct list *l = list_new(r->j, 0);
    skip_blanks(r);
    if (!accept(r, "]")) {
        do {
            list_push(r->j, l, read_value(r));
            skip_blanks(r);
        } while (accept(r, ","));
        if (!accept(r, "]"))
            reader_fail(r, "',' or ']'");
    }
    return value_list(l);
}

static struct value read_value(struct reader *r)
{
    struct value v;
    skip_blanks(r);
    jinja_charge(r->j, 1);
    if (++r->depth > JINJA_MAX_DATA_DEPTH)
        jinja_fail(r->j, ERR_LIMIT, "%s: JSON nested more than %d deep", r->name, JINJA_MAX_DATA_DEPTH);
    if (r->at >= r->n)
        reader_fail(r, "a value");
    if (accept(r, "{"))
        v = read_object(r);
    else if (accept(r, "["))
        v = read_array(r);
    else if (accept(r, "\""))
        v = read_string(r);
    else if (accept(r, "true"))
        v = value_bool(true);
    else if (accept(r, "false"))
        v = value_bool(false);
    else if (accept(r, "null"))
        v = value_none();
    else if (accept(r, "NaN"))
        v = value_double(NAN);
    else
        v = read_number(r);
    r->depth--;
    return v;
}

struct value json_to_value(struct jinja *j, struct str json, bool is_user, const char *name)
{
    struct reader r = {.j = j, .name = name, .is_user = is_user};
    struct builder *repaired = NULL;
    if (utf8_valid_prefix(json.p, json.n) < json.n) {
        repaired = builder_begin(j);
        for (size_t at = 0; at < json.n;) {
            uint32_t cp;
            int step = utf8_step(json.p + at, json.n - at, &cp);
            if (step > 0)
                builder_put(j, repaired, json.p + at, (size_t)step, is_user);
            else
                builder_put_char(j, repaired, 0xfffd, is_user);
            at += step > 0 ? (size_t)step : step < 0 ? (size_t)-step : json.n - at;
        }
        const struct text *t = builder_finish(j, repaired).text;
        json = (struct str){t->p, t->n};
    }
    r.p = json.p;
    r.n = json.n;
    struct value v = read_value(&r);
    skip_blanks(&r);
    if (r.at < r.n)
        reader_fail(&r, "the end");
    return v;
}

/* --- writing --- */

static void put_json_string(struct jinja *j, struct builder *b, const struct text *t, bool ascii)
{
    builder_puts(j, b, "\"");
    size_t end;
    bool is_user;
    for (size_t at = 0; text_run(t, at, &end, &is_user); at = end) {
        size_t from = at;
        while (at < end) {
            uint32_t cp;
            size_t n = utf8_next(t->p + at, &cp);
            char escape[16] = "";
            if (cp == '"' || cp == '\\')
                snprintf(escape, sizeof escape, "\\%c", (char)cp);
            else if (cp < 0x20 && cp && strchr("\b\f\n\r\t", (int)cp))
                snprintf(escape, sizeof escape, "\\%c", "btn?fr"[cp - 8]);
            else if (cp < 0x20 || (ascii && cp >= 0x7f && cp < 0x10000))
                snprintf(escape, sizeof escape, "\\u%04x", cp);
            else if (ascii && cp >= 0x10000)
                snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                         0xdc00 + ((cp - 0x10000) & 0x3ff));
            if (escape[0]) {
                builder_put(j, b, t->p + from, at - from, is_user);
                builder_put(j, b, escape, strlen(escape), is_user);
                from = at + n;
            }
            at += n;
        }
        builder_put(j, b, t->p + from, end - from, is_user);
    }
    builder_puts(j, b, "\"");
}

static void put_separator(struct jinja *j, struct builder *b, const struct text *given, const char *otherwise)
{
    if (given)
        builder_put_text(j, b, given);
    else
        builder_puts(j, b, otherwise);
}

static void put_newline(struct jinja *j, struct builder *b, const struct json_style *style, int depth)
{
    if (!style->indent)
        return;
    builder_puts(j, b, "\n");
    for (int i = 0; i < depth; i++)
        builder_put_text(j, b, style->indent);
}

static void put_scalar(struct jinja *j, struct builder *b, struct value v)
{
    char number[DOUBLE_CHARS];
    switch (v.type) {
    case VALUE_NONE:
        builder_puts(j, b, "null");
        return;
    case VALUE_BOOL:
        builder_puts(j, b, v.boolean ? "true" : "false");
        return;
    case VALUE_DOUBLE:
        double_repr(number, v.number);
        builder_puts(j, b,
                     isnan(v.number)    ? "NaN"
                     : !isinf(v.number) ? number
                     : v.number > 0     ? "Infinity"
                                        : "-Infinity");
        return;
    case VALUE_BIG:
        builder_puts(j, b, v.big->is_negative ? "-" : "");
        builder_puts(j, b, v.big->digits);
        return;
    default:
        snprintf(number, sizeof number, "%lld", (long long)v.integer);
        builder_puts(j, b, number);
        return;
    }
}

static bool is_scalar(struct value v)
{
    return v.type == VALUE_NONE || value_is_number(v);
}

static void put_json_at(struct jinja *j, struct builder *b, struct value v, const struct json_style *style,
                        int depth);

static void put_json_dict(struct jinja *j, struct builder *b, const struct dict *d,
                          const struct json_style *style, int depth)
{
    struct list *keys = list_new(j, d->n);
    for (size_t i = 0; i < d->n; i++)
        list_push(j, keys, d->entries[i].key);
    if (style->sort_keys) {
        struct list *order = list_new(j, d->n);
        for (size_t i = 0; i < d->n; i++)
            list_push(j, order, d->entries[i].key);
        list_sort(j, keys, order, false);
    }
    builder_puts(j, b, "{");
    for (size_t i = 0; i < keys->n; i++) {
        struct value key = keys->items[i];
        if (i)
            put_separator(j, b, style->item_separator, style->indent ? "," : ", ");
        put_newline(j, b, style, depth + 1);
        if (key.type == VALUE_STRING) {
            put_json_string(j, b, key.text, style->ascii);
        } else if (is_scalar(key)) {
            builder_puts(j, b, "\"");
            put_scalar(j, b, key);
            builder_puts(j, b, "\"");
        } else {
            jinja_type_error(j, "keys must be str, int, float, bool or None, not %s", value_type_name(key));
        }
        put_separator(j, b, style->key_separator, ": ");
        put_json_at(j, b, *dict_find(j, d, key), style, depth + 1);
    }
    if (keys->n > 0)
        put_newline(j, b, style, depth);
    builder_puts(j, b, "}");
}

static void put_json_at(struct jinja *j, struct builder *b, struct value v, const struct json_style *style,
                        int depth)
{
    if (depth > JINJA_MAX_DATA_DEPTH)
        jinja_fail(j, ERR_LIMIT, "data nested more than %d deep", JINJA_MAX_DATA_DEPTH);
    jinja_charge(j, 1);
    if (is_scalar(v)) {
        put_scalar(j, b, v);
    } else if (v.type == VALUE_STRING) {
        put_json_string(j, b, v.text, style->ascii);
    } else if (v.type == VALUE_DICT) {
        put_json_dict(j, b, v.dict, style, depth);
    } else if (v.type == VALUE_LIST || v.type == VALUE_TUPLE) {
        builder_puts(j, b, "[");
        for (size_t i = 0; i < v.list->n; i++) {
            if (i)
                put_separator(j, b, style->item_separator, style->indent ? "," : ", ");
            put_newline(j, b, style, depth + 1);
            put_json_at(j, b, v.list->items[i], style, depth + 1);
        }
        if (v.list->n > 0)
            put_newline(j, b, style, depth);
        builder_puts(j, b, "]");
    } else {
        jinja_type_error(j, "Object of type %s is not JSON serializable", value_type_name(v));
    }
}

void builder_put_json(struct jinja *j, struct builder *b, struct value v, const struct json_style *style)
{
    put_json_at(j, b, v, style, 0);
}
