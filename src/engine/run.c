/* Runs of a plan: workspace, execution, the listing. */
#include <stdlib.h>
#include <string.h>
#include "engine/plan.h"
#include "base/log.h"
#include "base/terminal.h"

/* ---- plans seen from outside ---- */

void engine_plan_free(struct engine_plan *p)
{
    if (!p)
        return;
    free(p->steps);
    free(p->storages);
    arena_free(p->arena);
}

int engine_plan_inputs(const struct engine_plan *p)
{
    return p->n_inputs;
}

int engine_plan_outputs(const struct engine_plan *p)
{
    return p->n_outputs;
}

const struct mil_port *engine_plan_input(const struct engine_plan *p, int i)
{
    return &p->inputs[i];
}

const struct mil_port *engine_plan_output(const struct engine_plan *p, int i)
{
    return &p->outputs[i];
}

uint64_t engine_plan_weight_bytes(const struct engine_plan *p)
{
    return p->weight_bytes;
}

uint64_t engine_plan_arena_bytes(const struct engine_plan *p)
{
    return p->arena_bytes;
}

static void print_value(FILE *out, const struct value *v)
{
    static const char *const names[] = {"f32", "i32", "f16"};
    fprintf(out, "%s[", names[v->repr]);
    for (int i = 0; i < v->rank; i++)
        fprintf(out, "%s%lld", i ? "," : "", (long long)v->dims[i]);
    fputc(']', out);
}

void engine_plan_print(const struct engine_plan *p, const struct engine_run *measured, FILE *out)
{
    double total = 0;
    if (measured && measured->n_measured > 0)
        for (int i = 0; i < p->n_steps; i++)
            total += measured->step_seconds[i];
    fputs("function ", out);
    terminal_put(out, p->function);
    fprintf(out, ": %d steps, %.2f MB of weights, %.2f MB workspace, %d state%s\n", p->n_steps,
            (double)p->weight_bytes / 1e6, (double)p->arena_bytes / 1e6, p->n_states,
            p->n_states == 1 ? "" : "s");
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        fprintf(out, "%5d  %-16s", i, s->name);
        if (total > 0)
            fprintf(out, " %5.1f%%", 100 * measured->step_seconds[i] / total);
        if (s->weight_bytes)
            fprintf(out, " %9.2f MB", (double)s->weight_bytes / 1e6);
        else
            fprintf(out, "             ");
        fputs("  ", out);
        for (int k = 0; k < s->n_in && k < 4; k++) {
            fputs(k ? " " : "", out);
            print_value(out, &s->in[k]);
        }
        fputs(" -> ", out);
        for (int k = 0; k < s->n_out && k < 4; k++) {
            fputs(k ? " " : "", out);
            print_value(out, &s->out[k]);
        }
        if (s->n_out > 4)
            fprintf(out, " and %d more", s->n_out - 4);
        fputs("  ", out);
        terminal_put(out, s->label);
        fputc('\n', out);
    }
}

/* ---- runs ---- */

bool run_new(struct engine_run **out, const struct engine_plan *p, int n_threads, char *arena, int slot,
             int n_slots, size_t scratch_bytes, struct err *e)
{
    struct engine_run *r = xcalloc(1, sizeof *r);
    bool ok = false;
    *out = NULL;
    r->scratch_bytes = scratch_bytes;
    r->plan = p;
    r->k = p->kernels;
    r->stop = p->stop;
    r->n_threads = n_threads;
    r->n_parts = 1;
    r->base = xcalloc((size_t)p->n_storages + 1, sizeof *r->base);
    r->own_input = xcalloc((size_t)p->n_inputs + 1, sizeof *r->own_input);
    r->bound_input = xcalloc((size_t)p->n_inputs + 1, sizeof *r->bound_input);
    r->step_seconds = xcalloc((size_t)p->n_steps + 1, sizeof *r->step_seconds);
    if ((!arena && !(arena = r->arena = mem_try_alloc(p->arena_bytes + 64, e))) ||
        !(r->scratch = mem_try_alloc(scratch_bytes * (size_t)n_threads + 64, e)))
        goto done;
    for (int i = 0; i < p->n_inputs; i++)
        if (!(r->own_input[i] = mem_try_alloc((size_t)p->inputs[i].n_elems * 4 + 64, e)))
            goto done;
    for (int i = 0; i < p->n_storages; i++) {
        const struct storage *s = &p->storages[i];
        if (s->kind == STORAGE_ARENA)
            r->base[i] = arena + (size_t)n_slots * s->offset + (size_t)slot * storage_bytes(s);
        else if (s->kind == STORAGE_CONST)
            r->base[i] = (void *)(uintptr_t)s->data; /* never written: no step has a constant as output */
    }
    *out = r;
    r = NULL;
    ok = true;
done:
    engine_run_free(r);
    return ok;
}

bool engine_run_new(struct engine_run **out, const struct engine_plan *p, int n_threads, struct err *e)
{
    double scratch = (double)p->scratch_bytes * (n_threads - 1); /* the plan counts one thread's */
    *out = NULL;
    if ((double)p->memory + scratch > (double)p->memory_max)
        return err_set(
            e, ERR_LIMIT,
            "function %s: needs %.0f MB of memory with %d threads, the limit is %.0f MB (" LIMIT_HINT ")",
            p->function, ((double)p->memory + scratch) * 1e-6, n_threads, (double)p->memory_max * 1e-6);
    return run_new(out, p, n_threads, NULL, 0, 1, p->scratch_bytes, e);
}

