/* Internals of the engine, for its own files only.
 *
 * Compilation: graph (defs, uses) -> patterns (fuse.c) -> emission in program order (compile.c, emit.c, op_*.c: views
 * become strides, everything else a step) -> memory (memory.c: every arena storage gets an offset) -> plan.
 */
#ifndef MILKIT_ENGINE_ENGINE_INT_H
#define MILKIT_ENGINE_ENGINE_INT_H

#include <stdatomic.h>
#include "base/invariant.h"
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
    int64_t i[6];
    float f[2];
    uint64_t weight_bytes;
    size_t scratch_bytes; /* per thread */
    double work; /* elementary operations, about; 0: as many as its largest operand or result has elements */
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
    const char *function;
    int n_steps, n_storages, n_inputs, n_outputs, n_states;
    struct step *steps;
    struct storage *storages;
    struct engine_port *inputs, *outputs;
    int *input_storage;       /* [n_inputs] */
    struct value *out_values; /* [n_outputs]: dense arena values */
    struct plan_state *states;
    size_t arena_bytes, scratch_bytes;
    uint64_t weight_bytes;
    const struct stop *stop;
    uint64_t memory_max, memory; /* limit; what is spent */
    double work;
};

struct engine_run {
    const struct engine_plan *plan;
    const struct kernels *k;
    const struct stop *stop;
    int n_threads;
    char *arena;
    char *scratch; /* [n_threads][plan->scratch_bytes] */
    void **base;   /* [n_storages]: address of element 0 */
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
    return r->scratch + (size_t)(i_thread / r->n_parts) * r->plan->scratch_bytes;
}
/* For loops inside one part whose length is not bounded by memory: is it time to leave? i counts operations. */
static inline bool run_stops(const struct engine_run *r, int64_t i)
{
    return (i & 0xfffff) == 0xfffff && stop_requested(r->stop);
}
void *state_data(const struct engine_state_entry *s); /* NULL: no function looks at it */
void run_fail(struct engine_run *r, const struct step *s, const char *why);

/* ---- the graph under compilation ---- */

struct use {
    int op; /* index in the block, n_ops: function output */
    struct use *next;
};

struct node {
    bool absorbed;             /* part of a fused pattern, emits nothing */
    const struct fused *fused; /* emitted here instead of the op */
    int match;                 /* the number of the match that counts it as a member, 0: none */
};

struct graph {
    const struct mil_function *f;
    const struct mil_type **types; /* [n_vars] */
    int n_ops;
    struct mil_op **ops;
    int *def;           /* [n_vars] op index, -1: function input */
    int *n_uses;        /* [n_vars] */
    struct use **uses;  /* [n_vars] */
    struct node *nodes; /* [n_ops] */
    int *next_write;    /* [n_ops]: of a read_state, the next op that writes its state; n_ops: none */
    int *last_look;     /* [n_vars]: see graph_find_looks */
};

enum fused_kind {
    FUSED_RMS_NORM,
    FUSED_ROPE,
    FUSED_ATTENTION,
    FUSED_SILU_MUL,
    FUSED_TOUCH,
    FUSED_GATED_DELTA,
    FUSED_WINDOW,
    FUSED_EXPERTS /* in: x, gate and up products (their convs are members), experts' weights; out: the down conv's */
};

struct fused {
    enum fused_kind kind;
    struct mil_var *out;
    struct mil_var *in[6];          /* rms: x; rope: x, cos, sin; attention: q, k, v, mask; silu: x, up */
    const struct mil_value *weight; /* rms: or NULL */
    const struct mil_value *rest;   /* rms: what is added to weight, or NULL */
    double eps, scale;
    int64_t pairs, half;
    int64_t slot; /* gated delta: first row of the state's slice; in: q, k, v, g, beta, state */
    /* window: rows of a shift; slot is the state's; in: state, rows, begin, enter (or NULL) */
    int64_t block;
};

/* ---- compilation ---- */

struct compiler {
    struct arena *arena;   /* the plan's */
    struct arena *scratch; /* dies after compilation */
    struct engine_plan *plan;
    const struct mil_model *model;
    struct graph g;
    struct value *values;            /* [n_vars], storage -1: not emitted */
    const struct mil_value **consts; /* [n_vars]: compile-time value of a const op's output, else NULL */
    bool float32_states;
    const struct engine_state_forms *state_forms;
    int n_matches;                      /* so far, by their numbers */
    const struct mil_var **state_slice; /* [n_vars]: the state that v is a slice of, or NULL */
    int cap_steps, cap_storages;
    struct mask_range { /* by the storage of the mask */
        int mask_storage;
        int64_t mask_offset, n_rows, n, stride;
        struct value range;
        struct mask_range *next;
    } * mask_ranges[256];
    struct mask_verdict { /* fuse_delta.c: does this constant hold this mask? */
        const struct mil_value *mask;
        int kind;
        int64_t block;
        bool holds;
        struct mask_verdict *next;
    } * masks[64];
    struct const_cache {
        const struct mil_value *v;
        enum repr repr;
        int storage;
        struct const_cache *next;
    } * const_cache[256];
    struct prepared {
        struct value x, form;
        int bits;
        struct prepared *next;
    } * prepared[256];       /* fixed-point forms of activations, by their storage */
    const struct mil_op *op; /* being emitted, for messages */
    struct err *e;
};

