/* Building programs: a thin layer that makes ops with inferred result types and readable names.
 *
 * Errors are sticky: after the first one every call returns NULL harmlessly and mil_builder_finish reports
 * it, so a graph reads like its recipe. Constants and weights are made once per model (mil_value shared),
 * const ops once per function: asking for the same value twice in one function gives the same variable.
 */
#ifndef MILKIT_MIL_BUILD_H
#define MILKIT_MIL_BUILD_H

#include "mil/infer.h"

struct mil_builder;

/* Starts a function in m. opset: "CoreML8". */
struct mil_builder *mil_builder_new(struct mil_model *m, const char *function, const char *opset);
struct arena *mil_builder_arena(struct mil_builder *b);
struct mil_var *mil_build_input(struct mil_builder *b, const char *name, enum mil_dtype d, int rank,
                                const int64_t *dims);
struct mil_var *mil_build_state(struct mil_builder *b, const char *name, enum mil_dtype d, int rank,
                                const int64_t *dims);

/* Values: owned by the model, may be used by every function. */
const struct mil_value *mil_value_new(struct mil_model *m, enum mil_dtype d, int rank, const int64_t *dims,
                                      const void *data); /* copies data */
const struct mil_value *mil_value_new_string(struct mil_model *m, const char *s);
struct mil_value *mil_value_new_weight(struct mil_model *m, enum mil_dtype d, int rank, const int64_t *dims,
                                       const struct mil_weight *w); /* copies *w */

/* Const ops. name: wish, made unique; NULL: derived from the use. */
struct mil_var *mil_build_const(struct mil_builder *b, const struct mil_value *v, const char *name);
struct mil_var *mil_build_ints(struct mil_builder *b, const int32_t *v, int n,
                               const char *name);                                  /* int32 [n] */
struct mil_var *mil_build_int(struct mil_builder *b, int32_t v, const char *name); /* int32 scalar */
struct mil_var *mil_build_bool(struct mil_builder *b, bool v, const char *name);
struct mil_var *mil_build_bools(struct mil_builder *b, const bool *v, int n, const char *name);
struct mil_var *mil_build_f16(struct mil_builder *b, double v, const char *name); /* fp16 scalar */
struct mil_var *mil_build_string(struct mil_builder *b, const char *s, const char *name);

/* One op. Arguments: pairs of name and variable. */
struct mil_build_arg {
    const char *name;
    struct mil_var *var;         /* or: */
    struct mil_var *const *vars; /* variadic, n_vars of them */
    int n_vars;
};
/* name: the op's "name" attribute and the (first) output's name, made unique; NULL: "<type>_<n>". */
struct mil_var *mil_build_op(struct mil_builder *b, const char *type, const char *name,
                             const struct mil_build_arg *args, int n_args);
/* For ops without a result (write_state) or with several: outputs [n_outputs] filled. */
bool mil_build_op_n(struct mil_builder *b, const char *type, const char *name,
                    const struct mil_build_arg *args, int n_args, struct mil_var **outputs, int n_outputs);

/* Renames a variable to a final name (an output of the function). */
void mil_build_rename(struct mil_builder *b, struct mil_var *v, const char *name);
/* Ends the function, adds it to the model's program and frees b. False when any call before failed. */
bool mil_builder_finish(struct mil_builder *b, struct mil_var *const *outputs, int n_outputs,
                        struct err *e) MUST_CHECK;
bool mil_builder_failed(const struct mil_builder *b);
/* Makes the builder fail with a message (a recipe found its input impossible). */
void mil_builder_fail(struct mil_builder *b, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
