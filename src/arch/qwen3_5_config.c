/* Qwen3.5: config.json and the tensors of a checkpoint, in all published layouts.
 *
 * Multimodal wrapper (settings in text_config, names under model.language_model.) or plain text model (names
 * under model.); dense or mixture of experts, whose experts are packed into one tensor or have one each.
 * Vision tensors and those of the multi-token prediction (model.visual., mtp.) are left out.
 */
#include <string.h>
#include "arch/qwen3_5.h"

/* ---- configuration ---- */

static bool check_variants(const struct arch_model *m, struct err *e)
{
    bool has_gate = true;
    if (!config_check_activation(&m->config, "hidden_act", "silu", "swish", e) ||
        !json_get_bool(m->config.text, "attn_output_gate", &has_gate, m->config.path, e))
        return false;
    return has_gate || err_set(e, ERR_UNSUPPORTED,
                               "%s: key attn_output_gate: attention of this family has an output gate, found "
                               "false",
                               m->config.path);
}

/* The list of layer types wins over the interval that makes one. */
static bool read_layer_types(struct arch_model *m, struct qwen3_5 *q, struct err *e)
{
    static const char *const names[] = {"linear_attention", "full_attention"};
    int *types = ARENA_ARRAY(m->arena, int, m->n_layers);
    int64_t interval = 4;
    bool given;
    if (!config_get_size(&m->config, m->config.text, "full_attention_interval", 10000, &interval, e) ||
        !config_get_layer_types(&m->config, names, 2, m->n_layers, types, &given, e))
        return false;
    q->layers = ARENA_ARRAY(m->arena, struct qwen3_5_layer, m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++) {
        struct qwen3_5_layer *l = &q->layers[i];
        l->is_full = given ? types[i] == 1 : (i + 1) % interval == 0;
        l->index = l->is_full ? q->n_full++ : q->n_linear++;
    }
    if (q->n_full == 0 || q->n_linear == 0)
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s: key layer_types: expected layers of both types (the package has states for both), "
            "found only %s_attention",
            m->config.path, q->n_full ? "full" : "linear");
    return true;
}

static bool read_experts(struct arch_model *m, struct qwen3_5 *q, struct err *e)
{
    q->experts = (struct config_experts){.n = 256, .n_chosen = 8, .size = 512, .normalizes = true};
    q->shared_size = 512;
    if (!config_get_experts(&m->config, false, &q->experts, e) ||
        !config_get_size(&m->config, m->config.text, "shared_expert_intermediate_size", CONFIG_SIZE_MAX,
                         &q->shared_size, e))
        return false;
    m->n_experts = q->experts.n;
    m->n_chosen = q->experts.n_chosen;
    return true;
}

static bool read_linear(struct arch_model *m, struct qwen3_5 *q, const char *where, struct err *e)
{
    const cJSON *c = m->config.text;
    q->n_k = 16;
    q->n_v = 32;
    q->d_k = q->d_v = 128;
    q->kernel = 4;
    if (!config_get_size(&m->config, c, "linear_num_key_heads", CONFIG_HEADS_MAX, &q->n_k, e) ||
        !config_get_size(&m->config, c, "linear_num_value_heads", CONFIG_HEADS_MAX, &q->n_v, e) ||
        !config_get_size(&m->config, c, "linear_key_head_dim", CONFIG_HEADS_MAX, &q->d_k, e) ||
        !config_get_size(&m->config, c, "linear_value_head_dim", CONFIG_HEADS_MAX, &q->d_v, e) ||
        !config_get_size(&m->config, c, "linear_conv_kernel_dim", QWEN3_5_KERNEL_MAX, &q->kernel, e) ||
        !config_check_multiple(&m->config, "linear_num_value_heads", q->n_v, "linear_num_key_heads", q->n_k,
                               e))
        return false;
    if (q->kernel < 2)
        return err_set(e, ERR_UNSUPPORTED, "%s: key linear_conv_kernel_dim: expected 2 to %d, found %lld",
                       where, QWEN3_5_KERNEL_MAX, (long long)q->kernel);
    q->conv_dim = 2 * q->n_k * q->d_k + q->n_v * q->d_v;
    return true;
}

/* At the top of a wrapper or among its text settings; a published wrapper has it in both places. */
static bool read_tying(const struct config *c, bool *is_tied, struct err *e)
{
    *is_tied = false;
    return json_get_bool(c->text, "tie_word_embeddings", is_tied, c->path, e) &&
           json_get_bool(c->top, "tie_word_embeddings", is_tied, c->path, e);
}

