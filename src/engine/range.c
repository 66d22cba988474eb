/* Do values that a program declares fp16 stay within fp16? In the default precision they are float32, so that what a device
 * makes infinite is finite here. A plan that watches has a step behind each step that looks at what it made. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "engine/compiler.h"

struct engine_range {
    pthread_mutex_t mutex;
    struct engine_range_found found;
};

struct engine_range *engine_range_new(void)
{
    struct engine_range *r = xcalloc(1, sizeof *r);
    pthread_mutex_init(&r->mutex, NULL);
    return r;
}

void engine_range_free(struct engine_range *r)
{
    if (!r)
        return;
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

void engine_range_get(struct engine_range *r, struct engine_range_found *out)
{
    pthread_mutex_lock(&r->mutex);
    *out = r->found;
    pthread_mutex_unlock(&r->mutex);
}

/* fp16 rounds to an infinity from here on. */
#define F16_END 65520.0f

struct range_step {
    struct engine_range *range;
    const char *function, *variable;
};

/* Of a value's elements: the largest finite magnitude, and how many fp16 does not hold. Masks are -inf on purpose. */
static void look(const float *x, const struct value *v, int axis, float *largest, int64_t *n_beyond)
{
    for (int64_t i = 0; i < v->dims[axis]; i++, x += v->strides[axis]) {
        if (axis + 1 < v->rank) {
            look(x, v, axis + 1, largest, n_beyond);
            continue;
        }
        float size = fabsf(*x);
        *n_beyond += !(size < F16_END) && *x != -INFINITY;
        if (size > *largest && size < INFINITY)
            *largest = size;
    }
}

static void run_range(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct range_step *p = s->params;
    float largest = 0;
    int64_t n_beyond = 0;
    (void)i_thread;
    (void)n_threads;
    look(value_pointer(r, &s->in[0]), &s->in[0], 0, &largest, &n_beyond);
    pthread_mutex_lock(&p->range->mutex);
    struct engine_range_found *found = &p->range->found;
    found->n_beyond += n_beyond;
    if ((double)largest > found->largest) {
        found->largest = (double)largest;
        snprintf(found->function, sizeof found->function, "%s", p->function);
        snprintf(found->variable, sizeof found->variable, "%s", p->variable ? p->variable : "");
    }
    pthread_mutex_unlock(&p->range->mutex);
}

bool range_watch(struct compiler *c, const struct mil_op *op, int begin)
{
    int end = c->plan->n_steps;
    if (!c->range || op->n_outputs == 0 || var_type(c, op->outputs[0])->kind != MIL_TYPE_TENSOR ||
        var_type(c, op->outputs[0])->dtype != MIL_FP16)
        return true;
    for (int i = begin; i < end; i++) {
        struct value v =
            c->plan->steps[i].n_out > 0 ? c->plan->steps[i].out[0] : (struct value){.storage = -1};
        if (v.storage < 0 || v.repr != REPR_F32 || v.rank < 1 ||
            c->plan->storages[v.storage].kind != STORAGE_ARENA)
            continue;
        if (!compile_take_steps(c, 1))
            return false;
        struct range_step *p = ARENA_NEW(c->arena, struct range_step);
        *p = (struct range_step){c->range, c->plan->function, arena_strdup(c->arena, op->outputs[0]->name)};
        struct step *s = step_new(c, "range", run_range);
        s->label = p->variable;
        s->params = p;
        step_in(c, s, v);
    }
    return true;
}
