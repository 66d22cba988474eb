/* Compilation of a function into a plan. For the engine's own files.
 *
 * The graph (graph.c) -> patterns (patterns.c, match.c, pattern_*.c) -> emission in program order (compile.c, emit.c, op_*.c: views
 * become strides, everything else a step) -> memory (memory.c: every arena storage gets an offset) -> plan.
 */
#ifndef MILKIT_ENGINE_COMPILER_H
#define MILKIT_ENGINE_COMPILER_H

#include "engine/graph.h"
#include "engine/plan.h"

struct compiler {
    struct arena *arena;   /* the plan's */
    struct arena *scratch; /* dies after compilation */
    struct engine_plan *plan;
    const struct mil_model *model;
    struct graph g;
    struct value *values;            /* [n_vars], storage -1: not emitted */
    const struct mil_value **consts; /* [n_vars]: compile-time value of a const op's output, else NULL */
    struct mil_known_ints *known;    /* by the graph's types */
    struct engine_budget *budget;
    struct engine_range *range; /* NULL: nobody watches */
    bool float32_states;
    const struct engine_state_forms *state_forms;
    int n_matches;                      /* so far, by their numbers */
    const struct mil_var **state_slice; /* [n_vars]: the state that v is a slice of, or NULL */
    size_t cap_steps, cap_storages;
    struct mask_range { /* by the storage of the mask */
        int mask_storage;
        int64_t mask_offset, n_rows, n, stride;
        struct value range;
        struct mask_range *next;
    } * mask_ranges[256];
    struct mask_verdict { /* pattern_delta.c: does this constant hold this mask? */
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

/* patterns.c: finds the patterns and marks them in the graph's nodes. */
void patterns_find(struct compiler *c);

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
/* A step that makes y out of x [n]; serial when y has few elements. */
struct step *step_make(struct compiler *c, const char *name, step_fn run, const void *params,
                       const struct value *x, int n, struct value y);
/* The same as all that the op is: y becomes its output 0. True. */
bool emit_step(struct compiler *c, const struct mil_op *op, const char *name, step_fn run, const void *params,
               const struct value *x, int n, struct value y);

/* Counts memory that the plan is about to take; false: over the limit. */
bool compile_take_memory(struct compiler *c, int64_t n, int64_t bytes);
/* For loops over the elements of constants, i counting them: false (with the error) when the work should stop. */
bool compile_goes_on(struct compiler *c, int64_t i);
/* The first n elements of a constant as floats; likewise. */
bool compile_floats(struct compiler *c, float *dst, const struct mil_value *v, int64_t n);
/* budget.c: bytes that plans have taken (before: of the others) and may take; a finished plan's costs are checked and
 * taken (ERR_LIMIT). */
void budget_memory(struct engine_budget *b, double *taken, double *most);
bool budget_take(struct engine_budget *b, struct engine_plan *p, struct err *e) MUST_CHECK;
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
/* op_move.c: float32 or int32 values as what the engine keeps d in, cut towards zero on the way to integers. */
void to_number(struct compiler *c, struct value *v, enum mil_dtype d);
/* Copies v to a fresh dense value when its strides are not row-major dense. */
bool to_dense(struct compiler *c, struct value *v);
/* The same when the last axis has no unit stride. */
void to_unit_rows(struct compiler *c, struct value *v);
/* A constant as dense floats or ints in the plan's arena, or (REPR_F16) in place. */
bool const_value(struct compiler *c, const struct mil_value *v, enum repr repr, struct value *out);
bool arg_ints(struct compiler *c, const struct mil_op *op, const char *name, int64_t *dst,
              int *n); /* n: in max, out count */
bool arg_int(struct compiler *c, const struct mil_op *op, const char *name, int64_t fallback, int64_t *dst);
/* An axis of a tensor of this rank, counted from the end when negative: at least 0 and below rank. */
bool axis_of(struct compiler *c, int64_t axis, int rank, int *out);
/* The same of the argument axis. */
bool arg_axis(struct compiler *c, const struct mil_op *op, int64_t fallback, int rank, int *axis);
/* Which of n words a string argument is; absent: the first. */
bool arg_word(struct compiler *c, const struct mil_op *op, const char *name, const char *const *words, int n,
              int *which);
bool arg_bool(struct compiler *c, const struct mil_op *op, const char *name, bool fallback, bool *dst);
bool arg_float(struct compiler *c, const struct mil_op *op, const char *name, double fallback, double *dst);
enum repr dtype_repr(enum mil_dtype d);
const struct mil_type *var_type(const struct compiler *c, const struct mil_var *v);
/* Declares the value of an op's output i; rounds to fp16 in ENGINE_FP16 when the type is fp16. */
void set_output(struct compiler *c, const struct mil_op *op, int i, struct value v);
void set_var(struct compiler *c, const struct mil_var *var, struct value v);
void emit_copy(struct compiler *c, const struct value *from,
               const struct value *to); /* same dims; converts repr */

/* range.c: steps that look at what the op's steps from `begin` on make, where somebody watches. */
bool range_watch(struct compiler *c, const struct mil_op *op, int begin);

/* op_*.c: emission of one op; false with c->e filled on error. The emitters are those that mil/ops.def names. */
typedef bool (*emit_fn)(struct compiler *c, const struct mil_op *op);
#define MIL_OP(id, name, opset, histogram, rule, inputs, emitter, memory, doc)                               \
    bool emit_##emitter(struct compiler *c, const struct mil_op *op);
#include "mil/ops.def"
#undef MIL_OP
/* op_table.c: the op's emitter; emit_none for an op that the engine does not run, emit_one_by_one for one that no plan can hold. */
emit_fn op_emitter(const struct mil_op *op);
/* op_quantized.c: the constexpr op that makes v, or NULL; its value expanded (a constant of the plan); or
 * packed for fixed-point products of [n_out, n_in], NULL when its form does not allow that (not an error) */
const struct mil_op *constexpr_of(const struct compiler *c, const struct mil_var *v);
bool constexpr_dense(struct compiler *c, const struct mil_op *op, int i_output, struct value *out);
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
/* op_state.c: a part of a state as data for a write is copied first, as its memory may be what is being written. */
void copy_off_states(struct compiler *c, struct value *v);
/* op_norm.c: rows of n elements with unit stride; the other axes walked by strides, results in the same order. */
struct rows {
    int rank; /* of the outer axes */
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[2][MIL_RANK_MAX]; /* y, x */
    int64_t n_rows, n;
    const float *gamma, *beta;
    float eps;
};
/* Rows along the last axis of x; y is new with x's memory order. Copies x when a row has no unit stride. */
struct rows *rows_new(struct compiler *c, struct value *x, struct value *y);
/* One row of p->n numbers. */
typedef void (*row_fn)(const struct rows *p, const struct kernels *k, float *y, const float *x);
/* ane_norm.c: those of the emulation that round between their pieces */
void ane_softmax_row(const struct rows *p, const struct kernels *k, float *y, const float *x);
void ane_layer_norm_row(const struct rows *p, const struct kernels *k, float *y, const float *x);
/* f for the rows of this thread's part, from the step's operand to its result. */
void run_rows(const struct rows *p, const struct step *s, struct engine_run *r, row_fn f, int i_thread,
              int n_threads);
/* The numbers of a dense constant. */
const float *const_floats(const struct compiler *c, const struct value *v);
/* op_scalar.c: functions of one number without a kernel, and the parameters of all of them. */
float scalar_function(int id, float v, float alpha, float beta);
bool scalar_parameters(struct compiler *c, const struct mil_op *op, float *alpha, float *beta);
/* op_matmul.c: what a matmul step is; ane_product.c has its emulation. */
struct matmul {
    int batch_rank;
    int64_t batch[MIL_RANK_MAX];
    int64_t strides[3][MIL_RANK_MAX]; /* of the batch axes: y, x, w */
    int64_t n_rows, n_k, n_columns;
    int64_t x_row, x_k, w_k, w_column, y_row, y_column;
    bool has_bias; /* a third operand, [n_columns] */
};
/* op_matmul.c: output 0 of the op as the product of x and w, float32 or int32 each; bias: NULL or one for each column. */
bool emit_matrix_product(struct compiler *c, const struct mil_op *op, struct value x, bool transpose_x,
                         struct value w, bool transpose_w, const struct value *bias);
/* ane_product.c: the emulated form of a product with constant weights (packed: the op that expands them, or NULL), of a matmul step;
 * their scratch a thread */
bool ane_emit_product(struct compiler *c, const struct mil_op *packed, const struct value *x,
                      const struct weight_ref *w, const float *bias, int64_t n_out, const struct value *y);
void ane_run_matmul(const struct step *s, struct engine_run *r, int i_thread, int n_threads);
size_t ane_scratch_bytes(int64_t n_rows, int64_t n_k);
/* Joins neighbouring linear steps with one input into one step. */
void group_linear(struct compiler *c);
/* memory.c: offsets of arena storages */
bool plan_memory(struct compiler *c);

#endif
