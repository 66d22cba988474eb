/* Regular expressions of pre-tokenizers, on PCRE2; the best known patterns have scanners (tokenizer_words.c).
 *
 * The patterns are written for Oniguruma (Ruby syntax, UTF-8). They are translated piece by piece: what means
 * the same in PCRE2 is copied, classes that differ are spelled out (\s is the 25 code points of White_Space,
 * which PCRE2 does not agree with on U+180E; \w counts marks, letter numbers and circled letters), and
 * everything else is refused, so that no pattern is silently read as something else.
 *
 * \p classes are those of Unicode 16.0, whatever version PCRE2 has: as far as the two agree its own class is used,
 * with what was assigned since then beside it; else the class is spelled out.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "unicode/unicode.h"

#define WHITE                                                                                                \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
    "3000}"
#define NOT_WHITE                                                                                            \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"          \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define CIRCLED "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define SUPERSCRIPT_DIGITS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define JOINERS "\\x{200c}\\x{200d}"

#define MAX_PATTERN_BYTES ((size_t)1 << 16)
/* The budget of a text. Honest patterns take some tens of steps a byte. */
#define MIN_TEXT_STEPS ((size_t)10000000)
#define STEPS_PER_BYTE ((size_t)512)
#define HEAP_LIMIT_KIB (1u << 20)
#define JIT_STACK_BYTES ((size_t)64 << 20)

struct regex {
    pcre2_code *code;               /* NULL where one of the others is there */
    char *literal;                  /* the text itself */
    const struct word_rules *rules; /* a scanner does it */
};

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* made when the machine stack does not suffice */
    size_t steps_left;
    size_t last; /* where the last part of a pattern was tried */
};

/* PCRE2's own limits count for each start of a match anew and leave out what simple repeats walk over. So patterns are
 * compiled with a call before each of their parts, which counts both. */
static int count_step(pcre2_callout_block *at, void *data)
{
    struct regex_scratch *s = data;
    size_t here = at->current_position;
    size_t steps = 1 + (here > s->last ? here - s->last : s->last - here);
    s->last = here;
    if (steps > s->steps_left) {
        s->steps_left = 0;
        return PCRE2_ERROR_CALLOUT;
    }
    s->steps_left -= steps;
    return 0;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool refuse(const char *what, size_t n, const char *pattern, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "pattern \"%.200s\": \"%.*s\" is not supported", pattern, (int)n,
                   what);
}

/* The oldest and the newest version of Unicode whose classes only lack, or do not even lack, what newer_runs of the
 * tables names. */
static bool pcre2_agrees(void)
{
    char version[32] = "";
    if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) > (int)sizeof version ||
        pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version) < 0)
        return false;
    int major = atoi(version);
    return major >= 14 && major <= 16;
}

/* Appends a set to a class of PCRE2. U+1171E went from Mn to Mc meanwhile, so these two agree only together. */
static void append_set(struct buf *out, const struct unicode_set *set, const char *name, size_t n,
                       bool negated)
{
    const uint32_t marks = 1u << UNICODE_MN | 1u << UNICODE_MC;
    bool same = set->categories && !(set->categories >> UNICODE_CN & 1) &&
                ((set->categories & marks) == 0 || (set->categories & marks) == marks);
    bool by_name = same && !negated && pcre2_agrees();
    if (by_name)
        buf_printf(out, "\\p{%.*s}", (int)n, name);
    unicode_set_append(out, set, negated, by_name);
}

static void append_named(struct buf *out, const char *name)
{
    struct unicode_set set;
    if (unicode_set_find(&set, name, strlen(name)))
        append_set(out, &set, name, strlen(name), false);
}

