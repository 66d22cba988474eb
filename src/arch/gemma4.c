/* Gemma 4: the three programs and the keys of meta.yaml.
 *
 * Embeddings give two tensors: the scaled embedding, and for every layer a vector made of a second table and of
 * a projection of the embedding. Chunks take both. infer and prefill are the same graph for another number of
 * tokens, but for the write into a windowed cache, and refer to the same weights.
 */
#include "arch/gemma4.h"
#include <math.h>
#include <string.h>
#include "format/contract.h"

static const char *const state_names[GEMMA4_KINDS] = {STATE_KV_CACHE_LOCAL, STATE_KV_CACHE_GLOBAL};

static struct window_cache local_cache(const struct arch_model *m)
{
    const struct gemma4 *g = m->own;
    const struct gemma4_attention *a = &g->kinds[GEMMA4_LOCAL];
    return window_cache_of(&m->settings, g->window, a->n_kv_heads, a->head_dim, a->n_slots > 0);
}

/* The towers of a multimodal checkpoint are known, to be refused with a reason. */
static const char *const model_types[] = {"gemma4", "gemma4_text", "gemma4_vision", "gemma4_audio", NULL};

/* ---- embeddings ---- */

/* Rows of a table [rows, columns] at the ids, times a factor; placeholders have the row of the padding id. */
static struct mil_var *scaled_rows(const struct gemma4 *g, struct mil_builder *b, struct mil_model *out,
                                   const struct st_tensor *t, int64_t rows, double factor,
                                   struct mil_var *ids, const char *table_name, const char *name)
{
    struct arch_layout l = arch_layout_of(&t, rows, t->shape[1]);
    l.replaced = g->placeholders;
    l.n_replaced = g->n_placeholders;
    l.replacement = g->padding_id;
    return arch_scaled_rows(b, out, l, factor, ids, table_name, name);
}

static bool gemma4_build_embeddings(struct arch_model *m, struct mil_model *out, struct err *e)
{
    const struct gemma4 *g = m->own;
    int64_t t = m->settings.batch_size == 1 ? 1 : MIL_DIM_UNKNOWN, ids_shape[2] = {1, t};
    int64_t by_layer[4] = {1, -1, m->n_layers, g->per_layer_size}, flat[3] = {1, -1, m->per_layer_inputs};
    struct mil_builder *b = mil_builder_new(out, "main", "CoreML8");
    struct mil_var *ids = mil_build_input(b, PORT_INPUT_IDS, MIL_INT32, 2, ids_shape);
    struct mil_var *hidden = scaled_rows(g, b, out, m->ends.embeddings, m->vocab_size,
                                         sqrt((double)m->hidden_size) * m->settings.residual_scale, ids,
                                         "embed_tokens_weight", PORT_HIDDEN_STATES);
    struct mil_var *own =
        scaled_rows(g, b, out, g->per_layer_table, m->vocab_size, sqrt((double)g->per_layer_size), ids,
                    "embed_tokens_per_layer_weight", NULL);
    struct mil_var *y =
        block_linear(b, block_to_channels(b, hidden), arch_linear(out, g->model_projection, 1), NULL,
                     "per_layer_model_projection");
    y = block_reshape(b, block_from_channels(b, y, NULL), 4, by_layer, NULL);
    /* The published code divides the projection by the root of hidden_size, which the norm undoes but for its
     * epsilon. */
    y = block_rms_norm(b, y, arch_vector(out, g->projection_norm, ARCH_KEEP),
                       arch_stream_epsilon(m, g->rms_norm_eps * (double)m->hidden_size),
                       "per_layer_projection_norm");
    y = block_binary(b, "add", y, block_reshape(b, own, 4, by_layer, NULL), NULL);
    y = block_reshape(b, block_scale(b, y, sqrt(0.5), NULL), 3, flat, PORT_PER_LAYER_INPUTS);
    struct mil_var *outputs[2] = {hidden, y};
    if (!mil_builder_finish(b, outputs, 2, e))
        return err_wrap(e, "embeddings");
    arch_describe_embeddings(m, out);
    return true;
}

