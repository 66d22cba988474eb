/* Sessions and samplers: tokens in, logits and tokens out. */
#include <stdlib.h>
#include <string.h>
#include "api/api_int.h"
#include "format/json.h"
#include "runtime/generate.h"

struct mk_session {
    mk_package *package;
    struct session *session;
    atomic_int is_cancelled; /* set by mk_session_cancel; cleared where a call begins */
};

struct mk_sampler {
    mk_package *package; /* has the lists that the sampler goes on using */
    struct sampler *sampler;
};

/* ---- samplers ---- */

static const char *const setting_names[] = {"greedy",
                                            "temperature",
                                            "top_k",
                                            "top_p",
                                            "min_p",
                                            "repetition_penalty",
                                            "presence_penalty",
                                            "frequency_penalty",
                                            "repetition_window",
                                            "seed"};

static bool check_names(const cJSON *object, struct err *e)
{
    if (!cJSON_IsObject(object))
        return err_set(e, ERR_USAGE, "settings: expected an object, found %s", json_type_name(object));
    for (const cJSON *item = object->child; item; item = item->next) {
        size_t i = 0, n = sizeof setting_names / sizeof *setting_names;
        while (i < n && strcmp(item->string, setting_names[i]) != 0)
            i++;
        if (i == n)
            return err_set(e, ERR_USAGE, "settings: unknown key '%s'", item->string);
    }
    return true;
}

static bool read_settings(struct sampling_options *o, const char *text, struct err *e)
{
    cJSON *json = NULL;
    static const char where[] = "settings";
    bool ok = !text || (json_parse(&json, text, strlen(text), where, e) && check_names(json, e) &&
                        json_get_bool(json, "greedy", &o->greedy, where, e) &&
                        json_get_double(json, "temperature", &o->temperature, where, e) &&
                        json_get_int(json, "top_k", &o->top_k, where, e) &&
                        json_get_double(json, "top_p", &o->top_p, where, e) &&
                        json_get_double(json, "min_p", &o->min_p, where, e) &&
                        json_get_double(json, "repetition_penalty", &o->repeat_penalty, where, e) &&
                        json_get_double(json, "presence_penalty", &o->presence_penalty, where, e) &&
                        json_get_double(json, "frequency_penalty", &o->frequency_penalty, where, e) &&
                        json_get_int(json, "repetition_window", &o->repeat_last_n, where, e) &&
                        json_get_int(json, "seed", &o->seed, where, e));
    cJSON_Delete(json);
    if (!ok)
        e->code = ERR_USAGE; /* it is the caller's text, not a file */
    return ok;
}

mk_status mk_sampler_new(mk_sampler **out, const mk_package *p, const char *settings_json, mk_error **error)
{
    struct err e = {0};
    struct sampling_options o = SAMPLING_OPTIONS_INIT;
    struct sampler *sampler = NULL;
    struct sampler_options chosen;
    *out = NULL;
    if (!read_settings(&o, settings_json, &e) || !sampling_open(&sampler, &chosen, &o, p->model, NULL, &e))
        return api_fail(&e, error);
    *out = xcalloc(1, sizeof **out);
    (*out)->sampler = sampler;
    (*out)->package = package_keep((mk_package *)(uintptr_t)p); /* only its count changes */
    return api_result(true, NULL, error);
}

mk_status mk_sampler_pick(mk_sampler *s, const float *logits, size_t n, const int32_t *history,
                          size_t n_history, int32_t *id, mk_error **error)
{
    struct err e = {0};
    *id = -1;
    if (n != (size_t)s->package->model->vocab_size)
        return api_usage(error, "%zu logits, expected the vocabulary's %lld", n,
                         (long long)s->package->model->vocab_size);
    if (!sampler_can_pick(logits, (int64_t)n)) {
        err_set(&e, ERR_MISMATCH, "none of the %zu logits is a number", n);
        return api_fail(&e, error);
    }
    *id = sampler_pick(s->sampler, logits, history, n_history);
    return api_result(true, NULL, error);
}

