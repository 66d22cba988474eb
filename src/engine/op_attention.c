/* Fused steps of a decoder: attention over a cache in place, rotary embedding, gated SiLU.
 *
 * Attention reads only positions that the mask leaves: the range of each row is found once per call and mask.
 */
#include <math.h>
#include <string.h>
#include "engine/engine_int.h"

/* ---- the mask's ranges ---- */

/* mask [rows, S] -> per row: first and last + 1 position that is not -inf, and whether all between are 0. */
static void run_mask_range(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    int64_t n_rows = s->i[0], n = s->i[1], stride = s->i[2], begin, end;
    const float *mask = value_pointer(r, &s->in[0]);
    int32_t *range = value_pointer(r, &s->out[0]); /* [3][rows] */
    pool_split(n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        const float *m = mask + row * stride;
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
    struct step *s = step_new(c, "mask range", run_mask_range);
    s->i[0] = n_rows;
    s->i[1] = n;
    s->i[2] = stride;
    s->serial = n_rows * n < PARALLEL_ELEMS;
    step_in(c, s, *mask);
    step_out(c, s, m->range);
    return m->range;
}

/* ---- attention ---- */

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

static bool unit_rows(struct compiler *c, struct value *v)
{
    int last = v->rank - 1;
    if (v->dims[last] == 1 || v->strides[last] == 1)
        return true;
    struct value y = value_new(c, v->repr, v->rank, v->dims);
    emit_copy(c, v, &y);
    *v = y;
    return true;
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

bool emit_attention(struct compiler *c, const struct fused *f)
{
    struct attention *p = ARENA_NEW(c->arena, struct attention);
    struct value x[4]; /* q [1, nq, T, d], k, v [.., nkv, S, d], mask [1, 1, T, S] */
    const struct mil_type *t = var_type(c, f->out);
    for (int i = 0; i < 4; i++) {
        struct mil_binding b = {.var = f->in[i]};
        if (!operand_binding(c, &b, &x[i]))
            return false;
    }
    const struct value *k = &x[1], *v = &x[2];
    cache_rows(c, &x[1]);
    cache_rows(c, &x[2]);
    if (!to_f32(c, &x[0]) || !unit_rows(c, &x[0]) || !to_f32(c, &x[3]) || !to_dense(c, &x[3]))
        return false;
    p->n_query_heads = x[0].dims[1];
    p->n_rows = x[0].dims[2];
    p->d_k = x[0].dims[3];
    p->n_kv_heads = k->dims[k->rank - 3];
    p->n_positions = k->dims[k->rank - 2];
    p->d_v = v->dims[v->rank - 1];
    p->scale = (float)f->scale;
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
    int64_t rows = p->n_rows > 1 ? p->n_rows : 64;
    s->scratch_bytes = KERNEL_ATTENTION_SCRATCH(p->n_positions, rows) * sizeof(float);
    for (int i = 0; i < 4; i++)
        step_in(c, s, x[i]);
    step_in(c, s, range);
    step_out(c, s, y);
    set_var(c, f->out, y);
    return true;
}

/* ---- rotary embedding ---- */

struct rope {
    int64_t n_heads, n_rows, d, pairs, half;
    int64_t x_head, x_row, y_head, y_row, table_row;
};

static void run_rope(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct rope *p = s->params;
    const float *x = value_pointer(r, &s->in[0]), *cos_rows = value_pointer(r, &s->in[1]),
                *sin_rows = value_pointer(r, &s->in[2]);
    float *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_rows * p->n_heads, 1, i_thread, n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / p->n_heads, h = i % p->n_heads;
        r->k->rope(y + h * p->y_head + t * p->y_row, x + h * p->x_head + t * p->x_row,
                   cos_rows + t * p->table_row, sin_rows + t * p->table_row, p->pairs, p->half, p->d);
    }
}

bool emit_rope(struct compiler *c, const struct fused *f)
{
    struct rope *p = ARENA_NEW(c->arena, struct rope);
    struct value x[3]; /* x [1, n, T, d]; cos, sin [1, 1, T, pairs] */
    for (int i = 0; i < 3; i++) {
        struct mil_binding b = {.var = f->in[i]};
        if (!operand_binding(c, &b, &x[i]) || !to_f32(c, &x[i]) || (i > 0 && !to_dense(c, &x[i])))
            return false;
    }
    if (!unit_rows(c, &x[0]))
        return false;
    struct value y = value_new_like(c, REPR_F32, 4, x[0].dims, &x[0]);
    if (y.dims[3] != 1 && y.strides[3] != 1)
        y = value_new(c, REPR_F32, 4, x[0].dims);
    p->n_heads = x[0].dims[1];
    p->n_rows = x[0].dims[2];
    p->d = x[0].dims[3];
    p->pairs = f->pairs;
    p->half = f->half;
    p->x_head = x[0].strides[1];
    p->x_row = x[0].strides[2];
    p->y_head = y.strides[1];
    p->y_row = y.strides[2];
    p->table_row = f->pairs;
    struct step *s = step_new(c, "rope", run_rope);
    s->params = p;
    s->serial = value_elems(&y) < PARALLEL_ELEMS;
    for (int i = 0; i < 3; i++)
        step_in(c, s, x[i]);
    step_out(c, s, y);
    set_var(c, f->out, y);
    return true;
}

/* ---- silu(x) * up ---- */

struct silu_mul {
    int rank;
    int64_t dims[MIL_RANK_MAX];
    int64_t strides[3][MIL_RANK_MAX]; /* y, x, up: unit stride in the last axis */
};

static void run_silu_mul(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct silu_mul *p = s->params;
    const float *x = value_pointer(r, &s->in[0]), *up = s->n_in > 1 ? value_pointer(r, &s->in[1]) : NULL;
    float *y = value_pointer(r, &s->out[0]);
    int inner = p->rank - 1;
    int64_t n_rows = 1, begin, end;
    for (int i = 0; i < inner; i++)
        n_rows *= p->dims[i];
    if (n_rows == 1) {
        pool_split(p->dims[inner], 64, i_thread, n_threads, &begin, &end);
        if (end > begin)
            r->k->silu_mul(y + begin, x + begin, up ? up + begin : NULL, end - begin);
        return;
    }
    pool_split(n_rows, 1, i_thread, n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int64_t at[3] = {0}, rest = row;
        for (int i = inner - 1; i >= 0; i--) {
            int64_t k = rest % p->dims[i];
            rest /= p->dims[i];
            for (int j = 0; j < 3; j++)
                at[j] += k * p->strides[j][i];
        }
        r->k->silu_mul(y + at[0], x + at[1], up ? up + at[2] : NULL, p->dims[inner]);
    }
}

bool emit_silu_mul(struct compiler *c, const struct fused *f)
{
    struct silu_mul *p = ARENA_NEW(c->arena, struct silu_mul);
    struct value x[2];
    int n = f->in[1] ? 2 : 1;
    for (int i = 0; i < n; i++) {
        struct mil_binding b = {.var = f->in[i]};
        if (!operand_binding(c, &b, &x[i]) || !to_f32(c, &x[i]))
            return false;
    }
    struct value y = value_new_like(c, REPR_F32, x[0].rank, x[0].dims, &x[0]);
    int order[MIL_RANK_MAX];
    axes_by_stride(&y, order);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < y.rank; i++) {
            p->dims[i] = y.dims[order[i]];
            p->strides[0][i] = y.strides[order[i]];
            p->strides[1][i] = x[0].strides[order[i]];
            p->strides[2][i] = x[n - 1].strides[order[i]];
        }
        p->rank = coalesce(y.rank, p->dims, 3, p->strides);
        bool unit = true;
        for (int j = 0; j < 3; j++)
            unit = unit && (p->dims[p->rank - 1] == 1 || p->strides[j][p->rank - 1] == 1);
        if (unit)
            break;
        for (int i = 0; i < n; i++) { /* an unusual layout: bring both into the result's */
            struct value same = value_new(c, REPR_F32, y.rank, y.dims);
            memcpy(same.strides, y.strides, sizeof same.strides);
            emit_copy(c, &x[i], &same);
            x[i] = same;
        }
    }
    struct step *s = step_new(c, n == 2 ? "silu mul" : "silu", run_silu_mul);
    s->params = p;
    s->serial = value_elems(&y) < 4096;
    for (int i = 0; i < n; i++)
        step_in(c, s, x[i]);
    step_out(c, s, y);
    set_var(c, f->out, y);
    return true;
}

