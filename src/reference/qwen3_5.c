/* Qwen3.5: layers of gated attention and of linear attention with a memory, dense or with experts.
 *
 * For a token's residual stream x, in every layer: h = norm(x); x += attention or linear attention of h;
 * h = norm(x); x += MLP(h). Norm weights are stored minus one, but for the one inside linear attention.
 * Gated attention: every head's query projection has a second half, whose sigmoid multiplies the head's result;
 * only the first part of a head turns with the position.
 */
#include "reference/qwen3_5.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const model_types[] = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", NULL};

/* ---- settings ---- */

static bool read_layer_types(struct reference *r, struct qwen3_5 *q, struct err *e)
{
    static const char *const names[] = {"linear_attention", "full_attention"};
    int *types = ARENA_ARRAY(r->parts->arena, int, r->n_layers);
    int64_t interval = 4;
    bool given;
    if (!reference_get_size(r, "full_attention_interval", 10000, &interval, e) ||
        !config_get_layer_types(&r->parts->config, names, 2, r->n_layers, types, &given, e))
        return false;
    q->layers = ARENA_ARRAY(r->parts->arena, struct qwen3_5_layer, r->n_layers);
    for (int64_t i = 0; i < r->n_layers; i++)
        q->layers[i].is_full = given ? types[i] == 1 : (i + 1) % interval == 0;
    return true;
}

static bool read_widths(struct reference *r, struct qwen3_5 *q, struct err *e)
{
    struct config_sizes *z = &q->sizes;
    *z = (struct config_sizes){.vocab_size = 248320,
                               .hidden_size = q->is_moe ? 2048 : 4096,
                               .n_layers = q->is_moe ? 40 : 32,
                               .intermediate_size = 12288,
                               .n_heads = 16,
                               .n_kv_heads = q->is_moe ? 2 : 4,
                               .head_dim = 256,
                               .rms_norm_eps = 1e-6};
    r->max_positions = 32768;
    q->n_k = 16;
    q->n_v = 32;
    q->d_k = q->d_v = 128;
    q->kernel = 4;
    q->experts = (struct config_experts){.n = 256, .n_chosen = 8, .size = 512, .normalizes = true};
    q->shared_size = 512;
    const struct {
        const char *key;
        int64_t max, *value;
    } sizes[] = {
        {"max_position_embeddings", INT32_MAX, &r->max_positions},
        {"linear_num_key_heads", CONFIG_HEADS_MAX, &q->n_k},
        {"linear_num_value_heads", CONFIG_HEADS_MAX, &q->n_v},
        {"linear_key_head_dim", CONFIG_HEADS_MAX, &q->d_k},
        {"linear_value_head_dim", CONFIG_HEADS_MAX, &q->d_v},
        {"linear_conv_kernel_dim", 1024, &q->kernel},
        {"shared_expert_intermediate_size", CONFIG_SIZE_MAX, &q->shared_size},
    };
    if (!config_get_sizes(&r->parts->config, z, e))
        return false;
    r->vocab_size = z->vocab_size;
    r->hidden_size = z->hidden_size;
    r->n_layers = z->n_layers;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!reference_get_size(r, sizes[i].key, sizes[i].max, sizes[i].value, e))
            return false;
    q->conv_dim = 2 * q->n_k * q->d_k + q->n_v * q->d_v;
    if (q->is_moe && !config_get_experts(&r->parts->config, false, &q->experts, e))
        return false;
    return config_check_multiple(&r->parts->config, "linear_num_value_heads", q->n_v, "linear_num_key_heads",
                                 q->n_k, e);
}

static bool read_settings(struct reference *r, struct qwen3_5 *q, bool *tied, struct err *e)
{
    const struct config *c = &r->parts->config;
    const char *type;
    if (!config_get_model_type(c, &type, e))
        return false;
    q->is_moe = strncmp(type, "qwen3_5_moe", strlen("qwen3_5_moe")) == 0;
    /* A wrapper has tie_word_embeddings at its top, a text model among its settings; published ones in both. */
    if (!read_widths(r, q, e) || !json_get_bool(c->text, "tie_word_embeddings", tied, c->path, e) ||
        !json_get_bool(c->top, "tie_word_embeddings", tied, c->path, e) ||
        !config_check_activation(c, "hidden_act", "silu", "swish", e))
        return false;
    q->eps = (float)q->sizes.rms_norm_eps;
    return reference_rope_read_partial(r, q->sizes.head_dim, &(struct config_rope_keys){.missing_part = 0.25},
                                       &q->rope, e) &&
           read_layer_types(r, q, e);
}

