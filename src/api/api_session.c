/* Sessions: tokens in, logits and tokens out. */
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "base/id_list.h"

mk_status mk_session_new(mk_session **out, mk_package *p, mk_error **error)
{
    struct err e = {0};
    struct session *session = NULL;
    *out = NULL;
    if (!session_new(&session, p->model, &e))
        return api_fail(&e, error);
    mk_session *s = xcalloc(1, sizeof *s);
    s->package = package_keep(p);
    s->session = session;
    atomic_init(&s->is_cancelled, 0);
    *out = s;
    return api_result(true, NULL, error);
}

void mk_session_free(mk_session *s)
{
    if (!s)
        return;
    session_free(s->session);
    mk_package_close(s->package);
    free(s);
}

void mk_session_cancel(mk_session *s)
{
    atomic_store(&s->is_cancelled, 1);
}

void session_begin_call(mk_session *s, const atomic_int *flag)
{
    atomic_store(&s->is_cancelled, 0);
    session_set_stop(s->session, flag, &s->is_cancelled);
}

void session_end_call(mk_session *s)
{
    session_set_stop(s->session, NULL, NULL);
}

static bool check_ids(const mk_session *s, const int32_t *ids, size_t n, struct err *e)
{
    return id_list_check(ids, n, s->package->model->vocab_size, e);
}

mk_status mk_session_sync(mk_session *s, const int32_t *ids, size_t n, const mk_call *call, size_t *reused,
                          mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    struct progress progress;
    if (reused)
        *reused = 0;
    if (!api_log_init(&log, s->package->library, call, &s->is_cancelled, error))
        return MK_USAGE;
    session_begin_call(s, log.log.cancel);
    progress_begin(&progress, &log.log, "prompt", "tokens", 1, (double)n);
    bool ok = check_ids(s, ids, n, &e) && session_sync(s->session, ids, n, &progress, reused, &e);
    progress_end(&progress);
    session_end_call(s);
    return api_result(ok, &e, error);
}

mk_status mk_session_rewind(mk_session *s, const int32_t *ids, size_t n, size_t *kept, mk_error **error)
{
    struct err e = {0};
    *kept = 0;
    return api_result(check_ids(s, ids, n, &e) && session_rewind(s->session, ids, n, kept, &e), &e, error);
}

mk_status mk_session_step(mk_session *s, int32_t id, mk_error **error)
{
    struct err e = {0};
    session_begin_call(s, NULL);
    bool ok =
        check_ids(s, &id, 1, &e) && session_feed(s->session, &id, 1, SESSION_CONTRACT, NULL, NULL, NULL, &e);
    session_end_call(s);
    return api_result(ok, &e, error);
}

struct logits_sink {
    mk_logits_fn fn;
    void *context;
    size_t vocab_size;
};

static bool pass_logits(void *context, int64_t position, const float *logits, struct err *e)
{
    const struct logits_sink *sink = context;
    return sink->fn(sink->context, position, logits, sink->vocab_size) ||
           err_set(e, ERR_CANCELLED, "stopped by the caller");
}

mk_status mk_session_feed(mk_session *s, const int32_t *ids, size_t n, uint32_t flags, mk_logits_fn fn,
                          void *context, const mk_call *call, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    struct progress progress;
    struct model *m = s->package->model;
    struct logits_sink sink = {.fn = fn, .context = context, .vocab_size = (size_t)m->vocab_size};
    if (flags & ~(uint32_t)MK_FEED_SINGLY)
        return api_usage(error, "flags: expected 0 or MK_FEED_SINGLY, found %u", flags);
    if (!api_log_init(&log, s->package->library, call, &s->is_cancelled, error))
        return MK_USAGE;
    session_begin_call(s, log.log.cancel);
    progress_begin(&progress, &log.log, "tokens", "tokens", 1, (double)n);
    bool ok = (!fn || model_need_logits(m, "logits", &e)) && check_ids(s, ids, n, &e) &&
              session_feed(s->session, ids, n, flags & MK_FEED_SINGLY ? SESSION_INFER_ONLY : SESSION_CONTRACT,
                           fn ? pass_logits : NULL, &sink, &progress, &e);
    progress_end(&progress);
    session_end_call(s);
    return api_result(ok, &e, error);
}

const float *mk_session_logits(const mk_session *s)
{
    return session_has_logits(s->session) ? session_logits(s->session) : NULL;
}

const int32_t *mk_session_tokens(const mk_session *s, size_t *n)
{
    *n = (size_t)session_position(s->session);
    return session_tokens(s->session);
}

