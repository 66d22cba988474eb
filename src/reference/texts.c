/* Tokens cut into texts; the sessions that layers are run on. */
#include "reference/texts.h"
#include <stdlib.h>
#include <string.h>

int64_t reference_text_count(const struct reference_texts *t)
{
    return (t->n + t->n_text - 1) / t->n_text;
}

int64_t reference_text_length(const struct reference_texts *t, int64_t i)
{
    int64_t left = t->n - i * t->n_text;
    return left < t->n_text ? left : t->n_text;
}

struct reference_session *reference_text_begin(const struct reference_texts *t, int64_t i)
{
    struct reference_session *s = t->sessions[t->n_sessions > 1 ? i : 0];
    t->reference->parts->family->embed(s, t->tokens + i * t->n_text, reference_text_length(t, i));
    return s;
}

bool reference_texts_open(struct reference_texts *t, struct reference *r, const int32_t *tokens, size_t n,
                          size_t n_text, struct err *e)
{
    *t = (struct reference_texts){
        .reference = r, .n = (int64_t)n, .n_text = (int64_t)(n_text < n ? n_text : n)};
    if (n == 0 || n_text == 0 || n > INT32_MAX)
        return err_set(e, ERR_USAGE,
                       "expected 1 to %d tokens in texts of at least one, found %zu in texts of %zu",
                       INT32_MAX, n, n_text);
    if (!reference_check_tokens(r, tokens, n, e))
        return false;
    t->tokens = xmalloc(n * sizeof *t->tokens);
    memcpy(t->tokens, tokens, n * sizeof *t->tokens);
    t->n_sessions = r->parts->family->shares_layers ? (int)reference_text_count(t) : 1;
    t->sessions = xcalloc((size_t)t->n_sessions, sizeof(struct reference_session *));
    for (int i = 0; i < t->n_sessions; i++)
        if (!reference_session_make(&t->sessions[i], r, t->n_text, t->n_text, e))
            return false;
    return true;
}

void reference_texts_free(struct reference_texts *t)
{
    for (int i = 0; i < t->n_sessions && t->sessions; i++)
        reference_session_free(t->sessions[i]);
    free(t->sessions);
    free(t->tokens);
}
