/* The call sequence of the contract. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "runtime/session_int.h"

static bool open_run(const struct session *s, struct backend_run **out, const struct backend_function *f,
                     struct err *e)
{
    return s->model->backend->run_open(out, f, s->model->pool, &s->stop, e);
}

/* The buffers of a call: the lane's, and what the part before gives. */
static void bind_inputs(const struct session *s, struct lane *l, struct backend_run *run,
                        const struct backend_function *p, const void *hidden, const void *per_layer)
{
    const struct model *m = s->model;
    const struct {
        const char *name;
        const void *data;
    } inputs[] = {{m->is_monolithic ? PORT_INPUT_IDS : PORT_HIDDEN_STATES, hidden},
                  {PORT_PER_LAYER_INPUTS, per_layer},
                  {PORT_POSITION_IDS, l->positions},
                  {PORT_CAUSAL_MASK, l->mask},
                  {PORT_CURRENT_POS, l->current_pos},
                  {PORT_UPDATE_MASK, l->update_mask}};
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++) {
        int at = backend_find_input(p, inputs[k].name);
        if (inputs[k].data && at >= 0)
            m->backend->run_bind_input(run, at, inputs[k].data);
    }
}

/* A function's runs of all chunks on the lane's buffers. first, per_layer: rows of the embeddings, or the ids. */
static bool runs_open(struct session *s, struct lane *l, struct lane_runs *r, enum model_function f,
                      const void *first, const void *per_layer, struct err *e)
{
    struct model *m = s->model;
    const struct backend *b = m->backend;
    const void *hidden = first;
    r->i_last_output = -1;
    if (!m->chunks[0].functions[f])
        return true;
    r->chunks = xcalloc((size_t)m->n_chunks, sizeof *r->chunks);
    for (int i = 0; i < m->n_chunks; i++) {
        const struct backend_function *p = m->chunks[i].functions[f];
        if (!open_run(s, &r->chunks[i], p, e) || !b->states_add(s->states, p, e))
            return false;
        struct backend_run *run = r->chunks[i];
        bind_inputs(s, l, run, p, hidden, per_layer);
        if (m->is_monolithic)
            continue;
        r->i_last_output = backend_find_output(p, PORT_OUTPUT_HIDDEN_STATES);
        hidden = b->run_output(run, r->i_last_output);
    }
    return true;
}

static bool takes_update_mask(const struct model *m, enum model_function f)
{
    for (int i = 0; i < m->n_chunks; i++)
        if (m->chunks[i].functions[f] && backend_find_input(m->chunks[i].functions[f], PORT_UPDATE_MASK) >= 0)
            return true;
    return false;
}

static bool lane_open(struct session *s, struct lane *l, bool prefill, struct err *e)
{
    struct model *m = s->model;
    const struct backend *b = m->backend;
    enum model_function plain = prefill ? MODEL_PREFILL : MODEL_INFER,
                        rotating = prefill ? MODEL_PREFILL_ROTATE : MODEL_INFER_ROTATE;
    const void *per_layer = NULL;
    size_t mask_bytes;
    l->n_tokens = prefill ? m->batch_size : 1;
    l->mask_position = l->update_position = -1;
    l->positions = xcalloc((size_t)l->n_tokens, sizeof *l->positions);
    l->current_pos = xcalloc(1, sizeof *l->current_pos);
    if (!size_mul((size_t)l->n_tokens, (size_t)m->mask_length * sizeof(float), &mask_bytes))
        return err_set(e, ERR_LIMIT, "a mask of %lld x %lld", (long long)l->n_tokens,
                       (long long)m->mask_length);
    if (!(l->mask = mem_try_alloc(mask_bytes, e)))
        return false;
    if (takes_update_mask(m, plain) || takes_update_mask(m, rotating)) {
        if (!(l->update_mask = mem_try_alloc(mask_bytes, e)))
            return false;
        memset(l->update_mask, 0, mask_bytes);
    }
    if (m->is_monolithic) {
        l->ids = xcalloc((size_t)l->n_tokens, sizeof *l->ids);
    } else {
        const struct backend_function *embed = m->embeddings.functions[plain];
        if (!open_run(s, &l->embeddings, embed, e))
            return false;
        l->ids = b->run_input(l->embeddings, backend_find_input(embed, PORT_INPUT_IDS));
        l->hidden = b->run_output(l->embeddings, backend_find_output(embed, PORT_HIDDEN_STATES));
        if (m->per_layer_width > 0)
            per_layer = b->run_output(l->embeddings, backend_find_output(embed, PORT_PER_LAYER_INPUTS));
    }
    const void *first = m->is_monolithic ? (const void *)l->ids : l->hidden;
    return runs_open(s, l, &l->plain, plain, first, per_layer, e) &&
           runs_open(s, l, &l->rotating, rotating, first, per_layer, e);
}

