/* Plain decoders: configuration, tensors and chunks of every family that is a row of traits.
 *
 * infer and prefill are the same graph for another number of tokens and refer to the same weights. The state
 * [2 n_layers, n_kv_heads, context, head_dim] holds the keys of layer i in slot i, its values in slot n_layers + i, all
 * positions of them: a window is a mask.
 */
#include "arch/decoder.h"
#include <math.h>
#include "arch/blocks.h"
#include "arch/family.h"
#include "arch/window_cache.h"
#include "format/contract.h"

struct layer {
    struct config_layer is;
    const struct st_tensor *tensors[DECODER_TENSORS];
};

struct decoder {
    struct config_sizes sizes;
    int64_t window; /* of layers that slide; 0: none does */
    struct arch_rope rope;
    struct layer *layers; /* [n_layers] */
};

/* ---- configuration ---- */

static bool read_layers(struct arch_model *m, struct decoder *d, struct err *e)
{
    const struct decoder_traits *t = m->family->traits;
    struct config_layer *layers = ARENA_ARRAY(m->arena, struct config_layer, m->n_layers);
    if (!config_get_layers(&m->config, &t->layers, m->n_layers, layers, &d->window, e))
        return false;
    d->layers = ARENA_ARRAY(m->arena, struct layer, m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++)
        d->layers[i].is = layers[i];
    return true;
}

static bool read_config(struct arch_model *m, struct decoder *d, bool *is_tied, struct err *e)
{
    const struct decoder_traits *t = m->family->traits;
    const struct config *c = &m->config;
    struct config_sizes *s = &d->sizes;
    *s = t->missing;
    *is_tied = t->is_tied;
    /* null is as many as heads, whatever a missing key means */
    if (cJSON_IsNull(json_get(c->text, "num_key_value_heads")))
        s->n_kv_heads = 0;
    if (!config_get_sizes(c, s, e) || !json_get_bool(c->text, "tie_word_embeddings", is_tied, c->path, e))
        return false;
    if (s->head_dim % 2 != 0)
        return err_set(e, ERR_FORMAT, "%s: key head_dim: expected an even number, found %lld", c->path,
                       (long long)s->head_dim);
    m->vocab_size = s->vocab_size;
    m->hidden_size = s->hidden_size;
    m->n_layers = s->n_layers;
    return config_check_activation(c, "hidden_act", "silu", "swish", e) && read_layers(m, d, e) &&
           arch_read_rope(m, s->head_dim, &t->rope, &d->rope, e);
}

/* ---- tensors ---- */

static bool find_layers(struct arch_model *m, struct decoder *d, struct err *e)
{
    const struct decoder_traits *t = m->family->traits;
    const struct config_sizes *s = &d->sizes;
    int64_t width = s->n_heads * s->head_dim;
    const int64_t sizes[DECODER_SIZES] = {
        [DECODER_HIDDEN] = m->hidden_size, [DECODER_QUERY] = width,
        [DECODER_HEADS] = width,           [DECODER_KV] = s->n_kv_heads * s->head_dim,
        [DECODER_HEAD] = s->head_dim,      [DECODER_INNER] = s->intermediate_size};
    unsigned parts = t->parts | DECODER_ATTENTION | DECODER_KEYS | DECODER_MLP;
    if (t->has_bias_key && s->attention_bias)
        parts |= DECODER_QKV_BIAS | DECODER_OUTPUT_BIAS;
    if (t->has_mlp_bias_key && s->mlp_bias)
        parts |= DECODER_MLP_BIAS;
    for (int64_t i = 0; i < m->n_layers; i++) {
        if (!arch_find_layer(m, i, parts, sizes, d->layers[i].tensors, e))
            return false;
    }
    return true;
}

static bool decoder_open(struct arch_model *m, struct err *e)
{
    struct decoder *d = ARENA_NEW(m->arena, struct decoder);
    bool is_tied;
    m->own = d;
    return read_config(m, d, &is_tied, e) && arch_find_ends(m, is_tied, e) && find_layers(m, d, e) &&
           arch_check_layer_norms(m, d->layers[0].tensors, sizeof *d->layers, e);
}

/* ---- chunks ---- */

/* The weights of a layer as values of the model: made once, referred to by both functions. */
struct layer_values {
    const struct mil_value *weights[DECODER_TENSORS]; /* NULL for what the layer does not have */
};

struct chunk_values {
    int64_t begin, end; /* layers */
    bool is_last;
    bool turns, slides; /* some layer of the chunk does */
    const struct mil_value *cos, *sin, *norm;
    struct window_cache window;
    struct window_cache_values masks;
    struct layer_values *layers; /* [end - begin] */
};

