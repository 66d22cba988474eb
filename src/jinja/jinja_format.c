/* Formatting with % and with braces, and numbers from text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

#define MAX_WIDTH 100000
#define MAX_PRECISION 300

/* What stands in "%-08.3f" or "{:*^+8.3f}". */
struct spec {
    const struct text *fill; /* NULL: a blank */
    char align;              /* '<' '>' '^' '=' or 0 */
    char sign;               /* '+' ' ' or 0 */
    bool alternate, zero, grouped;
    char group;           /* ',' or '_' */
    int width, precision; /* precision -1: not given */
    char type;            /* 0: by the value */
};

/* Sign, prefix and digits of a number, each apart since padding goes in between. */
struct digits {
    char sign[2], prefix[3];
    char text[512];
};

static void set_sign(struct digits *d, bool is_negative, const struct spec *s)
{
    d->sign[0] = is_negative ? '-' : s->sign;
    d->sign[1] = '\0';
}

static void int_digits(struct digits *d, int64_t i, const struct spec *s)
{
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = s->type == 'b' ? 2 : s->type == 'o' ? 8 : s->type == 'x' || s->type == 'X' ? 16 : 10;
    char reversed[72];
    int n = 0;
    set_sign(d, i < 0, s);
    d->prefix[0] = '\0';
    do {
        reversed[n++] = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
        u /= base;
    } while (u > 0);
    for (int k = 0; k < n; k++)
        d->text[k] = reversed[n - 1 - k];
    d->text[n] = '\0';
    if (s->alternate && base != 10)
        snprintf(d->prefix, sizeof d->prefix, "0%c", s->type);
}

static void big_digits(struct jinja *j, struct digits *d, const struct big *b, const struct spec *s)
{
    if (b->n >= sizeof d->text || (s->type && strchr("boxX", s->type)))
        jinja_fail(j, ERR_LIMIT, "an integer of more than 64 bits in such a format");
    set_sign(d, b->is_negative, s);
    d->prefix[0] = '\0';
    memcpy(d->text, b->digits, b->n + 1);
}

static void double_digits(struct jinja *j, struct digits *d, double x, const struct spec *s)
{
    char type = s->type ? s->type : 'g';
    int precision = s->precision < 0 ? 6 : s->precision;
    char body[600], fmt[16];
    set_sign(d, signbit(x) && !isnan(x), s);
    d->prefix[0] = '\0';
    x = fabs(x);
    if (!s->type && s->precision < 0 && !isnan(x) && !isinf(x)) {
        double_repr(body, x);
    } else {
        bool is_percent = type == '%';
        snprintf(fmt, sizeof fmt, "%%%s.*%c", s->alternate ? "#" : "", is_percent ? 'f' : type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        int n = snprintf(body, sizeof body, fmt, precision, is_percent ? x * 100 : x);
#pragma GCC diagnostic pop
        if (n < 0 || (size_t)n + 2 > sizeof d->text)
            jinja_fail(j, ERR_LIMIT, "a formatted number of more than %zu characters", sizeof d->text - 2);
        if (is_percent)
            strcat(body, "%");
        if (!s->type && !strpbrk(body, ".en")) /* str() of a float always shows that it is one */
            strcat(body, ".0");
    }
    snprintf(d->text, sizeof d->text, "%.*s", (int)sizeof d->text - 1, body);
}

static void put_chars(struct jinja *j, struct builder *b, const struct text *fill, const char *otherwise,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (fill)
            builder_put_text(j, b, fill);
        else
            builder_puts(j, b, otherwise);
    }
}

