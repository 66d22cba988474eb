/* The lexer: template text to tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
 *
 * The rules, as Jinja's lexer has them: a tag that ends with "-" takes all whitespace behind it, one that begins with
 * "-" all before it; else a block or comment takes the newline right behind it ("+%}" prevents that), and the blanks
 * between it and the begin of its line ("{%+" prevents that). Print tags take nothing by themselves.
 */
#include <errno.h>
#include <stdlib.h>

#include "jinja/jinja_internal.h"

void lexer_init(struct lexer *l, struct jinja *j, const char *text, size_t n)
{
    *l = (struct lexer){.j = j, .line = 1};
    char *copy = jinja_alloc(j, n + 1, 1);
    size_t n_copy = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < n && text[i + 1] == '\n')
                i++;
        }
        copy[n_copy++] = c;
    }
    if (n_copy > 0 && copy[n_copy - 1] == '\n') /* keep_trailing_newline is off */
        n_copy--;
    l->p = copy;
    l->n = n_copy;
}

/* Positions only grow, so everything is counted once. */
static void locate(struct lexer *l, size_t at, struct token *t)
{
    while (l->counted < at) {
        const char *newline = memchr(l->p + l->counted, '\n', at - l->counted);
        size_t end = newline ? (size_t)(newline - l->p) + 1 : at;
        l->column = newline ? 0 : l->column + text_chars(l->p + l->counted, end - l->counted);
        l->line += newline != NULL;
        l->counted = end;
    }
    t->line = l->line;
    t->column = (int)l->column + 1;
}

static _Noreturn void fail_at(struct lexer *l, const struct token *t, const char *message)
{
    l->j->line = t->line;
    l->j->column = t->column;
    jinja_fail(l->j, ERR_FORMAT, "%s", message);
}

static bool starts_with(const struct lexer *l, size_t at, const char *s)
{
    size_t n = strlen(s);
    return l->n - at >= n && memcmp(l->p + at, s, n) == 0;
}

static size_t skip_spaces(const struct lexer *l, size_t at)
{
    while (at < l->n) {
        uint32_t cp;
        size_t n = utf8_next(l->p + at, &cp);
        if (!char_is_space(cp))
            break;
        at += n;
    }
    return at;
}

static size_t strip_end(const char *p, size_t begin, size_t end)
{
    while (end > begin) {
        uint32_t cp;
        size_t back = utf8_back(p, end);
        (void)utf8_next(p + back, &cp);
        if (!char_is_space(cp))
            break;
        end = back;
    }
    return end;
}

/* Where the text [begin, end) before a tag ends, by the tag's sign. */
static size_t data_end(const struct lexer *l, size_t begin, size_t end, char sign, bool is_print)
{
    if (sign == '-')
        return strip_end(l->p, begin, end);
    if (sign == '+' || is_print)
        return end;
    const char *newline = memrchr(l->p + begin, '\n', end - begin);
    size_t at = strip_end(l->p, newline ? (size_t)(newline - l->p) + 1 : begin, end);
    bool is_line_begin = at == 0 || l->p[at - 1] == '\n'; /* may be a newline that the tag before took */
    return is_line_begin ? at : end;
}

/* "-%}" with whitespace, "+%}", or "%}" with a newline at `at`: where it ends, 0 when there is none. */
static size_t block_end(const struct lexer *l, size_t at, const char *close)
{
    if (at < l->n && l->p[at] == '+')
        return starts_with(l, at + 1, close) ? at + 3 : 0;
    if (at < l->n && l->p[at] == '-')
        return starts_with(l, at + 1, close) ? skip_spaces(l, at + 3) : 0;
    if (!starts_with(l, at, close))
        return 0;
    at += 2;
    return at < l->n && l->p[at] == '\n' ? at + 1 : at;
}

static size_t tag_sign(const struct lexer *l, size_t at, char *sign)
{
    *sign = at < l->n && (l->p[at] == '-' || l->p[at] == '+') ? l->p[at] : 0;
    return *sign ? at + 1 : at;
}

static bool raw_begin(const struct lexer *l, size_t at, char *sign, size_t *end)
{
    at = skip_spaces(l, tag_sign(l, at + 2, sign));
    if (!starts_with(l, at, "raw"))
        return false;
    at = skip_spaces(l, at + 3);
    if (starts_with(l, at, "-%}"))
        *end = skip_spaces(l, at + 3);
    else if (starts_with(l, at, "%}"))
        *end = at + 2;
    else
        return false;
    return true;
}

static bool raw_end(const struct lexer *l, size_t at, char *sign, size_t *end)
{
    at = skip_spaces(l, tag_sign(l, at + 2, sign));
    if (!starts_with(l, at, "endraw"))
        return false;
    *end = block_end(l, skip_spaces(l, at + 6), "%}");
    return *end > 0;
}

