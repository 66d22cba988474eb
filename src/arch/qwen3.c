/* Qwen3: configuration, tensors and the three programs.
 *
 * Checkpoint tensors: model.embed_tokens, model.layers.N.{input_layernorm, self_attn.{q,k,v,o}_proj,
 * self_attn.{q,k}_norm, post_attention_layernorm, mlp.{gate,up,down}_proj}, model.norm, lm_head. With
 * attention_bias the four projections have biases. The head is lm_head.weight when stored, whatever
 * tie_word_embeddings says; else the embedding table when tied. infer and prefill are the same graph for
 * another number of tokens and refer to the same weights.
 */
#include "arch/blocks.h"
#include "arch/family.h"
#include <math.h>
#include <string.h>

#define STATE_NAME "model_model_kv_cache_0"
#define SIZE_MAX_ANY 16777216 /* of a hidden size or vocabulary; products of two stay far below int64 */
#define N_PROJECTIONS 4

enum projection { PROJECT_Q, PROJECT_K, PROJECT_V, PROJECT_O };
static const char *const projection_names[N_PROJECTIONS] = {"q", "k", "v", "o"};

struct layer_tensors {
    const struct st_tensor *input_norm, *post_norm, *q_norm, *k_norm, *gate, *up, *down;
    const struct st_tensor *projection[N_PROJECTIONS], *bias[N_PROJECTIONS]; /* bias: NULL without */
};

struct qwen3 {
    int64_t n_heads, n_kv_heads, head_dim, intermediate_size;
    double rms_norm_eps;
    bool attention_bias, tie_word_embeddings;
    struct arch_rope rope;
    const struct st_tensor *embeddings, *norm, *head;
    struct layer_tensors *layers; /* [n_layers] */
};

static bool qwen3_matches(const char *model_type)
{
    return strcmp(model_type, "qwen3") == 0;
}

/* ---- configuration ---- */

static bool check_layer_types(const struct arch_model *m, const char *where, struct err *e)
{
    const cJSON *types = json_get(m->text_config, "layer_types");
    if (!types || cJSON_IsNull(types))
        return true;
    if (!cJSON_IsArray(types))
        return err_set(e, ERR_FORMAT, "%s: key layer_types: expected an array, found %s", where,
                       json_type_name(types));
    int64_t i = 0;
    for (const cJSON *t = types->child; t; t = t->next, i++) {
        if (!cJSON_IsString(t) || strcmp(t->valuestring, "full_attention") != 0)
            return err_set(
                e, ERR_UNSUPPORTED,
                "%s: key layer_types: expected full_attention for every layer, found %s for layer %lld",
                where, cJSON_IsString(t) ? t->valuestring : json_type_name(t), (long long)i);
    }
    if (i != m->n_layers)
        return err_set(e, ERR_FORMAT, "%s: key layer_types: expected %lld entries, found %lld", where,
                       (long long)m->n_layers, (long long)i);
    return true;
}

static bool check_variants(const struct arch_model *m, const char *where, struct err *e)
{
    const cJSON *c = m->text_config;
    bool use_sliding_window = false;
    const char *activation = "silu";
    if (!json_get_bool(c, "use_sliding_window", &use_sliding_window, where, e) ||
        !json_get_string(c, "hidden_act", &activation, where, e))
        return false;
    if (use_sliding_window)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: key use_sliding_window: the qwen3 package has no sliding windows, found true",
                       where);
    if (strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: key hidden_act: expected silu, found \"%s\"", where,
                       activation);
    return check_layer_types(m, where, e);
}