/* Puts a separator between groups of digits before the point, filling with zeros up to `width`. */
static void group_digits(struct digits *d, char separator, int size, int width)
{
    char out[2048];
    size_t n_whole = strspn(d->text, size == 3 ? "0123456789" : "0123456789abcdefABCDEF"), n = 0;
    int n_rest = (int)strlen(d->text + n_whole), count = 0;
    char reversed[2048];
    for (size_t i = n_whole; i-- > 0 || (int)n + n_rest < width;) {
        if (count > 0 && count % size == 0)
            reversed[n++] = separator;
        reversed[n++] = i < n_whole ? d->text[i] : '0';
        count++;
        if (i >= n_whole)
            i = 0;
        if (n + 2 >= sizeof reversed || n + (size_t)n_rest + 2 >= sizeof d->text)
            break;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    snprintf(out + n, sizeof out - n, "%s", d->text + n_whole);
    snprintf(d->text, sizeof d->text, "%.*s", (int)sizeof d->text - 1, out);
}

static void put_digits(struct jinja *j, struct builder *b, struct digits *d, const struct spec *s)
{
    int64_t fixed = (int64_t)(strlen(d->sign) + strlen(d->prefix));
    if (s->grouped) {
        bool is_decimal = !s->type || strchr("defgFEGn%", s->type);
        bool has_zeros = s->align == '=' && s->fill && text_is(s->fill, "0");
        group_digits(d, s->group, is_decimal ? 3 : 4,
                     has_zeros && s->width < 400 ? s->width - (int)fixed : 0);
    }
    int64_t missing = s->width - fixed - (int64_t)strlen(d->text);
    missing = missing < 0 ? 0 : missing;
    int64_t left = s->align == '<' || s->align == '=' ? 0 : s->align == '^' ? missing / 2 : missing;
    put_chars(j, b, s->fill, " ", left);
    builder_puts(j, b, d->sign);
    builder_puts(j, b, d->prefix);
    put_chars(j, b, s->fill, " ", s->align == '=' ? missing : 0);
    builder_puts(j, b, d->text);
    put_chars(j, b, s->fill, " ", s->align == '=' ? 0 : missing - left);
}

static void put_padded(struct jinja *j, struct builder *b, const struct text *t, const struct spec *s)
{
    if (s->precision >= 0 && (uint32_t)s->precision < t->n_chars)
        t = text_slice(j, t, 0, text_offset(t, (size_t)s->precision));
    int64_t missing = s->width - (int64_t)t->n_chars;
    missing = missing < 0 ? 0 : missing;
    int64_t left = s->align == '>' ? missing : s->align == '^' ? missing / 2 : 0;
    put_chars(j, b, s->fill, " ", left);
    builder_put_text(j, b, t);
    put_chars(j, b, s->fill, " ", missing - left);
}

static const struct text *repr_text(struct jinja *j, struct value v)
{
    struct builder *b = builder_begin(j);
    builder_put_repr(j, b, v);
    return builder_finish(j, b).text;
}

static int read_count(struct jinja *j, const struct text *t, size_t *at, int max)
{
    int n = 0;
    for (; *at < t->n && t->p[*at] >= '0' && t->p[*at] <= '9'; ++*at) {
        n = n * 10 + (t->p[*at] - '0');
        if (n > max)
            jinja_fail(j, ERR_LIMIT, "a format with a width or precision above %d", max);
    }
    return n;
}

/* --- % --- */

struct percent {
    struct jinja *j;
    const struct text *format;
    size_t at;
    struct value args;
    size_t next; /* of a tuple */
    bool used_names;
};

static struct value next_argument(struct percent *f)
{
    if (f->args.type == VALUE_TUPLE) {
        if (f->next >= f->args.list->n)
            jinja_type_error(f->j, "not enough arguments for format string");
        return f->args.list->items[f->next++];
    }
    if (f->next++ > 0)
        jinja_type_error(f->j, "not enough arguments for format string");
    return f->args;
}

static int star_or_count(struct percent *f, int max, bool *left)
{
    if (f->at < f->format->n && f->format->p[f->at] == '*') {
        f->at++;
        int64_t n = value_to_index(f->j, next_argument(f), "* in a format");
        if (n < 0 && left) {
            *left = true;
            n = n < -max ? max + 1 : -n;
        }
        if (n > max)
            jinja_fail(f->j, ERR_LIMIT, "a format with a width or precision above %d", max);
        return n < 0 ? 0 : (int)n;
    }
    return read_count(f->j, f->format, &f->at, max);
}

static struct value named_argument(struct percent *f)
{
    size_t begin = ++f->at;
    int depth = 1;
    for (; f->at < f->format->n && depth > 0; f->at++)
        depth += f->format->p[f->at] == '(' ? 1 : f->format->p[f->at] == ')' ? -1 : 0;
    if (depth > 0)
        jinja_type_error(f->j, "incomplete format key");
    if (f->args.type != VALUE_DICT)
        jinja_type_error(f->j, "format requires a mapping");
    const struct text *key = text_slice(f->j, f->format, begin, f->at - 1);
    const struct value *v = dict_find_text(f->j, f->args.dict, key);
    if (!v)
        jinja_type_error(f->j, "format: no key '%.*s'", (int)(key->n < 100 ? key->n : 100), key->p);
    f->used_names = true;
    return *v;
}

static void put_percent_number(struct percent *f, struct builder *b, struct value v, struct spec *s)
{
    struct digits d;
    if (v.type == VALUE_UNDEFINED)
        fail_undefined(f->j, v);
    if (!value_is_number(v) || (v.type == VALUE_DOUBLE && strchr("oxX", s->type)))
        jinja_type_error(f->j, "%%%c format: a number is required, not %s", s->type, value_type_name(v));
    if (strchr("diouxX", s->type)) {
        if (v.type == VALUE_DOUBLE && !isfinite(v.number))
            jinja_type_error(f->j, "cannot convert this float to an integer");
        if (v.type == VALUE_DOUBLE)
            v = integer_from_double(f->j, v.number);
        if (v.type == VALUE_BIG)
            big_digits(f->j, &d, v.big, s);
        else
            int_digits(&d, value_to_index(f->j, v, "%d"), s);
        size_t n = strlen(d.text);
        if (s->precision > (int)n) { /* at least so many digits */
            memmove(d.text + (s->precision - (int)n), d.text, n + 1);
            memset(d.text, '0', (size_t)s->precision - n);
        }
    } else {
        double_digits(f->j, &d, value_to_double(v), s);
    }
    if (s->align != '<')
        s->align = s->zero ? '=' : '>';
    if (s->align == '=')
        s->fill = text_wrap(f->j, "0", 1, false).text;
    put_digits(f->j, b, &d, s);
}

static void put_percent_char(struct percent *f, struct builder *b, struct value v, const struct spec *s)
{
    if (v.type == VALUE_STRING && v.text->n_chars == 1) {
        put_padded(f->j, b, v.text, s);
        return;
    }
    int64_t cp = value_to_index(f->j, v, "%c");
    if (cp < 0 || cp > 0x10ffff)
        jinja_type_error(f->j, "%%c arg not in range(0x110000)");
    struct builder *one = builder_begin(f->j);
    builder_put_char(f->j, one, (uint32_t)cp, false);
    put_padded(f->j, b, builder_finish(f->j, one).text, s);
}

static void put_directive(struct percent *f, struct builder *b)
{
    struct spec s = {.precision = -1};
    struct value v = {0};
    const struct text *t = f->format;
    bool left = false;
    if (f->at < t->n && t->p[f->at] == '(')
        v = named_argument(f);
    for (; f->at < t->n && memchr("-+ #0", t->p[f->at], 5); f->at++) {
        char c = t->p[f->at];
        left |= c == '-';
        s.zero |= c == '0';
        s.alternate |= c == '#';
        if (c == '+' || (c == ' ' && !s.sign))
            s.sign = c;
    }
    s.width = star_or_count(f, MAX_WIDTH, &left);
    if (f->at < t->n && t->p[f->at] == '.') {
        f->at++;
        s.precision = star_or_count(f, MAX_PRECISION, NULL);
    }
    while (f->at < t->n && memchr("hlL", t->p[f->at], 3))
        f->at++;
    if (f->at >= t->n)
        jinja_type_error(f->j, "incomplete format");
    s.type = t->p[f->at++];
    if (s.type == '%') {
        builder_puts(f->j, b, "%");
        return;
    }
    if (!memchr("sradiouxXeEfFgGc", s.type, 16))
        jinja_type_error(f->j, "unsupported format character '%c' (0x%x)", s.type < 0x20 ? '?' : s.type,
                         (unsigned char)s.type);
    if (v.type == VALUE_MISSING)
        v = next_argument(f);
    s.align = left ? '<' : '>';
    if (s.type == 's')
        put_padded(f->j, b, value_to_text(f->j, v), &s);
    else if (s.type == 'r' || s.type == 'a')
        put_padded(f->j, b, repr_text(f->j, v), &s);
    else if (s.type == 'c')
        put_percent_char(f, b, v, &s);
    else
        put_percent_number(f, b, v, &s);
}

struct value format_percent(struct jinja *j, const struct text *format, struct value args)
{
    struct percent f = {.j = j, .format = format, .args = args};
    struct builder *b = builder_begin(j);
    while (f.at < format->n) {
        const char *sign = memchr(format->p + f.at, '%', format->n - f.at);
        size_t stop = sign ? (size_t)(sign - format->p) : format->n;
        builder_put_range(j, b, format, f.at, stop);
        f.at = stop;
        if (sign) {
            f.at++;
            put_directive(&f, b);
        }
    }
    bool takes_any = args.type == VALUE_DICT || args.type == VALUE_LIST || args.type == VALUE_RANGE ||
                     args.type == VALUE_UNDEFINED; /* mappings may be left over, as in Python */
    if (args.type == VALUE_TUPLE ? f.next < args.list->n : f.next == 0 && !f.used_names && !takes_any)
        jinja_type_error(j, "not all arguments converted during string formatting");
    return builder_finish(j, b);
}

/* --- braces --- */

struct braces {
    struct jinja *j;
    const struct call_args *a;
    int64_t next; /* automatic number; -1: numbers are given */
};

static void parse_spec(struct jinja *j, const struct text *t, struct spec *s)
{
    size_t at = 0;
    uint32_t cp;
    *s = (struct spec){.precision = -1};
    if (t->n > 0) {
        size_t n = utf8_next(t->p, &cp);
        if (n < t->n && memchr("<>=^", t->p[n], 4)) {
            s->fill = text_slice(j, t, 0, n);
            s->align = t->p[n];
            at = n + 1;
        } else if (memchr("<>=^", t->p[0], 4)) {
            s->align = t->p[0];
            at = 1;
        }
    }
    if (at < t->n && memchr("+- ", t->p[at], 3))
        s->sign = t->p[at] == '-' ? 0 : t->p[at], at++;
    if (at < t->n && t->p[at] == '#')
        s->alternate = true, at++;
    if (at < t->n && t->p[at] == '0') {
        s->zero = true;
        at++;
        if (!s->fill)
            s->fill = text_wrap(j, "0", 1, false).text;
    }
    s->width = read_count(j, t, &at, MAX_WIDTH);
    if (at < t->n && (t->p[at] == ',' || t->p[at] == '_')) {
        s->grouped = true;
        s->group = t->p[at++];
    }
    if (at < t->n && t->p[at] == '.') {
        at++;
        size_t before = at;
        s->precision = read_count(j, t, &at, MAX_PRECISION);
        if (at == before)
            jinja_type_error(j, "Format specifier missing precision");
    }
    if (at < t->n)
        s->type = t->p[at++];
    if (at < t->n)
        jinja_type_error(j, "Invalid format specifier '%.*s'", (int)(t->n < 100 ? t->n : 100), t->p);
}

static void put_field(struct jinja *j, struct builder *b, struct value v, const struct text *spec_text)
{
    struct spec s;
    struct digits d;
    parse_spec(j, spec_text, &s);
    bool is_int = v.type == VALUE_INT || v.type == VALUE_BIG || v.type == VALUE_BOOL;
    if (v.type == VALUE_BOOL && !s.type && spec_text->n == 0)
        is_int = false;
    if (s.type == 'n')
        s.type = v.type == VALUE_DOUBLE ? 'g' : 'd';
    if (is_int && (!s.type || strchr("bdoxX", s.type))) {
        if (s.precision >= 0)
            jinja_type_error(j, "Precision not allowed in integer format specifier");
        if (v.type == VALUE_BIG)
            big_digits(j, &d, v.big, &s);
        else
            int_digits(&d, value_to_index(j, v, "format"), &s);
    } else if ((is_int || v.type == VALUE_DOUBLE) && (!s.type || strchr("eEfFgG%", s.type))) {
        double_digits(j, &d, value_to_double(v), &s);
    } else if (is_int && s.type == 'c') {
        struct builder *one = builder_begin(j);
        builder_put_char(j, one, (uint32_t)value_to_index(j, v, "format"), false);
        put_padded(j, b, builder_finish(j, one).text, &s);
        return;
    } else {
        bool is_plain = v.type != VALUE_STRING && v.type != VALUE_UNDEFINED && v.type != VALUE_BOOL;
        if (is_plain && spec_text->n > 0)
            jinja_type_error(j, "unsupported format string passed to %s.__format__", value_type_name(v));
        if ((s.type && s.type != 's') || s.align == '=' || s.sign || s.grouped)
            jinja_type_error(j, "Invalid format specifier '%.*s' for a string",
                             (int)(spec_text->n < 100 ? spec_text->n : 100), spec_text->p);
        put_padded(j, b, value_to_text(j, v), &s);
        return;
    }
    if (!s.align)
        s.align = s.zero ? '=' : '>';
    put_digits(j, b, &d, &s);
}

static struct value find_field(struct braces *f, const struct text *name)
{
    struct jinja *j = f->j;
    size_t n = 0;
    while (n < name->n && name->p[n] != '.' && name->p[n] != '[')
        n++;
    const struct text *first = text_slice(j, name, 0, n);
    int64_t number;
    struct value v = {0};
    if (first->n == 0 && name->n > 0)
        jinja_type_error(j, "format: no argument ''");
    if (first->n == 0 || text_to_int(j, first, 10, &number)) {
        if (first->n == 0 ? f->next < 0 : f->next > 0)
            jinja_type_error(
                j, "cannot switch between automatic field numbering and manual field specification");
        number = first->n == 0 ? f->next++ : number;
        f->next = first->n == 0 ? f->next : -1;
        if (number < 0 || (size_t)number >= f->a->n)
            jinja_type_error(j, "Replacement index %lld out of range for positional args tuple",
                             (long long)number);
        v = f->a->positional[number];
    } else {
        for (size_t i = 0; i < f->a->n_named; i++)
            if (text_equal(f->a->names[i], first))
                v = f->a->named[i];
        if (v.type == VALUE_MISSING)
            jinja_type_error(j, "format: no argument '%.*s'", (int)(first->n < 100 ? first->n : 100),
                             first->p);
    }
    while (n < name->n) {
        bool is_item = name->p[n++] == '[';
        size_t begin = n;
        while (n < name->n && (is_item ? name->p[n] != ']' : name->p[n] != '.' && name->p[n] != '['))
            n++;
        const struct text *key = text_slice(j, name, begin, n);
        if (is_item && n++ >= name->n)
            jinja_type_error(j, "expected ']' in a format field");
        if (!is_item)
            v = value_attribute(j, v, key);
        else
            v = value_item(j, v, text_to_int(j, key, 10, &number) ? value_int(number) : text_value(key));
        if (v.type == VALUE_UNDEFINED)
            fail_undefined(j, v);
    }
    return v;
}

static void put_braces(struct braces *f, struct builder *b, const struct text *t, int depth);

/* t: what stands between the braces. */
static void put_replacement(struct braces *f, struct builder *b, const struct text *t, int depth)
{
    struct jinja *j = f->j;
    size_t n = 0;
    bool is_in_brackets = false;
    while (n < t->n && (is_in_brackets || (t->p[n] != ':' && t->p[n] != '!'))) {
        is_in_brackets = t->p[n] == '[' || (is_in_brackets && t->p[n] != ']');
        n++;
    }
    struct value v = find_field(f, text_slice(j, t, 0, n));
    if (n < t->n && t->p[n] == '!') {
        char conversion = n + 1 < t->n ? t->p[n + 1] : 0;
        if (conversion != 'r' && conversion != 's' && conversion != 'a')
            jinja_type_error(j, "an unknown conversion in a format field");
        v = text_value(conversion == 's' ? value_to_text(j, v) : repr_text(j, v));
        n += 2;
    }
    const struct text *spec = text_slice(j, t, t->n, t->n);
    if (n < t->n && t->p[n] == ':') {
        struct builder *inner = builder_begin(j);
        put_braces(f, inner, text_slice(j, t, n + 1, t->n), depth + 1);
        spec = builder_finish(j, inner).text;
    } else if (n < t->n) {
        jinja_type_error(j, "expected ':' after conversion specifier");
    }
    put_field(j, b, v, spec);
}

static void put_braces(struct braces *f, struct builder *b, const struct text *t, int depth)
{
    struct jinja *j = f->j;
    if (depth > 2)
        jinja_type_error(j, "Max string recursion exceeded");
    for (size_t at = 0; at < t->n;) {
        size_t stop = at;
        while (stop < t->n && t->p[stop] != '{' && t->p[stop] != '}')
            stop++;
        builder_put_range(j, b, t, at, stop);
        at = stop;
        if (at >= t->n)
            break;
        if (at + 1 < t->n && t->p[at + 1] == t->p[at]) {
            builder_put_range(j, b, t, at, at + 1);
            at += 2;
            continue;
        }
        if (t->p[at] == '}')
            jinja_type_error(j, "Single '}' encountered in format string");
        int open = 1;
        for (stop = at + 1; stop < t->n; stop++) {
            open += t->p[stop] == '{' ? 1 : t->p[stop] == '}' ? -1 : 0;
            if (open == 0)
                break;
        }
        if (open > 0)
            jinja_type_error(j, "expected '}' before end of string");
        put_replacement(f, b, text_slice(j, t, at + 1, stop), depth);
        at = stop + 1;
    }
}

struct value format_braces(struct jinja *j, const struct text *format, const struct call_args *a)
{
    struct braces f = {.j = j, .a = a};
    struct builder *b = builder_begin(j);
    put_braces(&f, b, format, 1);
    return builder_finish(j, b);
}

/* --- numbers --- */

double round_double(double d, int digits)
{
    char text[400];
    if (isnan(d) || isinf(d) || digits > 300)
        return d;
    if (digits < 0) {
        double scale = pow(10.0, -digits);
        return isinf(scale) ? copysign(0.0, d) : nearbyint(d / scale) * scale;
    }
    if (fabs(d) >= 1e17)
        return d;
    /* printf rounds the exact value to the nearest decimal, ties to even, which is what Python does */
    snprintf(text, sizeof text, "%.*f", digits, d);
    return strtod(text, NULL);
}

static bool digit_value(char c, int base, int *digit)
{
    *digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
    return *digit < base;
}

bool text_to_int(struct jinja *j, const struct text *t, int base, int64_t *out)
{
    t = text_strip(j, t, NULL, true, true);
    size_t at = 0;
    bool is_negative = false;
    if (at < t->n && (t->p[at] == '+' || t->p[at] == '-'))
        is_negative = t->p[at++] == '-';
    if (at + 1 < t->n && t->p[at] == '0') {
        char c = t->p[at + 1] | 32;
        int by_prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (by_prefix && (base == 0 || base == by_prefix)) {
            base = by_prefix;
            at += 2;
            at += at < t->n && t->p[at] == '_';
        }
    }
    if (base == 0)
        base = 10;
    if (base < 2 || base > 36 || at >= t->n)
        return false;
    int64_t value = 0;
    bool was_digit = false, is_over = false;
    for (; at < t->n; at++) {
        int digit;
        if (t->p[at] == '_' && was_digit && at + 1 < t->n) {
            was_digit = false;
            continue;
        }
        if (!digit_value(t->p[at], base, &digit))
            return false;
        is_over = is_over || __builtin_mul_overflow(value, base, &value) ||
                  (is_negative ? __builtin_sub_overflow(value, digit, &value)
                               : __builtin_add_overflow(value, digit, &value));
        was_digit = true;
    }
    if (is_over)
        jinja_fail(j, ERR_LIMIT, "an integer of more than 64 bits");
    *out = value;
    return true;
}

bool text_to_double(struct jinja *j, const struct text *t, double *out)
{
    char digits[400];
    size_t n = 0;
    t = text_strip(j, t, NULL, true, true);
    if (t->n == 0 || t->n >= sizeof digits)
        return false;
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->p[i] == '_' && i > 0 && i + 1 < t->n && t->p[i - 1] >= '0' && t->p[i - 1] <= '9' &&
            t->p[i + 1] >= '0' && t->p[i + 1] <= '9')
            continue;
        digits[n++] = t->p[i];
    }
    digits[n] = '\0';
    char *end;
    /* strtod reads hexadecimal and nan(...) too, Python does not */
    if (strpbrk(digits, "xXpP(") ||
        (digits[0] != '+' && digits[0] != '-' && char_is_space((uint8_t)digits[0])))
        return false;
    *out = strtod(digits, &end);
    return (size_t)(end - digits) == n;
}
