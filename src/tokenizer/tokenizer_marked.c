/* Encoding of text in parts, some of which hold no added tokens whatever they say.
 *
 * Added tokens are looked for inside the other parts only, but what lies between them is encoded in one piece
 * across the borders of parts, so that ids are those of the whole text as long as plain parts spell no token.
 */
#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

/* A tokenizer whose added tokens match normalised text, where positions are others, gets its pieces cut at the
 * borders of parts. */
static bool encode_between(struct encoder *c, const char *text, size_t begin, size_t end,
                           const struct tokenizer_part *parts, size_t n, struct err *e)
{
    if (c->t->added_normalized.n == 0)
        return encoder_piece(c, (struct str){text + begin, end - begin}, begin == 0, false, e);
    for (size_t i = 0; i < n; i++) {
        size_t from = parts[i].begin > begin ? parts[i].begin : begin;
        size_t to = parts[i].end < end ? parts[i].end : end;
        if (from < to &&
            !encoder_piece(c, (struct str){text + from, to - from}, from == 0, !parts[i].is_plain, e))
            return false;
    }
    return true;
}

static bool encode_all(struct encoder *c, const char *text, size_t bytes, const struct tokenizer_part *parts,
                       size_t n, struct err *e)
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
    if (bytes > TOKENIZER_MAX_TEXT_BYTES || utf8_valid_prefix(text, bytes) < bytes)
        return err_set(e, ERR_LIMIT, "a text of %zu bytes; expected UTF-8 of at most %zu", bytes,
                       TOKENIZER_MAX_TEXT_BYTES);
    struct encoder c;
    encoder_init(&c, t, bytes, out);
    size_t n_before = out->n;
    bool ok = encode_all(&c, text, bytes, parts, n, e);
    if (!ok)
        out->n = n_before;
    encoder_fini(&c);
    return ok;
}
