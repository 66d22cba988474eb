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

#define SIZE_LIMIT 16777216 /* of any width; products of two of them are far from overflow */
#define HEADS_LIMIT 65536
#define EXPERTS_LIMIT 65536

static bool matches(const char *model_type)
{
    return strcmp(model_type, "qwen3_5") == 0 || strcmp(model_type, "qwen3_5_text") == 0 ||
           strcmp(model_type, "qwen3_5_moe") == 0 || strcmp(model_type, "qwen3_5_moe_text") == 0;
}

/* ---- settings ---- */

static bool multiple_of(const struct reference *r, const char *key, int64_t value, const char *of,
                        int64_t divisor, struct err *e)
{
    return value % divisor == 0 ||
           err_set(e, ERR_FORMAT, "%s: key %s: expected a multiple of %s %lld, found %lld",
                   r->parts->config_path, key, of, (long long)divisor, (long long)value);
}

static bool read_layer_types(struct reference *r, struct qwen3_5 *q, struct err *e)
{
    const cJSON *types = json_get(r->parts->text, "layer_types");
    const char *where = r->parts->config_path;
    int64_t interval = 4, i = 0;
    if (!reference_get_size(r, "full_attention_interval", 10000, &interval, e))
        return false;
    q->layers = ARENA_ARRAY(r->parts->arena, struct qwen3_5_layer, r->n_layers);
    for (i = 0; i < r->n_layers; i++)
        q->layers[i].is_full = (i + 1) % interval == 0;
    if (!types || cJSON_IsNull(types))
        return true;
    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != r->n_layers)
        return err_set(e, ERR_FORMAT, "%s: key layer_types: expected an array of %lld names", where,
                       (long long)r->n_layers);
    i = 0;
    for (const cJSON *t = types->child; t; t = t->next, i++) {
        const char *name = cJSON_IsString(t) ? t->valuestring : json_type_name(t);
        q->layers[i].is_full = strcmp(name, "full_attention") == 0;
        if (!q->layers[i].is_full && strcmp(name, "linear_attention") != 0)
            return err_set(
                e, ERR_UNSUPPORTED,
                "%s: key layer_types: the reference knows full_attention and linear_attention, found "
                "%s",
                where, name);
    }
    return true;
}

static bool read_widths(struct reference *r, struct qwen3_5 *q, struct err *e)
{
    r->vocab_size = 248320;
    r->hidden_size = q->is_moe ? 2048 : 4096;
    r->n_layers = q->is_moe ? 40 : 32;
    r->max_positions = 32768;
    q->intermediate_size = 12288;
    q->n_heads = 16;
    q->n_kv_heads = q->is_moe ? 2 : 4;
    q->head_dim = 256;
    q->n_k = 16;
    q->n_v = 32;
    q->d_k = q->d_v = 128;
    q->kernel = 4;
    q->n_experts = 256;
    q->n_chosen = 8;
    q->expert_size = q->shared_size = 512;
    const struct {
        const char *key;
        int64_t max, *value;
    } sizes[] = {
        {"vocab_size", SIZE_LIMIT, &r->vocab_size},
        {"hidden_size", SIZE_LIMIT, &r->hidden_size},
        {"num_hidden_layers", 10000, &r->n_layers},
        {"max_position_embeddings", INT32_MAX, &r->max_positions},
        {"intermediate_size", SIZE_LIMIT, &q->intermediate_size},
        {"num_attention_heads", HEADS_LIMIT, &q->n_heads},
        {"num_key_value_heads", HEADS_LIMIT, &q->n_kv_heads},
        {"head_dim", HEADS_LIMIT, &q->head_dim},
        {"linear_num_key_heads", HEADS_LIMIT, &q->n_k},
        {"linear_num_value_heads", HEADS_LIMIT, &q->n_v},
        {"linear_key_head_dim", HEADS_LIMIT, &q->d_k},
        {"linear_value_head_dim", HEADS_LIMIT, &q->d_v},
        {"linear_conv_kernel_dim", 1024, &q->kernel},
        {"num_experts", EXPERTS_LIMIT, &q->n_experts},
        {"num_experts_per_tok", EXPERTS_LIMIT, &q->n_chosen},
        {"moe_intermediate_size", SIZE_LIMIT, &q->expert_size},
        {"shared_expert_intermediate_size", SIZE_LIMIT, &q->shared_size},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!reference_get_size(r, sizes[i].key, sizes[i].max, sizes[i].value, e))
            return false;
    q->conv_dim = 2 * q->n_k * q->d_k + q->n_v * q->d_v;
    if (q->is_moe && q->n_chosen > q->n_experts)
        return err_set(e, ERR_FORMAT,
                       "%s: key num_experts_per_tok: expected at most num_experts %lld, found %lld",
                       r->parts->config_path, (long long)q->n_experts, (long long)q->n_chosen);
    return multiple_of(r, "num_attention_heads", q->n_heads, "num_key_value_heads", q->n_kv_heads, e) &&
           multiple_of(r, "linear_num_value_heads", q->n_v, "linear_num_key_heads", q->n_k, e);
}

