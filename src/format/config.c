/* Values of config.json that both sides of a comparison read. */
#include "format/config.h"
#include <math.h>
#include <string.h>

bool config_set(struct config *c, const cJSON *top, const char *path, struct err *e)
{
    const cJSON *text = json_get(top, "text_config");
    *c = (struct config){.path = path, .top = top, .text = cJSON_IsObject(text) ? text : top};
    return cJSON_IsObject(top) ||
           err_set(e, ERR_FORMAT, "%s: expected an object, found %s", path, json_type_name(top));
}

bool config_get_model_type(const struct config *c, const char **model_type, struct err *e)
{
    *model_type = NULL;
    if (!json_get_string(c->top, "model_type", model_type, c->path, e))
        return false;
    return *model_type || err_set(e, ERR_FORMAT, "%s: key model_type is missing", c->path);
}

bool config_get_size(const struct config *c, const cJSON *object, const char *key, int64_t max,
                     int64_t *value, struct err *e)
{
    return json_get_int(object, key, value, c->path, e) &&
           ((*value >= 1 && *value <= max) ||
            err_set(e, ERR_FORMAT, "%s: key %s: expected 1 to %lld, found %lld", c->path, key, (long long)max,
                    (long long)*value));
}

bool config_check_activation(const struct config *c, const char *key, const char *known, const char *other,
                             struct err *e)
{
    const char *found = known;
    if (!json_get_string(c->text, key, &found, c->path, e))
        return false;
    return strcmp(found, known) == 0 || (other && strcmp(found, other) == 0) ||
           err_set(e, ERR_UNSUPPORTED, "%s: key %s: expected %s, found \"%s\"", c->path, key, known, found);
}

bool config_check_multiple(const struct config *c, const char *key, int64_t value, const char *of,
                           int64_t divisor, struct err *e)
{
    return value % divisor == 0 || err_set(e, ERR_FORMAT, "%s: %s %lld is not a multiple of %s %lld", c->path,
                                           key, (long long)value, of, (long long)divisor);
}

/* "a or b" */
static void put_names(struct buf *b, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ", names[i]);
}

static bool refuse_type(const struct config *c, const char *const *names, int n_names, const char *found,
                        int64_t layer, struct err *e)
{
    struct buf expected;
    buf_init(&expected, 1 << 12);
    put_names(&expected, names, n_names);
    err_set(e, ERR_UNSUPPORTED, "%s: key layer_types: expected %s%s, found %s for layer %lld", c->path,
            expected.p, n_names == 1 ? " for every layer" : "", found, (long long)layer);
    buf_fini(&expected);
    return false;
}

bool config_get_layer_types(const struct config *c, const char *const *names, int n_names, int64_t n_layers,
                            int *types, bool *given, struct err *e)
{
    const cJSON *list = json_get(c->text, "layer_types");
    int64_t i = 0;
    *given = list && !cJSON_IsNull(list);
    if (!*given)
        return true;
    if (!cJSON_IsArray(list))
        return err_set(e, ERR_FORMAT, "%s: key layer_types: expected an array, found %s", c->path,
                       json_type_name(list));
    for (const cJSON *t = list->child; t; t = t->next, i++) {
        int k = 0;
        while (k < n_names && !(cJSON_IsString(t) && strcmp(t->valuestring, names[k]) == 0))
            k++;
        if (k == n_names)
            return refuse_type(c, names, n_names, cJSON_IsString(t) ? t->valuestring : json_type_name(t), i,
                               e);
        if (i < n_layers)
            types[i] = k;
    }
    return i == n_layers || err_set(e, ERR_FORMAT, "%s: key layer_types: expected %lld entries, found %lld",
                                    c->path, (long long)n_layers, (long long)i);
}

/* ---- sizes of a decoder ---- */

bool config_get_epsilon(const struct config *c, double *epsilon, struct err *e)
{
    return json_get_double(c->text, "rms_norm_eps", epsilon, c->path, e) &&
           ((*epsilon >= 0 && *epsilon < 1) ||
            err_set(e, ERR_FORMAT, "%s: key rms_norm_eps: expected a small positive number, found %g",
                    c->path, *epsilon));
}

