/* Filters on strings and numbers, and the table of all filters. Those on sequences are in jinja_sequence.c.
 *
 * Left out, since no chat template has a use for them: pprint, random, striptags, urlize, wordwrap, xmlattr.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

#define FILTER(name)                                                                                         \
    static struct value filter_##name(struct jinja *j, struct value v, const struct call_args *a)

static bool is_given(struct value v)
{
    return v.type != VALUE_MISSING && v.type != VALUE_NONE;
}

/* --- case and blanks --- */

/* A filter without parameters that makes text t of its value. */
#define TEXT_FILTER(name, result)                                                                            \
    FILTER(name)                                                                                             \
    {                                                                                                        \
        parameters_bind(j, #name, "", a, NULL);                                                              \
        const struct text *t = value_to_text(j, v);                                                          \
        return result;                                                                                       \
    }
TEXT_FILTER(upper, text_map(j, t, CASE_UPPER))
TEXT_FILTER(lower, text_map(j, t, CASE_LOWER))
TEXT_FILTER(capitalize, text_capitalize(j, t))
TEXT_FILTER(title, text_title(j, t, true))

FILTER(trim)
{
    struct value chars;
    parameters_bind(j, "trim", "chars", a, &chars);
    const struct text *t = is_given(chars) ? parameter_text(j, chars, "trim") : NULL;
    return text_value(text_strip(j, value_to_text(j, v), t, true, true));
}

FILTER(center)
{
    struct value width;
    parameters_bind(j, "center", "width", a, &width);
    const struct text *text = value_to_text(j, v);
    return text_pad(j, text, parameter_int(j, width, 80, "center"), NULL, '^');
}

static const struct text *join_with_newline(struct jinja *j, const struct text *t)
{
    struct builder *b = builder_begin(j);
    builder_put_text(j, b, t);
    builder_put(j, b, "\n", 1, false);
    return builder_finish(j, b).text;
}

FILTER(indent)
{
    struct value args[3];
    parameters_bind(j, "indent", "width first blank", a, args);
    const struct text *t = parameter_text(j, v, "indent"), *by = NULL;
    int64_t width = 4;
    if (args[0].type == VALUE_STRING)
        by = args[0].text;
    else
        width = parameter_int(j, args[0], 4, "indent");
    bool first = parameter_bool(j, args[1], false), blank = parameter_bool(j, args[2], false);
    /* one more newline at the end makes the text behind the last one a line, empty or not */
    struct list *lines = text_lines(j, join_with_newline(j, t), false);
    struct builder *b = builder_begin(j);
    for (size_t i = 0; i < lines->n; i++) {
        const struct text *line = lines->items[i].text;
        if (i > 0)
            builder_puts(j, b, "\n");
        if (i == 0 ? first : blank || line->n > 0) {
            for (int64_t k = 0; !by && k < width; k++)
                builder_puts(j, b, " ");
            if (by)
                builder_put_text(j, b, by);
        }
        builder_put_text(j, b, line);
    }
    return builder_finish(j, b);
}

FILTER(truncate)
{
    struct value args[4];
    parameters_bind(j, "truncate", "length killwords end leeway", a, args);
    int64_t size = value_length(v);
    const struct text *end = args[2].type == VALUE_MISSING ? text_wrap(j, "...", 3, false).text
                                                           : parameter_text(j, args[2], "truncate");
    int64_t length = parameter_int(j, args[0], 255, "truncate");
    int64_t leeway = is_given(args[3]) ? value_to_index(j, args[3], "truncate") : 5;
    if (length < (int64_t)end->n_chars || leeway < 0)
        jinja_type_error(j, "truncate: expected length >= %u and leeway >= 0", end->n_chars);
    if (size < 0)
        jinja_type_error(j, "object of type '%s' has no len()", value_type_name(v));
    if (size - leeway <= length)
        return v;
    const struct text *t = parameter_text(j, v, "truncate");
    const struct text *kept = text_slice(j, t, 0, text_offset(t, (size_t)(length - (int64_t)end->n_chars)));
    if (!parameter_bool(j, args[1], false)) {
        size_t at = text_find_last(j, kept, 0, kept->n, text_wrap(j, " ", 1, false).text);
        if (at != SIZE_MAX)
            kept = text_slice(j, kept, 0, at);
    }
    struct builder *b = builder_begin(j);
    builder_put_text(j, b, kept);
    builder_put_text(j, b, end);
    return builder_finish(j, b);
}

FILTER(replace)
{
    struct value args[3];
    parameters_bind(j, "replace", "old! new! count", a, args);
    const struct text *text = value_to_text(j, v), *old = value_to_text(j, args[0]),
                      *replacement = value_to_text(j, args[1]);
    return text_replace(j, text, old, replacement,
                        is_given(args[2]) ? value_to_index(j, args[2], "replace") : -1);
}

FILTER(string)
{
    parameters_bind(j, "string", "", a, NULL);
    return text_value(value_to_text(j, v));
}

FILTER(format)
{
    if (a->n > 0 && a->n_named > 0)
        jinja_type_error(j, "can't handle positional and keyword arguments at the same time");
    const struct text *t = value_to_text(j, v);
    if (a->n_named > 0) {
        struct dict *d = dict_new(j);
        for (size_t i = 0; i < a->n_named; i++)
            dict_put(j, d, text_value(a->names[i]), a->named[i]);
        return format_percent(j, t, (struct value){.type = VALUE_DICT, .dict = d});
    }
    struct list *l = list_new(j, a->n);
    for (size_t i = 0; i < a->n; i++)
        list_push(j, l, a->positional[i]);
    return format_percent(j, t, value_tuple(l));
}

FILTER(wordcount)
{
    parameters_bind(j, "wordcount", "", a, NULL);
    const struct text *t = value_to_text(j, v);
    int64_t n = 0;
    bool was_word = false;
    jinja_charge(j, t->n);
    for (size_t at = 0; at < t->n;) {
        uint32_t cp;
        at += utf8_next(t->p + at, &cp);
        bool is_word = cp == '_' || char_is_alpha(cp) || char_is_numeric(cp);
        n += is_word && !was_word;
        was_word = is_word;
    }
    return value_int(n);
}

/* --- markup --- */

/* Percent-encodes; in a query string "/" too, and a blank becomes "+". */
static void put_url(struct jinja *j, struct builder *b, const struct text *t, bool is_query)
{
    size_t end;
    bool is_user;
    for (size_t at = 0; text_run(t, at, &end, &is_user); at = end) {
        for (; at < end; at++) {
            unsigned char c = (unsigned char)t->p[at];
            char code[4];
            if ((c < 0x80 && c != 0x5f && char_is_name(c)) || (c && strchr("_.-~", c)) ||
                (c == '/' && !is_query)) {
                builder_put(j, b, t->p + at, 1, is_user);
                continue;
            }
            snprintf(code, sizeof code, "%%%02X", c);
            builder_put(j, b, c == ' ' && is_query ? "+" : code, c == ' ' && is_query ? 1 : 3, is_user);
        }
    }
}

TEXT_FILTER(safe, text_markup(j, t, true))
TEXT_FILTER(escape, text_escape(j, t))
TEXT_FILTER(forceescape, text_escape(j, text_markup(j, t, false).text))

FILTER(urlencode)
{
    parameters_bind(j, "urlencode", "", a, NULL);
    struct builder *b = builder_begin(j);
    if (v.type == VALUE_STRING || !value_is_iterable(v)) {
        put_url(j, b, value_to_text(j, v), false);
        return builder_finish(j, b);
    }
    struct list *keys = value_to_list(j, v);
    for (size_t i = 0; i < keys->n; i++) {
        struct value key = keys->items[i], value;
        if (v.type == VALUE_DICT) {
            value = v.dict->entries[i].value;
        } else {
            struct list *pair = value_to_list(j, key);
            if (pair->n != 2)
                jinja_type_error(j, "urlencode: expected pairs, found %zu items", pair->n);
            key = pair->items[0];
            value = pair->items[1];
        }
        if (i)
            builder_puts(j, b, "&");
        put_url(j, b, value_to_text(j, key), true);
        builder_puts(j, b, "=");
        put_url(j, b, value_to_text(j, value), true);
    }
    return builder_finish(j, b);
}

FILTER(tojson)
{
    struct value args[4];
    parameters_bind(j, "tojson", "ensure_ascii indent separators sort_keys", a, args);
    struct json_style style = {.ascii = parameter_bool(j, args[0], false)};
    style.sort_keys = parameter_bool(j, args[3], false);
    if (args[1].type == VALUE_STRING) {
        style.indent = args[1].text;
    } else if (is_given(args[1])) {
        int64_t n = value_to_index(j, args[1], "tojson: indent");
        struct builder *blanks = builder_begin(j);
        for (int64_t i = 0; i < n; i++)
            builder_puts(j, blanks, " ");
        style.indent = builder_finish(j, blanks).text;
    }
    if (is_given(args[2])) {
        struct list *pair = value_to_list(j, args[2]);
        if (pair->n != 2)
            jinja_type_error(j, "tojson: expected two separators, found %zu", pair->n);
        style.item_separator = parameter_text(j, pair->items[0], "tojson: separators");
        style.key_separator = parameter_text(j, pair->items[1], "tojson: separators");
    }
    struct builder *b = builder_begin(j);
    builder_put_json(j, b, v, &style);
    return builder_finish(j, b);
}

/* --- numbers --- */

FILTER(abs)
{
    parameters_bind(j, "abs", "", a, NULL);
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (!value_is_number(v))
        jinja_type_error(j, "bad operand type for abs(): '%s'", value_type_name(v));
    if (v.type == VALUE_DOUBLE)
        return value_double(fabs(v.number));
    if (v.type == VALUE_BIG)
        return v.big->is_negative ? big_negate(j, v.big) : v;
    int64_t i = value_to_index(j, v, "abs");
    return i < 0 ? integer_negate(j, i) : value_int(i);
}

/* The integer that a text spells, of any size, in decimal; false for what is shorter or something else. */
static bool text_to_big(struct jinja *j, const struct text *t, struct value *out)
{
    t = text_strip(j, t, NULL, true, true);
    bool has_sign = t->n > 0 && (t->p[0] == '-' || t->p[0] == '+');
    char *digits = jinja_alloc(j, (size_t)t->n + 1, 1);
    size_t n = 0;
    for (size_t i = has_sign; i < t->n; i++) {
        bool is_digit = t->p[i] >= '0' && t->p[i] <= '9';
        bool is_between = t->p[i] == '_' && n > 0 && t->p[i - 1] != '_' && i + 1 < t->n;
        if (!is_digit && !is_between)
            return false;
        if (is_digit)
            digits[n++] = t->p[i];
    }
    if (n < 19)
        return false;
    *out = integer_from_digits(j, has_sign && t->p[0] == '-', digits, n);
    return true;
}

FILTER(int)
{
    struct value args[2], big;
    int64_t i;
    double d;
    parameters_bind(j, "int", "default base", a, args);
    struct value otherwise = args[0].type == VALUE_MISSING ? value_int(0) : args[0];
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (v.type == VALUE_BIG)
        return v;
    if (v.type == VALUE_BOOL || v.type == VALUE_INT)
        return value_int(value_to_index(j, v, "int"));
    if (v.type == VALUE_DOUBLE) {
        if (isinf(v.number))
            jinja_type_error(j, "cannot convert float infinity to integer");
        return isnan(v.number) ? otherwise : integer_from_double(j, v.number);
    }
    if (v.type != VALUE_STRING)
        return otherwise;
    int base = (int)parameter_int(j, args[1], 10, "int");
    if (base == 10 && text_to_big(j, v.text, &big))
        return big;
    if (text_to_int(j, v.text, base, &i))
        return value_int(i);
    return text_to_double(j, v.text, &d) && isfinite(d) ? integer_from_double(j, d) : otherwise;
}

FILTER(float)
{
    struct value otherwise;
    double d;
    parameters_bind(j, "float", "default", a, &otherwise);
    if (otherwise.type == VALUE_MISSING)
        otherwise = value_double(0);
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (value_is_number(v))
        return value_double(value_to_double(v));
    return v.type == VALUE_STRING && text_to_double(j, v.text, &d) ? value_double(d) : otherwise;
}

/* Half to even, as round() of an integer with negative digits. */
static int64_t round_int(int64_t i, int64_t digits)
{
    int64_t scale = 1;
    for (; digits < 0 && scale <= INT64_MAX / 10; digits++)
        scale *= 10;
    if (digits < 0)
        return 0;
    int64_t rest = i % scale, half = scale / 2;
    int64_t whole = i - rest, size = rest < 0 ? -rest : rest;
    bool up = size > half || (size == half && scale > 1 && (whole / scale) % 2 != 0);
    return up ? (rest < 0 ? whole - scale : whole + scale) : whole;
}

FILTER(round)
{
    struct value args[2];
    parameters_bind(j, "round", "precision method", a, args);
    int64_t precision = parameter_int(j, args[0], 0, "round");
    const struct text *method = args[1].type == VALUE_MISSING ? NULL : parameter_text(j, args[1], "round");
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (!value_is_number(v))
        jinja_type_error(j, "round: expected a number, found '%s'", value_type_name(v));
    precision = precision > 400 ? 400 : precision < -400 ? -400 : precision;
    if (method && !text_is(method, "common") && !text_is(method, "ceil") && !text_is(method, "floor"))
        jinja_type_error(j, "method must be common, ceil or floor");
    if (!method || text_is(method, "common")) {
        if (v.type == VALUE_DOUBLE)
            return value_double(round_double(v.number, (int)precision));
        if (v.type == VALUE_BIG && precision >= 0)
            return v;
        int64_t i = value_to_index(j, v, "round");
        return value_int(precision < 0 ? round_int(i, precision) : i);
    }
    double scale = pow(10, (double)precision), x = value_to_double(v) * scale;
    return value_double((text_is(method, "ceil") ? ceil(x) : floor(x)) / scale);
}

FILTER(filesizeformat)
{
    static const char prefixes[] = "kMGTPEZY";
    struct value binary;
    parameters_bind(j, "filesizeformat", "binary", a, &binary);
    bool is_binary = parameter_bool(j, binary, false);
    double base = is_binary ? 1024 : 1000, bytes = 0, unit = base;
    if (value_is_number(v))
        bytes = value_to_double(v);
    else if (v.type != VALUE_STRING || !text_to_double(j, v.text, &bytes))
        jinja_type_error(j, "filesizeformat: expected a number, found '%s'", value_type_name(v));
    if (bytes == 1)
        return text_printf(j, "1 Byte");
    if (bytes < base)
        return text_printf(j, "%lld Bytes", (long long)bytes);
    for (int i = 0;; i++) {
        unit *= base;
        if (bytes < unit || i == 7)
            return text_printf(j, "%.1f %c%s", base * bytes / unit, is_binary && i == 0 ? 'K' : prefixes[i],
                               is_binary ? "iB" : "B");
    }
}

FILTER(default)
{
    struct value args[2];
    parameters_bind(j, "default", "default_value boolean", a, args);
    if (v.type != VALUE_UNDEFINED && !(parameter_bool(j, args[1], false) && !value_is_true(j, v)))
        return v;
    return args[0].type == VALUE_MISSING ? text_wrap(j, "", 0, false) : args[0];
}

FILTER(attr)
{
    struct value name;
    parameters_bind(j, "attr", "name!", a, &name);
    const struct text *t = parameter_text(j, name, "attr");
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(j, v);
    if (v.type == VALUE_DICT) { /* attributes only, no keys */
        struct dict *empty = dict_new(j);
        struct value found = value_attribute(j, (struct value){.type = VALUE_DICT, .dict = empty}, t);
        if (found.type == VALUE_UNDEFINED)
            return value_undefined(j, v, name);
    }
    return value_attribute(j, v, t);
}

const struct builtin *find_filter(struct str name)
{
    static const struct builtin filters[] = {
        {"abs", filter_abs},
        {"attr", filter_attr},
        {"capitalize", filter_capitalize},
        {"center", filter_center},
        {"d", filter_default},
        {"default", filter_default},
        {"e", filter_escape},
        {"escape", filter_escape},
        {"filesizeformat", filter_filesizeformat},
        {"float", filter_float},
        {"forceescape", filter_forceescape},
        {"format", filter_format},
        {"indent", filter_indent},
        {"int", filter_int},
        {"lower", filter_lower},
        {"replace", filter_replace},
        {"round", filter_round},
        {"safe", filter_safe},
        {"string", filter_string},
        {"title", filter_title},
        {"tojson", filter_tojson},
        {"trim", filter_trim},
        {"truncate", filter_truncate},
        {"upper", filter_upper},
        {"urlencode", filter_urlencode},
        {"wordcount", filter_wordcount},
    };
    const struct builtin *b = find_builtin(filters, sizeof filters / sizeof *filters, name);
    return b ? b : find_sequence_filter(name);
}