/* \w as the pattern engine has it, or as the library's own code has it. */
static void append_word(struct buf *out, bool own_code)
{
    static const char *const names[] = {"L", "M", "Nd", "Nl", "Pc"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        append_named(out, names[i]);
    buf_puts(out, own_code ? CIRCLED JOINERS : CIRCLED SUPERSCRIPT_DIGITS);
}

/* \p{name}, \P{name}, \p{^name} at p. */
static bool translate_property(struct buf *out, const char *p, bool in_class, size_t *used,
                               const char *pattern, struct err *e)
{
    const char *close = p[2] == '{' ? strchr(p, '}') : NULL;
    if (!close)
        return refuse(p, p[2] ? 3 : 2, pattern, e);
    *used = (size_t)(close - p) + 1;
    const char *name = p + 3 + (p[3] == '^');
    bool negated = (p[1] == 'P') != (p[3] == '^');
    struct unicode_set set;
    if (!unicode_set_find(&set, name, (size_t)(close - name)))
        return refuse(p, *used, pattern, e);
    if (!in_class)
        buf_puts(out, negated ? "[^" : "[");
    append_set(out, &set, name, (size_t)(close - name), negated && in_class);
    if (!in_class)
        buf_putc(out, ']');
    return true;
}

/* Copies one escape at p (which is a backslash); *used is its length. */
static bool translate_escape(struct buf *out, const char *p, bool in_class, size_t *used, const char *pattern,
                             struct err *e)
{
    char c = p[1];
    *used = 2;
    if (c == 'd' || c == 'D') {
        size_t ignored;
        return translate_property(out, c == 'd' ? "\\p{Nd}" : "\\P{Nd}", in_class, &ignored, pattern, e);
    }
    if (c == 's' || c == 'S' || c == 'w' || (c == 'W' && !in_class)) {
        if (!in_class)
            buf_puts(out, c == 'W' ? "[^" : "[");
        if (c == 's' || c == 'S')
            buf_puts(out, c == 's' ? WHITE : NOT_WHITE);
        else
            append_word(out, false);
        if (!in_class)
            buf_putc(out, ']');
        return true;
    }
    if (c == 'p' || c == 'P')
        return translate_property(out, p, in_class, used, pattern, e);
    if (c == 'u' && is_hex(p[2]) && is_hex(p[3]) && is_hex(p[4]) && is_hex(p[5])) {
        *used = 6;
        buf_printf(out, "\\x{%.4s}", p + 2);
        return true;
    }
    if (c == 'x') {
        const char *close = p[2] == '{' ? strchr(p, '}') : NULL;
        if (close)
            *used = (size_t)(close - p) + 1;
        else if (p[2] >= '0' && p[2] <= '7' && is_hex(p[3])) /* from \x80 on it would be a byte */
            *used = 4;
        else
            return refuse(p, 2, pattern, e);
        buf_append(out, p, *used);
        return true;
    }
    bool same = c && (strchr("rntf", c) || (!in_class && strchr("Az", c)) || !is_alnum(c));
    if (!same || (uint8_t)c >= 0x80)
        return refuse(p, c ? 2 : 1, pattern, e);
    buf_append(out, p, 2);
    return true;
}

/* What may follow "(?": p points at the question mark. */
static bool group_is_known(const char *p, bool at_start)
{
    static const char *const known[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?-i:"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(p, known[i], strlen(known[i])) == 0)
            return true;
    /* elsewhere the two dialects disagree on which alternatives it covers */
    return at_start && strncmp(p, "?i)", 3) == 0;
}

static bool translate_class(struct buf *out, const char **at, const char *pattern, struct err *e)
{
    const char *p = *at;
    buf_putc(out, *p++);
    if (*p == '^')
        buf_putc(out, *p++);
    for (bool first = true; *p != ']' || first; first = false) {
        size_t used = 1;
        if (!*p)
            return err_set(e, ERR_FORMAT, "pattern \"%.200s\": a class has no end", pattern);
        if (*p == '[' || *p == ']' || (p[0] == '&' && p[1] == '&'))
            return refuse(p, 1, pattern, e);
        if (*p == '\\') {
            if (!translate_escape(out, p, true, &used, pattern, e))
                return false;
        } else {
            buf_putc(out, *p);
        }
        p += used;
    }
    buf_putc(out, ']');
    *at = p + 1;
    return true;
}

/* Copies {n}, {n,} or {n,m}. */
static bool translate_interval(struct buf *out, const char **at, const char *pattern, struct err *e)
{
    const char *p = *at;
    size_t n = 1 + strspn(p + 1, "0123456789");
    bool good = n > 1;
    if (p[n] == ',')
        n += 1 + strspn(p + n + 1, "0123456789");
    if (!good || p[n] != '}' || p[n + 1] == '+')
        return refuse(p, p[n] ? n + 1 : n, pattern, e);
    buf_append(out, p, n + 1);
    *at = p + n + 1;
    return true;
}

static bool translate(struct buf *out, const char *pattern, struct err *e)
{
    const char *p = pattern;
    while (*p) {
        size_t used = 1;
        if (*p == '\\') {
            if (!translate_escape(out, p, false, &used, pattern, e))
                return false;
        } else if (*p == '[') {
            if (!translate_class(out, &p, pattern, e))
                return false;
            used = 0;
        } else if (*p == '{') {
            if (!translate_interval(out, &p, pattern, e))
                return false;
            used = 0;
        } else if (p[0] == '(' && (p[1] == '*' || (p[1] == '?' && !group_is_known(p + 1, p == pattern)))) {
            return refuse(p, strnlen(p, 4), pattern, e);
        } else {
            buf_putc(out, *p);
        }
        p += used;
    }
    return true;
}

static bool compile(struct regex **out, const char *pattern, size_t n, struct err *e)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return err_set(e, ERR_NOMEM, "out of memory compiling a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 100);
    int code;
    PCRE2_SIZE at;
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)pattern, n, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_AUTO_CALLOUT,
                      &code, &at, context);
    pcre2_compile_context_free(context);
    if (!compiled) {
        PCRE2_UCHAR message[128] = "";
        pcre2_get_error_message(code, message, sizeof message);
        return err_set(e, ERR_UNSUPPORTED, "pattern \"%.200s\": %s", pattern, (const char *)message);
    }
    /* without JIT the interpreter does the same, more slowly */
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    *out = xcalloc(1, sizeof **out);
    (*out)->code = compiled;
    return true;
}

