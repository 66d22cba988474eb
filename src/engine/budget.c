/* What plans may cost together, and what they have taken of it. */
#include <pthread.h>
#include <stdlib.h>
#include "base/mem.h"
#include "engine/compiler.h"
#include "format/blob.h"

struct engine_budget {
    pthread_mutex_t mutex;
    double memory_most, work_most;
    double memory, work;  /* taken */
    struct table *states; /* their names: functions and chunks share them */
};

bool engine_limits_of(const struct mil_model *m, struct engine_limits *out, struct err *e)
{
    const char *text = getenv("MILKIT_LIMIT");
    char *end = NULL;
    double factor = text ? strtod(text, &end) : 1, bytes = 0;
    if (text && (end == text || *end || !(factor >= 1) || factor > 1e6))
        return err_set(e, ERR_USAGE, "MILKIT_LIMIT: expected a number from 1 to 1000000, found '%s'", text);
    for (int i = 0; m && i < m->n_files; i++)
        bytes += (double)m->files[i]->map->bytes;
    double memory = (0x1p32 + 64 * bytes) * factor, work = (0x1p40 + 0x1p20 * bytes) * factor;
    out->memory = memory < 0x1p63 ? (uint64_t)memory : UINT64_MAX;
    out->work = work < 0x1p63 ? (uint64_t)work : UINT64_MAX;
    return true;
}

struct engine_budget *engine_budget_new(struct engine_limits limits)
{
    struct engine_budget *b = xcalloc(1, sizeof *b);
    pthread_mutex_init(&b->mutex, NULL);
    b->memory_most = (double)limits.memory;
    b->work_most = (double)limits.work;
    b->states = table_new();
    return b;
}

void engine_budget_add(struct engine_budget *b, const struct mil_model *m)
{
    struct engine_limits with, without;
    if (!engine_limits_of(m, &with, NULL) || !engine_limits_of(NULL, &without, NULL))
        return; /* the environment has changed since the budget was made */
    pthread_mutex_lock(&b->mutex);
    b->memory_most += (double)with.memory - (double)without.memory;
    b->work_most += (double)with.work - (double)without.work;
    pthread_mutex_unlock(&b->mutex);
}

void engine_budget_free(struct engine_budget *b)
{
    if (!b)
        return;
    table_free(b->states);
    pthread_mutex_destroy(&b->mutex);
    free(b);
}

void budget_memory(struct engine_budget *b, double *taken, double *most)
{
    pthread_mutex_lock(&b->mutex);
    *taken = b->memory;
    *most = b->memory_most;
    pthread_mutex_unlock(&b->mutex);
}

/* Bytes of the plan's states that no plan before it had; with take they count as had from now on. */
static double new_state_bytes(struct engine_budget *b, const struct engine_plan *p, bool take)
{
    double bytes = 0;
    for (int i = 0; i < p->n_states; i++) {
        const struct plan_state *s = &p->states[i];
        if (!s->is_used || table_get(b->states, s->name))
            continue;
        bytes += (s->repr == REPR_F16 ? 2.0 : 4.0) * (double)s->n_elems;
        if (take)
            table_put(b->states, s->name, b);
    }
    return bytes;
}

bool budget_take(struct engine_budget *b, struct engine_plan *p, struct err *e)
{
    bool ok = true;
    pthread_mutex_lock(&b->mutex);
    double own = (double)p->memory + new_state_bytes(b, p, false), memory = b->memory + own,
           work = b->work + p->work;
    const char *others = b->memory > 0 || b->work > 0 ? " beside the functions before it" : "";
    if (memory > b->memory_most)
        ok = err_set(e, ERR_LIMIT,
                     "function %s: needs %.0f MB of memory%s, the limit is %.0f MB (" LIMIT_HINT ")",
                     p->function, memory * 1e-6, others, b->memory_most * 1e-6);
    else if (work > b->work_most)
        ok = err_set(e, ERR_LIMIT, "function %s: needs %.3g operations%s, the limit is %.3g (" LIMIT_HINT ")",
                     p->function, work, others, b->work_most);
    if (ok) {
        new_state_bytes(b, p, true);
        double left = b->memory_most - (memory - (double)p->memory);
        p->memory_max = left < 0x1p63 ? (uint64_t)left : UINT64_MAX;
        b->memory = memory;
        b->work = work;
    }
    pthread_mutex_unlock(&b->mutex);
    return ok;
}

void engine_budget_give_back(struct engine_budget *b, const struct engine_plan *p)
{
    pthread_mutex_lock(&b->mutex);
    b->memory -= (double)p->memory;
    b->work -= p->work;
    pthread_mutex_unlock(&b->mutex);
}
