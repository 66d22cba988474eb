/* Gemma 4: config.json and the tensors of a checkpoint, in all published layouts.
 *
 * Multimodal wrapper (settings in text_config, names under model.language_model.) or plain text model (names
 * under model.). Of a wrapper the text part is taken; vision and audio tensors are left out. A config.json that
 * was saved again has per_layer_config, settings of single layers, in place of global_head_dim. Layers that
 * share keys and values may have k and v tensors all the same, which nobody reads.
 */
#include <math.h>
#include <string.h>
#include "arch/gemma4.h"

static const char *const type_names[GEMMA4_KINDS] = {"sliding_attention", "full_attention"};

/* ---- what is not converted ---- */

static bool is_set(const cJSON *object, const char *key)
{
    const cJSON *item = json_get(object, key);
    return item && !cJSON_IsNull(item) && !cJSON_IsFalse(item);
}

static bool check_variants(const struct arch_model *m, const char *where, struct err *e)
{
    const cJSON *c = m->config.text;
    static const struct {
        const char *key, *what;
    } refused[] = {
        {"attention_k_eq_v", "values that are made from keys (the 12B and 31B models)"},
        {"enable_moe_block", "mixtures of experts (the 26B-A4B model)"},
        {"use_bidirectional_attention", "attention that looks ahead"},
        {"attention_bias", "biases of the attention's projections"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (is_set(c, refused[i].key))
            return err_set(e, ERR_UNSUPPORTED, "%s: key %s: gemma4 packages have no %s", where,
                           refused[i].key, refused[i].what);
    }
    return config_check_activation(&m->config, "hidden_activation", "gelu_pytorch_tanh", NULL, e);
}

/* The towers of a multimodal checkpoint have model types of their own. */
static bool check_model_type(const struct arch_model *m, const char *where, struct err *e)
{
    const char *type = "", *inner = "gemma4_text";
    if (!json_get_string(m->config.top, "model_type", &type, where, e) ||
        (m->config.text != m->config.top && !json_get_string(m->config.text, "model_type", &inner, where, e)))
        return false;
    if (strcmp(type, "gemma4_vision") == 0 || strcmp(type, "gemma4_audio") == 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: key model_type: found \"%s\"; milkit converts the text part of a Gemma 4 "
                       "checkpoint (gemma4, gemma4_text), not vision or audio",
                       where, type);
    if (strcmp(type, "gemma4") == 0 && m->config.text == m->config.top)
        return err_set(e, ERR_FORMAT, "%s: key text_config is missing (model_type gemma4)", where);
    return strcmp(inner, "gemma4_text") == 0 ||
           err_set(e, ERR_UNSUPPORTED, "%s: key text_config.model_type: expected gemma4_text, found \"%s\"",
                   where, inner);
}

/* ---- layers ---- */

static bool read_layer_types(struct arch_model *m, struct gemma4 *g, struct err *e)
{
    int *types = ARENA_ARRAY(m->arena, int, m->n_layers);
    bool given;
    if (!config_get_layer_types(&m->config, type_names, GEMMA4_KINDS, m->n_layers, types, &given, e))
        return false;
    g->layers = ARENA_ARRAY(m->arena, struct gemma4_layer, m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++)
        g->layers[i].kind = given              ? (enum gemma4_kind)types[i]
                            : (i + 1) % 6 == 0 ? GEMMA4_GLOBAL
                                               : GEMMA4_LOCAL;
    /* The published code changes the last entry, whatever it says. */
    g->layers[m->n_layers - 1].kind = GEMMA4_GLOBAL;
    return true;
}

/* Gives every layer its slot, or the slot of the layer that it reads from. */
static bool place_layers(struct arch_model *m, struct gemma4 *g, const char *where, struct err *e)
{
    int64_t last[GEMMA4_KINDS] = {-1, -1};
    if (g->n_shared >= m->n_layers)
        return err_set(e, ERR_FORMAT,
                       "%s: key num_kv_shared_layers: expected less than num_hidden_layers %lld, found %lld",
                       where, (long long)m->n_layers, (long long)g->n_shared);
    for (int64_t i = 0; i < m->n_layers; i++) {
        struct gemma4_layer *l = &g->layers[i];
        struct gemma4_attention *a = &g->kinds[l->kind];
        a->n_layers++;
        l->is_shared = i >= m->n_layers - g->n_shared;
        if (!l->is_shared) {
            last[l->kind] = i;
            a->n_slots++;
        }
        l->source = last[l->kind];
        l->slot = a->n_slots - 1;
        if (l->source < 0)
            return err_set(
                e, ERR_FORMAT,
                "%s: key num_kv_shared_layers: layer %lld (%s) shares keys and values, but none of "
                "the %lld layers before the shared ones has that type",
                where, (long long)i, type_names[l->kind], (long long)(m->n_layers - g->n_shared));
    }
    return true;
}

/* Settings of one layer: per_layer_config has some of them, by the layer's number. */
static bool read_layer_heads(const struct arch_model *m, const cJSON *own, int64_t i, int64_t *head_dim,
                             int64_t *n_kv_heads, struct err *e)
{
    const char *where = m->config.path;
    if (!own || cJSON_IsNull(own))
        return true;
    if (!cJSON_IsObject(own))
        return err_set(e, ERR_FORMAT, "%s: key per_layer_config: expected an object for layer %lld, found %s",
                       where, (long long)i, json_type_name(own));
    for (const cJSON *item = own->child; item; item = item->next) {
        if (strcmp(item->string, "head_dim") != 0 && strcmp(item->string, "num_key_value_heads") != 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: key per_layer_config: layer %lld: expected head_dim and num_key_value_heads, "
                           "found %s",
                           where, (long long)i, item->string);
    }
    return config_get_size(&m->config, own, "head_dim", CONFIG_HEADS_MAX, head_dim, e) &&
           config_get_size(&m->config, own, "num_key_value_heads", CONFIG_HEADS_MAX, n_kv_heads, e);
}

static bool read_heads(struct arch_model *m, struct gemma4 *g, const char *where, struct err *e)
{
    const cJSON *c = m->config.text, *per_layer = json_get(c, "per_layer_config");
    int64_t head_dim = 256, global_head_dim = 512, n_kv_heads = 4;
    bool has_per_layer = per_layer && !cJSON_IsNull(per_layer);
    if (has_per_layer && !cJSON_IsObject(per_layer))
        return err_set(e, ERR_FORMAT, "%s: key per_layer_config: expected an object, found %s", where,
                       json_type_name(per_layer));
    if (!config_get_size(&m->config, c, "head_dim", CONFIG_HEADS_MAX, &head_dim, e) ||
        !config_get_size(&m->config, c, "num_key_value_heads", CONFIG_HEADS_MAX, &n_kv_heads, e))
        return false;
    if (has_per_layer)
        global_head_dim = head_dim;
    else if (!config_get_size(&m->config, c, "global_head_dim", CONFIG_HEADS_MAX, &global_head_dim, e))
        return false;
    for (int64_t i = 0; i < m->n_layers; i++) {
        struct gemma4_attention *a = &g->kinds[g->layers[i].kind];
        int64_t d = g->layers[i].kind == GEMMA4_GLOBAL ? global_head_dim : head_dim, n = n_kv_heads;
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        if (!read_layer_heads(m, has_per_layer ? json_get(per_layer, number) : NULL, i, &d, &n, e))
            return false;
        if (d % 2 != 0)
            return err_set(e, ERR_FORMAT, "%s: head_dim of layer %lld: expected an even number, found %lld",
                           where, (long long)i, (long long)d);
        if (g->n_heads % n != 0)
            return err_set(e, ERR_FORMAT,
                           "%s: num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
                           where, (long long)g->n_heads, (long long)n);
        /* One state holds the caches of all layers of a kind. */
        if (a->head_dim != 0 && (a->head_dim != d || a->n_kv_heads != n))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: layer %lld has %lld key heads of %lld, an earlier layer of type %s has %lld "
                           "of %lld; expected one size for a type",
                           where, (long long)i, (long long)n, (long long)d, type_names[g->layers[i].kind],
                           (long long)a->n_kv_heads, (long long)a->head_dim);
        a->head_dim = d;
        a->n_kv_heads = n;
    }
    return true;
}

