/* Single Core ML models: functions, their ports, states, predictions.
 *
 * A function keeps a plan for each combination of input shapes that it was called with, and the runs of those plans that nobody
 * uses at the moment: callers at the same time get one each. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "api/api_features.h"
#include "api/api_int.h"
#include "api/api_tensor.h"
#include "mil/mil.h"
#include "runtime/interpreter.h"

/* Plans that a function keeps: the one used longest ago goes. */
#define PLANS_MAX 16
#define INPUTS_MAX 4096

struct mk_model {
    atomic_int n_references;
    mk_library *library;
    struct mil_model *mil;
    struct classifier *classifiers; /* by function */
    char *path, *emulation;
    const struct backend *backend;
    struct backend_package *shared; /* by all functions */
};

struct idle_run {
    struct idle_run *next;
    struct backend_run *run;
    struct stop stop; /* of the call that uses it */
};

/* Of one combination of shapes. Lives as long as the list or a caller holds it. */
struct shaped_plan {
    struct shaped_plan *next;
    struct backend_function *plan;
    int64_t *key; /* [n_key]: dims of the inputs that the program leaves open */
    size_t n_key;
    int n_users;
    bool is_listed;
    struct idle_run *idle;
};

/* Of a function that no plan can be made of; nobody uses it at the moment. */
struct idle_interpreter {
    struct idle_interpreter *next;
    struct interpreter *interpreter;
};

struct mk_function {
    atomic_int n_references;
    mk_model *model;
    const struct mil_function *mil;
    const struct mil_function_description *description; /* NULL: the model does not describe it */
    const struct classifier *classifier;
    void *labels;              /* of a classifier [n_classes]: char * or int64_t */
    pthread_mutex_t mutex;     /* of plans and interpreters, and of what hangs on them */
    struct shaped_plan *plans; /* the one used last first */
    struct idle_interpreter *interpreters;
    atomic_bool is_interpreted; /* it was found that no plan can be made */
};

struct mk_state {
    mk_function *function;
    struct backend_states *states;
};

struct mk_result {
    size_t n;
    struct result_port {
        char *name;
        mk_tensor tensor;
        mk_tensor pixels; /* of an image; type 0: it is none */
        bool has_labels;  /* numbers by label */
    } * ports;
    mk_function *function; /* that has the labels; NULL: there are none */
};

/* ---- models ---- */

mk_status mk_model_open(mk_model **out, mk_library *library, const char *path,
                        const mk_model_options *options, mk_error **error)
{
    mk_model_options o;
    struct err e = {0};
    *out = NULL;
    if (!api_read_struct(&o, sizeof o, options))
        return api_usage(error, "options: size is not that of the structure");
    mk_model *m = xcalloc(1, sizeof *m);
    atomic_init(&m->n_references, 1);
    m->library = library_keep(library);
    m->path = xstrdup(path);
    m->emulation = o.emulation ? xstrdup(o.emulation) : NULL;
    struct backend_options shared = {.emulation = m->emulation, .compute_units = o.compute_units};
    bool ok = api_precision(o.precision, &shared.precision, &e) && backend_find(&m->backend, o.backend, &e) &&
              m->backend->open(&m->shared, &shared, &e) && mil_model_open(&m->mil, path, 0, &e);
    if (ok) {
        struct mil_program *p = m->mil->program;
        m->classifiers = ARENA_ARRAY(m->mil->arena, struct classifier, p->n_functions);
        for (int i = 0; ok && i < p->n_functions; i++)
            ok = classifier_split(&m->classifiers[i], p->functions[i], m->mil->arena, &e) ||
                 err_wrap(&e, "%s", path);
    }
    if (ok) {
        m->backend->add_program(m->shared, m->mil);
        *out = m;
        m = NULL;
    }
    mk_model_close(m);
    return api_result(ok, &e, error);
}

void mk_model_close(mk_model *m)
{
    if (!m || atomic_fetch_sub(&m->n_references, 1) != 1)
        return;
    if (m->shared)
        m->backend->close(m->shared);
    mil_model_close(m->mil);
    mk_library_close(m->library);
    free(m->path);
    free(m->emulation);
    free(m);
}

size_t mk_model_functions(const mk_model *m)
{
    return (size_t)m->mil->program->n_functions;
}

const char *mk_model_function_name(const mk_model *m, size_t i)
{
    return i < mk_model_functions(m) ? m->mil->program->functions[i]->name : NULL;
}

/* ---- functions ---- */

