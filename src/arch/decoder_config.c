/* Plain decoders: config.json and the tensors of a checkpoint. */
#include <math.h>
#include "arch/decoder.h"

static bool check_variants(const struct arch_model *m, struct err *e)
{
    const struct decoder_traits *t = m->family->traits;
    const struct config *c = &m->config;
    for (const char *const *key = t->refused; key && *key; key++) {
        const cJSON *item = json_get(c->text, *key);
        if (item && !cJSON_IsNull(item) && !cJSON_IsFalse(item))
            return err_set(e, ERR_UNSUPPORTED, "%s: key %s: %s packages have none of it", c->path, *key,
                           m->family->name);
    }
    return t->has_gelu ? config_check_activation(c, "hidden_activation", "gelu_pytorch_tanh", NULL, e)
                       : config_check_activation(c, "hidden_act", "silu", "swish", e);
}

static bool read_layers(struct arch_model *m, struct decoder *d, struct err *e)
{
    const struct decoder_traits *t = m->family->traits;
    struct config_layer *layers = ARENA_ARRAY(m->arena, struct config_layer, m->n_layers);
    if (!config_get_layers(&m->config, &t->layers, m->n_layers, layers, &d->window, e))
        return false;
    d->layers = ARENA_ARRAY(m->arena, struct decoder_layer, m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++) {
        enum decoder_kind kind = t->has_local_cache && layers[i].slides ? DECODER_LOCAL : DECODER_GLOBAL;
        d->layers[i] = (struct decoder_layer){.is = layers[i], .kind = kind, .slot = d->n_slots[kind]++};
    }
    return true;
}

/* What scores are multiplied by, and the cap of logits. */
static bool read_scales(struct arch_model *m, struct decoder *d, struct err *e)
{
    const struct decoder_traits *t = m->family->traits;
    const struct config *c = &m->config;
    double scalar = t->missing_query_scalar;
    if (scalar > 0 && !config_get_query_scalar(c, &scalar, e))
        return false;
    d->score_scale = 1.0 / sqrt(scalar > 0 ? scalar : (double)d->sizes.head_dim);
    return !t->has_softcap || config_get_softcap(c, &m->softcap, e);
}

static bool read_ropes(struct arch_model *m, struct decoder *d, struct err *e)
{
    const struct decoder_traits *t = m->family->traits;
    return arch_read_rope(m, d->sizes.head_dim, &t->rope, &d->rope[DECODER_GLOBAL], e) &&
           (!t->has_local_cache ||
            arch_read_rope(m, d->sizes.head_dim, &t->local_rope, &d->rope[DECODER_LOCAL], e));
}

static bool read_experts(struct arch_model *m, struct decoder *d, struct err *e)
{
    d->experts = m->family->traits->missing_experts;
    if (d->experts.n == 0)
        return true;
    if (!config_get_experts(&m->config, true, &d->experts, e))
        return false;
    for (int64_t i = 0; i < m->n_layers; i++)
        m->knows_exact_topk = m->knows_exact_topk || d->layers[i].is.has_experts;
    m->n_experts = m->knows_exact_topk ? d->experts.n : 0;
    m->n_chosen = d->experts.n_chosen;
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
    /* A wrapper's own key wins over the one of its text settings. */
    if (!config_get_sizes(c, s, e) || !json_get_bool(c->text, "tie_word_embeddings", is_tied, c->path, e) ||
        !json_get_bool(c->top, "tie_word_embeddings", is_tied, c->path, e))
        return false;
    if (s->head_dim % 2 != 0)
        return err_set(e, ERR_FORMAT, "%s: key head_dim: expected an even number, found %lld", c->path,
                       (long long)s->head_dim);
    m->vocab_size = s->vocab_size;
    m->hidden_size = s->hidden_size;
    m->n_layers = s->n_layers;
    m->embedding_factor = t->scales_embeddings ? sqrt((double)s->hidden_size) : 1;
    m->knows_exact_norms = t->is_centred;
    m->knows_rotate = t->has_local_cache;
    return check_variants(m, e) && read_layers(m, d, e) && read_experts(m, d, e) && read_scales(m, d, e) &&
           read_ropes(m, d, e);
}

/* A batch that fills the local cache must not cross its end. */
static bool check_rotation(const struct arch_model *m, const struct decoder *d, struct err *e)
{
    int64_t batch = m->settings.batch_size;
    return !decoder_rotates(m) || d->window % batch == 0 ||
           err_set(e, ERR_USAGE,
                   "batch size: the window of %lld positions of a rotating cache has to be a multiple of it, "
                   "found %lld",
                   (long long)d->window, (long long)batch);
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
        struct decoder_layer *l = &d->layers[i];
        unsigned own = l->is.has_experts ? parts & ~(unsigned)(DECODER_MLP | DECODER_MLP_BIAS) : parts;
        if (!arch_find_layer(m, i, own, sizes, l->tensors, e) ||
            (l->is.has_experts && !experts_find(m, i, &d->experts, &l->experts, e)))
            return false;
    }
    return true;
}

/* Gains minus one of the families that store them are of any size, so nothing tells them from gains. */
static bool check_norms(struct arch_model *m, const struct decoder *d, struct err *e)
{
    return m->family->traits->is_centred ||
           arch_check_layer_norms(m, d->layers[0].tensors, sizeof *d->layers, e);
}

bool decoder_open(struct arch_model *m, struct err *e)
{
    struct decoder *d = ARENA_NEW(m->arena, struct decoder);
    bool is_tied;
    m->own = d;
    return read_config(m, d, &is_tied, e) && check_rotation(m, d, e) && arch_find_ends(m, is_tied, e) &&
           find_layers(m, d, e) && check_norms(m, d, e);
}