/* ---- decoder chunks ---- */

/* The weights of a layer as values of the model: made once, referred to by both functions. */
struct layer_values {
    const struct mil_value *weights[DECODER_TENSORS];
};

struct chunk_values {
    int64_t begin, end; /* layers */
    bool is_last;
    bool has_kind[GEMMA4_KINDS], writes_local;
    const struct mil_value *cos[GEMMA4_KINDS], *sin[GEMMA4_KINDS];
    const struct mil_value *norm;
    struct window_cache local;
    struct window_cache_values cache;
    struct layer_values *layers; /* [end - begin] */
};

static void make_values(struct arch_model *m, int i_chunk, struct mil_model *out, struct chunk_values *c)
{
    const struct gemma4 *g = m->own;
    *c = (struct chunk_values){.is_last = i_chunk == m->settings.n_chunks - 1};
    arch_chunk_layers(m, i_chunk, &c->begin, &c->end);
    c->layers = ARENA_ARRAY(m->arena, struct layer_values, c->end - c->begin);
    for (int64_t i = c->begin; i < c->end; i++) {
        const struct gemma4_layer *l = &g->layers[i];
        c->has_kind[l->kind] = true;
        c->writes_local = c->writes_local || (l->kind == GEMMA4_LOCAL && !l->is_shared);
        arch_layer_values(m, out, l->tensors, c->layers[i - c->begin].weights);
    }
    for (int k = 0; k < GEMMA4_KINDS; k++) {
        if (!c->has_kind[k])
            continue;
        const struct arch_rope *rope = &g->kinds[k].rope;
        int64_t rows = m->settings.context_length;
        c->cos[k] = arch_rope_table(out, rope, false, rows);
        c->sin[k] = arch_rope_table(out, rope, true, rows);
    }
    c->local = local_cache(m);
    if (c->has_kind[GEMMA4_LOCAL])
        c->cache = window_cache_values(&c->local, out);
    c->norm = c->is_last ? arch_vector(out, m->ends.norm, ARCH_KEEP) : NULL;
}

/* What one function hands to its layers. */
struct layer_inputs {
    struct mil_var *cos[GEMMA4_KINDS], *sin[GEMMA4_KINDS], *mask[GEMMA4_KINDS], *state[GEMMA4_KINDS];
    struct mil_var *position, *per_layer_inputs;
    struct window_cache_call cache;
};

static struct mil_var *project(struct mil_builder *b, int64_t i, struct mil_var *x,
                               const struct mil_value *weight, int64_t n_heads, const char *name)
{
    return block_to_heads(b, block_linear(b, x, weight, NULL, arch_layer_name(b, i, name)), n_heads);
}

/* Keys and values of the call to the layer's slot; the state after that. */
static struct mil_var *write_cache(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                   const struct chunk_values *c, const struct layer_inputs *in,
                                   struct mil_var *x)
{
    const struct gemma4 *g = m->own;
    const struct gemma4_layer *l = &g->layers[i];
    const struct gemma4_attention *a = &g->kinds[l->kind];
    const struct layer_values *w = &c->layers[i - c->begin];
    double eps = g->rms_norm_eps;
    struct mil_var *k = project(b, i, x, w->weights[DECODER_K], a->n_kv_heads, "self_attn_k_proj");
    struct mil_var *v = project(b, i, x, w->weights[DECODER_V], a->n_kv_heads, "self_attn_v_proj");
    k = block_rms_norm(b, k, w->weights[DECODER_K_NORM], eps, arch_layer_name(b, i, "self_attn_k_norm"));
    k = block_rope(b, k, in->cos[l->kind], in->sin[l->kind], a->head_dim,
                   arch_layer_name(b, i, "self_attn_k_rope"));
    v = block_rms_norm(b, v, NULL, eps, arch_layer_name(b, i, "self_attn_v_norm"));
    /* One write for both: two of them with a single key head fail to compile for the Neural Engine. */
    struct mil_var *both[2] = {k, v};
    struct mil_var *kv = block_concat(b, both, 2, 1, arch_layer_name(b, i, "self_attn_kv"));
    const char *name = arch_layer_name(b, i, "kv_cache_update");
    if (l->kind == GEMMA4_LOCAL)
        return window_cache_write(&c->local, b, &c->cache, &in->cache, in->state[GEMMA4_LOCAL], kv, l->slot,
                                  name);
    return block_write_rows(b, in->state[GEMMA4_GLOBAL], kv, l->slot, 0, in->position, true, name);
}

