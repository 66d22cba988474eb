/* Plain decoders: the chunks of every family that is a row of traits.
 *
 * infer and prefill are the same graph for another number of tokens and refer to the same weights.
 */
#include "arch/decoder.h"
#include "format/contract.h"

/* A norm's gain, as one number or, where the settings want exact norms of 1 + w, as the sum of two (else rest NULL). */
struct norm_values {
    const struct mil_value *weight, *rest;
};

/* The weights of a layer as values of the model: made once, referred to by all functions. */
struct layer_values {
    const struct mil_value *weights[DECODER_TENSORS]; /* NULL for what the layer does not have */
    const struct mil_value *rests[DECODER_TENSORS];   /* of norms */
    struct experts_values experts;
};

struct chunk_values {
    int64_t begin, end; /* layers */
    bool is_last;
    bool has_kind[DECODER_KINDS], slides, turns[DECODER_KINDS]; /* some layer of the chunk does */
    const struct mil_value *cos[DECODER_KINDS], *sin[DECODER_KINDS];
    struct norm_values norm; /* of the last chunk */
    struct decoder_cache_values cache;
    struct layer_values *layers; /* [end - begin] */
};

/* ---- weights ---- */

static bool is_norm(enum decoder_tensor t)
{
    return t == DECODER_Q_NORM || t == DECODER_K_NORM || t == DECODER_INPUT_NORM ||
           t == DECODER_POST_ATTENTION_NORM || t == DECODER_MLP_NORM || t == DECODER_POST_MLP_NORM;
}

static struct norm_values make_norm(const struct arch_model *m, struct mil_model *out,
                                    const struct st_tensor *t, double factor)
{
    bool is_centred = m->family->traits->is_centred;
    struct norm_values v = {.weight =
                                arch_scaled_vector(out, t, is_centred ? ARCH_ONE_PLUS : ARCH_KEEP, factor)};
    if (is_centred && m->settings.exact_norms)
        v.rest = arch_scaled_vector(out, t, ARCH_ONE_PLUS_REST, factor);
    return v;
}

static void make_layer(const struct arch_model *m, const struct decoder_layer *l, struct mil_model *out,
                       struct layer_values *v)
{
    const struct decoder *d = m->own;
    arch_layer_values(m, out, l->tensors, v->weights);
    if (l->is.has_experts)
        v->experts = experts_values(m, &d->experts, &l->experts, out);
    for (int i = 0; m->family->traits->is_centred && i < DECODER_TENSORS; i++) {
        enum decoder_tensor t = (enum decoder_tensor)i;
        if (!is_norm(t))
            continue;
        struct norm_values norm = make_norm(m, out, l->tensors[i], arch_stream_factor(m, l->tensors, t));
        v->weights[i] = norm.weight;
        v->rests[i] = norm.rest;
    }
}

static void make_values(struct arch_model *m, int i_chunk, struct mil_model *out, struct chunk_values *c)
{
    const struct decoder *d = m->own;
    int64_t rows = m->settings.context_length;
    *c = (struct chunk_values){.is_last = i_chunk == m->settings.n_chunks - 1};
    arch_chunk_layers(m, i_chunk, &c->begin, &c->end);
    for (int64_t i = c->begin; i < c->end; i++) {
        const struct decoder_layer *l = &d->layers[i];
        c->has_kind[l->kind] = true;
        c->turns[l->kind] = c->turns[l->kind] || l->is.turns;
        c->slides = c->slides || l->is.slides;
    }
    for (int k = 0; k < DECODER_KINDS; k++) {
        if (!c->turns[k])
            continue;
        c->cos[k] = arch_rope_table(out, &d->rope[k], false, rows);
        c->sin[k] = arch_rope_table(out, &d->rope[k], true, rows);
    }
    c->cache = decoder_cache_values(m, c->slides, out);
    if (c->is_last)
        c->norm = make_norm(m, out, m->ends.norm, 1);
    c->layers = ARENA_ARRAY(m->arena, struct layer_values, c->end - c->begin);
    for (int64_t i = c->begin; i < c->end; i++)
        make_layer(m, &d->layers[i], out, &c->layers[i - c->begin]);
}

/* ---- graph ---- */

/* What one function hands to its layers. */
struct layer_inputs {
    struct mil_var *cos[DECODER_KINDS], *sin[DECODER_KINDS];
    struct decoder_cache_call cache;
    const struct mil_value *order; /* of experts */
};