void engine_run_free(struct engine_run *r)
{
    if (!r)
        return;
    for (int i = 0; r->own_input && i < r->plan->n_inputs; i++)
        mem_free(r->own_input[i]);
    mem_free(r->arena);
    mem_free(r->scratch);
    free(r->base);
    free(r->own_input);
    free(r->bound_input);
    free(r->step_seconds);
    free(r);
}

void engine_run_set_stop(struct engine_run *r, const struct stop *stop)
{
    r->stop = stop;
}

void *engine_input(struct engine_run *r, int i)
{
    return r->own_input[i];
}

void engine_bind_input(struct engine_run *r, int i, const void *data)
{
    r->bound_input[i] = data;
}

const void *engine_output(const struct engine_run *r, int i)
{
    return value_pointer(r, &r->plan->out_values[i]);
}

void engine_round_output(struct engine_run *r, int i)
{
    const struct mil_port *port = &r->plan->outputs[i];
    if (port->is_int || port->dtype != MIL_FP16)
        return;
    float *p = value_pointer(r, &r->plan->out_values[i]);
    r->k->round_f16(p, p, port->n_elems);
}

void engine_run_measure(struct engine_run *r, bool on)
{
    r->measure = on;
}

void run_fail(struct engine_run *r, const struct step *s, const char *why)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&r->failed, &none, (int)(s - r->plan->steps) + 1))
        r->failed_why = why;
}

struct call {
    struct engine_run *run;
    const struct step *step;
};

static void run_part(void *context, int i_thread, int n_threads)
{
    const struct call *call = context;
    struct engine_run *r = call->run;
    for (int i = 0; i < r->n_parts; i++) {
        if (i > 0 && stop_requested(r->stop))
            return;
        call->step->run(call->step, r, i_thread * r->n_parts + i, n_threads * r->n_parts);
    }
}

/* Operations between two looks at whether to stop: some hundredths of a second, a second where a step is slow. */
#define PART_WORK 268435456.0
#define PARTS_MAX 65536

int run_parts(double work, int n_threads)
{
    double n = work / PART_WORK / n_threads;
    return n < 1 ? 1 : n < PARTS_MAX ? (int)n : PARTS_MAX;
}

bool run_bind(struct engine_run *r, struct engine_state *state, struct err *e)
{
    const struct engine_plan *p = r->plan;
    for (int i = 0; i < p->n_storages; i++) {
        const struct storage *s = &p->storages[i];
        if (s->kind == STORAGE_INPUT) {
            const void *bound = r->bound_input[s->index];
            r->base[i] = bound ? (void *)(uintptr_t)bound : r->own_input[s->index];
        }
    }
    for (int i = 0; i < p->n_storages; i++) {
        const struct storage *s = &p->storages[i];
        if (s->kind == STORAGE_STATE) {
            struct engine_state_entry *entry =
                state ? engine_state_find(state, p->states[s->index].name) : NULL;
            const void *data = entry ? state_data(entry) : NULL;
            if (!data && p->states[s->index].is_used)
                return err_set(e, ERR_USAGE, "function %s needs the state %s", p->function,
                               p->states[s->index].name);
            if (entry &&
                (entry->rank != p->states[s->index].rank ||
                 memcmp(entry->dims, p->states[s->index].dims, sizeof(int64_t) * (size_t)entry->rank) != 0))
                return err_set(e, ERR_USAGE, "function %s: state %s has another shape", p->function,
                               p->states[s->index].name);
            r->base[i] = (void *)(uintptr_t)data;
        }
    }
    atomic_store(&r->failed, 0);
    return true;
}

bool run_check(const struct engine_run *r, const struct step *s, struct err *e)
{
    if (stop_requested(r->stop))
        return stop_error(r->stop, e);
    return !atomic_load_explicit(&r->failed, memory_order_relaxed) ||
           err_set(e, ERR_FAILED, "function %s, %s%s(%s): %s", r->plan->function, s->label ? s->label : "",
                   s->label ? " " : "", s->name, r->failed_why);
}

bool engine_execute(struct engine_run *r, struct engine_state *state, struct pool *pool, struct err *e)
{
    const struct engine_plan *p = r->plan;
    int n_threads = pool ? pool_threads(pool) : 1;
    if (n_threads > r->n_threads)
        return err_set(e, ERR_BUG, "a run made for %d threads is executed by %d", r->n_threads, n_threads);
    if (!run_bind(r, state, e))
        return false;
    struct call call = {.run = r};
    for (int i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        double start = r->measure ? clock_seconds() : 0;
        bool alone = s->serial || n_threads == 1;
        call.step = s;
        r->n_parts = run_parts(s->work, alone ? 1 : n_threads);
        if (alone)
            run_part(&call, 0, 1);
        else
            pool_run(pool, run_part, &call);
        if (r->measure)
            r->step_seconds[i] += clock_seconds() - start;
        if (!run_check(r, s, e))
            return false;
    }
    r->n_measured += r->measure;
    return true;
}
