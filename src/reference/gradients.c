/* Gradients of a text's loss, layer by layer from the last to the first.
 *
 * Forward, the residual stream in front of every layer is kept. Then each layer is computed once more for each text, with a tape, and
 * walked back from the adjoints of what it leaves to those of what it gets. Where layers read keys of others, each text
 * has a session of its own, whose memory keeps what the layers remember and the adjoints of that.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/spill.h"
#include "reference/tape.h"
#include "reference/texts.h"

#define VOCABULARY_ROWS 2048 /* of the head, at a time */

struct reference_gradients {
    struct reference_texts texts;
    int64_t layer;
    /* [n_layers + 1, n, hidden_size]: in front of a layer, behind the last one */
    float *streams;
    struct spill *spill; /* in place of streams, where there is one */
    float *adjoint;      /* [n, hidden_size]: of the stream behind the next step's layer */
    float *logits;       /* [n_text, VOCABULARY_ROWS] */
    double *norm;        /* [n_text]: log of the sum of exp of a token's logits */
    double loss;
};

static float *rows_of(const struct reference_gradients *p, float *all, int64_t text)
{
    return all + text * p->texts.n_text * p->texts.reference->hidden_size;
}

static size_t row_bytes(const struct reference_gradients *p, int64_t n)
{
    return (size_t)(n * p->texts.reference->hidden_size) * sizeof(float);
}

/* The session's stream, of the text in front of the layer, is kept, or is as it was then. */
static bool stream_keep(struct reference_gradients *p, const struct reference_session *s, int64_t layer,
                        int64_t text, struct err *e)
{
    int64_t at = (layer * p->texts.n + text * p->texts.n_text) * p->texts.reference->hidden_size;
    size_t bytes = row_bytes(p, reference_text_length(&p->texts, text));
    if (p->spill)
        return spill_put(p->spill, (uint64_t)at * sizeof(float), s->stream, bytes, e);
    memcpy(p->streams + at, s->stream, bytes);
    return true;
}

static bool stream_take(const struct reference_gradients *p, struct reference_session *s, int64_t layer,
                        int64_t text, struct err *e)
{
    int64_t at = (layer * p->texts.n + text * p->texts.n_text) * p->texts.reference->hidden_size;
    size_t bytes = row_bytes(p, reference_text_length(&p->texts, text));
    if (p->spill)
        return spill_get(p->spill, (uint64_t)at * sizeof(float), s->stream, bytes, e);
    memcpy(s->stream, p->streams + at, bytes);
    return true;
}

/* The layer on the session's stream, from the state that a text begins with. */
static void run_layer(struct reference_session *s, int64_t layer, int64_t n)
{
    const struct reference_family *family = s->reference->parts->family;
    if (family->layer_reset)
        family->layer_reset(s, layer);
    family->layer(s, layer, n);
}

static bool run_forward(struct reference_gradients *p, struct err *e)
{
    const struct reference *r = p->texts.reference;
    for (int64_t text = 0; text < reference_text_count(&p->texts); text++) {
        struct reference_session *s = reference_text_begin(&p->texts, text);
        for (int64_t layer = 0; layer <= r->n_layers; layer++) {
            if (log_cancelled(r->parts->log, e) || !stream_keep(p, s, layer, text, e))
                return false;
            if (layer < r->n_layers)
                run_layer(s, layer, reference_text_length(&p->texts, text));
        }
    }
    return true;
}

/* ---- loss and head ---- */

/* Logits of rows of the head for n tokens, capped where the model does that. */
static void make_logits(const struct reference_gradients *p, struct reference_session *s, int64_t row,
                        int64_t n_rows, int64_t n)
{
    float cap = p->texts.reference->parts->softcap;
    reference_linear_rows(s, p->texts.reference->parts->ends.head, row, n_rows, s->hidden, n, p->logits);
    for (int64_t i = 0; cap > 0 && i < n * n_rows; i++)
        p->logits[i] = cap * tanhf(p->logits[i] / cap);
}