/* ---- tensors ---- */

static char *layer_name(const struct reference *r, int64_t layer, const char *name)
{
    return arena_printf(r->parts->arena, "model.layers.%lld.%s", (long long)layer, name);
}

static bool layer_weight(struct reference *r, int64_t layer, const char *name, int64_t rows, int64_t columns,
                         const struct st_tensor **out, struct err *e)
{
    return reference_require(r, layer_name(r, layer, name), rows, columns, out, e);
}

static bool layer_vector(struct reference *r, int64_t layer, const char *name, int64_t n, const float **out,
                         struct err *e)
{
    return reference_require_vector(r, layer_name(r, layer, name), n, out, e);
}

/* Published files have the layer's convolution as [channels, 1, taps], files for MLX as [channels, taps, 1]. */
static bool has_mlx_convolution(const struct reference *r, const struct qwen3_5 *q, int64_t i)
{
    const struct st_tensor *t =
        checkpoint_find(r->parts->names, layer_name(r, i, "linear_attn.conv1d.weight"));
    return t && t->rank == 3 && t->shape[1] == q->kernel && t->shape[2] == 1;
}

/* Whether norms hold the 1, by the layers' norms: gains are positive and nearer to 1 than to 0, gains minus one are not.
 * What the file says must agree, since the wrong reading would be a model that nobody trained. */
static bool judge_norms(struct reference *r, struct qwen3_5 *q, struct err *e)
{
    int64_t n = 0, n_negative = 0, n_large = 0, n_twice = 0;
    bool mlx_layout = false;
    const char *format = safetensors_metadata(r->parts->tensors, "format");
    for (int64_t i = 0; i < 2 * r->n_layers; i++) {
        const float *stored = q->layers[i / 2].tensors.vector[i % 2 ? DECODER_MLP_NORM : DECODER_INPUT_NORM];
        for (int64_t k = 0; k < r->hidden_size; k++) {
            n++;
            n_negative += stored[k] < 0;
            n_large += stored[k] > 0.5f;
            n_twice += stored[k] >= 1.5f;
        }
        mlx_layout = mlx_layout || (!q->layers[i / 2].is_full && has_mlx_convolution(r, q, i / 2));
    }
    q->norms_hold_one = 2 * n_large > n && 20 * n_negative <= n;
    bool says_so = mlx_layout || (format && strcmp(format, "mlx") == 0);
    return (q->norms_hold_one ? says_so && 2 * n_twice <= n : !mlx_layout) ||
           err_set(e, ERR_FORMAT,
                   "%s: %.0f %% of the layers' norm weights are above 0.5, %.0f %% negative; expected "
                   "numbers around 0 "
                   "as published, or around 1 in a file that says it was written for MLX",
                   r->parts->tensors->path, 100.0 * (double)n_large / (double)n,
                   100.0 * (double)n_negative / (double)n);
}

static bool find_linear(struct reference *r, const struct qwen3_5 *q, int64_t i, struct linear_attention *l,
                        struct err *e)
{
    int64_t h = r->hidden_size, width = q->n_v * q->d_v, conv_shape[3] = {q->conv_dim, 1, q->kernel};
    const struct st_tensor *conv;
    if (has_mlx_convolution(r, q, i)) {
        conv_shape[1] = q->kernel;
        conv_shape[2] = 1;
    }
    float *taps;
    if (!layer_weight(r, i, "linear_attn.in_proj_qkv.weight", q->conv_dim, h, &l->qkv, e) ||
        !layer_weight(r, i, "linear_attn.in_proj_z.weight", width, h, &l->z, e) ||
        !layer_weight(r, i, "linear_attn.in_proj_a.weight", q->n_v, h, &l->a, e) ||
        !layer_weight(r, i, "linear_attn.in_proj_b.weight", q->n_v, h, &l->b, e) ||
        !layer_weight(r, i, "linear_attn.out_proj.weight", h, width, &l->output, e) ||
        !layer_vector(r, i, "linear_attn.A_log", q->n_v, &l->a_log, e) ||
        !layer_vector(r, i, "linear_attn.dt_bias", q->n_v, &l->dt_bias, e) ||
        !layer_vector(r, i, "linear_attn.norm.weight", q->d_v, &l->norm, e) ||
        !reference_require_shape(r, layer_name(r, i, "linear_attn.conv1d.weight"), 3, conv_shape, &conv, e))
        return false;
    taps = arena_try_alloc(r->parts->arena, (size_t)conv->n_elems, sizeof *taps, e);
    l->conv = taps;
    return taps && st_read_f32(conv, taps, e);
}

