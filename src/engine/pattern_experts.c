/* The pattern of a mixture of experts that is evaluated densely; gate, up and down are 1x1 convolutions, the experts'
 * weights are 0 for those that were not chosen:
 *
 *     hidden = silu(gate(x)) * up(x)                         [1, experts * size, 1, T], all experts side by side
 *     scaled = reshape(hidden) * weights                     [1, experts, size, T] * [1, experts, 1, T]
 *     y      = down(reshape(scaled))
 *
 * Two steps: the hidden numbers of the chosen experts (zero elsewhere), and the down product, token by token, whose
 * kernels leave out columns that are zero. The same bits as computing all. */
#include <string.h>
#include "engine/match.h"

/* ---- match ---- */

/* v as the result of a 1x1 convolution with a constant weight; else NULL. */
static const struct mil_op *pointwise(const struct compiler *c, const struct mil_var *v)
{
    const struct mil_op *op = match_def(c, v, MIL_OP_CONV);
    const struct mil_arg *w = op ? mil_arg_find(op, "weight") : NULL;
    if (!w || w->n != 1 || mil_arg_find(op, "bias"))
        return NULL;
    const struct mil_value *k = mil_binding_value(&w->bindings[0]);
    const struct mil_type *t = k ? k->type : w->bindings[0].var ? var_type(c, w->bindings[0].var) : NULL;
    if (!t || (!k && !constexpr_of(c, w->bindings[0].var)) || t->rank != 4 || t->dims[2] != 1 ||
        t->dims[3] != 1 || !mil_dtype_is_float(t->dtype))
        return NULL;
    const struct mil_type *x = var_type(c, mil_arg_var(op, "x")), *y = var_type(c, v);
    return x && x->rank == 4 && x->dims[0] == 1 && x->dims[2] == 1 && x->dims[1] == t->dims[1] &&
                   y->dims[1] == t->dims[0] && y->dims[3] == x->dims[3]
               ? op
               : NULL;
}

static bool emit_experts(struct compiler *c, const struct fused *f);

void pattern_experts(struct compiler *c, int i_down)
{
    struct match m = match_begin(c);
    struct graph *g = &c->g;
    const struct mil_op *down = g->ops[i_down];
    const struct mil_op *flat = match_def(c, mil_arg_var(down, "x"), MIL_OP_RESHAPE);
    struct mil_var *scaled = flat ? mil_arg_var(flat, "x") : NULL;
    const struct mil_op *mul = match_def(c, scaled, MIL_OP_MUL);
    if (!mul || !pointwise(c, down->outputs[0]))
        return;
    struct mil_var *apart = mil_arg_var(mul, "x"), *weights = mil_arg_var(mul, "y");
    const struct mil_op *reshape = match_def(c, apart, MIL_OP_RESHAPE);
    struct mil_var *hidden = reshape ? mil_arg_var(reshape, "x") : NULL;
    int i_hidden = hidden ? graph_op_index(g, hidden) : -1;
    if (i_hidden < 0 || !weights || c->consts[weights->id] || !g->nodes[i_hidden].fused ||
        !fused_is_gated_silu(g->nodes[i_hidden].fused))
        return;
    const struct fused *silu = g->nodes[i_hidden].fused;
    const struct mil_op *gate = pointwise(c, silu->in[0]), *up = pointwise(c, silu->in[1]);
    const struct mil_type *t = var_type(c, apart), *w = var_type(c, weights), *h = var_type(c, hidden);
    if (!gate || !up || mil_arg_var(gate, "x") != mil_arg_var(up, "x") || t->rank != 4 || w->rank != 4 ||
        h->rank != 4 || t->dims[0] != 1 || w->dims[0] != 1 || w->dims[1] != t->dims[1] || w->dims[2] != 1 ||
        w->dims[3] != t->dims[3] || h->dims[1] != t->dims[1] * t->dims[2] || h->dims[3] != t->dims[3] ||
        t->dims[1] < 2)
        return;
    /* Nobody else looks inside. The gate has two or more uses, all in the fused silu. */
    const struct mil_var *inner[] = {hidden, apart, scaled, flat->outputs[0]};
    const int users[] = {graph_op_index(g, apart), graph_op_index(g, scaled),
                         graph_op_index(g, flat->outputs[0]), i_down};
    for (int i = 0; i < 4; i++)
        if (!graph_used_once_by(g, inner[i], users[i]))
            return;
    for (int i = 0; i < 2; i++)
        for (const struct use *u = g->uses[silu->in[i]->id]; u; u = u->next)
            if (u->op >= g->n_ops || !(g->nodes[u->op].absorbed || u->op == i_hidden))
                return;
    const int members[] = {
        graph_op_index(g, silu->in[0]), graph_op_index(g, silu->in[1]), users[0], users[1], users[2], i_down};
    for (int i = 0; i < 6; i++)
        match_add(&m, members[i]);
    if (!match_is_free(&m))
        return;
    struct fused *f = ARENA_NEW(c->scratch, struct fused);
    *f = (struct fused){.emit = emit_experts,
                        .out = down->outputs[0],
                        .in = {mil_arg_var(gate, "x"), silu->in[0], silu->in[1], weights}};
    g->nodes[i_hidden].fused = NULL;
    match_take(&m, f, i_down);
    g->nodes[i_hidden].absorbed = true;
}