bool config_get_softcap(const struct config *c, double *cap, struct err *e)
{
    const cJSON *item = json_get(c->text, "final_logit_softcapping");
    if (!json_get_double(c->text, "final_logit_softcapping", cap, c->path, e))
        return false;
    /* The package divides and multiplies by the cap in fp16. */
    return !item || cJSON_IsNull(item) || (*cap >= 0.001 && *cap <= 10000) ||
           err_set(e, ERR_FORMAT, "%s: key final_logit_softcapping: expected 0.001 to 10000, found %g",
                   c->path, *cap);
}

bool config_get_query_scalar(const struct config *c, double *scalar, struct err *e)
{
    return json_get_double(c->text, "query_pre_attn_scalar", scalar, c->path, e) &&
           ((isfinite(*scalar) && *scalar > 0) ||
            err_set(e, ERR_FORMAT, "%s: key query_pre_attn_scalar: expected a positive number, found %g",
                    c->path, *scalar));
}

bool config_get_sizes(const struct config *c, struct config_sizes *s, struct err *e)
{
    const struct {
        const char *key;
        int64_t max, *value;
    } sizes[] = {{"vocab_size", CONFIG_SIZE_MAX, &s->vocab_size},
                 {"hidden_size", CONFIG_SIZE_MAX, &s->hidden_size},
                 {"intermediate_size", CONFIG_SIZE_MAX, &s->intermediate_size},
                 {"num_hidden_layers", CONFIG_LAYERS_MAX, &s->n_layers},
                 {"num_attention_heads", CONFIG_HEADS_MAX, &s->n_heads}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!config_get_size(c, c->text, sizes[i].key, sizes[i].max, sizes[i].value, e))
            return false;
    s->n_kv_heads = s->n_kv_heads > 0 ? s->n_kv_heads : s->n_heads;
    const cJSON *head_dim = json_get(c->text, "head_dim");
    if (s->head_dim == 0) {
        s->head_dim = s->hidden_size / s->n_heads;
        if ((!head_dim || cJSON_IsNull(head_dim)) &&
            !config_check_multiple(c, "hidden_size", s->hidden_size, "num_attention_heads", s->n_heads, e))
            return false;
    }
    return config_get_size(c, c->text, "head_dim", CONFIG_HEADS_MAX, &s->head_dim, e) &&
           config_get_size(c, c->text, "num_key_value_heads", CONFIG_HEADS_MAX, &s->n_kv_heads, e) &&
           json_get_bool(c->text, "attention_bias", &s->attention_bias, c->path, e) &&
           json_get_bool(c->text, "mlp_bias", &s->mlp_bias, c->path, e) &&
           config_check_multiple(c, "num_attention_heads", s->n_heads, "num_key_value_heads", s->n_kv_heads,
                                 e) &&
           config_get_epsilon(c, &s->rms_norm_eps, e);
}

/* ---- rotary embedding ---- */

bool config_check_positive(const struct config *c, const char *key, double v, struct err *e)
{
    return (isfinite(v) && v > 0) ||
           err_set(e, ERR_FORMAT, "%s: RoPE key %s: expected a positive number, found %g", c->path, key, v);
}

/* Numbers among the settings of a type, with their limits. */
static bool get_number(const struct config *c, const cJSON *object, const char *type, const char *key,
                       double *value, struct err *e)
{
    *value = NAN;
    if (!json_get_double(object, key, value, c->path, e))
        return false;
    if (isnan(*value))
        return err_set(e, ERR_FORMAT, "%s: RoPE type %s: key %s is missing", c->path, type, key);
    return config_check_positive(c, key, *value, e);
}

/* The length that the model was trained with, and that it is made for. */
static bool get_positions(const struct config *c, const cJSON *object, struct config_rope *r, struct err *e)
{
    /* The key beside the object wins over the one inside, other than for every other key. */
    const char *const key = "original_max_position_embeddings";
    int64_t positions = 32768;
    if (!config_get_size(c, c->text, "max_position_embeddings", INT32_MAX, &positions, e))
        return false;
    r->max_positions = r->original_positions = (double)positions;
    return json_get_double(object, key, &r->original_positions, c->path, e) &&
           json_get_double(c->text, key, &r->original_positions, c->path, e) &&
           config_check_positive(c, key, r->original_positions, e);
}

static bool get_linear(const struct config *c, const cJSON *object, struct config_rope *r, struct err *e)
{
    return get_number(c, object, "linear", "factor", &r->factor, e);
}