static bool read_config(struct arch_model *m, struct qwen3 *q, struct err *e)
{
    const cJSON *c = m->text_config;
    const char *where = arch_config_path(m);
    m->vocab_size = 151936;
    m->hidden_size = 4096;
    m->n_layers = 32;
    q->intermediate_size = 22016;
    q->n_heads = 32;
    q->head_dim = 128;
    q->rms_norm_eps = 1e-6;
    if (!arch_get_size(m, c, "vocab_size", SIZE_MAX_ANY, &m->vocab_size, e) ||
        !arch_get_size(m, c, "hidden_size", SIZE_MAX_ANY, &m->hidden_size, e) ||
        !arch_get_size(m, c, "intermediate_size", SIZE_MAX_ANY, &q->intermediate_size, e) ||
        !arch_get_size(m, c, "num_hidden_layers", 10000, &m->n_layers, e) ||
        !arch_get_size(m, c, "num_attention_heads", 65536, &q->n_heads, e) ||
        !arch_get_size(m, c, "head_dim", 65536, &q->head_dim, e))
        return false;
    /* The library's default is 32 heads; a present null means no grouping. */
    q->n_kv_heads = cJSON_IsNull(json_get(c, "num_key_value_heads")) ? q->n_heads : 32;
    if (!arch_get_size(m, c, "num_key_value_heads", 65536, &q->n_kv_heads, e) ||
        !json_get_double(c, "rms_norm_eps", &q->rms_norm_eps, where, e) ||
        !json_get_bool(c, "attention_bias", &q->attention_bias, where, e) ||
        !json_get_bool(c, "tie_word_embeddings", &q->tie_word_embeddings, where, e))
        return false;
    if (q->n_heads % q->n_kv_heads != 0)
        return err_set(e, ERR_FORMAT,
                       "%s: num_attention_heads %lld is not a multiple of num_key_value_heads %lld", where,
                       (long long)q->n_heads, (long long)q->n_kv_heads);
    if (q->head_dim % 2 != 0)
        return err_set(e, ERR_FORMAT, "%s: key head_dim: expected an even number, found %lld", where,
                       (long long)q->head_dim);
    if (!(q->rms_norm_eps >= 0 && q->rms_norm_eps < 1))
        return err_set(e, ERR_FORMAT, "%s: key rms_norm_eps: expected a small positive number, found %g",
                       where, q->rms_norm_eps);
    return check_variants(m, where, e) && arch_read_rope(m, q->head_dim, &q->rope, e);
}

/* ---- tensors ---- */

/* model.layers.<layer>.<name> of shape [rows] or [rows, columns] (columns 0: a vector) */
static bool require_layer(struct arch_model *m, int64_t layer, const char *name, int64_t rows,
                          int64_t columns, const struct st_tensor **out, struct err *e)
{
    char full[160];
    int64_t shape[2] = {rows, columns};
    snprintf(full, sizeof full, "model.layers.%lld.%s", (long long)layer, name);
    *out = arch_require_tensor(m, full, columns ? 2 : 1, shape, e);
    return *out != NULL;
}

static bool find_layer(struct arch_model *m, const struct qwen3 *q, int64_t i, struct layer_tensors *t,
                       struct err *e)
{
    int64_t h = m->hidden_size, width = q->n_heads * q->head_dim, kv_width = q->n_kv_heads * q->head_dim;
    const int64_t rows[N_PROJECTIONS] = {width, kv_width, kv_width, h},
                  columns[N_PROJECTIONS] = {h, h, h, width};
    for (int p = 0; p < N_PROJECTIONS; p++) {
        char name[64];
        snprintf(name, sizeof name, "self_attn.%s_proj.weight", projection_names[p]);
        if (!require_layer(m, i, name, rows[p], columns[p], &t->projection[p], e))
            return false;
        snprintf(name, sizeof name, "self_attn.%s_proj.bias", projection_names[p]);
        if (q->attention_bias && !require_layer(m, i, name, rows[p], 0, &t->bias[p], e))
            return false;
    }
    return require_layer(m, i, "input_layernorm.weight", h, 0, &t->input_norm, e) &&
           require_layer(m, i, "post_attention_layernorm.weight", h, 0, &t->post_norm, e) &&
           require_layer(m, i, "self_attn.q_norm.weight", q->head_dim, 0, &t->q_norm, e) &&
           require_layer(m, i, "self_attn.k_norm.weight", q->head_dim, 0, &t->k_norm, e) &&
           require_layer(m, i, "mlp.gate_proj.weight", q->intermediate_size, h, &t->gate, e) &&
           require_layer(m, i, "mlp.up_proj.weight", q->intermediate_size, h, &t->up, e) &&
           require_layer(m, i, "mlp.down_proj.weight", h, q->intermediate_size, &t->down, e);
}

