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
#include <string.h>
#include "engine/match.h"

/* ---- match ---- */

struct window_place {
    int64_t slot, block; /* of the state; rows of a shift */
};

struct window {
    struct match m;
    const struct mil_type *state; /* [slots, heads, length, d] */
    int64_t slot, block;
};

/* [1, heads, rows, d] of fp16 */
static bool is_part_type(const struct window *w, const struct mil_type *t, int64_t rows)
{
    return t && t->kind == MIL_TYPE_TENSOR && t->dtype == MIL_FP16 && t->rank == 4 && t->dims[0] == 1 &&
           t->dims[1] == w->state->dims[1] && t->dims[2] == rows && t->dims[3] == w->state->dims[3];
}

static bool is_part(const struct window *w, const struct mil_var *v, int64_t rows)
{
    return v && is_part_type(w, var_type(w->m.c, v), rows);
}

/* The op begins at these constants and goes in steps of 1 without masks. */
static bool begins_at(const struct window *w, const struct mil_op *op, int64_t slot, int64_t row)
{
    int64_t begin[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    return match_is_plain_slice(w->m.c, op) && match_ints(w->m.c, op, "begin", begin, &n) && n == 4 &&
           begin[0] == slot && begin[1] == 0 && begin[2] == row && begin[3] == 0;
}

static bool is_zeros(const struct window *w, const struct mil_binding *b, int64_t rows)
{
    const struct mil_value *v = b->value ? b->value : b->var ? w->m.c->consts[b->var->id] : NULL;
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
    const struct mil_op *concat = match_member(&w->m, v, MIL_OP_CONCAT);
    const struct mil_arg *values = concat ? mil_arg_find(concat, "values") : NULL;
    int64_t axis = 0, interleave = 0, length = w->state->dims[2], begin[MIL_RANK_MAX];
    int n = 1, n_interleave = 1, n_begin = MIL_RANK_MAX;
    if (!values || values->n != 2 || !match_ints(w->m.c, concat, "axis", &axis, &n) || n != 1 ||
        (axis != 2 && axis != -2))
        return false;
    if (mil_arg_find(concat, "interleave") &&
        (!match_ints(w->m.c, concat, "interleave", &interleave, &n_interleave) || interleave))
        return false;
    const struct mil_op *kept = match_member(&w->m, values->bindings[0].var, MIL_OP_SLICE_BY_INDEX);
    if (!kept || !match_ints(w->m.c, kept, "begin", begin, &n_begin) || n_begin != 4)
        return false;
    w->block = begin[2];
    *old = mil_arg_var(kept, "x");
    return *old && w->block > 0 && w->block < length && begins_at(w, kept, 0, w->block) &&
           is_part(w, values->bindings[0].var, length - w->block) &&
           is_zeros(w, &values->bindings[1], w->block);
}

/* A write of the state between the read that the pattern starts from and its own. */
static bool is_written_between(const struct graph *g, const struct mil_var *state, int read, int write)
{
    for (int i = read + 1; i < write; i++)
        if (mil_op_is(g->ops[i], "write_state") && mil_arg_var(g->ops[i], "input") == state)
            return true;
    return false;
}

static bool emit_window(struct compiler *c, const struct fused *f);

void pattern_window(struct compiler *c, int i_write)
{
    const struct mil_op *write = c->g.ops[i_write];
    struct window w = {.m = match_begin(c)};
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
    const struct mil_op *back = match_member(&w.m, data, MIL_OP_SLICE_UPDATE);
    struct mil_var *whole = back ? mil_arg_var(back, "x") : NULL,
                   *now = back ? mil_arg_var(back, "update") : NULL;
    const struct mil_op *read = match_def(c, whole, MIL_OP_READ_STATE);
    if (!read || mil_arg_var(read, "input") != state || !is_part(&w, now, length) ||
        !match_ints(c, back, "begin", slot, &n) || n != 4)
        return;
    w.slot = slot[0];
    if (w.slot < 0 || w.slot >= w.state->dims[0] || !begins_at(&w, back, w.slot, 0))
        return;
    /* The rows' write. */
    const struct mil_op *rows_update = match_member(&w.m, now, MIL_OP_SLICE_UPDATE);
    struct mil_var *rows = rows_update ? mil_arg_var(rows_update, "update") : NULL,
                   *begin = rows_update ? mil_arg_var(rows_update, "begin") : NULL,
                   *before = rows_update ? mil_arg_var(rows_update, "x") : NULL;
    if (!rows || !begin || !before || !match_is_plain_slice(c, rows_update) || var_type(c, rows)->rank != 4 ||
        var_type(c, rows)->dims[2] < 1 || var_type(c, rows)->dims[2] > length ||
        !is_part(&w, rows, var_type(c, rows)->dims[2]) || var_type(c, begin)->rank != 1 ||
        var_type(c, begin)->dims[0] != 4 || var_type(c, begin)->dtype != MIL_INT32)
        return;
    /* The shift, perhaps only where a block is entered. */
    const struct mil_op *select = match_member(&w.m, before, MIL_OP_SELECT);
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
    match_add(&w.m, i_write);
    const struct mil_op *cut = match_member(&w.m, old, MIL_OP_SLICE_BY_INDEX);
    /* The rows are read from outside: they may be no value that is never made. */
    if (!cut || mil_arg_var(cut, "x") != whole || !is_part(&w, old, length) ||
        match_has(&w.m, graph_op_index(&c->g, rows)) || !begins_at(&w, cut, w.slot, 0) ||
        !match_is_closed(&w.m, NULL) ||
        is_written_between(&c->g, state, graph_op_index(&c->g, whole), i_write))
        return;
    struct window_place *own = ARENA_NEW(c->scratch, struct window_place);
    *own = (struct window_place){.slot = w.slot, .block = w.block};
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){.emit = emit_window, .in = {state, rows, begin, enter}, .own = own};
    match_take(&w.m, f, i_write);
}

