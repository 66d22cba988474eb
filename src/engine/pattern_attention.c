/* The pattern of attention over a cache, in place:
 *
 *     k, v   = slices of read_state(s)                       [.., kv_heads, S, d]
 *     k, v   = reshape(tile(expand_dims(k)))                 where a head serves several query heads
 *     scores = matmul(q, k, transpose_y)                     q [1, heads, T, d]
 *     scores = scores * scale                                perhaps
 *     p      = softmax(scores + mask)                        mask [1, 1, T, S], over the last axis
 *     y      = matmul(p, v)                                  perhaps between reshapes that drop the first axis
 *
 * The step reads only positions that the mask leaves: the range of each row is found once per call and mask. */
#include <math.h>
#include "engine/match.h"

/* ---- match ---- */

struct attention_scale {
    double scale;
};

/* Is v a slice of a state that is held as fp16, as the kernels of attention read it? */
static bool is_state_slice(const struct compiler *c, const struct mil_var *v)
{
    const struct mil_var *state = c->state_slice[v->id];
    return state && !engine_state_is_recurrent(c->state_forms, state->name);
}

/* Which variables lead back to a read of a state through slices and axes of one element. */
static void find_state_slices(struct compiler *c)
{
    c->state_slice = ARENA_ARRAY(c->scratch, const struct mil_var *, c->g.f->n_vars + 1);
    for (int i = 0; i < c->g.n_ops; i++) {
        const struct mil_op *op = c->g.ops[i];
        const struct mil_var *x = mil_arg_var(op, "x");
        switch (op->info ? op->info->id : MIL_OP_NONE) {
        case MIL_OP_READ_STATE:
            c->state_slice[op->outputs[0]->id] = mil_arg_var(op, "input");
            break;
        case MIL_OP_SLICE_BY_INDEX:
        case MIL_OP_SQUEEZE:
        case MIL_OP_EXPAND_DIMS:
        case MIL_OP_IDENTITY:
            c->state_slice[op->outputs[0]->id] = x ? c->state_slice[x->id] : NULL;
            break;
        default:
            break;
        }
    }
}

/* v [(1,) heads, S, d] is k [.., heads/r, S, d] with each head r times in a row (expand_dims, tile, reshape),
 * or k itself. */
