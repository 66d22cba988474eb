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

#include "format/config.h"
#include "format/decoder.h"

struct decoder_traits {
    /* What keys mean that config.json leaves out. */
    struct config_sizes missing;
    bool is_tied; /* tie_word_embeddings: the head's rows are those of the embeddings */
    /* What every layer has besides attention, keys of its own and MLP, of these bits of enum decoder_parts:
     * DECODER_HEAD_NORMS, queries and keys of each head are normed before they turn; DECODER_QKV_BIAS and
     * DECODER_OUTPUT_BIAS, projections add vectors. */
    unsigned parts;
    /* attention_bias: true in config.json gives q, k, v and o biases; else the key means nothing. */
    bool has_bias_key;
    bool has_mlp_bias_key; /* mlp_bias: the same of gate, up and down */
    struct config_rope_keys rope;
    struct config_layer_rules layers; /* which layers slide, and which turn */
};

#endif
