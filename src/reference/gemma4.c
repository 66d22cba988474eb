/* Gemma 4 (text): local and global attention, per-layer inputs, layers that share keys and values.
 *
 * x = embedding * sqrt(hidden_size). Per-layer inputs of a token, one vector for every layer:
 *   (norm(projection of x / sqrt(hidden_size)) + second embedding * sqrt(size)) / sqrt(2).
 * In every layer, with a norm before and after each of the first two blocks:
 *   x += norm(o_proj(attention(q, keys, values))), q and k normed per head with a weight and turned, v normed
 *        without one, no scale; local layers see the last `window` positions;
 *   x += norm(down_proj(gelu(gate_proj(h)) * up_proj(h)));
 *   x += norm(projection(gelu(gate of x) * the layer's input)); x *= layer_scalar.
 * The last layers make no keys and values: they read those of the last layer of their type that does. Logits
 * are cap * tanh(products with the normed x / cap).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "reference/reference_internal.h"

struct layer {
    bool is_global, is_shared;
    int64_t source; /* the layer whose keys and values it reads */
    int64_t head_dim, n_kv_heads, intermediate_size;
    struct reference_layer tensors; /* K, V, K_NORM: NULL when shared */
};

struct gemma4 {
    int64_t n_heads, intermediate_size, window, per_layer_size;
    int64_t placeholder[3],
        padding; /* ids of images, audio, video (-1: none), and what stands in their place */
    int64_t max_head_dim, max_kv_width, max_intermediate;
    float eps;
    struct reference_rope rope[2]; /* local, global; pairs that do not turn have frequency 0 */
    const struct st_tensor *per_layer_table, *model_projection;
    const float *norm, *projection_norm;
    struct layer *layers; /* [n_layers] */
};

/* Work space of a session; rows are tokens of a batch. */
struct work {
    float **keys, **values;       /* [n_layers] of [n_kv_heads, capacity, head_dim]; shared: NULL */
    float *h;                     /* [batch, hidden_size] */
    float *gate, *up;             /* [batch, widest of MLP and per-layer size] */
    float *per_layer, *projected; /* [batch, n_layers * per_layer_size] */
    int32_t *ids;                 /* [batch] */
    float *cosines[2], *sines[2]; /* [batch, head_dim / 2] */
    struct reference_rows rows;
};

static const char *const model_types[] = {"gemma4", "gemma4_text", NULL};

/* ---- settings ---- */

static bool check_variants(const struct reference *r, struct err *e)
{
    static const char *const refused[] = {"attention_k_eq_v", "enable_moe_block",
                                          "use_bidirectional_attention", "attention_bias"};
    const cJSON *config = r->parts->config.text;
    const char *where = r->parts->config.path;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const cJSON *item = json_get(config, refused[i]);
        if (item && !cJSON_IsNull(item) && !cJSON_IsFalse(item))
            return err_set(e, ERR_UNSUPPORTED, "%s: key %s: the reference knows only models without it",
                           where, refused[i]);
    }
    return config_check_activation(&r->parts->config, "hidden_activation", "gelu_pytorch_tanh", NULL, e);
}

static bool read_types(struct reference *r, struct gemma4 *g, int64_t n_shared, struct err *e)
{
    const char *where = r->parts->config.path;
    static const char *const names[] = {"sliding_attention", "full_attention"};
    int *types = ARENA_ARRAY(r->parts->arena, int, r->n_layers);
    int64_t last[2] = {-1, -1}, first_shared = r->n_layers - n_shared;
    bool given;
    if (!config_get_layer_types(&r->parts->config, names, 2, r->n_layers, types, &given, e))
        return false;
    for (int64_t i = 0; i < r->n_layers; i++) {
        struct layer *l = &g->layers[i];
        l->is_global = given ? types[i] == 1 : (i + 1) % 6 == 0;
        /* whatever the list says */
        l->is_global = l->is_global || i == r->n_layers - 1;
        l->is_shared = i >= first_shared;
        if (!l->is_shared)
            last[l->is_global] = i;
        l->source = last[l->is_global];
        if (l->source < 0)
            return err_set(
                e, ERR_FORMAT,
                "%s: key num_kv_shared_layers: layer %lld has no layer of its type to read keys from", where,
                (long long)i);
    }
    return true;
}