/* ---- emit and run ---- */

/* Rows of an expert's projections that one piece of work computes. */
#define PIECE_ROWS 64

struct experts {
    int64_t n_tokens, n_experts, expert_size, n_in;
    int64_t x_stride, weight_token, weight_expert; /* strides of the experts' weights */
    struct weight_ref gate, up;
    size_t gathered_bytes, prepared_bytes, result_bytes; /* parts of the scratch, in this order */
};

static void run_zero(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    int64_t begin, end;
    pool_split(value_elems(&s->out[0]), 1024, i_thread, n_threads, &begin, &end);
    memset((float *)value_pointer(r, &s->out[0]) + begin, 0, (size_t)(end - begin) * sizeof(float));
}

/* Rows from .. to of expert e for the tokens that chose it. */
static void run_piece(const struct step *s, struct engine_run *r, int64_t e, int64_t from, int64_t to,
                      char *scratch)
{
    const struct experts *p = s->params;
    const float *x = value_pointer(r, &s->in[0]), *weights = value_pointer(r, &s->in[1]);
    float *h = value_pointer(r, &s->out[0]), *gathered = (float *)scratch;
    char *prepared = scratch + p->gathered_bytes;
    float *gate = (float *)(prepared + p->prepared_bytes), *up = gate + p->n_tokens * PIECE_ROWS;
    void *rest = (char *)gate + p->result_bytes;
    int64_t n = 0, rows = to - from, first = e * p->expert_size + from;
    for (int64_t t = 0; t < p->n_tokens; t++)
        if (weights[t * p->weight_token + e * p->weight_expert] != 0)
            memcpy(gathered + n++ * p->n_in, x + t * p->x_stride, (size_t)p->n_in * sizeof(float));
    const struct weight_ref *w[2] = {&p->gate, &p->up};
    float *out[2] = {gate, up};
    int bits = 0;
    for (int i = 0; i < 2; i++) {
        if (w[i]->fixed && w[i]->fixed->bits != bits) {
            bits = w[i]->fixed->bits;
            r->k->fixed_prepare(prepared, gathered, p->n_in, n, p->n_in, 0, n, bits);
        }
        weight_product(w[i], r->k, out[i] - first, rows, w[i]->fixed ? (const void *)prepared : gathered,
                       p->n_in, NULL, n, p->n_in, first, first + rows, rest);
    }
    n = 0;
    for (int64_t t = 0; t < p->n_tokens; t++) {
        const float *weight = &weights[t * p->weight_token + e * p->weight_expert];
        if (*weight == 0)
            continue;
        float *to_h = h + t * p->n_experts * p->expert_size + first;
        r->k->silu_mul(to_h, gate + n * rows, up + n * rows, rows);
        r->k->mul(to_h, to_h, weight, rows, 0);
        n++;
    }
}

static bool is_chosen(const struct experts *p, const float *weights, int64_t e)
{
    bool any = false;
    for (int64_t t = 0; t < p->n_tokens && !any; t++)
        any = weights[t * p->weight_token + e * p->weight_expert] != 0;
    return any;
}

/* Threads split the pieces of the chosen experts. */
static void run_experts(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct experts *p = s->params;
    const float *weights = value_pointer(r, &s->in[1]);
    int64_t n_chosen = 0, pieces = (p->expert_size + PIECE_ROWS - 1) / PIECE_ROWS, begin, end, at = 0;
    for (int64_t e = 0; e < p->n_experts; e++)
        n_chosen += is_chosen(p, weights, e);
    pool_split(n_chosen * pieces, 1, i_thread, n_threads, &begin, &end);
    for (int64_t e = 0; e < p->n_experts && at < end; e++) {
        if (!is_chosen(p, weights, e))
            continue;
        for (int64_t i = 0; i < pieces; i++, at++) {
            int64_t from = i * PIECE_ROWS,
                    to = from + PIECE_ROWS < p->expert_size ? from + PIECE_ROWS : p->expert_size;
            if (at >= begin && at < end)
                run_piece(s, r, e, from, to, run_scratch(r, i_thread));
        }
    }
}

/* ---- the down product, one token at a time ---- */

struct down {
    int64_t n_tokens, n_in, n_out;
    struct weight_ref w;
    size_t row_bytes; /* of one prepared row */
};

