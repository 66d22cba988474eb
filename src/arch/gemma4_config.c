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

#define SIZE_MAX_ANY 16777216 /* of a hidden size or vocabulary; products of two stay far below int64 */
#define HEADS_MAX 65536
#define LAYERS_MAX 10000

static const char *const type_names[GEMMA4_KINDS] = {"sliding_attention", "full_attention"};
static const char *const projection_names[GEMMA4_PROJECTIONS] = {"q", "k", "v", "o"};

/* ---- what is not converted ---- */

static bool is_set(const cJSON *object, const char *key)
{
    const cJSON *item = json_get(object, key);
    return item && !cJSON_IsNull(item) && !cJSON_IsFalse(item);
}

static bool check_variants(const struct arch_model *m, const char *where, struct err *e)
{
    const cJSON *c = m->text_config;
    static const struct {
        const char *key, *what;
    } refused[] = {
        {"attention_k_eq_v", "values that are made from keys (the 12B and 31B models)"},
        {"enable_moe_block", "mixtures of experts (the 26B-A4B model)"},
        {"use_bidirectional_attention", "attention that looks ahead"},
        {"attention_bias", "biases of the attention's projections"},
    };
    const char *activation = "gelu_pytorch_tanh";
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (is_set(c, refused[i].key))
            return err_set(e, ERR_UNSUPPORTED, "%s: key %s: gemma4 packages have no %s", where,
                           refused[i].key, refused[i].what);
    }
    if (!json_get_string(c, "hidden_activation", &activation, where, e))
        return false;
    return strcmp(activation, "gelu_pytorch_tanh") == 0 ||
           err_set(e, ERR_UNSUPPORTED, "%s: key hidden_activation: expected gelu_pytorch_tanh, found \"%s\"",
                   where, activation);
}

/* The towers of a multimodal checkpoint have model types of their own. */
static bool check_model_type(const struct arch_model *m, const char *where, struct err *e)
{
    const char *type = "", *inner = "gemma4_text";
    if (!json_get_string(m->config, "model_type", &type, where, e) ||
        (m->text_config != m->config && !json_get_string(m->text_config, "model_type", &inner, where, e)))
        return false;
    if (strcmp(type, "gemma4_vision") == 0 || strcmp(type, "gemma4_audio") == 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: key model_type: found \"%s\"; milkit converts the text part of a Gemma 4 "
                       "checkpoint (gemma4, gemma4_text), not vision or audio",
                       where, type);
    if (strcmp(type, "gemma4") == 0 && m->text_config == m->config)
        return err_set(e, ERR_FORMAT, "%s: key text_config is missing (model_type gemma4)", where);
    return strcmp(inner, "gemma4_text") == 0 ||
           err_set(e, ERR_UNSUPPORTED, "%s: key text_config.model_type: expected gemma4_text, found \"%s\"",
                   where, inner);
}

/* ---- layers ---- */

static bool read_layer_types(struct arch_model *m, struct gemma4 *g, const char *where, struct err *e)
{
    const cJSON *types = json_get(m->text_config, "layer_types");
    bool has_list = types && !cJSON_IsNull(types);
    int64_t i = 0;
    if (has_list && !cJSON_IsArray(types))
        return err_set(e, ERR_FORMAT, "%s: key layer_types: expected an array, found %s", where,
                       json_type_name(types));
    g->layers = ARENA_ARRAY(m->arena, struct gemma4_layer, m->n_layers);
    for (const cJSON *t = has_list ? types->child : NULL; t; t = t->next, i++) {
        const char *name = cJSON_IsString(t) ? t->valuestring : json_type_name(t);
        bool is_global = strcmp(name, type_names[GEMMA4_GLOBAL]) == 0;
        if (!cJSON_IsString(t) || (!is_global && strcmp(name, type_names[GEMMA4_LOCAL]) != 0))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: key layer_types: expected sliding_attention or full_attention, found %s for "
                           "layer %lld",
                           where, name, (long long)i);
        if (i < m->n_layers)
            g->layers[i].kind = is_global ? GEMMA4_GLOBAL : GEMMA4_LOCAL;
    }
    if (has_list && i != m->n_layers)
        return err_set(e, ERR_FORMAT, "%s: key layer_types: expected %lld entries, found %lld", where,
                       (long long)m->n_layers, (long long)i);
    for (i = 0; i < m->n_layers && !has_list; i++)
        g->layers[i].kind = (i + 1) % 6 == 0 ? GEMMA4_GLOBAL : GEMMA4_LOCAL;
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
    const char *where = arch_config_path(m);
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
    return arch_get_size(m, own, "head_dim", HEADS_MAX, head_dim, e) &&
           arch_get_size(m, own, "num_key_value_heads", HEADS_MAX, n_kv_heads, e);
}