/* Sizes of each layer: by its type, or as per_layer_config says, which replaces global_head_dim. */
static bool read_layer_sizes(struct reference *r, struct gemma4 *g, bool double_wide, struct err *e)
{
    const char *where = r->parts->config.path;
    const cJSON *config = r->parts->config.text, *per_layer = json_get(config, "per_layer_config");
    int64_t local_dim = 256, global_dim = 512, n_kv_heads = 4;
    if (!reference_get_size(r, "head_dim", CONFIG_HEADS_MAX, &local_dim, e) ||
        !reference_get_size(r, "num_key_value_heads", CONFIG_HEADS_MAX, &n_kv_heads, e) ||
        !reference_get_size(r, "global_head_dim", CONFIG_HEADS_MAX, &global_dim, e))
        return false;
    for (int64_t i = 0; i < r->n_layers; i++) {
        struct layer *l = &g->layers[i];
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        l->head_dim = l->is_global && !cJSON_IsObject(per_layer) ? global_dim : local_dim;
        l->n_kv_heads = n_kv_heads;
        const cJSON *own = cJSON_IsObject(per_layer) ? json_get(per_layer, number) : NULL;
        if (!json_get_int(own, "head_dim", &l->head_dim, where, e) ||
            !json_get_int(own, "num_key_value_heads", &l->n_kv_heads, where, e))
            return false;
        l->intermediate_size = g->intermediate_size * (double_wide && l->is_shared ? 2 : 1);
        if (l->head_dim < 2 || l->head_dim > CONFIG_HEADS_MAX || l->head_dim % 2 != 0 || l->n_kv_heads < 1 ||
            l->n_kv_heads > g->n_heads || g->n_heads % l->n_kv_heads != 0)
            return err_set(e, ERR_FORMAT, "%s: layer %lld: %lld heads on %lld key heads of %lld do not fit",
                           where, (long long)i, (long long)g->n_heads, (long long)l->n_kv_heads,
                           (long long)l->head_dim);
        const struct layer *source = &g->layers[l->source];
        if (source->head_dim != l->head_dim || source->n_kv_heads != l->n_kv_heads)
            return err_set(e, ERR_FORMAT, "%s: layers %lld and %lld share keys but differ in their sizes",
                           where, (long long)l->source, (long long)i);
        int64_t kv_width = l->n_kv_heads * l->head_dim;
        g->max_head_dim = l->head_dim > g->max_head_dim ? l->head_dim : g->max_head_dim;
        g->max_kv_width = kv_width > g->max_kv_width ? kv_width : g->max_kv_width;
        g->max_intermediate =
            l->intermediate_size > g->max_intermediate ? l->intermediate_size : g->max_intermediate;
    }
    if (g->max_intermediate < g->per_layer_size)
        g->max_intermediate = g->per_layer_size;
    return true;
}

/* Frequencies of all pairs of a head: those beyond the turning part are 0, as in the published code. */
static bool read_rope(struct reference *r, struct gemma4 *g, bool is_global, struct err *e)
{
    const char *where = r->parts->config.path;
    const char *name = is_global ? "full_attention" : "sliding_attention";
    const cJSON *all = json_get(r->parts->config.text, "rope_parameters");
    bool given = all && !cJSON_IsNull(all);
    const cJSON *own = given ? json_get(all, name) : NULL;
    const char *type = given || !is_global ? "default" : "proportional";
    double theta = is_global ? 1e6 : 1e4, turning = given || !is_global ? 1 : 0.25, factor = 1;
    struct reference_rope *rope = &g->rope[is_global];
    int64_t dim = 0;
    for (int64_t i = 0; i < r->n_layers; i++) {
        if (g->layers[i].is_global != is_global)
            continue;
        if (dim != 0 && dim != g->layers[i].head_dim)
            return err_set(e, ERR_UNSUPPORTED, "%s: layers of type %s have heads of %lld and of %lld", where,
                           name, (long long)dim, (long long)g->layers[i].head_dim);
        dim = g->layers[i].head_dim;
    }
    if (given && dim != 0 && !cJSON_IsObject(own))
        return err_set(e, ERR_FORMAT, "%s: rope_parameters.%s: expected an object", where, name);
    if (!json_get_string(own, "rope_type", &type, where, e) ||
        !json_get_double(own, "rope_theta", &theta, where, e) ||
        !json_get_double(own, "partial_rotary_factor", &turning, where, e))
        return false;
    bool proportional = strcmp(type, "proportional") == 0;
    if (!proportional && strcmp(type, "default") != 0)
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s: rope_parameters.%s: the reference knows the types default and proportional, found "
            "\"%s\"",
            where, name, type);
    if (proportional && !json_get_double(own, "factor", &factor, where, e))
        return false;
    if (!(isfinite(theta) && theta > 0 && isfinite(factor) && factor > 0 && turning > 0 && turning <= 1) ||
        (!proportional && turning != 1))
        return err_set(e, ERR_FORMAT, "%s: rope_parameters.%s: a setting is out of range", where, name);
    int64_t n_turning = proportional ? (int64_t)(turning * (double)dim / 2) : dim / 2;
    rope->n_pairs = dim / 2;
    rope->inverse_frequency = ARENA_ARRAY(r->parts->arena, float, rope->n_pairs);
    rope->attention_factor = 1;
    rope->is_fp16 = r->parts->fp16_constants;
    for (int64_t i = 0; i < n_turning; i++) {
        float exponent = (float)(2 * i) / (float)dim;
        rope->inverse_frequency[i] =
            1.0f / (float)pow((double)(float)theta, (double)exponent) / (float)factor;
    }
    return true;
}