/* The classes as callers get them. */
static void make_labels(mk_function *f)
{
    const struct classifier *c = f->classifier;
    if (!c->classes)
        return;
    f->labels = xcalloc((size_t)c->n_classes + 1, sizeof(int64_t) + sizeof(char *));
    for (int64_t i = 0; i < c->n_classes; i++) {
        if (c->is_text)
            ((char **)f->labels)[i] = classifier_text(c, i);
        else
            ((int64_t *)f->labels)[i] = classifier_number(c, i);
    }
}

static void free_labels(mk_function *f)
{
    for (int64_t i = 0; f->labels && f->classifier->is_text && i < f->classifier->n_classes; i++)
        free(((char **)f->labels)[i]);
    free(f->labels);
}

mk_status mk_function_open(mk_function **out, mk_model *m, const char *name, mk_error **error)
{
    *out = NULL;
    if (!name)
        name = mil_default_function_name(m->mil);
    const struct mil_function *f = name ? mil_function_find(m->mil, name) : NULL;
    if (!f)
        return api_usage(error, "%s: no function %s", m->mil->path, name ? name : "to begin with");
    if (f->n_inputs > INPUTS_MAX)
        return api_usage(error, "%s: function %s has %d inputs, the most is %d", m->mil->path, name,
                         f->n_inputs, INPUTS_MAX);
    mk_function *function = xcalloc(1, sizeof *function);
    atomic_init(&function->n_references, 1);
    atomic_fetch_add(&m->n_references, 1);
    function->model = m;
    function->mil = f;
    function->description = mil_function_description_find(m->mil, name);
    for (int i = 0; i < m->mil->program->n_functions; i++)
        if (m->mil->program->functions[i] == f)
            function->classifier = &m->classifiers[i];
    make_labels(function);
    pthread_mutex_init(&function->mutex, NULL);
    *out = function;
    return api_result(true, NULL, error);
}

static void plan_free(const struct backend *b, struct shaped_plan *p)
{
    while (p->idle) {
        struct idle_run *run = p->idle;
        p->idle = run->next;
        b->run_close(run->run);
        free(run);
    }
    b->function_close(p->plan);
    free(p->key);
    free(p);
}

void mk_function_close(mk_function *f)
{
    if (!f || atomic_fetch_sub(&f->n_references, 1) != 1)
        return;
    while (f->plans) {
        struct shaped_plan *p = f->plans;
        f->plans = p->next;
        plan_free(f->model->backend, p);
    }
    while (f->interpreters) {
        struct idle_interpreter *i = f->interpreters;
        f->interpreters = i->next;
        interpreter_free(i->interpreter);
        free(i);
    }
    pthread_mutex_destroy(&f->mutex);
    free_labels(f);
    mk_model_close(f->model);
    free(f);
}

/* Input i among the tensors or states of the function, NULL behind the last. */
static const struct mil_var *input_of(const mk_function *f, bool is_state, size_t i)
{
    for (int k = 0; k < f->mil->n_inputs; k++)
        if ((f->mil->inputs[k]->type->kind == MIL_TYPE_STATE) == is_state && i-- == 0)
            return f->mil->inputs[k];
    return NULL;
}

size_t mk_function_ports(const mk_function *f, int32_t kind)
{
    size_t n = 0;
    if (kind == MK_OUTPUTS)
        return (size_t)(f->classifier->classes ? f->classifier->n_outputs : f->mil->block->n_outputs);
    while ((kind == MK_INPUTS || kind == MK_STATES) && input_of(f, kind == MK_STATES, n))
        n++;
    return n;
}

