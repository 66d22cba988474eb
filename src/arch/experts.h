/* Mixtures of experts in the graph: tensors, weights, and the ops of a layer.
 *
 * All experts are evaluated: the gate, up and down projections of many experts are three wide convolutions,
 * and the hidden numbers of an expert are multiplied by its weight, 0 for one that was not chosen. That is one
 * shape for any choice, which the Neural Engine needs; an engine may skip experts whose weight is 0.
 */
#ifndef MILKIT_ARCH_EXPERTS_H
#define MILKIT_ARCH_EXPERTS_H

#include "arch/blocks.h"
#include "arch/family.h"

/* Of a layer. */
struct experts {
    const struct st_tensor *router;
    bool packed; /* one tensor for all experts: n 1, gate holds gate and up, else one an expert */
    int64_t n;
    const struct st_tensor **gate, **up, **down; /* [n]; up: NULL when packed */
};
/* mlp.gate and mlp.experts of a layer, in either layout. */
bool experts_find(struct arch_model *m, int64_t layer, const struct config_experts *c, struct experts *out,
                  struct err *e) MUST_CHECK;

/* Three projections of down(silu(gate x) * up x). */
struct gated_values {
    const struct mil_value *gate, *up, *down;
};
struct experts_values {
    const struct mil_value *router;
    int64_t group_size; /* experts of one convolution */
    int n_groups;
    struct gated_values *groups; /* [n_groups] */
};
struct experts_values experts_values(const struct arch_model *m, const struct config_experts *c,
                                     const struct experts *t, struct mil_model *out);
/* [1, E, 1, T] of E, E - 1, .. 1 for every token: which of equal experts goes first. As wide as the numbers it
 * stands beside, because some readers take the type of a select from its two values alone. NULL but where the
 * settings want exact experts. */
const struct mil_value *experts_order(const struct arch_model *m, const struct config_experts *c,
                                      int64_t n_tokens, struct mil_model *out);
/* x [1, H, 1, T] normed -> [1, H, 1, T]; order: of T tokens, or NULL */
struct mil_var *experts_build(struct mil_builder *b, const struct config_experts *c, int64_t layer,
                              const struct experts_values *w, const struct mil_value *order,
                              struct mil_var *x);
/* down(silu(gate x) * up x); name: of the ops, behind the layer's */
struct mil_var *experts_build_gated(struct mil_builder *b, int64_t layer, const char *name,
                                    const struct gated_values *w, struct mil_var *x);

#endif
