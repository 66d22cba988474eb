/* Methods of strings, except those that take strings apart (jinja_split.c). */
#include <stdlib.h>

#include "jinja/jinja_internal.h"

#define METHOD(name) static struct value name(struct jinja *j, struct value self, const struct call_args *a)

METHOD(string_upper)
{
    parameters_bind(j, "upper", "", a, NULL);
    return text_map(j, self.text, CASE_UPPER);
}

METHOD(string_lower)
{
    parameters_bind(j, "lower", "", a, NULL);
    return text_map(j, self.text, CASE_LOWER);
}

METHOD(string_casefold)
{
    parameters_bind(j, "casefold", "", a, NULL);
    return text_map(j, self.text, CASE_FOLD);
}

METHOD(string_capitalize)
{
    parameters_bind(j, "capitalize", "", a, NULL);
    return text_capitalize(j, self.text);
}

METHOD(string_title)
{
    parameters_bind(j, "title", "", a, NULL);
    return text_title(j, self.text, false);
}

METHOD(string_swapcase)
{
    parameters_bind(j, "swapcase", "", a, NULL);
    return text_swap_case(j, self.text);
}

static struct value strip(struct jinja *j, struct value self, const struct call_args *a, bool left,
                          bool right)
{
    struct value chars;
    parameters_bind(j, "strip", "chars", a, &chars);
    const struct text *t =
        chars.type == VALUE_MISSING || chars.type == VALUE_NONE ? NULL : parameter_text(j, chars, "strip");
    return text_value(text_strip(j, self.text, t, left, right));
}

METHOD(string_strip)
{
    return strip(j, self, a, true, true);
}

METHOD(string_lstrip)
{
    return strip(j, self, a, true, false);
}

METHOD(string_rstrip)
{
    return strip(j, self, a, false, true);
}

/* --- searching --- */

/* The bytes of self[start:end]; false when start is behind end. */
static bool byte_window(struct jinja *j, const struct text *t, struct value start, struct value end,
                        size_t *from, size_t *to)
{
    int64_t n = t->n_chars, first = 0, last = n;
    if (start.type != VALUE_MISSING && start.type != VALUE_NONE)
        first = value_to_index(j, start, "start");
    if (end.type != VALUE_MISSING && end.type != VALUE_NONE)
        last = value_to_index(j, end, "end");
    if (first < 0)
        first = first < -n ? 0 : first + n;
    if (last < 0)
        last = last < -n ? 0 : last + n;
    if (last > n)
        last = n;
    if (first > last)
        return false;
    jinja_charge(j, t->n == t->n_chars ? 0 : t->n);
    *from = text_offset(t, (size_t)first);
    *to = last == n ? t->n : text_offset(t, (size_t)last);
    return true;
}

static bool has_affix(struct jinja *j, const struct text *t, size_t from, size_t to, struct value affix,
                      bool at_end)
{
    const struct text *x = parameter_text(j, affix, at_end ? "endswith" : "startswith");
    jinja_charge(j, x->n);
    return x->n <= to - from && memcmp(at_end ? t->p + to - x->n : t->p + from, x->p, x->n) == 0;
}

static struct value test_affix(struct jinja *j, struct value self, const struct call_args *a, bool at_end)
{
    struct value args[3];
    size_t from = 0, to = 0;
    parameters_bind(j, at_end ? "endswith" : "startswith", "prefix! start end", a, args);
    bool has_window = byte_window(j, self.text, args[1], args[2], &from, &to);
    if (args[0].type != VALUE_TUPLE) {
        (void)parameter_text(j, args[0], at_end ? "endswith" : "startswith");
        return value_bool(has_window && has_affix(j, self.text, from, to, args[0], at_end));
    }
    for (size_t i = 0; i < args[0].list->n; i++)
        if (has_window && has_affix(j, self.text, from, to, args[0].list->items[i], at_end))
            return value_bool(true);
    return value_bool(false);
}

METHOD(string_startswith)
{
    return test_affix(j, self, a, false);
}

METHOD(string_endswith)
{
    return test_affix(j, self, a, true);
}