static bool read_settings(struct reference *r, struct qwen3_5 *q, bool *tied, bool *biases, struct err *e)
{
    const struct reference_parts *p = r->parts;
    const char *where = p->config_path, *activation = "silu", *type = "";
    double eps = 1e-6;
    if (!json_get_string(p->config, "model_type", &type, where, e))
        return false;
    q->is_moe = strncmp(type, "qwen3_5_moe", strlen("qwen3_5_moe")) == 0;
    /* A wrapper has tie_word_embeddings at its top, a text model among its settings; published ones in both. */
    if (!read_widths(r, q, e) || !json_get_double(p->text, "rms_norm_eps", &eps, where, e) ||
        !json_get_bool(p->text, "tie_word_embeddings", tied, where, e) ||
        !json_get_bool(p->config, "tie_word_embeddings", tied, where, e) ||
        !json_get_bool(p->text, "attention_bias", biases, where, e) ||
        !json_get_string(p->text, "hidden_act", &activation, where, e))
        return false;
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: key hidden_act: the reference knows only silu, found \"%s\"",
                       where, activation);
    if (!(eps >= 0 && eps < 1))
        return err_set(e, ERR_FORMAT, "%s: key rms_norm_eps: expected a number in [0, 1), found %g", where,
                       eps);
    q->eps = (float)eps;
    return reference_rope_read_partial(r, q->head_dim, 0.25, &q->rope, e) && read_layer_types(r, q, e);
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