static bool find_tensors(struct arch_model *m, struct qwen3 *q, struct err *e)
{
    int64_t table[2] = {m->vocab_size, m->hidden_size};
    q->embeddings = arch_require_tensor(m, "model.embed_tokens.weight", 2, table, e);
    if (!q->embeddings)
        return false;
    q->norm = arch_require_tensor(m, "model.norm.weight", 1, &m->hidden_size, e);
    if (!q->norm)
        return false;
    q->head = q->embeddings;
    if (!q->tie_word_embeddings || arch_has_tensor(m, "lm_head.weight")) {
        q->head = arch_require_tensor(m, "lm_head.weight", 2, table, e);
        if (!q->head)
            return q->tie_word_embeddings ? false
                                          : err_wrap(e, "the embeddings are not tied (tie_word_embeddings)");
    }
    q->layers = ARENA_ARRAY(m->arena, struct layer_tensors, m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++) {
        if (!find_layer(m, q, i, &q->layers[i], e))
            return false;
    }
    return true;
}

static bool check_norms(struct arch_model *m, const struct qwen3 *q, struct err *e)
{
    const struct st_tensor **norms = ARENA_ARRAY(m->arena, const struct st_tensor *, 2 * m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++) {
        norms[2 * i] = q->layers[i].input_norm;
        norms[2 * i + 1] = q->layers[i].post_norm;
    }
    return arch_check_gains(m, "the layers' norm weights", norms, 2 * m->n_layers, e);
}

static bool qwen3_open(struct arch_model *m, struct err *e)
{
    struct qwen3 *q = ARENA_NEW(m->arena, struct qwen3);
    m->own = q;
    return read_config(m, q, e) && find_tensors(m, q, e) && check_norms(m, q, e);
}

/* ---- embeddings and head ---- */

static bool qwen3_build_embeddings(struct arch_model *m, struct mil_model *out, struct err *e)
{
    const struct qwen3 *q = m->own;
    return arch_build_embeddings(m, q->embeddings, out, e);
}

static bool qwen3_build_head(struct arch_model *m, struct mil_model *out, struct err *e)
{
    const struct qwen3 *q = m->own;
    return arch_build_head(m, q->head, out, e);
}

/* ---- decoder chunks ---- */

/* The weights of a layer as values of the model: made once, referred to by both functions. */
struct layer_values {
    const struct mil_value *input_norm, *post_norm, *q_norm, *k_norm, *gate, *up, *down;
    const struct mil_value *projection[N_PROJECTIONS], *bias[N_PROJECTIONS];
};

struct chunk_values {
    int64_t begin, end; /* layers */
    bool is_last;
    const struct mil_value *cos, *sin, *norm;
    struct layer_values *layers; /* [end - begin] */
};

static const struct mil_value *vector_weight(struct mil_model *out, const struct st_tensor *t)
{
    return arch_vector(out, t, ARCH_KEEP);
}

/* [O, I] as the [O, I, 1, 1] of a convolution */
static const struct mil_value *linear_weight(struct mil_model *out, const struct st_tensor *t)
{
    return arch_linear(out, t, ARCH_KEEP);
}