static struct value search(struct jinja *j, struct value self, const struct call_args *a, const char *name,
                           bool last, bool must)
{
    struct value args[3];
    size_t from = 0, to = 0, at = SIZE_MAX;
    parameters_bind(j, name, "sub! start end", a, args);
    const struct text *needle = parameter_text(j, args[0], name);
    if (byte_window(j, self.text, args[1], args[2], &from, &to))
        at =
            last ? text_find_last(j, self.text, from, to, needle) : text_find(j, self.text, from, to, needle);
    if (at == SIZE_MAX && must)
        jinja_type_error(j, "substring not found");
    return value_int(at == SIZE_MAX ? -1 : (int64_t)text_chars(self.text->p, at));
}

METHOD(string_find)
{
    return search(j, self, a, "find", false, false);
}

METHOD(string_rfind)
{
    return search(j, self, a, "rfind", true, false);
}

METHOD(string_index)
{
    return search(j, self, a, "index", false, true);
}

METHOD(string_rindex)
{
    return search(j, self, a, "rindex", true, true);
}

METHOD(string_count)
{
    struct value args[3];
    size_t from = 0, to = 0;
    int64_t n = 0;
    parameters_bind(j, "count", "sub! start end", a, args);
    const struct text *needle = parameter_text(j, args[0], "count");
    if (!byte_window(j, self.text, args[1], args[2], &from, &to))
        return value_int(0);
    if (needle->n == 0)
        return value_int((int64_t)text_chars(self.text->p + from, to - from) + 1);
    for (size_t at; (at = text_find(j, self.text, from, to, needle)) != SIZE_MAX; n++)
        from = at + needle->n;
    return value_int(n);
}

struct value text_replace(struct jinja *j, const struct text *t, const struct text *old,
                          const struct text *new, int64_t count)
{
    struct builder *b = builder_begin(j);
    size_t done = 0;
    if (count < 0)
        count = INT64_MAX;
    if (old->n == 0) { /* between all characters */
        for (; count > 0; count--) {
            builder_put_text(j, b, new);
            if (done >= t->n)
                break;
            uint32_t cp;
            size_t n = utf8_next(t->p + done, &cp);
            builder_put_range(j, b, t, done, done + n);
            done += n;
        }
    } else {
        for (size_t at; count > 0 && (at = text_find(j, t, done, t->n, old)) != SIZE_MAX; count--) {
            builder_put_range(j, b, t, done, at);
            builder_put_text(j, b, new);
            done = at + old->n;
        }
    }
    builder_put_range(j, b, t, done, t->n);
    return builder_finish(j, b);
}

METHOD(string_replace)
{
    struct value args[3];
    parameters_bind(j, "replace", "old! new! count", a, args);
    const struct text *old = parameter_text(j, args[0], "replace"),
                      *replacement = parameter_text(j, args[1], "replace");
    return text_replace(j, self.text, old, replacement, parameter_int(j, args[2], -1, "replace"));
}

METHOD(string_removeprefix)
{
    struct value prefix;
    parameters_bind(j, "removeprefix", "prefix!", a, &prefix);
    bool has = has_affix(j, self.text, 0, self.text->n, prefix, false);
    return text_value(text_slice(j, self.text, has ? prefix.text->n : 0, self.text->n));
}

METHOD(string_removesuffix)
{
    struct value suffix;
    parameters_bind(j, "removesuffix", "suffix!", a, &suffix);
    bool has = has_affix(j, self.text, 0, self.text->n, suffix, true);
    return text_value(text_slice(j, self.text, 0, self.text->n - (has ? suffix.text->n : 0)));
}

/* --- padding --- */

static void put_fill(struct jinja *j, struct builder *b, const struct text *fill, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (fill)
            builder_put_text(j, b, fill);
        else
            builder_puts(j, b, " ");
    }
}

/* Which: '<' text on the left, '>' on the right, '^' in the middle as str.center has it. */
struct value text_pad(struct jinja *j, const struct text *t, int64_t width, const struct text *fill,
                      char which)
{
    int64_t missing = width - (int64_t)t->n_chars;
    if (missing <= 0)
        return text_value(t);
    int64_t left = which == '<' ? 0 : which == '>' ? missing : missing / 2 + (missing & width & 1);
    struct builder *b = builder_begin(j);
    put_fill(j, b, fill, left);
    builder_put_text(j, b, t);
    put_fill(j, b, fill, missing - left);
    return builder_finish(j, b);
}