static bool read_heads(struct arch_model *m, struct gemma4 *g, const char *where, struct err *e)
{
    const cJSON *c = m->text_config, *per_layer = json_get(c, "per_layer_config");
    int64_t head_dim = 256, global_head_dim = 512, n_kv_heads = 4;
    bool has_per_layer = per_layer && !cJSON_IsNull(per_layer);
    if (has_per_layer && !cJSON_IsObject(per_layer))
        return err_set(e, ERR_FORMAT, "%s: key per_layer_config: expected an object, found %s", where,
                       json_type_name(per_layer));
    if (!arch_get_size(m, c, "head_dim", HEADS_MAX, &head_dim, e) ||
        !arch_get_size(m, c, "num_key_value_heads", HEADS_MAX, &n_kv_heads, e))
        return false;
    if (has_per_layer)
        global_head_dim = head_dim;
    else if (!arch_get_size(m, c, "global_head_dim", HEADS_MAX, &global_head_dim, e))
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
    const cJSON *all = json_get(m->text_config, "rope_parameters");
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
    const cJSON *c = m->text_config;
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
    if (!arch_get_size(m, c, "vocab_size", SIZE_MAX_ANY, &m->vocab_size, e) ||
        !arch_get_size(m, c, "hidden_size", SIZE_MAX_ANY, &m->hidden_size, e) ||
        !arch_get_size(m, c, "num_hidden_layers", LAYERS_MAX, &m->n_layers, e) ||
        !arch_get_size(m, c, "intermediate_size", SIZE_MAX_ANY / 2, &g->intermediate_size, e) ||
        !arch_get_size(m, c, "num_attention_heads", HEADS_MAX, &g->n_heads, e) ||
        !arch_get_size(m, c, "sliding_window", SIZE_MAX_ANY, &g->window, e) ||
        !arch_get_size(m, c, "hidden_size_per_layer_input", 65536, &g->per_layer_size, e) ||
        !arch_get_size(m, c, "vocab_size_per_layer_input", SIZE_MAX_ANY, &g->per_layer_rows, e))
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
    if (m->text_config == m->config)
        return true;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int64_t id = kinds[i].id;
        const cJSON *item = json_get(m->config, kinds[i].key);
        if (!json_get_int(m->config, kinds[i].key, &id, where, e))
            return false;
        if (!(item && cJSON_IsNull(item)) && id >= 0 && id < m->vocab_size)
            g->placeholders[g->n_placeholders++] = id;
    }
    if (!json_get_int(m->text_config, "pad_token_id", &g->padding_id, where, e))
        return false;
    return g->n_placeholders == 0 || (g->padding_id >= 0 && g->padding_id < m->vocab_size) ||
           err_set(e, ERR_FORMAT,
                   "%s: key text_config.pad_token_id: expected an id of the vocabulary (it is embedded in "
                   "place of images, audio and video), found %lld",
                   where, (long long)g->padding_id);
}

static bool read_config(struct arch_model *m, struct gemma4 *g, struct err *e)
{
    const cJSON *c = m->text_config;
    const char *where = arch_config_path(m);
    g->rms_norm_eps = 1e-6;
    g->tie_word_embeddings = true;
    if (!check_model_type(m, where, e) || !check_variants(m, where, e) || !read_sizes(m, g, where, e) ||
        !read_placeholders(m, g, where, e) ||
        !json_get_double(c, "rms_norm_eps", &g->rms_norm_eps, where, e) ||
        !json_get_double(c, "final_logit_softcapping", &g->softcap, where, e) ||
        !json_get_int(c, "num_kv_shared_layers", &g->n_shared, where, e) ||
        !json_get_bool(c, "use_double_wide_mlp", &g->double_wide, where, e) ||
        /* A wrapper's own key counts, not the one of its text settings. */
        !json_get_bool(m->config, "tie_word_embeddings", &g->tie_word_embeddings, where, e))
        return false;
    if (!(g->rms_norm_eps >= 0 && g->rms_norm_eps < 1))
        return err_set(e, ERR_FORMAT, "%s: key rms_norm_eps: expected a small positive number, found %g",
                       where, g->rms_norm_eps);
    /* The package divides and multiplies by the cap in fp16. */
    const cJSON *cap = json_get(c, "final_logit_softcapping");
    if (cap && !cJSON_IsNull(cap) && !(g->softcap >= 0.001 && g->softcap <= 10000))
        return err_set(e, ERR_FORMAT, "%s: key final_logit_softcapping: expected 0.001 to 10000, found %g",
                       where, g->softcap);
    if (g->n_shared < 0)
        return err_set(e, ERR_FORMAT, "%s: key num_kv_shared_layers: expected 0 or more, found %lld", where,
                       (long long)g->n_shared);
    if (!read_layer_types(m, g, where, e) || !place_layers(m, g, where, e) || !read_heads(m, g, where, e))
        return false;
    for (int k = 0; k < GEMMA4_KINDS; k++) {
        if (g->kinds[k].n_layers > 0 && !read_rope(m, g, (enum gemma4_kind)k, where, e))
            return false;
    }
    return true;
}

/* ---- tensors ---- */

/* Finds tensors by the rest of their names; after a failure nothing is looked for. */
struct finder {
    struct arch_model *m;
    const char *prefix; /* "model.layers.3." */
    bool ok;
    struct err *e;
};