/* The default shape of a flexible port stands in the description. */
static const struct mil_feature *feature_of(const mk_function *f, int32_t kind, const char *name)
{
    const struct mil_function_description *d = f->description;
    const struct mil_feature *list = !d                   ? NULL
                                     : kind == MK_INPUTS  ? d->inputs
                                     : kind == MK_OUTPUTS ? d->outputs
                                                          : d->states;
    int n = !d ? 0 : kind == MK_INPUTS ? d->n_inputs : kind == MK_OUTPUTS ? d->n_outputs : d->n_states;
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

mk_status mk_function_port(const mk_function *f, int32_t kind, size_t i, mk_port *out, mk_error **error)
{
    const struct mil_var *v = NULL;
    const struct classifier *c = f->classifier;
    if (out->size < sizeof out->size)
        return api_usage(error, "port: size is not that of the structure");
    if (kind == MK_OUTPUTS && i < mk_function_ports(f, kind))
        v = c->classes ? c->outputs[i] : f->mil->block->outputs[i];
    else if (kind == MK_INPUTS || kind == MK_STATES)
        v = input_of(f, kind == MK_STATES, i);
    if (!v)
        return api_usage(error, "function %s: no port %zu of kind %d", f->mil->name, i, kind);
    const struct mil_type *t = mil_type_tensor(v->type);
    const struct mil_feature *feature = feature_of(f, kind, v->name);
    mk_port port = {.size = sizeof port, .name = v->name};
    port.is_optional = kind == MK_INPUTS && feature && feature->is_optional;
    if (c->classes && v == c->label) {
        port.type = c->is_text ? MK_TEXT : MK_I64;
    } else if (c->classes && v == c->scores) {
        port.type = MK_SCORES;
        port.rank = 1;
        port.dims[0] = c->n_classes;
    } else if (t && t->kind == MIL_TYPE_TENSOR && t->rank <= MK_RANK_MAX) {
        port.type = tensor_type(t->dtype);
        port.color = feature_color(feature, t);
        port.rank = t->rank;
        for (int k = 0; k < t->rank; k++)
            port.dims[k] = t->dims[k] != MIL_DIM_UNKNOWN                           ? t->dims[k]
                           : feature && feature->shape && feature->rank == t->rank ? feature->shape[k]
                                                                                   : -1;
    }
    size_t size = out->size < sizeof port ? out->size : sizeof port;
    memcpy(out, &port, size);
    out->size = size;
    return api_result(true, NULL, error);
}

/* ---- plans ---- */

static bool is_open(const struct mil_type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == MIL_DIM_UNKNOWN)
            return true;
    return false;
}

/* What the inputs leave open, told by `tensors` ([inputs] in the function's order; NULL: the defaults of the description). */
static bool shapes_of(const mk_function *f, const mk_tensor *const *tensors, struct mil_input_shape **shapes,
                      int *n_shapes, int64_t **key, size_t *n_key, struct err *e)
{
    size_t n_inputs = mk_function_ports(f, MK_INPUTS);
    *shapes = xcalloc(n_inputs + 1, sizeof **shapes);
    *key = xcalloc(n_inputs * MIL_RANK_MAX + 1, sizeof **key);
    *n_shapes = 0;
    *n_key = 0;
    for (size_t i = 0; i < n_inputs; i++) {
        const struct mil_var *v = input_of(f, false, i);
        const struct mil_type *t = v->type;
        const struct mil_feature *feature = feature_of(f, MK_INPUTS, v->name);
        if (t->kind != MIL_TYPE_TENSOR || t->rank > MIL_RANK_MAX)
            return err_set(e, ERR_UNSUPPORTED, "function %s: input %s is not a tensor", f->mil->name,
                           v->name);
        if (!is_open(t))
            continue;
        if (!tensors && !(feature && feature->shape && feature->rank == t->rank))
            return err_set(e, ERR_UNSUPPORTED, "function %s: input %s has no default shape", f->mil->name,
                           v->name);
        struct mil_input_shape *s = &(*shapes)[(*n_shapes)++];
        s->input = v->name;
        s->rank = tensors ? tensors[i]->rank : t->rank;
        for (int k = 0; k < s->rank; k++)
            (*key)[(*n_key)++] = s->dims[k] = tensors ? tensors[i]->dims[k] : feature->shape[k];
    }
    return true;
}

/* Under the mutex. */
static struct shaped_plan *find_plan(mk_function *f, const int64_t *key, size_t n_key)
{
    for (struct shaped_plan **at = &f->plans; *at; at = &(*at)->next) {
        struct shaped_plan *p = *at;
        if (p->n_key != n_key || memcmp(p->key, key, n_key * sizeof *key) != 0)
            continue;
        *at = p->next;
        p->next = f->plans;
        f->plans = p;
        return p;
    }
    return NULL;
}

/* Under the mutex: those used longest ago leave the list, until n are left; each dies with its last user. */
static void trim_plans(mk_function *f, int n_left)
{
    int n = 0;
    struct shaped_plan **at = &f->plans;
    while (*at && ++n <= n_left)
        at = &(*at)->next;
    while (*at) {
        struct shaped_plan *p = *at;
        *at = p->next;
        p->is_listed = false;
        if (p->n_users == 0)
            plan_free(f->model->backend, p);
    }
}