static struct value pad(struct jinja *j, struct value self, const struct call_args *a, const char *name,
                        char which)
{
    struct value args[2];
    parameters_bind(j, name, "width! fillchar", a, args);
    const struct text *fill = args[1].type == VALUE_MISSING ? NULL : parameter_text(j, args[1], name);
    if (fill && fill->n_chars != 1)
        jinja_type_error(j, "%s: the fill character must be exactly one character long", name);
    return text_pad(j, self.text, value_to_index(j, args[0], name), fill, which);
}

METHOD(string_ljust)
{
    return pad(j, self, a, "ljust", '<');
}

METHOD(string_rjust)
{
    return pad(j, self, a, "rjust", '>');
}

METHOD(string_center)
{
    return pad(j, self, a, "center", '^');
}

METHOD(string_zfill)
{
    struct value width;
    parameters_bind(j, "zfill", "width!", a, &width);
    const struct text *t = self.text;
    int64_t missing = value_to_index(j, width, "zfill") - (int64_t)t->n_chars;
    if (missing <= 0)
        return self;
    size_t sign = t->n > 0 && (t->p[0] == '+' || t->p[0] == '-');
    struct builder *b = builder_begin(j);
    builder_put_range(j, b, t, 0, sign);
    for (int64_t i = 0; i < missing; i++)
        builder_puts(j, b, "0");
    builder_put_range(j, b, t, sign, t->n);
    return builder_finish(j, b);
}

METHOD(string_expandtabs)
{
    struct value size;
    parameters_bind(j, "expandtabs", "tabsize", a, &size);
    int64_t width = parameter_int(j, size, 8, "expandtabs"), column = 0;
    struct builder *b = builder_begin(j);
    for (size_t at = 0; at < self.text->n;) {
        uint32_t cp;
        size_t n = utf8_next(self.text->p + at, &cp);
        if (cp == '\t') {
            int64_t blanks = width > 0 ? width - column % width : 0;
            put_fill(j, b, NULL, blanks);
            column += blanks;
        } else {
            builder_put_range(j, b, self.text, at, at + n);
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        }
        at += n;
    }
    return builder_finish(j, b);
}

/* --- classes of characters --- */

static bool is_alnum(uint32_t cp)
{
    return char_is_alpha(cp) || char_is_numeric(cp) || char_is_digit(cp);
}

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

/* Are there characters, and are all of them of the class? */
static struct value all_are(struct jinja *j, struct value self, const struct call_args *a, const char *name,
                            bool (*is)(uint32_t), bool if_empty)
{
    parameters_bind(j, name, "", a, NULL);
    const struct text *t = self.text;
    jinja_charge(j, t->n);
    for (size_t at = 0; at < t->n;) {
        uint32_t cp;
        at += utf8_next(t->p + at, &cp);
        if (!is(cp))
            return value_bool(false);
    }
    return value_bool(t->n > 0 || if_empty);
}

