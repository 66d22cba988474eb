/* The two large members of a tokenizer.json, model.vocab and model.merges, read straight from the text: as
 * JSON trees they would take ten times the memory and most of the time of opening.
 *
 * Everything else is cut out and left to the JSON layer. The text is known to be UTF-8.
 */
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

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

struct wanted {
    const char *key;
    struct wanted *inside; /* members of this one are wanted; else NULL */
    int n_inside;
    struct str value; /* p NULL: not found */
};

/* Finds members of the object at p; of equal keys the last counts. Returns the place behind the object, or NULL at
 * what is no JSON. */
static const char *find_members(const char *p, const char *end, struct wanted *wanted, int n_wanted)
{
    p = skip_blanks(p, end);
    if (p == end || *p != '{')
        return NULL;
    for (p = skip_blanks(p + 1, end); p < end && *p == '"'; p = skip_blanks(p + 1, end)) {
        const char *key = p + 1;
        p = skip_string(p, end);
        size_t n = (size_t)(p - key) - 1;
        p = skip_blanks(p, end);
        if (p == end || *p != ':')
            return NULL;
        const char *value = skip_blanks(p + 1, end);
        struct wanted *found = NULL;
        for (int i = 0; i < n_wanted; i++)
            if (n == strlen(wanted[i].key) && memcmp(key, wanted[i].key, n) == 0)
                found = &wanted[i];
        p = NULL;
        if (found && found->inside) {
            for (int i = 0; i < found->n_inside; i++)
                found->inside[i].value = (struct str){0};
            p = find_members(value, end, found->inside, found->n_inside);
        }
        if (!p)
            p = skip_value(value, end);
        if (found)
            found->value = (struct str){value, (size_t)(p - value)};
        p = skip_blanks(p, end);
        if (p == end || *p != ',')
            break;
    }
    return p < end && *p == '}' ? p + 1 : NULL;
}

void tokenizer_scan(struct str json, struct str *vocab, struct str *merges, struct buf *rest)
{
    struct wanted members[2] = {{.key = "vocab"}, {.key = "merges"}};
    struct wanted model = {.key = "model", .inside = members, .n_inside = 2};
    (void)find_members(json.p, json.p + json.n, &model, 1);
    const struct str found[2] = {members[0].value, members[1].value};
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

/* Looking up two tokens and the place of the pair waits for memory most of the time. So merges are read in batches,
 * and each step over a batch asks for the memory that the next step needs. */
#define MERGE_BATCH 16

struct pending_merge {
    struct buf scratch[2];
    struct str pair[2];
    uint32_t hash[2];
    int32_t id;
};

struct merge_reader {
    struct cursor c;
    struct bpe_model *m;
    struct pending_merge batch[MERGE_BATCH];
    int n_batch;
    uint32_t rank;   /* of the first of the batch */
    int32_t last_id; /* that a merge made */
    struct buf joined;
};

static bool resolve_merge(struct merge_reader *r, int i, int32_t ids[2])
{
    const struct vocab *v = &r->m->vocab;
    struct pending_merge *p = &r->batch[i];
    for (int side = 0; side < 2; side++)
        ids[side] = vocab_find_hashed(v, p->pair[side].p, p->pair[side].n, p->hash[side]);
    buf_clear(&r->joined);
    buf_append(&r->joined, p->pair[0].p, p->pair[0].n);
    buf_append(&r->joined, p->pair[1].p, p->pair[1].n);
    /* tokens are usually numbered in the order of their merges, and a look is cheaper than a search */
    const char *joined = r->joined.n > 0 ? r->joined.p : "";
    p->id = -1;
    for (int32_t id = r->last_id; id <= r->last_id + 1 && p->id < 0; id++) {
        const char *guess = vocab_text(v, id);
        if (guess && strcmp(guess, joined) == 0)
            p->id = id;
    }
    if (p->id < 0)
        p->id = vocab_find(v, joined, r->joined.n);
    if (r->joined.n == 0 || ids[0] < 0 || ids[1] < 0 || p->id < 0)
        return err_set(r->c.e, ERR_FORMAT, "%s: %s[%u]: \"%.100s\" or a part of it is not in the vocabulary",
                       r->c.where, r->c.part, (unsigned)r->rank + (unsigned)i, joined);
    r->last_id = p->id;
    return true;
}

static bool put_batch(struct merge_reader *r)
{
    const struct vocab *v = &r->m->vocab;
    int32_t ids[MERGE_BATCH][2];
    for (int i = 0; i < r->n_batch; i++)
        for (int side = 0; side < 2; side++)
            vocab_prefetch_text(v, r->batch[i].hash[side]);
    for (int i = 0; i < r->n_batch; i++) {
        if (!resolve_merge(r, i, ids[i]))
            return false;
        merges_prefetch(&r->m->merges, ids[i][0], ids[i][1]);
    }
    for (int i = 0; i < r->n_batch; i++)
        merges_put(&r->m->merges, ids[i][0], ids[i][1], r->rank + (uint32_t)i, r->batch[i].id);
    r->rank += (uint32_t)r->n_batch;
    r->n_batch = 0;
    return true;
}

static bool take_merge(struct merge_reader *r)
{
    struct pending_merge *p = &r->batch[r->n_batch];
    if (!take_pair(&r->c, p->scratch, p->pair))
        return false;
    for (int side = 0; side < 2; side++) {
        p->hash[side] = vocab_hash(p->pair[side].p, p->pair[side].n);
        vocab_prefetch_slot(&r->m->vocab, p->hash[side]);
    }
    r->n_batch++;
    return r->n_batch < MERGE_BATCH || put_batch(r);
}

/* How many merges there may be: pairs have brackets, strings have quotes. */
static size_t guess_merges(struct str text)
{
    size_t n_brackets = 0, n_quotes = 0;
    for (size_t i = 0; i < text.n; i++) {
        n_brackets += text.p[i] == ']';
        n_quotes += text.p[i] == '"';
    }
    return n_brackets < n_quotes / 4 ? n_quotes / 2 : n_brackets;
}

bool tokenizer_read_merges(struct bpe_model *m, struct str text, const char *where, struct err *e)
{
    struct merge_reader r = {
        .c = {text.p, text.p, text.p + text.n, where, "model.merges", e}, .m = m, .last_id = -1};
    for (int i = 0; i < MERGE_BATCH; i++)
        for (int side = 0; side < 2; side++)
            buf_init(&r.batch[i].scratch[side], TOKENIZER_MAX_JSON_BYTES);
    buf_init(&r.joined, TOKENIZER_MAX_JSON_BYTES);
    merges_reserve(&m->merges, guess_merges(text));
    bool ok = take(&r.c, '[') || fail(&r.c, "an array");
    if (ok && !take(&r.c, ']')) {
        do
            ok = take_merge(&r);
        while (ok && take_comma(&r.c, ']', &ok));
        ok = ok && put_batch(&r);
    }
    for (int i = 0; i < MERGE_BATCH; i++)
        for (int side = 0; side < 2; side++)
            buf_fini(&r.batch[i].scratch[side]);
    buf_fini(&r.joined);
    return ok;
}
