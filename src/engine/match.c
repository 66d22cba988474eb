/* What patterns are matched with: what an op is, its constants, the members of a match, and taking a pattern.
 *
 * A pattern is taken only when the values inside it have no other use, so nothing is computed twice and nothing that
 * the program returns disappears. */
#include <string.h>
#include "engine/match.h"

/* ---- what an op is ---- */

const struct mil_op *match_def(const struct compiler *c, const struct mil_var *v, enum mil_op_id id)
{
    const struct mil_op *op = v ? graph_def(&c->g, v) : NULL;
    return op && op->info && op->info->id == id ? op : NULL;
}

/* The op that is the single user of v, when it has the given id and is in no pattern yet; else NULL. */
const struct mil_op *match_only_user(const struct compiler *c, const struct mil_var *v, enum mil_op_id id)
{
    if (c->g.n_uses[v->id] != 1 || c->g.uses[v->id]->op >= c->g.n_ops)
        return NULL;
    const struct mil_op *op = c->g.ops[c->g.uses[v->id]->op];
    const struct node *node = &c->g.nodes[c->g.uses[v->id]->op];
    return op->info && op->info->id == id && !node->absorbed && !node->fused ? op : NULL;
}

const struct mil_value *match_const(const struct compiler *c, const struct mil_op *op, const char *name)
{
    const struct mil_arg *a = mil_arg_find(op, name);
    if (!a || a->n != 1)
        return NULL;
    return a->bindings[0].value ? a->bindings[0].value : c->consts[a->bindings[0].var->id];
}

bool match_number(const struct compiler *c, const struct mil_op *op, const char *name, double *d)
{
    const struct mil_value *v = match_const(c, op, name);
    return v && mil_value_float(v, d);
}

bool match_ints(const struct compiler *c, const struct mil_op *op, const char *name, int64_t *d, int *n)
{
    const struct mil_value *v = match_const(c, op, name);
    int n_max = *n;
    *n = 0;
    return v && mil_value_ints(v, d, n_max, n);
}

/* The variable operand and the constant number of a commutative op (mul, add). */
bool match_var_and_number(const struct compiler *c, const struct mil_op *op, struct mil_var **v, double *d)
{
    if (match_number(c, op, "y", d))
        *v = mil_arg_var(op, "x");
    else if (match_number(c, op, "x", d))
        *v = mil_arg_var(op, "y");
    else
        return false;
    return *v != NULL;
}

bool match_var_and_const(const struct compiler *c, const struct mil_op *op, struct mil_var **v,
                         const struct mil_value **k)
{
    if ((*k = match_const(c, op, "y")))
        *v = mil_arg_var(op, "x");
    else if ((*k = match_const(c, op, "x")))
        *v = mil_arg_var(op, "y");
    else
        return false;
    return *v && !c->consts[(*v)->id];
}

/* A product of one of `left` with another variable, which goes to *other. */
bool match_product_of(const struct mil_op *m, const struct mil_var *left, struct mil_var **other)
{
    struct mil_var *x = mil_arg_var(m, "x"), *y = mil_arg_var(m, "y");
    *other = x == left ? y : x;
    return x == left || y == left;
}

/* A slice [begin, end) of the last axis alone, unit stride; the other axes whole. */
bool match_last_slice(const struct compiler *c, const struct mil_op *op, int64_t *begin, int64_t *end)
{
    const struct mil_var *x = mil_arg_var(op, "x");
    int64_t b[MIL_RANK_MAX], e[MIL_RANK_MAX], s[MIL_RANK_MAX], m[MIL_RANK_MAX];
    int n = MIL_RANK_MAX, k = MIL_RANK_MAX;
    if (!x || !op->info || op->info->id != MIL_OP_SLICE_BY_INDEX)
        return false;
    const struct mil_type *t = var_type(c, x), *y = var_type(c, op->outputs[0]);
    if (t->rank < 1 || y->rank != t->rank)
        return false;
    for (int i = 0; i + 1 < t->rank; i++)
        if (t->dims[i] != y->dims[i])
            return false;
    if (!match_ints(c, op, "begin", b, &n) || n != t->rank || !match_ints(c, op, "end", e, &k) ||
        k != t->rank)
        return false;
    int last = t->rank - 1;
    int64_t size = t->dims[last];
    n = MIL_RANK_MAX;
    if (match_ints(c, op, "stride", s, &n))
        for (int i = 0; i < n; i++)
            if (s[i] != 1)
                return false;
    *begin = b[last] < 0 ? b[last] + size : b[last];
    *end = e[last] < 0 ? e[last] + size : e[last];
    n = MIL_RANK_MAX;
    if (match_ints(c, op, "begin_mask", m, &n) && n == t->rank && m[last])
        *begin = 0;
    n = MIL_RANK_MAX;
    if (match_ints(c, op, "end_mask", m, &n) && n == t->rank && m[last])
        *end = size;
    return *end - *begin == y->dims[last];
}