/* The plan for the tensors' shapes, held until plan_put. */
static bool plan_get(mk_function *f, const mk_tensor *const *tensors, struct shaped_plan **out, struct err *e)
{
    struct mil_input_shape *shapes = NULL;
    int64_t *key = NULL;
    size_t n_key;
    int n_shapes;
    bool ok = shapes_of(f, tensors, &shapes, &n_shapes, &key, &n_key, e);
    *out = NULL;
    if (!ok)
        goto done;
    pthread_mutex_lock(&f->mutex);
    struct shaped_plan *p = find_plan(f, key, n_key);
    if (!p) {
        const mk_model *m = f->model;
        const struct backend_source source = {.mil = m->mil, .path = m->path};
        struct backend_function *plan;
        ok = m->backend->function_open(&plan, m->shared, &source, f->mil->name, shapes, n_shapes, e);
        if (!ok && e->code == ERR_LIMIT && f->plans) { /* those of other shapes make room */
            *e = (struct err){0};
            trim_plans(f, 0);
            ok = m->backend->function_open(&plan, m->shared, &source, f->mil->name, shapes, n_shapes, e);
        }
        if (ok) {
            p = xcalloc(1, sizeof *p);
            p->plan = plan;
            p->key = key;
            p->n_key = n_key;
            key = NULL;
            p->is_listed = true;
            p->next = f->plans;
            f->plans = p;
        }
    }
    if (p) {
        p->n_users++;
        trim_plans(f, PLANS_MAX);
        *out = p;
    }
    pthread_mutex_unlock(&f->mutex);
done:
    free(shapes);
    free(key);
    return ok;
}

static void plan_put(mk_function *f, struct shaped_plan *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&f->mutex);
    bool is_last = --p->n_users == 0 && !p->is_listed;
    pthread_mutex_unlock(&f->mutex);
    if (is_last)
        plan_free(f->model->backend, p);
}

static bool run_get(mk_function *f, struct shaped_plan *p, struct idle_run **out, struct err *e)
{
    pthread_mutex_lock(&f->mutex);
    struct idle_run *run = p->idle;
    if (run)
        p->idle = run->next;
    pthread_mutex_unlock(&f->mutex);
    if (!run) {
        run = xcalloc(1, sizeof *run);
        if (!f->model->backend->run_open(&run->run, p->plan, f->model->library->pool, &run->stop, e)) {
            free(run);
            run = NULL;
        }
    }
    *out = run;
    return run != NULL;
}

static void run_put(mk_function *f, struct shaped_plan *p, struct idle_run *run)
{
    if (!run)
        return;
    pthread_mutex_lock(&f->mutex);
    run->next = p->idle;
    p->idle = run;
    pthread_mutex_unlock(&f->mutex);
}

/* ---- states ---- */

mk_status mk_state_new(mk_state **out, const mk_function *f, mk_error **error)
{
    struct err e = {0};
    struct shaped_plan *plan = NULL;
    mk_function *function = (mk_function *)(uintptr_t)f; /* only its plans and its count change */
    mk_state *s = xcalloc(1, sizeof *s);
    *out = NULL;
    atomic_fetch_add(&function->n_references, 1);
    s->function = function;
    s->states = f->model->backend->states_new(f->model->shared);
    bool ok = plan_get(function, NULL, &plan, &e) && f->model->backend->states_add(s->states, plan->plan, &e);
    plan_put(function, plan);
    if (ok) {
        *out = s;
        s = NULL;
    }
    mk_state_free(s);
    return api_result(ok, &e, error);
}

void mk_state_free(mk_state *s)
{
    if (!s)
        return;
    s->function->model->backend->states_free(s->states);
    mk_function_close(s->function);
    free(s);
}

/* Its number, after the tensor has been compared with it. */
static bool state_find(const mk_state *s, const char *name, const mk_tensor *t, int *out, struct err *e)
{
    *out = backend_find_state(s->states, name);
    if (*out < 0)
        return err_set(e, ERR_USAGE, "no state %s", name);
    const struct backend_state *entry = &s->states->list[*out];
    bool same = t->rank == entry->rank;
    for (int i = 0; same && i < t->rank; i++)
        same = t->dims[i] == entry->dims[i];
    return same || err_set(e, ERR_USAGE, "state %s has another shape than the tensor", name);
}