/* ---- emit and run ---- */

struct window_params {
    int64_t n_heads, length, d, n_rows; /* of the slot, of the call */
    int64_t block;                      /* rows that leave where a block is entered */
    int64_t head, row;                  /* strides of the call's rows */
};

/* Threads split the heads, whose memory is apart. Nothing moves before all has been checked. */
static void run_window(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct window_params *p = s->params;
    const float *rows = value_pointer(r, &s->in[0]);
    const int32_t *begin = value_pointer(r, &s->in[1]);
    bool enter = s->n_in < 3 || *(const int32_t *)value_pointer(r, &s->in[2]);
    const int64_t limits[4] = {1, p->n_heads, p->length, p->d}, n[4] = {1, p->n_heads, p->n_rows, p->d};
    int64_t at[4], first, last;
    for (int i = 0; i < 4; i++) {
        at[i] = begin[i] < 0 ? begin[i] + limits[i] : begin[i];
        if (at[i] < 0 || at[i] + n[i] > limits[i]) {
            run_fail(r, s, "the rows lie outside the window (a call out of order?)");
            return;
        }
    }
    bool is_f16 = s->out[0].repr == REPR_F16;
    int64_t size = is_f16 ? 2 : 4, moved = (p->length - p->block) * p->d * size, d_bytes = p->d * size;
    pool_split(p->n_heads, 1, i_thread, n_threads, &first, &last);
    for (int64_t h = first; h < last; h++) {
        char *slot = (char *)value_pointer(r, &s->out[0]) + h * p->length * d_bytes;
        if (enter) {
            memmove(slot, slot + p->block * d_bytes, (size_t)moved);
            memset(slot + moved, 0, (size_t)(p->block * d_bytes));
        }
        for (int64_t t = 0; t < p->n_rows; t++) {
            const float *from = rows + h * p->head + t * p->row;
            char *to = slot + (at[2] + t) * d_bytes;
            if (is_f16)
                r->k->f32_to_f16((f16 *)to, from, p->d);
            else
                memcpy(to, from, (size_t)d_bytes);
        }
    }
}

static bool emit_window(struct compiler *c, const struct fused *f)
{
    const struct window_place *own = f->own;
    struct window_params *p = ARENA_NEW(c->arena, struct window_params);
    struct value x[4]; /* state [slots, heads, length, d], rows [1, heads, T, d], begin [4], enter */
    int n = f->in[3] ? 4 : 3;
    for (int i = 0; i < n; i++) {
        if (!fused_operand(c, f, i, &x[i]))
            return false;
    }
    if (c->plan->storages[x[0].storage].kind != STORAGE_STATE)
        return compile_fail(c, ERR_FORMAT, "input is not a state");
    if (n > 3 && x[3].repr != REPR_I32)
        return compile_fail(c, ERR_FORMAT, "cond is not a bool");
    copy_off_states(c, &x[1]);
    if (!to_f32(c, &x[1]) || !to_dense(c, &x[2]))
        return false;
    if (x[1].dims[3] != 1 && x[1].strides[3] != 1 && !to_dense(c, &x[1]))
        return false;
    p->n_heads = x[0].dims[1];
    p->length = x[0].dims[2];
    p->d = x[0].dims[3];
    p->n_rows = x[1].dims[2];
    p->block = own->block;
    p->head = x[1].strides[1];
    p->row = x[1].strides[2];
    struct value slot = x[0];
    slot.offset += own->slot * x[0].strides[0];
    slot.dims[0] = 1;
    struct step *s = step_new(c, "write window", run_window);
    s->params = p;
    s->label = f->in[0]->name;
    s->serial = value_elems(&x[1]) < PARALLEL_ELEMS;
    for (int i = 1; i < n; i++)
        step_in(c, s, x[i]);
    step_out(c, s, slot);
    return true;
}
