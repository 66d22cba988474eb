/* The two large members of a tokenizer.json, model.vocab and model.merges, read straight from the text: as
 * JSON trees they would take ten times the memory and most of the time of opening.
 *
 * Everything else is cut out and left to the JSON layer. The text is known to be UTF-8.
 */
#include <string.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

struct cursor {
    const char *begin, *p, *end;
    const char *where, *part; /* for messages: the file, "model.vocab" */
    struct err *e;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && is_blank(*p))
        p++;
    return p;
}

/* p stands at a quote; returns the place behind the closing one, end when there is none. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\' && p + 1 < end)
            p++;
    return p < end ? p + 1 : end;
}

/* Behind the value that starts at p, by brackets and quotes alone. */
static const char *skip_value(const char *p, const char *end)
{
    size_t depth = 0;
    while (p < end) {
        char c = *p;
        if (c == '"') {
            p = skip_string(p, end);
            if (depth == 0)
                return p;
            continue;
        }
        if ((c == '}' || c == ']' || c == ',') && depth == 0)
            return p;
        p++;
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            return p;
    }
    return end;
}

/* Finds members of the object that starts at p; of equal keys the last counts. Stops at what is no JSON. */
static void find_members(struct str object, const char *const *keys, struct str *values, int n_keys)
{
    const char *p = skip_blanks(object.p, object.p + object.n), *end = object.p + object.n;
    if (p == end || *p != '{')
        return;
    for (p = skip_blanks(p + 1, end); p < end && *p == '"'; p = skip_blanks(p + 1, end)) {
        const char *key = p + 1;
        p = skip_string(p, end);
        size_t n = (size_t)(p - key) - 1;
        p = skip_blanks(p, end);
        if (p == end || *p != ':')
            return;
        const char *value = skip_blanks(p + 1, end);
        p = skip_value(value, end);
        for (int i = 0; i < n_keys; i++)
            if (n == strlen(keys[i]) && memcmp(key, keys[i], n) == 0)
                values[i] = (struct str){value, (size_t)(p - value)};
        p = skip_blanks(p, end);
        if (p == end || *p != ',')
            return;
    }
}

void tokenizer_scan(struct str json, struct str *vocab, struct str *merges, struct buf *rest)
{
    static const char *const root_keys[] = {"model"}, *const model_keys[] = {"vocab", "merges"};
    struct str model = {0}, found[2] = {0};
    find_members(json, root_keys, &model, 1);
    if (model.p)
        find_members(model, model_keys, found, 2);
    *vocab = found[0].n > 0 && found[0].p[0] == '{' ? found[0] : (struct str){0};
    *merges = found[1].n > 0 && found[1].p[0] == '[' ? found[1] : (struct str){0};
    bool vocab_first = vocab->p < merges->p;
    const struct str cuts[2] = {vocab_first ? *vocab : *merges, vocab_first ? *merges : *vocab};
    const char *done = json.p;
    for (int i = 0; i < 2; i++) {
        if (!cuts[i].p)
            continue;
        buf_append(rest, done, (size_t)(cuts[i].p - done));
        buf_puts(rest, cuts[i].p[0] == '{' ? "{}" : "[]");
        done = cuts[i].p + cuts[i].n;
    }
    buf_append(rest, done, json.n - (size_t)(done - json.p));
}

static bool fail(struct cursor *c, const char *expected)
{
    return err_set(c->e, ERR_FORMAT, "%s: %s: byte %zu: expected %s", c->where, c->part,
                   (size_t)(c->p - c->begin), expected);
}

static bool take(struct cursor *c, char wanted)
{
    c->p = skip_blanks(c->p, c->end);
    if (c->p == c->end || *c->p != wanted)
        return false;
    c->p++;
    return true;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* The four digits of a \u escape at p. */
static bool take_code_unit(struct cursor *c, uint32_t *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++, c->p++) {
        int digit = c->p < c->end ? hex_value(*c->p) : -1;
        if (digit < 0)
            return fail(c, "four hexadecimal digits");
        *unit = *unit << 4 | (uint32_t)digit;
    }
    return true;
}

