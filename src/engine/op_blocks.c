/* Ops that move blocks of elements between axes: depth_to_space, space_to_depth, pixel_shuffle, pixel_unshuffle, space_to_batch,
 * batch_to_space; and reverse_sequence and sliding_windows. Nearly all are one strided copy: an axis split in two, the parts
 * in another order. */
#include <string.h>
#include "engine/compiler.h"

/* The op's result as a copy of x, seen with `rank` axes of sizes split (their product is x's), the axes in the order perm. */
static bool emit_rearranged(struct compiler *c, const struct mil_op *op, struct value x, int rank,
                            const int64_t *split, const int *perm)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value from, y = value_new(c, dtype_repr(t->dtype), t->rank, t->dims), to, ordered;
    int64_t dims[MIL_RANK_MAX];
    if (!to_f32(c, &x))
        return false;
    for (int i = 0; i < rank; i++)
        dims[i] = split[perm[i]];
    if (dims_product(split, rank) != value_elems(&x) || value_elems(&y) != value_elems(&x))
        return compile_fail(c, ERR_FORMAT, "its declared shape is not what its blocks give");
    if (!view_reshape(&x, rank, split, &from)) {
        if (!to_dense(c, &x))
            return false;
        if (!view_reshape(&x, rank, split, &from))
            return compile_fail(c, ERR_BUG, "a dense value that can't be reshaped");
    }
    if (!view_reshape(&y, rank, dims, &to))
        return compile_fail(c, ERR_BUG, "a dense value that can't be reshaped");
    ordered = from;
    for (int i = 0; i < rank; i++) {
        ordered.dims[i] = from.dims[perm[i]];
        ordered.strides[i] = from.strides[perm[i]];
    }
    emit_copy(c, &ordered, &to);
    set_output(c, op, 0, y);
    return true;
}

/* x [n, c, h, w] with blocks of b by b. depth_to_space takes the channels as [b, b, c'], pixel_shuffle as [c', b, b]. */
bool emit_blocks(struct compiler *c, const struct mil_op *op)
{
    static const int to_space[6] = {0, 3, 4, 1, 5, 2}, shuffle[6] = {0, 1, 4, 2, 5, 3},
                     to_depth[6] = {0, 3, 5, 1, 2, 4}, unshuffle[6] = {0, 1, 3, 5, 2, 4};
    int id = op->info->id;
    const char *name = id == MIL_OP_PIXEL_SHUFFLE     ? "upscale_factor"
                       : id == MIL_OP_PIXEL_UNSHUFFLE ? "downscale_factor"
                                                      : "block_size";
    struct value x;
    int64_t b, d[6];
    if (!operand(c, op, "x", &x) || !arg_int(c, op, name, 0, &b))
        return false;
    if (x.rank != 4 || b < 1)
        return compile_fail(c, ERR_FORMAT, "expected x of rank 4 and a block of at least 1");
    if (id == MIL_OP_DEPTH_TO_SPACE || id == MIL_OP_PIXEL_SHUFFLE) {
        bool is_shuffle = id == MIL_OP_PIXEL_SHUFFLE;
        if (b > x.dims[1] || x.dims[1] % (b * b) != 0)
            return compile_fail(c, ERR_FORMAT, "%lld channels are not blocks of %lld by %lld",
                                (long long)x.dims[1], (long long)b, (long long)b);
        int64_t channels = x.dims[1] / (b * b);
        d[0] = x.dims[0];
        d[1] = is_shuffle ? channels : b;
        d[2] = b;
        d[3] = is_shuffle ? b : channels;
        d[4] = x.dims[2];
        d[5] = x.dims[3];
        return emit_rearranged(c, op, x, 6, d, is_shuffle ? shuffle : to_space);
    }
    if (x.dims[2] % b != 0 || x.dims[3] % b != 0)
        return compile_fail(c, ERR_FORMAT, "%lld by %lld is not a whole number of blocks",
                            (long long)x.dims[2], (long long)x.dims[3]);
    d[0] = x.dims[0];
    d[1] = x.dims[1];
    d[2] = x.dims[2] / b;
    d[3] = b;
    d[4] = x.dims[3] / b;
    d[5] = b;
    return emit_rearranged(c, op, x, 6, d, id == MIL_OP_PIXEL_UNSHUFFLE ? unshuffle : to_depth);
}

