/* Windows of a text through a session, each position's logits against the token that follows. */
#include "measure/perplexity.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct eval {
    int32_t *ids; /* of the window, and what stands before it */
    size_t n, n_before;
    int64_t vocab_size;
    struct against *against;
    size_t i_against;        /* of the tokens that were fed to it last */
    double nll, nll_squared; /* sums over predicted tokens, nats */
    int64_t n_predicted;
};

static bool score(void *context, int64_t position, const float *logits, struct err *e)
{
    struct eval *v = context;
    size_t next = (size_t)position + 1;
    if (next >= v->n)
        return true;
    if (next < v->n_before) {
        v->i_against++;
        return true;
    }
    double nll = token_nll(logits, v->vocab_size, v->ids[next]);
    if (!isfinite(nll))
        return err_set(
            e, ERR_MISMATCH,
            "token %d at position %lld of a window has no finite likelihood: the package's logits are not "
            "numbers, or rule the token out",
            v->ids[next], (long long)next);
    v->nll += nll;
    v->nll_squared += nll * nll;
    v->n_predicted++;
    if (v->against)
        against_compare(v->against, v->i_against++, logits, v->ids[next]);
    return true;
}

/* Every position's logits are needed. */
static bool run_window(struct eval *v, struct session *s, struct err *e)
{
    size_t n = v->n - 1; /* nothing follows the last token */
    session_reset(s);
    if (!v->against)
        return session_feed(s, v->ids, n, SESSION_EACH_TOKEN, score, v, NULL, e);
    against_reset(v->against);
    for (size_t at = 0; at < n; at += AGAINST_TOKENS) {
        size_t part = n - at < AGAINST_TOKENS ? n - at : AGAINST_TOKENS;
        v->i_against = 0;
        if (!against_feed(v->against, v->ids + at, part, e) ||
            !session_feed(s, v->ids + at, part, SESSION_EACH_TOKEN, score, v, NULL, e))
            return false;
    }
    return true;
}

static bool run_windows(struct eval *v, struct session *s, const struct perplexity_text *text, struct err *e)
{
    struct progress progress;
    bool ok = true;
    progress_begin(&progress, text->log, "eval", "tokens", 1, (double)text->n);
    for (size_t at = 0; ok && at < text->n; at += (size_t)text->window) {
        size_t n = text->n - at < (size_t)text->window ? text->n - at : (size_t)text->window;
        memcpy(v->ids + v->n_before, text->ids + at, n * sizeof *v->ids);
        v->n = v->n_before + n;
        ok = v->n < 2 || run_window(v, s, e); /* a last token alone is not predicted */
        if (ok) {
            progress_update(&progress, (double)(at + n), NULL);
            ok = !log_cancelled(text->log, e);
        }
    }
    progress_end(&progress);
    return ok;
}

bool perplexity_measure(struct perplexity *out, struct session *s, const struct model *m,
                        const struct perplexity_text *text, struct err *e)
{
    struct eval v = {.vocab_size = m->vocab_size, .against = text->against, .n_before = text->n_before};
    v.ids = xcalloc(text->n_before + (size_t)text->window, sizeof *v.ids);
    if (text->n_before > 0)
        memcpy(v.ids, text->before, text->n_before * sizeof *v.ids);
    bool ok = run_windows(&v, s, text, e);
    free(v.ids);
    if (!ok)
        return false;
    double n = (double)v.n_predicted, mean = v.nll / n, variance = v.nll_squared / n - mean * mean;
    *out = (struct perplexity){v.n_predicted, mean, sqrt(variance > 0 ? variance / n : 0)};
    return true;
}
