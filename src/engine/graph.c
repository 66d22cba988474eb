/* The function under compilation as a graph: who defines and who uses each variable. */
#include "engine/graph.h"

static void add_use(struct graph *g, struct arena *a, const struct mil_var *v, int op)
{
    struct use *u = ARENA_NEW(a, struct use);
    u->op = op;
    u->next = g->uses[v->id];
    g->uses[v->id] = u;
    g->n_uses[v->id]++;
}

/* One walk from the end: each state's write that was met last is the next one of all reads before it. */
static void find_next_writes(struct graph *g, struct arena *a)
{
    int *write = ARENA_ARRAY(a, int, g->f->n_vars + 1);
    g->next_write = ARENA_ARRAY(a, int, g->n_ops + 1);
    for (int i = 0; i < g->f->n_vars; i++)
        write[i] = g->n_ops;
    for (int i = g->n_ops - 1; i >= 0; i--) {
        const struct mil_var *state = mil_arg_var(g->ops[i], "input");
        g->next_write[i] = g->n_ops;
        if (!state)
            continue;
        if (mil_op_is(g->ops[i], "read_state"))
            g->next_write[i] = write[state->id];
        else if (mil_op_is(g->ops[i], "write_state"))
            write[state->id] = i;
    }
}

bool graph_new(struct graph *g, const struct mil_function *f, const struct mil_type **types, struct arena *a,
               struct err *e)
{
    const struct mil_block *b = f->block;
    g->f = f;
    g->types = types;
    g->n_ops = b->n_ops;
    g->ops = b->ops;
    g->def = ARENA_ARRAY(a, int, f->n_vars);
    g->n_uses = ARENA_ARRAY(a, int, f->n_vars);
    g->uses = ARENA_ARRAY(a, struct use *, f->n_vars);
    g->nodes = ARENA_ARRAY(a, struct node, g->n_ops > 0 ? g->n_ops : 1);
    for (int i = 0; i < f->n_vars; i++)
        g->def[i] = -1;
    for (int i = 0; i < g->n_ops; i++) {
        const struct mil_op *op = g->ops[i];
        if (op->n_blocks > 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "function %s: op %s has nested blocks, which the engine does not run", f->name,
                           op->type);
        for (int k = 0; k < op->n_outputs; k++)
            g->def[op->outputs[k]->id] = i;
        for (int k = 0; k < op->n_args; k++)
            for (int j = 0; j < op->args[k].n; j++)
                if (op->args[k].bindings[j].var)
                    add_use(g, a, op->args[k].bindings[j].var, i);
    }
    for (int i = 0; i < b->n_outputs; i++)
        add_use(g, a, b->outputs[i], g->n_ops);
    find_next_writes(g, a);
    return true;
}

bool graph_is_state_update(const struct graph *g, const struct mil_op *op, int *write)
{
    const struct mil_var *x = mil_arg_var(op, "x"), *out = op->outputs[0];
    const struct mil_op *read = x ? graph_def(g, x) : NULL;
    if (!read || !mil_op_is(read, "read_state") || g->n_uses[out->id] != 1 ||
        g->uses[out->id]->op >= g->n_ops)
        return false;
    *write = g->uses[out->id]->op;
    const struct mil_var *state = mil_arg_var(read, "input");
    /* No other write of the state between the read and this one. */
    return mil_op_is(g->ops[*write], "write_state") && mil_arg_var(g->ops[*write], "input") == state &&
           g->next_write[graph_op_index(g, x)] == *write;
}

void graph_find_looks(struct graph *g, struct arena *a)
{
    g->last_look = ARENA_ARRAY(a, int, g->f->n_vars + 1);
    for (int i = 0; i < g->f->n_vars; i++)
        g->last_look[i] = -1;
    /* From the end: what is made from a value is known before the value itself. */
    for (int i = g->n_ops - 1; i >= 0; i--) {
        for (int k = 0; k < g->ops[i]->n_outputs; k++) {
            int *last = &g->last_look[g->ops[i]->outputs[k]->id];
            for (const struct use *u = g->uses[g->ops[i]->outputs[k]->id]; u; u = u->next) {
                const struct mil_op *op = u->op < g->n_ops ? g->ops[u->op] : NULL;
                int at = u->op, write;
                if (op && mil_op_is(op, "slice_update") && graph_is_state_update(g, op, &write))
                    at = write;
                *last = at > *last ? at : *last;
                const struct node *node = &g->nodes[u->op < g->n_ops ? u->op : 0];
                if (!op || !(op_is_view(op) || node->absorbed || (node->fused && node->fused->is_view)))
                    continue;
                for (int j = 0; j < op->n_outputs; j++) {
                    int deeper = g->last_look[op->outputs[j]->id];
                    *last = deeper > *last ? deeper : *last;
                }
            }
        }
    }
}

int graph_op_index(const struct graph *g, const struct mil_var *v)
{
    return v ? g->def[v->id] : -1;
}

const struct mil_op *graph_def(const struct graph *g, const struct mil_var *v)
{
    int i = graph_op_index(g, v);
    return i >= 0 ? g->ops[i] : NULL;
}

bool graph_used_once_by(const struct graph *g, const struct mil_var *v, int op)
{
    return g->n_uses[v->id] == 1 && g->uses[v->id]->op == op;
}
