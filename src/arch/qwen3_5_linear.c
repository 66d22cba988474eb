/* Qwen3.5: the gated delta rule of linear attention layers.
 *
 * A value head's memory S [d_k, d_v] changes with every token: S = e^g S; S += k (beta (v - S^T k))^T; its
 * output is S^T q. infer is that recurrence; prefill computes chunks of tokens at once (the WY form), from
 * matrix products and elementwise operations only.
 *
 * Scales, all but the first exact powers of two or absorbed elsewhere: q and k are kept at a mean square of 1,
 * so the state is sqrt(d_k) S and its products stay clear of fp16's subnormal range. The recurrence then gives
 * c d_k^1.5 times the output, where c is a power of two near 1 / sqrt(d_k); the norm that follows gets an
 * epsilon scaled alike instead.
 */
#include <math.h>
#include <stdlib.h>
#include "arch/qwen3_5.h"

#define CHUNK_MAX 64
#define NORM_EPSILON 1e-6 /* of the normalization of q and k, inside the sum of squares */
/* Makes that epsilon representable in fp16: a row of zeros must give zeros, a NaN would stay in the state. */
#define PRESCALE 32.0

int64_t qwen3_5_chunk_size(const struct arch_settings *s)
{
    int64_t size = 1;
    if (s->gdn_chunk > 0)
        return s->gdn_chunk;
    while (size < CHUNK_MAX && s->batch_size % (2 * size) == 0)
        size *= 2;
    return size;
}

/* c: a power of two near 1 / sqrt(d_k) */
static double query_scale(int64_t d_k)
{
    return pow(2.0, -floor(log2((double)d_k) / 2));
}

/* ---- weights and constants ---- */

/* [channels, 1, taps], or MLX's [channels, taps, 1]: the same numbers in the same order */
static const struct mil_value *conv_tap(struct mil_model *out, const struct st_tensor *conv, int64_t tap)
{
    int64_t n = conv->shape[0];
    struct arch_layout l = arch_layout_of(&conv, n, 1);
    l.offset = tap;
    l.row_stride = conv->n_elems / n;
    l.keep_fp16 = true;
    return arch_layout_weight(out, &l, 1, &n);
}

/* -exp(A_log) as [1, n_v, 1, 1] */
static const struct mil_value *decay_rate(struct mil_model *out, const struct st_tensor *a_log)
{
    int64_t dims[4] = {1, a_log->n_elems, 1, 1};
    struct arch_layout l = arch_layout_of(&a_log, 1, a_log->n_elems);
    l.transform = ARCH_MINUS_EXP;
    l.keep_fp16 = true;
    return arch_layout_weight(out, &l, 4, dims);
}

struct qwen3_5_linear_values qwen3_5_linear_values(const struct arch_model *m, const struct qwen3_5_linear *t,
                                                   struct mil_model *out)
{
    const struct qwen3_5 *q = m->own;
    struct qwen3_5_linear_values v = {.qkv = arch_linear(out, t->qkv, 1),
                                      .z = arch_linear(out, t->z, 1),
                                      .a = arch_linear(out, t->a, 1),
                                      .dt_bias = arch_vector(out, t->dt_bias, ARCH_KEEP),
                                      .b = arch_linear(out, t->b, 0.5),
                                      .decay = decay_rate(out, t->a_log),
                                      .norm = arch_vector(out, t->norm, ARCH_KEEP),
                                      .out = arch_linear(out, t->out, m->settings.residual_scale)};
    for (int64_t i = 0; i < q->kernel; i++)
        v.taps[i] = conv_tap(out, t->conv, i);
    return v;
}

enum mask { THROUGH, BEFORE, AFTER, IDENTITY, LEVEL };

/* [1, 1, size, size] of zeros and ones; block: of a level */
static const struct mil_value *mask_constant(struct mil_model *out, int64_t size, enum mask kind,
                                             int64_t block)
{
    f16 *mask = xcalloc((size_t)(size * size), sizeof *mask);
    int64_t dims[4] = {1, 1, size, size};
    for (int64_t i = 0; i < size; i++) {
        for (int64_t j = 0; j < size; j++) {
            bool one = kind == THROUGH  ? j <= i
                       : kind == BEFORE ? j < i
                       : kind == AFTER  ? i > j
                       : kind == IDENTITY
                           ? i == j
                           : i / (2 * block) == j / (2 * block) && i / block % 2 == 1 && j / block % 2 == 0;
            mask[i * size + j] = one ? f64_to_f16(1.0) : 0;
        }
    }
    const struct mil_value *v = mil_value_new(out, MIL_FP16, 4, dims, mask);
    free(mask);
    return v;
}

