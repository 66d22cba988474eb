/* Qwen3: attention with normed queries and keys, then a gated MLP, each on a normed copy of the residual
 * stream.
 *
 * For a token's residual stream x, in every layer:
 *   h = norm(x); q, k, v = projections of h; q and k are normed per head and turned by their position;
 *   x += o_proj(attention(q, all keys so far, all values so far));
 *   h = norm(x); x += down_proj(silu(gate_proj(h)) * up_proj(h)).
 * Logits are the head's products with the normed x.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reference/reference_internal.h"

#define SIZE_LIMIT 16777216 /* of any width; products of two of them are far from overflow */

enum { Q, K, V, O, N_PROJECTIONS };

struct layer {
    const float *input_norm, *post_norm, *q_norm, *k_norm;
    const struct st_tensor *projection[N_PROJECTIONS];
    const float *bias[N_PROJECTIONS]; /* NULL: none */
    const struct st_tensor *gate, *up, *down;
};

struct qwen3 {
    int64_t n_heads, n_kv_heads, head_dim, intermediate_size;
    float eps;
    struct reference_rope rope;
    const struct st_tensor *embeddings;
    const float *norm;
    struct layer *layers; /* [n_layers] */
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

static bool matches(const char *model_type)
{
    return strcmp(model_type, "qwen3") == 0;
}

/* ---- settings ---- */

/* Variants of the model code that a qwen3 checkpoint may ask for and that are not computed here. */
static bool check_variants(const struct reference *r, struct err *e)
{
    const cJSON *config = r->parts->config, *types = json_get(config, "layer_types");
    const char *where = r->parts->config_path, *activation = "silu";
    bool sliding = false;
    if (!json_get_bool(config, "use_sliding_window", &sliding, where, e) ||
        !json_get_string(config, "hidden_act", &activation, where, e))
        return false;
    if (sliding)
        return err_set(e, ERR_UNSUPPORTED, "%s: key use_sliding_window: the reference knows only false",
                       where);
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: key hidden_act: the reference knows only silu, found \"%s\"",
                       where, activation);
    if (types && !cJSON_IsNull(types) && !cJSON_IsArray(types))
        return err_set(e, ERR_FORMAT, "%s: key layer_types: expected an array, found %s", where,
                       json_type_name(types));
    for (const cJSON *t = types ? types->child : NULL; t; t = t->next)
        if (!cJSON_IsString(t) || strcmp(t->valuestring, "full_attention") != 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: key layer_types: the reference knows only full_attention, found %s", where,
                           cJSON_IsString(t) ? t->valuestring : json_type_name(t));
    return true;
}

static bool read_settings(struct reference *r, struct qwen3 *q, bool *tied, bool *biases, struct err *e)
{
    const cJSON *config = r->parts->config;
    const char *where = r->parts->config_path;
    double eps = 1e-6;
    r->vocab_size = 151936;
    r->hidden_size = 4096;
    r->n_layers = 32;
    r->max_positions = 32768;
    q->intermediate_size = 22016;
    q->n_heads = 32;
    q->head_dim = 128;
    if (!reference_get_size(r, "vocab_size", SIZE_LIMIT, &r->vocab_size, e) ||
        !reference_get_size(r, "hidden_size", SIZE_LIMIT, &r->hidden_size, e) ||
        !reference_get_size(r, "num_hidden_layers", 10000, &r->n_layers, e) ||
        !reference_get_size(r, "max_position_embeddings", INT32_MAX, &r->max_positions, e) ||
        !reference_get_size(r, "intermediate_size", SIZE_LIMIT, &q->intermediate_size, e) ||
        !reference_get_size(r, "num_attention_heads", 65536, &q->n_heads, e) ||
        !reference_get_size(r, "head_dim", 65536, &q->head_dim, e))
        return false;
    /* null says "as many as query heads"; an absent key has the default of the published configuration */
    q->n_kv_heads = cJSON_IsNull(json_get(config, "num_key_value_heads")) ? q->n_heads : 32;
    if (!reference_get_size(r, "num_key_value_heads", 65536, &q->n_kv_heads, e) ||
        !json_get_double(config, "rms_norm_eps", &eps, where, e) ||
        !json_get_bool(config, "tie_word_embeddings", tied, where, e) ||
        !json_get_bool(config, "attention_bias", biases, where, e))
        return false;
    if (q->n_heads % q->n_kv_heads != 0)
        return err_set(e, ERR_FORMAT,
                       "%s: key num_attention_heads: expected a multiple of num_key_value_heads %lld, found "
                       "%lld",
                       where, (long long)q->n_kv_heads, (long long)q->n_heads);
    if (q->head_dim % 2 != 0)
        return err_set(e, ERR_FORMAT, "%s: key head_dim: expected an even number, found %lld", where,
                       (long long)q->head_dim);
    if (!(eps >= 0 && eps < 1))
        return err_set(e, ERR_FORMAT, "%s: key rms_norm_eps: expected a number in [0, 1), found %g", where,
                       eps);
    q->eps = (float)eps;
    return check_variants(r, e) && reference_rope_read(r, q->head_dim, &q->rope, e);
}

