/* Patterns of strings and ranges of whole numbers as expressions of a grammar. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "server/schema_grammar.h"

#define DEPTH_MAX 100
/* Any character that stands for itself in a JSON string. */
#define ANY "[^\"\\\\\\x00-\\x1f\\x7f]"

struct pattern {
    const char *p;
    const char *path;
    struct buf *out;
    struct err *e;
    int depth;
};

static bool refuse(struct pattern *r, const char *what)
{
    return err_set(r->e, ERR_FORMAT, "%s.pattern: %s", r->path, what);
}

/* Inside of a class. */
static void put_class_character(struct buf *out, uint32_t cp)
{
    if (cp < 0x80 && !strchr("]^-\\", (int)cp) && cp >= 0x20)
        buf_putc(out, (char)cp);
    else
        buf_printf(out, "\\U%08x", cp);
}

/* d, w, s: what the class holds. NULL: not such a letter. */
static const char *shorthand(char c)
{
    return c == 'd' ? "0-9" : c == 'w' ? "a-zA-Z0-9_" : c == 's' ? " " : NULL;
}

static bool read_escape(struct pattern *r, uint32_t *cp)
{
    static const char letters[] = "nrtfv", values[] = "\n\r\t\f\v";
    char c = *r->p;
    if (!c)
        return refuse(r, "ends with a backslash");
    r->p++;
    const char *found = strchr(letters, c);
    if (found) {
        *cp = (unsigned char)values[found - letters];
        return refuse(r, "control characters are not supported");
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return refuse(r, "an escape that is not supported");
    *cp = (unsigned char)c;
    return true;
}

static bool read_class_item(struct pattern *r, uint32_t *cp)
{
    if (*r->p == '\\') {
        r->p++;
        return read_escape(r, cp);
    }
    r->p += utf8_next(r->p, cp);
    return true;
}

static bool read_class(struct pattern *r)
{
    bool is_negated = r->p[1] == '^';
    r->p += is_negated ? 2 : 1;
    buf_puts(r->out, is_negated ? "[^\"\\\\\\x00-\\x1f\\x7f" : "[");
    for (bool is_first = true; *r->p && (*r->p != ']' || is_first); is_first = false) {
        uint32_t low, high;
        const char *letters = *r->p == '\\' ? shorthand(r->p[1]) : NULL;
        if (letters) {
            buf_puts(r->out, letters);
            r->p += 2;
            continue;
        }
        if (!read_class_item(r, &low))
            return false;
        high = low;
        if (r->p[0] == '-' && r->p[1] && r->p[1] != ']') {
            r->p++;
            if (!read_class_item(r, &high))
                return false;
            if (high < low)
                return refuse(r, "a range that ends before it begins");
        }
        if (!is_negated && ((low <= '"' && high >= '"') || (low <= '\\' && high >= '\\') || low < 0x20))
            return refuse(r, "a class with characters that JSON escapes is not supported");
        put_class_character(r->out, low);
        if (high > low) {
            buf_putc(r->out, '-');
            put_class_character(r->out, high);
        }
    }
    if (*r->p != ']')
        return refuse(r, "a class without end");
    r->p++;
    buf_putc(r->out, ']');
    return true;
}

static void put_literal(struct buf *out, uint32_t cp)
{
    char bytes[4];
    if (cp == '"' || cp == '\\') /* as JSON has it */
        buf_printf(out, "\"\\\\\\%c\"", (int)cp);
    else {
        buf_putc(out, '"');
        buf_append(out, bytes, utf8_put(bytes, cp));
        buf_putc(out, '"');
    }
}

static bool read_ways(struct pattern *r);

static bool read_group(struct pattern *r)
{
    r->p++;
    if (r->p[0] == '?' && r->p[1] == ':')
        r->p += 2;
    else if (r->p[0] == '?')
        return refuse(r, "groups that look around or have names are not supported");
    buf_puts(r->out, "(");
    if (++r->depth > DEPTH_MAX)
        return refuse(r, "nested too deep");
    if (!read_ways(r))
        return false;
    r->depth--;
    if (*r->p != ')')
        return refuse(r, "a group without end");
    r->p++;
    buf_puts(r->out, ")");
    return true;
}

static bool read_atom(struct pattern *r)
{
    uint32_t cp;
    char c = *r->p;
    if (c == '(')
        return read_group(r);
    if (c == '[')
        return read_class(r);
    if (c == '.') {
        r->p++;
        buf_puts(r->out, ANY);
        return true;
    }
    if (c == '\\') {
        const char *letters = shorthand(r->p[1]);
        r->p++;
        if (letters) {
            r->p++;
            buf_printf(r->out, "[%s]", letters);
            return true;
        }
        if (!read_escape(r, &cp))
            return false;
        put_literal(r->out, cp);
        return true;
    }
    if (strchr("^$*+?{", c))
        return refuse(r, c == '^' || c == '$' ? "^ and $ are supported at the begin and the end alone"
                                              : "a count without anything before it");
    r->p += utf8_next(r->p, &cp);
    if (cp < 0x20)
        return refuse(r, "control characters are not supported");
    put_literal(r->out, cp);
    return true;
}

static bool read_count(struct pattern *r)
{
    if (*r->p == '{') {
        size_t n = strcspn(r->p, "}");
        if (r->p[n] != '}' || strspn(r->p + 1, "0123456789,") != n - 1 || n < 2 || r->p[1] == ',')
            return refuse(r, "expected {m}, {m,} or {m,n}");
        buf_append(r->out, r->p, n + 1);
        r->p += n + 1;
    } else if (*r->p && strchr("*+?", *r->p)) {
        buf_putc(r->out, *r->p++);
    } else {
        return true;
    }
    return (*r->p != '?' && *r->p != '+') || refuse(r, "lazy and possessive counts are not supported");
}

static bool read_ways(struct pattern *r)
{
    while (*r->p && *r->p != ')') {
        if (r->p[0] == '$' && !r->p[1])
            break;
        if (*r->p == '|') {
            buf_puts(r->out, " | ");
            r->p++;
            continue;
        }
        buf_putc(r->out, ' ');
        if (!read_atom(r) || !read_count(r))
            return false;
    }
    return true;
}

bool schema_pattern(struct buf *out, const char *pattern, const char *path, struct err *e)
{
    struct pattern r = {.p = pattern, .path = path, .out = out, .e = e};
    size_t n = strlen(pattern);
    if (n < 2 || pattern[0] != '^' || pattern[n - 1] != '$' || (n > 2 && pattern[n - 2] == '\\'))
        return refuse(&r, "expected a pattern from ^ to $");
    r.p++;
    buf_puts(out, "(");
    if (!read_ways(&r))
        return false;
    if (strcmp(r.p, "$") != 0)
        return refuse(&r, "a ) too many");
    buf_puts(out, ")");
    return true;
}

/* ---- whole numbers ---- */

static void put_any_digits(struct buf *out, int n)
{
    if (n > 0)
        buf_printf(out, " [0-9]{%d}", n);
}

static void put_digit(struct buf *out, char low, char high)
{
    buf_printf(out, " [%c-%c]", low, high);
}

/* Numbers of n digits each, from low to high. */
static void put_same_length(struct buf *out, const char *low, const char *high, int n)
{
    if (n == 0) {
        buf_puts(out, " \"\"");
        return;
    }
    if (low[0] == high[0]) {
        put_digit(out, low[0], low[0]);
        if (n > 1) {
            buf_puts(out, " (");
            put_same_length(out, low + 1, high + 1, n - 1);
            buf_puts(out, ")");
        }
        return;
    }
    static const char zeros[] = "00000000000000000000", nines[] = "99999999999999999999";
    char first = low[0], last = high[0];
    bool is_from_begin = strncmp(low + 1, zeros, (size_t)n - 1) == 0,
         is_to_end = strncmp(high + 1, nines, (size_t)n - 1) == 0;
    const char *between = "";
    if (!is_from_begin) {
        put_digit(out, first, first);
        buf_puts(out, " (");
        put_same_length(out, low + 1, nines, n - 1);
        buf_puts(out, ")");
        between = " |";
        first++;
    }
    if (!is_to_end)
        last--;
    if (first <= last) {
        buf_puts(out, between);
        put_digit(out, first, last);
        put_any_digits(out, n - 1);
        between = " |";
    }
    if (!is_to_end) {
        buf_puts(out, between);
        put_digit(out, high[0], high[0]);
        buf_puts(out, " (");
        put_same_length(out, zeros, high + 1, n - 1);
        buf_puts(out, ")");
    }
}

static void put_natural(struct buf *out, uint64_t low, uint64_t high, const char **between)
{
    char a[24], b[24];
    uint64_t begin = low;
    while (begin <= high) {
        int n = snprintf(a, sizeof a, "%llu", (unsigned long long)begin);
        uint64_t end = 9;
        for (int i = 1; i < n; i++)
            end = end * 10 + 9;
        end = end > high ? high : end;
        snprintf(b, sizeof b, "%llu", (unsigned long long)end);
        buf_puts(out, *between);
        put_same_length(out, a, b, n);
        *between = " |";
        begin = end + 1;
    }
}

void schema_integers(struct buf *out, int64_t low, int64_t high)
{
    const char *between = "";
    buf_puts(out, "(");
    if (high >= 0)
        put_natural(out, low > 0 ? (uint64_t)low : 0, (uint64_t)high, &between);
    if (low < 0) {
        buf_puts(out, between);
        buf_puts(out, " \"-\" (");
        between = "";
        put_natural(out, high < 0 ? (uint64_t)-high : 1, (uint64_t)-low, &between);
        buf_puts(out, ")");
    }
    buf_puts(out, ")");
}
