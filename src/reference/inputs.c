/* Layer by layer over several texts: the residual streams of all of them are kept, everything else is made again for each
 * layer and text. */
#include <stdlib.h>
#include <string.h>
#include "reference/reference_internal.h"

struct reference_inputs {
    struct reference *reference;
    int32_t *tokens; /* [n] */
    int64_t n, n_text, layer;
    float *stream, *next; /* [n, hidden_size]: before the next layer, and what it left when it was run last */
    struct reference_session **sessions;
    int n_sessions; /* 1, or one for each text */
};

static int64_t text_count(const struct reference_inputs *p)
{
    return (p->n + p->n_text - 1) / p->n_text;
}

/* Tokens of text i. */
static int64_t text_length(const struct reference_inputs *p, int64_t i)
{
    int64_t left = p->n - i * p->n_text;
    return left < p->n_text ? left : p->n_text;
}

static struct reference_session *session_of(const struct reference_inputs *p, int64_t i)
{
    return p->sessions[p->n_sessions > 1 ? i : 0];
}

bool reference_inputs_new(struct reference_inputs **out, struct reference *r, const int32_t *tokens, size_t n,
                          size_t n_text, struct err *e)
{
    struct reference_inputs *p = xcalloc(1, sizeof *p);
    bool ok = false;
    *out = NULL;
    p->reference = r;
    p->n = (int64_t)n;
    p->n_text = (int64_t)(n_text < n ? n_text : n);
    if (n == 0 || n_text == 0 || n > INT32_MAX) {
        err_set(e, ERR_USAGE, "expected 1 to %d tokens in texts of at least one, found %zu in texts of %zu",
                INT32_MAX, n, n_text);
        goto done;
    }
    if (!reference_check_tokens(r, tokens, n, e))
        goto done;
    p->tokens = xmalloc(n * sizeof *p->tokens);
    memcpy(p->tokens, tokens, n * sizeof *p->tokens);
    p->n_sessions = r->parts->family->shares_layers ? (int)text_count(p) : 1;
    p->sessions = xcalloc((size_t)p->n_sessions, sizeof(struct reference_session *));
    if (!reference_alloc(&p->stream, p->n, r->hidden_size, 1, e) ||
        !reference_alloc(&p->next, p->n, r->hidden_size, 1, e))
        goto done;
    for (int i = 0; i < p->n_sessions; i++)
        if (!reference_session_make(&p->sessions[i], r, p->n_text, p->n_text, e))
            goto done;
    for (int64_t i = 0; i < text_count(p); i++) {
        struct reference_session *s = session_of(p, i);
        r->parts->family->embed(s, p->tokens + i * p->n_text, text_length(p, i));
        memcpy(p->stream + i * p->n_text * r->hidden_size, s->stream,
               (size_t)(text_length(p, i) * r->hidden_size) * sizeof *p->stream);
    }
    *out = p;
    p = NULL;
    ok = true;
done:
    reference_inputs_free(p);
    return ok;
}

void reference_inputs_free(struct reference_inputs *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_sessions && p->sessions; i++)
        reference_session_free(p->sessions[i]);
    free(p->sessions);
    free(p->tokens);
    mem_free(p->stream);
    mem_free(p->next);
    free(p);
}

/* The session, before a layer of text i. */
static struct reference_session *begin_text(struct reference_inputs *p, int64_t i)
{
    const struct reference *r = p->reference;
    struct reference_session *s = session_of(p, i);
    int64_t n = text_length(p, i);
    r->parts->family->embed(s, p->tokens + i * p->n_text, n); /* what depends on tokens and positions */
    memcpy(s->stream, p->stream + i * p->n_text * r->hidden_size,
           (size_t)(n * r->hidden_size) * sizeof *s->stream);
    s->input = (struct reference_input){.text = i};
    return s;
}

bool reference_inputs_run(struct reference_inputs *p, const struct reference_replacement *replacement,
                          reference_input_fn show, void *context, struct err *e)
{
    const struct reference *r = p->reference;
    const struct reference_family *family = r->parts->family;
    if (p->layer >= r->n_layers)
        return err_set(e, ERR_BUG, "inputs of %lld layers were asked for, and more", (long long)r->n_layers);
    for (int64_t i = 0; i < text_count(p); i++) {
        if (log_cancelled(r->parts->log, e))
            return false;
        struct reference_session *s = begin_text(p, i);
        int64_t n = text_length(p, i);
        if (family->layer_reset)
            family->layer_reset(s, p->layer);
        s->show_input = show;
        s->show_context = context;
        s->replacement = replacement;
        family->layer(s, p->layer, n);
        s->show_input = NULL;
        s->replacement = NULL;
        s->is_stopped = false;
        memcpy(p->next + i * p->n_text * r->hidden_size, s->stream,
               (size_t)(n * r->hidden_size) * sizeof *s->stream);
    }
    return true;
}

void reference_inputs_go_on(struct reference_inputs *p)
{
    float *stream = p->stream;
    p->stream = p->next;
    p->next = stream;
    p->layer++;
}

bool reference_inputs_finish(struct reference_inputs *p, reference_input_fn show, void *context,
                             struct err *e)
{
    const struct reference *r = p->reference;
    const struct st_tensor *head = r->parts->ends.head;
    for (int64_t i = 0; i < text_count(p); i++) {
        if (log_cancelled(r->parts->log, e))
            return false;
        struct reference_session *s = begin_text(p, i);
        r->parts->family->finish(s, text_length(p, i));
        s->show_input = show;
        s->show_context = context;
        reference_show_input(s, head, s->hidden, text_length(p, i));
        s->show_input = NULL;
        s->is_stopped = false;
    }
    return true;
}
