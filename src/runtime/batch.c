/* One token each for several sessions: members whose next call is of the same function go through the package together. */
#include <pthread.h>
#include <stdlib.h>
#include "format/contract.h"
#include "runtime/batch.h"
#include "runtime/model_int.h"
#include "runtime/session_int.h"

/* Inputs of a chunk that each member brings along. */
enum { IN_HIDDEN, IN_PER_LAYER, IN_POSITIONS, IN_MASK, IN_CURRENT, IN_UPDATE, INPUTS };

static const char *const input_names[INPUTS] = {PORT_HIDDEN_STATES, PORT_PER_LAYER_INPUTS, PORT_POSITION_IDS,
                                                PORT_CAUSAL_MASK,   PORT_CURRENT_POS,      PORT_UPDATE_MASK};

struct part {
    struct backend_batch *batch; /* NULL: the package has no such function */
    int inputs[INPUTS];          /* of the function; -1: it has none of this name */
};

struct batch {
    struct model *model;
    int n_most;
    struct part embeddings, head, *chunks[2]; /* [n_chunks] plain and rotating */
    struct backend_member *members;           /* [n_most] */
    struct batch_member **group;              /* [n_most] */
};

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

static void bind(const struct batch *b, const struct part *p, int i, int input, const void *data)
{
    if (p->inputs[input] >= 0 && data)
        b->model->backend->run_bind_input(p->batch->runs[i], p->inputs[input], data);
}

/* Output `name` of run i of a part, NULL when it has none. */
static const void *output(const struct batch *b, const struct part *p, int i, const char *name)
{
    int at = backend_find_output(p->batch->runs[i]->function, name);
    return at < 0 ? NULL : b->model->backend->run_output(p->batch->runs[i], at);
}

/* What member i's session has for the call, and from part to part what the one before leaves. */
static void bind_member(const struct batch *b, int i, const struct lane *l, bool rotating)
{
    const struct model *m = b->model;
    const void *hidden = l->ids, *per_layer = NULL;
    if (!m->is_monolithic) {
        bind(b, &b->embeddings, i, IN_HIDDEN, l->ids);
        hidden = output(b, &b->embeddings, i, PORT_HIDDEN_STATES);
        per_layer = output(b, &b->embeddings, i, PORT_PER_LAYER_INPUTS);
    }
    for (int k = 0; k < m->n_chunks; k++) {
        const struct part *p = &b->chunks[rotating][k];
        bind(b, p, i, IN_HIDDEN, hidden);
        bind(b, p, i, IN_PER_LAYER, per_layer);
        bind(b, p, i, IN_POSITIONS, l->positions);
        bind(b, p, i, IN_MASK, l->mask);
        bind(b, p, i, IN_CURRENT, l->current_pos);
        bind(b, p, i, IN_UPDATE, l->update_mask);
        if (!m->is_monolithic)
            hidden = output(b, p, i, PORT_OUTPUT_HIDDEN_STATES);
    }
    if (!m->is_monolithic)
        bind(b, &b->head, i, IN_HIDDEN, hidden);
}

/* A part for the n members of the group: chunk i_part, -1 the embeddings, n_chunks the head. */
static void run_part(struct batch *b, const struct part *p, struct batch_member **group, int n, int i_part)
{
    struct err e = {0};
    bool is_chunk = i_part >= 0 && i_part < b->model->n_chunks;
    for (int i = 0; i < n; i++) {
        struct session *s = group[i]->session;
        b->members[i] = (struct backend_member){
            .states = is_chunk ? s->states : NULL, .stop = &s->stop, .has_failed = group[i]->has_failed};
    }
    bool ok = b->model->backend->batch_execute(p->batch, b->members, n, &e);
    for (int i = 0; i < n; i++) {
        struct batch_member *to = group[i];
        if (to->has_failed || (ok && !b->members[i].has_failed))
            continue;
        to->has_failed = true;
        to->error = ok ? b->members[i].error : e;
        if (is_chunk)
            (void)session_chunk_failed(to->session, i_part, &to->error);
        else if (i_part < 0)
            err_wrap(&to->error, "tokens at position %lld", (long long)to->session->n);
        else
            err_wrap(&to->error, "LM head");
    }
}

/* The group's n members, whose next call is of the plain or of the rotating functions. */
static void run_group(struct batch *b, struct batch_member **group, int n, bool rotating)
{
    const struct model *m = b->model;
    for (int i = 0; i < n; i++) {
        session_fill_lane(group[i]->session, &group[i]->session->infer, &group[i]->id);
        bind_member(b, i, &group[i]->session->infer, rotating);
    }
    if (!m->is_monolithic)
        run_part(b, &b->embeddings, group, n, -1);
    for (int k = 0; k < m->n_chunks; k++)
        run_part(b, &b->chunks[rotating][k], group, n, k);
    for (int i = 0; i < n; i++)
        if (!group[i]->has_failed)
            session_advance(group[i]->session, &group[i]->session->infer, &group[i]->id);
    if (!m->is_monolithic)
        run_part(b, &b->head, group, n, m->n_chunks);
    for (int i = 0; i < n; i++) {
        struct batch_member *to = group[i];
        const struct part *p = m->is_monolithic ? &b->chunks[rotating][0] : &b->head;
        if (to->has_failed)
            continue;
        to->has_failed = !session_take_logits(to->session, p->batch->runs[i], rotating, &to->error);
        if (!to->has_failed)
            snapshot_take_regular(to->session, to->session->n - 1);
    }
}

/* Steps a member that can't go with others; false: it can. */
static bool step_alone(struct batch_member *to)
{
    struct session *s = to->session;
    const struct model *m = s->model;
    if (m->backend->batch_open && !s->watch && s->n < m->context_length && !stop_requested(&s->stop))
        return false;
    to->has_failed = !session_feed(s, &to->id, 1, SESSION_INFER_ONLY, NULL, NULL, NULL, &to->error);
    return true;
}

bool batch_step(struct batch *b, struct batch_member *members, int n)
{
    int n_group[2] = {0, 0}; /* plain ones from the front of b->group, rotating ones from its end */
    bool ok = true;
    for (int i = 0; i < n; i++) {
        struct batch_member *to = &members[i];
        bool rotating = to->session->n >= b->model->rotate_from;
        to->error = (struct err){0};
        to->has_failed = false;
        if (step_alone(to))
            continue;
        b->group[rotating ? b->n_most - 1 - n_group[1] : n_group[0]] = to;
        n_group[rotating]++;
    }
    if (n_group[0] > 0)
        run_group(b, b->group, n_group[0], false);
    if (n_group[1] > 0)
        run_group(b, b->group + b->n_most - n_group[1], n_group[1], true);
    for (int i = 0; i < n; i++)
        ok = ok && !members[i].has_failed;
    return ok;
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
