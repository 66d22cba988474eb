/* The tape itself: adjoints, records, what is kept. */
#include "reference/tape.h"
#include <stdlib.h>
#include <string.h>
#include "base/invariant.h"

bool reference_tape_new(struct reference_session *s, struct err *e)
{
    struct reference_tape *t = s->own_tape = xcalloc(1, sizeof *t);
    const struct reference_parts *p = s->reference->parts;
    int64_t for_scores = 2 * s->capacity;
    for (size_t i = 0; i < s->n_taken; i++)
        if (!reference_alloc(&s->taken[i].adjoint, (int64_t)s->taken[i].n, 1, 1, e))
            return err_wrap(e, "derivatives of a layer");
    t->scratch_per_thread = reference_linear_scratch(s->batch, p->max_columns);
    if (t->scratch_per_thread < for_scores)
        t->scratch_per_thread = for_scores;
    return reference_alloc(&t->scratch, pool_threads(p->pool), t->scratch_per_thread, 1, e);
}

static void forget(struct reference_tape *t)
{
    for (size_t i = 0; i < t->n_blocks; i++)
        mem_free(t->blocks[i]);
    t->n_blocks = 0;
    t->n = 0;
    t->last_from = t->last_kept = NULL;
}

void reference_tape_free(struct reference_tape *t)
{
    if (!t)
        return;
    forget(t);
    free(t->blocks);
    free(t->list);
    mem_free(t->scratch);
    free(t);
}

void reference_tape_begin(struct reference_session *s, const struct reference_gradient_sink *sink)
{
    s->tape = s->own_tape;
    s->tape->sink = sink;
    s->tape->error = (struct err){0};
}

bool reference_tape_walk(struct reference_session *s, struct err *e)
{
    struct reference_tape *t = s->own_tape;
    for (int i = t->n - 1; i >= 0 && !t->error.code; i--)
        t->list[i].backward(s, &t->list[i]);
    forget(t);
    s->tape = NULL;
    if (t->error.code && e)
        *e = t->error;
    return !t->error.code;
}

float *reference_adjoint(const struct reference_session *s, const float *p)
{
    for (size_t i = 0; i < s->n_taken; i++) {
        const struct reference_taken *m = &s->taken[i];
        if (p >= m->p && p < m->p + m->n)
            return m->adjoint + (p - m->p);
    }
    INVARIANT(false, "what a primitive of a tape reads and writes is memory of the session");
    return NULL;
}

struct reference_record *reference_record_add(struct reference_session *s,
                                              void (*backward)(struct reference_session *s,
                                                               const struct reference_record *r))
{
    struct reference_tape *t = s->tape;
    t->list = mem_grow(t->list, (size_t)t->n, &t->capacity, sizeof *t->list);
    struct reference_record *r = &t->list[t->n++];
    *r = (struct reference_record){.backward = backward};
    return r;
}

void *reference_keep_room(struct reference_session *s, size_t bytes)
{
    struct reference_tape *t = s->tape;
    void *room = t->error.code ? NULL : mem_try_alloc(bytes, &t->error);
    if (!room)
        return NULL;
    t->blocks = mem_grow(t->blocks, t->n_blocks, &t->blocks_capacity, sizeof *t->blocks);
    t->blocks[t->n_blocks++] = room;
    return room;
}

const float *reference_keep(struct reference_session *s, const float *p, int64_t n)
{
    struct reference_tape *t = s->tape;
    size_t bytes = (size_t)n * sizeof *p;
    if (t->last_kept && t->last_from == p && t->last_n == (size_t)n && memcmp(t->last_kept, p, bytes) == 0)
        return t->last_kept;
    float *copy = reference_keep_room(s, bytes);
    if (copy) {
        memcpy(copy, p, bytes);
        t->last_from = p;
        t->last_n = (size_t)n;
        t->last_kept = copy;
    }
    return copy;
}

const int32_t *reference_keep_indices(struct reference_session *s, const int32_t *p, int64_t n)
{
    int32_t *copy = reference_keep_room(s, (size_t)n * sizeof *p);
    if (copy)
        memcpy(copy, p, (size_t)n * sizeof *p);
    return copy;
}
