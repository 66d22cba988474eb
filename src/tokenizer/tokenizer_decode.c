/* Decoding: ids to text, one at a time; decoding a whole list is the same stream run to its end.
 *
 * What is held back: the bytes of a character that is not complete (byte level), or a run of byte tokens,
 * which the library reads as a whole: if it is not well-formed, each of its bytes becomes U+FFFD; what may be
 * stripped at the end; and what may turn out to be a blank before punctuation.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer_internal.h"
#include "base/utf8.h"

#define MAX_HELD_BYTES ((size_t)1 << 30)

/* transformers' clean_up_tokenization: these replacements, one after the other over the whole text. Only the first
 * byte of a pattern may start another match of it, or the last of " ' ". */
static const struct {
    const char *from, *to;
} clean_ups[] = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};
#define N_CLEAN_UPS (sizeof clean_ups / sizeof clean_ups[0])

struct token_stream {
    const struct tokenizer *t;
    bool skip_special;
    bool has_token;  /* a token was given: JOIN puts a blank before the next one */
    struct buf held; /* not given out yet */
    struct buf scratch[2];
    struct regex_scratch *regex;    /* NULL: no replacement */
    struct buf token_text;          /* a token whose blanks were put in */
    struct buf text;                /* on the way through strip and clean-up */
    int n_start;                    /* characters that may still be stripped at the start of the text */
    int n_stop;                     /* characters held back that may turn out to be the end */
    uint8_t n_matched[N_CLEAN_UPS]; /* bytes of each pattern that are held back */
};

static void stream_init(struct token_stream *s, const struct tokenizer *t, bool skip_special)
{
    *s = (struct token_stream){.t = t, .skip_special = skip_special};
    buf_init(&s->held, MAX_HELD_BYTES);
    buf_init(&s->scratch[0], MAX_HELD_BYTES);
    buf_init(&s->scratch[1], MAX_HELD_BYTES);
    s->regex = t->decoder.n_replacements > 0 ? regex_scratch_new(0) : NULL;
    buf_init(&s->token_text, MAX_HELD_BYTES);
    buf_init(&s->text, MAX_HELD_BYTES);
    s->n_start = t->decoder.text_strip.n_start;
}

static void stream_fini(struct token_stream *s)
{
    buf_fini(&s->held);
    buf_fini(&s->scratch[0]);
    buf_fini(&s->scratch[1]);
    regex_scratch_free(s->regex);
    buf_fini(&s->token_text);
    buf_fini(&s->text);
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
            buf_puts(out, UTF8_REPLACEMENT);
    buf_clear(&s->held);
}

/* The token without what a strip takes away. */
static struct str strip_token(const struct decoder_strip *strip, struct str text)
{
    size_t n = strlen(strip->content);
    for (int i = 0; i < strip->n_start && text.n >= n && memcmp(text.p, strip->content, n) == 0; i++) {
        text.p += n;
        text.n -= n;
    }
    for (int i = 0; i < strip->n_stop && text.n >= n && memcmp(text.p + text.n - n, strip->content, n) == 0;
         i++)
        text.n -= n;
    return text;
}

static bool push_chain(struct token_stream *s, const char *token, struct buf *out, struct err *e)
{
    const struct decoder *d = &s->t->decoder;
    struct str text = {token, strlen(token)};
    if (d->blank) {
        buf_clear(&s->token_text);
        replace_append(&s->token_text, text.p, text.n, d->blank, d->drops_first && !s->has_token ? "" : " ");
        text = (struct str){s->token_text.n ? s->token_text.p : "", s->token_text.n};
    }
    s->has_token = true;
    if (s->regex)
        regex_scratch_expect(s->regex, text.n);
    if (!normalize(d->replacements, d->n_replacements, s->regex, text, s->scratch, &text, e))
        return false;
    if (d->token_strip.content[0])
        text = strip_token(&d->token_strip, text);
    int byte = d->byte_fallback ? fallback_byte(text.p, text.n) : -1;
    if (byte >= 0) {
        buf_putc(&s->held, (char)byte);
        return true;
    }
    if (s->held.n > 0)
        give_byte_run(s, out);
    buf_append(out, text.p, text.n);
    return true;
}

/* Strips the start of the text, and its end as soon as it can't be the end any more. */
static void strip_text(struct token_stream *s, struct buf *out)
{
    const struct decoder_strip *strip = &s->t->decoder.text_strip;
    size_t n = strlen(strip->content), begin = 0, end = s->text.n;
    const char *text = s->text.p;
    while (s->n_start > 0 && begin < end) {
        bool is_content = end - begin >= n && memcmp(text + begin, strip->content, n) == 0;
        begin += is_content ? n : 0;
        s->n_start = is_content ? s->n_start - 1 : 0;
    }
    if (begin == end)
        return;
    int n_last = 0; /* how many of the last characters may go */
    while (n_last < strip->n_stop && end - begin >= n && memcmp(text + end - n, strip->content, n) == 0) {
        end -= n;
        n_last++;
    }
    /* those held back stay only where nothing but their like follows */
    int n_give = begin < end                          ? s->n_stop
                 : s->n_stop + n_last > strip->n_stop ? s->n_stop + n_last - strip->n_stop
                                                      : 0;
    s->n_stop += n_last - n_give;
    for (int i = 0; i < n_give; i++)
        buf_append(out, strip->content, n);
    buf_append(out, text + begin, end - begin);
}