/* A norm's weight, which is stored minus one but in files for MLX. */
static bool norm_vector(struct reference *r, const struct qwen3_5 *q, const char *name, int64_t n,
                        const float **out, struct err *e)
{
    const float *stored;
    if (!reference_require_vector(r, name, n, &stored, e))
        return false;
    float *weight = ARENA_ARRAY(r->parts->arena, float, n);
    for (int64_t i = 0; i < n; i++)
        weight[i] = reference_constant(r, (q->norms_hold_one ? 0.0 : 1.0) + (double)stored[i]);
    *out = weight;
    return true;
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
    static const char *const names[] = {"input_layernorm.weight", "post_attention_layernorm.weight"};
    int64_t n = 0, n_negative = 0, n_large = 0, n_twice = 0;
    bool mlx_layout = false;
    const char *format = safetensors_metadata(r->parts->tensors, "format");
    for (int64_t i = 0; i < 2 * r->n_layers; i++) {
        const float *stored;
        if (!layer_vector(r, i / 2, names[i % 2], r->hidden_size, &stored, e))
            return false;
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

static bool find_full(struct reference *r, const struct qwen3_5 *q, bool biases, int64_t i,
                      struct full_attention *f, struct err *e)
{
    int64_t h = r->hidden_size, width = q->n_heads * q->head_dim, kv_width = q->n_kv_heads * q->head_dim;
    if (biases && (!layer_vector(r, i, "self_attn.q_proj.bias", 2 * width, &f->query_bias, e) ||
                   !layer_vector(r, i, "self_attn.k_proj.bias", kv_width, &f->key_bias, e) ||
                   !layer_vector(r, i, "self_attn.v_proj.bias", kv_width, &f->value_bias, e) ||
                   !layer_vector(r, i, "self_attn.o_proj.bias", h, &f->output_bias, e)))
        return false;
    return layer_weight(r, i, "self_attn.q_proj.weight", 2 * width, h, &f->query, e) &&
           layer_weight(r, i, "self_attn.k_proj.weight", kv_width, h, &f->key, e) &&
           layer_weight(r, i, "self_attn.v_proj.weight", kv_width, h, &f->value, e) &&
           layer_weight(r, i, "self_attn.o_proj.weight", h, width, &f->output, e) &&
           norm_vector(r, q, layer_name(r, i, "self_attn.q_norm.weight"), q->head_dim, &f->query_norm, e) &&
           norm_vector(r, q, layer_name(r, i, "self_attn.k_norm.weight"), q->head_dim, &f->key_norm, e);
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

static bool find_layer(struct reference *r, const struct qwen3_5 *q, bool biases, int64_t i, struct err *e)
{
    struct qwen3_5_layer *l = &q->layers[i];
    const char *post_norm = "post_attention_layernorm.weight";
    return norm_vector(r, q, layer_name(r, i, "input_layernorm.weight"), r->hidden_size, &l->input_norm, e) &&
           norm_vector(r, q, layer_name(r, i, post_norm), r->hidden_size, &l->post_norm, e) &&
           (l->is_full ? find_full(r, q, biases, i, &l->full, e) : find_linear(r, q, i, &l->linear, e)) &&
           reference_qwen3_5_find_mlp(r, q, i, l, e);
}

static bool open_qwen3_5(struct reference *r, struct err *e)
{
    struct reference_parts *p = r->parts;
    struct qwen3_5 *q = ARENA_NEW(p->arena, struct qwen3_5);
    bool tied = false, biases = false;
    p->own = q;
    if (!read_settings(r, q, &tied, &biases, e) ||
        !reference_require(r, "model.embed_tokens.weight", r->vocab_size, r->hidden_size, &q->embeddings,
                           e) ||
        !judge_norms(r, q, e) || !norm_vector(r, q, "model.norm.weight", r->hidden_size, &q->norm, e))
        return false;
    /* A stored head is used whatever tie_word_embeddings says, as the published code does. */
    p->head = q->embeddings;
    if ((!tied || reference_has(r, "lm_head.weight")) &&
        !reference_require(r, "lm_head.weight", r->vocab_size, r->hidden_size, &p->head, e))
        return tied ? false : err_wrap(e, "untied embeddings (tie_word_embeddings)");
    for (int64_t i = 0; i < r->n_layers; i++)
        if (!find_layer(r, q, biases, i, e))
            return false;
    return true;
}

/* ---- sessions ---- */

static void close_session(struct reference_session *s)
{
    struct qwen3_5_work *w = s->own;
    if (!w)
        return;
    float **const lists[] = {w->keys, w->values, w->memory, w->window};
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        for (int64_t i = 0; i < s->reference->n_layers; i++)
            mem_free(lists[k][i]);
        free(lists[k]);
    }
    float *const parts[] = {
        w->h,     w->y,      w->query_gate,    w->q,      w->attention, w->k,     w->v, w->cosines,
        w->sines, w->scores, w->rows,          w->mixed,  w->z,         w->o,     w->a, w->b,
        w->gate,  w->up,     w->probabilities, w->weight, w->picked,    w->result};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        mem_free(parts[i]);
    free(w);
    s->own = NULL;
}

static bool open_states(struct reference_session *s, const struct qwen3_5 *q, struct qwen3_5_work *w,
                        struct err *e)
{
    size_t n = (size_t)s->reference->n_layers;
    w->keys = xcalloc(n, sizeof *w->keys);
    w->values = xcalloc(n, sizeof *w->values);
    w->memory = xcalloc(n, sizeof *w->memory);
    w->window = xcalloc(n, sizeof *w->window);
    for (size_t i = 0; i < n; i++) {
        bool ok = q->layers[i].is_full
                      ? reference_alloc(&w->keys[i], q->n_kv_heads, s->capacity, q->head_dim, e) &&
                            reference_alloc(&w->values[i], q->n_kv_heads, s->capacity, q->head_dim, e)
                      : reference_alloc(&w->memory[i], q->n_v, q->d_k, q->d_v, e) &&
                            reference_alloc(&w->window[i], q->kernel, q->conv_dim, 1, e);
        if (!ok)
            return err_wrap(e, "the reference's states for %lld positions", (long long)s->capacity);
    }
    return true;
}

static bool open_session(struct reference_session *s, struct err *e)
{
    const struct reference *r = s->reference;
    const struct qwen3_5 *q = r->parts->own;
    struct qwen3_5_work *w = s->own = xcalloc(1, sizeof *w);
    const int64_t batch = s->batch, h = r->hidden_size, width = q->n_heads * q->head_dim;
    int64_t widest = q->is_moe ? q->expert_size : q->intermediate_size;
    if (q->is_moe && q->shared_size > widest)
        widest = q->shared_size;
    int64_t n_experts = q->is_moe ? q->n_experts : 1;
    const struct {
        float **to;
        int64_t rows, columns;
    } parts[] = {
        {&w->h, batch, h},
        {&w->y, batch, h},
        {&w->query_gate, batch, 2 * width},
        {&w->q, batch, width},
        {&w->attention, batch, width},
        {&w->k, batch, q->n_kv_heads * q->head_dim},
        {&w->v, batch, q->n_kv_heads * q->head_dim},
        {&w->cosines, batch, q->rope.n_pairs},
        {&w->sines, batch, q->rope.n_pairs},
        {&w->scores, pool_threads(r->parts->pool), s->capacity},
        {&w->rows, q->kernel - 1 + batch, q->conv_dim},
        {&w->mixed, batch, q->conv_dim},
        {&w->z, batch, q->n_v * q->d_v},
        {&w->o, batch, q->n_v * q->d_v},
        {&w->a, batch, q->n_v},
        {&w->b, batch, q->n_v},
        {&w->gate, batch, widest},
        {&w->up, batch, widest},
        {&w->probabilities, batch, n_experts},
        {&w->weight, batch, n_experts},
        {&w->picked, batch, h},
        {&w->result, batch, h},
    };
    if (!open_states(s, q, w, e))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!reference_alloc(parts[i].to, parts[i].rows, parts[i].columns, 1, e))
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
    *out = of_full ? (struct reference_state){3, {q->n_kv_heads, s->capacity, q->head_dim}, NULL}
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
static void norm_and_turn(const struct qwen3_5 *q, const struct qwen3_5_work *w, float *rows,
                          const float *norm, int64_t n, int64_t n_heads)
{
    reference_rms_norm(rows, norm, n * n_heads, q->head_dim, q->eps, rows);
    reference_rope_turn_heads(rows, n, n_heads, q->head_dim, q->rope.n_pairs, w->cosines, w->sines);
}

static void full_attention(struct reference_session *s, const struct qwen3_5 *q,
                           const struct full_attention *f, int64_t i_layer, int64_t n, float *out)
{
    struct qwen3_5_work *w = s->own;
    int64_t d = q->head_dim;
    reference_linear(s, f->query, f->query_bias, w->h, n, w->query_gate);
    reference_linear(s, f->key, f->key_bias, w->h, n, w->k);
    reference_linear(s, f->value, f->value_bias, w->h, n, w->v);
    for (int64_t i = 0; i < n * q->n_heads; i++)
        memcpy(w->q + i * d, w->query_gate + 2 * i * d, (size_t)d * sizeof *w->q);
    norm_and_turn(q, w, w->q, f->query_norm, n, q->n_heads);
    norm_and_turn(q, w, w->k, f->key_norm, n, q->n_kv_heads);
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
                                    .dim = d,
                                    .scale = reference_constant(s->reference, 1.0 / sqrt((double)d))};
    reference_attend(s->reference->parts, &a);
    for (int64_t i = 0; i < n * q->n_heads; i++)
        for (int64_t k = 0; k < d; k++)
            w->attention[i * d + k] /= 1.0f + expf(-w->query_gate[(2 * i + 1) * d + k]);
    reference_linear(s, f->output, f->output_bias, w->attention, n, out);
}

static void embed(struct reference_session *s, const int32_t *tokens, int64_t n)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    struct qwen3_5_work *w = s->own;
    int64_t pairs = q->rope.n_pairs;
    for (int64_t t = 0; t < n; t++)
        reference_rope_row(&q->rope, s->position + t, w->cosines + t * pairs, w->sines + t * pairs);
    reference_gather(q->embeddings, tokens, n, s->stream);
}