/* What stands behind a backslash. */
static bool take_escape(struct cursor *c, struct buf *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char name = c->p < c->end ? *c->p++ : '\0';
    const char *known = name ? strchr(names, name) : NULL;
    if (known) {
        buf_putc(out, values[known - names]);
        return true;
    }
    uint32_t cp, low;
    if (name != 'u')
        return fail(c, "an escape");
    if (!take_code_unit(c, &cp))
        return false;
    if (cp >= 0xd800 && cp < 0xdc00) {
        if (c->end - c->p < 6 || c->p[0] != '\\' || c->p[1] != 'u')
            return fail(c, "the second half of a surrogate pair");
        c->p += 2;
        if (!take_code_unit(c, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(c, "the second half of a surrogate pair");
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    } else if (cp == 0 || (cp >= 0xdc00 && cp <= 0xdfff)) {
        return fail(c, "a character other than U+0000 and half a surrogate pair");
    }
    char bytes[4];
    buf_append(out, bytes, utf8_put(bytes, cp));
    return true;
}

/* Reads a string; *out lies in the text, or in scratch when there are escapes. */
static bool take_string(struct cursor *c, struct buf *scratch, struct str *out)
{
    if (!take(c, '"'))
        return fail(c, "a string");
    const char *start = c->p;
    bool is_copy = false;
    for (;; c->p++) {
        if (c->p == c->end || (uint8_t)*c->p < 0x20)
            return fail(c, "the end of a string");
        if (*c->p == '"')
            break;
        if (*c->p != '\\')
            continue;
        if (!is_copy)
            buf_clear(scratch);
        is_copy = true;
        buf_append(scratch, start, (size_t)(c->p - start));
        c->p++;
        if (!take_escape(c, scratch))
            return false;
        start = c->p--;
    }
    *out = (struct str){start, (size_t)(c->p - start)};
    if (is_copy) {
        buf_append(scratch, start, out->n);
        *out = (struct str){scratch->p, scratch->n};
    }
    c->p++;
    return true;
}

/* After a member: true when another one follows; *ok tells whether the text is as it must be. */
static bool take_comma(struct cursor *c, char close, bool *ok)
{
    if (take(c, ','))
        return true;
    if (!take(c, close))
        *ok = fail(c, "a comma or the closing bracket");
    return false;
}

static bool take_vocab_member(struct cursor *c, struct bpe_model *m, struct buf *scratch)
{
    struct str token;
    if (!take_string(c, scratch, &token))
        return false;
    if (!take(c, ':'))
        return fail(c, "a colon");
    c->p = skip_blanks(c->p, c->end);
    int64_t id = 0;
    const char *digits = c->p;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++)
        id = id < TOKENIZER_MAX_ID ? id * 10 + (*c->p - '0') : id;
    if (c->p == digits || (c->p < c->end && (*c->p == '.' || (*c->p | 32) == 'e')))
        return fail(c, "an id, which is an integer");
    const char *other = id < TOKENIZER_MAX_ID ? vocab_text(&m->vocab, (int32_t)id) : NULL;
    if (other)
        return err_set(c->e, ERR_FORMAT, "%s: %s: \"%.100s\" and \"%.*s\" have the same id %d", c->where,
                       c->part, other, (int)(token.n < 100 ? token.n : 100), token.p, (int)id);
    bool is_new;
    int32_t checked = id < TOKENIZER_MAX_ID ? (int32_t)id : TOKENIZER_MAX_ID;
    if (!vocab_add(&m->vocab, token.n > 0 ? token.p : "", token.n, checked, &is_new, c->e))
        return err_wrap(c->e, "%s: %s", c->where, c->part);
    return is_new || err_set(c->e, ERR_FORMAT, "%s: %s: \"%.*s\" is there twice", c->where, c->part,
                             (int)(token.n < 100 ? token.n : 100), token.p);
}

bool tokenizer_read_vocab(struct bpe_model *m, struct str text, const char *where, struct err *e)
{
    struct cursor c = {text.p, text.p, text.p + text.n, where, "model.vocab", e};
    struct buf scratch;
    buf_init(&scratch, TOKENIZER_MAX_JSON_BYTES);
    /* a member is at least  "ab":123456,  for most; a guess that is too small only costs growing */
    vocab_reserve(&m->vocab, text.n / 17, text.n / 2);
    bool ok = take(&c, '{') || fail(&c, "an object");
    if (ok && !take(&c, '}')) {
        do
            ok = take_vocab_member(&c, m, &scratch);
        while (ok && take_comma(&c, '}', &ok));
    }
    buf_fini(&scratch);
    return ok;
}

/* A merge is "a b" or ["a", "b"]. */
static bool take_pair(struct cursor *c, struct buf scratch[2], struct str pair[2])
{
    if (take(c, '['))
        return take_string(c, &scratch[0], &pair[0]) && (take(c, ',') || fail(c, "a pair of tokens")) &&
               take_string(c, &scratch[1], &pair[1]) && (take(c, ']') || fail(c, "a pair of tokens"));
    struct str both;
    if (!take_string(c, &scratch[0], &both))
        return false;
    const char *blank = both.n > 0 ? memchr(both.p, ' ', both.n) : NULL;
    size_t n = blank ? (size_t)(blank - both.p) : 0;
    if (!blank || memchr(blank + 1, ' ', both.n - n - 1))
        return fail(c, "a pair of tokens with one blank between");
    pair[0] = (struct str){both.p, n};
    pair[1] = (struct str){blank + 1, both.n - n - 1};
    return true;
}

static bool take_merge(struct cursor *c, struct bpe_model *m, uint32_t rank, int32_t *last_id,
                       struct buf scratch[3])
{
    struct str pair[2];
    if (!take_pair(c, scratch, pair))
        return false;
    struct buf *joined = &scratch[2];
    buf_clear(joined);
    buf_append(joined, pair[0].p, pair[0].n);
    buf_append(joined, pair[1].p, pair[1].n);
    int32_t left = vocab_find(&m->vocab, pair[0].p, pair[0].n);
    int32_t right = vocab_find(&m->vocab, pair[1].p, pair[1].n);
    /* tokens are usually numbered in the order of their merges, and a look is cheaper than a search */
    int32_t id = *last_id + 1;
    const char *guess = vocab_text(&m->vocab, id);
    if (joined->n == 0)
        id = -1;
    else if (!guess || strcmp(guess, joined->p) != 0)
        id = vocab_find(&m->vocab, joined->p, joined->n);
    if (left < 0 || right < 0 || id < 0)
        return err_set(c->e, ERR_FORMAT, "%s: %s[%u]: \"%.100s\" or a part of it is not in the vocabulary",
                       c->where, c->part, (unsigned)rank, joined->n > 0 ? joined->p : "");
    *last_id = id;
    merges_put(&m->merges, left, right, rank, id);
    return true;
}

bool tokenizer_read_merges(struct bpe_model *m, struct str text, const char *where, struct err *e)
{
    struct cursor c = {text.p, text.p, text.p + text.n, where, "model.merges", e};
    struct buf scratch[3];
    for (int i = 0; i < 3; i++)
        buf_init(&scratch[i], TOKENIZER_MAX_JSON_BYTES);
    uint32_t rank = 0;
    int32_t last_id = -1;
    bool ok = take(&c, '[') || fail(&c, "an array");
    if (ok && !take(&c, ']')) {
        do
            ok = take_merge(&c, m, rank++, &last_id, scratch);
        while (ok && take_comma(&c, ']', &ok));
    }
    for (int i = 0; i < 3; i++)
        buf_fini(&scratch[i]);
    return ok;
}
