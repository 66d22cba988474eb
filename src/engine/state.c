/* States of a model: one buffer a name, shared by all functions and chunks.
 *
 * Caches that attention reads are held as fp16, as declared. Recurrent states are held as float32, so that a run of
 * many tokens by one call and by many calls rounds alike; what is read out by name is rounded then. ENGINE_FP16 holds
 * all of them as fp16, ENGINE_FP32 all as float32. */
#include <stdlib.h>
#include <string.h>
#include "engine/plan.h"

struct engine_state {
    int n;
    struct engine_state_entry *entries;
};

struct engine_state *engine_state_new(void)
{
    return xcalloc(1, sizeof(struct engine_state));
}

void engine_state_free(struct engine_state *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++) {
        free((char *)(uintptr_t)s->entries[i].name); /* made by engine_state_add */
        mem_free(s->entries[i].f16_data);
        mem_free(s->entries[i].f32_data);
    }
    free(s->entries);
    free(s);
}

int engine_state_count(const struct engine_state *s)
{
    return s->n;
}

struct engine_state_entry *engine_state_get(struct engine_state *s, int i)
{
    return &s->entries[i];
}

struct engine_state_entry *engine_state_find(struct engine_state *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].name, name) == 0)
            return &s->entries[i];
    return NULL;
}

void *state_data(const struct engine_state_entry *s)
{
    return s->f16_data ? (void *)s->f16_data : (void *)s->f32_data;
}

static bool allocate(struct engine_state_entry *entry, enum repr repr, struct err *e)
{
    size_t bytes = (size_t)entry->n_elems * (repr == REPR_F16 ? sizeof(f16) : sizeof(float));
    void *data = mem_try_alloc(bytes, e);
    if (!data)
        return err_wrap(e, "state %s", entry->name);
    if (repr == REPR_F16)
        entry->f16_data = data;
    else
        entry->f32_data = data;
    return true;
}

bool engine_state_add(struct engine_state *s, const struct engine_plan *p, struct err *e)
{
    for (int i = 0; i < p->n_states; i++) {
        const struct plan_state *d = &p->states[i];
        struct engine_state_entry *entry = engine_state_find(s, d->name);
        if (!entry) {
            s->entries = xrealloc(s->entries, sizeof *s->entries * (size_t)(s->n + 1));
            entry = &s->entries[s->n++];
            *entry = (struct engine_state_entry){
                .name = xstrdup(d->name), .dtype = d->dtype, .rank = d->rank, .n_elems = d->n_elems};
            memcpy(entry->dims, d->dims, sizeof d->dims);
        }
        if (entry->rank != d->rank || entry->dtype != d->dtype ||
            memcmp(entry->dims, d->dims, sizeof(int64_t) * (size_t)d->rank) != 0)
            return err_set(e, ERR_FORMAT,
                           "state %s has another shape in function %s than elsewhere in the package", d->name,
                           p->function);
        if (!d->is_used)
            continue;
        if ((entry->f16_data && d->repr != REPR_F16) || (entry->f32_data && d->repr == REPR_F16))
            return err_set(e, ERR_BUG,
                           "function %s holds the state %s in another type than the plans before it",
                           p->function, d->name);
        entry->is_recurrent = entry->is_recurrent || d->is_recurrent;
        if (!state_data(entry) && !allocate(entry, d->repr, e))
            return false;
    }
    return true;
}

void engine_state_clear(struct engine_state *s)
{
    for (int i = 0; i < s->n; i++) {
        struct engine_state_entry *entry = &s->entries[i];
        if (entry->f16_data)
            mem_zero(entry->f16_data, (size_t)entry->n_elems * sizeof(f16));
        if (entry->f32_data)
            mem_zero(entry->f32_data, (size_t)entry->n_elems * sizeof(float));
    }
}

void engine_state_read(const struct engine_state_entry *s, f16 *dst)
{
    if (s->f32_data)
        f32_to_f16_n(dst, s->f32_data, (size_t)s->n_elems);
    else if (s->f16_data)
        memcpy(dst, s->f16_data, (size_t)s->n_elems * sizeof *dst);
    else
        memset(dst, 0, (size_t)s->n_elems * sizeof *dst);
}

void engine_state_write(struct engine_state_entry *s, const f16 *src)
{
    if (s->f32_data)
        f16_to_f32_n(s->f32_data, src, (size_t)s->n_elems);
    else if (s->f16_data)
        memcpy(s->f16_data, src, (size_t)s->n_elems * sizeof *src);
}
