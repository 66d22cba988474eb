/* Plain decoders: attention, then a gated MLP, each on a normed copy of the residual stream.
 *
 * A token's residual stream x begins as its embedding, in some families times the root of hidden_size. In every layer:
 *   h = norm(x); q, k, v = projections of h; q and k are normed per head, where the family does that, and turned by
 *   their position, but for layers that do not turn; x += o_proj(attention(q, keys so far, values so far)), where a layer
 *   that slides sees the last `window` of them;
 *   h = norm(x); x += down_proj(act(gate_proj(h)) * up_proj(h)), act being silu or gelu.
 * Some families norm what a block gives before it is added, some store norm weights minus one, in some the layers that slide
 * turn by frequencies of their own. Logits are the head's products with the normed x, which a cap may bend. Families are
 * rows of families.def.
 */
#include <math.h>
#include <stdlib.h>
#include "reference/reference_internal.h"

/* What a family's model code does and no key of config.json asks for; zero is the decoder above without anything else. */
struct traits {
    struct config_sizes missing; /* what keys mean that config.json leaves out */
    bool is_tied;                /* the same: tie_word_embeddings */
    unsigned parts;              /* of every layer besides attention, keys and MLP: head norms, biases */
    bool has_bias_key;           /* attention_bias gives q, k, v and o biases; else it means nothing */
    bool has_mlp_bias_key;       /* mlp_bias: the same of gate, up and down */
    struct config_rope_keys rope;
    struct config_layer_rules layers; /* which layers slide, and which turn */
    bool is_centred;                  /* norm weights are stored minus one */
    bool has_gelu;                    /* in place of silu */
    bool scales_embeddings;           /* by the root of hidden_size */
    double
        missing_query_scalar; /* query_pre_attn_scalar, in place of the head's size; 0: there is no such key */
    bool has_local_cache;     /* layers that slide turn by local_rope */
    struct config_rope_keys local_rope;
    struct config_experts missing_experts; /* n 0: none; layers.has_experts says which layers have them */
    bool has_softcap;
    const char *const *refused; /* keys that must be missing, null or false */
};

struct decoder {
    struct config_sizes sizes;
    float eps;
    struct reference_rope rope, local_rope;
    float scale; /* of scores */
    const float *norm;
    int64_t window;          /* of layers that slide */
    struct config_layer *is; /* [n_layers], as the next */
    struct reference_layer *layers;
    struct config_experts experts;
    struct reference_experts *mixtures; /* [n_layers], of layers with experts */
};

/* Work space of a session; rows are tokens of a batch. */
struct work {
    float **keys, **values; /* [n_layers] of [n_kv_heads, capacity, head_dim] */
    float *h, *mixed;       /* [batch, hidden_size] */
    float *gate, *up;       /* [batch, intermediate_size] */
    float *cosines, *sines; /* [batch, head_dim / 2] */
    float *local_cosines, *local_sines;
    struct reference_rows rows;
    struct reference_experts_work experts;
};

/* ---- settings ---- */

/* Variants of the model code that a checkpoint may ask for and that are not computed here. */
static bool check_variants(const struct reference *r, struct err *e)
{
    const struct traits *t = r->parts->family->traits;
    const struct config *c = &r->parts->config;
    for (const char *const *key = t->refused; key && *key; key++) {
        const cJSON *item = json_get(c->text, *key);
        if (item && !cJSON_IsNull(item) && !cJSON_IsFalse(item))
            return err_set(e, ERR_UNSUPPORTED, "%s: key %s: the reference knows only models without it",
                           c->path, *key);
    }
    return t->has_gelu ? config_check_activation(c, "hidden_activation", "gelu_pytorch_tanh", NULL, e)
                       : config_check_activation(c, "hidden_act", "silu", "swish", e);
}

static bool read_scales(struct reference *r, struct decoder *d, struct err *e)
{
    const struct traits *t = r->parts->family->traits;
    double cap = 0, scalar = t->missing_query_scalar;
    if (t->has_softcap && !config_get_softcap(&r->parts->config, &cap, e))
        return false;
    if (scalar > 0 && !config_get_query_scalar(&r->parts->config, &scalar, e))
        return false;
    r->parts->softcap = (float)cap;
    d->scale = reference_constant(r, 1.0 / sqrt(scalar > 0 ? scalar : (double)d->sizes.head_dim));
    return true;
}

