/* Graph pieces that families share. Shapes: T tokens, C channels, n heads of d, S cache length.
 *
 * Every block returns its result variable, or NULL once the builder failed (and accepts NULL inputs then), so
 * recipes need no checks. name: wish for the last op of the block; NULL: derived.
 */
#ifndef MILKIT_ARCH_BLOCKS_H
#define MILKIT_ARCH_BLOCKS_H

#include "mil/build.h"

/* One op of two operands: "add", "mul", "sub". */
struct mil_var *block_binary(struct mil_builder *b, const char *type, struct mil_var *x, struct mil_var *y,
                             const char *name);
/* One op of one operand: "exp", "tanh", "abs". */
struct mil_var *block_unary(struct mil_builder *b, const char *type, struct mil_var *x, const char *name);
/* "reduce_sum" or "reduce_max" over one axis, which stays with one element */
struct mil_var *block_reduce(struct mil_builder *b, const char *type, struct mil_var *x, int axis);
struct mil_var *block_select(struct mil_builder *b, struct mil_var *condition, struct mil_var *yes,
                             struct mil_var *no);
struct mil_var *block_softmax(struct mil_builder *b, struct mil_var *x, int axis);
/* x times a constant */
struct mil_var *block_scale(struct mil_builder *b, struct mil_var *x, double factor, const char *name);
/* begin <= index < end along one axis, whose length must be known */
struct mil_var *block_slice(struct mil_builder *b, struct mil_var *x, int axis, int64_t begin, int64_t end,
                            const char *name);
struct mil_var *block_concat(struct mil_builder *b, struct mil_var *const *values, int n, int axis,
                             const char *name);
struct mil_var *block_reshape(struct mil_builder *b, struct mil_var *x, int rank, const int64_t *dims,
                              const char *name);
/* One axis of length 1 more, or less */
struct mil_var *block_expand(struct mil_builder *b, struct mil_var *x, int axis);
struct mil_var *block_squeeze(struct mil_builder *b, struct mil_var *x, int axis);
struct mil_var *block_transpose(struct mil_builder *b, struct mil_var *x, int rank, const int32_t *perm,
                                const char *name);
/* Rows of a table, as many and in the order of indices. */
struct mil_var *block_gather(struct mil_builder *b, const struct mil_value *table, struct mil_var *indices,
                             const char *table_name, const char *name);
struct mil_var *block_matmul(struct mil_builder *b, struct mil_var *x, struct mil_var *y, bool transpose_y,
                             const char *name);
/* The product of the transposed x with y. */
struct mil_var *block_matmul_transposed(struct mil_builder *b, struct mil_var *x, struct mil_var *y,
                                        const char *name);

/* [1, T, C] -> [1, C, 1, T] and back: the layout of 1x1 convolutions */
struct mil_var *block_to_channels(struct mil_builder *b, struct mil_var *x);
struct mil_var *block_from_channels(struct mil_builder *b, struct mil_var *x, const char *name);
/* [1, I, 1, T] -> [1, O, 1, T]; weight [O, I, 1, 1], bias [O] or NULL */
struct mil_var *block_linear(struct mil_builder *b, struct mil_var *x, const struct mil_value *weight,
                             const struct mil_value *bias, const char *name);
/* RMS norm over the last axis, as layer_norm of [x, -x], whose mean is exactly 0. weight [n] or NULL */
struct mil_var *block_rms_norm(struct mil_builder *b, struct mil_var *x, const struct mil_value *weight,
                               double epsilon, const char *name);
/* The same with the gain weight + rest, two numbers of fp16 where one doesn't hold it: y weight + y rest.
 * Compilers that know constants would join weight + rest again, in fp16. */
struct mil_var *block_rms_norm_split(struct mil_builder *b, struct mil_var *x, const struct mil_value *weight,
                                     const struct mil_value *rest, double epsilon, const char *name);
/* sigmoid(x) from x / 2, through tanh */
struct mil_var *block_half_sigmoid(struct mil_builder *b, struct mil_var *half_x);
struct mil_var *block_silu(struct mil_builder *b, struct mil_var *x);
/* The tanh form, x^3 written as x (a + b x^2): x^2 alone overflows fp16 only beyond 256, where tanh is 1. */
struct mil_var *block_gelu(struct mil_builder *b, struct mil_var *x);

/* [1, n * d, 1, T] -> [1, n, T, d] and back */
struct mil_var *block_to_heads(struct mil_builder *b, struct mil_var *x, int64_t n_heads);
struct mil_var *block_from_heads(struct mil_builder *b, struct mil_var *x);
/* [1, h, S, d] -> [1, h * n, S, d], each head n times in a row */
struct mil_var *block_repeat_heads(struct mil_builder *b, struct mil_var *x, int64_t n);
/* Rows of a cos or sin table at the positions [T], as [1, 1, T, pairs] */
struct mil_var *block_rope_rows(struct mil_builder *b, const struct mil_value *table,
                                struct mil_var *position_ids, const char *name);
/* Rotate-half of the first `span` of d dimensions; cos and sin [1, 1, T, pairs], pairs <= span / 2 turn. */
struct mil_var *block_rope(struct mil_builder *b, struct mil_var *x, struct mil_var *cos, struct mil_var *sin,
                           int64_t span, const char *name);
/* state [N, H, S, d]: rows position .. position + T - 1 of [slot, head .. head + h - 1] become value [1, h,
 * T, d]. The state after the write when want_result, else NULL. position: int32 [1] */
struct mil_var *block_write_rows(struct mil_builder *b, struct mil_var *state, struct mil_var *value,
                                 int64_t slot, int64_t head, struct mil_var *position, bool want_result,
                                 const char *name);
struct mil_var *block_read_state(struct mil_builder *b, struct mil_var *state);
/* Elements begin .. end of every axis of `old`, which was read from the state, become value; then the state
 * is written. */
void block_write_region(struct mil_builder *b, struct mil_var *state, struct mil_var *old,
                        struct mil_var *value, int rank, const int64_t *begin, const int64_t *end,
                        const char *name);
/* x [1, T, C] as it is, after a read of one element of a state that the function does not use: compilers
 * want every declared state read. */
struct mil_var *block_touch_state(struct mil_builder *b, struct mil_var *x, struct mil_var *state);
/* q [1, n_q, T, d], k and v [1, n_kv, S, d], mask [1, 1, T, S] of 0 and -inf -> [1, n_q, T, d]. scale 1: no
 * op for it */
struct mil_var *block_attention(struct mil_builder *b, struct mil_var *q, struct mil_var *k,
                                struct mil_var *v, struct mil_var *mask, double scale, const char *name);
/* The last of T rows of [1, T, C]; x itself when T is 1 */
struct mil_var *block_last_row(struct mil_builder *b, struct mil_var *x);

#endif
