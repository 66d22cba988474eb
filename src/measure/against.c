/* Both sides move through a window together, a few tokens at a time, so that memory is a few rows of logits. */
#include "measure/against.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "measure/compare.h"

struct against {
    int64_t vocab_size;
    struct session *session;                     /* of a package */
    struct reference_session *reference_session; /* or of a checkpoint */
    float *rows;                                 /* [AGAINST_TOKENS, vocab_size] */
    size_t n_rows;
    struct agreement sums;
};

double token_nll(const float *logits, int64_t n, int32_t next)
{
    float best = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        best = logits[i] > best ? logits[i] : best;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)best);
    return log(sum) + (double)best - (double)logits[next];
}

static bool make(struct against **out, struct against *a, const char *path, const struct model *m,
                 struct err *e)
{
    size_t bytes;
    if (a->vocab_size != m->vocab_size)
        return err_set(e, ERR_MISMATCH, "vocabulary size %lld in %s, but %lld in %s",
                       (long long)m->vocab_size, m->package->path, (long long)a->vocab_size, path);
    if (!size_mul((size_t)a->vocab_size, AGAINST_TOKENS * sizeof(float), &bytes))
        return err_set(e, ERR_LIMIT, "%lld logits", (long long)a->vocab_size);
    if (!(a->rows = mem_try_alloc(bytes, e)))
        return false;
    a->sums.min_cosine = INFINITY;
    *out = a;
    return true;
}

bool against_package(struct against **out, struct model *other, const char *path, const struct model *m,
                     int64_t window, struct err *e)
{
    struct against *a = xcalloc(1, sizeof *a);
    *out = NULL;
    a->vocab_size = other->vocab_size;
    bool ok = other->context_length >= window ||
              err_set(e, ERR_USAGE, "%s: windows of %lld tokens, but its context holds %lld", path,
                      (long long)window, (long long)other->context_length);
    ok = ok && session_new(&a->session, other, e) && make(out, a, path, m, e);
    if (!ok)
        against_close(a);
    return ok;
}

bool against_checkpoint(struct against **out, struct reference *other, const char *path,
                        const struct model *m, int64_t window, struct err *e)
{
    struct against *a = xcalloc(1, sizeof *a);
    *out = NULL;
    a->vocab_size = other->vocab_size;
    bool ok = reference_session_new(&a->reference_session, other, window, e) && make(out, a, path, m, e);
    if (!ok)
        against_close(a);
    return ok;
}

void against_close(struct against *a)
{
    if (!a)
        return;
    session_free(a->session);
    reference_session_free(a->reference_session);
    mem_free(a->rows);
    free(a);
}

void against_reset(struct against *a)
{
    if (a->session)
        session_reset(a->session);
    else
        reference_session_reset(a->reference_session);
}

static bool collect(void *context, int64_t position, const float *logits, struct err *e)
{
    struct against *a = context;
    (void)position;
    if (a->n_rows == AGAINST_TOKENS)
        return err_set(e, ERR_BUG, "more logits than tokens");
    memcpy(a->rows + a->n_rows++ * (size_t)a->vocab_size, logits, sizeof *logits * (size_t)a->vocab_size);
    return true;
}

bool against_feed(struct against *a, const int32_t *ids, size_t n, struct err *e)
{
    a->n_rows = 0;
    return a->session ? session_feed(a->session, ids, n, SESSION_EACH_TOKEN, collect, a, NULL, e)
                      : reference_feed(a->reference_session, ids, n, collect, a, e);
}

/* How many logits go before that of a token: larger ones, and equal ones of lower ids. */
static int64_t rank_of(const float *logits, int64_t n, int32_t id)
{
    int64_t rank = 0;
    for (int64_t i = 0; i < n; i++)
        rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
    return rank;
}

void against_compare(struct against *a, size_t i, const float *logits, int32_t next)
{
    struct agreement *s = &a->sums;
    const float *other = a->rows + i * (size_t)a->vocab_size;
    struct logits_difference d;
    logits_compare(other, logits, a->vocab_size, &d);
    if (!d.reference_finite || !d.other_finite) {
        s->n_not_finite++;
        return;
    }
    int64_t rank = rank_of(logits, a->vocab_size, d.reference_top);
    s->n++;
    s->nll += token_nll(other, a->vocab_size, next);
    s->kl += d.kl;
    s->kl_max = fmax(s->kl_max, d.kl);
    s->min_cosine = fmin(s->min_cosine, d.cosine);
    s->top1 += rank < 1;
    s->top3 += rank < 3;
    s->top5 += rank < 5;
}

const struct agreement *against_result(const struct against *a)
{
    return &a->sums;
}
