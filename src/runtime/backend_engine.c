/* The backend that computes here: milkit's engine. */
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"
#include "runtime/backend.h"

struct shared {
    struct backend_package base;
    const struct kernels *kernels;
    struct engine_state_forms *forms; /* NULL until a program is added */
    struct engine_budget *budget;     /* of the programs that were added */
    struct engine_range *range;       /* NULL: nobody watches */
    struct backend_options options;
};

struct function {
    struct backend_function base;
    struct engine_plan *plan;
    struct engine_budget *budget; /* it took from; NULL: none */
};

struct states {
    struct backend_states base;
    struct engine_state *state;
};

struct run {
    struct backend_run base;
    struct engine_run *run;
    struct pool *pool;
};

struct batch {
    struct backend_batch base;
    struct engine_batch *batch;
    struct engine_member *members; /* [n_runs] */
    struct run *runs;              /* [n_runs]: those of the batch */
    struct pool *pool;
};

static struct engine_plan *plan_of(const struct backend_function *f)
{
    return ((const struct function *)f)->plan;
}

static struct engine_run *run_of(const struct backend_run *r)
{
    return r ? ((const struct run *)r)->run : NULL;
}

/* ---- packages ---- */

static void close_package(struct backend_package *p)
{
    if (!p)
        return;
    engine_state_forms_free(((struct shared *)p)->forms);
    engine_budget_free(((struct shared *)p)->budget);
    engine_range_free(((struct shared *)p)->range);
    free(p);
}

static bool open_package(struct backend_package **out, const struct backend_options *o, struct err *e)
{
    const char *why = "";
    struct engine_limits limits; /* read before a file is: a wrong one is not the fault of the package */
    const struct kernels *kernels = kernel_select(&why);
    *out = NULL;
    if (!kernels)
        return err_set(e, ERR_USAGE, "%s", why);
    if (!engine_limits_of(NULL, &limits, e))
        return false;
    if (o->emulation && o->precision != PRECISION_ANE)
        return err_set(e, ERR_USAGE, "switches of the emulation without its precision");
    if (o->emulation && !engine_emulation_check(o->emulation, NULL, e))
        return false;
    struct shared *p = xcalloc(1, sizeof *p);
    p->base.device = kernels->name;
    p->kernels = kernels;
    p->options = *o;
    p->budget = engine_budget_new(limits);
    p->range = o->watch_range ? engine_range_new() : NULL;
    *out = &p->base;
    return true;
}

static void package_range(const struct backend_package *base, struct backend_range *out)
{
    struct engine_range_found found = {0};
    const struct shared *p = (const struct shared *)base;
    if (p->range)
        engine_range_get(p->range, &found);
    *out = (struct backend_range){.largest = found.largest, .n_beyond = found.n_beyond};
    memcpy(out->function, found.function, sizeof out->function);
    memcpy(out->variable, found.variable, sizeof out->variable);
}

static void add_program(struct backend_package *base, const struct mil_model *m)
{
    struct shared *p = (struct shared *)base;
    if (!p->forms)
        p->forms = engine_state_forms_new();
    engine_state_forms_add(p->forms, m);
    engine_budget_add(p->budget, m);
}

static bool state_is_recurrent(const struct backend_package *base, const char *state)
{
    const struct shared *p = (const struct shared *)base;
    return p->forms && engine_state_is_recurrent(p->forms, state);
}

/* ---- functions ---- */

static void function_close(struct backend_function *f)
{
    if (!f)
        return;
    if (((struct function *)f)->budget)
        engine_budget_give_back(((struct function *)f)->budget, plan_of(f));
    engine_plan_free(plan_of(f));
    free(f);
}

