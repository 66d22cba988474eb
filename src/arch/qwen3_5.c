/* Qwen3.5: gated attention, the decoder chunks, and the package's description of itself.
 *
 * States, declared in full by every chunk: keys and values of the full layers; the delta rule's memory of the
 * linear layers, times sqrt(d_k); the last rows of their convolutions, oldest first. A function that has no
 * use for a state reads one element of it. infer and prefill are the same graph but for the delta rule.
 */
#include <math.h>
#include <string.h>
#include "arch/qwen3_5.h"
#include "format/contract.h"

enum { KV, GDN, CONV, N_STATES };

static const char *const model_types[] = {"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", NULL};

static void fill_states(const struct arch_model *m, struct arch_state states[N_STATES])
{
    const struct qwen3_5 *q = m->own;
    states[KV] = (struct arch_state){
        STATE_KV_CACHE,
        4,
        {2 * q->n_full, q->sizes.n_kv_heads, m->settings.context_length, q->sizes.head_dim}};
    states[GDN] = (struct arch_state){STATE_GDN, 3, {q->n_linear * q->n_v, q->d_k, q->d_v}};
    states[CONV] = (struct arch_state){STATE_CONV, 3, {q->n_linear, q->kernel - 1, q->conv_dim}};
}

/* ---- weights of a chunk ---- */

/* 1 + w, and what fp16 loses of it where the settings want exact norms (else NULL). */
struct norm_values {
    const struct mil_value *weight, *rest;
};

struct full_values {
    const struct mil_value *q, *gate, *k, *v, *o;
    const struct mil_value *q_bias, *gate_bias, *k_bias, *v_bias, *o_bias; /* NULL without */
    struct norm_values q_norm, k_norm;
};

struct layer_values {
    struct norm_values input_norm, post_norm;
    struct full_values full;
    struct qwen3_5_linear_values linear;
    struct qwen3_5_mlp_values mlp;
};

struct chunk_values {
    int64_t begin, end; /* layers */
    bool is_last;
    const struct mil_value *cos, *sin;
    struct norm_values norm; /* of the last chunk */
    struct qwen3_5_chunked chunked;
    struct layer_values *layers; /* [end - begin] */
};

/* Every head's rows are its query, then its gate. The gate is halved, because sigmoid is made of tanh(x / 2);
 * a factor behind the convolution would be folded into the weight by other tools. */
static const struct mil_value *query_part(struct mil_model *out, const struct qwen3_5 *q,
                                          const struct st_tensor *t, bool is_gate)
{
    if (!t)
        return NULL;
    int64_t rows = q->sizes.n_heads * q->sizes.head_dim, columns = t->rank == 2 ? t->shape[1] : 1;
    int64_t dims[4] = {rows, columns, 1, 1};
    struct arch_layout l = arch_layout_of(&t, rows, columns);
    l.row_block = q->sizes.head_dim;
    l.row_block_stride = 2 * q->sizes.head_dim * columns;
    l.offset = is_gate ? q->sizes.head_dim * columns : 0;
    l.factor = is_gate ? 0.5 : 1;
    l.keep_fp16 = t->rank == 1;
    return arch_layout_weight(out, &l, t->rank == 2 ? 4 : 1, dims);
}

static struct norm_values make_norm(const struct arch_model *m, struct mil_model *out,
                                    const struct st_tensor *t)
{
    const struct qwen3_5 *q = m->own;
    struct norm_values v = {.weight = arch_vector(out, t, q->norms_hold_one ? ARCH_KEEP : ARCH_ONE_PLUS)};
    if (m->settings.exact_norms)
        v.rest = arch_vector(out, t, q->norms_hold_one ? ARCH_KEEP_REST : ARCH_ONE_PLUS_REST);
    return v;
}