struct qwen3_5_chunked qwen3_5_chunked_constants(int64_t size, struct mil_model *out)
{
    struct qwen3_5_chunked c = {.size = size,
                                .through = mask_constant(out, size, THROUGH, 0),
                                .before = mask_constant(out, size, BEFORE, 0),
                                .after = mask_constant(out, size, AFTER, 0),
                                .identity = mask_constant(out, size, IDENTITY, 0)};
    for (int64_t block = 1; block < size; block *= 2)
        c.level[c.n_levels++] = mask_constant(out, size, LEVEL, block);
    return c;
}

/* ---- pieces ---- */

static struct mil_var *mul(struct mil_builder *b, struct mil_var *x, struct mil_var *y)
{
    return block_binary(b, "mul", x, y, NULL);
}

static struct mil_var *add(struct mil_builder *b, struct mil_var *x, struct mil_var *y)
{
    return block_binary(b, "add", x, y, NULL);
}

static struct mil_var *sub(struct mil_builder *b, struct mil_var *x, struct mil_var *y)
{
    return block_binary(b, "sub", x, y, NULL);
}

static struct mil_var *swap_middle(struct mil_builder *b, struct mil_var *x, const char *name)
{
    static const int32_t perm[] = {0, 2, 1, 3};
    return block_transpose(b, x, 4, perm, name);
}

static struct mil_var *swap_last(struct mil_builder *b, struct mil_var *x, const char *name)
{
    static const int32_t perm[] = {0, 1, 3, 2};
    return block_transpose(b, x, 4, perm, name);
}

/* log(1 + e^x) = max(x, 0) + y P(y), y = e^-|x|, where P approximates log(1 + y) / y to 1e-5: relative
 * precision for small results, which log(1 + exp(x)) loses below -7, where trained time steps lie. */
static struct mil_var *softplus(struct mil_builder *b, struct mil_var *x)
{
    static const double coefficients[] = {0.99999059,  -0.49931465, 0.32484958,
                                          -0.20907954, 0.10013973,  -0.02344366};
    struct mil_var *y =
        block_unary(b, "exp", block_scale(b, block_unary(b, "abs", x, NULL), -1.0, NULL), NULL);
    struct mil_var *p = mil_build_f16(b, coefficients[5], NULL);
    for (int i = 4; i >= 0; i--) {
        p = mul(b, p, y);
        p = add(b, p, mil_build_f16(b, coefficients[i], NULL));
    }
    struct mil_var *positive = block_binary(b, "maximum", x, mil_build_f16(b, 0.0, NULL), NULL);
    return add(b, positive, mul(b, p, y));
}

struct layer_context {
    const struct qwen3_5 *q;
    struct mil_builder *b;
    int64_t layer, index, tokens; /* index: among the linear layers */
};

static const char *name_of(const struct layer_context *c, const char *what)
{
    return arch_layer_name(c->b, c->layer, what);
}

/* Causal convolution over the last rows and these, as K products and sums that are the same for any number of
 * tokens; time-major, for an innermost axis of 3 fails on the Neural Engine. row [1, T, C] */