static void run_layer(struct reference_session *s, int64_t i_layer, int64_t n)
{
    int64_t hidden = s->reference->hidden_size;
    const struct qwen3_5 *q = s->reference->parts->own;
    const struct qwen3_5_layer *l = &q->layers[i_layer];
    struct qwen3_5_work *w = s->own;
    reference_rms_norm(s->stream, l->input_norm, n, hidden, q->eps, w->h);
    if (l->is_full)
        full_attention(s, q, &l->full, i_layer, n, w->y);
    else
        reference_qwen3_5_linear(s, l, i_layer, n, w->y);
    reference_add(s->stream, w->y, n * hidden);
    reference_rms_norm(s->stream, l->post_norm, n, hidden, q->eps, w->h);
    reference_qwen3_5_mlp(s, l, n, w->y);
    reference_add(s->stream, w->y, n * hidden);
}

static void finish(struct reference_session *s, int64_t n)
{
    const struct qwen3_5 *q = s->reference->parts->own;
    reference_rms_norm(s->stream, q->norm, n, s->reference->hidden_size, q->eps, s->hidden);
}

const struct reference_family reference_qwen3_5 = {
    .name = "qwen3_5",
    .matches = matches,
    .open = open_qwen3_5,
    .session_open = open_session,
    .session_close = close_session,
    .layer_reset = reset_layer,
    .session_state = session_state,
    .embed = embed,
    .layer = run_layer,
    .finish = finish,
};
