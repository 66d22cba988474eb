/* States: shapes, how many, how they are written. */
#include <string.h>
#include "lint/checks.h"

#define SHIFT_MIN 64 /* positions: shorter windows (causal convolutions) are small and known to run */

void lint_check_state_axis(struct lint_scan *s)
{
    const struct mil_function *f = s->function->f;
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_type *t = mil_type_tensor(f->inputs[i]->type);
        if (f->inputs[i]->type->kind != MIL_TYPE_STATE || !t || t->rank < 1)
            continue;
        int64_t last = t->dims[t->rank - 1];
        if (last % 32 != 0)
            lint_add(s, last < 8 ? LINT_ERROR : LINT_WARNING, NULL, "state %s has a last axis of %lld",
                     f->inputs[i]->name, (long long)last);
    }
}

void lint_check_state_unread(struct lint_scan *s)
{
    const struct mil_function *f = s->function->f;
    for (int i = 0; i < f->n_inputs; i++) {
        bool is_read = false;
        if (f->inputs[i]->type->kind != MIL_TYPE_STATE)
            continue;
        for (int u = s->function->first_use[f->inputs[i]->id]; u >= 0; u = s->function->uses[u].next)
            is_read = is_read || mil_op_is(s->function->uses[u].op, "read_state");
        if (!is_read)
            lint_add(s, s->rule->severity, NULL, "state %s is never read", f->inputs[i]->name);
    }
}

static int count_states(const struct mil_function *f)
{
    int n = 0;
    for (int i = 0; i < f->n_inputs; i++)
        n += f->inputs[i]->type->kind == MIL_TYPE_STATE;
    return n;
}

void lint_check_state_count(struct lint_scan *s)
{
    int n = count_states(s->function->f);
    if (n > 2)
        lint_add(s, lint_is_phone(s) ? LINT_WARNING : LINT_NOTE, NULL, "%d states", n);
}

/* Does an operand of op come, behind views, from a read of this state (or from a slice of such a read)? */
static bool is_read_of(const struct mil_var *v, const struct mil_var *state)
{
    const struct mil_op *op = lint_maker(v);
    if (op && mil_op_is(op, "slice_by_index"))
        op = lint_arg_maker(op, "x");
    return op && mil_op_is(op, "read_state") && mil_arg_var(op, "input") == state;
}

static bool has_read_operand(const struct mil_op *op, const struct mil_var *state)
{
    for (int k = 0; k < op->n_args; k++)
        for (int i = 0; i < op->args[k].n; i++)
            if (op->args[k].bindings[i].var && is_read_of(op->args[k].bindings[i].var, state))
                return true;
    return false;
}

/* A join of the rest of a long axis with new positions. */
static bool is_shift(const struct mil_op *op, const struct mil_var *state)
{
    const struct mil_type *t = lint_output_type(op);
    int64_t axis = 0;
    int n = 0;
    if (!mil_op_is(op, "concat") || !t || !has_read_operand(op, state) ||
        !mil_value_ints(mil_arg_value(op, "axis"), &axis, 1, &n) || n != 1)
        return false;
    axis += axis < 0 ? t->rank : 0;
    return axis >= 0 && axis < t->rank && t->dims[axis] >= SHIFT_MIN;
}

/* select(mask, new, old) or old * (1 - mask) + new * mask. */
static bool is_blend(const struct mil_op *op, const struct mil_var *state)
{
    const struct mil_op *x, *y;
    if (mil_op_is(op, "select"))
        return has_read_operand(op, state);
    if (!mil_op_is(op, "add"))
        return false;
    x = lint_arg_maker(op, "x");
    y = lint_arg_maker(op, "y");
    return x && y && mil_op_is(x, "mul") && mil_op_is(y, "mul") &&
           (has_read_operand(x, state) || has_read_operand(y, state));
}

/* A slot of a state (a window of one layer) is a part of it: that is worth a note. */
void lint_check_state_rewritten(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *write = s->function->ops[i];
        const struct mil_var *state = mil_op_is(write, "write_state") ? mil_arg_var(write, "input") : NULL;
        const struct mil_op *op = state ? lint_arg_maker(write, "data") : NULL;
        bool is_slot = false;
        /* Behind the update of a slot in the state, or of positions in the slot, what is written there. */
        for (int depth = 0; op && depth < 4 && mil_op_is(op, "slice_update"); depth++) {
            const struct mil_op *update = lint_arg_maker(op, "update");
            bool goes_down = update && (mil_op_is(update, "slice_update") || is_shift(update, state) ||
                                        is_blend(update, state));
            is_slot = is_slot || goes_down;
            op = goes_down ? update : lint_arg_maker(op, "x");
        }
        const char *what = op && is_shift(op, state)   ? "shifted by a join"
                           : op && is_blend(op, state) ? "blended as a whole"
                                                       : NULL;
        if (what)
            lint_add(s, is_slot ? LINT_NOTE : s->rule->severity, op, "%s %s is %s",
                     is_slot ? "a slot of state" : "state", state->name, what);
    }
}