mk_status mk_state_read(const mk_state *s, const char *name, mk_tensor *t, mk_error **error)
{
    struct err e = {0};
    mk_tensor to;
    int i = -1;
    if (!api_read_struct(&to, sizeof to, t))
        return api_usage(error, "tensor: size is not that of the structure");
    if (!to.data) {
        i = backend_find_state(s->states, name);
        if (i < 0)
            return api_usage(error, "no state %s", name);
        const struct backend_state *entry = &s->states->list[i];
        mk_tensor shape = {.size = to.size, .type = tensor_type(entry->dtype), .rank = entry->rank};
        memcpy(shape.dims, entry->dims, sizeof(int64_t) * (size_t)entry->rank);
        memcpy(t, &shape, to.size < sizeof shape ? to.size : sizeof shape);
        return api_result(true, NULL, error);
    }
    f16 *halves = NULL;
    float *numbers = NULL;
    bool ok = tensor_check(&to, name, &e) && state_find(s, name, &to, &i, &e) &&
              (halves = mem_try_alloc((size_t)s->states->list[i].n_elems * sizeof *halves, &e)) &&
              (numbers = mem_try_alloc((size_t)s->states->list[i].n_elems * sizeof *numbers, &e));
    if (ok) {
        s->function->model->backend->state_get(s->states, i, halves);
        f16_to_f32_n(numbers, halves, (size_t)s->states->list[i].n_elems);
        tensor_store(&to, numbers, false);
    }
    mem_free(halves);
    mem_free(numbers);
    return api_result(ok, &e, error);
}

mk_status mk_state_write(mk_state *s, const char *name, const mk_tensor *t, mk_error **error)
{
    struct err e = {0};
    mk_tensor from;
    int i = -1;
    f16 *halves = NULL;
    float *numbers = NULL;
    if (!api_read_struct(&from, sizeof from, t))
        return api_usage(error, "tensor: size is not that of the structure");
    bool ok = tensor_check(&from, name, &e) && state_find(s, name, &from, &i, &e) &&
              (halves = mem_try_alloc((size_t)s->states->list[i].n_elems * sizeof *halves, &e)) &&
              (numbers = mem_try_alloc((size_t)s->states->list[i].n_elems * sizeof *numbers, &e)) &&
              tensor_load(numbers, false, &from, name, &e);
    if (ok) {
        f32_to_f16_n(halves, numbers, (size_t)s->states->list[i].n_elems);
        s->function->model->backend->state_set(s->states, i, halves);
    }
    mem_free(halves);
    mem_free(numbers);
    return api_result(ok, &e, error);
}

/* ---- predictions ---- */

/* tensors [inputs]: the caller's in the function's order. Each input once, nothing else. made [inputs]: those that were not given and have
 * defaults. Pixels of images become planes. */
static bool sort_inputs(const mk_function *f, const char *const *names, mk_tensor *inputs, size_t n,
                        const mk_tensor **tensors, mk_tensor *made, struct err *e)
{
    size_t n_inputs = mk_function_ports(f, MK_INPUTS);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < n_inputs && strcmp(input_of(f, false, k)->name, names[i]) != 0)
            k++;
        if (k == n_inputs)
            return err_set(e, ERR_USAGE, "function %s has no input %s", f->mil->name, names[i]);
        if (tensors[k])
            return err_set(e, ERR_USAGE, "input %s is given twice", names[i]);
        if (!tensor_check(&inputs[i], names[i], e))
            return false;
        int32_t color = feature_color(feature_of(f, MK_INPUTS, names[i]), input_of(f, false, k)->type);
        if (color)
            feature_view_pixels(&inputs[i], color);
        tensors[k] = &inputs[i];
    }
    for (size_t k = 0; k < n_inputs; k++) {
        const struct mil_var *v = input_of(f, false, k);
        const struct mil_feature *feature = feature_of(f, MK_INPUTS, v->name);
        if (!tensors[k] && feature && feature->is_optional) {
            if (!feature_default(&made[k], feature, v->type, e))
                return false;
            tensors[k] = &made[k];
        }
        if (!tensors[k])
            return err_set(e, ERR_USAGE, "function %s needs the input %s", f->mil->name, v->name);
        bool fits = tensors[k]->rank == v->type->rank;
        for (int d = 0; fits && d < v->type->rank; d++)
            fits = v->type->dims[d] == MIL_DIM_UNKNOWN || v->type->dims[d] == tensors[k]->dims[d];
        if (!fits) {
            char found[256], expected[256];
            shape_text(found, sizeof found, tensors[k]->rank, tensors[k]->dims);
            mil_type_text(expected, sizeof expected, v->type);
            return err_set(e, ERR_USAGE, "input %s: expected %s, found the shape %s", v->name, expected,
                           found);
        }
        if (!feature_allows(feature, v->name, tensors[k]->rank, tensors[k]->dims, e))
            return false;
    }
    return true;
}

