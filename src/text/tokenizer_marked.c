/* Encoding of text in parts, some of which hold no added tokens whatever they say.
 *
 * Added tokens are looked for inside the other parts only, but what lies between them is encoded in one piece
 * across the borders of parts, so that ids are those of the whole text as long as plain parts spell no token.
 */
#include <stdlib.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

struct marked_encoder {
    const struct tokenizer *t;
    struct ids *out;
    struct regex_scratch *regex;
    struct bpe_scratch bpe;
    struct buf normal[2];
    struct buf prefixed[TOKENIZER_MAX_STEPS];
};

static bool encode_word(void *ctx, const char *word, size_t n, struct err *e)
{
    (void)e;
    struct marked_encoder *c = ctx;
    bpe_encode_word(&c->t->model, &c->bpe, word, n, c->out);
    return true;
}

static bool encode_words(struct marked_encoder *c, struct str text, struct err *e)
{
    return text.n == 0 || pretokenize(c->t->splitters, c->t->n_splitters, c->regex, c->prefixed, text.p,
                                      text.n, encode_word, c, e);
}

/* Text between added tokens; with_tokens: those that match normalised text count. */
static bool encode_piece(struct marked_encoder *c, struct str piece, bool with_tokens, struct err *e)
{
    const struct tokenizer *t = c->t;
    struct str normal, part;
    if (piece.n == 0)
        return true;
    if (!normalize(t->normalizers, t->n_normalizers, piece, c->normal, &normal, e))
        return false;
    if (!with_tokens)
        return encode_words(c, normal, e);
    struct added_walk walk;
    const struct added_token *token;
    added_walk_init(&walk, &t->added_normalized, normal.p, normal.n);
    while (added_walk_next(&walk, &part, &token)) {
        if (token)
            ids_push(c->out, token->id);
        else if (!encode_words(c, part, e))
            return false;
    }
    return true;
}

/* A tokenizer whose added tokens match normalised text, where positions are others, gets its pieces cut at the
 * borders of parts. */
static bool encode_between(struct marked_encoder *c, const char *text, size_t begin, size_t end,
                           const struct tokenizer_part *parts, size_t n, struct err *e)
{
    if (c->t->added_normalized.n == 0)
        return encode_piece(c, (struct str){text + begin, end - begin}, false, e);
    for (size_t i = 0; i < n; i++) {
        size_t from = parts[i].begin > begin ? parts[i].begin : begin;
        size_t to = parts[i].end < end ? parts[i].end : end;
        if (from < to && !encode_piece(c, (struct str){text + from, to - from}, !parts[i].is_plain, e))
            return false;
    }
    return true;
}

static bool encode_all(struct marked_encoder *c, const char *text, size_t bytes,
                       const struct tokenizer_part *parts, size_t n, struct err *e)
{
    size_t done = 0; /* everything before is encoded */
    for (size_t i = 0; i < n; i++) {
        if (parts[i].is_plain)
            continue;
        /* the walk sees what is before its part, for tokens that must stand alone, but takes nothing of it */
        struct added_walk walk;
        struct str part;
        const struct added_token *token;
        added_walk_init(&walk, &c->t->added_raw, text, parts[i].end);
        walk.scan = walk.done = parts[i].begin;
        while (added_walk_next(&walk, &part, &token)) {
            if (!token)
                continue;
            size_t begin = (size_t)(part.p - text);
            if (!encode_between(c, text, done, begin, parts, n, e))
                return false;
            ids_push(c->out, token->id);
            done = begin + part.n;
        }
    }
    return encode_between(c, text, done, bytes, parts, n, e);
}

bool tokenizer_encode_parts(const struct tokenizer *t, const char *text, size_t bytes,
                            const struct tokenizer_part *parts, size_t n, struct ids *out, struct err *e)
{
    const size_t max_bytes = INT32_MAX / 2;
    if (bytes > TOKENIZER_MAX_TEXT_BYTES || utf8_valid_prefix(text, bytes) < bytes)
        return err_set(e, ERR_LIMIT, "a text of %zu bytes; expected UTF-8 of at most %zu", bytes,
                       TOKENIZER_MAX_TEXT_BYTES);
    struct marked_encoder c = {.t = t, .out = out};
    for (int i = 0; i < 2; i++)
        buf_init(&c.normal[i], max_bytes);
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++)
        buf_init(&c.prefixed[i], max_bytes);
    bpe_scratch_init(&c.bpe, bytes >= 4096);
    c.regex = t->n_splitters > 0 ? regex_scratch_new() : NULL;
    size_t n_before = out->n;
    bool ok = encode_all(&c, text, bytes, parts, n, e);
    if (!ok)
        out->n = n_before;
    regex_scratch_free(c.regex);
    bpe_scratch_fini(&c.bpe);
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++)
        buf_fini(&c.prefixed[i]);
    for (int i = 0; i < 2; i++)
        buf_fini(&c.normal[i]);
    return ok;
}
