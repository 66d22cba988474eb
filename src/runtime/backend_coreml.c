/* The backend of Apple's systems: Core ML, through coreml.h. Ports and shapes are read from the program, since that is what the
 * system's description is checked against; which states are recurrent is the engine's reading of the same programs.
 *
 * What is handed from chunk to chunk is rounded to fp16 as declared, so results are near those of the engine and not the same.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "coreml/coreml.h"
#include "mil/infer.h"
#include "runtime/backend.h"

extern const struct backend backend_engine;

/* A function of a file as the system has it: one for all shapes. */
struct loaded {
    struct loaded *next;
    char *path, *name; /* name NULL: the default function */
    int n_users;
    struct coreml_model *model;
};

/* A .mlpackage that the system compiled for us. */
struct compiled {
    struct compiled *next;
    char *path, *made;
};

struct shared {
    struct backend_package base;
    struct backend_package *programs; /* of the engine: what is read from them */
    enum coreml_units units;
    pthread_mutex_t mutex; /* of what follows */
    struct loaded *loaded;
    struct compiled *compiled;
};

struct function {
    struct backend_function base;
    struct arena *arena;
    struct shared *shared;
    struct loaded *loaded;
    int n_states;
    struct mil_port *states;
};

/* States live in groups, one for all functions that share states. */
struct states {
    struct backend_states base;
    struct shared *shared;
    int n_groups;
    struct coreml_state **groups;
    int *group_of; /* [base.n] */
};

struct run {
    struct backend_run base;
    const struct stop *stop;
    struct coreml_call *call;
    void **own;         /* [n_inputs][n_elems]: float or int32 */
    const void **bound; /* [n_inputs]: own, or the caller's */
    void **outputs;     /* [n_outputs][n_elems] */
};

/* ---- packages ---- */

