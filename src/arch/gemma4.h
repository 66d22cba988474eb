/* Gemma 4 inside arch: the parsed checkpoint, and what its three files build.
 *
 * A layer has two residual blocks with a norm before and after (attention, gated MLP), a third one that is fed
 * by the layer's part of the per-layer inputs, and a factor on the whole stream at its end. Attention is local
 * (a sliding window) or global; the last layers have no keys and values of their own and read those of the
 * last layer of their kind that has.
 */
#ifndef MILKIT_ARCH_GEMMA4_H
#define MILKIT_ARCH_GEMMA4_H

#include "arch/blocks.h"
#include "arch/family.h"
#include "arch/window_cache.h"

enum gemma4_kind { GEMMA4_LOCAL, GEMMA4_GLOBAL, GEMMA4_KINDS };

/* What all layers of one kind have in common. */
struct gemma4_attention {
    int64_t n_layers, head_dim, n_kv_heads;
    int64_t n_slots;       /* layers that write a cache */
    struct arch_rope rope; /* the pairs that turn: pair i is (i, i + head_dim / 2) */
};

struct gemma4_layer {
    enum gemma4_kind kind;
    bool is_shared;       /* writes nothing */
    int64_t source, slot; /* the layer whose keys and values it reads (itself, or an earlier one); its slot */
    const struct st_tensor *tensors[DECODER_TENSORS]; /* K, V, K_NORM: NULL if shared */
};

struct gemma4 {
    int64_t n_heads, intermediate_size, n_shared;
    bool double_wide; /* the MLP of layers that share keys and values */
    int64_t window;   /* keys that a local query sees, its own with them */
    int64_t per_layer_size, per_layer_rows;
    double rms_norm_eps;
    /* Ids in place of which the published code embeds the padding id: those of images, audio and video. */
    int64_t placeholders[3], padding_id;
    int n_placeholders;
    struct gemma4_attention kinds[GEMMA4_KINDS];
    const struct st_tensor *per_layer_table, *model_projection, *projection_norm;
    struct gemma4_layer *layers; /* [n_layers] */
};

/* Parses config.json and finds all tensors (gemma4_config.c). */
bool gemma4_open(struct arch_model *m, struct err *e) MUST_CHECK;

#endif
