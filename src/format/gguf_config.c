/* config.json and generation_config.json of a GGUF file. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "format/gguf_model.h"

double gguf_shortest(double f32)
{
    char text[64];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, f32);
        if (strtof(text, NULL) == (float)f32)
            break;
    }
    return strtod(text, NULL);
}

static void put(cJSON *o, const char *key, double v)
{
    cJSON_AddNumberToObject(o, key, v);
}

static bool has_tensor(const struct gguf_model *m, const char *name)
{
    return gguf_find_tensor(m->file, name) != NULL;
}

/* ---- rotary embedding ---- */

/* Values by which a writer divided the frequencies: found again as Llama 3's scaling (factor, 1, 4, original length),
 * which is what made them. */
static bool is_llama3(const float *values, int64_t n, double theta, int64_t head_dim, double factor,
                      double original)
{
    for (int64_t i = 0; i < n; i++) {
        double wave = 6.283185307179586 * pow(theta, 2.0 * (double)i / (double)head_dim);
        double smooth = (original / wave - 1.0) / 3.0, expected;
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        expected = 1.0 / ((1.0 - smooth) / factor + smooth);
        if (fabs(expected - (double)values[i]) > 1e-4 * expected)
            return false;
    }
    return true;
}

/* No key says that a model is scaled as Llama 3 is: a tensor does, and only by its numbers. */
static bool put_frequencies(cJSON *config, struct gguf_model *m, double theta, struct err *e)
{
    const struct gguf_tensor *t = gguf_find_tensor(m->file, "rope_freqs.weight");
    const struct gguf_block_type *type = t ? gguf_block_type(t->type) : NULL;
    int64_t n = m->head_dim / 2;
    if (!t)
        return true;
    if (t->n_elems != n || !type->expand)
        return err_set(e, ERR_FORMAT,
                       "%s: tensor rope_freqs.weight: expected %lld numbers, found %lld of type %s", t->file,
                       (long long)n, (long long)t->n_elems, type->name);
    float *values = ARENA_ARRAY(m->arena, float, n);
    gguf_expand(type, t->data, 0, n, values);
    double factor = gguf_shortest((double)values[n - 1]);
    bool is_one = true;
    for (int64_t i = 0; i < n; i++) {
        is_one = is_one && values[i] == 1.0f;
        if (!(values[i] > 0 && isfinite(values[i])))
            return err_set(e, ERR_FORMAT,
                           "%s: tensor rope_freqs.weight: element %lld: expected a positive number, found %g",
                           t->file, (long long)i, (double)values[i]);
    }
    if (is_one)
        return true;
    /* 8192 is what the published models have. */
    for (int k = -1; k < 20; k++) {
        double original = k < 0 ? 8192 : ldexp(32, k);
        if (!is_llama3(values, n, theta, m->head_dim, factor, original))
            continue;
        cJSON *scaling = cJSON_AddObjectToObject(config, "rope_scaling");
        cJSON_AddStringToObject(scaling, "rope_type", "llama3");
        put(scaling, "factor", factor);
        put(scaling, "low_freq_factor", 1);
        put(scaling, "high_freq_factor", 4);
        put(scaling, "original_max_position_embeddings", original);
        gguf_model_note(m, "tensor rope_freqs.weight: the scaling of Llama 3 (factor %g, original length %g)",
                        factor, original);
        return true;
    }
    return err_set(
        e, ERR_UNSUPPORTED,
        "%s: tensor rope_freqs.weight: its numbers are not those of Llama 3's scaling with any factor and "
        "length; a configuration beside the file can give rope_scaling",
        t->file);
}

