/* The cache of layers that see a sliding window, in the graph, with its mask. Shapes: T tokens of a call, n_kv heads of
 * d, S cache length.
 *
 * The state [slots, 2 n_kv, S, d] holds a layer's keys in the first n_kv heads of its slot, its values in the others.
 * Up to window + 2 batches of context it is as long as the context, and the window is a mask. Beyond, it is
 * window + 2 batches long: after a call that ends at position e, slot j holds position base + j with
 * base = (e / batch + 1) * batch - length; negative positions and those beyond e are empty. A call that
 * enters a new block of `batch` positions shifts the cache by one block: a prefill batch always does, a single
 * token when its position is a multiple of batch. What is shifted in is zeros, so that the state depends on the
 * tokens alone and not on how they were split into calls.
 */
#ifndef MILKIT_ARCH_WINDOW_CACHE_H
#define MILKIT_ARCH_WINDOW_CACHE_H

#include "arch/arch.h"
#include "arch/blocks.h"

struct window_cache {
    int64_t window; /* keys that a query sees, its own with them */
    int64_t n_kv_heads, head_dim, batch_size;
    int64_t length; /* positions of the state: S */
    bool shifts;    /* S is less than the context */
};
/* has_slots: some layer writes such a cache; without, nothing is shifted. */
struct window_cache window_cache_of(const struct arch_settings *s, int64_t window, int64_t n_kv_heads,
                                    int64_t head_dim, bool has_slots);

struct window_cache_values {
    const struct mil_value *keys;      /* int32 [1, 1, 1, S]: 0 .. S - 1 */
    const struct mil_value *minus_inf; /* fp16 [1, 1, 1, 1] */
    /* Shifting: fp16 zeros [1, 1, T, S] for T 1 and T batch, as large as the masks that they are selected for:
     * readers take the shape of a select from its values. */
    const struct mil_value *zeros[2];
    const struct mil_value *block; /* fp16 [1, 2 n_kv, batch, d] of zeros; shifting */
};
struct window_cache_values window_cache_values(const struct window_cache *c, struct mil_model *out);

/* Where a call writes and what it may read. */
struct window_cache_call {
    struct mil_var *mask;        /* fp16 [1, 1, T, S] of 0 and -inf */
    struct mil_var *position;    /* int32 [1]: slot of the first token; full length: current_pos */
    struct mil_var *begin, *end; /* shifting: int32 [4], of the call's rows in a slot of the state */
    struct mil_var *enter;       /* shifting and T 1: bool [1, 1, 1, 1], the token starts a block */
};
/* position_ids int32 [T], causal_mask fp16 [1, 1, T, context], current_pos int32 [1]. writes: a layer of the function
 * writes the cache. */
struct window_cache_call window_cache_build(const struct window_cache *c, struct mil_builder *b,
                                            const struct window_cache_values *v, int64_t t, bool writes,
                                            struct mil_var *position_ids, struct mil_var *causal_mask,
                                            struct mil_var *current_pos);
/* Puts kv [1, 2 n_kv, T, d] into a slot; the state after that. */
struct mil_var *window_cache_write(const struct window_cache *c, struct mil_builder *b,
                                   const struct window_cache_values *v, const struct window_cache_call *call,
                                   struct mil_var *state, struct mil_var *kv, int64_t slot, const char *name);

#endif
