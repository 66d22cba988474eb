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

enum gemma4_kind { GEMMA4_LOCAL, GEMMA4_GLOBAL, GEMMA4_KINDS };

/* What all layers of one kind have in common. */
struct gemma4_attention {
    int64_t n_layers, head_dim, n_kv_heads;
    int64_t n_slots;       /* layers that write a cache */
    struct arch_rope rope; /* the pairs that turn: pair i is (i, i + head_dim / 2) */
};

enum { GEMMA4_Q, GEMMA4_K, GEMMA4_V, GEMMA4_O, GEMMA4_PROJECTIONS };

struct gemma4_layer {
    enum gemma4_kind kind;
    bool is_shared;       /* writes nothing */
    int64_t source, slot; /* the layer whose keys and values it reads (itself, or an earlier one); its slot */
    const struct st_tensor *projection[GEMMA4_PROJECTIONS], *q_norm,
        *k_norm; /* K, V, k_norm: NULL if shared */
    const struct st_tensor *input_norm, *post_attention_norm, *pre_mlp_norm, *post_mlp_norm;
    const struct st_tensor *gate, *up, *down;
    const struct st_tensor *per_layer_gate, *per_layer_projection, *per_layer_norm;
    const struct st_tensor *scalar; /* [1] */
};

struct gemma4 {
    int64_t n_heads, intermediate_size, n_shared;
    bool double_wide; /* the MLP of layers that share keys and values */
    int64_t window;   /* keys that a local query sees, its own with them */
    int64_t per_layer_size, per_layer_rows;
    double rms_norm_eps, softcap; /* softcap: 0 for none */
    bool tie_word_embeddings;
    /* Ids in place of which the published code embeds the padding id: those of images, audio and video. */
    int64_t placeholders[3], padding_id;
    int n_placeholders;
    struct gemma4_attention kinds[GEMMA4_KINDS];
    const struct st_tensor *embeddings, *norm, *head;
    const struct st_tensor *per_layer_table, *model_projection, *projection_norm;
    struct gemma4_layer *layers; /* [n_layers] */
};

/* Parses config.json and finds all tensors (gemma4_config.c). */
bool gemma4_open(struct arch_model *m, struct err *e) MUST_CHECK;

static inline const char *gemma4_name(struct mil_builder *b, int64_t layer, const char *what)
{
    return arena_printf(mil_builder_arena(b), "layers_%lld_%s", (long long)layer, what);
}

/* ---- the cache of local layers (gemma4_cache.c) ----
 *
 * Up to window + 2 batches of context it is as long as the context, and the window is a mask. Beyond, it is
 * window + 2 batches long: after a call that ends at position e, slot j holds position base + j with
 * base = (e / batch + 1) * batch - length; negative positions and those beyond e are empty. A call that
 * enters a new block of `batch` positions shifts the cache by one block: a prefill batch always does, a single
 * token when its position is a multiple of batch. What is shifted in is zeros, so that the state depends on the
 * tokens alone and not on how they were split into calls.
 */

bool gemma4_is_windowed(const struct arch_model *m);
int64_t gemma4_local_length(const struct arch_model *m);

struct gemma4_cache_values {
    const struct mil_value *keys;      /* int32 [1, 1, 1, length]: 0 .. length - 1 */
    const struct mil_value *minus_inf; /* fp16 [1, 1, 1, 1] */
    /* Windowed: fp16 zeros [1, 1, T, length] for T 1 and T batch, as large as the masks that they are selected for:
     * readers take the shape of a select from its values. */
    const struct mil_value *zeros[2];
    const struct mil_value *block; /* fp16 [1, 2 n_kv, batch, head_dim] of zeros; windowed */
};
struct gemma4_cache_values gemma4_cache_values(const struct arch_model *m, struct mil_model *out);

/* Where a call writes and what it may read. */
struct gemma4_cache {
    struct mil_var *mask;        /* fp16 [1, 1, T, length] */
    struct mil_var *position;    /* int32 [1]: slot of the first token; full length: current_pos */
    struct mil_var *begin, *end; /* windowed: int32 [4], of the call's rows in a slot of the state */
    struct mil_var *enter;       /* windowed and T 1: bool [1, 1, 1, 1], the token starts a block */
};
/* writes: the chunk has a local layer that writes. */
struct gemma4_cache gemma4_build_cache(const struct arch_model *m, struct mil_builder *b,
                                       const struct gemma4_cache_values *c, int64_t t, bool writes,
                                       struct mil_var *position_ids, struct mil_var *causal_mask,
                                       struct mil_var *current_pos);
/* Puts kv [1, 2 n_kv, T, head_dim] into a slot; the state after that. */
struct mil_var *gemma4_write_local(const struct arch_model *m, struct mil_builder *b,
                                   const struct gemma4_cache_values *v, const struct gemma4_cache *c,
                                   struct mil_var *state, struct mil_var *kv, int64_t slot, const char *name);

#endif
