/* Windows of a text through a session, each position's logits against the token that follows. */
#include "measure/perplexity.h"
#include <math.h>

struct eval {
    const int32_t *ids; /* of the window */
    size_t n;
    int64_t vocab_size;
    struct against *against;
    size_t i_against;        /* of the tokens that were fed to it last */
    double nll, nll_squared; /* sums over predicted tokens, nats */
    int64_t n_predicted;
};

static bool score(void *context, int64_t position, const float *logits, struct err *e)
{
    struct eval *v = context;
    if ((size_t)position + 1 >= v->n)
        return true;
    double nll = token_nll(logits, v->vocab_size, v->ids[position + 1]);
    if (!isfinite(nll))
        return err_set(
            e, ERR_MISMATCH,
            "token %d at position %lld of a window has no finite likelihood: the package's logits are not "
            "numbers, or rule the token out",
            v->ids[position + 1], (long long)position + 1);
    v->nll += nll;
    v->nll_squared += nll * nll;
    v->n_predicted++;
    if (v->against)
        against_compare(v->against, v->i_against++, logits, v->ids[position + 1]);
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
        v->ids = text->ids + at;
        v->n = text->n - at < (size_t)text->window ? text->n - at : (size_t)text->window;
        ok = v->n < 2 || run_window(v, s, e);
        if (ok) {
            progress_update(&progress, (double)(at + v->n), NULL);
            ok = !log_cancelled(text->log, e);
        }
    }
    progress_end(&progress);
    return ok;
}

bool perplexity_measure(struct perplexity *out, struct session *s, const struct model *m,
                        const struct perplexity_text *text, struct err *e)
{
    struct eval v = {.vocab_size = m->vocab_size, .against = text->against};
    if (!run_windows(&v, s, text, e))
        return false;
    double n = (double)v.n_predicted, mean = v.nll / n, variance = v.nll_squared / n - mean * mean;
    *out = (struct perplexity){v.n_predicted, mean, sqrt(variance > 0 ? variance / n : 0)};
    return true;
}