static struct full_values make_full(const struct arch_model *m, const struct st_tensor *const *t,
                                    struct mil_model *out)
{
    const struct qwen3_5 *q = m->own;
    return (struct full_values){
        .q = query_part(out, q, t[DECODER_Q], false),
        .gate = query_part(out, q, t[DECODER_Q], true),
        .k = arch_linear(out, t[DECODER_K], 1),
        .v = arch_linear(out, t[DECODER_V], 1),
        .o = arch_linear(out, t[DECODER_O], m->settings.residual_scale),
        .q_bias = query_part(out, q, t[DECODER_Q_BIAS], false),
        .gate_bias = query_part(out, q, t[DECODER_Q_BIAS], true),
        .k_bias = arch_vector(out, t[DECODER_K_BIAS], ARCH_KEEP),
        .v_bias = arch_vector(out, t[DECODER_V_BIAS], ARCH_KEEP),
        .o_bias = arch_scaled_vector(out, t[DECODER_O_BIAS], ARCH_KEEP, m->settings.residual_scale),
        .q_norm = make_norm(m, out, t[DECODER_Q_NORM]),
        .k_norm = make_norm(m, out, t[DECODER_K_NORM])};
}

static void make_values(struct arch_model *m, int i_chunk, struct mil_model *out, struct chunk_values *c)
{
    const struct qwen3_5 *q = m->own;
    arch_chunk_layers(m, i_chunk, &c->begin, &c->end);
    c->is_last = i_chunk == m->settings.n_chunks - 1;
    c->cos = arch_rope_table(out, &q->rope, false, m->settings.context_length);
    c->sin = arch_rope_table(out, &q->rope, true, m->settings.context_length);
    if (c->is_last)
        c->norm = make_norm(m, out, m->ends.norm);
    c->chunked = qwen3_5_chunked_constants(qwen3_5_chunk_size(&m->settings), out);
    c->layers = ARENA_ARRAY(out->arena, struct layer_values, c->end - c->begin);
    for (int64_t i = c->begin; i < c->end; i++) {
        const struct qwen3_5_layer *t = &q->layers[i];
        struct layer_values *v = &c->layers[i - c->begin];
        v->input_norm = make_norm(m, out, t->tensors[DECODER_INPUT_NORM]);
        v->post_norm = make_norm(m, out, t->tensors[DECODER_MLP_NORM]);
        if (t->is_full)
            v->full = make_full(m, t->tensors, out);
        else
            v->linear = qwen3_5_linear_values(m, &t->linear, out);
        v->mlp = qwen3_5_mlp_values(m, t, out);
    }
}

/* ---- graphs ---- */

/* What one function hands to its layers. */
struct layer_inputs {
    struct mil_var *cos, *sin, *mask, *position;
    struct mil_var *states[N_STATES];
    const struct mil_value *order; /* of experts */
};

static struct mil_var *rms_norm(struct mil_builder *b, struct mil_var *x, const struct norm_values *norm,
                                double epsilon, const char *name)
{
    return norm->rest ? block_rms_norm_split(b, x, norm->weight, norm->rest, epsilon, name)
                      : block_rms_norm(b, x, norm->weight, epsilon, name);
}

/* Of the residual stream. */
static struct mil_var *norm_stream(const struct arch_model *m, struct mil_builder *b, struct mil_var *x,
                                   const struct norm_values *norm, const char *name)
{
    const struct qwen3_5 *q = m->own;
    return rms_norm(b, x, norm, arch_stream_epsilon(m, q->sizes.rms_norm_eps), name);
}

static struct mil_var *normed_heads(const struct qwen3_5 *c, struct mil_builder *b, int64_t i,
                                    const struct layer_inputs *in, const char *name, struct mil_var *x,
                                    int64_t n_heads, const struct norm_values *norm)
{
    struct arena *a = mil_builder_arena(b);
    x = rms_norm(b, block_to_heads(b, x, n_heads), norm, c->sizes.rms_norm_eps,
                 arch_layer_name(b, i, arena_printf(a, "self_attn_%s_norm", name)));
    return block_rope(b, x, in->cos, in->sin, c->rotary_dim,
                      arch_layer_name(b, i, arena_printf(a, "self_attn_%s_rope", name)));
}

