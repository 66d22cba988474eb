/* The cache of layers with a sliding window in the graph, at full length or as a window that shifts by blocks. The
 * layout is explained in window_cache.h. */
#include "arch/window_cache.h"
#include <math.h>

struct window_cache window_cache_of(const struct arch_settings *s, int64_t window, int64_t n_kv_heads,
                                    int64_t head_dim, bool has_slots)
{
    int64_t shifting_length = window + 2 * s->batch_size;
    struct window_cache c = {
        .window = window, .n_kv_heads = n_kv_heads, .head_dim = head_dim, .batch_size = s->batch_size};
    c.shifts = has_slots && s->context_length > shifting_length;
    c.length = c.shifts ? shifting_length : s->context_length;
    return c;
}

struct window_cache_values window_cache_values(const struct window_cache *c, struct mil_model *out)
{
    int64_t length = c->length, one[4] = {1, 1, 1, 1}, row[4] = {1, 1, 1, length};
    int64_t block[4] = {1, 2 * c->n_kv_heads, c->batch_size, c->head_dim};
    struct window_cache_values v = {0};
    int32_t *keys = ARENA_ARRAY(out->arena, int32_t, length);
    f16 minus_inf = f64_to_f16(-INFINITY);
    for (int64_t i = 0; i < length; i++)
        keys[i] = (int32_t)i;
    v.keys = mil_value_new(out, MIL_INT32, 4, row, keys);
    v.minus_inf = mil_value_new(out, MIL_FP16, 4, one, &minus_inf);
    if (c->shifts) {
        for (int i = 0; i < 2; i++) {
            int64_t mask[4] = {1, 1, i == 0 ? 1 : c->batch_size, length};
            v.zeros[i] =
                mil_value_new(out, MIL_FP16, 4, mask, ARENA_ARRAY(out->arena, f16, mask[2] * length));
        }
        v.block = mil_value_new(out, MIL_FP16, 4, block,
                                ARENA_ARRAY(out->arena, f16, block[1] * block[2] * block[3]));
    }
    return v;
}

/* int32 [4]: one corner of the region in a slot */
static struct mil_var *corner(struct mil_builder *b, int32_t slot, int32_t head, struct mil_var *position,
                              int32_t dim)
{
    struct mil_var *parts[3] = {NULL, position, NULL};
    parts[0] = mil_build_ints(b, (int32_t[]){slot, head}, 2, NULL);
    parts[2] = mil_build_ints(b, &dim, 1, NULL);
    return block_concat(b, parts, 3, 0, NULL);
}

/* Full length: what the causal mask allows, but for keys that have left the window. */
static struct mil_var *full_mask(struct mil_builder *b, const struct window_cache_values *v,
                                 struct mil_var *oldest_outside, struct mil_var *causal_mask)
{
    struct mil_var *keys = mil_build_const(b, v->keys, "local_keys");
    struct mil_var *hidden = block_binary(b, "less_equal", keys, oldest_outside, NULL);
    return block_select(b, hidden, mil_build_const(b, v->minus_inf, "minus_infinity"), causal_mask);
}

struct window_cache_call window_cache_build(const struct window_cache *c, struct mil_builder *b,
                                            const struct window_cache_values *v, int64_t t, bool writes,
                                            struct mil_var *position_ids, struct mil_var *causal_mask,
                                            struct mil_var *current_pos)
{
    int32_t batch = (int32_t)c->batch_size, length = (int32_t)c->length;
    static const int64_t one[4] = {1, 1, 1, 1};
    int64_t rows[4] = {1, 1, t, 1};
    struct window_cache_call call = {.position = current_pos};
    struct mil_var *query = block_reshape(b, position_ids, 4, rows, NULL);
    /* The newest position that a query does not see any more. */
    struct mil_var *outside = block_binary(b, "sub", query, mil_build_int(b, (int32_t)c->window, NULL), NULL);
    if (!c->shifts) {
        call.mask = full_mask(b, v, outside, causal_mask);
        return call;
    }
    struct mil_var *size = mil_build_int(b, batch, NULL), *unit = mil_build_int(b, 1, NULL);
    struct mil_var *last = block_binary(b, "add", current_pos, mil_build_int(b, (int32_t)t - 1, NULL), NULL);
    struct mil_var *n_blocks =
        block_binary(b, "add", block_binary(b, "floor_div", last, size, NULL), unit, NULL);
    struct mil_var *blocks_end = block_binary(b, "mul", n_blocks, size, NULL);
    struct mil_var *base = block_binary(b, "sub", blocks_end, mil_build_int(b, length, NULL), "local_base");
    struct mil_var *keys = block_reshape(b, base, 4, one, NULL);
    keys = block_binary(b, "add", keys, mil_build_const(b, v->keys, "local_keys"), NULL);
    outside = block_binary(b, "maximum", outside, mil_build_int(b, -1, NULL), NULL);
    struct mil_var *ahead = block_binary(b, "greater", keys, query, NULL);
    struct mil_var *behind_window = block_binary(b, "less_equal", keys, outside, NULL);
    struct mil_var *hidden = block_binary(b, "logical_or", ahead, behind_window, NULL);
    struct mil_var *minus_inf = mil_build_const(b, v->minus_inf, "minus_infinity");
    call.mask = block_select(b, hidden, minus_inf, mil_build_const(b, v->zeros[t > 1], "zeros"));
    if (!writes)
        return call;
    call.position = block_binary(b, "sub", current_pos, base, "local_position");
    struct mil_var *behind =
        block_binary(b, "add", call.position, mil_build_ints(b, (int32_t[]){(int32_t)t}, 1, NULL), NULL);
    call.begin = corner(b, 0, 0, call.position, 0);
    call.end = corner(b, 1, (int32_t)(2 * c->n_kv_heads), behind, (int32_t)c->head_dim);
    if (t == 1) {
        struct mil_var *inside = block_binary(b, "mod", current_pos, size, NULL);
        inside = block_binary(b, "equal", inside, mil_build_int(b, 0, NULL), NULL);
        call.enter = block_reshape(b, inside, 4, one, NULL);
    }
    return call;
}

struct mil_var *window_cache_write(const struct window_cache *c, struct mil_builder *b,
                                   const struct window_cache_values *v, const struct window_cache_call *call,
                                   struct mil_var *state, struct mil_var *kv, int64_t slot, const char *name)
{
    int64_t length = c->length;
    if (!c->shifts)
        return block_write_rows(b, state, kv, slot, 0, call->position, true, name);
    struct mil_var *whole = block_read_state(b, state);
    struct mil_var *old = block_slice(b, whole, 0, slot, slot + 1, NULL);
    struct mil_var *parts[2] = {block_slice(b, old, 2, c->batch_size, length, NULL), NULL};
    parts[1] = mil_build_const(b, v->block, "empty_block");
    struct mil_var *now = block_concat(b, parts, 2, 2, NULL);
    if (call->enter)
        now = block_select(b, call->enter, now, old);
    const struct mil_build_arg update[] = {MIL_ARG("x", now), MIL_ARG("update", kv),
                                           MIL_ARG("begin", call->begin), MIL_ARG("end", call->end)};
    now = mil_build_op(b, "slice_update", NULL, update, 4);
    const int64_t begin[4] = {slot, 0, 0, 0}, end[4] = {slot + 1, 2 * c->n_kv_heads, length, c->head_dim};
    block_write_region(b, state, whole, now, 4, begin, end, name);
    return block_read_state(b, state);
}
