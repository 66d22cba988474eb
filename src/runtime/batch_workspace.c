/* Workspaces for steps of several sessions: a call of each part for every member; those that wait for their next use. */
#include <pthread.h>
#include <stdlib.h>
#include "format/contract.h"
#include "runtime/batch_int.h"

static const char *const input_names[INPUTS] = {PORT_HIDDEN_STATES, PORT_PER_LAYER_INPUTS, PORT_POSITION_IDS,
                                                PORT_CAUSAL_MASK,   PORT_CURRENT_POS,      PORT_UPDATE_MASK};

static bool part_open(struct batch *b, struct part *p, const struct backend_function *f, struct err *e)
{
    const struct backend *backend = b->model->backend;
    if (!f)
        return true;
    if (!backend->batch_open(&p->batch, f, b->n_most, b->model->pool, e))
        return false;
    for (int i = 0; i < INPUTS; i++)
        p->inputs[i] = backend_find_input(f, input_names[i]);
    if (p->inputs[IN_HIDDEN] < 0) /* embeddings, or a monolithic model */
        p->inputs[IN_HIDDEN] = backend_find_input(f, PORT_INPUT_IDS);
    return true;
}

bool batch_new(struct batch **out, struct model *m, int n_most, struct err *e)
{
    static const enum model_function functions[2] = {MODEL_INFER, MODEL_INFER_ROTATE};
    struct batch *b = xcalloc(1, sizeof *b);
    bool ok = true;
    *out = NULL;
    b->model = m;
    b->n_most = n_most;
    b->members = xcalloc((size_t)n_most + 1, sizeof *b->members);
    b->group = xcalloc((size_t)n_most + 1, sizeof *b->group);
    for (int k = 0; k < 2; k++)
        b->chunks[k] = xcalloc((size_t)m->n_chunks, sizeof *b->chunks[k]);
    if (m->backend->batch_open) {
        ok = part_open(b, &b->embeddings, m->embeddings.functions[MODEL_INFER], e) &&
             part_open(b, &b->head, m->head.functions[MODEL_INFER], e);
        for (int k = 0; k < 2; k++)
            for (int i = 0; ok && i < m->n_chunks; i++)
                ok = part_open(b, &b->chunks[k][i], m->chunks[i].functions[functions[k]], e);
    }
    if (ok) {
        *out = b;
        b = NULL;
    }
    batch_free(b);
    return ok;
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    const struct backend *backend = b->model->backend;
    if (backend->batch_close) {
        backend->batch_close(b->embeddings.batch);
        backend->batch_close(b->head.batch);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < b->model->n_chunks; i++)
                backend->batch_close(b->chunks[k][i].batch);
    }
    for (int k = 0; k < 2; k++)
        free(b->chunks[k]);
    free(b->members);
    free(b->group);
    free(b);
}

int batch_most(const struct batch *b)
{
    return b->n_most;
}

/* ---- workspaces that wait ---- */

#define IDLE_MAX 4

struct batch_store {
    pthread_mutex_t mutex;
    int n;
    struct batch *idle[IDLE_MAX];
};

struct batch_store *batch_store_new(void)
{
    struct batch_store *s = xcalloc(1, sizeof *s);
    pthread_mutex_init(&s->mutex, NULL);
    return s;
}

void batch_store_free(struct batch_store *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++)
        batch_free(s->idle[i]);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

/* The smallest one for n sessions; where all are too small, one of those in *old, to make room for a larger one. */
static struct batch *take_idle(struct batch_store *s, int n, struct batch **old)
{
    struct batch *found;
    int best = -1;
    *old = NULL;
    pthread_mutex_lock(&s->mutex);
    for (int i = 0; i < s->n; i++)
        if (s->idle[i]->n_most >= n && (best < 0 || s->idle[i]->n_most < s->idle[best]->n_most))
            best = i;
    found = best < 0 ? NULL : s->idle[best];
    if (!found && s->n > 0)
        *old = s->idle[best = 0];
    if (best >= 0)
        s->idle[best] = s->idle[--s->n];
    pthread_mutex_unlock(&s->mutex);
    return found;
}

bool batch_take(struct batch **out, struct model *m, int n, struct err *e)
{
    struct batch *old;
    int n_most = 1;
    *out = take_idle(m->batches, n, &old);
    batch_free(old);
    while (n_most < n)
        n_most *= 2;
    return *out || batch_new(out, m, n_most, e);
}

void batch_give_back(struct batch *b)
{
    struct batch_store *s = b->model->batches;
    pthread_mutex_lock(&s->mutex);
    if (s->n < IDLE_MAX) {
        s->idle[s->n++] = b;
        b = NULL;
    }
    pthread_mutex_unlock(&s->mutex);
    batch_free(b);
}