static struct mil_var *build_full(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                  const struct full_values *w, const struct layer_inputs *in,
                                  struct mil_var *x)
{
    const struct qwen3_5 *c = m->own;
    int64_t k_slot = c->layers[i].index, v_slot = c->n_full + k_slot;
    x = block_to_channels(b, x);
    struct mil_var *q = block_linear(b, x, w->q, w->q_bias, arch_layer_name(b, i, "self_attn_q_proj"));
    struct mil_var *gate =
        block_linear(b, x, w->gate, w->gate_bias, arch_layer_name(b, i, "self_attn_gate_proj"));
    struct mil_var *k = block_linear(b, x, w->k, w->k_bias, arch_layer_name(b, i, "self_attn_k_proj"));
    struct mil_var *v = block_linear(b, x, w->v, w->v_bias, arch_layer_name(b, i, "self_attn_v_proj"));
    v = block_to_heads(b, v, c->sizes.n_kv_heads);
    q = normed_heads(c, b, i, in, "q", q, c->sizes.n_heads, &w->q_norm);
    k = normed_heads(c, b, i, in, "k", k, c->sizes.n_kv_heads, &w->k_norm);
    block_write_rows(b, in->states[KV], k, k_slot, 0, in->position, false,
                     arch_layer_name(b, i, "k_cache_update"));
    struct mil_var *cache = block_write_rows(b, in->states[KV], v, v_slot, 0, in->position, true,
                                             arch_layer_name(b, i, "v_cache_update"));
    struct mil_var *keys = block_slice(b, cache, 0, k_slot, k_slot + 1, arch_layer_name(b, i, "k_cache"));
    struct mil_var *values = block_slice(b, cache, 0, v_slot, v_slot + 1, arch_layer_name(b, i, "v_cache"));
    struct mil_var *y = block_attention(b, q, keys, values, in->mask, 1.0 / sqrt((double)c->sizes.head_dim),
                                        arch_layer_name(b, i, "self_attn_values"));
    y = block_from_heads(b, y);
    y = block_binary(b, "mul", y, block_half_sigmoid(b, gate), NULL);
    y = block_linear(b, y, w->o, w->o_bias, arch_layer_name(b, i, "self_attn_o_proj"));
    return block_from_channels(b, y, NULL);
}

static struct mil_var *build_layer(const struct arch_model *m, const struct chunk_values *c,
                                   struct mil_builder *b, int64_t i, const struct layer_inputs *in,
                                   struct mil_var *x)
{
    const struct qwen3_5 *q = m->own;
    const struct layer_values *w = &c->layers[i - c->begin];
    struct mil_var *y = norm_stream(m, b, x, &w->input_norm, arch_layer_name(b, i, "input_layernorm"));
    y = q->layers[i].is_full
            ? build_full(m, b, i, &w->full, in, y)
            : qwen3_5_build_linear(m, b, i, &w->linear, &c->chunked, y, in->states[GDN], in->states[CONV]);
    x = block_binary(b, "add", x, y, NULL);
    y = norm_stream(m, b, x, &w->post_norm, arch_layer_name(b, i, "post_attention_layernorm"));
    return block_binary(b, "add", x, qwen3_5_build_mlp(m, b, i, &w->mlp, in->order, y),
                        arch_layer_name(b, i, "output"));
}

/* Reads of the states that none of these layers uses. */
static struct mil_var *touch_unused(const struct qwen3_5 *q, const struct chunk_values *c,
                                    struct mil_builder *b, const struct layer_inputs *in, struct mil_var *x)
{
    int64_t n_full = 0;
    for (int64_t i = c->begin; i < c->end; i++)
        n_full += q->layers[i].is_full;
    if (n_full == 0)
        x = block_touch_state(b, x, in->states[KV]);
    if (n_full == c->end - c->begin)
        x = block_touch_state(b, block_touch_state(b, x, in->states[GDN]), in->states[CONV]);
    return x;
}

