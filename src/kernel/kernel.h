/* Kernels: the inner loops, one instruction set per file, chosen at run time. No allocation, no threads, no errors.
 *
 * Every level gives the same bits. What that takes, for all levels and for any blocking:
 *  - a dot product of n elements has sixteen float32 lanes; lane j sums elements j, j+16, j+32, .. in this order with
 *    fused multiply-adds from +0 (the tail is filled with zeros on both sides); then one tree:
 *    s8[j] = l[j] + l[j+8]; s4[j] = s8[j] + s8[j+4]; s2[j] = s4[j] + s4[j+2]; s = s2[0] + s2[1];
 *  - plain sums (mean of squares, softmax denominators) have the same lanes and tree; lane = index mod 16;
 *  - elementwise arithmetic is one IEEE operation per operation written in the formula, no contraction;
 *  - exp, tanh are milkit's own, the same operations at every width (kernel_math.h: written once per width); a result
 *    of exp that would be subnormal is +0;
 *  - a NaN is a NaN at every level, but its sign and payload may differ.
 * A row's result never depends on how many rows a call has, nor on how the caller splits rows among threads.
 * Nothing is read outside the given arrays (weights may end at the end of a mapping). fp16 weights and caches need
 * 2-byte alignment, floats 4-byte. Loops over n accept any n >= 0.
 *
 * Functions are named k_<op>_<types>__<isa>; kernel.def lists them once for the table, the tests and the benchmark.
 */
#ifndef MILKIT_KERNEL_KERNEL_H
#define MILKIT_KERNEL_KERNEL_H

#include <stdbool.h>
#include "base/cpu.h"
#include "base/half.h"
#include "kernel/kernel_fixed.h"

/* floats of scratch that linear_* needs per thread, for n_in input features and n_rows activation rows: decoded weights and
 * unfinished sums, and activations in another order, of as many rows at a time as are not too many numbers */
#define KERNEL_LINEAR_TOKENS 64
#define KERNEL_LINEAR_CHUNK 98816
#define KERNEL_LINEAR_TURNED (64 * 16384)
#define KERNEL_LINEAR_SCRATCH(n_in, n_rows)                                                                  \
    ((n_rows) == 1 ? (size_t)16                                                                              \
                   : KERNEL_LINEAR_CHUNK + 512 +                                                             \
                         ((size_t)(n_in) + 256) * ((size_t)(n_in)*64 <= KERNEL_LINEAR_TURNED   ? (size_t)64  \
                                                   : (size_t)(n_in)*32 <= KERNEL_LINEAR_TURNED ? (size_t)32  \
                                                   : (size_t)(n_in)*16 <= KERNEL_LINEAR_TURNED ? (size_t)16  \
                                                                                               : (size_t)8))

/* floats of scratch that attention_* needs per thread: for caches of `positions` with elements of d_k and d_v and calls of n_rows
 * query rows */
#define KERNEL_ATTENTION_SCRATCH(positions, n_rows, d_k, d_v)                                                \
    (((size_t)(positions) + 160 + (size_t)(d_k) + (size_t)(d_v)) *                                           \
     ((size_t)(n_rows) < 64 ? (size_t)(n_rows) : (size_t)64))

/* bytes of scratch that linear_fixed needs per thread */
#define KERNEL_FIXED_SCRATCH(n_in, n_rows)                                                                   \
    ((n_rows) == 1 ? ((size_t)(n_in) + FIXED_BLOCK - 1) / FIXED_BLOCK * 2048 + 64 : (size_t)49152)

/* Outputs may be the same array as an input of elementwise kernels, norms, rope and softmax (y == x, y == a, ..), but
 * not overlap one in another way. Kernels may use up to 64 KB of stack. */
/* One head of the gated delta rule (Yang et al., "Gated Delta Networks", 2024) over n_tokens, with keys and queries of
 * mean square 1, so that the state is sqrt(d_k) times the published one. Strides in elements. */
struct gated_delta {
    float *y;               /* [n_tokens, d_v] */
    float *state;           /* [d_k, d_v], read and written */
    const float *q, *k, *v; /* [n_tokens, d_k], [n_tokens, d_k], [n_tokens, d_v] */
    const float *g, *beta;  /* [n_tokens]: logarithm of the decay (<= 0), step size */
    int64_t y_stride, state_stride, q_stride, k_stride, v_stride, g_stride, beta_stride;
    int64_t n_tokens, d_k;
    float inverse_d_k, scale;
};

struct kernels {
    enum cpu_level level;
    unsigned features; /* beyond the level, of which it makes use */
    const char *name;  /* of the level */