static bool function_open(struct backend_function **out, struct backend_package *base,
                          const struct backend_source *source, const char *name,
                          const struct mil_input_shape *shapes, int n_shapes, struct err *e)
{
    static const enum engine_precision precisions[] = {[PRECISION_DEFAULT] = ENGINE_DEFAULT,
                                                       [PRECISION_FP32] = ENGINE_FP32,
                                                       [PRECISION_FP16] = ENGINE_FP16,
                                                       [PRECISION_ANE] = ENGINE_ANE};
    const struct shared *p = (const struct shared *)base;
    const struct engine_options options = {.range = p->range,
                                           .kernels = p->kernels,
                                           .stop = p->options.stop,
                                           .precision = precisions[p->options.precision],
                                           .emulation = p->options.emulation,
                                           .state_forms = p->forms,
                                           .budget = p->forms ? p->budget : NULL};
    struct engine_plan *plan = NULL;
    *out = NULL;
    if (!engine_plan_new(&plan, source->mil, name, shapes, n_shapes, &options, e))
        return false;
    struct function *f = xcalloc(1, sizeof *f);
    f->plan = plan;
    f->budget = options.budget;
    f->base.n_inputs = engine_plan_inputs(plan);
    f->base.n_outputs = engine_plan_outputs(plan);
    f->base.inputs = engine_plan_input(plan, 0);
    f->base.outputs = engine_plan_output(plan, 0);
    *out = &f->base;
    return true;
}

/* ---- states ---- */

static struct backend_states *states_new(struct backend_package *p)
{
    struct states *s = xcalloc(1, sizeof *s);
    (void)p;
    s->state = engine_state_new();
    return &s->base;
}

static void states_free(struct backend_states *base)
{
    struct states *s = (struct states *)base;
    if (!s)
        return;
    engine_state_free(s->state);
    free(s->base.list);
    free(s);
}

static void states_clear(struct backend_states *base)
{
    engine_state_clear(((struct states *)base)->state);
}

static struct engine_state_entry *entry_of(const struct backend_states *s, int i)
{
    return engine_state_get(((const struct states *)s)->state, i);
}

static bool states_add(struct backend_states *base, const struct backend_function *f, struct err *e)
{
    struct states *s = (struct states *)base;
    if (!engine_state_add(s->state, plan_of(f), e))
        return false;
    base->n = engine_state_count(s->state);
    base->list = xrealloc(base->list, sizeof *base->list * ((size_t)base->n + 1));
    for (int i = 0; i < base->n; i++) {
        const struct engine_state_entry *from = entry_of(base, i);
        base->list[i] = (struct backend_state){.name = from->name,
                                               .dtype = from->dtype,
                                               .rank = from->rank,
                                               .n_elems = from->n_elems,
                                               .is_recurrent = from->is_recurrent,
                                               .elem_bytes = from->f16_data   ? (int)sizeof(f16)
                                                             : from->f32_data ? (int)sizeof(float)
                                                                              : 0};
        memcpy(base->list[i].dims, from->dims, sizeof from->dims);
    }
    return true;
}

static char *state_memory(const struct backend_states *s, int i)
{
    const struct engine_state_entry *entry = entry_of(s, i);
    return entry->f16_data ? (char *)entry->f16_data : (char *)entry->f32_data;
}

static void state_read(const struct backend_states *s, int i, size_t first, size_t n, void *dst)
{
    if (n > 0)
        memcpy(dst, state_memory(s, i) + first, n);
}

static void state_write(struct backend_states *s, int i, size_t first, size_t n, const void *src)
{
    if (n > 0)
        memcpy(state_memory(s, i) + first, src, n);
}

static void state_get(const struct backend_states *s, int i, f16 *dst)
{
    engine_state_read(entry_of(s, i), dst);
}

static void state_set(struct backend_states *s, int i, const f16 *src)
{
    engine_state_write(entry_of(s, i), src);
}

/* ---- runs ---- */

static bool run_open(struct backend_run **out, const struct backend_function *f, struct pool *pool,
                     const struct stop *stop, struct err *e)
{
    struct engine_run *run;
    *out = NULL;
    if (!engine_run_new(&run, plan_of(f), pool_threads(pool), e))
        return false;
    if (stop)
        engine_run_set_stop(run, stop);
    struct run *r = xcalloc(1, sizeof *r);
    *r = (struct run){.base.function = f, .run = run, .pool = pool};
    *out = &r->base;
    return true;
}

static void run_close(struct backend_run *r)
{
    engine_run_free(run_of(r));
    free(r);
}

static void *run_input(struct backend_run *r, int i)
{
    return engine_input(run_of(r), i);
}