/* Gives data if there is any; else returns false. */
static bool give_data(struct lexer *l, size_t begin, size_t end, struct token *t)
{
    if (end <= begin)
        return false;
    locate(l, begin, t);
    t->kind = TOKEN_DATA;
    t->text = (struct str){l->p + begin, end - begin};
    return true;
}

static bool lex_raw(struct lexer *l, struct token *t)
{
    size_t begin = l->at, end = 0;
    char sign = 0;
    for (size_t at = begin; at < l->n; at++) {
        const char *hit = memchr(l->p + at, '{', l->n - at);
        if (!hit)
            break;
        at = (size_t)(hit - l->p);
        if (starts_with(l, at, "{%") && raw_end(l, at, &sign, &end)) {
            size_t stop = data_end(l, begin, at, sign, false);
            bool has_data = give_data(l, begin, stop, t);
            l->at = end;
            l->state = LEX_ROOT;
            return has_data;
        }
    }
    l->state = LEX_ROOT;
    if (begin == l->n) /* a raw block that begins at the very end has none */
        return false;
    locate(l, begin, t);
    fail_at(l, t, "a raw block without its end");
}

static void skip_comment(struct lexer *l, size_t at, size_t after_sign)
{
    for (size_t i = after_sign; i < l->n; i++) {
        const char *hit = memchr(l->p + i, '#', l->n - i);
        if (!hit)
            break;
        i = (size_t)(hit - l->p);
        if (!starts_with(l, i, "#}"))
            continue;
        bool has_sign = i > after_sign && (l->p[i - 1] == '-' || l->p[i - 1] == '+');
        l->at = block_end(l, has_sign ? i - 1 : i, "#}");
        return;
    }
    struct token t;
    l->at = l->n;
    if (after_sign == l->n) /* likewise a comment */
        return;
    locate(l, at, &t);
    fail_at(l, &t, "a comment without its end");
}

/* Text up to the next tag, and the begin of that tag. False: nothing to give yet. */
static bool lex_root(struct lexer *l, struct token *t)
{
    size_t begin = l->at, at = begin;
    char what = 0;
    for (; at < l->n; at++) {
        const char *hit = memchr(l->p + at, '{', l->n - at);
        at = hit ? (size_t)(hit - l->p) : l->n;
        if (at + 1 < l->n && memchr("{%#", l->p[at + 1], 3)) {
            what = l->p[at + 1];
            break;
        }
    }
    if (!what) {
        l->at = l->n;
        if (give_data(l, begin, l->n, t))
            return true;
        locate(l, l->n, t);
        t->kind = TOKEN_END;
        return true;
    }
    char sign;
    size_t end;
    bool is_raw = what == '%' && raw_begin(l, at, &sign, &end);
    if (!is_raw)
        end = tag_sign(l, at + 2, &sign);
    bool has_data = give_data(l, begin, data_end(l, begin, at, sign, what == '{'), t);
    if (is_raw) {
        l->at = end;
        l->state = LEX_RAW;
        return has_data;
    }
    if (what == '#') {
        skip_comment(l, at, end);
        return has_data;
    }
    l->begin.kind = what == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN;
    l->begin.text = (struct str){l->p + at, end - at};
    locate(l, at, &l->begin);
    l->state = what == '{' ? LEX_VARIABLE : LEX_BLOCK;
    l->at = end;
    l->n_open = 0;
    if (has_data)
        l->has_data = true;
    else
        *t = l->begin;
    return true;
}

static bool is_digit_of(char c, int base)
{
    int digit = c >= '0' && c <= '9'                 ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : 99;
    return digit < base;
}

/* Digits with single "_" between them. */
static size_t skip_digits(const struct lexer *l, size_t at, int base)
{
    while (at < l->n) {
        if (is_digit_of(l->p[at], base))
            at++;
        else if (l->p[at] == '_' && at + 1 < l->n && is_digit_of(l->p[at + 1], base))
            at += 2;
        else
            break;
    }
    return at;
}

/* A literal of more than 64 bits. */
static void convert_big(struct lexer *l, struct token *t, size_t begin, size_t end, int base)
{
    if (base != 10)
        fail_at(l, t, "an integer of more than 64 bits that is not decimal");
    char *digits = jinja_alloc(l->j, end - begin + 1, 1);
    size_t n = 0;
    for (size_t i = begin; i < end; i++)
        if (l->p[i] != '_')
            digits[n++] = l->p[i];
    t->kind = TOKEN_INT;
    t->constant = integer_from_digits(l->j, false, digits, n);
}