static struct mil_var *convolve(const struct layer_context *c, const struct qwen3_5_linear_values *w,
                                struct mil_var *row, struct mil_var *state)
{
    struct mil_builder *b = c->b;
    int64_t kept = c->q->kernel - 1, t = c->tokens, j = c->index;
    int64_t begin[3] = {j, 0, 0}, end[3] = {j + 1, kept, c->q->conv_dim};
    struct mil_var *old = block_read_state(b, state);
    struct mil_var *both[2] = {block_slice(b, old, 0, j, j + 1, name_of(c, "conv_state")), row};
    struct mil_var *window = block_concat(b, both, 2, 1, NULL);
    block_write_region(b, state, old, block_slice(b, window, 1, t, t + kept, NULL), 3, begin, end,
                       name_of(c, "conv_state_update"));
    struct mil_var *y = NULL;
    for (int64_t i = 0; i <= kept && !mil_builder_failed(b); i++) {
        const char *name = arena_printf(mil_builder_arena(b), "linear_attn_conv1d_weight_%lld", (long long)i);
        struct mil_var *term = block_slice(b, window, 1, i, i + t, NULL);
        term = mul(b, term, mil_build_const(b, w->taps[i], name_of(c, name)));
        y = y ? add(b, y, term) : term;
    }
    return block_silu(b, y);
}

/* What the recurrence of T tokens takes: q, k [1, n_v, T, d_k], v [1, n_v, T, d_v], g, beta [1, n_v, T, 1] */
struct rule {
    struct mil_var *q, *k, *v, *g, *beta;
};

static void split_heads(const struct layer_context *c, struct mil_var *y, struct rule *r)
{
    struct mil_builder *b = c->b;
    const struct qwen3_5 *q = c->q;
    int64_t t = c->tokens, key_width = q->n_k * q->d_k;
    int64_t key_dims[4] = {1, t, 2 * q->n_k, q->d_k}, value_dims[4] = {1, t, q->n_v, q->d_v};
    struct mil_var *keys = block_reshape(b, block_slice(b, y, 2, 0, 2 * key_width, NULL), 4, key_dims, NULL);
    double epsilon = NORM_EPSILON * PRESCALE * PRESCALE / (double)q->d_k;
    keys = swap_middle(b, block_rms_norm(b, block_scale(b, keys, PRESCALE, NULL), NULL, epsilon, NULL), NULL);
    r->q = block_repeat_heads(b, block_slice(b, keys, 1, 0, q->n_k, NULL), q->n_v / q->n_k);
    r->k = block_repeat_heads(b, block_slice(b, keys, 1, q->n_k, 2 * q->n_k, NULL), q->n_v / q->n_k);
    struct mil_var *values = block_slice(b, y, 2, 2 * key_width, q->conv_dim, NULL);
    r->v = swap_middle(b, block_reshape(b, values, 4, value_dims, NULL), NULL);
}

static void make_gates(const struct layer_context *c, const struct qwen3_5_linear_values *w,
                       struct mil_var *x, struct rule *r)
{
    struct mil_builder *b = c->b;
    struct mil_var *half_beta = block_linear(b, x, w->b, NULL, name_of(c, "linear_attn_in_proj_b"));
    r->beta = swap_last(b, block_half_sigmoid(b, half_beta), name_of(c, "linear_attn_beta"));
    struct mil_var *step =
        softplus(b, block_linear(b, x, w->a, w->dt_bias, name_of(c, "linear_attn_in_proj_a")));
    struct mil_var *rate = mil_build_const(b, w->decay, name_of(c, "linear_attn_decay_rate"));
    r->g = swap_last(b, mul(b, step, rate), name_of(c, "linear_attn_g"));
}

/* One token. *s [1, n_v, d_k, d_v] becomes the new state; the result [1, n_v, 1, d_v]. */
static struct mil_var *recur(const struct layer_context *c, const struct rule *r, struct mil_var **s)
{
    struct mil_builder *b = c->b;
    struct mil_var *decayed = mul(b, *s, block_unary(b, "exp", r->g, NULL));
    struct mil_var *recalled =
        block_matmul(b, block_scale(b, r->k, 1.0 / (double)c->q->d_k, NULL), decayed, false, NULL);
    struct mil_var *change = mul(b, sub(b, r->v, recalled), r->beta);
    *s = add(b, decayed, block_matmul_transposed(b, r->k, change, NULL));
    return block_matmul(b, block_scale(b, r->q, query_scale(c->q->d_k), NULL), *s, false,
                        name_of(c, "linear_attn_recurrence"));
}

/* (I + a)^-1 of a strictly lower [.., C, C], by doubling the size of the inverted diagonal blocks. A power
 * series would overflow for keys that resemble each other. */