static struct mil_var *norm(const struct arch_model *m, struct mil_builder *b, struct mil_var *x,
                            struct norm_values v, bool reads_stream, const char *name)
{
    const struct decoder *d = m->own;
    double eps = d->sizes.rms_norm_eps;
    eps = reads_stream ? arch_stream_epsilon(m, eps) : eps;
    return v.rest ? block_rms_norm_split(b, x, v.weight, v.rest, eps, name)
                  : block_rms_norm(b, x, v.weight, eps, name);
}

static struct mil_var *norm_layer(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                  const struct layer_values *w, struct mil_var *x, enum decoder_tensor t,
                                  const char *name)
{
    bool reads_stream = t == DECODER_INPUT_NORM || t == DECODER_MLP_NORM;
    return norm(m, b, x, (struct norm_values){w->weights[t], w->rests[t]}, reads_stream,
                arch_layer_name(b, i, name));
}

/* A projection of x by the tensor and its bias; name: the op's, behind the layer's. */
static struct mil_var *project(struct mil_builder *b, int64_t i, const struct layer_values *w,
                               struct mil_var *x, enum decoder_tensor weight, enum decoder_tensor bias,
                               const char *name)
{
    return block_linear(b, x, w->weights[weight], w->weights[bias], arch_layer_name(b, i, name));
}

static struct mil_var *build_attention(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                       const struct chunk_values *c, const struct layer_inputs *in,
                                       struct mil_var *x)
{
    const struct decoder *d = m->own;
    const struct config_sizes *s = &d->sizes;
    const struct decoder_layer *l = &d->layers[i];
    const struct layer_values *w = &c->layers[i - c->begin];
    struct mil_var *cos = in->cos[l->kind], *sin = in->sin[l->kind], *keys = NULL, *values = NULL;
    x = block_to_channels(b, x);
    struct mil_var *q = project(b, i, w, x, DECODER_Q, DECODER_Q_BIAS, "self_attn_q_proj");
    q = block_to_heads(b, q, s->n_heads);
    struct mil_var *k = project(b, i, w, x, DECODER_K, DECODER_K_BIAS, "self_attn_k_proj");
    k = block_to_heads(b, k, s->n_kv_heads);
    struct mil_var *v = project(b, i, w, x, DECODER_V, DECODER_V_BIAS, "self_attn_v_proj");
    v = block_to_heads(b, v, s->n_kv_heads);
    if (w->weights[DECODER_Q_NORM]) {
        q = norm_layer(m, b, i, w, q, DECODER_Q_NORM, "self_attn_q_norm");
        k = norm_layer(m, b, i, w, k, DECODER_K_NORM, "self_attn_k_norm");
    }
    if (l->is.turns) {
        q = block_rope(b, q, cos, sin, s->head_dim, arch_layer_name(b, i, "self_attn_q_rope"));
        k = block_rope(b, k, cos, sin, s->head_dim, arch_layer_name(b, i, "self_attn_k_rope"));
    }
    decoder_cache_write(m, b, i, &c->cache, &in->cache, k, v, &keys, &values);
    struct mil_var *y =
        block_attention(b, q, keys, values, l->is.slides ? in->cache.window_mask : in->cache.mask,
                        d->score_scale, arch_layer_name(b, i, "self_attn_values"));
    y = project(b, i, w, block_from_heads(b, y), DECODER_O, DECODER_O_BIAS, "self_attn_o_proj");
    return block_from_channels(b, y, NULL);
}

static struct mil_var *build_mlp(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                 const struct layer_values *w, const struct layer_inputs *in,
                                 struct mil_var *x)
{
    const struct decoder *d = m->own;
    x = block_to_channels(b, x);
    if (d->layers[i].is.has_experts)
        return block_from_channels(b, experts_build(b, &d->experts, i, &w->experts, in->order, x), NULL);
    struct mil_var *gate = project(b, i, w, x, DECODER_GATE, DECODER_GATE_BIAS, "mlp_gate_proj");
    gate = m->family->traits->has_gelu ? block_gelu(b, gate) : block_silu(b, gate);
    struct mil_var *up = project(b, i, w, x, DECODER_UP, DECODER_UP_BIAS, "mlp_up_proj");
    x = project(b, i, w, block_binary(b, "mul", gate, up, NULL), DECODER_DOWN, DECODER_DOWN_BIAS,
                "mlp_down_proj");
    return block_from_channels(b, x, NULL);
}

