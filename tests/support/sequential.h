/* What a session holds at one moment, logits and all states bit for bit, for tests of packages that can't be rewound. */
#ifndef MILKIT_TESTS_SEQUENTIAL_H
#define MILKIT_TESTS_SEQUENTIAL_H

#include "packages.h"

struct moment {
    int64_t position;
    size_t logits_bytes;
    float *logits;
    int n_states;
    const char **names; /* of the session's states */
    size_t *bytes;
    void **states; /* as they are held: float32 or fp16 */
};

static inline struct moment moment_take(struct session *s, const struct model *m)
{
    const struct backend_states *states = session_states(s);
    struct moment t = {.position = session_position(s), .n_states = states->n};
    t.logits_bytes = sizeof(float) * (size_t)m->vocab_size;
    t.logits = xmalloc(t.logits_bytes);
    memcpy(t.logits, session_logits(s), t.logits_bytes);
    t.names = xcalloc((size_t)t.n_states, sizeof *t.names);
    t.bytes = xcalloc((size_t)t.n_states, sizeof *t.bytes);
    t.states = xcalloc((size_t)t.n_states, sizeof *t.states);
    for (int i = 0; i < t.n_states; i++) {
        t.names[i] = xstrdup(states->list[i].name);
        t.bytes[i] = backend_state_bytes(&states->list[i]);
        assert_true(t.bytes[i] > 0);
        t.states[i] = xmalloc(t.bytes[i]);
        m->backend->state_read(states, i, 0, t.bytes[i], t.states[i]);
    }
    return t;
}

static inline void moment_free(struct moment *t)
{
    for (int i = 0; i < t->n_states; i++) {
        free((char *)(uintptr_t)t->names[i]);
        free(t->states[i]);
    }
    free(t->names);
    free(t->bytes);
    free(t->states);
    free(t->logits);
    *t = (struct moment){0};
}

/* What differs, NULL: nothing. */
static inline const char *moment_difference(const struct moment *a, const struct moment *b)
{
    if (a->position != b->position)
        return "position";
    if (a->logits_bytes != b->logits_bytes || memcmp(a->logits, b->logits, a->logits_bytes) != 0)
        return "logits";
    if (a->n_states != b->n_states)
        return "number of states";
    for (int i = 0; i < a->n_states; i++) {
        int k = 0; /* the forms of a package list their states in different orders */
        while (k < b->n_states && strcmp(a->names[i], b->names[k]) != 0)
            k++;
        if (k == b->n_states || a->bytes[i] != b->bytes[k] ||
            memcmp(a->states[i], b->states[k], a->bytes[i]) != 0)
            return a->names[i];
    }
    return NULL;
}

static inline void assert_same_moment(struct session *s, const struct model *m, const struct moment *want,
                                      const char *what)
{
    struct moment now = moment_take(s, m);
    const char *difference = moment_difference(&now, want);
    if (difference)
        fail_msg("%s at position %lld: %s differs", what, (long long)want->position, difference);
    moment_free(&now);
}

static inline void feed(struct session *s, const int32_t *ids, size_t n, enum session_mode mode)
{
    ASSERT_OK(session_feed(s, ids, n, mode, NULL, NULL, NULL, e));
}

/* After these tokens in a session of their own. */
static inline struct moment moment_fresh(struct model *m, const int32_t *ids, size_t n,
                                         enum session_mode mode)
{
    struct session *s = NULL;
    ASSERT_OK(session_new(&s, m, e));
    feed(s, ids, n, mode);
    struct moment t = moment_take(s, m);
    session_free(s);
    return t;
}

/* Ids that repeat late. */
static inline void make_ids(int32_t *ids, size_t n, int64_t vocab_size, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 7919 + seed * 104729 + i * i * 31 + 11) % (size_t)vocab_size);
}

#endif