static struct mil_var *build_attention(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                       const struct chunk_values *c, const struct layer_inputs *in,
                                       struct mil_var *x)
{
    const struct gemma4 *g = m->own;
    const struct gemma4_layer *l = &g->layers[i];
    const struct gemma4_attention *a = &g->kinds[l->kind];
    const struct layer_values *w = &c->layers[i - c->begin];
    x = block_to_channels(b, x);
    struct mil_var *q = project(b, i, x, w->weights[DECODER_Q], g->n_heads, "self_attn_q_proj");
    q = block_rms_norm(b, q, w->weights[DECODER_Q_NORM], g->rms_norm_eps,
                       arch_layer_name(b, i, "self_attn_q_norm"));
    q = block_rope(b, q, in->cos[l->kind], in->sin[l->kind], a->head_dim,
                   arch_layer_name(b, i, "self_attn_q_rope"));
    struct mil_var *cache =
        l->is_shared ? block_read_state(b, in->state[l->kind]) : write_cache(m, b, i, c, in, x);
    cache = block_slice(b, cache, 0, l->slot, l->slot + 1, arch_layer_name(b, i, "kv_cache"));
    int64_t n = a->n_kv_heads;
    struct mil_var *keys = block_slice(b, cache, 1, 0, n, arch_layer_name(b, i, "k_cache"));
    struct mil_var *values = block_slice(b, cache, 1, n, 2 * n, arch_layer_name(b, i, "v_cache"));
    /* The weights of the query norm carry the scale. */
    struct mil_var *y = block_attention(b, q, keys, values, in->mask[l->kind], 1.0,
                                        arch_layer_name(b, i, "self_attn_values"));
    y = block_linear(b, block_from_heads(b, y), w->weights[DECODER_O], NULL,
                     arch_layer_name(b, i, "self_attn_o_proj"));
    return block_from_channels(b, y, NULL);
}

static struct mil_var *build_mlp(struct mil_builder *b, int64_t i, const struct layer_values *w,
                                 struct mil_var *x)
{
    x = block_to_channels(b, x);
    struct mil_var *gate = block_gelu(
        b, block_linear(b, x, w->weights[DECODER_GATE], NULL, arch_layer_name(b, i, "mlp_gate_proj")));
    struct mil_var *up =
        block_linear(b, x, w->weights[DECODER_UP], NULL, arch_layer_name(b, i, "mlp_up_proj"));
    x = block_linear(b, block_binary(b, "mul", gate, up, NULL), w->weights[DECODER_DOWN], NULL,
                     arch_layer_name(b, i, "mlp_down_proj"));
    return block_from_channels(b, x, NULL);
}

/* The block that reads the layer's part of the per-layer inputs. */
static struct mil_var *build_per_layer(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                       const struct layer_values *w, const struct layer_inputs *in,
                                       struct mil_var *x)
{
    const struct gemma4 *g = m->own;
    int64_t n = g->per_layer_size;
    struct mil_var *gate =
        block_gelu(b, block_linear(b, block_to_channels(b, x), w->weights[DECODER_PER_LAYER_GATE], NULL,
                                   arch_layer_name(b, i, "per_layer_input_gate")));
    struct mil_var *own =
        block_slice(b, in->per_layer_inputs, 2, i * n, (i + 1) * n, arch_layer_name(b, i, "per_layer_input"));
    struct mil_var *y = block_binary(b, "mul", gate, block_to_channels(b, own), NULL);
    return block_from_channels(b,
                               block_linear(b, y, w->weights[DECODER_PER_LAYER_PROJECTION], NULL,
                                            arch_layer_name(b, i, "per_layer_projection")),
                               NULL);
}

