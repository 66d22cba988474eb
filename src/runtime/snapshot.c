/* Snapshots of sessions that can't be rewound. */
#include <stdlib.h>
#include <string.h>
#include "runtime/session_int.h"

/* A recurrent state can look like a cache by its shape, and the precisions that round each op do not know which are recurrent. */
bool state_is_full_length(const struct session *s, const struct backend_state *state)
{
    const struct model *m = s->model;
    bool is_rounded = m->precision == PRECISION_FP16 || m->precision == PRECISION_ANE;
    bool is_cache = !state->is_recurrent && !(is_rounded && m->package->meta->recurrent_state);
    return is_cache && state->elem_bytes > 0 && model_is_full_cache(m, state->rank, state->dims);
}

size_t state_planes(const struct session *s, const struct backend_state *state)
{
    return state_is_full_length(s, state) ? (size_t)(state->dims[0] * state->dims[1]) : 1;
}

size_t state_kept_bytes(const struct session *s, const struct backend_state *state, size_t n_tokens)
{
    size_t bytes = backend_state_bytes(state);
    return state_is_full_length(s, state) ? bytes / (size_t)state->dims[2] * n_tokens : bytes;
}

static void snapshot_free(struct session *s, struct snapshot *p)
{
    s->snapshot_bytes -= p->bytes;
    for (int i = 0; i < p->n_states; i++)
        mem_free(p->states[i]);
    free(p->states);
    free(p->logits);
    free(p);
}

void snapshot_drop_after(struct session *s, int64_t n)
{
    for (struct snapshot **at = &s->snapshots; *at;) {
        struct snapshot *p = *at;
        if (p->n > n) {
            *at = p->next;
            snapshot_free(s, p);
        } else {
            at = &p->next;
        }
    }
}

void snapshot_drop_all(struct session *s)
{
    snapshot_drop_after(s, -1);
}

/* Unlinks the last of the list. */
static void drop_last(struct session *s)
{
    struct snapshot **at = &s->snapshots;
    while ((*at)->next)
        at = &(*at)->next;
    struct snapshot *p = *at;
    *at = NULL;
    snapshot_free(s, p);
}

void snapshot_make_room(struct session *s, uint64_t bytes)
{
    while (s->snapshots &&
           (s->snapshot_bytes > s->snapshot_bytes_max || bytes > s->snapshot_bytes_max - s->snapshot_bytes))
        drop_last(s);
}

static void to_front(struct session *s, struct snapshot *p)
{
    struct snapshot **at = &s->snapshots;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->next = s->snapshots;
    s->snapshots = p;
}

/* Copies of the states that a snapshot must hold. */
static bool copy_states(const struct session *s, struct snapshot *p)
{
    for (int i = 0; i < p->n_states; i++) {
        const struct backend_state *state = &s->states->list[i];
        size_t bytes = backend_state_bytes(state);
        if (state_is_full_length(s, state) || bytes == 0)
            continue;
        if (!(p->states[i] = mem_try_alloc(bytes, NULL)))
            return false;
        s->model->backend->state_read(s->states, i, 0, bytes, p->states[i]);
    }
    return true;
}

void snapshot_take(struct session *s)
{
    uint64_t bytes = s->has_logits ? sizeof(float) * (uint64_t)s->model->vocab_size : 0;
    int n_states = s->states->n;
    for (struct snapshot *p = s->snapshots, *next; p; p = next) {
        next = p->next;
        if (p->n != s->n)
            continue;
        to_front(s, p);
        if (p->has_logits || !s->has_logits)
            return;
        s->snapshots = p->next; /* the new one can do more */
        snapshot_free(s, p);
    }
    for (int i = 0; i < n_states; i++)
        if (!state_is_full_length(s, &s->states->list[i]))
            bytes += backend_state_bytes(&s->states->list[i]);
    if (bytes > s->snapshot_bytes_max)
        return;
    snapshot_make_room(s, bytes);
    struct snapshot *p = xcalloc(1, sizeof *p);
    p->n = s->n;
    p->bytes = bytes;
    p->n_states = n_states;
    p->states = xcalloc((size_t)n_states + 1, sizeof *p->states);
    s->snapshot_bytes += bytes;
    if (!copy_states(s, p)) { /* no memory for it: the session works without */
        snapshot_free(s, p);
        return;
    }
    if (s->has_logits) {
        p->has_logits = true;
        p->logits = xmalloc(sizeof(float) * (size_t)s->model->vocab_size);
        memcpy(p->logits, s->logits, sizeof(float) * (size_t)s->model->vocab_size);
    }
    p->next = s->snapshots;
    s->snapshots = p;
}

void snapshot_take_regular(struct session *s, int64_t before)
{
    if (s->model->is_sequential && s->snapshot_tokens > 0 &&
        s->n / s->snapshot_tokens > before / s->snapshot_tokens)
        snapshot_take(s);
}

bool snapshot_restore(struct session *s, int64_t above, int64_t n, bool with_logits)
{
    struct snapshot *best = NULL;
    for (struct snapshot *p = s->snapshots; p; p = p->next)
        if ((p->n > above || above == 0) && p->n <= n && (p->n < n || p->has_logits || !with_logits) &&
            (!best || p->n > best->n))
            best = p;
    if (!best)
        return false;
    to_front(s, best);
    for (int i = 0; i < best->n_states; i++)
        if (best->states[i])
            s->model->backend->state_write(s->states, i, 0, backend_state_bytes(&s->states->list[i]),
                                           best->states[i]);
    s->n = best->n;
    s->has_logits = best->has_logits;
    if (best->has_logits)
        memcpy(s->logits, best->logits, sizeof(float) * (size_t)s->model->vocab_size);
    return true;
}
