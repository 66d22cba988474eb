/* Plain decoders: attention, then a gated MLP, each on a normed copy of the residual stream.
 *
 * For a token's residual stream x, in every layer:
 *   h = norm(x); q, k, v = projections of h; q and k are normed per head, where the family does that, and turned by
 *   their position, but for layers that do not turn; x += o_proj(attention(q, keys so far, values so far)), where a layer
 *   that slides sees the last `window` of them;
 *   h = norm(x); x += down_proj(silu(gate_proj(h)) * up_proj(h)).
 * Logits are the head's products with the normed x. Families are rows of families.def.
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
};

struct decoder {
    struct config_sizes sizes;
    float eps;
    struct reference_rope rope;
    const float *norm;
    int64_t window;          /* of layers that slide */
    struct config_layer *is; /* [n_layers], as the next */
    struct reference_layer *layers;
};

/* Work space of a session; rows are tokens of a batch. */
struct work {
    float **keys, **values; /* [n_layers] of [n_kv_heads, capacity, head_dim] */
    float *h;               /* [batch, hidden_size] */
    float *q, *attention;   /* [batch, n_heads * head_dim] */
    float *k, *v;           /* [batch, n_kv_heads * head_dim] */
    float *gate, *up;       /* [batch, intermediate_size] */
    float *cosines, *sines; /* [batch, head_dim / 2] */
    float *scores;          /* [n_threads, capacity] */
};

/* ---- settings ---- */

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
    return config_check_activation(c, "hidden_act", "silu", "swish", e) &&
           config_get_layers(c, &t->layers, r->n_layers, d->is, &d->window, e) &&
           reference_rope_read(r, s->head_dim, &t->rope, &d->rope, e);
}

/* ---- tensors ---- */

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
    for (int64_t i = 0; i < r->n_layers; i++)
        if (!reference_find_layer(r, i, parts, sizes, &d->layers[i], e))
            return false;
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
           reference_take(s, &w->q, batch, d->sizes.n_heads, d->sizes.head_dim, e) &&
           reference_take(s, &w->attention, batch, d->sizes.n_heads, d->sizes.head_dim, e) &&
           reference_take(s, &w->k, batch, d->sizes.n_kv_heads, d->sizes.head_dim, e) &&
           reference_take(s, &w->v, batch, d->sizes.n_kv_heads, d->sizes.head_dim, e) &&
           reference_take(s, &w->gate, batch, d->sizes.intermediate_size, 1, e) &&
           reference_take(s, &w->up, batch, d->sizes.intermediate_size, 1, e) &&
           reference_take(s, &w->cosines, batch, d->sizes.head_dim / 2, 1, e) &&
           reference_take(s, &w->sines, batch, d->sizes.head_dim / 2, 1, e) &&
           reference_take(s, &w->scores, pool_threads(r->parts->pool), s->capacity, 1, e);
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
static void norm_and_turn(const struct decoder *d, const struct work *w, bool turns, float *rows,
                          const float *norm, int64_t n, int64_t n_heads)
{
    if (norm)
        reference_rms_norm(rows, norm, n * n_heads, d->sizes.head_dim, d->eps, rows);
    if (turns)
        reference_rope_turn_heads(rows, n, n_heads, d->sizes.head_dim, d->rope.n_pairs, w->cosines, w->sines);
}

static void attention_block(struct reference_session *s, const struct decoder *d,
                            const struct reference_layer *l, int64_t i_layer, int64_t n)
{
    const struct reference *r = s->reference;
    struct work *w = s->own;
    reference_rms_norm(s->stream, l->vector[DECODER_INPUT_NORM], n, r->hidden_size, d->eps, w->h);
    reference_linear(s, l->matrix[DECODER_Q], l->vector[DECODER_Q_BIAS], w->h, n, w->q);
    reference_linear(s, l->matrix[DECODER_K], l->vector[DECODER_K_BIAS], w->h, n, w->k);
    reference_linear(s, l->matrix[DECODER_V], l->vector[DECODER_V_BIAS], w->h, n, w->v);
    bool turns = d->is[i_layer].turns;
    norm_and_turn(d, w, turns, w->q, l->vector[DECODER_Q_NORM], n, d->sizes.n_heads);
    norm_and_turn(d, w, turns, w->k, l->vector[DECODER_K_NORM], n, d->sizes.n_kv_heads);
    reference_store(s, w->k, n, d->sizes.n_kv_heads, d->sizes.head_dim, w->keys[i_layer]);
    reference_store(s, w->v, n, d->sizes.n_kv_heads, d->sizes.head_dim, w->values[i_layer]);
    struct reference_attention a = {
        .query = w->q,
        .keys = w->keys[i_layer],
        .values = w->values[i_layer],
        .scores = w->scores,
        .output = w->attention,
        .n = n,
        .position = s->position,
        .capacity = s->capacity,
        .window = d->is[i_layer].slides ? d->window : 0,
        .n_heads = d->sizes.n_heads,
        .n_kv_heads = d->sizes.n_kv_heads,
        .dim = d->sizes.head_dim,
        .scale = reference_constant(s->reference, 1.0 / sqrt((double)d->sizes.head_dim))};
    reference_attend(r->parts, &a);
    reference_linear(s, l->matrix[DECODER_O], l->vector[DECODER_O_BIAS], w->attention, n, w->h);
    reference_add(s->stream, w->h, n * r->hidden_size);
}

static void mlp_block(struct reference_session *s, const struct decoder *d, const struct reference_layer *l,
                      int64_t n)
{
    const struct reference *r = s->reference;
    struct work *w = s->own;
    reference_rms_norm(s->stream, l->vector[DECODER_MLP_NORM], n, r->hidden_size, d->eps, w->h);
    reference_linear(s, l->matrix[DECODER_GATE], l->vector[DECODER_GATE_BIAS], w->h, n, w->gate);
    reference_linear(s, l->matrix[DECODER_UP], l->vector[DECODER_UP_BIAS], w->h, n, w->up);
    for (int64_t i = 0; i < n * d->sizes.intermediate_size; i++)
        w->gate[i] = reference_silu(w->gate[i]) * w->up[i];
    reference_linear(s, l->matrix[DECODER_DOWN], l->vector[DECODER_DOWN_BIAS], w->gate, n, w->h);
    reference_add(s->stream, w->h, n * r->hidden_size);
}

static void embed(struct reference_session *s, const int32_t *tokens, int64_t n)
{
    const struct decoder *d = s->reference->parts->own;
    struct work *w = s->own;
    reference_rope_rows(&d->rope, s->position, n, w->cosines, w->sines);
    reference_gather(s->reference->parts->ends.embeddings, tokens, n, s->stream);
}

static void run_layer(struct reference_session *s, int64_t i_layer, int64_t n)
{
    const struct decoder *d = s->reference->parts->own;
    attention_block(s, d, &d->layers[i_layer], i_layer, n);
    mlp_block(s, d, &d->layers[i_layer], n);
}

static void finish(struct reference_session *s, int64_t n)
{
    const struct decoder *d = s->reference->parts->own;
    reference_rms_norm(s->stream, d->norm, n, s->reference->hidden_size, d->eps, s->hidden);
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