static struct mil_var *unrepeat(const struct compiler *c, struct mil_var *v, int user, struct match *m,
                                int *n_repeat)
{
    const struct mil_type *t = var_type(c, v);
    const struct mil_op *reshape = match_def(c, v, MIL_OP_RESHAPE);
    int64_t reps[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    int first = t->rank - 3; /* axis of the heads */
    *n_repeat = 1;
    if (t->rank < 3 || t->rank > 4 || (t->rank == 4 && t->dims[0] != 1))
        return NULL;
    if (!reshape)
        return is_state_slice(c, v) ? v : NULL;
    const struct mil_op *tile = match_def(c, mil_arg_var(reshape, "x"), MIL_OP_TILE);
    const struct mil_op *expand = tile ? match_def(c, mil_arg_var(tile, "x"), MIL_OP_EXPAND_DIMS) : NULL;
    struct mil_var *k = expand ? mil_arg_var(expand, "x") : NULL;
    if (!k || !is_state_slice(c, k) || !graph_used_once_by(&c->g, v, user) ||
        !graph_used_once_by(&c->g, tile->outputs[0], graph_op_index(&c->g, reshape->outputs[0])) ||
        !graph_used_once_by(&c->g, expand->outputs[0], graph_op_index(&c->g, tile->outputs[0])))
        return NULL;
    const struct mil_type *kt = var_type(c, k), *wide = var_type(c, expand->outputs[0]);
    int axis = wide->rank - 3; /* the new axis, between heads and positions */
    if (kt->rank < 3 || wide->rank != kt->rank + 1 || wide->dims[axis] != 1 ||
        !match_ints(c, tile, "reps", reps, &n) || n != wide->rank)
        return NULL;
    int64_t axes[MIL_RANK_MAX];
    n = MIL_RANK_MAX;
    if (!match_ints(c, expand, "axes", axes, &n) || n != 1 ||
        (axes[0] != axis && axes[0] != axis - wide->rank))
        return NULL;
    for (int i = 0; i < wide->rank; i++)
        if (i != axis && reps[i] != 1)
            return NULL;
    for (int i = 0; i < kt->rank - 3; i++)
        if (kt->dims[i] != 1)
            return NULL;
    if (t->dims[first] != kt->dims[kt->rank - 3] * reps[axis] ||
        t->dims[first + 1] != kt->dims[kt->rank - 2] || t->dims[first + 2] != kt->dims[kt->rank - 1])
        return NULL;
    *n_repeat = (int)reps[axis];
    match_add_op(m, reshape);
    match_add_op(m, tile);
    match_add_op(m, expand);
    return k;
}

static bool const_flag(const struct compiler *c, const struct mil_op *op, const char *name)
{
    int64_t v = 0;
    int n = 1;
    return match_ints(c, op, name, &v, &n) && n == 1 && v != 0;
}

/* A reshape from [1, a, b, c] to [a, b, c], or back. */
static bool moves_first_axis(const struct compiler *c, const struct mil_op *reshape, bool away)
{
    const struct mil_var *x = mil_arg_var(reshape, "x");
    const struct mil_type *wide = x ? var_type(c, x) : NULL, *flat = var_type(c, reshape->outputs[0]);
    if (!wide)
        return false;
    if (!away) {
        const struct mil_type *swap = wide;
        wide = flat;
        flat = swap;
    }
    return wide->rank == 4 && flat->rank == 3 && wide->dims[0] == 1 && wide->dims[1] == flat->dims[0] &&
           wide->dims[2] == flat->dims[1] && wide->dims[3] == flat->dims[2];
}

static bool emit_attention(struct compiler *c, const struct fused *f);

void pattern_attention(struct compiler *c, int i_softmax)
{
    struct match m = match_begin(c);
    if (!c->state_slice)
        find_state_slices(c);
    const struct mil_op *softmax = c->g.ops[i_softmax], *add, *scores, *scaled;
    int repeat_k, repeat_v;
    struct mil_var *sum = mil_arg_var(softmax, "x"), *mask, *product, *p = softmax->outputs[0];
    const struct mil_type *t = var_type(c, p);
    double scale = 1;
    if (t->rank != 4 || t->dims[0] != 1 || !match_is_last_axis(c, softmax, "axis", 4) ||
        !(add = match_def(c, sum, MIL_OP_ADD)) ||
        !graph_used_once_by(&c->g, sum, graph_op_index(&c->g, softmax->outputs[0])))
        return;
    /* Which operand of the addition is the mask [1, 1, T, S]? */
    product = mil_arg_var(add, "x");
    mask = mil_arg_var(add, "y");
    if (product && mask && var_type(c, product)->rank == 4 && var_type(c, product)->dims[1] == 1 &&
        (match_def(c, mask, MIL_OP_MUL) || match_def(c, mask, MIL_OP_MATMUL))) {
        struct mil_var *swap = product;
        product = mask;
        mask = swap;
    }
    if (!product || !mask)
        return;
    const struct mil_type *mt = var_type(c, mask);
    if (mt->rank != 4 || mt->dims[0] != 1 || mt->dims[1] != 1 || mt->dims[2] != t->dims[2] ||
        mt->dims[3] != t->dims[3] ||
        !graph_used_once_by(&c->g, product, graph_op_index(&c->g, add->outputs[0])))
        return;
    scaled = match_def(c, product, MIL_OP_MUL);
    if (scaled) {
        struct mil_var *inner;
        if (!match_var_and_number(c, scaled, &inner, &scale) ||
            !graph_used_once_by(&c->g, inner, graph_op_index(&c->g, scaled->outputs[0])))
            return;
        match_add_op(&m, scaled);
        product = inner;
    }
    scores = match_def(c, product, MIL_OP_MATMUL);
    /* The product with the values, or (as an einsum is lowered) the same without the first axis. */
    const struct mil_op *flat = match_only_user(c, p, MIL_OP_RESHAPE), *flat_v = NULL;
    const struct mil_op *result = match_only_user(c, flat ? flat->outputs[0] : p, MIL_OP_MATMUL),
                        *root = result;
    if (!scores || !result || mil_arg_var(result, "x") != (flat ? flat->outputs[0] : p) ||
        const_flag(c, scores, "transpose_x") || !const_flag(c, scores, "transpose_y") ||
        const_flag(c, result, "transpose_x") || const_flag(c, result, "transpose_y"))
        return;
    struct mil_var *q = mil_arg_var(scores, "x"), *k = mil_arg_var(scores, "y"),
                   *v = mil_arg_var(result, "y");
    if (flat) {
        root = match_only_user(c, result->outputs[0], MIL_OP_RESHAPE);
        if (!root || !v || !moves_first_axis(c, flat, true) || !moves_first_axis(c, root, false))
            return;
        match_add_op(&m, flat);
        match_add_op(&m, result);
        flat_v = match_def(c, v, MIL_OP_RESHAPE);
        if (flat_v && !moves_first_axis(c, flat_v, true))
            flat_v = NULL; /* the reshape behind the repetition gives the flat form itself */
        if (flat_v) {
            if (!graph_used_once_by(&c->g, v, graph_op_index(&c->g, result->outputs[0])))
                return;
            v = mil_arg_var(flat_v, "x");
            match_add_op(&m, flat_v);
        }
    }
    if (!q || !k || !v || var_type(c, q)->rank != 4 || var_type(c, q)->dims[1] != t->dims[1])
        return;
    k = unrepeat(c, k, graph_op_index(&c->g, scores->outputs[0]), &m, &repeat_k);
    v = k ? unrepeat(c, v, graph_op_index(&c->g, (flat_v ? flat_v : result)->outputs[0]), &m, &repeat_v)
          : NULL;
    if (!k || !v || repeat_k != repeat_v)
        return;
    const struct mil_type *kt = var_type(c, k), *vt = var_type(c, v);
    if (t->dims[1] < 1 || t->dims[1] != kt->dims[kt->rank - 3] * repeat_k ||
        var_type(c, q)->dims[3] != kt->dims[kt->rank - 1])
        return;
    if (kt->rank < 3 || vt->rank < 3 || vt->dims[vt->rank - 3] != kt->dims[kt->rank - 3] ||
        vt->dims[vt->rank - 2] != kt->dims[kt->rank - 2])
        return; /* broadcast heads */
    match_add_op(&m, scores);
    match_add_op(&m, add);
    match_add_op(&m, softmax);
    struct attention_scale *own = ARENA_NEW(c->scratch, struct attention_scale);
    own->scale = scale;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){.emit = emit_attention, .out = root->outputs[0], .in = {q, k, v, mask}, .own = own};
    match_take(&m, f, graph_op_index(&c->g, root->outputs[0]));
}