static bool find_layer(struct reference *r, const struct qwen3_5 *q, int64_t i, struct err *e)
{
    struct qwen3_5_layer *l = &q->layers[i];
    const struct config_sizes *z = &q->sizes;
    const int64_t sizes[DECODER_SIZES] = {[DECODER_HIDDEN] = r->hidden_size,
                                          [DECODER_QUERY] = 2 * z->n_heads * z->head_dim,
                                          [DECODER_HEADS] = z->n_heads * z->head_dim,
                                          [DECODER_KV] = z->n_kv_heads * z->head_dim,
                                          [DECODER_HEAD] = z->head_dim,
                                          [DECODER_INNER] = z->intermediate_size};
    unsigned full = DECODER_ATTENTION | DECODER_KEYS | DECODER_HEAD_NORMS;
    unsigned biases = z->attention_bias ? DECODER_QKV_BIAS | DECODER_OUTPUT_BIAS : 0;
    unsigned parts = (q->is_moe ? 0 : DECODER_MLP) | (l->is_full ? full | biases : 0);
    return reference_find_layer(r, i, parts, sizes, &l->tensors, e) &&
           (l->is_full || find_linear(r, q, i, &l->linear, e)) &&
           (!q->is_moe || reference_qwen3_5_find_experts(r, q, i, l, e));
}

/* A norm's gains: its weight is stored minus one, but in files for MLX. NULL for NULL. */
static const float *gains_of(struct reference *r, const struct qwen3_5 *q, const float *stored, int64_t n)
{
    if (!stored)
        return NULL;
    float *gains = ARENA_ARRAY(r->parts->arena, float, n);
    for (int64_t i = 0; i < n; i++)
        gains[i] = reference_constant(r, (q->norms_hold_one ? 0.0 : 1.0) + (double)stored[i]);
    return gains;
}

static void make_gains(struct reference *r, struct qwen3_5 *q)
{
    static const enum decoder_tensor norms[] = {DECODER_INPUT_NORM, DECODER_MLP_NORM, DECODER_Q_NORM,
                                                DECODER_K_NORM};
    const int64_t sizes[] = {r->hidden_size, r->hidden_size, q->sizes.head_dim, q->sizes.head_dim};
    q->norm = gains_of(r, q, q->norm, r->hidden_size);
    for (int64_t i = 0; i < r->n_layers; i++) {
        const float **vectors = q->layers[i].tensors.vector;
        for (int k = 0; k < 4; k++)
            vectors[norms[k]] = gains_of(r, q, vectors[norms[k]], sizes[k]);
    }
}

static bool open_qwen3_5(struct reference *r, struct err *e)
{
    struct qwen3_5 *q = ARENA_NEW(r->parts->arena, struct qwen3_5);
    bool tied = false;
    r->parts->own = q;
    if (!read_settings(r, q, &tied, e) || !reference_find_ends(r, tied, &q->norm, e))
        return false;
    for (int64_t i = 0; i < r->n_layers; i++)
        if (!find_layer(r, q, i, e))
            return false;
    if (!judge_norms(r, q, e))
        return false;
    make_gains(r, q);
    return true;
}

/* ---- sessions ---- */