/* Runs of the functions of batch_rows.h on the prefill's buffers. */
static bool all_rows_make(struct session *s, struct err *e)
{
    const struct model *m = s->model;
    const struct backend *b = m->backend;
    struct lane *l = &s->prefill;
    int n = m->n_chunks;
    const void *hidden = l->hidden, *per_layer = NULL;
    if (!batch_rows_open(&s->rows, m, e))
        return false;
    if (!s->rows)
        return true;
    s->all_rows = (struct lane_runs){.chunks = xcalloc((size_t)n, sizeof *s->all_rows.chunks),
                                     .i_last_output = s->rows->i_batch_output};
    for (int i = 0; i + 1 < n; i++) {
        s->all_rows.chunks[i] = l->plain.chunks[i];
        hidden = b->run_output(l->plain.chunks[i],
                               backend_find_output(l->plain.chunks[i]->function, PORT_OUTPUT_HIDDEN_STATES));
    }
    if (m->per_layer_width > 0)
        per_layer =
            b->run_output(l->embeddings, backend_find_output(l->embeddings->function, PORT_PER_LAYER_INPUTS));
    size_t bytes = sizeof(float) * (size_t)m->batch_size * (size_t)m->hidden_size;
    if (!open_run(s, &s->all_rows.chunks[n - 1], s->rows->batch, e) ||
        !b->states_add(s->states, s->rows->batch, e) || !open_run(s, &s->row_norm, s->rows->final, e) ||
        (s->rows->head && !open_run(s, &s->row_head, s->rows->head, e)) ||
        !(s->normed = mem_try_alloc(bytes, e)))
        return false;
    bind_inputs(s, l, s->all_rows.chunks[n - 1], s->rows->batch, hidden, per_layer);
    if (s->row_head)
        b->run_bind_input(s->row_head, 0, s->normed);
    return true;
}

static void all_rows_close(struct session *s)
{
    const struct backend *b = s->model->backend;
    if (s->all_rows.chunks)
        b->run_close(s->all_rows.chunks[s->model->n_chunks - 1]);
    free(s->all_rows.chunks);
    b->run_close(s->row_norm);
    b->run_close(s->row_head);
    mem_free(s->normed);
    batch_rows_close(s->rows, s->model);
    s->all_rows = (struct lane_runs){0};
    s->row_norm = s->row_head = NULL;
    s->normed = NULL;
    s->rows = NULL;
}

static bool all_rows_open(struct session *s, struct err *e)
{
    if (s->asked_for_rows)
        return true;
    if (!all_rows_make(s, e)) {
        all_rows_close(s);
        return false;
    }
    s->asked_for_rows = true;
    return true;
}

static void lane_close(const struct model *m, struct lane *l)
{
    struct lane_runs *runs[2] = {&l->plain, &l->rotating};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; runs[k]->chunks && i < m->n_chunks; i++)
            m->backend->run_close(runs[k]->chunks[i]);
        free(runs[k]->chunks);
    }
    if (!l->embeddings)
        free(l->ids);
    m->backend->run_close(l->embeddings);
    free(l->positions);
    free(l->current_pos);
    mem_free(l->mask);
    mem_free(l->update_mask);
}

