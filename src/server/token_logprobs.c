/* Probabilities of tokens in the forms of chats and of texts. */
#include <math.h>
#include "base/utf8.h"
#include "server/server_internal.h"

/* What is minus infinity has no number in JSON. */
#define LOWEST (-9999.0)

static void put_log_probability(struct buf *b, float v)
{
    json_put_double(b, isfinite(v) ? (double)v : LOWEST);
}

static void put_token(struct buf *b, struct str bytes, float log_probability)
{
    put_key_text(b, "token", bytes.p, bytes.n);
    put_key(b, "logprob");
    put_log_probability(b, log_probability);
    put_key(b, "bytes");
    buf_puts(b, "[");
    for (size_t i = 0; i < bytes.n; i++)
        buf_printf(b, i ? ",%u" : "%u", (unsigned)(unsigned char)bytes.p[i]);
    buf_puts(b, "]");
}

void put_chat_logprobs(struct buf *b, const struct vocabulary_bytes *v, const struct event *e)
{
    for (size_t i = 0; i < e->n_tokens; i++) {
        const struct token_record *t = &e->tokens[i];
        buf_puts(b, b->n > 0 && b->p[b->n - 1] == '}' ? ",{" : "{");
        put_token(b, (struct str){t->bytes ? t->bytes : "", t->n_bytes}, t->log_probability);
        put_key(b, "top_logprobs");
        buf_puts(b, "[");
        for (int k = 0; k < t->n_top; k++) {
            buf_puts(b, k ? ",{" : "{");
            put_token(b, vocabulary_bytes_of(v, t->top[k].id), t->top[k].log_probability);
            buf_puts(b, "}");
        }
        buf_puts(b, "]}");
    }
}

static struct buf *list_of(struct text_logprobs *l, int i)
{
    struct buf *lists[] = {&l->tokens, &l->token_logprobs, &l->top_logprobs, &l->offsets};
    return lists[i];
}

void text_logprobs_init(struct text_logprobs *l)
{
    l->offset = 0;
    for (int i = 0; i < 4; i++)
        buf_init(list_of(l, i), ANSWER_BYTES_MAX);
}

void text_logprobs_fini(struct text_logprobs *l)
{
    for (int i = 0; i < 4; i++)
        buf_fini(list_of(l, i));
}

void text_logprobs_add(struct text_logprobs *l, const struct vocabulary_bytes *v, const struct event *e)
{
    for (size_t i = 0; i < e->n_tokens; i++) {
        const struct token_record *t = &e->tokens[i];
        for (int k = 0; k < 4; k++)
            if (list_of(l, k)->n > 0)
                buf_putc(list_of(l, k), ',');
        json_put_string(&l->tokens, t->bytes ? t->bytes : "", t->n_bytes);
        put_log_probability(&l->token_logprobs, t->log_probability);
        buf_printf(&l->offsets, "%lld", l->offset);
        for (size_t b = 0; b < t->n_bytes; b++) /* of a character the first byte counts */
            l->offset += ((unsigned char)t->bytes[b] & 0xc0) != 0x80;
        buf_puts(&l->top_logprobs, "{");
        for (int k = 0; k < t->n_top; k++) {
            struct str name = vocabulary_bytes_of(v, t->top[k].id);
            buf_puts(&l->top_logprobs, k ? "," : "");
            json_put_string(&l->top_logprobs, name.p, name.n);
            buf_putc(&l->top_logprobs, ':');
            put_log_probability(&l->top_logprobs, t->top[k].log_probability);
        }
        buf_puts(&l->top_logprobs, "}");
    }
}

void text_logprobs_put(struct text_logprobs *l, struct buf *out)
{
    static const char *const keys[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    buf_puts(out, "{");
    for (int i = 0; i < 4; i++) {
        struct buf *b = list_of(l, i);
        put_key(out, keys[i]);
        buf_puts(out, "[");
        buf_append(out, b->p ? b->p : "", b->n);
        buf_puts(out, "]");
        buf_clear(b);
    }
    buf_puts(out, "}");
}