/* ---- the mask's ranges ---- */

struct mask_rows {
    int64_t n_rows, n, stride;
};

/* mask [rows, S] -> per row: first and last + 1 position that is not -inf, and whether all between are 0. */
static void run_mask_range(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct mask_rows *p = s->params;
    int64_t n_rows = p->n_rows, n = p->n, begin, end;
    const float *mask = value_pointer(r, &s->in[0]);
    int32_t *range = value_pointer(r, &s->out[0]); /* [3][rows] */
    pool_split(n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        const float *m = mask + row * p->stride;
        int64_t first = 0, last = n;
        bool zero = true;
        while (last > 0 && m[last - 1] == -INFINITY)
            last--;
        while (first < last && m[first] == -INFINITY)
            first++;
        for (int64_t i = first; zero && i < last; i++)
            zero = m[i] == 0;
        range[row] = (int32_t)first;
        range[n_rows + row] = (int32_t)last;
        range[2 * n_rows + row] = zero;
    }
}

static struct value mask_range(struct compiler *c, const struct value *mask, int64_t n_rows, int64_t n,
                               int64_t stride)
{
    struct mask_range **seen = &c->mask_ranges[mask->storage % 256];
    for (const struct mask_range *m = *seen; m; m = m->next)
        if (m->mask_storage == mask->storage && m->mask_offset == mask->offset && m->n_rows == n_rows &&
            m->n == n && m->stride == stride)
            return m->range;
    int64_t dims[2] = {3, n_rows};
    struct mask_range *m = ARENA_NEW(c->scratch, struct mask_range);
    m->mask_storage = mask->storage;
    m->mask_offset = mask->offset;
    m->n_rows = n_rows;
    m->n = n;
    m->stride = stride;
    m->range = value_new(c, REPR_I32, 2, dims);
    m->next = *seen;
    *seen = m;
    struct mask_rows *p = ARENA_NEW(c->arena, struct mask_rows);
    *p = (struct mask_rows){.n_rows = n_rows, .n = n, .stride = stride};
    struct step *s = step_make(c, "mask range", run_mask_range, p, mask, 1, m->range);
    s->serial = n_rows * n < PARALLEL_ELEMS;
    return m->range;
}

/* ---- emit and run ---- */

struct attention {
    int64_t n_query_heads, n_kv_heads, n_rows, n_positions, d_k, d_v;
    int64_t q_head, q_row, y_head, y_row; /* strides in elements */
    int64_t k_head, k_row, v_head, v_row, mask_row;
    float scale;
};