/* Gives one byte to the replacements from i on. */
static void clean_byte(struct token_stream *s, size_t i, char c, struct buf *out)
{
    for (; i < N_CLEAN_UPS; i++) {
        const char *from = clean_ups[i].from;
        uint8_t k = s->n_matched[i];
        if (c == from[k]) {
            s->n_matched[i]++;
            if (from[k + 1])
                return;
            s->n_matched[i] = 0;
            for (const char *p = clean_ups[i].to; *p; p++)
                clean_byte(s, i + 1, *p, out);
            return;
        }
        s->n_matched[i] = 0;
        for (uint8_t j = 0; j < k; j++)
            clean_byte(s, i + 1, from[j], out);
        if (c == from[0]) {
            s->n_matched[i] = 1;
            return;
        }
    }
    buf_putc(out, c);
}

static void clean_up_end(struct token_stream *s, struct buf *out)
{
    for (size_t i = 0; i < N_CLEAN_UPS; i++) {
        uint8_t k = s->n_matched[i];
        s->n_matched[i] = 0;
        for (uint8_t j = 0; j < k; j++)
            clean_byte(s, i + 1, clean_ups[i].from[j], out);
    }
}

static bool changes_text(const struct decoder *d)
{
    return d->text_strip.content[0] || d->clean_up;
}

/* What was decoded into s->text goes its last way. */
static void give_text(struct token_stream *s, struct buf *out)
{
    const struct decoder *d = &s->t->decoder;
    if (d->text_strip.content[0]) {
        struct buf stripped;
        buf_init(&stripped, MAX_HELD_BYTES);
        strip_text(s, &stripped);
        buf_fini(&s->text);
        s->text = stripped;
    }
    if (!d->clean_up)
        buf_append(out, s->text.p, s->text.n);
    for (size_t i = 0; d->clean_up && i < s->text.n; i++)
        clean_byte(s, 0, s->text.p[i], out);
    buf_clear(&s->text);
}

static bool is_within_limits(const struct token_stream *s, const struct buf *out, struct err *e)
{
    if (out->failed || s->held.failed || s->text.failed)
        return err_set(e, ERR_LIMIT, "decoded text of more than %zu bytes", out->max_bytes);
    return true;
}

bool token_stream_push(struct token_stream *s, int32_t id, struct buf *out, struct err *e)
{
    const char *token = vocab_text(&s->t->model.vocab, id);
    if (!token || (s->skip_special && s->t->is_special[id]))
        return true;
    struct buf *to = changes_text(&s->t->decoder) ? &s->text : out;
    switch (s->t->decoder.kind) {
    case DECODE_BYTE_LEVEL:
        append_token_bytes(&s->held, token);
        if (s->held.n > 0)
            give_whole_chars(s, to);
        break;
    case DECODE_CHAIN:
        if (!push_chain(s, token, to, e))
            return false;
        break;
    case DECODE_JOIN:
        if (s->has_token)
            buf_putc(to, ' ');
        s->has_token = true;
        buf_puts(to, token);
        break;
    }
    if (to != out && s->text.n > 0)
        give_text(s, out);
    return is_within_limits(s, out, e);
}

bool token_stream_flush(struct token_stream *s, struct buf *out, struct err *e)
{
    const struct decoder *d = &s->t->decoder;
    struct buf *to = changes_text(d) ? &s->text : out;
    if (s->held.n > 0 && d->kind == DECODE_CHAIN)
        give_byte_run(s, to);
    else if (s->held.n > 0)
        utf8_append_lossy(to, s->held.p, s->held.n);
    if (to != out && s->text.n > 0)
        give_text(s, out);
    if (d->clean_up)
        clean_up_end(s, out);
    buf_clear(&s->held);
    s->has_token = false;
    s->n_start = d->text_strip.n_start;
    s->n_stop = 0;
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

bool tokenizer_token_bytes(const struct tokenizer *t, int32_t id, bool skip_special, struct buf *out,
                           struct err *e)
{
    const char *token = vocab_text(&t->model.vocab, id);
    struct token_stream s;
    if (!token || (skip_special && t->is_special[id]))
        return true;
    stream_init(&s, t, skip_special);
    s.has_token = true;
    bool ok = true;
    switch (t->decoder.kind) {
    case DECODE_BYTE_LEVEL:
        append_token_bytes(out, token);
        break;
    case DECODE_CHAIN:
        ok = push_chain(&s, token, out, e);
        buf_append(out, s.held.p, s.held.n); /* a byte token's */
        break;
    case DECODE_JOIN:
        buf_putc(out, ' ');
        buf_puts(out, token);
        break;
    }
    stream_fini(&s);
    return ok;
}