/* ---- tensors ---- */

static bool layer_weight(struct reference *r, int64_t layer, const char *name, int64_t rows, int64_t columns,
                         const struct st_tensor **out, struct err *e)
{
    char full[128];
    snprintf(full, sizeof full, "model.layers.%lld.%s.weight", (long long)layer, name);
    return reference_require(r, full, rows, columns, out, e);
}

static bool layer_vector(struct reference *r, int64_t layer, const char *name, int64_t n, const float **out,
                         struct err *e)
{
    char full[128];
    snprintf(full, sizeof full, "model.layers.%lld.%s", (long long)layer, name);
    return reference_require_vector(r, full, n, out, e);
}

static bool find_layer(struct reference *r, const struct qwen3 *q, bool biases, int64_t i, struct layer *l,
                       struct err *e)
{
    int64_t h = r->hidden_size, width = q->n_heads * q->head_dim, kv_width = q->n_kv_heads * q->head_dim;
    static const char *const weights[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                          "self_attn.o_proj"};
    static const char *const vectors[] = {"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                                          "self_attn.v_proj.bias", "self_attn.o_proj.bias"};
    const int64_t rows[] = {width, kv_width, kv_width, h}, columns[] = {h, h, h, width};
    for (int p = 0; p < N_PROJECTIONS; p++)
        if (!layer_weight(r, i, weights[p], rows[p], columns[p], &l->projection[p], e) ||
            (biases && !layer_vector(r, i, vectors[p], rows[p], &l->bias[p], e)))
            return false;
    return layer_vector(r, i, "input_layernorm.weight", h, &l->input_norm, e) &&
           layer_vector(r, i, "post_attention_layernorm.weight", h, &l->post_norm, e) &&
           layer_vector(r, i, "self_attn.q_norm.weight", q->head_dim, &l->q_norm, e) &&
           layer_vector(r, i, "self_attn.k_norm.weight", q->head_dim, &l->k_norm, e) &&
           layer_weight(r, i, "mlp.gate_proj", q->intermediate_size, h, &l->gate, e) &&
           layer_weight(r, i, "mlp.up_proj", q->intermediate_size, h, &l->up, e) &&
           layer_weight(r, i, "mlp.down_proj", h, q->intermediate_size, &l->down, e);
}

static bool open_qwen3(struct reference *r, struct err *e)
{
    struct reference_parts *p = r->parts;
    struct qwen3 *q = ARENA_NEW(p->arena, struct qwen3);
    bool tied = false, biases = false;
    p->own = q;
    if (!read_settings(r, q, &tied, &biases, e) ||
        !reference_require(r, "model.embed_tokens.weight", r->vocab_size, r->hidden_size, &q->embeddings,
                           e) ||
        !reference_require_vector(r, "model.norm.weight", r->hidden_size, &q->norm, e))
        return false;
    /* A stored head is used whatever tie_word_embeddings says, as the published code does. */
    p->head = q->embeddings;
    if ((!tied || reference_has(r, "lm_head.weight")) &&
        !reference_require(r, "lm_head.weight", r->vocab_size, r->hidden_size, &p->head, e))
        return tied ? false : err_wrap(e, "untied embeddings (tie_word_embeddings)");
    q->layers = ARENA_ARRAY(p->arena, struct layer, r->n_layers);
    for (int64_t i = 0; i < r->n_layers; i++)
        if (!find_layer(r, q, biases, i, &q->layers[i], e))
            return false;
    return true;
}

/* ---- sessions ---- */

static void close_session(struct reference_session *s)
{
    struct work *w = s->own;
    if (!w)
        return;
    for (int64_t i = 0; i < s->reference->n_layers; i++) {
        mem_free(w->keys[i]);
        mem_free(w->values[i]);
    }
    free(w->keys);
    free(w->values);
    float *const parts[] = {w->h,    w->q,  w->attention, w->k,     w->v,
                            w->gate, w->up, w->cosines,   w->sines, w->scores};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        mem_free(parts[i]);
    free(w);
    s->own = NULL;
}

static bool open_session(struct reference_session *s, struct err *e)
{
    const struct reference *r = s->reference;
    const struct qwen3 *q = r->parts->own;
    struct work *w = s->own = xcalloc(1, sizeof *w);
    w->keys = xcalloc((size_t)r->n_layers, sizeof *w->keys);
    w->values = xcalloc((size_t)r->n_layers, sizeof *w->values);
    for (int64_t i = 0; i < r->n_layers; i++)
        if (!reference_alloc(&w->keys[i], q->n_kv_heads, s->capacity, q->head_dim, e) ||
            !reference_alloc(&w->values[i], q->n_kv_heads, s->capacity, q->head_dim, e))
            return err_wrap(e, "the reference's KV cache for %lld positions", (long long)s->capacity);
    const int64_t batch = s->batch;
    return reference_alloc(&w->h, batch, r->hidden_size, 1, e) &&
           reference_alloc(&w->q, batch, q->n_heads, q->head_dim, e) &&
           reference_alloc(&w->attention, batch, q->n_heads, q->head_dim, e) &&
           reference_alloc(&w->k, batch, q->n_kv_heads, q->head_dim, e) &&
           reference_alloc(&w->v, batch, q->n_kv_heads, q->head_dim, e) &&
           reference_alloc(&w->gate, batch, q->intermediate_size, 1, e) &&
           reference_alloc(&w->up, batch, q->intermediate_size, 1, e) &&
           reference_alloc(&w->cosines, batch, q->head_dim / 2, 1, e) &&
           reference_alloc(&w->sines, batch, q->head_dim / 2, 1, e) &&
           reference_alloc(&w->scores, pool_threads(r->parts->pool), s->capacity, 1, e);
}

static bool session_state(const struct reference_session *s, int64_t layer, enum reference_state_kind kind,
                          struct reference_state *out)
{
    const struct qwen3 *q = s->reference->parts->own;
    const struct work *w = s->own;
    if (kind != REFERENCE_KEYS && kind != REFERENCE_VALUES)
        return false;
    *out = (struct reference_state){3, {q->n_kv_heads, s->capacity, q->head_dim}, NULL};
    out->data = kind == REFERENCE_KEYS ? w->keys[layer] : w->values[layer];
    return true;
}

/* ---- the forward pass ---- */

/* Norms and turns each head of each token: rows [n, n_heads, head_dim]. */
static void norm_and_turn(const struct qwen3 *q, const struct work *w, float *rows, const float *norm,
                          int64_t n, int64_t n_heads)
{
    reference_rms_norm(rows, norm, n * n_heads, q->head_dim, q->eps, rows);
    reference_rope_turn_heads(rows, n, n_heads, q->head_dim, q->rope.n_pairs, w->cosines, w->sines);
}

static void attention_block(struct reference_session *s, const struct qwen3 *q, const struct layer *l,
                            int64_t i_layer, int64_t n)
{
    const struct reference *r = s->reference;
    struct work *w = s->own;
    reference_rms_norm(s->stream, l->input_norm, n, r->hidden_size, q->eps, w->h);
    reference_linear(s, l->projection[Q], l->bias[Q], w->h, n, w->q);
    reference_linear(s, l->projection[K], l->bias[K], w->h, n, w->k);
    reference_linear(s, l->projection[V], l->bias[V], w->h, n, w->v);
    norm_and_turn(q, w, w->q, l->q_norm, n, q->n_heads);
    norm_and_turn(q, w, w->k, l->k_norm, n, q->n_kv_heads);
    reference_store(s, w->k, n, q->n_kv_heads, q->head_dim, w->keys[i_layer]);
    reference_store(s, w->v, n, q->n_kv_heads, q->head_dim, w->values[i_layer]);
    struct reference_attention a = {.query = w->q,
                                    .keys = w->keys[i_layer],
                                    .values = w->values[i_layer],
                                    .scores = w->scores,
                                    .output = w->attention,
                                    .n = n,
                                    .position = s->position,
                                    .capacity = s->capacity,
                                    .n_heads = q->n_heads,
                                    .n_kv_heads = q->n_kv_heads,
                                    .dim = q->head_dim,
                                    .scale =
                                        reference_constant(s->reference, 1.0 / sqrt((double)q->head_dim))};
    reference_attend(r->parts, &a);
    reference_linear(s, l->projection[O], l->bias[O], w->attention, n, w->h);
    reference_add(s->stream, w->h, n * r->hidden_size);
}

static void mlp_block(struct reference_session *s, const struct qwen3 *q, const struct layer *l, int64_t n)
{
    const struct reference *r = s->reference;
    struct work *w = s->own;
    reference_rms_norm(s->stream, l->post_norm, n, r->hidden_size, q->eps, w->h);
    reference_linear(s, l->gate, NULL, w->h, n, w->gate);
    reference_linear(s, l->up, NULL, w->h, n, w->up);
    for (int64_t i = 0; i < n * q->intermediate_size; i++)
        w->gate[i] = reference_silu(w->gate[i]) * w->up[i];
    reference_linear(s, l->down, NULL, w->gate, n, w->h);
    reference_add(s->stream, w->h, n * r->hidden_size);
}

static void embed(struct reference_session *s, const int32_t *tokens, int64_t n)
{
    const struct qwen3 *q = s->reference->parts->own;
    struct work *w = s->own;
    int64_t pairs = q->rope.n_pairs;
    for (int64_t t = 0; t < n; t++)
        reference_rope_row(&q->rope, s->position + t, w->cosines + t * pairs, w->sines + t * pairs);
    reference_gather(q->embeddings, tokens, n, s->stream);
}

static void run_layer(struct reference_session *s, int64_t i_layer, int64_t n)
{
    const struct qwen3 *q = s->reference->parts->own;
    attention_block(s, q, &q->layers[i_layer], i_layer, n);
    mlp_block(s, q, &q->layers[i_layer], n);
}

static void finish(struct reference_session *s, int64_t n)
{
    const struct qwen3 *q = s->reference->parts->own;
    reference_rms_norm(s->stream, q->norm, n, s->reference->hidden_size, q->eps, s->hidden);
}

const struct reference_family reference_qwen3 = {
    .name = "qwen3",
    .matches = matches,
    .open = open_qwen3,
    .session_open = open_session,
    .session_close = close_session,
    .session_state = session_state,
    .embed = embed,
    .layer = run_layer,
    .finish = finish,
};