static bool read_config(struct arch_model *m, struct qwen3_5 *q, bool *is_tied, struct err *e)
{
    struct config_sizes *s = &q->sizes;
    const char *type;
    if (!config_get_model_type(&m->config, &type, e))
        return false;
    q->is_moe = strncmp(type, "qwen3_5_moe", 11) == 0;
    *s = (struct config_sizes){.vocab_size = 248320,
                               .hidden_size = q->is_moe ? 2048 : 4096,
                               .n_layers = q->is_moe ? 40 : 32,
                               .intermediate_size = 12288,
                               .n_heads = 16,
                               .n_kv_heads = q->is_moe ? 2 : 4,
                               .head_dim = 256,
                               .rms_norm_eps = 1e-6};
    if (!config_get_sizes(&m->config, s, e) || !read_tying(&m->config, is_tied, e))
        return false;
    m->vocab_size = s->vocab_size;
    m->hidden_size = s->hidden_size;
    m->n_layers = s->n_layers;
    return check_variants(m, e) && read_linear(m, q, m->config.path, e) &&
           (!q->is_moe || read_experts(m, q, e)) &&
           arch_read_partial_rope(m, s->head_dim, &(struct config_rope_keys){.missing_part = 0.25},
                                  &q->rotary_dim, &q->rope, e) &&
           read_layer_types(m, q, e);
}

static bool check_chunk_size(const struct arch_settings *s, struct err *e)
{
    int64_t size = s->gdn_chunk;
    if (size == 0)
        return true;
    if (size < 0 || (size & (size - 1)) != 0 || s->batch_size % size != 0)
        return err_set(e, ERR_USAGE,
                       "delta rule chunk: expected a power of two that divides the batch size %lld, found "
                       "%lld",
                       (long long)s->batch_size, (long long)size);
    return true;
}

/* ---- tensors ---- */

/* Finds one layer's tensors by the rest of their names. */
struct finder {
    struct arch_model *m;
    int64_t layer;
    bool ok;
    struct err *e;
};

static const char *full_name(const struct finder *f, const char *name)
{
    return arena_printf(f->m->arena, "model.layers.%lld.%s", (long long)f->layer, name);
}

static const struct st_tensor *find(struct finder *f, const char *name, int rank, int64_t a, int64_t b,
                                    int64_t c)
{
    const int64_t shape[3] = {a, b, c};
    if (!f->ok)
        return NULL;
    const struct st_tensor *t = arch_require_tensor(f->m, full_name(f, name), rank, shape, f->e);
    f->ok = t != NULL;
    return t;
}

static const struct st_tensor *vector(struct finder *f, const char *name, int64_t n)
{
    return find(f, name, 1, n, 0, 0);
}

static const struct st_tensor *matrix(struct finder *f, const char *name, int64_t rows, int64_t columns)
{
    return find(f, name, 2, rows, columns, 0);
}

/* [channels, 1, taps] as published, or [channels, taps, 1] as MLX keeps it. */
static const struct st_tensor *find_conv(struct finder *f, const struct qwen3_5 *q)
{
    const char *name = "linear_attn.conv1d.weight";
    const struct st_tensor *t = checkpoint_find(f->m->names, full_name(f, name));
    bool is_mlx = t && t->rank == 3 && t->shape[1] == q->kernel && t->shape[2] == 1;
    return find(f, name, 3, q->conv_dim, is_mlx ? q->kernel : 1, is_mlx ? 1 : q->kernel);
}

static void find_linear(struct finder *f, const struct qwen3_5 *q, struct qwen3_5_linear *t)
{
    int64_t h = f->m->hidden_size, width = q->n_v * q->d_v;
    t->qkv = matrix(f, "linear_attn.in_proj_qkv.weight", q->conv_dim, h);
    t->z = matrix(f, "linear_attn.in_proj_z.weight", width, h);
    t->a = matrix(f, "linear_attn.in_proj_a.weight", q->n_v, h);
    t->b = matrix(f, "linear_attn.in_proj_b.weight", q->n_v, h);
    t->conv = find_conv(f, q);
    t->a_log = vector(f, "linear_attn.A_log", q->n_v);
    t->dt_bias = vector(f, "linear_attn.dt_bias", q->n_v);
    t->norm = vector(f, "linear_attn.norm.weight", q->d_v);
    t->out = matrix(f, "linear_attn.out_proj.weight", h, width);
}

