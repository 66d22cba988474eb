/* The call sequence of the contract (checklist 73 to 79 for plain transformers). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/session_int.h"

static bool lane_open(struct session *s, struct lane *l, bool prefill, struct err *e)
{
    struct model *m = s->model;
    int n_threads = pool_threads(m->pool);
    const struct engine_plan *embed = prefill ? m->embeddings.prefill : m->embeddings.infer;
    l->n_tokens = prefill ? m->batch_size : 1;
    l->mask_position = -1;
    l->chunks = xcalloc((size_t)m->n_chunks, sizeof *l->chunks);
    l->positions = xcalloc((size_t)l->n_tokens, sizeof *l->positions);
    l->current_pos = xcalloc(1, sizeof *l->current_pos);
    size_t mask_bytes;
    if (!size_mul((size_t)l->n_tokens, (size_t)m->mask_length * sizeof(float), &mask_bytes))
        return err_set(e, ERR_LIMIT, "a mask of %lld x %lld", (long long)l->n_tokens,
                       (long long)m->mask_length);
    if (!(l->mask = mem_try_alloc(mask_bytes, e)) || !engine_run_new(&l->embeddings, embed, n_threads, e))
        return false;
    l->ids = engine_input(l->embeddings, engine_plan_find_input(embed, "input_ids"));
    const void *hidden = l->hidden =
        engine_output(l->embeddings, engine_plan_find_output(embed, "hidden_states"));
    const void *per_layer =
        m->per_layer_width > 0
            ? engine_output(l->embeddings, engine_plan_find_output(embed, "per_layer_inputs"))
            : NULL;
    for (int i = 0; i < m->n_chunks; i++) {
        const struct engine_plan *p = prefill ? m->chunks[i].prefill : m->chunks[i].infer;
        if (!engine_run_new(&l->chunks[i], p, n_threads, e) || !engine_state_add(s->state, p, e))
            return false;
        struct engine_run *r = l->chunks[i];
        engine_bind_input(r, engine_plan_find_input(p, "hidden_states"), hidden);
        if (per_layer && engine_plan_find_input(p, "per_layer_inputs") >= 0)
            engine_bind_input(r, engine_plan_find_input(p, "per_layer_inputs"), per_layer);
        engine_bind_input(r, engine_plan_find_input(p, "position_ids"), l->positions);
        engine_bind_input(r, engine_plan_find_input(p, "causal_mask"), l->mask);
        engine_bind_input(r, engine_plan_find_input(p, "current_pos"), l->current_pos);
        l->i_last_output = engine_plan_find_output(p, "output_hidden_states");
        hidden = engine_output(r, l->i_last_output);
    }
    return true;
}

static void lane_close(struct lane *l, int n_chunks)
{
    for (int i = 0; l->chunks && i < n_chunks; i++)
        engine_run_free(l->chunks[i]);
    free(l->chunks);
    engine_run_free(l->embeddings);
    free(l->positions);
    free(l->current_pos);
    mem_free(l->mask);
}

bool session_new(struct session **out, struct model *m, struct err *e)
{
    struct session *s = xcalloc(1, sizeof *s);
    bool ok = false;
    *out = NULL;
    s->model = m;
    s->snapshot_bytes_max = (uint64_t)256 << 20;
    s->snapshot_tokens = 256;
    s->state = engine_state_new();
    s->tokens = xcalloc((size_t)m->context_length, sizeof *s->tokens);
    s->logits = xcalloc((size_t)m->vocab_size, sizeof *s->logits);
    if (!lane_open(s, &s->infer, false, e) || (m->has_prefill && !lane_open(s, &s->prefill, true, e)) ||
        !engine_run_new(&s->head, m->head.infer, pool_threads(m->pool), e))
        goto done;
    s->i_head_input = engine_plan_find_input(m->head.infer, "hidden_states");
    *out = s;
    s = NULL;
    ok = true;
done:
    session_free(s);
    return ok;
}

void session_free(struct session *s)
{
    if (!s)
        return;
    lane_close(&s->infer, s->model->n_chunks);
    lane_close(&s->prefill, s->model->n_chunks);
    engine_run_free(s->head);
    snapshot_drop_all(s);
    engine_state_free(s->state);
    free(s->tokens);
    free(s->logits);
    free(s);
}

void session_reset(struct session *s)
{
    engine_state_clear(s->state);
    s->n = 0;
    s->has_logits = false;
    snapshot_drop_all(s);
}

void session_limit_snapshots(struct session *s, uint64_t bytes, int64_t every_tokens)
{
    s->snapshot_bytes_max = bytes;
    s->snapshot_tokens = every_tokens;
    snapshot_make_room(s, 0);
}

int64_t session_position(const struct session *s)
{
    return s->n;
}

const float *session_logits(const struct session *s)
{
    return s->logits;
}

struct engine_state *session_state(struct session *s)
{
    return s->state;
}

void session_watch(struct session *s, session_watch_fn fn, void *context)
{
    s->watch = fn;
    s->watch_context = context;
}

/* Rows position .. position + n_tokens - 1 of the causal mask; moving forward only opens further columns. */
static void fill_mask(struct lane *l, int64_t length, int64_t position)
{
    bool forward = l->mask_position >= 0 && position >= l->mask_position;
    for (int64_t t = 0; t < l->n_tokens; t++) {
        float *row = l->mask + t * length;
        int64_t from = forward ? l->mask_position + t + 1 : 0;
        for (int64_t i = from; i <= position + t && i < length; i++)
            row[i] = 0;
        if (!forward)
            for (int64_t i = position + t + 1; i < length; i++)
                row[i] = -INFINITY;
    }
    l->mask_position = position;
}