/* graph.c */
bool graph_new(struct graph *g, const struct mil_function *f, const struct mil_type **types, struct arena *a,
               struct err *e);
/* The op that defines v, when v is defined in the block; else NULL. */
const struct mil_op *graph_def(const struct graph *g, const struct mil_var *v);
int graph_op_index(const struct graph *g, const struct mil_var *v);
/* A slice_update that is nothing but the argument of a write (its op index) into the state that it updates. */
bool graph_is_state_update(const struct graph *g, const struct mil_op *op, int *write);
/* After the patterns: the last op that looks at a variable's memory, through views and through the members of fused
 * patterns; n_ops: the function's result. A slice_update that is done by the write of its result looks only then. */
void graph_find_looks(struct graph *g, struct arena *a);
/* v has exactly one use, by op index `op`. */
bool graph_used_once_by(const struct graph *g, const struct mil_var *v, int op);
/* fuse.c: marks patterns in g->nodes. */
void fuse_patterns(struct compiler *c);
/* fuse_delta.c */
void fuse_touch(struct compiler *c, const struct mil_op *add);
void fuse_gated_delta(struct compiler *c, const struct mil_op *update);
/* fuse_window.c: from the write, an op's index */
void fuse_window(struct compiler *c, int i_write);
/* fuse_experts.c: after the other patterns */
void fuse_experts(struct compiler *c, const struct mil_op *down);
/* Shared by the fuse files: what an op is, and taking a pattern. */
const struct mil_op *fuse_def(const struct compiler *c, const struct mil_var *v, enum mil_op_id id);
const struct mil_value *fuse_const(const struct compiler *c, const struct mil_op *op, const char *name);
bool fuse_ints(const struct compiler *c, const struct mil_op *op, const char *name, int64_t *d, int *n);
bool fuse_var_and_number(const struct compiler *c, const struct mil_op *op, struct mil_var **v, double *d);
bool fuse_last_slice(const struct compiler *c, const struct mil_op *op, int64_t *begin, int64_t *end);
/* Nothing but begin and end: no axis that begins elsewhere by a mask, no steps over rows. */
bool fuse_is_plain_slice(const struct compiler *c, const struct mil_op *op);
void fuse_take(struct compiler *c, struct fused *f, int root, const int *members, int n);

/* emit.c: helpers for op_*.c */
int storage_new(struct compiler *c, enum storage_kind kind, enum repr repr, int64_t n_elems);
/* A dense arena value with row-major strides. */
struct value value_new(struct compiler *c, enum repr repr, int rank, const int64_t *dims);
/* A dense arena value whose strides have the order of like's (same rank). */
struct value value_new_like(struct compiler *c, enum repr repr, int rank, const int64_t *dims,
                            const struct value *like);
struct step *step_new(struct compiler *c, const char *name, step_fn run);
/* Elements from which a step is worth more than one thread. */
#define PARALLEL_ELEMS 16384
void step_in(struct compiler *c, struct step *s, struct value v);
void step_out(struct compiler *c, struct step *s, struct value v);