#define CLASS_METHOD(method, is, if_empty)                                                                   \
    METHOD(string_##method)                                                                                  \
    {                                                                                                        \
        return all_are(j, self, a, #method, is, if_empty);                                                   \
    }

CLASS_METHOD(isalpha, char_is_alpha, false)
CLASS_METHOD(isalnum, is_alnum, false)
CLASS_METHOD(isdecimal, char_is_decimal, false)
CLASS_METHOD(isdigit, char_is_digit, false)
CLASS_METHOD(isnumeric, char_is_numeric, false)
CLASS_METHOD(isspace, char_is_space, false)
CLASS_METHOD(isprintable, char_is_printable, true)
CLASS_METHOD(isascii, is_ascii, true)

METHOD(string_isupper)
{
    static const struct str name = {"upper", 5};
    return find_test(name)->fn(j, self, a);
}

METHOD(string_islower)
{
    static const struct str name = {"lower", 5};
    return find_test(name)->fn(j, self, a);
}

METHOD(string_istitle)
{
    bool any = false, was_cased = false;
    parameters_bind(j, "istitle", "", a, NULL);
    jinja_charge(j, self.text->n);
    for (size_t at = 0; at < self.text->n;) {
        uint32_t cp;
        at += utf8_next(self.text->p + at, &cp);
        bool is_capital = char_is_upper(cp) || char_is_title(cp);
        if ((is_capital && was_cased) || (char_is_lower(cp) && !was_cased))
            return value_bool(false);
        was_cased = is_capital || char_is_lower(cp);
        any |= was_cased;
    }
    return value_bool(any);
}

METHOD(string_isidentifier)
{
    parameters_bind(j, "isidentifier", "", a, NULL);
    const struct text *t = self.text;
    jinja_charge(j, t->n);
    for (size_t at = 0; at < t->n;) {
        uint32_t cp;
        size_t n = utf8_next(t->p + at, &cp);
        if (!char_is_name(cp) || (at == 0 && char_is_decimal(cp)))
            return value_bool(false);
        at += n;
    }
    return value_bool(t->n > 0);
}

/* --- putting together --- */

METHOD(string_join)
{
    struct value items, item;
    struct iteration it;
    parameters_bind(j, "join", "iterable!", a, &items);
    struct builder *b = builder_begin(j);
    iterate_begin(j, &it, items);
    for (size_t i = 0; iterate_next(j, &it, &item); i++) {
        if (item.type != VALUE_STRING)
            jinja_type_error(j, "sequence item %zu: expected str instance, %s found", i,
                             value_type_name(item));
        if (i)
            builder_put_text(j, b, self.text);
        builder_put_text(j, b, item.text);
    }
    return builder_finish(j, b);
}

METHOD(string_format)
{
    return format_braces(j, self.text, a);
}

METHOD(string_format_map)
{
    struct value map;
    parameters_bind(j, "format_map", "map!", a, &map);
    if (map.type != VALUE_DICT)
        jinja_type_error(j, "format_map: expected a mapping, found '%s'", value_type_name(map));
    struct call_args named = {0};
    named.names = jinja_alloc(j, map.dict->n, sizeof *named.names);
    named.named = jinja_alloc(j, map.dict->n, sizeof *named.named);
    for (size_t i = 0; i < map.dict->n; i++) {
        if (map.dict->entries[i].key.type != VALUE_STRING)
            continue;
        named.names[named.n_named] = map.dict->entries[i].key.text;
        named.named[named.n_named++] = map.dict->entries[i].value;
    }
    return format_braces(j, self.text, &named);
}

const struct builtin *find_string_method(const struct text *name)
{
    static const struct builtin methods[] = {
        {"upper", string_upper},
        {"lower", string_lower},
        {"casefold", string_casefold},
        {"capitalize", string_capitalize},
        {"title", string_title},
        {"swapcase", string_swapcase},
        {"strip", string_strip},
        {"lstrip", string_lstrip},
        {"rstrip", string_rstrip},
        {"startswith", string_startswith},
        {"endswith", string_endswith},
        {"find", string_find},
        {"rfind", string_rfind},
        {"index", string_index},
        {"rindex", string_rindex},
        {"count", string_count},
        {"replace", string_replace},
        {"removeprefix", string_removeprefix},
        {"removesuffix", string_removesuffix},
        {"ljust", string_ljust},
        {"rjust", string_rjust},
        {"center", string_center},
        {"zfill", string_zfill},
        {"expandtabs", string_expandtabs},
        {"isalpha", string_isalpha},
        {"isalnum", string_isalnum},
        {"isdecimal", string_isdecimal},
        {"isdigit", string_isdigit},
        {"isnumeric", string_isnumeric},
        {"isspace", string_isspace},
        {"isprintable", string_isprintable},
        {"isascii", string_isascii},
        {"isupper", string_isupper},
        {"islower", string_islower},
        {"istitle", string_istitle},
        {"isidentifier", string_isidentifier},
        {"join", string_join},
        {"format", string_format},
        {"format_map", string_format_map},
    };
    const struct builtin *b =
        find_builtin(methods, sizeof methods / sizeof *methods, (struct str){name->p, name->n});
    return b ? b : find_split_method(name);
}