/* p->norm of n tokens; adds their losses. next [n]: the tokens that follow. */
static void add_loss(struct reference_gradients *p, struct reference_session *s, const int32_t *next,
                     int64_t n)
{
    int64_t vocab = p->texts.reference->vocab_size;
    double *sum = xcalloc((size_t)(2 * n), sizeof *sum), *best = sum + n;
    for (int64_t row = 0; row < vocab; row += VOCABULARY_ROWS) {
        int64_t n_rows = vocab - row < VOCABULARY_ROWS ? vocab - row : VOCABULARY_ROWS;
        make_logits(p, s, row, n_rows, n);
        for (int64_t t = 0; t < n; t++) {
            const float *logits = p->logits + t * n_rows;
            double largest = row > 0 ? best[t] : -INFINITY;
            for (int64_t i = 0; i < n_rows; i++)
                largest = (double)logits[i] > largest ? (double)logits[i] : largest;
            sum[t] *= row > 0 ? exp(best[t] - largest) : 0.0;
            best[t] = largest;
            for (int64_t i = 0; i < n_rows; i++)
                sum[t] += exp((double)logits[i] - largest);
            if (next[t] >= row && next[t] < row + n_rows)
                p->loss -= (double)logits[next[t] - row];
        }
    }
    for (int64_t t = 0; t < n; t++) {
        p->norm[t] = best[t] + log(sum[t]);
        p->loss += p->norm[t];
    }
    free(sum);
}

/* The head's gradients, and the adjoints of the final norm's rows. */
static void walk_head(struct reference_gradients *p, struct reference_session *s, const int32_t *next,
                      int64_t n)
{
    const struct reference_parts *parts = p->texts.reference->parts;
    int64_t vocab = p->texts.reference->vocab_size;
    double cap = (double)parts->softcap;
    struct reference_product_back b = {
        .columns = p->texts.reference->hidden_size, .x = s->hidden, .dy = p->logits, .n = n};
    int64_t first;
    reference_locate(p->texts.reference, parts->ends.head, &b.whole, &first);
    b.dx = reference_adjoint(s, s->hidden);
    for (int64_t row = 0; row < vocab; row += VOCABULARY_ROWS) {
        b.rows = vocab - row < VOCABULARY_ROWS ? vocab - row : VOCABULARY_ROWS;
        b.first = first + row * b.columns;
        make_logits(p, s, row, b.rows, n);
        for (int64_t t = 0; t < n; t++)
            for (int64_t i = 0; i < b.rows; i++) {
                float *at = p->logits + t * b.rows + i;
                double z = (double)*at, d = exp(z - p->norm[t]) - (next[t] == row + i ? 1.0 : 0.0);
                *at = (float)(cap > 0 ? d * (1.0 - z / cap * (z / cap)) : d);
            }
        reference_linear_back(s, &b, parts->ends.head->name);
    }
}

/* ---- steps ---- */

static bool step_behind(struct reference_gradients *p, int64_t text,
                        const struct reference_gradient_sink *sink, struct err *e)
{
    const struct reference *r = p->texts.reference;
    struct reference_session *s = reference_text_begin(&p->texts, text);
    const int32_t *next = p->texts.tokens + text * p->texts.n_text + 1;
    int64_t n = reference_text_length(&p->texts, text);
    float *adjoint = reference_adjoint(s, s->stream);
    if (!stream_take(p, s, r->n_layers, text, e))
        return false;
    reference_tape_begin(s, sink);
    r->parts->family->finish(s, n);
    add_loss(p, s, next, n - 1);
    walk_head(p, s, next, n - 1);
    memset(adjoint, 0, row_bytes(p, n));
    bool ok = reference_tape_walk(s, e);
    memcpy(rows_of(p, p->adjoint, text), adjoint, row_bytes(p, n));
    return ok;
}

