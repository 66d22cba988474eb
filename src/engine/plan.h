/* A plan and a run of it: storages, values, steps. For the engine's own files. */
#ifndef MILKIT_ENGINE_PLAN_H
#define MILKIT_ENGINE_PLAN_H

#include <stdatomic.h>
#include "base/invariant.h"
#include "engine/ane.h"
#include "engine/engine.h"
#include "kernel/kernel_fixed.h"
#include "mil/infer.h"

enum repr { REPR_F32, REPR_I32, REPR_F16 };

enum storage_kind {
    STORAGE_ARENA, /* offset in the run's arena */
    STORAGE_CONST, /* data: in a mapping or in the plan's arena */
    STORAGE_STATE, /* index: of the plan's states */
    STORAGE_INPUT  /* index: of the plan's inputs */
};

struct storage {
    enum storage_kind kind;
    enum repr repr;
    int64_t n_elems;
    const void *data;
    int index;
    int first_step, last_step; /* arena: life; -1: never written */
    size_t offset;             /* arena: bytes */
};

/* Where a tensor's elements lie: element (i0, .., in) is at offset + sum i * stride, in elements of repr. */
struct value {
    int storage; /* -1: not materialised */
    enum repr repr;
    int64_t offset;
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[MIL_RANK_MAX];
};

struct step;
struct engine_run;
/* Part i_thread of n_threads of a step: as many as the run has threads, or a multiple for a long step, so that it can be
 * stopped in between; 0 of 1 for a serial step. What is computed must not depend on the number. */
typedef void (*step_fn)(const struct step *s, struct engine_run *r, int i_thread, int n_threads);

#define STEP_OPERANDS 8

/* How several runs of a plan take a step together where that costs less than one after another: an operand of one row is a row
 * of memory that the runs share (batch.c). Each row gets the bits that it gets alone. */
struct step_rows {
    void (*run)(const struct step *s, struct engine_run *const *runs, int n, int i_thread, int n_threads);
    size_t (*scratch_bytes)(const struct step *s, int n); /* per thread */
    /* Of the form that the results of n runs have together, beginning where the first run's lies; NULL: each has its own. */
    size_t (*form_bytes)(const struct step *s, const struct kernels *k, int n);
};

struct step {
    step_fn run;
    const char *name;  /* for the listing: "linear f16" */
    const char *label; /* name of the MIL variable that it makes */
    bool serial;
    int n_in, n_out;
    struct value in[STEP_OPERANDS];
    struct value out[STEP_OPERANDS];
    const struct value *more; /* operands beyond the fixed ones (concat, grouped linear): [n_more] */
    int n_more;
    bool more_written;  /* they are results */
    const void *params; /* of the op's own kind */
    uint64_t weight_bytes;
    size_t scratch_bytes; /* per thread */
    double work; /* elementary operations, about; 0: as many as its largest operand or result has elements */
    const struct step_rows *rows; /* NULL: runs take it one after another */
};

struct plan_state {
    const char *name;
    bool is_used;   /* a step looks at it */
    enum repr repr; /* how it is held */
    bool is_recurrent;
    enum mil_dtype dtype;
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t n_elems;
};

struct engine_plan {
    struct arena *arena; /* of all but steps and storages, which are on the heap */
    const struct kernels *kernels;
    enum engine_precision precision;
    struct ane_model ane; /* of ENGINE_ANE */
    const char *function;
    int n_steps, n_storages, n_inputs, n_outputs, n_states;
    struct step *steps;
    struct storage *storages;
    struct mil_port *inputs, *outputs;
    int *input_storage;       /* [n_inputs] */
    struct value *out_values; /* [n_outputs]: dense arena values */
    struct plan_state *states;
    size_t arena_bytes, scratch_bytes;
    uint64_t weight_bytes;
    const struct stop *stop;
    uint64_t memory;     /* what is spent, states apart */
    uint64_t memory_max; /* the limit, less what plans before it and its states take of it */
    double work;
};