/* x + norm(y) */
static struct mil_var *add_normed(const struct gemma4 *g, struct mil_builder *b, int64_t i, struct mil_var *x,
                                  struct mil_var *y, const struct mil_value *norm, const char *name)
{
    return block_binary(b, "add", x, block_rms_norm(b, y, norm, g->rms_norm_eps, arch_layer_name(b, i, name)),
                        NULL);
}

static struct mil_var *build_layer(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                   const struct chunk_values *c, const struct layer_inputs *in,
                                   struct mil_var *x)
{
    const struct gemma4 *g = m->own;
    const struct layer_values *w = &c->layers[i - c->begin];
    double eps = arch_stream_epsilon(m, g->rms_norm_eps);
    struct mil_var *y =
        block_rms_norm(b, x, w->weights[DECODER_INPUT_NORM], eps, arch_layer_name(b, i, "input_layernorm"));
    y = build_attention(m, b, i, c, in, y);
    x = add_normed(g, b, i, x, y, w->weights[DECODER_POST_ATTENTION_NORM], "post_attention_layernorm");
    y = build_mlp(b, i, w,
                  block_rms_norm(b, x, w->weights[DECODER_MLP_NORM], eps,
                                 arch_layer_name(b, i, "pre_feedforward_layernorm")));
    x = add_normed(g, b, i, x, y, w->weights[DECODER_POST_MLP_NORM], "post_feedforward_layernorm");
    y = build_per_layer(m, b, i, w, in, x);
    x = add_normed(g, b, i, x, y, w->weights[DECODER_PER_LAYER_NORM], "post_per_layer_input_norm");
    return block_binary(b, "mul", x,
                        mil_build_const(b, w->weights[DECODER_SCALAR], arch_layer_name(b, i, "layer_scalar")),
                        arch_layer_name(b, i, "output"));
}

static bool has_state(const struct arch_model *m, enum gemma4_kind kind)
{
    const struct gemma4 *g = m->own;
    return g->kinds[kind].n_slots > 0;
}

static void state_shape(const struct arch_model *m, enum gemma4_kind kind, int64_t shape[4])
{
    const struct gemma4 *g = m->own;
    const struct gemma4_attention *a = &g->kinds[kind];
    shape[0] = a->n_slots;
    shape[1] = 2 * a->n_kv_heads;
    shape[2] = kind == GEMMA4_LOCAL ? local_cache(m).length : m->settings.context_length;
    shape[3] = a->head_dim;
}

static bool build_function(const struct arch_model *m, const struct chunk_values *c, struct mil_model *out,
                           const char *name, int64_t t, struct err *e)
{
    const struct gemma4 *g = m->own;
    struct mil_builder *b = mil_builder_new(out, name, "CoreML8");
    struct arch_inputs inputs = arch_build_inputs(m, b, t);
    struct layer_inputs in = {.position = inputs.current_pos, .per_layer_inputs = inputs.per_layer_inputs};
    struct mil_var *x = inputs.hidden_states;
    for (int k = 0; k < GEMMA4_KINDS; k++) {
        int64_t shape[4];
        state_shape(m, (enum gemma4_kind)k, shape);
        if (has_state(m, (enum gemma4_kind)k))
            in.state[k] = mil_build_state(b, state_names[k], MIL_FP16, 4, shape);
    }
    static const char *const cos_names[GEMMA4_KINDS] = {"rope_cos_local", "rope_cos_global"};
    static const char *const sin_names[GEMMA4_KINDS] = {"rope_sin_local", "rope_sin_global"};
    for (int k = 0; k < GEMMA4_KINDS; k++) {
        if (!c->has_kind[k]) {
            x = in.state[k] ? block_touch_state(b, x, in.state[k]) : x;
            continue;
        }
        in.cos[k] = block_rope_rows(b, c->cos[k], inputs.position_ids, cos_names[k]);
        in.sin[k] = block_rope_rows(b, c->sin[k], inputs.position_ids, sin_names[k]);
    }
    in.mask[GEMMA4_GLOBAL] = inputs.causal_mask;
    if (c->has_kind[GEMMA4_LOCAL]) {
        in.cache = window_cache_build(&c->local, b, &c->cache, t, c->writes_local, inputs.position_ids,
                                      inputs.causal_mask, in.position);
        in.mask[GEMMA4_LOCAL] = in.cache.mask;
    }
    for (int64_t i = c->begin; i < c->end; i++)
        x = build_layer(m, b, i, c, &in, x);
    if (c->is_last)
        x = block_rms_norm(b, block_last_row(b, x), c->norm, arch_stream_epsilon(m, g->rms_norm_eps), "norm");
    return arch_finish_function(b, x, name, e);
}

