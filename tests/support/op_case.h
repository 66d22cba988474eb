/* One program of the ops collection with its expected results (index.json there tells tolerance, calls,
 * states): planned and run in one precision, every output and state compared. */
#ifndef MILKIT_TESTS_OP_CASE_H
#define MILKIT_TESTS_OP_CASE_H

#include <math.h>
#include "support.h"
#include "engine/engine.h"
#include "format/json.h"
#include "format/safetensors.h"
#include "mil/compiled.h"

enum op_outcome {
    OP_RIGHT,       /* ran, every result within the tolerance */
    OP_UNSUPPORTED, /* refused at planning by a message that names one of its ops */
    OP_WRONG        /* anything else; said on stderr */
};

struct op_case {
    const char *name, *folder;
    const char *compiled; /* a folder to compile the program into, which is what runs then; NULL: as it is */
    int n_calls;
    double atol, rtol;
    const cJSON *ops, *error_calls;
};

struct op_report {
    int n_values; /* compared */
    char refusal[sizeof((struct err *)0)->msg];
};

static inline bool op_case_read(const cJSON *entry, const char *folder, struct op_case *c, struct err *e)
{
    int64_t calls = 1;
    *c = (struct op_case){.folder = folder};
    bool ok = json_get_string(entry, "name", &c->name, "index.json", e) &&
              json_get_int(entry, "calls", &calls, "index.json", e) &&
              json_get_double(entry, "atol", &c->atol, "index.json", e) &&
              json_get_double(entry, "rtol", &c->rtol, "index.json", e);
    c->n_calls = (int)calls;
    c->ops = json_get(entry, "ops");
    c->error_calls = json_get(entry, "error_calls");
    return ok && c->name;
}

static inline bool op_case_is_error_call(const struct op_case *c, int call)
{
    for (const cJSON *i = c->error_calls ? c->error_calls->child : NULL; i; i = i->next)
        if (i->valueint == call)
            return true;
    return false;
}

static inline const struct st_tensor *op_case_tensor(const struct op_case *c, const struct safetensors *s,
                                                     int call, const char *kind, const char *name)
{
    char *key =
        c->n_calls == 1 ? xasprintf("%s.%s", kind, name) : xasprintf("call%d.%s.%s", call, kind, name);
    const struct st_tensor *t = safetensors_find(s, key);
    if (!t && c->n_calls == 1) { /* the state after the only call keeps its number */
        free(key);
        key = xasprintf("call%d.%s.%s", call, kind, name);
        t = safetensors_find(s, key);
    }
    free(key);
    return t;
}

/* |got - want| <= atol + rtol |want|, or the same infinity, or both NaN; fp16: what does not fit in is
 * infinite. */
static inline bool op_case_close(const struct op_case *c, double got, double want, bool rounded)
{
    if (want != want || got != got)
        return want != want && got != got;
    if (got == want)
        return true;
    if (rounded && isinf(got))
        return fabs(want) >= 65520 && (got > 0) == (want > 0);
    return !isinf(want) && !isinf(got) && fabs(got - want) <= c->atol + c->rtol * fabs(want);
}

static inline bool op_case_compare(const struct op_case *c, const char *what, const struct st_tensor *t,
                                   const void *got, bool is_int, bool rounded, int64_t n,
                                   struct op_report *report)
{
    float *want = xcalloc((size_t)t->n_elems + 1, sizeof *want);
    struct err e = {0};
    bool ok = t->n_elems == n && st_read_f32(t, want, &e);
    if (!ok)
        print_error("%s: %s: %lld elements, expected %lld %s\n", c->name, what, (long long)n,
                    (long long)t->n_elems, e.msg);
    for (int64_t i = 0; ok && i < n; i++) {
        double g = is_int ? ((const int32_t *)got)[i] : ((const float *)got)[i];
        ok = op_case_close(c, g, want[i], rounded);
        if (!ok)
            print_error("%s: %s[%lld]%s: expected %.9g, found %.9g (atol %g, rtol %g)\n", c->name, what,
                        (long long)i, rounded ? " rounded to fp16" : "", (double)want[i], g, c->atol,
                        c->rtol);
        report->n_values++;
    }
    free(want);
    return ok;
}

static inline bool op_case_fill_input(const struct st_tensor *t, const struct mil_port *port, void *dst)
{
    struct err e = {0};
    float *f = xcalloc((size_t)t->n_elems + 1, sizeof *f);
    bool ok = t->n_elems == port->n_elems && st_read_f32(t, f, &e);
    for (int64_t i = 0; ok && i < t->n_elems; i++) {
        if (!port->is_int) {
            ((float *)dst)[i] = f[i];
            continue;
        }
        int32_t v = (int32_t)f[i];
        if (t->dtype == ST_I32)
            memcpy(&v, t->data + 4 * i, 4);
        ((int32_t *)dst)[i] = v;
    }
    free(f);
    return ok;
}

static inline bool op_case_names_op(const struct op_case *c, const char *message)
{
    for (const cJSON *i = c->ops ? c->ops->child : NULL; i; i = i->next) {
        char *want = xasprintf("op %s", i->valuestring);
        bool found = strstr(message, want) != NULL;
        free(want);
        if (found)
            return true;
    }
    return false;
}