static bool step_layer(struct reference_gradients *p, int64_t text,
                       const struct reference_gradient_sink *sink, struct err *e)
{
    struct reference_session *s = reference_text_begin(&p->texts, text);
    float *adjoint = reference_adjoint(s, s->stream), *rows = rows_of(p, p->adjoint, text);
    int64_t n = reference_text_length(&p->texts, text);
    size_t bytes = row_bytes(p, n);
    if (!stream_take(p, s, p->layer, text, e))
        return false;
    reference_tape_begin(s, sink);
    run_layer(s, p->layer, n);
    memcpy(adjoint, rows, bytes);
    bool ok = reference_tape_walk(s, e);
    memcpy(rows, adjoint, bytes);
    return ok;
}

/* The embeddings, and what else depends on tokens alone. */
static bool step_in_front(struct reference_gradients *p, int64_t text,
                          const struct reference_gradient_sink *sink, struct err *e)
{
    struct reference_session *s = p->texts.sessions[p->texts.n_sessions > 1 ? text : 0];
    int64_t n = reference_text_length(&p->texts, text);
    reference_tape_begin(s, sink);
    p->texts.reference->parts->family->embed(s, p->texts.tokens + text * p->texts.n_text, n);
    memcpy(reference_adjoint(s, s->stream), rows_of(p, p->adjoint, text), row_bytes(p, n));
    return reference_tape_walk(s, e);
}

bool reference_gradients_next(struct reference_gradients *p, const struct reference_gradient_sink *sink,
                              struct err *e)
{
    const struct reference *r = p->texts.reference;
    if (p->layer < -1)
        return err_set(e, ERR_BUG, "gradients of %lld layers were asked for, and more",
                       (long long)r->n_layers);
    for (int64_t text = 0; text < reference_text_count(&p->texts); text++) {
        if (log_cancelled(r->parts->log, e))
            return false;
        bool ok = p->layer == r->n_layers ? step_behind(p, text, sink, e)
                  : p->layer >= 0         ? step_layer(p, text, sink, e)
                                          : step_in_front(p, text, sink, e);
        if (!ok)
            return false;
    }
    p->layer--;
    return true;
}

int64_t reference_gradients_layer(const struct reference_gradients *p)
{
    return p->layer;
}

double reference_gradients_loss(const struct reference_gradients *p)
{
    return p->loss;
}

/* ---- opening ---- */

static bool open_gradients(struct reference_gradients *p, struct reference *r, const int32_t *tokens,
                           size_t n, size_t n_text, const char *folder, struct err *e)
{
    p->layer = r->n_layers;
    if (!reference_texts_open(&p->texts, r, tokens, n, n_text, e))
        return false;
    for (int i = 0; i < p->texts.n_sessions; i++)
        if (!reference_tape_new(p->texts.sessions[i], e))
            return false;
    p->norm = xcalloc((size_t)p->texts.n_text, sizeof *p->norm);
    return (folder ? spill_open(&p->spill, folder, e)
                   : reference_alloc(&p->streams, r->n_layers + 1, p->texts.n, r->hidden_size, e)) &&
           reference_alloc(&p->adjoint, p->texts.n, r->hidden_size, 1, e) &&
           reference_alloc(&p->logits, p->texts.n_text, VOCABULARY_ROWS, 1, e) && run_forward(p, e);
}

bool reference_gradients_new(struct reference_gradients **out, struct reference *r, const int32_t *tokens,
                             size_t n, size_t n_text, const char *folder, struct err *e)
{
    struct reference_gradients *p = xcalloc(1, sizeof *p);
    bool ok = open_gradients(p, r, tokens, n, n_text, folder, e);
    if (!ok) {
        reference_gradients_free(p);
        p = NULL;
    }
    *out = p;
    return ok;
}

void reference_gradients_free(struct reference_gradients *p)
{
    if (!p)
        return;
    reference_texts_free(&p->texts);
    free(p->norm);
    mem_free(p->streams);
    spill_close(p->spill);
    mem_free(p->adjoint);
    mem_free(p->logits);
    free(p);
}
