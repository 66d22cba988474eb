/* Qwen3.5 inside the reference: settings, tensors and work space, shared by its three files. */
#ifndef MILKIT_REFERENCE_QWEN3_5_H
#define MILKIT_REFERENCE_QWEN3_5_H

#include "reference/reference_internal.h"

struct linear_attention {
    const struct st_tensor *qkv, *z, *a, *b, *output;
    const float *conv; /* [conv_dim, kernel] */
    const float *a_log, *dt_bias, *norm;
};

struct qwen3_5_layer {
    bool is_full;
    /* Norms, of which vectors are 1 + w here; attention where is_full: Q has per head d rows of query, d of gate; the
     * dense MLP. */
    struct reference_layer tensors;
    struct linear_attention linear;
    struct reference_experts experts;
    struct reference_gated shared; /* with experts: the one that every token has */
    const struct st_tensor *shared_gate;
};

struct qwen3_5 {
    struct config_sizes sizes; /* intermediate_size: of the dense MLP */
    int64_t n_k, n_v, d_k, d_v, kernel, conv_dim;
    bool is_moe;
    struct config_experts experts;
    int64_t shared_size;
    float eps;
    bool norms_hold_one; /* files for MLX have the 1 in them */
    struct reference_rope rope;
    const float *norm;
    struct qwen3_5_layer *layers; /* [n_layers] */
};

/* Work space of a session; rows are tokens of a batch. */
struct qwen3_5_work {
    float **keys, **values;   /* [n_layers] of [n_kv_heads, capacity, head_dim]; NULL for linear layers */
    float **memory, **window; /* [n_layers] of S [n_v, d_k, d_v] and the last [kernel - 1, conv_dim] rows */
    float *h, *y;             /* [batch, hidden_size] */
    float *query_gate;        /* [batch, n_heads, 2, head_dim] */
    float *cosines, *sines;   /* [batch, pairs] */
    float *rows, *mixed;      /* [kernel - 1 + batch, conv_dim] and [batch, conv_dim] */
    float *z, *o;             /* [batch, n_v * d_v] */
    float *a, *b;             /* [batch, n_v] */
    struct reference_rows attention_rows;
    struct reference_experts_work experts; /* of a dense MLP, too */
};

#define QWEN3_5_LENGTH_EPSILON 1e-6
/* out [n, hidden_size] of normed rows w->h (qwen3_5_linear.c); moves the layer's memory and window on. */
void reference_qwen3_5_linear(struct reference_session *s, const struct qwen3_5_layer *l, int64_t i_layer,
                              int64_t n, float *out);
/* out [n, hidden_size] of normed rows w->h, dense or experts (qwen3_5_moe.c) */
void reference_qwen3_5_mlp(struct reference_session *s, const struct qwen3_5_layer *l, int64_t n, float *out);
bool reference_qwen3_5_find_experts(struct reference *r, const struct qwen3_5 *q, int64_t i_layer,
                                    struct qwen3_5_layer *l, struct err *e) MUST_CHECK;

/* ---- records of the linear attention, see tape.h (backward_delta.c) ---- */

/* After the convolution: w->rows as it got them. */
void reference_qwen3_5_record_convolve(struct reference_session *s, const struct linear_attention *l,
                                       int64_t n);
/* Before q and k of w->mixed are divided by their length. */
void reference_qwen3_5_record_lengths(struct reference_session *s, int64_t n);
/* After the recurrence on w->mixed, from a memory of zeros. */
void reference_qwen3_5_record_recurrence(struct reference_session *s, const struct linear_attention *l,
                                         int64_t n);

#endif
