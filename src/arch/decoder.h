/* Plain decoders: families whose layers are
 *
 *     x += attention(norm(x)); x += down(silu(gate(norm(x))) * up(norm(x)))
 *
 * where norm weights are gains, queries and keys turn by the same frequencies in every layer that turns them, one state
 * caches keys and values of all layers at all positions (a window is a mask), and logits are the head's products. A family
 * is a row of families.def. Its traits say what its model code does otherwise and no key of config.json asks for, and which
 * keys it knows; what a key decides, sizes, RoPE's type, which layers slide, is read alike for all. The zero of every trait
 * is the decoder above, so a row names only what is different in its family, and a trait that is new to one leaves the
 * other rows as they are.
 */
#ifndef MILKIT_ARCH_DECODER_H
#define MILKIT_ARCH_DECODER_H

#include "arch/experts.h"
#include "arch/window_cache.h"
#include "format/config.h"
#include "format/decoder.h"

struct decoder_traits {
    /* What keys mean that config.json leaves out. */
    struct config_sizes missing;
    bool is_tied; /* tie_word_embeddings: the head's rows are those of the embeddings */
    /* What every layer has besides attention, keys of its own and MLP, of these bits of enum decoder_parts:
     * DECODER_HEAD_NORMS, queries and keys of each head are normed before they turn; DECODER_QKV_BIAS and
     * DECODER_OUTPUT_BIAS, projections add vectors; DECODER_POST_NORMS, what attention and MLP give is normed before it is
     * added. */
    unsigned parts;
    /* attention_bias: true in config.json gives q, k, v and o biases; else the key means nothing. */
    bool has_bias_key;
    bool has_mlp_bias_key; /* mlp_bias: the same of gate, up and down */
    struct config_rope_keys rope;
    struct config_layer_rules layers; /* which layers slide, and which turn */
    bool is_centred;                  /* norm weights are gains minus one */
    bool has_gelu;          /* hidden_activation is gelu_pytorch_tanh, where others' hidden_act is silu */
    bool scales_embeddings; /* by the root of hidden_size */
    double
        missing_query_scalar; /* query_pre_attn_scalar, whose root divides scores; 0: the head's size does */
    /* Layers that slide have a cache and frequencies (local_rope) of their own: the two caches of the contract. */
    bool has_local_cache;
    struct config_rope_keys local_rope;
    struct config_experts
        missing_experts;        /* n 0: there are none; layers.has_experts says which layers have them */
    bool has_softcap;           /* final_logit_softcapping */
    const char *const *refused; /* keys that must be missing, null or false; ends with NULL; NULL: none */
};

/* Which cache and frequencies a layer has. Without has_local_cache all layers are global, those that slide too. */
enum decoder_kind { DECODER_LOCAL, DECODER_GLOBAL, DECODER_KINDS };

struct decoder_layer {
    struct config_layer is;
    enum decoder_kind kind;
    int64_t slot; /* among the layers of its kind */
    const struct st_tensor *tensors[DECODER_TENSORS];
    struct experts experts; /* where is.has_experts */
};

struct decoder {
    struct config_sizes sizes;
    int64_t window; /* of layers that slide; 0: none does */
    struct config_experts experts;
    double score_scale;             /* of queries' products with keys */
    int64_t n_slots[DECODER_KINDS]; /* layers of each kind */
    struct arch_rope rope[DECODER_KINDS];
    struct decoder_layer *layers; /* [n_layers] */
};

/* Parses config.json and finds all tensors (decoder_config.c). */
bool decoder_open(struct arch_model *m, struct err *e) MUST_CHECK;

/* ---- caches (decoder_cache.c) ---- */

/* Does the package have rotating functions: ANEMLL's form of a local cache, in a context above the window? */
bool decoder_rotates(const struct arch_model *m);
/* The states of a package, in the order in which they are declared; returns how many. */
int decoder_states(const struct arch_model *m, struct arch_state states[DECODER_KINDS]);
/* Family keys of meta.yaml. */
void decoder_fill_meta(const struct arch_model *m, struct meta *meta);

/* Constants of a chunk. */
struct decoder_cache_values {
    struct window_cache window;
    struct window_cache_values masks;
    /* Of prefill_rotate: int32 [1, 1, 1, window + batch] 0 .. and fp16 [1, 1, 1, 1], [1, 1, batch, window + batch]. */
    const struct mil_value *keys, *minus_inf, *zeros;
};
/* slides: some layer of the chunk does */
struct decoder_cache_values decoder_cache_values(const struct arch_model *m, bool slides,
                                                 struct mil_model *out);

/* What a function's layers read and write. */
struct decoder_cache_call {
    struct mil_var *state[DECODER_KINDS]; /* NULL: the package has none of the kind */
    struct mil_var *mask;                 /* of layers that see everything */
    struct mil_var *window_mask;          /* of those that slide */
    struct mil_var *position;
    struct window_cache_call window;
    bool rotates;
    int64_t n_tokens;
};
/* Declares the states; *x is handed through reads of those that the chunk has no layer for. */
void decoder_cache_declare(const struct arch_model *m, struct mil_builder *b,
                           const bool has_kind[DECODER_KINDS], struct decoder_cache_call *call,
                           struct mil_var **x);
/* Masks, where some layer slides. */
void decoder_cache_begin(const struct arch_model *m, struct mil_builder *b,
                         const struct decoder_cache_values *v, const struct arch_inputs *inputs,
                         struct decoder_cache_call *call);
/* Puts k and v [1, n_kv, T, d] of a layer into its cache; *keys and *values [1, n_kv, S, d] are what it attends to. */
void decoder_cache_write(const struct arch_model *m, struct mil_builder *b, int64_t layer,
                         const struct decoder_cache_values *c, const struct decoder_cache_call *call,
                         struct mil_var *k, struct mil_var *v, struct mil_var **keys,
                         struct mil_var **values);

#endif