bool session_new(struct session **out, struct model *m, struct err *e)
{
    struct session *s = xcalloc(1, sizeof *s);
    bool ok = false;
    *out = NULL;
    s->model = m;
    s->stop = m->stop;
    s->snapshot_bytes_max = (uint64_t)256 << 20;
    s->snapshot_tokens = 256;
    s->states = m->backend->states_new(m->shared);
    s->tokens = xcalloc((size_t)m->context_length, sizeof *s->tokens);
    s->logits = xcalloc((size_t)m->vocab_size, sizeof *s->logits);
    if (!lane_open(s, &s->infer, false, e) || (m->has_prefill && !lane_open(s, &s->prefill, true, e)))
        goto done;
    if (!m->is_monolithic) {
        if (!open_run(s, &s->head, m->head.functions[MODEL_INFER], e))
            goto done;
        s->i_head_input = backend_find_input(m->head.functions[MODEL_INFER], PORT_HIDDEN_STATES);
    }
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
    all_rows_close(s);
    lane_close(s->model, &s->infer);
    lane_close(s->model, &s->prefill);
    s->model->backend->run_close(s->head);
    snapshot_drop_all(s);
    s->model->backend->states_free(s->states);
    free(s->tokens);
    free(s->logits);
    free(s);
}

void session_set_stop(struct session *s, const atomic_int *flag, const atomic_int *also)
{
    s->stop.flag = flag;
    s->stop.also = also;
}