static inline enum op_outcome op_case_run_call(const struct op_case *c, const struct mil_model *m,
                                               const struct safetensors *s, int call,
                                               const struct engine_options *options,
                                               struct engine_state *state, struct op_report *report)
{
    const char *function = mil_default_function_name(m);
    const struct mil_function *f = mil_function_find(m, function);
    struct mil_input_shape shapes[MIL_RANK_MAX];
    struct engine_plan *p = NULL;
    struct engine_run *r = NULL;
    struct err e = {0};
    int n_shapes = 0;
    bool must_fail = op_case_is_error_call(c, call), ok = true;
    enum op_outcome outcome = OP_WRONG;
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_type *t = f->inputs[i]->type;
        const struct st_tensor *in = op_case_tensor(c, s, call, "in", f->inputs[i]->name);
        if (t->kind != MIL_TYPE_TENSOR || mil_type_elems(t) >= 0)
            continue;
        if (!in || n_shapes == MIL_RANK_MAX) {
            print_error("%s: call %d: no tensor for input %s\n", c->name, call, f->inputs[i]->name);
            return OP_WRONG;
        }
        struct mil_input_shape *shape = &shapes[n_shapes++];
        *shape = (struct mil_input_shape){.input = f->inputs[i]->name, .rank = in->rank};
        memcpy(shape->dims, in->shape, sizeof *in->shape * (size_t)in->rank);
    }
    if (!engine_plan_new(&p, m, function, shapes, n_shapes, options, &e)) {
        if (must_fail && e.code == ERR_USAGE && strstr(e.msg, "shape"))
            return OP_RIGHT;
        snprintf(report->refusal, sizeof report->refusal, "%s", e.msg);
        if (e.code == ERR_UNSUPPORTED && op_case_names_op(c, e.msg))
            return OP_UNSUPPORTED;
        print_error("%s: refused as %d, or without naming an op: %s\n", c->name, e.code, e.msg);
        return OP_WRONG;
    }
    if (must_fail) {
        print_error("%s: call %d has a shape that the package does not allow, and was planned\n", c->name,
                    call);
        goto done;
    }
    if (!engine_state_add(state, p, &e) || !engine_run_new(&r, p, 1, &e)) {
        print_error("%s: %s\n", c->name, e.msg);
        goto done;
    }
    for (int i = 0; ok && i < engine_plan_inputs(p); i++) {
        const struct mil_port *port = engine_plan_input(p, i);
        const struct st_tensor *in = op_case_tensor(c, s, call, "in", port->name);
        ok = in && op_case_fill_input(in, port, engine_input(r, i));
        if (!ok)
            print_error("%s: call %d: input %s does not fit\n", c->name, call, port->name);
    }
    if (ok && !engine_execute(r, state, NULL, &e)) {
        ok = false;
        print_error("%s: call %d: %s\n", c->name, call, e.msg);
    }
    for (int i = 0; ok && i < engine_plan_outputs(p); i++) {
        const struct mil_port *port = engine_plan_output(p, i);
        const struct st_tensor *want = op_case_tensor(c, s, call, "out", port->name);
        if (!want) {
            print_error("%s: no expected tensor for output %s\n", c->name, port->name);
            ok = false;
            break;
        }
        engine_round_output(r, i);
        ok = op_case_compare(c, port->name, want, engine_output(r, i), port->is_int, port->dtype == MIL_FP16,
                             port->n_elems, report);
    }
    for (int i = 0; ok && i < engine_state_count(state); i++) {
        const struct engine_state_entry *entry = engine_state_get(state, i);
        const struct st_tensor *want = op_case_tensor(c, s, call, "state", entry->name);
        float *got = xcalloc((size_t)entry->n_elems + 1, sizeof *got);
        f16 *held = xcalloc((size_t)entry->n_elems + 1, sizeof *held);
        engine_state_read(entry, held);
        f16_to_f32_n(got, held, (size_t)entry->n_elems);
        free(held);
        ok = want && op_case_compare(c, entry->name, want, got, false, true, entry->n_elems, report);
        free(got);
    }
    outcome = ok ? OP_RIGHT : OP_WRONG;
done:
    engine_run_free(r);
    engine_plan_free(p);
    return outcome;
}

static inline enum op_outcome op_case_run(const struct op_case *c, enum engine_precision precision,
                                          struct op_report *report)
{
    char *source = xasprintf("%s/%s.mlpackage", c->folder, c->name),
         *model = c->compiled ? xasprintf("%s/%s.mlmodelc", c->compiled, c->name) : xstrdup(source),
         *data = xasprintf("%s/%s.safetensors", c->folder, c->name);
    struct mil_model *m = NULL;
    struct safetensors *s = NULL;
    struct engine_options options = {.precision = precision};
    struct engine_state *state = engine_state_new();
    struct err e = {0};
    enum op_outcome outcome = OP_RIGHT;
    *report = (struct op_report){0};
    if ((c->compiled && !mil_compile(source, model, true, &e)) || !mil_model_open(&m, model, 0, &e) ||
        !safetensors_open(&s, data, &e)) {
        print_error("%s: %s\n", c->name, e.msg);
        outcome = OP_WRONG;
    }
    for (int call = 0; outcome == OP_RIGHT && call < c->n_calls; call++)
        outcome = op_case_run_call(c, m, s, call, &options, state, report);
    engine_state_free(state);
    safetensors_close(s);
    mil_model_close(m);
    free(source);
    free(model);
    free(data);
    return outcome;
}

#endif
