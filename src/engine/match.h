/* Patterns over the graph, never over names, that become a step or two: what they are matched with, and each pattern's
 * entry. A pattern is one file: its picture, its match, its emission, its run. For the engine's own files. */
#ifndef MILKIT_ENGINE_MATCH_H
#define MILKIT_ENGINE_MATCH_H

#include "engine/compiler.h"

/* ---- what an op is ---- */

/* The op of this kind that defines v, else NULL. */
const struct mil_op *match_def(const struct compiler *c, const struct mil_var *v, enum mil_op_id id);
/* The op that is the single user of v, when it has the given id and is in no pattern yet; else NULL. */
const struct mil_op *match_only_user(const struct compiler *c, const struct mil_var *v, enum mil_op_id id);
/* The constant that is the argument, else NULL. */
const struct mil_value *match_const(const struct compiler *c, const struct mil_op *op, const char *name);
bool match_number(const struct compiler *c, const struct mil_op *op, const char *name, double *d);
/* n: in: room, out: count. */
bool match_ints(const struct compiler *c, const struct mil_op *op, const char *name, int64_t *d, int *n);
/* The variable operand and the constant number of a commutative op (mul, add). */
bool match_var_and_number(const struct compiler *c, const struct mil_op *op, struct mil_var **v, double *d);
/* The same with a constant of any shape. */
bool match_var_and_const(const struct compiler *c, const struct mil_op *op, struct mil_var **v,
                         const struct mil_value **k);
/* A product of `left` with another variable, which goes to *other. */
bool match_product_of(const struct mil_op *m, const struct mil_var *left, struct mil_var **other);
/* A slice [begin, end) of the last axis alone, unit stride; the other axes whole. */
bool match_last_slice(const struct compiler *c, const struct mil_op *op, int64_t *begin, int64_t *end);
/* Nothing but begin and end: no axis that begins elsewhere by a mask, no steps over rows. */
bool match_is_plain_slice(const struct compiler *c, const struct mil_op *op);
/* The argument names the last axis of `rank`, and no other. */
bool match_is_last_axis(const struct compiler *c, const struct mil_op *op, const char *name, int rank);

/* ---- the members of a match ---- */

/* Ops by their index, marked in the graph's nodes. */
struct match {
    struct compiler *c;
    int id;
    int *members; /* [n] */
    int n, cap;
};

struct match match_begin(struct compiler *c);
bool match_has(const struct match *m, int op);
void match_add(struct match *m, int op);
void match_add_op(struct match *m, const struct mil_op *op); /* an op with a result */
/* Back to the first n members. */
void match_drop(struct match *m, int n);
/* The op of this kind that defines v, noted as a member. */
const struct mil_op *match_member(struct match *m, const struct mil_var *v, enum mil_op_id id);
/* Every value made inside is used inside, but for `out`. */
bool match_is_closed(const struct match *m, const struct mil_var *out);
/* No member belongs to another pattern. */
bool match_is_free(const struct match *m);
/* Emits f at the op `root` in place of the members. Does nothing when a member belongs to another pattern already: each
 * op is computed by one step. */
void match_take(struct match *m, const struct fused *f, int root);

/* The value of f->in[i]. */
bool fused_operand(struct compiler *c, const struct fused *f, int i, struct value *out);

/* ---- the patterns ---- */

/* Looks for the pattern from the op of index `root`, and takes it. */
typedef void (*pattern_fn)(struct compiler *c, int root);
#define PATTERN(name, root, when) void pattern_##name(struct compiler *c, int i_root);
#include "engine/patterns.def"
#undef PATTERN
/* pattern_silu.c: in: x, up */
bool fused_is_gated_silu(const struct fused *f);

#endif
