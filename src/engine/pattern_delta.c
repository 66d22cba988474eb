/* The pattern of the gated delta rule, in both of its written forms. Of one token, with the heads' state S [d_k, d_v]:
 *
 *     S = S * exp(g)
 *     S = S + k^T ((v - (k / d_k) S) * beta)
 *     y = (q * scale) S
 *
 * and of chunks of tokens by the WY representation, where (I + A)^-1 is computed by block doubling under mask constants.
 * Around both: the state's rows are cut out of read_state(s) and written back by slice_update and write_state.
 *
 * Both forms compute the same recurrence and differ in rounding alone; taken as one step that is the token recurrence,
 * prefill and infer give the same bits. Every op and every mask constant of the form is checked. */
#include <string.h>
#include "engine/match.h"

struct delta_rule {
    double inverse_d_k, scale;
    int64_t slot; /* first row of the state's slice */
};

/* x * number, by the op or its mirror */
static bool scaled(struct match *m, struct mil_var *v, struct mil_var **x, double *factor)
{
    const struct mil_op *op = match_member(m, v, MIL_OP_MUL);
    return op && match_var_and_number(m->c, op, x, factor);
}

static bool two(struct match *m, struct mil_var *v, enum mil_op_id id, struct mil_var **x, struct mil_var **y)
{
    const struct mil_op *op = match_member(m, v, id);
    *x = op ? mil_arg_var(op, "x") : NULL;
    *y = op ? mil_arg_var(op, "y") : NULL;
    return *x && *y;
}

/* v = x * y where one of them is `known` */
static bool times(struct match *m, struct mil_var *v, const struct mil_var *known, struct mil_var **other)
{
    struct mil_var *x, *y;
    if (!two(m, v, MIL_OP_MUL, &x, &y))
        return false;
    *other = x == known ? y : x;
    return x == known || y == known;
}

static bool product(struct match *m, struct mil_var *v, bool transpose_x, bool transpose_y,
                    struct mil_var **x, struct mil_var **y)
{
    int64_t tx = 0, ty = 0;
    int n = 1;
    if (!two(m, v, MIL_OP_MATMUL, x, y))
        return false;
    const struct mil_op *op = graph_def(&m->c->g, v);
    match_ints(m->c, op, "transpose_x", &tx, &n);
    n = 1;
    match_ints(m->c, op, "transpose_y", &ty, &n);
    return (tx != 0) == transpose_x && (ty != 0) == transpose_y;
}

static bool unary(struct match *m, struct mil_var *v, enum mil_op_id id, struct mil_var **x)
{
    const struct mil_op *op = match_member(m, v, id);
    *x = op ? mil_arg_var(op, "x") : NULL;
    return *x != NULL;
}

/* ---- masks ---- */

enum mask { THROUGH, BEFORE, IDENTITY, LEVEL };

static bool compare_mask(int64_t size, const struct mil_value *k, enum mask kind, int64_t block)
{
    for (int64_t i = 0; i < size; i++) {
        for (int64_t j = 0; j < size; j++) {
            bool one = kind == THROUGH  ? j <= i
                       : kind == BEFORE ? j < i
                       : kind == IDENTITY
                           ? i == j
                           : i / (2 * block) == j / (2 * block) && i / block % 2 == 1 && j / block % 2 == 0;
            if (mil_value_element(k, i * size + j) != (one ? 1.0 : 0.0))
                return false;
        }
    }
    return true;
}

/* The C x C mask of chunks of C tokens. Each constant is looked through once a question, however many ops ask. */
static bool is_mask(const struct match *m, const struct mil_var *v, int64_t size, enum mask kind,
                    int64_t block)
{
    struct compiler *c = m->c;
    const struct mil_value *k = c->consts[v->id];
    if (!k || size < 1 || k->n_elems / size != size || k->n_elems % size != 0 || k->type->rank < 2 ||
        k->type->dims[k->type->rank - 1] != size || k->type->dims[k->type->rank - 2] != size)
        return false;
    size_t slot = ((uintptr_t)k >> 4) % (sizeof c->masks / sizeof *c->masks);
    for (const struct mask_verdict *seen = c->masks[slot]; seen; seen = seen->next)
        if (seen->mask == k && seen->kind == (int)kind && seen->block == block)
            return seen->holds;
    struct mask_verdict *verdict = ARENA_NEW(c->scratch, struct mask_verdict);
    *verdict = (struct mask_verdict){.mask = k,
                                     .kind = (int)kind,
                                     .block = block,
                                     .holds = compare_mask(size, k, kind, block),
                                     .next = c->masks[slot]};
    c->masks[slot] = verdict;
    return verdict->holds;
}