static void show_rows(const struct session *s, const struct lane *l)
{
    const struct model *m = s->model;
    bool prefill = l == &s->prefill;
    s->watch(s->watch_context, -1, s->n, l->n_tokens, l->hidden);
    for (int i = 0; i < m->n_chunks; i++)
        for (int k = 0; k < m->chunks[i].n_watches; k++) {
            const struct model_watch *w = &m->chunks[i].watches[k];
            s->watch(s->watch_context, w->layer, s->n, l->n_tokens,
                     engine_output(l->chunks[i], prefill ? w->i_prefill : w->i_infer));
        }
    if (!prefill || m->package->meta->prefill_last_token_output)
        s->watch(s->watch_context, SESSION_FINAL_NORM, s->n + l->n_tokens - 1, 1,
                 engine_output(l->chunks[m->n_chunks - 1], l->i_last_output));
}

/* After a chunk has failed the states of those before it have moved on, and perhaps a part of its own. Rows of plain
 * caches are written again; other states go back to where they are known. Snapshots of later positions count on rows that
 * the call may have overwritten. */
static bool lane_failed(struct session *s, int i_chunk, struct err *e)
{
    int64_t n = s->n;
    snapshot_drop_after(s, n);
    if (s->model->is_sequential && !snapshot_restore(s, 0, n, false))
        session_reset(s);
    return err_wrap(e, "chunk %d at position %lld", i_chunk + 1, (long long)n);
}

/* One call: n_tokens at the current position through embeddings and chunks. */
static bool lane_call(struct session *s, struct lane *l, const int32_t *tokens, struct err *e)
{
    struct model *m = s->model;
    memcpy(l->ids, tokens, sizeof *tokens * (size_t)l->n_tokens);
    for (int64_t t = 0; t < l->n_tokens; t++)
        l->positions[t] = (int32_t)(s->n + t);
    l->current_pos[0] = (int32_t)s->n;
    fill_mask(l, m->mask_length, s->n);
    if (!engine_execute(l->embeddings, NULL, m->pool, e))
        return err_wrap(e, "tokens at position %lld", (long long)s->n);
    for (int i = 0; i < m->n_chunks; i++)
        if (!engine_execute(l->chunks[i], s->state, m->pool, e))
            return lane_failed(s, i, e);
    if (s->watch)
        show_rows(s, l);
    if (memcmp(s->tokens + s->n, tokens, sizeof *tokens * (size_t)l->n_tokens) != 0)
        snapshot_drop_after(s, s->n);
    memcpy(s->tokens + s->n, tokens, sizeof *tokens * (size_t)l->n_tokens);
    s->n += l->n_tokens;
    s->has_logits = false;
    return true;
}

/* The head on the last chunk's output of the newest call: the final-normed state of the last token. */
static bool run_head(struct session *s, const struct lane *l, struct err *e)
{
    struct model *m = s->model;
    const struct engine_plan *p = m->head.infer;
    engine_bind_input(s->head, s->i_head_input, engine_output(l->chunks[m->n_chunks - 1], l->i_last_output));
    if (!engine_execute(s->head, NULL, m->pool, e))
        return err_wrap(e, "LM head");
    float *at = s->logits;
    for (int i = 0; i < m->n_logits; i++) {
        int64_t n = engine_plan_output(p, m->logits_output[i])->n_elems;
        engine_round_output(s->head, m->logits_output[i]);
        memcpy(at, engine_output(s->head, m->logits_output[i]), sizeof *at * (size_t)n);
        at += n;
    }
    s->has_logits = true;
    return true;
}