static bool get_llama3(const struct config *c, const cJSON *object, struct config_rope *r, struct err *e)
{
    const char *const type = "llama3";
    if (!get_number(c, object, type, "factor", &r->factor, e) ||
        !get_number(c, object, type, "low_freq_factor", &r->low_freq_factor, e) ||
        !get_number(c, object, type, "high_freq_factor", &r->high_freq_factor, e) ||
        !get_number(c, object, type, "original_max_position_embeddings", &r->original_positions, e))
        return false;
    return r->low_freq_factor < r->high_freq_factor ||
           err_set(e, ERR_FORMAT,
                   "%s: RoPE key low_freq_factor: expected less than high_freq_factor %g, found %g", c->path,
                   r->high_freq_factor, r->low_freq_factor);
}

static bool get_dynamic(const struct config *c, const cJSON *object, struct config_rope *r, struct err *e)
{
    if (!get_number(c, object, "dynamic", "factor", &r->factor, e) || !get_positions(c, object, r, e))
        return false;
    r->positions_limit = (int64_t)r->max_positions;
    return true;
}

static bool check_factors(const struct config *c, const char *key, const cJSON *list, int64_t n,
                          struct err *e)
{
    int64_t i = 0;
    if (!cJSON_IsArray(list))
        return err_set(e, ERR_FORMAT, "%s: RoPE type longrope: key %s: expected an array, found %s", c->path,
                       key, list ? json_type_name(list) : "nothing");
    for (const cJSON *v = list->child; v; v = v->next, i++)
        if (!cJSON_IsNumber(v) || !isfinite(v->valuedouble) || v->valuedouble <= 0)
            return err_set(e, ERR_FORMAT, "%s: RoPE key %s: entry %lld: expected a positive number", c->path,
                           key, (long long)i);
    return i == n || err_set(e, ERR_FORMAT, "%s: RoPE key %s: expected %lld entries, found %lld", c->path,
                             key, (long long)n, (long long)i);
}

static bool get_long(const struct config *c, const cJSON *object, struct config_rope *r, struct err *e)
{
    r->factor = r->attention_factor = NAN;
    r->short_factor = json_get(object, "short_factor");
    if (!get_positions(c, object, r, e) ||
        !check_factors(c, "short_factor", r->short_factor, r->rotary_dim / 2, e) ||
        !check_factors(c, "long_factor", json_get(object, "long_factor"), r->rotary_dim / 2, e) ||
        !json_get_double(object, "factor", &r->factor, c->path, e) ||
        !json_get_double(object, "attention_factor", &r->attention_factor, c->path, e))
        return false;
    if (r->original_positions <= 1 || r->original_positions > INT32_MAX)
        return err_set(e, ERR_FORMAT,
                       "%s: RoPE key original_max_position_embeddings: expected more than 1, found %g",
                       c->path, r->original_positions);
    r->positions_limit = (int64_t)r->original_positions;
    return (isnan(r->factor) || config_check_positive(c, "factor", r->factor, e)) &&
           (isnan(r->attention_factor) ||
            config_check_positive(c, "attention_factor", r->attention_factor, e));
}

static bool get_yarn(const struct config *c, const cJSON *object, struct config_rope *r, struct err *e)
{
    if (r->theta <= 1.0)
        return err_set(e, ERR_FORMAT, "%s: key rope_theta: expected more than 1 for yarn, found %g", c->path,
                       r->theta);
    r->factor = r->attention_factor = NAN;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->truncate = true;
    const struct {
        const char *key;
        double *value;
    } numbers[] = {{"factor", &r->factor},       {"attention_factor", &r->attention_factor},
                   {"beta_fast", &r->beta_fast}, {"beta_slow", &r->beta_slow},
                   {"mscale", &r->mscale},       {"mscale_all_dim", &r->mscale_all_dim}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!json_get_double(object, numbers[i].key, numbers[i].value, c->path, e))
            return false;
    if (!json_get_bool(object, "truncate", &r->truncate, c->path, e) || !get_positions(c, object, r, e))
        return false;
    r->beta_fast = r->beta_fast != 0 ? r->beta_fast : 32;
    r->beta_slow = r->beta_slow != 0 ? r->beta_slow : 1;
    if (!json_get(object, "factor"))
        return err_set(e, ERR_FORMAT, "%s: RoPE type yarn: key factor is missing", c->path);
    return (isnan(r->factor) || config_check_positive(c, "factor", r->factor, e)) &&
           (isnan(r->attention_factor) ||
            config_check_positive(c, "attention_factor", r->attention_factor, e)) &&
           config_check_positive(c, "beta_fast", r->beta_fast, e) &&
           config_check_positive(c, "beta_slow", r->beta_slow, e);
}