static void make_values(struct arch_model *m, int i_chunk, struct mil_model *out, struct chunk_values *c)
{
    const struct qwen3 *q = m->own;
    arch_chunk_layers(m, i_chunk, &c->begin, &c->end);
    c->is_last = i_chunk == m->settings.n_chunks - 1;
    c->cos = arch_rope_table(out, &q->rope, false, m->settings.context_length);
    c->sin = arch_rope_table(out, &q->rope, true, m->settings.context_length);
    c->norm = c->is_last ? vector_weight(out, q->norm) : NULL;
    c->layers = ARENA_ARRAY(m->arena, struct layer_values, c->end - c->begin);
    for (int64_t i = c->begin; i < c->end; i++) {
        const struct layer_tensors *t = &q->layers[i];
        struct layer_values *v = &c->layers[i - c->begin];
        v->input_norm = vector_weight(out, t->input_norm);
        v->post_norm = vector_weight(out, t->post_norm);
        v->q_norm = vector_weight(out, t->q_norm);
        v->k_norm = vector_weight(out, t->k_norm);
        v->gate = linear_weight(out, t->gate);
        v->up = linear_weight(out, t->up);
        v->down = linear_weight(out, t->down);
        for (int p = 0; p < N_PROJECTIONS; p++) {
            v->projection[p] = linear_weight(out, t->projection[p]);
            v->bias[p] = vector_weight(out, t->bias[p]);
        }
    }
}

/* What one function hands to its layers. */
struct layer_inputs {
    struct mil_var *cos, *sin, *mask, *position, *state;
};

static const char *layer_name(struct mil_builder *b, int64_t layer, const char *what)
{
    return arena_printf(mil_builder_arena(b), "layers_%lld_%s", (long long)layer, what);
}

static struct mil_var *build_attention(const struct arch_model *m, struct mil_builder *b, int64_t i,
                                       const struct layer_values *w, const struct layer_inputs *in,
                                       struct mil_var *x)
{
    const struct qwen3 *c = m->own;
    double eps = c->rms_norm_eps;
    x = block_to_channels(b, x);
    struct mil_var *q = block_to_heads(b,
                                       block_linear(b, x, w->projection[PROJECT_Q], w->bias[PROJECT_Q],
                                                    layer_name(b, i, "self_attn_q_proj")),
                                       c->n_heads);
    struct mil_var *k = block_to_heads(b,
                                       block_linear(b, x, w->projection[PROJECT_K], w->bias[PROJECT_K],
                                                    layer_name(b, i, "self_attn_k_proj")),
                                       c->n_kv_heads);
    struct mil_var *v = block_to_heads(b,
                                       block_linear(b, x, w->projection[PROJECT_V], w->bias[PROJECT_V],
                                                    layer_name(b, i, "self_attn_v_proj")),
                                       c->n_kv_heads);
    q = block_rms_norm(b, q, w->q_norm, eps, layer_name(b, i, "self_attn_q_norm"));
    k = block_rms_norm(b, k, w->k_norm, eps, layer_name(b, i, "self_attn_k_norm"));
    q = block_rope(b, q, in->cos, in->sin, c->head_dim, layer_name(b, i, "self_attn_q_rope"));
    k = block_rope(b, k, in->cos, in->sin, c->head_dim, layer_name(b, i, "self_attn_k_rope"));
    int64_t k_slot = i, v_slot = m->n_layers + i;
    block_write_rows(b, in->state, k, k_slot, 0, in->position, false, layer_name(b, i, "k_cache_update"));
    struct mil_var *cache =
        block_write_rows(b, in->state, v, v_slot, 0, in->position, true, layer_name(b, i, "v_cache_update"));
    struct mil_var *keys = block_slice(b, cache, 0, k_slot, k_slot + 1, layer_name(b, i, "k_cache"));
    struct mil_var *values = block_slice(b, cache, 0, v_slot, v_slot + 1, layer_name(b, i, "v_cache"));
    struct mil_var *y = block_attention(b, q, keys, values, in->mask, 1.0 / sqrt((double)c->head_dim),
                                        layer_name(b, i, "self_attn_values"));
    y = block_linear(b, block_from_heads(b, y), w->projection[PROJECT_O], w->bias[PROJECT_O],
                     layer_name(b, i, "self_attn_o_proj"));
    return block_from_channels(b, y, NULL);
}

