/* Building programs: a thin layer that makes ops with inferred result types and readable names.
 *
 * Errors are sticky: after the first one every call returns NULL harmlessly and mil_builder_finish reports
 * it, so a graph reads like its recipe. Constants and weights are made once per model (mil_value shared),
 * const ops once per function: asking for the same value twice in one function gives the same variable.
 *
 * Names and the order of ops follow the order of calls. C leaves open in which order the arguments of a call and the
 * elements of an initializer are evaluated, so no two calls that build may stand in one list of them: compilers would
 * write different bytes. (tests/tree/check_order.py looks for such calls in the whole tree.)
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
                               const char *name); /* int32 [n] */
/* The same from int64, whose numbers must fit. */
struct mil_var *mil_build_dims(struct mil_builder *b, const int64_t *v, int n, const char *name);
struct mil_var *mil_build_int(struct mil_builder *b, int32_t v, const char *name); /* int32 scalar */
struct mil_var *mil_build_bool(struct mil_builder *b, bool v, const char *name);
struct mil_var *mil_build_bools(struct mil_builder *b, const bool *v, int n, const char *name);
struct mil_var *mil_build_f16(struct mil_builder *b, double v, const char *name); /* fp16 scalar */
struct mil_var *mil_build_string(struct mil_builder *b, const char *s, const char *name);

/* An argument of an op: a variable, several of them, or a constant, which is made with the op, one after the other in
 * the order of the arguments. */
enum mil_build_constant {
    MIL_BUILD_NONE,
    MIL_BUILD_VALUE,
    MIL_BUILD_INT,
    MIL_BUILD_INTS,
    MIL_BUILD_DIMS,
    MIL_BUILD_BOOL,
    MIL_BUILD_BOOLS,
    MIL_BUILD_F16,
    MIL_BUILD_STRING
};
struct mil_build_arg {
    const char *name;
    struct mil_var *var;         /* or: */
    struct mil_var *const *vars; /* variadic, n_vars of them */
    int n_vars;
    enum mil_build_constant kind; /* or: */
    union {
        const struct mil_value *value;
        int32_t i;
        const int32_t *ints; /* [n] */
        const int64_t *dims; /* [n], become int32 */
        bool boolean;
        const bool *bools; /* [n] */
        double number;
        const char *text;
    } constant;
    int n;
    const char *wish; /* MIL_BUILD_VALUE: the name of the constant */
};
#define MIL_ARG(arg, v)                                                                                      \
    {                                                                                                        \
        .name = (arg), .var = (v)                                                                            \
    }
#define MIL_ARG_VARS(arg, v, count)                                                                          \
    {                                                                                                        \
        .name = (arg), .vars = (v), .n_vars = (count)                                                        \
    }
#define MIL_ARG_VALUE(arg, v, value_name)                                                                    \
    {                                                                                                        \
        .name = (arg), .kind = MIL_BUILD_VALUE, .constant.value = (v), .wish = (value_name)                  \
    }
#define MIL_ARG_INT(arg, v)                                                                                  \
    {                                                                                                        \
        .name = (arg), .kind = MIL_BUILD_INT, .constant.i = (v)                                              \
    }
#define MIL_ARG_INTS(arg, v, count)                                                                          \
    {                                                                                                        \
        .name = (arg), .kind = MIL_BUILD_INTS, .constant.ints = (v), .n = (count)                            \
    }
#define MIL_ARG_DIMS(arg, v, count)                                                                          \
    {                                                                                                        \
        .name = (arg), .kind = MIL_BUILD_DIMS, .constant.dims = (v), .n = (count)                            \
    }
#define MIL_ARG_BOOL(arg, v)                                                                                 \
    {                                                                                                        \
        .name = (arg), .kind = MIL_BUILD_BOOL, .constant.boolean = (v)                                       \
    }
#define MIL_ARG_BOOLS(arg, v, count)                                                                         \
    {                                                                                                        \
        .name = (arg), .kind = MIL_BUILD_BOOLS, .constant.bools = (v), .n = (count)                          \
    }
#define MIL_ARG_F16(arg, v)                                                                                  \
    {                                                                                                        \
        .name = (arg), .kind = MIL_BUILD_F16, .constant.number = (v)                                         \
    }
#define MIL_ARG_STRING(arg, v)                                                                               \
    {                                                                                                        \
        .name = (arg), .kind = MIL_BUILD_STRING, .constant.text = (v)                                        \
    }
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
