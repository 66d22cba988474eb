/* The tensors of a decoder's checkpoint: which there are, what they are called and their shapes, in one table. Families are
 * made of the same parts, so each says which parts a layer has and how large they are; what is computed of the numbers,
 * arch and reference know, each for itself.
 */
#ifndef MILKIT_FORMAT_DECODER_H
#define MILKIT_FORMAT_DECODER_H

#include "format/checkpoint.h"

/* What a layer may have: bits. */
enum decoder_parts {
    DECODER_ATTENTION = 1 << 0,   /* q_proj and o_proj */
    DECODER_KEYS = 1 << 1,        /* k_proj and v_proj; a layer without reads those of an earlier one */
    DECODER_HEAD_NORMS = 1 << 2,  /* q_norm and k_norm, over the numbers of each head */
    DECODER_QKV_BIAS = 1 << 3,    /* of q, k and v */
    DECODER_OUTPUT_BIAS = 1 << 4, /* of o */
    DECODER_MLP = 1 << 5,         /* gate_proj, up_proj and down_proj */
    /* Norms of what attention and MLP give, before it is added, and not only of what they take:
     * post_attention_layernorm is then such a one, and the norm in front of the MLP has another name. */
    DECODER_POST_NORMS = 1 << 6,
    DECODER_PER_LAYER_INPUTS = 1 << 7, /* Gemma 4's third block, and a factor on the stream */
    DECODER_MLP_BIAS = 1 << 8          /* of gate, up and down */
};

enum decoder_tensor {
    DECODER_Q,
    DECODER_K,
    DECODER_V,
    DECODER_O,
    DECODER_Q_BIAS,
    DECODER_K_BIAS,
    DECODER_V_BIAS,
    DECODER_O_BIAS,
    DECODER_Q_NORM,
    DECODER_K_NORM,
    DECODER_INPUT_NORM,          /* in front of attention */
    DECODER_POST_ATTENTION_NORM, /* of what attention gives */
    DECODER_MLP_NORM,            /* in front of the MLP */
    DECODER_POST_MLP_NORM,       /* of what the MLP gives */
    DECODER_GATE,
    DECODER_UP,
    DECODER_DOWN,
    DECODER_GATE_BIAS,
    DECODER_UP_BIAS,
    DECODER_DOWN_BIAS,
    DECODER_PER_LAYER_GATE,
    DECODER_PER_LAYER_PROJECTION,
    DECODER_PER_LAYER_NORM,
    DECODER_SCALAR,
    DECODER_TENSORS
};

/* What rows and columns are counted in. */
enum decoder_size {
    DECODER_NONE,   /* columns of a vector */
    DECODER_ONE,    /* 1 */
    DECODER_HIDDEN, /* hidden_size */
    DECODER_QUERY,  /* rows of q_proj */
    DECODER_HEADS,  /* n_heads * head_dim */
    DECODER_KV,     /* n_kv_heads * head_dim */
    DECODER_HEAD,   /* head_dim */
    DECODER_INNER,  /* intermediate_size */
    DECODER_PER_LAYER,
    DECODER_SIZES
};

/* All tensors of a layer, NULL for those that it does not have. False: one is missing or is not what was expected (see
 * checkpoint_require). */
bool decoder_find_layer(const struct checkpoint_names *n, int64_t layer, unsigned parts,
                        const int64_t sizes[DECODER_SIZES], const struct st_tensor *out[DECODER_TENSORS],
                        struct err *e) MUST_CHECK;

/* The tensors around the layers. */
struct decoder_ends {
    const struct st_tensor *embeddings; /* [vocab_size, hidden_size] */
    const struct st_tensor *norm;       /* [hidden_size] */
    const struct st_tensor *head;       /* [vocab_size, hidden_size] */
};
/* The head is lm_head.weight where that is stored, whatever tie_word_embeddings (is_tied) says, as the published code
 * has it; else the table of embeddings, when tied. */
bool decoder_find_ends(const struct checkpoint_names *n, int64_t vocab_size, int64_t hidden_size,
                       bool is_tied, struct decoder_ends *out, struct err *e) MUST_CHECK;

#endif