bool regex_new(struct regex **out, const char *pattern, struct err *e)
{
    if (strlen(pattern) > MAX_PATTERN_BYTES)
        return err_set(e, ERR_LIMIT, "a pattern of %zu bytes, at most %zu are allowed", strlen(pattern),
                       MAX_PATTERN_BYTES);
    const struct word_rules *rules = word_rules_find(pattern);
    if (rules) {
        *out = xcalloc(1, sizeof **out);
        (*out)->rules = rules;
        return true;
    }
    return regex_new_compiled(out, pattern, e);
}

bool regex_new_compiled(struct regex **out, const char *pattern, struct err *e)
{
    struct buf translated;
    buf_init(&translated, MAX_PATTERN_BYTES * 64);
    bool ok = translate(&translated, pattern, e);
    if (ok && translated.failed)
        ok = err_set(e, ERR_LIMIT, "pattern \"%.200s...\" is too long", pattern);
    ok = ok && compile(out, translated.p ? translated.p : "", translated.n, e);
    buf_fini(&translated);
    return ok;
}

bool regex_new_literal(struct regex **out, const char *text, struct err *e)
{
    if (!*text)
        return err_set(e, ERR_UNSUPPORTED, "an empty split pattern is not supported");
    *out = xcalloc(1, sizeof **out);
    (*out)->literal = xstrdup(text);
    return true;
}

bool regex_new_builtin(struct regex **out, enum regex_builtin which, struct err *e)
{
    const struct unicode_set punctuation = unicode_punctuation();
    struct buf pattern;
    buf_init(&pattern, MAX_PATTERN_BYTES * 64);
    switch (which) {
    case REGEX_WHITE:
        buf_puts(&pattern, "[" WHITE "]");
        break;
    case REGEX_PUNCTUATION:
        buf_putc(&pattern, '[');
        unicode_set_append(&pattern, &punctuation, false, false);
        buf_putc(&pattern, ']');
        break;
    case REGEX_WORD_OR_OTHER:
        buf_putc(&pattern, '[');
        append_word(&pattern, true);
        buf_puts(&pattern, "]+|[^" WHITE);
        append_word(&pattern, true);
        buf_puts(&pattern, "]+");
        break;
    }
    bool ok = compile(out, pattern.p, pattern.n, e);
    buf_fini(&pattern);
    return ok;
}