static struct mil_var *build_layer(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                   const struct chunk_values *c, const struct layer_inputs *in,
                                   struct mil_var *x)
{
    const struct layer_values *w = &c->layers[i - c->begin];
    bool has_post_norms = w->weights[DECODER_POST_MLP_NORM] != NULL;
    struct mil_var *y = norm_layer(m, b, i, w, x, DECODER_INPUT_NORM, "input_layernorm");
    y = build_attention(m, b, i, c, in, y);
    if (has_post_norms)
        y = norm_layer(m, b, i, w, y, DECODER_POST_ATTENTION_NORM, "post_attention_layernorm");
    x = block_binary(b, "add", x, y, NULL);
    y = norm_layer(m, b, i, w, x, DECODER_MLP_NORM,
                   has_post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    y = build_mlp(m, b, i, w, in, y);
    if (has_post_norms)
        y = norm_layer(m, b, i, w, y, DECODER_POST_MLP_NORM, "post_feedforward_layernorm");
    return block_binary(b, "add", x, y, arch_layer_name(b, i, "output"));
}

static bool build_function(const struct arch_model *m, const struct chunk_values *c, struct mil_model *out,
                           const char *name, int64_t t, bool rotates, struct err *e)
{
    bool has_two = m->family->traits->has_local_cache;
    struct mil_builder *b = mil_builder_new(out, name, "CoreML8");
    struct arch_inputs inputs = arch_build_inputs(m, b, t);
    struct layer_inputs in = {
        .cache = {
            .mask = inputs.causal_mask, .position = inputs.current_pos, .rotates = rotates, .n_tokens = t}};
    const struct decoder *d = m->own;
    struct mil_var *x = inputs.hidden_states;
    if (m->n_experts > 0)
        in.order = experts_order(m, &d->experts, t, out);
    decoder_cache_declare(m, b, c->has_kind, &in.cache, &x);
    for (int k = 0; k < DECODER_KINDS; k++) {
        static const char *const names[2][DECODER_KINDS] = {{"rope_cos_local", "rope_cos_global"},
                                                            {"rope_sin_local", "rope_sin_global"}};
        if (!c->turns[k])
            continue;
        in.cos[k] = block_rope_rows(b, c->cos[k], inputs.position_ids, has_two ? names[0][k] : "rope_cos");
        in.sin[k] = block_rope_rows(b, c->sin[k], inputs.position_ids, has_two ? names[1][k] : "rope_sin");
    }
    if (c->slides)
        decoder_cache_begin(m, b, &c->cache, &inputs, &in.cache);
    for (int64_t i = c->begin; i < c->end; i++)
        x = build_layer(m, b, i, c, &in, x);
    if (c->is_last)
        x = norm(m, b, block_last_row(b, x), c->norm, true, "norm");
    return arch_finish_function(b, x, name, e);
}

static bool decoder_build_chunk(struct arch_model *m, int i_chunk, struct mil_model *out, struct err *e)
{
    struct chunk_values c;
    struct arch_state states[DECODER_KINDS];
    int64_t batch = m->settings.batch_size;
    bool rotates = decoder_rotates(m);
    make_values(m, i_chunk, out, &c);
    if (!build_function(m, &c, out, FUNCTION_INFER, 1, false, e) ||
        !build_function(m, &c, out, FUNCTION_PREFILL, batch, false, e) ||
        (rotates && (!build_function(m, &c, out, FUNCTION_INFER_ROTATE, 1, true, e) ||
                     !build_function(m, &c, out, FUNCTION_PREFILL_ROTATE, batch, true, e))))
        return err_wrap(e, "chunk %d", i_chunk + 1);
    int n_states = decoder_states(m, states);
    arch_describe_chunk(m, i_chunk, states, n_states, rotates, out);
    return true;
}

/* ---- families ---- */

#define LIST_OF(...) __VA_ARGS__
#define ARCH_FAMILY(symbol)
#define ARCH_DECODER(symbol, prefix, split, types, ...)                                                      \
    static const struct decoder_traits symbol##_traits = {__VA_ARGS__};                                      \
    static const char *const symbol##_types[] = {LIST_OF types, NULL};                                       \
    const struct arch_family arch_##symbol = {                                                               \
        .name = #symbol,                                                                                     \
        .default_prefix = prefix,                                                                            \
        .default_split = split,                                                                              \
        .model_types = symbol##_types,                                                                       \
        .traits = &symbol##_traits,                                                                          \
        .open = decoder_open,                                                                                \
        .build_embeddings = arch_build_embeddings,                                                           \
        .build_chunk = decoder_build_chunk,                                                                  \
        .build_head = arch_build_head,                                                                       \
        .fill_meta = decoder_fill_meta,                                                                      \
    };
#include "arch/families.def"
