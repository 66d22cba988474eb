/* The caches of plain decoders.
 *
 * One state for all layers, [2 n, n_kv, context, d]: keys of layer i in slot i, values in slot n + i. A window is a mask.
 *
 * Two states, for layers that slide and for those that do not (has_local_cache), [slots, 2 n_kv, S, d] with keys in the
 * first heads of a layer's slot, values in the others: the caches of the contract (window_cache.h).
 *
 * The same two by name in ANEMLL's form (settings.anemll_rotate): [2 slots, n_kv, S, d], keys in slot i, values in slot
 * slots + i. The local one holds `window` positions. As long as positions are below that, infer and prefill write position p
 * to row p. From there on infer_rotate and prefill_rotate move the rows to the front by as many as a call has tokens, and
 * write at the end: row j holds position e - window + 1 + j, e being the call's last. What a batch moves out its first tokens
 * still see: a batch attends to the rows as they were and to its own behind them. (ANEMLL's prefill_rotate attends to the rows
 * as they become, with later tokens in sight and the oldest keys gone.)
 */
#include <math.h>
#include <stdlib.h>
#include "arch/decoder.h"
#include "format/contract.h"

static bool has_local_cache(const struct arch_model *m)
{
    return m->family->traits->has_local_cache;
}

/* Values behind the keys of all layers, and not beside those of their own. */
static bool is_split(const struct arch_model *m)
{
    return !has_local_cache(m) || m->settings.anemll_rotate;
}

bool decoder_rotates(const struct arch_model *m)
{
    const struct decoder *d = m->own;
    return has_local_cache(m) && m->settings.anemll_rotate && d->n_slots[DECODER_LOCAL] > 0 &&
           m->settings.context_length > d->window;
}

static struct window_cache window_of(const struct arch_model *m)
{
    const struct decoder *d = m->own;
    bool shifts = !is_split(m) && d->n_slots[DECODER_LOCAL] > 0;
    return window_cache_of(&m->settings, d->window, d->sizes.n_kv_heads, d->sizes.head_dim, shifts);
}

static int64_t length_of(const struct arch_model *m, enum decoder_kind kind)
{
    const struct decoder *d = m->own;
    if (kind == DECODER_GLOBAL)
        return m->settings.context_length;
    return decoder_rotates(m) ? d->window : window_of(m).length;
}

static const char *name_of(const struct arch_model *m, enum decoder_kind kind)
{
    return !has_local_cache(m)     ? STATE_KV_CACHE
           : kind == DECODER_LOCAL ? STATE_KV_CACHE_LOCAL
                                   : STATE_KV_CACHE_GLOBAL;
}

static struct arch_state state_of(const struct arch_model *m, enum decoder_kind kind)
{
    const struct decoder *d = m->own;
    int64_t n = d->n_slots[kind], heads = d->sizes.n_kv_heads;
    bool split = is_split(m);
    return (struct arch_state){
        name_of(m, kind),
        4,
        {split ? 2 * n : n, split ? heads : 2 * heads, length_of(m, kind), d->sizes.head_dim}};
}

int decoder_states(const struct arch_model *m, struct arch_state states[DECODER_KINDS])
{
    const struct decoder *d = m->own;
    int n = 0;
    for (int k = 0; k < DECODER_KINDS; k++)
        if (d->n_slots[k] > 0)
            states[n++] = state_of(m, (enum decoder_kind)k);
    return n;
}

/* ---- meta.yaml ---- */

static void fill_state(const struct arch_model *m, enum decoder_kind kind, struct meta_state *s)
{
    const struct decoder *d = m->own;
    struct arch_state state = state_of(m, kind);
    s->name = xstrdup(state.name);
    s->dtype = xstrdup("float16");
    s->rank = state.rank;
    for (int i = 0; i < state.rank; i++)
        s->shape[i] = state.shape[i];
    s->layers = xcalloc((size_t)m->n_layers, sizeof *s->layers);
    for (int64_t i = 0; i < m->n_layers; i++)
        if (d->layers[i].kind == kind)
            s->layers[s->n_layers++] = (int)i;
}