void lint_check_single_head(struct lint_scan *s)
{
    const struct mil_function *f = s->function->f;
    for (int i = 0; i < f->n_inputs; i++) {
        const struct mil_type *t = mil_type_tensor(f->inputs[i]->type);
        int n = 0;
        if (f->inputs[i]->type->kind != MIL_TYPE_STATE || !t || t->rank != 4 || t->dims[1] != 1)
            continue;
        for (int k = 0; k < s->function->n_ops; k++) {
            const struct mil_op *op = s->function->ops[k];
            const struct mil_type *update =
                mil_op_is(op, "slice_update") && lint_state_read(mil_arg_var(op, "x")) == f->inputs[i]
                    ? lint_arg_type(op, "update")
                    : NULL;
            n += update && update->rank == 4 && update->dims[0] == 1 && update->dims[1] == 1;
        }
        if (n >= 2)
            lint_add(s, s->rule->severity, NULL, "state %s has one head and %d slice updates",
                     f->inputs[i]->name, n);
    }
}

static int64_t tokens_of(const struct mil_function *f)
{
    int64_t most = 1;
    for (int i = 0; i < f->n_inputs; i++)
        if (strcmp(f->inputs[i]->name, "hidden_states") == 0 ||
            strcmp(f->inputs[i]->name, "input_ids") == 0) {
            const struct mil_type *t = mil_type_tensor(f->inputs[i]->type);
            if (t && t->kind == MIL_TYPE_TENSOR && t->rank >= 2 && t->dims[1] > most)
                most = t->dims[1];
        }
    return most;
}

void lint_check_phone_prefill(struct lint_scan *s)
{
    const struct mil_program *p = s->program->model->program;
    if (!lint_is_phone(s) || p->n_functions < 2)
        return;
    for (int i = 0; i < p->n_functions; i++)
        if (tokens_of(p->functions[i]) > 1 && count_states(p->functions[i]) >= 2)
            lint_add(s, s->rule->severity, NULL,
                     "%s takes %lld tokens and has %d states, beside %d other functions",
                     p->functions[i]->name, (long long)tokens_of(p->functions[i]),
                     count_states(p->functions[i]), p->n_functions - 1);
}

/* Something of an input's very type is handed out, changed in a part: a cache that is carried by the caller. */
void lint_check_cache_ports(struct lint_scan *s)
{
    static const char *const joins[] = {"slice_update",       "concat",         "select", "scatter",
                                        "scatter_along_axis", "slice_by_index", NULL};
    const struct mil_function *f = s->function->f;
    for (int i = 0; f->block && i < f->block->n_outputs; i++) {
        const struct mil_op *op = lint_maker(f->block->outputs[i]);
        const struct mil_type *t = mil_type_tensor(f->block->outputs[i]->type);
        if (op && mil_op_is(op, "slice_by_index") && lint_arg_maker(op, "x"))
            op = lint_arg_maker(op, "x");
        if (!op || !t || t->kind != MIL_TYPE_TENSOR || t->rank < 3 || mil_type_elems(t) < 4096 ||
            !lint_op_is_in(op, joins))
            continue;
        for (int k = 0; k < op->n_args; k++)
            for (int n = 0; n < op->args[k].n; n++) {
                const struct mil_var *v = lint_behind_views(op->args[k].bindings[n].var);
                if (v && v->op && mil_op_is(v->op, "slice_by_index"))
                    v = lint_behind_views(mil_arg_var(v->op, "x"));
                if (v && !v->op && v->type->kind == MIL_TYPE_TENSOR && mil_type_equal(v->type, t))
                    lint_add(s, s->rule->severity, op, "input %s comes back as output %s", v->name,
                             f->block->outputs[i]->name);
            }
    }
}

/* What is updated: a state (0), something made of one (1), something else (2). */
static int distance_from_state(const struct mil_op *x)
{
    static const char *const parts[] = {"slice_by_index", "slice_update", "select", "concat", NULL};
    for (int depth = 0; x && depth < 8; depth++) {
        if (mil_op_is(x, "read_state"))
            return depth > 0;
        if (!lint_op_is_in(x, parts))
            return 2;
        const struct mil_arg *values = mil_arg_find(x, "values");
        const struct mil_op *b = lint_arg_maker(x, "b");
        if (values && values->n > 0)
            x = lint_maker(values->bindings[0].var);
        else if (mil_op_is(x, "select"))
            x = b ? b : lint_arg_maker(x, "a");
        else
            x = lint_arg_maker(x, "x");
    }
    return 2;
}

void lint_check_loose_update(struct lint_scan *s)
{
    for (int i = 0; i < s->function->n_ops; i++) {
        const struct mil_op *op = s->function->ops[i];
        int distance = mil_op_is(op, "slice_update") ? distance_from_state(lint_arg_maker(op, "x")) : 0;
        if (distance == 1)
            lint_add(s, LINT_NOTE, op, "slice_update of a part of a state");
        else if (distance == 2)
            lint_add_op(s, op, "slice_update of what is not a state");
    }
}