/* A cache of full length, in which the window is a mask. */
static struct window_cache window_of(const struct arch_model *m)
{
    const struct decoder *d = m->own;
    return window_cache_of(&m->settings, d->window, d->sizes.n_kv_heads, d->sizes.head_dim, false);
}

static void make_values(struct arch_model *m, int i_chunk, struct mil_model *out, struct chunk_values *c)
{
    const struct decoder *d = m->own;
    *c = (struct chunk_values){.is_last = i_chunk == m->settings.n_chunks - 1};
    arch_chunk_layers(m, i_chunk, &c->begin, &c->end);
    for (int64_t i = c->begin; i < c->end; i++) {
        c->turns = c->turns || d->layers[i].is.turns;
        c->slides = c->slides || d->layers[i].is.slides;
    }
    if (c->turns) {
        c->cos = arch_rope_table(out, &d->rope, false, m->settings.context_length);
        c->sin = arch_rope_table(out, &d->rope, true, m->settings.context_length);
    }
    if (c->slides) {
        c->window = window_of(m);
        c->masks = window_cache_values(&c->window, out);
    }
    c->norm = c->is_last ? arch_vector(out, m->ends.norm, ARCH_KEEP) : NULL;
    c->layers = ARENA_ARRAY(m->arena, struct layer_values, c->end - c->begin);
    for (int64_t i = c->begin; i < c->end; i++)
        arch_layer_values(out, d->layers[i].tensors, c->layers[i - c->begin].weights);
}

/* What one function hands to its layers. */
struct layer_inputs {
    struct mil_var *cos, *sin, *position, *state;
    struct mil_var *mask, *window_mask;
};

/* A projection of x by the tensor and its bias; name: the op's, behind the layer's. */
static struct mil_var *project(struct mil_builder *b, int64_t i, const struct layer_values *w,
                               struct mil_var *x, enum decoder_tensor weight, enum decoder_tensor bias,
                               const char *name)
{
    return block_linear(b, x, w->weights[weight], w->weights[bias], arch_layer_name(b, i, name));
}

/* Heads of queries or keys, normed where the layer has norms for them. */
static struct mil_var *norm_heads(const struct decoder *d, struct mil_builder *b, int64_t i,
                                  const struct layer_values *w, struct mil_var *x, enum decoder_tensor norm,
                                  const char *name)
{
    return w->weights[norm]
               ? block_rms_norm(b, x, w->weights[norm], d->sizes.rms_norm_eps, arch_layer_name(b, i, name))
               : x;
}

static struct mil_var *build_attention(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                       const struct layer_values *w, const struct layer_inputs *in,
                                       struct mil_var *x)
{
    const struct decoder *d = m->own;
    const struct config_sizes *s = &d->sizes;
    const struct config_layer *is = &d->layers[i].is;
    x = block_to_channels(b, x);
    struct mil_var *q = project(b, i, w, x, DECODER_Q, DECODER_Q_BIAS, "self_attn_q_proj");
    q = block_to_heads(b, q, s->n_heads);
    struct mil_var *k = project(b, i, w, x, DECODER_K, DECODER_K_BIAS, "self_attn_k_proj");
    k = block_to_heads(b, k, s->n_kv_heads);
    struct mil_var *v = project(b, i, w, x, DECODER_V, DECODER_V_BIAS, "self_attn_v_proj");
    v = block_to_heads(b, v, s->n_kv_heads);
    q = norm_heads(d, b, i, w, q, DECODER_Q_NORM, "self_attn_q_norm");
    k = norm_heads(d, b, i, w, k, DECODER_K_NORM, "self_attn_k_norm");
    if (is->turns) {
        q = block_rope(b, q, in->cos, in->sin, s->head_dim, arch_layer_name(b, i, "self_attn_q_rope"));
        k = block_rope(b, k, in->cos, in->sin, s->head_dim, arch_layer_name(b, i, "self_attn_k_rope"));
    }
    int64_t k_slot = i, v_slot = m->n_layers + i;
    block_write_rows(b, in->state, k, k_slot, 0, in->position, false,
                     arch_layer_name(b, i, "k_cache_update"));
    struct mil_var *cache = block_write_rows(b, in->state, v, v_slot, 0, in->position, true,
                                             arch_layer_name(b, i, "v_cache_update"));
    struct mil_var *keys = block_slice(b, cache, 0, k_slot, k_slot + 1, arch_layer_name(b, i, "k_cache"));
    struct mil_var *values = block_slice(b, cache, 0, v_slot, v_slot + 1, arch_layer_name(b, i, "v_cache"));
    struct mil_var *y =
        block_attention(b, q, keys, values, is->slides ? in->window_mask : in->mask,
                        1.0 / sqrt((double)s->head_dim), arch_layer_name(b, i, "self_attn_values"));
    y = project(b, i, w, block_from_heads(b, y), DECODER_O, DECODER_O_BIAS, "self_attn_o_proj");
    return block_from_channels(b, y, NULL);
}