struct token_sink {
    mk_token_fn fn;
    void *context;
    struct log *log;
    bool has_stopped;
};

static bool pass_token(void *context, int32_t id, struct err *e)
{
    struct token_sink *t = context;
    (void)e;
    if (t->fn && !t->fn(t->context, id)) {
        t->has_stopped = true;
        log_stop(t->log);
    }
    return true;
}

int32_t api_end(enum generate_end end)
{
    static const int32_t ends[] = {[GENERATE_LENGTH] = MK_END_LENGTH,
                                   [GENERATE_STOP] = MK_END_STOP,
                                   [GENERATE_CONTEXT] = MK_END_CONTEXT,
                                   [GENERATE_CANCELLED] = MK_END_CALLER};
    return ends[end];
}

const char *mk_end_name(int32_t end)
{
    static const enum generate_end ends[] = {[MK_END_LENGTH] = GENERATE_LENGTH,
                                             [MK_END_STOP] = GENERATE_STOP,
                                             [MK_END_CONTEXT] = GENERATE_CONTEXT,
                                             [MK_END_CALLER] = GENERATE_CANCELLED};
    return end >= MK_END_LENGTH && end <= MK_END_CALLER ? generate_end_name(ends[end]) : "unknown";
}

/* So that the context holds all that was given out, and a next call goes on behind it. */
static bool feed_last(mk_session *s, const struct ids *ids, struct err *e)
{
    return session_position(s->session) >= s->package->model->context_length ||
           session_feed(s->session, &ids->p[ids->n - 1], 1, SESSION_CONTRACT, NULL, NULL, NULL, e);
}

mk_status mk_session_generate(mk_session *s, mk_sampler *sampler, const mk_generate *what,
                              const mk_call *call, size_t *n, int32_t *end, mk_error **error)
{
    struct err e = {0};
    struct api_log log;
    mk_generate w;
    struct ids ids = {0};
    enum generate_end why = GENERATE_LENGTH;
    int64_t n_generated = 0;
    *n = 0;
    if (!api_log_init(&log, s->package->library, call, &s->is_cancelled, error))
        return MK_USAGE;
    if (!api_read_struct(&w, sizeof w, what) || w.limit < 0 ||
        (w.flags & ~(uint32_t)(MK_IGNORE_END | MK_LEAVE_LAST)))
        return api_usage(
            error, "what: expected a structure with its size, a limit from 0 on and flags that there are");
    if (!api_sampler_of(sampler, s->package))
        return api_usage(error, "the sampler belongs to another package");
    if (!session_has_logits(s->session))
        return api_usage(error, "the session has no logits to go on from");
    struct token_sink sink = {.fn = w.fn, .context = w.context, .log = &log.log};
    session_begin_call(s, log.log.cancel);
    size_t n_tokens;
    const int32_t *tokens = mk_session_tokens(s, &n_tokens);
    for (size_t i = 0; i < n_tokens; i++)
        ids_push(&ids, tokens[i]);
    struct generate g = {.model = s->package->model,
                         .session = s->session,
                         .sampler = api_sampler_of(sampler, s->package),
                         .limit = w.limit ? w.limit : INT64_MAX,
                         .ignore_eos = (w.flags & MK_IGNORE_END) != 0,
                         .stops = w.stops,
                         .n_stops = w.n_stops,
                         .log = &log.log,
                         .on_token = pass_token,
                         .context = &sink};
    bool ok = generate_tokens(&g, &ids, &n_generated, &why, &e);
    session_end_call(s); /* what follows is short, and is done for a call that was stopped, too */
    if (ok && why != GENERATE_STOP && why != GENERATE_CONTEXT && n_generated > 0 &&
        !(w.flags & MK_LEAVE_LAST))
        ok = feed_last(s, &ids, &e);
    if (ok && why == GENERATE_CANCELLED && !sink.has_stopped)
        ok = err_set(&e, ERR_CANCELLED, "interrupted");
    *n = (size_t)n_generated;
    if (ok && end)
        *end = api_end(why);
    ids_free(&ids);
    return api_result(ok, &e, error);
}

mk_status mk_session_save(const mk_session *s, const char *path, mk_error **error)
{
    struct err e = {0};
    return api_result(session_save(s->session, path, &e), &e, error);
}

mk_status mk_session_load(mk_session *s, const char *path, mk_error **error)
{
    struct err e = {0};
    return api_result(session_load(s->session, path, &e), &e, error);
}
