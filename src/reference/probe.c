/* The probe: a layer again and again on the same rows, with a weight's numbers replaced.
 *
 * What the products of a layer's first run took and gave is kept (the recall): a later run with the same weight
 * on the same rows takes it from there, bit for bit what computing it would give.
 */
#include <stdlib.h>
#include <string.h>
#include "reference/reference_internal.h"

struct reference_probe {
    struct reference_session *session;
    struct reference_recall recall;
    int64_t n, layer;
    float *input, *output; /* [n, hidden_size]: of the layer as it is */
    bool is_changed;       /* what the layer remembers comes from replaced numbers */
};

/* ---- recall ---- */

/* ---- probe ---- */

bool reference_probe_new(struct reference_probe **out, struct reference *r, const int32_t *tokens, size_t n,
                         struct err *e)
{
    struct reference_probe *p = xcalloc(1, sizeof *p);
    bool ok = false;
    *out = NULL;
    p->n = (int64_t)n;
    p->layer = -1;
    if (!reference_check_tokens(r, tokens, n, e))
        goto done;
    if (n > INT32_MAX) {
        err_set(e, ERR_LIMIT, "a probe takes up to %d tokens, found %zu", INT32_MAX, n);
        goto done;
    }
    if (!reference_session_make(&p->session, r, p->n, p->n, e) ||
        !reference_alloc(&p->input, p->n, r->hidden_size, 1, e) ||
        !reference_alloc(&p->output, p->n, r->hidden_size, 1, e))
        goto done;
    p->session->recall = &p->recall;
    r->parts->family->embed(p->session, tokens, p->n);
    memcpy(p->output, p->session->stream, (size_t)(p->n * r->hidden_size) * sizeof *p->output);
    *out = p;
    p = NULL;
    ok = true;
done:
    reference_probe_free(p);
    return ok;
}

void reference_probe_free(struct reference_probe *p)
{
    if (!p)
        return;
    reference_session_free(p->session);
    reference_recall_forget(&p->recall);
    free(p->recall.list);
    mem_free(p->input);
    mem_free(p->output);
    free(p);
}

/* The layer on p->input, with the replacement that the session has. */
static bool run_layer(struct reference_probe *p, struct err *e)
{
    struct reference_session *s = p->session;
    const struct reference *r = s->reference;
    const struct reference_family *family = r->parts->family;
    if (log_cancelled(r->parts->log, e))
        return false;
    memcpy(s->stream, p->input, (size_t)(p->n * r->hidden_size) * sizeof *s->stream);
    if (family->layer_reset)
        family->layer_reset(s, p->layer);
    family->layer(s, p->layer, p->n);
    return true;
}

bool reference_probe_next(struct reference_probe *p, const float **rows, struct err *e)
{
    struct reference_session *s = p->session;
    const struct reference *r = s->reference;
    /* Later layers may read the keys and values of this one. */
    if (p->is_changed && !run_layer(p, e))
        return false;
    p->is_changed = false;
    if (p->layer + 1 >= r->n_layers)
        return err_set(e, ERR_BUG, "a probe of %lld layers went beyond the last", (long long)r->n_layers);
    float *input = p->output;
    p->output = p->input;
    p->input = input;
    p->layer++;
    reference_recall_forget(&p->recall);
    p->recall.is_first_run = true;
    bool ok = run_layer(p, e);
    p->recall.is_first_run = false;
    memcpy(p->output, s->stream, (size_t)(p->n * r->hidden_size) * sizeof *p->output);
    *rows = p->output;
    return ok;
}

bool reference_probe_replaced(struct reference_probe *p, const struct reference_replacement *replacement,
                              const float **rows, struct err *e)
{
    p->is_changed = true;
    p->session->replacement = replacement;
    bool ok = run_layer(p, e);
    p->session->replacement = NULL;
    *rows = p->session->stream;
    return ok;
}