/* ---- rotary embedding ---- */

/* "default": every pair turns. "proportional": the first part of them, at the frequencies that they would have
 * if all did. */
static bool read_rope(struct arch_model *m, struct gemma4 *g, enum gemma4_kind kind, const char *where,
                      struct err *e)
{
    const cJSON *all = json_get(m->config.text, "rope_parameters");
    bool has_all = all && !cJSON_IsNull(all), is_global = kind == GEMMA4_GLOBAL;
    const cJSON *object = has_all ? json_get(all, type_names[kind]) : NULL;
    const char *type = is_global && !has_all ? "proportional" : "default";
    double theta = is_global ? 1e6 : 1e4, stretch = 1, part = has_all || !is_global ? 1 : 0.25;
    int64_t dim = g->kinds[kind].head_dim;
    if (has_all && !cJSON_IsObject(object))
        return err_set(e, ERR_FORMAT, "%s: key rope_parameters.%s: expected an object, found %s", where,
                       type_names[kind], object ? json_type_name(object) : "nothing");
    if (!json_get_double(object, "rope_theta", &theta, where, e) ||
        !json_get_double(object, "partial_rotary_factor", &part, where, e) ||
        !json_get_string(object, "rope_type", &type, where, e))
        return false;
    bool is_partial = strcmp(type, "proportional") == 0;
    if (!is_partial && strcmp(type, "default") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: key rope_parameters.%s.rope_type: milkit knows default and proportional, found "
                       "\"%s\"",
                       where, type_names[kind], type);
    if (is_partial && !json_get_double(object, "factor", &stretch, where, e))
        return false;
    if (!(isfinite(theta) && theta > 0 && isfinite(stretch) && stretch > 0))
        return err_set(
            e, ERR_FORMAT,
            "%s: key rope_parameters.%s: expected positive numbers rope_theta and factor, found %g "
            "and %g",
            where, type_names[kind], theta, stretch);
    double pairs = floor(part * (double)dim / 2);
    if (!(pairs >= 1 && pairs <= (double)(dim / 2)) || (!is_partial && part != 1))
        return err_set(
            e, ERR_FORMAT, "%s: key rope_parameters.%s.partial_rotary_factor: expected %s, found %g", where,
            type_names[kind], is_partial ? "a part of the pairs up to 1" : "1 for type default", part);
    arch_set_rope(m, theta, stretch, dim, (int64_t)pairs, &g->kinds[kind].rope);
    return true;
}

