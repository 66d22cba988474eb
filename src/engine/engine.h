/* The engine: a function of a MIL program becomes a plan (once), a plan is run (often).
 *
 * Numbers. Values of fp16 and fp32 tensors are float32 between steps, integers and bools int32. States keep
 * the type that the program declares (fp16): what is written to them is rounded; only recurrent states are held
 * as float32. ENGINE_DEFAULT fuses patterns and keeps float32 inside; ENGINE_FP32 runs op by op in float32 and holds
 * all states so; ENGINE_FP16 runs op by op and rounds every fp16 result; ENGINE_ANE emulates the Neural Engine's sums,
 * tables and rounding as they were published (ane.h). In the default
 * precision results do not depend on threads, instruction set or batch.
 *
 * Inputs and outputs of a run are float32 or int32 buffers in row-major order of the declared shape; rounding
 * outputs to the declared fp16 is the caller's affair (engine_round_output), so that chunks of a model can
 * hand the residual stream on unrounded.
 */
#ifndef MILKIT_ENGINE_ENGINE_H
#define MILKIT_ENGINE_ENGINE_H

#include <stdio.h>
#include "base/pool.h"
#include "base/stop.h"
#include "kernel/kernel.h"
#include "mil/port.h"

enum engine_precision { ENGINE_DEFAULT = 0, ENGINE_FP32, ENGINE_FP16, ENGINE_ANE };

/* Switches of ENGINE_ANE, "norm=fp16,tables=exact" (NULL: the defaults): ERR_USAGE names those there are. *number (may be NULL): tells
 * them apart, 0 for the defaults. */
bool engine_emulation_check(const char *switches, uint64_t *number, struct err *e) MUST_CHECK;

/* How states are held: caches as declared (fp16), recurrent states as float32. A state is shared by functions and by
 * chunks in other files, so this is decided once for all of them, by what all of them do with it, and not by
 * which patterns are found in one of them. A state is recurrent when its new contents are computed from the old ones, or
 * are a window that newer values enter from behind and that is no operand of products (attention's are); and when
 * no row of it is written at a position that is known only at run time. */
struct engine_state_forms;
struct engine_state_forms *engine_state_forms_new(void);
void engine_state_forms_add(struct engine_state_forms *s, const struct mil_model *m); /* all functions */
void engine_state_forms_free(struct engine_state_forms *s);                           /* accepts NULL */
/* Is the state of this name held as float32 in every function that shares it? */
bool engine_state_is_recurrent(const struct engine_state_forms *s, const char *name);

/* What a plan may cost, in bytes of memory (constants that are expanded, workspace, inputs, states) and in elementary
 * operations of one run: checked before it is spent (ERR_LIMIT). A limit of 0 is 4 GiB + 64 times the bytes of the
 * model's weight files, and 2^40 + 2^20 for each of these bytes, both times the number in the environment's
 * MILKIT_LIMIT. */
struct engine_limits {
    uint64_t memory, work;
};
/* Those of 0. m NULL: a model without weights. ERR_USAGE: what the environment says is no such number. */
bool engine_limits_of(const struct mil_model *m, struct engine_limits *out, struct err *e) MUST_CHECK;

/* The limits of several plans together, as of a package: each new plan takes what it costs, states of one name once. A
 * plan that would go beyond them is ERR_LIMIT. May be shared by threads. */
struct engine_budget;
struct engine_budget *engine_budget_new(struct engine_limits limits);
/* As much more as m's weight files allow by the rule of engine_limits. */
void engine_budget_add(struct engine_budget *b, const struct mil_model *m);
void engine_budget_free(struct engine_budget *b); /* accepts NULL */
struct engine_plan;
/* The plan is about to be freed: others may have what it took, but for the states. */
void engine_budget_give_back(struct engine_budget *b, const struct engine_plan *p);

/* What was seen of values that programs declare fp16, in runs of plans that were made with it. May be shared by threads. Values
 * inside of fused steps are not seen (op by op all are). */
struct engine_range;
struct engine_range_found {
    double largest;                   /* finite magnitude; 0: nothing was seen */
    char function[64], variable[128]; /* where */
    int64_t n_beyond;                 /* numbers that fp16 does not hold, but for -inf (masks) */
};
struct engine_range *engine_range_new(void);
void engine_range_free(struct engine_range *r); /* after the plans; accepts NULL */
void engine_range_get(struct engine_range *r, struct engine_range_found *out);

struct engine_options {
    struct engine_range *range;    /* NULL: nobody watches; changes no result */
    const struct kernels *kernels; /* NULL: kernel_select */
    struct engine_limits limits;
    struct engine_budget *budget; /* instead of limits of the plan's own; may be NULL */
    const struct stop *stop;      /* asked while planning and running; may be NULL, outlives the plan */
    enum engine_precision precision;
    const char *emulation; /* switches of ENGINE_ANE; may be NULL */
    const struct engine_state_forms
        *state_forms; /* of all models that share states; NULL: of this model's functions */
    bool
        declared_states; /* ENGINE_FP32 holds states as ENGINE_DEFAULT does, so that the two can be compared closely */
};