struct engine_run {
    const struct engine_plan *plan;
    const struct kernels *k;
    const struct stop *stop;
    int n_threads;
    char *arena;
    char *scratch; /* [n_threads][scratch_bytes] */
    size_t scratch_bytes;
    void **base; /* [n_storages]: address of element 0 */
    void **own_input;
    const void **bound_input;
    atomic_int failed; /* a step's number + 1 */
    const char *failed_why;
    int n_parts; /* that each thread does of the step that runs */
    bool measure;
    double *step_seconds; /* [n_steps] */
    int n_measured;
};

static inline void *value_pointer(const struct engine_run *r, const struct value *v)
{
    return (char *)r->base[v->storage] + v->offset * (v->repr == REPR_F16 ? 2 : 4);
}
static inline void *run_scratch(const struct engine_run *r, int i_thread)
{
    return r->scratch + (size_t)(i_thread / r->n_parts) * r->scratch_bytes;
}
/* For loops inside one part whose length is not bounded by memory: is it time to leave? i counts operations. */
static inline bool run_stops(const struct engine_run *r, int64_t i)
{
    return (i & 0xfffff) == 0xfffff && stop_requested(r->stop);
}
void *state_data(const struct engine_state_entry *s); /* NULL: no function looks at it */
void run_fail(struct engine_run *r, const struct step *s, const char *why);
/* run.c, for batch.c: a run whose values lie in `arena`, slot of n_slots: the slots' values of one storage lie side by side. */
bool run_new(struct engine_run **out, const struct engine_plan *p, int n_threads, char *arena, int slot,
             int n_slots, size_t scratch_bytes, struct err *e);
/* Addresses of states and inputs, before the first step. */
bool run_bind(struct engine_run *r, struct engine_state *state, struct err *e);
/* What a step that failed has left in r->failed; true when there is nothing. */
bool run_check(const struct engine_run *r, const struct step *s, struct err *e);
/* Parts that each of n_threads does of a step with so much work. */
int run_parts(double work, int n_threads);

/* Behind every message about a limit. */
#define LIMIT_HINT "MILKIT_LIMIT=N in the environment allows N times as much"
/* memory.c: bytes of the arena that a storage takes. */
size_t storage_bytes(const struct storage *s);
/* plan_check.c: ERR_BUG with the first thing that is not as it is in every plan. Any build can call it. */
bool plan_check(const struct engine_plan *p, struct err *e);

/* views.c */
int64_t dims_product(const int64_t *dims, int n); /* 0 when one is 0, whatever the others */
void dense_strides(int rank, const int64_t *dims, int64_t *strides);
bool is_dense(const struct value *v);
int64_t value_elems(const struct value *v);
/* Axes by falling stride, equal ones in their order: the order in which memory is walked. */
void axes_by_stride(const struct value *v, int order[MIL_RANK_MAX]);
/* True when v can be seen with the new dims without moving data. */
bool view_reshape(const struct value *v, int rank, const int64_t *dims, struct value *out);
/* Merges neighbouring axes of up to n values (same dims) that can be walked as one; drops axes of 1. Returns
 * the rank (>= 1). */
int coalesce(int rank, int64_t *dims, int n, int64_t strides[][MIL_RANK_MAX]);

/* Where element `index` of a walk over dims, the last axis fastest, lies in each of n values of these strides. */
static inline void walk_offsets(int rank, const int64_t *dims, int n, const int64_t strides[][MIL_RANK_MAX],
                                int64_t index, int64_t *at)
{
    for (int j = 0; j < n; j++)
        at[j] = 0;
    for (int i = rank - 1; i >= 0; i--) {
        int64_t k = index % dims[i];
        index /= dims[i];
        for (int j = 0; j < n; j++)
            at[j] += k * strides[j][i];
    }
}
/* The same for one value. */
static inline int64_t walk_offset(int rank, const int64_t *dims, const int64_t *strides, int64_t index)
{
    int64_t at = 0;
    for (int i = rank - 1; i >= 0; i--) {
        at += index % dims[i] * strides[i];
        index /= dims[i];
    }
    return at;
}

#endif
