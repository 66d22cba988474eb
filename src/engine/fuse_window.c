/* The pattern of a cache that shifts by blocks: a slot of the state loses its first rows where a block is entered, zeros
 * come in behind, the call's rows are written at a computed position, and the slot goes back into the state. Taken as
 * one step it happens in the state's own memory; inside a block only the new rows are written.
 *
 *     old  = slot of read_state(s)                       [1, heads, length, d]
 *     new  = concat(old from row `block` on, zeros)
 *     new  = select(enter, new, old)                     where the call may stay inside its block
 *     new  = slice_update(new, rows, begin)
 *     write_state(s, slice_update(read_state(s), new, slot))
 *
 * Every op of it is checked; whatever is looked at from outside is no pattern. */
#include "engine/engine_int.h"

struct window {
    struct compiler *c;
    int members[8]; /* op indices */
    int n;
    const struct mil_type *state; /* [slots, heads, length, d] */
    int64_t slot, block;
};

static const struct mil_op *member(struct window *w, const struct mil_var *v, enum mil_op_id id)
{
    const struct mil_op *op = fuse_def(w->c, v, id);
    if (op)
        w->members[w->n++] = graph_op_index(&w->c->g, v);
    return op;
}

/* [1, heads, rows, d] of fp16 */
static bool is_part_type(const struct window *w, const struct mil_type *t, int64_t rows)
{
    return t && t->kind == MIL_TYPE_TENSOR && t->dtype == MIL_FP16 && t->rank == 4 && t->dims[0] == 1 &&
           t->dims[1] == w->state->dims[1] && t->dims[2] == rows && t->dims[3] == w->state->dims[3];
}

static bool is_part(const struct window *w, const struct mil_var *v, int64_t rows)
{
    return v && is_part_type(w, var_type(w->c, v), rows);
}