/* Behind every message about a limit. */
#define LIMIT_HINT "MILKIT_LIMIT=N in the environment allows N times as much"
/* Counts memory that the plan is about to take; false: over the limit. */
bool compile_take_memory(struct compiler *c, int64_t n, int64_t bytes);
/* Is there room for n more steps? For ops that make as many as they have operands; others make a few. */
bool compile_take_steps(struct compiler *c, int n);
bool compile_fail(struct compiler *c, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The value of an op's argument: as it is (any repr, any strides). False (with an error) when it can't be
 * had; optional absent arguments: *present false. */
bool operand(struct compiler *c, const struct mil_op *op, const char *name, struct value *out);
bool operand_binding(struct compiler *c, const struct mil_binding *b, struct value *out);
bool operand_optional(struct compiler *c, const struct mil_op *op, const char *name, struct value *out,
                      bool *present);
/* The same as float32 (a conversion step for fp16 storages, a float copy of a constant). */
bool operand_f32(struct compiler *c, const struct mil_op *op, const char *name, struct value *out);
bool to_f32(struct compiler *c, struct value *v);
/* Copies v to a fresh dense value when its strides are not row-major dense. */
bool to_dense(struct compiler *c, struct value *v);
/* A constant as dense floats or ints in the plan's arena, or (REPR_F16) in place. */
bool const_value(struct compiler *c, const struct mil_value *v, enum repr repr, struct value *out);
bool arg_ints(struct compiler *c, const struct mil_op *op, const char *name, int64_t *dst,
              int *n); /* n: in max, out count */
bool arg_int(struct compiler *c, const struct mil_op *op, const char *name, int64_t fallback, int64_t *dst);
bool arg_bool(struct compiler *c, const struct mil_op *op, const char *name, bool fallback, bool *dst);
bool arg_float(struct compiler *c, const struct mil_op *op, const char *name, double fallback, double *dst);
enum repr dtype_repr(enum mil_dtype d);
const struct mil_type *var_type(const struct compiler *c, const struct mil_var *v);
/* Declares the value of an op's output i; rounds to fp16 in ENGINE_FP16 when the type is fp16. */
void set_output(struct compiler *c, const struct mil_op *op, int i, struct value v);
void set_var(struct compiler *c, const struct mil_var *var, struct value v);
void emit_copy(struct compiler *c, const struct value *from,
               const struct value *to); /* same dims; converts repr */

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

/* op_*.c: emission of one op; false with c->e filled on error. The emitters are those that mil/ops.def names. */
typedef bool (*emit_fn)(struct compiler *c, const struct mil_op *op);
#define MIL_OP(id, name, opset, histogram, rule, inputs, emitter, memory, doc)                               \
    bool emit_##emitter(struct compiler *c, const struct mil_op *op);
#include "mil/ops.def"
#undef MIL_OP
/* op_table.c: the op's emitter; emit_none for an op that the engine does not run. */
emit_fn op_emitter(const struct mil_op *op);
/* May the result of the op be the memory of its operand? */
bool op_is_view(const struct mil_op *op);
/* op_quantized.c: the constexpr op that makes v, or NULL; its value expanded (a constant of the plan); or
 * packed for fixed-point products of [n_out, n_in], NULL when its form does not allow that (not an error) */
const struct mil_op *constexpr_of(const struct compiler *c, const struct mil_var *v);
bool constexpr_dense(struct compiler *c, const struct mil_op *op, struct value *out);
const struct fixed_weight *constexpr_fixed(struct compiler *c, const struct mil_op *op, int64_t n_out,
                                           int64_t n_in);
/* A weight of a linear step: dense, or packed for fixed-point products (whose activations are then prepared ones). */
struct weight_ref {
    const void *dense; /* [n_out, n_in] fp16 or float */
    bool is_f16;
    const struct fixed_weight *fixed;
    const char *name; /* for listings */
    uint64_t bytes;
};
/* op_linear.c: the weight of a conv or linear op (a constant or packed one); its scratch a thread; y = x w^T for outputs
 * begin .. end */
bool weight_ref_of(struct compiler *c, const struct mil_op *op, int64_t n_out, int64_t n_in,
                   struct weight_ref *out);
size_t weight_scratch_bytes(const struct weight_ref *w, int64_t n_in, int64_t n_rows);
void weight_product(const struct weight_ref *w, const struct kernels *k, float *y, int64_t y_stride,
                    const void *x, int64_t x_stride, const float *bias, int64_t n_rows, int64_t n_in,
                    int64_t begin, int64_t end, void *scratch);
/* Sees x [1, I, spatial..] as [rows, I] with unit stride inside a row; copies when the strides do not allow it. */
bool as_rows(struct compiler *c, struct value *x, int feature_axis);
bool emit_window(struct compiler *c, const struct fused *f);
/* op_scalar.c: functions of one number without a kernel, and the parameters of all of them. */
float scalar_function(int id, float v, float alpha, float beta);
bool scalar_parameters(struct compiler *c, const struct mil_op *op, float *alpha, float *beta);
bool emit_rms_norm(struct compiler *c, const struct fused *f);
bool emit_rope(struct compiler *c, const struct fused *f);
bool emit_silu_mul(struct compiler *c, const struct fused *f);
bool emit_attention(struct compiler *c, const struct fused *f);
bool emit_gated_delta(struct compiler *c, const struct fused *f);
bool emit_experts(struct compiler *c, const struct fused *f);
/* Joins neighbouring linear steps with one input into one step. */
void group_linear(struct compiler *c);
/* plan_check.c: ERR_BUG with the first thing that is not as it is in every plan. Any build can call it. */
bool plan_check(const struct engine_plan *p, struct err *e);
/* memory.c: offsets of arena storages */
bool plan_memory(struct compiler *c);

#endif