static bool times_mask(struct match *m, struct mil_var *v, int64_t size, enum mask kind, int64_t block,
                       struct mil_var **x)
{
    struct mil_var *a, *b;
    if (!two(m, v, MIL_OP_MUL, &a, &b))
        return false;
    *x = is_mask(m, b, size, kind, block) ? a : b;
    return is_mask(m, b, size, kind, block) || is_mask(m, a, size, kind, block);
}

/* ---- the form of one token ---- */

struct rule {
    struct mil_var *q, *k, *v, *g, *beta, *state, *out;
    double unit, scale;
};

static bool match_token(struct match *m, struct mil_var *next, struct rule *r)
{
    struct mil_var *decayed, *outer, *change, *k2, *minus, *recalled, *scaled_k, *decayed2, *exp_g, *s;
    if (!two(m, next, MIL_OP_ADD, &decayed, &outer) || !product(m, outer, true, false, &r->k, &change) ||
        !two(m, decayed, MIL_OP_MUL, &r->state, &exp_g))
        return false;
    if (!match_def(m->c, exp_g, MIL_OP_EXP)) {
        s = exp_g;
        exp_g = r->state;
        r->state = s;
    }
    if (!unary(m, exp_g, MIL_OP_EXP, &r->g) || !two(m, change, MIL_OP_MUL, &minus, &r->beta))
        return false;
    if (!match_def(m->c, minus, MIL_OP_SUB)) {
        s = minus;
        minus = r->beta;
        r->beta = s;
    }
    if (!two(m, minus, MIL_OP_SUB, &r->v, &recalled) ||
        !product(m, recalled, false, false, &scaled_k, &decayed2) || decayed2 != decayed ||
        !scaled(m, scaled_k, &k2, &r->unit) || k2 != r->k)
        return false;
    /* The other look at the new state: the output. */
    for (const struct use *u = m->c->g.uses[next->id]; u; u = u->next) {
        const struct mil_op *op = u->op < m->c->g.n_ops ? m->c->g.ops[u->op] : NULL;
        struct mil_var *scaled_q, *s2;
        if (!op || !op->info || op->info->id != MIL_OP_MATMUL)
            continue;
        r->out = op->outputs[0];
        return product(m, r->out, false, false, &scaled_q, &s2) && s2 == next &&
               scaled(m, scaled_q, &r->q, &r->scale);
    }
    return false;
}

/* ---- the form of chunks ---- */

/* What the chunks share: [n_v, n, C, ..]. */
struct chunked {
    int64_t size;                                 /* tokens of a chunk */
    struct mil_var *q, *k, *v, *g, *beta;         /* reshaped */
    struct mil_var *u, *w, *query, *key, *inside; /* of all chunks */
    struct mil_var *from_start, *decay;
};

/* v is chunk i of x: x itself when there is one chunk. */
static bool nth(struct match *m, struct mil_var *v, int64_t i, int64_t n, struct mil_var **x)
{
    if (n == 1) {
        *x = v;
        return true;
    }
    const struct mil_op *op = match_member(m, v, MIL_OP_SLICE_BY_INDEX);
    int64_t begin[MIL_RANK_MAX];
    int k = MIL_RANK_MAX;
    *x = op ? mil_arg_var(op, "x") : NULL;
    return *x && match_ints(m->c, op, "begin", begin, &k) && k == 4 && begin[0] == 0 && begin[1] == i &&
           begin[2] == 0 && begin[3] == 0 && var_type(m->c, *x)->rank == 4 &&
           var_type(m->c, *x)->dims[1] == n && var_type(m->c, v)->dims[1] == 1 &&
           var_type(m->c, v)->dims[0] == var_type(m->c, *x)->dims[0] &&
           var_type(m->c, v)->dims[2] == var_type(m->c, *x)->dims[2] &&
           var_type(m->c, v)->dims[3] == var_type(m->c, *x)->dims[3];
}

static bool same_or_first(struct mil_var **slot, struct mil_var *v)
{
    if (!*slot)
        *slot = v;
    return *slot == v;
}

