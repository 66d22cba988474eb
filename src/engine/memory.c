/* Memory of a plan: every arena storage lives from the first to the last step that touches it, and gets a place that
 * no storage alive at the same time occupies.
 *
 * Steps are walked in order, as the run will walk them; a storage takes a free piece when its life begins and gives it back
 * when it ends. Free pieces stand in lists by size (a power of two cut in sixteen), neighbours are joined, and the
 * place is a piece that fits with little to spare. Each storage costs a constant number of operations, so time grows
 * with their number, but for sorting those that begin at the same step. */
#include <stdlib.h>
#include "engine/compiler.h"

#define ALIGNMENT 64
#define FINE_BITS 4
#define FINE (1 << FINE_BITS)
#define CLASSES ((64 - FINE_BITS) * FINE)
/* Pieces of a class that are looked at before a larger class is taken. */
#define LOOKS 8

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

/* Never 0, so that every storage has a place of its own. */
size_t storage_bytes(const struct storage *s)
{
    size_t bytes = (size_t)s->n_elems * (s->repr == REPR_F16 ? 2 : 4);
    return bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- pieces of the arena ---- */

struct piece {
    size_t offset, bytes; /* multiples of ALIGNMENT */
    int left, right;      /* neighbours in memory, -1: none */
    int prior, next;      /* in the list of its class while it is free */
    bool is_free;
};

struct pieces {
    struct arena *arena;
    struct piece *p;
    int n, cap, unused, last; /* unused: a list by `next` of entries without memory; last: of the arena */
    int heads[CLASSES];
    uint64_t rows;                    /* bit i: there is a piece in heads[i * FINE ..] */
    uint16_t columns[CLASSES / FINE]; /* bit k: there is one in heads[i * FINE + k] */
    size_t end;
};

/* Classes rise with the size; those of one power of two share the upper bits. */
static int class_of(size_t bytes)
{
    uint64_t units = bytes / ALIGNMENT;
    if (units < FINE)
        return (int)units;
    int top = 63 - __builtin_clzll(units);
    return (top - FINE_BITS + 1) * FINE + (int)(units >> (top - FINE_BITS) & (FINE - 1));
}

static void list_add(struct pieces *a, int i)
{
    struct piece *p = &a->p[i];
    int k = class_of(p->bytes);
    p->is_free = true;
    p->prior = -1;
    p->next = a->heads[k];
    if (p->next >= 0)
        a->p[p->next].prior = i;
    a->heads[k] = i;
    a->rows |= (uint64_t)1 << (k / FINE);
    a->columns[k / FINE] = (uint16_t)(a->columns[k / FINE] | 1u << (k % FINE));
}

static void list_remove(struct pieces *a, int i)
{
    struct piece *p = &a->p[i];
    int k = class_of(p->bytes);
    p->is_free = false;
    if (p->next >= 0)
        a->p[p->next].prior = p->prior;
    if (p->prior >= 0)
        a->p[p->prior].next = p->next;
    else
        a->heads[k] = p->next;
    if (a->heads[k] >= 0)
        return;
    a->columns[k / FINE] = (uint16_t)(a->columns[k / FINE] & ~(1u << (k % FINE)));
    if (!a->columns[k / FINE])
        a->rows &= ~((uint64_t)1 << (k / FINE));
}

/* The first class from k on that has a piece; -1: none. */
static int class_from(const struct pieces *a, int k)
{
    int row = k / FINE;
    unsigned here = a->columns[row] & (0xffffu << (k % FINE));
    if (here)
        return row * FINE + __builtin_ctz(here);
    uint64_t above = row < 63 ? a->rows & ~(uint64_t)0 << (row + 1) : 0;
    if (!above)
        return -1;
    row = __builtin_ctzll(above);
    return row * FINE + __builtin_ctz(a->columns[row]);
}

static int piece_new(struct pieces *a)
{
    int i = a->unused;
    if (i >= 0) {
        a->unused = a->p[i].next;
        return i;
    }
    return a->n++; /* see place_all: there is room */
}

/* A free piece of at least `bytes`: the smallest of the first few of its class, or one of a larger class; -1: none. */
static int find_free(const struct pieces *a, size_t bytes)
{
    int k = class_of(bytes), best = -1, looks = 0;
    for (int i = a->heads[k]; i >= 0 && looks < LOOKS; i = a->p[i].next, looks++)
        if (a->p[i].bytes >= bytes && (best < 0 || a->p[i].bytes < a->p[best].bytes))
            best = i;
    if (best >= 0)
        return best;
    k = class_from(a, k + 1);
    if (k >= 0)
        return a->heads[k];
    /* What was not looked at may be the arena's end, which only grows. */
    return a->last >= 0 && a->p[a->last].is_free && a->p[a->last].bytes >= bytes ? a->last : -1;
}

static int take(struct pieces *a, size_t bytes)
{
    int i = find_free(a, bytes);
    if (i < 0) { /* the arena grows, from a free piece at its end if there is one */
        i = a->last;
        if (i >= 0 && a->p[i].is_free) {
            list_remove(a, i);
            a->end += bytes - a->p[i].bytes;
            a->p[i].bytes = bytes;
            return i;
        }
        i = piece_new(a);
        a->p[i] = (struct piece){.offset = a->end, .bytes = bytes, .left = a->last, .right = -1};
        if (a->last >= 0)
            a->p[a->last].right = i;
        a->last = i;
        a->end += bytes;
        return i;
    }
    list_remove(a, i);
    if (a->p[i].bytes > bytes) {
        int rest = piece_new(a);
        struct piece *p = &a->p[i];
        a->p[rest] = (struct piece){
            .offset = p->offset + bytes, .bytes = p->bytes - bytes, .left = i, .right = p->right};
        if (p->right >= 0)
            a->p[p->right].left = rest;
        else
            a->last = rest;
        p->right = rest;
        p->bytes = bytes;
        list_add(a, rest);
    }
    return i;
}

/* Joins i with its right neighbour, which goes. */
static void join_right(struct pieces *a, int i)
{
    int gone = a->p[i].right;
    a->p[i].bytes += a->p[gone].bytes;
    a->p[i].right = a->p[gone].right;
    if (a->p[i].right >= 0)
        a->p[a->p[i].right].left = i;
    else
        a->last = i;
    a->p[gone].next = a->unused;
    a->unused = gone;
}

static void give_back(struct pieces *a, int i)
{
    int right = a->p[i].right, left = a->p[i].left;
    if (right >= 0 && a->p[right].is_free) {
        list_remove(a, right);
        join_right(a, i);
    }
    if (left >= 0 && a->p[left].is_free) {
        list_remove(a, left);
        join_right(a, left);
        i = left;
    }
    list_add(a, i);
}

/* ---- lives ---- */

struct life {
    int storage, first, last, piece;
    size_t bytes;
};

/* By the first step, large ones first: what begins together is packed better so. */
static int by_begin(const void *a, const void *b)
{
    const struct life *p = a, *q = b;
    if (p->first != q->first)
        return p->first < q->first ? -1 : 1;
    if (p->bytes != q->bytes)
        return p->bytes > q->bytes ? -1 : 1;
    return p->storage < q->storage ? -1 : p->storage > q->storage;
}

static void place_all(struct compiler *c, struct life *lives, int n)
{
    struct engine_plan *plan = c->plan;
    struct pieces *a = ARENA_NEW(c->scratch, struct pieces);
    int *ends = ARENA_ARRAY(c->scratch, int, plan->n_steps + 1); /* by step: the first life that ends there */
    int *next_end = ARENA_ARRAY(c->scratch, int, n + 1);
    /* No more pieces than lives and the gaps between them. */
    a->p = ARENA_ARRAY(c->scratch, struct piece, 2 * (size_t)n + 2);
    a->unused = a->last = -1;
    for (int k = 0; k < CLASSES; k++)
        a->heads[k] = -1;
    for (int i = 0; i <= plan->n_steps; i++)
        ends[i] = -1;
    for (int step = 0, at = 0; step <= plan->n_steps; step++) {
        for (; at < n && lives[at].first == step; at++) {
            struct life *l = &lives[at];
            l->piece = take(a, l->bytes);
            plan->storages[l->storage].offset = a->p[l->piece].offset;
            next_end[at] = ends[l->last];
            ends[l->last] = at;
        }
        for (int i = ends[step]; i >= 0; i = next_end[i])
            give_back(a, lives[i].piece);
    }
    plan->arena_bytes = a->end;
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

    struct life *lives = ARENA_ARRAY(c->scratch, struct life, p->n_storages + 1);
    int n = 0;
    for (int i = 0; i < p->n_storages; i++) {
        const struct storage *s = &p->storages[i];
        if (s->kind == STORAGE_ARENA && s->first_step >= 0)
            lives[n++] = (struct life){
                .storage = i, .first = s->first_step, .last = s->last_step, .bytes = storage_bytes(s)};
    }
    qsort(lives, (size_t)n, sizeof *lives, by_begin);
    place_all(c, lives, n);
    return true;
}