/* Query rows in the order (KV head, query head of the group, token): a thread takes a range of them. */
static void run_attention(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct attention *p = s->params;
    const float *q = value_pointer(r, &s->in[0]), *mask = value_pointer(r, &s->in[3]);
    const f16 *k = value_pointer(r, &s->in[1]), *v = value_pointer(r, &s->in[2]);
    const int32_t *range = value_pointer(r, &s->in[4]);
    float *y = value_pointer(r, &s->out[0]), *scratch = run_scratch(r, i_thread);
    int64_t group = p->n_query_heads / p->n_kv_heads, per_kv = group * p->n_rows, begin, end;
    bool zero_mask = true;
    for (int64_t t = 0; t < p->n_rows; t++)
        zero_mask = zero_mask && range[2 * p->n_rows + t];
    pool_split(p->n_kv_heads * per_kv, 1, i_thread, n_threads, &begin, &end);
    while (begin < end) {
        int64_t kv = begin / per_kv, g = begin % per_kv / p->n_rows, t = begin % p->n_rows,
                head = kv * group + g, n;
        const f16 *kh = k + kv * p->k_head, *vh = v + kv * p->v_head;
        if (p->n_rows == 1) { /* decode: the query heads of a group are the rows */
            int32_t first[64], last[64];
            n = (kv + 1) * per_kv < end ? (kv + 1) * per_kv - begin : end - begin;
            if (n > 64)
                n = 64;
            for (int64_t i = 0; i < n; i++) {
                first[i] = range[0];
                last[i] = range[1];
            }
            r->k->attention_f16(y + head * p->y_head, p->y_head, q + head * p->q_head, p->q_head, n, kh,
                                p->k_row, vh, p->v_row, p->d_k, p->d_v, first, last, zero_mask ? NULL : mask,
                                0, p->scale, scratch);
        } else {
            n = p->n_rows - t < end - begin ? p->n_rows - t : end - begin;
            r->k->attention_f16(y + head * p->y_head + t * p->y_row, p->y_row,
                                q + head * p->q_head + t * p->q_row, p->q_row, n, kh, p->k_row, vh, p->v_row,
                                p->d_k, p->d_v, range + t, range + p->n_rows + t,
                                zero_mask ? NULL : mask + t * p->mask_row, p->mask_row, p->scale, scratch);
        }
        begin += n;
    }
}

/* Keys and values as rows of fp16 with unit stride: the state's own memory where it is that; else a copy, which
 * is exact, as what was read from a state is fp16. */
static void cache_rows(struct compiler *c, struct value *v)
{
    if (v->repr == REPR_F16 && (v->dims[v->rank - 1] == 1 || v->strides[v->rank - 1] == 1))
        return;
    struct value y = value_new(c, REPR_F16, v->rank, v->dims);
    emit_copy(c, v, &y);
    *v = y;
}

static bool emit_attention(struct compiler *c, const struct fused *f)
{
    const struct attention_scale *own = f->own;
    struct attention *p = ARENA_NEW(c->arena, struct attention);
    struct value x[4]; /* q [1, nq, T, d], k, v [.., nkv, S, d], mask [1, 1, T, S] */
    const struct mil_type *t = var_type(c, f->out);
    for (int i = 0; i < 4; i++) {
        if (!fused_operand(c, f, i, &x[i]))
            return false;
    }
    const struct value *k = &x[1], *v = &x[2];
    cache_rows(c, &x[1]);
    cache_rows(c, &x[2]);
    if (!to_f32(c, &x[0]) || !to_f32(c, &x[3]) || !to_dense(c, &x[3]))
        return false;
    to_unit_rows(c, &x[0]);
    p->n_query_heads = x[0].dims[1];
    p->n_rows = x[0].dims[2];
    p->d_k = x[0].dims[3];
    p->n_kv_heads = k->dims[k->rank - 3];
    p->n_positions = k->dims[k->rank - 2];
    p->d_v = v->dims[v->rank - 1];
    p->scale = (float)own->scale;
    p->q_head = x[0].strides[1];
    p->q_row = x[0].strides[2];
    p->k_head = k->strides[k->rank - 3];
    p->k_row = k->strides[k->rank - 2];
    p->v_head = v->strides[v->rank - 3];
    p->v_row = v->strides[v->rank - 2];
    p->mask_row = p->n_positions;
    struct value range = mask_range(c, &x[3], p->n_rows, p->n_positions, p->mask_row);
    /* Tokens outside, heads inside: what the output projection reads. */
    struct value y = value_new(c, REPR_F32, 4, t->dims);
    y.strides[3] = 1;
    y.strides[1] = p->d_v;
    y.strides[2] = p->d_v * p->n_query_heads;
    y.strides[0] = y.strides[2] * p->n_rows;
    p->y_head = y.strides[1];
    p->y_row = y.strides[2];
    struct step *s = step_new(c, "attention", run_attention);
    s->params = p;
    s->serial = false;
    s->work =
        (double)p->n_query_heads * (double)p->n_rows * (double)p->n_positions * (double)(p->d_k + p->d_v);
    int64_t rows = p->n_rows > 1 ? p->n_rows : p->n_query_heads / p->n_kv_heads;
    s->scratch_bytes = KERNEL_ATTENTION_SCRATCH(p->n_positions, rows, p->d_k, p->d_v) * sizeof(float);
    for (int i = 0; i < 4; i++)
        step_in(c, s, x[i]);
    step_in(c, s, range);
    step_out(c, s, y);
    set_var(c, f->out, y);
    return true;
}