/* The last of the C rows of axis 2. */
static bool last_row(struct match *m, struct mil_var *v, struct mil_var **x)
{
    const struct mil_op *op = match_member(m, v, MIL_OP_SLICE_BY_INDEX);
    int64_t begin[MIL_RANK_MAX];
    int n = MIL_RANK_MAX;
    *x = op ? mil_arg_var(op, "x") : NULL;
    return *x && var_type(m->c, *x)->rank == 4 && match_ints(m->c, op, "begin", begin, &n) && n == 4 &&
           begin[2] == var_type(m->c, *x)->dims[2] - 1 && begin[0] == 0 && begin[1] == 0 && begin[3] == 0 &&
           var_type(m->c, v)->dims[2] == 1 && var_type(m->c, v)->dims[1] == var_type(m->c, *x)->dims[1] &&
           var_type(m->c, v)->dims[0] == var_type(m->c, *x)->dims[0] &&
           var_type(m->c, v)->dims[3] == var_type(m->c, *x)->dims[3];
}

/* State after chunk i out of the state before it; and the chunk's output. */
static bool match_chunk(struct match *m, struct chunked *t, int64_t i, int64_t n, struct mil_var *next,
                        struct mil_var *output, struct mil_var **before)
{
    struct mil_var *kept, *outer, *whole, *rows, *key_i, *change, *u_i, *recalled, *w_i, *s2, *x, *a, *b,
        *q_i, *s3, *inside_i, *change2;
    if (!two(m, next, MIL_OP_ADD, &kept, &outer) || !product(m, outer, true, false, &key_i, &change) ||
        !two(m, kept, MIL_OP_MUL, before, &whole))
        return false;
    if (!last_row(m, whole, &rows) || !nth(m, rows, i, n, &x) || !same_or_first(&t->from_start, x) ||
        !nth(m, key_i, i, n, &x) || !same_or_first(&t->key, x))
        return false;
    if (!two(m, change, MIL_OP_SUB, &u_i, &recalled) || !product(m, recalled, false, false, &w_i, &s2) ||
        s2 != *before || !nth(m, u_i, i, n, &x) || !same_or_first(&t->u, x) || !nth(m, w_i, i, n, &x) ||
        !same_or_first(&t->w, x))
        return false;
    return two(m, output, MIL_OP_ADD, &a, &b) && product(m, a, false, false, &q_i, &s3) && s3 == *before &&
           product(m, b, false, false, &inside_i, &change2) && change2 == change && nth(m, q_i, i, n, &x) &&
           same_or_first(&t->query, x) && nth(m, inside_i, i, n, &x) && same_or_first(&t->inside, x);
}

/* x = (I + a)^-1 by block doubling: x_1 = I - a M_1; x_2b = x_b - x_b (a M_b) x_b. */
static bool match_inverse(struct match *m, int64_t size, struct mil_var *x, struct mil_var **a)
{
    struct mil_var *left, *right, *level, *inner, *x2, *x3, *a2;
    int64_t block = size / 2;
    *a = NULL;
    if (size == 1)
        return two(m, x, MIL_OP_SUB, &left, a) && is_mask(m, left, size, IDENTITY, 0);
    for (; block > 1; block /= 2) {
        if (!two(m, x, MIL_OP_SUB, &left, &right) || !product(m, right, false, false, &inner, &x2) ||
            x2 != left || !product(m, inner, false, false, &x3, &level) || x3 != left ||
            !times_mask(m, level, size, LEVEL, block, &a2) || !same_or_first(a, a2))
            return false;
        x = left;
    }
    return two(m, x, MIL_OP_SUB, &left, &level) && is_mask(m, left, size, IDENTITY, 0) &&
           times_mask(m, level, size, LEVEL, 1, &a2) && same_or_first(a, a2);
}