/* ---- the gated delta rule ---- */

struct delta {
    int64_t n_heads, n_tokens, d_k, d_v;
    int64_t q_head, q_row, k_head, k_row, v_head, v_row, y_head, y_row;
    int64_t g_head, g_row, beta_head, beta_row, state_head;
    float inverse_d_k, scale;
};

/* Threads split the columns of all heads put together: a column's recurrence needs no other column. */
static void run_gated_delta(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct delta *p = s->params;
    const float *q = value_pointer(r, &s->in[0]), *k = value_pointer(r, &s->in[1]),
                *v = value_pointer(r, &s->in[2]), *g = value_pointer(r, &s->in[3]),
                *beta = value_pointer(r, &s->in[4]);
    float *state = value_pointer(r, &s->out[1]), *y = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_heads * p->d_v, 32, i_thread, n_threads, &begin, &end);
    while (begin < end) {
        int64_t h = begin / p->d_v, from = begin % p->d_v,
                to = end - h * p->d_v < p->d_v ? end - h * p->d_v : p->d_v;
        const struct gated_delta head = {.y = y + h * p->y_head,
                                         .state = state + h * p->state_head,
                                         .q = q + h * p->q_head,
                                         .k = k + h * p->k_head,
                                         .v = v + h * p->v_head,
                                         .g = g + h * p->g_head,
                                         .beta = beta + h * p->beta_head,
                                         .y_stride = p->y_row,
                                         .state_stride = p->d_v,
                                         .q_stride = p->q_row,
                                         .k_stride = p->k_row,
                                         .v_stride = p->v_row,
                                         .g_stride = p->g_row,
                                         .beta_stride = p->beta_row,
                                         .n_tokens = p->n_tokens,
                                         .d_k = p->d_k,
                                         .inverse_d_k = p->inverse_d_k,
                                         .scale = p->scale};
        r->k->gated_delta(&head, from, to);
        begin = h * p->d_v + to;
    }
}