/* A multimodal checkpoint has ids for what is not text; its forward pass embeds the padding id in their place. */
static bool read_placeholders(struct reference *r, struct gemma4 *g, struct err *e)
{
    static const char *const keys[] = {"image_token_id", "audio_token_id", "video_token_id"};
    static const int64_t defaults[] = {258880, 258881, 258884};
    const cJSON *config = r->parts->config.top;
    for (int k = 0; k < 3; k++) {
        const cJSON *id = json_get(config, keys[k]);
        g->placeholder[k] = r->parts->config.text == config || (id && cJSON_IsNull(id)) ? -1 : defaults[k];
        if (g->placeholder[k] >= 0 &&
            !json_get_int(config, keys[k], &g->placeholder[k], r->parts->config.path, e))
            return false;
    }
    if (!json_get_int(r->parts->config.text, "pad_token_id", &g->padding, r->parts->config.path, e))
        return false;
    for (int k = 0; k < 3; k++)
        if (g->placeholder[k] >= 0 && g->placeholder[k] < r->vocab_size &&
            (g->padding < 0 || g->padding >= r->vocab_size))
            return err_set(e, ERR_FORMAT, "%s: text_config.pad_token_id: %lld is not an id of the vocabulary",
                           r->parts->config.path, (long long)g->padding);
    return true;
}

static bool read_settings(struct reference *r, struct gemma4 *g, bool *tied, struct err *e)
{
    const cJSON *config = r->parts->config.text;
    const char *where = r->parts->config.path;
    double eps = 1e-6, cap = 0;
    int64_t n_shared = 0;
    bool double_wide = false;
    r->vocab_size = 262144;
    r->hidden_size = 2304;
    r->n_layers = 30;
    r->max_positions = 131072;
    g->intermediate_size = 9216;
    g->n_heads = 8;
    g->window = 512;
    g->per_layer_size = 256;
    *tied = true;
    if (!reference_get_size(r, "vocab_size", CONFIG_SIZE_MAX, &r->vocab_size, e) ||
        !reference_get_size(r, "hidden_size", CONFIG_SIZE_MAX, &r->hidden_size, e) ||
        !reference_get_size(r, "num_hidden_layers", 10000, &r->n_layers, e) ||
        !reference_get_size(r, "max_position_embeddings", INT32_MAX, &r->max_positions, e) ||
        !reference_get_size(r, "intermediate_size", CONFIG_SIZE_MAX / 2, &g->intermediate_size, e) ||
        !reference_get_size(r, "num_attention_heads", CONFIG_HEADS_MAX, &g->n_heads, e) ||
        !reference_get_size(r, "sliding_window", CONFIG_SIZE_MAX, &g->window, e) ||
        !reference_get_size(r, "hidden_size_per_layer_input", CONFIG_HEADS_MAX, &g->per_layer_size, e) ||
        !json_get_int(config, "num_kv_shared_layers", &n_shared, where, e) ||
        !json_get_bool(config, "use_double_wide_mlp", &double_wide, where, e) ||
        !config_get_epsilon(&r->parts->config, &eps, e) ||
        !json_get_double(config, "final_logit_softcapping", &cap, where, e) ||
        !json_get_bool(r->parts->config.top, "tie_word_embeddings", tied, where, e))
        return false;
    if (n_shared < 0 || n_shared >= r->n_layers)
        return err_set(e, ERR_FORMAT, "%s: key num_kv_shared_layers: expected 0 to %lld, found %lld", where,
                       (long long)r->n_layers - 1, (long long)n_shared);
    if (!(isfinite(cap) && cap >= 0))
        return err_set(e, ERR_FORMAT, "%s: key final_logit_softcapping: expected 0 or more, found %g", where,
                       cap);
    g->eps = (float)eps;
    r->parts->softcap = (float)cap;
    g->layers = ARENA_ARRAY(r->parts->arena, struct layer, r->n_layers);
    return check_variants(r, e) && read_placeholders(r, g, e) && read_types(r, g, n_shared, e) &&
           read_layer_sizes(r, g, double_wide, e) && read_rope(r, g, false, e) && read_rope(r, g, true, e);
}

