/* Encoding: the way of a text through the parts (see tokenizer_internal.h). All that changes on the way is local
 * to one call. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

static bool encode_word(void *ctx, const char *word, size_t n, struct err *e)
{
    (void)e;
    struct encoder *c = ctx;
    bpe_encode_word(&c->t->model, &c->bpe, word, n, c->out);
    return true;
}

bool encoder_piece(struct encoder *c, struct str piece, bool is_start, bool with_tokens, struct err *e)
{
    static const struct added_set no_tokens = {.only_first = -1};
    const struct tokenizer *t = c->t;
    struct str normal, part;
    if (piece.n == 0)
        return true;
    if (!normalize(t->normalizers, t->n_normalizers, c->regex, piece, c->normal, &normal, e))
        return false;
    struct added_walk walk;
    const struct added_token *token;
    added_walk_init(&walk, with_tokens ? &t->added_normalized : &no_tokens, normal.p, normal.n);
    while (added_walk_next(&walk, &part, &token)) {
        if (token)
            ids_push(c->out, token->id);
        else if (!pretokenize(t->splitters, t->n_splitters, c->regex, c->changed, part.p, part.n,
                              is_start && part.p == normal.p, encode_word, c, e))
            return false;
    }
    return true;
}

/* what replacing may make of a text stays below the 31-bit positions of BPE */
#define MAX_CHANGED_BYTES ((size_t)INT32_MAX / 2)

void encoder_init(struct encoder *c, const struct tokenizer *t, size_t bytes, struct ids *out)
{
    *c = (struct encoder){.t = t, .out = out};
    for (int i = 0; i < 2; i++)
        buf_init(&c->normal[i], MAX_CHANGED_BYTES);
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++)
        buf_init(&c->changed[i], MAX_CHANGED_BYTES);
    bpe_scratch_init(&c->bpe, bytes);
    c->regex = t->n_splitters + t->n_normalizers > 0 ? regex_scratch_new(bytes) : NULL;
}

void encoder_fini(struct encoder *c)
{
    regex_scratch_free(c->regex);
    bpe_scratch_fini(&c->bpe);
    for (int i = 0; i < TOKENIZER_MAX_STEPS; i++)
        buf_fini(&c->changed[i]);
    for (int i = 0; i < 2; i++)
        buf_fini(&c->normal[i]);
}

bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, bool special,
                      struct ids *out, struct err *e)
{
    if (bytes > TOKENIZER_MAX_TEXT_BYTES)
        return err_set(e, ERR_LIMIT, "a text of %zu bytes, at most %zu can be encoded at once", bytes,
                       TOKENIZER_MAX_TEXT_BYTES);
    struct buf repaired;
    buf_init(&repaired, MAX_CHANGED_BYTES);
    struct encoder c;
    encoder_init(&c, t, bytes, out);
    bool ok = true;
    size_t n_before = out->n;
    struct str source = {text, bytes};
    if (utf8_valid_prefix(text, bytes) < bytes) {
        utf8_append_lossy(&repaired, text, bytes);
        source = (struct str){repaired.p, repaired.n};
        if (repaired.failed)
            ok = err_set(e, ERR_LIMIT, "a text of more than %zu bytes", MAX_CHANGED_BYTES);
    }
    for (size_t i = 0; special && i < t->prefix.n; i++)
        ids_push(out, t->prefix.p[i]);
    struct added_walk walk;
    struct str part;
    const struct added_token *token;
    added_walk_init(&walk, &t->added_raw, source.p, source.n);
    while (ok && added_walk_next(&walk, &part, &token)) {
        if (token)
            ids_push(out, token->id);
        else
            ok = encoder_piece(&c, part, part.p == source.p, true, e);
    }
    for (size_t i = 0; special && i < t->suffix.n; i++)
        ids_push(out, t->suffix.p[i]);
    if (!ok)
        out->n = n_before;

    encoder_fini(&c);
    buf_fini(&repaired);
    return ok;
}
