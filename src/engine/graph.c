/* The function under compilation as a graph: who defines and who uses each variable. */
#include "engine/engine_int.h"

static void add_use(struct graph *g, struct arena *a, const struct mil_var *v, int op)
{
    struct use *u = ARENA_NEW(a, struct use);
    u->op = op;
    u->next = g->uses[v->id];
    g->uses[v->id] = u;
    g->n_uses[v->id]++;
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
    return true;
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