static bool put_scaling(cJSON *config, struct gguf_model *m, struct err *e)
{
    const char *type_key = gguf_model_key(m, "rope.scaling.type"),
               *factor_key = gguf_model_key(m, "rope.scaling.factor");
    struct str type = {NULL, 0};
    double factor = 1, attention = 1;
    if (!gguf_get_string(m->file, type_key, &type, e) ||
        !gguf_get_double(m->file, gguf_model_key(m, "rope.scale_linear"), &factor, e) ||
        !gguf_get_double(m->file, factor_key, &factor, e) ||
        !gguf_get_double(m->file, gguf_model_key(m, "rope.scaling.attn_factor"), &attention, e))
        return false;
    bool is_yarn = type.n == 4 && memcmp(type.p, "yarn", 4) == 0;
    bool is_linear = (!type.p && factor != 1) || (type.n == 6 && memcmp(type.p, "linear", 6) == 0);
    if (!is_yarn && !is_linear && type.p && !(type.n == 4 && memcmp(type.p, "none", 4) == 0))
        return err_set(e, ERR_UNSUPPORTED, "%s: key %s: milkit knows none, linear and yarn, found \"%.*s\"",
                       m->file->path, type_key, (int)(type.n < 64 ? type.n : 64), type.p);
    if (!is_yarn && !is_linear)
        return true;
    if (!(factor > 0 && isfinite(factor)))
        return err_set(e, ERR_FORMAT, "%s: key %s: expected a positive number, found %g", m->file->path,
                       factor_key, factor);
    factor = gguf_shortest(factor);
    cJSON *scaling = cJSON_AddObjectToObject(config, "rope_scaling");
    cJSON_AddStringToObject(scaling, "rope_type", is_yarn ? "yarn" : "linear");
    put(scaling, "factor", factor);
    if (is_linear)
        return true;
    int64_t original = m->positions;
    double fast = 32, slow = 1;
    if (!gguf_get_int(m->file, gguf_model_key(m, "rope.scaling.original_context_length"), &original, e) ||
        !gguf_get_double(m->file, gguf_model_key(m, "rope.scaling.yarn_beta_fast"), &fast, e) ||
        !gguf_get_double(m->file, gguf_model_key(m, "rope.scaling.yarn_beta_slow"), &slow, e))
        return false;
    put(scaling, "original_max_position_embeddings", (double)original);
    put(scaling, "beta_fast", gguf_shortest(fast));
    put(scaling, "beta_slow", gguf_shortest(slow));
    /* ggml multiplies by it what the factor gives anyway. */
    if (attention != 1)
        put(scaling, "attention_factor", attention * (factor > 1 ? 0.1 * log(factor) + 1 : 1));
    return true;
}

static bool put_rope(cJSON *config, struct gguf_model *m, struct err *e)
{
    const char *theta_key = gguf_model_key(m, "rope.freq_base");
    double theta = 10000;
    if (!gguf_get_double(m->file, theta_key, &theta, e))
        return false;
    if (!(theta > 0 && isfinite(theta)))
        return err_set(e, ERR_FORMAT, "%s: key %s: expected a positive number, found %g", m->file->path,
                       theta_key, theta);
    theta = gguf_shortest(theta);
    put(config, "rope_theta", theta);
    return put_scaling(config, m, e) &&
           (json_get(config, "rope_scaling") || put_frequencies(config, m, theta, e));
}

/* ---- what is special in a family ---- */

static bool put_gemma3(cJSON *c, struct gguf_model *m, struct err *e)
{
    const char *pattern_key = gguf_model_key(m, "attention.sliding_window_pattern");
    const struct gguf_key *k = gguf_find_key(m->file, pattern_key);
    double local_theta = 10000, softcap = 0;
    int64_t window = m->positions, pattern = 6;
    if (!gguf_get_double(m->file, gguf_model_key(m, "rope.freq_base_swa"), &local_theta, e) ||
        !gguf_get_int(m->file, gguf_model_key(m, "attention.sliding_window"), &window, e) ||
        !gguf_get_double(m->file, gguf_model_key(m, "final_logit_softcapping"), &softcap, e))
        return false;
    put(c, "rope_local_base_freq", gguf_shortest(local_theta));
    put(c, "sliding_window", (double)window);
    if (softcap > 0)
        put(c, "final_logit_softcapping", gguf_shortest(softcap));
    if (k && k->kind == GGUF_ARRAY && k->element == GGUF_BOOL) {
        cJSON *types = cJSON_AddArrayToObject(c, "layer_types");
        for (uint64_t i = 0; i < k->n && i < (uint64_t)m->n_layers; i++)
            cJSON_AddItemToArray(types,
                                 cJSON_CreateString(k->data[i] ? "sliding_attention" : "full_attention"));
    } else {
        if (!gguf_get_int(m->file, pattern_key, &pattern, e))
            return false;
        put(c, "sliding_window_pattern", (double)pattern);
    }
    int64_t scale = m->n_layers == 62 ? m->hidden_size / m->n_heads : m->head_dim;
    put(c, "query_pre_attn_scalar", (double)scale);
    gguf_model_note(m,
                    "query_pre_attn_scalar is in no key of a GGUF: %lld, as the known Gemma 3 models have it",
                    (long long)scale);
    return true;
}