static bool get_nothing(const struct config *c, const cJSON *object, struct config_rope *r, struct err *e)
{
    (void)c, (void)object, (void)r, (void)e;
    return true;
}

/* What rope_type may be, in the order of the enum. */
static const struct rope_type {
    const char *name;
    bool (*get)(const struct config *c, const cJSON *object, struct config_rope *r, struct err *e);
} rope_types[] = {{"default", get_nothing}, {"linear", get_linear},   {"llama3", get_llama3},
                  {"yarn", get_yarn},       {"dynamic", get_dynamic}, {"longrope", get_long}};
#define N_ROPE_TYPES ((int)(sizeof rope_types / sizeof rope_types[0]))

static bool get_type(const struct config *c, const cJSON *object, const char *name, struct config_rope *r,
                     struct err *e)
{
    struct buf known;
    for (int i = 0; i < N_ROPE_TYPES; i++) {
        if (strcmp(name, rope_types[i].name) != 0)
            continue;
        r->type = (enum config_rope_type)i;
        return rope_types[i].get(c, object, r, e);
    }
    buf_init(&known, 1 << 12);
    for (int i = 0; i < N_ROPE_TYPES; i++)
        buf_printf(&known, "%s%s", i == 0 ? "" : i == N_ROPE_TYPES - 1 ? " and " : ", ", rope_types[i].name);
    err_set(e, ERR_UNSUPPORTED, "%s: RoPE type: milkit knows %s, found \"%s\"", c->path, known.p, name);
    buf_fini(&known);
    return false;
}

/* rope_scaling, or rope_parameters where there is none; an empty object counts as none. *out NULL: neither. */
static bool find_rope(const struct config *c, const struct config_rope_keys *k, const cJSON **out,
                      struct err *e)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        const cJSON *o = json_get(c->text, names[i]);
        if (!o || cJSON_IsNull(o) || (i == 0 && k->is_never_scaled))
            continue;
        if (!cJSON_IsObject(o))
            return err_set(e, ERR_FORMAT, "%s: key %s: expected an object, found %s", c->path, names[i],
                           json_type_name(o));
        const cJSON *own = k->layer_type ? json_get(o, k->layer_type) : NULL;
        if (own && !cJSON_IsObject(own))
            return err_set(e, ERR_FORMAT, "%s: key %s.%s: expected an object, found %s", c->path, names[i],
                           k->layer_type, json_type_name(own));
        /* An object without one for this type is about all layers, and so about those that are scaled. */
        if (!own && k->is_never_scaled)
            continue;
        o = own ? own : o;
        if (o->child && !*out)
            *out = o;
    }
    return true;
}

bool config_get_rope(const struct config *c, int64_t head_dim, const struct config_rope_keys *keys,
                     struct config_rope *out, struct err *e)
{
    const cJSON *object;
    const char *type = "default", *theta = keys->theta ? keys->theta : "rope_theta";
    double part = keys->missing_part > 0 ? keys->missing_part : 1;
    *out = (struct config_rope){.theta = keys->missing_theta > 0 ? keys->missing_theta : 10000};
    /* What stands inside the object wins over the same key beside it; "type" is the old name of "rope_type". */
    if (!find_rope(c, keys, &object, e) || !json_get_double(c->text, theta, &out->theta, c->path, e) ||
        !json_get_double(object, "rope_theta", &out->theta, c->path, e) ||
        !json_get_double(c->text, "partial_rotary_factor", &part, c->path, e) ||
        !json_get_double(object, "partial_rotary_factor", &part, c->path, e) ||
        !json_get_string(object, "type", &type, c->path, e) ||
        !json_get_string(object, "rope_type", &type, c->path, e) ||
        !config_check_positive(c, theta, out->theta, e) ||
        !config_check_positive(c, "partial_rotary_factor", part, e))
        return false;
    double turning = floor((double)head_dim * part);
    if (turning < 2 || turning > (double)head_dim || fmod(turning, 2) != 0)
        return err_set(
            e, ERR_FORMAT,
            "%s: key partial_rotary_factor: expected an even number of dimensions of %lld to turn, "
            "found a factor of %g",
            c->path, (long long)head_dim, part);
    out->rotary_dim = (int64_t)turning;
    return get_type(c, object, type, out, e);
}