static struct mil_var *build_mlp(struct mil_builder *b, int64_t i, const struct layer_values *w,
                                 struct mil_var *x)
{
    x = block_to_channels(b, x);
    struct mil_var *gate =
        block_silu(b, block_linear(b, x, w->gate, NULL, layer_name(b, i, "mlp_gate_proj")));
    struct mil_var *up = block_linear(b, x, w->up, NULL, layer_name(b, i, "mlp_up_proj"));
    x = block_linear(b, block_binary(b, "mul", gate, up, NULL), w->down, NULL,
                     layer_name(b, i, "mlp_down_proj"));
    return block_from_channels(b, x, NULL);
}

static void state_shape(const struct arch_model *m, int64_t shape[4])
{
    const struct qwen3 *q = m->own;
    shape[0] = 2 * m->n_layers;
    shape[1] = q->n_kv_heads;
    shape[2] = m->settings.context_length;
    shape[3] = q->head_dim;
}

static bool build_function(const struct arch_model *m, const struct chunk_values *c, struct mil_model *out,
                           const char *name, int64_t t, struct err *e)
{
    const struct qwen3 *q = m->own;
    struct mil_builder *b = mil_builder_new(out, name, "CoreML8");
    int64_t hidden_shape[3] = {1, t, m->hidden_size}, mask_shape[4] = {1, 1, t, m->settings.context_length};
    int64_t one = 1, cache_shape[4];
    struct layer_inputs in = {0};
    state_shape(m, cache_shape);
    struct mil_var *x = mil_build_input(b, "hidden_states", MIL_FP16, 3, hidden_shape);
    struct mil_var *position_ids = mil_build_input(b, "position_ids", MIL_INT32, 1, &t);
    in.mask = mil_build_input(b, "causal_mask", MIL_FP16, 4, mask_shape);
    in.position = mil_build_input(b, "current_pos", MIL_INT32, 1, &one);
    in.state = mil_build_state(b, STATE_NAME, MIL_FP16, 4, cache_shape);
    in.cos = block_rope_rows(b, c->cos, position_ids, "rope_cos");
    in.sin = block_rope_rows(b, c->sin, position_ids, "rope_sin");
    for (int64_t i = c->begin; i < c->end; i++) {
        const struct layer_values *w = &c->layers[i - c->begin];
        struct mil_var *y =
            block_rms_norm(b, x, w->input_norm, q->rms_norm_eps, layer_name(b, i, "input_layernorm"));
        x = block_binary(b, "add", x, build_attention(m, b, i, w, &in, y), NULL);
        y = block_rms_norm(b, x, w->post_norm, q->rms_norm_eps, layer_name(b, i, "post_attention_layernorm"));
        x = block_binary(b, "add", x, build_mlp(b, i, w, y), layer_name(b, i, "output"));
    }
    if (c->is_last)
        x = block_rms_norm(b, block_last_row(b, x), c->norm, q->rms_norm_eps, "norm");
    if (x)
        mil_build_rename(b, x, "output_hidden_states");
    return mil_builder_finish(b, &x, 1, e) || err_wrap(e, "function %s", name);
}

static bool qwen3_build_chunk(struct arch_model *m, int i_chunk, struct mil_model *out, struct err *e)
{
    struct chunk_values c;
    make_values(m, i_chunk, out, &c);
    if (!build_function(m, &c, out, "infer", 1, e) ||
        !build_function(m, &c, out, "prefill", m->settings.batch_size, e))
        return err_wrap(e, "chunk %d", i_chunk + 1);

    struct arch_state state = {.name = STATE_NAME, .rank = 4};
    state_shape(m, state.shape);
    arch_describe_chunk(m, i_chunk, &state, 1, out);
    return true;
}

/* A plain transformer needs nothing beyond the common keys. */
static void qwen3_fill_meta(const struct arch_model *m, struct meta *meta)
{
    (void)m;
    (void)meta;
}

const struct arch_family arch_qwen3 = {
    .name = "qwen3",
    .default_prefix = "qwen",
    .matches = qwen3_matches,
    .open = qwen3_open,
    .build_embeddings = qwen3_build_embeddings,
    .build_chunk = qwen3_build_chunk,
    .build_head = qwen3_build_head,
    .fill_meta = qwen3_fill_meta,
};