static void put_smollm3(cJSON *c, struct gguf_model *m)
{
    cJSON *list = cJSON_AddArrayToObject(c, "no_rope_layers");
    for (int64_t i = 0; i < m->n_layers; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((i + 1) % 4 != 0));
    gguf_model_note(
        m, "no_rope_layers is in no key of a GGUF: every fourth layer is without RoPE, as in SmolLM3 3B");
}

static void put_experts(cJSON *c, struct gguf_model *m)
{
    put(c, "num_experts", (double)m->n_experts);
    put(c, "num_experts_per_tok", (double)m->n_experts_used);
    put(c, "moe_intermediate_size", (double)m->expert_size);
    put(c, "decoder_sparse_step", 1);
    cJSON_AddArrayToObject(c, "mlp_only_layers");
    cJSON_AddTrueToObject(c, "norm_topk_prob");
    gguf_model_note(m, "norm_topk_prob is in no key of a GGUF: true, as the known Qwen3 models have it");
}

/* Does a string key, or the file's name, hold this word, in any case? */
static bool names_hold(const struct gguf_model *m, const char *word)
{
    static const char *const keys[] = {"general.name", "general.basename", "general.version", NULL};
    for (int i = 0; i < 4; i++) {
        struct str s = {m->file->path, strlen(m->file->path)};
        if (keys[i] && (!gguf_find_key(m->file, keys[i]) || !gguf_get_string(m->file, keys[i], &s, NULL)))
            continue;
        size_t n = strlen(word);
        for (size_t at = 0; at + n <= s.n; at++) {
            size_t k = 0;
            while (k < n && tolower((unsigned char)s.p[at + k]) == word[k])
                k++;
            if (k == n)
                return true;
        }
    }
    return false;
}

/* Mistral's models are files of llama, which has no window; 7B v0.1 was trained with one. */
static bool is_windowed_mistral(const struct gguf_model *m)
{
    return strcmp(m->architecture->name, "llama") == 0 && names_hold(m, "mistral") && names_hold(m, "v0.1") &&
           m->hidden_size == 4096 && m->n_layers == 32;
}

static bool put_family(cJSON *c, struct gguf_model *m, struct err *e)
{
    const char *type = m->architecture->model_type;
    bool has_bias = has_tensor(m, "blk.0.attn_q.bias"),
         has_output_bias = has_tensor(m, "blk.0.attn_output.bias");
    if (strcmp(type, "gemma3_text") == 0 && !put_gemma3(c, m, e))
        return false;
    if (strcmp(type, "smollm3") == 0)
        put_smollm3(c, m);
    if (m->architecture->has_experts)
        put_experts(c, m);
    if (is_windowed_mistral(m)) {
        cJSON_ReplaceItemInObjectCaseSensitive(c, "model_type", cJSON_CreateString("mistral"));
        put(c, "sliding_window", 4096);
        gguf_model_note(
            m, "sliding_window is in no key of a GGUF of Mistral: 4096, by the name of Mistral 7B v0.1");
    }
    if (strcmp(type, "qwen2") == 0)
        return true;
    if (has_bias)
        cJSON_AddTrueToObject(c, "attention_bias");
    if (has_bias != has_output_bias)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: tensor blk.0.attn_%s.bias is there, but not blk.0.attn_%s.bias", m->file->path,
                       has_bias ? "q" : "output", has_bias ? "output" : "q");
    if (has_tensor(m, "blk.0.ffn_gate.bias"))
        cJSON_AddTrueToObject(c, "mlp_bias");
    return true;
}

