/* Small programs made with the builder, planned in one precision and run on given or pseudo-random inputs. */
#ifndef MILKIT_TESTS_PROGRAM_H
#define MILKIT_TESTS_PROGRAM_H

#include <math.h>
#include "support.h"
#include "engine/engine.h"
#include "mil/build.h"

#define ARGS(...) ((const struct mil_build_arg[]){__VA_ARGS__})
#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})
#define PROGRAM_OUTPUTS_MAX 4
#define PROGRAM_INPUTS_MAX 8

struct program {
    struct mil_model *m;
    struct mil_builder *b;
};

/* What an input holds: float or int32 [of its elements]. Inputs without an entry are pseudo-random. */
struct program_input {
    const char *name;
    const void *data;
};

/* One planned precision of a program. */
struct machine {
    struct engine_plan *plan;
    struct engine_run *run;
    struct engine_state *state;
    struct pool *pool;
    char *listing; /* engine_plan_print */
    size_t n_listing;
};

static inline struct program program_begin(void)
{
    struct program p = {.m = mil_model_new(9)};
    p.b = mil_builder_new(p.m, "main", "CoreML8");
    return p;
}

static inline void program_end(struct program *p, struct mil_var *const *outputs, int n)
{
    ASSERT_OK(mil_builder_finish(p->b, outputs, n, e));
    p->b = NULL;
}

static inline void program_free(struct program *p)
{
    mil_model_close(p->m);
}

static inline struct mil_var *op1(struct program *p, const char *type, struct mil_var *x)
{
    return mil_build_op(p->b, type, NULL, ARGS({.name = "x", .var = x}), 1);
}

static inline struct mil_var *op2(struct program *p, const char *type, struct mil_var *x, struct mil_var *y)
{
    return mil_build_op(p->b, type, NULL, ARGS({.name = "x", .var = x}, {.name = "y", .var = y}), 2);
}

static inline struct mil_var *read_state(struct program *p, struct mil_var *state)
{
    return mil_build_op(p->b, "read_state", NULL, ARGS({.name = "input", .var = state}), 1);
}

static inline void write_state(struct program *p, struct mil_var *state, struct mil_var *data)
{
    assert_true(mil_build_op_n(p->b, "write_state", NULL,
                               ARGS({.name = "input", .var = state}, {.name = "data", .var = data}), 2, NULL,
                               0));
}

/* Deterministic, in [-2, 2), different per seed and index. */
static inline float noise(uint32_t seed, size_t i)
{
    uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (float)((z >> 40) & 0xffffff) * (4.0f / 16777216.0f) - 2;
}

static inline void machine_open_with(struct machine *k, const struct mil_model *m,
                                     const struct engine_options *options, int n_threads)
{
    memset(k, 0, sizeof *k);
    ASSERT_OK(engine_plan_new(&k->plan, m, "main", NULL, 0, options, e));
    ASSERT_OK(pool_new(&k->pool, n_threads, e));
    ASSERT_OK(engine_run_new(&k->run, k->plan, n_threads, e));
    k->state = engine_state_new();
    ASSERT_OK(engine_state_add(k->state, k->plan, e));
    FILE *f = open_memstream(&k->listing, &k->n_listing);
    engine_plan_print(k->plan, NULL, f);
    fclose(f);
}

/* States as the program declares them in every precision, so that results differ by the order of sums alone. */
static inline void machine_open(struct machine *k, const struct mil_model *m, enum engine_precision precision,
                                int n_threads)
{
    machine_open_with(k, m, &(struct engine_options){.precision = precision, .declared_states = true},
                      n_threads);
}

static inline void machine_close(struct machine *k)
{
    engine_run_free(k->run);
    engine_plan_free(k->plan);
    engine_state_free(k->state);
    pool_free(k->pool);
    free(k->listing);
}

/* Steps of a name ("rms norm") in the listing. */
static inline int machine_steps(const struct machine *k, const char *name)
{
    char *want = xasprintf("  %s ", name);
    int n = 0;
    for (const char *at = k->listing; (at = strstr(at, want)); at += strlen(want))
        n++;
    free(want);
    return n;
}

static inline void machine_fill(struct machine *k, const struct program_input *inputs, int n_inputs)
{
    for (int i = 0; i < engine_plan_inputs(k->plan); i++) {
        const struct mil_port *port = engine_plan_input(k->plan, i);
        const void *data = NULL;
        float *to = engine_input(k->run, i);
        for (int j = 0; j < n_inputs; j++)
            if (strcmp(inputs[j].name, port->name) == 0)
                data = inputs[j].data;
        if (data)
            memcpy(to, data, (size_t)port->n_elems * 4);
        else
            for (int64_t j = 0; j < port->n_elems; j++) {
                if (port->is_int)
                    ((int32_t *)to)[j] = 0;
                else
                    to[j] = noise((uint32_t)i, (size_t)j);
            }
    }
}

static inline void machine_execute(struct machine *k, const struct program_input *inputs, int n_inputs)
{
    machine_fill(k, inputs, n_inputs);
    ASSERT_OK(engine_execute(k->run, k->state, k->pool, e));
}

static inline void assert_floats(const float *got, const float *want, int64_t n, double tolerance,
                                 const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * (1 + fabs((double)want[i]))) && got[i] != want[i])
            fail_msg("%s[%lld]: expected %.9g, found %.9g", what, (long long)i, (double)want[i],
                     (double)got[i]);
}

/* Runs both precisions on the same inputs, twice (the second call meets states that the first one wrote), with one
 * and with three threads; all outputs and states must agree. Returns how often the default plan has a step. */
static inline int agree(struct program *p, const struct program_input *inputs, int n_inputs, double tolerance,
                        const char *step)
{
    struct machine fused, plain, threads;
    int n;
    machine_open(&fused, p->m, ENGINE_DEFAULT, 1);
    machine_open(&threads, p->m, ENGINE_DEFAULT, 3);
    machine_open(&plain, p->m, ENGINE_FP32, 1);
    for (int call = 0; call < 2; call++) {
        machine_execute(&fused, inputs, n_inputs);
        machine_execute(&threads, inputs, n_inputs);
        machine_execute(&plain, inputs, n_inputs);
        for (int i = 0; i < engine_plan_outputs(fused.plan); i++) {
            const struct mil_port *port = engine_plan_output(fused.plan, i);
            assert_memory_equal(engine_output(fused.run, i), engine_output(threads.run, i),
                                port->n_elems * 4);
            if (port->is_int)
                assert_memory_equal(engine_output(fused.run, i), engine_output(plain.run, i),
                                    port->n_elems * 4);
            else
                assert_floats(engine_output(fused.run, i), engine_output(plain.run, i), port->n_elems,
                              tolerance, port->name);
        }
        for (int i = 0; i < engine_state_count(fused.state); i++) {
            const struct engine_state_entry *a = engine_state_get(fused.state, i),
                                            *b = engine_state_get(plain.state, i);
            f16 *x = calloc((size_t)a->n_elems, sizeof *x), *y = calloc((size_t)a->n_elems, sizeof *y);
            engine_state_read(a, x);
            engine_state_read(b, y);
            for (int64_t j = 0; j < a->n_elems; j++)
                if (fabsf(f16_to_f32(x[j]) - f16_to_f32(y[j])) > 2e-3f)
                    fail_msg("state %s[%lld] differs", a->name, (long long)j);
            free(x);
            free(y);
        }
    }
    n = machine_steps(&fused, step);
    machine_close(&fused);
    machine_close(&threads);
    machine_close(&plain);
    return n;
}

#endif
