/* config.json of a checkpoint: the values that both arch (which builds graphs) and reference (which computes) read of it,
 * with their limits and messages. Nothing is computed of them here: what a value means for a forward pass, each side says
 * for itself.
 *
 * A key that is missing or null leaves the caller's default. Anything else that the key can't be is ERR_FORMAT, or
 * ERR_UNSUPPORTED where it is a variant that milkit does not know: "PATH: key NAME: expected ..., found ...".
 */
#ifndef MILKIT_FORMAT_CONFIG_H
#define MILKIT_FORMAT_CONFIG_H

#include "format/json.h"

#define CONFIG_SIZE_MAX 16777216 /* of a hidden size or vocabulary; products of two stay far below int64 */
#define CONFIG_HEADS_MAX 65536
#define CONFIG_LAYERS_MAX 10000
#define CONFIG_EXPERTS_MAX 2048 /* fp16 counts them exactly */

struct config {
    const char *path;  /* "CHECKPOINT/config.json", where messages point */
    const cJSON *top;  /* what the file holds; borrowed, like text */
    const cJSON *text; /* its text settings: a wrapper's text_config, else top */
};
/* path must outlive it. ERR_FORMAT when the file holds something else than an object. */
bool config_set(struct config *c, const cJSON *top, const char *path, struct err *e) MUST_CHECK;
/* model_type of the top, which must be there. */
bool config_get_model_type(const struct config *c, const char **model_type, struct err *e) MUST_CHECK;

/* A whole number of 1 .. max among the settings of `object` (top, text, or an object inside). */
bool config_get_size(const struct config *c, const cJSON *object, const char *key, int64_t max,
                     int64_t *value, struct err *e) MUST_CHECK;
/* hidden_act or hidden_activation: the one function that is known, by either of its names (other: NULL for none). */
bool config_check_activation(const struct config *c, const char *key, const char *known, const char *other,
                             struct err *e) MUST_CHECK;
bool config_check_multiple(const struct config *c, const char *key, int64_t value, const char *of,
                           int64_t divisor, struct err *e) MUST_CHECK;
/* layer_types: types[i] is which of the n_names names entry i is. Missing or null: *given false, nothing is written. */
bool config_get_layer_types(const struct config *c, const char *const *names, int n_names, int64_t n_layers,
                            int *types, bool *given, struct err *e) MUST_CHECK;

/* ---- sizes of a decoder ---- */

struct config_sizes {
    int64_t vocab_size, hidden_size, n_layers, intermediate_size;
    int64_t n_heads;
    int64_t n_kv_heads; /* 0: as many as n_heads */
    int64_t head_dim;   /* 0: hidden_size / n_heads */
    double rms_norm_eps;
    bool attention_bias; /* biases of q, k, v and o */
    bool mlp_bias;       /* biases of gate, up and down */
};
/* What is among the text settings replaces what *s holds. n_heads is a multiple of n_kv_heads then. */
bool config_get_sizes(const struct config *c, struct config_sizes *s, struct err *e) MUST_CHECK;
/* final_logit_softcapping: what packages can divide and multiply by; null or missing leaves *cap. */
bool config_get_softcap(const struct config *c, double *cap, struct err *e) MUST_CHECK;
/* query_pre_attn_scalar: a positive number */
bool config_get_query_scalar(const struct config *c, double *scalar, struct err *e) MUST_CHECK;
/* rms_norm_eps: 0 .. 1, without 1 */
bool config_get_epsilon(const struct config *c, double *epsilon, struct err *e) MUST_CHECK;

/* ---- layers of a decoder (config_layers.c) ---- */

/* Which layers see a window of sliding_window positions, their own with them, and which keys decide. */
enum config_window {
    CONFIG_WINDOW_NEVER,
    /* use_sliding_window: those of layer_types, else from layer max_window_layers on. */
    CONFIG_WINDOW_SWITCHED,
    CONFIG_WINDOW_SWITCHED_ALL,      /* .. every layer */
    CONFIG_WINDOW_SWITCHED_UNTURNED, /* .. those of layer_types, else those that do not turn */
    CONFIG_WINDOW_ALL,    /* every layer, unless sliding_window is null; layer_types means nothing */
    CONFIG_WINDOW_PATTERN /* those of layer_types, else all but every sliding_window_pattern-th */
};
struct config_layer_rules {
    enum config_window window;
    int64_t missing_window; /* what a missing sliding_window means; 0: null */
    bool has_rope_list;     /* no_rope_layers and no_rope_layer_interval */
    bool has_experts;       /* mlp_only_layers and decoder_sparse_step */
};
struct config_layer {
    bool slides;
    bool turns;       /* queries and keys, by RoPE */
    bool has_experts; /* in place of the MLP */
};
/* layers [n_layers]; *window 0: none slides. layer_types that asks for a window where there is none is refused. */
bool config_get_layers(const struct config *c, const struct config_layer_rules *rules, int64_t n_layers,
                       struct config_layer *layers, int64_t *window, struct err *e) MUST_CHECK;

struct config_experts {
    int64_t n, n_chosen, size; /* experts of a layer, those of a token, numbers inside of one */
    bool normalizes;           /* weights of the chosen ones are divided by their sum */
};
/* num_experts (or num_local_experts), num_experts_per_tok, moe_intermediate_size, norm_topk_prob where the family has that
 * key; what is missing leaves *x. n_chosen is at most n then. */
bool config_get_experts(const struct config *c, bool has_norm_key, struct config_experts *x,
                        struct err *e) MUST_CHECK;

/* ---- rotary embedding ---- */

enum config_rope_type {
    CONFIG_ROPE_DEFAULT,
    CONFIG_ROPE_LINEAR,
    CONFIG_ROPE_LLAMA3,
    CONFIG_ROPE_YARN,
    CONFIG_ROPE_DYNAMIC,
    CONFIG_ROPE_LONG
};

/* NAN: not given, so that the maths of the type says what it is. */
struct config_rope {
    enum config_rope_type type;
    double theta;
    int64_t rotary_dim; /* the first numbers of a head, which turn; even */
    /* Names as in the file; what a type does not have means nothing. mscale: 0 when not given. */
    double factor, attention_factor, beta_fast, beta_slow, mscale, mscale_all_dim, low_freq_factor,
        high_freq_factor;
    double original_positions, max_positions;
    bool truncate;
    /* Up to how many positions frequencies do not depend on the length of the text; 0: never. DYNAMIC and LONG turn keys
     * that are in a cache otherwise than those behind that length, which no table does. */
    int64_t positions_limit;
    const cJSON *short_factor; /* of LONG: [rotary_dim / 2] positive numbers */
};
/* Where the settings stand, and what missing keys mean. All zeros: rope_theta, 10000, every dimension turns. */
struct config_rope_keys {
    const char *theta;      /* the key beside the object; NULL: rope_theta */
    double missing_theta;   /* 0: 10000 */
    double missing_part;    /* of a head, when partial_rotary_factor is missing; 0: 1 */
    const char *layer_type; /* rope_parameters may have an object for each type of layer: this one's */
    bool is_never_scaled;   /* rope_scaling is about other layers */
};
/* Both spellings, rope_scaling with rope_theta beside it and rope_parameters. */
bool config_get_rope(const struct config *c, int64_t head_dim, const struct config_rope_keys *keys,
                     struct config_rope *out, struct err *e) MUST_CHECK;
/* ERR_FORMAT unless v is finite and above 0: for what is computed of settings, too. */
bool config_check_positive(const struct config *c, const char *key, double v, struct err *e) MUST_CHECK;

#endif