static bool gemma4_build_chunk(struct arch_model *m, int i_chunk, struct mil_model *out, struct err *e)
{
    struct chunk_values c;
    make_values(m, i_chunk, out, &c);
    if (!build_function(m, &c, out, FUNCTION_INFER, 1, e) ||
        !build_function(m, &c, out, FUNCTION_PREFILL, m->settings.batch_size, e))
        return err_wrap(e, "chunk %d", i_chunk + 1);

    struct arch_state states[GEMMA4_KINDS];
    int n = 0;
    for (int k = 0; k < GEMMA4_KINDS; k++) {
        if (!has_state(m, (enum gemma4_kind)k))
            continue;
        states[n] = (struct arch_state){.name = state_names[k], .rank = 4};
        state_shape(m, (enum gemma4_kind)k, states[n++].shape);
    }
    arch_describe_chunk(m, i_chunk, states, n, false, out);
    return true;
}

/* ---- meta.yaml ---- */

static void fill_state(const struct arch_model *m, enum gemma4_kind kind, struct meta_state *s)
{
    const struct gemma4 *g = m->own;
    s->name = xstrdup(state_names[kind]);
    s->dtype = xstrdup("float16");
    s->rank = 4;
    state_shape(m, kind, s->shape);
    s->layers = xcalloc((size_t)m->n_layers, sizeof *s->layers);
    for (int64_t i = 0; i < m->n_layers; i++) {
        if (g->layers[i].kind == kind && !g->layers[i].is_shared)
            s->layers[s->n_layers++] = (int)i;
    }
}

static void gemma4_fill_meta(const struct arch_model *m, struct meta *meta)
{
    const struct gemma4 *g = m->own;
    size_t n = (size_t)m->n_layers;
    if (g->kinds[GEMMA4_LOCAL].n_layers > 0)
        meta->local_attention_window = g->window;
    struct window_cache local = local_cache(m);
    if (local.shifts)
        meta->local_cache_length = local.length;
    meta->final_logit_softcap = m->softcap;
    meta->per_layer_inputs = m->per_layer_inputs;
    meta->layer_types = xcalloc(n, sizeof *meta->layer_types);
    meta->kv_shared_layers = xcalloc(n, sizeof *meta->kv_shared_layers);
    for (int64_t i = 0; i < m->n_layers; i++) {
        const struct gemma4_layer *l = &g->layers[i];
        meta->layer_types[meta->n_layer_types++] = xstrdup(l->kind == GEMMA4_GLOBAL ? "full" : "sliding");
        if (l->is_shared)
            meta->kv_shared_layers[meta->n_kv_shared_layers++] =
                (struct meta_pair){.key = (int)i, .value = (int)l->source};
    }
    meta->states = xcalloc(GEMMA4_KINDS, sizeof *meta->states);
    for (int k = 0; k < GEMMA4_KINDS; k++) {
        if (has_state(m, (enum gemma4_kind)k))
            fill_state(m, (enum gemma4_kind)k, &meta->states[meta->n_states++]);
    }
}

const struct arch_family arch_gemma4 = {
    .name = "gemma4",
    .default_prefix = "gemma4",
    .model_types = model_types,
    .open = gemma4_open,
    .build_embeddings = gemma4_build_embeddings,
    .build_chunk = gemma4_build_chunk,
    .build_head = arch_build_head,
    .fill_meta = gemma4_fill_meta,
};