/* Only what the common keys do not say of such a package. */
void decoder_fill_meta(const struct arch_model *m, struct meta *meta)
{
    const struct decoder *d = m->own;
    int64_t n_sliding = 0;
    meta->final_logit_softcap = m->softcap;
    if (m->n_experts > 0) {
        meta->moe_experts = (int)m->n_experts;
        meta->moe_experts_per_token = (int)m->n_chosen;
        meta->moe_evaluation = xstrdup("dense");
    }
    for (int64_t i = 0; i < m->n_layers; i++)
        n_sliding += d->layers[i].is.slides;
    if (n_sliding > 0) {
        meta->local_attention_window = d->window;
        meta->layer_types = xcalloc((size_t)m->n_layers, sizeof *meta->layer_types);
        for (int64_t i = 0; i < m->n_layers; i++)
            meta->layer_types[meta->n_layer_types++] = xstrdup(d->layers[i].is.slides ? "sliding" : "full");
    }
    if (!has_local_cache(m))
        return;
    if (window_of(m).shifts)
        meta->local_cache_length = window_of(m).length;
    if (m->settings.anemll_rotate && d->n_slots[DECODER_LOCAL] > 0)
        meta->sliding_window = d->window;
    meta->states = xcalloc(DECODER_KINDS, sizeof *meta->states);
    for (int k = 0; k < DECODER_KINDS; k++)
        if (d->n_slots[k] > 0)
            fill_state(m, (enum decoder_kind)k, &meta->states[meta->n_states++]);
}

/* ---- graph ---- */

struct decoder_cache_values decoder_cache_values(const struct arch_model *m, bool slides,
                                                 struct mil_model *out)
{
    const struct decoder *d = m->own;
    struct decoder_cache_values v = {0};
    if (!slides)
        return v;
    if (!decoder_rotates(m)) {
        v.window = window_of(m);
        v.masks = window_cache_values(&v.window, out);
        return v;
    }
    int64_t batch = m->settings.batch_size, n = d->window + batch;
    int64_t one[4] = {1, 1, 1, 1}, row[4] = {1, 1, 1, n}, mask[4] = {1, 1, batch, n};
    int32_t *keys = ARENA_ARRAY(out->arena, int32_t, n);
    f16 minus_inf = f64_to_f16(-INFINITY);
    for (int64_t i = 0; i < n; i++)
        keys[i] = (int32_t)i;
    v.keys = mil_value_new(out, MIL_INT32, 4, row, keys);
    v.minus_inf = mil_value_new(out, MIL_FP16, 4, one, &minus_inf);
    v.zeros = mil_value_new(out, MIL_FP16, 4, mask, ARENA_ARRAY(out->arena, f16, mask[2] * mask[3]));
    return v;
}

void decoder_cache_declare(const struct arch_model *m, struct mil_builder *b,
                           const bool has_kind[DECODER_KINDS], struct decoder_cache_call *call,
                           struct mil_var **x)
{
    const struct decoder *d = m->own;
    for (int k = 0; k < DECODER_KINDS; k++) {
        struct arch_state s = state_of(m, (enum decoder_kind)k);
        if (d->n_slots[k] > 0)
            call->state[k] = mil_build_state(b, s.name, MIL_FP16, s.rank, s.shape);
    }
    for (int k = 0; k < DECODER_KINDS; k++)
        if (call->state[k] && !has_kind[k])
            *x = block_touch_state(b, *x, call->state[k]);
}

/* Of a batch behind the window, over the window before it and the batch itself: column c is position first - window + c. */
static struct mil_var *rotated_mask(const struct arch_model *m, struct mil_builder *b,
                                    const struct decoder_cache_values *v, const struct arch_inputs *inputs,
                                    int64_t t)
{
    const struct decoder *d = m->own;
    static const int64_t one[4] = {1, 1, 1, 1};
    int64_t rows[4] = {1, 1, t, 1};
    struct mil_var *window = mil_build_int(b, (int32_t)d->window, NULL);
    struct mil_var *query = block_reshape(b, inputs->position_ids, 4, rows, NULL);
    struct mil_var *outside = block_binary(b, "sub", query, window, NULL);
    struct mil_var *keys = block_binary(b, "sub", inputs->current_pos, window, "local_base");
    keys = block_reshape(b, keys, 4, one, NULL);
    keys = block_binary(b, "add", keys, mil_build_const(b, v->keys, "local_keys"), NULL);
    struct mil_var *ahead = block_binary(b, "greater", keys, query, NULL);
    struct mil_var *behind = block_binary(b, "less_equal", keys, outside, NULL);
    struct mil_var *zeros = mil_build_const(b, v->zeros, "zeros");
    struct mil_var *minus_infinity = mil_build_const(b, v->minus_inf, "minus_infinity");
    struct mil_var *is_hidden = block_binary(b, "logical_or", ahead, behind, NULL);
    return block_select(b, is_hidden, minus_infinity, zeros);
}