static void convert_int(struct lexer *l, struct token *t, size_t begin, size_t end, int base)
{
    int64_t value = 0;
    for (size_t i = begin; i < end; i++) {
        char c = l->p[i];
        if (c == '_')
            continue;
        int digit = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value)) {
            convert_big(l, t, begin, end, base);
            return;
        }
    }
    t->kind = TOKEN_INT;
    t->constant = value_int(value);
}

static void lex_number(struct lexer *l, struct token *t)
{
    size_t begin = l->at, at = begin;
    bool is_after_dot = begin > 0 && l->p[begin - 1] == '.'; /* x.1.2 are two subscripts */
    if (l->p[at] == '0' && at + 1 < l->n && memchr("bBoOxX", l->p[at + 1], 6)) {
        int base = (l->p[at + 1] | 32) == 'b' ? 2 : (l->p[at + 1] | 32) == 'o' ? 8 : 16;
        size_t first = at + 2 + (at + 2 < l->n && l->p[at + 2] == '_');
        size_t end = skip_digits(l, first, base);
        if (end > first) {
            convert_int(l, t, at + 2, end, base);
            l->at = end;
            return;
        }
    }
    size_t digits_end = skip_digits(l, at, 10);
    at = digits_end;
    bool is_double = false;
    if (!is_after_dot) {
        if (at + 1 < l->n && l->p[at] == '.' && is_digit_of(l->p[at + 1], 10)) {
            is_double = true;
            at = skip_digits(l, at + 1, 10);
        }
        if (at < l->n && (l->p[at] | 32) == 'e') {
            size_t exponent = at + 1;
            if (exponent < l->n && (l->p[exponent] == '+' || l->p[exponent] == '-'))
                exponent++;
            if (exponent < l->n && is_digit_of(l->p[exponent], 10)) {
                is_double = true;
                at = skip_digits(l, exponent, 10);
            }
        }
    }
    if (is_double) {
        char *digits = jinja_alloc(l->j, at - begin + 1, 1);
        size_t n = 0;
        for (size_t i = begin; i < at; i++)
            if (l->p[i] != '_')
                digits[n++] = l->p[i];
        t->kind = TOKEN_DOUBLE;
        t->constant = value_double(strtod(digits, NULL));
        l->at = at;
        return;
    }
    if (l->p[begin] == '0') { /* no octal of the old kind: "007" are two numbers */
        digits_end = begin + 1;
        while (digits_end < l->n &&
               (l->p[digits_end] == '0' ||
                (l->p[digits_end] == '_' && digits_end + 1 < l->n && l->p[digits_end + 1] == '0')))
            digits_end++;
    }
    convert_int(l, t, begin, digits_end, 10);
    l->at = digits_end;
}