/* A plan is immutable, borrows the model (weights stay mapped) and may be shared by runs and threads. */
bool engine_plan_new(struct engine_plan **out, const struct mil_model *m, const char *function,
                     const struct mil_input_shape *shapes, int n_shapes, const struct engine_options *options,
                     struct err *e) MUST_CHECK;
void engine_plan_free(struct engine_plan *p); /* accepts NULL */
int engine_plan_inputs(const struct engine_plan *p);
int engine_plan_outputs(const struct engine_plan *p);
/* Of one array: that of 0 is the first of all of them. */
const struct mil_port *engine_plan_input(const struct engine_plan *p, int i);
const struct mil_port *engine_plan_output(const struct engine_plan *p, int i);
/* Bytes of weights that one run reads (fp16 and palettized data of linear steps). */
uint64_t engine_plan_weight_bytes(const struct engine_plan *p);
uint64_t engine_plan_arena_bytes(const struct engine_plan *p);
/* The list of steps: number, kernel, shapes, weight bytes; share of the time where a run has measured it. */
struct engine_run;
void engine_plan_print(const struct engine_plan *p, const struct engine_run *measured, FILE *out);

struct buf;
/* The same as members of a JSON object that the caller has begun: `"function": .., "steps": [..]` (docs/contract.md). */
void engine_plan_put_json(const struct engine_plan *p, const struct engine_run *measured, struct buf *out);

/* States of a model by name, shared by all functions and chunks that declare them; zeros at first. */
struct engine_state;
struct engine_state_entry {
    const char *name;
    enum mil_dtype dtype; /* MIL_FP16 */
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t n_elems;
    bool is_recurrent;
    /* One of the two, [n_elems]; recurrent states are held as float32 but in ENGINE_FP16, all states in
     * ENGINE_FP32. NULL, NULL: declared, but no function looks at it. */
    f16 *f16_data;
    float *f32_data;
};
/* Contents as the program declares them (fp16): rounded where the engine holds more. dst, src [n_elems]. */
void engine_state_read(const struct engine_state_entry *s, f16 *dst);
void engine_state_write(struct engine_state_entry *s, const f16 *src);
struct engine_state *engine_state_new(void);
/* Adds the states that a plan declares; an entry that is there must have the same shape (ERR_FORMAT). Plans that share
 * states must have been made with the same state_forms and precision (ERR_BUG). */
bool engine_state_add(struct engine_state *s, const struct engine_plan *p, struct err *e) MUST_CHECK;
void engine_state_clear(struct engine_state *s); /* all zeros */
void engine_state_free(struct engine_state *s);  /* accepts NULL */
int engine_state_count(const struct engine_state *s);
struct engine_state_entry *engine_state_get(struct engine_state *s, int i);
struct engine_state_entry *engine_state_find(struct engine_state *s, const char *name); /* NULL when absent */

/* A run: the workspace of one caller of one plan. Nothing is allocated after this. */
bool engine_run_new(struct engine_run **out, const struct engine_plan *p, int n_threads,
                    struct err *e) MUST_CHECK;
void engine_run_free(struct engine_run *r); /* accepts NULL */
/* Asked instead of the plan's while this run goes on; must outlive it. */
void engine_run_set_stop(struct engine_run *r, const struct stop *stop);
/* The run's own buffer of input i: float or int32 [n_elems]. */
void *engine_input(struct engine_run *r, int i);
/* Uses a buffer of the caller instead (an output of another run); NULL goes back to the own one. */
void engine_bind_input(struct engine_run *r, int i, const void *data);
const void *engine_output(const struct engine_run *r, int i);
/* Rounds output i to its declared fp16, in place. */
void engine_round_output(struct engine_run *r, int i);
/* state: NULL when the function has none. pool: at most the n_threads of engine_run_new. ERR_FAILED: an index
 * out of range; nothing outside the buffers is touched then. ERR_CANCELLED: stopped, between steps or inside a long one. */
bool engine_execute(struct engine_run *r, struct engine_state *state, struct pool *pool,
                    struct err *e) MUST_CHECK;
/* Runs of one plan side by side, each with its own inputs, states and outcome: weights are read once for all of them. Every run
 * gets the bits that it gets alone, whatever the others compute and whether they fail. */
struct engine_batch;
bool engine_batch_new(struct engine_batch **out, const struct engine_plan *p, int n_runs, int n_threads,
                      struct err *e) MUST_CHECK;
void engine_batch_free(struct engine_batch *b); /* accepts NULL */
/* For inputs, outputs and stop of run i; engine_execute does not take it. */
struct engine_run *engine_batch_run(const struct engine_batch *b, int i);
struct engine_member {
    struct engine_state *state; /* as in engine_execute */
    bool has_failed;            /* true beforehand: left out */
    struct err error;           /* then: why */
};
/* members [n]: of the first n runs. False only when nothing was done (ERR_BUG). */
bool engine_batch_execute(struct engine_batch *b, struct engine_member *members, int n, struct pool *pool,
                          struct err *e) MUST_CHECK;
/* Measures the time of each step from now on (a little slower). */
void engine_run_measure(struct engine_run *r, bool on);

#endif
