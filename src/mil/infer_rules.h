/* What the result rules share: reading operands, raising errors, giving results. Private to the infer_*.c
 * files. */
#ifndef MILKIT_MIL_INFER_RULES_H
#define MILKIT_MIL_INFER_RULES_H

#include "mil/infer.h"

struct infer {
    const struct mil_op *op;
    const struct mil_type *const *types;
    struct mil_known_ints *known; /* may be NULL */
    const struct mil_type **out;
    struct arena *a;
    struct err *e;
};

typedef bool (*infer_rule)(struct infer *in);

/* Every rule of the vocabulary, by its name. */
#define INFER_RULE_DECLARE(name, doc) bool infer_rule_##name(struct infer *in);
MIL_RULES(INFER_RULE_DECLARE)
#undef INFER_RULE_DECLARE

/* "add 'sum': <text>", ERR_FORMAT. */
bool infer_fail(struct infer *in, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Type of an argument (of binding i) or of the attribute of that name; NULL when absent. */
const struct mil_type *infer_binding_type(const struct mil_binding *b, const struct mil_type *const *types);
const struct mil_type *infer_arg(struct infer *in, const char *name);
bool infer_has_rank(const struct mil_type *t);
/* A tensor argument that must be there. */
bool infer_tensor(struct infer *in, const char *name, const struct mil_type **t) MUST_CHECK;
/* A tensor argument that may be missing: *t is NULL then. */
bool infer_tensor_optional(struct infer *in, const char *name, const struct mil_type **t) MUST_CHECK;
/* Like mil_infer_ints, looking at attributes too. */
bool infer_ints(struct infer *in, const char *name, int64_t *dst, int n_max, int *n);
/* One integer: *v is `otherwise` when the argument is absent, MIL_INT_UNKNOWN when it can't be known. */
void infer_int(struct infer *in, const char *name, int64_t otherwise, int64_t *v);
/* A compile-time bool, `otherwise` when absent or unknown. */
bool infer_bool(struct infer *in, const char *name, bool otherwise);
/* A compile-time string argument equals s; absent counts as equal to `otherwise`. */
bool infer_string(struct infer *in, const char *name, struct str *s);
bool infer_string_is(struct str s, const char *word);
/* An axis in -rank .. rank-1, made non-negative. */
bool infer_axis(struct infer *in, const char *name, int64_t axis, int rank, int *out) MUST_CHECK;
/* Compile-time axes as flags by axis; absent: flags untouched and *known false. */
bool infer_axes(struct infer *in, const char *name, int rank, bool *flags, bool *known) MUST_CHECK;
/* Sets result i. Rank and dims are checked against the limits. */
bool infer_out(struct infer *in, int i, enum mil_dtype d, int rank, const int64_t *dims) MUST_CHECK;
/* Result 0 of dtype d has the dims that the argument shape names. */
bool infer_shape_out(struct infer *in, enum mil_dtype d) MUST_CHECK;
/* Result i has type t. */
bool infer_out_type(struct infer *in, int i, const struct mil_type *t) MUST_CHECK;
/* dims of a and b broadcast to out. */
bool infer_broadcast(struct infer *in, const struct mil_type *a, const struct mil_type *b, int *rank,
                     int64_t dims[MIL_RANK_MAX]) MUST_CHECK;
/* a * b and a + b of dimensions: unknown when one is; false on overflow. */
bool infer_dim_mul(struct infer *in, int64_t a, int64_t b, int64_t *out) MUST_CHECK;
bool infer_dim_add(struct infer *in, int64_t a, int64_t b, int64_t *out) MUST_CHECK;
/* Dimensions that must meet: equal where both are known. */
bool infer_dims_meet(struct infer *in, const char *what, int64_t a, int64_t b) MUST_CHECK;
/* Element type named by a string argument, `otherwise` when absent; NONE when the name is unknown. */
enum mil_dtype infer_named_dtype(struct infer *in, const char *name, enum mil_dtype otherwise);
/* Product of dims[begin .. end): unknown when one is. */
bool infer_dim_product(struct infer *in, const int64_t *dims, int begin, int end, int64_t *out) MUST_CHECK;
/* Shape of the slice that slice_by_index and slice_update mean; squeezed axes dropped. */
bool infer_slice_shape(struct infer *in, const struct mil_type *x, int *rank,
                       int64_t dims[MIL_RANK_MAX]) MUST_CHECK;

#endif