void mk_sampler_free(mk_sampler *s)
{
    if (!s)
        return;
    sampler_free(s->sampler);
    mk_package_close(s->package);
    free(s);
}

/* ---- sessions ---- */

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

/* Long steps look at the session's flag and at `flag` (may be NULL), which is the caller's: not after the call. */
static void begin_call(mk_session *s, const atomic_int *flag)
{
    atomic_store(&s->is_cancelled, 0);
    session_set_stop(s->session, flag, &s->is_cancelled);
}

static void end_call(mk_session *s)
{
    session_set_stop(s->session, NULL, NULL);
}

static bool check_ids(const mk_session *s, const int32_t *ids, size_t n, struct err *e)
{
    int64_t size = s->package->model->vocab_size;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= size)
            return err_set(e, ERR_USAGE, "token %zu: expected an id below %lld (the vocabulary), found %d", i,
                           (long long)size, ids[i]);
    return true;
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
    begin_call(s, log.log.cancel);
    progress_begin(&progress, &log.log, "prompt", "tokens", 1, (double)n);
    bool ok = check_ids(s, ids, n, &e) && session_sync(s->session, ids, n, &progress, reused, &e);
    progress_end(&progress);
    end_call(s);
    return api_result(ok, &e, error);
}

mk_status mk_session_step(mk_session *s, int32_t id, mk_error **error)
{
    struct err e = {0};
    begin_call(s, NULL);
    bool ok =
        check_ids(s, &id, 1, &e) && session_feed(s->session, &id, 1, SESSION_CONTRACT, NULL, NULL, NULL, &e);
    end_call(s);
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

mk_status mk_session_generate(mk_session *s, mk_sampler *sampler, int64_t limit, mk_token_fn fn,
                              void *context, const mk_call *call, size_t *n, int32_t *end, mk_error **error)
{
    static const int32_t ends[] = {[GENERATE_LENGTH] = MK_END_LENGTH,
                                   [GENERATE_STOP] = MK_END_STOP,
                                   [GENERATE_CONTEXT] = MK_END_CONTEXT,
                                   [GENERATE_CANCELLED] = MK_END_CALLER};
    struct err e = {0};
    struct api_log log;
    struct token_sink sink = {.fn = fn, .context = context, .log = &log.log};
    struct ids ids = {0};
    enum generate_end why = GENERATE_LENGTH;
    int64_t n_generated = 0;
    *n = 0;
    if (!api_log_init(&log, s->package->library, call, &s->is_cancelled, error))
        return MK_USAGE;
    if (sampler->package->model != s->package->model)
        return api_usage(error, "the sampler belongs to another package");
    if (!session_has_logits(s->session))
        return api_usage(error, "the session has no logits to go on from");
    begin_call(s, log.log.cancel);
    size_t n_tokens;
    const int32_t *tokens = mk_session_tokens(s, &n_tokens);
    for (size_t i = 0; i < n_tokens; i++)
        ids_push(&ids, tokens[i]);
    struct generate g = {.model = s->package->model,
                         .session = s->session,
                         .sampler = sampler->sampler,
                         .limit = limit < 0 ? INT64_MAX : limit,
                         .log = &log.log,
                         .on_token = pass_token,
                         .context = &sink};
    bool ok = generate_tokens(&g, &ids, &n_generated, &why, &e);
    end_call(s); /* what follows is short, and is done for a call that was stopped, too */
    /* So that the context holds all that was given out, and a next call goes on behind it. */
    if (ok && why != GENERATE_STOP && why != GENERATE_CONTEXT && n_generated > 0 &&
        session_position(s->session) < s->package->model->context_length)
        ok = session_feed(s->session, &ids.p[ids.n - 1], 1, SESSION_CONTRACT, NULL, NULL, NULL, &e);
    if (ok && why == GENERATE_CANCELLED && !sink.has_stopped)
        ok = err_set(&e, ERR_CANCELLED, "interrupted");
    *n = (size_t)n_generated;
    if (ok && end)
        *end = ends[why];
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