/* All that is computed before the chunks, down to the reshaped operands. */
static bool match_shared(struct match *m, struct chunked *t, struct rule *r)
{
    struct mil_var *terms, *sums, *exp_sums, *after, *x, *y, *inverse, *a, *scaled_q, *overlap, *masked, *kb,
        *to_end, *row;
    double unit2;
    const struct mil_op *reduce;
    int64_t axis;
    int n = 1;
    /* from_start = exp(sum over s of g_s, s <= i) */
    if (!unary(m, t->from_start, MIL_OP_EXP, &x) || !(reduce = match_member(m, x, MIL_OP_REDUCE_SUM)) ||
        !(terms = mil_arg_var(reduce, "x")) || !match_ints(m->c, reduce, "axes", &axis, &n) || n != 1 ||
        (axis != -1 && axis != 3) || !times_mask(m, terms, t->size, THROUGH, 0, &t->g))
        return false;
    /* inside = (q c) k^T * decay; decay = exp(terms * after) * through */
    if (!two(m, t->inside, MIL_OP_MUL, &x, &t->decay) || !product(m, x, false, true, &scaled_q, &t->k) ||
        !scaled(m, scaled_q, &t->q, &r->scale) || !times_mask(m, t->decay, t->size, THROUGH, 0, &exp_sums) ||
        !unary(m, exp_sums, MIL_OP_EXP, &sums) || !product(m, sums, false, false, &x, &after) || x != terms ||
        !is_mask(m, after, t->size, BEFORE, 0))
        return false;
    /* query = (q c) * from_start; key = k * to_end, to_end the last row of decay, transposed */
    if (!times(m, t->query, t->from_start, &x) || x != scaled_q || !times(m, t->key, t->k, &to_end) ||
        !unary(m, to_end, MIL_OP_TRANSPOSE, &row) || !last_row(m, row, &x) || x != t->decay)
        return false;
    /* u = X (v * beta); w = X (k * beta * from_start) * unit */
    if (!product(m, t->u, false, false, &inverse, &x) || !two(m, x, MIL_OP_MUL, &t->v, &t->beta) ||
        !scaled(m, t->w, &x, &r->unit) || !product(m, x, false, false, &y, &a) || y != inverse ||
        !times(m, a, t->from_start, &kb) || !times(m, kb, t->k, &x))
        return false;
    if (x != t->beta) { /* v * beta was written the other way round */
        struct mil_var *swap = t->beta;
        t->beta = t->v;
        t->v = swap;
    }
    if (x != t->beta || !match_inverse(m, t->size, inverse, &a))
        return false;
    /* a = (k k^T * unit * beta) * (decay * before) */
    if (!two(m, a, MIL_OP_MUL, &x, &masked) || !times(m, x, t->beta, &overlap) ||
        !scaled(m, overlap, &y, &unit2) || unit2 != r->unit || !product(m, y, false, true, &x, &row) ||
        x != t->k || row != t->k || !times_mask(m, masked, t->size, BEFORE, 0, &x) || x != t->decay)
        return false;
    return true;
}

static bool match_chunks(struct match *m, struct mil_var *next, struct rule *r)
{
    struct chunked t = {0};
    struct mil_var *s, *before, *joined, *result;
    const struct mil_binding *outputs;
    struct mil_binding only;
    const struct mil_op *reshape = match_member(m, next, MIL_OP_RESHAPE), *concat, *last_add;
    int64_t n = 1;
    if (!reshape || !(s = mil_arg_var(reshape, "x")) || !(last_add = match_def(m->c, s, MIL_OP_ADD)))
        return false;
    /* The outputs: find the last chunk's by its change, which the last update uses too. */
    struct mil_var *outer = mil_arg_var(last_add, "y"), *change;
    const struct mil_op *outer_op = outer ? match_def(m->c, outer, MIL_OP_MATMUL) : NULL;
    if (!outer_op || !(change = mil_arg_var(outer_op, "y")))
        return false;
    result = NULL;
    for (const struct use *u = m->c->g.uses[change->id]; u; u = u->next) {
        const struct mil_op *op = u->op < m->c->g.n_ops ? m->c->g.ops[u->op] : NULL;
        if (!op || op == outer_op || !op->info || op->info->id != MIL_OP_MATMUL ||
            m->c->g.n_uses[op->outputs[0]->id] != 1)
            continue;
        int user = m->c->g.uses[op->outputs[0]->id]->op;
        if (user < m->c->g.n_ops && m->c->g.ops[user]->info && m->c->g.ops[user]->info->id == MIL_OP_ADD)
            result = m->c->g.ops[user]->outputs[0];
    }
    if (!result || m->c->g.n_uses[result->id] != 1 || m->c->g.uses[result->id]->op >= m->c->g.n_ops)
        return false;
    concat = m->c->g.ops[m->c->g.uses[result->id]->op];
    if (concat->info && concat->info->id == MIL_OP_CONCAT) {
        const struct mil_arg *values = mil_arg_find(concat, "values");
        n = values ? values->n : 0;
        if (n < 2)
            return false;
        outputs = values->bindings;
        for (int64_t i = 0; i < n; i++)
            if (!outputs[i].var)
                return false;
        joined = concat->outputs[0];
        match_add(m, graph_op_index(&m->c->g, joined));
        if (m->c->g.n_uses[joined->id] != 1 || m->c->g.uses[joined->id]->op >= m->c->g.n_ops)
            return false;
        concat = m->c->g.ops[m->c->g.uses[joined->id]->op];
    } else {
        only = (struct mil_binding){.var = result};
        outputs = &only;
        joined = result;
    }
    if (!concat->info || concat->info->id != MIL_OP_RESHAPE)
        return false;
    r->out = concat->outputs[0];
    match_add(m, graph_op_index(&m->c->g, r->out));
    const struct mil_type *t0 = var_type(m->c, outputs[0].var);
    if (t0->rank != 4 || t0->dims[2] < 1)
        return false;
    t.size = t0->dims[2];
    for (int64_t i = n - 1; i >= 0; i--) {
        if (!match_chunk(m, &t, i, n, s, outputs[i].var, &before))
            return false;
        s = before;
    }
    if (!match_shared(m, &t, r) || !unary(m, s, MIL_OP_RESHAPE, &r->state) ||
        !unary(m, t.q, MIL_OP_RESHAPE, &r->q) || !unary(m, t.k, MIL_OP_RESHAPE, &r->k) ||
        !unary(m, t.v, MIL_OP_RESHAPE, &r->v) || !unary(m, t.g, MIL_OP_RESHAPE, &r->g) ||
        !unary(m, t.beta, MIL_OP_RESHAPE, &r->beta))
        return false;
    return true;
}