/* ---- tensors ---- */

static bool find_layer(struct reference *r, const struct gemma4 *g, int64_t i, struct err *e)
{
    struct layer *l = &g->layers[i];
    const int64_t sizes[DECODER_SIZES] = {[DECODER_ONE] = 1,
                                          [DECODER_HIDDEN] = r->hidden_size,
                                          [DECODER_QUERY] = g->n_heads * l->head_dim,
                                          [DECODER_HEADS] = g->n_heads * l->head_dim,
                                          [DECODER_KV] = l->n_kv_heads * l->head_dim,
                                          [DECODER_HEAD] = l->head_dim,
                                          [DECODER_INNER] = l->intermediate_size,
                                          [DECODER_PER_LAYER] = g->per_layer_size};
    unsigned parts =
        DECODER_ATTENTION | DECODER_HEAD_NORMS | DECODER_POST_NORMS | DECODER_MLP | DECODER_PER_LAYER_INPUTS;
    return reference_find_layer(r, i, parts | (l->is_shared ? 0 : DECODER_KEYS), sizes, &l->tensors, e);
}

static bool open_gemma4(struct reference *r, struct err *e)
{
    struct reference_parts *p = r->parts;
    struct gemma4 *g = ARENA_NEW(p->arena, struct gemma4);
    bool tied = true;
    int64_t n_table_rows;
    p->own = g;
    if (!read_settings(r, g, &tied, e))
        return false;
    n_table_rows = r->vocab_size;
    if (!reference_get_size(r, "vocab_size_per_layer_input", CONFIG_SIZE_MAX, &n_table_rows, e))
        return false;
    if (n_table_rows < r->vocab_size)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: key vocab_size_per_layer_input: expected at least %lld, found %lld",
                       p->config.path, (long long)r->vocab_size, (long long)n_table_rows);
    int64_t all = r->n_layers * g->per_layer_size;
    if (!reference_find_ends(r, tied, &g->norm, e) ||
        !reference_require(r, "model.embed_tokens_per_layer.weight", n_table_rows, all, &g->per_layer_table,
                           e) ||
        !reference_require(r, "model.per_layer_model_projection.weight", all, r->hidden_size,
                           &g->model_projection, e) ||
        !reference_require_vector(r, "model.per_layer_projection_norm.weight", g->per_layer_size,
                                  &g->projection_norm, e))
        return false;
    for (int64_t i = 0; i < r->n_layers; i++)
        if (!find_layer(r, g, i, e))
            return false;
    return true;
}

/* ---- sessions ---- */

static bool open_session(struct reference_session *s, struct err *e)
{
    const struct reference *r = s->reference;
    const struct gemma4 *g = r->parts->own;
    const int64_t batch = s->batch;
    struct work *w = s->own = ARENA_NEW(s->arena, struct work);
    w->keys = ARENA_ARRAY(s->arena, float *, s->reference->n_layers);
    w->values = ARENA_ARRAY(s->arena, float *, s->reference->n_layers);
    w->ids = ARENA_ARRAY(s->arena, int32_t, batch);
    for (int64_t i = 0; i < r->n_layers; i++) {
        const struct layer *l = &g->layers[i];
        if (!l->is_shared && (!reference_take(s, &w->keys[i], l->n_kv_heads, s->capacity, l->head_dim, e) ||
                              !reference_take(s, &w->values[i], l->n_kv_heads, s->capacity, l->head_dim, e)))
            return err_wrap(e, "the reference's KV cache for %lld positions", (long long)s->capacity);
    }
    for (int k = 0; k < 2; k++)
        if (!reference_take(s, &w->cosines[k], batch, g->rope[k].n_pairs + 1, 1, e) ||
            !reference_take(s, &w->sines[k], batch, g->rope[k].n_pairs + 1, 1, e))
            return false;
    return reference_take(s, &w->h, batch, r->hidden_size, 1, e) &&
           reference_rows_take(s, &w->rows, g->n_heads * g->max_head_dim, g->max_kv_width, e) &&
           reference_take(s, &w->gate, batch, g->max_intermediate, 1, e) &&
           reference_take(s, &w->up, batch, g->max_intermediate, 1, e) &&
           reference_take(s, &w->per_layer, batch, r->n_layers, g->per_layer_size, e) &&
           reference_take(s, &w->projected, batch, r->n_layers, g->per_layer_size, e);
}