/* ---- config.json ---- */

static bool read_sizes(struct arch_model *m, struct gemma4 *g, const char *where, struct err *e)
{
    const cJSON *c = m->config.text;
    m->vocab_size = 262144;
    m->hidden_size = 2304;
    m->n_layers = 30;
    g->intermediate_size = 9216;
    g->n_heads = 8;
    g->window = 512;
    g->per_layer_size = 256;
    g->per_layer_rows = 262144;
    const cJSON *size = json_get(c, "hidden_size_per_layer_input");
    if (size && cJSON_IsNumber(size) && size->valuedouble == 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: key hidden_size_per_layer_input: gemma4 packages have per-layer inputs, found 0",
                       where);
    if (!config_get_size(&m->config, c, "vocab_size", CONFIG_SIZE_MAX, &m->vocab_size, e) ||
        !config_get_size(&m->config, c, "hidden_size", CONFIG_SIZE_MAX, &m->hidden_size, e) ||
        !config_get_size(&m->config, c, "num_hidden_layers", CONFIG_LAYERS_MAX, &m->n_layers, e) ||
        !config_get_size(&m->config, c, "intermediate_size", CONFIG_SIZE_MAX / 2, &g->intermediate_size, e) ||
        !config_get_size(&m->config, c, "num_attention_heads", CONFIG_HEADS_MAX, &g->n_heads, e) ||
        !config_get_size(&m->config, c, "sliding_window", CONFIG_SIZE_MAX, &g->window, e) ||
        !config_get_size(&m->config, c, "hidden_size_per_layer_input", 65536, &g->per_layer_size, e) ||
        !config_get_size(&m->config, c, "vocab_size_per_layer_input", CONFIG_SIZE_MAX, &g->per_layer_rows, e))
        return false;
    m->per_layer_inputs = m->n_layers * g->per_layer_size;
    if (g->per_layer_rows < m->vocab_size)
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s: key vocab_size_per_layer_input: expected at least vocab_size %lld (every token has "
            "per-layer inputs), found %lld",
            where, (long long)m->vocab_size, (long long)g->per_layer_rows);
    return true;
}

/* Text goes through a multimodal model as the published code runs it: where an image, a sound or a video would have
 * its place, the padding id is embedded, in both tables. */
static bool read_placeholders(struct arch_model *m, struct gemma4 *g, const char *where, struct err *e)
{
    static const struct {
        const char *key;
        int64_t id; /* when there is no such key; null: none */
    } kinds[] = {{"image_token_id", 258880}, {"audio_token_id", 258881}, {"video_token_id", 258884}};
    if (m->config.text == m->config.top)
        return true;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int64_t id = kinds[i].id;
        const cJSON *item = json_get(m->config.top, kinds[i].key);
        if (!json_get_int(m->config.top, kinds[i].key, &id, where, e))
            return false;
        if (!(item && cJSON_IsNull(item)) && id >= 0 && id < m->vocab_size)
            g->placeholders[g->n_placeholders++] = id;
    }
    if (!json_get_int(m->config.text, "pad_token_id", &g->padding_id, where, e))
        return false;
    return g->n_placeholders == 0 || (g->padding_id >= 0 && g->padding_id < m->vocab_size) ||
           err_set(e, ERR_FORMAT,
                   "%s: key text_config.pad_token_id: expected an id of the vocabulary (it is embedded in "
                   "place of images, audio and video), found %lld",
                   where, (long long)g->padding_id);
}