/* ---- the whole ---- */

static bool emit_gated_delta(struct compiler *c, const struct fused *f);

static bool shapes_fit(const struct match *m, const struct rule *r)
{
    const struct mil_type *q = var_type(m->c, r->q), *k = var_type(m->c, r->k), *v = var_type(m->c, r->v),
                          *g = var_type(m->c, r->g), *beta = var_type(m->c, r->beta),
                          *s = var_type(m->c, r->state), *y = var_type(m->c, r->out);
    if (q->rank != 4 || s->rank != 4 || !mil_type_equal(q, k) || v->rank != 4 || !mil_type_equal(y, v) ||
        g->rank != 4 || !mil_type_equal(g, beta))
        return false;
    int64_t heads = q->dims[1], tokens = q->dims[2];
    return q->dims[0] == 1 && s->dims[0] == 1 && s->dims[1] == heads && s->dims[2] == q->dims[3] &&
           s->dims[3] == v->dims[3] && v->dims[0] == 1 && v->dims[1] == heads && v->dims[2] == tokens &&
           g->dims[0] == 1 && g->dims[1] == heads && g->dims[2] == tokens && g->dims[3] == 1;
}

void pattern_delta(struct compiler *c, int i_update)
{
    const struct mil_op *update = c->g.ops[i_update];
    struct match m = match_begin(c);
    struct rule r = {0};
    int64_t begin[MIL_RANK_MAX], end[MIL_RANK_MAX], from[MIL_RANK_MAX];
    int n = MIL_RANK_MAX, n_end = MIL_RANK_MAX, n_from = MIL_RANK_MAX;
    struct mil_var *whole = mil_arg_var(update, "x"), *part = mil_arg_var(update, "update"), *next, *slice;
    const struct mil_op *read = match_def(c, whole, MIL_OP_READ_STATE);
    const struct mil_var *out = update->outputs[0];
    if (!read || !part || c->g.n_uses[out->id] != 1 || c->g.uses[out->id]->op >= c->g.n_ops)
        return;
    const struct mil_op *write = c->g.ops[c->g.uses[out->id]->op];
    struct mil_var *state = mil_arg_var(read, "input");
    if (!mil_op_is(write, "write_state") || mil_arg_var(write, "input") != state || !state ||
        !match_ints(c, update, "begin", begin, &n) || n != 3 || !match_ints(c, update, "end", end, &n_end) ||
        n_end != 3)
        return;
    match_add(&m, graph_op_index(&c->g, whole));
    match_add(&m, graph_op_index(&c->g, out));
    match_add(&m, c->g.uses[out->id]->op);
    /* The rule runs on a state that is held as float32. */
    if (!engine_state_is_recurrent(c->state_forms, state->name))
        return;
    if (!unary(&m, part, MIL_OP_SQUEEZE, &next) || c->g.n_uses[part->id] != 1 || c->g.n_uses[next->id] > 2)
        return; /* the new state goes into the update, and (the form of one token) into the output */
    int n_before = m.n;
    if (!match_token(&m, next, &r)) {
        match_drop(&m, n_before);
        memset(&r, 0, sizeof r);
        if (!match_chunks(&m, next, &r))
            return;
    }
    /* The state before: the same rows of the same read. */
    if (!unary(&m, r.state, MIL_OP_EXPAND_DIMS, &slice))
        return;
    const struct mil_op *cut = match_member(&m, slice, MIL_OP_SLICE_BY_INDEX);
    if (!cut || mil_arg_var(cut, "x") != whole || !match_ints(c, cut, "begin", from, &n_from) ||
        n_from != 3 || from[0] != begin[0] || from[1] != 0 || from[2] != 0 || begin[1] != 0 || begin[2] != 0)
        return;
    const struct mil_type *st = mil_type_tensor(var_type(c, state)), *cut_type = var_type(c, slice);
    if (!shapes_fit(&m, &r) || st->rank != 3 || st->dims[1] != cut_type->dims[1] ||
        st->dims[2] != cut_type->dims[2] || cut_type->dims[0] != var_type(c, r.q)->dims[1] ||
        !match_is_plain_slice(c, cut) || !match_is_plain_slice(c, update) || !match_is_closed(&m, r.out))
        return;
    int64_t slot = begin[0] < 0 ? begin[0] + st->dims[0] : begin[0]; /* counted from the end */
    if (slot < 0 || slot > st->dims[0] - cut_type->dims[0])
        return;
    /* The step runs where the output is made; nothing else may look at the state between there and the write. */
    for (int i = graph_op_index(&c->g, r.out); i < c->g.uses[out->id]->op; i++)
        if (mil_op_is(c->g.ops[i], "read_state") && mil_arg_var(c->g.ops[i], "input") == state &&
            c->g.ops[i] != read)
            return;
    struct delta_rule *own = ARENA_NEW(c->scratch, struct delta_rule);
    *own = (struct delta_rule){.inverse_d_k = r.unit, .scale = r.scale, .slot = slot};
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){
        .emit = emit_gated_delta, .out = r.out, .in = {r.q, r.k, r.v, r.g, r.beta, state}, .own = own};
    match_take(&m, f, graph_op_index(&c->g, r.out));
}