static bool session_state(const struct reference_session *s, int64_t layer, enum reference_state_kind kind,
                          struct reference_state *out)
{
    const struct gemma4 *g = s->reference->parts->own;
    const struct layer *l = &g->layers[layer];
    const struct work *w = s->own;
    if (l->is_shared || (kind != REFERENCE_KEYS && kind != REFERENCE_VALUES))
        return false;
    *out = (struct reference_state){3, {l->n_kv_heads, s->capacity, l->head_dim}, NULL};
    out->data = kind == REFERENCE_KEYS ? w->keys[layer] : w->values[layer];
    return true;
}

/* ---- the forward pass ---- */

/* The stream += norm(y) for n rows. */
static void add_normed(struct reference_session *s, const struct gemma4 *g, float *y, const float *norm,
                       int64_t n)
{
    const struct reference *r = s->reference;
    reference_rms_norm(s, y, norm, n, r->hidden_size, g->eps, y);
    reference_add(s, s->stream, y, n * r->hidden_size);
}

static void attention_block(struct reference_session *s, const struct gemma4 *g, int64_t i_layer, int64_t n)
{
    const struct reference *r = s->reference;
    const struct layer *l = &g->layers[i_layer];
    struct work *w = s->own;
    const float *cosines = w->cosines[l->is_global], *sines = w->sines[l->is_global];
    int64_t n_pairs = g->rope[l->is_global].n_pairs;
    const struct reference_rows *rows = &w->rows;
    const struct reference_heads heads = {.n = g->n_heads,
                                          .n_kv = l->n_kv_heads,
                                          .dim = l->head_dim,
                                          .window = l->is_global ? 0 : g->window,
                                          .scale = 1};
    reference_rms_norm(s, s->stream, l->tensors.vector[DECODER_INPUT_NORM], n, r->hidden_size, g->eps, w->h);
    reference_linear(s, l->tensors.matrix[DECODER_Q], NULL, w->h, n, rows->q);
    reference_rms_norm(s, rows->q, l->tensors.vector[DECODER_Q_NORM], n * heads.n, heads.dim, g->eps,
                       rows->q);
    reference_rope_turn_heads(s, rows->q, n, heads.n, heads.dim, n_pairs, cosines, sines);
    if (!l->is_shared) {
        reference_linear(s, l->tensors.matrix[DECODER_K], NULL, w->h, n, rows->k);
        reference_linear(s, l->tensors.matrix[DECODER_V], NULL, w->h, n, rows->v);
        reference_rms_norm(s, rows->k, l->tensors.vector[DECODER_K_NORM], n * heads.n_kv, heads.dim, g->eps,
                           rows->k);
        reference_rms_norm(s, rows->v, NULL, n * heads.n_kv, heads.dim, g->eps, rows->v);
        reference_rope_turn_heads(s, rows->k, n, heads.n_kv, heads.dim, n_pairs, cosines, sines);
        reference_store_rows(s, rows, &heads, n, w->keys[i_layer], w->values[i_layer]);
    }
    reference_attend(s, rows, &heads, n, w->keys[l->source], w->values[l->source]);
    reference_linear(s, l->tensors.matrix[DECODER_O], NULL, rows->output, n, w->h);
    add_normed(s, g, w->h, l->tensors.vector[DECODER_POST_ATTENTION_NORM], n);
}