static bool read_settings(struct reference *r, struct decoder *d, bool *is_tied, struct err *e)
{
    const struct traits *t = r->parts->family->traits;
    const struct config *c = &r->parts->config;
    struct config_sizes *s = &d->sizes;
    *s = t->missing;
    *is_tied = t->is_tied;
    r->max_positions = 32768;
    /* null says "as many as query heads" */
    if (cJSON_IsNull(json_get(c->text, "num_key_value_heads")))
        s->n_kv_heads = 0;
    if (!config_get_sizes(c, s, e) || !json_get_bool(c->text, "tie_word_embeddings", is_tied, c->path, e) ||
        !json_get_bool(c->top, "tie_word_embeddings", is_tied, c->path, e) ||
        !reference_get_size(r, "max_position_embeddings", INT32_MAX, &r->max_positions, e))
        return false;
    if (s->head_dim % 2 != 0)
        return err_set(e, ERR_FORMAT, "%s: key head_dim: expected an even number, found %lld", c->path,
                       (long long)s->head_dim);
    r->vocab_size = s->vocab_size;
    r->hidden_size = s->hidden_size;
    r->n_layers = s->n_layers;
    d->eps = (float)s->rms_norm_eps;
    d->is = ARENA_ARRAY(r->parts->arena, struct config_layer, r->n_layers);
    d->experts = t->missing_experts;
    if (d->experts.n > 0 && !config_get_experts(c, true, &d->experts, e))
        return false;
    return check_variants(r, e) && read_scales(r, d, e) &&
           config_get_layers(c, &t->layers, r->n_layers, d->is, &d->window, e) &&
           reference_rope_read(r, s->head_dim, &t->rope, &d->rope, e) &&
           (!t->has_local_cache || reference_rope_read(r, s->head_dim, &t->local_rope, &d->local_rope, e));
}

/* ---- tensors ---- */

/* The gains of a norm whose weights are stored minus one. */
static void centre(const struct reference *r, const float **norm, int64_t n)
{
    float *gains = *norm ? ARENA_ARRAY(r->parts->arena, float, n) : NULL;
    for (int64_t i = 0; gains && i < n; i++)
        gains[i] = reference_constant(r, 1.0 + (double)(*norm)[i]);
    *norm = gains;
}

static void centre_norms(const struct reference *r, struct decoder *d)
{
    static const enum decoder_tensor of_heads[] = {DECODER_Q_NORM, DECODER_K_NORM},
                                     of_stream[] = {DECODER_INPUT_NORM, DECODER_POST_ATTENTION_NORM,
                                                    DECODER_MLP_NORM, DECODER_POST_MLP_NORM};
    centre(r, &d->norm, r->hidden_size);
    for (int64_t i = 0; i < r->n_layers; i++) {
        for (int k = 0; k < 2; k++)
            centre(r, &d->layers[i].vector[of_heads[k]], d->sizes.head_dim);
        for (int k = 0; k < 4; k++)
            centre(r, &d->layers[i].vector[of_stream[k]], r->hidden_size);
    }
}

static bool open_decoder(struct reference *r, struct err *e)
{
    struct reference_parts *p = r->parts;
    const struct traits *t = p->family->traits;
    struct decoder *d = ARENA_NEW(p->arena, struct decoder);
    const struct config_sizes *s = &d->sizes;
    bool is_tied;
    p->own = d;
    if (!read_settings(r, d, &is_tied, e) || !reference_find_ends(r, is_tied, &d->norm, e))
        return false;
    const int64_t sizes[DECODER_SIZES] = {[DECODER_HIDDEN] = r->hidden_size,
                                          [DECODER_QUERY] = s->n_heads * s->head_dim,
                                          [DECODER_HEADS] = s->n_heads * s->head_dim,
                                          [DECODER_KV] = s->n_kv_heads * s->head_dim,
                                          [DECODER_HEAD] = s->head_dim,
                                          [DECODER_INNER] = s->intermediate_size};
    unsigned parts = DECODER_ATTENTION | DECODER_KEYS | DECODER_MLP | t->parts;
    parts |= t->has_bias_key && s->attention_bias ? DECODER_QKV_BIAS | DECODER_OUTPUT_BIAS : 0;
    parts |= t->has_mlp_bias_key && s->mlp_bias ? DECODER_MLP_BIAS : 0;
    d->layers = ARENA_ARRAY(p->arena, struct reference_layer, r->n_layers);
    d->mixtures = ARENA_ARRAY(p->arena, struct reference_experts, r->n_layers);
    for (int64_t i = 0; i < r->n_layers; i++) {
        bool mixes = d->is[i].has_experts;
        unsigned own = mixes ? parts & ~(unsigned)(DECODER_MLP | DECODER_MLP_BIAS) : parts;
        if (!reference_find_layer(r, i, own, sizes, &d->layers[i], e) ||
            (mixes && !reference_find_experts(r, i, &d->experts, &d->mixtures[i], e)))
            return false;
    }
    if (t->is_centred)
        centre_norms(r, d);
    return true;
}