static bool build_function(const struct arch_model *m, const struct chunk_values *c,
                           const struct arch_state *states, struct mil_model *out, const char *name,
                           int64_t t, struct err *e)
{
    const struct qwen3_5 *q = m->own;
    struct mil_builder *b = mil_builder_new(out, name, "CoreML8");
    struct arch_inputs inputs = arch_build_inputs(m, b, t);
    struct layer_inputs in = {.mask = inputs.causal_mask, .position = inputs.current_pos};
    struct mil_var *x = inputs.hidden_states;
    for (int i = 0; i < N_STATES; i++)
        in.states[i] = mil_build_state(b, states[i].name, MIL_FP16, states[i].rank, states[i].shape);
    in.cos = block_rope_rows(b, c->cos, inputs.position_ids, "rope_cos");
    in.sin = block_rope_rows(b, c->sin, inputs.position_ids, "rope_sin");
    if (q->is_moe)
        in.order = experts_order(m, &q->experts, t, out);
    x = touch_unused(q, c, b, &in, x);
    for (int64_t i = c->begin; i < c->end && !mil_builder_failed(b); i++)
        x = build_layer(m, c, b, i, &in, x);
    if (c->is_last)
        x = norm_stream(m, b, block_last_row(b, x), &c->norm, "norm");
    return arch_finish_function(b, x, name, e);
}

static bool qwen3_5_build_chunk(struct arch_model *m, int i_chunk, struct mil_model *out, struct err *e)
{
    struct chunk_values c;
    struct arch_state states[N_STATES];
    fill_states(m, states);
    make_values(m, i_chunk, out, &c);
    if (!build_function(m, &c, states, out, FUNCTION_INFER, 1, e) ||
        !build_function(m, &c, states, out, FUNCTION_PREFILL, m->settings.batch_size, e))
        return err_wrap(e, "chunk %d", i_chunk + 1);
    arch_describe_chunk(m, i_chunk, states, N_STATES, false, out);
    return true;
}

/* ---- meta.yaml ---- */

static void fill_state_meta(const struct qwen3_5 *q, int64_t n_layers, const struct arch_state *s,
                            bool is_full, struct meta_state *out)
{
    out->name = xstrdup(s->name);
    out->dtype = xstrdup("float16");
    out->rank = s->rank;
    for (int i = 0; i < s->rank; i++)
        out->shape[i] = s->shape[i];
    out->layers = xcalloc((size_t)n_layers, sizeof *out->layers);
    for (int64_t i = 0; i < n_layers; i++) {
        if (q->layers[i].is_full == is_full)
            out->layers[out->n_layers++] = (int)i;
    }
}

static void qwen3_5_fill_meta(const struct arch_model *m, struct meta *meta)
{
    const struct qwen3_5 *q = m->own;
    struct arch_state states[N_STATES];
    fill_states(m, states);
    meta->recurrent_state = true;
    meta->prefill_full_batches_only = true;
    meta->gdn_chunk_size = qwen3_5_chunk_size(&m->settings);
    if (q->is_moe) {
        meta->moe_experts = (int)q->experts.n;
        meta->moe_experts_per_token = (int)q->experts.n_chosen;
        meta->moe_evaluation = xstrdup("dense");
    }
    meta->n_layer_types = (int)m->n_layers;
    meta->layer_types = xcalloc((size_t)m->n_layers, sizeof *meta->layer_types);
    for (int64_t i = 0; i < m->n_layers; i++)
        meta->layer_types[i] = xstrdup(q->layers[i].is_full ? "full" : "linear");
    meta->n_states = N_STATES;
    meta->states = xcalloc(N_STATES, sizeof *meta->states);
    for (int i = 0; i < N_STATES; i++)
        fill_state_meta(q, m->n_layers, &states[i], i == KV, &meta->states[i]);
}

const struct arch_family arch_qwen3_5 = {
    .name = "qwen3_5",
    .default_prefix = "qwen35",
    .model_types = model_types,
    .open = qwen3_5_open,
    .build_embeddings = arch_build_embeddings,
    .build_chunk = qwen3_5_build_chunk,
    .build_head = arch_build_head,
    .fill_meta = qwen3_5_fill_meta,
};