static uint32_t hex_escape(struct lexer *l, struct token *t, size_t *at, size_t end, int n_digits)
{
    uint32_t cp = 0;
    for (int i = 0; i < n_digits; i++, (*at)++) {
        if (*at >= end || !is_digit_of(l->p[*at], 16))
            fail_at(l, t, "a string with a cut-off escape (\\x, \\u or \\U)");
        char c = l->p[*at];
        cp = cp << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (cp > 0x10ffff)
        fail_at(l, t, "a string with an escape above U+10FFFF");
    return cp;
}

/* The escapes of Python's strings; an unknown one stays as it is. */
static void unescape(struct lexer *l, struct token *t, size_t begin, size_t end)
{
    struct builder *b = builder_begin(l->j);
    for (size_t at = begin; at < end;) {
        const char *back = memchr(l->p + at, '\\', end - at);
        size_t stop = back ? (size_t)(back - l->p) : end;
        builder_put(l->j, b, l->p + at, stop - at, false);
        at = stop;
        if (!back)
            break;
        static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
        char c = l->p[at + 1];
        const char *simple = strchr(from, c);
        at += 2;
        if (c && simple) {
            builder_put(l->j, b, &to[simple - from], 1, false);
        } else if (c >= '0' && c <= '7') {
            uint32_t cp = (uint32_t)(c - '0');
            for (int i = 0; i < 2 && at < end && l->p[at] >= '0' && l->p[at] <= '7'; i++)
                cp = cp * 8 + (uint32_t)(l->p[at++] - '0');
            builder_put_char(l->j, b, cp, false);
        } else if (c == 'x' || c == 'u' || c == 'U') {
            uint32_t cp = hex_escape(l, t, &at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8);
            builder_put_char(l->j, b, cp, false);
        } else if (c == 'N') {
            l->j->line = t->line;
            l->j->column = t->column;
            jinja_fail(l->j, ERR_UNSUPPORTED, "characters by name (\\N{...}) are not supported");
        } else if (c != '\n') {
            builder_put(l->j, b, "\\", 1, false);
            at--;
            uint32_t cp;
            size_t n = utf8_next(l->p + at, &cp);
            builder_put(l->j, b, l->p + at, n, false);
            at += n;
        }
    }
    t->constant = builder_finish(l->j, b);
}

static void lex_string(struct lexer *l, struct token *t)
{
    char quote = l->p[l->at];
    size_t begin = l->at + 1, at = begin;
    while (at < l->n && l->p[at] != quote)
        at += l->p[at] == '\\' ? 2 : 1;
    if (at >= l->n)
        fail_at(l, t, "a string without its end");
    t->kind = TOKEN_STRING;
    unescape(l, t, begin, at);
    l->at = at + 1;
}

static void lex_operator(struct lexer *l, struct token *t)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const char *op = NULL;
    for (size_t i = 0; i < sizeof operators / sizeof *operators && !op; i++)
        if (starts_with(l, l->at, operators[i]))
            op = operators[i];
    if (!op) {
        uint32_t cp;
        size_t n = utf8_next(l->p + l->at, &cp);
        l->j->line = t->line;
        l->j->column = t->column;
        jinja_fail(l->j, ERR_FORMAT, "an unexpected character \"%.*s\"", cp < 0x20 ? 0 : (int)n,
                   l->p + l->at);
    }
    if (strchr("([{", *op)) {
        if (l->n_open == JINJA_MAX_NESTING) {
            l->j->line = t->line;
            l->j->column = t->column;
            jinja_fail(l->j, ERR_LIMIT, "brackets nested more than %d deep", JINJA_MAX_NESTING);
        }
        l->open[l->n_open++] = *op == '(' ? ')' : *op == '[' ? ']' : '}';
    } else if (strchr(")]}", *op)) {
        if (l->n_open == 0 || l->open[l->n_open - 1] != *op) {
            l->j->line = t->line;
            l->j->column = t->column;
            if (l->n_open == 0)
                jinja_fail(l->j, ERR_FORMAT, "unexpected '%s'", op);
            jinja_fail(l->j, ERR_FORMAT, "unexpected '%s', expected '%c'", op, l->open[l->n_open - 1]);
        }
        l->n_open--;
    }
    t->kind = TOKEN_OPERATOR;
    t->text = (struct str){l->p + l->at, strlen(op)};
    l->at += strlen(op);
}

/* One token inside a tag. */
static void lex_tag(struct lexer *l, struct token *t)
{
    bool is_block = l->state == LEX_BLOCK;
    size_t end = 0;
    if (l->n_open == 0) {
        if (is_block)
            end = block_end(l, l->at, "%}");
        else if (starts_with(l, l->at, "-}}"))
            end = skip_spaces(l, l->at + 3);
        else if (starts_with(l, l->at, "}}"))
            end = l->at + 2;
    }
    locate(l, l->at, t);
    if (end > 0) {
        t->kind = is_block ? TOKEN_BLOCK_END : TOKEN_VARIABLE_END;
        t->text = (struct str){is_block ? "%}" : "}}", 2};
        l->at = end;
        l->state = LEX_ROOT;
        return;
    }
    size_t after = skip_spaces(l, l->at);
    if (after > l->at) {
        l->at = after;
        lex_tag(l, t); /* at most one level: what follows is no whitespace */
        return;
    }
    if (l->at >= l->n) {
        t->kind = TOKEN_END;
        return;
    }
    uint32_t cp;
    size_t n = utf8_next(l->p + l->at, &cp);
    if (cp >= '0' && cp <= '9') {
        lex_number(l, t);
    } else if (cp == '\'' || cp == '"') {
        lex_string(l, t);
    } else if (char_is_name(cp)) {
        size_t begin = l->at;
        for (; l->at < l->n; l->at += n) {
            n = utf8_next(l->p + l->at, &cp);
            if (!char_is_name(cp))
                break;
        }
        t->kind = TOKEN_NAME;
        t->text = (struct str){l->p + begin, l->at - begin};
    } else {
        lex_operator(l, t);
    }
}

void lexer_next(struct lexer *l, struct token *t)
{
    memset(t, 0, sizeof *t);
    if (l->has_data) {
        l->has_data = false;
        *t = l->begin;
        return;
    }
    bool is_given = false;
    while (!is_given) {
        switch (l->state) {
        case LEX_ROOT:
            is_given = lex_root(l, t);
            break;
        case LEX_RAW:
            is_given = lex_raw(l, t);
            break;
        default:
            lex_tag(l, t);
            is_given = true;
        }
    }
}