/* ---- the files ---- */

static bool put_token(cJSON *o, const struct gguf_model *m, const char *name, const char *key, struct err *e)
{
    int64_t id;
    if (!gguf_token_id(m, key, &id, e))
        return false;
    if (id >= 0)
        put(o, name, (double)id);
    return true;
}

static bool put_tokens(cJSON *o, const struct gguf_model *m, struct err *e)
{
    int64_t stops[GGUF_STOP_IDS_MAX];
    int n;
    if (!put_token(o, m, "bos_token_id", "tokenizer.ggml.bos_token_id", e) ||
        !put_token(o, m, "pad_token_id", "tokenizer.ggml.padding_token_id", e) ||
        !gguf_stop_ids(m, stops, &n, e))
        return false;
    cJSON *list = n == 1 ? NULL : n > 0 ? cJSON_AddArrayToObject(o, "eos_token_id") : NULL;
    if (n == 1)
        put(o, "eos_token_id", (double)stops[0]);
    for (int i = 0; list && i < n; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)stops[i]));
    return true;
}

static void put_sizes(cJSON *c, const struct gguf_model *m)
{
    cJSON *classes = cJSON_AddArrayToObject(c, "architectures");
    cJSON_AddItemToArray(classes, cJSON_CreateString(m->architecture->class_name));
    cJSON_AddStringToObject(c, "model_type", m->architecture->model_type);
    put(c, "vocab_size", (double)m->vocab_size);
    put(c, "hidden_size", (double)m->hidden_size);
    put(c, "intermediate_size", (double)m->inner_size);
    put(c, "num_hidden_layers", (double)m->n_layers);
    put(c, "num_attention_heads", (double)m->n_heads);
    put(c, "num_key_value_heads", (double)m->n_kv_heads);
    put(c, "head_dim", (double)m->head_dim);
    put(c, "max_position_embeddings", (double)m->positions);
    put(c, "rms_norm_eps", gguf_shortest(m->epsilon));
    cJSON_AddStringToObject(c, m->architecture->has_post_norms ? "hidden_activation" : "hidden_act",
                            m->architecture->has_post_norms ? "gelu_pytorch_tanh" : "silu");
    cJSON_AddBoolToObject(c, "tie_word_embeddings", m->is_tied);
}

static void override(cJSON *c, const cJSON *overrides)
{
    for (const cJSON *o = overrides ? overrides->child : NULL; o; o = o->next) {
        cJSON_DeleteItemFromObjectCaseSensitive(c, o->string);
        cJSON_AddItemToObject(c, o->string, cJSON_Duplicate(o, true));
    }
}

bool gguf_config_make(cJSON **out, struct gguf_model *m, const cJSON *overrides, struct err *e)
{
    cJSON *c = cJSON_CreateObject();
    put_sizes(c, m);
    /* A given scaling is not looked for in the file. */
    bool ok = (json_get(overrides, "rope_scaling") && json_get(overrides, "rope_theta")) || put_rope(c, m, e);
    ok = ok && put_family(c, m, e) && put_tokens(c, m, e);
    override(c, overrides);
    *out = ok ? c : NULL;
    if (!ok)
        cJSON_Delete(c);
    return ok;
}

bool gguf_generation_make(cJSON **out, const struct gguf_model *m, struct err *e)
{
    static const char *const sampling[][2] = {{"general.sampling.temp", "temperature"},
                                              {"general.sampling.top_k", "top_k"},
                                              {"general.sampling.top_p", "top_p"},
                                              {"general.sampling.min_p", "min_p"}};
    cJSON *c = cJSON_CreateObject();
    bool ok = put_tokens(c, m, e), samples = false;
    for (int i = 0; i < 4 && ok; i++) {
        double v = NAN;
        ok = gguf_get_double(m->file, sampling[i][0], &v, e);
        if (ok && !isnan(v)) {
            put(c, sampling[i][1], gguf_shortest(v));
            samples = true;
        }
    }
    if (samples)
        cJSON_AddTrueToObject(c, "do_sample");
    *out = ok ? c : NULL;
    if (!ok)
        cJSON_Delete(c);
    return ok;
}