void regex_free(struct regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r->literal);
    free(r);
}

const struct word_rules *regex_word_rules(const struct regex *r)
{
    return r->rules;
}

void regex_scratch_expect(struct regex_scratch *s, size_t bytes)
{
    size_t more;
    if (!size_mul(bytes, STEPS_PER_BYTE, &more) || !size_add(s->steps_left, more, &s->steps_left))
        s->steps_left = SIZE_MAX;
}

struct regex_scratch *regex_scratch_new(size_t bytes)
{
    struct regex_scratch *s = xcalloc(1, sizeof *s);
    s->data = pcre2_match_data_create(1, NULL); /* the whole match is all that is asked for */
    s->context = pcre2_match_context_create(NULL);
    if (s->context) {
        pcre2_set_heap_limit(s->context, HEAP_LIMIT_KIB);
        pcre2_set_match_limit(s->context, UINT32_MAX); /* the budget is what ends a match */
        pcre2_set_callout(s->context, count_step, s);
    }
    s->steps_left = MIN_TEXT_STEPS;
    regex_scratch_expect(s, bytes);
    return s;
}

void regex_scratch_free(struct regex_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

static int match_at(const struct regex *r, struct regex_scratch *s, const char *text, size_t n, size_t from,
                    uint32_t options)
{
    int rc =
        pcre2_match(r->code, (PCRE2_SPTR)text, n, from, options | PCRE2_NO_UTF_CHECK, s->data, s->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !s->stack) {
        s->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_BYTES, NULL);
        if (s->stack) {
            pcre2_jit_stack_assign(s->context, NULL, s->stack);
            rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, options | PCRE2_NO_UTF_CHECK, s->data,
                             s->context);
        }
    }
    return rc;
}

bool regex_find(const struct regex *r, struct regex_scratch *s, const char *text, size_t n, size_t from,
                size_t not_empty_at, bool *found, size_t *begin, size_t *end, struct err *e)
{
    *found = false;
    if (r->rules || r->literal) {
        size_t literal_n = r->literal ? strlen(r->literal) : 0;
        const char *hit = text + from;
        if (literal_n == 1)
            hit = memchr(text + from, r->literal[0], n - from);
        else if (r->literal)
            hit = memmem(text + from, n - from, r->literal, literal_n);
        *found = from < n && hit;
        if (*found) {
            *begin = (size_t)(hit - text);
            *end = r->literal ? *begin + literal_n : word_rules_end(r->rules, text, n, from);
        }
        return true;
    }
    if (!s->data || !s->context)
        return err_set(e, ERR_NOMEM, "out of memory matching a pattern");
    s->last = from;
    int rc = match_at(r, s, text, n, from, 0);
    const PCRE2_SIZE *where = pcre2_get_ovector_pointer(s->data);
    if (rc >= 0 && where[0] == where[1] && where[0] == not_empty_at) {
        /* what an empty match hides must not be lost: first another match here, then one further on */
        rc = match_at(r, s, text, n, from, PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED);
        if (rc == PCRE2_ERROR_NOMATCH && from < n) {
            do
                from++;
            while (from < n && ((uint8_t)text[from] & 0xc0) == 0x80);
            rc = match_at(r, s, text, n, from, 0);
        }
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return true;
    if (rc == PCRE2_ERROR_CALLOUT)
        return err_set(
            e, ERR_LIMIT,
            "splitting text of %zu bytes into words takes more than %zu steps a byte: a pattern of "
            "the tokenizer runs wild on it",
            n, STEPS_PER_BYTE);
    if (rc < 0) {
        PCRE2_UCHAR message[128] = "";
        pcre2_get_error_message(rc, message, sizeof message);
        return err_set(e, ERR_LIMIT, "splitting text of %zu bytes into words: %s", n, (const char *)message);
    }
    *begin = where[0];
    *end = where[1];
    if (*begin > *end || *begin < from || *end > n)
        return err_set(e, ERR_UNSUPPORTED, "a split pattern gives matches that do not go forward");
    *found = true;
    return true;
}
