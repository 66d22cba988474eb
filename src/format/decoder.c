/* The table of a decoder's tensors, and the loop that finds them. */
#include "format/decoder.h"
#include <stdio.h>

#define KEYS_BIAS (DECODER_KEYS | DECODER_QKV_BIAS)

/* One tensor. */
static const struct row {
    enum decoder_tensor tensor;
    const char *name; /* behind "model.layers.N." */
    enum decoder_size rows, columns;
    unsigned needs, excludes; /* parts: all of the former, none of the latter */
} rows[] = {
    {DECODER_Q, "self_attn.q_proj.weight", DECODER_QUERY, DECODER_HIDDEN, DECODER_ATTENTION, 0},
    {DECODER_Q_BIAS, "self_attn.q_proj.bias", DECODER_QUERY, DECODER_NONE, DECODER_QKV_BIAS, 0},
    {DECODER_K, "self_attn.k_proj.weight", DECODER_KV, DECODER_HIDDEN, DECODER_KEYS, 0},
    {DECODER_K_BIAS, "self_attn.k_proj.bias", DECODER_KV, DECODER_NONE, KEYS_BIAS, 0},
    {DECODER_V, "self_attn.v_proj.weight", DECODER_KV, DECODER_HIDDEN, DECODER_KEYS, 0},
    {DECODER_V_BIAS, "self_attn.v_proj.bias", DECODER_KV, DECODER_NONE, KEYS_BIAS, 0},
    {DECODER_O, "self_attn.o_proj.weight", DECODER_HIDDEN, DECODER_HEADS, DECODER_ATTENTION, 0},
    {DECODER_O_BIAS, "self_attn.o_proj.bias", DECODER_HIDDEN, DECODER_NONE, DECODER_OUTPUT_BIAS, 0},
    {DECODER_Q_NORM, "self_attn.q_norm.weight", DECODER_HEAD, DECODER_NONE, DECODER_HEAD_NORMS, 0},
    {DECODER_K_NORM, "self_attn.k_norm.weight", DECODER_HEAD, DECODER_NONE, DECODER_HEAD_NORMS | DECODER_KEYS,
     0},
    {DECODER_INPUT_NORM, "input_layernorm.weight", DECODER_HIDDEN, DECODER_NONE, 0, 0},
    {DECODER_MLP_NORM, "post_attention_layernorm.weight", DECODER_HIDDEN, DECODER_NONE, 0,
     DECODER_POST_NORMS},
    {DECODER_POST_ATTENTION_NORM, "post_attention_layernorm.weight", DECODER_HIDDEN, DECODER_NONE,
     DECODER_POST_NORMS, 0},
    {DECODER_MLP_NORM, "pre_feedforward_layernorm.weight", DECODER_HIDDEN, DECODER_NONE, DECODER_POST_NORMS,
     0},
    {DECODER_POST_MLP_NORM, "post_feedforward_layernorm.weight", DECODER_HIDDEN, DECODER_NONE,
     DECODER_POST_NORMS, 0},
    {DECODER_GATE, "mlp.gate_proj.weight", DECODER_INNER, DECODER_HIDDEN, DECODER_MLP, 0},
    {DECODER_UP, "mlp.up_proj.weight", DECODER_INNER, DECODER_HIDDEN, DECODER_MLP, 0},
    {DECODER_DOWN, "mlp.down_proj.weight", DECODER_HIDDEN, DECODER_INNER, DECODER_MLP, 0},
    {DECODER_GATE_BIAS, "mlp.gate_proj.bias", DECODER_INNER, DECODER_NONE, DECODER_MLP_BIAS, 0},
    {DECODER_UP_BIAS, "mlp.up_proj.bias", DECODER_INNER, DECODER_NONE, DECODER_MLP_BIAS, 0},
    {DECODER_DOWN_BIAS, "mlp.down_proj.bias", DECODER_HIDDEN, DECODER_NONE, DECODER_MLP_BIAS, 0},
    {DECODER_PER_LAYER_GATE, "per_layer_input_gate.weight", DECODER_PER_LAYER, DECODER_HIDDEN,
     DECODER_PER_LAYER_INPUTS, 0},
    {DECODER_PER_LAYER_PROJECTION, "per_layer_projection.weight", DECODER_HIDDEN, DECODER_PER_LAYER,
     DECODER_PER_LAYER_INPUTS, 0},
    {DECODER_PER_LAYER_NORM, "post_per_layer_input_norm.weight", DECODER_HIDDEN, DECODER_NONE,
     DECODER_PER_LAYER_INPUTS, 0},
    {DECODER_SCALAR, "layer_scalar", DECODER_ONE, DECODER_NONE, DECODER_PER_LAYER_INPUTS, 0},
};
#define N_ROWS ((int)(sizeof rows / sizeof rows[0]))

bool decoder_find_layer(const struct checkpoint_names *n, int64_t layer, unsigned parts,
                        const int64_t sizes[DECODER_SIZES], const struct st_tensor *out[DECODER_TENSORS],
                        struct err *e)
{
    for (int i = 0; i < DECODER_TENSORS; i++)
        out[i] = NULL;
    for (int i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        const int64_t shape[2] = {sizes[r->rows], sizes[r->columns]};
        char name[160];
        if ((r->needs & ~parts) != 0 || (r->excludes & parts) != 0)
            continue;
        snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)layer, r->name);
        out[r->tensor] = checkpoint_require(n, name, r->columns == DECODER_NONE ? 1 : 2, shape, e);
        if (!out[r->tensor])
            return false;
    }
    return true;
}

bool decoder_find_ends(const struct checkpoint_names *n, int64_t vocab_size, int64_t hidden_size,
                       bool is_tied, struct decoder_ends *out, struct err *e)
{
    const int64_t table[2] = {vocab_size, hidden_size};
    out->embeddings = checkpoint_require(n, "model.embed_tokens.weight", 2, table, e);
    if (!out->embeddings)
        return false;
    out->norm = checkpoint_require(n, "model.norm.weight", 1, &hidden_size, e);
    if (!out->norm)
        return false;
    out->head = out->embeddings;
    if (is_tied && !checkpoint_has(n, "lm_head.weight"))
        return true;
    out->head = checkpoint_require(n, "lm_head.weight", 2, table, e);
    return out->head || (is_tied ? false : err_wrap(e, "the embeddings are not tied (tie_word_embeddings)"));
}
