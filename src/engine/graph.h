/* The function under compilation as a graph: who defines and who uses each variable, and what patterns it holds. For the
 * engine's own files. */
#ifndef MILKIT_ENGINE_GRAPH_H
#define MILKIT_ENGINE_GRAPH_H

#include "mil/mil.h"

struct use {
    int op; /* index in the block, n_ops: function output */
    struct use *next;
};

struct compiler;
/* What is emitted in place of the ops of a pattern (pattern_*.c). */
struct fused {
    bool (*emit)(struct compiler *c, const struct fused *f);
    struct mil_var *out;   /* NULL of what only writes */
    struct mil_var *in[6]; /* in the pattern's own order; NULL: absent */
    bool is_view;          /* out may be the memory of in[0] */
    const void *own;       /* of the pattern: what else its emitter needs */
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
/* op_memory.c: may the result of the op be the memory of its operand? */
bool op_is_view(const struct mil_op *op);

#endif