static void run_down_prepare(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct down *p = s->params;
    const float *x = value_pointer(r, &s->in[0]);
    char *to = value_pointer(r, &s->out[0]);
    int64_t begin, end;
    pool_split(p->n_tokens, 1, i_thread, n_threads, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        r->k->fixed_prepare(to + (size_t)t * p->row_bytes, x + t * p->n_in, p->n_in, 1, p->n_in, 0, 1,
                            p->w.fixed->bits);
}

static void run_down(const struct step *s, struct engine_run *r, int i_thread, int n_threads)
{
    const struct down *p = s->params;
    const char *x = value_pointer(r, &s->in[0]);
    float *y = value_pointer(r, &s->out[0]);
    size_t row_bytes = p->w.fixed ? p->row_bytes : (size_t)p->n_in * sizeof(float);
    int64_t begin, end;
    pool_split(p->n_out, 16, i_thread, n_threads, &begin, &end);
    for (int64_t t = 0; t < p->n_tokens && begin < end; t++)
        weight_product(&p->w, r->k, y + t * p->n_out, p->n_out, x + (size_t)t * row_bytes, p->n_in, NULL, 1,
                       p->n_in, begin, end, run_scratch(r, i_thread));
}

static size_t round_up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static bool emit_experts(struct compiler *c, const struct fused *f)
{
    struct experts *p = ARENA_NEW(c->arena, struct experts);
    struct down *d = ARENA_NEW(c->arena, struct down);
    const struct mil_op *gate = graph_def(&c->g, f->in[1]), *up = graph_def(&c->g, f->in[2]), *down = c->op;
    const struct mil_type *t = var_type(c, f->out), *w = var_type(c, f->in[3]);
    struct value x, weights;
    if (!fused_operand(c, f, 0, &x) || !to_f32(c, &x) || !fused_operand(c, f, 3, &weights) ||
        !to_f32(c, &weights) || !as_rows(c, &x, 1))
        return false;
    p->n_tokens = x.dims[0];
    p->n_in = x.dims[1];
    p->x_stride = x.strides[0];
    p->n_experts = w->dims[1];
    p->weight_expert = weights.strides[1];
    p->weight_token = weights.strides[3];
    d->n_in = var_type(c, f->in[1])->dims[1];
    p->expert_size = d->n_in / p->n_experts;
    d->n_tokens = p->n_tokens;
    d->n_out = t->dims[1];
    if (!weight_ref_of(c, gate, d->n_in, p->n_in, &p->gate) ||
        !weight_ref_of(c, up, d->n_in, p->n_in, &p->up) || !weight_ref_of(c, down, d->n_out, d->n_in, &d->w))
        return false;
    p->gathered_bytes = round_up((size_t)p->n_tokens * (size_t)p->n_in * sizeof(float));
    p->prepared_bytes = round_up(c->plan->kernels->fixed_bytes(p->n_tokens, p->n_in));
    p->result_bytes = round_up((size_t)p->n_tokens * PIECE_ROWS * 2 * sizeof(float));
    int64_t dims[2] = {p->n_tokens, d->n_in};
    struct value h = value_new(c, REPR_F32, 2, dims);
    struct step *s = step_make(c, "zero", run_zero, NULL, NULL, 0, h);
    s->serial = value_elems(&h) < 65536;
    size_t product = weight_scratch_bytes(&p->gate, p->n_in, p->n_tokens);
    size_t product_up = weight_scratch_bytes(&p->up, p->n_in, p->n_tokens);
    size_t one = KERNEL_FIXED_SCRATCH(p->n_in, 1); /* a single row may need more than many do */
    product = product > product_up ? product : product_up;
    s = step_make(c, "experts", run_experts, p, (const struct value[]){x, weights}, 2, h);
    s->serial = false;
    s->work = 2.0 * (double)p->n_tokens * (double)d->n_in * (double)p->n_in;
    s->weight_bytes = p->gate.bytes + p->up.bytes;
    s->scratch_bytes =
        p->gathered_bytes + p->prepared_bytes + p->result_bytes + (product > one ? product : one);
    struct value in = h;
    if (d->w.fixed) {
        d->row_bytes = round_up(c->plan->kernels->fixed_bytes(1, d->n_in));
        int64_t words = (int64_t)(d->row_bytes * (size_t)d->n_tokens / 4);
        in = value_new(c, REPR_I32, 1, &words);
        s = step_make(c, "fixed point", run_down_prepare, d, &h, 1, in);
        s->serial = d->n_tokens == 1;
    }
    /* [1, O, 1, T] with tokens outside */
    struct value y = value_new(c, REPR_F32, 4, t->dims);
    y.strides[1] = 1;
    y.strides[3] = d->n_out;
    y.strides[2] = y.strides[0] = d->n_out * d->n_tokens;
    s = step_make(c, "experts down", run_down, d, &in, 1, y);
    s->serial = false;
    s->work = (double)d->n_tokens * (double)d->n_in * (double)d->n_out;
    s->weight_bytes = d->w.bytes;
    s->scratch_bytes = weight_scratch_bytes(&d->w, d->n_in, 1);
    set_var(c, f->out, y);
    return true;
}