static struct mil_var *invert(struct mil_builder *b, const struct qwen3_5_chunked *chunked, struct mil_var *a)
{
    struct mil_var *identity = mil_build_const(b, chunked->identity, "chunk_identity");
    struct mil_var *x = NULL;
    if (chunked->n_levels == 0)
        return sub(b, identity, a);
    for (int i = 0; i < chunked->n_levels && !mil_builder_failed(b); i++) {
        const char *name = arena_printf(mil_builder_arena(b), "chunk_level_%d", i);
        struct mil_var *level = mul(b, a, mil_build_const(b, chunked->level[i], name));
        x = x ? sub(b, x, block_matmul(b, block_matmul(b, x, level, false, NULL), x, false, NULL))
              : sub(b, identity, level);
    }
    return x;
}

static struct mil_var *nth_chunk(struct mil_builder *b, struct mil_var *x, int64_t i, int64_t n)
{
    return n == 1 ? x : block_slice(b, x, 1, i, i + 1, NULL);
}

/* T tokens in chunks of C; like recur otherwise, the result [1, n_v, T, d_v]. */
static struct mil_var *recur_chunked(const struct layer_context *c, const struct qwen3_5_chunked *chunked,
                                     const struct rule *r, struct mil_var **state)
{
    struct mil_builder *b = c->b;
    int64_t size = chunked->size, n = c->tokens / size, n_v = c->q->n_v, d_k = c->q->d_k, d_v = c->q->d_v;
    int64_t key_dims[4] = {n_v, n, size, d_k}, value_dims[4] = {n_v, n, size, d_v};
    int64_t row_dims[4] = {n_v, n, 1, size}, column_dims[4] = {n_v, n, size, 1};
    int64_t state_dims[4] = {n_v, 1, d_k, d_v}, heads_dims[4] = {1, n_v, d_k, d_v};
    int64_t result_dims[4] = {1, n_v, c->tokens, d_v};
    double unit = 1.0 / (double)d_k;
    struct mil_var *q = block_reshape(b, r->q, 4, key_dims, NULL);
    struct mil_var *k = block_reshape(b, r->k, 4, key_dims, NULL);
    struct mil_var *v = block_reshape(b, r->v, 4, value_dims, NULL);
    struct mil_var *g = block_reshape(b, r->g, 4, row_dims, NULL);
    struct mil_var *beta = block_reshape(b, r->beta, 4, column_dims, NULL);
    struct mil_var *through = mil_build_const(b, chunked->through, "chunk_through");
    /* Row i, column s: g_s where s <= i. Decays come from sums of terms of one sign; differences of one long
     * sum would lose them in fp16. */
    struct mil_var *terms = mul(b, g, through);
    struct mil_var *sums =
        block_matmul(b, terms, mil_build_const(b, chunked->after, "chunk_after"), false, NULL);
    struct mil_var *decay = mul(b, block_unary(b, "exp", sums, NULL), through);
    struct mil_var *from_start = block_unary(b, "exp", block_reduce(b, "reduce_sum", terms, 3), NULL);
    struct mil_var *to_end = swap_last(b, block_slice(b, decay, 2, size - 1, size, NULL), NULL);
    struct mil_var *overlap = block_scale(b, block_matmul(b, k, k, true, NULL), unit, NULL);
    struct mil_var *before = mil_build_const(b, chunked->before, "chunk_before");
    struct mil_var *weighed = mul(b, overlap, beta);
    struct mil_var *inverse = invert(b, chunked, mul(b, weighed, mul(b, decay, before)));
    struct mil_var *u = block_matmul(b, inverse, mul(b, v, beta), false, NULL);
    struct mil_var *w = block_matmul(b, inverse, mul(b, mul(b, k, beta), from_start), false, NULL);
    w = block_scale(b, w, unit, NULL);
    struct mil_var *scaled = block_scale(b, q, query_scale(d_k), NULL);
    struct mil_var *inside = mul(b, block_matmul(b, scaled, k, true, NULL), decay);
    struct mil_var *query = mul(b, scaled, from_start), *key = mul(b, k, to_end);
    struct mil_var *s = block_reshape(b, *state, 4, state_dims, NULL);
    struct mil_var **outputs = ARENA_ARRAY(mil_builder_arena(b), struct mil_var *, n);
    for (int64_t i = 0; i < n && !mil_builder_failed(b); i++) {
        struct mil_var *values = nth_chunk(b, u, i, n);
        struct mil_var *change = sub(b, values, block_matmul(b, nth_chunk(b, w, i, n), s, false, NULL));
        struct mil_var *of_state = block_matmul(b, nth_chunk(b, query, i, n), s, false, NULL);
        struct mil_var *of_chunk = block_matmul(b, nth_chunk(b, inside, i, n), change, false, NULL);
        outputs[i] = add(b, of_state, of_chunk);
        struct mil_var *whole = block_slice(b, nth_chunk(b, from_start, i, n), 2, size - 1, size, NULL);
        struct mil_var *kept = mul(b, s, whole);
        s = add(b, kept, block_matmul_transposed(b, nth_chunk(b, key, i, n), change, NULL));
    }
    *state = block_reshape(b, s, 4, heads_dims, NULL);
    struct mil_var *y = n > 1 ? block_concat(b, outputs, (int)n, 1, NULL) : outputs[0];
    return block_reshape(b, y, 4, result_dims, name_of(c, "linear_attn_recurrence"));
}