static void find_gated(struct finder *f, const char *name, int64_t size, struct qwen3_5_gated *t)
{
    char full[96];
    int64_t h = f->m->hidden_size;
    snprintf(full, sizeof full, "%s.gate_proj.weight", name);
    t->gate = matrix(f, full, size, h);
    snprintf(full, sizeof full, "%s.up_proj.weight", name);
    t->up = matrix(f, full, size, h);
    snprintf(full, sizeof full, "%s.down_proj.weight", name);
    t->down = matrix(f, full, h, size);
}

static void find_experts(struct finder *f, const struct qwen3_5 *q, struct qwen3_5_layer *t)
{
    t->shared_gate = matrix(f, "mlp.shared_expert_gate.weight", 1, f->m->hidden_size);
    find_gated(f, "mlp.shared_expert", q->shared_size, &t->shared);
    f->ok = f->ok && experts_find(f->m, f->layer, &q->experts, &t->experts, f->e);
}

static bool find_layer(struct arch_model *m, const struct qwen3_5 *q, int64_t i, struct err *e)
{
    struct qwen3_5_layer *l = &q->layers[i];
    const struct config_sizes *s = &q->sizes;
    int64_t width = s->n_heads * s->head_dim;
    /* The query projection gives a query and a gate for every head. */
    const int64_t sizes[DECODER_SIZES] = {
        [DECODER_HIDDEN] = m->hidden_size, [DECODER_QUERY] = 2 * width,
        [DECODER_HEADS] = width,           [DECODER_KV] = s->n_kv_heads * s->head_dim,
        [DECODER_HEAD] = s->head_dim,      [DECODER_INNER] = s->intermediate_size};
    unsigned parts = q->is_moe ? 0 : DECODER_MLP;
    struct finder f = {.m = m, .layer = i, .ok = true, .e = e};
    if (l->is_full)
        parts |= DECODER_ATTENTION | DECODER_KEYS | DECODER_HEAD_NORMS;
    if (l->is_full && s->attention_bias)
        parts |= DECODER_QKV_BIAS | DECODER_OUTPUT_BIAS;
    if (!arch_find_layer(m, i, parts, sizes, l->tensors, e))
        return false;
    if (!l->is_full)
        find_linear(&f, q, &l->linear);
    if (q->is_moe)
        find_experts(&f, q, l);
    return f.ok;
}

static bool find_tensors(struct arch_model *m, struct qwen3_5 *q, bool is_tied, struct err *e)
{
    if (!arch_find_ends(m, is_tied, e))
        return false;
    for (int64_t i = 0; i < m->n_layers; i++) {
        if (!find_layer(m, q, i, e))
            return false;
    }
    return true;
}

/* Norms are stored minus one, but for those inside linear attention. */
static bool judge_norms(struct arch_model *m, struct qwen3_5 *q, struct err *e)
{
    const struct st_tensor **norms = ARENA_ARRAY(m->arena, const struct st_tensor *, 2 * m->n_layers),
                           **inner = ARENA_ARRAY(m->arena, const struct st_tensor *, q->n_linear);
    bool is_mlx_layout = false;
    for (int64_t i = 0; i < m->n_layers; i++) {
        const struct qwen3_5_layer *l = &q->layers[i];
        norms[2 * i] = l->tensors[DECODER_INPUT_NORM];
        norms[2 * i + 1] = l->tensors[DECODER_MLP_NORM];
        if (!l->is_full)
            inner[l->index] = l->linear.norm;
        is_mlx_layout = is_mlx_layout || (!l->is_full && l->linear.conv->shape[2] == 1);
    }
    return arch_check_gains(m, "weights of linear_attn.norm", inner, q->n_linear, e) &&
           arch_read_centred(m, norms, 2 * m->n_layers, is_mlx_layout, &q->norms_hold_one, e);
}

bool qwen3_5_open(struct arch_model *m, struct err *e)
{
    struct qwen3_5 *q = ARENA_NEW(m->arena, struct qwen3_5);
    m->own = q;
    m->knows_exact_norms = true;
    bool is_tied;
    if (!read_config(m, q, &is_tied, e))
        return false;
    m->knows_exact_topk = q->is_moe;
    return check_chunk_size(&m->settings, e) && find_tensors(m, q, is_tied, e) && judge_norms(m, q, e);
}