static void close_package(struct backend_package *base)
{
    struct shared *p = (struct shared *)base;
    if (!p)
        return;
    for (struct compiled *c = p->compiled, *next; c; c = next) {
        next = c->next;
        (void)!path_remove_tree(c->made, NULL);
        free(c->path);
        free(c->made);
        free(c);
    }
    backend_engine.close(p->programs);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

static bool open_package(struct backend_package **out, const struct backend_options *o, struct err *e)
{
    enum coreml_units units;
    struct backend_package *programs;
    *out = NULL;
    if (o->precision != PRECISION_DEFAULT || o->emulation)
        return err_set(e, ERR_USAGE, "precisions are of milkit's engine: Core ML computes as its devices do");
    if (!coreml_units_find(o->compute_units, &units, e) || !coreml_check(e) ||
        !backend_engine.open(&programs, &(struct backend_options){0}, e))
        return false;
    struct shared *p = xcalloc(1, sizeof *p);
    p->base.device = coreml_name();
    p->programs = programs;
    p->units = units;
    pthread_mutex_init(&p->mutex, NULL);
    *out = &p->base;
    return true;
}

static void add_program(struct backend_package *p, const struct mil_model *m)
{
    backend_engine.add_program(((struct shared *)p)->programs, m);
}

static bool state_is_recurrent(const struct backend_package *p, const char *state)
{
    return backend_engine.state_is_recurrent(((const struct shared *)p)->programs, state);
}

/* ---- functions ---- */

static bool is_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* The compiled form of a file: itself, or what the system makes of it. Under the mutex. */
static const char *compiled_path(struct shared *p, const char *path, struct err *e)
{
    char *made;
    if (has_suffix(path, ".mlmodelc"))
        return path;
    for (struct compiled *c = p->compiled; c; c = c->next)
        if (strcmp(c->path, path) == 0)
            return c->made;
    if (!coreml_compile(path, &made, e))
        return NULL;
    struct compiled *c = xcalloc(1, sizeof *c);
    *c = (struct compiled){.next = p->compiled, .path = xstrdup(path), .made = made};
    p->compiled = c;
    return made;
}

static struct loaded *loaded_get(struct shared *p, const char *path, const char *name, struct err *e)
{
    struct coreml_model *model = NULL;
    const char *compiled;
    pthread_mutex_lock(&p->mutex);
    struct loaded *l = p->loaded;
    while (l && !(is_same(l->path, path) && is_same(l->name, name)))
        l = l->next;
    if (!l && (compiled = compiled_path(p, path, e)) &&
        coreml_model_open(&model, compiled, name, p->units, e)) {
        l = xcalloc(1, sizeof *l);
        *l = (struct loaded){.next = p->loaded, .path = xstrdup(path), .model = model};
        l->name = name ? xstrdup(name) : NULL;
        p->loaded = l;
    }
    if (l)
        l->n_users++;
    pthread_mutex_unlock(&p->mutex);
    return l;
}

static void loaded_put(struct shared *p, struct loaded *l)
{
    pthread_mutex_lock(&p->mutex);
    struct loaded **at = &p->loaded;
    if (--l->n_users == 0) {
        while (*at != l)
            at = &(*at)->next;
        *at = l->next;
    } else {
        l = NULL;
    }
    pthread_mutex_unlock(&p->mutex);
    if (!l)
        return;
    coreml_model_close(l->model);
    free(l->path);
    free(l->name);
    free(l);
}

static void function_close(struct backend_function *base)
{
    struct function *f = (struct function *)base;
    if (!f)
        return;
    if (f->loaded)
        loaded_put(f->shared, f->loaded);
    arena_free(f->arena);
    free(f);
}

static bool fill_port(struct mil_port *port, const char *function, const struct mil_var *v,
                      const struct mil_type *t, struct err *e)
{
    t = mil_type_tensor(t);
    if (t->kind != MIL_TYPE_TENSOR || t->rank > MIL_RANK_MAX || mil_type_elems(t) < 0)
        return err_set(e, ERR_UNSUPPORTED, "function %s: %s has no fixed tensor shape", function, v->name);
    *port = (struct mil_port){.name = v->name,
                              .dtype = t->dtype,
                              .is_int = !mil_dtype_is_float(t->dtype),
                              .rank = t->rank,
                              .n_elems = mil_type_elems(t)};
    memcpy(port->dims, t->dims, sizeof *t->dims * (size_t)t->rank);
    return true;
}

static bool fill_ports(struct function *f, const struct mil_model *m, const struct mil_function *mil,
                       const struct mil_input_shape *shapes, int n_shapes, struct err *e)
{
    const struct mil_type **given = ARENA_ARRAY(f->arena, const struct mil_type *, mil->n_inputs + 1),
                          **types = ARENA_ARRAY(f->arena, const struct mil_type *, mil->n_vars + 1);
    struct mil_port *inputs = ARENA_ARRAY(f->arena, struct mil_port, mil->n_inputs + 1),
                    *outputs = ARENA_ARRAY(f->arena, struct mil_port, mil->block->n_outputs + 1);
    if (!mil_input_types(given, m, mil, shapes, n_shapes, f->arena, e) ||
        !mil_infer_function(mil, given, types, NULL, f->arena, e))
        return false;
    f->states = ARENA_ARRAY(f->arena, struct mil_port, mil->n_inputs + 1);
    f->base.inputs = inputs;
    f->base.outputs = outputs;
    for (int i = 0; i < mil->n_inputs; i++) {
        const struct mil_var *v = mil->inputs[i];
        bool is_state = v->type->kind == MIL_TYPE_STATE;
        struct mil_port *port = is_state ? &f->states[f->n_states++] : &inputs[f->base.n_inputs++];
        if (!fill_port(port, mil->name, v, types[v->id], e))
            return false;
    }
    for (int i = 0; i < mil->block->n_outputs; i++) {
        const struct mil_var *v = mil->block->outputs[i];
        if (!fill_port(&outputs[f->base.n_outputs++], mil->name, v, types[v->id], e))
            return false;
    }
    return true;
}

static bool function_open(struct backend_function **out, struct backend_package *base,
                          const struct backend_source *source, const char *name,
                          const struct mil_input_shape *shapes, int n_shapes, struct err *e)
{
    struct function *f = xcalloc(1, sizeof *f);
    const struct mil_function *mil = mil_function_find(source->mil, name);
    bool ok = false;
    *out = NULL;
    f->shared = (struct shared *)base;
    f->arena = arena_new(0);
    if (!mil) {
        err_set(e, ERR_FORMAT, "%s: no function %s", source->path ? source->path : "the model", name);
        goto done;
    }
    if (!source->path) {
        err_set(e, ERR_UNSUPPORTED, "function %s is in no file that Core ML could load", name);
        goto done;
    }
    if (!fill_ports(f, source->mil, mil, shapes, n_shapes, e))
        goto done;
    f->loaded = loaded_get(f->shared, source->path, source->mil->description.has_functions ? name : NULL, e);
    ok = f->loaded && coreml_model_agrees(f->loaded->model, f->base.inputs, f->base.n_inputs, f->base.outputs,
                                          f->base.n_outputs, f->states, f->n_states, e);
done:
    *out = ok ? &f->base : NULL;
    if (!ok)
        function_close(&f->base);
    return ok;
}

/* ---- states ---- */

static struct backend_states *states_new(struct backend_package *p)
{
    struct states *s = xcalloc(1, sizeof *s);
    s->shared = (struct shared *)p;
    return &s->base;
}

static void states_free(struct backend_states *base)
{
    struct states *s = (struct states *)base;
    if (!s)
        return;
    for (int i = 0; i < s->n_groups; i++)
        coreml_state_close(s->groups[i]);
    free(s->groups);
    free(s->group_of);
    free(s->base.list);
    free(s);
}

static void states_clear(struct backend_states *base)
{
    struct states *s = (struct states *)base;
    for (int i = 0; i < s->n_groups; i++)
        coreml_state_clear(s->groups[i]);
}

/* The group of a function's states; -1: none of them is there yet. */
static bool find_group(const struct states *s, const struct function *f, int *group, struct err *e)
{
    *group = -1;
    for (int i = 0; i < f->n_states; i++) {
        const struct mil_port *port = &f->states[i];
        int at = backend_find_state(&s->base, port->name);
        if (at < 0)
            continue;
        const struct backend_state *have = &s->base.list[at];
        if (have->rank != port->rank || memcmp(have->dims, port->dims, sizeof port->dims) != 0)
            return err_set(e, ERR_FORMAT, "state %s has another shape in another function", port->name);
        if (*group >= 0 && *group != s->group_of[at])
            return err_set(e, ERR_UNSUPPORTED, "state %s is shared by functions that share no other with it",
                           port->name);
        *group = s->group_of[at];
    }
    return true;
}

static bool states_add(struct backend_states *base, const struct backend_function *function, struct err *e)
{
    struct states *s = (struct states *)base;
    const struct function *f = (const struct function *)function;
    int group;
    if (f->n_states == 0)
        return true;
    if (!find_group(s, f, &group, e))
        return false;
    if (group < 0) {
        s->groups = xrealloc(s->groups, sizeof *s->groups * (size_t)(s->n_groups + 1));
        if (!coreml_state_open(&s->groups[s->n_groups], f->loaded->model, e))
            return false;
        group = s->n_groups++;
    }
    base->list = xrealloc(base->list, sizeof *base->list * (size_t)(base->n + f->n_states));
    s->group_of = xrealloc(s->group_of, sizeof *s->group_of * (size_t)(base->n + f->n_states));
    for (int i = 0; i < f->n_states; i++) {
        const struct mil_port *port = &f->states[i];
        enum mil_dtype held;
        if (backend_find_state(base, port->name) >= 0)
            continue;
        if (!coreml_state_type(s->groups[group], port->name, &held, e))
            return false;
        struct backend_state *state = &base->list[base->n];
        *state = (struct backend_state){.name = port->name,
                                        .dtype = port->dtype,
                                        .rank = port->rank,
                                        .n_elems = port->n_elems,
                                        .is_recurrent = state_is_recurrent(&s->shared->base, port->name),
                                        .elem_bytes = held == MIL_FP16 ? 2 : 4};
        memcpy(state->dims, port->dims, sizeof port->dims);
        s->group_of[base->n++] = group;
    }
    return true;
}

static void state_read(const struct backend_states *base, int i, size_t first, size_t n, void *dst)
{
    const struct states *s = (const struct states *)base;
    size_t bytes = (size_t)base->list[i].elem_bytes;
    coreml_state_read(s->groups[s->group_of[i]], base->list[i].name, (int64_t)(first / bytes),
                      (int64_t)(n / bytes), dst);
}

static void state_write(struct backend_states *base, int i, size_t first, size_t n, const void *src)
{
    const struct states *s = (const struct states *)base;
    size_t bytes = (size_t)base->list[i].elem_bytes;
    coreml_state_write(s->groups[s->group_of[i]], base->list[i].name, (int64_t)(first / bytes),
                       (int64_t)(n / bytes), src);
}

static void state_get(const struct backend_states *base, int i, f16 *dst)
{
    size_t n = (size_t)base->list[i].n_elems;
    float *wide = base->list[i].elem_bytes == 4 ? xcalloc(n + 1, sizeof *wide) : NULL;
    state_read(base, i, 0, backend_state_bytes(&base->list[i]), wide ? (void *)wide : dst);
    if (wide)
        f32_to_f16_n(dst, wide, n);
    free(wide);
}

static void state_set(struct backend_states *base, int i, const f16 *src)
{
    size_t n = (size_t)base->list[i].n_elems;
    float *wide = base->list[i].elem_bytes == 4 ? xcalloc(n + 1, sizeof *wide) : NULL;
    if (wide)
        f16_to_f32_n(wide, src, n);
    state_write(base, i, 0, backend_state_bytes(&base->list[i]), wide ? (const void *)wide : src);
    free(wide);
}

/* ---- runs ---- */

static void run_close(struct backend_run *base)
{
    struct run *r = (struct run *)base;
    if (!r)
        return;
    for (int i = 0; i < base->function->n_inputs; i++)
        mem_free(r->own[i]);
    for (int i = 0; i < base->function->n_outputs; i++)
        mem_free(r->outputs[i]);
    coreml_call_close(r->call);
    free(r->own);
    free(r->bound);
    free(r->outputs);
    free(r);
}

static bool run_open(struct backend_run **out, const struct backend_function *base, struct pool *pool,
                     const struct stop *stop, struct err *e)
{
    const struct function *f = (const struct function *)base;
    struct run *r = xcalloc(1, sizeof *r);
    bool ok;
    (void)pool;
    *out = NULL;
    r->base.function = base;
    r->stop = stop;
    r->own = xcalloc((size_t)base->n_inputs + 1, sizeof *r->own);
    r->bound = xcalloc((size_t)base->n_inputs + 1, sizeof *r->bound);
    r->outputs = xcalloc((size_t)base->n_outputs + 1, sizeof *r->outputs);
    ok = coreml_call_open(&r->call, f->loaded->model, base->inputs, base->n_inputs, base->outputs,
                          base->n_outputs, e);
    for (int i = 0; ok && i < base->n_inputs; i++) {
        r->bound[i] = r->own[i] = mem_try_alloc(4 * (size_t)base->inputs[i].n_elems + 1, e);
        ok = r->own[i] != NULL;
    }
    for (int i = 0; ok && i < base->n_outputs; i++) {
        r->outputs[i] = mem_try_alloc(4 * (size_t)base->outputs[i].n_elems + 1, e);
        ok = r->outputs[i] != NULL;
    }
    if (ok)
        *out = &r->base;
    else
        run_close(&r->base);
    return ok;
}

static void *run_input(struct backend_run *r, int i)
{
    return ((struct run *)r)->own[i];
}

static void run_bind_input(struct backend_run *base, int i, const void *data)
{
    struct run *r = (struct run *)base;
    r->bound[i] = data ? data : r->own[i];
}

static const void *run_output(const struct backend_run *r, int i)
{
    return ((const struct run *)r)->outputs[i];
}

/* They come as declared. */
static void run_round_output(struct backend_run *r, int i)
{
    (void)r;
    (void)i;
}

static bool run_execute(struct backend_run *base, struct backend_states *states, struct err *e)
{
    struct run *r = (struct run *)base;
    const struct function *f = (const struct function *)base->function;
    const struct states *s = (const struct states *)states;
    int group = -1;
    if (stop_requested(r->stop))
        return stop_error(r->stop, e);
    if (s && !find_group(s, f, &group, e))
        return false;
    return coreml_call_run(r->call, r->bound, r->outputs, group < 0 ? NULL : s->groups[group], e);
}

extern const struct backend backend_coreml;
const struct backend backend_coreml = {.name = "coreml",
                                       .open = open_package,
                                       .close = close_package,
                                       .run_open = run_open,
                                       .run_close = run_close,
                                       .run_input = run_input,
                                       .run_bind_input = run_bind_input,
                                       .run_output = run_output,
                                       .run_round_output = run_round_output,
                                       .run_execute = run_execute,
                                       .state_read = state_read,
                                       .state_write = state_write,
                                       .state_get = state_get,
                                       .state_set = state_set,
                                       .states_new = states_new,
                                       .states_add = states_add,
                                       .states_clear = states_clear,
                                       .states_free = states_free,
                                       .function_open = function_open,
                                       .function_close = function_close,
                                       .add_program = add_program,
                                       .state_is_recurrent = state_is_recurrent};
