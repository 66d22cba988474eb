/* A few tokens through a new package. */
#include "measure/verify_package.h"
#include <stdlib.h>
#include "runtime/sampler.h"
#include "runtime/session.h"

/* Any ids: the embedding table and the caches see several rows. */
static void fill_ids(int32_t *ids, int64_t n, int64_t vocab_size)
{
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)((1 + 7 * i) % vocab_size);
}

static bool run_tokens(struct session *s, const struct model *m, struct log *log, struct err *e)
{
    /* One more than a batch where it fits: packages that get every position once feed their last token by infer. */
    int64_t n = m->batch_size + 1 < m->context_length ? m->batch_size + 1 : m->context_length;
    int32_t *ids = xcalloc((size_t)n, sizeof *ids);
    fill_ids(ids, n, m->vocab_size);
    session_limit_snapshots(s, 0, 0);
    bool ok = session_feed(s, ids, 1, SESSION_INFER_ONLY, NULL, NULL, NULL, e);
    if (ok && !sampler_can_pick(session_logits(s), m->vocab_size))
        log_warn_hint(log, HINT_CHECK_LAYERS, "none of the logits of the new package is a number");
    session_reset(s);
    ok = ok && session_feed(s, ids, (size_t)n, SESSION_CONTRACT, NULL, NULL, NULL, e);
    free(ids);
    return ok;
}

bool verify_package(void *context, const char *folder, struct err *e)
{
    const struct verify_package *v = context;
    double start = clock_seconds();
    struct log quiet = {.cancel = v->log->cancel}; /* the conversion has said what is to be said */
    struct model_options options = {
        .n_threads = v->n_threads, .deadline = start + VERIFY_SECONDS, .log = &quiet};
    struct model *m = NULL;
    struct session *s = NULL;
    bool ok = model_open(&m, folder, &options, e) && session_new(&s, m, e) && run_tokens(s, m, v->log, e);
    session_free(s);
    model_close(m);
    if (!ok && e->code == ERR_CANCELLED && !log_cancelled(v->log, NULL)) {
        log_info(v->log, "the new package ran for %.0f s without a fault, not to the end", VERIFY_SECONDS);
        *e = (struct err){0};
        ok = true;
    }
    if (ok)
        log_debug(v->log, "a batch and a token through the new package in %.2f s", clock_seconds() - start);
    else if (e->code != ERR_CANCELLED)
        err_wrap(e, "running what was written"), err_set_hint(e, HINT_NO_VERIFY);
    return ok;
}