/* ---- sessions ---- */

static bool open_session(struct reference_session *s, struct err *e)
{
    const struct reference *r = s->reference;
    const struct decoder *d = r->parts->own;
    struct work *w = s->own = ARENA_NEW(s->arena, struct work);
    w->keys = ARENA_ARRAY(s->arena, float *, s->reference->n_layers);
    w->values = ARENA_ARRAY(s->arena, float *, s->reference->n_layers);
    for (int64_t i = 0; i < r->n_layers; i++)
        if (!reference_take(s, &w->keys[i], d->sizes.n_kv_heads, s->capacity, d->sizes.head_dim, e) ||
            !reference_take(s, &w->values[i], d->sizes.n_kv_heads, s->capacity, d->sizes.head_dim, e))
            return err_wrap(e, "the reference's KV cache for %lld positions", (long long)s->capacity);
    const int64_t batch = s->batch;
    return reference_take(s, &w->h, batch, r->hidden_size, 1, e) &&
           reference_take(s, &w->mixed, batch, r->hidden_size, 1, e) &&
           reference_rows_take(s, &w->rows, d->sizes.n_heads * d->sizes.head_dim,
                               d->sizes.n_kv_heads * d->sizes.head_dim, e) &&
           reference_take(s, &w->gate, batch, d->sizes.intermediate_size, 1, e) &&
           reference_take(s, &w->up, batch, d->sizes.intermediate_size, 1, e) &&
           reference_take(s, &w->cosines, batch, d->sizes.head_dim / 2, 1, e) &&
           reference_take(s, &w->sines, batch, d->sizes.head_dim / 2, 1, e) &&
           reference_take(s, &w->local_cosines, batch, d->sizes.head_dim / 2, 1, e) &&
           reference_take(s, &w->local_sines, batch, d->sizes.head_dim / 2, 1, e) &&
           (d->experts.n == 0 || reference_experts_take(s, &d->experts, d->experts.size, &w->experts, e));
}

static bool session_state(const struct reference_session *s, int64_t layer, enum reference_state_kind kind,
                          struct reference_state *out)
{
    const struct decoder *d = s->reference->parts->own;
    const struct work *w = s->own;
    if (kind != REFERENCE_KEYS && kind != REFERENCE_VALUES)
        return false;
    *out = (struct reference_state){3, {d->sizes.n_kv_heads, s->capacity, d->sizes.head_dim}, NULL};
    out->data = kind == REFERENCE_KEYS ? w->keys[layer] : w->values[layer];
    return true;
}

/* ---- the forward pass ---- */

/* Norms (norm NULL: not) and turns (where the layer does) each head of each token: rows [n, n_heads, head_dim]. */
static void norm_and_turn(struct reference_session *s, const struct config_layer *is, float *rows,
                          const float *norm, int64_t n, int64_t n_heads)
{
    const struct reference *r = s->reference;
    const struct work *w = s->own;
    const struct decoder *d = r->parts->own;
    const struct traits *t = r->parts->family->traits;
    bool is_local = t->has_local_cache && is->slides;
    const struct reference_rope *rope = is_local ? &d->local_rope : &d->rope;
    if (norm)
        reference_rms_norm(s, rows, norm, n * n_heads, d->sizes.head_dim, d->eps, rows);
    if (is->turns)
        reference_rope_turn_heads(s, rows, n, n_heads, d->sizes.head_dim, rope->n_pairs,
                                  is_local ? w->local_cosines : w->cosines,
                                  is_local ? w->local_sines : w->sines);
}

/* x += y, which a norm (NULL: none) goes over first. */
static void add_block(struct reference_session *s, const struct decoder *d, float *y, const float *norm,
                      int64_t n)
{
    int64_t h = s->reference->hidden_size;
    if (norm)
        reference_rms_norm(s, y, norm, n, h, d->eps, y);
    reference_add(s, s->stream, y, n * h);
}

