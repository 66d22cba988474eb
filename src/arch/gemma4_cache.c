/* Gemma 4: the cache of local layers in the graph, with its masks, at full length or as a window that shifts by
 * blocks. The layout is explained in gemma4.h. */
#include "arch/gemma4.h"
#include <math.h>

bool gemma4_is_windowed(const struct arch_model *m)
{
    const struct gemma4 *g = m->own;
    return g->kinds[GEMMA4_LOCAL].n_slots > 0 &&
           m->settings.context_length > g->window + 2 * m->settings.batch_size;
}

int64_t gemma4_local_length(const struct arch_model *m)
{
    const struct gemma4 *g = m->own;
    return gemma4_is_windowed(m) ? g->window + 2 * m->settings.batch_size : m->settings.context_length;
}

struct gemma4_cache_values gemma4_cache_values(const struct arch_model *m, struct mil_model *out)
{
    const struct gemma4 *g = m->own;
    const struct gemma4_attention *a = &g->kinds[GEMMA4_LOCAL];
    int64_t length = gemma4_local_length(m), one[4] = {1, 1, 1, 1}, row[4] = {1, 1, 1, length};
    int64_t block[4] = {1, 2 * a->n_kv_heads, m->settings.batch_size, a->head_dim};
    struct gemma4_cache_values v = {0};
    int32_t *keys = ARENA_ARRAY(m->arena, int32_t, length);
    f16 minus_inf = f64_to_f16(-INFINITY);
    for (int64_t i = 0; i < length; i++)
        keys[i] = (int32_t)i;
    v.keys = mil_value_new(out, MIL_INT32, 4, row, keys);
    v.minus_inf = mil_value_new(out, MIL_FP16, 4, one, &minus_inf);
    if (gemma4_is_windowed(m)) {
        for (int i = 0; i < 2; i++) {
            int64_t mask[4] = {1, 1, i == 0 ? 1 : m->settings.batch_size, length};
            v.zeros[i] = mil_value_new(out, MIL_FP16, 4, mask, ARENA_ARRAY(m->arena, f16, mask[2] * length));
        }
        v.block = mil_value_new(out, MIL_FP16, 4, block,
                                ARENA_ARRAY(m->arena, f16, block[1] * block[2] * block[3]));
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
static struct mil_var *full_mask(struct mil_builder *b, const struct gemma4_cache_values *v,
                                 struct mil_var *oldest_outside, struct mil_var *causal_mask)
{
    struct mil_var *keys = mil_build_const(b, v->keys, "local_keys");
    struct mil_var *hidden = block_binary(b, "less_equal", keys, oldest_outside, NULL);
    return block_select(b, hidden, mil_build_const(b, v->minus_inf, "minus_infinity"), causal_mask);
}

struct gemma4_cache gemma4_build_cache(const struct arch_model *m, struct mil_builder *b,
                                       const struct gemma4_cache_values *v, int64_t t, bool writes,
                                       struct mil_var *position_ids, struct mil_var *causal_mask,
                                       struct mil_var *current_pos)
{
    const struct gemma4 *g = m->own;
    const struct gemma4_attention *a = &g->kinds[GEMMA4_LOCAL];
    int32_t batch = (int32_t)m->settings.batch_size, length = (int32_t)gemma4_local_length(m);
    static const int64_t one[4] = {1, 1, 1, 1};
    int64_t rows[4] = {1, 1, t, 1};
    struct gemma4_cache c = {.position = current_pos};
    struct mil_var *query = block_reshape(b, position_ids, 4, rows, NULL);
    /* The newest position that a query does not see any more. */
    struct mil_var *outside = block_binary(b, "sub", query, mil_build_int(b, (int32_t)g->window, NULL), NULL);
    if (!gemma4_is_windowed(m)) {
        c.mask = full_mask(b, v, outside, causal_mask);
        return c;
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
    c.mask = block_select(b, hidden, minus_inf, mil_build_const(b, v->zeros[t > 1], "zeros"));
    if (!writes)
        return c;
    c.position = block_binary(b, "sub", current_pos, base, "local_position");
    struct mil_var *behind =
        block_binary(b, "add", c.position, mil_build_ints(b, (int32_t[]){(int32_t)t}, 1, NULL), NULL);
    c.begin = corner(b, 0, 0, c.position, 0);
    c.end = corner(b, 1, (int32_t)(2 * a->n_kv_heads), behind, (int32_t)a->head_dim);
    if (t == 1) {
        struct mil_var *inside = block_binary(b, "mod", current_pos, size, NULL);
        inside = block_binary(b, "equal", inside, mil_build_int(b, 0, NULL), NULL);
        c.enter = block_reshape(b, inside, 4, one, NULL);
    }
    return c;
}

struct mil_var *gemma4_write_local(const struct arch_model *m, struct mil_builder *b,
                                   const struct gemma4_cache_values *v, const struct gemma4_cache *c,
                                   struct mil_var *state, struct mil_var *kv, int64_t slot, const char *name)
{
    const struct gemma4 *g = m->own;
    const struct gemma4_attention *a = &g->kinds[GEMMA4_LOCAL];
    int64_t length = gemma4_local_length(m);
    if (!gemma4_is_windowed(m))
        return block_write_rows(b, state, kv, slot, 0, c->position, true, name);
    struct mil_var *whole = block_read_state(b, state);
    struct mil_var *old = block_slice(b, whole, 0, slot, slot + 1, NULL);
    struct mil_var *parts[2] = {block_slice(b, old, 2, m->settings.batch_size, length, NULL), NULL};
    parts[1] = mil_build_const(b, v->block, "empty_block");
    struct mil_var *now = block_concat(b, parts, 2, 2, NULL);
    if (c->enter)
        now = block_select(b, c->enter, now, old);
    const struct mil_build_arg update[] = {MIL_ARG("x", now), MIL_ARG("update", kv),
                                           MIL_ARG("begin", c->begin), MIL_ARG("end", c->end)};
    now = mil_build_op(b, "slice_update", NULL, update, 4);
    const int64_t begin[4] = {slot, 0, 0, 0}, end[4] = {slot + 1, 2 * a->n_kv_heads, length, a->head_dim};
    block_write_region(b, state, whole, now, 4, begin, end, name);
    return block_read_state(b, state);
}