/* The op begins at these constants and goes in steps of 1 without masks. */
static bool begins_at(const struct window *w, const struct mil_op *op, int64_t slot, int64_t row)
{
    int64_t begin[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    return fuse_is_plain_slice(w->c, op) && fuse_ints(w->c, op, "begin", begin, &n) && n == 4 &&
           begin[0] == slot && begin[1] == 0 && begin[2] == row && begin[3] == 0;
}

static bool is_zeros(const struct window *w, const struct mil_binding *b, int64_t rows)
{
    const struct mil_value *v = b->value ? b->value : b->var ? w->c->consts[b->var->id] : NULL;
    const unsigned char *bytes = v && v->kind != MIL_VALUE_WEIGHT ? v->data : NULL;
    if (!bytes || !is_part_type(w, v->type, rows))
        return false;
    for (int64_t i = 0; i < 2 * v->n_elems; i++)
        if (bytes[i])
            return false;
    return true;
}

/* v = concat(old from row `block` on, zeros) along the rows */
static bool match_shifted(struct window *w, const struct mil_var *v, struct mil_var **old)
{
    const struct mil_op *concat = member(w, v, MIL_OP_CONCAT);
    const struct mil_arg *values = concat ? mil_arg_find(concat, "values") : NULL;
    int64_t axis = 0, interleave = 0, length = w->state->dims[2], begin[MIL_RANK_MAX];
    int n = 1, n_interleave = 1, n_begin = MIL_RANK_MAX;
    if (!values || values->n != 2 || !fuse_ints(w->c, concat, "axis", &axis, &n) || n != 1 ||
        (axis != 2 && axis != -2))
        return false;
    if (mil_arg_find(concat, "interleave") &&
        (!fuse_ints(w->c, concat, "interleave", &interleave, &n_interleave) || interleave))
        return false;
    const struct mil_op *kept = member(w, values->bindings[0].var, MIL_OP_SLICE_BY_INDEX);
    if (!kept || !fuse_ints(w->c, kept, "begin", begin, &n_begin) || n_begin != 4)
        return false;
    w->block = begin[2];
    *old = mil_arg_var(kept, "x");
    return *old && w->block > 0 && w->block < length && begins_at(w, kept, 0, w->block) &&
           is_part(w, values->bindings[0].var, length - w->block) &&
           is_zeros(w, &values->bindings[1], w->block);
}

static bool is_member(const struct window *w, int op)
{
    for (int i = 0; i < w->n; i++)
        if (w->members[i] == op)
            return true;
    return false;
}

/* No value made inside is used outside. */
static bool is_closed(const struct window *w, int write)
{
    const struct graph *g = &w->c->g;
    for (int i = 0; i < w->n; i++)
        for (const struct use *u = g->uses[g->ops[w->members[i]]->outputs[0]->id]; u; u = u->next)
            if (u->op != write && !is_member(w, u->op))
                return false;
    return true;
}

/* A write of the state between the read that the pattern starts from and its own. */
static bool is_written_between(const struct graph *g, const struct mil_var *state, int read, int write)
{
    for (int i = read + 1; i < write; i++)
        if (mil_op_is(g->ops[i], "write_state") && mil_arg_var(g->ops[i], "input") == state)
            return true;
    return false;
}

void fuse_window(struct compiler *c, int i_write)
{
    const struct mil_op *write = c->g.ops[i_write];
    struct window w = {.c = c};
    struct mil_var *state = mil_arg_var(write, "input"), *data = mil_arg_var(write, "data"), *old,
                   *enter = NULL;
    if (!state || !data || var_type(c, state)->kind != MIL_TYPE_STATE)
        return;
    w.state = mil_type_tensor(var_type(c, state));
    if (w.state->dtype != MIL_FP16 || w.state->rank != 4)
        return;
    int64_t length = w.state->dims[2], slot[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    /* The slot's write. */
    const struct mil_op *back = member(&w, data, MIL_OP_SLICE_UPDATE);
    struct mil_var *whole = back ? mil_arg_var(back, "x") : NULL,
                   *now = back ? mil_arg_var(back, "update") : NULL;
    const struct mil_op *read = fuse_def(c, whole, MIL_OP_READ_STATE);
    if (!read || mil_arg_var(read, "input") != state || !is_part(&w, now, length) ||
        !fuse_ints(c, back, "begin", slot, &n) || n != 4)
        return;
    w.slot = slot[0];
    if (w.slot < 0 || w.slot >= w.state->dims[0] || !begins_at(&w, back, w.slot, 0))
        return;
    /* The rows' write. */
    const struct mil_op *rows_update = member(&w, now, MIL_OP_SLICE_UPDATE);
    struct mil_var *rows = rows_update ? mil_arg_var(rows_update, "update") : NULL,
                   *begin = rows_update ? mil_arg_var(rows_update, "begin") : NULL,
                   *before = rows_update ? mil_arg_var(rows_update, "x") : NULL;
    if (!rows || !begin || !before || !fuse_is_plain_slice(c, rows_update) || var_type(c, rows)->rank != 4 ||
        var_type(c, rows)->dims[2] < 1 || var_type(c, rows)->dims[2] > length ||
        !is_part(&w, rows, var_type(c, rows)->dims[2]) || var_type(c, begin)->rank != 1 ||
        var_type(c, begin)->dims[0] != 4 || var_type(c, begin)->dtype != MIL_INT32)
        return;
    /* The shift, perhaps only where a block is entered. */
    const struct mil_op *select = member(&w, before, MIL_OP_SELECT);
    if (select) {
        struct mil_var *stay = mil_arg_var(select, "b");
        enter = mil_arg_var(select, "cond");
        before = mil_arg_var(select, "a");
        if (!enter || !before || mil_type_elems(var_type(c, enter)) != 1 ||
            !match_shifted(&w, before, &old) || stay != old)
            return;
    } else if (!match_shifted(&w, before, &old)) {
        return;
    }
    const struct mil_op *cut = member(&w, old, MIL_OP_SLICE_BY_INDEX);
    /* The rows are read from outside: they may be no value that is never made. */
    if (!cut || mil_arg_var(cut, "x") != whole || !is_part(&w, old, length) ||
        is_member(&w, graph_op_index(&c->g, rows)) || !begins_at(&w, cut, w.slot, 0) ||
        !is_closed(&w, i_write) || is_written_between(&c->g, state, graph_op_index(&c->g, whole), i_write))
        return;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){
        .kind = FUSED_WINDOW, .in = {state, rows, begin, enter}, .slot = w.slot, .block = w.block};
    w.members[w.n++] = i_write;
    fuse_take(c, f, i_write, w.members, w.n);
}