bool match_is_plain_slice(const struct compiler *c, const struct mil_op *op)
{
    static const char *const names[] = {"stride", "begin_mask", "squeeze_mask"};
    for (int k = 0; k < 3; k++) {
        int64_t v[MIL_RANK_MAX];
        int n = MIL_RANK_MAX;
        if (mil_arg_find(op, names[k]) && !match_ints(c, op, names[k], v, &n))
            return false;
        for (int i = 0; mil_arg_find(op, names[k]) && i < n; i++)
            if (v[i] != (k == 0))
                return false;
    }
    return true;
}

bool match_is_last_axis(const struct compiler *c, const struct mil_op *op, const char *name, int rank)
{
    int64_t axis[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    return match_ints(c, op, name, axis, &n) && n == 1 && (axis[0] == -1 || axis[0] == rank - 1);
}

/* ---- the members of a match ---- */

struct match match_begin(struct compiler *c)
{
    return (struct match){.c = c, .id = ++c->n_matches};
}

bool match_has(const struct match *m, int op)
{
    return op >= 0 && op < m->c->g.n_ops && m->c->g.nodes[op].match == m->id;
}

void match_add(struct match *m, int op)
{
    INVARIANT(op >= 0 && op < m->c->g.n_ops, "a member of a pattern is an op of the function");
    if (match_has(m, op))
        return;
    if (m->n == m->cap) {
        int *old = m->members;
        m->cap = m->cap ? 2 * m->cap : 16;
        m->members = ARENA_ARRAY(m->c->scratch, int, m->cap);
        if (m->n > 0)
            memcpy(m->members, old, sizeof *old * (size_t)m->n);
    }
    m->c->g.nodes[op].match = m->id;
    m->members[m->n++] = op;
}

void match_add_op(struct match *m, const struct mil_op *op)
{
    match_add(m, graph_op_index(&m->c->g, op->outputs[0]));
}

void match_drop(struct match *m, int n)
{
    while (m->n > n)
        m->c->g.nodes[m->members[--m->n]].match = 0;
}

const struct mil_op *match_member(struct match *m, const struct mil_var *v, enum mil_op_id id)
{
    const struct mil_op *op = match_def(m->c, v, id);
    if (op)
        match_add(m, graph_op_index(&m->c->g, v));
    return op;
}

bool match_is_closed(const struct match *m, const struct mil_var *out)
{
    const struct graph *g = &m->c->g;
    for (int i = 0; i < m->n; i++) {
        const struct mil_op *op = g->ops[m->members[i]];
        for (int k = 0; k < op->n_outputs; k++) {
            if (op->outputs[k] == out)
                continue;
            for (const struct use *u = g->uses[op->outputs[k]->id]; u; u = u->next)
                if (!match_has(m, u->op))
                    return false;
        }
    }
    return true;
}

bool match_is_free(const struct match *m)
{
    for (int i = 0; i < m->n; i++)
        if (m->c->g.nodes[m->members[i]].absorbed || m->c->g.nodes[m->members[i]].fused)
            return false;
    return true;
}

void match_take(struct match *m, const struct fused *f, int root)
{
    struct node *nodes = m->c->g.nodes;
    if (!match_is_free(m))
        return;
    for (int i = 0; i < m->n; i++)
        nodes[m->members[i]].absorbed = true;
    nodes[root].absorbed = false;
    nodes[root].fused = f;
}

bool fused_operand(struct compiler *c, const struct fused *f, int i, struct value *out)
{
    struct mil_binding b = {.var = f->in[i]};
    return operand_binding(c, &b, out);
}