static bool open_states(struct reference_session *s, const struct qwen3_5 *q, struct qwen3_5_work *w,
                        struct err *e)
{
    size_t n = (size_t)s->reference->n_layers;
    w->keys = ARENA_ARRAY(s->arena, float *, s->reference->n_layers);
    w->values = ARENA_ARRAY(s->arena, float *, s->reference->n_layers);
    w->memory = ARENA_ARRAY(s->arena, float *, s->reference->n_layers);
    w->window = ARENA_ARRAY(s->arena, float *, s->reference->n_layers);
    for (size_t i = 0; i < n; i++) {
        bool ok =
            q->layers[i].is_full
                ? reference_take(s, &w->keys[i], q->sizes.n_kv_heads, s->capacity, q->sizes.head_dim, e) &&
                      reference_take(s, &w->values[i], q->sizes.n_kv_heads, s->capacity, q->sizes.head_dim, e)
                : reference_take(s, &w->memory[i], q->n_v, q->d_k, q->d_v, e) &&
                      reference_take(s, &w->window[i], q->kernel, q->conv_dim, 1, e);
        if (!ok)
            return err_wrap(e, "the reference's states for %lld positions", (long long)s->capacity);
    }
    return true;
}

static bool open_session(struct reference_session *s, struct err *e)
{
    const struct reference *r = s->reference;
    const struct qwen3_5 *q = r->parts->own;
    struct qwen3_5_work *w = s->own = ARENA_NEW(s->arena, struct qwen3_5_work);
    const int64_t batch = s->batch, h = r->hidden_size, width = q->sizes.n_heads * q->sizes.head_dim;
    int64_t widest = q->is_moe ? q->experts.size : q->sizes.intermediate_size;
    if (q->is_moe && q->shared_size > widest)
        widest = q->shared_size;
    const struct {
        float **to;
        int64_t rows, columns;
    } parts[] = {
        {&w->h, batch, h},
        {&w->y, batch, h},
        {&w->query_gate, batch, 2 * width},
        {&w->cosines, batch, q->rope.n_pairs},
        {&w->sines, batch, q->rope.n_pairs},
        {&w->rows, q->kernel - 1 + batch, q->conv_dim},
        {&w->mixed, batch, q->conv_dim},
        {&w->z, batch, q->n_v * q->d_v},
        {&w->o, batch, q->n_v * q->d_v},
        {&w->a, batch, q->n_v},
        {&w->b, batch, q->n_v},
    };
    if (!open_states(s, q, w, e) ||
        !reference_rows_take(s, &w->attention_rows, width, q->sizes.n_kv_heads * q->sizes.head_dim, e) ||
        !reference_experts_take(s, &q->experts, widest, &w->experts, e))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!reference_take(s, parts[i].to, parts[i].rows, parts[i].columns, 1, e))
            return false;
    return true;
}

static void reset_layer(struct reference_session *s, int64_t i)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    struct qwen3_5_work *w = s->own;
    /* Attention reads only positions that were written since. */
    if (q->layers[i].is_full)
        return;
    memset(w->memory[i], 0, (size_t)(q->n_v * q->d_k * q->d_v) * sizeof *w->memory[i]);
    memset(w->window[i], 0, (size_t)((q->kernel - 1) * q->conv_dim) * sizeof *w->window[i]);
}

static bool session_state(const struct reference_session *s, int64_t layer, enum reference_state_kind kind,
                          struct reference_state *out)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    const struct qwen3_5_work *w = s->own;
    bool of_full = kind == REFERENCE_KEYS || kind == REFERENCE_VALUES;
    if (q->layers[layer].is_full != of_full)
        return false;
    *out = of_full ? (struct reference_state){3, {q->sizes.n_kv_heads, s->capacity, q->sizes.head_dim}, NULL}
           : kind == REFERENCE_MEMORY ? (struct reference_state){3, {q->n_v, q->d_k, q->d_v}, NULL}
                                      : (struct reference_state){2, {q->kernel - 1, q->conv_dim, 0}, NULL};
    out->data = kind == REFERENCE_KEYS     ? w->keys[layer]
                : kind == REFERENCE_VALUES ? w->values[layer]
                : kind == REFERENCE_MEMORY ? w->memory[layer]
                                           : w->window[layer];
    return true;
}

/* ---- the forward pass ---- */