bool session_feed(struct session *s, const int32_t *tokens, size_t n, enum session_mode mode,
                  session_logits_fn on_logits, void *context, struct progress *progress, struct err *e)
{
    struct model *m = s->model;
    const struct meta *meta = m->package->meta;
    int64_t start = s->n, left = (int64_t)n;
    if (n > (size_t)(m->context_length - s->n))
        return err_set(e, ERR_LIMIT,
                       "%lld tokens do not fit: the context holds %lld, of which %lld are in use",
                       (long long)n, (long long)m->context_length, (long long)s->n);
    /* Packages whose prefill does not return the last token's final row: the last token goes through infer, after the
     * batch that already holds it; writing its keys again changes nothing. Where a position must not be processed
     * twice, the last batch goes through infer as a whole. */
    bool last_output = meta->prefill_last_token_output;
    int64_t batch_min = m->batch_size + (m->is_sequential && !last_output);
    while (left > 0) {
        bool batch = mode == SESSION_CONTRACT && m->has_prefill && left >= batch_min;
        struct lane *l = batch ? &s->prefill : &s->infer;
        const int32_t *at = tokens + (s->n - start);
        if (progress && log_cancelled(progress->log, e))
            return false;
        if (!lane_call(s, l, at, e))
            return false;
        left -= l->n_tokens;
        bool wanted = (on_logits && !(batch && m->is_sequential && !last_output)) || left == 0;
        if (batch && wanted && !last_output) {
            s->n--;
            if (!lane_call(s, &s->infer, at + l->n_tokens - 1, e))
                return false;
            l = &s->infer;
        }
        if (wanted && !run_head(s, l, e))
            return false;
        if (on_logits && wanted && !on_logits(context, s->n - 1, s->logits, e))
            return false;
        if (m->is_sequential && s->snapshot_tokens > 0 &&
            s->n / s->snapshot_tokens > (s->n - l->n_tokens) / s->snapshot_tokens)
            snapshot_take(s);
        if (progress)
            progress_update(progress, (double)((int64_t)n - left), NULL);
    }
    return true;
}

/* Brings a package that can't be rewound to the longest known prefix of the tokens: where it is, or a snapshot. The
 * first `same` tokens are those of the timeline; where it `parts` there, a snapshot is made at that place, because
 * the next prompt probably parts there too. */
static bool sync_sequential(struct session *s, const int32_t *tokens, size_t same, size_t n, bool parts,
                            size_t *kept, struct progress *progress, struct err *e)
{
    bool usable = (size_t)s->n <= same && ((size_t)s->n < n || s->has_logits);
    if (!snapshot_restore(s, usable ? s->n : 0, (int64_t)same, same == n) && !usable)
        session_reset(s);
    *kept = (size_t)s->n;
    if ((size_t)s->n < same && same < n && parts) {
        if (!session_feed(s, tokens + s->n, same - (size_t)s->n, SESSION_CONTRACT, NULL, NULL, progress, e))
            return false;
        snapshot_take(s);
    }
    return true;
}

bool session_sync(struct session *s, const int32_t *tokens, size_t n, struct progress *progress,
                  size_t *reused, struct err *e)
{
    size_t same = 0, kept, known = (size_t)s->n;
    if (n < 1)
        return err_set(e, ERR_USAGE, "an empty token sequence has no logits");
    if (n > (size_t)s->model->context_length)
        return err_set(e, ERR_LIMIT, "%zu tokens do not fit: the context holds %lld", n,
                       (long long)s->model->context_length);
    for (const struct snapshot *p = s->snapshots; p; p = p->next)
        known = (size_t)p->n > known ? (size_t)p->n : known;
    while (same < n && same < known && s->tokens[same] == tokens[same])
        same++;
    if (s->model->is_sequential) {
        if (!sync_sequential(s, tokens, same, n, same < known, &kept, progress, e))
            return false;
    } else {
        kept = same;
        if (same < (size_t)s->n || (same == n && !s->has_logits)) {
            /* what lies behind is masked until it is written again; the last token runs again for its logits */
            kept = same == n ? n - 1 : same;
            s->n = (int64_t)kept;
            s->has_logits = false;
        }
    }
    if (reused)
        *reused = kept;
    if ((size_t)s->n < n &&
        !session_feed(s, tokens + s->n, n - (size_t)s->n, SESSION_CONTRACT, NULL, NULL, progress, e))
        return false;
    if (s->model->is_sequential)
        snapshot_take(s);
    return true;
}

void session_measure(struct session *s)
{
    struct lane *lanes[2] = {&s->infer, &s->prefill};
    for (int k = 0; k < (s->model->has_prefill ? 2 : 1); k++) {
        engine_run_measure(lanes[k]->embeddings, true);
        for (int i = 0; i < s->model->n_chunks; i++)
            engine_run_measure(lanes[k]->chunks[i], true);
    }
    engine_run_measure(s->head, true);
}

void session_print_plans(const struct session *s, FILE *out, bool prefill)
{
    const struct model *m = s->model;
    const struct lane *l = prefill ? &s->prefill : &s->infer;
    fprintf(out, "embeddings, %lld token%s: ", (long long)l->n_tokens, l->n_tokens == 1 ? "" : "s");
    engine_plan_print(prefill ? m->embeddings.prefill : m->embeddings.infer, l->embeddings, out);
    for (int i = 0; i < m->n_chunks; i++) {
        fprintf(out, "chunk %d of %d, ", i + 1, m->n_chunks);
        engine_plan_print(prefill ? m->chunks[i].prefill : m->chunks[i].infer, l->chunks[i], out);
    }
    fprintf(out, "LM head, ");
    engine_plan_print(m->head.infer, s->head, out);
}