static void run_bind_input(struct backend_run *r, int i, const void *data)
{
    engine_bind_input(run_of(r), i, data);
}

static const void *run_output(const struct backend_run *r, int i)
{
    return engine_output(run_of(r), i);
}

static void run_round_output(struct backend_run *r, int i)
{
    engine_round_output(run_of(r), i);
}

static bool run_execute(struct backend_run *r, struct backend_states *states, struct err *e)
{
    return engine_execute(run_of(r), states ? ((struct states *)states)->state : NULL,
                          ((struct run *)r)->pool, e);
}

/* ---- batches ---- */

static void batch_close(struct backend_batch *base)
{
    struct batch *b = (struct batch *)base;
    if (!b)
        return;
    engine_batch_free(b->batch);
    free(b->members);
    free(b->runs);
    free(b->base.runs);
    free(b);
}

static bool batch_open(struct backend_batch **out, const struct backend_function *f, int n_runs,
                       struct pool *pool, struct err *e)
{
    struct engine_batch *batch;
    *out = NULL;
    if (!engine_batch_new(&batch, plan_of(f), n_runs, pool_threads(pool), e))
        return false;
    struct batch *b = xcalloc(1, sizeof *b);
    *b = (struct batch){.base.n_runs = n_runs, .batch = batch, .pool = pool};
    b->members = xcalloc((size_t)n_runs, sizeof *b->members);
    b->runs = xcalloc((size_t)n_runs, sizeof *b->runs);
    b->base.runs = xcalloc((size_t)n_runs, sizeof *b->base.runs);
    for (int i = 0; i < n_runs; i++) {
        b->runs[i] = (struct run){.base.function = f, .run = engine_batch_run(batch, i), .pool = pool};
        b->base.runs[i] = &b->runs[i].base;
    }
    *out = &b->base;
    return true;
}

static bool batch_execute(struct backend_batch *base, struct backend_member *members, int n, struct err *e)
{
    struct batch *b = (struct batch *)base;
    for (int i = 0; i < n; i++) {
        const struct states *states = (const struct states *)members[i].states;
        b->members[i] = (struct engine_member){.state = states ? states->state : NULL,
                                               .has_failed = members[i].has_failed};
        engine_run_set_stop(b->runs[i].run, members[i].stop);
    }
    bool ok = engine_batch_execute(b->batch, b->members, n, b->pool, e);
    for (int i = 0; ok && i < n; i++)
        if (!members[i].has_failed && b->members[i].has_failed) {
            members[i].has_failed = true;
            members[i].error = b->members[i].error;
        }
    return ok;
}

/* ---- plans ---- */

static void run_measure(struct backend_run *r)
{
    engine_run_measure(run_of(r), true);
}

static void print_plan(const struct backend_function *f, const struct backend_run *measured, FILE *out)
{
    engine_plan_print(plan_of(f), run_of(measured), out);
}

static void put_plan(const struct backend_function *f, const struct backend_run *measured, struct buf *out)
{
    engine_plan_put_json(plan_of(f), run_of(measured), out);
}

extern const struct backend backend_engine;
const struct backend backend_engine = {.name = "engine",
                                       .reads_programs = true,
                                       .open = open_package,
                                       .close = close_package,
                                       .package_range = package_range,
                                       .add_program = add_program,
                                       .state_is_recurrent = state_is_recurrent,
                                       .function_open = function_open,
                                       .function_close = function_close,
                                       .states_new = states_new,
                                       .states_add = states_add,
                                       .states_clear = states_clear,
                                       .states_free = states_free,
                                       .state_read = state_read,
                                       .state_write = state_write,
                                       .state_get = state_get,
                                       .state_set = state_set,
                                       .run_open = run_open,
                                       .run_close = run_close,
                                       .run_input = run_input,
                                       .run_bind_input = run_bind_input,
                                       .run_output = run_output,
                                       .run_round_output = run_round_output,
                                       .run_execute = run_execute,
                                       .batch_open = batch_open,
                                       .batch_close = batch_close,
                                       .batch_execute = batch_execute,
                                       .run_measure = run_measure,
                                       .print_plan = print_plan,
                                       .put_plan = put_plan};