/* Norms and turns each head of each token: rows [n, n_heads, head_dim]. */
static void norm_and_turn(struct reference_session *s, const struct qwen3_5 *q, float *rows,
                          const float *norm, int64_t n, int64_t n_heads)
{
    const struct qwen3_5_work *w = s->own;
    reference_rms_norm(s, rows, norm, n * n_heads, q->sizes.head_dim, q->eps, rows);
    reference_rope_turn_heads(s, rows, n, n_heads, q->sizes.head_dim, q->rope.n_pairs, w->cosines, w->sines);
}

static void full_attention(struct reference_session *s, const struct qwen3_5 *q,
                           const struct reference_layer *l, int64_t i_layer, int64_t n, float *out)
{
    struct qwen3_5_work *w = s->own;
    const struct reference_rows *rows = &w->attention_rows;
    const int64_t d = q->sizes.head_dim;
    const struct reference_heads heads = {.n = q->sizes.n_heads,
                                          .n_kv = q->sizes.n_kv_heads,
                                          .dim = d,
                                          .scale = reference_constant(s->reference, 1.0 / sqrt((double)d))};
    reference_linear(s, l->matrix[DECODER_Q], l->vector[DECODER_Q_BIAS], w->h, n, w->query_gate);
    reference_linear(s, l->matrix[DECODER_K], l->vector[DECODER_K_BIAS], w->h, n, rows->k);
    reference_linear(s, l->matrix[DECODER_V], l->vector[DECODER_V_BIAS], w->h, n, rows->v);
    reference_copy(s, w->query_gate, n * heads.n, d, 2 * d, rows->q);
    norm_and_turn(s, q, rows->q, l->vector[DECODER_Q_NORM], n, heads.n);
    norm_and_turn(s, q, rows->k, l->vector[DECODER_K_NORM], n, heads.n_kv);
    reference_store_rows(s, rows, &heads, n, w->keys[i_layer], w->values[i_layer]);
    reference_attend(s, rows, &heads, n, w->keys[i_layer], w->values[i_layer]);
    reference_gate(s, &(struct reference_gate){.act = REFERENCE_SIGMOID,
                                               .gate = w->query_gate + d,
                                               .x = rows->output,
                                               .gate_stride = 2 * d,
                                               .x_stride = d,
                                               .n = n * heads.n,
                                               .width = d,
                                               .out = rows->output});
    reference_linear(s, l->matrix[DECODER_O], l->vector[DECODER_O_BIAS], rows->output, n, out);
}

static void embed(struct reference_session *s, const int32_t *tokens, int64_t n)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    struct qwen3_5_work *w = s->own;
    reference_rope_rows(&q->rope, s->position, n, w->cosines, w->sines);
    reference_gather(s, s->reference->parts->ends.embeddings, tokens, n, s->stream);
}

static void run_layer(struct reference_session *s, int64_t i_layer, int64_t n)
{
    int64_t hidden = s->reference->hidden_size;
    const struct qwen3_5 *q = s->reference->parts->own;
    const struct qwen3_5_layer *l = &q->layers[i_layer];
    struct qwen3_5_work *w = s->own;
    reference_rms_norm(s, s->stream, l->tensors.vector[DECODER_INPUT_NORM], n, hidden, q->eps, w->h);
    if (l->is_full)
        full_attention(s, q, &l->tensors, i_layer, n, w->y);
    else
        reference_qwen3_5_linear(s, l, i_layer, n, w->y);
    reference_add(s, s->stream, w->y, n * hidden);
    reference_rms_norm(s, s->stream, l->tensors.vector[DECODER_MLP_NORM], n, hidden, q->eps, w->h);
    reference_qwen3_5_mlp(s, l, n, w->y);
    reference_add(s, s->stream, w->y, n * hidden);
}

static void finish(struct reference_session *s, int64_t n)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    reference_rms_norm(s, s->stream, q->norm, n, s->reference->hidden_size, q->eps, s->hidden);
}

const struct reference_family reference_qwen3_5 = {
    .name = "qwen3_5",
    .model_types = model_types,
    .open = open_qwen3_5,
    .session_open = open_session,
    .layer_reset = reset_layer,
    .session_state = session_state,
    .embed = embed,
    .layer = run_layer,
    .finish = finish,
};