/* ---- emit and run ---- */

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

static bool emit_gated_delta(struct compiler *c, const struct fused *f)
{
    const struct delta_rule *own = f->own;
    struct delta *p = ARENA_NEW(c->arena, struct delta);
    struct value
        x[6]; /* q, k [1, n, T, d_k], v [1, n, T, d_v], g, beta [1, n, T, 1], state [rows, d_k, d_v] */
    for (int i = 0; i < 6; i++) {
        if (!fused_operand(c, f, i, &x[i]) || (i < 5 && !to_f32(c, &x[i])))
            return false;
        if (i < 3)
            to_unit_rows(c, &x[i]);
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
    p->inverse_d_k = (float)own->inverse_d_k;
    p->scale = (float)own->scale;
    p->state_head = p->d_k * p->d_v;
    struct value state = x[5];
    state.offset += own->slot * p->state_head;
    state.dims[0] = p->n_heads;
    /* Tokens outside, heads inside: what the norm and the projection read. */
    struct value y = value_new(c, REPR_F32, 4, x[2].dims);
    y.strides[3] = 1;
    y.strides[1] = p->d_v;
    y.strides[2] = p->d_v * p->n_heads;
    y.strides[0] = y.strides[2] * p->n_tokens;
    p->y_head = y.strides[1];
    p->y_row = y.strides[2];
    struct step *s = step_make(c, "gated delta", run_gated_delta, p, x, 5, y);
    s->work = 4.0 * (double)p->n_heads * (double)p->n_tokens * (double)p->d_k * (double)p->d_v;
    s->serial = false;
    step_out(c, s, state);
    set_var(c, f->out, y);
    return true;
}