    /* y[t][o] = sum_i x[t][i] * w[o][i] (+ bias[o] after the sum), t < n_rows, begin <= o < end.
     * x [n_rows, n_in] with row stride x_stride, w [n_out, n_in] dense, y row stride y_stride (y points at o = 0),
     * Weights are finite; columns where a row of x is zero may be left unread (chosen experts).
     * bias [n_out] or NULL. scratch: KERNEL_LINEAR_SCRATCH(n_in, n_rows) floats. */
    void (*linear_f16)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const f16 *w,
                       const float *bias, int64_t n_rows, int64_t n_in, int64_t begin, int64_t end,
                       float *scratch);
    void (*linear_f32)(float *y, int64_t y_stride, const float *x, int64_t x_stride, const float *w,
                       const float *bias, int64_t n_rows, int64_t n_in, int64_t begin, int64_t end,
                       float *scratch);

    /* Attention of n_rows query rows that share one KV head. For row r, positions begin[r] <= p < end[r]:
     *   s[p] = dot(q[r], k[p]) * scale + mask[r][p];  m = max s;  w[p] = exp(s[p] - m)
     *   out[r][c] = (sum_p w[p] * v[p][c], fused multiply-adds in the order of p) / (sum_p w[p], lane = p mod 16)
     * q row stride q_stride, out row stride out_stride; k [S, d_k] and v [S, d_v] with row strides k_stride, v_stride
     * (elements); mask NULL (all zero) or row stride mask_stride, may hold -inf inside the range (w is then exactly 0).
     * An empty or wholly masked range gives zeros. K, V and mask outside the rows' ranges together
     * are not read. scratch: KERNEL_ATTENTION_SCRATCH(S, n_rows, d_k, d_v) floats. */
    void (*attention_f16)(float *out, int64_t out_stride, const float *q, int64_t q_stride, int64_t n_rows,
                          const f16 *k, int64_t k_stride, const f16 *v, int64_t v_stride, int64_t d_k,
                          int64_t d_v, const int32_t *begin, const int32_t *end, const float *mask,
                          int64_t mask_stride, float scale, float *scratch);

    /* y = x / sqrt(sum(x^2)/n + eps) * w; w [n] float or NULL. The division and the square root are IEEE operations:
     * r = 1 / sqrt(sum/n + eps), y = (x * r) * w. */
    void (*rms_norm)(float *y, const float *x, const float *w, int64_t n, float eps);
    /* y = (x - mean) / sqrt(var + eps) * gamma + beta (both may be NULL), mean and var by the lane sums:
     * r = 1 / sqrt(sum((x - mean)^2)/n + eps), y = ((x - mean) * r) * gamma + beta. Both norms sum squares with fused
     * multiply-adds. */
    void (*layer_norm)(float *y, const float *x, const float *gamma, const float *beta, int64_t n, float eps);
    /* rotate-half of one head row in place-safe form (y may equal x): for i < pairs:
     *   y[i] = x[i]*cos[i] - x[i+half]*sin[i];  y[i+half] = x[i+half]*cos[i] + x[i]*sin[i]   (two products, one sum)
     * for the others of the n elements y = x. pairs <= half, half + pairs <= n. */
    void (*rope)(float *y, const float *x, const float *cos, const float *sin, int64_t pairs, int64_t half,
                 int64_t n);
    /* Columns begin .. end of d_v. For each token in order, with e = exp(g):
     *   m[c] = sum_r k[r] * state[r][c],  p[c] = sum_r q[r] * state[r][c]   (fused, r rising, from +0)
     *   delta[c] = (v[c] - (m[c] * e) * inverse_d_k) * beta
     *   y[c] = fma(delta[c], dot(q, k), p[c] * e) * scale
     *   state[r][c] = fma(k[r], delta[c], state[r][c] * e)
     * y may not overlap anything else. Columns are independent: threads may split them at will. */
    void (*gated_delta)(const struct gated_delta *p, int64_t begin, int64_t end);
    /* y = softmax(x) over n: max subtracted, own exp, lane sums, one division per element. */
    void (*softmax)(float *y, const float *x, int64_t n);

    /* y[i] = f(x[i]) */
    void (*exp)(float *y, const float *x, int64_t n);
    void (*tanh)(float *y, const float *x, int64_t n);
    void (*sigmoid)(float *y, const float *x, int64_t n); /* 1 / (1 + exp(-x)) */
    /* y = x * sigmoid(x) * u (x / (1 + exp(-x)), then * u); u may be NULL: without the last product */
    void (*silu_mul)(float *y, const float *x, const float *u, int64_t n);
    /* y = a op b; b_step 0: b[0] for all, 1: elementwise */
    void (*add)(float *y, const float *a, const float *b, int64_t n, int b_step);
    void (*sub)(float *y, const float *a, const float *b, int64_t n, int b_step);
    void (*mul)(float *y, const float *a, const float *b, int64_t n, int b_step);

    void (*f16_to_f32)(float *y, const f16 *x, int64_t n);
    void (*f32_to_f16)(f16 *y, const float *x,
                       int64_t n); /* to nearest, ties to even; overflow gives infinity */
    void (*round_f16)(float *y, const float *x, int64_t n); /* to fp16 and back */

    /* Products in fixed point (kernel_fixed.h), in two steps. Activations are prepared once for all weights of the same
     * `bits` that they meet: x [n_rows, n_in] into dst (fixed_bytes, 64-byte aligned; its layout belongs to the level,
     * n_rows and bits), rows [row_begin, row_end) per call, so that threads can share the work. */
    size_t (*fixed_bytes)(int64_t n_rows, int64_t n_in);
    void (*fixed_prepare)(void *dst, const float *x, int64_t x_stride, int64_t n_rows, int64_t n_in,
                          int64_t row_begin, int64_t row_end, int bits);
    /* y[t][o] for all n_rows prepared rows, begin <= o < end; y and bias as in linear_f16.
     * scratch: KERNEL_FIXED_SCRATCH(n_in, n_rows) bytes. */
    void (*linear_fixed)(float *y, int64_t y_stride, const void *prepared, const struct fixed_weight *w,
                         const float *bias, int64_t n_rows, int64_t begin, int64_t end, void *scratch);
};

/* The kernels for this processor, each the best that its level and features allow (impls.def); MILKIT_CPU in the environment
 * chooses the level (base/cpu.h). Unknown or missing level: NULL, and *why (static text) says what was wrong. */
const struct kernels *kernel_select(const char **why);
/* The same for a level, or NULL when this build or processor lacks it. */
const struct kernels *kernel_table(enum cpu_level level);
/* For tests: all different tables that this processor can run, i from 0 on: each level without its features, and with
 * each of them. False behind the last. */
bool kernel_variant(int i, struct kernels *out);

#endif