static bool load_inputs(const mk_function *f, struct backend_run *run, const mk_tensor *const *tensors,
                        struct err *e)
{
    size_t n_inputs = mk_function_ports(f, MK_INPUTS);
    for (size_t i = 0; i < n_inputs; i++) {
        const char *name = input_of(f, false, i)->name;
        int k = backend_find_input(run->function, name);
        if (k < 0)
            return err_set(e, ERR_BUG, "input %s is not in the plan", name);
        if (!tensor_load(f->model->backend->run_input(run, k), run->function->inputs[k].is_int, tensors[i],
                         name, e))
            return false;
    }
    return true;
}

/* Output i of a result: src [n_elems] is int32 when from_int, else float. */
static bool put_result(mk_result *r, const char *name, enum mil_dtype d, int rank, const int64_t *dims,
                       const void *src, bool from_int, struct err *e)
{
    int32_t type = tensor_type(d);
    struct result_port *to = &r->ports[r->n++];
    to->name = xstrdup(name);
    to->tensor = (mk_tensor){.size = sizeof to->tensor, .type = type, .rank = rank};
    memcpy(to->tensor.dims, dims, sizeof(int64_t) * (size_t)rank);
    if (type == 0)
        return err_set(e, ERR_UNSUPPORTED, "output %s has elements of %s", name, mil_dtype_name(d));
    to->tensor.data = mem_try_alloc(((size_t)tensor_elems(&to->tensor) + 1) * tensor_type_bytes(type), e);
    if (to->tensor.data)
        tensor_store(&to->tensor, src, from_int);
    return to->tensor.data != NULL;
}

static void free_ports(struct result_port *ports, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(ports[i].name);
        mem_free(ports[i].tensor.data);
        mem_free(ports[i].pixels.data);
    }
    free(ports);
}

/* The likeliest class and the number of each, in the place of the numbers. */
static bool name_class(const mk_function *f, mk_result *r, struct err *e)
{
    const struct classifier *c = f->classifier;
    const mk_tensor *numbers = &r->ports[c->i_numbers].tensor;
    struct result_port *ports = xcalloc((size_t)c->n_outputs + 1, sizeof *ports);
    float *scores = NULL;
    int64_t best = 0;
    size_t from = 0;
    if (tensor_elems(numbers) != c->n_classes || c->n_classes < 1)
        err_set(e, ERR_FORMAT, "function %s: %lld numbers for %lld classes", f->mil->name,
                (long long)tensor_elems(numbers), (long long)c->n_classes);
    else
        scores = mem_try_alloc((size_t)c->n_classes * sizeof *scores, e);
    bool ok = scores && tensor_load(scores, false, numbers, "probabilities", e);
    for (int64_t i = 1; ok && i < c->n_classes; i++)
        best = scores[i] > scores[best] ? i : best;
    for (int i = 0; ok && i < c->n_outputs; i++) {
        const struct mil_var *v = c->outputs[i];
        ports[i].tensor.size = sizeof(mk_tensor);
        if (v == c->label) {
            ports[i].tensor.type = c->is_text ? MK_TEXT : MK_I64;
            ports[i].tensor.data = mem_try_alloc(sizeof(int64_t) + sizeof(char *), e);
            ok = ports[i].tensor.data != NULL;
            if (ok && c->is_text)
                *(const char **)ports[i].tensor.data = ((char **)f->labels)[best];
            else if (ok)
                *(int64_t *)ports[i].tensor.data = ((int64_t *)f->labels)[best];
        } else if (v == c->scores) {
            ports[i].tensor.type = MK_F32;
            ports[i].tensor.rank = 1;
            ports[i].tensor.dims[0] = c->n_classes;
            ports[i].tensor.data = scores;
            ports[i].has_labels = true;
            scores = NULL;
        } else {
            ports[i] = r->ports[from];
            r->ports[from++] = (struct result_port){0};
            continue;
        }
        ports[i].name = xstrdup(v->name);
    }
    mem_free(scores);
    struct result_port *old = r->ports;
    size_t n_old = r->n;
    r->ports = ports;
    r->n = (size_t)c->n_outputs;
    free_ports(old, n_old);
    return ok;
}