static void mlp_block(struct reference_session *s, const struct gemma4 *g, const struct layer *l, int64_t n)
{
    const struct reference *r = s->reference;
    struct work *w = s->own;
    reference_rms_norm(s, s->stream, l->tensors.vector[DECODER_MLP_NORM], n, r->hidden_size, g->eps, w->h);
    reference_linear(s, l->tensors.matrix[DECODER_GATE], NULL, w->h, n, w->gate);
    reference_linear(s, l->tensors.matrix[DECODER_UP], NULL, w->h, n, w->up);
    reference_gate(s, &(struct reference_gate){.act = REFERENCE_GELU,
                                               .gate = w->gate,
                                               .x = w->up,
                                               .gate_stride = l->intermediate_size,
                                               .x_stride = l->intermediate_size,
                                               .n = n,
                                               .width = l->intermediate_size,
                                               .out = w->gate});
    reference_linear(s, l->tensors.matrix[DECODER_DOWN], NULL, w->gate, n, w->h);
    add_normed(s, g, w->h, l->tensors.vector[DECODER_POST_MLP_NORM], n);
}

static void per_layer_block(struct reference_session *s, const struct gemma4 *g, int64_t i_layer, int64_t n)
{
    const struct reference *r = s->reference;
    const struct layer *l = &g->layers[i_layer];
    struct work *w = s->own;
    int64_t size = g->per_layer_size;
    reference_linear(s, l->tensors.matrix[DECODER_PER_LAYER_GATE], NULL, s->stream, n, w->gate);
    reference_gate(s, &(struct reference_gate){.act = REFERENCE_GELU,
                                               .gate = w->gate,
                                               .x = w->per_layer + i_layer * size,
                                               .gate_stride = size,
                                               .x_stride = r->n_layers * size,
                                               .n = n,
                                               .width = size,
                                               .out = w->gate});
    reference_linear(s, l->tensors.matrix[DECODER_PER_LAYER_PROJECTION], NULL, w->gate, n, w->h);
    add_normed(s, g, w->h, l->tensors.vector[DECODER_PER_LAYER_NORM], n);
    reference_scale(s, s->stream, n * r->hidden_size, l->tensors.vector[DECODER_SCALAR][0]);
}

/* Embeddings of the tokens to x, and their per-layer inputs. */
static void embed(struct reference_session *s, const int32_t *tokens, int64_t n)
{
    const struct reference *r = s->reference;
    const struct gemma4 *g = r->parts->own;
    struct work *w = s->own;
    int64_t h = r->hidden_size, all = r->n_layers * g->per_layer_size;
    float root = (float)sqrt((double)h), per_layer_root = (float)sqrt((double)g->per_layer_size);
    float inverse_root = (float)(1.0 / sqrt((double)h)), half_root = reference_constant(r, sqrt(0.5));
    for (int k = 0; k < 2; k++)
        reference_rope_rows(&g->rope[k], s->position, n, w->cosines[k], w->sines[k]);
    for (int64_t t = 0; t < n; t++) {
        bool is_placeholder = false;
        for (int k = 0; k < 3; k++)
            is_placeholder = is_placeholder || tokens[t] == g->placeholder[k];
        w->ids[t] = is_placeholder ? (int32_t)g->padding : tokens[t];
    }
    reference_gather(s, s->reference->parts->ends.embeddings, w->ids, n, s->stream);
    reference_scale(s, s->stream, n * h, root);
    reference_linear(s, g->model_projection, NULL, s->stream, n, w->projected);
    reference_scale(s, w->projected, n * all, inverse_root);
    reference_rms_norm(s, w->projected, g->projection_norm, n * r->n_layers, g->per_layer_size, g->eps,
                       w->projected);
    reference_gather(s, g->per_layer_table, w->ids, n, w->per_layer);
    reference_scale(s, w->per_layer, n * all, per_layer_root);
    reference_add(s, w->per_layer, w->projected, n * all);
    reference_scale(s, w->per_layer, n * all, half_root);
}

static void run_layer(struct reference_session *s, int64_t i_layer, int64_t n)
{
    const struct gemma4 *g = s->reference->parts->own;
    attention_block(s, g, i_layer, n);
    mlp_block(s, g, &g->layers[i_layer], n);
    per_layer_block(s, g, i_layer, n);
}

static void finish(struct reference_session *s, int64_t n)
{
    const struct gemma4 *g = s->reference->parts->own;
    reference_rms_norm(s, s->stream, g->norm, n, s->reference->hidden_size, g->eps, s->hidden);
}

const struct reference_family reference_gemma4 = {
    .name = "gemma4",
    .model_types = model_types,
    .shares_layers = true,
    .open = open_gemma4,
    .session_open = open_session,
    .session_state = session_state,
    .embed = embed,
    .layer = run_layer,
    .finish = finish,
};
