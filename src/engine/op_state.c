/* States. read_state gives a view of the state's own memory; slice_update whose result goes back into that
 * state is a write of the slice alone. A read that would still be looked at after the next write is copied first, so the program's order of events holds. */
#include <string.h>
#include "engine/compiler.h"

bool emit_read_state(struct compiler *c, const struct mil_op *op)
{
    struct value state;
    const struct mil_var *input = mil_arg_var(op, "input");
    if (!input)
        return compile_fail(c, ERR_FORMAT, "argument input is missing");
    if (!operand(c, op, "input", &state))
        return false;
    int write = c->g.next_write[graph_op_index(&c->g, op->outputs[0])];
    if (c->g.last_look[op->outputs[0]->id] > write) { /* the write's own slice_update is none */
        struct value y = value_new(c, REPR_F32, state.rank, state.dims);
        emit_copy(c, &state, &y);
        state = y;
    }
    set_var(c, op->outputs[0], state);
    return true;
}

/* ---- slice_update ---- */

struct update_params {
    int rank;
    int64_t dims[MIL_RANK_MAX];       /* of the update, squeezed axes as 1 */
    int64_t limits[MIL_RANK_MAX];     /* of the target */
    int64_t strides[2][MIL_RANK_MAX]; /* of the target, times step; of the update */
    int64_t step[MIL_RANK_MAX];       /* of the slice, in elements of the target */
    int64_t to[MIL_RANK_MAX];         /* strides of the target */
    bool begin_masked[MIL_RANK_MAX];
};

static void run_slice_update(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct update_params *p = s->params;
    const int32_t *begin = value_pointer(r, &s->in[1]);
    int64_t offset = 0;
    for (int i = 0; i < p->rank; i++) {
        int64_t b = !p->begin_masked[i] ? begin[i] : p->step[i] > 0 ? 0 : p->limits[i] - 1;
        if (b < 0)
            b += p->limits[i];
        int64_t last_at = b + (p->dims[i] - 1) * p->step[i];
        if (b < 0 || b >= p->limits[i] || p->dims[i] < 1 || last_at < 0 || last_at >= p->limits[i]) {
            run_fail(r, s, "the slice lies outside the tensor (a position beyond the context?)");
            return;
        }
        offset += b * p->to[i];
    }
    int inner = p->rank - 1;
    int64_t n_rows = 1, first, last;
    for (int i = 0; i < inner; i++)
        n_rows *= p->dims[i];
    pool_split(n_rows, 1, i_thread, n_threads, &first, &last);
    const float *x = value_pointer(r, &s->in[0]);
    char *y = value_pointer(r, &s->out[0]);
    int64_t n = p->dims[inner], to_step = p->strides[0][inner], from_step = p->strides[1][inner];
    for (int64_t row = first; row < last; row++) {
        int64_t offsets[2];
        walk_offsets(inner, p->dims, 2, p->strides, row, offsets);
        int64_t at = offset + offsets[0], src = offsets[1];
        if (s->out[0].repr == REPR_F16) {
            f16 *row_out = (f16 *)y + at;
            if (to_step == 1 && from_step == 1)
                r->k->f32_to_f16(row_out, x + src, n);
            else
                for (int64_t i = 0; i < n; i++)
                    row_out[i * to_step] = f32_to_f16(x[src + i * from_step]);
        } else {
            int32_t *row_out = (int32_t *)y + at;
            const int32_t *row_in = (const int32_t *)x + src;
            for (int64_t i = 0; i < n; i++)
                row_out[i * to_step] = row_in[i * from_step];
        }
    }
}

/* A part of a state as data for a write: its memory may be what is being written, so it is copied first. */
void copy_off_states(struct compiler *c, struct value *v)
{
    if (c->plan->storages[v->storage].kind != STORAGE_STATE)
        return;
    struct value copy = value_new(c, REPR_F32, v->rank, v->dims);
    emit_copy(c, v, &copy);
    *v = copy;
}

