/* What config.json says of single layers: windows, layers that do not turn, layers of experts. */
#include <stdlib.h>
#include "format/config.h"

enum { FULL, SLIDING, TYPES };
static const char *const type_names[TYPES] = {"full_attention", "sliding_attention"};

/* no_rope_layers: in spite of its name, 1 is a layer that turns. */
static bool get_turning(const struct config *c, int64_t n_layers, struct config_layer *layers, struct err *e)
{
    const cJSON *list = json_get(c->text, "no_rope_layers");
    int64_t interval = 4, i = 0;
    if (!config_get_size(c, c->text, "no_rope_layer_interval", CONFIG_LAYERS_MAX, &interval, e))
        return false;
    for (int64_t k = 0; k < n_layers; k++)
        layers[k].turns = (k + 1) % interval != 0;
    if (!list || cJSON_IsNull(list))
        return true;
    if (!cJSON_IsArray(list))
        return err_set(e, ERR_FORMAT, "%s: key no_rope_layers: expected an array, found %s", c->path,
                       json_type_name(list));
    for (const cJSON *v = list->child; v; v = v->next, i++) {
        if (!cJSON_IsNumber(v) || (v->valuedouble != 0 && v->valuedouble != 1))
            return err_set(e, ERR_FORMAT, "%s: key no_rope_layers: expected 0 or 1 for layer %lld, found %s",
                           c->path, (long long)i, cJSON_IsNumber(v) ? "another number" : json_type_name(v));
        if (i < n_layers)
            layers[i].turns = v->valuedouble == 1;
    }
    return i == n_layers ||
           err_set(e, ERR_FORMAT, "%s: key no_rope_layers: expected %lld entries, found %lld", c->path,
                   (long long)n_layers, (long long)i);
}

/* The window's length where there is one: 0 when the switch is off or the key is null. */
static bool get_window(const struct config *c, const struct config_layer_rules *r, int64_t *window,
                       struct err *e)
{
    bool is_switched = r->window == CONFIG_WINDOW_SWITCHED || r->window == CONFIG_WINDOW_SWITCHED_ALL ||
                       r->window == CONFIG_WINDOW_SWITCHED_UNTURNED;
    bool is_on = !is_switched;
    const cJSON *key = json_get(c->text, "sliding_window");
    *window = r->missing_window;
    if (is_switched && !json_get_bool(c->text, "use_sliding_window", &is_on, c->path, e))
        return false;
    if (r->window == CONFIG_WINDOW_NEVER || !is_on || (key && cJSON_IsNull(key)) || (!key && *window == 0)) {
        *window = 0;
        return true;
    }
    return config_get_size(c, c->text, "sliding_window", CONFIG_SIZE_MAX, window, e);
}

static bool get_sliding(const struct config *c, const struct config_layer_rules *r, int64_t n_layers,
                        struct config_layer *layers, int *types, int64_t *window, struct err *e)
{
    int64_t first = 28, pattern = 6;
    bool given = false;
    if (!get_window(c, r, window, e) ||
        !config_get_size(c, c->text, "_sliding_window_pattern", CONFIG_LAYERS_MAX, &pattern, e) ||
        !config_get_size(c, c->text, "sliding_window_pattern", CONFIG_LAYERS_MAX, &pattern, e))
        return false;
    /* 0 is the first layer, so no size. */
    if (r->window == CONFIG_WINDOW_SWITCHED &&
        !json_get_int(c->text, "max_window_layers", &first, c->path, e))
        return false;
    /* Where the published code ignores the list, so does this. */
    if (r->window != CONFIG_WINDOW_ALL &&
        !config_get_layer_types(c, type_names, *window > 0 ? TYPES : 1, n_layers, types, &given, e))
        return false;
    for (int64_t i = 0; i < n_layers; i++) {
        struct config_layer *l = &layers[i];
        if (given) {
            l->slides = types[i] == SLIDING;
            continue;
        }
        l->slides = *window > 0 && (r->window == CONFIG_WINDOW_SWITCHED            ? i >= first
                                    : r->window == CONFIG_WINDOW_SWITCHED_UNTURNED ? !l->turns
                                    : r->window == CONFIG_WINDOW_PATTERN           ? (i + 1) % pattern != 0
                                                                                   : true);
    }
    return true;
}

/* The list wins over the step. */
static bool get_sparse(const struct config *c, int64_t n_layers, struct config_layer *layers, struct err *e)
{
    const cJSON *list = json_get(c->text, "mlp_only_layers");
    int64_t step = 1;
    if (!config_get_size(c, c->text, "decoder_sparse_step", CONFIG_LAYERS_MAX, &step, e))
        return false;
    for (int64_t i = 0; i < n_layers; i++)
        layers[i].has_experts = (i + 1) % step == 0;
    if (!list || cJSON_IsNull(list))
        return true;
    if (!cJSON_IsArray(list))
        return err_set(e, ERR_FORMAT, "%s: key mlp_only_layers: expected an array, found %s", c->path,
                       json_type_name(list));
    for (const cJSON *v = list->child; v; v = v->next) {
        if (!cJSON_IsNumber(v) || v->valuedouble < 0 || v->valuedouble >= (double)n_layers ||
            v->valuedouble != (double)(int64_t)v->valuedouble)
            return err_set(e, ERR_FORMAT, "%s: key mlp_only_layers: expected numbers of layers below %lld",
                           c->path, (long long)n_layers);
        layers[(int64_t)v->valuedouble].has_experts = false;
    }
    return true;
}

bool config_get_experts(const struct config *c, bool has_norm_key, struct config_experts *x, struct err *e)
{
    if (!config_get_size(c, c->text, "num_local_experts", CONFIG_EXPERTS_MAX, &x->n, e) ||
        !config_get_size(c, c->text, "num_experts", CONFIG_EXPERTS_MAX, &x->n, e) ||
        !config_get_size(c, c->text, "num_experts_per_tok", CONFIG_EXPERTS_MAX, &x->n_chosen, e) ||
        !config_get_size(c, c->text, "moe_intermediate_size", CONFIG_SIZE_MAX, &x->size, e) ||
        (has_norm_key && !json_get_bool(c->text, "norm_topk_prob", &x->normalizes, c->path, e)))
        return false;
    return x->n_chosen <= x->n ||
           err_set(e, ERR_FORMAT, "%s: num_experts_per_tok %lld is more than num_experts %lld", c->path,
                   (long long)x->n_chosen, (long long)x->n);
}

bool config_get_layers(const struct config *c, const struct config_layer_rules *rules, int64_t n_layers,
                       struct config_layer *layers, int64_t *window, struct err *e)
{
    int *types = xcalloc((size_t)n_layers, sizeof *types);
    for (int64_t i = 0; i < n_layers; i++)
        layers[i] = (struct config_layer){.turns = true};
    bool ok = (!rules->has_rope_list || get_turning(c, n_layers, layers, e)) &&
              (!rules->has_experts || get_sparse(c, n_layers, layers, e)) &&
              get_sliding(c, rules, n_layers, layers, types, window, e);
    free(types);
    return ok;
}