static void attention_block(struct reference_session *s, const struct decoder *d,
                            const struct reference_layer *l, int64_t i_layer, int64_t n)
{
    const struct reference *r = s->reference;
    struct work *w = s->own;
    const struct reference_rows *rows = &w->rows;
    const struct config_layer *is = &d->is[i_layer];
    const struct reference_heads heads = {.n = d->sizes.n_heads,
                                          .n_kv = d->sizes.n_kv_heads,
                                          .dim = d->sizes.head_dim,
                                          .window = is->slides ? d->window : 0,
                                          .scale = d->scale};
    reference_rms_norm(s, s->stream, l->vector[DECODER_INPUT_NORM], n, r->hidden_size, d->eps, w->h);
    reference_linear(s, l->matrix[DECODER_Q], l->vector[DECODER_Q_BIAS], w->h, n, rows->q);
    reference_linear(s, l->matrix[DECODER_K], l->vector[DECODER_K_BIAS], w->h, n, rows->k);
    reference_linear(s, l->matrix[DECODER_V], l->vector[DECODER_V_BIAS], w->h, n, rows->v);
    norm_and_turn(s, is, rows->q, l->vector[DECODER_Q_NORM], n, heads.n);
    norm_and_turn(s, is, rows->k, l->vector[DECODER_K_NORM], n, heads.n_kv);
    reference_store_rows(s, rows, &heads, n, w->keys[i_layer], w->values[i_layer]);
    reference_attend(s, rows, &heads, n, w->keys[i_layer], w->values[i_layer]);
    reference_linear(s, l->matrix[DECODER_O], l->vector[DECODER_O_BIAS], rows->output, n, w->h);
    add_block(s, d, w->h, l->vector[DECODER_POST_ATTENTION_NORM], n);
}

static void mlp_block(struct reference_session *s, const struct decoder *d, int64_t i_layer, int64_t n)
{
    const struct reference_layer *l = &d->layers[i_layer];
    const struct reference *r = s->reference;
    struct work *w = s->own;
    bool has_gelu = ((const struct traits *)r->parts->family->traits)->has_gelu;
    reference_rms_norm(s, s->stream, l->vector[DECODER_MLP_NORM], n, r->hidden_size, d->eps, w->h);
    if (d->is[i_layer].has_experts) {
        /* The experts read their rows to the end, so they write others. */
        reference_experts_run(s, &d->experts, &d->mixtures[i_layer], &w->experts, w->h, n, w->mixed);
        add_block(s, d, w->mixed, l->vector[DECODER_POST_MLP_NORM], n);
        return;
    }
    reference_linear(s, l->matrix[DECODER_GATE], l->vector[DECODER_GATE_BIAS], w->h, n, w->gate);
    reference_linear(s, l->matrix[DECODER_UP], l->vector[DECODER_UP_BIAS], w->h, n, w->up);
    int64_t width = d->sizes.intermediate_size;
    reference_gate(s, &(struct reference_gate){.act = has_gelu ? REFERENCE_GELU : REFERENCE_SILU,
                                               .gate = w->gate,
                                               .x = w->up,
                                               .gate_stride = width,
                                               .x_stride = width,
                                               .n = n,
                                               .width = width,
                                               .out = w->gate});
    reference_linear(s, l->matrix[DECODER_DOWN], l->vector[DECODER_DOWN_BIAS], w->gate, n, w->h);
    add_block(s, d, w->h, l->vector[DECODER_POST_MLP_NORM], n);
}

static void embed(struct reference_session *s, const int32_t *tokens, int64_t n)
{
    const struct reference *r = s->reference;
    const struct decoder *d = r->parts->own;
    const struct traits *t = r->parts->family->traits;
    struct work *w = s->own;
    reference_rope_rows(&d->rope, s->position, n, w->cosines, w->sines);
    if (t->has_local_cache)
        reference_rope_rows(&d->local_rope, s->position, n, w->local_cosines, w->local_sines);
    reference_gather(s, r->parts->ends.embeddings, tokens, n, s->stream);
    if (t->scales_embeddings)
        reference_scale(s, s->stream, n * r->hidden_size, (float)sqrt((double)r->hidden_size));
}

static void run_layer(struct reference_session *s, int64_t i_layer, int64_t n)
{
    const struct decoder *d = s->reference->parts->own;
    attention_block(s, d, &d->layers[i_layer], i_layer, n);
    mlp_block(s, d, i_layer, n);
}

static void finish(struct reference_session *s, int64_t n)
{
    const struct decoder *d = s->reference->parts->own;
    reference_rms_norm(s, s->stream, d->norm, n, s->reference->hidden_size, d->eps, s->hidden);
}

/* ---- families ---- */

#define LIST_OF(...) __VA_ARGS__
#define REFERENCE_FAMILY(symbol)
#define REFERENCE_DECODER(symbol, types, ...)                                                                \
    static const struct traits symbol##_traits = {__VA_ARGS__};                                              \
    static const char *const symbol##_types[] = {LIST_OF types, NULL};                                       \
    const struct reference_family reference_##symbol = {                                                     \
        .name = #symbol,                                                                                     \
        .model_types = symbol##_types,                                                                       \
        .traits = &symbol##_traits,                                                                          \
        .open = open_decoder,                                                                                \
        .session_open = open_session,                                                                        \
        .session_state = session_state,                                                                      \
        .embed = embed,                                                                                      \
        .layer = run_layer,                                                                                  \
        .finish = finish,                                                                                    \
    };
#include "reference/families.def"