void session_reset(struct session *s)
{
    s->model->backend->states_clear(s->states);
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

const int32_t *session_tokens(const struct session *s)
{
    return s->tokens;
}

bool session_has_logits(const struct session *s)
{
    return s->has_logits;
}

const float *session_logits(const struct session *s)
{
    return s->logits;
}

const struct backend_states *session_states(const struct session *s)
{
    return s->states;
}

const struct backend_state *session_find_state(const struct session *s, const char *name)
{
    int i = backend_find_state(s->states, name);
    return i < 0 ? NULL : &s->states->list[i];
}

void session_read_state(const struct session *s, const struct backend_state *state, f16 *dst)
{
    s->model->backend->state_get(s->states, (int)(state - s->states->list), dst);
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

/* Column i of the update mask marks the row that token i's key and value go to. */
static void fill_update_mask(struct lane *l, int64_t length, int64_t position)
{
    int64_t first = l->update_position;
    for (int64_t t = 0; first >= 0 && t < l->n_tokens && first + t < length; t++)
        l->update_mask[(first + t) * l->n_tokens + t] = 0;
    for (int64_t t = 0; t < l->n_tokens && position + t < length; t++)
        l->update_mask[(position + t) * l->n_tokens + t] = 1;
    l->update_position = position;
}

static void show_rows(const struct session *s, const struct lane *l)
{
    const struct model *m = s->model;
    bool prefill = l == &s->prefill, rotating = l->newest == &l->rotating;
    enum model_function f = prefill ? (rotating ? MODEL_PREFILL_ROTATE : MODEL_PREFILL)
                                    : (rotating ? MODEL_INFER_ROTATE : MODEL_INFER);
    if (m->is_monolithic)
        return;
    s->watch(s->watch_context, -1, s->n, l->n_tokens, l->hidden);
    for (int i = 0; i < m->n_chunks; i++)
        for (int k = 0; k < m->chunks[i].n_watches; k++) {
            const struct model_watch *w = &m->chunks[i].watches[k];
            s->watch(s->watch_context, w->layer, s->n, l->n_tokens,
                     m->backend->run_output(l->newest->chunks[i], w->outputs[f]));
        }
    if (!prefill || m->prefill_gives_last)
        s->watch(s->watch_context, SESSION_FINAL_NORM, s->n + l->n_tokens - 1, 1,
                 m->backend->run_output(l->newest->chunks[m->n_chunks - 1], l->newest->i_last_output));
}

/* After a chunk has failed the states of those before it have moved on, and perhaps a part of its own. Rows of plain
 * caches are written again; other states go back to where they are known. Snapshots of later positions count on rows that
 * the call may have overwritten. */
bool session_chunk_failed(struct session *s, int i_chunk, struct err *e)
{
    int64_t n = s->n;
    snapshot_drop_after(s, n);
    if (n >= s->model->once_from && !snapshot_restore(s, 0, n, false))
        session_reset(s);
    return err_wrap(e, "chunk %d at position %lld", i_chunk + 1, (long long)n);
}

void session_fill_lane(struct session *s, struct lane *l, const int32_t *tokens)
{
    const struct model *m = s->model;
    memcpy(l->ids, tokens, sizeof *tokens * (size_t)l->n_tokens);
    for (int64_t t = 0; t < l->n_tokens; t++)
        l->positions[t] = (int32_t)(s->n + t);
    l->current_pos[0] = (int32_t)s->n;
    l->newest = s->n >= m->rotate_from ? &l->rotating : &l->plain;
    fill_mask(l, m->mask_length, s->n);
    if (l->update_mask)
        fill_update_mask(l, m->mask_length, s->n);
}

void session_advance(struct session *s, const struct lane *l, const int32_t *tokens)
{
    if (memcmp(s->tokens + s->n, tokens, sizeof *tokens * (size_t)l->n_tokens) != 0)
        snapshot_drop_after(s, s->n);
    memcpy(s->tokens + s->n, tokens, sizeof *tokens * (size_t)l->n_tokens);
    s->n += l->n_tokens;
    s->has_logits = false;
}

/* One call: n_tokens at the current position through embeddings and chunks. */
static bool lane_call(struct session *s, struct lane *l, const int32_t *tokens, bool with_rows, struct err *e)
{
    struct model *m = s->model;
    session_fill_lane(s, l, tokens);
    if (with_rows)
        l->newest = &s->all_rows;
    if (l->embeddings && !m->backend->run_execute(l->embeddings, NULL, e))
        return err_wrap(e, "tokens at position %lld", (long long)s->n);
    for (int i = 0; i < m->n_chunks; i++)
        if (!m->backend->run_execute(l->newest->chunks[i], s->states, e))
            return session_chunk_failed(s, i, e);
    if (s->watch)
        show_rows(s, l);
    session_advance(s, l, tokens);
    return true;
}

/* The best token of each part of the vocabulary keeps its value; of the others nothing is known. */
static bool take_best(struct session *s, struct backend_run *run, const struct model_logits *from,
                      struct err *e)
{
    const struct model *m = s->model;
    m->backend->run_round_output(run, from->value);
    const int32_t *index = m->backend->run_output(run, from->index);
    const float *value = m->backend->run_output(run, from->value);
    for (int64_t i = 0; i < m->vocab_size; i++)
        s->logits[i] = -INFINITY;
    for (int k = 0; k < m->n_logits; k++) {
        int64_t size = m->part_begin[k + 1] - m->part_begin[k];
        if (index[k] < 0 || index[k] >= size)
            return err_set(e, ERR_FORMAT,
                           "argmax_idx[%d]: expected an index below %lld, the size of that part of the "
                           "vocabulary, found %d",
                           k, (long long)size, (int)index[k]);
        s->logits[m->part_begin[k] + index[k]] = value[k];
    }
    return true;
}

bool session_take_logits(struct session *s, struct backend_run *run, bool rotating, struct err *e)
{
    const struct model *m = s->model;
    const struct model_logits *from =
        &m->logits[m->is_monolithic && rotating ? MODEL_INFER_ROTATE : MODEL_INFER];
    for (int i = 0; from->outputs && i < m->n_logits; i++) {
        m->backend->run_round_output(run, from->outputs[i]);
        memcpy(s->logits + m->part_begin[i], m->backend->run_output(run, from->outputs[i]),
               sizeof *s->logits * (size_t)(m->part_begin[i + 1] - m->part_begin[i]));
    }
    if (!from->outputs && !take_best(s, run, from, e))
        return err_wrap(e, "%s", m->is_monolithic ? m->package->chunks[0] : m->package->lm_head);
    s->has_logits = true;
    return true;
}

/* The head on the final-normed state of a token. A monolithic model has given the logits already. */
static bool run_head_on(struct session *s, const struct lane *l, const void *normed, struct err *e)
{
    const struct model *m = s->model;
    struct backend_run *run = l->newest->chunks[m->n_chunks - 1];
    if (!m->is_monolithic) {
        m->backend->run_bind_input(s->head, s->i_head_input, normed);
        run = s->head;
        if (!m->backend->run_execute(run, NULL, e))
            return err_wrap(e, "LM head");
    }
    return session_take_logits(s, run, l->newest == &l->rotating, e);
}

/* The head on the last chunk's output of the newest call: the final-normed state of the last token. */
static bool run_head(struct session *s, const struct lane *l, struct err *e)
{
    const struct model *m = s->model;
    const struct backend_run *run = l->newest->chunks[m->n_chunks - 1];
    return run_head_on(s, l, m->is_monolithic ? NULL : m->backend->run_output(run, l->newest->i_last_output),
                       e);
}

/* Logits of all rows of the newest call, which was one with all rows, in order. */
static bool give_rows(struct session *s, session_logits_fn on_logits, void *context, struct err *e)
{
    const struct model *m = s->model;
    const struct backend *b = m->backend;
    const struct lane *l = &s->prefill;
    const struct model_logits *from = &m->logits[MODEL_INFER];
    const float *rows = b->run_output(s->all_rows.chunks[m->n_chunks - 1], s->all_rows.i_last_output);
    for (int64_t t = 0; t < l->n_tokens; t++) {
        b->run_bind_input(s->row_norm, 0, rows + t * m->hidden_size);
        if (!b->run_execute(s->row_norm, NULL, e))
            return err_wrap(e, "final norm");
        memcpy(s->normed + t * m->hidden_size, b->run_output(s->row_norm, 0),
               sizeof *rows * (size_t)m->hidden_size);
    }
    if (s->row_head && !b->run_execute(s->row_head, NULL, e))
        return err_wrap(e, "LM head");
    for (int i = 0; s->row_head && i < m->n_logits; i++)
        b->run_round_output(s->row_head, from->outputs[i]);
    for (int64_t t = 0; t < l->n_tokens; t++) {
        if (!s->row_head && !run_head_on(s, l, s->normed + t * m->hidden_size, e))
            return false;
        for (int i = 0; s->row_head && i < m->n_logits; i++) {
            int64_t n = m->part_begin[i + 1] - m->part_begin[i];
            const float *part = b->run_output(s->row_head, from->outputs[i]);
            memcpy(s->logits + m->part_begin[i], part + t * n, sizeof *part * (size_t)n);
        }
        s->has_logits = true;
        if (!on_logits(context, s->n - l->n_tokens + t, s->logits, e))
            return false;
    }
    return true;
}

/* Whether a full batch may begin at a position: rotating functions take over at rotate_from, where a batch of the others
 * has to end. */
static bool can_prefill(const struct session *s, int64_t position)
{
    const struct model *m = s->model;
    if (position >= m->rotate_from)
        return s->prefill.rotating.chunks != NULL;
    return m->has_prefill && m->batch_size <= m->rotate_from - position;
}

bool session_feed(struct session *s, const int32_t *tokens, size_t n, enum session_mode mode,
                  session_logits_fn on_logits, void *context, struct progress *progress, struct err *e)
{
    struct model *m = s->model;
    int64_t start = s->n, left = (int64_t)n;
    if (n > (size_t)(m->context_length - s->n))
        return err_set(e, ERR_LIMIT,
                       "%lld tokens do not fit: the context holds %lld, of which %lld are in use",
                       (long long)n, (long long)m->context_length, (long long)s->n);
    bool each = mode == SESSION_EACH_TOKEN && on_logits;
    if (each && !s->watch && !all_rows_open(s, e))
        return false;
    while (left > 0) {
        /* Packages whose prefill does not return the last token's final row: the last token goes through infer, after the
         * batch that already holds it; writing its keys again changes nothing. Where a position must not be processed
         * twice, the last batch goes through infer as a whole. */
        bool once = s->n >= m->once_from, last_output = m->prefill_gives_last;
        bool rows = each && s->rows && !s->watch && s->n < m->rotate_from;
        bool batch = (mode == SESSION_CONTRACT || (mode == SESSION_EACH_TOKEN && (rows || !on_logits))) &&
                     can_prefill(s, s->n) && left >= m->batch_size + (once && !last_output);
        rows = rows && batch;
        struct lane *l = batch ? &s->prefill : &s->infer;
        const int32_t *at = tokens + (s->n - start);
        if (stop_requested(&s->stop))
            return stop_error(&s->stop, e);
        if (progress && log_cancelled(progress->log, e))
            return false;
        if (!lane_call(s, l, at, rows, e))
            return false;
        left -= l->n_tokens;
        bool wanted = (on_logits && !(batch && once && !last_output)) || left == 0;
        if (batch && wanted && !last_output) {
            s->n--;
            if (!lane_call(s, &s->infer, at + l->n_tokens - 1, false, e))
                return false;
            l = &s->infer;
        }
        if (rows && !give_rows(s, on_logits, context, e))
            return false;
        if (wanted && !rows && !run_head(s, l, e))
            return false;
        if (on_logits && wanted && !rows && !on_logits(context, s->n - 1, s->logits, e))
            return false;
        snapshot_take_regular(s, s->n - l->n_tokens);
        if (progress)
            progress_update(progress, (double)((int64_t)n - left), NULL);
    }
    return true;
}

/* How far the tokens are those of the timeline; *known: where the timeline ends, snapshots behind the context's end included. */
static size_t same_prefix(const struct session *s, const int32_t *tokens, size_t n, size_t *known)
{
    size_t same = 0;
    *known = (size_t)s->n;
    for (const struct snapshot *p = s->snapshots; p; p = p->next)
        *known = (size_t)p->n > *known ? (size_t)p->n : *known;
    while (same < n && same < *known && s->tokens[same] == tokens[same])
        same++;
    return same;
}

/* Brings a package that can't be rewound to the longest known prefix of n tokens, of which the first `same` are those of the
 * timeline: where it is, or a snapshot. */
static void rewind_sequential(struct session *s, size_t same, size_t n)
{
    /* Before rotating functions have begun, rows behind a position are masked until they are written again. */
    if (s->n <= s->model->once_from && ((size_t)s->n > same || ((size_t)s->n == n && !s->has_logits))) {
        s->n = (int64_t)(same == n ? n - 1 : same);
        s->has_logits = false;
    }
    bool usable = (size_t)s->n <= same && ((size_t)s->n < n || s->has_logits);
    if (!snapshot_restore(s, usable ? s->n : 0, (int64_t)same, same == n) && !usable)
        session_reset(s);
}

static void rewind_to(struct session *s, size_t same, size_t n)
{
    if (s->model->is_sequential) {
        rewind_sequential(s, same, n);
    } else if (same < (size_t)s->n || (same == n && !s->has_logits)) {
        /* what lies behind is masked until it is written again; the last token runs again for its logits */
        s->n = (int64_t)(same == n ? n - 1 : same);
        s->has_logits = false;
    }
}

static bool check_count(const struct session *s, size_t n, struct err *e)
{
    if (n < 1)
        return err_set(e, ERR_USAGE, "an empty token sequence has no logits");
    if (n > (size_t)s->model->context_length)
        return err_set(e, ERR_LIMIT, "%zu tokens do not fit: the context holds %lld", n,
                       (long long)s->model->context_length);
    return true;
}

bool session_rewind(struct session *s, const int32_t *tokens, size_t n, size_t *kept, struct err *e)
{
    size_t known;
    if (!check_count(s, n, e))
        return false;
    rewind_to(s, same_prefix(s, tokens, n, &known), n);
    *kept = (size_t)s->n;
    return true;
}

bool session_sync(struct session *s, const int32_t *tokens, size_t n, struct progress *progress,
                  size_t *reused, struct err *e)
{
    size_t known;
    if (!check_count(s, n, e))
        return false;
    size_t same = same_prefix(s, tokens, n, &known);
    rewind_to(s, same, n);
    if (reused)
        *reused = (size_t)s->n;
    /* Where prompts part a snapshot is made, because the next one probably parts there too. */
    if (s->model->is_sequential && (size_t)s->n < same && same < n && same < known) {
        if (!session_feed(s, tokens + s->n, same - (size_t)s->n, SESSION_CONTRACT, NULL, NULL, progress, e))
            return false;
        snapshot_take(s);
    }
    if ((size_t)s->n < n &&
        !session_feed(s, tokens + s->n, n - (size_t)s->n, SESSION_CONTRACT, NULL, NULL, progress, e))
        return false;
    if (s->model->is_sequential)
        snapshot_take(s);
    return true;
}

/* Bytes of a state as it is held: numbers of +-1/8 .. 1. */
static void fill_random(uint8_t *bytes, size_t n, int elem_bytes, uint32_t *random)
{
    for (size_t at = 0; at < n; at += (size_t)elem_bytes) {
        *random = *random * 1664525u + 1013904223u;
        f16 half = (f16)(0x3000u | (*random >> 16 & 0x8bffu));
        float single = f16_to_f32(half);
        memcpy(bytes + at, elem_bytes == 2 ? (const void *)&half : (const void *)&single, (size_t)elem_bytes);
    }
}

void session_make_up(struct session *s, const int32_t *tokens, size_t n)
{
    const size_t piece = (size_t)1 << 20;
    uint8_t *bytes = xmalloc(piece);
    uint32_t random = 1;
    session_reset(s);
    for (int i = 0; i < s->states->n; i++) {
        size_t all = backend_state_bytes(&s->states->list[i]);
        for (size_t first = 0, part; first < all; first += part) {
            part = all - first < piece ? all - first : piece;
            fill_random(bytes, part, s->states->list[i].elem_bytes, &random);
            s->model->backend->state_write(s->states, i, first, part, bytes);
        }
    }
    free(bytes);
    memcpy(s->tokens, tokens, sizeof *tokens * n);
    s->n = (int64_t)n;
    if (s->model->is_sequential)
        snapshot_take(s);
}

void session_measure(struct session *s)
{
    const struct backend *b = s->model->backend;
    struct lane *lanes[2] = {&s->infer, &s->prefill};
    for (int k = 0; k < 2; k++) {
        if (lanes[k]->embeddings)
            b->run_measure(lanes[k]->embeddings);
        for (int i = 0; i < s->model->n_chunks; i++) {
            if (lanes[k]->plain.chunks)
                b->run_measure(lanes[k]->plain.chunks[i]);
            if (lanes[k]->rotating.chunks)
                b->run_measure(lanes[k]->rotating.chunks[i]);
        }
    }
    if (s->head)
        b->run_measure(s->head);
}

void session_each_function(const struct session *s, bool prefill, session_function_fn f, void *context)
{
    const struct model *m = s->model;
    const struct lane *l = prefill ? &s->prefill : &s->infer;
    const struct lane_runs *runs[2] = {&l->plain, &l->rotating};
    const char *part = m->is_monolithic ? "model" : "chunk";
    if (l->embeddings)
        f(context, "embeddings", 0, l->n_tokens,
          m->embeddings.functions[prefill ? MODEL_PREFILL : MODEL_INFER], l->embeddings);
    for (int k = 0; k < 2; k++)
        for (int i = 0; runs[k]->chunks && i < m->n_chunks; i++) {
            enum model_function function = k ? (prefill ? MODEL_PREFILL_ROTATE : MODEL_INFER_ROTATE)
                                             : (prefill ? MODEL_PREFILL : MODEL_INFER);
            f(context, part, i, l->n_tokens, m->chunks[i].functions[function], runs[k]->chunks[i]);
        }
    if (s->head)
        f(context, "head", 0, 1, m->head.functions[MODEL_INFER], s->head);
}