static struct mil_var *build_mlp(struct mil_builder *b, int64_t i, const struct layer_values *w,
                                 struct mil_var *x)
{
    x = block_to_channels(b, x);
    struct mil_var *gate =
        block_silu(b, project(b, i, w, x, DECODER_GATE, DECODER_GATE_BIAS, "mlp_gate_proj"));
    struct mil_var *up = project(b, i, w, x, DECODER_UP, DECODER_UP_BIAS, "mlp_up_proj");
    x = project(b, i, w, block_binary(b, "mul", gate, up, NULL), DECODER_DOWN, DECODER_DOWN_BIAS,
                "mlp_down_proj");
    return block_from_channels(b, x, NULL);
}

static void state_shape(const struct arch_model *m, int64_t shape[4])
{
    const struct decoder *d = m->own;
    shape[0] = 2 * m->n_layers;
    shape[1] = d->sizes.n_kv_heads;
    shape[2] = m->settings.context_length;
    shape[3] = d->sizes.head_dim;
}

static bool build_function(const struct arch_model *m, const struct chunk_values *c, struct mil_model *out,
                           const char *name, int64_t t, struct err *e)
{
    const struct decoder *d = m->own;
    double eps = d->sizes.rms_norm_eps;
    struct mil_builder *b = mil_builder_new(out, name, "CoreML8");
    int64_t cache_shape[4];
    state_shape(m, cache_shape);
    struct arch_inputs inputs = arch_build_inputs(m, b, t);
    struct layer_inputs in = {.mask = inputs.causal_mask, .position = inputs.current_pos};
    struct mil_var *x = inputs.hidden_states;
    in.state = mil_build_state(b, STATE_KV_CACHE, MIL_FP16, 4, cache_shape);
    if (c->turns) {
        in.cos = block_rope_rows(b, c->cos, inputs.position_ids, "rope_cos");
        in.sin = block_rope_rows(b, c->sin, inputs.position_ids, "rope_sin");
    }
    if (c->slides)
        in.window_mask = window_cache_build(&c->window, b, &c->masks, t, false, inputs.position_ids,
                                            inputs.causal_mask, inputs.current_pos)
                             .mask;
    for (int64_t i = c->begin; i < c->end; i++) {
        const struct layer_values *w = &c->layers[i - c->begin];
        struct mil_var *y = block_rms_norm(b, x, w->weights[DECODER_INPUT_NORM], eps,
                                           arch_layer_name(b, i, "input_layernorm"));
        x = block_binary(b, "add", x, build_attention(m, b, i, w, &in, y), NULL);
        y = block_rms_norm(b, x, w->weights[DECODER_MLP_NORM], eps,
                           arch_layer_name(b, i, "post_attention_layernorm"));
        x = block_binary(b, "add", x, build_mlp(b, i, w, y), arch_layer_name(b, i, "output"));
    }
    if (c->is_last)
        x = block_rms_norm(b, block_last_row(b, x), c->norm, eps, "norm");
    return arch_finish_function(b, x, name, e);
}

static bool decoder_build_chunk(struct arch_model *m, int i_chunk, struct mil_model *out, struct err *e)
{
    struct chunk_values c;
    make_values(m, i_chunk, out, &c);
    if (!build_function(m, &c, out, FUNCTION_INFER, 1, e) ||
        !build_function(m, &c, out, FUNCTION_PREFILL, m->settings.batch_size, e))
        return err_wrap(e, "chunk %d", i_chunk + 1);

    struct arch_state state = {.name = STATE_KV_CACHE, .rank = 4};
    state_shape(m, state.shape);
    arch_describe_chunk(m, i_chunk, &state, 1, out);
    return true;
}

/* Only what the common keys do not say of such a package. */
static void decoder_fill_meta(const struct arch_model *m, struct meta *meta)
{
    const struct decoder *d = m->own;
    int64_t n_sliding = 0;
    for (int64_t i = 0; i < m->n_layers; i++)
        n_sliding += d->layers[i].is.slides;
    if (n_sliding == 0)
        return;
    meta->local_attention_window = d->window;
    meta->layer_types = xcalloc((size_t)m->n_layers, sizeof *meta->layer_types);
    for (int64_t i = 0; i < m->n_layers; i++)
        meta->layer_types[meta->n_layer_types++] = xstrdup(d->layers[i].is.slides ? "sliding" : "full");
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