bool emit_gated_delta(struct compiler *c, const struct fused *f)
{
    struct delta *p = ARENA_NEW(c->arena, struct delta);
    struct value
        x[6]; /* q, k [1, n, T, d_k], v [1, n, T, d_v], g, beta [1, n, T, 1], state [rows, d_k, d_v] */
    for (int i = 0; i < 6; i++) {
        struct mil_binding b = {.var = f->in[i]};
        if (!operand_binding(c, &b, &x[i]) || (i < 5 && !to_f32(c, &x[i])) || (i < 3 && !unit_rows(c, &x[i])))
            return false;
    }
    if (x[5].repr != REPR_F32 || c->plan->storages[x[5].storage].kind != STORAGE_STATE)
        return compile_fail(c, ERR_BUG, "the gated delta rule on a state that is not held as float32");
    p->n_heads = x[0].dims[1];
    p->n_tokens = x[0].dims[2];
    p->d_k = x[0].dims[3];
    p->d_v = x[2].dims[3];
    p->q_head = x[0].strides[1];
    p->q_row = x[0].strides[2];
    p->k_head = x[1].strides[1];
    p->k_row = x[1].strides[2];
    p->v_head = x[2].strides[1];
    p->v_row = x[2].strides[2];
    p->g_head = x[3].strides[1];
    p->g_row = x[3].strides[2];
    p->beta_head = x[4].strides[1];
    p->beta_row = x[4].strides[2];
    p->inverse_d_k = (float)f->eps;
    p->scale = (float)f->scale;
    p->state_head = p->d_k * p->d_v;
    struct value state = x[5];
    state.offset += f->slot * p->state_head;
    state.dims[0] = p->n_heads;
    /* Tokens outside, heads inside: what the norm and the projection read. */
    struct value y = value_new(c, REPR_F32, 4, x[2].dims);
    y.strides[3] = 1;
    y.strides[1] = p->d_v;
    y.strides[2] = p->d_v * p->n_heads;
    y.strides[0] = y.strides[2] * p->n_tokens;
    p->y_head = y.strides[1];
    p->y_row = y.strides[2];
    struct step *s = step_new(c, "gated delta", run_gated_delta);
    s->params = p;
    s->work = 4.0 * (double)p->n_heads * (double)p->n_tokens * (double)p->d_k * (double)p->d_v;
    s->serial = false;
    for (int i = 0; i < 5; i++)
        step_in(c, s, x[i]);
    step_out(c, s, y);
    step_out(c, s, state);
    set_var(c, f->out, y);
    return true;
}