/* ---- space_to_batch, batch_to_space ---- */

struct batch_blocks {
    int64_t n, block[2],
        edge[2]; /* of the images: their number; padding or crop before the first row and column */
    int64_t dims[4], other[4]; /* of the result and of x */
    bool to_batch;
};

/* Block (i, j) of image n lies at (i * block[1] + j) * images + n of the batch. */
static void run_batch_blocks(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct batch_blocks *p = s->params;
    const struct value *x = &s->in[0];
    const int32_t *from = value_pointer(r, x);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->dims[0] * p->dims[1] * p->dims[2], 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t h = row % p->dims[2], channel = row / p->dims[2] % p->dims[1],
                batch = row / p->dims[2] / p->dims[1];
        int64_t block = batch / p->n, image = batch % p->n;
        for (int64_t w = 0; w < p->dims[3]; w++) {
            int64_t at[4] = {0, channel, 0, 0};
            if (p->to_batch) {
                at[0] = image;
                at[2] = h * p->block[0] + block / p->block[1] - p->edge[0];
                at[3] = w * p->block[1] + block % p->block[1] - p->edge[1];
            } else {
                int64_t row_at = h + p->edge[0], column = w + p->edge[1];
                at[0] = (row_at % p->block[0] * p->block[1] + column % p->block[1]) * p->n + batch;
                at[2] = row_at / p->block[0];
                at[3] = column / p->block[1];
            }
            bool inside = at[2] >= 0 && at[2] < p->other[2] && at[3] >= 0 && at[3] < p->other[3];
            int64_t k = 0;
            for (int i = 0; i < 4; i++)
                k += at[i] * x->strides[i];
            y[row * p->dims[3] + w] = inside ? from[k] : 0;
        }
    }
}

bool emit_batch_blocks(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct batch_blocks *p = ARENA_NEW(c->arena, struct batch_blocks);
    struct value x;
    int64_t edges[4];
    int n_block = 2, n_edges = 4;
    p->to_batch = op->info->id == MIL_OP_SPACE_TO_BATCH;
    if (!operand_f32(c, op, "x", &x) || !arg_ints(c, op, "block_shape", p->block, &n_block) ||
        !arg_ints(c, op, p->to_batch ? "paddings" : "crops", edges, &n_edges))
        return false;
    if (x.rank != 4 || t->rank != 4 || n_block != 2 || n_edges != 4)
        return compile_fail(c, ERR_FORMAT, "expected x of rank 4, two sizes of blocks and four of edges");
    struct value y = value_new(c, x.repr, 4, t->dims);
    memcpy(p->dims, t->dims, sizeof p->dims);
    memcpy(p->other, x.dims, sizeof p->other);
    p->edge[0] = edges[0];
    p->edge[1] = edges[2];
    p->n = p->to_batch ? x.dims[0] : t->dims[0];
    for (int i = 0; i < 2;
         i++) { /* the rule that gave the shape has checked sizes; these are what the run relies on */
        int64_t room = p->to_batch ? t->dims[2 + i] * p->block[i] : x.dims[2 + i] * p->block[i];
        if (p->block[i] < 1 || edges[2 * i] < 0 || edges[2 * i + 1] < 0 ||
            room != (p->to_batch ? x : y).dims[2 + i] + edges[2 * i] + edges[2 * i + 1])
            return compile_fail(c, ERR_FORMAT, "blocks and edges do not fit the sizes of axis %d", 2 + i);
    }
    return emit_step(c, op, op->info->name, run_batch_blocks, p, &x, 1, y);
}