static bool read_config(struct arch_model *m, struct gemma4 *g, bool *is_tied, struct err *e)
{
    const cJSON *c = m->config.text;
    const char *where = m->config.path;
    g->rms_norm_eps = 1e-6;
    *is_tied = true;
    if (!check_model_type(m, where, e) || !check_variants(m, where, e) || !read_sizes(m, g, where, e) ||
        !read_placeholders(m, g, where, e) || !config_get_epsilon(&m->config, &g->rms_norm_eps, e) ||
        !config_get_softcap(&m->config, &m->softcap, e) ||
        !json_get_int(c, "num_kv_shared_layers", &g->n_shared, where, e) ||
        !json_get_bool(c, "use_double_wide_mlp", &g->double_wide, where, e) ||
        /* A wrapper's own key counts, not the one of its text settings. */
        !json_get_bool(m->config.top, "tie_word_embeddings", is_tied, where, e))
        return false;
    if (g->n_shared < 0)
        return err_set(e, ERR_FORMAT, "%s: key num_kv_shared_layers: expected 0 or more, found %lld", where,
                       (long long)g->n_shared);
    if (!read_layer_types(m, g, e) || !place_layers(m, g, where, e) || !read_heads(m, g, where, e))
        return false;
    for (int k = 0; k < GEMMA4_KINDS; k++) {
        if (g->kinds[k].n_layers > 0 && !read_rope(m, g, (enum gemma4_kind)k, where, e))
            return false;
    }
    return true;
}

/* ---- tensors ---- */

static bool find_layer(struct arch_model *m, const struct gemma4 *g, int64_t i, struct err *e)
{
    struct gemma4_layer *l = &g->layers[i];
    const struct gemma4_attention *a = &g->kinds[l->kind];
    int64_t width = g->n_heads * a->head_dim;
    const int64_t sizes[DECODER_SIZES] = {[DECODER_ONE] = 1,
                                          [DECODER_HIDDEN] = m->hidden_size,
                                          [DECODER_QUERY] = width,
                                          [DECODER_HEADS] = width,
                                          [DECODER_KV] = a->n_kv_heads * a->head_dim,
                                          [DECODER_HEAD] = a->head_dim,
                                          [DECODER_INNER] =
                                              g->intermediate_size * (l->is_shared && g->double_wide ? 2 : 1),
                                          [DECODER_PER_LAYER] = g->per_layer_size};
    unsigned parts =
        DECODER_ATTENTION | DECODER_HEAD_NORMS | DECODER_POST_NORMS | DECODER_MLP | DECODER_PER_LAYER_INPUTS;
    return arch_find_layer(m, i, parts | (l->is_shared ? 0 : DECODER_KEYS), sizes, l->tensors, e);
}

/* The tensors of the per-layer inputs that stand outside of the layers. */
static bool find_inputs(struct arch_model *m, struct gemma4 *g, struct err *e)
{
    const struct {
        const char *name;
        const struct st_tensor **to;
        int64_t rows, columns; /* columns 0: a vector */
    } list[] = {
        {"model.embed_tokens_per_layer.weight", &g->per_layer_table, g->per_layer_rows, m->per_layer_inputs},
        {"model.per_layer_model_projection.weight", &g->model_projection, m->per_layer_inputs,
         m->hidden_size},
        {"model.per_layer_projection_norm.weight", &g->projection_norm, g->per_layer_size, 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const int64_t shape[2] = {list[i].rows, list[i].columns};
        *list[i].to = arch_require_tensor(m, list[i].name, list[i].columns ? 2 : 1, shape, e);
        if (!*list[i].to)
            return false;
    }
    return true;
}

static bool find_tensors(struct arch_model *m, struct gemma4 *g, bool is_tied, struct err *e)
{
    if (!arch_find_ends(m, is_tied, e) || !find_inputs(m, g, e))
        return false;
    for (int64_t i = 0; i < m->n_layers; i++) {
        if (!find_layer(m, g, i, e))
            return false;
    }
    return true;
}

bool gemma4_open(struct arch_model *m, struct err *e)
{
    struct gemma4 *g = ARENA_NEW(m->arena, struct gemma4);
    bool is_tied;
    m->own = g;
    return read_config(m, g, &is_tied, e) && find_tensors(m, g, is_tied, e) &&
           arch_check_layer_norms(m, g->layers[0].tensors, sizeof *g->layers, e);
}
