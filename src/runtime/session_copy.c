/* Copies of what a session holds. */
#include <stdlib.h>
#include <string.h>
#include "runtime/session_int.h"

struct session_copy {
    int64_t n;
    int32_t *tokens; /* [n] */
    float *logits;   /* [vocab_size]; NULL: there were none */
    int n_states;
    uint8_t **states; /* [n_states][state_kept_bytes]; NULL where that is 0 */
    uint64_t bytes;
};

void session_copy_free(struct session_copy *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_states; i++)
        mem_free(c->states[i]);
    free(c->states);
    free(c->tokens);
    free(c->logits);
    free(c);
}

bool session_copy_new(struct session_copy **out, const struct session *s, struct err *e)
{
    struct session_copy *c = xcalloc(1, sizeof *c);
    size_t n = (size_t)s->n, vocab = (size_t)s->model->vocab_size;
    bool ok = false;
    *out = NULL;
    c->n = s->n;
    c->tokens = xcalloc(n + 1, sizeof *c->tokens);
    memcpy(c->tokens, s->tokens, n * sizeof *c->tokens);
    c->bytes = n * sizeof *c->tokens;
    if (s->has_logits) {
        c->logits = xcalloc(vocab, sizeof *c->logits);
        memcpy(c->logits, s->logits, vocab * sizeof *c->logits);
        c->bytes += vocab * sizeof *c->logits;
    }
    c->n_states = s->states->n;
    c->states = xcalloc((size_t)c->n_states + 1, sizeof *c->states);
    for (int i = 0; i < c->n_states; i++) {
        const struct backend_state *state = &s->states->list[i];
        size_t n_planes = state_planes(s, state), kept = state_kept_bytes(s, state, n) / n_planes,
               plane = backend_state_bytes(state) / n_planes;
        if (kept == 0)
            continue;
        if (!(c->states[i] = mem_try_alloc(kept * n_planes, e)))
            goto done;
        for (size_t k = 0; k < n_planes; k++)
            s->model->backend->state_read(s->states, i, k * plane, kept, c->states[i] + k * kept);
        c->bytes += kept * n_planes;
    }
    *out = c;
    c = NULL;
    ok = true;
done:
    session_copy_free(c);
    return ok;
}

uint64_t session_copy_bytes(const struct session_copy *c)
{
    return c->bytes;
}

const int32_t *session_copy_tokens(const struct session_copy *c, int64_t *n)
{
    *n = c->n;
    return c->tokens;
}

void session_copy_restore(const struct session_copy *c, struct session *s)
{
    size_t n = (size_t)c->n, same = 0;
    while (same < n && s->tokens[same] == c->tokens[same])
        same++;
    /* Snapshots behind a token that changes count on rows that change, too; so do those behind what nobody has computed. */
    if (same < n)
        snapshot_drop_after(s, (int64_t)same);
    for (int i = 0; i < c->n_states; i++) {
        const struct backend_state *state = &s->states->list[i];
        size_t n_planes = state_planes(s, state), kept = state_kept_bytes(s, state, n) / n_planes,
               plane = backend_state_bytes(state) / n_planes;
        for (size_t k = 0; k < n_planes && c->states[i]; k++)
            s->model->backend->state_write(s->states, i, k * plane, kept, c->states[i] + k * kept);
    }
    memcpy(s->tokens, c->tokens, n * sizeof *s->tokens);
    s->n = c->n;
    s->has_logits = c->logits != NULL;
    if (c->logits)
        memcpy(s->logits, c->logits, sizeof *s->logits * (size_t)s->model->vocab_size);
    if (s->model->is_sequential)
        snapshot_take(s);
}