/* ---- reverse_sequence ---- */

struct reverse_sequence {
    int rank, seq_axis, batch_axis;
    int64_t dims[MIL_RANK_MAX];
};

static void run_reverse_sequence(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct reverse_sequence *p = s->params;
    const struct value *x = &s->in[0];
    const int32_t *from = value_pointer(r, x), *lengths = value_pointer(r, &s->in[1]);
    int32_t *y = value_pointer(r, &s->out[0]);
    int64_t n = dims_product(p->dims, p->rank), begin, end;
    pool_split(n, 1, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t rest = i, at[MIL_RANK_MAX], k = 0;
        for (int axis = p->rank - 1; axis >= 0; axis--) {
            at[axis] = rest % p->dims[axis];
            rest /= p->dims[axis];
        }
        int64_t length = lengths[at[p->batch_axis] * s->in[1].strides[0]];
        if (length < 0 || length > p->dims[p->seq_axis]) {
            run_fail(r, s, "a length lies outside the sequence");
            return;
        }
        if (at[p->seq_axis] < length)
            at[p->seq_axis] = length - 1 - at[p->seq_axis];
        for (int axis = 0; axis < p->rank; axis++)
            k += at[axis] * x->strides[axis];
        y[i] = from[k];
    }
}

bool emit_reverse_sequence(struct compiler *c, const struct mil_op *op)
{
    struct reverse_sequence *p = ARENA_NEW(c->arena, struct reverse_sequence);
    struct value x[2];
    int64_t batch_axis, seq_axis;
    if (!operand_f32(c, op, "x", &x[0]) || !operand(c, op, "lengths", &x[1]) ||
        !arg_int(c, op, "seq_axis", 0, &seq_axis) || !arg_int(c, op, "batch_axis", 0, &batch_axis) ||
        !axis_of(c, seq_axis, x[0].rank, &p->seq_axis) || !axis_of(c, batch_axis, x[0].rank, &p->batch_axis))
        return false;
    if (x[1].repr != REPR_I32 || x[1].rank != 1 || x[1].dims[0] != x[0].dims[p->batch_axis])
        return compile_fail(c, ERR_FORMAT, "lengths do not fit the batch axis");
    p->rank = x[0].rank;
    memcpy(p->dims, x[0].dims, sizeof p->dims);
    struct value y = value_new(c, x[0].repr, x[0].rank, x[0].dims);
    return emit_step(c, op, "reverse sequence", run_reverse_sequence, p, x, 2, y);
}

/* ---- sliding_windows ---- */

bool emit_sliding_windows(struct compiler *c, const struct mil_op *op)
{
    const struct mil_type *t = var_type(c, op->outputs[0]);
    struct value x;
    int axis;
    int64_t size, stride;
    if (!operand_f32(c, op, "x", &x) || !arg_axis(c, op, 0, x.rank, &axis) ||
        !arg_int(c, op, "size", 1, &size) || !arg_int(c, op, "stride", 1, &stride))
        return false;
    if (t->rank != x.rank + 1 || t->rank > MIL_RANK_MAX || size < 1 || stride < 1 || t->dims[axis] < 1 ||
        t->dims[axis + 1] != size || (t->dims[axis] - 1) * stride + size > x.dims[axis])
        return compile_fail(c, ERR_FORMAT, "windows that do not fit axis %d", axis);
    struct value windows = x, y = value_new(c, x.repr, t->rank, t->dims);
    windows.rank = t->rank;
    for (int i = t->rank - 1; i > axis + 1; i--) {
        windows.dims[i] = x.dims[i - 1];
        windows.strides[i] = x.strides[i - 1];
    }
    windows.dims[axis] = t->dims[axis];
    windows.strides[axis] = x.strides[axis] * stride;
    windows.dims[axis + 1] = size;
    windows.strides[axis + 1] = x.strides[axis];
    emit_copy(c, &windows, &y);
    set_output(c, op, 0, y);
    return true;
}