/* Norm per head, gate, output projection. y [1, n_v, T, d_v], x [1, H, 1, T] */
static struct mil_var *finish(const struct layer_context *c, const struct qwen3_5_linear_values *w,
                              struct mil_var *y, struct mil_var *x)
{
    struct mil_builder *b = c->b;
    const struct qwen3_5 *q = c->q;
    int64_t heads_dims[4] = {1, c->tokens, q->n_v, q->d_v}, row_dims[3] = {1, c->tokens, q->n_v * q->d_v};
    double scale = query_scale(q->d_k) * pow((double)q->d_k, 1.5);
    y = block_rms_norm(b, swap_middle(b, y, NULL), w->norm, q->sizes.rms_norm_eps * scale * scale,
                       name_of(c, "linear_attn_norm"));
    struct mil_var *z = block_linear(b, x, w->z, NULL, name_of(c, "linear_attn_in_proj_z"));
    z = block_silu(b, block_reshape(b, block_from_channels(b, z, NULL), 4, heads_dims, NULL));
    y = block_reshape(b, mul(b, y, z), 3, row_dims, NULL);
    y = block_linear(b, block_to_channels(b, y), w->out, NULL, name_of(c, "linear_attn_out_proj"));
    return block_from_channels(b, y, NULL);
}

struct mil_var *qwen3_5_build_linear(const struct arch_model *m, struct mil_builder *b, int64_t layer,
                                     const struct qwen3_5_linear_values *w,
                                     const struct qwen3_5_chunked *chunked, struct mil_var *x,
                                     struct mil_var *gdn_state, struct mil_var *conv_state)
{
    const struct qwen3_5 *q = m->own;
    if (mil_builder_failed(b) || !x)
        return NULL;
    struct layer_context c = {.q = q, .b = b, .layer = layer, .index = q->layers[layer].index};
    c.tokens = mil_type_tensor(x->type)->dims[1];
    int64_t rows = q->n_v, begin[3] = {c.index * rows, 0, 0}, end[3] = {(c.index + 1) * rows, q->d_k, q->d_v};
    struct rule r;
    x = block_to_channels(b, x);
    struct mil_var *row = block_linear(b, x, w->qkv, NULL, name_of(&c, "linear_attn_in_proj_qkv"));
    split_heads(&c, convolve(&c, w, block_from_channels(b, row, NULL), conv_state), &r);
    make_gates(&c, w, x, &r);
    struct mil_var *old = block_read_state(b, gdn_state);
    struct mil_var *s = block_slice(b, old, 0, begin[0], end[0], name_of(&c, "gdn_state"));
    s = block_expand(b, s, 0);
    struct mil_var *y = c.tokens == 1 ? recur(&c, &r, &s) : recur_chunked(&c, chunked, &r, &s);
    s = block_squeeze(b, s, 0);
    block_write_region(b, gdn_state, old, s, 3, begin, end, name_of(&c, "gdn_state_update"));
    return finish(&c, w, y, x);
}
