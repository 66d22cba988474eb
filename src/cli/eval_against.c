/* Both sides move through a window together, a few tokens at a time, so that memory is a few rows of logits. */
#include "cli/eval_against.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "format/contract.h"
#include "reference/compare.h"

struct against {
    int64_t vocab_size;
    struct model *model; /* a package, with its session */
    struct session *session;
    struct reference *reference; /* or a checkpoint */
    struct reference_session *reference_session;
    float *rows; /* [AGAINST_TOKENS, vocab_size] */
    size_t n_rows;
    struct agreement sums;
};

double eval_token_nll(const float *logits, int64_t n, int32_t next)
{
    float best = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        best = logits[i] > best ? logits[i] : best;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)best);
    return log(sum) + (double)best - (double)logits[next];
}

static bool is_package(const char *path)
{
    char *meta = path_join(path, FILE_META);
    bool is = path_exists(meta) || !path_is_folder(path);
    free(meta);
    return is;
}

static bool open_package(struct against *a, struct cli *c, const struct package_options *options,
                         const char *path, int64_t window, struct err *e)
{
    struct package_options other = *options;
    other.path = path;
    if (!package_options_open(c, &other, &a->model, e) || !model_need_logits(a->model, "--against", e))
        return false;
    if (a->model->context_length < window)
        return err_set(e, ERR_USAGE, "--against %s: windows of %lld tokens, but its context holds %lld", path,
                       (long long)window, (long long)a->model->context_length);
    a->vocab_size = a->model->vocab_size;
    return session_new(&a->session, a->model, e);
}

static bool open_checkpoint(struct against *a, struct cli *c, const struct package_options *options,
                            const char *path, int64_t window, struct err *e)
{
    struct reference_options o = {.n_threads = (int)options->n_threads, .log = &c->log};
    if (!reference_open(&a->reference, path, &o, e) ||
        !reference_session_new(&a->reference_session, a->reference, window, e))
        return false;
    a->vocab_size = a->reference->vocab_size;
    return true;
}

bool against_open(struct against **out, struct cli *c, const struct package_options *options,
                  const char *path, const struct model *m, int64_t window, struct err *e)
{
    struct against *a = xcalloc(1, sizeof *a);
    size_t bytes;
    bool ok = false;
    *out = NULL;
    if (!is_package(path) && !folder_check(path, "a package or a checkpoint folder", "config.json", e))
        goto done;
    if (!(is_package(path) ? open_package(a, c, options, path, window, e)
                           : open_checkpoint(a, c, options, path, window, e)))
        goto done;
    if (a->vocab_size != m->vocab_size) {
        err_set(e, ERR_MISMATCH, "vocabulary size %lld in %s, but %lld in %s", (long long)m->vocab_size,
                m->package->path, (long long)a->vocab_size, path);
        goto done;
    }
    if (!size_mul((size_t)a->vocab_size, AGAINST_TOKENS * sizeof(float), &bytes)) {
        err_set(e, ERR_LIMIT, "%lld logits", (long long)a->vocab_size);
        goto done;
    }
    if (!(a->rows = mem_try_alloc(bytes, e)))
        goto done;
    a->sums.min_cosine = INFINITY;
    *out = a;
    a = NULL;
    ok = true;
done:
    against_close(a);
    return ok;
}

void against_close(struct against *a)
{
    if (!a)
        return;
    session_free(a->session);
    model_close(a->model);
    reference_session_free(a->reference_session);
    reference_close(a->reference);
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
    return a->session ? session_feed(a->session, ids, n, SESSION_INFER_ONLY, collect, a, NULL, e)
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
    s->nll += eval_token_nll(other, a->vocab_size, next);
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