void decoder_cache_begin(const struct arch_model *m, struct mil_builder *b,
                         const struct decoder_cache_values *v, const struct arch_inputs *inputs,
                         struct decoder_cache_call *call)
{
    const struct decoder *d = m->own;
    int64_t t = call->n_tokens;
    if (!decoder_rotates(m)) {
        call->window = window_cache_build(&v->window, b, &v->masks, t, v->window.shifts, inputs->position_ids,
                                          inputs->causal_mask, inputs->current_pos);
        call->window_mask = call->window.mask;
        return;
    }
    /* Below the window rows are positions; from there on a single token sees them all, and its row of the mask is zeros. */
    call->window_mask = call->rotates && t > 1
                            ? rotated_mask(m, b, v, inputs, t)
                            : block_slice(b, inputs->causal_mask, 3, 0, d->window, "local_mask");
}

/* Moves a slot's rows by those of the call, which come last. What the call attends to: the slot after that, of a batch the
 * slot before it with the batch behind. */
static struct mil_var *rotate_rows(const struct arch_model *m, struct mil_builder *b,
                                   const struct decoder_cache_call *call, struct mil_var *rows, int64_t slot,
                                   const char *update, const char *name)
{
    const struct decoder *d = m->own;
    int64_t t = call->n_tokens, window = d->window;
    struct mil_var *state = call->state[DECODER_LOCAL], *whole = block_read_state(b, state);
    struct mil_var *parts[2] = {block_slice(b, whole, 0, slot, slot + 1, NULL), rows};
    struct mil_var *all = block_concat(b, parts, 2, 2, t > 1 ? name : NULL);
    struct mil_var *now = block_slice(b, all, 2, t, window + t, NULL);
    const int64_t begin[4] = {slot, 0, 0, 0},
                  end[4] = {slot + 1, d->sizes.n_kv_heads, window, d->sizes.head_dim};
    block_write_region(b, state, whole, now, 4, begin, end, update);
    return t > 1 ? all : block_slice(b, block_read_state(b, state), 0, slot, slot + 1, name);
}

void decoder_cache_write(const struct arch_model *m, struct mil_builder *b, int64_t layer,
                         const struct decoder_cache_values *c, const struct decoder_cache_call *call,
                         struct mil_var *k, struct mil_var *v, struct mil_var **keys, struct mil_var **values)
{
    const struct decoder *d = m->own;
    const struct decoder_layer *l = &d->layers[layer];
    struct mil_var *state = call->state[l->kind], *cache;
    const char *k_name = arch_layer_name(b, layer, "k_cache"), *v_name = arch_layer_name(b, layer, "v_cache");
    if (is_split(m)) {
        const char *k_update = arch_layer_name(b, layer, "k_cache_update"),
                   *v_update = arch_layer_name(b, layer, "v_cache_update");
        int64_t k_slot = l->slot, v_slot = d->n_slots[l->kind] + l->slot;
        if (call->rotates && l->kind == DECODER_LOCAL) {
            *keys = rotate_rows(m, b, call, k, k_slot, k_update, k_name);
            *values = rotate_rows(m, b, call, v, v_slot, v_update, v_name);
            return;
        }
        block_write_rows(b, state, k, k_slot, 0, call->position, false, k_update);
        cache = block_write_rows(b, state, v, v_slot, 0, call->position, true, v_update);
        *keys = block_slice(b, cache, 0, k_slot, k_slot + 1, k_name);
        *values = block_slice(b, cache, 0, v_slot, v_slot + 1, v_name);
        return;
    }
    /* One write for both: two of them with a single key head fail to compile for the Neural Engine. */
    struct mil_var *both[2] = {k, v};
    struct mil_var *kv = block_concat(b, both, 2, 1, arch_layer_name(b, layer, "self_attn_kv"));
    const char *name = arch_layer_name(b, layer, "kv_cache_update");
    int64_t n = d->sizes.n_kv_heads;
    cache = l->kind == DECODER_LOCAL
                ? window_cache_write(&c->window, b, &c->masks, &call->window, state, kv, l->slot, name)
                : block_write_rows(b, state, kv, l->slot, 0, call->position, true, name);
    cache = block_slice(b, cache, 0, l->slot, l->slot + 1, arch_layer_name(b, layer, "kv_cache"));
    *keys = block_slice(b, cache, 1, 0, n, k_name);
    *values = block_slice(b, cache, 1, n, 2 * n, v_name);
}
