/* Decoding: ids to text, one at a time; decoding a whole list is the same stream run to its end.
 *
 * What is held back: the bytes of a character that is not complete (byte level), or a run of byte tokens,
 * which the library reads as a whole: if it is not well-formed, each of its bytes becomes U+FFFD.
 */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_parts.h"
#include "text/utf8.h"

#define MAX_HELD_BYTES ((size_t)1 << 30)

struct token_stream {
    const struct tokenizer *t;
    bool skip_special;
    bool has_token;  /* JOIN: a blank goes before the next one */
    struct buf held; /* not given out yet */
    struct buf scratch[2];
};

static void stream_init(struct token_stream *s, const struct tokenizer *t, bool skip_special)
{
    *s = (struct token_stream){.t = t, .skip_special = skip_special};
    buf_init(&s->held, MAX_HELD_BYTES);
    buf_init(&s->scratch[0], MAX_HELD_BYTES);
    buf_init(&s->scratch[1], MAX_HELD_BYTES);
}

static void stream_fini(struct token_stream *s)
{
    buf_fini(&s->held);
    buf_fini(&s->scratch[0]);
    buf_fini(&s->scratch[1]);
}

/* Appends the bytes that a token stands for; one with a character outside the alphabet stands for itself. */
static void append_token_bytes(struct buf *out, const char *token)
{
    size_t n = strlen(token), before = out->n;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += utf8_next(token + i, &cp);
        int byte = byte_level_byte(cp);
        if (byte < 0) {
            out->n = before;
            buf_append(out, token, n);
            return;
        }
        buf_putc(out, (char)byte);
    }
}

/* Gives out what is whole of the held bytes. */
static void give_whole_chars(struct token_stream *s, struct buf *out)
{
    size_t used = utf8_append_lossy_whole(out, s->held.p, s->held.n);
    size_t rest = s->held.n - used;
    char tail[4];
    memcpy(tail, s->held.p + used, rest); /* a cut-off sequence: at most 3 bytes */
    buf_clear(&s->held);
    buf_append(&s->held, tail, rest);
}

static int fallback_byte(const char *token, size_t n)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    if (n != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>')
        return -1;
    /* the library's number parser takes a sign, too */
    const char *high = strchr(digits, token[3]), *low = strchr(digits, token[4]);
    if (!low || !*low || (token[3] != '+' && (!high || !*high)))
        return -1;
    return (token[3] == '+' ? 0 : (int)((high - digits) % 16) * 16) + (int)((low - digits) % 16);
}

static void give_byte_run(struct token_stream *s, struct buf *out)
{
    if (utf8_valid_prefix(s->held.p, s->held.n) == s->held.n)
        buf_append(out, s->held.p, s->held.n);
    else
        for (size_t i = 0; i < s->held.n; i++)
            buf_append(out, "\xef\xbf\xbd", 3);
    buf_clear(&s->held);
}

static bool push_chain(struct token_stream *s, const char *token, struct buf *out, struct err *e)
{
    struct str text;
    if (!normalize(s->t->decoder.replacements, s->t->decoder.n_replacements,
                   (struct str){token, strlen(token)}, s->scratch, &text, e))
        return false;
    int byte = s->t->decoder.byte_fallback ? fallback_byte(text.p, text.n) : -1;
    if (byte >= 0) {
        buf_putc(&s->held, (char)byte);
        return true;
    }
    if (s->held.n > 0)
        give_byte_run(s, out);
    buf_append(out, text.p, text.n);
    return true;
}

static bool is_within_limits(const struct token_stream *s, const struct buf *out, struct err *e)
{
    if (out->failed || s->held.failed)
        return err_set(e, ERR_LIMIT, "decoded text of more than %zu bytes", out->max_bytes);
    return true;
}

bool token_stream_push(struct token_stream *s, int32_t id, struct buf *out, struct err *e)
{
    const char *token = vocab_text(&s->t->model.vocab, id);
    if (!token || (s->skip_special && s->t->is_special[id]))
        return true;
    switch (s->t->decoder.kind) {
    case DECODE_BYTE_LEVEL:
        append_token_bytes(&s->held, token);
        if (s->held.n > 0)
            give_whole_chars(s, out);
        break;
    case DECODE_CHAIN:
        if (!push_chain(s, token, out, e))
            return false;
        break;
    case DECODE_JOIN:
        if (s->has_token)
            buf_putc(out, ' ');
        s->has_token = true;
        buf_puts(out, token);
        break;
    }
    return is_within_limits(s, out, e);
}

bool token_stream_flush(struct token_stream *s, struct buf *out, struct err *e)
{
    if (s->held.n > 0 && s->t->decoder.kind == DECODE_CHAIN)
        give_byte_run(s, out);
    else if (s->held.n > 0)
        utf8_append_lossy(out, s->held.p, s->held.n);
    buf_clear(&s->held);
    s->has_token = false;
    return is_within_limits(s, out, e);
}

struct token_stream *token_stream_new(const struct tokenizer *t, bool skip_special)
{
    struct token_stream *s = xmalloc(sizeof *s);
    stream_init(s, t, skip_special);
    return s;
}

void token_stream_free(struct token_stream *s)
{
    if (!s)
        return;
    stream_fini(s);
    free(s);
}

bool tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                      struct buf *out, struct err *e)
{
    struct token_stream s;
    stream_init(&s, t, skip_special);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++)
        ok = token_stream_push(&s, ids[i], out, e);
    ok = ok && token_stream_flush(&s, out, e);
    stream_fini(&s);
    return ok;
}
