/* Qwen3.5 inside arch: the parsed checkpoint, and what its three files build of a layer.
 *
 * A layer is x += mixer(norm(x)); x += mlp(norm(x)). The mixer is gated attention (full layers) or a gated
 * delta rule (linear layers), the MLP is dense or a mixture of experts. Norm weights are stored minus one.
 */
#ifndef MILKIT_ARCH_QWEN3_5_H
#define MILKIT_ARCH_QWEN3_5_H

#include "arch/experts.h"

#define QWEN3_5_KERNEL_MAX 64 /* taps of the convolution */

struct qwen3_5_linear {
    const struct st_tensor *qkv, *z, *a, *b, *conv, *a_log, *dt_bias, *norm, *out;
};

struct qwen3_5_gated {
    const struct st_tensor *gate, *up, *down;
};

struct qwen3_5_layer {
    bool is_full;
    int64_t index; /* among the layers of its kind */
    /* Norms; attention where is_full, whose Q gives a query and a gate for every head; the dense MLP. */
    const struct st_tensor *tensors[DECODER_TENSORS];
    struct qwen3_5_linear linear; /* not is_full */
    struct experts experts;
    struct qwen3_5_gated shared; /* with experts: the one that every token has */
    const struct st_tensor *shared_gate;
};

struct qwen3_5 {
    struct config_sizes sizes; /* intermediate_size: of the dense MLP */
    int64_t rotary_dim;
    int64_t n_k, n_v, d_k, d_v, kernel, conv_dim; /* of the linear layers */
    bool is_moe;
    struct config_experts experts;
    int64_t shared_size;
    int64_t n_full, n_linear; /* layers, both at least 1 */
    bool norms_hold_one;      /* weights of norms are gains, not gains minus one */
    struct arch_rope rope;
    struct qwen3_5_layer *layers; /* [n_layers] */
};

/* Parses config.json and finds all tensors (qwen3_5_config.c). */
bool qwen3_5_open(struct arch_model *m, struct err *e) MUST_CHECK;

/* ---- gated delta rule (qwen3_5_linear.c) ---- */

/* Weights of a layer: made once, referred to by both functions. */
struct qwen3_5_linear_values {
    const struct mil_value *qkv, *z, *a, *dt_bias, *b, *decay, *norm, *out;
    const struct mil_value *taps[QWEN3_5_KERNEL_MAX]; /* [conv_dim] each */
};
/* Constants of the chunked form for chunks of `size` tokens. */
struct qwen3_5_chunked {
    int64_t size;
    int n_levels;
    const struct mil_value *through; /* [i, s]: 1 where s <= i */
    const struct mil_value *before;  /* [i, j]: 1 where j < i */
    const struct mil_value *after;   /* [s, j]: 1 where s > j */
    const struct mil_value *identity;
    const struct mil_value *level[32]; /* lower left block of every 2 << level wide diagonal block */
};
struct qwen3_5_linear_values qwen3_5_linear_values(const struct arch_model *m, const struct qwen3_5_linear *t,
                                                   struct mil_model *out);
struct qwen3_5_chunked qwen3_5_chunked_constants(int64_t size, struct mil_model *out);
/* x [1, T, H] normed -> [1, T, H]; updates the layer's part of both states. T 1: the recurrence. */
struct mil_var *qwen3_5_build_linear(const struct arch_model *m, struct mil_builder *b, int64_t layer,
                                     const struct qwen3_5_linear_values *w,
                                     const struct qwen3_5_chunked *chunked, struct mil_var *x,
                                     struct mil_var *gdn_state, struct mil_var *conv_state);
/* Tokens of a chunk: what the settings ask for, else the largest power of two up to 64 in the batch. */
int64_t qwen3_5_chunk_size(const struct arch_settings *s);

/* ---- MLP (qwen3_5_moe.c) ---- */

struct qwen3_5_mlp_values {
    struct gated_values gated; /* dense, or the shared expert */
    struct experts_values experts;
    const struct mil_value *shared_gate;
};
struct qwen3_5_mlp_values qwen3_5_mlp_values(const struct arch_model *m, const struct qwen3_5_layer *t,
                                             struct mil_model *out);
/* x [1, T, H] normed -> [1, T, H]; order: of T tokens, or NULL */
struct mil_var *qwen3_5_build_mlp(const struct arch_model *m, struct mil_builder *b, int64_t layer,
                                  const struct qwen3_5_mlp_values *w, const struct mil_value *order,
                                  struct mil_var *x);

#endif