/* What callers see beyond the tensors of outputs. */
static bool finish_result(mk_function *f, mk_result *r, struct err *e)
{
    bool ok = true;
    for (size_t i = 0; ok && i < r->n; i++) {
        struct result_port *to = &r->ports[i];
        const struct mil_feature *feature = feature_of(f, MK_OUTPUTS, to->name);
        const struct mil_type type = {
            .kind = MIL_TYPE_TENSOR, .rank = to->tensor.rank, .dims = to->tensor.dims};
        int32_t color = feature_color(feature, &type);
        float *planes = NULL;
        if (!color)
            continue;
        ok = (planes = mem_try_alloc(((size_t)tensor_elems(&to->tensor) + 1) * sizeof *planes, e)) &&
             tensor_load(planes, false, &to->tensor, to->name, e) &&
             feature_pixels(&to->pixels, color, to->tensor.dims, planes, e);
        mem_free(planes);
    }
    if (ok && f->classifier->classes) {
        atomic_fetch_add(&f->n_references, 1);
        r->function = f;
        ok = name_class(f, r, e);
    }
    return ok;
}

static bool make_result(mk_result **out, mk_function *f, const struct backend *b, struct backend_run *run,
                        struct err *e)
{
    int n = run->function->n_outputs;
    mk_result *r = xcalloc(1, sizeof *r);
    bool ok = true;
    r->ports = xcalloc((size_t)n + 1, sizeof *r->ports);
    for (int i = 0; ok && i < n; i++) {
        const struct mil_port *port = &run->function->outputs[i];
        b->run_round_output(run, i);
        ok = put_result(r, port->name, port->dtype, port->rank, port->dims, b->run_output(run, i),
                        port->is_int, e);
    }
    ok = ok && finish_result(f, r, e);
    *out = ok ? r : NULL;
    if (!ok)
        mk_result_free(r);
    return ok;
}

/* ---- functions that run op by op ---- */

static struct interpreter *interpreter_get(mk_function *f)
{
    const mk_model *m = f->model;
    struct interpreter *found = NULL;
    pthread_mutex_lock(&f->mutex);
    struct idle_interpreter *idle = f->interpreters;
    if (idle) {
        f->interpreters = idle->next;
        found = idle->interpreter;
        free(idle);
    }
    pthread_mutex_unlock(&f->mutex);
    const struct backend_source source = {.mil = m->mil, .path = m->path};
    return found ? found : interpreter_new(m->backend, m->shared, &source, f->mil, m->library->pool);
}

static void interpreter_put(mk_function *f, struct interpreter *p)
{
    struct idle_interpreter *idle = xcalloc(1, sizeof *idle);
    idle->interpreter = p;
    pthread_mutex_lock(&f->mutex);
    idle->next = f->interpreters;
    f->interpreters = idle;
    pthread_mutex_unlock(&f->mutex);
}

static bool interpret(mk_function *f, const mk_tensor *const *tensors, struct backend_states *states,
                      const atomic_int *flag, mk_result **out, struct err *e)
{
    size_t n_inputs = mk_function_ports(f, MK_INPUTS);
    int n_outputs = f->mil->block->n_outputs;
    struct interpreter_tensor **in = xcalloc(n_inputs + 1, sizeof *in),
                              **found = xcalloc((size_t)n_outputs + 1, sizeof *found);
    struct interpreter *p = interpreter_get(f);
    const struct stop stop = {.flag = flag};
    mk_result *r = NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < n_inputs; i++) {
        const struct mil_var *v = input_of(f, false, i);
        in[i] = interpreter_tensor_new(v->type->dtype, tensors[i]->rank, tensors[i]->dims, e);
        ok = in[i] && tensor_load(in[i]->data, in[i]->is_int, tensors[i], v->name, e);
    }
    ok = ok && interpreter_run(p, in, states, &stop, found, e);
    if (ok) {
        r = xcalloc(1, sizeof *r);
        r->ports = xcalloc((size_t)n_outputs + 1, sizeof *r->ports);
    }
    for (int i = 0; ok && i < n_outputs; i++)
        ok = put_result(r, f->mil->block->outputs[i]->name, found[i]->dtype, found[i]->rank, found[i]->dims,
                        found[i]->data, found[i]->is_int, e);
    ok = ok && finish_result(f, r, e);
    for (size_t i = 0; i < n_inputs; i++)
        interpreter_tensor_free(in[i]);
    for (int i = 0; i < n_outputs; i++)
        interpreter_tensor_free(found[i]);
    interpreter_put(f, p);
    free(in);
    free(found);
    if (!ok)
        mk_result_free(r);
    *out = ok ? r : NULL;
    return ok;
}

/* The caller's tensors may be of an older, shorter kind. */
static bool read_tensors(mk_tensor *to, const mk_tensor *from, size_t n, struct err *e)
{
    const char *at = (const char *)from;
    for (size_t i = 0; i < n; i++) {
        if (!api_read_struct(&to[i], sizeof to[i], at))
            return err_set(e, ERR_USAGE, "tensor %zu: size is not that of the structure", i);
        at += to[i].size;
    }
    return true;
}

