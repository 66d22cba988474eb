/* Memory of a plan: every arena storage lives from the first to the last step that touches it, and gets the
 * lowest offset that no storage alive at the same time occupies, large ones first. */
#include <stdlib.h>
#include "engine/engine_int.h"

#define ALIGNMENT 64

static void touch(struct compiler *c, const struct value *v, int step)
{
    if (v->storage < 0)
        return;
    struct storage *s = &c->plan->storages[v->storage];
    if (s->kind == STORAGE_STATE)
        c->plan->states[s->index].is_used = true;
    if (s->first_step < 0 || step < s->first_step)
        s->first_step = step;
    if (step > s->last_step)
        s->last_step = step;
}

static size_t storage_bytes(const struct storage *s)
{
    size_t bytes = (size_t)s->n_elems * (s->repr == REPR_F16 ? 2 : 4);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

struct placed {
    int storage;
    size_t bytes;
};

static int by_size_descending(const void *a, const void *b)
{
    const struct placed *p = a, *q = b;
    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? 1 : -1;
    return p->storage < q->storage ? -1 : p->storage > q->storage;
}

bool plan_memory(struct compiler *c)
{
    struct engine_plan *p = c->plan;
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        for (int k = 0; k < s->n_in; k++)
            touch(c, &s->in[k], i);
        for (int k = 0; k < s->n_out; k++)
            touch(c, &s->out[k], i);
        for (int k = 0; k < s->n_more; k++)
            touch(c, &s->more[k], i);
        if (s->scratch_bytes > p->scratch_bytes)
            p->scratch_bytes = s->scratch_bytes;
        p->weight_bytes += s->weight_bytes;
    }
    for (int i = 0; i < p->n_outputs; i++)
        touch(c, &p->out_values[i], p->n_steps);
    p->scratch_bytes = (p->scratch_bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    struct placed *order = ARENA_ARRAY(c->scratch, struct placed, p->n_storages + 1);
    int n = 0;
    for (int i = 0; i < p->n_storages; i++)
        if (p->storages[i].kind == STORAGE_ARENA && p->storages[i].first_step >= 0)
            order[n++] = (struct placed){i, storage_bytes(&p->storages[i])};
    qsort(order, (size_t)n, sizeof *order, by_size_descending);
    int *active =
        ARENA_ARRAY(c->scratch, int, n + 1); /* placed so far that live at the same time, by offset */
    for (int i = 0; i < n; i++) {
        struct storage *s = &p->storages[order[i].storage];
        int n_active = 0;
        for (int k = 0; k < i; k++) {
            const struct storage *o = &p->storages[order[k].storage];
            if (o->last_step < s->first_step || o->first_step > s->last_step)
                continue;
            int at = n_active++;
            while (at > 0 && p->storages[order[active[at - 1]].storage].offset > o->offset) {
                active[at] = active[at - 1];
                at--;
            }
            active[at] = k;
        }
        size_t offset = 0;
        for (int k = 0; k < n_active; k++) {
            const struct storage *o = &p->storages[order[active[k]].storage];
            if (o->offset >= offset + order[i].bytes)
                break;
            size_t end = o->offset + order[active[k]].bytes;
            if (end > offset)
                offset = end;
        }
        s->offset = offset;
        if (offset + order[i].bytes > p->arena_bytes)
            p->arena_bytes = offset + order[i].bytes;
    }
    return true;
}
