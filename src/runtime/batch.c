/* One token each for several sessions: members whose next call is of the same function go through the package together. */
#include "format/contract.h"
#include "runtime/batch_int.h"
#include "runtime/session_int.h"

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