mk_status mk_predict(mk_function *f, const char *const *names, const mk_tensor *inputs, size_t n,
                     mk_state *state, const mk_call *call, mk_result **out, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    struct shaped_plan *plan = NULL;
    struct idle_run *run = NULL;
    *out = NULL;
    if (!api_log_init(&log, f->model->library, call, NULL, error))
        return MK_USAGE;
    const struct backend *b = f->model->backend;
    if (n > INPUTS_MAX)
        return api_usage(error, "%zu inputs, the most is %d", n, INPUTS_MAX);
    mk_tensor *given = xcalloc(n + 1, sizeof *given);
    size_t n_inputs = mk_function_ports(f, MK_INPUTS);
    mk_tensor *made = xcalloc(n_inputs + 1, sizeof *made);
    const mk_tensor **tensors = xcalloc(n_inputs + 1, sizeof *tensors);
    bool ok = read_tensors(given, inputs, n, &e) && sort_inputs(f, names, given, n, tensors, made, &e);
    if (ok && mk_function_ports(f, MK_STATES) > 0 && !state)
        ok = err_set(&e, ERR_USAGE, "function %s needs a state", f->mil->name);
    /* What no plan can be made of is told by trying: then its ops are run one by one. */
    bool is_interpreted = ok && atomic_load(&f->is_interpreted);
    if (ok && !is_interpreted && !plan_get(f, tensors, &plan, &e)) {
        is_interpreted = e.code == ERR_UNSUPPORTED && b->reads_programs;
        ok = is_interpreted;
    }
    if (is_interpreted) {
        e = (struct err){0};
        ok = interpret(f, tensors, state ? state->states : NULL, log.log.cancel, out, &e);
        if (ok)
            atomic_store(&f->is_interpreted, true);
        goto done;
    }
    ok = ok && (!state || b->states_add(state->states, plan->plan, &e)) && run_get(f, plan, &run, &e);
    if (run)
        run->stop.flag = log.log.cancel;
    ok = ok && load_inputs(f, run->run, tensors, &e) && !log_cancelled(&log.log, &e) &&
         b->run_execute(run->run, state ? state->states : NULL, &e) && make_result(out, f, b, run->run, &e);
    if (run) {
        run->stop.flag = NULL;
        run_put(f, plan, run);
    }
done:
    plan_put(f, plan);
    for (size_t i = 0; i < n_inputs; i++)
        mem_free(made[i].data);
    free(made);
    free(given);
    free(tensors);
    return api_result(ok, &e, error);
}

size_t mk_result_count(const mk_result *r)
{
    return r->n;
}

/* A part of a result, as far as the caller's structure goes. */
static mk_status give_tensor(mk_tensor *t, const mk_tensor *from, mk_error **error)
{
    size_t size = t->size < sizeof *t ? t->size : sizeof *t;
    if (t->size < sizeof t->size)
        return api_usage(error, "tensor: size is not that of the structure");
    memcpy(t, from, size);
    t->size = size;
    return api_result(true, NULL, error);
}

mk_status mk_result_get(const mk_result *r, size_t i, const char **name, mk_tensor *t, mk_error **error)
{
    if (i >= r->n)
        return api_usage(error, "no output %zu: there are %zu", i, r->n);
    *name = r->ports[i].name;
    return give_tensor(t, &r->ports[i].tensor, error);
}

mk_status mk_result_labels(const mk_result *r, size_t i, mk_tensor *labels, mk_error **error)
{
    if (i >= r->n || !r->ports[i].has_labels)
        return api_usage(error, "output %zu does not give numbers by label", i);
    const struct classifier *c = r->function->classifier;
    const mk_tensor t = {.size = sizeof t,
                         .type = c->is_text ? MK_TEXT : MK_I64,
                         .rank = 1,
                         .dims = {c->n_classes},
                         .data = r->function->labels};
    return give_tensor(labels, &t, error);
}

mk_status mk_result_pixels(const mk_result *r, size_t i, mk_tensor *pixels, mk_error **error)
{
    if (i >= r->n || r->ports[i].pixels.type == 0)
        return api_usage(error, "output %zu is not an image", i);
    return give_tensor(pixels, &r->ports[i].pixels, error);
}

void mk_result_free(mk_result *r)
{
    if (!r)
        return;
    free_ports(r->ports, r->n);
    mk_function_close(r->function);
    free(r);
}