/* Writes op's update into target (in place). */
static bool emit_update_into(struct compiler *c, const struct mil_op *op, const struct value *target)
{
    struct update_params *p = ARENA_NEW(c->arena, struct update_params);
    struct value update, begin;
    int64_t stride[MIL_RANK_MAX], begin_mask[MIL_RANK_MAX] = {0}, squeeze[MIL_RANK_MAX] = {0};
    int n_stride = MIL_RANK_MAX, n = MIL_RANK_MAX, n_squeezed = 0;
    if (!operand(c, op, "update", &update) || !operand(c, op, "begin", &begin) ||
        !arg_ints(c, op, "stride", stride, &n_stride) || !arg_ints(c, op, "begin_mask", begin_mask, &n))
        return false;
    n = MIL_RANK_MAX;
    if (!arg_ints(c, op, "squeeze_mask", squeeze, &n) || !to_dense(c, &begin))
        return false;
    for (int i = 0; i < target->rank; i++)
        n_squeezed += squeeze[i] != 0;
    if (begin.repr != REPR_I32 || value_elems(&begin) != target->rank ||
        update.rank + n_squeezed != target->rank)
        return compile_fail(c, ERR_FORMAT, "begin or update do not fit the rank of x");
    copy_off_states(c, &update);
    if (!to_f32(c, &update))
        return false;
    p->rank = target->rank;
    for (int i = 0, k = 0; i < target->rank; i++) {
        p->limits[i] = target->dims[i];
        p->to[i] = target->strides[i];
        p->step[i] = n_stride == target->rank ? stride[i] : 1;
        p->begin_masked[i] = begin_mask[i] != 0;
        p->dims[i] = squeeze[i] ? 1 : update.dims[k];
        p->strides[1][i] = squeeze[i] ? 0 : update.strides[k++];
        if (p->step[i] == 0 || p->step[i] == INT64_MIN)
            return compile_fail(c, ERR_FORMAT, "stride %lld", (long long)p->step[i]);
        /* Holds for no begin; past this the run's own check can't overflow. */
        if (p->dims[i] > 1 &&
            (p->step[i] < 0 ? -p->step[i] : p->step[i]) > (p->limits[i] - 1) / (p->dims[i] - 1))
            return compile_fail(c, ERR_FORMAT, "%lld rows with stride %lld do not fit axis %d of %lld",
                                (long long)p->dims[i], (long long)p->step[i], i, (long long)p->limits[i]);
        p->strides[0][i] = p->dims[i] > 1 ? p->to[i] * p->step[i] : 0;
    }
    if (p->rank == 0)
        return compile_fail(c, ERR_UNSUPPORTED, "an update of a scalar");
    struct step *s =
        step_new(c, c->plan->storages[target->storage].kind == STORAGE_STATE ? "write state" : "slice update",
                 run_slice_update);
    s->params = p;
    s->serial = value_elems(&update) < PARALLEL_ELEMS;
    step_in(c, s, update);
    step_in(c, s, begin);
    step_out(c, s, *target);
    return true;
}

bool emit_slice_update(struct compiler *c, const struct mil_op *op)
{
    int write;
    struct value x;
    if (!operand(c, op, "x", &x))
        return false;
    if (graph_is_state_update(&c->g, op, &write) && c->plan->storages[x.storage].kind == STORAGE_STATE)
        return true; /* done by emit_write_state */
    struct value y = value_new(c, x.repr == REPR_F16 ? REPR_F32 : x.repr, x.rank, x.dims);
    emit_copy(c, &x, &y);
    if (!emit_update_into(c, op, &y))
        return false;
    set_output(c, op, 0, y);
    return true;
}

bool emit_write_state(struct compiler *c, const struct mil_op *op)
{
    struct value state, data;
    struct mil_var *v = mil_arg_var(op, "data");
    const struct mil_op *def = v ? graph_def(&c->g, v) : NULL;
    int write;
    if (!operand(c, op, "input", &state))
        return false;
    if (c->plan->storages[state.storage].kind != STORAGE_STATE)
        return compile_fail(c, ERR_FORMAT, "input is not a state");
    if (def && mil_op_is(def, "slice_update") && graph_is_state_update(&c->g, def, &write) &&
        c->values[v->id].storage < 0)
        return emit_update_into(c, def, &state);
    if (!operand(c, op, "data", &data))
        return false;
    bool same = data.rank == state.rank;
    for (int i = 0; same && i < state.rank; i++)
        same = data.dims[i] == state.dims[i];
    if (!same)
        return compile_fail(c, ERR_FORMAT, "data has another shape than the state");
    copy_off_states(c, &data);
    if (!to_f32(c, &data))
        return false;
    emit_copy(c, &data, &state);
    return true;
}
