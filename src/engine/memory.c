/* Memory of a plan: every arena storage lives from the first to the last step that touches it, and gets a place that
 * no storage alive at the same time occupies: the lowest one, large storages first, as long as there are not so many that
 * looking for it would take too long. */
#include <stdlib.h>
#include "engine/engine_int.h"

#define ALIGNMENT 64
/* A model of 64 layers has a tenth of it. */
#define FIRST_FIT_MAX 32768

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

/* Places storages so that none alive at the same time overlap: the lowest offset that is free, large ones
 * first. Time grows with the square of n. */
static void place_first_fit(struct compiler *c, const struct placed *order, int n)
{
    struct engine_plan *p = c->plan;
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
}

static int size_class_of(size_t bytes)
{
    int size_class = 0;
    while ((size_t)ALIGNMENT << size_class < bytes)
        size_class++;
    return size_class;
}

/* The same for more storages than models have, in time that grows with the number of them and of steps: one step after the
 * other takes from and gives back to lists of pieces of like sizes. A piece is a power of two, and waits for a storage of
 * its own size, so this needs more memory. */
static void place_by_class(struct compiler *c, const struct placed *order, int n)
{
    struct engine_plan *p = c->plan;
    struct link {
        size_t offset;
        int next; /* index of a link, -1: none */
    } *links = ARENA_ARRAY(c->scratch, struct link, n + 1);
    int *begins = ARENA_ARRAY(c->scratch, int, p->n_steps + 2);
    int *ends = ARENA_ARRAY(c->scratch, int, p->n_steps + 2);
    int *next_begin = ARENA_ARRAY(c->scratch, int, n + 1), free_pieces[64];
    for (int i = 0; i < 64; i++)
        free_pieces[i] = -1;
    for (int i = 0; i < p->n_steps + 2; i++)
        begins[i] = ends[i] = -1;
    for (int i = n - 1; i >= 0; i--) {
        int first = p->storages[order[i].storage].first_step;
        next_begin[i] = begins[first];
        begins[first] = i;
    }
    for (int step = 0; step <= p->n_steps; step++) {
        for (int i = begins[step]; i >= 0; i = next_begin[i]) {
            struct storage *s = &p->storages[order[i].storage];
            int size_class = size_class_of(order[i].bytes);
            int piece = free_pieces[size_class];
            if (piece >= 0) {
                free_pieces[size_class] = links[piece].next;
                s->offset = links[piece].offset;
            } else {
                s->offset = p->arena_bytes;
                p->arena_bytes += (size_t)ALIGNMENT << size_class;
            }
            links[i] = (struct link){s->offset, ends[s->last_step]};
            ends[s->last_step] = i;
        }
        for (int i = ends[step], next; i >= 0; i = next) {
            int size_class = size_class_of(order[i].bytes);
            next = links[i].next;
            links[i].next = free_pieces[size_class];
            free_pieces[size_class] = i;
        }
    }
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
    if (n <= FIRST_FIT_MAX)
        place_first_fit(c, order, n);
    else
        place_by_class(c, order, n);
    return true;
}