/* columns 0: a vector */
static const struct st_tensor *find(struct finder *f, const char *name, int64_t rows, int64_t columns)
{
    const int64_t shape[2] = {rows, columns};
    if (!f->ok)
        return NULL;
    const char *full = arena_printf(f->m->arena, "%s%s", f->prefix, name);
    const struct st_tensor *t = arch_require_tensor(f->m, full, columns ? 2 : 1, shape, f->e);
    f->ok = t != NULL;
    return t;
}

static bool find_layer(struct arch_model *m, const struct gemma4 *g, int64_t i, struct err *e)
{
    struct gemma4_layer *l = &g->layers[i];
    const struct gemma4_attention *a = &g->kinds[l->kind];
    struct finder f = {.m = m, .ok = true, .e = e};
    f.prefix = arena_printf(m->arena, "model.layers.%lld.", (long long)i);
    int64_t h = m->hidden_size, width = g->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim;
    int64_t size = g->intermediate_size * (l->is_shared && g->double_wide ? 2 : 1);
    const int64_t rows[GEMMA4_PROJECTIONS] = {width, kv_width, kv_width, h},
                  columns[GEMMA4_PROJECTIONS] = {h, h, h, width};
    for (int p = 0; p < GEMMA4_PROJECTIONS; p++) {
        char name[64];
        snprintf(name, sizeof name, "self_attn.%s_proj.weight", projection_names[p]);
        if (!l->is_shared || (p != GEMMA4_K && p != GEMMA4_V))
            l->projection[p] = find(&f, name, rows[p], columns[p]);
    }
    l->q_norm = find(&f, "self_attn.q_norm.weight", a->head_dim, 0);
    l->k_norm = l->is_shared ? NULL : find(&f, "self_attn.k_norm.weight", a->head_dim, 0);
    l->input_norm = find(&f, "input_layernorm.weight", h, 0);
    l->post_attention_norm = find(&f, "post_attention_layernorm.weight", h, 0);
    l->pre_mlp_norm = find(&f, "pre_feedforward_layernorm.weight", h, 0);
    l->post_mlp_norm = find(&f, "post_feedforward_layernorm.weight", h, 0);
    l->gate = find(&f, "mlp.gate_proj.weight", size, h);
    l->up = find(&f, "mlp.up_proj.weight", size, h);
    l->down = find(&f, "mlp.down_proj.weight", h, size);
    l->per_layer_gate = find(&f, "per_layer_input_gate.weight", g->per_layer_size, h);
    l->per_layer_projection = find(&f, "per_layer_projection.weight", h, g->per_layer_size);
    l->per_layer_norm = find(&f, "post_per_layer_input_norm.weight", h, 0);
    l->scalar = find(&f, "layer_scalar", 1, 0);
    return f.ok;
}

static bool find_tensors(struct arch_model *m, struct gemma4 *g, struct err *e)
{
    struct finder f = {.m = m, .prefix = "model.", .ok = true, .e = e};
    g->embeddings = find(&f, "embed_tokens.weight", m->vocab_size, m->hidden_size);
    g->per_layer_table = find(&f, "embed_tokens_per_layer.weight", g->per_layer_rows, m->per_layer_inputs);
    g->model_projection = find(&f, "per_layer_model_projection.weight", m->per_layer_inputs, m->hidden_size);
    g->projection_norm = find(&f, "per_layer_projection_norm.weight", g->per_layer_size, 0);
    g->norm = find(&f, "norm.weight", m->hidden_size, 0);
    if (!f.ok)
        return false;
    /* A stored head is used whatever tie_word_embeddings says. */
    g->head = g->embeddings;
    if (!g->tie_word_embeddings || arch_has_tensor(m, "lm_head.weight")) {
        f.prefix = "";
        g->head = find(&f, "lm_head.weight", m->vocab_size, m->hidden_size);
        if (!g->head)
            return g->tie_word_embeddings ? false
                                          : err_wrap(e, "the embeddings are not tied (tie_word_embeddings)");
    }
    for (int64_t i = 0; i < m->n_layers; i++) {
        if (!find_layer(m, g, i, e))
            return false;
    }
    return true;
}

static bool check_norms(struct arch_model *m, const struct gemma4 *g, struct err *e)
{
    const struct st_tensor **norms = ARENA_ARRAY(m->arena, const struct st_tensor *, 2 * m->n_layers);
    for (int64_t i = 0; i < m->n_layers; i++) {
        norms[2 * i] = g->layers[i].input_norm;
        norms[2 * i + 1] = g->layers[i].pre_mlp_norm;
    }
    return arch_check_gains(m, "the layers' norm weights", norms, 2 * m->n_layers, e);
}

bool gemma4_open(struct arch_model *m, struct err *e)
{
    struct gemma4 *g = ARENA_NEW(m->arena, struct gemma4);
    m->own = g;
    return read_config(m, g, e) && find_tensors(m, g, e) && check_norms(m, g, e);
}
